"""Masks that became values: data files in which a protected column is under the table's key and shows the column's mask in every row.

An engine that knows no protected columns reads the masks that files store. Where it writes rows again that it has read, as the
copy-on-write of Iceberg Java does without the engine write barrier, it stores the masks as values:

    written here           placeholder: xxx-99    hidden column: SSN-42
    updated by Java        column: xxx-99         no hidden column. The value is in the snapshot before alone

An audit reports such files. A re-encryption that would protect the masks as if they were values refuses them.

Looking decodes one column of one file, and only of files that lack the hidden column and are not from before the column was protected. That
every value looks like a mask is a sign and no proof: null, a short text or a constant may be the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import NameMapping

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.column_keys import ColumnPolicy, ProtectedColumn, is_from_before
from tablecrypt.maintenance.columns.footers import name_mapping_of
from tablecrypt.maintenance.runner import FileDone, FileWork, Runner
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet.protected.hidden_column_rewriting import values_under_file_key
from tablecrypt.parquet.protected.protected_layout import StoredHiddenColumns
from tablecrypt.table.protection.stored_masks import are_masks
from tablecrypt.table.table import EncryptedTable

_SHOWN: Final = 3


@dataclass(frozen=True)
class MaskWork:
    """A file, the columns of it to look at, and the table's schema and name mapping."""

    location: str
    columns: tuple[ProtectedColumn, ...]
    schema: Schema
    mapping: NameMapping


def may_hold_masks(
    policy: ColumnPolicy, present: Iterable[int], hidden_columns: Iterable[int], sequence_number: int | None
) -> tuple[ProtectedColumn, ...]:
    """Return the protected columns that a file holds under the table's key, although it was written when they were protected.

    Args:
        policy: of the table.
        present: field ids of the columns that the file has.
        hidden_columns: field ids of those that it has hidden columns of.
        sequence_number: its data sequence number; None where it is not known.
    """
    bare = policy.columns.keys() & set(present) - set(hidden_columns)
    return tuple(policy.columns[each] for each in sorted(bare) if not is_from_before(policy.columns[each].since, sequence_number))


def masked_columns(stored: object, key_metadata: StandardKeyMetadata, work: MaskWork) -> frozenset[int]:
    """Return the field ids of the columns whose values in a file are all masks.

    Args:
        stored: the file, seekable and open for reading.
        key_metadata: its own.
        work: what to look at.

    Raises:
        TamperedFileError, FormatError: the file is not what was written.
    """
    return frozenset(
        column.field_id
        for column in work.columns
        if are_masks(column, work.schema, values_under_file_key(stored, key_metadata, column.field_id, work.location, work.mapping.root))
    )


def refuse_masks(
    table: EncryptedTable,
    policy: ColumnPolicy,
    files: Mapping[str, DataFile],
    footers: Mapping[str, StoredHiddenColumns],
    sequence_numbers: Mapping[str, int | None],
    runner: Runner,
) -> None:
    """Refuse to protect columns of these files whose values are all masks.

    Args:
        table: the files are its.
        policy: of the table.
        files: by location.
        footers: what their footers say, by location.
        sequence_numbers: data sequence numbers, by location.
        runner: decodes the columns.

    Raises:
        ConfigurationError: a file holds masks.
        TamperedFileError, FormatError: a file is not what was written.
    """
    works = list(_works(table.metadata, policy, files, footers, sequence_numbers))
    found = {works[index].work.location: done.result for index, done in runner.run(table, look_for_masks, works)} if works else {}
    held = sorted((field_id, location) for location, field_ids in found.items() for field_id in field_ids)
    if not held:
        return

    field_id = held[0][0]
    places = [location for each, location in held if each == field_id]
    shown = ", ".join(places[:_SHOWN]) + (", …" if len(places) > _SHOWN else "")
    name, mask = table.schema().find_column_name(field_id), policy.columns[field_id].mask
    raise ConfigurationError(
        f"column {name!r} holds in every row of {shown} what its mask ({mask}) shows: an engine that may not see the values seems to have "
        "copied masks, and protecting these would make them values. Restore the rows from a snapshot before, or delete them. If they are "
        "the values: reencrypt(…, accept_masks=True), --accept-masks, or accept_masks => true in SQL"
    )


def _works(
    metadata: TableMetadata,
    policy: ColumnPolicy,
    files: Mapping[str, DataFile],
    footers: Mapping[str, StoredHiddenColumns],
    sequence_numbers: Mapping[str, int | None],
) -> Iterator[FileWork[MaskWork]]:
    schema, mapping = metadata.schema(), name_mapping_of(metadata)
    for location, found in footers.items():
        file = files.get(location)
        columns = may_hold_masks(policy, found.columns, found.protected, sequence_numbers.get(location))
        if file is not None and columns:
            yield FileWork(MaskWork(location, columns, schema, mapping), (key_metadata_of(file),), file.file_size_in_bytes)


def look_for_masks(io: EncryptingFileIO, work: MaskWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[frozenset[int]]:
    """Return the field ids of the columns whose values in a file are all masks."""
    with io.raw_input(work.location).open() as stored:
        return FileDone(masked_columns(stored, keys[0], work))
