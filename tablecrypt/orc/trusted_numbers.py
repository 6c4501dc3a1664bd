"""Numbers of a stripe that pyarrow's decoder trusts, checked before it gets the first of them.

    LENGTH stream                how long lists, maps and texts are     added up
    SECONDARY stream, decimals   how many digits are behind the point   each one
    DATA stream, unions          which column of the union a value has  each one
    PRESENT stream, keys of maps which values are null                  none may be

Nothing authenticates them. One changed bit can demand 2^60 elements, or a negative number of them, and the decoder tries. It brings a scale
below 0 to that of the column by 2^32 multiplications by ten, counts a value of a column that a union does not have in others' memory, and
ends the process at a null among a map's keys.

Lengths and scales are run-length encoded. The header of each run gives bounds, so values are unpacked only where the bounds are not enough.

    version 1   control byte c          c < 128: c + 3 values from a varint on, each a signed byte's delta apart │ else 256 - c varints
    version 2   2 bits: kind of the run
                0 short repeat          3 bits: bytes of the value - 1 │ 3 bits: values - 3 │ the value
                1 direct                5 bits: width │ 9 bits: values - 1 │ values of that width
                2 patched base          the same │ 3 bits: bytes of base - 1 │ 5: patch width │ 3: gap width - 1 │ 5: patches │ base │
                                        values above the base, of that width │ patches: gap and high bits of a value
                3 delta                 5 bits: width, 0: all deltas are equal │ 9 bits: values - 1 │ base varint │ first delta, zigzag
                                        varint │ further deltas of that width, with the sign of the first

Scales may be negative: their varints, and the values of short repeat and direct, are zigzag. Numbers are big endian.

    tags        control byte c          c < 128: the next byte c + 3 times │ else 256 - c bytes

Raises FormatError for numbers outside their limits and for runs that end too early.
Specification: Apache ORC v1, "Run Length Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Final, NamedTuple

from tablecrypt._bytes import ByteReader, from_zigzag
from tablecrypt.errors import FormatError
from tablecrypt.orc.messages import Stream, StreamKind
from tablecrypt.orc.schema import MAX_PRECISION, Schema, TypeKind

MAX_ELEMENTS: Final = 2**28
"""Of the lists or maps in one column of one stripe, and of a dictionary of texts. pyarrow takes 8 to 17 bytes for each."""
MAX_BYTES: Final = 2**31 - 1
"""Of the texts in one column of one stripe, as many as Arrow has offsets for."""

_WIDTHS: Final = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
_SHORT_REPEAT: Final = 0
_DIRECT: Final = 1
_PATCHED_BASE: Final = 2
_RUN: Final = 128
"""The control byte from which on single bytes or varints follow, in version 1 and in tags."""


class _Run(NamedTuple):
    """A run's values, with bounds for their sum, None where some might be negative, and for the highest."""

    bound: int | None
    highest: int
    values: Callable[[], list[int]]


class StreamCheck(NamedTuple):
    """What checks a stream, decompressed: by its bytes, the version of its encoding, and what they are in errors."""

    numbers: str
    check: Callable[[bytes, int, str], None]


def check_of(schema: Schema, stream: Stream) -> StreamCheck | None:
    """Return what checks a stream; None where the decoder trusts nothing of it."""
    column, kind = schema[stream.column], stream.kind
    if kind == StreamKind.PRESENT and schema.has_keys(column.id):
        return StreamCheck("nulls", _refuse_nulls)
    if kind == StreamKind.LENGTH:
        return StreamCheck("lengths", partial(check_lengths, limit=MAX_ELEMENTS if column.children else MAX_BYTES))
    if kind == StreamKind.SECONDARY and column.kind == TypeKind.DECIMAL:
        return StreamCheck("scales", check_scales)
    if kind == StreamKind.DATA and column.kind == TypeKind.UNION:
        return StreamCheck("tags", partial(check_tags, columns=len(column.children)))
    return None


def check_lengths(lengths: bytes, version: int, what: str, *, limit: int) -> None:
    """Refuse a LENGTH stream whose sum is above `limit` or negative."""
    bounds = [run.bound for run in _runs(ByteReader(lengths, what), version)]
    if None not in bounds and sum(bound for bound in bounds if bound is not None) <= limit:
        return

    total = 0

    for run in _runs(ByteReader(lengths, what), version):
        values = run.values()
        total += sum(values)
        # A negative length is refused by itself: next to a huge one it could add up to a harmless sum.
        if min(values) < 0 or total > limit:
            raise FormatError(f"{what} claim to be more than {limit} in one stripe, or fewer than 0")


def check_scales(scales: bytes, version: int, what: str) -> None:
    """Refuse a SECONDARY stream of decimals with a scale that no decimal has."""
    reader, start = ByteReader(scales, what), 0
    for run in _runs(reader, version, signed=True):
        if run.bound is None or run.highest > MAX_PRECISION:
            values = run.values()
            if min(values) < 0 or max(values) > MAX_PRECISION:
                raise FormatError(f"{what} are not all from 0 to {MAX_PRECISION}")

        # Most writers give all values of a column one scale: the same run again and again.
        encoded = scales[start : reader.position]
        while scales.startswith(encoded, reader.position):
            reader.position += len(encoded)
        start = reader.position


def check_tags(tags: bytes, version: int, what: str, *, columns: int) -> None:
    """Refuse a DATA stream of a union of this many columns that names another. Its encoding has one version."""
    reader = ByteReader(tags, what)
    while reader.left:
        control = reader.number(1)
        if max(reader.take(1 if control < _RUN else 256 - control)) >= columns:
            raise FormatError(f"{what} name a column beyond the {columns} that the union has")


def _refuse_nulls(present: bytes, version: int, what: str) -> None:
    # Writers leave the stream out where nothing is null. Its last bits may be no values', so that it cannot be asked.
    if present:
        raise FormatError(f"{what} are among the keys of a map, where pyarrow takes none")


def _runs(reader: ByteReader, version: int, *, signed: bool = False) -> Iterator[_Run]:
    return _runs_of_version_1(reader, signed) if version == 1 else _runs_of_version_2(reader, signed)


def _packed(reader: ByteReader, count: int, width: int) -> bytes:
    return reader.take(-(-count * width // 8))


def _varint(reader: ByteReader, signed: bool) -> int:
    return from_zigzag(reader.varint()) if signed else reader.varint()


def _runs_of_version_1(reader: ByteReader, signed: bool) -> Iterator[_Run]:
    while reader.left:
        control = reader.number(1)
        if control >= _RUN:
            literals = [_varint(reader, signed) for _ in range(256 - control)]
            yield _Run(sum(literals) if min(literals) >= 0 else None, max(literals), literals.copy)
            continue

        delta = reader.number(1, signed=True)
        yield _equal_steps(_varint(reader, signed), delta, control + 3)


def _runs_of_version_2(reader: ByteReader, signed: bool) -> Iterator[_Run]:
    while reader.left:
        first = reader.number(1)
        kind = first >> 6
        if kind == _SHORT_REPEAT:
            value = reader.number((first >> 3 & 7) + 1, "big")
            yield _equal_steps(from_zigzag(value) if signed else value, 0, (first & 7) + 3)
            continue

        code = first >> 1 & 0x1F
        count = ((first & 1) << 8 | reader.number(1)) + 1

        if kind == _DIRECT:
            yield _direct(reader, _WIDTHS[code], count, signed)
        elif kind == _PATCHED_BASE:
            yield _patched_base(reader, _WIDTHS[code], count)
        else:
            yield _delta(reader, _WIDTHS[code] if code else 0, count, signed)


def _equal_steps(base: int, delta: int, count: int) -> _Run:
    last = base + delta * (count - 1)
    bound = (base + last) * count // 2 if min(base, last) >= 0 else None
    return _Run(bound, max(base, last), lambda: [base + delta * index for index in range(count)])


def _direct(reader: ByteReader, width: int, count: int, signed: bool) -> _Run:
    packed = _packed(reader, count, width)
    highest = (1 << width) - 1
    if not signed:
        return _Run(count * highest, highest, lambda: _unpack(packed, width, count))

    # Zigzag: the odd ones are negative. All lowest bits at once, since unpacking takes a hundred times as long.
    has_negative = _whole(packed, width, count) & _lowest_bits(width, count)
    highest >>= 1

    return _Run(None if has_negative else count * highest, highest, lambda: [from_zigzag(value) for value in _unpack(packed, width, count)])


def _patched_base(reader: ByteReader, width: int, count: int) -> _Run:
    third, fourth = reader.number(1), reader.number(1)
    base_length, patch_width = (third >> 5) + 1, _WIDTHS[third & 0x1F]
    gap_width, patches = (fourth >> 5) + 1, fourth & 0x1F
    base = reader.number(base_length, "big")
    sign = 1 << (8 * base_length - 1)
    # The base is a sign bit and a magnitude, not two's complement (ORC v1, "Patched Base").
    base = -(base - sign) if base & sign else base
    packed = _packed(reader, count, width)
    # The specification rounds the width of gap and patch up to one that it can encode.
    patch_bits = next(bits for bits in _WIDTHS if bits >= min(gap_width + patch_width, 64))
    entries = _unpack(_packed(reader, patches, patch_bits), patch_bits, patches)
    # An entry without a patch only lengthens the next one's gap. After the last, the decoder goes on with what its memory holds.
    if entries and not entries[-1] & ((1 << patch_width) - 1):
        raise FormatError(f"{reader.what} have a run whose last patch is none")

    def values() -> list[int]:
        unpacked = _unpack(packed, width, count)
        index = 0
        for entry in entries:
            index += entry >> patch_width
            if index >= count:
                raise FormatError(f"{reader.what} have a patch outside its run")
            unpacked[index] |= (entry & ((1 << patch_width) - 1)) << width

        return [base + value for value in unpacked]

    # Each patch counts in full, as if it met the highest value: the bound may be too high, never too low.
    highest = base + (1 << (width + patch_width)) - 1
    bound = count * (base + (1 << width) - 1) + patches * (1 << (width + patch_width))

    return _Run(bound if base >= 0 else None, highest, values)


def _delta(reader: ByteReader, width: int, count: int, signed: bool) -> _Run:
    # Of numbers that are never negative the base is not zigzag. The first delta always is.
    base, first = _varint(reader, signed), from_zigzag(reader.varint())
    if width == 0:
        return _equal_steps(base, first, count)

    steps = max(0, count - 2)
    packed = _packed(reader, steps, width)

    def values() -> list[int]:
        found = [base, base + first][:count]
        for step in _unpack(packed, width, steps):
            found.append(found[-1] + (step if first >= 0 else -step))
        return found

    farthest = base + first + (steps * ((1 << width) - 1) if first >= 0 else -steps * ((1 << width) - 1))
    highest = max(base, farthest)

    return _Run(count * highest if min(base, farthest) >= 0 else None, highest, values)


def _whole(packed: bytes, width: int, count: int) -> int:
    """Return values as one number, the first of them in its highest bits."""
    return int.from_bytes(packed, "big") >> (8 * len(packed) - width * count)


@lru_cache(maxsize=512)
def _lowest_bits(width: int, count: int) -> int:
    return ((1 << width * count) - 1) // ((1 << width) - 1)


def _unpack(packed: bytes, width: int, count: int) -> list[int]:
    bits = _whole(packed, width, count)
    mask = (1 << width) - 1
    return [bits >> shift & mask for shift in range(width * (count - 1), -1, -width)] if count else []
