"""Streams become files of the right length with bounded memory, whatever their partitions are."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile
from tablecrypt.table.write import ROW_GROUP_BYTES, DataFileWriter, UnfinishedDataFile, write_data_files, write_stream
from tests.support.plaintext import CANARY
from tests.support.table_files import Keys, TableFiles

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", LongType()), NestedField(3, "note", StringType()))
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))


def batch(ids: list[int], parts: list[int]) -> pa.RecordBatch:
    notes = [f"{CANARY} {each * 2654435761 % 2**32}" for each in ids]
    return pa.record_batch({"id": ids, "part": parts, "note": notes}, schema=SCHEMA.as_arrow())


def stream(batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA.as_arrow(), batches)


TARGET: Final = 512 * 1024 * 1024


@dataclass
class WatchedWriter(DataFileWriter):
    """Knows how many files are open, and how many rows it has been given to encode."""

    open: int = 0
    encoded: int = 0
    open_at_once: list[int] = field(default_factory=list)

    def begin(self, *arguments: Any) -> UnfinishedDataFile:
        self.open += 1
        self.open_at_once.append(self.open)
        return super().begin(*arguments)

    def data_file(self, *arguments: Any) -> DataFile:
        self.open -= 1
        return super().data_file(*arguments)

    def as_stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.encoded += len(batch)
        return super().as_stored(batch)


def watched_writer(files: TableFiles, row_group_bytes: int = ROW_GROUP_BYTES) -> WatchedWriter:
    writer = WatchedWriter.of(files.metadata, SCHEMA.as_arrow(), files.io, Keys(), uuid.uuid4(), itertools.count())
    assert isinstance(writer, WatchedWriter)
    return replace(writer, row_group_bytes=row_group_bytes)


def footer(files: TableFiles, file: DataFile) -> pq.FileMetaData:
    with files.io.raw_input(file.file_path).open() as source:
        return UniformParquetFile(source, key_metadata_of(file), file.file_path).footer()


def group_sizes(files: TableFiles, file: DataFile) -> list[int]:
    return [footer(files, file).row_group(number).num_rows for number in range(footer(files, file).num_row_groups)]


def ids_of(files: TableFiles, written: list[DataFile]) -> list[int]:
    found: list[int] = []
    for file in written:
        with files.io.raw_input(file.file_path).open() as source:
            for rows in UniformParquetFile(source, key_metadata_of(file), file.file_path).batches(ReadRequest(["id"])):
                found += rows.column("id").to_pylist()
    return found


def test_a_file_ends_at_the_target_size_in_stored_bytes(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, SCHEMA, properties={"write.target-file-size-bytes": "40000"})
    batches = [batch(list(range(start, start + 100)), [0] * 100) for start in range(0, 20_000, 100)]

    written = write_data_files(files.metadata, stream(batches), files.io, Keys())

    assert ids_of(files, written) == list(range(20_000))
    assert len(written) > 2
    assert all(40_000 <= file.file_size_in_bytes < 80_000 for file in written[:-1])
    assert [file.file_size_in_bytes for file in written] == [Path(file.file_path).stat().st_size for file in written]


def test_row_groups_are_as_long_as_the_limits_let_them_be(tmp_path: Path) -> None:
    batches = [batch(list(range(start, start + 100)), [0] * 100) for start in range(0, 2000, 100)]
    by_rows = TableFiles(tmp_path / "rows", SCHEMA, properties={"write.parquet.row-group-limit": "500"})
    (one,) = write_data_files(by_rows.metadata, stream(batches), by_rows.io, Keys())
    by_size = TableFiles(tmp_path / "size", SCHEMA)

    (other,) = write_stream(watched_writer(by_size, 10 * batches[0].nbytes), stream(batches), TARGET)

    assert (group_sizes(by_rows, one), group_sizes(by_size, other)) == ([500] * 4, [1000, 1000])
    assert len(one.split_offsets or ()) == 4


@pytest.mark.parametrize(("limit", "sizes"), [(1_000_000, [2500] * 4), (1000, [1000] * 10)])
def test_row_groups_of_a_table_are_of_one_size_and_within_the_limit(tmp_path: Path, limit: int, sizes: list[int]) -> None:
    files = TableFiles(tmp_path, SCHEMA, properties={"write.parquet.row-group-limit": str(limit)})
    rows = batch(list(range(10_000)), [0] * 10_000)

    written = watched_writer(files, rows.nbytes // 4).write(0, None, [rows])

    assert group_sizes(files, written) == sizes


def test_mixed_partitions_fill_one_file_each(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, SCHEMA, BY_PART, {"write.parquet.row-group-limit": "100"})
    batches = [batch(list(range(start, start + 100)), [each % 4 for each in range(100)]) for start in range(0, 1000, 100)]

    written = write_data_files(files.metadata, stream(batches), files.io, Keys())

    assert sorted(ids_of(files, written)) == list(range(1000))
    assert sorted(file.partition[0] for file in written) == [0, 1, 2, 3]
    assert [footer(files, file).num_row_groups for file in written] == [3] * 4


def test_files_of_many_partitions_are_not_all_open_at_once(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, SCHEMA, BY_PART, {"write.parquet.row-group-limit": "10"})
    mixed = [batch(list(range(start, start + 50)), [each % 5 for each in range(50)]) for start in range(0, 500, 50)]
    ordered = [batch([500 + part], [10 + part]) for part in range(5)]

    writer = watched_writer(files)

    written = write_stream(writer, stream([*mixed, *ordered]), TARGET, open_files=2)

    assert sorted(ids_of(files, written)) == list(range(505))
    assert max(writer.open_at_once) == 2
    assert sum(file.partition[0] >= 10 for file in written) == 5


def test_rows_that_wait_for_their_partitions_are_bounded(tmp_path: Path) -> None:
    one = batch(list(range(50)), [each % 50 for each in range(50)])
    files = TableFiles(tmp_path, SCHEMA, BY_PART)
    writer = watched_writer(files, 4 * one.nbytes)
    held: list[int] = []

    def drawn() -> Iterator[pa.RecordBatch]:
        for number in range(40):
            held.append(50 * number - writer.encoded)
            yield one

    written = write_stream(writer, stream(drawn()), TARGET)

    assert sorted(ids_of(files, written)) == sorted(list(range(50)) * 40)
    # Four batches are being cut by partition, as many wait, and one row group is being encoded.
    assert max(held) <= 50 * (4 + 4 + 4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 30), max_size=12),
    parts=st.integers(1, 6),
    row_limit=st.integers(1, 40),
    target=st.sampled_from([1, 3000, 10**9]),
    partitioned=st.booleans(),
)
def test_every_row_is_written_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], parts: int, row_limit: int, target: int, partitioned: bool
) -> None:
    spec = BY_PART if partitioned else UNPARTITIONED_PARTITION_SPEC
    properties = {"write.parquet.row-group-limit": str(row_limit), "write.target-file-size-bytes": str(target)}
    files = TableFiles(tmp_path_factory.mktemp("stream"), SCHEMA, spec, properties)
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    batches = [
        batch(list(range(start, start + size)), [each * 7 % parts for each in range(size)])
        for start, size in zip(starts, sizes, strict=True)
    ]

    written = write_data_files(files.metadata, stream(batches), files.io, Keys())

    assert sorted(ids_of(files, written)) == list(range(sum(sizes)))
    assert sum(file.record_count for file in written) == sum(sizes)
    assert all(file.record_count for file in written)


@pytest.mark.parametrize("properties", [{"write.parquet.row-group-limit": "10"}, {"write.target-file-size-bytes": "1"}], ids=str)
def test_a_row_that_cannot_be_written_leaves_no_file(tmp_path: Path, properties: dict[str, str]) -> None:
    """Neither of those that are open when the source breaks nor of those that are complete."""
    files = TableFiles(tmp_path, SCHEMA, BY_PART, properties)
    sound = [batch(list(range(start, start + 20)), [each % 2 for each in range(20)]) for start in range(0, 100, 20)]

    def broken() -> Iterator[pa.RecordBatch]:
        yield from sound
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_data_files(files.metadata, stream(broken()), files.io, Keys())

    assert not list(tmp_path.rglob("*.parquet"))
