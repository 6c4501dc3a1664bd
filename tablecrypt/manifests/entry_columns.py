"""The entries of manifests as columns of numbers, for planning: what a filter looks at, and where the rest of each entry lies.

    decompressed records   one after another, as their writer encoded them; an entry is decoded as a whole when more of it is wanted
    numbers                a row for each Column, a column for each entry: a value, or a position in the records; NULL where there is none

Manifests whose headers state the same schema are read together, because a step costs the same for one entry as for hundreds. A manifest
that is not as writers write them is read entry by entry by the strict reader, which refuses what is malformed; what it returns is encoded
regularly and read as the others are.

The records hold the DEKs of data files: they are never pickled and never shown.

Raises FormatError, naming the manifest, for what AvroContainer refuses.

Iceberg table spec, "Manifests".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.typedef import EMPTY_DICT, Record
from pyiceberg.types import StructType

from tablecrypt.errors import FormatError
from tablecrypt.manifests.avro_columns import (
    NULL,
    AvroField,
    Block,
    Bytes,
    Found,
    Irregular,
    Lanes,
    Numbers,
    fields_of,
    find_records,
    items_of,
)
from tablecrypt.manifests.avro_container import AVRO_SCHEMA_KEY, AvroContainer, RecordTypes, read_record
from tablecrypt.manifests.avro_schema import from_avro_json, to_avro_json
from tablecrypt.manifests.records import (
    DATA_FILE_FIELD_ID,
    ENTRY_READ_SCHEMA,
    FILE_CONTENT_FIELD_ID,
    FILE_FORMAT_FIELD_ID,
    ROOT_STRUCT,
    STATUS_FIELD_ID,
    EncryptedDataFile,
    entry_write_schema,
)

ENTRY_TYPES: Final = RecordTypes[ManifestEntry](
    schema=ENTRY_READ_SCHEMA,
    structs={ROOT_STRUCT: ManifestEntry, DATA_FILE_FIELD_ID: EncryptedDataFile},
    enums={STATUS_FIELD_ID: ManifestEntryStatus, FILE_FORMAT_FIELD_ID: FileFormat, FILE_CONTENT_FIELD_ID: DataFileContent},
)
ManifestContainer: TypeAlias = AvroContainer[ManifestEntry]
_PARTITION_TYPES: Final = RecordTypes[Record](schema=Schema(), structs={ROOT_STRUCT: Record}, enums={})
_PARTITION_FIELD_ID: Final = 102
_RECORD_NAME: Final = "manifest_entry"
_FEW_ENTRIES: Final = 64
"""In so many, maps are read faster one after another than side by side, where a step takes as long for one as for hundreds."""


class Column(IntEnum):
    """What is known of each entry without decoding it. Of bytes: where they begin, and in the column after it where they end."""

    BEGIN = 0
    END = 1
    STATUS = 2
    SNAPSHOT_ID = 3
    SEQUENCE_NUMBER = 4
    FILE_SEQUENCE_NUMBER = 5
    CONTENT = 6
    RECORD_COUNT = 7
    FILE_SIZE = 8
    FIRST_ROW_ID = 9
    PATH = 10
    PATH_END = 11
    PARTITION = 12
    PARTITION_END = 13
    KEY_METADATA = 14
    KEY_METADATA_END = 15
    REFERENCED_DATA_FILE = 16
    REFERENCED_DATA_FILE_END = 17
    FILE_FORMAT = 18
    FILE_FORMAT_END = 19
    VALUE_COUNTS = 20
    NULL_VALUE_COUNTS = 21
    NAN_VALUE_COUNTS = 22
    LOWER_BOUNDS = 23
    UPPER_BOUNDS = 24


POSITIONS: Final = np.array([column in (Column.BEGIN, Column.END) or column >= Column.PATH for column in Column])
"""Which columns are positions in the records."""
_NUMBER_FIELDS: Final = {
    STATUS_FIELD_ID: Column.STATUS,
    1: Column.SNAPSHOT_ID,
    3: Column.SEQUENCE_NUMBER,
    4: Column.FILE_SEQUENCE_NUMBER,
    FILE_CONTENT_FIELD_ID: Column.CONTENT,
    103: Column.RECORD_COUNT,
    104: Column.FILE_SIZE,
    142: Column.FIRST_ROW_ID,
    109: Column.VALUE_COUNTS,
    110: Column.NULL_VALUE_COUNTS,
    137: Column.NAN_VALUE_COUNTS,
    125: Column.LOWER_BOUNDS,
    128: Column.UPPER_BOUNDS,
}
_BYTES_FIELDS: Final = {
    100: Column.PATH,
    _PARTITION_FIELD_ID: Column.PARTITION,
    131: Column.KEY_METADATA,
    143: Column.REFERENCED_DATA_FILE,
    FILE_FORMAT_FIELD_ID: Column.FILE_FORMAT,
}
_KEPT: Final = frozenset({*_NUMBER_FIELDS, *_BYTES_FIELDS})


@dataclass(frozen=True, eq=False, repr=False)
class ManifestColumns:
    """One manifest: its header, its records and the numbers of its entries, as stored; nothing is inherited."""

    header: Mapping[str, str]
    records: bytes
    numbers: Numbers
    avro_schema: str

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("the entries of a manifest hold keys and are never pickled")

    def __len__(self) -> int:
        return int(self.numbers.shape[1])

    @property
    def size(self) -> int:
        """How many bytes of memory it takes, about."""
        return len(self.records) + self.numbers.nbytes + sum(map(len, self.header.values()))


def decode_manifests(containers: Sequence[ManifestContainer]) -> list[ManifestColumns]:
    """Return the columns of each manifest.

    Raises:
        FormatError: a manifest is malformed.
    """
    by_schema: dict[str, list[int]] = defaultdict(list)
    for number, container in enumerate(containers):
        by_schema[container.metadata[AVRO_SCHEMA_KEY]].append(number)
    decoded: dict[int, ManifestColumns] = {}
    for avro_schema, numbers in by_schema.items():
        stored = [_Stored.of(containers[number]) for number in numbers]
        for number, each, columns in zip(numbers, stored, _side_by_side(avro_schema, stored), strict=True):
            decoded[number] = _one_by_one(containers[number], each) if columns is None else columns

    return [decoded[number] for number in range(len(containers))]


def read_entry(avro_schema: str, stored: bytes) -> ManifestEntry:
    """Decode one whole entry of a manifest of this schema."""
    return read_record(avro_schema, ENTRY_TYPES, stored)


def read_partition(avro_schema: str, stored: bytes) -> Record:
    """Decode the partition alone of an entry of a manifest of this schema."""
    return read_record(_partition_schema(avro_schema), _PARTITION_TYPES, stored)


@dataclass(frozen=True)
class _Stored:
    """A manifest's decompressed blocks, and how many records each of them says that it holds."""

    header: Mapping[str, str]
    blocks: list[tuple[int, bytes]]

    @classmethod
    def of(cls, container: ManifestContainer) -> _Stored:
        return cls(container.metadata, list(container.blocks()))


def _side_by_side(avro_schema: str, manifests: Sequence[_Stored]) -> Iterator[ManifestColumns | None]:
    """Yield the columns of each manifest; None for one that cannot be read so."""
    places: list[Block] = []
    at = 0
    for manifest in manifests:
        for count, block in manifest.blocks:
            places.append(Block(at, at + len(block), count))
            at += len(block)

    try:
        fields = _fields(avro_schema)
        joined = b"".join(block for manifest in manifests for _, block in manifest.blocks)
        found, regular = find_records(Bytes(joined), places, fields, FILE_FORMAT_FIELD_ID)
    except Irregular:
        yield from (None for _ in manifests)
        return

    numbers = _numbers(found)
    before = entry = 0

    for manifest in manifests:
        own, is_regular = places[before : before + len(manifest.blocks)], regular[before : before + len(manifest.blocks)]
        before += len(own)
        count = sum(place.count for place, good in zip(own, is_regular, strict=True) if good)
        # A view would keep the numbers of all these manifests in memory for as long as the cache keeps one of them.
        mine = numbers[:, entry : entry + count].copy()
        entry += count
        # Entries are live unless they are DELETED: one of an unknown status would bring its file's rows back.
        if not all(is_regular) or not _are_known(mine):
            yield None
            continue

        begin, end = (own[0].begin, own[-1].end) if own else (0, 0)
        mine[POSITIONS] = np.where(mine[POSITIONS] == NULL, NULL, mine[POSITIONS] - begin)
        yield ManifestColumns(manifest.header, joined[begin:end], mine, avro_schema)


def _are_known(numbers: Numbers) -> bool:
    """Whether every status and content code is known."""
    kinds = np.isin(numbers[Column.STATUS], list(ManifestEntryStatus)), np.isin(numbers[Column.CONTENT], list(DataFileContent))
    return all(bool(each.all()) for each in kinds)


def _numbers(found: Found) -> Numbers:
    numbers = np.full((len(Column), len(found.begins)), NULL, np.int64)
    numbers[Column.BEGIN], numbers[Column.END], numbers[Column.CONTENT] = found.begins, found.ends, DataFileContent.DATA
    for field_id, column in _NUMBER_FIELDS.items():
        if field_id in found.fields:
            numbers[column] = found.fields[field_id][0]
    for field_id, column in _BYTES_FIELDS.items():
        if field_id in found.fields:
            numbers[column], numbers[column + 1] = found.fields[field_id]
    return numbers


def _one_by_one(container: ManifestContainer, stored: _Stored) -> ManifestColumns:
    """Read a manifest entry by entry, and return the columns of the same entries in the regular form."""
    entries = [entry for count, block in stored.blocks for entry in container.records(block, count)]
    schema = entry_write_schema(_partition_type(container.metadata[AVRO_SCHEMA_KEY]))
    output = BytesIO()
    encoder, writer = BinaryEncoder(output), construct_writer(schema)
    for entry in entries:
        writer.write(encoder, entry)
    again = _Stored(container.metadata, [(len(entries), output.getvalue())] if entries else [])
    (columns,) = _side_by_side(to_avro_json(schema, _RECORD_NAME), [again])
    if columns is None:
        raise FormatError(f"{container.location}: its entries cannot be read by column")

    return columns


@lru_cache(maxsize=64)
def _fields(avro_schema: str) -> list[AvroField]:
    return fields_of(from_avro_json(avro_schema), DATA_FILE_FIELD_ID, _KEPT)


@lru_cache(maxsize=64)
def _partition_type(avro_schema: str) -> StructType:
    data_file = from_avro_json(avro_schema).find_field(DATA_FILE_FIELD_ID).field_type
    partition = data_file.field(_PARTITION_FIELD_ID) if isinstance(data_file, StructType) else None
    kind = None if partition is None else partition.field_type
    return kind if isinstance(kind, StructType) else StructType()


@lru_cache(maxsize=64)
def _partition_schema(avro_schema: str) -> str:
    return to_avro_json(Schema(*_partition_type(avro_schema).fields), "partition")


class Statistics:
    """The statistics of columns in some entries, each map read once.

    Args:
        records: what the positions refer to.
        numbers: of the entries, with a row for each Column.
        field_ids: of the columns asked for.
        untold: for some of these, the entries whose statistics of the column do not count.
    """

    def __init__(self, records: Bytes, numbers: Numbers, field_ids: frozenset[int], untold: Mapping[int, Numbers] = EMPTY_DICT) -> None:
        self._records = records
        self._numbers = numbers
        self._field_ids = field_ids
        self._untold = untold
        self._found: dict[Column, dict[int, tuple[Numbers, Numbers]]] = {}

    def counts(self, column: Column, field_id: int) -> Numbers:
        """Return a map of counts' value for one column in each entry."""
        return self._of(column)[field_id][0]

    def bounds(self, column: Column, field_id: int) -> tuple[Numbers, Numbers]:
        """Return where one column's bound begins and ends in each entry."""
        return self._of(column)[field_id]

    def _of(self, column: Column) -> dict[int, tuple[Numbers, Numbers]]:
        if column not in self._found:
            holds_bytes = column in (Column.LOWER_BOUNDS, Column.UPPER_BOUNDS)
            found = self._found[column] = self._look_up(self._numbers[column], holds_bytes)
            for field_id, entries in self._untold.items():
                for values in found[field_id]:
                    values[entries] = NULL
        return self._found[column]

    def _look_up(self, begins: Numbers, holds_bytes: bool) -> dict[int, tuple[Numbers, Numbers]]:
        found = {field_id: (np.full(len(begins), NULL, np.int64), np.full(len(begins), NULL, np.int64)) for field_id in self._field_ids}
        entries = np.flatnonzero(begins >= 0)
        if len(entries) <= _FEW_ENTRIES:
            for row in entries.tolist():
                for field_id, begin, end in items_of(self._records.raw, int(begins[row]), holds_bytes):
                    if field_id in found:
                        found[field_id][0][row], found[field_id][1][row] = begin, end
            return found

        for lanes, part, counts in Lanes(self._records, begins[entries]).parts():
            for items, item in part.each_item(counts):
                keys = item.number()
                values = item.text() if holds_bytes else item.number()
                for field_id, (first, last) in found.items():
                    here = np.flatnonzero(keys == field_id)
                    if len(here):
                        rows = entries[lanes[items[here]]]
                        first[rows], last[rows] = values[here], item.at[here]

        return found
