"""What every catalog of encrypted tables must do, as a pytest class to run on your own catalog.

    class TestMyCatalog(EncryptedCatalogContract):
        @pytest.fixture
        def new_catalog(self, tmp_path): return lambda: my_catalog(tmp_path)   # a new client of one catalog with each call
        @pytest.fixture
        def key_id(self): ...                                                  # a master key that its key service has
        @pytest.fixture
        def other_key_id(self): ...                                            # another one

Each test makes its own namespace. Where your catalog cannot make one by its name alone, give the fixture `namespace` as well. Where it
keeps no pins, give its clients a file for them (`encryption.pins`): without any, `purge_table` deletes nothing. The tests are about thirty,
and make a few hundred small files.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceNotEmptyError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.table import Table
from pyiceberg.types import StringType

from tablecrypt import is_encrypted
from tablecrypt.errors import ConfigurationError, KeyIdChangedError, PlaintextRefusedError, TablecryptError
from tablecrypt.maintenance import audit, rotate_kek, verify
from tablecrypt.maintenance.reachable import FileKind, reachable_files
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.testing.plaintext import CANARY
from tablecrypt.testing.stored_files import files_of, plaintext_in, stored_content

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": [CANARY, None, ""]})
PATIENT = {"commit.retry.num-retries": "100", "commit.retry.min-wait-ms": "5", "commit.retry.max-wait-ms": "50"}

NewCatalog = Callable[[], Catalog]


def rows_of(table: Table) -> list[tuple[object, ...]]:
    """Return the rows of a table in a fixed order, with the names of the columns before them."""
    read = table.scan().to_arrow()
    return [tuple(read.column_names), *sorted((tuple(row.values()) for row in read.to_pylist()), key=repr)]


def ids_of(table: Table) -> list[int]:
    """Return the ids of the rows, smallest first."""
    return sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def stray_keys(table: Table) -> set[str]:
    """Return the ids of keys in the table's metadata that no snapshot needs, and of those that one needs and are not there."""
    metadata = table.metadata
    assert isinstance(metadata, EncryptedTableMetadata)
    needed = metadata.key_ring.needed_by(str(snapshot.key_id) for snapshot in metadata.snapshots)
    return {key.key_id for key in metadata.encryption_keys} ^ set(needed)


class EncryptedCatalogContract:
    """Subclass it, name the subclass Test…, and give the fixtures `new_catalog`, `key_id` and `other_key_id`."""

    @pytest.fixture
    def new_catalog(self) -> NewCatalog:
        raise NotImplementedError("give a fixture `new_catalog`")

    @pytest.fixture
    def key_id(self) -> str:
        raise NotImplementedError("give a fixture `key_id`")

    @pytest.fixture
    def other_key_id(self) -> str:
        raise NotImplementedError("give a fixture `other_key_id`")

    @pytest.fixture
    def missing_key_id(self) -> str:
        """A master key that the key service does not have; well formed, if it wants a form."""
        return "tablecrypt-no-such-key"

    @pytest.fixture
    def catalog(self, new_catalog: NewCatalog) -> Catalog:
        return new_catalog()

    @pytest.fixture
    def namespace(self, catalog: Catalog) -> str:
        name = f"db_{uuid.uuid4().hex[:8]}"
        catalog.create_namespace(name)
        return name

    @pytest.fixture
    def name(self, namespace: str) -> str:
        return f"{namespace}.t"

    @pytest.fixture
    def encrypted(self, key_id: str) -> dict[str, str]:
        return {"encryption.key-id": key_id, **PATIENT}

    @pytest.fixture
    def table(self, catalog: Catalog, name: str, encrypted: dict[str, str]) -> Table:
        """An encrypted table with one snapshot."""
        table = catalog.create_table(name, ROWS.schema, properties=encrypted)
        table.append(ROWS)
        return table

    # What is encrypted.

    def test_a_key_id_makes_an_encrypted_table_of_version_3(self, catalog: Catalog, name: str, encrypted: dict[str, str]) -> None:
        table = catalog.create_table(name, ROWS.schema, properties=encrypted)
        loaded = catalog.load_table(name)
        assert is_encrypted(table) and is_encrypted(loaded)
        assert table.format_version == loaded.format_version == 3
        assert "format-version" not in loaded.properties
        assert not [finding for finding in audit(table).findings if finding.kind.is_plaintext]

    def test_a_table_without_key_id_is_plain_pyicebergs(self, catalog: Catalog, name: str) -> None:
        table = catalog.create_table(name, ROWS.schema)
        assert type(table) is type(catalog.load_table(name)) is Table
        assert table.format_version == 2
        assert not is_encrypted(table)

    def test_every_file_is_ciphertext_and_authenticates(self, catalog: Catalog, name: str, encrypted: dict[str, str]) -> None:
        properties = {**encrypted, "write.delete.mode": "merge-on-read", "write.parquet.compression-codec": "uncompressed"}
        table = catalog.create_table(name, ROWS.schema, properties=properties)
        table.append(ROWS)
        table.delete("id = 1")
        files = files_of(table)
        kinds = {each.kind for each in reachable_files(table.metadata, table.io).files.values()}
        assert kinds == {FileKind.MANIFEST_LIST, FileKind.MANIFEST, FileKind.DATA, FileKind.DELETION_VECTOR}
        assert plaintext_in(table, files) == []
        assert verify(table).bad == ()

    def test_keys_have_the_length_that_the_table_names(self, catalog: Catalog, name: str, encrypted: dict[str, str]) -> None:
        catalog.create_table(name, ROWS.schema, properties={**encrypted, "encryption.data-key-length": "32"}).append(ROWS)
        table = catalog.load_table(name)
        keys = [each.key for each in reachable_files(table.metadata, table.io).files.values()]
        assert keys and {len(key.encryption_key) for key in keys if key is not None} == {32}
        assert None not in keys

    def test_a_misspelt_property_makes_no_table(self, catalog: Catalog, name: str, namespace: str, key_id: str) -> None:
        for create in (catalog.create_table, catalog.create_table_transaction):
            with pytest.raises(ConfigurationError, match=r"encryption\.key-id"):
                create(name, ROWS.schema, properties={"encryption.key_id": key_id})
        assert catalog.list_tables(namespace) == []

    def test_a_master_key_that_is_not_there_makes_no_table(self, catalog: Catalog, name: str, namespace: str, missing_key_id: str) -> None:
        for create in (catalog.create_table, catalog.create_table_transaction):
            with pytest.raises(TablecryptError, match=missing_key_id):
                create(name, ROWS.schema, properties={"encryption.key-id": missing_key_id})
        assert catalog.list_tables(namespace) == []

    def test_an_encrypted_table_of_an_older_version_is_refused(self, catalog: Catalog, name: str, encrypted: dict[str, str]) -> None:
        with pytest.raises(ConfigurationError, match="format-version"):
            catalog.create_table(name, ROWS.schema, properties={**encrypted, "format-version": "2"})
        assert not catalog.table_exists(name)

    def test_a_plain_table_cannot_be_given_a_key_id(self, catalog: Catalog, name: str, encrypted: dict[str, str]) -> None:
        table = catalog.create_table(name, ROWS.schema)
        with pytest.raises(PlaintextRefusedError, match="migrate"):
            table.transaction().set_properties(encrypted).commit_transaction()
        assert "encryption.key-id" not in catalog.load_table(name).properties

    def test_an_encrypted_table_keeps_its_key_id(
        self, new_catalog: NewCatalog, name: str, table: Table, key_id: str, other_key_id: str
    ) -> None:
        with pytest.raises(KeyIdChangedError):
            table.transaction().remove_properties("encryption.key-id").commit_transaction()
        with pytest.raises(KeyIdChangedError):
            table.transaction().set_properties({"encryption.key-id": other_key_id}).commit_transaction()
        table.refresh().transaction().set_properties(owner="tests").commit_transaction()
        loaded = new_catalog().load_table(name)
        assert (loaded.properties["encryption.key-id"], loaded.properties["owner"]) == (key_id, "tests")
        assert rows_of(loaded) == rows_of(table)

    def test_plaintext_is_not_registered_as_an_encrypted_table(self, catalog: Catalog, name: str, namespace: str, key_id: str) -> None:
        plain = catalog.create_table(name, ROWS.schema)
        content = plain.metadata.model_copy(update={"properties": {"encryption.key-id": key_id}}).model_dump_json()
        location = f"{plain.location()}/metadata/00009-{uuid.uuid4()}.metadata.json"
        with plain.io.new_output(location).create() as stream:
            stream.write(content.encode())
        with pytest.raises(PlaintextRefusedError, match="migrate"):
            catalog.load_table(catalog.register_table(f"{namespace}.posing", location).name())

    # A table's life.

    def test_another_client_reads_and_writes_what_one_wrote(self, new_catalog: NewCatalog, name: str, table: Table) -> None:
        other = new_catalog().load_table(name)
        assert rows_of(other) == rows_of(table)
        other.append(ROWS)
        assert table.refresh().scan().count() == 2 * ROWS.num_rows

    def test_every_operation_leaves_the_rows_it_should(self, new_catalog: NewCatalog, name: str, table: Table) -> None:
        table.delete("id = 1")
        assert ids_of(table) == [2, 3]
        result = table.upsert(pa.table({"id": [3, 4], "text": ["new", CANARY]}), join_cols=["id"])
        assert (result.rows_updated, result.rows_inserted) == (1, 1)
        assert ids_of(table) == [2, 3, 4]
        table.overwrite(ROWS, overwrite_filter="id >= 3")
        assert ids_of(table) == [1, 2, 2, 3]
        with table.transaction() as transaction:
            transaction.append(ROWS)
            transaction.delete("id = 2")
            transaction.set_properties({"owner": "tests"})

        loaded = new_catalog().load_table(name)
        assert ids_of(loaded) == ids_of(table) == [1, 1, 3, 3]
        assert loaded.properties["owner"] == "tests"

    def test_creation_with_first_data_is_one_commit(self, catalog: Catalog, name: str, encrypted: dict[str, str]) -> None:
        with catalog.create_table_transaction(name, ROWS.schema, properties=encrypted) as transaction:
            transaction.append(ROWS)
            transaction.set_properties({"owner": "tests"})
            with transaction.update_schema() as update:
                update.add_column("note", StringType())

        table = catalog.load_table(name)
        assert is_encrypted(table)
        assert table.metadata.metadata_log == []
        assert table.properties["owner"] == "tests"
        assert table.scan().to_arrow().column_names == ["id", "text", "note"]
        table.append(ROWS)
        assert ids_of(table) == [1, 1, 2, 2, 3, 3]

    def test_a_creation_that_fails_leaves_no_table(self, catalog: Catalog, name: str, encrypted: dict[str, str]) -> None:
        staged = catalog.create_table_transaction(name, ROWS.schema, properties=encrypted)
        with pytest.raises(RuntimeError, match="stop"), staged:
            staged.append(ROWS)
            raise RuntimeError("stop")
        with pytest.raises(NoSuchTableError):
            catalog.load_table(name)

    def test_a_table_is_created_only_once(self, new_catalog: NewCatalog, name: str, table: Table, encrypted: dict[str, str]) -> None:
        for properties in ({}, encrypted):
            with pytest.raises(TableAlreadyExistsError):
                new_catalog().create_table(name, ROWS.schema, properties=properties)
        found = new_catalog().create_table_if_not_exists(name, ROWS.schema, properties=encrypted)
        assert is_encrypted(found)
        assert rows_of(found) == rows_of(table)

    def test_rename_register_and_drop_keep_a_table_encrypted(self, catalog: Catalog, namespace: str, name: str, table: Table) -> None:
        renamed = catalog.rename_table(name, f"{namespace}.renamed")
        assert is_encrypted(renamed)
        assert rows_of(renamed) == rows_of(table)
        renamed.append(ROWS)
        with pytest.raises(NoSuchTableError):
            catalog.load_table(name)
        catalog.drop_table(f"{namespace}.renamed")
        assert not catalog.table_exists(f"{namespace}.renamed")
        registered = catalog.register_table(f"{namespace}.again", renamed.metadata_location)
        assert is_encrypted(registered)
        registered.append(ROWS)
        assert registered.scan().count() == 3 * ROWS.num_rows

    def test_purge_removes_every_file(self, catalog: Catalog, name: str, table: Table) -> None:
        table.delete("id = 1")
        files = files_of(table)
        assert all(stored_content(table, location) for location in files)
        catalog.purge_table(name)
        assert not catalog.table_exists(name)
        for location in files:
            with pytest.raises(FileNotFoundError):
                stored_content(table, location)

    def test_tables_and_namespaces_are_listed_while_they_are_there(
        self, catalog: Catalog, namespace: str, name: str, encrypted: dict[str, str]
    ) -> None:
        assert (namespace,) in catalog.list_namespaces()
        assert catalog.list_tables(namespace) == []
        catalog.create_table(name, ROWS.schema, properties=encrypted)
        assert catalog.list_tables(namespace) == [(namespace, "t")]
        with pytest.raises(NamespaceNotEmptyError):
            catalog.drop_namespace(namespace)
        catalog.drop_table(name)
        assert catalog.list_tables(namespace) == []
        catalog.drop_namespace(namespace)
        assert (namespace,) not in catalog.list_namespaces()

    def test_a_table_that_is_not_there_is_refused(self, catalog: Catalog, namespace: str) -> None:
        for use in (catalog.load_table, catalog.drop_table, catalog.purge_table):
            with pytest.raises(NoSuchTableError):
                use(f"{namespace}.missing")

    def test_branches_tags_evolution_and_expiry_keep_every_key_that_is_needed(
        self, new_catalog: NewCatalog, name: str, table: Table
    ) -> None:
        first = table.snapshots()[0].snapshot_id
        table.manage_snapshots().create_tag(first, "before").create_branch(first, "work").commit()
        table.append(ROWS, branch="work")
        table.append(ROWS)
        with table.update_schema() as update:
            update.rename_column("text", "words")
        with table.update_spec() as spec:
            spec.add_identity("id")
        table.append(ROWS.rename_columns(["id", "words"]))
        assert table.scan().use_ref("before").count() == ROWS.num_rows
        assert table.scan().use_ref("work").count() == 2 * ROWS.num_rows
        table.manage_snapshots().remove_tag("before").commit()
        table.maintenance.expire_snapshots().by_id(first).commit()
        loaded = new_catalog().load_table(name)
        assert first not in [snapshot.snapshot_id for snapshot in loaded.snapshots()]
        assert loaded.scan().to_arrow().column_names == ["id", "words"]
        assert loaded.scan().count() == 3 * ROWS.num_rows
        assert stray_keys(loaded) == set()

    def test_every_expired_snapshot_takes_its_key_along(self, new_catalog: NewCatalog, name: str, table: Table) -> None:
        for _ in range(3):
            table.append(ROWS)
        table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in table.snapshots()[:3]]).commit()
        loaded = new_catalog().load_table(name)
        assert len(loaded.snapshots()) == 1
        assert stray_keys(loaded) == set()
        loaded.append(ROWS)
        assert loaded.scan().count() == 5 * ROWS.num_rows

    # Writers beside each other.

    def test_refresh_sees_the_commits_of_others(self, new_catalog: NewCatalog, name: str, table: Table) -> None:
        new_catalog().load_table(name).append(ROWS)
        assert table.scan().count() == ROWS.num_rows
        assert table.refresh().scan().count() == 2 * ROWS.num_rows

    def test_the_append_of_a_writer_that_is_behind_comes_on_top(self, new_catalog: NewCatalog, name: str, table: Table) -> None:
        behind = new_catalog().load_table(name)
        table.append(ROWS)
        behind.append(ROWS)
        assert behind.scan().count() == table.refresh().scan().count() == 3 * ROWS.num_rows
        assert stray_keys(table) == set()

    def test_a_schema_change_of_a_writer_that_is_behind_is_refused(self, new_catalog: NewCatalog, name: str, table: Table) -> None:
        behind = new_catalog().load_table(name)
        with table.update_schema() as update:
            update.add_column("note", StringType())
        with pytest.raises(CommitFailedException), behind.update_schema() as update:
            update.add_column("other", StringType())
        assert new_catalog().load_table(name).schema().column_names == ["id", "text", "note"]

    def test_an_append_beside_a_rotation_of_the_keys_is_kept(self, new_catalog: NewCatalog, name: str, table: Table) -> None:
        behind = new_catalog().load_table(name)
        rotate_kek(table)
        table.append(ROWS)
        behind.append(ROWS)
        loaded = new_catalog().load_table(name)
        assert loaded.scan().count() == 3 * ROWS.num_rows
        assert verify(loaded).bad == ()

    def test_expiry_beside_an_append_removes_nothing_that_is_needed(self, new_catalog: NewCatalog, name: str, table: Table) -> None:
        table.append(ROWS)
        behind = new_catalog().load_table(name)
        table.append(ROWS)
        with pytest.raises(CommitFailedException):
            behind.maintenance.expire_snapshots().by_id(behind.snapshots()[0].snapshot_id).commit()
        loaded = new_catalog().load_table(name)
        assert loaded.scan().count() == 3 * ROWS.num_rows
        assert stray_keys(loaded) == set()

    def test_a_delete_of_rows_that_another_deleted_is_refused(self, new_catalog: NewCatalog, name: str, table: Table) -> None:
        behind = new_catalog().load_table(name)
        table.delete("id = 1")
        with pytest.raises((CommitFailedException, ValidationException)):
            behind.delete("id = 2")
        assert ids_of(new_catalog().load_table(name)) == [2, 3]

    def test_commits_to_two_branches_at_the_same_time_are_both_kept(self, new_catalog: NewCatalog, name: str, table: Table) -> None:
        table.manage_snapshots().create_branch(table.snapshots()[0].snapshot_id, "work").commit()
        behind = new_catalog().load_table(name)
        table.append(ROWS)
        behind.append(ROWS, branch="work")
        table.refresh()
        assert table.scan().count() == table.scan().use_ref("work").count() == 2 * ROWS.num_rows
        assert len({snapshot.sequence_number for snapshot in table.snapshots()}) == 3
        assert stray_keys(table) == set()

    def test_concurrent_appends_are_all_kept_and_leave_no_stray_key(self, new_catalog: NewCatalog, name: str, table: Table) -> None:
        writers, appends = 3, 4

        def write(_: int) -> None:
            own = new_catalog().load_table(name)
            for _ in range(appends):
                own.append(ROWS)

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(write, range(writers)))
        table.refresh()
        commits = writers * appends + 1
        assert table.scan().count() == table.scan().to_arrow().num_rows == commits * ROWS.num_rows
        assert len(table.snapshots()) == commits
        assert stray_keys(table) == set()
        row_ids = table.scan(selected_fields=("_row_id",)).to_arrow()["_row_id"].to_pylist()
        assert sorted(row_ids) == list(range(commits * ROWS.num_rows))
