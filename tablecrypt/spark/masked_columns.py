"""Masks in DataFrames: which columns show them, and that Spark evaluates no condition on them.

    read_table on the Python path ──▶ columns with MARK in their metadata ──▶ java/ColumnOrigins.java refuses conditions on them
                                                                          ──▶ write_table, format("tablecrypt") refuse to store them

In a classic session the Java class is put behind the optimizer when masks are read. A session that does not take it, such as one of Spark
Connect, shows masks to a reader who asks for them by name alone, and raises an error otherwise.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pyiceberg.schema import Schema

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.nested_columns import path_through_structs
from tablecrypt.spark.columns import schema_for_spark, spark_schema
from tablecrypt.spark.shared.install import jvm_side
from tablecrypt.table.protection.visible_columns import ERROR
from tablecrypt.table.table_files import name_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tablecrypt.table.table import EncryptedTable

MARK: Final = "tablecrypt.masked"
"""Metadata of a column of a DataFrame: JSON of the paths of names that lead from the column down to what is masked, [[]] for the column."""


def marked_schema(table: EncryptedTable, projected: Schema, readable: frozenset[int]) -> StructType:
    """Return Spark's schema of columns of a table, in which masked ones are marked.

    Args:
        table: what is read.
        projected: the columns.
        readable: field ids of the protected columns whose values are shown.
    """
    schema = spark_schema(schema_for_spark(projected))
    below: dict[str, list[list[str]]] = {}
    # Metadata of a column goes with it through Spark's plans, under any name that the query gives it.
    for field_id in sorted(masked_ids(table, projected, readable)):
        path = [field.name for field in path_through_structs(projected, field_id) or ()]
        below.setdefault(path[0], []).append(path[1:])
    for name, paths in below.items():
        schema[name].metadata[MARK] = json.dumps(paths)
    return schema


def masked_ids(table: EncryptedTable, projected: Schema, readable: frozenset[int]) -> set[int]:
    """Return the field ids of the columns of a read that show masks."""
    policy = ColumnPolicy.from_properties(table.metadata.properties)
    return {*policy.columns, *policy.former} & projected.field_ids - readable


def check_values(schema: StructType, table: EncryptedTable) -> None:
    """Check that a DataFrame shows no masks in columns that it writes to protected ones.

    A DataFrame that was read before its user got the right to the column still has masks: as values, they would stay.

    Args:
        schema: the DataFrame's.
        table: what it is written to.

    Raises:
        ConfigurationError: it shows masks in one.
    """
    for field_id in ColumnPolicy.from_properties(table.metadata.properties).columns:
        path = path_through_structs(table.schema(), field_id)
        name = path[0].name if path else ""
        # By the top-level column: a mask anywhere in a struct would be stored with the struct.
        if name in schema.names and MARK in schema[name].metadata:
            raise ConfigurationError(
                f"{name_of(table)}: the DataFrame has masks in {name}, which would be stored as values of a protected column: it "
                "was read without the right to that column. Read it again with the right, or leave the column out"
            )


def refuses_conditions(spark: SparkSession) -> bool:
    """Make a session refuse conditions on marked columns. Return False for one that does not take Java classes."""
    if not hasattr(spark, "_jsparkSession"):
        return False

    try:
        # Conditions that Spark evaluates by itself reach no code of ours but in its optimizer.
        jvm_side(spark).endpoint.refuseConditionsOnMasks(spark._jsparkSession)
    except ConfigurationError:
        return False

    return True


def masks_asked_for(table: EncryptedTable, masked: str | None) -> str:
    """Return what a read does about columns that it may not see, in a session that does not refuse conditions on masks.

    Args:
        table: what is read.
        masked: what its reader asked for; None for nothing.
    """
    return table.scan(masked=masked).masked or ERROR
