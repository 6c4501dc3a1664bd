"""The strict container reader: authentic bytes that are not a well-formed Avro file."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, DoubleType, FixedType, LongType, NestedField, StringType, StructType, TimestampNanoType, UUIDType

from tablecrypt.errors import FormatError
from tablecrypt.manifests.avro_container import AvroContainer, RecordTypes
from tablecrypt.manifests.avro_schema import from_avro_json, to_avro_json
from tests.support.interruptions import interrupted_in
from tests.support.manifest_bytes import varint

SCHEMA = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "s", StringType(), required=True))
TYPES = RecordTypes[Record](SCHEMA, {-1: Record}, {})
SYNC = b"0123456789abcdef"
RECORDS = [(5, "five"), (-1, "x" * 100)]


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(len(data)) + data


def header(metadata: dict[str, str | bytes] | None = None) -> bytes:
    entries = {"avro.schema": to_avro_json(SCHEMA, "r"), "avro.codec": "null"} if metadata is None else metadata
    return b"Obj\x01" + varint(len(entries)) + b"".join(text(key) + text(value) for key, value in entries.items()) + varint(0) + SYNC


def block(records: list[tuple[int, str]], count: int | None = None, sync: bytes = SYNC) -> bytes:
    body = b"".join(varint(number) + text(string) for number, string in records)
    return varint(len(records) if count is None else count) + text(body) + sync


def read(data: bytes) -> list[tuple[Any, Any]]:
    return [(record[0], record[1]) for record in AvroContainer(data, "s3://b/m.avro", TYPES)]


def refused(data: bytes, message: str = "") -> None:
    with pytest.raises(FormatError, match=rf"^s3://b/m\.avro: .*{message}"):
        read(data)


GOOD = header() + block(RECORDS) + block(RECORDS[:1])


GOOD_FILES = {
    "several blocks": (GOOD, [*RECORDS, RECORDS[0]]),
    "no blocks": (header(), []),
    "an empty block before another": (header() + block([]) + block(RECORDS), RECORDS),
}


@pytest.mark.parametrize(("data", "records"), GOOD_FILES.values(), ids=GOOD_FILES)
def test_a_good_file_is_read(data: bytes, records: list[tuple[int, str]]) -> None:
    assert read(data) == records


AFTER_HEADER, AFTER_BLOCK = len(header()), len(header() + block(RECORDS))


@given(st.integers(0, len(GOOD) - 1))
@example(AFTER_HEADER)
@example(AFTER_BLOCK)
def test_a_file_that_ends_anywhere_but_after_a_block_is_refused(length: int) -> None:
    if length in (AFTER_HEADER, AFTER_BLOCK):
        assert len(read(GOOD[:length])) < 3
    else:
        refused(GOOD[:length])


def test_the_metadata_map_may_come_in_parts() -> None:
    entries = [text("avro.schema") + text(to_avro_json(SCHEMA, "r")), text("avro.codec") + text("null")]
    in_parts = b"Obj\x01" + varint(1) + entries[0] + varint(-1) + varint(len(entries[1])) + entries[1] + varint(0) + SYNC
    assert read(in_parts + block(RECORDS)) == RECORDS


MALFORMED = {
    "another magic": (b"Obj\x02" + GOOD[4:], "not an Avro file"),
    "another sync marker": (header() + block(RECORDS, sync=b"0" * 16) + block(RECORDS), "sync"),
    **{f"{count} records in a block of 2": (header() + block(RECORDS, count=count), "") for count in (3, 60, 10**6, -1, 2**62)},
    **{f"{count} records in a longer block": (header() + block(RECORDS, count=count), "after its last record") for count in (0, 1)},
    "a number that never ends": (header() + b"\xff" * 100, "64 bits"),
    "a block of negative length": (header() + varint(1) + varint(-5) + SYNC, ""),
    "a string that is not UTF-8": (header() + varint(1) + text(varint(5) + text(b"\xff\xfe")) + SYNC, "decoded"),
    "an unknown codec": (header({"avro.schema": to_avro_json(SCHEMA, "r"), "avro.codec": "lzma"}), "lzma"),
    "no schema": (header({"avro.codec": "null"}), "no avro.schema"),
    "a type that is not defined": (header({"avro.schema": to_avro_json(SCHEMA, "r").replace('"long"', '"other"')}), "before defining it"),
    "metadata that is not UTF-8": (header({"avro.schema": b"\xff"}), "UTF-8"),
}


@pytest.mark.parametrize(("data", "said"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_is_refused(data: bytes, said: str) -> None:
    refused(data, said)


def test_a_block_that_does_not_decompress_is_refused() -> None:
    deflated = header({"avro.schema": to_avro_json(SCHEMA, "r"), "avro.codec": "deflate"})
    body = zlib.compress(varint(5) + text("five"))[2:-4]
    assert read(deflated + varint(1) + text(body) + SYNC) == [(5, "five")]
    refused(deflated + varint(1) + text(b"\xff" + body) + SYNC, "decompressed")


class OutOfTimeError(Exception):
    """What a program's handler of a signal raises."""


@pytest.mark.parametrize("error", [OutOfTimeError, TimeoutError])
@pytest.mark.parametrize("codec", ["deflate", "bzip2", "zstandard", "snappy"])
def test_an_error_of_a_signals_handler_is_not_taken_for_one_of_the_file(codec: str, error: type[Exception]) -> None:
    """A job that is out of time would be told, and an audit would report, that somebody has damaged the file."""
    data = header({"avro.schema": to_avro_json(SCHEMA, "r"), "avro.codec": codec}) + varint(1) + text(b"any bytes") + SYNC
    with pytest.raises(error), interrupted_in(f"_{codec}", 1, error=error):
        read(data)
    refused(data)


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        '"string"',
        '{"type": "record"}',
        '{"type": "record", "name": "r", "fields": 5}',
        '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}',
        '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "other", "field-id": 1}]}',
        '{"type": "record", "name": "r", "fields": [{"name": "n", "type": ["long", "string"], "field-id": 1}]}',
        '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "string", "field-id": 1}]}',
        '{"type": "record", "name": "r", "fields": [{"name": "x", "type": "long", "field-id": 9}]}',
        '{"type": "record", "name": "r", "fields": [' + '{"name": "n", "field-id": 1, "type": {"type": "array", "items": ' * 500,
    ],
)
def test_a_schema_that_does_not_fit_is_refused(schema: str) -> None:
    refused(header({"avro.schema": schema, "avro.codec": "null"}))


def test_a_schema_nested_beyond_reason_is_refused() -> None:
    nested: Any = "long"
    for _ in range(200):
        nested = {"type": "array", "items": nested, "element-id": 1}
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "n", "field-id": 1, "type": nested}]})
    refused(header({"avro.schema": schema, "avro.codec": "null"}), "deep")


def test_doubles_keep_all_their_bits() -> None:
    types = RecordTypes[Record](Schema(NestedField(1, "d", DoubleType(), required=True)), {-1: Record}, {})
    schema = to_avro_json(types.schema, "r")
    data = header({"avro.schema": schema, "avro.codec": "null"}) + varint(1) + text(bytes.fromhex("9a9999999999b93f")) + SYNC
    assert [record[0] for record in AvroContainer(data, "m", types)] == [0.1]


def test_a_named_type_is_defined_once_and_read_back_wherever_it_is_used() -> None:
    inner = StructType(NestedField(5, "u", UUIDType()))
    schema = Schema(
        NestedField(1, "a", UUIDType()), NestedField(2, "b", UUIDType()), NestedField(3, "c", FixedType(4)), NestedField(4, "s", inner)
    )
    written = to_avro_json(schema, "r")
    assert written.count('"name":"uuid_fixed"') == 1
    assert written.count('"uuid_fixed"') == 3
    assert from_avro_json(written).as_struct() == schema.as_struct()


def test_nanosecond_timestamps_are_read_as_the_long_that_they_are() -> None:
    schema = Schema(NestedField(1, "t", TimestampNanoType()))
    assert from_avro_json(to_avro_json(schema, "r")).find_type(1) == LongType()


def doubled(records: int) -> str:
    """A schema that stands for 2^records types: each record has two fields of the one before it."""
    inner: Any = {"type": "record", "name": "r0", "fields": [{"name": "n", "field-id": 1, "type": "long"}]}
    for number in range(1, records):
        fields = [{"name": "a", "field-id": 2 * number, "type": inner}, {"name": "b", "field-id": 2 * number + 1, "type": f"r{number - 1}"}]
        inner = {"type": "record", "name": f"r{number}", "fields": fields}
    return json.dumps(inner)


@pytest.mark.parametrize("records", [12, 50])
def test_a_schema_whose_records_double_what_they_name_is_refused(records: int) -> None:
    refused(header({"avro.schema": doubled(records), "avro.codec": "null"}), "names types too often")


def test_as_many_columns_are_read_as_a_schema_spells_out() -> None:
    columns = [NestedField(at, f"c{at}", UUIDType() if at % 2 else LongType(), required=at % 3 == 0) for at in range(1, 5001)]
    assert len(from_avro_json(to_avro_json(Schema(*columns), "r")).fields) == 5000
    nested = {"type": "array", "items": {"type": "map", "values": "int", "key-id": 1, "value-id": 2}, "element-id": 3}
    short = [{"name": f"{at:x}", "field-id": 4, "type": kind} for at, kind in enumerate(["int", nested] * 100)]
    shortest = json.dumps({"type": "record", "name": "r", "fields": short}, separators=(",", ":"))
    assert len(from_avro_json(shortest).fields) == 200


@pytest.mark.parametrize("is_javas", [False, True])
def test_java_writes_its_fixed_values_with_their_length_in_front(is_javas: bool) -> None:
    """And says in the schema that they have none. UUIDs it writes as it says."""
    schema = Schema(NestedField(1, "f", FixedType(3)), NestedField(2, "again", FixedType(3)), NestedField(3, "u", UUIDType()))
    metadata: dict[str, str | bytes] = {"avro.schema": to_avro_json(schema, "r"), "avro.codec": "null"}
    if is_javas:
        metadata["iceberg.schema"] = "{}"
    some, length = b"\x02", varint(3) if is_javas else b""
    body = some + length + b"\x06\xff\x80" + some + length + b"\x00\x00\x00" + some + bytes(16)
    bytes_of_any_length = Schema(NestedField(1, "f", BinaryType()), NestedField(2, "again", BinaryType()), NestedField(3, "u", UUIDType()))
    types = RecordTypes[Record](bytes_of_any_length if is_javas else schema, {-1: Record}, {})

    [record] = AvroContainer(header(metadata) + varint(1) + text(body) + SYNC, "s3://b/m.avro", types)
    assert [record[0], record[1]] == [b"\x06\xff\x80", b"\x00\x00\x00"]
