"""Whatever the columns are and whichever of them are encrypted: rows come back with the keys, and without them only the others do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt import orc
from tests.support.orc_files import encrypted, local_keys

pytestmark = pytest.mark.slow

LEAVES = st.sampled_from([pa.int64(), pa.string(), pa.binary(), pa.bool_(), pa.float64(), pa.date32()])


def nested(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    structs = st.lists(children, min_size=1, max_size=3).map(lambda kinds: pa.struct([(f"f{at}", kind) for at, kind in enumerate(kinds)]))
    return structs | children.map(pa.list_) | children.map(lambda kind: pa.map_(pa.string(), kind))


TYPES = st.recursive(LEAVES, nested, max_leaves=5)


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pt.is_struct(kind):
        fields = {kind.field(at).name: values(kind.field(at).type) for at in range(kind.num_fields)}
        return st.none() | st.fixed_dictionaries(fields)
    if pt.is_map(kind):
        entries = st.dictionaries(st.text("abc", max_size=2), values(kind.item_type), max_size=3)
        return st.none() | entries.map(lambda drawn: list(drawn.items()))
    if pt.is_list(kind):
        return st.none() | st.lists(values(kind.value_type), max_size=3)
    of_leaf: dict[pa.DataType, st.SearchStrategy[Any]] = {
        pa.int64(): st.integers(-(2**63), 2**63 - 1),
        pa.string(): st.text("aé中", max_size=4),
        pa.binary(): st.binary(max_size=4),
        pa.bool_(): st.booleans(),
        pa.float64(): st.floats(allow_nan=False),
        pa.date32(): st.dates(),
    }
    return st.none() | of_leaf[kind]


def paths(name: str, kind: pa.DataType) -> list[str]:
    """The names of a column and of all below it, but for the keys of maps: those cannot be null, as they are without the key."""
    below: list[tuple[str, pa.DataType]] = []
    if pt.is_struct(kind):
        below = [(kind.field(at).name, kind.field(at).type) for at in range(kind.num_fields)]
    elif pt.is_map(kind):
        below = [("_value", kind.item_type)]
    elif pt.is_list(kind):
        below = [("_elem", kind.value_type)]
    return [name, *(path for child, child_kind in below for path in paths(f"{name}.{child}", child_kind))]


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, dict[str, list[str]]]:
    kinds = draw(st.lists(TYPES, min_size=1, max_size=3))
    rows = draw(st.integers(0, 12))
    columns = {f"c{at}": pa.array([draw(values(kind)) for _ in range(rows)], kind) for at, kind in enumerate(kinds)}
    candidates = [path for at, kind in enumerate(kinds) for path in paths(f"c{at}", kind)]
    chosen: list[str] = []
    for path in draw(st.lists(st.sampled_from(candidates), min_size=1, max_size=4)):
        if not any(f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.") for other in chosen):
            chosen.append(path)
    return pa.table(columns), {"pii": chosen[::2], "pii256": chosen[1::2]}


@settings(max_examples=60)
@given(tables(), st.integers(1, 2000), st.sampled_from(["uncompressed", "zlib"]))
def test_any_columns_come_back_with_the_keys_and_not_without(drawn: tuple[pa.Table, Any], stripe_size: int, codec: str) -> None:
    rows, encrypt = drawn
    data = encrypted(rows, encrypt, stripe_size=stripe_size, compression=codec)
    assert orc.read_table(data, local_keys()).to_pylist() == rows.to_pylist()
    assert orc.verify(data, local_keys()).rows == len(rows)
    masked = orc.read_table(data, masked=True)
    touched = {path.split(".")[0] for names in encrypt.values() for path in names}
    for name in rows.column_names:
        if name not in touched:
            assert masked[name].to_pylist() == rows[name].to_pylist()
        elif name in encrypt["pii"] + encrypt["pii256"]:
            assert masked[name].null_count == len(rows)
