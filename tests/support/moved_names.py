"""Changes of a schema that would give the name of a protected column to another one, for tables of PEOPLE_SCHEMA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyiceberg.table import Transaction
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StringType, StructType

Step = Callable[[UpdateSchema], object]


def renamed(before: str, after: str) -> Step:
    """Rename a column."""
    return lambda change: change.rename_column(before, after)


def added(name: str, column_type: IcebergType) -> Step:
    """Add a column."""
    return lambda change: change.add_column(name, column_type)


def dropped(name: str) -> Step:
    """Drop a column."""
    return lambda change: change.delete_column(name)


TEXT: Final = StringType()
OLD_PARENT: Final = renamed("person", "person_old")
RENAMED_AND_ADDED: Final = (renamed("ssn", "ssn_old"), added("ssn", TEXT))
EXCHANGED: Final = (renamed("ssn", "third"), renamed("note", "ssn"), renamed("third", "note"))
MOVES: Final[Mapping[str, Sequence[Step]]] = {
    "renamed and added": RENAMED_AND_ADDED,
    "exchanged": EXCHANGED,
    "another renamed onto it": (renamed("ssn", "ssn_old"), renamed("note", "ssn")),
    "renamed, dropped and added": (renamed("ssn", "ssn_old"), dropped("ssn_old"), added("ssn", TEXT)),
    "dropped and added": (dropped("ssn"), added("ssn", TEXT)),
    "dropped and added in capitals": (dropped("ssn"), added("SSN", TEXT)),
    "a struct in its place": (renamed("ssn", "ssn_old"), added("ssn", StructType(NestedField(100, "number", TEXT)))),
    "parent renamed, and added in capitals": (OLD_PARENT, added("Person", StructType(NestedField(100, "EMAIL", TEXT)))),
    "parent added as a list": (OLD_PARENT, added("person", ListType(100, StructType(NestedField(101, "email", TEXT)), False))),
    "parent added as a map": (OLD_PARENT, added("person", MapType(100, TEXT, 101, TEXT, False))),
    "parent added as text": (OLD_PARENT, added("person", TEXT)),
}


def take(transaction: Transaction, steps: Sequence[Step]) -> None:
    """Stage them, each as a change of its own."""
    for step in steps:
        with transaction.update_schema() as change:
            step(change)
