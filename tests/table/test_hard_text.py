"""Text of which no bound can be cut, and text that is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from tablecrypt.errors import FormatError
from tablecrypt.maintenance import compact, erase
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.write import write_data_files
from tests.support.tables import contents_below, data_files, encrypted_table, folder_of, memory_catalog, new_table

SCHEMA: Final = pa.schema([("id", pa.int64()), ("text", pa.string())])
CUT_AT: Final = 16
"""Characters of a bound. The last one of an upper bound is counted up by one."""
UNCUT: Final = ("a" * (CUT_AT - 1) + "\ud7ff" + "and more", "\U0010ffff" * (CUT_AT + 1))


@pytest.fixture
def table(tmp_path: Path) -> EncryptedTable:
    return new_table(memory_catalog(tmp_path), schema=SCHEMA)


@pytest.mark.parametrize("hard", UNCUT, ids=["before the surrogates", "the last character"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_file_with_text_that_has_no_upper_bound_is_found_compacted_and_erased_from(table: EncryptedTable, hard: str, mode: str) -> None:
    table.transaction().set_properties({"write.delete.mode": mode}).commit_transaction()
    table.append(pa.table({"id": [1, 2, 3], "text": [hard, "a", None]}, schema=SCHEMA))

    [file] = data_files(table)
    assert (2 in file.upper_bounds, file.null_value_counts[2]) == (False, 1)
    assert table.scan(f"text >= '{hard[:CUT_AT]}'").to_arrow()["id"].to_pylist() == [1]
    compact(table, rewrite_all=True)
    assert erase(table, "id = 2").is_complete
    assert encrypted_table(table.refresh()).scan().to_arrow().sort_by("id")["text"].to_pylist() == [hard, None]


WRONG: Final = b"\xc8\xe2\xe0\xed"


def wrong_text(*around: bytes) -> pa.Array:
    """Text in another encoding, between other texts, of which none is the least or the greatest."""
    values = pa.array([*around[:1], WRONG, *around[1:]], pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), values.buffers())


WRITES: Final[dict[str, Callable[[EncryptedTable, pa.Table], object]]] = {
    "append": lambda table, rows: table.append(rows),
    "append of a stream": lambda table, rows: table.append(rows.to_reader()),
    "overwrite": lambda table, rows: table.overwrite(rows),
    "upsert": lambda table, rows: table.upsert(rows, ["id"]),
}


@pytest.mark.parametrize("around", [(), (b"a", b"\xf0\x9f\x98\x80")], ids=["a bound", "between others"])
@pytest.mark.parametrize("properties", [{}, {"write.metadata.metrics.default": "none"}], ids=["bounds", "no bounds"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_text_that_is_not_utf_8_is_refused_and_leaves_no_file(
    table: EncryptedTable, around: tuple[bytes, ...], properties: dict[str, str], write: Callable[[EncryptedTable, pa.Table], object]
) -> None:
    table.transaction().set_properties(properties).commit_transaction()
    table.append(pa.table({"id": [1], "text": ["right"]}, schema=SCHEMA))
    before = contents_below(folder_of(table))
    text = wrong_text(*around)

    with pytest.raises(FormatError, match="column 'text': text of the rows is not UTF-8"):
        write(table, pa.table({"id": pa.array(range(len(text))), "text": text}, schema=SCHEMA))

    assert contents_below(folder_of(table)) == before


def test_text_within_a_list_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    nested = pa.ListArray.from_arrays([0, 1], wrong_text())
    table = new_table(memory_catalog(tmp_path), schema=pa.schema([("texts", pa.list_(pa.string()))]))

    with pytest.raises(FormatError, match="column 'texts': text of the rows is not UTF-8"):
        table.append(pa.table({"texts": nested}))


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_text_of_another_engine_that_is_not_utf_8_keeps_no_other_row(table: EncryptedTable, mode: str) -> None:
    table.transaction().set_properties({"write.delete.mode": mode}).commit_transaction()
    rows = pa.table({"id": pa.array([1, 2, 3]), "text": wrong_text(b"a", b"z")}, schema=SCHEMA)
    with table.transaction() as transaction:
        producer = transaction.update_snapshot().fast_append()
        for file in write_data_files(transaction.table_metadata, rows, table.io, table.io.manager):
            producer.append_data_file(file)
        producer.commit()

    table.delete("id = 1")
    compact(table, rewrite_all=True)
    assert erase(table, "id = 3").is_complete
    assert encrypted_table(table.refresh()).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist() == [2]
