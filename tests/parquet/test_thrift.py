"""The reader and writer of Thrift structs: whole, strict, and bounded by their input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from tablecrypt.errors import FormatError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.structs import COLUMN_CHUNK_SHAPE, FILE_META_DATA_SHAPE, SchemaElement
from tablecrypt.parquet.thrift import MAX_DEPTH, CutShortError, Number, Shape, Struct, decode, decode_binaries, decode_padded, unpadded
from tests.support.mutations import arbitrary
from tests.support.parsers import seeds_of

EVERY_FIELD: Shape = {field_id: {} for field_id in range(100)}
EVERY_LIST_APART: Shape = dict.fromkeys(range(100), thrift.DEFERRED)
INTEGERS = {thrift.I16: 16, thrift.I32: 32, thrift.I64: 64}


def _as_apache_thrift_writes() -> bytes:
    """A struct with a field of each kind, in the order of its ids, by another implementation."""
    transport = TMemoryBuffer()
    out = TCompactProtocol(transport)
    out.writeStructBegin("s")
    for field_id, kind, write in (
        (1, TType.I32, lambda: out.writeI32(-7)),
        (2, TType.I64, lambda: out.writeI64(2**62)),
        (3, TType.STRING, lambda: out.writeBinary(b"bytes")),
        (20, TType.BOOL, lambda: out.writeBool(True)),
        (21, TType.BOOL, lambda: out.writeBool(False)),
        (22, TType.I16, lambda: out.writeI16(-(2**15))),
        (23, TType.DOUBLE, lambda: out.writeDouble(1.5)),
        (24, TType.BYTE, lambda: out.writeByte(3)),
        (300, TType.LIST, lambda: _write_strings(out, [b"x"] * 20)),
    ):
        out.writeFieldBegin("f", kind, field_id)
        write()
        out.writeFieldEnd()
    out.writeFieldStop()
    out.writeStructEnd()
    value: bytes = transport.getvalue()
    return value


def _write_strings(out: TCompactProtocol, values: list[bytes]) -> None:
    out.writeListBegin(TType.STRING, len(values))
    for value in values:
        out.writeBinary(value)
    out.writeListEnd()


def test_what_apache_thrift_writes_is_read_and_written_alike() -> None:
    encoded = _as_apache_thrift_writes()

    struct = decode(encoded, {})

    numbers = (Number(1, thrift.I32), Number(2, thrift.I64), Number(22, thrift.I16))
    assert [struct.integer(number) for number in numbers] == [-7, 2**62, -(2**15)]
    assert (struct.binary(3), struct.flag(20), struct.flag(21), struct.flag(99)) == (b"bytes", True, False, False)
    assert decode_binaries(struct.stored_list(300)) == [b"x"] * 20
    assert struct.encode() == encoded


def _numbers(kind: int) -> st.SearchStrategy[tuple[int, int]]:
    limit = 2 ** (INTEGERS[kind] - 1)
    return st.tuples(st.just(kind), st.integers(-limit, limit - 1))


def _struct(fields: dict[int, tuple[int, object]]) -> Struct:
    struct = Struct()
    for field_id, (kind, value) in fields.items():
        struct.set(field_id, kind, value)  # type: ignore[arg-type]
    return struct


FLAT = st.dictionaries(
    st.integers(1, 2**15 - 1), st.one_of(*(_numbers(kind) for kind in INTEGERS), st.tuples(st.just(thrift.BINARY), st.binary(max_size=40)))
).map(_struct)


@given(FLAT, st.lists(FLAT, max_size=20))
def test_what_was_written_is_read(one: Struct, several: list[Struct]) -> None:
    shape: Shape = {1: {}, 2: {}}
    whole = Struct()
    whole.set(1, thrift.STRUCT, one)
    whole.set(2, thrift.LIST, several)

    read = decode(whole.encode(), shape)

    assert read.encode() == whole.encode()
    assert read.struct(1).fields == one.fields
    assert [struct.fields for struct in read.structs(2)] == [struct.fields for struct in several]
    assert decode(whole.encode(), {}).encode() == whole.encode(), "what is not opened passes through"


@given(st.lists(FLAT, max_size=20), st.binary(max_size=20))
def test_structs_that_are_told_apart_are_the_bytes_they_were(structs: list[Struct], other: bytes) -> None:
    whole = Struct()
    whole.set(7, thrift.LIST, structs)
    whole.set(8, thrift.BINARY, other)

    apart = decode(whole.encode(), {7: thrift.DEFERRED})

    assert apart.deferred_structs(7) == [struct.encode() for struct in structs]
    assert apart.encode() == whole.encode()


VALUES = st.one_of(*(_numbers(kind) for kind in INTEGERS), st.tuples(st.just(thrift.BINARY), st.binary(max_size=40)))
NESTED = st.recursive(
    st.dictionaries(st.integers(1, 20), VALUES, max_size=6).map(_struct),
    lambda inner: st.dictionaries(
        st.integers(1, 20),
        st.one_of(
            VALUES, st.tuples(st.just(thrift.STRUCT), inner), st.tuples(st.just(thrift.LIST), st.lists(inner, min_size=1, max_size=6))
        ),
        max_size=6,
    ).map(_struct),
    max_leaves=12,
)


@given(NESTED, st.binary(max_size=20))
def test_a_struct_that_is_stepped_over_ends_where_it_was_written_to_end(struct: Struct, more: bytes) -> None:
    assert unpadded(struct.encode() + more) == struct.encode()


@pytest.mark.parametrize("depth", [MAX_DEPTH - 2, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, MAX_DEPTH + 40])
def test_structs_that_are_stepped_over_are_no_deeper_than_the_limit(depth: int) -> None:
    nested = b"\x1c" * depth + b"\x00" * (depth + 1)
    if depth <= MAX_DEPTH:
        assert unpadded(nested) == nested
        return
    with pytest.raises(FormatError, match="nested"):
        unpadded(nested)


@given(FLAT)
def test_a_struct_cut_anywhere_is_told_from_a_wrong_one(struct: Struct) -> None:
    encoded = struct.encode()
    for length in range(len(encoded)):
        with pytest.raises(CutShortError):
            decode(encoded[:length], {})


@given(arbitrary(seeds_of("Thrift")))
def test_arbitrary_bytes_are_a_struct_or_a_format_error(data: bytes) -> None:
    for shape in ({}, FILE_META_DATA_SHAPE, COLUMN_CHUNK_SHAPE, EVERY_FIELD, EVERY_LIST_APART):
        try:
            struct = decode(data, shape)
        except FormatError:
            continue
        assert decode(struct.encode(), shape).encode() == struct.encode()


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"\x15\x02\x05\x02\x02\x00", "twice"),
        (b"\x15\x82\x00\x00", "longer than it needs"),
        (b"\x15" + b"\xff" * 10 + b"\x01\x00", "64 bits"),
        (b"\x14\xfe\xff\x07\x00", "does not fit"),
        (b"\x05\x01\x02\x00", "not a field id"),
        (b"\x1d\x00\x00", "not a Thrift type"),
        (b"\x19\xf8\x02\x00\x00\x00", "length of a list"),
        (b"\x19\xf8\xff\xff\xff\xff\x0f\x00", "elements"),
        (b"\x1b\xff\xff\xff\xff\x0f\x88\x00", "pairs"),
        (b"\x18\xff\xff\xff\xff\x0f\x00", "past the end"),
        (b"\x1c" * (MAX_DEPTH + 2) + b"\x00" * (MAX_DEPTH + 3), "nested"),
        (b"\x19\x1c" + b"\x19\x1c" * MAX_DEPTH, "nested"),
        (b"\x00\x00", "followed by"),
    ],
)
def test_what_no_writer_writes_is_refused(encoded: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode(encoded, {})


def test_nesting_is_bounded_where_structs_are_opened_too() -> None:
    deep: dict[int, object] = {}
    deep[1] = deep
    with pytest.raises(FormatError, match="nested"):
        decode(b"\x1c" * 10_000, deep)  # type: ignore[arg-type]


def test_a_field_that_is_missing_or_of_another_kind_is_named() -> None:
    struct = _struct({1: (thrift.I32, 5), 2: (thrift.BINARY, b"b")})
    for read in (struct.binary, struct.struct, struct.structs, struct.flag, struct.stored_list):
        with pytest.raises(FormatError, match="field 1 is of Thrift kind 5"):
            read(1)
    with pytest.raises(FormatError, match="field 3 is missing"):
        struct.integer(Number(3, thrift.I32))
    assert struct.optional_integer(Number(3, thrift.I32)) is None
    assert struct.optional_binary(3) is None
    assert struct.optional_struct(3) is None


@pytest.mark.parametrize("kind", [thrift.I16, thrift.I64, thrift.BYTE])
def test_a_number_of_another_kind_is_refused_which_other_readers_pass_over(kind: int) -> None:
    """Arrow would find no number of children here: another tree, in which other columns have the values."""
    element = _struct({SchemaElement.NUM_CHILDREN: (kind, b"\x01" if kind == thrift.BYTE else 1)})
    for read in (element.integer, element.optional_integer):
        with pytest.raises(FormatError, match=f"field 5 is of Thrift kind {kind}"):
            read(SchemaElement.NUM_CHILDREN)


def test_bytes_after_an_encrypted_struct_are_left_out() -> None:
    encoded = _struct({1: (thrift.I32, 5)}).encode()
    assert decode_padded(encoded + bytes(100), {}).integer(Number(1, thrift.I32)) == 5
    assert unpadded(encoded + bytes(100)) == encoded
