"""What a writer encrypts and masks: the request, checked against the table's schema and numbered, and masks applied to nested columns.

    encrypt={"pii": ["ssn", "home.zip"]}     key name → columns; a sub-column by its dotted name, below lists _elem, below maps _key, _value
    mask={"ssn": "sha256"}                   column → mask; encrypted columns without one get nullify

A column is encrypted with all that is below it, and under one key. A mask may also name a column below an encrypted one, or one that is not
encrypted at all: then the masked values are all that the file holds of it. Variants are sorted by key name and column, as ORC's Java writer
sorts them.

Masks go through structs, lists and maps down to the leaves. The masked copy of a column has the same nulls, list lengths and map sizes as
the column itself, unless nullify takes a level away; that is why the true values of an encrypted sub-column fit into its unencrypted
parents.

Raises ConfigurationError for columns that do not exist or are encrypted twice, and for a mask that means nothing for its column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tablecrypt._arrow_types import offsets_of
from tablecrypt.arguments import described
from tablecrypt.errors import ConfigurationError
from tablecrypt.orc.masks import Mask, Nullify, Redact, Sha256
from tablecrypt.orc.schema import OrcColumn, Schema

MaskChoice = str | Mask


def mask_of(choice: MaskChoice) -> Mask:
    """Return the mask of a name as ORC writes it: "nullify", "sha256", "redact" or "redact,characters,time,unmasked"."""
    if isinstance(choice, Mask):
        return choice
    if not isinstance(choice, str):
        raise ConfigurationError(f"a mask is {described(choice)}; it must be the name of a mask, or a tablecrypt.orc.KeyedHash")

    name, *parameters = (part.strip() for part in choice.split(",", 3))
    if name == Redact.name:
        return Redact(*parameters)

    plain: Mapping[str, type[Mask]] = {Nullify.name: Nullify, Sha256.name: Sha256}
    if name not in plain:
        raise ConfigurationError(f"there is no mask {name!r}: use nullify, redact, sha256 or a tablecrypt.orc.KeyedHash")
    if parameters:
        raise ConfigurationError(f"the mask {name} takes no parameters, but got {', '.join(parameters)!r}")

    return plain[name]()


@dataclass
class MaskTree:
    """The masks of a column and of those below it, by their ORC names (_elem in lists, _key and _value in maps)."""

    mask: Mask | None = None
    below: dict[str, MaskTree] = field(default_factory=dict)

    def add(self, parts: list[str], mask: Mask) -> None:
        tree = self
        for part in parts:
            tree = tree.below.setdefault(part, MaskTree())
        tree.mask = mask


@dataclass(frozen=True)
class EncryptedColumn:
    """A column to encrypt, the name of its key, and the top-level column it belongs to."""

    column: OrcColumn
    key_name: str
    top: OrcColumn


@dataclass(frozen=True)
class ColumnPlan:
    """Encrypted columns in the order of their variants, masks by top-level column name, and for the footer which mask went where."""

    schema: Schema
    encrypted: tuple[EncryptedColumn, ...]
    masks: dict[str, MaskTree]
    described: tuple[tuple[Mask, tuple[int, ...]], ...]

    @property
    def shadowed(self) -> list[OrcColumn]:
        """The top-level columns whose true values are encrypted, wholly or in part."""
        found = {one.top.id: one.top for one in self.encrypted}
        return [found[column_id] for column_id in sorted(found)]


def plan_columns(schema: Schema, encrypt: Mapping[str, Sequence[str]], mask: Mapping[str, MaskChoice]) -> ColumnPlan:
    """Resolve names and choose masks."""
    encrypted = _encrypted(schema, encrypt)
    chosen = {schema.find(name).id: mask_of(choice) for name, choice in mask.items()}
    # An encrypted column without a mask would have its true values in the public copy: the default is nullify.
    masks = {one.column.id: chosen.get(one.column.id, Nullify()) for one in encrypted} | chosen
    trees: dict[str, MaskTree] = {}
    for column_id, one_mask in sorted(masks.items()):
        top = _top(schema, column_id)
        path = _path(schema, column_id)
        trees.setdefault(schema.name_of(top.id), MaskTree()).add(path, one_mask)

    return ColumnPlan(schema, encrypted, trees, _described(masks))


def _encrypted(schema: Schema, encrypt: Mapping[str, Sequence[str]]) -> tuple[EncryptedColumn, ...]:
    found: list[EncryptedColumn] = []
    for key_name, names in encrypt.items():
        for name in names:
            column = schema.find(name)
            for other in found:
                # Each written stream goes to one variant (ShadowColumns): an inner one would take its streams from the outer.
                if column.id in other.column.subtree or other.column.id in column.subtree:
                    raise ConfigurationError(f"column {name!r} would be encrypted twice: by itself, or with a column above or below it")
            found.append(EncryptedColumn(column, key_name, _top(schema, column.id)))

    if not found:
        raise ConfigurationError("`encrypt` names no column: name some, or write the file with pyarrow.orc")

    return tuple(sorted(found, key=lambda one: (one.key_name, one.column.id)))


def _top(schema: Schema, column_id: int) -> OrcColumn:
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


def mask_table_column(column: pa.ChunkedArray, tree: MaskTree, name: str) -> pa.ChunkedArray:
    """Return a top-level column with its masks applied."""
    _check(column.type, tree, name)
    return pa.chunked_array([_masked(chunk, tree, None, name) for chunk in column.chunks], column.type)


def _masked(array: pa.Array, tree: MaskTree, inherited: Mask | None, name: str) -> pa.Array:
    mask = tree.mask or inherited
    # Nullified as a whole: masks on the leaves alone would still show the lengths of lists and which values are null.
    if isinstance(mask, Nullify):
        return pa.nulls(len(array), array.type)
    if mask is None and not tree.below:
        return array
    if pt.is_struct(array.type):
        return _masked_struct(array, tree, mask, name)
    if pt.is_map(array.type):
        return _masked_map(array, tree, mask, name)
    if pt.is_list(array.type):
        elements = _masked(array.flatten(), tree.below.get("_elem", MaskTree()), mask, f"{name}._elem")
        return pa.ListArray.from_arrays(_offsets(array), elements, type=array.type, mask=array.is_null())

    return array if mask is None else mask.apply(array)


def _masked_struct(array: pa.StructArray, tree: MaskTree, mask: Mask | None, name: str) -> pa.StructArray:
    fields = list(array.type)
    children = [
        _masked(array.field(index), tree.below.get(child.name, MaskTree()), mask, f"{name}.{child.name}")
        for index, child in enumerate(fields)
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _masked_map(array: pa.MapArray, tree: MaskTree, mask: Mask | None, name: str) -> pa.MapArray:
    pairs = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    entries = pairs.flatten()
    keys = _masked(entries.field(0), tree.below.get("_key", MaskTree()), mask, f"{name}._key")
    values = _masked(entries.field(1), tree.below.get("_value", MaskTree()), mask, f"{name}._value")
    # Arrow's maps cannot have null keys, and a map that drops them would show how many there were.
    if keys.null_count:
        raise ConfigurationError(
            f"the keys of the map {name!r} would be null under their mask: mask the whole map with nullify, or its values only"
        )

    return pa.MapArray.from_arrays(_offsets(pairs), keys, values, type=array.type, mask=array.is_null())


def _offsets(array: pa.Array) -> pa.Array:
    """Return offsets that begin at 0 and give null lists no elements, as `flatten` does."""
    ends = offsets_of(array)
    lengths = pc.if_else(array.is_valid(), pc.subtract(ends.slice(1), ends.slice(0, len(array))), 0)
    # Summed last: what `concat_arrays` returns may hold nulls for all that Arrow 25 knows, which refuses such offsets.
    return pc.cumulative_sum(pa.concat_arrays([pa.array([0], lengths.type), lengths])).cast(pa.int32())


def _check(kind: pa.DataType, tree: MaskTree, name: str) -> None:
    """Check each mask of the tree against the leaves it applies to."""
    if tree.mask is not None:
        # Checked against the type and before any row: an empty part must be refused as a full one would be.
        tree.mask.check(_leaves(kind), name)
    children = _children(kind)
    for child, below in tree.below.items():
        _check(children[child], below, f"{name}.{child}")


def _children(kind: pa.DataType) -> dict[str, pa.DataType]:
    if pt.is_struct(kind):
        return {field.name: field.type for field in kind}
    if pt.is_map(kind):
        return {"_key": kind.key_type, "_value": kind.item_type}
    return {"_elem": kind.value_type} if pt.is_list(kind) else {}


def _leaves(kind: pa.DataType) -> list[pa.DataType]:
    children = _children(kind)
    return [leaf for child in children.values() for leaf in _leaves(child)] if children else [kind]
