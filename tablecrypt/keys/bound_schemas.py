"""How the bytes of a protected column are to be read: what the footer of a file says of it, as its key metadata binds it.

The table's key opens a footer, so whoever has it writes another one. A footer that says milliseconds where microseconds are stored, or
another scale of decimals, would change values without touching a byte of them. So the key metadata of a protected column binds its schema:

    bound    the nodes of the column in the schema, depth first: of the structs around it, itself, and all that lies in it
             SHA-256("tablecrypt twin schema" | number of nodes (4) | node | node | …)
    node     a SchemaElement of Parquet without its name
    struct   number of its fields (2) | field | field | …        in ascending order of their ids
    field    id (2) | kind (1) | value                           kinds are those of Thrift's compact protocol
    value    bool         nothing, the kind says which
             integer      8 bytes, signed
             struct       as above: `logicalType` and what lies in it
             others       length (4) | bytes as the footer has them

Numbers are big endian. The nodes are those of the placeholder, which have field ids; around the column each has one child. The hidden
column has the same ones without field ids, and under the same names but for the first: that is compared. Nothing else depends on names:
files keep theirs when a column is renamed, and readers find columns by field ids.

The label calls a hidden column a twin, as the code once did. It stays: files hold digests that begin with it.

Files of before have key metadata of version 1, which does not bind this. Of those each leaf is compared with what its Iceberg type is
written as, and no node may be optional that no schema of the table has as optional.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

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
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

FieldsOf = Callable[[int], Sequence[NestedField]]
"""Returns what a column is, and was in earlier schemas, by its field id."""

OPTIONAL: Final = 1
_LABEL: Final = b"tablecrypt twin schema"
_BOOLEAN, _INT32, _INT64, _INT96, _FLOAT, _DOUBLE, _BYTE_ARRAY, _FIXED = range(8)
"""Parquet's physical types."""


@dataclass(frozen=True)
class SchemaNode:
    """What is checked of a node in files of version 1.

    Attributes:
        field_id: of the placeholder; None where the node has none.
        is_leaf: whether values are there.
        repetition: 0 required, 1 optional, 2 repeated.
        physical: Parquet's physical type of a leaf.
        length: bytes of a value of fixed length, else 0.
        meaning: the logical type, such as `TIMESTAMP(MICROS, UTC)` or `DECIMAL(9, 2)`; empty where there is none.
    """

    field_id: int | None
    is_leaf: bool
    repetition: int
    physical: int | None
    length: int
    meaning: str


@dataclass(frozen=True)
class BoundSchema:
    """What the footer of a file says of a protected column.

    Attributes:
        nodes: depth first.
        encoded: each of them, as above.
        location: names the file in errors.
    """

    nodes: tuple[SchemaNode, ...]
    encoded: tuple[bytes, ...]
    location: str = field(compare=False)

    def digest(self) -> bytes:
        """Return what key metadata of version 2 binds: 32 bytes."""
        return hashlib.sha256(b"".join((_LABEL, len(self.encoded).to_bytes(4, "big"), *self.encoded))).digest()

    def is_of(self, fields_of: FieldsOf) -> bool:
        """Whether a writer of files of version 1 could have written it for these columns."""
        return all(_is_of(node, fields_of) for node in self.nodes)


def _is_of(node: SchemaNode, fields_of: FieldsOf) -> bool:
    if node.field_id is None:
        # The repeated nodes of lists and maps have no id; values always have one.
        return not node.is_leaf

    known = fields_of(node.field_id)
    if node.repetition == OPTIONAL and all(each.required for each in known):
        # Optional for required, and the reverse elsewhere, is how nulls become empty lists with the levels as they were.
        return False

    return not node.is_leaf or (node.physical, node.length, node.meaning) in set(_written_as(each.field_type for each in known))


def _written_as(kinds: Iterable[IcebergType]) -> Iterator[tuple[int, int, str]]:
    """Yield physical type, length and meaning of values of these types, and of those that Iceberg widens to them."""
    for kind in kinds:
        if isinstance(kind, DecimalType):
            yield from _decimals(kind)
        elif isinstance(kind, FixedType):
            yield _FIXED, len(kind), ""
        else:
            yield from _WRITTEN_AS.get(type(kind), ())


def _decimals(kind: DecimalType) -> Iterator[tuple[int, int, str]]:
    for precision in range(1, kind.precision + 1):
        meaning = f"DECIMAL({precision}, {kind.scale})"
        if precision <= 9:
            yield _INT32, 0, meaning
        if precision <= 18:
            yield _INT64, 0, meaning

    # Another length would cut the same bytes into other values, so that it follows from the very type.
    yield _FIXED, ((10**kind.precision - 1).bit_length() + 8) // 8, f"DECIMAL({kind.precision}, {kind.scale})"


_INTEGERS: Final = ((_INT32, 0, ""), (_INT32, 0, "INTEGER(32, signed)"))
_DATE: Final = ((_INT32, 0, "DATE"),)
_LEGACY_TIME: Final = ((_INT96, 0, ""),)
_WRITTEN_AS: Final[dict[type[IcebergType], tuple[tuple[int, int, str], ...]]] = {
    BooleanType: ((_BOOLEAN, 0, ""),),
    IntegerType: _INTEGERS,
    LongType: (*_INTEGERS, (_INT64, 0, ""), (_INT64, 0, "INTEGER(64, signed)")),
    FloatType: ((_FLOAT, 0, ""),),
    DoubleType: ((_FLOAT, 0, ""), (_DOUBLE, 0, "")),
    DateType: _DATE,
    TimeType: ((_INT64, 0, "TIME(MICROS)"),),
    TimestampType: (*_DATE, *_LEGACY_TIME, (_INT64, 0, "TIMESTAMP(MICROS)")),
    TimestamptzType: (*_LEGACY_TIME, (_INT64, 0, "TIMESTAMP(MICROS, UTC)")),
    TimestampNanoType: (*_DATE, (_INT64, 0, "TIMESTAMP(NANOS)")),
    TimestamptzNanoType: ((_INT64, 0, "TIMESTAMP(NANOS, UTC)"),),
    StringType: ((_BYTE_ARRAY, 0, "STRING"),),
    BinaryType: ((_BYTE_ARRAY, 0, ""),),
    UUIDType: ((_FIXED, 16, "UUID"), (_FIXED, 16, "")),
    UnknownType: ((_INT32, 0, "UNKNOWN"),),
}
