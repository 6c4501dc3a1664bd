"""Whatever the columns are and whichever of them are encrypted: rows come back with the keys, and without them only the others do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import BinaryType, BooleanType, DateType, DoubleType, LongType, StringType

from tablecrypt import orc
from tablecrypt.testing.strategies import iceberg_types, rows, schemas
from tests.support.orc_files import encrypted, local_keys

pytestmark = pytest.mark.slow

TYPES = iceberg_types([LongType(), StringType(), BinaryType(), BooleanType(), DoubleType(), DateType()], max_leaves=5)
SCHEMAS = schemas(TYPES, names=st.sampled_from(["c0", "c1", "c2"]), max_columns=3)


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
    table = draw(rows(draw(SCHEMAS), max_size=12, allow_nan=False))
    candidates = [path for field in table.schema for path in paths(field.name, field.type)]
    chosen: list[str] = []
    for path in draw(st.lists(st.sampled_from(candidates), min_size=1, max_size=4)):
        if not any(f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.") for other in chosen):
            chosen.append(path)
    return table, {"pii": chosen[::2], "pii256": chosen[1::2]}


@settings(max_examples=60)
@given(tables(), st.integers(1, 2000), st.sampled_from(["uncompressed", "zlib"]))
def test_any_columns_come_back_with_the_keys_and_not_without(drawn: tuple[pa.Table, Any], stripe_size: int, codec: str) -> None:
    written, encrypt = drawn
    data = encrypted(written, encrypt, stripe_size=stripe_size, compression=codec)
    assert orc.read_table(data, local_keys()).to_pylist() == written.to_pylist()
    assert orc.verify(data, local_keys()).rows == len(written)
    masked = orc.read_table(data, masked=True)
    touched = {path.split(".")[0] for names in encrypt.values() for path in names}
    for name in written.column_names:
        if name not in touched:
            assert masked[name].to_pylist() == written[name].to_pylist()
        elif name in encrypt["pii"] + encrypt["pii256"]:
            assert masked[name].null_count == len(written)
