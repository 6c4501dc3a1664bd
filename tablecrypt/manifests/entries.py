"""What planning reads of manifests: their live entries in columns, with all that they inherit, and their files as objects on demand.

    decompressed records   one after another, as their writer encoded them; an entry is decoded as a whole when more of it is wanted
    numbers                a row for each Column, a column for each entry: a value, or a position in the records; NULL where there is none

Manifests whose headers state the same schema are read together, because a step costs the same for one entry as for hundreds. A manifest
that is not as writers write them is read entry by entry by the strict reader, which refuses what is malformed; what it returns is encoded
regularly and read as the others are.

What an entry inherits is what manifest_file.py says; here it is worked out for all entries at once. A file's object knows a few fields from
the columns and becomes an ordinary EncryptedDataFile, decoded as a whole, when another one is asked for or one is set.

Manifest lists and manifests never change, so what was decoded is kept, and a second plan need not read them again:

    manifest list ──not kept──▶ fetched, decrypted, decoded ──▶ kept ──▶ rows
    manifests ──not kept──▶ fetched and decrypted in parallel, some MiB at a time ──decoded together──▶ kept ──▶ Entries
        └──────kept─────────────────────────────────────────────────────────────────────────────────────────▶

Each is kept under its location and its key metadata. So only a holder of the key gets it, and a file that was swapped for another has
another key. What is kept was authenticated when it was read; what it says is held against the metadata of each table that reads it, and
each reader gets copies. The cache belongs to the process, which all tables share, and the longest unused goes first;
`io.manifest.cache.max-total-bytes` says how much stays. It holds keys of manifests and of data files in memory: a forked child starts with
an empty one. What holds them is never pickled and never shown.

Raises:
    PlaintextRefusedError: a live file has no key metadata.
    FormatError: an entry cannot be decoded, or a manifest is malformed, naming the manifest.
    Further what read_manifest_list and EncryptedManifestFile.read raise.

Iceberg table spec, "Manifests", "Sequence Number Inheritance", "First Row ID Inheritance".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, NoReturn, Protocol, TypeAlias, TypeVar

import numpy as np
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.io import FileIO
from pyiceberg.manifest import UNASSIGNED_SEQ, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.typedef import EMPTY_DICT, Record
from pyiceberg.types import StructType
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt._per_process import SizeBoundedCache
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, encrypting_io
from tablecrypt.manifests.avro_columns import (
    NULL,
    AvroField,
    Block,
    Bytes,
    Found,
    Irregular,
    Lanes,
    Mask,
    Numbers,
    fields_of,
    find_records,
    items_of,
)
from tablecrypt.manifests.avro_container import AVRO_SCHEMA_KEY, RecordTypes, read_record
from tablecrypt.manifests.avro_schema import from_avro_json, to_avro_json
from tablecrypt.manifests.manifest_file import ENTRY_TYPES, EncryptedManifestFile, ManifestContainer, open_manifest
from tablecrypt.manifests.manifest_list import ManifestList, read_manifest_list
from tablecrypt.manifests.records import (
    DATA_FILE_FIELD_ID,
    FILE_CONTENT_FIELD_ID,
    FILE_FORMAT_FIELD_ID,
    FIRST_ROW_ID,
    ROOT_STRUCT,
    STATUS_FIELD_ID,
    EncryptedDataFile,
    entry_write_schema,
)
from tablecrypt.properties import MANIFEST_CACHE_BYTES

BATCH_BYTES: Final = 4 * 1024 * 1024
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


class _SignedEncoder(BinaryEncoder):
    """Writes what PyIceberg's compiled decoder reads: numbers below zero of a list come without their sign, -1 as 2^64 - 1."""

    def write_int(self, integer: int) -> None:
        super().write_int(integer - 2**64 if integer >= 2**63 else integer)


def _one_by_one(container: ManifestContainer, stored: _Stored) -> ManifestColumns:
    """Read a manifest entry by entry, and return the columns of the same entries in the regular form."""
    entries = [entry for count, block in stored.blocks for entry in container.records(block, count)]
    schema = entry_write_schema(_partition_type(container.metadata[AVRO_SCHEMA_KEY]))
    output = BytesIO()
    encoder, writer = _SignedEncoder(output), construct_writer(schema)
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


class Entries:
    """Entries of manifests, in the manifests' order and in that of each file. Made by `of`."""

    def __init__(
        self, records: bytes, numbers: Numbers, source: Numbers, manifests: Sequence[EncryptedManifestFile], schemas: Sequence[str]
    ) -> None:
        self.records = records
        self.numbers = numbers
        self.manifests = manifests
        self._source = source
        self._schemas = schemas
        self._read_partitions: dict[tuple[str, bytes], Record] = {}

    @classmethod
    def of(cls, manifests: Sequence[tuple[EncryptedManifestFile, ManifestColumns]]) -> Entries:
        """Return the live entries of these manifests, which have inherited what is theirs."""
        rows, columns = [row for row, _ in manifests], [each for _, each in manifests]
        begins = np.cumsum([0, *(len(each.records) for each in columns)])
        source = np.repeat(np.arange(len(columns)), [len(each) for each in columns])
        numbers = np.concatenate([each.numbers for each in columns], axis=1)
        # A position that is not there stays below zero.
        numbers[POSITIONS] += begins[source]
        entries = cls(b"".join(each.records for each in columns), numbers, source, rows, [each.avro_schema for each in columns])
        entries._inherit()

        return entries.only(np.flatnonzero(numbers[Column.STATUS] != ManifestEntryStatus.DELETED))

    def __len__(self) -> int:
        return int(self.numbers.shape[1])

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("the entries of manifests hold keys and are never pickled: wrap a file's key under a key of the other side instead")

    def only(self, rows: Numbers) -> Entries:
        """Return the entries at `rows`. If fewer than half are kept, only their records are copied."""
        if len(rows) == len(self):
            return self

        numbers, records = self.numbers[:, rows], self.records
        if 2 * len(rows) < len(self):
            begins, ends = numbers[Column.BEGIN], numbers[Column.END]
            records = b"".join([self.records[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)])
            moved = np.cumsum(ends - begins) - ends
            numbers[POSITIONS] = np.where(numbers[POSITIONS] < 0, NULL, numbers[POSITIONS] + moved)

        return Entries(records, numbers, self._source[rows], self.manifests, self._schemas)

    def number(self, column: Column, row: int) -> int | None:
        """Return a number of an entry."""
        value = int(self.numbers[column, row])
        return None if value == NULL else value

    def stored(self, column: Column, row: int) -> bytes | None:
        """Return the bytes of an entry that begin at a column and end at the one after it."""
        begin = int(self.numbers[column, row])
        return None if begin < 0 else self.records[begin : int(self.numbers[column + 1, row])]

    def text(self, column: Column, row: int) -> str | None:
        """Return a text of an entry.

        Raises:
            FormatError: it is not UTF-8.
        """
        stored = self.stored(column, row)
        try:
            return None if stored is None else stored.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"{self.manifest_of(row).manifest_path}: the name of a file is not UTF-8") from error

    def manifest_of(self, row: int) -> EncryptedManifestFile:
        """Return the manifest that an entry is in."""
        return self.manifests[int(self._source[row])]

    def statistics(self, field_ids: frozenset[int], told_until: Mapping[int, int | None] = EMPTY_DICT) -> Statistics:
        """Return the statistics of some columns of the table.

        Args:
            field_ids: of the columns.
            told_until: by field id, the data sequence number of the last entries whose statistics of it count; None: none do.
        """
        numbers = self.numbers[Column.SEQUENCE_NUMBER]
        untold = {
            field_id: np.flatnonzero((numbers < 0) | (numbers > (-1 if since is None else since)))
            for field_id, since in told_until.items()
            if field_id in field_ids
        }
        return Statistics(Bytes(self.records), self.numbers, field_ids, untold)

    def partitions(self) -> tuple[list[tuple[int, Record]], list[int]]:
        """Return the spec and values of each partition that occurs, and which of these each entry is in."""
        begins, ends = self.numbers[Column.PARTITION].tolist(), self.numbers[Column.PARTITION_END].tolist()
        spec_ids = [manifest.partition_spec_id for manifest in self.manifests]
        sources, records, schemas = self._source.tolist(), self.records, self._schemas
        keys = [(spec_ids[source], schemas[source], records[begin:end]) for source, begin, end in zip(sources, begins, ends, strict=True)]
        first: dict[tuple[int, str, bytes], int] = {}
        for row, key in enumerate(keys):
            first.setdefault(key, row)
        places = {key: place for place, key in enumerate(first)}

        return [(key[0], self.partition(row)) for key, row in first.items()], [places[key] for key in keys]

    def partition(self, row: int) -> Record:
        """Return an entry's partition; entries of the same share one Record."""
        schema = self._schemas[int(self._source[row])]
        stored = self.stored(Column.PARTITION, row) or b""
        known = self._read_partitions.get((schema, stored))

        if known is None:
            try:
                known = read_partition(schema, stored)
            except FormatError as error:
                raise FormatError(f"{self.manifest_of(row).manifest_path}: a partition: {error}") from error
            self._read_partitions[schema, stored] = known

        return known

    def file(self, row: int) -> EncryptedDataFile:
        """Return an entry's data or delete file, a new object each time."""
        return _StoredFile(self, row)

    def entry(self, row: int) -> ManifestEntry:
        """Return an entry."""
        status, snapshot_id = ManifestEntryStatus(int(self.numbers[Column.STATUS, row])), self.number(Column.SNAPSHOT_ID, row)
        numbers = (self.number(column, row) for column in (Column.SEQUENCE_NUMBER, Column.FILE_SEQUENCE_NUMBER))
        return ManifestEntry(status, snapshot_id, *numbers, self.file(row))

    def decoded(self, row: int) -> EncryptedDataFile:
        """Decode an entry's file as a whole."""
        manifest = self.manifest_of(row)
        try:
            file = read_entry(self._schemas[int(self._source[row])], self.stored(Column.BEGIN, row) or b"").data_file
        except FormatError as error:
            raise FormatError(f"{manifest.manifest_path}: {error}") from error

        file = EncryptedDataFile.of(file)
        file[FIRST_ROW_ID] = self.number(Column.FIRST_ROW_ID, row)

        return file

    def _inherit(self) -> None:
        numbers, source = self.numbers, self._source
        manifest_numbers = _of_manifests([manifest.sequence_number for manifest in self.manifests])[source]
        snapshot_ids = _of_manifests([manifest.added_snapshot_id for manifest in self.manifests])[source]
        status = numbers[Column.STATUS]
        _fill(numbers[Column.SNAPSHOT_ID], snapshot_ids, np.ones(len(self), np.bool_))
        # A manifest of sequence number 0 is from before version 2, whose entries have no numbers at all.
        inherits = (status == ManifestEntryStatus.ADDED) | (manifest_numbers == 0)
        _fill(numbers[Column.SEQUENCE_NUMBER], manifest_numbers, inherits)
        _fill(numbers[Column.FILE_SEQUENCE_NUMBER], manifest_numbers, inherits)
        live = status != ManifestEntryStatus.DELETED
        self._refuse_plaintext(live)
        self._inherit_row_ids(live, manifest_numbers)

    def _refuse_plaintext(self, live: Mask) -> None:
        begins, ends = self.numbers[Column.KEY_METADATA], self.numbers[Column.KEY_METADATA_END]
        # Empty key metadata counts as none: such an entry names a plaintext file, which any writer of the storage could exchange.
        for row in np.flatnonzero(live & ((begins < 0) | (ends <= begins)))[:1].tolist():
            path = self.text(Column.PATH, row) or ""
            raise PlaintextRefusedError(path, f"the entry in {self.manifest_of(row).manifest_path} has no key metadata")

    def _inherit_row_ids(self, live: Mask, manifest_numbers: Numbers) -> None:
        own, counts = self.numbers[Column.FIRST_ROW_ID], self.numbers[Column.RECORD_COUNT]
        first = _of_manifests([manifest.first_row_id for manifest in self.manifests])[self._source]
        assigned = (first != NULL) & live & (own == NULL)
        taken = np.cumsum(np.where(assigned, counts, 0))
        before = taken - np.where(assigned, counts, 0)
        # The first entry of each manifest begins its manifest's own count.
        _, starts = np.unique(self._source, return_index=True)
        base = np.zeros(len(self.manifests), np.int64)
        base[self._source[starts]] = before[starts]
        keeps = (first != NULL) | (manifest_numbers == UNASSIGNED_SEQ)
        # An entry that has an id moves nothing, so the count begins with the first one that gets its id here.
        own[:] = np.where(assigned, first + before - base[self._source], np.where(keeps, own, NULL))


def _of_manifests(values: Sequence[int | None]) -> Numbers:
    return np.array([NULL if value is None else value for value in values], np.int64)


def _fill(own: Numbers, inherited: Numbers, where: Mask) -> None:
    lacks = (own == NULL) & where
    own[lacks] = inherited[lacks]


class _StoredFile(EncryptedDataFile):
    """A file that its entry's bytes describe. It becomes an EncryptedDataFile when more is asked for than the columns say."""

    def __init__(self, entries: Entries, row: int) -> None:
        # Without PyIceberg's __init__ the fields are absent, which is how __getattr__ learns that one is asked for.
        self._entries = entries
        self._row = row
        self.spec_id = entries.manifest_of(row).partition_spec_id

    @property
    def content(self) -> DataFileContent:
        """Data, position deletes or equality deletes."""
        entries = self._stored
        return super().content if entries is None else DataFileContent(int(entries.numbers[Column.CONTENT, self._row]))

    @property
    def file_path(self) -> str:
        """Where the file lies."""
        entries = self._stored
        return super().file_path if entries is None else entries.text(Column.PATH, self._row) or ""

    @property
    def file_format(self) -> FileFormat:
        """Parquet, Avro, ORC or Puffin."""
        entries = self._stored
        return super().file_format if entries is None else FileFormat(entries.text(Column.FILE_FORMAT, self._row))

    @property
    def partition(self) -> Record:
        """The partition's values."""
        entries = self._stored
        return super().partition if entries is None else entries.partition(self._row)

    @property
    def record_count(self) -> int:
        """How many rows the file has."""
        entries = self._stored
        return super().record_count if entries is None else entries.number(Column.RECORD_COUNT, self._row) or 0

    @property
    def file_size_in_bytes(self) -> int:
        """How many bytes are stored."""
        entries = self._stored
        return super().file_size_in_bytes if entries is None else entries.number(Column.FILE_SIZE, self._row) or 0

    @property
    def key_metadata(self) -> bytes | None:
        """The file's DEK, AAD prefix and length."""
        entries = self._stored
        return super().key_metadata if entries is None else entries.stored(Column.KEY_METADATA, self._row)

    @property
    def first_row_id(self) -> int | None:
        """The _row_id of the file's first row."""
        entries = self._stored
        return super().first_row_id if entries is None else entries.number(Column.FIRST_ROW_ID, self._row)

    @property
    def referenced_data_file(self) -> str | None:
        """The one data file that all of a delete file's deletes refer to."""
        entries = self._stored
        return super().referenced_data_file if entries is None else entries.text(Column.REFERENCED_DATA_FILE, self._row)

    @property
    def _stored(self) -> Entries | None:
        # None where another thread has just decoded the file.
        return vars(self).get("_entries")

    def _decode(self) -> None:
        entries = self._stored
        if entries is not None:
            super().__init__(*entries.decoded(self._row).values())
            # All fields are there before the class changes, and `_entries` goes last: another thread sees a whole file at each step.
            self.__class__ = EncryptedDataFile  # type: ignore[assignment]
            for name in ("_entries", "_row"):
                vars(self).pop(name, None)

    def __getattr__(self, name: str) -> Any:
        """Bring in the fields: called for what is absent, as they are at first."""
        # copy, pickle and pydantic ask for special methods by name: that must not decode the file.
        if self._stored is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._decode()
        return getattr(self, name)

    def __copy__(self) -> EncryptedDataFile:  # type: ignore[override]
        self._decode()
        return copy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> EncryptedDataFile:  # type: ignore[override]
        self._decode()
        return deepcopy(self, memo)


class Kept(Protocol):
    """Something decoded that the cache keeps."""

    @property
    def size(self) -> int:
        """How many bytes of memory it takes, about."""


K = TypeVar("K", bound=Kept)
_Key: TypeAlias = tuple[type[Kept], str, bytes]


class ManifestCache(SizeBoundedCache[_Key, Kept]):
    """Decoded manifest lists and manifests by location and key metadata, with the keys of files in them."""

    def get(self, kind: type[K], location: str, key_metadata: bytes) -> K | None:
        """Return what is kept of this kind from that location and under that key."""
        found = self.find((kind, location, key_metadata))
        return found if isinstance(found, kind) else None

    def put(self, location: str, key_metadata: bytes, decoded: Kept, limit: int) -> None:
        """Keep what was decoded, and of all no more than `limit` bytes."""
        self.keep((type(decoded), location, key_metadata), decoded, decoded.size, limit)


CACHE: Final = ManifestCache()


def known_manifest_list(io: EncryptingFileIO, location: str, key_metadata: StandardKeyMetadata) -> ManifestList:
    """Return what `read_manifest_list` does, without reading a list that is kept. The rows are the caller's own.

    Raises:
        As `read_manifest_list`, for a list that is not kept.
    """
    limit = MANIFEST_CACHE_BYTES.whole_number(io.inner.properties)
    # The encoded key metadata has the DEK in it. It is in no local: what reading raises keeps those of this frame.
    kept = CACHE.get(ManifestList, location, key_metadata.encode()) if limit else None
    if kept is None:
        kept = read_manifest_list(io, location, key_metadata)
        CACHE.put(location, key_metadata.encode(), kept, limit)
    return kept.copied()


def read_in_columns(io: FileIO, manifests: Sequence[EncryptedManifestFile], batch_bytes: int = BATCH_BYTES) -> Iterator[Entries]:
    """Yield the live entries of manifests, of as many together as are read together.

    Args:
        io: of the table.
        manifests: in the order of their entries.
        batch_bytes: how many stored bytes of them are decoded together, at least.

    Raises:
        ConfigurationError: `io` is no EncryptingFileIO.
        PlaintextRefusedError, AuthenticationError, FormatError: as EncryptedManifestFile.fetch_manifest_entry.
    """
    for batch in _batches(manifests, batch_bytes):
        columns = _columns(encrypting_io(io, f"{batch[0].manifest_path}: an encrypted manifest"), batch)
        yield Entries.of(list(zip(batch, columns, strict=True)))


def _batches(manifests: Sequence[EncryptedManifestFile], least_bytes: int) -> Iterator[list[EncryptedManifestFile]]:
    batch: list[EncryptedManifestFile] = []
    size = 0
    for manifest in manifests:
        batch.append(manifest)
        size += manifest.manifest_length
        if size >= least_bytes:
            yield batch
            batch, size = [], 0

    if batch:
        yield batch


def _columns(io: EncryptingFileIO, manifests: Sequence[EncryptedManifestFile]) -> list[ManifestColumns]:
    limit = MANIFEST_CACHE_BYTES.whole_number(io.inner.properties)
    columns = {number: kept for number, manifest in enumerate(manifests) if limit and (kept := _kept(manifest)) is not None}
    for number, kept in columns.items():
        # Other metadata may read the same manifest: an edited schema must not pass because an earlier version agreed.
        manifests[number].check_layout(kept.header)

    def opened(number: int) -> ManifestContainer:
        manifest = manifests[number]
        container = open_manifest(io, manifest.manifest_path, manifest.open_key_metadata(), manifest.content)
        # The header is held against metadata.json before any entry is decoded.
        manifest.check_layout(container.metadata)
        return container

    missing = [number for number in range(len(manifests)) if number not in columns]
    read = decode_manifests(list(ExecutorFactory.get_or_create().map(opened, missing)))
    for number, decoded in zip(missing, read, strict=True):
        columns[number] = decoded
        # Only a manifest that was decoded to its end is kept: the strict reader has refused the others by now.
        CACHE.put(manifests[number].manifest_path, _key_of(manifests[number]), decoded, limit)

    return [columns[number] for number in range(len(manifests))]


def _kept(manifest: EncryptedManifestFile) -> ManifestColumns | None:
    return CACHE.get(ManifestColumns, manifest.manifest_path, _key_of(manifest))


def _key_of(manifest: EncryptedManifestFile) -> bytes:
    return bytes(manifest.key_metadata or b"")
