"""What a commit of this client moves itself: a pin that such a commit contradicts was not contradicted by another client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.update import (
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.typedef import IcebergBaseModel

from tablecrypt.table.table_files import WRITE_PATHS
from tablecrypt_catalog.pins.protected_columns import changed_columns


def moved_refs(updates: Iterable[IcebergBaseModel]) -> frozenset[str]:
    """Return the branches and tags that a commit sets or removes itself: wherever they point afterwards, its author has asked for it."""
    kinds = (SetSnapshotRefUpdate, RemoveSnapshotRefUpdate)
    return frozenset(update.ref_name for update in updates if isinstance(update, kinds))


@dataclass(frozen=True)
class Moves:
    """What a commit of this client moves itself, so that it may be anywhere afterwards.

    Attributes:
        refs: branches and tags that it sets or removes.
        location: whether it sets the table's location, or makes the table.
        write_paths: the folders to which it sets properties write.*.path; None where it neither sets nor removes one. Others that the
            metadata names beside them may come from another writer.
        columns: field ids of columns whose protection it sets or removes.
    """

    refs: frozenset[str] = frozenset()
    location: bool = False
    write_paths: frozenset[str] | None = None
    columns: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.refs) or self.location or self.write_paths is not None or bool(self.columns)


NO_MOVES: Final = Moves()


def creation(asked: Mapping[str, object]) -> Moves:
    """Return what the making of a table moves, given the properties that this client has asked for."""
    return Moves(location=True, write_paths=_write_paths(asked))


def moves_of(updates: Iterable[IcebergBaseModel]) -> Moves:
    """Return what a commit moves by its updates."""
    listed = list(updates)
    set_paths = [_write_paths(update.updates) for update in listed if isinstance(update, SetPropertiesUpdate)]
    return Moves(
        refs=moved_refs(listed),
        location=any(isinstance(update, SetLocationUpdate) for update in listed),
        write_paths=frozenset().union(*set_paths) if any(_moves_write_paths(update) for update in listed) else None,
        columns=changed_columns(listed),
    )


def _write_paths(set_to: Mapping[str, object]) -> frozenset[str]:
    return frozenset(str(set_to[name]) for name in WRITE_PATHS if set_to.get(name))


def _moves_write_paths(update: IcebergBaseModel) -> bool:
    if isinstance(update, SetPropertiesUpdate):
        return any(name in update.updates for name in WRITE_PATHS)
    return isinstance(update, RemovePropertiesUpdate) and any(name in update.removals for name in WRITE_PATHS)
