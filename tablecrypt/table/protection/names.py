"""The names of protected columns: what is written by a name that a protected column has or had is under that column's key.

Files and properties know columns by field id, and writers know them by name. Were the name of a protected column free for another one,
the next rows that somebody writes by that name would hold protected values in the clear, and nobody would notice.

    name     the names of the structs around a column and its own, with dots between them: `person.email`. Elements, keys and values of
             lists and maps add nothing, so that what lies in person: list<struct<email>> has that name too
    taken    a column of the current schema, with no columns in it, has a name that a protected column has or had in any schema of the
             metadata, as `folded` compares them, and is not protected under the same master key. So has one whose name goes on where the
             other ends, or ends earlier: `ssn.number` holds what ssn held, and `person` of type string what person.email held

A protected column may be renamed, and renamed back; two under one master key may exchange their names.

Where another engine has committed a schema with a taken name, or somebody has edited the metadata:

    a read of, or a filter by, the column that took the name, or the one that it belongs to    refused
    any other read                                                                            goes on
    a commit, and whatever writes data files                                                  refused, but for what gives the name back

Whoever may commit so denies reads of the two columns alone. Commits are refused whatever they write: each row has a value of both columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.nested_columns import covering

Names = Mapping[int, frozenset[str]]
"""Names as compared, by field id."""
Leaves = Mapping[int, tuple[str, str | None]]
"""The name of a column without columns in it, as users write it, and the master key that it is protected under, by field id."""
_CAPITAL_I_WITH_DOT: Final = "\u0130"


@dataclass(frozen=True)
class TakenName:
    """A name of a protected column that another column has.

    Attributes:
        taker: field id of the other column.
        name: of the other column, as users write it.
        owned: the name that belongs to the protected column, as compared.
        owner: field id of the protected column.
    """

    taker: int
    name: str
    owned: str
    owner: int


def folded(name: str) -> str:
    """Return what names are compared by: two that Spark takes for the same have the same.

    Spark compares names by Java's equalsIgnoreCase, letter by letter in capitals and then in small letters: a dotless i and a capital I
    with a dot are an i there. Python's casefold alone would tell them apart.
    """
    return name.replace(_CAPITAL_I_WITH_DOT, "i").upper().casefold()


def names_of_protected(metadata: TableMetadata) -> dict[int, frozenset[str]]:
    """Return the names, as compared, that each protected column of a table has or had in any schema of its metadata, by field id.

    Columns that were dropped are among them as long as the properties protect them.

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

    return {field_id: frozenset(names) for field_id, names in sorted(found.items())}


def keys_of_leaves(policy: ColumnPolicy, schema: Schema) -> Leaves:
    """Return the columns of a schema that have no columns in them. Arguments: the table's policy, and the schema."""
    protected = covering(policy.columns, schema)
    return {
        field_id: (name, protected[field_id].column_key_id if field_id in protected else None)
        for field_id, name, is_leaf in _named_fields(schema)
        if is_leaf
    }


def taken_names(names: Names, policy: ColumnPolicy, leaves: Leaves) -> Iterator[TakenName]:
    """Yield each name that was taken.

    Args:
        names: that belong to protected columns.
        policy: the table's, with columns that were dropped.
        leaves: of the current schema, see `keys_of_leaves`.
    """
    compared = [(taker, name, folded(name), key) for taker, (name, key) in leaves.items()]
    for owner, belonging in names.items():
        if (column := policy.columns.get(owner)) is None:
            continue
        for owned in sorted(belonging):
            # What lies in the protected column, or is it, is under the very same key.
            others = (each for each in compared if each[-1] != column.column_key_id)
            yield from (TakenName(taker, name, owned, owner) for taker, name, own, _ in others if _meet(own, owned))


def check_names(metadata: TableMetadata, touched: Container[int] | None = None) -> None:
    """Check that no column has the name of a protected one without being protected under the same key.

    Args:
        metadata: the table's.
        touched: field ids of the columns that a read needs values of, which alone matter to it; None for all.

    Raises:
        ConfigurationError: one has.
    """
    if not (names := names_of_protected(metadata)):
        return

    policy, schema = ColumnPolicy.from_properties(metadata.properties), metadata.schema()
    for taken in taken_names(names, policy, keys_of_leaves(policy, schema)):
        # Right-holders may have written values of the protected column into the other one, and anybody may have put his own there: neither
        # column is what its name says. The others are.
        if touched is None or taken.taker in touched or taken.owner in touched:
            raise ConfigurationError(taken_message(taken, policy.columns[taken.owner].column_key_id, schema))


def taken_message(taken: TakenName, master_key_id: str, schema: Schema) -> str:
    """Return one line about a name that was taken."""
    now = schema.find_column_name(taken.owner)
    owner = f"which is {now!r} now" if now is not None else "which was dropped"
    free = "" if now is not None else f", or remove encryption.column.{taken.owner}.key-id if it is to be readable"
    return (
        f"column {taken.name!r} takes the name of the protected column {taken.owned!r} (field id {taken.owner}, {owner}): values that "
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
