"""Masks over whole columns: through structs, lists and maps down to the leaves, keeping shape and nulls.

The masked copy of a column has the same nulls, list lengths and map sizes as the column itself, unless nullify takes a level away. For an
encrypted sub-column that is what makes the true values of the sub-column fit into the unencrypted parents.

Raises ConfigurationError for a mask that means nothing for its column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tablecrypt.errors import ConfigurationError
from tablecrypt.orc.masks import Mask, Nullify, Sha256
from tablecrypt.orc.redact import Redact

MaskChoice = str | Mask


def mask_of(choice: MaskChoice) -> Mask:
    """Return the mask of a name as ORC writes it: "nullify", "sha256", "redact" or "redact,characters,time,unmasked"."""
    if isinstance(choice, Mask):
        return choice
    name, *parameters = (part.strip() for part in choice.split(",", 3))
    if name == Redact.name:
        return Redact(*parameters)
    plain: Mapping[str, type[Mask]] = {Nullify.name: Nullify, Sha256.name: Sha256}
    if name not in plain:
        raise ConfigurationError(f"there is no mask {name!r}: take nullify, redact, sha256 or a tablecrypt.orc.KeyedHash")
    if parameters:
        raise ConfigurationError(f"the mask {name} takes no parameters, {', '.join(parameters)!r} was given")
    return plain[name]()


@dataclass
class MaskTree:
    """The masks of a column and of those below it, by their ORC names (_elem in lists, _key and _value in maps)."""

    mask: Mask | None = None
    below: dict[str, MaskTree] = field(default_factory=dict)

    def place(self, parts: list[str], mask: Mask) -> None:
        tree = self
        for part in parts:
            tree = tree.below.setdefault(part, MaskTree())
        tree.mask = mask


def mask_table_column(column: pa.ChunkedArray, tree: MaskTree, name: str) -> pa.ChunkedArray:
    """Return a top-level column with its masks applied."""
    _check(column.type, tree, None, name)
    return pa.chunked_array([_masked(chunk, tree, None, name) for chunk in column.chunks], column.type)


def _masked(array: pa.Array, tree: MaskTree, inherited: Mask | None, name: str) -> pa.Array:
    mask = tree.mask or inherited
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
    fields = [array.type.field(index) for index in range(array.type.num_fields)]
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
    if keys.null_count:
        raise ConfigurationError(
            f"the keys of the map {name!r} would be null under their mask: mask the whole map with nullify, or its values only"
        )
    return pa.MapArray.from_arrays(_offsets(pairs), keys, values, type=array.type, mask=array.is_null())


def _offsets(array: pa.Array) -> pa.Array:
    """Return offsets that begin at 0 and give null lists no elements, as `flatten` does."""
    ends = array.offsets
    lengths = pc.if_else(array.is_valid(), pc.subtract(ends.slice(1), ends.slice(0, len(array))), 0)
    counted = pc.cumulative_sum(lengths).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), counted])


def _check(kind: pa.DataType, tree: MaskTree, inherited: Mask | None, name: str) -> None:
    """Check each mask of the tree against the leaves it applies to."""
    if tree.mask is not None:
        tree.mask.check(_leaves(kind), name)
    mask = tree.mask or inherited
    known = _children(kind)
    for child, below in tree.below.items():
        if child not in known:
            raise ConfigurationError(f"column {name!r} has no {child!r} below it to mask")
        _check(known[child], below, mask, f"{name}.{child}")


def _children(kind: pa.DataType) -> dict[str, pa.DataType]:
    if pt.is_struct(kind):
        return {kind.field(index).name: kind.field(index).type for index in range(kind.num_fields)}
    if pt.is_map(kind):
        return {"_key": kind.key_type, "_value": kind.item_type}
    return {"_elem": kind.value_type} if pt.is_list(kind) else {}


def _leaves(kind: pa.DataType) -> list[pa.DataType]:
    children = _children(kind)
    return [leaf for child in children.values() for leaf in _leaves(child)] if children else [kind]
