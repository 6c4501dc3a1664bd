"""Delete files of other engines may hold more of a row than readers compare: protection takes these values away as it does those of data.

Flink writes whole rows into equality deletes, and writers of position deletes may copy the rows that they delete. Both from before a column
was protected: the analyst has the table's key, and no column's.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat

from tablecrypt.maintenance import FindingKind, audit, reencrypt, shred, verify
from tablecrypt.maintenance.reachable import FileKind, reachable_files
from tablecrypt.manifests.records import EncryptedDataFile, key_metadata_of
from tablecrypt.table.deletes import RowDelta
from tablecrypt.table.table import EncryptedTable
from tests.support.plaintext import CANARY
from tests.support.protected_tables import COLUMN_KEY, TABLE_KEY, Clients, declare, loaded, opened_by_table_key
from tests.support.table_files import TableFiles
from tests.support.tables import folder_of

ROWS: Final = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": [f"{CANARY} 1", f"{CANARY} 2", f"{CANARY} 3"]})
KINDS: Final = ("equality", "equality, Avro", "position")


def _delete_second(table: EncryptedTable, kind: str) -> EncryptedDataFile:
    """A file that deletes the row with the id 2, and holds all of it."""
    files = TableFiles(folder_of(table), table.schema())
    files.io = table.io
    if kind == "equality":
        return files.equality_deletes(ROWS.slice(1, 1), [1])
    if kind == "equality, Avro":
        fields = [{"name": "id", "type": "long", "field-id": 1}, {"name": "text", "type": "string", "field-id": 2}]
        written = files.avro_data({"type": "record", "name": "table", "fields": fields}, ROWS.slice(1, 1).to_pylist())
        return files.file(
            DataFileContent.EQUALITY_DELETES, FileFormat.AVRO, written.file_path, 1, key_metadata_of(written), equality_ids=[1]
        )
    (task,) = table.scan().plan_files()
    return files.position_deletes([(task.file.file_path, 1)], ROWS.slice(1, 1))


@pytest.fixture(params=KINDS)
def table(both: Clients, request: pytest.FixtureRequest) -> EncryptedTable:
    """A table with such a delete, of which a column is declared after that."""
    both.payroll.create_table("db.people", ROWS.schema, properties={"encryption.key-id": TABLE_KEY})
    table = loaded(both.payroll)
    table.append(ROWS)
    with table.transaction() as transaction:
        delete = _delete_second(table, request.param)
        transaction.update_snapshot().row_delta(RowDelta(added=[delete])).commit()  # type: ignore[attr-defined]
    declare(table, f"{COLUMN_KEY}: text")

    return loaded(both.payroll)


def _exposing(table: EncryptedTable) -> list[str]:
    return [finding.message for finding in audit(table).findings if finding.kind == FindingKind.COLUMN_EXPOSED]


def _rows(table: EncryptedTable) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: int(row["id"]))


@pytest.mark.parametrize(("columns", "stays"), [(["id", "text"], False), (["id"], True)])
def test_one_that_applies_to_no_file_goes_where_it_holds_the_column(both: Clients, columns: list[str], stays: bool) -> None:
    both.payroll.create_table("db.people", ROWS.schema, properties={"encryption.key-id": TABLE_KEY})
    table = loaded(both.payroll)
    files = TableFiles(folder_of(table), table.schema())
    files.io = table.io
    with table.transaction() as transaction:
        delete = files.equality_deletes(ROWS.slice(1, 1).select(columns), [1])
        transaction.update_snapshot().row_delta(RowDelta(added=[delete])).commit()  # type: ignore[attr-defined]
    table.append(ROWS)
    declare(table, f"{COLUMN_KEY}: text")
    reencrypt(table)
    shred(table.refresh(), all_but_heads=True, replace_heads=True)

    table = loaded(both.payroll)
    assert [row["id"] for row in _rows(table)] == [1, 2, 3]
    assert not [stored for stored in opened_by_table_key(table) if CANARY.encode() in stored]
    kinds = {file.kind for file in reachable_files(table.metadata, table.io).files.values()}
    assert (FileKind.EQUALITY_DELETES in kinds) == stays


def test_an_audit_counts_them_among_the_files_that_show_the_column(table: EncryptedTable) -> None:
    assert len(_exposing(table)) == 1
    assert _exposing(table)[0].startswith("2 files hold it under the table's key")


@pytest.mark.parametrize("out_of_line", [True, False])
def test_reencrypt_applies_them(both: Clients, table: EncryptedTable, out_of_line: bool) -> None:
    before = _rows(table)
    assert [row["id"] for row in before] == [1, 3]
    reencrypt(table, out_of_line=out_of_line)
    shred(table.refresh(), all_but_heads=True, replace_heads=True)
    reencrypt(table.refresh())

    table = loaded(both.payroll)
    assert _rows(table) == before
    assert not [stored for stored in opened_by_table_key(table) if CANARY.encode() in stored]
    kinds = {file.kind for file in reachable_files(table.metadata, table.io).files.values()}
    assert kinds.isdisjoint({FileKind.EQUALITY_DELETES, FileKind.POSITION_DELETES})
    assert _exposing(table) == []
    assert verify(table).bad == ()
