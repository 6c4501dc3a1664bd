"""Rows of data files, by file and position, in the bytes in which executors and driver exchange them.

    positions = count, 4 bytes LE | entry | entry | …
    entry     = task, 8 bytes LE | file, 4 bytes LE | length of the bitmap, 8 bytes LE | bitmap

A file is named by the scan task list that it is in and its index there; the bitmap is a portable 64-bit Roaring bitmap of positions from 0.

Raises FormatError for bytes that are not such positions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tablecrypt.errors import FormatError

FileNumber: TypeAlias = tuple[int, int]
"""The scan task list, and the index in it."""
FilePositions: TypeAlias = Mapping[FileNumber, BitMap64]

_COUNT: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<QIQ")


def bitmap_of(positions: Iterable[pa.Array]) -> BitMap64:
    """Return the positions of int64 arrays without nulls."""
    bitmap = BitMap64()
    for each in positions:
        bitmap |= BitMap64(each.to_pylist())
    return bitmap


def positions_by_file(task: pa.Array, index: pa.Array, position: pa.Array) -> dict[FileNumber, BitMap64]:
    """Group positions by the file that they are in; rows where `task` is null are in none."""
    rows = pa.table({"task": task, "index": index, "position": position}).filter(pc.is_valid(task))
    grouped = rows.group_by(["task", "index"]).aggregate([("position", "list")]).to_pylist()
    return {(row["task"], row["index"]): BitMap64(row["position_list"]) for row in grouped}


def merge_positions(into: dict[FileNumber, BitMap64], others: FilePositions) -> bool:
    """Add positions; whether all of them were new."""
    disjoint = True
    for number, bitmap in others.items():
        known = into.get(number)
        if known is None:
            into[number] = bitmap
            continue
        disjoint = disjoint and not known.intersect(bitmap)
        into[number] = known | bitmap
    return disjoint


def encode_positions(positions: FilePositions) -> bytes:
    """Encode positions."""
    content = bytearray(_COUNT.pack(len(positions)))
    for (task, index), bitmap in positions.items():
        encoded = bitmap.serialize()
        content += _ENTRY.pack(task, index, len(encoded)) + encoded
    return bytes(content)


def decode_positions(content: bytes) -> dict[FileNumber, BitMap64]:
    """Decode positions."""
    try:
        (count,) = _COUNT.unpack_from(content)
        offset = _COUNT.size
        positions: dict[FileNumber, BitMap64] = {}
        for _ in range(count):
            task, index, length = _ENTRY.unpack_from(content, offset)
            offset += _ENTRY.size
            positions[task, index] = BitMap64.deserialize(content[offset : offset + length])
            offset += length
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise FormatError(f"row positions cannot be decoded: {type(error).__name__}") from error
    if offset != len(content):
        raise FormatError(f"{len(content)} bytes of row positions end at byte {offset}")
    return positions
