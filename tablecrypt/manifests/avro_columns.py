"""Avro records read by column: each step of the decoder reads the same field of very many records.

An Avro record says where its next field begins only when the one before has been read, and where the next record begins only at its end. So
a reader goes from byte to byte, and in Python that is slow. Here many records are read side by side, as NumPy arrays of positions, and
where they begin is guessed first and proved afterwards:

    bytes      …| status … path ▲format … sort order | status … path ▲format …|…
    1  guess    each ▲ where the bytes say "PARQUET", "PUFFIN", "AVRO" or "ORC", behind the length of that word: the field file_format
    2  tails    from every ▲ to the end of its record, all of them at once
    3  heads    from every block's first byte, and from every end that was found, to the next ▲
    4  proof    from a block's first byte, head and tail alternate, as often as the block has records, and end where the block ends

What the proof follows is what a reader from byte to byte reads. A guess that is none (a path may say PARQUET too) is not on the way. Where
the proof fails, the records are not as writers write them, or not whole: `Irregular` is raised, and the strict reader has its turn.

Nothing here trusts a length: a position never leaves the bytes, and a record in which one would has failed.

Specification: Avro 1.11, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_required_bytes

Numbers: TypeAlias = npt.NDArray[np.int64]
_Bytes: TypeAlias = npt.NDArray[np.uint8]
Mask: TypeAlias = npt.NDArray[np.bool_]

NULL: Final = int(np.iinfo(np.int64).min)
"""Stands for a number, and for a position, that a record does not have."""
_PADDING: Final = 64
_MOST_SHIFT: Final = 63
_LONG: Final = 2**64 - 1
_MOST_PARTS: Final = 8
"""Writers put a map or an array into one part."""
_MOST_STEPS: Final = 50_000
"""How many columns a map of statistics may have."""
_NUMBERS: Final = (IntegerType, LongType, DateType, TimeType, TimestampType, TimestamptzType)
_TEXTS: Final = (StringType, BinaryType)
_WORDS: Final = tuple(
    bytes([2 * len(word)]) + each.encode() for word in ("PARQUET", "PUFFIN", "AVRO", "ORC") for each in (word, word.lower())
)


class Irregular(Exception):
    """The records of a block cannot be read side by side."""


class Bytes:
    """Bytes, with some zeros behind them that end any number."""

    def __init__(self, data: bytes) -> None:
        self.length = len(data)
        self.raw = data
        self.array: _Bytes = np.frombuffer(data + bytes(_PADDING), np.uint8)
        self._last_bytes: Numbers | None = None

    @property
    def last_bytes(self) -> Numbers:
        """Where a byte lies that would be the last one of a number."""
        if self._last_bytes is None:
            self._last_bytes = np.flatnonzero(self.array < 0x80)
        return self._last_bytes


class Lanes:
    """A position in the bytes for each of many records. `failed` are those that would have left the bytes, or made no sense."""

    def __init__(self, data: Bytes, at: Numbers) -> None:
        self.data = data
        self.at = at.copy()
        self.failed: Mask = np.zeros(len(at), np.bool_)

    def __len__(self) -> int:
        return len(self.at)

    def part(self, lanes: Numbers) -> Lanes:
        """Return some of the lanes, to move on their own."""
        return Lanes(self.data, self.at[lanes])

    def join(self, lanes: Numbers, part: Lanes) -> None:
        """Take back what `part` returned."""
        self.at[lanes] = part.at
        self.failed[lanes] |= part.failed

    def number(self) -> Numbers:
        """Read a number of variable length."""
        # A lane that has left the bytes reads zeros, which end a number: `skip` or the proof fails it afterwards.
        array, at = self.data.array, np.minimum(self.at, self.data.length)
        byte = array[at]
        at += 1
        value = (byte & 0x7F).astype(np.uint64)
        more, shift = np.flatnonzero(byte & 0x80), 7

        while len(more):
            # A 64-bit number has ten bytes at most (Avro, "Binary Encoding"): more would shift its bits out.
            if shift > _MOST_SHIFT:
                self.failed[more] = True
                break
            byte = array[np.minimum(at[more], self.data.length)]
            # The tenth byte has room for one bit. What is above it is cut off here, and `items_of` would read another number.
            if shift == _MOST_SHIFT:
                self.failed[more[byte > 1]] = True
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            more, shift = more[byte >= 0x80], shift + 7

        self.at = at

        return ((value >> np.uint64(1)) ^ (np.uint64(0) - (value & np.uint64(1)))).view(np.int64)

    def skip(self, sizes: Numbers | int) -> None:
        """Move on by some bytes."""
        left = self.data.length - self.at
        wrong = (left < sizes) | (np.less(sizes, 0))
        if wrong.any():
            self.failed |= wrong
            # A failed lane stops at the end of the bytes: the others go on in the same arrays.
            sizes = np.where(wrong, np.maximum(left, 0), sizes)

        self.at = self.at + sizes

    def skip_numbers(self, counts: Numbers) -> None:
        """Move on by some numbers."""
        ends = self.data.last_bytes
        last = np.searchsorted(ends, self.at) + counts - 1
        wrong = (counts < 0) | (counts > self.data.length) | (last >= len(ends))
        self.failed |= wrong
        self.at = np.where(wrong, self.data.length, ends[np.where(wrong, 0, last)] + 1)

    def text(self) -> Numbers:
        """Move over a string or bytes; return where its content begins."""
        sizes = self.number()
        begin = self.at
        self.skip(sizes)
        return begin

    def parts(self) -> Iterator[tuple[Numbers, Lanes, Numbers]]:
        """Yield the parts of a map or an array: which lanes have one, these lanes at its items, how many items each has."""
        open_lanes, lanes = np.arange(len(self)), self
        for _ in range(_MOST_PARTS):
            counts = lanes.number()
            going = np.flatnonzero(counts)
            if lanes is not self:
                self.join(open_lanes, lanes)
            if not len(going):
                return

            open_lanes, counts = open_lanes[going], counts[going]
            lanes = self.part(open_lanes)

            if (counts < 0).any():
                # A negative count comes with the length of its part in bytes, which is read over and never trusted.
                sized = np.flatnonzero(counts < 0)
                part = lanes.part(sized)
                part.number()
                lanes.join(sized, part)
                counts = np.abs(counts)

            yield open_lanes, lanes, counts

        self.failed[open_lanes] = True
        self.at[open_lanes] = self.data.length

    def each_item(self, counts: Numbers) -> Iterator[tuple[Numbers, Lanes]]:
        """Yield which lanes have one more item and these lanes, whose moves are taken back before the next item."""
        here = np.arange(len(self))
        for step in range(_MOST_STEPS):
            here = here[(counts[here] > step) & ~self.failed[here]]
            if not len(here):
                return

            if len(here) == len(self):
                yield here, self
            else:
                part = self.part(here)
                yield here, part
                self.join(here, part)

        self.failed[here] = True


Step: TypeAlias = Callable[[Lanes], Numbers]
"""Moves lanes over a value and returns the value of a number, or where the content of another value begins."""


@dataclass(frozen=True)
class AvroField:
    """One field of a record: how it is passed, whether it may be null, and under which id it is kept (None: it is not)."""

    field_id: int
    step: Step
    required: bool
    kept: bool

    def read(self, lanes: Lanes, found: dict[int, tuple[Numbers, Numbers]]) -> None:
        """Move the lanes over the field; keep what its step returned, and where it ended."""
        chosen = None if self.required else np.flatnonzero(lanes.number() > 0)
        if chosen is None or len(chosen) == len(lanes):
            value = self.step(lanes)
            if self.kept:
                found[self.field_id] = value, lanes.at.copy()
            return

        values, ends = (np.full(len(lanes), NULL, np.int64) for _ in range(2))

        if len(chosen):
            part = lanes.part(chosen)
            values[chosen] = self.step(part)
            ends[chosen] = part.at
            lanes.join(chosen, part)

        if self.kept:
            found[self.field_id] = values, ends


def fields_of(schema: Schema, inlined: int, kept: frozenset[int]) -> list[AvroField]:
    """Return the fields of a writer's record in their order, with those of the struct field `inlined` in its place.

    Raises:
        Irregular: a type for which there is no step.
    """
    flat: list[NestedField] = []
    for field in schema.fields:
        if field.field_id != inlined:
            flat.append(field)
        elif not field.required or not isinstance(field.field_type, StructType):
            raise Irregular(f"the record's field {field.name} is no struct that is always there")
        else:
            flat.extend(field.field_type.fields)

    return [AvroField(field.field_id, _step_of(field.field_type), field.required, field.field_id in kept) for field in flat]


def _step_of(kind: IcebergType) -> Step:
    if isinstance(kind, _NUMBERS):
        return Lanes.number
    if isinstance(kind, _TEXTS):
        return Lanes.text
    if (size := _fixed_size(kind)) is not None:
        return partial(_pass_fixed, size=size)
    if isinstance(kind, StructType):
        return partial(
            _pass_struct, fields=[AvroField(each.field_id, _step_of(each.field_type), each.required, False) for each in kind.fields]
        )

    if isinstance(kind, MapType) and isinstance(kind.key_type, IntegerType) and kind.value_required:
        if isinstance(kind.value_type, _NUMBERS):
            return partial(_pass_numbers, each=2)
        if isinstance(kind.value_type, BinaryType):
            return _pass_texts_by_number

    if isinstance(kind, ListType) and kind.element_required and isinstance(kind.element_type, _NUMBERS):
        return partial(_pass_numbers, each=1)

    raise Irregular(f"no manifest has a field of type {kind}")


def _fixed_size(kind: IcebergType) -> int | None:
    if isinstance(kind, DecimalType):
        return decimal_required_bytes(kind.precision)
    if isinstance(kind, FixedType):
        return len(kind)
    sizes: dict[type[IcebergType], int] = {BooleanType: 1, FloatType: 4, DoubleType: 8, UUIDType: 16, UnknownType: 0}
    return sizes.get(type(kind))


def _pass_fixed(lanes: Lanes, size: int) -> Numbers:
    begin = lanes.at
    lanes.skip(size)
    return begin


def _pass_struct(lanes: Lanes, fields: Sequence[AvroField]) -> Numbers:
    begin = lanes.at.copy()
    for field in fields:
        field.read(lanes, {})
    return begin


def _pass_numbers(lanes: Lanes, each: int) -> Numbers:
    begin = lanes.at.copy()
    for _, part, counts in lanes.parts():
        # Clamped before it is multiplied: a count near 2^63 would wrap around to a small one.
        part.skip_numbers(np.minimum(counts, part.data.length + 1) * each)
    return begin


def _pass_texts_by_number(lanes: Lanes) -> Numbers:
    begin = lanes.at.copy()
    for _, part, counts in lanes.parts():
        for _, item in part.each_item(counts):
            item.number()
            item.text()
    return begin


@dataclass(frozen=True)
class Block:
    """Decompressed records: where they begin and end in the bytes, and how many they are."""

    begin: int
    end: int
    count: int


@dataclass(frozen=True)
class Found:
    """Records in their order: where each begins and ends, and of each kept field the value or begin, and the end."""

    begins: Numbers
    ends: Numbers
    fields: Mapping[int, tuple[Numbers, Numbers]]


def find_records(data: Bytes, blocks: Sequence[Block], fields: Sequence[AvroField], format_field: int) -> tuple[Found, list[bool]]:
    """Return the records of all blocks whose records can be read side by side, and for each block whether it is one of these.

    Raises:
        Irregular: the record has no field `format_field`.
    """
    cut = next((number for number, field in enumerate(fields) if field.field_id == format_field and field.required), None)
    if cut is None:
        raise Irregular("the record has no format")

    guesses = _guesses(data.raw)
    tails, heads = Lanes(data, guesses), Lanes(data, np.array([block.begin for block in blocks], np.int64))
    behind: dict[int, tuple[Numbers, Numbers]] = {}
    for field in fields[cut:]:
        field.read(tails, behind)
    begins = np.concatenate([heads.at, tails.at])
    heads = Lanes(data, begins)
    before: dict[int, tuple[Numbers, Numbers]] = {}
    for field in fields[:cut]:
        field.read(heads, before)
    taken, taken_heads, regular = _followed(blocks, tails, heads, guesses)
    kept = {each: (value[taken], end[taken]) for each, (value, end) in behind.items()}
    kept |= {each: (value[taken_heads], end[taken_heads]) for each, (value, end) in before.items()}

    return Found(begins[taken_heads], tails.at[taken], kept), regular


def items_of(raw: bytes, at: int, holds_bytes: bool) -> Iterator[tuple[int, int, int]]:
    """Yield the items of one map by numbers, of a record that was proved: the key, the value, and where the value ends.

    Args:
        raw: what the record lies in.
        at: where the map begins.
        holds_bytes: whether values are bytes, of which where they begin is yielded, and not numbers.
    """
    count, at = _number(raw, at)
    while count:
        if count < 0:
            count, (_, at) = -count, _number(raw, at)
        for _ in range(count):
            key, at = _number(raw, at)
            value, at = _number(raw, at)
            if holds_bytes:
                value, at = at, at + value
            yield key, value, at
        count, at = _number(raw, at)


def _number(raw: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    value, shift = raw[at] & 0x7F, 7
    while raw[at] & 0x80:
        at += 1
        value |= (raw[at] & 0x7F) << shift
        shift += 7
    # A count of more than 64 bits, which whoever may commit can have in an entry, must not end a plan: no array holds it.
    value &= _LONG
    return (value >> 1) ^ -(value & 1), at + 1


def _guesses(raw: bytes) -> Numbers:
    found: list[int] = []
    for word in _WORDS:
        at = raw.find(word)
        while at >= 0:
            found.append(at)
            at = raw.find(word, at + 1)
    return np.array(sorted(found), np.int64)


def _followed(blocks: Sequence[Block], tails: Lanes, heads: Lanes, guesses: Numbers) -> tuple[Numbers, Numbers, list[bool]]:
    """Follow each block from head to tail; return the tails and heads on the way, and which blocks end as they should."""
    lane = np.minimum(np.searchsorted(guesses, heads.at), max(len(guesses) - 1, 0))
    is_guess = (guesses[lane] == heads.at) & ~heads.failed & ~tails.failed[lane] if len(guesses) else np.zeros(len(heads), np.bool_)
    tail_of, ends = np.where(is_guess, lane, -1).tolist(), tails.at.tolist()
    taken: list[int] = []
    taken_heads: list[int] = []
    regular: list[bool] = []

    for number, block in enumerate(blocks):
        begun, head, end = len(taken), number, block.begin
        for _ in range(block.count):
            tail = tail_of[head]
            if tail < 0:
                break
            taken.append(tail)
            taken_heads.append(head)
            head, end = len(blocks) + tail, ends[tail]

        regular.append(end == block.end and len(taken) - begun == block.count)
        if not regular[-1]:
            # One entry that does not fit makes the guesses of its whole block worthless: the strict reader takes the manifest.
            del taken[begun:], taken_heads[begun:]

    return np.array(taken, np.int64), np.array(taken_heads, np.int64), regular
