"""Deletion vectors: the bitmap of a data file's deleted positions, one blob of a Puffin file that is encrypted as a whole (AGS1).

    blob   = length of magic and bitmap, 4 bytes BE | magic D1 D3 39 64 | bitmap | CRC-32 of magic and bitmap, 4 bytes BE
    bitmap = number of parts, 8 bytes LE | for each: high 32 bits of its positions, 4 bytes LE | low 32 bits, a portable Roaring bitmap

content_offset and content_size_in_bytes in the manifest give the blob's place in the plaintext Puffin file, so that only the AGS1 blocks
which hold it are fetched and decrypted.

Raises FormatError, naming the file, for a blob that is not of this form or does not hold as many positions as its manifest says;
TamperedFileError comes from the AGS1 stream.

Iceberg Puffin spec, "deletion-vector-v1 blob type".
"""

from __future__ import annotations

import struct
import zlib
from array import array
from typing import Final

from pyroaring import BitMap64

from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.content_files import key_metadata_of
from tablecrypt.table.deleted_positions import DeletedPositions

MAGIC: Final = b"\xd1\xd3\x39\x64"
_LENGTH: Final = struct.Struct(">I")
_FRAME_LENGTH: Final = 12
_BITMAP_COUNT_LENGTH: Final = 8


def read_deletion_vector(io: EncryptingFileIO, file: EncryptedDataFile, rows: int) -> DeletedPositions:
    """Return the positions that a deletion vector's manifest entry stands for.

    Args:
        io: of the table.
        file: the manifest entry.
        rows: how many the data file has. Memory stays below 24 bytes for each, whatever the vector says.
    """
    offset, size = file.content_offset, file.content_size_in_bytes
    if offset is None or size is None or offset < 0 or size < _FRAME_LENGTH:
        raise FormatError(f"{file.file_path}: a deletion vector without a content_offset and content_size_in_bytes that could be")
    with io.decrypting_input(file.file_path, key_metadata_of(file)).open() as puffin:
        puffin.seek(offset)
        blob = bytes(puffin.read(size))
    if len(blob) != size:
        raise FormatError(f"{file.file_path}: ends inside the deletion vector at {offset}, of {size} bytes")
    return parse_deletion_vector(blob, file.file_path, file.record_count, rows)


def parse_deletion_vector(blob: bytes, location: str, cardinality: int | None = None, rows: int | None = None) -> DeletedPositions:
    """Return the positions in a deletion-vector-v1 blob.

    Args:
        blob: its bytes.
        location: names the file in errors.
        cardinality: how many positions there should be; None for any number.
        rows: how many the data file has, which bounds the positions; None for any positions.
    """
    length = _LENGTH.unpack_from(blob)[0] if len(blob) >= _FRAME_LENGTH else -1
    if length + 2 * _LENGTH.size != len(blob):
        raise FormatError(f"{location}: a deletion vector of {len(blob)} bytes says that it is {length} bytes long")
    framed = blob[_LENGTH.size : -_LENGTH.size]
    if not framed.startswith(MAGIC):
        raise FormatError(f"{location}: a deletion vector begins with {framed[: len(MAGIC)]!r}, not with {MAGIC!r}")
    if zlib.crc32(framed) != _LENGTH.unpack(blob[-_LENGTH.size :])[0]:
        raise FormatError(f"{location}: a deletion vector's CRC-32 is not that of its bytes")
    return DeletedPositions(_positions(framed[len(MAGIC) :], location, cardinality, rows))


def _positions(bitmap: bytes, location: str, cardinality: int | None, rows: int | None) -> array[int]:
    if len(bitmap) < _BITMAP_COUNT_LENGTH:
        raise FormatError(f"{location}: a deletion vector ends inside its bitmap")
    try:
        compressed = BitMap64.deserialize(bitmap)
    except (ValueError, IndexError) as error:
        raise FormatError(f"{location}: a deletion vector's bitmap is not a 64-bit Roaring bitmap") from error
    # A run of 65,536 positions has four bytes: what a vector says is compared before it is expanded.
    if cardinality is not None and len(compressed) != cardinality:
        raise FormatError(f"{location}: a deletion vector of {len(compressed)} positions; its manifest says {cardinality}")
    if rows is not None and compressed and compressed.max() >= rows:
        raise FormatError(f"{location}: a deletion vector names position {compressed.max()} of a data file of {rows} rows")
    try:
        return array("q", compressed.to_array())
    except OverflowError as error:
        raise FormatError(f"{location}: a deletion vector holds a position over 2^63 - 1") from error
