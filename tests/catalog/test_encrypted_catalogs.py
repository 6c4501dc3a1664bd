"""The catalogs: what they encrypt, what they leave alone, and what they keep through a table's life."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.types import StringType

from tablecrypt.errors import ConfigurationError, PlaintextRefusedError
from tablecrypt.kms.factory import shared_kms
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedInMemoryCatalog, EncryptedSqlCatalog, encrypted
from tests.support.aws import AwsServer
from tests.support.catalogs import MASTER_KEY, encrypted_sql_catalog
from tests.support.compare import assert_same_rows
from tests.support.key_tables import current_snapshot, metadata_of
from tests.support.plaintext import CANARY

ENCRYPTED = {"encryption.key-id": MASTER_KEY}
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": [CANARY, None, ""]})


@pytest.fixture
def catalog(warehouse: Path, aws: AwsServer) -> EncryptedSqlCatalog:
    return encrypted_sql_catalog(warehouse, aws)


def everything_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_key_id_makes_an_encrypted_table_of_version_3(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    assert isinstance(table, EncryptedTable)
    assert table.format_version == 3
    assert "format-version" not in table.properties
    assert isinstance(catalog.load_table("db.t"), EncryptedTable)


def test_a_table_without_key_id_is_plain_pyicebergs(catalog: EncryptedSqlCatalog, unwatched_warehouse: Path) -> None:
    table = catalog.create_table("db.plain", ROWS.schema, location=f"file://{unwatched_warehouse}/plain")
    table.append(ROWS)
    assert type(table) is Table
    assert table.format_version == 2
    assert type(catalog.load_table("db.plain")) is Table
    location = table.current_snapshot().manifest_list  # type: ignore[union-attr]
    assert Path(location.removeprefix("file://")).read_bytes()[:4] == b"Obj\x01"


def test_another_client_reads_what_one_wrote(catalog: EncryptedSqlCatalog, warehouse: Path, aws: AwsServer) -> None:
    catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED).append(ROWS)
    other = encrypted_sql_catalog(warehouse, aws)
    assert_same_rows(other.load_table("db.t").scan().to_arrow(), ROWS)


def test_a_plain_client_gets_no_row(catalog: EncryptedSqlCatalog, warehouse: Path) -> None:
    catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED).append(ROWS)
    plain = SqlCatalog("prod", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}/warehouse")
    with pytest.raises(ValueError, match="Avro"):
        plain.load_table("db.t").scan().to_arrow()


def test_creation_with_first_data_is_one_commit(catalog: EncryptedSqlCatalog) -> None:
    with catalog.create_table_transaction("db.t", ROWS.schema, properties=ENCRYPTED) as transaction:
        transaction.append(ROWS)
        transaction.set_properties({"owner": "tests"})
        with transaction.update_schema() as update:
            update.add_column("note", StringType())
    table = catalog.load_table("db.t")
    assert isinstance(table, EncryptedTable)
    assert len(table.metadata.metadata_log) == 0
    assert table.properties["owner"] == "tests"
    assert_same_rows(table.scan(selected_fields=("id", "text")).to_arrow(), ROWS)


def test_a_creation_that_fails_leaves_no_table(catalog: EncryptedSqlCatalog) -> None:
    with pytest.raises(RuntimeError, match="stop"), catalog.create_table_transaction("db.t", ROWS.schema, properties=ENCRYPTED) as staged:
        staged.append(ROWS)
        raise RuntimeError("stop")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.t")


def test_a_table_is_created_only_once(catalog: EncryptedSqlCatalog) -> None:
    catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    assert isinstance(catalog.create_table_if_not_exists("db.t", ROWS.schema, properties=ENCRYPTED), EncryptedTable)


def test_rename_register_and_drop_keep_a_table_encrypted(catalog: EncryptedSqlCatalog) -> None:
    catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED).append(ROWS)
    renamed = catalog.rename_table("db.t", "db.renamed")
    assert_same_rows(renamed.scan().to_arrow(), ROWS)
    renamed.append(ROWS)
    location = renamed.metadata_location
    catalog.drop_table("db.renamed")
    registered = catalog.register_table("db.again", location)
    assert isinstance(registered, EncryptedTable)
    assert registered.scan().count() == 2 * ROWS.num_rows


def test_purge_removes_every_file(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    table.append(ROWS)
    table.delete("id = 1")
    catalog.purge_table("db.t")
    assert everything_below(Path(table.location().removeprefix("file://"))) == []
    assert not catalog.table_exists("db.t")


def test_refresh_sees_the_commits_of_others(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    catalog.load_table("db.t").append(ROWS)
    assert table.scan().count() == 0
    assert table.refresh().scan().count() == ROWS.num_rows


def test_branches_tags_evolution_and_expiry_commit_as_on_a_plain_table(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    table.append(ROWS)
    first = table.current_snapshot().snapshot_id  # type: ignore[union-attr]
    table.manage_snapshots().create_tag(first, "before").create_branch(first, "work").commit()
    table.append(ROWS, branch="work")
    table.append(ROWS)
    with table.update_schema() as update:
        update.rename_column("text", "words")
    assert table.scan().use_ref("before").count() == ROWS.num_rows
    assert table.scan().use_ref("work").count() == 2 * ROWS.num_rows
    assert table.scan().to_arrow().column_names == ["id", "words"]
    table.manage_snapshots().remove_tag("before").commit()
    table.maintenance.expire_snapshots().by_id(first).commit()
    assert catalog.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_expiry_leaves_exactly_the_keys_of_the_live_snapshots(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    for _ in range(4):
        table.append(ROWS)
    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in table.snapshots()[:3]]).commit()
    metadata = catalog.load_table("db.t").metadata
    assert isinstance(metadata, EncryptedTableMetadata)
    (live,) = metadata.snapshots
    assert [key.key_id for key in metadata.encryption_keys] == [metadata.encryption_keys[0].key_id, live.key_id]
    assert metadata.encryption_keys[0].is_kek
    assert table.scan().count() == 4 * ROWS.num_rows
    table.append(ROWS)
    assert table.scan().count() == 5 * ROWS.num_rows


def test_expiry_beside_a_concurrent_append_removes_nothing_that_is_needed(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    table.append(ROWS)
    table.append(ROWS)
    behind = catalog.load_table("db.t")
    catalog.load_table("db.t").append(ROWS)
    with pytest.raises(CommitFailedException):
        behind.maintenance.expire_snapshots().by_id(behind.snapshots()[0].snapshot_id).commit()
    assert catalog.load_table("db.t").scan().count() == 3 * ROWS.num_rows


def test_a_rewrite_after_a_rename_keeps_the_renamed_columns_values(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    table.append(ROWS)
    with table.update_schema() as update:
        update.rename_column("text", "words")
        update.add_column("note", StringType())
    table.delete("id = 2")
    assert table.scan().to_arrow().sort_by("id").to_pydict() == {"id": [1, 3], "words": [CANARY, ""], "note": [None, None]}


def test_inspection_shows_no_key(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    table.append(ROWS)
    inspect = table.inspect
    keys = [
        bytes(secret or b"")
        for manifest in current_snapshot(table).manifests(table.io)
        for secret in (manifest.key_metadata, *(entry.data_file.key_metadata for entry in manifest.fetch_manifest_entry(table.io)))
    ]
    shown = [
        str(each.to_pylist()).encode("unicode_escape")
        for each in (
            inspect.files(),
            inspect.data_files(),
            inspect.delete_files(),
            inspect.entries(),
            inspect.manifests(),
            inspect.all_manifests(),
            inspect.all_files(),
            inspect.snapshots(),
            inspect.metadata_log_entries(),
        )
    ]
    assert len(keys) == 2 and all(keys)
    assert inspect.files().column("key_metadata").null_count == 1
    for key in keys:
        dek = key[2:18]
        assert not any(repr(dek)[2:-1].encode() in text or dek in text for text in shown)


def test_a_pickled_table_io_holds_no_key_and_still_reads(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    table.append(ROWS)
    entry = current_snapshot(table).manifests(table.io)[0].fetch_manifest_entry(table.io)[0]
    pickled = pickle.dumps((table.io, table.metadata))
    key_metadata = entry.data_file.key_metadata
    assert isinstance(key_metadata, bytes)
    assert key_metadata[2:18] not in pickled
    io, metadata = pickle.loads(pickled)
    assert len(metadata.current_snapshot().manifests(io)) == 1


def test_one_unwrap_serves_a_process_however_many_files_it_reads(warehouse: Path, aws: AwsServer) -> None:
    writer = encrypted_sql_catalog(warehouse, aws)
    table = writer.create_table("db.t", ROWS.schema, properties={"encryption.key-id": aws.new_key()})
    for _ in range(5):
        table.append(ROWS)
    reader_properties = {"encryption.kms.cache-ttl-ms": "1234567"}
    reader = encrypted_sql_catalog(warehouse, aws, reader_properties)
    kms = shared_kms(reader.properties)
    before = kms.calls
    for _ in range(3):
        assert reader.load_table("db.t").scan().to_arrow().num_rows == 5 * ROWS.num_rows
    assert kms.calls - before == {"unwrap_key": 1}


def test_concurrent_appends_are_all_kept_and_leave_no_stray_key(warehouse: Path, aws: AwsServer) -> None:
    writers, appends = 4, 5
    properties = {**ENCRYPTED, "commit.retry.num-retries": "100", "commit.retry.min-wait-ms": "5", "commit.retry.max-wait-ms": "50"}
    encrypted_sql_catalog(warehouse, aws).create_table("db.t", ROWS.schema, properties=properties)

    def write(_: int) -> None:
        table = encrypted_sql_catalog(warehouse, aws).load_table("db.t")
        for _ in range(appends):
            table.append(ROWS)

    with ThreadPoolExecutor(writers) as executor:
        list(executor.map(write, range(writers)))
    table = encrypted_sql_catalog(warehouse, aws).load_table("db.t")
    assert table.scan().count() == table.scan().to_arrow().num_rows == writers * appends * ROWS.num_rows
    assert len(table.snapshots()) == writers * appends
    metadata = metadata_of(table)
    needed = metadata.key_ring.needed_by(str(snapshot.key_id) for snapshot in metadata.snapshots)
    assert {key.key_id for key in metadata.encryption_keys} == needed
    ids = table.scan(selected_fields=("_row_id",)).to_arrow().column("_row_id").to_pylist()
    assert sorted(ids) == list(range(writers * appends * ROWS.num_rows))


def test_a_commit_to_a_branch_is_retried_after_another_branch_moved(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    table.append(ROWS)
    table.manage_snapshots().create_branch(table.snapshots()[0].snapshot_id, "work").commit()
    behind = catalog.load_table("db.t")
    table.append(ROWS)
    behind.append(ROWS, branch="work")
    table.refresh()
    assert (table.scan().count(), table.scan().use_ref("work").count()) == (2 * ROWS.num_rows, 2 * ROWS.num_rows)
    assert len({snapshot.sequence_number for snapshot in table.snapshots()}) == 3


def test_a_concurrent_delete_of_the_same_rows_conflicts_and_loses_nothing(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    table.append(ROWS)
    behind = catalog.load_table("db.t")
    table.delete("id = 1")
    with pytest.raises(Exception, match=r"(?i)conflict|missing|cannot commit|found|deleted"):
        behind.delete("id = 2")
    assert sorted(catalog.load_table("db.t").scan().to_arrow().column("id").to_pylist()) == [2, 3]


def test_any_metastore_catalog_class_can_be_made_to_encrypt(warehouse: Path, aws: AwsServer) -> None:
    made = encrypted(SqlCatalog)
    assert issubclass(made, SqlCatalog)
    catalog: Catalog = made("mine", uri="sqlite:///:memory:", warehouse=f"file://{warehouse}", **aws.kms_properties)
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    table.append(ROWS)
    assert isinstance(table, EncryptedTable)
    with pytest.raises(ConfigurationError, match="RestCatalog"):
        encrypted(RestCatalog)


def test_the_in_memory_catalog_encrypts_in_s3(aws: AwsServer) -> None:
    bucket = aws.bucket("in-memory-catalog")
    catalog = load_catalog(
        "memory",
        **{
            "py-catalog-impl": "tablecrypt_catalog.EncryptedInMemoryCatalog",
            "warehouse": f"s3://{bucket}/warehouse",
            **aws.kms_properties,
            **aws.s3_properties,
        },
    )
    assert isinstance(catalog, EncryptedInMemoryCatalog)
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    table.append(ROWS)
    table.upsert(pa.table({"id": [3, 4], "text": ["new", "newer"]}), join_cols=["id"])
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3, 4]


def test_engines_that_open_files_themselves_are_refused_with_the_way_to_go(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    for use in (table.to_daft, table.to_bodo, table.__datafusion_table_provider__):
        with pytest.raises(Exception, match="to_arrow"):
            use()


def test_a_plaintext_table_with_a_key_id_in_its_properties_is_refused(unwatched_warehouse: Path, aws: AwsServer) -> None:
    plain = SqlCatalog("prod", uri=f"sqlite:///{unwatched_warehouse}/catalog.db", warehouse=f"file://{unwatched_warehouse}/warehouse")
    plain.create_namespace("db")
    plain.create_table("db.t", ROWS.schema, properties=ENCRYPTED).append(ROWS)
    with pytest.raises(PlaintextRefusedError, match="migrate"):
        encrypted_sql_catalog(unwatched_warehouse, aws).load_table("db.t")
