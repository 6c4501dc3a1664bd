"""Writes of an encrypted table against plain PyIceberg: appends of one file, of several and of 64 partitions, deletes, and two upserts.

The delete takes one row in 100, and is made twice: the files are written without the rows, or a deletion vector for each says where they
are. PyIceberg does the former in either case.

The upserts bring 20,000 rows, 19,000 of which are in the table, to one of 4 files of 1,000,000 rows in 6 columns: `scattered` over all
of it, and `recent` to its last 100,000 rows. A tenth of the rows that match differ. Each run begins with the same table.

Beside an append, pyarrow alone writes the same rows in as many files, with a key and without, and nothing else: the floor of both sides.

Run: python benchmarks/writes.py [--files 4] [--rows 1000000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from _paired import OURS, Case, run_rounds
from _tables import ENCRYPTED, FLOOR, PLAINTEXT_FLOOR, catalogs_in, rows_of, tables_in
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tablecrypt.table.parquet_options import dictionary_columns, parquet_writer_options

UPSERTED = 20_000


def main() -> None:
    """Make the tables, run the rounds, print the figures."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(0, options.rows)
        catalogs = catalogs_in(Path(folder))
        tables = tables_in(catalogs, "t", options.files, options.rows)
        appends, changes = _Appends(catalogs, Path(folder)), _Changes(tables)
        eight_files = {"write.target-file-size-bytes": str(rows.nbytes // 8)}
        by_partition = rows.set_column(1, "k", pc.cast(pc.bit_wise_and(rows["k"], 63), pa.int64()))
        last = options.files * options.rows
        cases = [
            appends.case("append, one file", 1.0, rows, {}, [rows]),
            appends.case("append, 8 files", 0.9, rows, eight_files, _equal_parts(rows, 8)),
            appends.case("append, 64 partitions", 0.7, by_partition, {}, partition_column="k"),
            changes.case("delete of one in 100", 0.9, lambda table: table.delete("k = 7")),
            changes.case("delete of one in 100, merge-on-read", 0.5, _delete_by_vectors),
            changes.case("upsert, scattered", 0.4, partial(_upsert, _changed(0, last))),
            changes.case("upsert, recent", 0.4, partial(_upsert, _changed(max(0, last - 100_000), last))),
        ]
        run_rounds([case for case in cases if options.only in case.name], options.rounds)


class _Appends:
    """Appends to a table that is made for each run, outside of what is timed; the floor writes the same rows in as many files."""

    def __init__(self, catalogs: tuple[Catalog, Catalog], folder: Path) -> None:
        self._catalogs = dict(zip((OURS, "PyIceberg"), catalogs, strict=True))
        self._folder = folder
        self._tables: dict[str, Table] = {}

    def case(
        self,
        name: str,
        aim: float,
        rows: pa.Table,
        properties: dict[str, str],
        parts: Sequence[pa.Table] = (),
        partition_column: str | None = None,
    ) -> Case:
        sides: dict[str, Callable[[], object]] = {side: partial(self._append, side, rows) for side in self._catalogs}
        floors = {FLOOR: True, PLAINTEXT_FLOOR: False}
        for floor, encrypts in floors.items():
            sides[floor] = partial(self._write_files, rows, parts, partition_column, encrypts)
        return Case(name, sides, aim, before=partial(self._make, properties, partition_column))

    def _append(self, side: str, rows: pa.Table) -> None:
        self._tables[side].append(rows)

    def _make(self, properties: dict[str, str], partition_column: str | None, side: str) -> None:
        if side not in self._catalogs:
            return
        catalog = self._catalogs[side]
        if catalog.table_exists("db.new"):
            catalog.purge_table("db.new")
        more = ENCRYPTED if side == OURS else {}
        table = catalog.create_table("db.new", rows_of(0, 1).schema, properties={**more, **properties})
        if partition_column is not None:
            table.update_spec().add_identity(partition_column).commit()
        self._tables[side] = table

    def _write_files(self, rows: pa.Table, parts: Sequence[pa.Table], partition_column: str | None, encrypts: bool) -> None:
        """Let pyarrow alone write the rows, on as many threads as there are processors."""
        parts = parts or _partitions(rows, partition_column)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda at: self._write_file(at, parts[at], encrypts), range(len(parts))))

    def _write_file(self, number: int, rows: pa.Table, encrypts: bool) -> None:
        encryption = pe.create_encryption_properties(bytes(16), aad_prefix=b"prefix", store_aad_prefix=False) if encrypts else None
        options = {**parquet_writer_options({}), "use_dictionary": dictionary_columns(rows)}
        pq.write_table(rows, self._folder / f"{number}.parquet", encryption_properties=encryption, **options)


class _Changes:
    """Changes of one table, which is rolled back to its first snapshot before each run, outside of what is timed."""

    def __init__(self, tables: tuple[Table, Table]) -> None:
        self._tables = dict(zip((OURS, "PyIceberg"), tables, strict=True))
        self._snapshots = {side: table.current_snapshot().snapshot_id for side, table in self._tables.items()}  # type: ignore[union-attr]

    def case(self, name: str, aim: float, change: Callable[[Table], object]) -> Case:
        sides: dict[str, Callable[[], object]] = {side: partial(change, table) for side, table in self._tables.items()}
        return Case(name, sides, aim, before=self._roll_back)

    def _roll_back(self, side: str) -> None:
        self._tables[side].manage_snapshots().set_current_snapshot(snapshot_id=self._snapshots[side]).commit()


def _partitions(rows: pa.Table, column: str | None) -> list[pa.Table]:
    """The rows of each value of a column."""
    ordered = rows.sort_by(column)
    counts = ordered[column].value_counts().field("counts").to_pylist()
    return [ordered.slice(end - count, count) for count, end in zip(counts, itertools.accumulate(counts), strict=True)]


def _equal_parts(rows: pa.Table, count: int) -> list[pa.Table]:
    length = -(-rows.num_rows // count)
    return [rows.slice(start, length) for start in range(0, rows.num_rows, length)]


def _delete_by_vectors(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"write.delete.mode": "merge-on-read"})
        transaction.delete("k = 7")
        transaction.set_properties({"write.delete.mode": "copy-on-write"})


def _upsert(rows: pa.Table, table: Table) -> None:
    table.upsert(rows, join_cols=["id"])


def _changed(first: int, end: int) -> pa.Table:
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
