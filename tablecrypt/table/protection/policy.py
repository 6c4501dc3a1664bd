"""Which columns of a table are protected, their keys, and what must hold of them in every version of the table's metadata.

    metadata.properties ──▶ ColumnPolicy ──┐
    metadata.encryption_keys ──────────────┴──▶ ColumnKeys, for the writer and the reader of data files

The rules, held for every commit:

    1. A protected column is no partition source, sort column or identifier field of the current layout: partition values are in file
       paths, the order of rows tells which of two values is larger, and engines write identifier fields into equality deletes. Nor is
       it the source of a partition spec that is added, be that the default or not.
    2. What has a column key is named by the properties, unless the column is gone: see `check_protected`. Nobody removes the protection
       by removing properties.
    3. A name that a protected column has or had belongs to it: see below.
    4. What the manifest list of the snapshot before says was protected is protected, or was declared otherwise since. The list is encrypted
       and authenticated, properties and `encryption-keys` are neither: whoever removes both cannot remove this. Each list says so anew.
    5. A column that becomes protected, or comes back after a drop beside rows that were written without it, says by `since` that all
       snapshots so far may have files without it, and one that comes under another master key by `former-until` that they may have files
       under the former. A declaration that was staged before another writer's commit does not: readers would refuse that writer's rows.
    6. Pages, row groups and files are not set to few rows: whoever has the table's key sees how long each page of a hidden column is, and
       a page with one row tells how long its value is, and whether it is null. These settings have a floor, and smaller ones are refused
       where they are set and where files are written; an append of one row still makes a file of one row.

           write.parquet.row-group-limit         1,000 rows
           write.parquet.page-row-limit          1,000 rows; Arrow looks after so many whether a page has write.parquet.page-size-bytes
           write.parquet.row-group-size-bytes    1 MiB; Arrow knows no such limit, other writers of the table's files do
           write.target-file-size-bytes          1 MiB: about 1,000 rows of 1 kB; and `target_file_size` of compact and Spark

       A thousand is the number of rows after which Iceberg writers look at a file's size anyway, and costs nothing: the default row group
       has a thousand times as many. In a length that 1,000 values have in sum, one of them is not seen.
    7. A column is not under the table's own master key, and its mask fits its type.
    8. A protected column has no write-default, nor has what lies in it: that stands in the plaintext schema, where whoever may commit
       changes it, and writers would store it under the column's key in rows that come without the column. It would pass for a value of
       somebody with the key, and where a mask shows hashes, tell which other rows have the same.

What is written by a name that a protected column has or had is under that column's key (rule 3). Files and properties know columns by field
id, and writers know them by name. Were the name of a protected column free for another one, the next rows that somebody writes by that name
would hold protected values in the clear, and nobody would notice.

    name     the names of the structs around a column and its own, with dots between them: `person.email`. Elements, keys and values of
             lists and maps add nothing, so that what lies in person: list<struct<email>> has that name too
    taken    a column of the current schema, with no columns in it, has a name that a protected column has or had in any schema of the
             metadata, as `folded` compares them, and is not protected under the same master key, or is with another mask that files store.
             So has one whose name goes on where the other ends, or ends earlier: `ssn.number` holds what ssn held, and `person` of type
             string what person.email held

A protected column may be renamed, and renamed back; two under one master key whose masks show as much may exchange their names.

Where another engine has committed a schema with a taken name, or somebody has edited the metadata:

    a read of, or a filter by, the column that took the name, or the one that it belongs to    refused
    any other read                                                                            goes on
    a commit, and whatever writes data files                                                  refused, but for what gives the name back

Whoever may commit so denies reads of the two columns alone. Commits are refused whatever they write: each row has a value of both columns.

Raises ConfigurationError, or KeyIdChangedError where properties were removed that tablecrypt does not remove.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tablecrypt import properties as names
from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError, KeyIdChangedError, column_shown
from tablecrypt.keys.column_keys import ColumnKeys, ColumnMask, ColumnPolicy, ProtectedColumn, is_from_before
from tablecrypt.keys.former_keys import FormerKey
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.keys.nested_columns import all_ancestors, ancestors, covering
from tablecrypt.table.metadata import EncryptedTableMetadata, has_column_keys
from tablecrypt.table.table_files import OpensColumnKeys

WHERE: Final = "docs/column-keys.md"
LEAST_ROWS: Final = 1000
LEAST_BYTES: Final = 1024 * 1024
LEAST: Final[Mapping[str, int]] = {
    TableProperties.PARQUET_ROW_GROUP_LIMIT: LEAST_ROWS,
    TableProperties.PARQUET_PAGE_ROW_LIMIT: LEAST_ROWS,
    TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES: LEAST_BYTES,
    TableProperties.WRITE_TARGET_FILE_SIZE_BYTES: LEAST_BYTES,
}
"""By property, the smallest value in a table with protected columns (rule 6)."""
Names = Mapping[int, frozenset[str]]
"""Names as compared, by field id."""
Leaves = Mapping[int, tuple[str, ProtectedColumn | None]]
"""The name of a column without columns in it, as users write it, and how it is protected, by field id."""
_CAPITAL_I_WITH_DOT: Final = "\u0130"


def policy_of(metadata: TableMetadata, touched: Container[int] | None = None) -> ColumnPolicy:
    """Return the protected columns of a table's current schema, after checking that properties and names are still theirs.

    Args:
        metadata: the table's.
        touched: field ids of the columns that a read needs values of, whose names alone are checked; None for all.

    Raises:
        ConfigurationError: the properties cannot be used, or another column has the name of a protected one.
        KeyIdChangedError: a column of the schema has a column key, and the properties do not name it.
    """
    policy = ColumnPolicy.from_properties(metadata.properties, metadata.schema())
    if isinstance(metadata, EncryptedTableMetadata):
        check_protected(metadata.key_ring, policy, metadata.schema())
    # Here and not in commits alone: another engine may have committed the schema, or somebody may have edited the metadata.
    check_names(metadata, touched)
    return policy


def check_protected(ring: KeyRing, policy: ColumnPolicy, schema: Schema) -> None:
    """Check that properties still protect what has been protected.

    Raises:
        KeyIdChangedError: a column of the schema has a column key, and the properties do not name it.
    """
    for entry in ring.column_keys:
        if not policy.master_keys(entry.field_id) and (name := schema.find_column_name(entry.field_id)) is not None:
            raise KeyIdChangedError(
                f"column {name!r} has a key of its own in encryption-keys, and the table's properties no longer say so: somebody removed "
                f"encryption.column.{entry.field_id}.key-id. Restore it; the column would be written under the table's key"
            )


def column_keys(metadata: EncryptedTableMetadata, io: OpensColumnKeys) -> ColumnKeys:
    """Return what makes and opens the keys of a table's protected columns.

    Args:
        metadata: the version that is written to or read; columns of earlier schemas can be opened too.
        io: the table's.
    """
    return io.column_keys(ColumnPolicy.from_properties(metadata.properties), metadata.key_ring)


def unreadable(keys: ColumnKeys, field_ids: Iterable[int]) -> dict[int, ColumnKeyDeniedError]:
    """Return which of these columns this user may not read, and why, in the order given."""
    denied: dict[int, ColumnKeyDeniedError] = {}
    for field_id in field_ids:
        try:
            keys.check_readable((field_id,))
        except ColumnKeyDeniedError as error:
            denied[field_id] = error

    return denied


def refuse_protected(metadata: TableMetadata, what: str) -> None:
    """Refuse something that does not know of protected columns, and would write or show them as the table's other columns.

    Args:
        metadata: the table's.
        what: names it, at the beginning of a sentence.

    Raises:
        ConfigurationError: a column of the table is or was protected.
    """
    if has_column_keys(metadata):
        raise ConfigurationError(
            f"{what} does not support tables with protected columns yet ({metadata.location} has some): read and write them with "
            f"table.scan(), append() and the other methods of the table; see {WHERE}"
        )


def check_layout(policy: ColumnPolicy, metadata: TableMetadata) -> None:
    """Check that a table's current schema, partition spec and sort order keep to rules 1, 7 and 8.

    Raises:
        ConfigurationError: they do not.
    """
    schema = metadata.schema()
    policy.check(schema, str(metadata.properties.get(names.KEY_ID.name, "")))
    for use, field_ids in (
        ("partitioned", {field.source_id for field in metadata.spec().fields}),
        ("sorted", {field.source_id for field in metadata.sort_order().fields}),
        ("identified in equality deletes", set(schema.identifier_field_ids)),
    ):
        _check_shows_none(policy, schema, use, field_ids)
    _check_no_defaults(policy, schema)


def _check_no_defaults(policy: ColumnPolicy, schema: Schema) -> None:
    defaulted = sorted(field_id for field_id, field in index_by_id(schema).items() if field.write_default is not None)
    for field_id in defaulted:
        if (name := protected_name(policy, schema, field_id)) is not None:
            column = schema.find_column_name(field_id)
            raise ConfigurationError(
                f"column {column!r} has a write-default, and no protected column such as {name!r} may have one: whoever may commit chooses "
                f"it, and it would pass for a value of somebody with the column's key. Write the value in the rows, and take the default "
                f"away: set_default_value({column!r}, None), or ALTER COLUMN … DROP DEFAULT"
            )


def _check_shows_none(policy: ColumnPolicy, schema: Schema, use: str, field_ids: Iterable[int]) -> None:
    for field_id in sorted(field_ids):
        if (name := protected_name(policy, schema, field_id)) is not None:
            raise ConfigurationError(
                f"rows cannot be {use} by column {schema.find_column_name(field_id)!r}: its values would be visible outside of the "
                f"protected column {name!r}. Use another column, or remove the protection"
            )


def check_still_protected(protected_before: Iterable[int], metadata: TableMetadata, location: str) -> None:
    """Check rule 4.

    Args:
        protected_before: the field ids that an authenticated manifest list names.
        metadata: what a commit is based on.
        location: of the manifest list.

    Raises:
        KeyIdChangedError: a column of the schema is among them, and the properties do not name it.
    """
    policy = ColumnPolicy.from_properties(metadata.properties)
    for field_id in sorted(protected_before):
        # A protection that is removed through tablecrypt leaves a former master key (declaration.py), an edit of properties none.
        if not policy.master_keys(field_id) and (name := metadata.schema().find_column_name(field_id)) is not None:
            raise KeyIdChangedError(
                f"column {name!r} was protected when {location} was written, and the table's properties do not say that it is or was: "
                f"somebody removed encryption.column.{field_id}.key-id. Restore it, or declare the column again ({names.COLUMN_KEYS.name})"
            )


def check_policy(before: TableMetadata, after: TableMetadata) -> None:
    """Check the metadata of a commit against what it is based on: all rules.

    Raises:
        ConfigurationError, KeyIdChangedError: a rule does not hold.
        CommitFailedException: rule 5 does not; the declaration, made again, keeps it.
    """
    earlier = ColumnPolicy.from_properties(before.properties)
    policy = policy_of(after)
    whole = ColumnPolicy.from_properties(after.properties)
    for field_id in earlier.columns:
        if not whole.master_keys(field_id) and (name := after.schema().find_column_name(field_id)) is not None:
            raise KeyIdChangedError(f"the protection of column {name!r} was removed from the properties, and not through tablecrypt")
    _check_files_from_before(earlier, policy, before)
    if whole:
        check_changed_sizes(before.properties, after.properties)
        check_layout(policy, after)
        # Writers may be told to use a spec that is not the default. Those from before a protection stay: old files are named by them.
        for spec in (spec for spec_id, spec in after.specs().items() if spec_id not in before.specs()):
            _check_shows_none(policy, after.schema(), "partitioned", {field.source_id for field in spec.fields})
    _check_master_keys(earlier, whole, before)


def _check_files_from_before(earlier: ColumnPolicy, policy: ColumnPolicy, before: TableMetadata) -> None:
    newest = max((snapshot.sequence_number or 0 for snapshot in before.snapshots), default=None)
    if newest is None:
        return

    for field_id, column in policy.columns.items():
        comes_back = before.schema().find_column_name(field_id) is None and was_written_without(before, field_id)
        is_new = field_id not in earlier.columns or comes_back
        if (is_new and not is_from_before(column.since, newest)) or _ends_too_early(earlier, policy.former.get(field_id), column, newest):
            shown = column_shown(field_id, before.schema().find_column_name(field_id))
            raise CommitFailedException(
                f"{before.location}: rows were committed since the protection of {shown} was declared, or since it was brought back; "
                "nothing was committed. Load the table and do that again"
            )


def was_written_without(metadata: TableMetadata, field_id: int) -> bool:
    """Whether a snapshot of the table has another schema than one with this column."""
    schemas: dict[int | None, Schema] = {schema.schema_id: schema for schema in metadata.schemas}
    of_snapshots = [schemas.get(snapshot.schema_id) for snapshot in metadata.snapshots]
    # A snapshot that does not say by which schema it was written may be one.
    return any(schema is None or schema.find_column_name(field_id) is None for schema in of_snapshots)


def _ends_too_early(earlier: ColumnPolicy, former: FormerKey | None, column: ProtectedColumn, newest: int) -> bool:
    """Whether a key that becomes a former one does not count for the newest files that may be under it."""
    if former is None or former.until is None:
        return False
    before = earlier.former.get(column.field_id)
    # One that was a former key already may be given an earlier end: files of since then are not under it.
    is_from_then = column.field_id in earlier.columns and before is not None and before.key_id == former.key_id
    return not is_from_then and not former.opens(newest)


def _check_master_keys(earlier: ColumnPolicy, whole: ColumnPolicy, before: TableMetadata) -> None:
    """Check that a column's master key goes on as a former one: a declaration that did not know of it does not say so."""
    for field_id, column in earlier.columns.items():
        keys, name = whole.master_keys(field_id), before.schema().find_column_name(field_id)
        if keys and column.column_key_id not in keys and name is not None:
            raise CommitFailedException(
                f"{before.location}: column {name!r} has come under master key {column.column_key_id!r} since it was declared under "
                f"{keys[0]!r}; nothing was committed. Load the table and declare it again"
            )


def protected_name(policy: ColumnPolicy, schema: Schema, field_id: int) -> str | None:
    """Return the name of the protected column that a column is, lies in, or has within it; None if there is none."""
    related = {field_id, *ancestors(schema, field_id)}
    for protected in policy.columns:
        name = schema.find_column_name(protected)
        if name is not None and (protected in related or field_id in ancestors(schema, protected)):
            return name
    return None


def check_sizes(properties: Mapping[str, Any]) -> None:
    """Check that a table with protected columns is written in pages, row groups and files of many rows.

    Raises:
        ConfigurationError: a property is below its floor.
    """
    if ColumnPolicy.from_properties(properties):
        for name in LEAST:
            check_size(name, properties)


def check_size(name: str, properties: Mapping[str, Any]) -> None:
    """Raise ConfigurationError where one of these properties is below its floor, in a table with protected columns."""
    # What is no number at all is refused where it is used.
    text = str(properties.get(name, ""))
    value = int(text) if text.isascii() and text.isdigit() else 0
    if 0 < value < LEAST[name] and ColumnPolicy.from_properties(properties):
        raise ConfigurationError(
            f"{name} is {value}, and the table has protected columns: the length of few rows tells how long single values are, and "
            f"which are null. Set {LEAST[name]} or more"
        )


def check_changed_sizes(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Check the properties of a commit: a table that had too small a setting before this rule takes other changes still.

    Raises:
        ConfigurationError: a commit sets a property below its floor, or protects columns where one is.
    """
    was_protected = bool(ColumnPolicy.from_properties(before))
    for name in LEAST:
        if not was_protected or before.get(name) != after.get(name):
            check_size(name, after)


def least_file_size(properties: Mapping[str, Any], size: int) -> int:
    """Return a file size that was computed, and not chosen: no less than the floor where the table has protected columns."""
    return max(size, LEAST_BYTES) if ColumnPolicy.from_properties(properties) else size


@dataclass(frozen=True)
class TakenName:
    """A name of a protected column that another column has.

    Attributes:
        taker: field id of the other column.
        name: of the other column, as users write it.
        owned: the name that belongs to the protected column, as compared.
        owner: field id of the protected column.
        mask: of the other column where that is under the same key; None where it is not.
    """

    taker: int
    name: str
    owned: str
    owner: int
    mask: ColumnMask | None = None


def folded(name: str) -> str:
    """Return what names are compared by: two that Spark takes for the same have the same.

    Spark compares names by Java's equalsIgnoreCase, letter by letter in capitals and then in small letters: a dotless i and a capital I
    with a dot are an i there. Python's casefold alone would tell them apart.
    """
    return name.replace(_CAPITAL_I_WITH_DOT, "i").upper().casefold()


def names_of_protected(metadata: TableMetadata) -> dict[int, frozenset[str]]:
    """Return the names, as compared, of each protected column of a table, by field id.

    They are those that it has or had in any schema of the metadata, and those of the name mapping. Columns that were dropped are among them
    as long as the properties protect them.

    Raises:
        ConfigurationError: the properties cannot be used.
    """
    policy = ColumnPolicy.from_properties(metadata.properties)
    found: defaultdict[int, set[str]] = defaultdict(set)
    if not policy:
        return {}

    # Earlier names too: programs go on writing by the names that they know.
    for schema in metadata.schemas:
        for field_id, name, _ in _named_fields(schema):
            if field_id in policy.columns:
                found[field_id].add(folded(name))
    # In files without field ids it has these, too.
    for field_id, name in _mapped_names(metadata):
        if field_id in policy.columns:
            found[field_id].add(folded(name))

    return {field_id: frozenset(names) for field_id, names in sorted(found.items())}


def protection_of_leaves(policy: ColumnPolicy, schema: Schema) -> Leaves:
    """Return the columns of a schema that have no columns in them. Arguments: the table's policy, and the schema."""
    protected = covering(policy.columns, schema)
    return {field_id: (name, protected.get(field_id)) for field_id, name, is_leaf in _named_fields(schema) if is_leaf}


def taken_names(
    names: Names, policy: ColumnPolicy, leaves: Iterable[tuple[int, tuple[str, ProtectedColumn | None]]]
) -> Iterator[TakenName]:
    """Yield each name that was taken.

    Args:
        names: that belong to protected columns.
        policy: the table's, with columns that were dropped.
        leaves: of the current schema, as the items of `protection_of_leaves`.
    """
    compared = [(taker, name, folded(name), protection) for taker, (name, protection) in leaves]
    for owner, belonging in names.items():
        if (column := policy.columns.get(owner)) is None:
            continue
        for owned in sorted(belonging):
            others = (each for each in compared if not _is_as_protected(each[-1], column))
            yield from (TakenName(taker, name, owned, owner, _mask(by, column)) for taker, name, own, by in others if _meet(own, owned))


def _is_as_protected(taker: ProtectedColumn | None, owner: ProtectedColumn) -> bool:
    if taker is None or taker.column_key_id != owner.column_key_id:
        return False
    # What lies in the protected column, or is it, is protected with it. Another one may show to everybody what this one does not.
    return taker.field_id == owner.field_id or not taker.mask.is_stored or taker.mask == owner.mask


def _mask(taker: ProtectedColumn | None, owner: ProtectedColumn) -> ColumnMask | None:
    return taker.mask if taker is not None and taker.column_key_id == owner.column_key_id else None


def check_names(metadata: TableMetadata, touched: Container[int] | None = None) -> None:
    """Check that no column has the name of a protected one without being protected under the same key.

    Args:
        metadata: the table's.
        touched: field ids of the columns that a read needs values of, which alone matter to it; None for all.

    Raises:
        ConfigurationError: one has.
    """
    policy, schema = ColumnPolicy.from_properties(metadata.properties), metadata.schema()
    names = _names_at(metadata, policy, metadata.read_at if isinstance(metadata, EncryptedTableMetadata) else None)
    if not names:
        return

    for taken in taken_names(names, policy, _mapped_columns(metadata, policy)):
        # What a protected column lies in has the first part of its name by right, and no values.
        if taken.owned.startswith(f"{folded(taken.name)}.") and _lies_in(metadata, taken.owner, taken.taker):
            continue
        takes = schema.find_column_name(taken.taker)
        raise ConfigurationError(
            f"the property {TableProperties.DEFAULT_NAME_MAPPING} gives the name {taken.name!r} of the protected column with field id "
            f"{taken.owner} to {'column ' + repr(takes) if takes else f'field id {taken.taker}'}: set it as it was"
        )

    for taken in taken_names(names, policy, protection_of_leaves(policy, schema).items()):
        # Right-holders may have written values of the protected column into the other one, and anybody may have put his own there: neither
        # column is what its name says. The others are.
        if touched is None or taken.taker in touched or taken.owner in touched:
            raise ConfigurationError(taken_message(taken, policy.columns[taken.owner].column_key_id, schema))


def check_names_in(metadata: TableMetadata, snapshot: Snapshot, columns: Schema) -> None:
    """Check that no column of a snapshot is read by the name of a protected one without being protected under the same key.

    Args:
        metadata: the table's.
        snapshot: it is read by the names of its own schema, which need not be those of the current one.
        columns: those of its schema that are read.

    Raises:
        ConfigurationError: one is.
    """
    policy = ColumnPolicy.from_properties(metadata.properties)
    for taken in taken_names(_names_at(metadata, policy, snapshot.sequence_number), policy, protection_of_leaves(policy, columns).items()):
        raise ConfigurationError(
            f"snapshot {snapshot.snapshot_id} has schema {snapshot.schema_id}, in which {taken.name!r} is the column with field id "
            f"{taken.taker}: the name {taken.owned!r} belongs to the protected column with field id {taken.owner}, and whoever committed "
            "the snapshot may have put other values there. Read other columns of it, or another snapshot"
        )


def _names_at(metadata: TableMetadata, policy: ColumnPolicy, sequence_number: int | None) -> dict[int, frozenset[str]]:
    """Return the names of the columns that were protected at a sequence number; of all that are now without one."""
    return {
        owner: owned
        for owner, owned in names_of_protected(metadata).items()
        # Before a column was protected, the name may have been another one's by right.
        if owner not in policy.columns or not is_from_before(policy.columns[owner].since, sequence_number)
    }


def _mapped_columns(metadata: TableMetadata, policy: ColumnPolicy) -> Iterator[tuple[int, tuple[str, ProtectedColumn | None]]]:
    """Yield what the name mapping names, and how it is protected, as `taken_names` takes it.

    In a file without field ids a column is the one that its name is mapped to, whatever the schema calls that, and whether it has it or
    not: under an id that no schema has, its values would be nobody's, and stay in the clear.
    """
    names = list(_mapped_names(metadata))
    if not names:
        return
    # Columns that were dropped keep their names in the mapping.
    protected = {field_id: each for schema in metadata.schemas for field_id, each in covering(policy.columns, schema).items()}
    yield from ((field_id, (name, protected.get(field_id))) for field_id, name in names)


def _lies_in(metadata: TableMetadata, field_id: int, around: int) -> bool:
    return any(around in all_ancestors(schema).get(field_id, ()) for schema in metadata.schemas)


def _mapped_names(metadata: TableMetadata) -> Iterator[tuple[int, str]]:
    """Yield the names that a table's name mapping knows, dotted, and whose they are."""
    mapping = metadata.name_mapping()
    waiting = [("", mapping.root)] if mapping else []
    while waiting:
        around, columns = waiting.pop()
        for column in columns:
            for name in column.names:
                if column.field_id is not None:
                    yield column.field_id, around + name
                waiting.append((f"{around}{name}.", column.fields))


def taken_message(taken: TakenName, master_key_id: str, schema: Schema, *, is_stated: bool = True) -> str:
    """Return one line about a name that was taken.

    Args:
        taken: the name.
        master_key_id: of the protected column.
        schema: the table's.
        is_stated: whether properties say how the protected column is protected, and could be removed.
    """
    now = schema.find_column_name(taken.owner)
    owner = f"which is {now!r} now" if now is not None else "which was dropped"
    free = "" if now is not None or not is_stated else f", or remove encryption.column.{taken.owner}.key-id if it is to be readable"
    takes = f"column {taken.name!r} takes the name of the protected column {taken.owned!r} (field id {taken.owner}, {owner}): values that "
    if taken.mask is not None:
        return (
            f"{takes}somebody writes by that name would be shown to others by the mask {taken.mask}. Give both the same mask or "
            f"{taken.name!r} the mask null in the same transaction (encryption.column-mask.{taken.name}), or rename it{free}"
        )
    return (
        f"{takes}"
        f"somebody writes by that name would not be under {master_key_id!r}. Declare {taken.name!r} under that key in the same transaction "
        f"(encryption.column-keys), or rename it{free}"
    )


def _meet(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _named_fields(schema: Schema) -> Iterator[tuple[int, str, bool]]:
    """The field id and the name of each column at every level, and whether it has no columns in it."""

    def visit(field_id: int, name: str, column_type: IcebergType) -> Iterator[tuple[int, str, bool]]:
        yield field_id, name, column_type.is_primitive
        if isinstance(column_type, StructType):
            for inner in column_type.fields:
                yield from visit(inner.field_id, f"{name}.{inner.name}", inner.field_type)
        elif isinstance(column_type, ListType):
            yield from visit(column_type.element_id, name, column_type.element_type)
        elif isinstance(column_type, MapType):
            yield from visit(column_type.key_id, name, column_type.key_type)
            yield from visit(column_type.value_id, name, column_type.value_type)

    for field in schema.fields:
        yield from visit(field.field_id, field.name, field.field_type)
