"""How many rows and bytes entries of manifests claim: whoever may commit writes them, and counts of whole files believe them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from tablecrypt.errors import FormatError
from tablecrypt.maintenance import verify
from tablecrypt.manifests import EncryptedDataFile
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.table.deletes import RowDelta
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.reader import TaskReader
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.handwritten_manifests import HandwrittenManifest, commit_by_hand, named_otherwise
from tests.support.peak_memory import measured
from tests.support.plaintext import CANARY
from tests.support.protected_tables import add_once_more
from tests.support.table_files import TableFiles
from tests.support.tables import data_files, folder_of, new_table, path_of

SCHEMA: Final = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
ROWS: Final = pa.table({"id": pa.array(range(100), pa.int64()), "text": [f"{CANARY} {number}" for number in range(100)]})
AVRO: Final = {"type": "record", "name": "table", "fields": [{"name": "id", "type": "long", "field-id": 1}]}
Made = Callable[[TableFiles], EncryptedDataFile]


@pytest.fixture
def files(unwatched_warehouse: Path) -> TableFiles:
    return TableFiles(unwatched_warehouse / "db" / "t", SCHEMA)


def read(files: TableFiles, data: EncryptedDataFile, *deletes: EncryptedDataFile) -> int:
    reader = TaskReader(files.metadata, files.io, SCHEMA, ALWAYS_TRUE)
    return sum(len(batch) for batch in reader.batches(EncryptedFileScanTask(data, set(deletes))))


def without_length(file: EncryptedDataFile) -> EncryptedDataFile:
    """The file, whose key metadata does not say how long it is."""
    return named_otherwise(file, key_metadata=replace(key_metadata_of(file), file_length=None).encode())


@pytest.mark.parametrize("claimed", [0, 99, 101, 2**40])
@pytest.mark.parametrize(
    "make", [lambda files: files.data(ROWS), lambda files: files.avro_data(AVRO, [{"id": 1}] * 100)], ids=["Parquet", "Avro"]
)
def test_a_data_file_of_other_rows_than_its_entry_claims_is_refused(files: TableFiles, make: Made, claimed: int) -> None:
    data = make(files)
    assert read(files, data) == 100
    with pytest.raises(FormatError, match=f"{data.file_path}.*100 rows.* its manifest entry says {claimed}|rows or more"):
        read(files, named_otherwise(data, record_count=claimed))


@pytest.mark.parametrize("kind", ["positions", "equality"])
def test_a_delete_file_of_other_rows_than_its_entry_claims_is_refused(files: TableFiles, kind: str) -> None:
    data = files.data(ROWS)
    delete = {
        "positions": lambda: files.position_deletes([(data.file_path, 3)]),
        "equality": lambda: files.equality_deletes(pa.table({"id": pa.array([3], pa.int64())}), [1]),
    }[kind]()
    with pytest.raises(FormatError, match=f"{delete.file_path}: has 1 rows, its manifest entry says 2"):
        read(files, data, named_otherwise(delete, record_count=2))


@pytest.mark.parametrize("with_key_length", [True, False])
def test_a_file_of_another_length_than_its_entry_claims_is_refused(files: TableFiles, with_key_length: bool) -> None:
    data = files.data(ROWS)
    known = data if with_key_length else without_length(data)
    assert read(files, known) == 100
    # A scan in parts would leave out what lies beyond.
    with pytest.raises(FormatError, match=f"{data.file_path}.* manifest entry says {data.file_size_in_bytes - 1}"):
        read(files, named_otherwise(known, file_size_in_bytes=data.file_size_in_bytes - 1))


def test_a_deletion_vector_of_another_length_than_its_entry_claims_is_refused(files: TableFiles) -> None:
    data = files.data(ROWS)
    vector = files.deletion_vector(data.file_path, [3])
    with pytest.raises(FormatError, match=f"{vector.file_path}: its manifest entry says 1 bytes"):
        read(files, data, named_otherwise(vector, file_size_in_bytes=1))


def test_a_deletion_vector_of_rows_that_a_file_does_not_have_is_not_expanded(files: TableFiles, tmp_path: Path) -> None:
    data, gone = files.data(ROWS), BitMap64()
    gone.add_range(0, 40_000_000)
    claimed = named_otherwise(data, record_count=2**31)

    outcome = measured(lambda: read(files, claimed, files.deletion_vector(data.file_path, gone)), tmp_path / "outcome")

    assert "has 100 rows, its manifest entry says 2147483648" in str(outcome.error)
    assert outcome.peak < 100 * 2**20


@pytest.mark.parametrize("fields", [{"referenced_data_file": None}, {"content_offset": 4}], ids=["names no file", "twice"])
def test_verify_reports_vectors_that_no_scan_reads(catalog: EncryptedSqlCatalog, fields: dict[str, Any]) -> None:
    table = new_table(catalog, "db.t", SCHEMA, appends=[ROWS])
    files, [data] = TableFiles(folder_of(table), table.schema()), data_files(table)
    vector = files.deletion_vector(data.file_path, [3])
    add_deletes(table, vector)
    commit_by_hand(table.refresh(), HandwrittenManifest([named_otherwise(vector, **fields)], ManifestContent.DELETES, spec_id=0))

    with pytest.raises(FormatError, match=r"names no data file|two deletion vectors"):
        table.refresh().scan().to_arrow()

    assert {bad.location for bad in verify(table).bad} == {vector.file_path}


def problems(table: EncryptedTable, quick: bool = False) -> set[tuple[str, str]]:
    """The file and part of each problem that verifying finds."""
    return {(bad.location, problem.part) for bad in verify(table.refresh(), quick=quick).bad for problem in bad.problems}


def add(table: EncryptedTable, *files: EncryptedDataFile) -> None:
    """Commit data files with their entries as they are."""
    with table.transaction() as transaction:
        cast("EncryptedTransaction", transaction).append_producer(CommitOptions()).commit_files(list(files))


def add_deletes(table: EncryptedTable, *files: EncryptedDataFile) -> None:
    with table.transaction() as transaction:
        transaction.update_snapshot().row_delta(RowDelta(added=files)).commit()  # type: ignore[attr-defined]  # our own method


@pytest.mark.parametrize("quick", [False, True])
def test_verify_reports_rows_that_an_entry_claims(catalog: EncryptedSqlCatalog, quick: bool) -> None:
    table = new_table(catalog, "db.t", SCHEMA, appends=[ROWS])
    [file] = data_files(table)
    planted = add_once_more(table, file, path_of(file.file_path).read_bytes(), record_count=file.record_count + 1)
    assert table.scan().count() == 2 * file.record_count + 1
    assert problems(table, quick) == {(planted, "rows")}


def test_verify_reports_what_a_second_entry_of_a_file_claims(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, "db.t", SCHEMA, appends=[ROWS])
    [file] = data_files(table)
    add(table, named_otherwise(EncryptedDataFile.of(file), record_count=1, first_row_id=None))
    assert problems(table) == {(file.file_path, "rows")}


@pytest.mark.parametrize("quick", [False, True])
def test_verify_reports_bytes_that_an_entry_claims(catalog: EncryptedSqlCatalog, quick: bool) -> None:
    table = new_table(catalog, "db.t", SCHEMA, appends=[ROWS])
    [file] = data_files(table)
    stored = path_of(file.file_path).read_bytes()
    unsaid = without_length(EncryptedDataFile.of(file)).key_metadata
    planted = add_once_more(table, file, stored, file_size_in_bytes=len(stored) - 1, key_metadata=unsaid)
    assert problems(table, quick) == {(planted, "length")}


def test_no_file_is_committed_whose_entry_and_key_metadata_have_other_lengths(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, "db.t", SCHEMA, appends=[ROWS])
    [file] = data_files(table)
    with pytest.raises(FormatError, match=f"{file.file_path}: its manifest entry says 1 bytes"):
        add(table, named_otherwise(EncryptedDataFile.of(file), file_size_in_bytes=1, first_row_id=None))


def test_verify_reports_rows_of_avro_files_and_of_position_deletes(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, "db.t", SCHEMA, appends=[ROWS])
    files, [data] = TableFiles(folder_of(table), table.schema()), data_files(table)
    good, claimed = (files.avro_data(AVRO, [{"id": 1}] * 3) for _ in range(2))
    add(table, good, named_otherwise(claimed, record_count=4))
    deletes = files.position_deletes([(data.file_path, 3)])
    add_deletes(table, named_otherwise(deletes, record_count=2))
    assert problems(table) == {(claimed.file_path, "rows"), (deletes.file_path, "rows")}


@pytest.mark.parametrize("claim", [{"record_count": 2}, {"content_offset": 5}, {"content_size_in_bytes": 100_000}])
def test_verify_reports_a_deletion_vector_that_its_entry_does_not_fit(catalog: EncryptedSqlCatalog, claim: dict[str, int]) -> None:
    table = new_table(catalog, "db.t", SCHEMA, appends=[ROWS])
    files, [data] = TableFiles(folder_of(table), table.schema()), data_files(table)
    vector = files.deletion_vector(data.file_path, [3])
    add_deletes(table, named_otherwise(vector, **claim))
    with pytest.raises(FormatError, match=vector.file_path):
        table.refresh().scan().to_arrow()
    assert problems(table) == {(vector.file_path, "deletion vector")}


def test_verify_reports_a_deletion_vector_of_rows_that_its_data_file_does_not_have(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, "db.t", SCHEMA, appends=[ROWS])
    files, [data] = TableFiles(folder_of(table), table.schema()), data_files(table)
    vectors = files.deletion_vectors([(data.file_path, [data.record_count])])
    add_deletes(table, *vectors)
    assert problems(table) == {(vectors[0].file_path, "deletion vector")}
