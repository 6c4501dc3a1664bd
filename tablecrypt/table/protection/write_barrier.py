"""The engine write barrier: properties that keep Iceberg Java from writing a protected column under the table's key.

Java knows nothing of protected columns: an INSERT would put their values into a file under the table's key alone, and a rewrite of files
would take masks for values. So tables with protected columns say that data files are ORC, which Java cannot encrypt:

    write.format.default = orc                  INSERT, UPDATE, MERGE and rewrite_data_files fail: "Native ORC encryption is not supported"
    write.delete.format.default = parquet       deletes of rows work, since they are
    write.{delete,update,merge}.mode            merge-on-read, so that a DELETE writes no data file
    write.metadata.metrics.column.<name>        none, so that bounds of a column which Java writes all the same are in no manifest

It stops accidents: a write with the option write-format=parquet goes through, and an audit finds its files. tablecrypt writes Parquet to
such tables. `encryption.column-guard=false`, set before the columns are declared or with them, turns the barrier off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties

from tablecrypt import properties as names
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.nested_columns import covering

WRITE_BARRIER: Final[Mapping[str, str]] = {
    TableProperties.WRITE_FILE_FORMAT: "orc",
    "write.delete.format.default": "parquet",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}
METRICS_PREFIX: Final = "write.metadata.metrics.column."
NO_METRICS: Final = "none"


def is_barrier_format(properties: Mapping[str, Any]) -> bool:
    """Whether write.format.default is that of the barrier, and the table's protected columns are written as Parquet."""
    is_orc = str(properties.get(TableProperties.WRITE_FILE_FORMAT, "")).lower() == WRITE_BARRIER[TableProperties.WRITE_FILE_FORMAT]
    return is_orc and bool(ColumnPolicy.from_properties(properties))


def barrier_properties(policy: ColumnPolicy, schema: Schema) -> dict[str, str]:
    """Return the barrier of a table with these protected columns."""
    return {**WRITE_BARRIER, **{METRICS_PREFIX + name: NO_METRICS for name in metrics_names(policy, schema)}}


def metrics_names(policy: ColumnPolicy, schema: Schema) -> list[str]:
    """Return the names of the leaf columns whose metrics no manifest is to hold: those that are protected or lie in a protected one."""
    names_of = (
        schema.find_column_name(field_id) for field_id in covering(policy.columns, schema) if schema.find_type(field_id).is_primitive
    )
    return sorted(name for name in names_of if name is not None)


def changed_barrier(properties: Mapping[str, Any], policy: ColumnPolicy, schema: Schema) -> dict[str, str | None]:
    """Return what properties hold in place of the barrier, by name; None for what is missing. Empty where the barrier is turned off."""
    if not policy or not names.COLUMN_GUARD.is_true(properties):
        return {}
    wanted = barrier_properties(policy, schema)
    found = {name: None if properties.get(name) is None else str(properties[name]) for name in wanted}
    return {name: value for name, value in found.items() if value is None or value.lower() != wanted[name]}
