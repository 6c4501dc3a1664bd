"""Rows as the kit keeps and compares them: Arrow IPC, without order, each column with a sum."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa


def write_rows(rows: pa.Table, path: Path | str) -> None:
    """Write rows in one batch, without the metadata of the schema."""
    plain = rows.cast(_plain_schema(rows.schema)).combine_chunks()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, plain.schema) as writer:
        writer.write_table(plain)


def read_rows(path: Path | str) -> pa.Table:
    with pa.OSFile(str(path), "rb") as source:
        return pa.ipc.open_file(source).read_all()


def digest(data: bytes) -> dict[str, Any]:
    """Return what the manifest says of bytes that are expected."""
    return {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def described(rows: pa.Table) -> dict[str, Any]:
    """The number of rows, and of each column its nulls and its sum: numbers added as text, of others the length of their text."""
    return {"rows": rows.num_rows, "columns": {name: _sum(rows[name].to_pylist()) for name in rows.column_names}}


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same columns in the same order, and the same rows in any order. Widths of types do not count."""
    return one.column_names == other.column_names and _sorted(one) == _sorted(other)


def _sum(values: list[Any]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    numbers = all(isinstance(value, int | float | Decimal) for value in known)
    total = sum(known) if numbers else sum(len(str(_shown(value))) for value in known)
    return {"nulls": len(values) - len(known), "sum": str(total)}


def _sorted(rows: pa.Table) -> list[str]:
    return sorted(repr([_shown(value) for value in row.values()]) for row in rows.to_pylist())


def _shown(value: Any) -> Any:
    """A value without what differs between readers that mean the same: maps as pairs, moments in UTC."""
    if isinstance(value, dict):
        return [_shown(each) for each in value.values()]
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Without field ids, and with the short offsets that every reader of Arrow knows."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    return kind
