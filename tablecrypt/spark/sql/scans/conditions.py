"""Conditions on protected columns that Spark evaluates by itself. The Parquet reader and the planner never see them.

    described table ─▶ paths of the protected columns ─▶ java/ColumnOrigins.java follows them through the optimized plan of a query
    check_conditions ─▶ nothing: the user may read all columns that WHERE, ON, HAVING, CASE WHEN, FILTER and comparisons look at

A condition on a column that the user may not read would be evaluated on masks, and its rows would be wrong: the query is refused.
"""

from __future__ import annotations

from pyiceberg.schema import Schema

from tablecrypt.errors import FormatError
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.nested_columns import path_through_structs
from tablecrypt.spark.sql.messages import TableRequest, operation
from tablecrypt.spark.sql.planner import LoadedTable, Planner
from tablecrypt.spark.tables import readable_columns
from tablecrypt.table.protection.visible_columns import MASK


def protected_paths(loaded: LoadedTable) -> list[list[str]]:
    """Return the path of names to each column that is protected or was, as the schema that is read names it."""
    return list(_by_path(loaded).values())


class CheckConditions(TableRequest):
    """The columns that a query's conditions look at, each as the path of names to it."""

    columns: list[list[str]]


@operation
def check_conditions(planner: Planner, request: CheckConditions) -> None:
    """Check that this user may read the columns that a query's conditions look at.

    Raises:
        ColumnKeyDeniedError: one of them would be masked.
        FormatError: one of them is not protected.
    """
    loaded = planner.tables[request.table]
    known = {tuple(path): field_id for field_id, path in _by_path(loaded).items()}
    asked = [tuple(path) for path in request.columns]
    # A column that is not found here would pass as one that needs no check.
    if unknown := [path for path in asked if path not in known]:
        raise FormatError(f"{loaded.located.name} has no protected column {'.'.join(unknown[0])}")

    readable_columns(loaded.located.table, Schema(), {known[path] for path in asked}, MASK)


def _by_path(loaded: LoadedTable) -> dict[int, list[str]]:
    policy, schema = ColumnPolicy.from_properties(loaded.located.table.metadata.properties), loaded.schema
    paths = {field_id: path_through_structs(schema, field_id) for field_id in sorted({*policy.columns, *policy.former})}
    return {field_id: [field.name for field in path] for field_id, path in paths.items() if path}
