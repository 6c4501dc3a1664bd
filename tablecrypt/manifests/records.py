"""The records that carry keys: data files and, in manifest_file.py, manifests.

Both hold key metadata, that is a DEK in the clear, as one of their fields. PyIceberg's own classes show every field in their repr and
pickle them all; these show which file it is, and refuse to be pickled: keys leave a process wrapped, or not at all. They can be copied.

The Avro schemas of a version 3 manifest and manifest list, and where each data_file field sits in its record.

    manifest_entry: status | snapshot_id | sequence_number | file_sequence_number | data_file
    data_file:      content .. sort_order_id (positions 0-15, as in v2) | first_row_id | referenced_data_file
                    | content_offset | content_size_in_bytes (positions 16-19, new in v3)
    manifest_file:  manifest_path .. key_metadata (positions 0-14, as in v2) | first_row_id (position 15, new in v3)

PyIceberg's own constants are the base. What is written differs from them in two places, both as Iceberg Java does it: equality_ids
are int (PyIceberg says long), and every partition field is optional, whatever its source column is. What is read keeps long: it takes
both.

A partition is a record too: `partition_values` and `in_literals` are the forms in which partitions are compared.

Specification: "Manifests" and "Manifest Lists" of the Iceberg table specification, version 3.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Collection, Hashable, Mapping
from copy import copy, deepcopy
from functools import lru_cache
from typing import Any, ClassVar, Final, NoReturn, Self

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType, UnknownType

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, PlaintextRefusedError
from tablecrypt.manifests.avro_container import AvroRecords

FORMAT_VERSION: Final = 3

FILE_FORMAT_FIELD_ID: Final = 101
FILE_CONTENT_FIELD_ID: Final = 134
EQUALITY_IDS_FIELD_ID: Final = 135
DATA_FILE_FIELD_ID: Final = 2
STATUS_FIELD_ID: Final = 0
MANIFEST_CONTENT_FIELD_ID: Final = 517
PARTITION_SUMMARY_ELEMENT_ID: Final = 508
ROOT_STRUCT: Final = -1

ENTRY_READ_SCHEMA: Final = MANIFEST_ENTRY_SCHEMAS[FORMAT_VERSION]
MANIFEST_LIST_SCHEMA: Final = MANIFEST_LIST_FILE_SCHEMAS[FORMAT_VERSION]
MANIFEST_RECORDS: Final = AvroRecords(MANIFEST_LIST_SCHEMA, "manifest_file")

DATA_FILE_POSITIONS: Final = {field.name: position for position, field in enumerate(DATA_FILE_TYPE[FORMAT_VERSION].fields)}
MANIFEST_FILE_POSITIONS: Final = {field.name: position for position, field in enumerate(MANIFEST_LIST_SCHEMA.fields)}
COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
STATISTICS: Final = (*COUNTS, "lower_bounds", "upper_bounds")
"""Names of a data file's fields that are maps by field id."""
FIRST_ROW_ID = DATA_FILE_POSITIONS["first_row_id"]
REFERENCED_DATA_FILE = DATA_FILE_POSITIONS["referenced_data_file"]
CONTENT_OFFSET = DATA_FILE_POSITIONS["content_offset"]
CONTENT_SIZE_IN_BYTES = DATA_FILE_POSITIONS["content_size_in_bytes"]
_KEY_METADATA: Final = DATA_FILE_POSITIONS["key_metadata"]


@lru_cache(maxsize=64)
def entry_records(partition_type: StructType) -> AvroRecords:
    """Return the records of a manifest whose files are partitioned by `partition_type` (a struct of no fields: unpartitioned)."""
    return AvroRecords(entry_write_schema(partition_type), "manifest_entry")


def entry_write_schema(partition_type: StructType) -> Schema:
    """Return the schema of these records."""
    data_file = data_file_with_partition(_as_written(partition_type), format_version=FORMAT_VERSION)
    fields = (_with_int_ids(field) if field.field_id == EQUALITY_IDS_FIELD_ID else field for field in data_file.fields)
    return manifest_entry_schema_with_data_file(FORMAT_VERSION, StructType(*fields))


def _as_written(partition_type: StructType) -> StructType:
    """Make every field optional. A field whose source column was dropped has Avro type null, which is optional by itself: a union
    of null and null is not valid Avro, and PyIceberg writes one unless the field is marked required."""
    return StructType(
        *(
            NestedField(field.field_id, field.name, field.field_type, required=isinstance(field.field_type, UnknownType))
            for field in partition_type.fields
        )
    )


def _with_int_ids(field: NestedField) -> NestedField:
    ids = ListType(element_id=EQUALITY_IDS_FIELD_ID + 1, element_type=IntegerType(), element_required=True)
    return NestedField(field.field_id, field.name, ids, required=False, doc=field.doc)


class SensitiveRecord(Record):
    """A record of version 3 that is copied by value and never pickled, because one of its fields is a key."""

    positions: ClassVar[Mapping[str, int]]

    def __init__(self, *data: Any) -> None:
        super().__init__(*data, *[None] * (len(self.positions) - len(data)))

    @classmethod
    def from_args(cls, _table_format_version: TableVersion = FORMAT_VERSION, **arguments: Any) -> Self:
        """Make a record from named fields of the version 3 schema; those not named are null."""
        return cls(*(arguments.get(name) for name in cls.positions))

    def values(self) -> list[Any]:
        """Return the fields by position."""
        return [self[position] for position in range(len(self))]

    def __copy__(self) -> Self:
        clone = type(self)(*self.values())
        # The spec id and the stated layout are attributes and not fields: without them a copy would skip the check of its header.
        vars(clone).update(vars(self))
        return clone

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        clone = type(self)(*deepcopy(self.values(), memo))
        vars(clone).update(vars(self))
        return clone

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} holds a key and is never pickled: wrap it under a key of the other side instead")


class EncryptedDataFile(SensitiveRecord, DataFile):
    """A data or delete file with the fields of version 3.

    Two deletion vectors may share one Puffin file: they are different files here (path and content_offset), the same for PyIceberg.
    """

    positions = DATA_FILE_POSITIONS

    @classmethod
    def of(cls, data_file: DataFile) -> EncryptedDataFile:
        """Return `data_file` with the fields of version 3; PyIceberg makes data files of version 2, which end at sort_order_id."""
        if isinstance(data_file, EncryptedDataFile):
            return data_file
        return cls(*(data_file[position] for position in range(len(data_file))))

    def without_statistics_of(self, field_ids: Collection[int]) -> EncryptedDataFile:
        """Return the file without sizes, counts and bounds of these columns: itself where it has none of them."""
        if not field_ids:
            return self

        told = {name: by_field for name in STATISTICS if (by_field := self[DATA_FILE_POSITIONS[name]])}
        left = {name: {each: value for each, value in by_field.items() if each not in field_ids} for name, by_field in told.items()}
        if left == told:
            return self

        # A copy: the file may be the caller's, and other manifests may list the same object.
        stripped = copy(self)
        for name, by_field in left.items():
            stripped[DATA_FILE_POSITIONS[name]] = by_field or None
        return stripped

    @property
    def first_row_id(self) -> int | None:
        """The _row_id of the file's first row; null until the snapshot that adds the file is committed, and in delete files."""
        return self[FIRST_ROW_ID]  # type: ignore[no-any-return]

    @property
    def referenced_data_file(self) -> str | None:
        """The one data file that all of a delete file's deletes refer to; always set for a deletion vector."""
        return self[REFERENCED_DATA_FILE]  # type: ignore[no-any-return]

    @property
    def content_offset(self) -> int | None:
        """Where a deletion vector begins, in bytes of the decrypted Puffin file."""
        return self[CONTENT_OFFSET]  # type: ignore[no-any-return]

    @property
    def content_size_in_bytes(self) -> int | None:
        """The length of a deletion vector, in bytes of the decrypted Puffin file."""
        return self[CONTENT_SIZE_IN_BYTES]  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, EncryptedDataFile):
            return self.file_path == other.file_path and self.content_offset == other.content_offset
        return super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.file_path)

    def __repr__(self) -> str:
        place = "" if self.content_offset is None else f" at {self.content_offset}"
        return f"EncryptedDataFile[{self.content!r}, {self.file_path}{place}, {self.record_count} records]"


def partition_values(partition: Record | None) -> tuple[Hashable, ...]:
    """Return a partition as a key that, unlike a Record, tells values of different types apart, and in which NaN equals NaN."""
    return () if not partition else tuple(_comparable(partition[position]) for position in range(len(partition)))


def _comparable(value: Any) -> Hashable:
    if isinstance(value, uuid.UUID):
        # New files have its bytes, and manifests that were read the uuid.
        return value.bytes
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def in_literals(partition: Record) -> Record:
    """Return a partition with its uuids as bytes, which PyIceberg's literals of uuids are: compared with those, a UUID equals none."""
    values = [partition[position] for position in range(len(partition))]
    return Record(*(value.bytes if isinstance(value, uuid.UUID) else value for value in values))


def key_metadata_of(file: DataFile) -> StandardKeyMetadata:
    """Return the DEK, AAD prefix and length of a data or delete file.

    Raises:
        PlaintextRefusedError: the manifest names no key for it.
        FormatError: the key metadata is not StandardKeyMetadata version 1, or has another length than the entry.
    """
    key_metadata = stored_key_metadata(file)
    # The length in key metadata is compared with the file's: by a smaller one in the entry, its last rows would belong to no part.
    if key_metadata.file_length not in (None, file.file_size_in_bytes):
        raise FormatError(
            f"{file.file_path}: its manifest entry says {file.file_size_in_bytes} bytes, its key metadata {key_metadata.file_length}"
        )

    return key_metadata


def stored_key_metadata(file: DataFile) -> StandardKeyMetadata:
    """Return the same, whatever length the entry says: to find files and keys, and not to read. Raises as `key_metadata_of`."""
    refuse_plaintext(file)
    try:
        return StandardKeyMetadata.decode(bytes(file.key_metadata or b""))
    except FormatError as error:
        raise FormatError(f"{file.file_path}: its key metadata: {error}") from error


def refuse_plaintext(file: DataFile) -> None:
    """Raise PlaintextRefusedError for a file that the manifest names no key for."""
    if not file.key_metadata:
        raise PlaintextRefusedError(file.file_path, "has no key metadata in its manifest, so it is not an encrypted file of this table")


def refuse_another_name(known: DataFile, file: DataFile) -> None:
    """Raise FormatError where two entries name one location as different files. Whoever works by locations would see only one of them."""
    if known is file:
        return
    for what, one, other in (
        ("as data and as deletes", known.content, file.content),
        ("with two keys", known.key_metadata, file.key_metadata),
        ("in two partition specs", known.spec_id, file.spec_id),
        ("in two partitions", partition_values(known.partition), partition_values(file.partition)),
    ):
        if one != other:
            raise FormatError(f"{known.file_path}: the table names it {what}. Verify the table, and roll back to a snapshot before that")


def is_deletion_vector(file: DataFile) -> bool:
    """Whether a delete file entry is a deletion vector in a Puffin file."""
    return file.content == DataFileContent.POSITION_DELETES and file.file_format == FileFormat.PUFFIN


def with_key(file: DataFile, key_metadata: StandardKeyMetadata | None) -> EncryptedDataFile:
    """Return a copy of a file's entry with another key, or with none, to travel apart from it."""
    other = copy(EncryptedDataFile.of(file))
    other.spec_id = file.spec_id
    other[_KEY_METADATA] = None if key_metadata is None else key_metadata.encode()
    return other
