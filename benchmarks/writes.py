"""Writes of an encrypted table against plain PyIceberg: appends of one file, of several and of 64 partitions, a delete, and two upserts.

The upserts bring 20,000 rows, 19,000 of which are in the table, to one of 4 files of 1,000,000 rows in 6 columns: `scattered` over all
of it, and `recent` to its last 100,000 rows. A tenth of the rows that match differ. Each run begins with the same table.

Run: python benchmarks/writes.py [--files 4] [--rows 1000000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from _paired import OURS, Case, run_rounds
from _tables import ENCRYPTED, catalogs_in, rows_of
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

Write = Callable[[Table], object]
UPSERTED = 20_000


def main() -> None:
    """Make the tables, run the rounds, print the figures."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        writes = _Writes(catalogs_in(Path(folder)), options)
        rows = rows_of(0, options.rows)
        by_partition = rows.set_column(1, "k", pc.cast(pc.bit_wise_and(rows["k"], 63), pa.int64()))
        last = options.files * options.rows
        cases = [
            writes.case("append, one file", 1.0, partial(_append, rows), 0),
            writes.case("append, 8 files", 0.9, partial(_append, rows), 0, {"write.target-file-size-bytes": str(rows.nbytes // 8)}),
            writes.case("append, 64 partitions", 0.7, partial(_append, by_partition), 0, partitioned=True),
            writes.case("delete of one in 100", 0.9, lambda table: table.delete("k = 7"), options.files),
            writes.case("upsert, scattered", 0.4, partial(_upsert, _changes(0, last)), options.files),
            writes.case("upsert, recent", 0.4, partial(_upsert, _changes(max(0, last - 100_000), last)), options.files),
        ]
        run_rounds([case for case in cases if options.only in case.name], options.rounds)


class _Writes:
    """Makes a fresh table for each run, outside of what is timed."""

    def __init__(self, catalogs: tuple[Catalog, Catalog], options: argparse.Namespace) -> None:
        self._catalogs = dict(zip((OURS, "PyIceberg"), catalogs, strict=True))
        self._options = options
        self._tables: dict[str, Table] = {}

    def case(
        self, name: str, aim: float, write: Write, files: int, properties: dict[str, str] | None = None, partitioned: bool = False
    ) -> Case:
        sides: dict[str, Callable[[], object]] = {side: partial(self._write, side, write) for side in self._catalogs}
        return Case(name, sides, aim, before=partial(self._make, files, properties or {}, partitioned))

    def _write(self, side: str, write: Write) -> None:
        write(self._tables[side])

    def _make(self, files: int, properties: dict[str, str], partitioned: bool, side: str) -> None:
        catalog = self._catalogs[side]
        if catalog.table_exists("db.t"):
            catalog.purge_table("db.t")
        more = ENCRYPTED if side == OURS else {}
        table = catalog.create_table("db.t", rows_of(0, 1).schema, properties={**more, **properties})
        if partitioned:
            table.update_spec().add_identity("k").commit()
        for number in range(files):
            table.append(rows_of(number, self._options.rows))
        self._tables[side] = table


def _append(rows: pa.Table, table: Table) -> None:
    table.append(rows)


def _upsert(rows: pa.Table, table: Table) -> None:
    table.upsert(rows, join_cols=["id"])


def _changes(first: int, end: int) -> pa.Table:
    """Rows of these ids, evenly spread: as the table has them but for a tenth, and one in 20 new to it."""
    step = max(1, (end - first) // UPSERTED)
    known = _rows_at(range(first, end, step), end)
    amounts = pc.if_else(pc.equal(pc.bit_wise_and(known["z"], 7), 0), pc.add(known["v"], 1.0), known["v"])
    changed = known.set_column(2, "v", amounts)
    new = changed.slice(0, changed.num_rows // 20)
    return pa.concat_tables([changed.slice(changed.num_rows // 20), new.set_column(0, "id", pc.add(new["id"], end))])


def _rows_at(ids: range, end: int) -> pa.Table:
    count = _options().rows
    parts = []
    for number in range(end // count):
        rows = rows_of(number, count)
        wanted = [each - number * count for each in ids if number * count <= each < (number + 1) * count]
        parts.append(rows.take(pa.array(wanted, pa.int64())))
    return pa.concat_tables(parts)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose names hold this")
    return parser.parse_args()


if __name__ == "__main__":
    main()
