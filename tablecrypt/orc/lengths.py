"""How long the lists, maps and texts of a stripe claim to be, added up before pyarrow's decoder relies on it.

Lengths are not authenticated: one changed bit can demand 2^60 elements, or a negative number of them, and the decoder tries. They are
run-length encoded in the column's LENGTH stream. The header of each run gives a bound, so values are unpacked only where the bounds are not
enough.

    version 1   control byte c          c < 128: c + 3 values from a varint on, each a signed byte's delta apart │ else 256 - c varints
    version 2   2 bits: kind of the run
                0 short repeat          3 bits: bytes of the value - 1 │ 3 bits: values - 3 │ the value
                1 direct                5 bits: width │ 9 bits: values - 1 │ values of that width
                2 patched base          the same │ 3 bits: bytes of base - 1 │ 5: patch width │ 3: gap width - 1 │ 5: patches │ base │
                                        values above the base, of that width │ patches: gap and high bits of a value
                3 delta                 5 bits: width, 0: all deltas are equal │ 9 bits: values - 1 │ base varint │ first delta, zigzag
                                        varint │ further deltas of that width, with the sign of the first

Numbers are big endian. Raises FormatError for more than a limit and for runs that end too early.
Specification: Apache ORC v1, "Run Length Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tablecrypt._bytes import ByteReader
from tablecrypt.errors import FormatError

MAX_ELEMENTS: Final = 2**28
"""Of the lists or maps in one column of one stripe. pyarrow takes 8 to 17 bytes for each."""
MAX_BYTES: Final = 2**31 - 1
"""Of the texts in one column of one stripe, as many as Arrow has offsets for."""

_WIDTHS: Final = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
_SHORT_REPEAT: Final = 0
_DIRECT: Final = 1
_PATCHED_BASE: Final = 2


class _Run(NamedTuple):
    """A run's values, and a bound for their sum; None where some might be negative."""

    bound: int | None
    values: Callable[[], list[int]]


def check_lengths(lengths: bytes, version: int, limit: int, what: str) -> None:
    """Refuse a decompressed LENGTH stream whose sum is above `limit` or negative. `version` is that of the encoding."""
    runs = _runs_of_version_1 if version == 1 else _runs_of_version_2
    bounds = [run.bound for run in runs(ByteReader(lengths, what))]
    if None not in bounds and sum(bound for bound in bounds if bound is not None) <= limit:
        return

    total = 0

    for run in runs(ByteReader(lengths, what)):
        values = run.values()
        total += sum(values)
        # A negative length is refused by itself: next to a huge one it could add up to a harmless sum.
        if min(values) < 0 or total > limit:
            raise FormatError(f"{what} claim to be more than {limit} in one stripe, or fewer than 0")


def _packed(reader: ByteReader, count: int, width: int) -> bytes:
    return reader.take(-(-count * width // 8))


def _runs_of_version_1(reader: ByteReader) -> Iterator[_Run]:
    while reader.left:
        control = reader.number(1)
        if control >= 128:
            literals = [reader.varint() for _ in range(256 - control)]
            yield _Run(sum(literals), literals.copy)
            continue

        delta = reader.number(1, signed=True)
        yield _equal_steps(reader.varint(), delta, control + 3)


def _runs_of_version_2(reader: ByteReader) -> Iterator[_Run]:
    while reader.left:
        first = reader.number(1)
        kind = first >> 6
        if kind == _SHORT_REPEAT:
            value = reader.number((first >> 3 & 7) + 1, "big")
            yield _equal_steps(value, 0, (first & 7) + 3)
            continue

        code = first >> 1 & 0x1F
        count = ((first & 1) << 8 | reader.number(1)) + 1

        if kind == _DIRECT:
            yield _direct(reader, _WIDTHS[code], count)
        elif kind == _PATCHED_BASE:
            yield _patched_base(reader, _WIDTHS[code], count)
        else:
            yield _delta(reader, _WIDTHS[code] if code else 0, count)


def _equal_steps(base: int, delta: int, count: int) -> _Run:
    last = base + delta * (count - 1)
    return _Run((base + last) * count // 2 if last >= 0 else None, lambda: [base + delta * index for index in range(count)])


def _direct(reader: ByteReader, width: int, count: int) -> _Run:
    packed = _packed(reader, count, width)
    return _Run(count * ((1 << width) - 1), lambda: _unpack(packed, width, count))


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
    packed_patches = _packed(reader, patches, patch_bits)

    def values() -> list[int]:
        unpacked = _unpack(packed, width, count)
        index = 0
        for entry in _unpack(packed_patches, patch_bits, patches):
            index += entry >> patch_width
            if index >= count:
                raise FormatError(f"{reader.what} has a patch outside its run")
            unpacked[index] |= (entry & ((1 << patch_width) - 1)) << width

        return [base + value for value in unpacked]

    # Each patch counts in full, as if it met the highest value: the bound may be too high, never too low.
    highest = count * (base + (1 << width) - 1) + patches * (1 << (width + patch_width))

    return _Run(highest if base >= 0 else None, values)


def _delta(reader: ByteReader, width: int, count: int) -> _Run:
    # Lengths are unsigned, so the base is not zigzag. The first delta always is.
    base, encoded = reader.varint(), reader.varint()
    first = encoded >> 1 ^ -(encoded & 1)
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

    return _Run(count * max(base, farthest) if farthest >= 0 else None, values)


def _unpack(packed: bytes, width: int, count: int) -> list[int]:
    bits = int.from_bytes(packed, "big") >> (8 * len(packed) - width * count)
    mask = (1 << width) - 1
    return [bits >> shift & mask for shift in range(width * (count - 1), -1, -width)] if count else []
