"""What a table's entry in the Hive metastore remembers of its metadata, outside the storage where the metadata lies.

    encryption.key-id             as in the metadata; never changes. Without it Iceberg Java checks nothing and writes plaintext
    encryption.data-key-length    as in the metadata; absent where absent there
    metadata_hash                 what canonical_metadata.metadata_hash gives for the metadata file; absent or empty: not compared

Iceberg Java writes the same parameters and refuses a table whose metadata contradicts them. Metadata.json is plaintext that whoever writes
to the storage can edit; these parameters are beyond his reach, as long as he cannot write to the metastore too.
Pure: metadata and parameters in, an error or nothing out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyiceberg.table import StagedTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from tablecrypt import properties as names
from tablecrypt.errors import KeyIdChangedError, TamperedFileError
from tablecrypt.table.canonical_metadata import hash_of, metadata_hash
from tablecrypt.table.metadata import EncryptedTableMetadata, has_encryption_traces
from tablecrypt.table.metadata_file import MetadataFile

METADATA_HASH: Final = "metadata_hash"


class PinnedStagedTable(StagedTable):
    """A staged table that has more to say to its entry in the metastore than its properties."""

    def __init__(self, staged: StagedTable, identifier: Identifier, parameters: Mapping[str, str]) -> None:
        super().__init__(identifier, staged.metadata, staged.metadata_location, staged.io, staged.catalog)
        self._parameters = parameters

    @property
    def properties(self) -> dict[str, str]:
        """What PyIceberg's commit writes into the entry."""
        return {**super().properties, **self._parameters}


def pinning_parameters(metadata: TableMetadata, content: bytes) -> dict[str, str]:
    """Return the parameters that pin an encrypted table's metadata, whose JSON is `content`; none for any other table.

    The hash is empty where Java's own form depends on its version: Java takes that for no hash, and puts its own there when it commits.
    """
    if names.KEY_ID.name not in metadata.properties:
        return {}
    kept = (names.KEY_ID.name, names.DATA_KEY_LENGTH.name)
    pinned = {name: str(metadata.properties[name]) for name in kept if name in metadata.properties}
    return {**pinned, METADATA_HASH: metadata_hash(content) or ""}


def check_against_entry(name: str, metadata: TableMetadata, file: MetadataFile, parameters: Mapping[str, str]) -> None:
    """Check the metadata that was loaded for an entry against the entry's parameters. Plain tables have nothing to check.

    Raises:
        KeyIdChangedError: encryption.key-id or encryption.data-key-length is not the same on both sides, or gone from one of them.
        TamperedFileError: the metadata is not what metadata_hash was made of.
    """
    pinned, key_id = parameters.get(names.KEY_ID.name), metadata.properties.get(names.KEY_ID.name)
    if pinned is None and key_id is None and not _has_traces(metadata):
        return
    if pinned is None:
        raise KeyIdChangedError(
            f"{name}: its entry in the metastore has no parameter {names.KEY_ID.name}, but {file.location} is an encrypted table's. "
            "Iceberg Java would write plaintext into it: put the parameter back, or register the table anew"
        )
    if pinned != key_id:
        raise KeyIdChangedError(f"{name}: {names.KEY_ID.name} is {pinned} in the metastore, but {key_id} in {file.location}")
    _check_length(name, metadata, file, parameters)
    _check_hash(name, file, parameters.get(METADATA_HASH))


def _has_traces(metadata: TableMetadata) -> bool:
    return isinstance(metadata, EncryptedTableMetadata) and has_encryption_traces(metadata)


def _check_length(name: str, metadata: TableMetadata, file: MetadataFile, parameters: Mapping[str, str]) -> None:
    pinned, length = (source.get(names.DATA_KEY_LENGTH.name) for source in (parameters, metadata.properties))
    if pinned != length:
        raise KeyIdChangedError(f"{name}: {names.DATA_KEY_LENGTH.name} is {pinned} in the metastore, but {length} in {file.location}")


def _check_hash(name: str, file: MetadataFile, pinned: str | None) -> None:
    # Java writes its own form into the file, so the bytes decide where this side cannot know that form.
    if not pinned or pinned == hash_of(file.content):
        return
    if pinned != metadata_hash(file.content):
        raise TamperedFileError(file.location, f"{name}: the table metadata is not what the metastore's {METADATA_HASH} was made of")
