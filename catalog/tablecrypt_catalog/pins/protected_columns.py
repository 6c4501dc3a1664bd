"""The protected columns of a table in its pin: no other client makes a protection weaker unnoticed.

Properties and `encryption-keys` are plaintext metadata, and a catalog can remove both. What manifest lists say of protected columns reveals
that, but a commit by Iceberg Java writes lists that say nothing. A pin keeps, by field id, the master key, the mask, `since`, the names
that the column has or had, and the former master key under which files may hold it, with the sequence number until which it counts:

    change of another client                              why it is refused, or not
    a column is protected no more                         refused: new files would hold it under the table's key
    another master key                                    refused: whoever may use that key would read new files
    another mask that files store                         refused: truncate(64) shows most texts to everybody
    a later `since`, or one where there was none          refused: files without the protection would be accepted
    a former master key that was not there, or a later    refused: whoever may use that key could forge values
    `former-until` of one that was
    another column has a name of a protected one          refused, whoever did it: rows that are written by that name would hold it in the
    and is not protected under the same key, or has       clear, or behind that mask. The names that a pin knows never become fewer,
    another mask that files store                         whatever metadata says
    a column more, the mask `null` or `error`, `since`    accepted: they reveal nothing more
    or `former-until` smaller or gone, a former key gone,
    a name more

    stored as    [[field id, master key, mask, since or null, [name, …], former master key or null, `former-until` or null], …] by ascending
                 field id, in JSON; names as `names.folded` compares them

Pins of before have the first four or six. What such a pin lacks is trusted the next time that the table is loaded. A `former-until` that
goes stays pinned as long as its key: without it no reader opens files under that key, and it cannot come back with a later number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate
from pyiceberg.typedef import IcebergBaseModel

from tablecrypt._parsed_json import problem_of
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.keys.column_keys import ColumnMask, ColumnPolicy, ProtectedColumn, field_id_in
from tablecrypt.keys.former_keys import FormerKey
from tablecrypt.table.protection.policy import Leaves, names_of_protected, protection_of_leaves, taken_names

P = TypeVar("P")
StoredColumn = (
    tuple[int, str, str, int | None, list[str], str | None, int | None]
    | tuple[int, str, str, int | None, list[str], str | None]
    | tuple[int, str, str, int | None]
)

_STORED: Final = TypeAdapter(tuple[StoredColumn, ...])


@dataclass(frozen=True)
class PinnedColumn(ProtectedColumn):
    """A protected column, and what else a pin keeps of it.

    Attributes:
        names: that it has or had, as compared; None in pins of before: not known.
        former_key_id: the master key under which older files may hold it.
        former_until: up to which data sequence number; None in pins of before: not known.
    """

    names: frozenset[str] | None = None
    former_key_id: str | None = None
    former_until: int | None = None

    def following(self, before: PinnedColumn | None) -> PinnedColumn:
        """Return it with what a pin before knew and metadata no longer says: further names, and until when the former key counts."""
        if before is None:
            return self
        names = self.names if before.names is None else (self.names or frozenset()) | before.names
        is_silent = self.former_until is None and self.former_key_id == before.former_key_id
        return replace(self, names=names, former_until=before.former_until if is_silent else self.former_until)


def columns_of(metadata: TableMetadata) -> Mapping[int, PinnedColumn]:
    """Return the protected columns of a table, those that were dropped too; none where the properties cannot be read.

    Names that other columns have taken are left out.

    Whatever uses the columns says what is wrong with such properties. A pin that names columns refuses them, since they protect none.
    """
    try:
        policy, names = ColumnPolicy.from_properties(metadata.properties), names_of_protected(metadata)
    except ConfigurationError:
        return {}

    if not policy:
        return {}

    # A schema that was accepted on purpose, or at first sight, can be loaded: else nobody could rename what took the name. Whoever reads
    # or writes the table is told.
    lost = {(each.owner, each.owned) for each in taken_names(names, policy, protection_of_leaves(policy, metadata.schema()).items())}
    names = {field_id: frozenset(name for name in known if (field_id, name) not in lost) for field_id, known in names.items()}

    return {
        field_id: _pinned(each, policy.former.get(field_id), names.get(field_id, frozenset())) for field_id, each in policy.columns.items()
    }


def _pinned(column: ProtectedColumn, former: FormerKey | None, names: frozenset[str]) -> PinnedColumn:
    key_id, until = (None, None) if former is None else (former.key_id, former.until)
    return PinnedColumn(column.field_id, column.column_key_id, column.mask, column.since, names, key_id, until)


def leaves_of(metadata: TableMetadata) -> Leaves:
    """Return which columns of the current schema are under which master keys; none where the properties cannot be read."""
    try:
        policy = ColumnPolicy.from_properties(metadata.properties)
    except ConfigurationError:
        return {}
    return protection_of_leaves(policy, metadata.schema()) if policy else {}


def columns_as_text(columns: Mapping[int, PinnedColumn]) -> str:
    """Return columns as the pins of a catalog store them: JSON."""
    return json.dumps(stored_columns(columns))


def columns_from_text(text: str | None, where: str) -> dict[int, PinnedColumn]:
    """Return the columns in a pin of a catalog; none where it has none.

    Args:
        text: what the catalog stores; None in pins of before.
        where: names the pin in errors.

    Raises:
        FormatError: the text cannot be read.
    """
    stored: tuple[StoredColumn, ...] = from_text(_STORED, text, where, ())
    return columns_from(stored)


def from_text(form: TypeAdapter[P], text: str | None, where: str, default: P) -> P:
    """Return what a pin of a catalog stores as JSON; the default where it stores nothing, as pins of before.

    Raises:
        FormatError: it cannot be read; `where` names the pin in it.
    """
    try:
        return default if text is None else form.validate_json(text)
    except ValidationError as error:
        raise FormatError(f"{where} cannot be read: {problem_of(error)}") from error


def stored_columns(columns: Mapping[int, PinnedColumn]) -> list[StoredColumn]:
    """Return columns as a pin stores them."""
    return [_stored(each) for _, each in sorted(columns.items())]


def _stored(column: PinnedColumn) -> StoredColumn:
    row = (column.field_id, column.column_key_id, str(column.mask), column.since)
    # As the release before stored it: the next time that the table is loaded completes it.
    return row if column.names is None else (*row, sorted(column.names), column.former_key_id, column.former_until)


def columns_from(stored: Iterable[StoredColumn]) -> dict[int, PinnedColumn]:
    """Return the columns that a pin stores.

    Raises:
        FormatError: one cannot be protected so.
    """
    try:
        columns = [_read(row) for row in stored]
    except ConfigurationError as error:
        raise FormatError(f"a pin names a protected column that cannot be read: {problem_of(error)}") from error
    return {each.field_id: each for each in columns}


def _read(row: StoredColumn) -> PinnedColumn:
    if len(row) == 4:
        field_id, key_id, mask, since = row
        return PinnedColumn(field_id, key_id, ColumnMask.parse(mask), since)
    if len(row) == 6:
        field_id, key_id, mask, since, names, former = row
        return PinnedColumn(field_id, key_id, ColumnMask.parse(mask), since, frozenset(names), former)

    field_id, key_id, mask, since, names, former, until = row
    return PinnedColumn(field_id, key_id, ColumnMask.parse(mask), since, frozenset(names), former, until)


def merged_columns(before: Mapping[int, PinnedColumn], now: Mapping[int, PinnedColumn]) -> Mapping[int, PinnedColumn]:
    """Return what a pin keeps after a version that was accepted: its columns, with what the pin knew of them beside."""
    return {field_id: each.following(before.get(field_id)) for field_id, each in now.items()}


def changed_columns(updates: Iterable[IcebergBaseModel]) -> frozenset[int]:
    """Return the field ids of the columns whose protection a commit sets or removes itself."""
    return frozenset(field_id for update in updates for name in _named(update) if (field_id := field_id_in(name)) is not None)


def weaker(
    before: Mapping[int, PinnedColumn], now: Mapping[int, PinnedColumn], own: frozenset[int] = frozenset()
) -> tuple[int, str] | None:
    """Return the first column that was protected better before, and what became of it; None where none was.

    Args:
        before: the columns as they are pinned.
        now: as they are seen.
        own: field ids of those that this client's own commit has changed.
    """
    for field_id, column in sorted(before.items()):
        # What this client's own commit changes, its user has asked for.
        if field_id not in own and (what := _weaker(column, now.get(field_id))) is not None:
            return field_id, what
    return None


def taken(before: Mapping[int, PinnedColumn], now: Mapping[int, PinnedColumn], leaves: Leaves) -> tuple[int, str] | None:
    """Return the first column whose name, as pinned, another column has now without being protected under the same key; None for none.

    Args:
        before: the columns as they are pinned.
        now: as they are seen; one that is not protected now has no names.
        leaves: the columns of the schema that is seen.
    """
    names = {field_id: each.names for field_id, each in before.items() if each.names and field_id in now}
    for each in taken_names(names, ColumnPolicy(now), leaves.items()):
        key_id = now[each.owner].column_key_id
        why = f"is not under {key_id!r}" if each.mask is None else f"is masked by {each.mask}"
        return each.owner, f"has or had the name {each.owned!r}, and column {each.name!r}, which {why}, takes it"
    return None


def _weaker(before: PinnedColumn, now: PinnedColumn | None) -> str | None:
    if now is None:
        return f"was protected by master key {before.column_key_id!r}, and is not protected now"
    if now.column_key_id != before.column_key_id:
        return f"was under master key {before.column_key_id!r}, and is under {now.column_key_id!r} now"
    if now.mask != before.mask and now.mask.is_stored:
        return f"was masked by {before.mask}, and is masked by {now.mask} now"
    if now.since is not None and (before.since is None or before.since < now.since):
        return f"may be unprotected in files up to sequence number {now.since} now, which was {before.since or 'not so'} before"
    if before.names is not None and now.former_key_id not in (None, before.former_key_id):
        return f"may be under {now.former_key_id!r} in older files now, which was {before.former_key_id or 'not so'} before"
    if before.former_until is not None and now.former_until is not None and before.former_until < now.former_until:
        numbers = f"{now.former_until} now, which was {before.former_until} before"
        return f"may be under {now.former_key_id!r} in files up to sequence number {numbers}"

    return None


def _named(update: IcebergBaseModel) -> Iterator[str]:
    if isinstance(update, SetPropertiesUpdate):
        yield from update.updates
    elif isinstance(update, RemovePropertiesUpdate):
        yield from update.removals
