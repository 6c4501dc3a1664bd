"""Rows whose columns are not the table's: a DataFrame's append to a table with write.spark.accept-any-schema.

    align_rows ─▶ the columns to which such rows are brought before tasks write them (java/RowAlignment.java)

Columns are matched by name. One that the rows lack gets its default or null. With the write option mergeSchema, columns that the table
lacks are added at its end (fields of structs at the end of the struct), all of them optional. Where the rows need it, int becomes long,
float double, and a decimal gets more digits. The commit of the rows does that too, so a write that fails changes nothing. A required
column stays required, whatever the DataFrame says of its nulls.

SQL statements are not concerned: Spark brings their rows to the table's columns itself (java/AppendedTables.java).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from tablecrypt.errors import ConfigurationError
from tablecrypt.setting_kinds import truth
from tablecrypt.spark.sql.catalogs import spark_json
from tablecrypt.spark.sql.messages import Response, operation
from tablecrypt.spark.sql.spark_types import iceberg_schema
from tablecrypt.spark.sql.statements.iceberg_settings import IcebergSettings
from tablecrypt.spark.sql.writes.write_options import CHECK_NULLABILITY, CHECK_ORDERING, MERGE_SCHEMA, WriteRequest, write_options
from tablecrypt.table.transaction import EncryptedTransaction

if TYPE_CHECKING:
    from tablecrypt.spark.sql.planner import LoadedTable, Planner

_VOID: Final = "void"
Path = tuple[str, ...]


@dataclass(frozen=True)
class SourceColumns:
    """The columns of the rows of one write.

    Attributes:
        schema: theirs; the ids in it mean nothing.
        untyped: names of columns that are NULL in all rows, which have no type.
        is_case_sensitive: whether names that differ in case are different ones.
        merges: whether the table gets what it lacks.
        checks_order: whether the columns have to come in the table's order.
        checks_nullability: whether columns that may hold nulls are refused where the table's are required; else nulls alone are.
    """

    schema: Schema
    untyped: frozenset[str]
    is_case_sensitive: bool
    merges: bool
    checks_order: bool
    checks_nullability: bool

    @classmethod
    def of(cls, request: WriteRequest) -> SourceColumns | None:
        """Return what a request says of its rows; None where Spark has brought them to the table's columns."""
        if request.row_schema is None:
            return None

        asked = {**IcebergSettings.of(request).values, **write_options(request)}
        told = json.loads(request.row_schema)
        untyped = [field for field in told["fields"] if field["type"] == _VOID]
        for field in untyped:
            # Iceberg has no such type. Any will do: these columns are compared by name alone.
            field["type"] = "string"
        return cls(
            iceberg_schema(told),
            frozenset(field["name"] for field in untyped),
            request.case_sensitive,
            truth(MERGE_SCHEMA, asked.get(MERGE_SCHEMA, False)),
            truth(CHECK_ORDERING, asked.get(CHECK_ORDERING, True)),
            truth(CHECK_NULLABILITY, asked.get(CHECK_NULLABILITY, False)),
        )

    def has(self, path: Path) -> bool:
        """Whether the rows have a column of the table, which may lie in structs."""
        fields = self.schema.fields
        for name in path:
            found = self._find(fields, name)
            if found is None:
                return False
            fields = found.field_type.fields if isinstance(found.field_type, StructType) else ()

        return True

    def check(self, table: str, schema: Schema) -> None:
        """Check top-level names and their order.

        Raises:
            ConfigurationError: two columns of the rows have one name, or columns come in another order than the table's.
        """
        names = [self._folded(field.name) for field in self.schema.fields]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigurationError(f"the rows for {table} have the column {twice[0]} twice: rename one of them")

        places = {self._folded(field.name): place for place, field in enumerate(schema.fields)}
        known = [name for name in names if name in places]

        for before, after in itertools.pairwise(known):
            # Columns are matched by name all the same; Iceberg has this check, and has it on by default.
            if self.checks_order and places[before] > places[after]:
                raise ConfigurationError(
                    f"the rows for {table} have the column {after} after {before}, and the table has it before: select the columns in the "
                    f"table's order, or set the write option {CHECK_ORDERING}=false"
                )

        if self.checks_nullability and (optional := next(self._optional(schema.fields, self.schema.fields, ()), None)):
            raise ConfigurationError(
                f"the rows for {table} may have nulls in {'.'.join(optional)}, which is required: set the write option "
                f"{CHECK_NULLABILITY}=false, and nulls alone are refused"
            )

    def _optional(self, known: tuple[NestedField, ...], given: tuple[NestedField, ...], path: Path) -> Iterator[Path]:
        for field in known:
            found = self._find(given, field.name)
            if found is not None and field.required and not found.required:
                yield (*path, field.name)
            if found is not None and isinstance(field.field_type, StructType) and isinstance(found.field_type, StructType):
                yield from self._optional(field.field_type.fields, found.field_type.fields, (*path, field.name))

    def stage(self, table: str, transaction: EncryptedTransaction) -> None:
        """Stage what the table lacks. Without mergeSchema types are Spark's business: it casts, and refuses a value that does not fit.

        Raises:
            ConfigurationError: the table lacks a column and the write does not merge schemas, or a column cannot become what the rows have.
        """
        differences = list(self._differences(table, transaction.table_metadata.schema().fields, self.schema.fields, ()))
        if not differences:
            return
        if not self.merges:
            new = ", ".join(".".join(difference.path) for difference in differences)
            raise ConfigurationError(f"{table} lacks the column {new}: the write option mergeSchema=true adds it, or ALTER TABLE")

        with transaction.update_schema() as update:
            for difference in differences:
                difference.stage(update)

    def _differences(self, table: str, known: tuple[NestedField, ...], given: tuple[NestedField, ...], path: Path) -> Iterator[Difference]:
        for field in given:
            existing = self._find(known, field.name)
            is_untyped = not path and field.name in self.untyped
            if existing is None and is_untyped and self.merges:
                raise ConfigurationError(
                    f"{field.name}, which {table} lacks, has no type in the rows: cast it to the type of the new column"
                )

            if existing is None:
                yield Difference((*path, field.name), field.field_type, is_new=True)
            # A column of nulls fits every type.
            elif not is_untyped:
                yield from self._within(table, existing.field_type, field.field_type, (*path, existing.name))

    def _within(self, table: str, known: IcebergType, given: IcebergType, path: Path) -> Iterator[Difference]:
        match known, given:
            case StructType(), StructType():
                yield from self._differences(table, known.fields, given.fields, path)
            case ListType(), ListType():
                yield from self._within(table, known.element_type, given.element_type, (*path, "element"))
            case MapType(), MapType():
                yield from self._within(table, known.key_type, given.key_type, (*path, "key"))
                yield from self._within(table, known.value_type, given.value_type, (*path, "value"))
            # Spark's cast brings a narrower type to the table's; without mergeSchema it decides about all others too.
            case _ if known == given or _holds(known, given) or not self.merges:
                return
            case _ if _holds(given, known):
                yield Difference(path, given, is_new=False)
            case _:
                raise ConfigurationError(
                    f"{'.'.join(path)} of {table} is {known}, and the rows have {given}, which it cannot be promoted to: cast the column"
                )

    def _find(self, fields: tuple[NestedField, ...], name: str) -> NestedField | None:
        return next((field for field in fields if self._folded(field.name) == self._folded(name)), None)

    def _folded(self, name: str) -> str:
        return name if self.is_case_sensitive else name.lower()


@dataclass(frozen=True)
class Difference:
    """A column that the table lacks, or one whose type is too narrow."""

    path: Path
    type: IcebergType
    is_new: bool

    def stage(self, update: UpdateSchema) -> None:
        """Stage the change that ends it."""
        if self.is_new:
            update.add_column(self.path, self.type)
        else:
            update.update_column(self.path, self.type)


def _holds(wide: IcebergType, narrow: IcebergType) -> bool:
    """Whether a column of the one type may become one of the other (Iceberg table spec, "Schema Evolution")."""
    match wide, narrow:
        case (LongType(), IntegerType()) | (DoubleType(), FloatType()):
            return True
        case (UUIDType(), StringType()) | (FixedType(), BinaryType()):
            # What Spark has of such a column.
            return True
        case DecimalType(), DecimalType():
            return wide.scale == narrow.scale and wide.precision >= narrow.precision

    return False


def merged_metadata(loaded: LoadedTable, source_columns: SourceColumns) -> TableMetadata:
    """Return a table's metadata with what the rows of a write add to it. Nothing is committed.

    Raises:
        ConfigurationError: as `SourceColumns.check` and `SourceColumns.stage`; or the columns would be seen before the rows are published.
    """
    table, name = loaded.located.table, loaded.located.name
    source_columns.check(name, table.schema())
    transaction = table.transaction()
    source_columns.stage(name, transaction)
    merged = transaction.table_metadata
    if merged.current_schema_id == table.metadata.current_schema_id:
        return merged
    # A schema is the table's, not a branch's.
    if loaded.audit_first.branch or loaded.audit_first.wap_id:
        raise ConfigurationError(
            f"{name}: mergeSchema would show new columns to readers before the rows are published: add them with ALTER TABLE first"
        )

    return merged


@operation
def align_rows(planner: Planner, request: WriteRequest) -> Response:
    """Return the columns that a write's rows are brought to: the table's and those that the write adds. Raises as `merged_metadata`."""
    loaded = planner.tables[request.table]
    source_columns = SourceColumns.of(request)
    schema = loaded.located.table.schema() if source_columns is None else merged_metadata(loaded, source_columns).schema()
    return Response({"schema": spark_json(schema)})
