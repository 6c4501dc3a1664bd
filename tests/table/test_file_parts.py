"""Parts of a data file: together they are the file, each row once, with its position, its deletes and its identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import FileFormat
from pyiceberg.table import ALWAYS_TRUE

from tablecrypt.errors import FormatError
from tablecrypt.manifests import EncryptedDataFile
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.lineage import with_lineage
from tablecrypt.table.planning import EncryptedFileScanTask, FilePart, parts_of
from tablecrypt.table.reader import TaskReader
from tests.support.plaintext import CANARY
from tests.support.table_files import TableFiles
from tests.support.tables import SCHEMA

ROWS = pa.table({"id": range(1000), "note": [f"{CANARY} {each * 7919 % 1000}" for each in range(1000)]}, schema=SCHEMA.as_arrow())


def entry(length: int, offsets: list[int] | None, file_format: FileFormat = FileFormat.PARQUET) -> EncryptedDataFile:
    return EncryptedDataFile.from_args(file_size_in_bytes=length, split_offsets=offsets, file_format=file_format)


@given(
    length=st.integers(1, 2**40),
    offsets=st.none() | st.lists(st.integers(-(2**41), 2**41), max_size=30),
    size=st.integers(1, 2**40),
    byte=st.integers(0, 2**40),
)
def test_every_byte_is_in_one_part_whatever_the_offsets_say(length: int, offsets: list[int] | None, size: int, byte: int) -> None:
    parts = parts_of(entry(length, offsets), size)

    assert (parts[0].start, parts[-1].end) == (0, length)
    assert sum(byte in part for part in parts) == (1 if byte < length else 0)
    assert sum(part.size for part in parts) == length
    assert all(part.size >= size for part in parts[:-1])


def test_files_that_cannot_be_cut_stay_whole() -> None:
    assert parts_of(entry(1000, None), 10) == [FilePart(0, 1000)]
    assert parts_of(entry(1000, [4, 500], FileFormat.AVRO), 10) == [FilePart(0, 1000)]
    assert len(parts_of(entry(1000, [4, 500]), 10)) == 2


@pytest.fixture
def files(tmp_path: Path) -> TableFiles:
    return TableFiles(tmp_path, SCHEMA, properties={"write.parquet.row-group-limit": "90"})


def content(files: TableFiles, tasks: list[EncryptedFileScanTask], row_filter: Any = ALWAYS_TRUE) -> list[dict[str, Any]]:
    reader = TaskReader(files.metadata, files.io, with_lineage(SCHEMA), row_filter)
    return [row for task in tasks for batch in reader.batches(task) for row in batch.to_pylist()]


@pytest.mark.parametrize("size", [1, 2000, 10**6])
def test_parts_give_the_rows_of_the_file(files: TableFiles, size: int) -> None:
    data = files.data(ROWS, first_row_id=100)
    vector = files.deletion_vector(data.file_path, [0, 89, 90, 555, 999])
    whole = EncryptedFileScanTask(data, {vector}, data_sequence_number=5)

    parts = whole.split(size)

    assert len(parts) == (12 if size == 1 else 1 if size == 10**6 else len(parts))
    assert sum(part.size for part in parts) == whole.size
    assert content(files, parts) == content(files, [whole])
    assert len(content(files, parts)) == 995
    assert [row["_row_id"] for row in content(files, parts[-1:])][-1] == 100 + 998


def test_parts_without_deletes_and_with_a_filter(files: TableFiles) -> None:
    whole = EncryptedFileScanTask(files.data(ROWS))
    plain = TaskReader(files.metadata, files.io, SCHEMA, EqualTo(term="id", value=555))

    found = [len(row) for part in whole.split(1) for row in plain.batches(part)]

    assert found == [1]


def test_a_part_without_a_row_group_has_no_rows(files: TableFiles) -> None:
    data = files.data(ROWS)
    task = EncryptedFileScanTask(data, part=FilePart(data.file_size_in_bytes - 3, data.file_size_in_bytes))

    assert content(files, [task]) == []


def test_parts_travel_with_their_tasks(files: TableFiles) -> None:
    codec = FileEntryCodec(files.metadata)
    tasks = EncryptedFileScanTask(files.data(ROWS), data_sequence_number=5).split(1)

    back = codec.decode_tasks(codec.encode_tasks([*tasks, EncryptedFileScanTask(files.data(ROWS))]))

    assert [task.part for task in back] == [*(task.part for task in tasks), None]
    assert content(files, back[:-1]) == content(files, tasks)


def test_a_part_of_an_avro_file_is_refused(files: TableFiles) -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "id", "type": ["null", "long"], "field-id": 1}]}
    data = files.avro_data(record, [{"id": 1}])

    with pytest.raises(FormatError, match="only Parquet files are read in parts"):
        content(files, [EncryptedFileScanTask(data, part=FilePart(0, 10))])
