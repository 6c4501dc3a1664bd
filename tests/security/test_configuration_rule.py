"""A table's properties and a server's answers are data: they name no code, no endpoint and no receiver of credentials.

Hostile metadata and servers against real catalogs. Code is proved absent by a module that must not be imported, receivers by sockets of
this machine that must hear nothing.
"""

from __future__ import annotations

import itertools
import json
import pickle
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tablecrypt import properties as names
from tablecrypt.engines.job_keys import Role
from tablecrypt.engines.tasks import WritingTask
from tablecrypt.engines.writes import begin_write
from tablecrypt.errors import ConfigurationError, FormatError, TamperedFileError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedInMemoryCatalog, EncryptedRestCatalog, encrypted
from tests.support.aws import AwsServer
from tests.support.glue import glue_properties
from tests.support.plaintext_scan import unwatch
from tests.support.rest_proxy import Answer, Forward, Request, RestProxy
from tests.support.tables import ENCRYPTED, ROWS, encrypted_sql_catalog, encrypted_table, metadata_path, new_table

CODE_OF_TABLES = [each.name for each in names.registered() if each.names_code and not each.name.endswith(".")]
KINDS = ("glue", "sql", "memory", "made")
CANARY_MODULE = "tablecrypt_canary_module"
BUILTINS = ["builtins.exec", "subprocess.Popen", "os.system"]
EDIT = Callable[[dict[str, Any]], object]


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[str]:
    """The path of a class in a module that must not be imported."""
    folder, marker = tmp_path / "canary", tmp_path / "imported"
    folder.mkdir()
    (folder / f"{CANARY_MODULE}.py").write_text(
        f"open({str(marker)!r}, 'w').close()\n\n\nclass Canary:\n    def __init__(self, *given):\n        raise SystemError('called')\n",
        encoding="utf-8",
    )
    sys.path.insert(0, str(folder))
    try:
        yield f"{CANARY_MODULE}.Canary"
    finally:
        sys.path.remove(str(folder))
        imported = CANARY_MODULE in sys.modules or marker.exists()
        sys.modules.pop(CANARY_MODULE, None)
    assert not imported, f"{CANARY_MODULE} was imported"


@pytest.fixture
def stranger() -> Iterator[RestProxy]:
    """A host that hears whatever is sent to it, and says that nothing is there. It must hear nothing."""
    with RestProxy("http://nowhere") as server:
        server.behave(lambda request, forward: Answer(404, b"{}"))
        yield server
        assert server.seen == []


def edited(table: Table, edit: EDIT) -> str:
    """The location of a forged metadata file beside the table's own."""
    with table.io.new_input(table.metadata_location).open() as stream:
        metadata = json.loads(stream.read())
    edit(metadata)
    location = f"{table.location()}/metadata/00099-{uuid.uuid4()}.metadata.json"
    assert isinstance(table.io, EncryptingFileIO)
    with table.io.inner.new_output(location).create() as stream:
        stream.write(json.dumps(metadata).encode())
    return location


def setting(properties: dict[str, str]) -> EDIT:
    return lambda metadata: metadata["properties"].update(properties)


def made_catalog(kind: str, folder: Path, aws: AwsServer, properties: dict[str, str]) -> Catalog:
    common = {**aws.kms_properties, **aws.s3_properties, **properties}
    if kind == "sql":
        return encrypted_sql_catalog(folder, aws, properties)
    if kind == "memory":
        catalog: Catalog = EncryptedInMemoryCatalog("memory", warehouse=f"file://{folder}/warehouse", **common)
    elif kind == "made":
        catalog = encrypted(SqlCatalog)("made", uri=f"sqlite:///{folder}/made.db", warehouse=f"file://{folder}/warehouse", **common)
    else:
        bucket = aws.bucket(f"rule-{uuid.uuid4().hex[:12]}")
        unwatch(f"s3://{bucket}")
        catalog = load_catalog("glue", **{**glue_properties(aws, bucket), **properties})
    catalog.create_namespace_if_not_exists("db")
    for left in catalog.list_tables("db"):
        catalog.drop_table(left)
    return catalog


@pytest.fixture(params=KINDS)
def catalog(request: pytest.FixtureRequest, unwatched_warehouse: Path, aws: AwsServer) -> Catalog:
    return made_catalog(request.param, unwatched_warehouse, aws, {})


def test_a_table_that_names_code_is_refused_before_anything_is_imported(catalog: Catalog, canary: str) -> None:
    table = new_table(catalog, appends=[ROWS])
    for name, code in itertools.product(CODE_OF_TABLES, (canary, *BUILTINS)):
        location = edited(table, setting({name: code}))
        with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
            catalog.register_table(f"db.forged-{uuid.uuid4().hex}", location)


@pytest.mark.parametrize("name", ["py-io-impl", "write.py-location-provider.impl", "s3.retry-strategy-impl"])
def test_a_plain_table_that_names_code_is_refused_too(catalog: Catalog, canary: str, name: str) -> None:
    """The traces of encryption are the attacker's to remove: what is plain now is what was encrypted a moment ago."""
    table = new_table(catalog, schema=ROWS.schema)

    def plain(metadata: dict[str, Any]) -> None:
        metadata["properties"] = {name: canary}
        metadata["format-version"] = 2
        for gone in ("next-row-id", "encryption-keys"):
            metadata.pop(gone, None)

    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
        catalog.register_table("db.plain", edited(table, plain))


def test_an_edit_in_place_is_refused_by_the_pin_and_imports_nothing(unwatched_warehouse: Path, aws: AwsServer, canary: str) -> None:
    pins = {"encryption.pins": str(unwatched_warehouse / "pins.json")}
    for kind in ("sql", "made"):
        catalog = made_catalog(kind, unwatched_warehouse, aws, pins if kind == "made" else {})
        table = new_table(catalog, f"db.{kind}", appends=[ROWS])
        catalog.load_table(f"db.{kind}")
        path = metadata_path(table)
        honest = path.read_text(encoding="utf-8")
        for properties in ({"py-io-impl": canary}, {"owner": "somebody else"}, {"s3.endpoint": "http://stranger"}):
            forged = json.loads(honest)
            forged["properties"].update(properties)
            path.write_text(json.dumps(forged), encoding="utf-8")
            with pytest.raises((TamperedFileError, ConfigurationError)):
                catalog.load_table(f"db.{kind}")
        path.write_text(honest, encoding="utf-8")
        assert catalog.load_table(f"db.{kind}").scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("name", ["py-io-impl", "write.py-location-provider.impl"])
def test_no_client_gives_a_table_a_property_that_names_code(catalog: Catalog, canary: str, name: str) -> None:
    for properties in ({name: canary}, {name: canary, **ENCRYPTED}):
        with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
            catalog.create_table("db.t", ROWS.schema, properties=properties)
        with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
            catalog.create_table_transaction("db.t", ROWS.schema, properties=properties)
    table = new_table(catalog, schema=ROWS.schema)
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")), table.transaction() as transaction:
        transaction.set_properties({name: canary})
    assert name not in catalog.load_table("db.t").properties


def test_no_property_of_a_table_has_a_worker_import_code(unwatched_warehouse: Path, aws: AwsServer, canary: str) -> None:
    catalog = made_catalog("sql", unwatched_warehouse, aws, {})
    named = {f"tablecrypt.engines.{name}": canary for name in ("own-location-provider", "attempt", "location-provider")}
    forged = encrypted_table(catalog.register_table("db.forged", edited(new_table(catalog, appends=[ROWS]), setting(named))))
    running, access = begin_write(forged, "main", "Ray")

    task = WritingTask.open(running.ticket, running.key.encrypt(Role.SHARED, 0, pickle.dumps(access)), 3, 1)
    [written] = task.write(ROWS)

    assert written.file_path.rpartition("/")[2].startswith("00003-1-")
    assert written.record_count == len(ROWS)


def test_the_clients_own_classes_are_used(unwatched_warehouse: Path, aws: AwsServer) -> None:
    own = {
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        "write.py-location-provider.impl": "pyiceberg.table.locations.ObjectStoreLocationProvider",
    }
    catalog = made_catalog("sql", unwatched_warehouse, aws, own)
    new_table(catalog, appends=[ROWS], properties=own)
    loaded = catalog.load_table("db.t")
    assert type(loaded.io.inner).__name__ == "FsspecFileIO"  # type: ignore[attr-defined]
    assert type(loaded.location_provider()).__name__ == "ObjectStoreLocationProvider"
    assert loaded.scan().to_arrow().num_rows == 3


RECEIVERS = [
    *(
        "s3.endpoint",
        "s3.proxy-uri",
        "s3.signer.uri",
        "gcs.service.host",
        "hf.endpoint",
        "adls.account-host",
        "adls.blob-storage-authority",
    ),
    *("adls.dfs-storage-authority", "uri", "oauth2-server-uri", "kms.endpoint", "sts.endpoint", "vault.url"),
]


def test_a_table_sends_the_clients_credentials_nowhere(aws: AwsServer, unwatched_warehouse: Path, stranger: RestProxy) -> None:
    bucket = aws.bucket(f"rule-{uuid.uuid4().hex[:12]}")
    unwatch(f"s3://{bucket}")
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws, {"warehouse": f"s3://{bucket}/w", "gcs.oauth2.token": "google-token"})
    table = new_table(catalog, appends=[ROWS])
    hostile = dict.fromkeys(RECEIVERS, stranger.uri) | {
        "s3.signer": "S3V4RestSigner",
        "s3.access-key-id": "stranger",
        "s3.region": "stranger",
        "gcs.session-kwargs": json.dumps({"trust_env": True}),
        "adls.connection-string": f"BlobEndpoint={stranger.uri};SharedAccessSignature=x",
        "client.region": "stranger",
    }
    forged = catalog.register_table("db.forged", edited(table, setting(hostile)))

    assert isinstance(forged, EncryptedTable)
    assert dict(forged.io.inner.properties) == dict(catalog.properties)
    forged.append(ROWS)
    assert catalog.load_table("db.forged").scan().to_arrow().num_rows == 6


class HostileServer:
    """A catalog server of this process: it says of one table what a test wants it to say."""

    def __init__(self, proxy: RestProxy, metadata: dict[str, Any], location: str) -> None:
        self.proxy = proxy
        self.config: dict[str, Any] = {"defaults": {}, "overrides": {}}
        self.load: dict[str, Any] = {"metadata-location": location, "metadata": metadata, "config": {}}
        proxy.behave(self.answer)

    def answer(self, request: Request, forward: Forward) -> Answer:
        if request.path.startswith("/v1/config"):
            return Answer(200, json.dumps(self.config).encode())
        if "/tables/" in request.path:
            return Answer(200, json.dumps(self.load).encode())
        return Answer(404, b"{}")


@pytest.fixture
def server(aws: AwsServer, unwatched_warehouse: Path) -> Iterator[HostileServer]:
    bucket = aws.bucket(f"rule-{uuid.uuid4().hex[:12]}")
    unwatch(f"s3://{bucket}")
    table = new_table(encrypted_sql_catalog(unwatched_warehouse, aws, {"warehouse": f"s3://{bucket}/w"}), appends=[ROWS])
    with table.io.new_input(table.metadata_location).open() as stream, RestProxy("http://nowhere") as proxy:
        yield HostileServer(proxy, json.loads(stream.read()), table.metadata_location)


def connect(server: HostileServer, aws: AwsServer, properties: dict[str, str] | None = None) -> EncryptedRestCatalog:
    client = {"uri": server.proxy.uri, "token": "catalog-token", "header.X-Secret": "header-secret"}
    return EncryptedRestCatalog("prod", **{**client, **aws.kms_properties, **aws.s3_properties, **(properties or {})})


OF_THE_CLIENT = {"uri", "token", "s3.endpoint", "kms.endpoint", "encryption.kms-type"}
CLIENTS_ALONE = [
    *(each for each in RECEIVERS if each != "kms.endpoint"),
    *("s3.signer", "s3.signer.endpoint", "token", "credential", "header.Authorization", "rest.sigv4-enabled", "rest.signing-name"),
    *("snapshot-loading-mode", "encryption.pins", "encryption.kms-type", "kms.endpoint", "vault.token", "tablecrypt.spark.executor-keys"),
    *("client.role-arn", "client.profile-name", "s3.role-arn", "adls.account-name", "gcs.session-kwargs", "s3.sse-kms-key-id"),
]


@pytest.mark.parametrize("part", ["defaults", "overrides"])
def test_a_servers_configuration_names_no_receiver(server: HostileServer, aws: AwsServer, stranger: RestProxy, part: str) -> None:
    for name in CLIENTS_ALONE:
        server.config[part] = {name: stranger.uri}
        if part == "defaults" and name in OF_THE_CLIENT:
            assert connect(server, aws).load_table("db.t").scan().to_arrow().num_rows == 3
            continue
        with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
            connect(server, aws)


@pytest.mark.parametrize("part", ["defaults", "overrides", "table", "storage-credentials", "metadata"])
def test_a_server_names_no_code(server: HostileServer, aws: AwsServer, canary: str, part: str) -> None:
    for name in CODE_OF_TABLES:
        hostile: dict[str, Any] = {name: {"type": "custom", "impl": canary} if name == "auth" and part in server.config else canary}
        if part == "table":
            server.load["config"] = hostile
        elif part == "storage-credentials":
            server.load["storage-credentials"] = [{"prefix": "s3://", "config": hostile}]
        elif part == "metadata":
            server.load["metadata"]["properties"] = {**ENCRYPTED, **hostile}
        else:
            server.config[part] = hostile
        with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
            connect(server, aws).load_table("db.t")


@pytest.mark.parametrize("part", ["config", "storage-credentials", "credentials of another prefix"])
def test_what_a_server_vends_with_a_table_names_no_receiver(server: HostileServer, aws: AwsServer, stranger: RestProxy, part: str) -> None:
    catalog = connect(server, aws)
    # A table's token is for the server that sent it, and goes into no FileIO.
    for name in {*CLIENTS_ALONE, "auth"} - {"token"}:
        if part == "config":
            server.load["config"] = {name: stranger.uri}
        else:
            prefix = "s3://" if part == "storage-credentials" else "s3://another-bucket"
            server.load["storage-credentials"] = [{"prefix": prefix, "config": {name: stranger.uri, "s3.access-key-id": "x"}}]
        with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
            catalog.load_table("db.t")


def test_a_server_vends_credentials_for_the_clients_own_endpoint(server: HostileServer, aws: AwsServer, stranger: RestProxy) -> None:
    server.config["overrides"] = {"prefix": "", "s3.endpoint": aws.endpoint, "s3.region": "eu-west-1"}
    server.config["defaults"] = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "clients": "4"}
    server.load["metadata"]["properties"].update({"s3.endpoint": stranger.uri})
    server.load["config"] = {"s3.access-key-id": "first", "s3.secret-access-key": "first", "token": "of the table"}
    vended = {"s3.access-key-id": "vended", "s3.secret-access-key": "vended", "s3.session-token": "vended"}
    server.load["storage-credentials"] = [{"prefix": "s3://", "config": vended}]
    catalog = connect(server, aws)
    table = catalog.load_table("db.t")

    properties = table.io.inner.properties  # type: ignore[attr-defined]
    assert {name: properties[name] for name in vended} == vended
    assert properties["s3.endpoint"] == aws.endpoint
    assert properties["s3.region"] == "eu-west-1"
    assert properties["token"] == "catalog-token"
    assert "io-impl" not in properties
    assert table.scan().to_arrow().num_rows == 3


def test_a_server_that_repeats_the_clients_address_is_no_attack_and_changes_nothing(
    server: HostileServer, aws: AwsServer, stranger: RestProxy
) -> None:
    own = server.proxy.uri
    for repeated in (own, f"{own}/", own.upper()):
        server.config["overrides"] = server.load["config"] = {"uri": repeated}
        catalog = connect(server, aws)
        table = catalog.load_table("db.t")
        assert (catalog.uri, catalog.properties["uri"]) == (own, own)
        assert table.scan().to_arrow().num_rows == 3
        assert table.io.inner.properties["uri"] == own  # type: ignore[attr-defined]

    for other in (stranger.uri, f"{own}/more", own.replace("http://", "http://user@"), own.replace("127.0.0.1", "localhost")):
        server.config["overrides"] = {"uri": other}
        with pytest.raises(ConfigurationError, match="uri"):
            connect(server, aws)


def test_no_token_of_google_is_for_another_host(server: HostileServer, aws: AwsServer, stranger: RestProxy) -> None:
    server.load["metadata"]["properties"] |= {"gcs.service.host": stranger.uri, "gcs.oauth2.token": "x", "gcs.session-kwargs": "{}"}
    own = {"gcs.service.host": "https://storage.example", "gcs.oauth2.token": "google-token"}

    properties = connect(server, aws, own).load_table("db.t").io.inner.properties  # type: ignore[attr-defined]

    assert {name: value for name, value in properties.items() if name.startswith("gcs.")} == own


def test_a_server_does_not_turn_off_the_hash_of_a_pin(server: HostileServer, aws: AwsServer, tmp_path: Path) -> None:
    pinned = {"encryption.pins": str(tmp_path / "pins.json")}
    connect(server, aws, pinned).load_table("db.t")
    server.load["metadata"]["schemas"][0]["fields"][1]["name"] = "renamed"
    with pytest.raises(TamperedFileError):
        connect(server, aws, pinned).load_table("db.t")
    server.config["overrides"] = {"snapshot-loading-mode": "all"}
    with pytest.raises(ConfigurationError, match="snapshot-loading-mode"):
        connect(server, aws, pinned).load_table("db.t")


@pytest.mark.parametrize("place", ["top", "field"])
def test_metadata_in_a_servers_answer_has_no_key_that_this_client_skips(server: HostileServer, aws: AwsServer, place: str) -> None:
    catalog = connect(server, aws)
    table, metadata = catalog.load_table("db.t"), server.load["metadata"]
    (metadata if place == "top" else metadata["schemas"][0]["fields"][0]).update(initial_default=7)
    with pytest.raises(FormatError, match="initial_default' is not one of Iceberg's"):
        catalog.load_table("db.t")
    with pytest.raises(FormatError, match="initial_default' is not one of Iceberg's"):
        table.refresh()


def test_a_server_does_not_make_a_full_table_look_empty(server: HostileServer, aws: AwsServer) -> None:
    server.load["metadata"]["current-snapshot-id"] = None
    for look in (connect(server, aws).load_table, connect(server, aws).accept_rollback):
        with pytest.raises(TamperedFileError, match="main points to"):
            look("db.t")


def test_a_commits_answer_brings_no_code(server: HostileServer, aws: AwsServer, canary: str) -> None:
    table = connect(server, aws).load_table("db.t")
    server.load["metadata"]["properties"]["write.py-location-provider.impl"] = canary
    with pytest.raises(ConfigurationError, match="location-provider"), table.transaction() as transaction:
        transaction.set_properties({"owner": "me"})
    with pytest.raises(ConfigurationError, match="location-provider"):
        table.refresh()


def test_what_a_server_says_does_not_reach_executors(server: HostileServer, aws: AwsServer) -> None:
    server.config["overrides"] = {"client.region": "eu-south-9", "gcs.oauth2.token": "vended"}
    catalog = connect(server, aws)
    table = catalog.load_table("db.t")
    assert isinstance(table, EncryptedTable)

    sent = LocatedTable(catalog, "db.t", table).kms_properties

    assert sent == aws.kms_properties


@pytest.mark.parametrize("config", [{"defaults": None, "overrides": None}, {"defaults": [], "overrides": {}}, {"endpoints": ["x"]}, []])
def test_a_configuration_that_is_none_is_an_error_of_its_own(server: HostileServer, aws: AwsServer, config: Any) -> None:
    server.config = config
    with pytest.raises(FormatError, match="configuration"):
        connect(server, aws)


@pytest.mark.parametrize("value", [None, 1, ["s3.endpoint"], {"a": "b"}])
def test_values_that_are_no_text_are_refused(server: HostileServer, aws: AwsServer, value: Any) -> None:
    server.config["overrides"] = {"prefix": value}
    with pytest.raises((ConfigurationError, FormatError)):
        connect(server, aws)
