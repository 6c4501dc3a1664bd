"""What a table's entry in the Hive metastore remembers of its metadata, outside the storage where the metadata lies.

    encryption.key-id             as in the metadata; never changes. Without it Iceberg Java checks nothing and writes plaintext
    encryption.data-key-length    as in the metadata; absent where absent there
    metadata_hash                 what canonical_metadata.metadata_hash gives for the metadata file; absent or empty: not compared
    tablecrypt.metadata-sha256    SHA-256 (hexadecimal) of the metadata file's uncompressed JSON, a blank, and where that file is
    tablecrypt.protected-columns  the protected columns, as protected_columns.py stores them; absent in entries of before: not known
    tablecrypt.folders            the folders in which files may be deleted, as record.py says, in JSON; absent in entries of before

Iceberg Java writes the first three and refuses a table whose metadata contradicts them. It does not know the others, and leaves them as
they are when it commits. So the last two say what a commit of tablecrypt has left. The columns reveal a protection that another engine
has made weaker, and so do the names that columns had. The folders are those that a client of tablecrypt has set: a hash vouches for
metadata since it is in the entry, and not for what the file said before that, which anybody may have edited before it was registered.
In an entry without them, all that metadata with a hash names count. The hash of the bytes counts only for the file that it names. It holds
where Java's hash is none, because Java's own form depends on its version (a default of type double, for one), and for what Java's form
leaves out.

metadata.json is plaintext, and everybody who can write to the storage can edit it; these parameters change only for those who can write
to the metastore too. An entry without any hash of the current file pins less than it should: that is logged, and a finding of an audit.
Pure: metadata and parameters in, an error or nothing out.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Final

from pyiceberg.catalog import METADATA_LOCATION
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from tablecrypt import properties as names
from tablecrypt.errors import KeyIdChangedError, TamperedFileError
from tablecrypt.table.canonical_metadata import hash_of, metadata_hash
from tablecrypt.table.metadata import EncryptedTableMetadata, MetadataFile, has_encryption_traces
from tablecrypt.table.table_files import folders_named, name_of
from tablecrypt_catalog.pins import record
from tablecrypt_catalog.pins.protected_columns import (
    PinnedColumn,
    columns_as_text,
    columns_from_text,
    columns_of,
    from_text,
    leaves_of,
    merged_columns,
    taken,
    weaker,
)
from tablecrypt_catalog.pins.record import Moves, folders_on_first_sight, next_folders, table_version
from tablecrypt_catalog.table_encryption import NO_COLUMNS, UnverifiedTable

METADATA_HASH: Final = "metadata_hash"
DOCUMENT_HASH: Final = "tablecrypt.metadata-sha256"
PROTECTED_COLUMNS: Final = "tablecrypt.protected-columns"
FOLDERS: Final = "tablecrypt.folders"

logger = logging.getLogger(__name__)


class PinnedStagedTable(StagedTable):
    """A staged table that has more to say to its entry in the metastore than its properties."""

    def __init__(self, staged: StagedTable, identifier: Identifier, parameters: Mapping[str, str]) -> None:
        super().__init__(identifier, staged.metadata, staged.metadata_location, staged.io, staged.catalog)
        self._parameters = parameters

    @property
    def properties(self) -> dict[str, str]:
        """What PyIceberg's commit writes into the entry."""
        return {**super().properties, **self._parameters}


def pinning_parameters(
    metadata: TableMetadata, file: MetadataFile, folders: tuple[str, ...], pinned: Mapping[int, PinnedColumn] = NO_COLUMNS
) -> dict[str, str]:
    """Return the parameters that pin an encrypted table's metadata, which is in `file`; none for any other table.

    Java's hash is empty where Java's own form depends on its version: Java takes that for no hash, and puts its own there when it commits.

    Args:
        metadata: the table's.
        file: holds it.
        folders: those in which the table's files may be deleted.
        pinned: the protected columns that the entry has pinned before.
    """
    if names.KEY_ID.name not in metadata.properties:
        return {}

    kept = (names.KEY_ID.name, names.DATA_KEY_LENGTH.name)
    said = {name: str(metadata.properties[name]) for name in kept if name in metadata.properties}
    columns = columns_as_text(merged_columns(pinned, columns_of(metadata)))
    hashes = {METADATA_HASH: metadata_hash(file.content) or "", DOCUMENT_HASH: f"{file.digest} {file.location}"}

    return {**said, **hashes, PROTECTED_COLUMNS: columns, FOLDERS: json.dumps(folders)}


def staged_parameters(staged: StagedTable, before: Table | None, moved: Moves) -> dict[str, str]:
    """Return the parameters that pin the metadata that a commit is about to write.

    Args:
        staged: what the commit leaves.
        before: what it is based on; None for a new table.
        moved: what the commit moves.

    Raises:
        KeyIdChangedError: a column takes the name of a protected one, as the entry knows it.
    """
    pinned = before.pinned_columns if isinstance(before, UnverifiedTable) else NO_COLUMNS
    trusted = before.trusted_folders if isinstance(before, UnverifiedTable) else ()
    name = name_of(staged)
    if (found := taken(pinned, columns_of(staged.metadata), leaves_of(staged.metadata))) is not None:
        raise _weaker_than_pinned(name, found, staged.metadata_location)
    file = MetadataFile(staged.metadata_location, staged.metadata.model_dump_json().encode())
    # Whoever makes a table says where it lies.
    own = folders_named(staged.metadata)
    folders = own if before is None else next_folders(trusted, table_version(staged.metadata, staged.metadata_location, None), moved)
    return pinning_parameters(staged.metadata, file, folders, pinned)


def pinned_columns(name: str, parameters: Mapping[str, str]) -> Mapping[int, PinnedColumn]:
    """Return the protected columns that a table's entry has pinned.

    Raises:
        FormatError: the parameter cannot be read.
    """
    return columns_from_text(parameters.get(PROTECTED_COLUMNS), _parameter(name, PROTECTED_COLUMNS))


def trusted_folders(name: str, metadata: TableMetadata, metadata_location: str, parameters: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders in which the files of a table may be deleted, as its entry says.

    Raises:
        FormatError: the parameter cannot be read.
    """
    text = parameters.get(FOLDERS)
    if text is None:
        folders = folders_named(metadata)
        return folders if unpinned_metadata(parameters) is None else folders_on_first_sight(metadata_location, folders)

    return from_text(record.FOLDERS, text, _parameter(name, FOLDERS), ())


def _parameter(name: str, parameter: str) -> str:
    return f"{name}: the parameter {parameter} of its entry in the metastore, which registering the table again renews,"


def unpinned_metadata(parameters: Mapping[str, str]) -> str | None:
    """Return what an encrypted table's entry does not pin, for people to read; None where it holds a hash of the current metadata."""
    location = parameters.get(METADATA_LOCATION, "")
    if parameters.get(METADATA_HASH) or _document_hash(parameters, location) is not None:
        return None
    return (
        f"its entry in the metastore holds no hash of {location}: an edited file would be accepted. The next commit of tablecrypt sets one"
    )


def _document_hash(parameters: Mapping[str, str], location: str) -> str | None:
    """What DOCUMENT_HASH says of a file; None where it was written with another one, which Java or PyIceberg has replaced since."""
    digest, _, written_with = parameters.get(DOCUMENT_HASH, "").partition(" ")
    return digest if written_with == location else None


def check_against_entry(name: str, metadata: TableMetadata, file: MetadataFile, parameters: Mapping[str, str]) -> None:
    """Check the metadata that was loaded for an entry against the entry's parameters. Plain tables have nothing to check.

    Raises:
        KeyIdChangedError: encryption.key-id or encryption.data-key-length is not the same on both sides, or gone from one of them; or a
            column is protected less than the entry says.
        FormatError: what the entry says of protected columns cannot be read.
        TamperedFileError: the metadata is not what a hash in the entry was made of.
    """
    pinned, table_key_id = parameters.get(names.KEY_ID.name), metadata.properties.get(names.KEY_ID.name)
    # Keys without a key id on either side are a table whose encryption was removed halfway.
    if pinned is None and table_key_id is None and not _has_traces(metadata):
        return
    if pinned is None:
        raise KeyIdChangedError(
            f"{name}: its entry in the metastore has no parameter {names.KEY_ID.name}, but {file.location} is an encrypted table's. "
            "Iceberg Java would write plaintext into it: put the parameter back, or register the table again"
        )
    if pinned != table_key_id:
        raise KeyIdChangedError(f"{name}: {names.KEY_ID.name} is {pinned} in the metastore, but {table_key_id} in {file.location}")

    _check_length(name, metadata, file, parameters)
    # By the bytes before Java's form, which leaves parts of the metadata out.
    _check_document_hash(name, file, parameters)
    _check_hash(name, file, parameters.get(METADATA_HASH))
    _check_columns(name, metadata, file.location, parameters)
    if (problem := unpinned_metadata(parameters)) is not None:
        logger.warning("%s is not pinned: %s", name, problem)


def _has_traces(metadata: TableMetadata) -> bool:
    return isinstance(metadata, EncryptedTableMetadata) and has_encryption_traces(metadata)


def _check_length(name: str, metadata: TableMetadata, file: MetadataFile, parameters: Mapping[str, str]) -> None:
    pinned, length = (source.get(names.DATA_KEY_LENGTH.name) for source in (parameters, metadata.properties))
    if pinned != length:
        raise KeyIdChangedError(f"{name}: {names.DATA_KEY_LENGTH.name} is {pinned} in the metastore, but {length} in {file.location}")


def _check_columns(name: str, metadata: TableMetadata, location: str, parameters: Mapping[str, str]) -> None:
    pinned, now = pinned_columns(name, parameters), columns_of(metadata)
    if (found := weaker(pinned, now) or taken(pinned, now, leaves_of(metadata))) is not None:
        raise _weaker_than_pinned(name, found, location)


def _weaker_than_pinned(name: str, found: tuple[int, str], location: str) -> KeyIdChangedError:
    field_id, what = found
    return KeyIdChangedError(
        f"{name}: the column with field id {field_id} {what}, in {location}, and no commit of tablecrypt has said so to the metastore. If "
        f"somebody you trust did that on purpose: register the table again, which renews the parameter {PROTECTED_COLUMNS} of its entry"
    )


def _check_document_hash(name: str, file: MetadataFile, parameters: Mapping[str, str]) -> None:
    if _document_hash(parameters, file.location) not in (None, file.digest):
        raise TamperedFileError(file.location, f"{name}: the table metadata is not what the metastore's {DOCUMENT_HASH} was made of")


def _check_hash(name: str, file: MetadataFile, pinned: str | None) -> None:
    # Java writes its own form into the file, so the bytes decide where this side cannot know that form.
    if not pinned or pinned == hash_of(file.content):
        return
    if pinned != metadata_hash(file.content):
        raise TamperedFileError(file.location, f"{name}: the table metadata is not what the metastore's {METADATA_HASH} was made of")
