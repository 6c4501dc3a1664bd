"""Rows that delete files delete are not read, and a delete file that cannot be trusted fails the scan."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import BooleanExpression, GreaterThan
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, UUIDType

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import AuthenticationError, FormatError, PlaintextRefusedError, TamperedFileError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests import EncryptedDataFile
from tablecrypt.table.deletes import MAGIC, DeletedPositions, DeletionVectorReader, parse_deletion_vector
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.reader import TaskReader
from tests.support.mutations import arbitrary
from tests.support.noting_io import NotingFileIO, opened_files
from tests.support.parsers import seeds_of
from tests.support.plaintext import CANARY
from tests.support.table_files import TableFiles, deletion_vector_blob
from tests.support.tables import flip

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "text": pa.array([f"{CANARY} {each}" for each in range(100)], pa.string())})


@pytest.fixture
def files(tmp_path: Path) -> TableFiles:
    return TableFiles(tmp_path, SCHEMA, properties={"write.parquet.row-group-limit": "30"})


def ids(
    files: TableFiles, data: DataFile, *deletes: DataFile, row_filter: BooleanExpression = ALWAYS_TRUE, projected: Schema = SCHEMA
) -> list[int]:
    reader = TaskReader(files.metadata, files.io, projected, row_filter)
    return [each for batch in reader.batches(EncryptedFileScanTask(data, set(deletes))) for each in batch.column("id").to_pylist()]


@pytest.mark.parametrize("deleted", [[0], [99], [29, 30, 31], list(range(0, 100, 2)), list(range(100))])
def test_rows_of_a_deletion_vector_are_gone(files: TableFiles, deleted: list[int]) -> None:
    data = files.data(ROWS)
    vector = files.deletion_vector(data.file_path, deleted, before=b"another blob")
    assert ids(files, data, vector) == [each for each in range(100) if each not in deleted]


def test_positions_are_those_in_the_file_when_a_filter_leaves_out_row_groups(files: TableFiles) -> None:
    data = files.data(ROWS)
    vector = files.deletion_vector(data.file_path, [0, 65, 70, 99])
    assert ids(files, data, vector, row_filter=GreaterThan(term="id", value=60)) == [each for each in range(61, 99) if each not in (65, 70)]


def test_rows_of_position_delete_files_are_gone_from_their_file_alone(files: TableFiles) -> None:
    data, other = files.data(ROWS), files.data(ROWS)
    one = files.position_deletes([(data.file_path, 3), (other.file_path, 5), (data.file_path, 50)])
    two = files.position_deletes([(data.file_path, 50), (data.file_path, 4)])
    assert ids(files, data, one, two) == [each for each in range(100) if each not in (3, 4, 50)]
    assert ids(files, other, one, two) == [each for each in range(100) if each != 5]


def test_a_position_delete_without_a_position_is_refused(files: TableFiles) -> None:
    data = files.data(ROWS)
    delete = files.position_deletes([(data.file_path, 3), (data.file_path, None)])  # type: ignore[list-item]  # not as specified
    with pytest.raises(FormatError, match=f"{delete.file_path}: .* without a position"):
        list(TaskReader(files.metadata, files.io, SCHEMA, ALWAYS_TRUE).batches(EncryptedFileScanTask(data, {delete})))


def test_rows_that_an_equality_delete_names_are_gone(files: TableFiles) -> None:
    data = files.data(ROWS)
    delete = files.equality_deletes(pa.table({"id": pa.array([3, 7, 1000], pa.int64())}), [1])
    assert ids(files, data, delete) == [each for each in range(100) if each not in (3, 7)]


def test_columns_that_an_equality_delete_compares_need_not_be_selected(files: TableFiles) -> None:
    data = files.data(ROWS)
    delete = files.equality_deletes(pa.table({"text": pa.array([f"{CANARY} 3"], pa.string())}), [2])
    reader = TaskReader(files.metadata, files.io, SCHEMA.select("id"), ALWAYS_TRUE)
    batches = list(reader.batches(EncryptedFileScanTask(data, {delete})))
    assert [batch.schema.names for batch in batches] == [["id"]] * len(batches)
    assert sum(len(batch) for batch in batches) == 99


def test_equality_deletes_and_a_deletion_vector_apply_together(files: TableFiles) -> None:
    data = files.data(ROWS)
    delete = files.equality_deletes(pa.table({"id": pa.array([3], pa.int64())}), [1])
    assert ids(files, data, delete, files.deletion_vector(data.file_path, [4])) == [each for each in range(100) if each not in (3, 4)]


values = st.tuples(
    st.one_of(st.none(), st.integers(-2, 2)),
    st.one_of(st.none(), st.sampled_from(["", "a", CANARY])),
    st.one_of(st.none(), st.sampled_from([0.5, 1.5, float("inf")])),
    st.one_of(st.none(), st.sampled_from([UUID(int=1), UUID(int=2)])),
)
WIDE = Schema(
    NestedField(1, "number", LongType()),
    NestedField(2, "text", StringType()),
    NestedField(3, "ratio", DoubleType()),
    NestedField(4, "key", UUIDType()),
)


def wide_rows(tuples: list[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*tuples, strict=True)) or [(), (), (), ()]
    keys = [None if each is None else each.bytes for each in columns[3]]
    types = {"number": pa.int64(), "text": pa.string(), "ratio": pa.float64(), "key": pa.uuid()}
    arrays = [pa.array(list(column), data_type) for column, data_type in zip(columns[:3], list(types.values())[:3], strict=True)]
    return pa.table([*arrays, pa.array(keys, pa.uuid())], names=list(types))


@settings(max_examples=40, deadline=None)
@given(st.lists(values, min_size=1, max_size=12), st.lists(values, min_size=1, max_size=6), st.sets(st.integers(1, 4), min_size=1))
def test_a_row_is_deleted_when_all_compared_columns_are_equal_null_included(
    tmp_path_factory: pytest.TempPathFactory, data: list[tuple[object, ...]], deletes: list[tuple[object, ...]], compared: set[int]
) -> None:
    files = TableFiles(tmp_path_factory.mktemp("equality"), WIDE)
    delete = files.equality_deletes(wide_rows(deletes), sorted(compared))
    reader = TaskReader(files.metadata, files.io, WIDE, ALWAYS_TRUE)
    batches = list(reader.batches(EncryptedFileScanTask(files.data(wide_rows(data)), {delete})))

    def key(row: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(row[field_id - 1] for field_id in sorted(compared))

    gone = {key(row) for row in deletes}
    live = [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
    assert live == [row for row in data if key(row) not in gone]


def test_an_equality_delete_on_a_renamed_column_finds_it_by_field_id(files: TableFiles) -> None:
    data = files.data(ROWS)
    delete = files.equality_deletes(pa.table({"id": pa.array([3], pa.int64())}), [1])
    renamed = Schema(NestedField(1, "number", LongType()), NestedField(2, "text", StringType()))
    files.metadata = files.metadata.model_copy(update={"schemas": [renamed], "current_schema_id": renamed.schema_id})
    reader = TaskReader(files.metadata, files.io, renamed, ALWAYS_TRUE)
    assert sum(len(batch) for batch in reader.batches(EncryptedFileScanTask(data, {delete}))) == 99


@pytest.mark.parametrize("required", [False, True])
def test_an_equality_delete_that_lacks_a_column_that_it_compares_is_refused(tmp_path: Path, required: bool) -> None:
    files = TableFiles(tmp_path, Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType(), required=required)))
    data = files.data(ROWS)
    # Without its second column, it would delete every row with one of these ids.
    delete = files.equality_deletes(pa.table({"id": pa.array([3], pa.int64())}), [1, 2])
    with pytest.raises(FormatError, match=f"{delete.file_path}: this equality delete file lacks the columns with field ids \\[2\\]"):
        ids(files, data, delete)


@pytest.mark.parametrize("equality_ids", [None, [], [77]])
def test_an_equality_delete_on_unknown_columns_is_refused(files: TableFiles, equality_ids: list[int] | None) -> None:
    delete = files.equality_deletes(pa.table({"id": pa.array([3], pa.int64())}), [1])
    delete[14] = equality_ids
    with pytest.raises(FormatError, match="equality delete"):
        ids(files, files.data(ROWS), delete)


def test_a_delete_file_in_orc_is_refused_and_named(files: TableFiles) -> None:
    data = files.data(ROWS)
    delete = files.position_deletes([(data.file_path, 3)])
    delete[2] = FileFormat.ORC
    with pytest.raises(FormatError, match=f"{delete.file_path}: ORC"):
        ids(files, data, delete)


@pytest.mark.parametrize("kind", ["vector", "positions", "equality"])
def test_a_delete_file_that_was_changed_fails_the_scan(files: TableFiles, kind: str) -> None:
    data = files.data(ROWS)
    delete = {
        "vector": lambda: files.deletion_vector(data.file_path, [3]),
        "positions": lambda: files.position_deletes([(data.file_path, 3)]),
        "equality": lambda: files.equality_deletes(pa.table({"id": pa.array([3], pa.int64())}), [1]),
    }[kind]()
    flip(Path(delete.file_path), 45)
    with pytest.raises(TamperedFileError) as refused:
        ids(files, data, delete)
    assert refused.value.location == delete.file_path


def test_a_delete_file_without_key_metadata_fails_the_scan(files: TableFiles) -> None:
    data = files.data(ROWS)
    vector = files.deletion_vector(data.file_path, [3])
    vector[12] = None
    with pytest.raises(PlaintextRefusedError):
        ids(files, data, vector)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"content_offset": None}, "content_offset"),
        ({"content_size_in_bytes": None}, "content_offset"),
        ({"content_offset": -1}, "content_offset"),
        ({"content_size_in_bytes": 11}, "content_offset"),
        ({"content_size_in_bytes": 100000}, "ends inside"),
        ({"content_offset": 5}, "says that it is"),
        ({"record_count": 2}, "its manifest says 2"),
    ],
)
def test_a_deletion_vector_whose_entry_does_not_fit_is_refused(files: TableFiles, change: dict[str, int], message: str) -> None:
    data = files.data(ROWS)
    with pytest.raises(FormatError, match=message):
        ids(files, data, changed(files.deletion_vector(data.file_path, [3]), change))


def changed(file: EncryptedDataFile, change: dict[str, int]) -> EncryptedDataFile:
    positions = {"record_count": 4, "content_offset": 18, "content_size_in_bytes": 19}
    for name, value in change.items():
        file[positions[name]] = value
    return file


def test_deletes_beyond_the_end_of_their_file_are_refused(files: TableFiles) -> None:
    data = files.data(ROWS)
    with pytest.raises(FormatError, match="position 100"):
        ids(files, data, files.deletion_vector(data.file_path, [100]))


BITMAP = struct.pack("<Q", 0)


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        bytes(12),
        deletion_vector_blob(BITMAP)[:-1],
        deletion_vector_blob(BITMAP) + b"\0",
        deletion_vector_blob(BITMAP)[:-1] + b"\xff",
        deletion_vector_blob(b""),
        deletion_vector_blob(BITMAP[:-1]),
        deletion_vector_blob(struct.pack("<Q", 3)),
        deletion_vector_blob(b"\xff" * 64),
        deletion_vector_blob(BITMAP).replace(MAGIC, b"\0\0\0\0"),
        deletion_vector_blob(BITMAP, b"XXXX"),
    ],
)
def test_a_malformed_deletion_vector_is_refused(blob: bytes) -> None:
    with pytest.raises(FormatError, match="loc"):
        parse_deletion_vector(blob, "loc")


@given(arbitrary(seeds_of("deletion vector")), st.booleans())
def test_no_bytes_make_the_parser_fail_in_another_way(data: bytes, framed: bool) -> None:
    with contextlib.suppress(FormatError):
        parse_deletion_vector(deletion_vector_blob(data) if framed else data, "loc")


@given(st.sets(st.integers(0, 50)), st.lists(st.integers(0, 50), unique=True).map(sorted))
def test_live_rows_are_those_whose_position_is_not_deleted(deleted: set[int], bounds: list[int]) -> None:
    parts = [range(start, end) for start, end in zip(bounds[::2], bounds[1::2], strict=False)]
    mask = DeletedPositions(np.array(sorted(deleted), np.int64)).live(parts)
    expected = [position not in deleted for part in parts for position in part]
    assert expected == ([True] * len(expected) if mask is None else mask.to_pylist())
    # Without a mask the rows are not copied, so there is one only where a row is deleted.
    assert (mask is None) == all(expected)


def test_positions_over_32_bits_are_kept() -> None:
    from pyroaring import BitMap64

    assert parse_deletion_vector(deletion_vector_blob(BitMap64([1, 2**33]).serialize()), "loc").max() == 2**33


def test_a_bitmap_is_checked_before_it_is_used() -> None:
    """Where a library believes how many parts there are, the process ends: whoever may commit writes deletion vectors."""
    from pyroaring import BitMap64

    content = bytearray(BitMap64(range(0, 3000, 150)).serialize())
    content[19] = 0x80  # the highest byte of the number of containers

    with pytest.raises(FormatError, match="is not a 64-bit Roaring bitmap"):
        parse_deletion_vector(deletion_vector_blob(bytes(content)), "loc", rows=10_000)


def test_a_shared_delete_file_is_read_once(files: TableFiles) -> None:
    data = [files.data(ROWS) for _ in range(3)]
    delete = files.position_deletes([(each.file_path, 3) for each in data])
    reader = TaskReader(files.metadata, EncryptingFileIO(NotingFileIO()), SCHEMA, ALWAYS_TRUE)
    read: Callable[[DataFile], int] = lambda each: sum(len(b) for b in reader.batches(EncryptedFileScanTask(each, {delete})))  # noqa: E731
    with opened_files() as opened:
        assert [read(each) for each in data] == [99, 99, 99]
    assert opened.count(delete.file_path) == 1


def test_vectors_that_lie_in_one_block_are_decrypted_together(files: TableFiles) -> None:
    vectors = files.deletion_vectors([("data", [3, each]) for each in range(4, 9)])
    reader = DeletionVectorReader(EncryptingFileIO(NotingFileIO()))
    with opened_files() as opened:
        assert [list(reader.positions(vector, 100)) for vector in vectors] == [[3, each] for each in range(4, 9)]
    assert opened == [vectors[0].file_path]


def test_a_vector_that_lies_in_another_block_or_in_two_is_read_all_the_same(files: TableFiles) -> None:
    """A bitmap of random positions takes two bytes for each, so that these take 1.6 MB."""
    positions = random.Random(0).sample(range(1 << 26), 800_000)
    vectors = files.deletion_vectors([("first", [1, 2]), ("second", positions), ("third", [3, 4])])
    reader = DeletionVectorReader(files.io)
    for index, expected in [(0, [1, 2]), (2, [3, 4]), (1, sorted(positions)), (2, [3, 4]), (0, [1, 2])]:
        assert list(reader.positions(vectors[index], 1 << 26)) == expected


def test_what_one_key_decrypted_is_not_given_to_an_entry_with_another_key(files: TableFiles) -> None:
    vector, other = files.deletion_vectors([("first", [3]), ("second", [4])])
    reader = DeletionVectorReader(files.io)
    assert list(reader.positions(vector, 100)) == [3]
    length = vector.file_size_in_bytes
    other[12] = StandardKeyMetadata.generate(16, random.Random(0).randbytes).with_file_length(length).encode()
    with pytest.raises(AuthenticationError):
        reader.positions(other, 100)


def test_a_deletion_vector_is_not_expanded_before_its_size_is_known() -> None:
    """Some kilobytes of runs stand for 16 million positions, of 8 bytes each."""
    import tracemalloc

    from pyroaring import BitMap64

    runs = BitMap64(range(1 << 24))
    runs.run_optimize()
    blob = deletion_vector_blob(runs.serialize())
    assert len(blob) < 10_000
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="16777216 positions; its manifest says 10"):
            parse_deletion_vector(blob, "loc", cardinality=10, rows=1 << 25)
        with pytest.raises(FormatError, match="names position 16777215 of a data file of 100 rows"):
            parse_deletion_vector(blob, "loc", cardinality=1 << 24, rows=100)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
