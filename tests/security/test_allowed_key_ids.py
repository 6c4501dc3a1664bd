"""Somebody names a master key of their own in metadata or in a file: a client that lists its own never asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tablecrypt import load_kms, maintenance
from tablecrypt.engines.job_keys import issue_job
from tablecrypt.errors import ConfigurationError, MasterKeyRefusedError
from tablecrypt.hadoop_kms import HadoopKmsKeys
from tablecrypt.kms.factory import shared_kms
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.orc.key_providers import KmsKeys, KmsMasterKeys, MasterKeyVersion, WrappedMasterKey
from tablecrypt.parquet import PropertiesDrivenCryptoFactory, read_table, write_table
from tablecrypt.spark.network import kms_properties
from tests.support import command
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited
from tests.support.tables import MASTER_KEY, SCHEMA, encrypted_sql_catalog, keks, new_table, rows, unpinned_catalog

ONLY_OURS = {"encryption.allowed-key-ids": f"{MASTER_KEY}, alias/other-*"}


@pytest.fixture
def ours(tmp_path: Path, aws: AwsServer) -> Catalog:
    """A catalog of a client that lists its master keys."""
    return encrypted_sql_catalog(tmp_path, aws, ONLY_OURS)


@pytest.fixture
def careless(tmp_path: Path, aws: AwsServer) -> Catalog:
    """The same catalog, of a client that names none."""
    return encrypted_sql_catalog(tmp_path, aws)


def made(catalog: Catalog, key_id: str, name: str = "db.t") -> Table:
    return new_table(catalog, name, appends=[rows(0)], properties={"encryption.key-id": key_id})


@contextmanager
def nothing_asked(properties: Mapping[str, str]) -> Iterator[None]:
    """Within it the key service is not asked by the client of these properties."""
    before = shared_kms(properties).calls
    yield
    assert shared_kms(properties).calls == before


def test_a_table_under_another_master_key_is_not_loaded(ours: Catalog, careless: Catalog, aws: AwsServer) -> None:
    forged, right = made(careless, aws.new_key(), "db.forged"), made(careless, MASTER_KEY, "db.right")
    with nothing_asked(ours.properties):
        with pytest.raises(MasterKeyRefusedError, match=r"metadata of table db\.forged names master key"):
            ours.load_table("db.forged")
        with pytest.raises(MasterKeyRefusedError):
            ours.register_table("db.again", forged.metadata_location)
    assert ours.load_table("db.right").scan().to_arrow().equals(right.scan().to_arrow())


def test_a_kek_that_says_another_master_key_wraps_it_is_refused_at_the_load(tmp_path: Path, aws: AwsServer) -> None:
    catalog = unpinned_catalog(tmp_path, aws, **ONLY_OURS)
    table, foreign = made(catalog, MASTER_KEY), aws.new_key()

    def name_another(metadata: dict[str, Any]) -> None:
        for key in metadata["encryption-keys"]:
            if "properties" in key:
                key["encrypted-by-id"] = foreign

    with nothing_asked(catalog.properties), pytest.raises(MasterKeyRefusedError, match=foreign):
        edited(table, name_another)


def test_metadata_that_changes_under_a_loaded_table_is_refused_by_its_commit(tmp_path: Path, aws: AwsServer) -> None:
    catalog = unpinned_catalog(tmp_path, aws, **ONLY_OURS)
    table, foreign = made(catalog, MASTER_KEY), aws.new_key()
    with pytest.raises(MasterKeyRefusedError):
        edited(table, lambda metadata: metadata["properties"].update({"encryption.key-id": foreign}))
    with pytest.raises(MasterKeyRefusedError):
        table.refresh()
    for operation in (lambda: maintenance.rotate_kek(table), lambda: maintenance.rewrap(table), lambda: maintenance.prune_keys(table)):
        with pytest.raises(MasterKeyRefusedError):
            operation()


def test_no_table_is_made_or_migrated_under_another_master_key(ours: Catalog, tmp_path: Path, aws: AwsServer) -> None:
    foreign = aws.new_key()
    plain = ours.create_table("db.plain", SCHEMA)
    plain.append(rows(0))
    with nothing_asked(ours.properties):
        with pytest.raises(MasterKeyRefusedError):
            ours.create_table("db.new", SCHEMA, properties={"encryption.key-id": foreign})
        with pytest.raises(MasterKeyRefusedError):
            ours.create_table_transaction("db.new", SCHEMA, properties={"encryption.key-id": foreign})
        with pytest.raises(MasterKeyRefusedError):
            maintenance.migrate(plain, key_id=foreign)
    assert not ours.table_exists("db.new")
    assert ours.load_table("db.plain").scan().to_arrow().num_rows == 20


def test_nothing_is_rewrapped_from_or_copied_to_another_master_key(ours: Catalog, tmp_path: Path, aws: AwsServer) -> None:
    table, foreign = made(ours, MASTER_KEY), aws.new_key()
    before = keks(table)
    with pytest.raises(MasterKeyRefusedError, match=foreign):
        maintenance.rewrap(table, from_key_id=foreign)
    with pytest.raises(MasterKeyRefusedError, match=foreign):
        maintenance.relocate(table, f"file://{tmp_path}/copy", key_id=foreign)
    assert keks(table.refresh()) == before
    assert not (tmp_path / "copy").exists()
    client = shared_kms(dict(ours.properties))
    asked = client.calls
    for use in (
        lambda: client.wrap_key(bytes(16), foreign),
        lambda: client.generate_key(foreign),
        lambda: client.unwrap_key(bytes(80), foreign),
        lambda: client.rewrap_key(bytes(80), foreign, MASTER_KEY),
        lambda: client.rewrap_key(bytes(80), MASTER_KEY, foreign),
    ):
        with pytest.raises(MasterKeyRefusedError):
            use()
    assert client.calls == asked


def test_an_audit_reports_the_table_and_goes_on(ours: Catalog, careless: Catalog, aws: AwsServer) -> None:
    foreign = aws.new_key()
    made(careless, foreign, "db.forged")
    made(careless, MASTER_KEY, "db.right")
    found = {table.table: [finding.kind.code for finding in table.findings] for table in maintenance.audit(ours).tables}
    assert found["db.forged"] == ["key-not-allowed"]
    assert "key-not-allowed" not in found["db.right"]


def test_executors_refuse_what_the_driver_refuses(aws: AwsServer) -> None:
    foreign = aws.new_key()
    sent = kms_properties({**aws.kms_properties, **ONLY_OURS, "warehouse": "file:///nowhere"})
    ticket, _ = issue_job(load_kms(aws.kms_properties), foreign, sent)
    with nothing_asked(sent), pytest.raises(MasterKeyRefusedError):
        ticket.redeem()


def test_a_table_cannot_widen_the_list(tmp_path: Path, aws: AwsServer) -> None:
    catalog = unpinned_catalog(tmp_path, aws, **ONLY_OURS)
    widened = {"encryption.key-id": aws.new_key(), "encryption.allowed-key-ids": "*"}
    with pytest.raises(ConfigurationError, match="is a property of a catalog"):
        catalog.create_table("db.new", SCHEMA, properties=widened)
    table = new_table(catalog)
    with pytest.raises(MasterKeyRefusedError):
        edited(table, lambda metadata: metadata["properties"].update(widened))


def column_keys(master: str) -> dict[str, str]:
    return {"parquet.encryption.footer.key": "ours", "parquet.encryption.column.keys": f"{master}: id"}


@pytest.mark.parametrize("double_wrapping", ["true", "false"], ids=["double wrapping", "single wrapping"])
def test_key_material_of_a_parquet_file_names_no_other_master_key(tmp_path: Path, double_wrapping: str) -> None:
    kms = MemoryKeyManagementClient({}, {"ours": bytes(32), "theirs": bytes(32)})
    path, table = str(tmp_path / "t.parquet"), pa.table({"id": [1, 2]})
    careless = PropertiesDrivenCryptoFactory(kms)
    write_table(table, path, careless.encryption_keys({**column_keys("theirs"), "parquet.encryption.double.wrapping": double_wrapping}))
    assert read_table(path, careless.decryption_keys(path)).equals(table)

    ours = PropertiesDrivenCryptoFactory(kms, allowed_key_ids="ours")
    with pytest.raises(MasterKeyRefusedError, match="key material of a Parquet file names master key 'theirs'"):
        read_table(path, ours.decryption_keys(path))
    with pytest.raises(MasterKeyRefusedError, match="theirs"):
        ours.encryption_keys(column_keys("theirs"))
    write_table(table, path, ours.encryption_keys(column_keys("ours ")))
    assert read_table(path, ours.decryption_keys(path)).equals(table)
    limited = PropertiesDrivenCryptoFactory(load_kms({"encryption.kms-type": "memory", "encryption.allowed-key-ids": "ours"}))
    with pytest.raises(MasterKeyRefusedError, match="theirs"):
        limited.encryption_keys(column_keys("theirs"))


def test_orc_master_keys_are_those_that_are_allowed(aws: AwsServer) -> None:
    kms = load_kms(aws.kms_properties)
    wrapped = WrappedMasterKey(aws.new_key(), b"as somebody wrapped it", 16)
    for build in (
        lambda: KmsKeys(kms, {"pii": [MASTER_KEY, wrapped.key_id]}, allowed_key_ids=[MASTER_KEY]),
        lambda: KmsMasterKeys(kms, {"pii": [wrapped]}, allowed_key_ids=[MASTER_KEY]),
    ):
        with pytest.raises(MasterKeyRefusedError, match="ORC master key 'pii'"):
            build()
    assert KmsKeys(kms, {"pii": MASTER_KEY}, allowed_key_ids=MASTER_KEY).current_version("pii").version == 0
    assert not kms.calls
    hadoop = HadoopKmsKeys("http://127.0.0.1:1/kms", allowed_key_ids="sales-*")
    for ask in (
        lambda: hadoop.current_version("hr"),
        lambda: hadoop.decrypt_local_key(MasterKeyVersion("hr", 0, 16), bytes(16)),
    ):
        with pytest.raises(MasterKeyRefusedError, match="'hr'"):
            ask()


@pytest.mark.parametrize("by_key_file", [True, False], ids=["--key-file", "--property"])
def test_the_command_names_no_other_master_key(tmp_path: Path, by_key_file: bool) -> None:
    keys, source = tmp_path / "keys.json", tmp_path / "rows.csv"
    source.write_text("id\n1\n")
    for key_id in ("ours", "theirs"):
        assert command.run("keygen", "--key-file", str(keys), "--key-id", key_id).code == 0
    local = ("-p", "encryption.kms-type=local", "-p", f"kms.local.key-file={keys}")
    leading = ("-p", "encryption.allowed-key-ids=ours", *(() if by_key_file else local))
    at = ("--key-file", str(keys)) if by_key_file else ()

    def encrypt(key_id: str) -> command.Done:
        return command.run(*leading, "encrypt-file", str(source), str(tmp_path / f"{key_id}.enc"), *at, "--key-id", key_id)

    assert encrypt("ours").code == 0
    refused = encrypt("theirs")
    assert refused.code == 2
    assert "names master key 'theirs', which this client does not allow" in refused.stderr
    assert not (tmp_path / "theirs.enc").exists()
