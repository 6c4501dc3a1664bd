"""The hidden columns of protected columns in a verification: opened where this user may use their keys, else counted as not checked.

    look    the footer of each Parquet data file says which hidden columns it has (footers.py)
    open    here, where the key service is: the DEK of each hidden column, from the key metadata beside it
    check   with the file's other modules (_verify/files.py)

A refusal of the key service says nothing against a file. Key metadata that was made for another file or column does, and so does a footer
in which a hidden column is under the table's key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import (
    AuthenticationError,
    ColumnKeyDeniedError,
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    MasterKeyMismatchError,
    PlaintextRefusedError,
    TamperedFileError,
)
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.bound_schemas import BoundSchema
from tablecrypt.keys.column_keys import ColumnKeys
from tablecrypt.keys.nested_columns import all_ancestors, displaced, name_or_id
from tablecrypt.maintenance.columns.footers import FooterWork, footer_works, inspect_hidden_columns, name_mapping_of
from tablecrypt.maintenance.runner import FileDone, Runner
from tablecrypt.parquet.file_keys import KeyByPath
from tablecrypt.parquet.protected.hidden_columns import hidden_field_id
from tablecrypt.parquet.protected.protected_layout import StoredHiddenColumns
from tablecrypt.table.metadata import has_column_keys
from tablecrypt.table.protection.authenticated import check_declared
from tablecrypt.table.protection.policy import check_names, column_keys
from tablecrypt.table.table import EncryptedTable


@dataclass(frozen=True)
class HiddenColumnKeys:
    """What a verification has of one file's hidden columns. Holds keys.

    Attributes:
        opened: field id and key metadata of each hidden column that can be checked, and its DEK.
        denied: the field ids of those that cannot: their keys may not be used, or were shredded.
        problems: what is wrong with the file's hidden columns already.
        mismatches: by field id, what was said of a column KEK that its master key does not open; among the problems too.
    """

    opened: Mapping[tuple[int, bytes], Secret]
    denied: frozenset[int] = frozenset()
    problems: tuple[str, ...] = ()
    mismatches: Mapping[int, MasterKeyMismatchError] = field(default_factory=dict)


def hidden_columns_to_verify(
    table: EncryptedTable, files: Mapping[str, StandardKeyMetadata], sequence_numbers: Mapping[str, int | None], runner: Runner
) -> dict[str, HiddenColumnKeys]:
    """Return what can be checked of the hidden columns of Parquet data files, by location; nothing for a table without protected columns.

    Args:
        table: the files are its.
        files: their key metadata, by location.
        sequence_numbers: their data sequence numbers, by location.
        runner: inspects footers.

    Raises:
        KmsError: the KMS failed otherwise than by refusing a column's key.
        MasterKeyMismatchError: no key of a column opens, since another master key wrapped its KEKs.
        KeyIdChangedError: the properties protect a column less than was declared under its key.
        ConfigurationError: another column has the name of a protected one.
    """
    metadata = table.metadata
    if not has_column_keys(metadata):
        return {}

    check_names(metadata)
    # An edited property would make a protected column count as an ordinary one, whose values need no check.
    check_declared(metadata, table.io, writing=True)
    keys = column_keys(metadata, table.io)
    # No change of a schema takes a column from one struct to another, so that those from before count too.
    places = {each: around for schema in metadata.schemas for each, around in all_ancestors(schema).items()}
    works = footer_works(metadata, files)
    found: dict[str, HiddenColumnKeys] = {}
    for index, done in runner.run(table, inspect_footer, works):
        location, look = works[index].work.location, done.result
        opened = _opened(keys, look, files[location].aad_prefix, sequence_numbers.get(location))
        elsewhere = None if isinstance(look, str) else displaced(look.places, places)
        # Readers would take it for the column that the table has in its place.
        if elsewhere is not None:
            what = f"has the column with field id {elsewhere} in another struct than the table has it"
            opened = replace(opened, problems=(*opened.problems, what))
        found[location] = opened
    _raise_if_no_key_opens(table, list(found.values()))

    return found


def _raise_if_no_key_opens(table: EncryptedTable, found: Sequence[HiddenColumnKeys]) -> None:
    opened = {field_id for each in found for field_id, _ in each.opened}
    for each in found:
        for field_id, error in each.mismatches.items():
            if field_id not in opened:
                column = name_or_id(table.metadata.schema(), field_id)
                raise MasterKeyMismatchError(f"no value of protected column {column!r} can be verified: {error}") from error


def inspect_footer(io: EncryptingFileIO, work: FooterWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[StoredHiddenColumns | str]:
    """Return what a footer says of protected columns, or what is wrong with it."""
    try:
        return FileDone(inspect_hidden_columns(io, work, keys).result)
    except (TamperedFileError, PlaintextRefusedError) as refused:
        return FileDone(refused.what)
    except FormatError as refused:
        return FileDone(str(refused))
    except FileNotFoundError:
        return FileDone("is missing")


def hidden_column_keys(
    table: EncryptedTable, key_metadata: StandardKeyMetadata, location: str, sequence_number: int | None
) -> KeyByPath | None:
    """Return what opens the hidden columns of the file at a location, with this data sequence number, as they are met.

    None for a table without protected columns.

    It raises ColumnKeyDeniedError or KeyNotFoundError for a key that cannot be had.
    """
    metadata = table.metadata
    if not has_column_keys(metadata):
        return None

    keys = column_keys(metadata, table.io)
    work = FooterWork(location, frozenset(), name_mapping_of(metadata))
    schemas: dict[int, BoundSchema] = {}

    def hidden_key(path: tuple[str, ...], stored: bytes | None) -> Secret:
        field_id = hidden_field_id(path[0])
        if field_id is None or stored is None:
            raise FormatError(f"column {'.'.join(path)} is encrypted with a key of its own, and is no protected column")
        if field_id not in schemas:
            schemas.update(inspect_hidden_columns(table.io, work, (key_metadata,)).result.schemas)
        return Secret(keys.unwrap(field_id, stored, key_metadata.aad_prefix, schemas[field_id], sequence_number))

    return hidden_key


def unchecked_columns(table: EncryptedTable, files: Iterable[HiddenColumnKeys]) -> dict[str, int]:
    """Return in how many files each protected column was not checked, by its name; by its field id for one that is dropped."""
    counted = Counter(field_id for file in files for field_id in file.denied)
    schema = table.metadata.schema()
    return {name_or_id(schema, field_id): count for field_id, count in sorted(counted.items())}


def _opened(keys: ColumnKeys, look: StoredHiddenColumns | str, aad_prefix: bytes, sequence_number: int | None) -> HiddenColumnKeys:
    if isinstance(look, str):
        return HiddenColumnKeys({}, problems=(look,))

    opened: dict[tuple[int, bytes], Secret] = {}
    denied: set[int] = set()
    problems: list[str] = []
    mismatches: dict[int, MasterKeyMismatchError] = {}

    for field_id, stored in look.keys:
        try:
            if stored:
                dek = keys.unwrap(field_id, stored, aad_prefix, look.schemas[field_id], sequence_number)
                opened[field_id, stored] = Secret(dek)
        except (ColumnKeyDeniedError, KeyNotFoundError):
            # The refusal is no fault of the file: the column counts as not checked.
            denied.add(field_id)
        except (AuthenticationError, FormatError, KeyIdChangedError) as error:
            problems.append(f"the key metadata of the protected column with field id {field_id}: {error}")
            # Both are true: the file is bad, and the column's values were not checked.
            denied.add(field_id)
            if isinstance(error, MasterKeyMismatchError):
                mismatches[field_id] = error

    return HiddenColumnKeys(opened, frozenset(denied), tuple(problems), mismatches)
