"""Purging an encrypted table: every file goes, and a store that fails only delays it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from sqlalchemy import text

from tablecrypt.errors import PurgeIncompleteError, TamperedFileError
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.catalogs import MASTER_KEY, encrypted_sql_catalog
from tests.support.plaintext import CANARY

ENCRYPTED = {"encryption.key-id": MASTER_KEY}
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": [CANARY, None, ""]})


class FailingFileIO(PyArrowFileIO):
    """A store whose deletes fail: all that `failing` says yes to. Everything else works."""

    random: ClassVar[random.Random] = random.Random(0)
    share: ClassVar[float] = 0.0
    suffixes: ClassVar[tuple[str, ...]] = ()
    deleted: ClassVar[list[str]] = []

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        if name.endswith(self.suffixes) or self.random.random() < self.share:
            raise OSError(f"the store is busy: {name}")
        super().delete(location)
        self.deleted.append(name)


@pytest.fixture(autouse=True)
def working_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailingFileIO, "share", 0.0)
    monkeypatch.setattr(FailingFileIO, "suffixes", ())
    monkeypatch.setattr(FailingFileIO, "deleted", [])


@pytest.fixture
def catalog(warehouse: Path, aws: AwsServer) -> EncryptedSqlCatalog:
    return encrypted_sql_catalog(warehouse, aws, {"py-io-impl": "tests.catalog.test_purge.FailingFileIO"})


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
    folder = Path(table.location().removeprefix("file://"))
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_purge_removes_also_what_only_older_metadata_names(catalog: EncryptedSqlCatalog, table: Table) -> None:
    before = files_of(table)
    assert sum(name.endswith(".metadata.json") for name in before) == 7
    assert sum(name.endswith(".parquet") for name in before) == 4
    catalog.purge_table("db.t")
    assert files_of(table) == []
    assert not catalog.table_exists("db.t")


@pytest.mark.parametrize("seed", range(6))
def test_a_store_that_fails_at_random_only_delays_a_purge(
    catalog: EncryptedSqlCatalog, table: Table, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(FailingFileIO, "random", random.Random(seed))
    monkeypatch.setattr(FailingFileIO, "share", 0.3)
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
def test_what_names_a_file_that_is_left_is_left_too(
    catalog: EncryptedSqlCatalog, table: Table, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    before = files_of(table)
    monkeypatch.setattr(FailingFileIO, "suffixes", (suffix,))
    with pytest.raises(PurgeIncompleteError):
        catalog.purge_table("db.t")
    assert {name for name in before if _level(name) > _level(suffix)} <= set(files_of(table))
    assert catalog.load_table("db.t").metadata_location == table.metadata_location
    monkeypatch.setattr(FailingFileIO, "suffixes", ())
    catalog.purge_table("db.t")
    assert files_of(table) == []


def _level(name: str) -> int:
    if name.endswith((".parquet", ".puffin")):
        return 0
    if name.endswith(".metadata.json"):
        return 3
    return 2 if name.startswith("snap-") or name == ".avro" else 1


def test_a_purge_that_ended_before_the_catalogs_entry_is_finished(
    catalog: EncryptedSqlCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(_identifier: object) -> None:
        raise ConnectionError("the catalog is gone")

    with monkeypatch.context() as patched:
        patched.setattr(catalog, "drop_table", unreachable)
        with pytest.raises(ConnectionError):
            catalog.purge_table("db.t")
    assert files_of(table) == []
    catalog.purge_table("db.t")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.t")


def test_what_was_committed_during_a_purge_keeps_the_table(
    catalog: EncryptedSqlCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = catalog.load_table("db.t")
    original = FailingFileIO.delete
    commits = [lambda: other.transaction().set_properties(owner="someone").commit_transaction()]

    def delete_and_let_another_commit(io: FailingFileIO, location: str) -> None:
        original(io, location)
        if location.endswith(".metadata.json") and commits:
            commits.pop()()

    monkeypatch.setattr(FailingFileIO, "delete", delete_and_let_another_commit)
    with pytest.raises(CommitFailedException, match="purge it again"):
        catalog.purge_table("db.t")
    catalog.purge_table("db.t")
    assert files_of(table) == []


def test_nothing_is_deleted_when_the_files_cannot_be_listed(unwatched_warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws, {"py-io-impl": "tests.catalog.test_purge.FailingFileIO"})
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    table.append(ROWS)
    manifest = Path(table.current_snapshot().manifests(table.io)[0].manifest_path.removeprefix("file://"))  # type: ignore[union-attr]
    content = bytearray(manifest.read_bytes())
    content[-1] ^= 1
    manifest.write_bytes(content)
    with pytest.raises(TamperedFileError, match=manifest.name):
        catalog.purge_table("db.t")
    assert FailingFileIO.deleted == []


def test_a_metadata_log_that_names_another_tables_metadata_deletes_nothing(unwatched_warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws, {"py-io-impl": "tests.catalog.test_purge.FailingFileIO"})
    victim = catalog.create_table("db.victim", ROWS.schema, properties=ENCRYPTED)
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    table.append(ROWS)
    location = Path(table.metadata_location.removeprefix("file://"))
    location.write_text(location.read_text().replace(table.metadata.metadata_log[0].metadata_file, victim.metadata_location))
    with catalog.engine.begin() as connection:
        connection.execute(text("DELETE FROM tablecrypt_pins"))
    with pytest.raises(TamperedFileError, match="another table's metadata"):
        catalog.purge_table("db.t")
    assert FailingFileIO.deleted == []
    assert catalog.load_table("db.victim").metadata_location == victim.metadata_location


def test_a_plaintext_table_is_purged_as_pyiceberg_does(unwatched_warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    table = catalog.create_table("db.plain", ROWS.schema)
    table.append(ROWS)
    catalog.purge_table("db.plain")
    assert files_of(table) == []
