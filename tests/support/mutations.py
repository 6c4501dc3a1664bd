"""Changes of valid files, for tests and fuzzers of parsers: what a file could become that somebody has edited with its format in mind.

Bytes drawn from nothing fail at the first field of a parser. A change of a valid file gets as far as the change: a bit that fell over, a
part that was cut out, doubled, moved or taken from another file, a number that says another length.

Both users share `mutated`. It asks for every decision by `choose(low, high)`, bounds included:

    Hypothesis    draws the numbers, so that a failing change shrinks (`mutations`, `arbitrary`)
    atheris       takes them from a generator that libFuzzer seeds (fuzz/harness.py)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from hypothesis import strategies as st

Choose = Callable[[int, int], int]
Change = Callable[[bytes, Sequence[bytes], Choose], bytes]

_MOST_CHANGES: Final = 4
_LONGEST: Final = 64
_ENDS: Final = 48
"""Headers, footers and their lengths stand this near to an end of a file."""
_ORDERS: Final[tuple[Literal["little", "big"], ...]] = ("little", "big")
_NUMBERS: Final = (0, 1, 2, 0x7F, 0x80, 0xFF, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def mutated(data: bytes, others: Sequence[bytes], choose: Choose) -> bytes:
    """Return `data` with a few changes.

    Args:
        data: a valid file, or one that was changed before.
        others: files of which a change may take parts.
        choose: returns a number between two, which makes each decision.
    """
    for _ in range(choose(1, _MOST_CHANGES)):
        change = CHANGES[choose(0, len(CHANGES) - 1)]
        data = change(data, others, choose)
    return data


@st.composite
def mutations(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """Draw a changed file of `seeds`."""
    return mutated(draw(st.sampled_from(seeds)), seeds, lambda low, high: draw(st.integers(low, high)))


def arbitrary(seeds: Sequence[bytes], max_size: int = 400) -> st.SearchStrategy[bytes]:
    """Draw a changed file, or now and then bytes that never were a file."""
    changed = mutations(seeds)
    return st.one_of(changed, changed, changed, st.binary(max_size=max_size))


def _place(length: int, choose: Choose) -> int:
    """A place in a file of this length, or at its end: near the start, near the end, or anywhere."""
    near = min(length, _ENDS)
    return (choose(0, near), length - choose(0, near), choose(0, length))[choose(0, 2)]


def _range(data: bytes, choose: Choose) -> tuple[int, int]:
    start = _place(len(data), choose)
    return start, min(len(data), start + choose(1, _LONGEST))


def _flip_a_bit(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    if not data:
        return data
    at = min(_place(len(data), choose), len(data) - 1)
    return data[:at] + bytes([data[at] ^ 1 << choose(0, 7)]) + data[at + 1 :]


def _set_a_byte(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    at = _place(len(data), choose)
    return data[:at] + bytes([choose(0, 255)]) + data[at + 1 :]


def _cut_the_end(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    return data[: _place(len(data), choose)]


def _cut_out(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    start, end = _range(data, choose)
    return data[:start] + data[end:]


def _grow(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    at = _place(len(data), choose)
    return data[:at] + bytes([choose(0, 255)]) * choose(1, _LONGEST) + data[at:]


def _double(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    start, end = _range(data, choose)
    return data[:end] + data[start:end] * choose(1, 8) + data[end:]


def _move(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    start, end = _range(data, choose)
    rest = data[:start] + data[end:]
    at = _place(len(rest), choose)
    return rest[:at] + data[start:end] + rest[at:]


def _splice(data: bytes, others: Sequence[bytes], choose: Choose) -> bytes:
    other = others[choose(0, len(others) - 1)] if others else data
    start, end = _range(other, choose)
    at = _place(len(data), choose)
    return data[:at] + other[start:end] + data[at + (end - start) * choose(0, 1) :]


def _join(data: bytes, others: Sequence[bytes], choose: Choose) -> bytes:
    other = others[choose(0, len(others) - 1)] if others else data
    return data[: _place(len(data), choose)] + other[_place(len(other), choose) :]


def _number(data: bytes, old: int, choose: Choose) -> int:
    """Another number for one that may be a length: nearly the old one, one of the file's lengths, or one at a type's limits."""
    near = (old + 1, abs(old - 1), 2 * old, len(data), len(data) + 1, abs(len(data) - 8))
    numbers = (*near, *_NUMBERS)
    return numbers[choose(0, len(numbers) - 1)]


def _set_a_fixed_number(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    width = (1, 2, 4, 8)[choose(0, 3)]
    order = _ORDERS[choose(0, 1)]
    at = max(0, min(_place(len(data), choose), len(data) - width))
    old = int.from_bytes(data[at : at + width], order)
    new = _number(data, old, choose) % (1 << 8 * width)
    return data[:at] + new.to_bytes(width, order) + data[at + width :]


def _set_a_varint(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    """Thrift, Avro and protobuf write lengths so: seven bits in a byte, the lowest first. What follows stays where it belongs."""
    start = _place(len(data), choose)
    end = start
    while end < len(data) and data[end] & 0x80 and end - start < 9:
        end += 1
    old = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(data[start : end + 1]))
    new, encoded = _number(data, old, choose), bytearray()
    while new > 0x7F:
        encoded.append(new & 0x7F | 0x80)
        new >>= 7
    return data[:start] + bytes(encoded) + bytes([new]) + data[end + 1 :]


CHANGES: Final[Sequence[Change]] = (
    _flip_a_bit,
    _set_a_byte,
    _cut_the_end,
    _cut_out,
    _grow,
    _double,
    _move,
    _splice,
    _join,
    _set_a_fixed_number,
    _set_a_varint,
)


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    """The same bytes, but for one bit of the byte at an offset; negative ones count from the end."""
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)
