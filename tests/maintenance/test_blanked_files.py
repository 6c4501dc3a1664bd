"""A data file of a table with blanked rows, written by an analyst: protected columns stay, and no bound of what was there is left."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.expressions.parser import parse
from pyiceberg.table.snapshots import Operation

from tablecrypt import maintenance as m
from tablecrypt.errors import TamperedFileError
from tablecrypt.maintenance.columns.blanking import blanked_file
from tablecrypt.maintenance.erasure.plan import RefWork
from tablecrypt.maintenance.erasure.rewriting import blank_rows
from tablecrypt.maintenance.erasure.row_filter import ErasureFilter
from tablecrypt.table.replace_files import EncryptedFileSwap
from tablecrypt.table.table import EncryptedTable
from tests.support.protected_tables import Clients, protected_table
from tests.support.tables import encrypted_table, folder_of, path_of

ROWS = pa.table({"id": [1, 2, 3, 99], "ssn": ["SSN-1", "SSN-2", "SSN-3", "SSN-99"], "note": ["a", "b", "c", "zz-gone"]})


def as_analyst(both: Clients, **properties: str) -> EncryptedTable:
    table = protected_table(both.payroll, appends=[ROWS.slice(0, 4)], **properties)
    with table.update_schema() as change:
        change.rename_column("note", "comment")
    return encrypted_table(both.analyst.load_table("db.people"))


def stored_files(table: EncryptedTable) -> set[str]:
    return {path.name for path in folder_of(table).rglob("*.parquet")}


def test_who_may_not_read_a_column_blanks_rows_and_who_may_reads_it_on(both: Clients) -> None:
    table = as_analyst(both, **{"write.delete.mode": "merge-on-read"})
    table.delete("id = 2")
    (task,) = table.refresh().scan().plan_files()

    entry = blanked_file(table, task.file, [3])
    with table.transaction() as transaction:
        transaction.update_snapshot().producer(  # type: ignore[attr-defined]
            EncryptedFileSwap, Operation.REPLACE, swaps={task.file.file_path: entry}
        ).commit()

    rows = both.payroll.load_table("db.people").scan(selected_fields=("id", "ssn", "comment")).to_arrow().to_pylist()
    assert rows == [
        {"id": 1, "ssn": "SSN-1", "comment": "a"},
        {"id": 3, "ssn": "SSN-3", "comment": "c"},
        {"id": None, "ssn": "SSN-99", "comment": None},
    ]
    (new,) = both.analyst.load_table("db.people").scan().plan_files()
    bounds = {**new.file.lower_bounds, **new.file.upper_bounds}
    assert new.file.upper_bounds[1] == (3).to_bytes(8, "little")
    assert not any(b"zz" in value or b"SSN" in value for value in bounds.values())
    assert new.file.null_value_counts[1] == 1
    assert both.analyst.load_table("db.people").scan("id = 99").to_arrow().num_rows == 0
    assert m.verify(both.payroll.load_table("db.people")).is_complete
    assert m.verify(both.payroll.load_table("db.people")).is_good


def test_a_file_that_was_tampered_with_is_refused_and_nothing_is_left(both: Clients) -> None:
    table = as_analyst(both)
    (task,) = table.scan().plan_files()
    path = path_of(task.file.file_path)
    stored = bytearray(path.read_bytes())
    stored[20] ^= 1
    path.write_bytes(stored)
    known = stored_files(table)

    with pytest.raises(TamperedFileError):
        blanked_file(table, task.file, [0])

    assert stored_files(table) == known


def test_no_blanked_file_is_left_when_a_later_one_fails(both: Clients) -> None:
    protected = protected_table(both.payroll, **{"write.delete.mode": "merge-on-read"})
    for _ in range(2):
        protected.append(ROWS)
    table = encrypted_table(both.analyst.load_table("db.people"))
    tasks = table.scan().plan_files()
    path_of(tasks[1].file.file_path).unlink()
    known, location = stored_files(table), table.metadata_location
    work = RefWork("main", "branch", table.metadata.snapshots[-1].snapshot_id, tasks, tasks)

    with pytest.raises(FileNotFoundError):
        blank_rows(table, work, ErasureFilter(table.schema(), parse("id = 3")), {task.file.file_path for task in tasks})

    assert stored_files(table) == known
    assert table.refresh().metadata_location == location
