"""Shapes of data on which tables are measured: what their columns hold, and which cases there are of each.

The code was not tuned to any of them. Rows are the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tablecrypt.parquet.text_columns import plain_rows


@dataclass(frozen=True)
class Shape:
    """Rows of one kind.

    Attributes:
        says: what the columns are, for people.
        rows: of a file.
        file: makes the rows of one file, from its number and how many rows it has.
        one: the column that is read alone.
        equals: a column and a value that few rows have.
        ordered: a column in whose order the rows are, within a file and from file to file.
    """

    name: str
    says: str
    rows: int
    file: Callable[[int, int], pa.Table]
    one: str
    equals: tuple[str, int | str] | None = None
    ordered: str | None = None


def lineitem(generated: Path) -> Shape:
    """The largest table of TPC-H, of the files that tpchgen-cli made."""
    # The generator notes that its text is views, which plain PyIceberg cannot filter.
    rows = plain_rows(pq.read_table(generated / "lineitem.parquet"))
    says = "16 columns of TPC-H: keys, decimals, dates, flags, comments"
    return Shape(
        "lineitem",
        says,
        rows.num_rows // 4,
        lambda number, count: rows.slice(number * count, count).combine_chunks(),
        "l_extendedprice",
        ("l_linenumber", 7),
        "l_orderkey",
    )


def _mixed(number: int, count: int) -> pa.Table:
    random = np.random.default_rng(number)
    ids = np.arange(number * count, (number + 1) * count)
    return pa.table(
        {
            "id": ids,
            "k": random.integers(0, 100, count),
            "quantity": random.integers(0, 50, count, dtype=np.int32),
            "price": random.random(count),
            "weight": random.random(count),
            "customer": _texts("customer-{:06}", 200_000, random.integers(0, 200_000, count)),
            "at": pa.array(1_700_000_000_000_000 + ids * 1_000_003, pa.timestamp("us")),
        }
    )


def _unique_text(number: int, count: int) -> pa.Table:
    random = np.random.default_rng(number)
    columns = {name: random.integers(0, 2**60, count) for name in ("reference", "comment")}
    return pa.table({name: pc.binary_join_element_wise(name, pc.cast(pa.array(each), pa.string()), "-") for name, each in columns.items()})


def _repeated_text(number: int, count: int) -> pa.Table:
    random = np.random.default_rng(number)
    return pa.table(
        {
            "state": _texts("state {:02}", 30, random.integers(0, 30, count)),
            "product": _texts("product number {:04}", 1000, random.integers(0, 1000, count)),
        }
    )


def _wide(number: int, count: int) -> pa.Table:
    random = np.random.default_rng(number)
    makers: list[Callable[[], pa.Array]] = [
        lambda: pa.array(random.integers(0, 1000, count)),
        lambda: pa.array(random.random(count)),
        lambda: _texts("value {:03}", 500, random.integers(0, 500, count)),
        lambda: pa.array(random.integers(0, 20_000, count, dtype=np.int32), pa.date32()),
    ]
    columns = {f"c{at}": makers[at % 4]() for at in range(1, 200)}
    return pa.table({"c0": np.arange(number * count, (number + 1) * count), **columns})


def _nested(number: int, count: int) -> pa.Table:
    random = np.random.default_rng(number)
    lengths = random.integers(0, 6, count)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    total = int(lengths.sum())
    items = pa.StructArray.from_arrays(
        [_texts("sku {:05}", 10_000, random.integers(0, 10_000, total)), pa.array(random.integers(1, 9, total)), random.random(total)],
        names=["sku", "quantity", "price"],
    )
    return pa.table(
        {
            "id": np.arange(number * count, (number + 1) * count),
            "k": random.integers(0, 100, count),
            "items": pa.ListArray.from_arrays(offsets, items),
        }
    )


def _small_ints(number: int, count: int) -> pa.Table:
    random = np.random.default_rng(number)
    return pa.table({"k": random.integers(0, 100, count, dtype=np.int32), "n": random.integers(0, 1000, count, dtype=np.int32)})


def _texts(pattern: str, count: int, chosen: np.ndarray) -> pa.Array:
    return pa.array([pattern.format(at) for at in range(count)]).take(pa.array(chosen))


SHAPES: Final = (
    Shape("mixed", "an id, small integers, two random doubles, text of 200,000 values, timestamps", 1_000_000, _mixed, "k", ("k", 7), "id"),
    Shape("text, unique", "two columns of text, nearly every value once", 1_000_000, _unique_text, "comment"),
    Shape("text, repeated", "text of 30 and of 1,000 values", 1_000_000, _repeated_text, "product", ("state", "state 07")),
    Shape("wide", "200 columns: integers, doubles, text of 500 values, dates", 25_000, _wide, "c4", ("c4", 7), "c0"),
    Shape("nested", "an id, a small integer, a list of structs", 200_000, _nested, "items", ("k", 7), "id"),
    Shape("small integers", "two columns of them", 1_000_000, _small_ints, "k", ("k", 7)),
)
