"""Avro data files are read as their rows, column for column by field id, whatever type a column has."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.types import DecimalType, IntegerType, ListType, LongType, MapType, NestedField, StringType, StructType, TimestampType

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.parquet.uniform import ReadRequest
from tablecrypt.table.data_file_reader import AvroDataFile
from tablecrypt.table.lineage import with_lineage
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.reader import TaskReader
from tests.security.test_bombs import CODECS, SYNC, sized, varint
from tests.support.mutations import arbitrary
from tests.support.parsers import seeds_of
from tests.support.plaintext import CANARY
from tests.support.table_files import TableFiles
from tests.support.tables import flip

MIB = 1024 * 1024
DAY_MICROS = 86_400_000_000


def optional(avro: Any) -> list[Any]:
    return ["null", avro]


def field(field_id: int, name: str, avro: Any) -> dict[str, Any]:
    return {"name": name, "type": optional(avro), "default": None, "field-id": field_id}


def logical(name: str, avro: str, **more: Any) -> dict[str, Any]:
    return {"type": avro, "logicalType": name, **more}


# Each column: Iceberg type, Avro type without its logical name (which fastavro would convert), that name, stored value, Arrow value.
COLUMNS: list[tuple[str, Any, Any, dict[str, Any], Any, Any]] = [
    ("flag", "boolean", "boolean", {}, True, True),
    ("small", "int", "int", {}, -(2**31), -(2**31)),
    ("big", "long", "long", {}, 2**63 - 1, 2**63 - 1),
    ("ratio", "float", "float", {}, 0.5, 0.5),
    ("exact", "double", "double", {}, 1e300, 1e300),
    ("text", "string", "string", {}, CANARY, CANARY),
    ("bytes", "binary", "bytes", {}, b"\x00\xff", b"\x00\xff"),
    ("day", "date", "int", {"logicalType": "date"}, -719162, -719162),
    ("time", "time", "long", {"logicalType": "time-micros"}, DAY_MICROS - 1, DAY_MICROS - 1),
    ("local", "timestamp", "long", {"logicalType": "timestamp-micros", "adjust-to-utc": False}, -(2**60), -(2**60)),
    ("instant", "timestamptz", "long", {"logicalType": "timestamp-micros", "adjust-to-utc": True}, 2**60, 2**60),
    ("local_ns", "timestamp_ns", "long", {"logicalType": "timestamp-nanos", "adjust-to-utc": False}, 2**62 + 1, 2**62 + 1),
    ("instant_ns", "timestamptz_ns", "long", {"logicalType": "timestamp-nanos", "adjust-to-utc": True}, -1, -1),
    ("fixed", "fixed[3]", {"type": "fixed", "size": 3, "name": "fixed_3"}, {}, b"abc", b"abc"),
    ("key", "uuid", {"type": "fixed", "size": 16, "name": "uuid_fixed"}, {"logicalType": "uuid"}, UUID(int=7).bytes, UUID(int=7)),
    (
        "price",
        DecimalType(9, 2),
        {"type": "fixed", "size": 4, "name": "decimal_9_2"},
        {"logicalType": "decimal", "precision": 9, "scale": 2},
        (-12345).to_bytes(4, "big", signed=True),
        Decimal("-123.45"),
    ),
    (
        "large",
        DecimalType(38, 10),
        {"type": "fixed", "size": 16, "name": "decimal_38_10"},
        {"logicalType": "decimal", "precision": 38, "scale": 10},
        (10**38 - 1).to_bytes(16, "big", signed=True),
        Decimal(f"{'9' * 28}.{'9' * 10}"),
    ),
]


def avro_type(avro: Any, logical_name: dict[str, Any]) -> Any:
    plain = avro if isinstance(avro, dict) else {"type": avro}
    return {**plain, **logical_name} if logical_name or isinstance(avro, dict) else avro


def encrypted_task(files: TableFiles, fields: list[dict[str, Any]], records: list[dict[str, Any]]) -> EncryptedFileScanTask:
    """A task for an Avro file whose header says `fields`; the records are written by the plain types underneath."""
    header = {"type": "record", "name": "table", "fields": fields}
    plain = {"type": "record", "name": "table", "fields": [without_logical(each) for each in fields]}
    return EncryptedFileScanTask(files.avro_data(plain, records, declared=header), data_sequence_number=5)


def without_logical(avro: Any) -> Any:
    if isinstance(avro, dict):
        return {name: without_logical(value) for name, value in avro.items() if name != "logicalType"}
    return [without_logical(each) for each in avro] if isinstance(avro, list) else avro


def read(files: TableFiles, task: EncryptedFileScanTask, schema: Schema, row_filter: Any = ALWAYS_TRUE) -> pa.Table:
    reader = TaskReader(files.metadata, files.io, schema, row_filter)
    return pa.Table.from_batches(list(reader.batches(task)))


@pytest.mark.parametrize(("name", "iceberg", "avro", "logical_name", "stored", "expected"), COLUMNS, ids=[each[0] for each in COLUMNS])
def test_every_primitive_type_is_read(
    tmp_path: Path, name: str, iceberg: Any, avro: Any, logical_name: dict[str, Any], stored: Any, expected: Any
) -> None:
    files = TableFiles(tmp_path, Schema(NestedField(1, name, iceberg)))
    task = encrypted_task(files, [field(1, name, avro_type(avro, logical_name))], [{name: stored}, {name: None}])
    column = read(files, task, files.metadata.schema()).column(name).combine_chunks()
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    assert column.to_pylist() == [expected, None]


NESTED = Schema(
    NestedField(1, "pair", StructType(NestedField(2, "left", "int"), NestedField(3, "right", "string"))),
    NestedField(4, "many", ListType(5, DecimalType(9, 2), element_required=False)),
    NestedField(6, "lookup", MapType(7, StringType(), 8, LongType(), value_required=False)),
    NestedField(9, "pairs", MapType(10, IntegerType(), 11, ListType(12, StringType(), False), value_required=False)),
)
DECIMAL = {"type": "fixed", "size": 4, "name": "decimal_9_2", "logicalType": "decimal", "precision": 9, "scale": 2}
NESTED_FIELDS = [
    field(1, "pair", {"type": "record", "name": "r1", "fields": [field(2, "left", "int"), field(3, "right", "string")]}),
    field(4, "many", {"type": "array", "element-id": 5, "items": optional(DECIMAL)}),
    field(6, "lookup", {"type": "map", "key-id": 7, "value-id": 8, "values": optional("long")}),
    field(
        9,
        "pairs",
        {
            "type": "array",
            "logicalType": "map",
            "items": {
                "type": "record",
                "name": "k10_v11",
                "fields": [
                    {"name": "key", "type": "int", "field-id": 10},
                    field(11, "value", {"type": "array", "element-id": 12, "items": optional("string")}),
                ],
            },
        },
    ),
]
NESTED_RECORDS: list[dict[str, Any]] = [
    {
        "pair": {"left": 1, "right": CANARY},
        "many": [(125).to_bytes(4, "big"), None],
        "lookup": {"a": 1, "b": None},
        "pairs": [{"key": 1, "value": ["x", None]}, {"key": 2, "value": None}],
    },
    {"pair": {"left": None, "right": None}, "many": [], "lookup": {}, "pairs": []},
    {"pair": None, "many": None, "lookup": None, "pairs": None},
]


def test_nested_types_are_read(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, NESTED)
    rows = read(files, encrypted_task(files, NESTED_FIELDS, NESTED_RECORDS), files.metadata.schema()).to_pydict()
    assert rows == {
        "pair": [{"left": 1, "right": CANARY}, {"left": None, "right": None}, None],
        "many": [[Decimal("1.25"), None], [], None],
        "lookup": [[("a", 1), ("b", None)], [], None],
        "pairs": [[(1, ["x", None]), (2, None)], [], None],
    }


def test_a_named_type_may_be_defined_once_and_named_afterwards(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, Schema(NestedField(1, "one", "decimal(9, 2)"), NestedField(2, "two", "decimal(9, 2)")))
    value = (125).to_bytes(4, "big")
    task = encrypted_task(files, [field(1, "one", DECIMAL), field(2, "two", "decimal_9_2")], [{"one": value, "two": value}])
    assert read(files, task, files.metadata.schema()).to_pylist() == [{"one": Decimal("1.25"), "two": Decimal("1.25")}]


TWO = Schema(NestedField(1, "id", "long"), NestedField(2, "text", "string"))
TWO_FIELDS = [field(1, "id", "long"), field(2, "text", "string")]
TWO_RECORDS = [{"id": each, "text": f"{CANARY} {each}"} for each in range(100)]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_rows_are_filtered_deleted_and_numbered(tmp_path: Path, codec: str) -> None:
    files = TableFiles(tmp_path, TWO)
    data = files.avro_data({"type": "record", "name": "table", "fields": TWO_FIELDS}, TWO_RECORDS, codec)
    vector = files.deletion_vector(data.file_path, [0, 1])
    task = EncryptedFileScanTask(files.committed(data, first_row_id=1000), {vector}, data_sequence_number=5)
    rows = read(files, task, with_lineage(TWO), EqualTo(term="text", value=f"{CANARY} 7"))
    assert rows.to_pylist() == [{"id": 7, "text": f"{CANARY} 7", "_row_id": 1007, "_last_updated_sequence_number": 5}]
    assert read(files, task, TWO).num_rows == 98


def test_columns_are_found_by_field_id(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, TWO)
    task = encrypted_task(files, [field(2, "id", "string"), field(1, "old_name", "int")], [{"id": CANARY, "old_name": 5}])
    wanted = Schema(*TWO.fields, NestedField(3, "added", "string"))
    assert read(files, task, wanted).to_pylist() == [{"id": 5, "text": CANARY, "added": None}]


def _unnumbered(avro: Any) -> Any:
    if isinstance(avro, dict):
        return {name: _unnumbered(value) for name, value in avro.items() if not name.endswith("-id")}
    return [_unnumbered(each) for each in avro] if isinstance(avro, list) else avro


def test_columns_of_a_file_that_names_no_field_ids_are_found_by_the_tables_name_mapping(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, NESTED)
    numbered = read(files, encrypted_task(files, NESTED_FIELDS, NESTED_RECORDS), NESTED)
    task = encrypted_task(files, _unnumbered(NESTED_FIELDS), NESTED_RECORDS)
    mapping = NESTED.name_mapping
    files.metadata.properties["schema.name-mapping.default"] = mapping.model_dump_json()
    assert read(files, task, NESTED) == numbered

    # One id among others that are missing counts as none, as in Parquet.
    partly = [NESTED_FIELDS[0], *_unnumbered(NESTED_FIELDS[1:])]
    assert read(files, encrypted_task(files, partly, NESTED_RECORDS), NESTED) == numbered


@pytest.mark.parametrize("mapped", [0, 1])
def test_a_column_without_a_field_id_that_no_name_mapping_has_is_refused(tmp_path: Path, mapped: int) -> None:
    files = TableFiles(tmp_path, TWO)
    if mapped:
        files.metadata.properties["schema.name-mapping.default"] = Schema(TWO.fields[0]).name_mapping.model_dump_json()
    task = encrypted_task(files, _unnumbered(TWO_FIELDS), TWO_RECORDS)
    with pytest.raises(FormatError, match=r"schema\.name-mapping\.default has none either") as refused:
        read(files, task, TWO)
    assert task.file.file_path in str(refused.value)


def test_a_column_of_a_type_that_is_not_read_as_the_tables_is_refused_by_name(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, Schema(NestedField(1, "at", TimestampType())))
    days = encrypted_task(files, [field(1, "day", logical("date", "int"))], [{"day": 7}])
    with pytest.raises(FormatError, match=r"column 'at' is date there, and timestamp in the table") as refused:
        read(files, days, files.metadata.schema(), EqualTo(term="at", value="2020-05-01T00:00:00"))
    assert days.file.file_path in str(refused.value)


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, TWO)
    reader = TaskReader(files.metadata, files.io, TWO, ALWAYS_TRUE)
    assert list(reader.batches(encrypted_task(files, TWO_FIELDS, []))) == []


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, TWO)
    task = encrypted_task(files, TWO_FIELDS, TWO_RECORDS)
    flip(Path(task.file.file_path), -30)
    with pytest.raises(TamperedFileError) as refused:
        read(files, task, TWO)
    assert refused.value.location == task.file.file_path


def avro_bytes() -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "table", "fields": TWO_FIELDS}, TWO_RECORDS[:3])
    return sink.getvalue()


AVRO = avro_bytes()


def rows_of(data: bytes) -> int:
    file = AvroDataFile(io.BytesIO(data), "loc")
    return sum(len(batch) for batch in file.batches(ReadRequest(file.schema.names)))


@given(arbitrary([AVRO, *seeds_of("Avro data")]))
def test_malformed_avro_is_a_format_error_that_names_the_file(data: bytes) -> None:
    try:
        rows_of(data)
    except FormatError as error:
        assert "loc" in str(error)


@given(st.integers(0, len(AVRO) - 1))
def test_cut_avro_gives_no_rows_of_the_cut_block(kept: int) -> None:
    try:
        assert rows_of(AVRO[:kept]) == 0
    except FormatError as error:
        assert "loc" in str(error)


@pytest.mark.parametrize(
    ("avro", "message"),
    [
        ({"name": "id", "type": ["null", "long", "string"], "field-id": 1}, "union"),
        ({"name": "id", "type": {"type": "enum", "name": "e", "symbols": ["a"]}, "field-id": 1}, "enum"),
    ],
)
def test_a_schema_that_iceberg_does_not_write_is_refused(avro: dict[str, Any], message: str) -> None:
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "table", "fields": [avro]}, [])
    with pytest.raises(FormatError, match=message):
        rows_of(sink.getvalue())


def test_a_file_of_many_blocks_is_read_in_batches() -> None:
    sink = io.BytesIO()
    records = [{"id": each, "text": "x"} for each in range(70_000)]
    fastavro.writer(sink, {"type": "record", "name": "table", "fields": TWO_FIELDS}, records, sync_interval=1000)
    file = AvroDataFile(io.BytesIO(sink.getvalue()), "loc")
    batches = list(file.batches(ReadRequest(["id"], pc.field("id") >= 0)))
    assert len(batches) == 2
    assert [each for batch in batches for each in batch.column("id").to_pylist()] == list(range(70_000))


def test_each_batch_of_null_structs_with_a_required_field_is_read(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, Schema(NestedField(1, "home", StructType(NestedField(2, "floor", IntegerType(), required=True)))))
    home = {"type": "record", "name": "home", "fields": [{"name": "floor", "type": "int", "field-id": 2}]}
    records = [{"home": None if each % 2 else {"floor": each}} for each in range(70_000)]
    read_rows = read(files, encrypted_task(files, [field(1, "home", home)], records), files.metadata.schema())
    assert read_rows.column("home").num_chunks == 2
    assert read_rows.to_pylist() == records


def test_the_schema_in_the_header_is_json() -> None:
    with pytest.raises(FormatError, match="loc"):
        rows_of(AVRO.replace(json.dumps("record").encode(), json.dumps("rekord").encode()))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("claimed", [4, 2**60])
def test_blocks_hold_no_more_rows_than_the_manifest_entry_says(claimed: int) -> None:
    nothing = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "null", "field-id": 1}]}
    sink = io.BytesIO()
    fastavro.writer(sink, nothing, [{"id": None}] * 3)
    data = sink.getvalue()
    sync = data[-16:]
    # The block of three records that take no bytes: their number, the number of bytes, the marker.
    assert data.endswith(b"\x06\x00" + sync)
    claiming = io.BytesIO()
    fastavro.schemaless_writer(claiming, fastavro.parse_schema("long"), claimed)
    forged = data.removesuffix(b"\x06\x00" + sync) + claiming.getvalue() + b"\x00" + sync

    assert [len(batch) for batch in AvroDataFile(io.BytesIO(data), "loc", 3).batches(ReadRequest(["id"]))] == [3]
    with pytest.raises(FormatError, match=rf"^loc: it has {claimed} rows or more, and its manifest entry says 3$"):
        list(AvroDataFile(io.BytesIO(forged), "loc", 3).batches(ReadRequest(["id"])))


def test_a_block_of_fewer_than_no_rows_is_refused() -> None:
    nothing = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "null", "field-id": 1}]}
    sink = io.BytesIO()
    fastavro.writer(sink, nothing, [{"id": None}] * 5)
    data = sink.getvalue()
    block = b"\x0a\x00" + data[-16:]
    # Of two less than none and of five rows: together as many as the entry says.
    forged = data.removesuffix(block) + b"\x03\x00" + data[-16:] + block
    with pytest.raises(FormatError, match=r"^loc: a block says that it holds -2 rows$"):
        list(AvroDataFile(io.BytesIO(forged), "loc", 3).batches(ReadRequest(["id"])))


@pytest.mark.parametrize("records", [12, 50])
def test_a_schema_whose_records_double_what_they_name_is_refused(records: int) -> None:
    inner: Any = {"type": "record", "name": "r0", "fields": [{"name": "n", "field-id": 1, "type": "long"}]}
    for number in range(1, records):
        named = [{"name": "a", "field-id": 2, "type": inner}, {"name": "b", "field-id": 3, "type": f"r{number - 1}"}]
        inner = {"type": "record", "name": f"r{number}", "fields": named}
    sink = io.BytesIO()
    fastavro.writer(sink, inner, [])
    with pytest.raises(FormatError, match="loc: its Avro schema names types too often"):
        rows_of(sink.getvalue())


def test_as_many_columns_are_read_as_a_schema_spells_out() -> None:
    wide = [field(1, "one", DECIMAL), *({"name": f"c{each}", "type": "decimal_9_2", "field-id": each} for each in range(2, 5001))]
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "table", "fields": wide}, [])
    assert len(AvroDataFile(io.BytesIO(sink.getvalue()), "loc").schema) == 5000


def stored(codec: str, fields: list[dict[str, Any]], records: list[dict[str, Any]]) -> bytes:
    """An Avro file of one block, also in codecs that fastavro has no library for here."""
    schema = {"type": "record", "name": "table", "fields": fields}
    header, block = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}, io.BytesIO()
    for record in records:
        fastavro.schemaless_writer(block, fastavro.parse_schema(schema), record)
    packed = CODECS[codec](block.getvalue())
    metadata = b"".join(sized(key.encode()) + sized(value) for key, value in header.items())
    return b"Obj\x01" + varint(len(header)) + metadata + varint(0) + SYNC + varint(len(records)) + sized(packed) + SYNC


@pytest.mark.parametrize("codec", CODECS)
def test_a_block_is_decompressed_up_to_a_bound(codec: str) -> None:
    data = stored(codec, [{"name": "text", "type": "string", "field-id": 1}], [{"text": " " * (65 * MIB)}])
    # What snappy leaves of it may be more than a 64th.
    if len(data) >= MIB:
        assert rows_of(data) == 1
        return
    with pytest.raises(FormatError, match=f"loc: an Avro block holds more than {64 * MIB} bytes"):
        rows_of(data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_of_every_codec_is_read(codec: str) -> None:
    [batch] = AvroDataFile(io.BytesIO(stored(codec, TWO_FIELDS, TWO_RECORDS)), "loc").batches(ReadRequest(["id", "text"]))
    assert batch.to_pylist() == TWO_RECORDS


def test_a_codec_that_iceberg_does_not_write_is_refused() -> None:
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "table", "fields": TWO_FIELDS}, TWO_RECORDS, codec="xz")
    with pytest.raises(FormatError, match="loc: its codec is 'xz'"):
        rows_of(sink.getvalue())


def test_a_batch_ends_with_the_block_that_fills_it() -> None:
    sink = io.BytesIO()
    text = {"type": "record", "name": "table", "fields": [{"name": "text", "type": "string", "field-id": 1}]}
    fastavro.writer(sink, text, [{"text": " " * (40 * MIB)}] * 3, codec="deflate")
    file = AvroDataFile(io.BytesIO(sink.getvalue()), "loc")
    assert [len(batch) for batch in file.batches(ReadRequest(["text"]))] == [2, 1]


@pytest.mark.parametrize(
    "items", ["null", {"type": "record", "name": "e", "fields": [{"name": "n", "type": "null", "field-id": 3}]}], ids=["null", "record"]
)
def test_a_list_of_elements_that_take_no_bytes_is_refused(items: Any) -> None:
    many = {"name": "many", "field-id": 1, "type": {"type": "array", "element-id": 2, "items": items}}
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "table", "fields": [many]}, [])
    with pytest.raises(FormatError, match="loc: its Avro schema has a list whose elements take no bytes"):
        rows_of(sink.getvalue())
