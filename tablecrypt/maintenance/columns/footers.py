"""What the footers of a table's data files say of protected columns: read by threads or executors, and without any column's key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import NameMapping

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance.runner import FileDone, FileWork, Runner
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet.protected.protected_layout import ProtectedLayout, StoredHiddenColumns
from tablecrypt.parquet.storage import source_of
from tablecrypt.table.table import EncryptedTable

_FOOTER_SIZE: Final = 64 * 1024
"""Bytes that reading a footer takes, for distributing the work."""


@dataclass(frozen=True)
class FooterWork:
    """A file to look at.

    Attributes:
        location: where it is.
        wanted: the field ids of the columns that are to have hidden columns in a file that it is rewritten as.
        mapping: the table's name mapping, for a file without field ids.
    """

    location: str
    wanted: frozenset[int]
    mapping: NameMapping


def may_have_hidden_columns(file: DataFile) -> bool:
    """Whether a file is one that can have protected columns: a Parquet data file."""
    return file.content == DataFileContent.DATA and file.file_format == FileFormat.PARQUET


def inspect_footers(
    table: EncryptedTable, files: Iterable[DataFile], runner: Runner, wanted: Collection[int] = ()
) -> dict[str, StoredHiddenColumns]:
    """Return what the footers of Parquet data files say, by location.

    Args:
        table: the files are its.
        files: which ones.
        runner: inspects them.
        wanted: field ids of the columns that are to have hidden columns.

    Raises:
        TamperedFileError, FormatError: a footer is not what was written.
    """
    works = footer_works(table.metadata, {file.file_path: key_metadata_of(file) for file in files}, wanted)
    return {works[index].work.location: done.result for index, done in runner.run(table, inspect_hidden_columns, works)}


def footer_works(
    metadata: TableMetadata, files: Mapping[str, StandardKeyMetadata], wanted: Collection[int] = ()
) -> list[FileWork[FooterWork]]:
    """Return the work of reading footers, for `inspect_hidden_columns` or what calls it.

    Args:
        metadata: of the table.
        files: key metadata by location.
        wanted: field ids of the columns that are to have hidden columns.
    """
    mapping = name_mapping_of(metadata)
    works = (FooterWork(location, frozenset(wanted), mapping) for location in files)
    return [FileWork(work, (files[work.location],), _FOOTER_SIZE) for work in works]


def inspect_hidden_columns(io: EncryptingFileIO, work: FooterWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[StoredHiddenColumns]:
    """Return what the footer of the file at a location says."""
    with io.raw_input(work.location).open() as stored:
        layout = ProtectedLayout(source_of(stored, work.location), keys[0], mapping=work.mapping.root)
        return FileDone(layout.stored(work.wanted))


def name_mapping_of(metadata: TableMetadata) -> NameMapping:
    """Return the names by which a table's columns are found in files without field ids: as its property says, else those that they have."""
    return metadata.name_mapping() or metadata.schema().name_mapping
