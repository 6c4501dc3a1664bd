"""The records that carry keys: data files and, in manifest_file.py, manifests.

Both hold key metadata, that is a DEK in the clear, as one of their fields. PyIceberg's own classes show every field in their repr and
pickle them all; these show which file it is, and refuse to be pickled: keys leave a process sealed, or not at all. They can be copied.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NoReturn, Self

from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record, TableVersion

from tablecrypt.manifests.schemas import DATA_FILE_POSITIONS, FORMAT_VERSION

FIRST_ROW_ID = DATA_FILE_POSITIONS["first_row_id"]
REFERENCED_DATA_FILE = DATA_FILE_POSITIONS["referenced_data_file"]
CONTENT_OFFSET = DATA_FILE_POSITIONS["content_offset"]
CONTENT_SIZE_IN_BYTES = DATA_FILE_POSITIONS["content_size_in_bytes"]
_FIELDS = len(DATA_FILE_POSITIONS)


class KeyBearingRecord(Record):
    """A record that is copied by value and never pickled, because one of its fields is a key."""

    def values(self) -> list[Any]:
        """Return the fields by position."""
        return [self[position] for position in range(len(self))]

    def __copy__(self) -> Self:
        clone = type(self)(*self.values())
        vars(clone).update(vars(self))
        return clone

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        clone = type(self)(*deepcopy(self.values(), memo))
        vars(clone).update(vars(self))
        return clone

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} holds a key and is never pickled: seal it under a key of the other side instead")


class EncryptedDataFile(KeyBearingRecord, DataFile):
    """A data or delete file with the fields of version 3.

    Two deletion vectors may share one Puffin file: they are different files here (path and content_offset), the same for PyIceberg.
    """

    def __init__(self, *data: Any) -> None:
        super().__init__(*data, *[None] * (_FIELDS - len(data)))

    @classmethod
    def from_args(cls, _table_format_version: TableVersion = FORMAT_VERSION, **arguments: Any) -> Self:
        """Make a data file from named fields of the version 3 schema; those not named are null."""
        return cls(*(arguments.get(name) for name in DATA_FILE_POSITIONS))

    @classmethod
    def of(cls, data_file: DataFile) -> EncryptedDataFile:
        """Return `data_file` with the fields of version 3; PyIceberg makes data files of version 2, which end at sort_order_id."""
        if isinstance(data_file, EncryptedDataFile):
            return data_file
        return cls(*(data_file[position] for position in range(len(data_file))))

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
