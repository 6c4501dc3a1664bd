"""The protected columns of a table in its pin: nobody but this client makes a protection weaker without being noticed.

Properties and `encryption-keys` are plaintext metadata, and a catalog can remove both. What manifest lists say of protected columns reveals
that, but a commit by Iceberg Java writes lists that say nothing. A pin keeps, by field id, the master key, the mask and `since`:

    change of another client                              why it is refused, or not
    a column is protected no more                         refused: new files would hold it under the table's key
    another master key                                    refused: whoever may use that key would read new files
    another mask that files store                         refused: truncate(64) shows most texts to everybody
    a later `since`, or one where there was none          refused: files without the protection would be accepted
    a column more, the mask `null` or `error`, `since`    accepted: they reveal nothing more
    smaller or gone

    stored as    [[field id, master key, mask, since or null], …] by ascending field id, in JSON
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate
from pyiceberg.typedef import IcebergBaseModel

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.keys.column_keys import COLUMN_PREFIX, ColumnPolicy, Mask, ProtectedColumn

StoredColumn = tuple[int, str, str, int | None]


def columns_of(metadata: TableMetadata) -> Mapping[int, ProtectedColumn]:
    """Return the protected columns of a table, those that were dropped too; none where the properties cannot be read.

    Whatever uses the columns says what is wrong with such properties. A pin that names columns refuses them, since they protect none.
    """
    try:
        return ColumnPolicy.from_properties(metadata.properties).columns
    except ConfigurationError:
        return {}


def stored_columns(columns: Mapping[int, ProtectedColumn]) -> list[StoredColumn]:
    """Return columns as a pin stores them."""
    return [(each.field_id, each.column_key_id, str(each.mask), each.since) for _, each in sorted(columns.items())]


def columns_from(stored: Iterable[StoredColumn]) -> dict[int, ProtectedColumn]:
    """Return the columns that a pin stores.

    Raises:
        FormatError: one cannot be protected so.
    """
    try:
        columns = [ProtectedColumn(field_id, key_id, Mask.parse(mask), since) for field_id, key_id, mask, since in stored]
    except ConfigurationError as error:
        raise FormatError(f"a pin names a protected column that cannot be read: {error}") from error
    return {each.field_id: each for each in columns}


def changed_columns(updates: Iterable[IcebergBaseModel]) -> frozenset[int]:
    """Return the field ids of the columns whose protection a commit sets or removes itself."""
    return frozenset(field_id for update in updates for name in _named(update) if (field_id := _field_id(name)) is not None)


def weaker(
    before: Mapping[int, ProtectedColumn], now: Mapping[int, ProtectedColumn], own: frozenset[int] = frozenset()
) -> tuple[int, str] | None:
    """Return the first column that was protected better before, and what became of it; None where none was.

    Args:
        before: the columns as they are pinned.
        now: as they are seen.
        own: field ids of those that this client's own commit has changed.
    """
    for field_id, column in sorted(before.items()):
        if field_id not in own and (what := _weaker(column, now.get(field_id))) is not None:
            return field_id, what
    return None


def _weaker(before: ProtectedColumn, now: ProtectedColumn | None) -> str | None:
    if now is None:
        return f"was protected by master key {before.column_key_id!r}, and is not protected now"
    if now.column_key_id != before.column_key_id:
        return f"was under master key {before.column_key_id!r}, and is under {now.column_key_id!r} now"
    if now.mask != before.mask and now.mask.is_stored:
        return f"was masked by {before.mask}, and is masked by {now.mask} now"
    if now.since is not None and (before.since is None or before.since < now.since):
        return f"may be unprotected in files up to sequence number {now.since} now, which was {before.since or 'not so'} before"
    return None


def _named(update: IcebergBaseModel) -> Iterator[str]:
    if isinstance(update, SetPropertiesUpdate):
        yield from update.updates
    elif isinstance(update, RemovePropertiesUpdate):
        yield from update.removals


def _field_id(name: str) -> int | None:
    number = name.removeprefix(COLUMN_PREFIX).partition(".")[0]
    return int(number) if name.startswith(COLUMN_PREFIX) and number.isascii() and number.isdecimal() else None
