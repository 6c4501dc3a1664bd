"""Hypothesis strategies for what tables are made of.

    schemas ─▶ rows, partition_specs, row_filters        of one schema, by the names and types of its columns
    iceberg_types ─▶ values                              types of columns, nested ones included, and their values as Python objects
    table_properties  column_names                       what a table may be created with
    key_lengths  keys  key_metadata                      AES keys, and the record that opens a file

Everything that is drawn is valid: tablecrypt and PyIceberg take it. No two columns of a schema differ in case alone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
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
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from tablecrypt.crypto.aes_gcm import KEY_LENGTHS
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret

PRIMITIVES: Final[tuple[PrimitiveType, ...]] = (
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DecimalType(9, 2),
    DecimalType(38, 10),
    DateType(),
    TimeType(),
    TimestampType(),
    TimestamptzType(),
    StringType(),
    BinaryType(),
    FixedType(4),
)
"""The types of columns that `iceberg_types` draws and nests."""

_EXACT: Final = Context(prec=38)
_EARLY, _LATE = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
_VALUES: Final[Mapping[type[IcebergType], st.SearchStrategy[Any]]] = {
    BooleanType: st.booleans(),
    IntegerType: st.integers(-(2**31), 2**31 - 1),
    LongType: st.integers(-(2**63), 2**63 - 1),
    DateType: st.dates(),
    TimeType: st.times(),
    TimestampType: st.datetimes(_EARLY, _LATE),
    TimestamptzType: st.datetimes(_EARLY, _LATE, timezones=st.just(dt.UTC)),
    StringType: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    BinaryType: st.binary(max_size=8),
}
_TRANSFORMS: Final[tuple[Transform[Any, Any], ...]] = (
    IdentityTransform(),
    BucketTransform(4),
    TruncateTransform(3),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
)
_COMPARISONS: Final[tuple[Any, ...]] = (EqualTo, NotEqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)
_PROPERTIES: Final[Mapping[str, Sequence[str]]] = {
    "encryption.data-key-length": ["16", "24", "32"],
    "write.delete.mode": ["copy-on-write", "merge-on-read"],
    "write.parquet.compression-codec": ["zstd", "gzip", "snappy", "uncompressed"],
    "write.target-file-size-bytes": ["64", "536870912"],
    "write.metadata.compression-codec": ["none", "gzip"],
    "commit.manifest-merge.enabled": ["true", "false"],
    "commit.manifest.min-count-to-merge": ["2", "100"],
}


def key_lengths() -> st.SearchStrategy[int]:
    """Lengths of AES keys in bytes."""
    return st.sampled_from(KEY_LENGTHS)


def keys() -> st.SearchStrategy[bytes]:
    """AES keys."""
    return key_lengths().flatmap(lambda length: st.binary(min_size=length, max_size=length))


def key_metadata() -> st.SearchStrategy[StandardKeyMetadata]:
    """Records that open a file: its DEK, its AAD prefix, and its length or None."""
    return st.builds(StandardKeyMetadata, keys().map(Secret), st.binary(max_size=80), st.none() | st.integers(0, 2**63 - 1))


def column_names() -> st.SearchStrategy[str]:
    """Names of columns in any script, with spaces and signs, but without dots, which separate the names of nested fields."""
    letters = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=".`")
    return st.text(letters, min_size=1, max_size=12)


def table_properties() -> st.SearchStrategy[dict[str, str]]:
    """Properties that change how a table is encrypted and written, some or none of them; the master key is yours to add."""
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(each) for name, each in _PROPERTIES.items()})


def iceberg_types(primitives: Sequence[PrimitiveType] = PRIMITIVES, max_leaves: int = 4) -> st.SearchStrategy[IcebergType]:
    """Types of columns: primitive ones, and structs, lists and maps of them. Field ids below a column are those of `schemas`.

    Args:
        primitives: which primitive types to use.
        max_leaves: how many primitive types one type holds at most.
    """

    def nested(inner: st.SearchStrategy[IcebergType]) -> st.SearchStrategy[IcebergType]:
        fields = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            fields.map(lambda kinds: StructType(*(_field(0, f"f{at}", kind) for at, kind in enumerate(kinds)))),
            inner.map(lambda kind: ListType(element_id=0, element_type=kind, element_required=False)),
            inner.map(lambda kind: MapType(key_id=0, key_type=StringType(), value_id=0, value_type=kind, value_required=False)),
        )

    leaves: st.SearchStrategy[IcebergType] = st.sampled_from(list[IcebergType](primitives))
    return st.recursive(leaves, nested, max_leaves=max_leaves)


def schemas(
    types: st.SearchStrategy[IcebergType] | None = None, names: st.SearchStrategy[str] | None = None, max_columns: int = 5
) -> st.SearchStrategy[Schema]:
    """Schemas of optional columns, each field with its own id.

    Args:
        types: of the columns; any of `iceberg_types` if None.
        names: of the columns; any of `column_names` if None.
        max_columns: how many columns a schema has at most; it has one at least.
    """
    columns = st.tuples(column_names() if names is None else names, iceberg_types() if types is None else types)
    distinct = st.lists(columns, min_size=1, max_size=max_columns, unique_by=lambda column: column[0].casefold())
    return distinct.map(_numbered)


def values(kind: IcebergType, allow_nan: bool = True) -> st.SearchStrategy[Any]:
    """Values of a type as Python objects, or None; those of nested types hold None too."""
    if isinstance(kind, StructType):
        return st.none() | st.fixed_dictionaries({field.name: values(field.field_type, allow_nan) for field in kind.fields})
    if isinstance(kind, ListType):
        return st.none() | st.lists(values(kind.element_type, allow_nan), max_size=3)
    if isinstance(kind, MapType):
        entries = st.dictionaries(_present(kind.key_type, allow_nan), values(kind.value_type, allow_nan), max_size=3)
        return st.none() | entries.map(lambda drawn: list(drawn.items()))

    return st.none() | _present(kind, allow_nan)


@st.composite
def rows(draw: st.DrawFn, schema: Schema, max_size: int = 10, allow_nan: bool = True) -> pa.Table:
    """Rows of a schema, as Arrow has them."""
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    size = draw(st.integers(0, max_size))
    columns = [st.lists(values(field.field_type, allow_nan), min_size=size, max_size=size) for field in schema.fields]
    return pa.Table.from_arrays([pa.array(draw(column), kind.type) for column, kind in zip(columns, arrow, strict=True)], schema=arrow)


@st.composite
def partition_specs(draw: st.DrawFn, schema: Schema, max_fields: int = 2) -> PartitionSpec:
    """Partition specs of a schema: no field, or some of its columns of primitive types, each under a transform that takes it."""
    possible = [(field, each) for field in _primitive(schema) for each in _TRANSFORMS if each.can_transform(field.field_type)]
    if not possible:
        return PartitionSpec()
    chosen = draw(st.lists(st.sampled_from(possible), max_size=max_fields, unique_by=lambda pair: pair[0].field_id))
    numbered = enumerate(chosen, start=PARTITION_FIELD_ID_START)
    return PartitionSpec(*(PartitionField(field.field_id, number, transform, f"part {number}") for number, (field, transform) in numbered))


def row_filters(
    schema: Schema, literals: Mapping[str, st.SearchStrategy[Any]] | None = None, max_leaves: int = 5
) -> st.SearchStrategy[BooleanExpression]:
    """Filters on the columns of primitive types, combined by And, Or and Not. The schema has one such column at least.

    Args:
        schema: of the table.
        literals: by the name of each column that is filtered by, what it is compared with; if None, any value of each column's type.
        max_leaves: how many comparisons a filter has at most.
    """
    if literals is None:
        literals = {field.name: _present(field.field_type, allow_nan=False).map(_as_literal) for field in _primitive(schema)}
    comparisons = st.one_of([_comparisons(name, schema.find_type(name), each) for name, each in literals.items()])
    return st.recursive(
        comparisons, lambda inner: st.builds(Not, inner) | st.builds(And, inner, inner) | st.builds(Or, inner, inner), max_leaves=max_leaves
    )


def _comparisons(name: str, kind: IcebergType, literals: st.SearchStrategy[Any]) -> st.SearchStrategy[BooleanExpression]:
    alone: list[Any] = [IsNull, NotNull, *([IsNaN, NotNaN] if isinstance(kind, FloatType | DoubleType) else [])]
    single = [*_COMPARISONS, *([StartsWith, NotStartsWith] if isinstance(kind, StringType) else [])]
    return st.one_of(
        st.sampled_from(alone).map(lambda made: made(name)),
        st.builds(lambda made, literal: made(name, literal), st.sampled_from(single), literals),
        st.builds(lambda made, several: made(name, several), st.sampled_from([In, NotIn]), st.lists(literals, min_size=1, max_size=4)),
    )


def _primitive(schema: Schema) -> list[NestedField]:
    return [field for field in schema.fields if isinstance(field.field_type, PrimitiveType)]


def _as_literal(value: Any) -> Any:
    """A value as a filter takes it: dates and times as text."""
    return value.isoformat() if isinstance(value, dt.date | dt.time) else value


def _present(kind: IcebergType, allow_nan: bool) -> st.SearchStrategy[Any]:
    """Values of a primitive type, none of them None."""
    if isinstance(kind, DecimalType):
        limit, scale = 10**kind.precision - 1, kind.scale
        # Made from whole numbers: every value then has exactly the scale of its type.
        return st.integers(-limit, limit).map(lambda number: Decimal(number).scaleb(-scale, _EXACT))
    if isinstance(kind, FixedType):
        return st.binary(min_size=len(kind), max_size=len(kind))
    if isinstance(kind, FloatType | DoubleType):
        return st.floats(width=32 if isinstance(kind, FloatType) else 64, allow_nan=allow_nan)

    return _VALUES[type(kind)]


def _numbered(columns: list[tuple[str, IcebergType]]) -> Schema:
    """A schema whose fields have distinct ids, at every depth."""
    following = iter(range(1, 10_000))

    def renumbered(kind: IcebergType) -> IcebergType:
        match kind:
            case StructType():
                return StructType(*(_field(next(following), field.name, renumbered(field.field_type)) for field in kind.fields))
            case ListType():
                return ListType(element_id=next(following), element_type=renumbered(kind.element_type), element_required=False)
            case MapType():
                ids = next(following), next(following)
                value = renumbered(kind.value_type)
                return MapType(key_id=ids[0], key_type=kind.key_type, value_id=ids[1], value_type=value, value_required=False)

        return kind

    return Schema(*(_field(next(following), name, renumbered(kind)) for name, kind in columns))


def _field(field_id: int, name: str, kind: IcebergType) -> NestedField:
    return NestedField(field_id=field_id, name=name, field_type=kind, required=False)
