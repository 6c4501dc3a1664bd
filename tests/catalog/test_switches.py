"""A switch, a choice or a number holds, or nothing is created: in Python, a file, the environment and on the command line."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog import load_catalog as load_as_pyiceberg_does
from pyiceberg.table import Table

import tablecrypt
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import migrate
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt_catalog import EncryptedInMemoryCatalog, load_catalog
from tests.support import denying_kms
from tests.support.aws import AwsServer
from tests.support.command import Command, new_database
from tests.support.configuration import configure
from tests.support.edited_metadata import edited
from tests.support.plaintext import CANARY
from tests.support.tables import ENCRYPTED, MASTER_KEY, ROWS, encrypted_sql_catalog, new_table, unpinned_catalog

pytestmark = pytest.mark.usefixtures("home")

ON = ["true", "TRUE", "True", "yes", "Yes", "on", "ON", "1"]
OFF = ["false", "False", "no", "NO", "off", "0"]
NEITHER = ["", "y", "t", "n", "f", "enabled", "disabled", "ture", "flase", "tru", " true", "2", "None", "required"]

SET_WRONGLY = [
    ("encryption.required", "ture"),
    ("tablecrypt.spark.require-encrypted-rpc", "enabled"),
    ("tablecrypt.spark.executor-keys", "sparks"),
    ("tablecrypt.spark.executor-keys", ""),
    ("encryption.masked-reads", "masks"),
    ("encryption.default-key-id", ""),
    ("encryption.default-key-id", " "),
    ("encryption.kms-type", "amazon"),
    ("encryption.kms.cache-ttl-ms", "1h"),
    ("encryption.kms.cache-max-keys", "-1"),
    ("encryption.kms.retry-budget-ms", "3e4"),
    ("io.manifest.cache.max-total-bytes", "100MB"),
    ("kms.encryption-algorithm-spec", "RSA"),
    ("kms.data-key-spec", "AES"),
    ("azure.keyvault.key-wrap-algorithm", "none"),
    ("client.assume-role.timeout-sec", "1h"),
]

MISSPELT = [
    ("kms.local.key-fiel", "Did you mean kms.local.key-file"),
    ("kms.endpiont", "Did you mean kms.endpoint"),
    ("kms-endpoint", "write kms.endpoint"),
    ("kms.memory.nmae", "Did you mean kms.memory.name"),
    ("vault.tokn", "Did you mean vault.token"),
    ("azure.keyvault.uri", "Did you mean azure.keyvault.url"),
    ("gcp.kms.endpont", "Did you mean gcp.kms.endpoint"),
    ("encryption-required", "write encryption.required"),
    ("encryption_required", "write encryption.required"),
    ("encrytion.required", "Did you mean encryption.required"),
    ("encryptions.required", "Did you mean encryption.required"),
    ("tablecrpyt.spark.executor-keys", "Did you mean tablecrypt.spark.executor-keys"),
    ("tablecrypt.spark.require-encrypted-rcp", "Did you mean tablecrypt.spark.require-encrypted-rpc"),
    ("kms.anything", "docs/reference/properties.md"),
]


Loader = Callable[[str, Any], Catalog]


@pytest.fixture(params=["python", "pyiceberg", "yaml", "environment"])
def loaded_with(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch, sql: dict[str, str]) -> Loader:
    """Load the catalog `prod` with one property more, given in one of the places where a user may give it."""

    def load(name: str, value: Any) -> Catalog:
        if request.param == "python":
            return load_catalog("prod", **{**sql, name: value})
        if request.param == "pyiceberg":
            return load_as_pyiceberg_does("prod", **{**sql, name: value})
        if request.param == "yaml":
            configure(home, {"prod": {**sql, name: value}})
            return load_catalog("prod")
        for each, text in {**sql, name: value}.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{each.replace('.', '__').replace('-', '_').upper()}", text)
        return load_catalog("prod")

    return load


@pytest.mark.parametrize("word", ON)
def test_a_catalog_that_requires_encryption_makes_no_plain_table(loaded_with: Loader, warehouse: Path, word: str) -> None:
    catalog = loaded_with("encryption.required", word)
    catalog.create_namespace("db")

    with pytest.raises(ConfigurationError, match=r"encryption\.required=true"):
        catalog.create_table("db.t", ROWS.schema).append(ROWS)

    assert catalog.list_tables("db") == []
    assert not [each for each in warehouse.rglob("*") if each.is_file() and CANARY.encode() in each.read_bytes()]


@pytest.mark.parametrize("word", OFF)
def test_a_catalog_that_does_not_require_it_makes_plain_tables(loaded_with: Loader, word: str) -> None:
    catalog = loaded_with("encryption.required", word)
    catalog.create_namespace("db")

    assert not tablecrypt.is_encrypted(catalog.create_table("db.t", ROWS.schema))


@pytest.mark.parametrize(("name", "value"), [*(("encryption.required", word) for word in NEITHER), *SET_WRONGLY])
def test_with_any_other_word_there_is_no_catalog(loaded_with: Loader, warehouse: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name} is .*; it must"):
        loaded_with(name, value)

    assert not list(warehouse.rglob("catalog.db"))


def test_python_values_are_words_too(sql: dict[str, str]) -> None:
    for value in (True, 1):
        catalog = load_catalog("prod", **{**sql, "encryption.required": value})  # type: ignore[arg-type]
        catalog.create_namespace_if_not_exists("db")
        with pytest.raises(ConfigurationError, match=r"encryption\.required=true"):
            catalog.create_table("db.t", ROWS.schema)
    for other in (None, 2, ["true"]):
        with pytest.raises(ConfigurationError, match=r"encryption\.required is"):
            load_catalog("prod", **{**sql, "encryption.required": other})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "advice"), MISSPELT)
def test_a_misspelt_name_makes_no_catalog(loaded_with: Loader, warehouse: Path, name: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        loaded_with(name, "true")

    assert not list(warehouse.rglob("catalog.db"))


@pytest.mark.parametrize(("block", "inner"), [("encryption", "required"), ("kms", "endpoint"), ("azure", "keyvault"), ("gcp", "kms")])
def test_a_nested_block_of_the_file_is_no_property(home: Path, sql: dict[str, str], block: str, inner: str) -> None:
    configure(home, {"prod": {**sql, block: {inner: "true"}}})

    with pytest.raises(ConfigurationError, match=rf"{block} is a block of properties.*{block}\.{inner}: \.\.\."):
        load_catalog("prod")


@pytest.mark.parametrize(("name", "value"), [("encryption.required", "yes, please"), *SET_WRONGLY])
def test_the_command_says_what_is_wrong(sql: dict[str, str], name: str, value: str) -> None:
    new_database(Path(sql["uri"].removeprefix("sqlite:///")))
    done = Command({**sql, name: value}).run("audit")

    assert done.code != 0
    assert (f"{name} is '{value}'; it must" if value else f"--property {name} has no value") in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["encryption.pins", "encryption.kms-type", "encryption.masked-reads", "encryption.default-key-id"])
def test_what_a_program_did_not_find_is_not_taken_for_a_setting_that_is_left_out(name: str) -> None:
    properties: dict[str, Any] = {"encryption.kms-impl": denying_kms.CLASS, name: None}
    with pytest.raises(ConfigurationError, match=f"^{name} is 'None'; it must"):
        EncryptedInMemoryCatalog("prod", **properties)


@pytest.mark.parametrize(("name", "advice"), MISSPELT)
def test_the_command_takes_no_misspelt_name(sql: dict[str, str], name: str, advice: str) -> None:
    new_database(Path(sql["uri"].removeprefix("sqlite:///")))
    done = Command({**sql, name: "true"}).run("audit")

    assert done.code != 0
    assert advice in done.stderr


def test_a_key_service_takes_no_misspelt_name_either(tmp_path: Path) -> None:
    local = {"encryption.kms-type": "local", "kms.local.key-file": str(tmp_path / "keys.json")}
    with pytest.raises(ConfigurationError, match=r"Did you mean encryption\.kms\.cache-ttl-ms"):
        tablecrypt.load_kms({**local, "encryption.kms.cache-ttl": "0"})
    with pytest.raises(ConfigurationError, match=r"Did you mean kms\.local\.key-file"):
        tablecrypt.load_kms({**local, "kms.local.key-fiel": "x"})


def test_a_class_of_the_users_own_reads_its_own_names_and_words() -> None:
    own = {"encryption.kms-impl": denying_kms.CLASS, "kms.slot": "3", "vault.cluster": "a", "kms.data-key-spec": "AES_512"}
    assert EncryptedInMemoryCatalog("prod", **own).properties["kms.slot"] == "3"

    for name, meant in (("kms.endpiont", "kms.endpoint"), ("encryption.requird", "encryption.required")):
        with pytest.raises(ConfigurationError, match=f"Did you mean {meant}"):
            EncryptedInMemoryCatalog("prod", **own, **{name: "x"})
    with pytest.raises(ConfigurationError, match=r"encryption\.required is 'ture'"):
        EncryptedInMemoryCatalog("prod", **own, **{"encryption.required": "ture"})


class TestNamespaces:
    """encryption.default-key-id of a namespace."""

    def test_a_misspelt_default_key_is_not_set(self, tmp_path: Path, aws: AwsServer) -> None:
        catalog = encrypted_sql_catalog(tmp_path, aws)
        for name in ("encryption.defualt-key-id", "encryption-default-key-id", "encryption.key-id", "encrytion.key-id", "kms.endpoint"):
            with pytest.raises(ConfigurationError, match="is not a property of a namespace"):
                catalog.create_namespace("slip", {name: MASTER_KEY})
            with pytest.raises(ConfigurationError, match="is not a property of a namespace"):
                catalog.update_namespace_properties("db", updates={name: MASTER_KEY})

        assert not catalog.namespace_exists("slip")
        catalog.update_namespace_properties("db", updates={"encryption.default-key-id": MASTER_KEY, "owner": "me"})
        assert catalog.load_namespace_properties("db")["encryption.default-key-id"] == MASTER_KEY

    def test_where_another_client_has_misspelt_it_no_plain_table_is_made(self, tmp_path: Path, aws: AwsServer, sql: dict[str, str]) -> None:
        catalog = load_catalog("prod", **sql)
        plain = load_as_pyiceberg_does("prod", type="sql", uri=sql["uri"], warehouse=sql["warehouse"])
        plain.create_namespace("db", {"encryption.defualt-key-id": MASTER_KEY})

        with pytest.raises(ConfigurationError, match=r"Did you mean encryption\.default-key-id"):
            catalog.create_table("db.t", ROWS.schema)

        assert catalog.list_tables("db") == []
        assert tablecrypt.is_encrypted(catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED))

    def test_a_default_key_that_names_none_is_not_set_and_makes_no_plain_table(
        self, tmp_path: Path, aws: AwsServer, sql: dict[str, str]
    ) -> None:
        with pytest.raises(ConfigurationError, match=r"encryption\.default-key-id is ''; it must have a value"):
            encrypted_sql_catalog(tmp_path, aws).create_namespace("slip", {"encryption.default-key-id": ""})
        catalog = load_catalog("prod", **sql)
        plain = load_as_pyiceberg_does("prod", type="sql", uri=sql["uri"], warehouse=sql["warehouse"])
        plain.create_namespace("db", {"encryption.default-key-id": ""})

        with pytest.raises(ConfigurationError, match=r"encryption\.default-key-id is ''; it must have a value"):
            catalog.create_table("db.t", ROWS.schema)

        assert catalog.list_tables("db") == []

    def test_other_names_below_a_key_service_are_the_users_own(self, tmp_path: Path, aws: AwsServer) -> None:
        catalog = encrypted_sql_catalog(tmp_path, aws)
        catalog.create_namespace("hubs", {"vault.layer": "raw", "kms.owner": "us", "team.encryption.contact": "us", "encrypted": "yes"})

        table = catalog.create_table("hubs.t", ROWS.schema)
        table.transaction().set_properties({"vault.loader": "nightly"}).commit_transaction()

        assert catalog.load_namespace_properties("hubs")["vault.layer"] == "raw"
        assert table.properties["vault.loader"] == "nightly"


OF_TABLES = ["encryption.column-guard", "gc.enabled", "write.wap.enabled", "write.spark.accept-any-schema"]


class TestTables:
    """Switches of tables."""

    @pytest.mark.parametrize("slip", ["GC.Enabled", "gc_enabled", " gc.enabled", "gc-enabled"])
    def test_a_name_that_nobody_reads_is_not_set(self, tmp_path: Path, aws: AwsServer, slip: str) -> None:
        catalog = encrypted_sql_catalog(tmp_path, aws)
        with pytest.raises(ConfigurationError, match=r"write gc\.enabled"):
            catalog.create_table("db.t", ROWS.schema, properties={**ENCRYPTED, slip: "false"})
        table = catalog.create_table("db.t", ROWS.schema, properties={**ENCRYPTED, "write.format": "the user's own"})

        with pytest.raises(ConfigurationError, match=r"write gc\.enabled"), table.transaction() as transaction:
            transaction.set_properties({slip: "false"})

    @pytest.mark.parametrize("name", [*OF_TABLES, "write.parquet.bloom-filter-enabled.column.id"])
    @pytest.mark.parametrize("word", ["flase", "", "y", "none"])
    def test_a_word_that_is_none_is_not_set(self, tmp_path: Path, aws: AwsServer, name: str, word: str) -> None:
        catalog = encrypted_sql_catalog(tmp_path, aws)
        with pytest.raises(ConfigurationError, match=f"{name} is '{word}'; it must be true or false"):
            catalog.create_table("db.t", ROWS.schema, properties={**ENCRYPTED, name: word})
        assert catalog.list_tables("db") == []
        table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)

        with pytest.raises(ConfigurationError, match=f"{name} is '{word}'; it must be true or false"), table.transaction() as transaction:
            transaction.set_properties({name: word})

        assert name not in catalog.load_table("db.t").properties

    @pytest.mark.parametrize("number", ["x", "-1", "1s", ""])
    def test_what_decides_about_tries_of_commits_is_a_number(self, tmp_path: Path, aws: AwsServer, number: str) -> None:
        catalog = encrypted_sql_catalog(tmp_path, aws)
        for name in ("num-retries", "min-wait-ms", "max-wait-ms", "total-timeout-ms"):
            with pytest.raises(ConfigurationError, match=f"commit.retry.{name} is '{number}'; it must be a whole number"):
                catalog.create_table("db.t", ROWS.schema, properties={**ENCRYPTED, f"commit.retry.{name}": number})
        assert catalog.list_tables("db") == []

    @pytest.mark.parametrize("name", ["kms.local.key-file", "vault.token", "encryption-key-id", "encrpytion.key-id"])
    def test_no_table_has_a_catalogs_property_or_a_misspelt_one(self, tmp_path: Path, aws: AwsServer, name: str) -> None:
        catalog = encrypted_sql_catalog(tmp_path, aws)
        with pytest.raises(ConfigurationError, match="is not a property of a table"):
            catalog.create_table("db.t", ROWS.schema, properties={name: "x"})
        assert catalog.list_tables("db") == []

    def test_a_plain_table_has_icebergs_properties_as_pyiceberg_takes_them(self, tmp_path: Path, aws: AwsServer) -> None:
        odd = {"gc.enabled": "maybe", "write.wap.enabled": "", "encrypted": "no", "kmsid": "1", "vault.layer": "raw", "kms.owner": "us"}
        assert encrypted_sql_catalog(tmp_path, aws).create_table("db.t", ROWS.schema, properties=odd).properties.items() >= odd.items()

    @pytest.mark.parametrize("name", [*OF_TABLES, "encryption.kek-lifespan-ms", "encryption.data-key-length"])
    def test_a_word_that_another_client_has_stored_keeps_nobody_from_reading(self, tmp_path: Path, aws: AwsServer, name: str) -> None:
        table = new_table(unpinned_catalog(tmp_path, aws), appends=[ROWS])

        stored = edited(table, lambda metadata: metadata["properties"].update({name: "maybe"}))

        assert stored.scan().to_arrow().equals(ROWS.cast(stored.scan().to_arrow().schema))
        assert stored.inspect.snapshots().num_rows == 1

    @pytest.mark.parametrize(("name", "value"), [("encryption.kek-lifespan-ms", "86400000"), ("encryption.data-key-length", "32")])
    def test_nothing_is_committed_until_a_length_or_lifespan_is_mended(self, tmp_path: Path, aws: AwsServer, name: str, value: str) -> None:
        table = unpinned_catalog(tmp_path, aws).create_table("db.t", ROWS.schema, properties=ENCRYPTED)
        stored = edited(table, lambda metadata: metadata["properties"].update({name: "maybe"}))

        with pytest.raises(ConfigurationError, match=name):
            stored.append(ROWS)
        stored.transaction().set_properties({name: value}).commit_transaction()

        stored.append(ROWS)
        assert stored.scan().to_arrow().num_rows == ROWS.num_rows

    @pytest.mark.parametrize("word", ["false", "no", "OFF", "0", "maybe", ""])
    def test_only_a_word_for_yes_lets_files_be_deleted(self, tmp_path: Path, aws: AwsServer, word: str) -> None:
        table = new_table(unpinned_catalog(tmp_path, aws), appends=[ROWS])
        table.overwrite(ROWS)
        stored = edited(table, lambda metadata: metadata["properties"].update({"gc.enabled": word}))

        with pytest.raises(ConfigurationError, match=r"gc\.enabled"):
            _expire(stored)

        for yes in ("yes", "on", "1", "True"):
            stored.transaction().set_properties({"gc.enabled": yes}).commit_transaction()
            _expire(stored)

    @pytest.mark.parametrize("word", ["Merge-On-Read", "merge-on-raed"])
    def test_a_mode_of_deletes_is_one_of_two(self, tmp_path: Path, aws: AwsServer, word: str) -> None:
        table = unpinned_catalog(tmp_path, aws).create_table("db.t", ROWS.schema, properties=ENCRYPTED)
        table.append(ROWS)
        table = edited(table, lambda metadata: metadata["properties"].update({"write.delete.mode": word}))

        if word != "Merge-On-Read":
            with pytest.raises(ConfigurationError, match=r"write\.delete\.mode is .*Did you mean merge-on-read"):
                table.delete("id = 1")
            return
        table.delete("id = 1")
        assert table.inspect.delete_files().num_rows == 1

    def test_a_migration_is_refused_before_it_begins(self, unwatched_warehouse: Path, aws: AwsServer) -> None:
        catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
        catalog.create_table("db.t", ROWS.schema).append(ROWS)
        before = sorted(unwatched_warehouse.rglob("*"))

        for wrong in ({"encryption.kek-lifespn-ms": "1"}, {"encryption.data-key-length": "x"}, {"encryption.column-guard": "x"}):
            with pytest.raises(ConfigurationError, match=next(iter(wrong))):
                migrate(catalog.load_table("db.t"), MASTER_KEY, properties=wrong)

        assert sorted(unwatched_warehouse.rglob("*")) == before


def test_what_scans_do_with_masks_is_one_of_two_words(tmp_path: Path, aws: AwsServer) -> None:
    table = encrypted_sql_catalog(tmp_path, aws, {"encryption.masked-reads": "ERROR"}).create_table(
        "db.t", ROWS.schema, properties=ENCRYPTED
    )
    assert table.scan().masked == "error"  # type: ignore[attr-defined]
    assert table.scan(masked="MASK").masked == "mask"  # type: ignore[call-arg, attr-defined]
    with pytest.raises(ConfigurationError, match="masked is 'masks'; it must be mask or error"):
        table.scan(masked="masks")  # type: ignore[call-arg]


def _expire(table: Table) -> None:
    expire_snapshots(table, dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1), 1, delete_below=[table.location()])
