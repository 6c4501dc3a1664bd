"""Paths of columns: the names from a top-level column down to a leaf, each leaf having a column chunk in every row group.

    schema    root (2 children) | a | l (1) | list (1) | element        a node after its parent, depth first
    paths     ("a",), ("l", "list", "element")

Raises FormatError for a schema that is no tree, and for names that are not UTF-8.

Specification: Apache Parquet, parquet.thrift, SchemaElement and path_in_schema.
"""

from __future__ import annotations

from tablecrypt.errors import FormatError
from tablecrypt.parquet import thrift_reader
from tablecrypt.parquet.structures import SchemaElement
from tablecrypt.parquet.thrift import Struct


def decode_path(stored: bytes) -> tuple[str, ...]:
    """Read a path_in_schema, a list as it is stored."""
    return tuple(_name(part) for part in thrift_reader.decode_binaries(stored))


def leaf_paths(elements: list[Struct]) -> list[tuple[str, ...]]:
    """The paths of the leaf columns in a schema (SchemaElements), in their order: as many as each row group has column chunks."""
    paths: list[tuple[str, ...]] = []
    # The groups that are not complete: the name of each, and how many children are still to come. The root has no part in paths.
    groups: list[tuple[str, int]] = []
    for element in elements:
        name = _name(element.binary(SchemaElement.NAME))
        children = element.optional_integer(SchemaElement.NUM_CHILDREN) or 0
        if not groups and paths:
            raise FormatError("it has nodes outside of its root")
        if children > 0:
            groups.append((name, children))
            continue
        paths.append((*(group for group, _ in groups[1:]), name))
        while groups:
            group, left = groups.pop()
            if left > 1:
                groups.append((group, left - 1))
                break
    return paths


def _name(encoded: bytes) -> str:
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError("a column's name is not UTF-8") from None
