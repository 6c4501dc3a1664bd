"""Text of which no bound can be cut, and text that is none."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from tablecrypt.errors import FormatError
from tablecrypt.maintenance import compact, erase
from tablecrypt.table.table import EncryptedTable
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


def test_text_that_is_not_utf_8_is_refused_and_leaves_no_file(table: EncryptedTable) -> None:
    table.append(pa.table({"id": [1], "text": ["right"]}, schema=SCHEMA))
    _, ends, content = pa.array(["Иванов".encode("cp1251")], pa.binary()).buffers()
    before = contents_below(folder_of(table))

    with pytest.raises(FormatError, match="is not UTF-8"):
        table.append(pa.table({"id": pa.array([2]), "text": pa.Array.from_buffers(pa.string(), 1, [None, ends, content])}, schema=SCHEMA))

    assert contents_below(folder_of(table)) == before
