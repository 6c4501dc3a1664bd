"""Manifests in memory: their plaintext as different writers lay it out, and their entries in columns."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from tablecrypt.manifests import EncryptedManifestFile
from tablecrypt.manifests.avro_container import AvroContainer, BlockAvroOutputFile
from tablecrypt.manifests.entries import Entries, decode_manifests
from tablecrypt.manifests.manifest_file import ENTRY_TYPES
from tablecrypt.manifests.records import EncryptedDataFile, entry_records
from tests.support.manifests import SNAPSHOT_ID, UNPARTITIONED

LOCATION = "s3://bucket/metadata/m.avro"


class _Kept(io.BytesIO):
    content = b""

    def close(self) -> None:
        self.content = self.getvalue()
        super().close()


class _Memory(OutputFile):
    def __init__(self) -> None:
        super().__init__("memory")
        self.stream = _Kept()

    def __len__(self) -> int:
        return len(self.stream.content)

    def exists(self) -> bool:
        return False

    def create(self, overwrite: bool = False) -> OutputStream:
        return self.stream

    def to_input_file(self) -> InputFile:
        raise NotImplementedError


def manifest_bytes(
    entries: Sequence[ManifestEntry], schema: Schema, spec: PartitionSpec = UNPARTITIONED, compression: str = "null", together: int = 10**6
) -> bytes:
    """Return a manifest of data files. In each of its blocks are so many records `together` as its writer gives it in one call.

    Iceberg Java fills a block with 64,000 bytes; PyIceberg makes one for each record.
    """
    header = {
        "schema": schema.model_dump_json(),
        "partition-spec": json.dumps([field.model_dump(mode="json", by_alias=True) for field in spec.fields]),
        "partition-spec-id": str(spec.spec_id),
        "format-version": "3",
        "content": "data",
    }
    memory = _Memory()
    written = entry_records(spec.partition_type(schema))
    with BlockAvroOutputFile[ManifestEntry](memory, written, header, compression) as output:
        for begin in range(0, len(entries), together):
            output.write_block(list(entries[begin : begin + together]))
            output._flush()
    return memory.stream.content


def manifest_row(**fields: Any) -> EncryptedManifestFile:
    """A manifest list's row."""
    defaults = {
        "manifest_path": LOCATION,
        "partition_spec_id": 0,
        "content": ManifestContent.DATA,
        "sequence_number": 9,
        "added_snapshot_id": SNAPSHOT_ID,
        "first_row_id": 100,
    }
    return EncryptedManifestFile.from_args(**{**defaults, **fields})


def entries_of(*manifests: tuple[EncryptedManifestFile, bytes]) -> Entries:
    """Return the live entries of manifests."""
    containers = [AvroContainer(content, row.manifest_path, ENTRY_TYPES) for row, content in manifests]
    return Entries.of(list(zip([row for row, _ in manifests], decode_manifests(containers), strict=True)))


def entries_of_files(files: Sequence[DataFile], schema: Schema, spec: PartitionSpec) -> Entries:
    """Return the entries of files of one partition spec."""
    added = [ManifestEntry(ManifestEntryStatus.ADDED, SNAPSHOT_ID, None, None, file) for file in files]
    return entries_of((manifest_row(partition_spec_id=spec.spec_id), manifest_bytes(added, schema, spec)))


def values_of(entry: ManifestEntry) -> list[Any]:
    """Return all that an entry and its file hold, so that two readers can be compared."""
    file = EncryptedDataFile.of(entry.data_file)
    numbers = [entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, file.spec_id]
    return [*numbers, *(plain_value(file[position]) for position in range(len(file)))]


def plain_value(value: Any) -> Any:
    """Return a value of an entry as lists and dictionaries, which compare by what they hold."""
    if isinstance(value, Record):
        return [value[position] for position in range(len(value))]
    return dict(value) if hasattr(value, "keys") else value


def varint(value: int) -> bytes:
    """A number as Avro writes it: zig-zag, seven bits in a byte."""
    left = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*encoded, left])
