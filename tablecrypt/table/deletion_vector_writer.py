"""Writing deletion vectors: one Puffin file, encrypted as a whole (AGS1), holds the vectors of one change.

    plaintext = "PFA1" | blob 0 | blob 1 | … | footer
    blob      = length of magic and bitmap, 4 bytes BE | magic D1 D3 39 64 | bitmap | CRC-32 of magic and bitmap, 4 bytes BE
    bitmap    = number of parts, 8 bytes LE | for each: high 32 bits of its positions, 4 bytes LE | low 32 bits, a portable Roaring bitmap
    footer    = "PFA1" | JSON | length of the JSON, 4 bytes LE | flags, 4 bytes of zero | "PFA1"

The JSON names each blob's type, offset and length, the data file it is about and how many positions it holds. Every entry of the delete
manifest has the Puffin file's own DEK, and content_offset and content_size_in_bytes of its blob in the plaintext.

Iceberg Puffin spec, "File structure" and "deletion-vector-v1 blob type"; table spec, "Deletion Vectors".
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyroaring import BitMap64

from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.deletion_vector import MAGIC
from tablecrypt.table.table_file_io import TableFileIO

PUFFIN_MAGIC: Final = b"PFA1"
BLOB_TYPE: Final = "deletion-vector-v1"
ROW_POSITION_FIELD_ID: Final = 2147483645
_LENGTH: Final = struct.Struct(">I")
_FOOTER_END: Final = struct.Struct("<II")


@dataclass(frozen=True)
class DeletionVector:
    """The positions, from 0, of all deleted rows of one data file."""

    data_file: DataFile
    positions: BitMap64


def write_deletion_vectors(io: TableFileIO, location: str, vectors: Sequence[DeletionVector]) -> list[EncryptedDataFile]:
    """Write vectors into one Puffin file and return the delete files that a manifest lists, one for each vector.

    Args:
        io: the table's FileIO; the Puffin file gets a DEK of its own.
        location: where the Puffin file goes.
        vectors: at least one; none of them empty, and no two for one data file.
    """
    content = bytearray(PUFFIN_MAGIC)
    places: list[tuple[int, int]] = []
    for vector in vectors:
        blob = encode_deletion_vector(vector.positions)
        places.append((len(content), len(blob)))
        content += blob
    content += _footer(vectors, places)

    output = io.new_encrypted_output(location)
    with output.create() as stream:
        stream.write(bytes(content))
    return [
        _delete_file(vector, place, location, len(output), output.key_metadata.encode())
        for vector, place in zip(vectors, places, strict=True)
    ]


def encode_deletion_vector(positions: BitMap64) -> bytes:
    """Return a deletion-vector-v1 blob."""
    compact = positions.copy()
    compact.run_optimize()
    framed = MAGIC + compact.serialize()
    return _LENGTH.pack(len(framed)) + framed + _LENGTH.pack(zlib.crc32(framed))


def _footer(vectors: Sequence[DeletionVector], places: list[tuple[int, int]]) -> bytes:
    blobs = [
        {
            "type": BLOB_TYPE,
            "fields": [ROW_POSITION_FIELD_ID],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": offset,
            "length": length,
            "properties": {"referenced-data-file": vector.data_file.file_path, "cardinality": str(len(vector.positions))},
        }
        for vector, (offset, length) in zip(vectors, places, strict=True)
    ]
    payload = json.dumps({"blobs": blobs, "properties": {"created-by": "tablecrypt"}}, separators=(",", ":")).encode()
    return PUFFIN_MAGIC + payload + _FOOTER_END.pack(len(payload), 0) + PUFFIN_MAGIC


def _delete_file(vector: DeletionVector, place: tuple[int, int], location: str, file_length: int, key_metadata: bytes) -> EncryptedDataFile:
    offset, length = place
    file = EncryptedDataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PUFFIN,
        partition=vector.data_file.partition,
        record_count=len(vector.positions),
        file_size_in_bytes=file_length,
        key_metadata=key_metadata,
        referenced_data_file=vector.data_file.file_path,
        content_offset=offset,
        content_size_in_bytes=length,
    )
    file.spec_id = vector.data_file.spec_id
    return file
