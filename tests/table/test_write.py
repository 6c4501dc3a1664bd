"""Data files: what is written, where, under which key, and what is left when writing fails."""

from __future__ import annotations

import datetime as dt
import itertools
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, OutputFile, OutputStream
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.config import Config

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.engines.arrow_rows import check_nulls
from tablecrypt.errors import ConfigurationError
from tablecrypt.parquet.uniform import UniformParquetFile
from tablecrypt.table.lineage import with_lineage
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.reader import TaskReader
from tablecrypt.table.write import write_data_files
from tests.support.compare import assert_same_rows
from tests.support.observed_calls import observed
from tests.support.plaintext import CANARY
from tests.support.sample_rows import many_rows
from tests.support.table_files import Keys, TableFiles
from tests.support.tables import ENCRYPTED, new_table

SCHEMA = Schema(NestedField(1, "id", "long", required=True), NestedField(2, "text", "string"), NestedField(3, "day", "date"))
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string()), ("day", pa.date32())])


def rows(ids: range) -> pa.Table:
    days = [dt.date(2024, 1, 1) + dt.timedelta(days=each % 3) for each in ids]
    return pa.table([list(ids), [f"{CANARY} {each}" for each in ids], days], schema=ARROW)


def written(files: TableFiles, arrow: pa.Table | pa.RecordBatchReader) -> list[DataFile]:
    return write_data_files(files.metadata, arrow, files.io, Keys())


def footer_of(files: TableFiles, file: DataFile) -> pq.FileMetaData:
    with files.io.raw_input(file.file_path).open() as source:
        return UniformParquetFile(source, key_of(file), file.file_path).footer()


def key_of(file: DataFile) -> StandardKeyMetadata:
    return StandardKeyMetadata.decode(file.key_metadata or b"")


def read(files: TableFiles, data_files: list[DataFile], schema: Schema | None = None) -> pa.Table:
    reader = TaskReader(files.metadata, files.io, schema or files.metadata.schema(), ALWAYS_TRUE)
    return pa.Table.from_batches([batch for file in data_files for batch in reader.batches(EncryptedFileScanTask(file))])


@pytest.fixture
def files(tmp_path: Path) -> TableFiles:
    return TableFiles(tmp_path, SCHEMA)


def test_a_file_is_ciphertext_at_a_fresh_location(files: TableFiles) -> None:
    (one,), (two,) = written(files, rows(range(50))), written(files, rows(range(50)))
    assert one.file_path != two.file_path
    for file in (one, two):
        content = Path(file.file_path).read_bytes()
        assert content[:4] == content[-4:] == b"PARE"
        assert file.file_size_in_bytes == len(content) == key_of(file).file_length


def test_every_file_has_its_own_key_and_prefix(files: TableFiles) -> None:
    files.metadata.properties["write.target-file-size-bytes"] = "500"
    keys = [key_of(file) for file in written(files, rows(range(200)))]
    assert len(keys) > 3
    assert len({key.encryption_key.reveal() for key in keys}) == len({key.aad_prefix for key in keys}) == len(keys)


def test_the_key_is_not_shown_by_the_entry(files: TableFiles) -> None:
    (file,) = written(files, rows(range(5)))
    assert repr(key_of(file).encryption_key.reveal())[2:-1] not in repr(file)


def test_the_entry_tells_what_the_file_holds(files: TableFiles) -> None:
    (file,) = written(files, rows(range(50)))
    assert (file.record_count, file.file_format, file.spec_id, file.sort_order_id) == (50, FileFormat.PARQUET, 0, None)
    assert file.value_counts == {1: 50, 2: 50, 3: 50}
    assert file.null_value_counts == {1: 0, 2: 0, 3: 0}
    assert file.lower_bounds[1] == (0).to_bytes(8, "little")
    assert file.upper_bounds[2] == (CANARY[:15] + chr(ord(CANARY[15]) + 1)).encode()


def test_metrics_modes_are_honoured(tmp_path: Path) -> None:
    properties = {"write.metadata.metrics.default": "counts", "write.metadata.metrics.column.text": "none"}
    (file,) = written(TableFiles(tmp_path, SCHEMA, properties=properties), rows(range(5)))
    assert file.lower_bounds == {}
    assert file.value_counts.keys() == {1, 3}


def test_field_ids_and_names_are_the_tables(files: TableFiles) -> None:
    (file,) = written(files, rows(range(5)).select(["day", "text", "id"]))
    with files.io.raw_input(file.file_path).open() as source:
        stored = UniformParquetFile(source, key_of(file), file.file_path).schema
    assert [(each.name, each.metadata[b"PARQUET:field_id"]) for each in stored] == [("id", b"1"), ("text", b"2"), ("day", b"3")]


def test_parquet_properties_are_honoured(tmp_path: Path) -> None:
    properties = {
        "write.parquet.row-group-limit": "20",
        "write.parquet.compression-codec": "gzip",
        "write.parquet.compression-level": "1",
        "write.parquet.page-size-bytes": "1000",
        "write.parquet.page-row-limit": "10",
        "write.parquet.dict-size-bytes": "100",
    }
    files = TableFiles(tmp_path, SCHEMA, properties=properties)
    (file,) = written(files, rows(range(50)))
    footer = footer_of(files, file)
    assert [footer.row_group(each).num_rows for each in range(footer.num_row_groups)] == [20, 20, 10]
    assert footer.row_group(0).column(0).compression == "GZIP"


def test_uncompressed_is_a_codec(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, SCHEMA, properties={"write.parquet.compression-codec": "uncompressed"})
    (file,) = written(files, rows(range(50)))
    assert footer_of(files, file).row_group(0).column(0).compression == "UNCOMPRESSED"
    assert CANARY.encode() not in Path(file.file_path).read_bytes()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("write.format.default", "avro", "parquet only"),
        ("write.format.default", "orc", "parquet only"),
        ("write.parquet.page-version", "v2", "parquet-java"),
        ("write.parquet.page-version", "2.0", "parquet-java"),
        ("write.parquet.bloom-filter-enabled.column.text", "true", "bloom"),
        ("write.target-file-size-bytes", "0", "whole number"),
        ("write.parquet.row-group-limit", "-1", "whole number"),
    ],
)
def test_a_property_that_cannot_be_honoured_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, value: str, reason: str
) -> None:
    files = TableFiles(tmp_path, SCHEMA, properties={name: value})
    with pytest.raises(ConfigurationError, match=f"{name}.*{reason}"):
        written(files, rows(range(5)))
    assert list(tmp_path.rglob("*.parquet")) == []


def test_properties_that_ask_for_nothing_else_are_taken(tmp_path: Path) -> None:
    properties = {"write.format.default": "PARQUET", "write.parquet.page-version": "v1"}
    assert len(written(TableFiles(tmp_path, SCHEMA, properties=properties), rows(range(5)))) == 1


def numbered(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})


@pytest.mark.parametrize(
    ("column", "value", "lost"),
    [
        (numbered("p.e", pa.string(), 3), "x", "p.e"),
        (numbered("l.element", pa.string(), 5), "x", "l.element"),
        (numbered("p", pa.struct([numbered("q", pa.string(), 6)]), 2), {"q": "x"}, "p.q"),
        (numbered("p", pa.struct([numbered("e", pa.string(), 3), numbered("f", pa.string(), 3)]), 2), {"e": "x", "f": "y"}, "p.e"),
        (numbered("unknown", pa.string(), 7), "x", "unknown"),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.Field) else "",
)
def test_rows_with_field_ids_lose_no_values(tmp_path: Path, column: pa.Field, value: Any, lost: str) -> None:
    """PyIceberg leaves out what it does not find by its id, and takes the last of two columns with one id."""
    nested = StructType(NestedField(3, "e", "string"))
    elements = ListType(5, StringType(), element_required=False)
    schema = Schema(NestedField(1, "id", "long"), NestedField(2, "p", nested), NestedField(4, "l", elements), NestedField(6, "n", "string"))
    files = TableFiles(tmp_path, schema)
    given = pa.table([[1], [value]], schema=pa.schema([numbered("id", pa.int64(), 1), column]))

    for each in (given, given.to_reader()):
        with pytest.raises(ConfigurationError, match=f"column {lost!r} of the rows has the field id .*values would be lost"):
            write_data_files(files.metadata, each, files.io, Keys())
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.filterwarnings("ignore:Parquet writer option")
def test_a_bloom_filter_that_is_switched_off_is_no_reason_to_refuse(tmp_path: Path) -> None:
    properties = {"write.parquet.bloom-filter-enabled.column.text": "false"}
    assert len(written(TableFiles(tmp_path, SCHEMA, properties=properties), rows(range(5)))) == 1


def test_files_are_packed_to_the_target_size(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, SCHEMA, properties={"write.target-file-size-bytes": "2000"})
    data_files = written(files, rows(range(200)))
    assert len(data_files) > 2
    assert_same_rows(read(files, data_files), rows(range(200)))


def test_partitions_are_files_of_their_own(tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(3, 1000, DayTransform(), "day_day"), PartitionField(1, 1001, BucketTransform(2), "id_bucket"))
    files = TableFiles(tmp_path, SCHEMA, spec)
    data_files = written(files, rows(range(60)))
    assert len({tuple(file.partition[at] for at in range(2)) for file in data_files}) == len(data_files) == 6
    # Names are plaintext.
    assert {file.file_path.rpartition("/")[0] for file in data_files} == {f"{tmp_path}/data"}
    assert_same_rows(read(files, data_files), rows(range(60)))


def test_object_storage_locations_are_honoured(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, SCHEMA, properties={"write.object-storage.enabled": "true", "write.data.path": f"{tmp_path}/elsewhere"})
    (file,) = written(files, rows(range(5)))
    assert len(Path(file.file_path).relative_to(tmp_path / "elsewhere").parts) == 5


def test_file_names_follow_uuid_and_counter(files: TableFiles) -> None:
    name, counter = uuid.uuid4(), itertools.count(7)
    (file,) = write_data_files(files.metadata, rows(range(5)), files.io, Keys(), name, counter)
    assert Path(file.file_path).name == f"00000-7-{name}.parquet"
    assert next(counter) == 8


def test_no_rows_make_no_file(files: TableFiles) -> None:
    assert written(files, rows(range(0))) == []
    assert written(files, pa.RecordBatchReader.from_batches(ARROW, [])) == []
    assert written(files, pa.RecordBatchReader.from_batches(ARROW, rows(range(0)).to_batches())) == []


def batches(count: int, drawn: list[int]) -> Iterator[pa.RecordBatch]:
    for each in range(count):
        drawn.append(each)
        yield rows(range(each * 100, each * 100 + 100)).to_batches()[0]


def test_files_of_a_stream_end_at_the_target_size_within_a_batch(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, SCHEMA, properties={"write.target-file-size-bytes": "20000"})
    whole = rows(range(20_000)).combine_chunks().to_batches()

    data_files = written(files, pa.RecordBatchReader.from_batches(ARROW, whole))

    assert len(whole) == 1
    assert len(data_files) > 2
    assert max(file.file_size_in_bytes for file in data_files) < 60_000
    assert_same_rows(read(files, data_files), rows(range(20_000)))


def test_a_stream_is_not_drawn_far_ahead_of_writing(tmp_path: Path) -> None:
    """With a writer that stands still, only the portions that may be in flight and the one being packed have been drawn."""
    drawn: list[int] = []
    at_first_write: list[int] = []

    class Observed(Keys):
        def new_key_metadata(self) -> StandardKeyMetadata:
            at_first_write.append(len(drawn))
            return super().new_key_metadata()

    files = TableFiles(tmp_path, SCHEMA, properties={"write.target-file-size-bytes": "1"})
    reader = pa.RecordBatchReader.from_batches(ARROW, batches(40, drawn))
    data_files = write_data_files(files.metadata, reader, files.io, Observed())
    assert len(data_files) == 40
    assert all(ahead <= begun + 3 for begun, ahead in enumerate(at_first_write))


class _FillingDisk(PyArrowFileIO):
    """Lets a number of files be written, then is full. Counts what is there."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.created: list[str] = []
        self.deleted: list[str] = []

    def new_output(self, location: str) -> Any:
        self.created.append(location)
        return super().new_output(location) if len(self.created) <= self.room else _Full(location)

    def delete(self, location: Any) -> None:
        self.deleted.append(location)
        super().delete(location)


class _Full(OutputFile):
    def __len__(self) -> int:
        return 0

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> Any:
        raise NotImplementedError

    def create(self, overwrite: bool = False) -> OutputStream:
        raise OSError(28, "No space left on device")


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    disk = _FillingDisk(room=3)
    files = TableFiles(tmp_path, SCHEMA, properties={"write.target-file-size-bytes": "500"}, inner=disk)
    with pytest.raises(OSError, match="No space left"):
        written(files, rows(range(500)))
    assert len(disk.created) > 3
    assert list(tmp_path.rglob("*.parquet")) == []


def test_files_that_cannot_be_deleted_do_not_hide_why_the_write_failed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(_FillingDisk):
        def delete(self, location: Any) -> None:
            raise PermissionError("no delete here")

    files = TableFiles(tmp_path, SCHEMA, properties={"write.target-file-size-bytes": "500"}, inner=Stuck(room=1))
    with pytest.raises(OSError, match="No space left"):
        written(files, rows(range(100)))
    assert "could not delete" in caplog.text


LINEAGE = {"_row_id": pa.array([7, None, 9], pa.int64()), "_last_updated_sequence_number": pa.array([1, 2, None], pa.int64())}


def test_row_lineage_is_stored_under_the_reserved_ids(files: TableFiles) -> None:
    table = rows(range(3))
    for name, column in LINEAGE.items():
        table = table.append_column(name, column)
    (file,) = written(files, table)
    with files.io.raw_input(file.file_path).open() as source:
        stored = UniformParquetFile(source, key_of(file), file.file_path).schema
    ids = {each.name: each.metadata[b"PARQUET:field_id"] for each in stored}
    assert (ids["_row_id"], ids["_last_updated_sequence_number"]) == (b"2147483540", b"2147483539")
    assert stored.field("_row_id").nullable
    assert file.value_counts.keys() == file.column_sizes.keys() == {1, 2, 3}
    assert file.lower_bounds.keys() == {1, 2, 3}


def test_stored_lineage_is_read_and_its_gaps_are_inherited(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, SCHEMA, PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "text")))
    table = pa.table([[1, 2, 3], [CANARY] * 3, [None] * 3], schema=ARROW)
    for name, column in LINEAGE.items():
        table = table.append_column(name, column)
    (file,) = written(files, table)
    task = EncryptedFileScanTask(files.committed(file, first_row_id=100), data_sequence_number=5)
    reader = TaskReader(files.metadata, files.io, with_lineage(SCHEMA), ALWAYS_TRUE)
    (batch,) = reader.batches(task)
    assert batch.column("_row_id").to_pylist() == [7, 101, 9]
    assert batch.column("_last_updated_sequence_number").to_pylist() == [1, 2, 5]


def test_a_tables_own_column_may_be_named_like_lineage(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, Schema(NestedField(1, "_row_id", "string")))
    table = pa.table({"_row_id": [CANARY]})
    assert read(files, written(files, table)).to_pylist() == table.to_pylist()


def test_names_that_avro_does_not_allow_are_written_as_pyiceberg_does(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, Schema(NestedField(1, "a b/c.d", "string"), NestedField(2, "9 ü", "long")))
    table = pa.table({"a b/c.d": [CANARY], "9 ü": pa.array([1], pa.int64())})
    assert read(files, written(files, table)).to_pylist() == table.to_pylist()


def test_many_types_are_read_as_they_were_written(tmp_path: Path) -> None:
    table = many_rows(range(25))
    schema = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(table.schema, format_version=3))
    files = TableFiles(tmp_path, schema)
    (file,) = write_data_files(files.metadata, table, files.io, Keys())
    assert_same_rows(read(files, [file]), table)


@pytest.mark.parametrize("spec", [PartitionSpec(), PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "name"))])
def test_views_are_written_as_plain_types(tmp_path: Path, spec: PartitionSpec) -> None:
    """DuckDB and Polars give views, and a file of them could not be filtered."""
    files = TableFiles(tmp_path, Schema(NestedField(1, "name", "string"), NestedField(2, "code", "binary")), spec)
    names, codes = pa.array(["a", "b" * 20, None], pa.string_view()), pa.array([b"a", None, b"c"], pa.binary_view())
    table = pa.table({"name": names, "code": codes})
    for given in (table, table.to_reader()):
        data_files = written(files, given)
        assert_same_rows(read(files, data_files), table)
        for file in data_files:
            assert footer_of(files, file).schema.to_arrow_schema().types == [pa.large_string(), pa.large_binary()]


SPECIAL = Schema(
    NestedField(1, "key", "uuid"),
    NestedField(2, "fixed", "fixed[3]"),
    NestedField(3, "time", "time"),
    NestedField(4, "nanos", "timestamp_ns"),
    NestedField(5, "instant", "timestamptz_ns"),
    NestedField(6, "micros", "timestamp"),
    NestedField(7, "nothing", "unknown"),
    NestedField(8, "large", "decimal(38, 10)"),
    NestedField(9, "small", "decimal(5, 2)"),
    NestedField(10, "binary", "binary"),
)


def test_the_rarer_types_are_read_as_they_were_written(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, SPECIAL)
    stored = {
        "key": [uuid.UUID(int=5).bytes, None],
        "fixed": [b"abc", None],
        "time": [86_399_999_999, None],
        "nanos": [2**62 + 1, None],
        "instant": [-1, None],
        "micros": [-(2**60), None],
        "nothing": [None, None],
        "large": ["1234567890123456789012345678.0123456789", None],
        "small": ["-999.99", None],
        "binary": [CANARY.encode(), None],
    }
    arrow_schema = schema_to_pyarrow(SPECIAL, include_field_ids=False)
    arrays = [
        pa.array(stored[each.name], pa.string()).cast(each.type)
        if pa.types.is_decimal(each.type)
        else pa.array(stored[each.name], each.type)
        for each in arrow_schema
    ]
    table = pa.table(arrays, schema=arrow_schema)
    assert read(files, written(files, table)).equals(table)


@pytest.mark.parametrize(
    ("iceberg", "values", "layout"),
    [
        (TimestampNanoType(), [1, 2**62 + 1, None], "<q"),
        (TimestamptzNanoType(), [-1, 999, None], "<q"),
        (TimestampType(), [-(2**60), 2**60, None], "<q"),
        (TimeType(), [0, 86_399_999_999, None], "<q"),
        (DateType(), [-(2**30), 2**30, None], "<i"),
    ],
)
def test_bounds_of_times_are_exact(tmp_path: Path, iceberg: Any, values: list[int | None], layout: str) -> None:
    schema = Schema(NestedField(1, "at", iceberg))
    files = TableFiles(tmp_path, schema, properties={"write.parquet.row-group-limit": "1"})
    (file,) = written(files, pa.table([values], schema=schema_to_pyarrow(schema, include_field_ids=False)))
    assert struct.unpack(layout, file.lower_bounds[1])[0] == values[0]
    assert struct.unpack(layout, file.upper_bounds[1])[0] == values[1]
    assert file.null_value_counts == {1: 1}


def test_a_column_of_nulls_has_no_bounds(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, SCHEMA)
    (file,) = written(files, pa.table([[1], [CANARY], [None]], schema=ARROW))
    assert file.lower_bounds.keys() == file.upper_bounds.keys() == {1, 2}


def test_records_are_partitions_of_the_spec(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, SCHEMA, PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "text")))
    (file,) = written(files, pa.table([[1], [None], [None]], schema=ARROW))
    assert file.partition == Record(None)


@pytest.mark.parametrize("inner", [PyArrowFileIO(), FsspecFileIO({})], ids=["pyarrow", "fsspec"])
def test_any_file_io_stores_the_ciphertext(tmp_path: Path, inner: FileIO) -> None:
    files = TableFiles(tmp_path, SCHEMA, inner=inner)
    (file,) = written(files, rows(range(5)))
    content = Path(file.file_path).read_bytes()
    assert (content[:4], len(content)) == (b"PARE", file.file_size_in_bytes)
    assert_same_rows(read(files, [file]), rows(range(5)))


NANOSECONDS = {
    "a column": (pa.timestamp("us"), pa.array([1001], pa.timestamp("ns"))),
    "in a list": (pa.list_(pa.timestamp("us")), pa.array([[1001]], pa.list_(pa.timestamp("ns")))),
}


@pytest.mark.parametrize("name", NANOSECONDS)
def test_nanoseconds_are_cut_where_the_configuration_says_so_and_refused_elsewhere(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind, values = NANOSECONDS[name]
    table = new_table(catalog, schema=pa.schema([("at", kind)]))
    with pytest.raises(ValueError, match="Mismatch in fields"):
        table.append(pa.table({"at": values}))
    monkeypatch.setenv("PYICEBERG_DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE", "true")
    table.append(pa.table({"at": values}))
    assert table.scan().to_arrow()["at"].combine_chunks().cast(kind) == pa.array([1] if name == "a column" else [[1]], kind)


def test_appends_and_scans_without_nanoseconds_read_no_configuration(catalog: Catalog) -> None:
    """PyIceberg would parse its file each time, which may take longer than the append."""
    rows = pa.table({"id": [1], "at": pa.array([1], pa.timestamp("us"))})
    table = new_table(catalog, appends=[rows])
    assert table.scan().to_arrow().num_rows == 1
    looks: list[object] = []
    with observed(Config.__init__, looks.append):
        table.append(rows)
        assert catalog.load_table("db.t").scan().to_arrow().num_rows == 2
    assert not looks


def test_a_null_in_a_required_field_is_written_only_where_its_struct_is_null(catalog: Catalog) -> None:
    pair = StructType(NestedField(10, "number", LongType(), required=True), NestedField(11, "ref", UUIDType(), required=True))
    deep = StructType(NestedField(12, "pair", pair, required=True), NestedField(13, "note", StringType()))
    listed = ListType(14, deep, element_required=False)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "deep", deep), NestedField(3, "all", listed))
    table = catalog.create_table("db.t", assign_fresh_schema_ids(schema), properties=ENCRYPTED)
    arrow = table.schema().as_arrow()
    pair_type = arrow.field("deep").type.field("pair").type

    def rows(numbers: list[int | None], missing: list[bool]) -> pa.Table:
        refs = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([CANARY.encode()[:16]] * len(numbers), pa.binary(16)))
        pairs = pa.StructArray.from_arrays([pa.array(numbers, pa.int64()), refs], fields=list(pair_type))
        parts = [pairs, pa.array([CANARY] * len(numbers), pa.large_string())]
        structs = pa.StructArray.from_arrays(parts, fields=list(arrow.field("deep").type), mask=pa.array(missing))
        lists = pa.LargeListArray.from_arrays(list(range(len(numbers) + 1)), structs, type=arrow.field("all").type)
        return pa.table([pa.array(range(len(numbers)), pa.int64()), structs, lists], schema=arrow)

    table.append(rows([7, None], [False, True]).slice(1).combine_chunks())
    table.append(rows([None, 7, None], [True, False, True]))

    read = table.scan().to_arrow().to_pylist()
    assert [row["deep"] and row["deep"]["pair"]["number"] for row in read] == [None, 7, None, None]
    assert [row["all"][0] for row in read] == [row["deep"] for row in read]
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        table.append(rows([None], [False]))


def test_lists_without_offsets_as_java_sends_none_are_written(catalog: Catalog) -> None:
    inner = MapType(11, LongType(), 12, StringType(), value_required=False)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "all", ListType(10, inner, element_required=False)))
    table = catalog.create_table("db.t", assign_fresh_schema_ids(schema), properties=ENCRYPTED)
    arrow = table.schema().as_arrow()
    kind = arrow.field("all").type
    entries = pa.array([], pa.struct([kind.value_type.key_field, kind.value_type.item_field]))
    # What lies behind the empty buffer would be the offsets of maps that are not there.
    behind = pa.py_buffer(struct.pack("<i", -1))
    maps = pa.Array.from_buffers(kind.value_type, 0, [None, behind.slice(0, 0)], children=[entries])
    nothing = pa.Array.from_buffers(kind, 1, [pa.py_buffer(b"\0"), pa.py_buffer(bytes(16))], children=[maps])
    rows = pa.table([pa.array([1], pa.int64()), nothing], schema=arrow)

    check_nulls(nothing, table.schema().find_field("all"), "all")
    table.append(rows)
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "all": None}]
