"""What is wrong with a table's files, keys or metadata is said by name, and no row comes out of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.table.update.snapshot import UpdateSnapshot

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    PlaintextRefusedError,
    TablecryptError,
    TamperedFileError,
)
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt_catalog import EncryptedInMemoryCatalog, EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edit_json
from tests.support.plaintext import CANARY
from tests.support.tables import (
    ENCRYPTED,
    MASTER_KEY,
    current_snapshot,
    data_files,
    data_paths,
    encrypted_sql_catalog,
    encrypted_table,
    flip,
    folder_of,
    metadata_of,
    metadata_path,
    new_table,
    path_of,
)

ROWS = pa.table({"id": pa.array(range(200), pa.int64()), "text": [f"{CANARY} {i}" for i in range(200)]})


@pytest.fixture
def catalog(unwatched_warehouse: Path, aws: AwsServer) -> EncryptedSqlCatalog:
    return encrypted_sql_catalog(unwatched_warehouse, aws)


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> Table:
    return new_table(catalog, appends=[ROWS, ROWS])


def files(table: Table, kind: str) -> list[Path]:
    """The files of the newest snapshot: its manifest list, its manifests, or its data files."""
    if kind == "manifest list":
        return [path_of(each.manifest_list) for each in table.snapshots()]
    if kind == "manifest":
        return [path_of(manifest.manifest_path) for manifest in current_snapshot(table).manifests(table.io)]
    return data_paths(table)


def assert_unreadable(table: Table, error: type[TablecryptError], names: str) -> None:
    """Every way to the rows raises this error, with the file or key named."""
    table.refresh()
    for read in (
        lambda: table.scan().to_arrow(),
        lambda: table.scan(row_filter="id = 3").to_arrow(),
        lambda: list(table.scan().to_arrow_batch_reader()),
    ):
        with pytest.raises(error, match=names):
            read()


KINDS = ["manifest list", "manifest", "data"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.97])
def test_a_flipped_bit_is_refused_and_its_file_named(table: Table, kind: str, share: float) -> None:
    victim = files(table, kind)[-1]
    flip(victim, int(victim.stat().st_size * share))
    assert_unreadable(table, TablecryptError, victim.name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", [0, 3, 8, 40, -1])
def test_a_cut_file_is_refused_and_named(table: Table, kind: str, kept: int) -> None:
    victim = files(table, kind)[-1]
    victim.write_bytes(victim.read_bytes()[:kept])
    assert_unreadable(table, TamperedFileError, victim.name)


@pytest.mark.parametrize("kind", KINDS)
def test_swapped_files_are_refused(table: Table, kind: str) -> None:
    first, second = files(table, kind)[:2]
    content = first.read_bytes(), second.read_bytes()
    first.write_bytes(content[1])
    second.write_bytes(content[0])
    assert_unreadable(table, TamperedFileError, r"\.(avro|parquet)")


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_an_error_and_not_fewer_rows(table: Table, kind: str) -> None:
    files(table, kind)[-1].unlink()
    with pytest.raises(FileNotFoundError):
        table.scan().to_arrow()


@pytest.mark.parametrize("kind", ["manifest list", "manifest"])
def test_a_plaintext_avro_file_in_place_of_an_encrypted_one_is_refused(table: Table, kind: str) -> None:
    victim = files(table, kind)[-1]
    victim.write_bytes(b"Obj\x01" + victim.read_bytes()[4:])
    assert_unreadable(table, PlaintextRefusedError, victim.name)


@pytest.mark.parametrize("kind", ["manifest list", "manifest"])
def test_another_block_length_is_refused(table: Table, kind: str) -> None:
    victim = files(table, kind)[-1]
    content = victim.read_bytes()
    victim.write_bytes(content[:4] + (65536).to_bytes(4, "little") + content[8:])
    assert_unreadable(table, FormatError, victim.name)


Edit = Callable[[dict[str, Any]], None]


def edited(catalog: EncryptedSqlCatalog, table: Table, edit: Edit) -> Table:
    """The table after its metadata.json was edited in place, as a catalog has it that never saw it before and so has no pin to compare."""
    edit_json(metadata_path(table), edit)
    stranger = EncryptedInMemoryCatalog("stranger", **{**catalog.properties, "uri": "sqlite:///:memory:"})
    stranger.create_namespace("db")
    return stranger.register_table("db.t", table.metadata_location)


def test_a_removed_key_id_property_does_not_make_a_plaintext_table(catalog: EncryptedSqlCatalog, table: Table) -> None:
    with pytest.raises(KeyIdChangedError, match=r"encryption\.key-id"):
        edited(catalog, table, lambda metadata: metadata["properties"].pop("encryption.key-id"))


def _another_snapshots_list(metadata: dict[str, Any]) -> None:
    old, new = metadata["snapshots"]
    new["manifest-list"], new["key-id"] = old["manifest-list"], old["key-id"]


EDITS: dict[str, tuple[Edit, type[TablecryptError], str]] = {
    "no key-id": (lambda metadata: metadata["snapshots"][-1].pop("key-id"), PlaintextRefusedError, "key-id"),
    "another key timestamp": (
        lambda metadata: metadata["encryption-keys"][0]["properties"].update(KEY_TIMESTAMP="1"),
        AuthenticationError,
        "KEY_TIMESTAMP",
    ),
    "another sequence number": (
        lambda metadata: metadata["snapshots"][-1].update({"sequence-number": 3}),
        TamperedFileError,
        "sequence-number",
    ),
    "another first row id": (lambda metadata: metadata["snapshots"][-1].update({"first-row-id": 201}), TamperedFileError, "first-row-id"),
    "the list of another snapshot": (_another_snapshots_list, TamperedFileError, "snapshot-id"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_metadata_that_contradicts_what_is_authentic_is_refused_and_its_fault_named(
    catalog: EncryptedSqlCatalog, table: Table, edit: str
) -> None:
    change, error, named = EDITS[edit]
    assert_unreadable(edited(catalog, table, change), error, named)


def test_a_snapshot_whose_key_is_gone_is_refused_and_the_key_named(catalog: EncryptedSqlCatalog, table: Table) -> None:
    key_id = table.metadata.snapshots[-1].key_id  # type: ignore[attr-defined]
    changed = edited(catalog, table, lambda metadata: metadata["encryption-keys"].pop())
    assert_unreadable(changed, KeyNotFoundError, key_id.replace("+", r"\+"))


def test_keys_that_are_no_keys_are_a_format_error(catalog: EncryptedSqlCatalog, table: Table) -> None:
    with pytest.raises(FormatError, match=r"metadata\.json"):
        edited(catalog, table, lambda metadata: metadata.update({"encryption-keys": [{"key-id": 7}]}))


def test_a_missing_kek_is_refused(catalog: EncryptedSqlCatalog, table: Table) -> None:
    with pytest.raises(KeyNotFoundError):
        edited(catalog, table, lambda metadata: metadata["encryption-keys"].pop(0)).scan().to_arrow()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "{}", '{"format-version": 3}', '{"format-version": 4}', '{"format-version": "x"}']
)
def test_metadata_that_is_no_metadata_is_a_format_error(catalog: EncryptedSqlCatalog, table: Table, content: str) -> None:
    metadata_path(table).write_text(content)
    with pytest.raises(FormatError, match=r"metadata\.json"):
        catalog.load_table("db.t")
    with pytest.raises(FormatError, match=r"metadata\.json"):
        table.append(ROWS)


def test_a_denied_master_key_stops_reading_and_writing_and_leaves_the_table_as_it_was(unwatched_warehouse: Path, aws: AwsServer) -> None:
    alias, own, foreign = "alias/denied", aws.new_key(), aws.new_key()
    aws.kms.create_alias(AliasName=alias, TargetKeyId=own)
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    table = new_table(catalog, appends=[ROWS], properties={"encryption.key-id": alias})
    # Whoever may use only the alias is denied what the key behind it wrapped, once the alias names another key. The other cache lifetime
    # makes a client of its own, with nothing in its cache.
    aws.kms.update_alias(AliasName=alias, TargetKeyId=foreign)
    denied = encrypted_sql_catalog(unwatched_warehouse, aws, {"encryption.kms.cache-ttl-ms": "60000"}).load_table("db.t")
    for use in (lambda: denied.scan().to_arrow(), lambda: denied.append(ROWS)):
        with pytest.raises(KmsAccessDeniedError, match=alias):
            use()
    aws.kms.update_alias(AliasName=alias, TargetKeyId=own)
    assert denied.refresh().metadata_location == table.metadata_location
    assert denied.scan().to_arrow().num_rows == ROWS.num_rows


def test_a_catalog_without_kms_properties_says_what_to_set(unwatched_warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws, {"encryption.kms-type": ""})
    with pytest.raises(ConfigurationError, match=r"encryption\.kms-type"):
        catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)


@pytest.mark.parametrize("version", ["1", "2"])
def test_versions_1_and_2_cannot_be_encrypted(catalog: EncryptedSqlCatalog, version: str) -> None:
    with pytest.raises(ConfigurationError, match="format-version"):
        catalog.create_table("db.old", ROWS.schema, properties={**ENCRYPTED, "format-version": version})
    assert not catalog.table_exists("db.old")


@pytest.mark.parametrize("length", ["15", "0", "sixteen", "64"])
def test_a_data_key_length_that_is_none_is_refused_at_creation(catalog: EncryptedSqlCatalog, length: str) -> None:
    with pytest.raises(ConfigurationError, match=r"encryption\.data-key-length"):
        catalog.create_table("db.odd", ROWS.schema, properties={**ENCRYPTED, "encryption.data-key-length": length})


def test_the_master_key_id_is_neither_changed_nor_removed(catalog: EncryptedSqlCatalog, table: Table) -> None:
    changes: tuple[Callable[[], object], ...] = (
        lambda: table.transaction().set_properties({"encryption.key-id": "alias/other"}).commit_transaction(),
        lambda: table.transaction().remove_properties("encryption.key-id").commit_transaction(),
        lambda: Transaction(table).set_properties({"encryption.key-id": "alias/other"}).commit_transaction(),
        lambda: Transaction(table).remove_properties("encryption.key-id").commit_transaction(),
    )
    for change in changes:
        with pytest.raises(KeyIdChangedError, match=r"encryption\.key-id"):
            change()
    assert catalog.load_table("db.t").properties["encryption.key-id"] == MASTER_KEY


@pytest.mark.parametrize(("name", "value"), [("encryption.data-key-length", "33"), ("encryption.kek-lifespan-ms", "63072000001")])
def test_properties_with_which_the_table_would_not_load_again_are_not_committed(
    catalog: EncryptedSqlCatalog, table: Table, name: str, value: str
) -> None:
    with pytest.raises(ConfigurationError, match=name), table.transaction() as transaction:
        transaction.set_properties({name: value})
    with pytest.raises(ConfigurationError, match=name):
        catalog.commit_table(table, (), (SetPropertiesUpdate(updates={name: value}),))
    assert catalog.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_pyicebergs_own_writers_are_refused_before_a_byte_is_written(table: Table) -> None:
    folder = folder_of(table)
    before = sorted(each.name for each in folder.rglob("*"))
    with pytest.raises(PlaintextRefusedError):
        Transaction(table).append(ROWS)
    with pytest.raises(PlaintextRefusedError):
        table.io.new_output(f"{table.location()}/data/mine.parquet")
    with pytest.raises(PlaintextRefusedError), UpdateSnapshot(Transaction(table), table.io).fast_append() as producer:
        producer.append_data_file(data_files(table)[0])
    assert sorted(each.name for each in folder.rglob("*")) == before


def test_files_are_added_only_with_the_key_that_opens_them(catalog: EncryptedSqlCatalog, table: Table, tmp_path: Path) -> None:
    plaintext = tmp_path / "plain.parquet"
    pq.write_table(ROWS, plaintext)
    with pytest.raises(PlaintextRefusedError, match="key_metadata"):
        table.add_files([f"file://{plaintext}"])
    data_file = data_files(table)[0]
    key = key_metadata_of(data_file)
    without_length = StandardKeyMetadata(key.encryption_key, key.aad_prefix)
    table = encrypted_table(table)
    with pytest.raises(PlaintextRefusedError, match=r"plain\.parquet"):
        table.add_files([f"file://{plaintext}"], key_metadata={f"file://{plaintext}": without_length})
    copy = folder_of(table) / "data" / "copy.parquet"
    shutil.copy(path_of(data_file.file_path), copy)
    wrong = StandardKeyMetadata(key.encryption_key, b"another prefix!!")
    with pytest.raises(TamperedFileError, match=r"copy\.parquet"):
        table.add_files([f"file://{copy}"], key_metadata={f"file://{copy}": wrong})
    with pytest.raises(FormatError, match=r"copy\.parquet.*version 7"):
        table.add_files([f"file://{copy}"], key_metadata={f"file://{copy}": b"\x07" + key.encode()[1:]})
    assert len(catalog.load_table("db.t").snapshots()) == 2
    table.add_files([f"file://{copy}"], key_metadata={f"file://{copy}": without_length.encode()})
    assert table.scan().to_arrow().num_rows == 3 * ROWS.num_rows
    with pytest.raises(ValueError, match="already referenced"):
        table.add_files([f"file://{copy}"], key_metadata={f"file://{copy}": without_length})


def test_rows_that_do_not_fit_the_schema_are_refused_before_anything_is_written(table: Table) -> None:
    before = sorted(each.name for each in folder_of(table).rglob("*"))
    with pytest.raises(ValueError, match="Mismatch in fields"):
        table.append(pa.table({"id": ["not a number"]}))
    assert sorted(each.name for each in folder_of(table).rglob("*")) == before


def test_statistics_files_are_refused(table: Table) -> None:
    with pytest.raises(PlaintextRefusedError, match="statistics"):
        table.update_statistics()


def test_a_lost_commit_leaves_no_key_of_the_abandoned_attempt(catalog: EncryptedSqlCatalog, table: Table) -> None:
    behind = catalog.load_table("db.t")
    behind.metadata.properties["commit.retry.num-retries"] = "0"
    table.append(ROWS)
    with pytest.raises(CommitFailedException):
        behind.append(ROWS)
    metadata = metadata_of(catalog.load_table("db.t"))
    keys = {key.key_id for key in metadata.encryption_keys}
    assert keys == metadata.key_ring.needed_by(str(snapshot.key_id) for snapshot in metadata.snapshots)


NO_ARROW = {
    "nothing": None,
    "dicts": [{"id": 1, "text": CANARY}],
    "columns": {"id": [1], "text": [CANARY]},
    "a frame of pandas": ROWS.to_pandas(),
    "a batch": ROWS.to_batches()[0],
}


@pytest.mark.parametrize("write", ["append", "overwrite", "upsert", "dynamic_partition_overwrite"])
@pytest.mark.parametrize("given", NO_ARROW)
def test_rows_that_are_no_table_of_arrow_are_refused_by_their_type_alone(table: Table, write: str, given: str) -> None:
    rows: Any = NO_ARROW[given]
    before = table.scan().to_arrow().num_rows

    with pytest.raises(
        ConfigurationError, match=f"^the rows are of the type {type(rows).__name__}; they must be a pyarrow.Table"
    ) as refused:
        getattr(table, write)(rows)

    assert CANARY not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert table.refresh().scan().to_arrow().num_rows == before
