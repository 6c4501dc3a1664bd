"""The table that the options name, loaded again in each process that asks for it, and plans of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.columns import schema_for_spark, spark_schema
from tablecrypt.spark.masked_columns import marked_schema, masks_asked_for
from tablecrypt.spark.source.options import SourceOptions
from tablecrypt.spark.source.session import SessionFacts
from tablecrypt.spark.tables import LocatedTable, ordered_projection, readable_columns
from tablecrypt.table.protection.visible_columns import MASK
from tablecrypt.table.scan import EncryptedDataScan

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class SourceTable:
    """Options and session facts: what Spark carries in place of a table. Holds no credential and no key."""

    facts: SessionFacts
    options: SourceOptions

    @classmethod
    def of(cls, facts: SessionFacts, options: Mapping[str, str]) -> SourceTable:
        """Check the options."""
        return cls(facts, SourceOptions.of(options))

    def load(self) -> LocatedTable:
        """Load the table from its catalog. Works on the driver's machine."""
        properties = {**self.facts.catalog_properties(self.options.catalog), **self.options.catalog_properties}
        return LocatedTable.of(self.options.table, properties)

    def scan(self, located: LocatedTable, columns: tuple[str, ...] | None) -> EncryptedDataScan:
        """Return a scan of the snapshot that the options name, with their filter.

        Raises:
            ConfigurationError: the table has no such tag or branch.
        """
        options = self.options
        scan = located.table.scan(
            options.row_filter or ALWAYS_TRUE, columns or ("*",), snapshot_id=options.snapshot_id, masked=self.masked(located)
        )
        ref = options.tag or options.branch
        if ref is None:
            return scan
        if ref not in located.table.metadata.refs:
            raise ConfigurationError(f"{located.name} has no tag or branch {ref!r}")
        return scan.use_ref(ref)

    def masked(self, located: LocatedTable) -> str | None:
        """Return what is done about protected columns that may not be read: see `EncryptedTable.scan`."""
        return self.options.masked if self.facts.refuses_conditions else masks_asked_for(located.table, self.options.masked)

    def spark_schema(self) -> StructType:
        """Return the columns that the options select, as Spark has them.

        Raises:
            ColumnKeyDeniedError: values of a protected column are needed that this user may not see.
        """
        located = self.load()
        scan = self.scan(located, self.options.columns)
        projected = ordered_projection(scan, self.options.columns)
        return marked_schema(located.table, projected, readable_columns(located.table, projected, set(), scan.masked or MASK))


def check_declared(declared: StructType, projected: Schema) -> None:
    """Check a schema that was declared in Spark, in CREATE TABLE or by .schema(...), against the table's.

    Raises:
        ConfigurationError: a column has another type.
    """
    actual: dict[str, Any] = {field.name: field.dataType for field in spark_schema(schema_for_spark(projected)).fields}
    for field in declared.fields:
        told, there = field.dataType.simpleString(), actual[field.name].simpleString()
        if told != there:
            raise ConfigurationError(f"column {field.name!r} is declared as {told}, and is {there} in the table")
