"""Purging an encrypted table: every file goes, and a store that fails only delays it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy import text

from tablecrypt.errors import ConfigurationError, KeyNotFoundError, PurgeIncompleteError, TamperedFileError
from tablecrypt.maintenance import erase, shred
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.tables import ENCRYPTED, ROWS, encrypted_sql_catalog, files_below, flip, folder_of, metadata_path, new_table, path_of


@dataclass
class Store:
    """A store that works, unless it is told otherwise.

    Attributes:
        random, share: which of the deletes fail.
        suffixes: ends of the names whose deletes fail.
        deleted: names, in their order.
        after: called with each name that was deleted.
    """

    random: Random = field(default_factory=lambda: Random(0))
    share: float = 0.0
    suffixes: tuple[str, ...] = ()
    deleted: list[str] = field(default_factory=list)
    after: Callable[[str], object] = lambda name: None

    def delete(self, name: str, delete: Callable[[], object]) -> None:
        if name.endswith(self.suffixes) or self.random.random() < self.share:
            raise OSError(f"the store is busy: {name}")
        delete()
        self.deleted.append(name)
        self.after(name)


STORES: Final[dict[str, Store]] = {}


class FailingFileIO(PyArrowFileIO):
    """Deletes in the store that the property names."""

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        STORES[self.properties["tests.store"]].delete(name, lambda: PyArrowFileIO.delete(self, location))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    STORES[str(tmp_path)] = store = Store()
    yield store
    del STORES[str(tmp_path)]


@pytest.fixture
def in_store(store: Store, tmp_path: Path) -> dict[str, str]:
    """The properties of a catalog whose tables are in the store."""
    return {"py-io-impl": f"{__name__}.FailingFileIO", "tests.store": str(tmp_path)}


@pytest.fixture
def catalog(warehouse: Path, aws: AwsServer, in_store: dict[str, str]) -> EncryptedSqlCatalog:
    return encrypted_sql_catalog(warehouse, aws, in_store)


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> Table:
    """A table with data files, a deletion vector, an expired snapshot and more metadata files than its log names."""
    properties = {**ENCRYPTED, "write.metadata.previous-versions-max": "2", "write.delete.mode": "merge-on-read"}
    table = catalog.create_table("db.t", ROWS.schema, properties=properties)
    for _ in range(3):
        table.append(ROWS)
    table.delete("id = 1")
    table.overwrite(ROWS)
    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in table.snapshots()[:2]]).commit()
    assert len(table.metadata.metadata_log) == 2
    return table


def files_of(table: Table) -> list[str]:
    return sorted(path.name for path in files_below(folder_of(table)))


def test_a_purge_removes_also_what_only_older_metadata_names(catalog: EncryptedSqlCatalog, table: Table) -> None:
    before = files_of(table)
    assert sum(name.endswith(".metadata.json") for name in before) == 7
    assert sum(name.endswith(".parquet") for name in before) == 4
    catalog.purge_table("db.t")
    assert files_of(table) == []
    assert not catalog.table_exists("db.t")


@pytest.mark.parametrize("switch", ["skip_unreadable", "break_shares"])
def test_a_purge_takes_no_text_for_a_switch(catalog: EncryptedSqlCatalog, table: Table, switch: str) -> None:
    wrong: dict[str, Any] = {switch: "no"}
    with pytest.raises(ConfigurationError, match=rf"^{switch} is a str; it must be True or False$"):
        catalog.purge_files("db.t", **wrong)

    assert catalog.load_table("db.t").scan().to_arrow().num_rows == table.scan().count()


def test_a_table_is_purged_after_rows_were_erased_from_it(catalog: EncryptedSqlCatalog, table: Table) -> None:
    erase(table, "id = 1")

    catalog.purge_table("db.t")

    assert files_of(table) == []
    assert not catalog.table_exists("db.t")


def test_the_purge_of_a_table_with_shredded_snapshots_says_how_to_go_on(catalog: EncryptedSqlCatalog, table: Table) -> None:
    shred(table, all_but_heads=True)
    with pytest.raises(
        KeyNotFoundError, match=r"or its snapshots were shredded, catalog.purge_files\('db.t', skip_unreadable=True\) leaves"
    ):
        catalog.purge_table("db.t")

    assert catalog.purge_files("db.t", skip_unreadable=True).skipped
    assert not catalog.table_exists("db.t")


@pytest.mark.parametrize("seed", range(6))
def test_a_store_that_fails_at_random_only_delays_a_purge(catalog: EncryptedSqlCatalog, table: Table, store: Store, seed: int) -> None:
    store.random, store.share = Random(seed), 0.3
    failures = 0
    while catalog.table_exists("db.t"):
        left = files_of(table)
        try:
            catalog.purge_table("db.t")
        except PurgeIncompleteError as error:
            failures += 1
            assert error.table == "db.t"
            assert 0 < len(error.failed) <= len(left)
            assert {location.rpartition("/")[2] for location in error.failed} <= set(files_of(table))
            assert all("the store is busy" in problem for problem in error.failed.values())
    assert failures > 0
    assert files_of(table) == []


@pytest.mark.parametrize("suffix", [".parquet", ".puffin", "-m0.avro", ".avro", ".metadata.json"])
def test_what_names_a_file_that_is_left_is_left_too(catalog: EncryptedSqlCatalog, table: Table, store: Store, suffix: str) -> None:
    before = files_of(table)
    store.suffixes = (suffix,)
    with pytest.raises(PurgeIncompleteError):
        catalog.purge_table("db.t")
    assert {name for name in before if _level(name) > _level(suffix)} <= set(files_of(table))
    assert catalog.load_table("db.t").metadata_location == table.metadata_location
    store.suffixes = ()
    catalog.purge_table("db.t")
    assert files_of(table) == []


def _level(name: str) -> int:
    if name.endswith((".parquet", ".puffin")):
        return 0
    if name.endswith(".metadata.json"):
        return 3
    return 2 if name.startswith("snap-") or name == ".avro" else 1


class VanishingCatalog(EncryptedSqlCatalog):
    """One that is gone when a table is to be dropped."""

    def drop_table(self, identifier: str | Identifier) -> None:
        raise ConnectionError("the catalog is gone")


def test_a_purge_that_ended_before_the_catalogs_entry_is_finished(catalog: EncryptedSqlCatalog, table: Table) -> None:
    with pytest.raises(ConnectionError):
        VanishingCatalog(catalog.name, **catalog.properties).purge_table("db.t")
    assert files_of(table) == []
    catalog.purge_table("db.t")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.t")


def test_what_was_committed_during_a_purge_keeps_the_table(catalog: EncryptedSqlCatalog, table: Table, store: Store) -> None:
    other = catalog.load_table("db.t")
    commits = [lambda: other.transaction().set_properties(owner="someone").commit_transaction()]

    def let_another_commit(deleted: str) -> None:
        if deleted.endswith(".metadata.json") and commits:
            commits.pop()()

    store.after = let_another_commit
    with pytest.raises(CommitFailedException, match="purge it again"):
        catalog.purge_table("db.t")
    catalog.purge_table("db.t")
    assert files_of(table) == []


def test_nothing_is_deleted_when_the_files_cannot_be_listed(
    unwatched_warehouse: Path, aws: AwsServer, store: Store, in_store: dict[str, str]
) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws, in_store)
    table = new_table(catalog, appends=[ROWS])
    manifest = path_of(table.current_snapshot().manifests(table.io)[0].manifest_path)  # type: ignore[union-attr]
    flip(manifest, -1)
    with pytest.raises(TamperedFileError, match=manifest.name):
        catalog.purge_table("db.t")
    assert store.deleted == []


def test_a_metadata_log_that_names_another_tables_metadata_deletes_nothing(
    unwatched_warehouse: Path, aws: AwsServer, store: Store, in_store: dict[str, str]
) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws, in_store)
    victim = catalog.create_table("db.victim", ROWS.schema, properties=ENCRYPTED)
    table = new_table(catalog, appends=[ROWS])
    location = metadata_path(table)
    location.write_text(location.read_text().replace(table.metadata.metadata_log[0].metadata_file, victim.metadata_location))
    with catalog.engine.begin() as connection:
        connection.execute(text("DELETE FROM tablecrypt_pins"))
    with pytest.raises(TamperedFileError, match="another table's metadata"):
        catalog.purge_table("db.t")
    assert store.deleted == []
    assert catalog.load_table("db.victim").metadata_location == victim.metadata_location


def test_a_plaintext_table_is_purged_as_pyiceberg_does(unwatched_warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    table = catalog.create_table("db.plain", ROWS.schema)
    table.append(ROWS)
    catalog.purge_table("db.plain")
    assert files_of(table) == []
