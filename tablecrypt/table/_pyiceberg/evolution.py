"""Evolution of schemas and partition specs in format version 3: PyIceberg's own classes still think of version 2 alone.

A partition field that a spec of the table had
before, with the same source and transform, gets its old id again, so that the files of both specs have it as one field. Any other field
gets an id that no field ever had. PyIceberg does so for version 2 and gives new ids in version 3; Iceberg Java does so for both.

Iceberg table spec, "Partition Evolution".

UpdateSchema: _transaction, _schema, _case_sensitive        which column a name means, and what the table has beside it
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Final, cast

import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.expressions.literals import AboveMax, BelowMin, TimestampLiteral, literal
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import Transform
from pyiceberg.typedef import TableVersion
from pyiceberg.types import DateType, DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType, NestedField

from tablecrypt._parsed_json import problem_of
from tablecrypt.errors import ConfigurationError
from tablecrypt.manifests.table_state import may_become
from tablecrypt.table._pyiceberg.transactions import UpdateSpecAdapter

_DAY: Final = 24 * 60 * 60 * 1_000_000


class UpdateSpecInVersion3(UpdateSpecAdapter):
    """PyIceberg's UpdateSpec, with the field ids of version 3."""

    def earlier_field(self, source_id: int, transform: Transform[Any, Any], name: str | None) -> PartitionField | None:
        """Return the same field of an earlier spec. A field that is asked for by name is the same only under that name."""
        for field in (field for spec in self.specs for field in spec.fields):
            # Under its old id, the files of both specs have one partition field (table spec, "Partition Evolution").
            if field.source_id == source_id and field.transform == transform and name in (None, field.name):
                return field
        return None


class UpdateSchemaInVersion3(UpdateSchema):
    """PyIceberg's UpdateSchema, with the types of version 3."""

    def add_column(
        self,
        path: str | tuple[str, ...],
        field_type: IcebergType,
        doc: str | None = None,
        required: bool = False,
        default_value: Any = None,
    ) -> UpdateSchema:
        """Add a column. ConfigurationError: it cannot hold its default as that is."""
        _check_default(path, field_type, default_value)
        return super().add_column(path, field_type, doc, required, default_value)

    def update_column(
        self,
        path: str | tuple[str, ...],
        field_type: IcebergType | None = None,
        required: bool | None = None,
        doc: str | None = None,
    ) -> UpdateSchema:
        """Change a column. ConfigurationError: no row, of today or of a writer of this moment, could be read as the new type."""
        if field_type is not None:
            self._check_type(path, field_type)
        return super().update_column(path, field_type, required, doc)

    def _check_type(self, path: str | tuple[str, ...], after: IcebergType) -> None:
        # PyIceberg lets a decimal have another scale, and anything become anything where incompatible changes are allowed.
        name = _dotted(path)
        before = self._schema.find_field(name, self._case_sensitive).field_type
        if not may_become(before, after):
            raise ConfigurationError(f"column {name!r} of type {before} cannot become {after}: write its rows to another column")

    def set_default_value(self, path: str | tuple[str, ...], default_value: Any) -> UpdateSchema:
        """Set what new files hold where rows say nothing of a column. ConfigurationError: it cannot hold that as it is."""
        name = _dotted(path)
        _check_default(path, self._schema.find_field(name, self._case_sensitive).field_type, default_value)
        return super().set_default_value(path, default_value)

    def union_by_name(self, new_schema: Schema | pa.Schema, format_version: TableVersion = 3) -> UpdateSchema:
        """Add the columns that `new_schema` has and the table has not, and widen types; nanosecond timestamps stay what they are."""
        return super().union_by_name(new_schema, format_version)

    def _apply(self) -> Schema:
        """Return the schema that the changes make.

        A column may take the name of a partition field that only earlier specs have, as in Iceberg Java: no file will be written under
        those. PyIceberg holds the names of all specs against the new columns.

        Raises:
            ConfigurationError: an identifier field is optional, or of a kind that identifies no row.
        """
        whole = self._transaction
        self._transaction = cast("Transaction", _UnderCurrentSpec(whole.table_metadata))
        try:
            return super()._apply()
        # Pydantic's has three lines, and an address of its own documentation.
        except ValidationError as error:
            names = ", ".join(sorted(self._identifier_field_names))
            raise ConfigurationError(
                f"the schema cannot have the identifier fields {names}: {problem_of(error)}. "
                "Choose required columns without floating point numbers"
            ) from error
        finally:
            self._transaction = whole


def _check_default(path: str | tuple[str, ...], column: IcebergType, value: Any) -> None:
    """Refuse a default that PyIceberg would round or cut, and one with which no row of the table could be read any more.

    What is not of the column's kind at all PyIceberg refuses itself.

    Raises:
        ConfigurationError: the column cannot hold the value as it is.
    """
    if value is None or not column.is_primitive or _is_kept(value, column):
        return
    name = _dotted(path)
    raise ConfigurationError(f"column {name!r} of type {column} cannot have the default {value}: give it one that it can hold")


def _dotted(path: str | tuple[str, ...]) -> str:
    return path if isinstance(path, str) else ".".join(path)


def _is_kept(value: Any, column: IcebergType) -> bool:
    try:
        given = literal(value)
        held = given.to(column)
        # As the metadata hold it: of days and moments, Python knows those of the years 1 to 9999.
        NestedField(1, "default", column, initial_default=held.value)
    except OverflowError:
        return False
    except (ValueError, TypeError):
        return True

    if isinstance(held, (AboveMax, BelowMin)):
        return False
    if isinstance(column, (FloatType, DoubleType)):
        return math.isfinite(held.value)
    if isinstance(column, (IntegerType, LongType)):
        return bool(Decimal(str(given.value)) == held.value)
    if isinstance(column, DecimalType):
        return bool(Decimal(str(given.value)) == held.value) and len(held.value.as_tuple().digits) <= column.precision
    if isinstance(column, DateType) and isinstance(given, TimestampLiteral):
        return not given.value % _DAY

    return True


class _UnderCurrentSpec:
    """What `UpdateSchema._apply` asks a transaction for: metadata, here without the specs of before."""

    def __init__(self, metadata: TableMetadata) -> None:
        self.table_metadata = metadata.model_copy(update={"partition_specs": [metadata.spec()]})
