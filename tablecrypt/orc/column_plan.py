"""What a writer is asked to encrypt and mask, checked against the table's schema and given numbers.

    encrypt={"pii": ["ssn", "home.zip"]}     key name → columns; a sub-column by its dotted name, below lists _elem, below maps _key, _value
    mask={"ssn": "sha256"}                   column → mask; encrypted columns without one get nullify

A column is encrypted with all that is below it, and under one key. A mask may also name a column below an encrypted one, or one that is not
encrypted at all: then the masked values are all that the file holds of it.

    variants are sorted by key name and column, as ORC's Java writer sorts them

Raises ConfigurationError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tablecrypt.errors import ConfigurationError
from tablecrypt.orc.masking import MaskChoice, MaskTree, mask_of
from tablecrypt.orc.masks import Mask, Nullify
from tablecrypt.orc.schema import Column, Schema


@dataclass(frozen=True)
class EncryptedColumn:
    """A column to encrypt, the name of its key, and the top-level column it belongs to."""

    column: Column
    key_name: str
    top: Column


@dataclass(frozen=True)
class ColumnPlan:
    """Encrypted columns in the order of their variants, masks by top-level column name, and for the footer which mask went where."""

    schema: Schema
    encrypted: tuple[EncryptedColumn, ...]
    masks: dict[str, MaskTree]
    described: tuple[tuple[Mask, tuple[int, ...]], ...]

    @property
    def shadowed(self) -> list[Column]:
        """The top-level columns whose true values are encrypted, wholly or in part."""
        found = {one.top.id: one.top for one in self.encrypted}
        return [found[column_id] for column_id in sorted(found)]


def plan_columns(schema: Schema, encrypt: Mapping[str, Sequence[str]], mask: Mapping[str, MaskChoice]) -> ColumnPlan:
    """Resolve names and choose masks."""
    encrypted = _encrypted(schema, encrypt)
    chosen = {schema.find(name).id: mask_of(choice) for name, choice in mask.items()}
    if len(chosen) != len(mask):
        raise ConfigurationError("two masks are given for one column")
    masks = {one.column.id: chosen.get(one.column.id, Nullify()) for one in encrypted} | chosen
    trees: dict[str, MaskTree] = {}
    for column_id, one_mask in sorted(masks.items()):
        top = _top(schema, column_id)
        path = _path(schema, column_id)
        trees.setdefault(schema.name_of(top.id), MaskTree()).place(path, one_mask)
    return ColumnPlan(schema, encrypted, trees, _described(masks))


def _encrypted(schema: Schema, encrypt: Mapping[str, Sequence[str]]) -> tuple[EncryptedColumn, ...]:
    found: list[EncryptedColumn] = []
    for key_name, names in encrypt.items():
        for name in [names] if isinstance(names, str) else names:
            column = schema.find(name)
            for other in found:
                if column.id in other.column.subtree or other.column.id in column.subtree:
                    raise ConfigurationError(
                        f"column {name!r} is to be encrypted twice: by itself, with a column above it or with one below"
                    )
            found.append(EncryptedColumn(column, key_name, _top(schema, column.id)))
    if not found:
        raise ConfigurationError("no column is to be encrypted: name some in `encrypt`, or write the file with pyarrow.orc")
    return tuple(sorted(found, key=lambda one: (one.key_name, one.column.id)))


def _top(schema: Schema, column_id: int) -> Column:
    return next(schema[child] for child in schema.root.children if column_id in schema[child].subtree)


def _path(schema: Schema, column_id: int) -> list[str]:
    """Return the names that lead from the top-level column down to a column."""
    column, path = _top(schema, column_id), []
    while column.id != column_id:
        position = next(index for index, child in enumerate(column.children) if column_id in schema[child].subtree)
        path.append(column.child_names[position])
        column = schema[column.children[position]]
    return path


def _described(masks: Mapping[int, Mask]) -> tuple[tuple[Mask, tuple[int, ...]], ...]:
    by_meaning: dict[tuple[str, tuple[str, ...]], tuple[Mask, list[int]]] = {}
    for column_id, mask in sorted(masks.items()):
        by_meaning.setdefault((mask.name, mask.parameters), (mask, []))[1].append(column_id)
    return tuple((mask, tuple(columns)) for mask, columns in by_meaning.values())
