"""Scans and appends of encrypted tables of many shapes, against pyarrow with the key and nothing else, and plain PyIceberg.

Each shape (_shapes.py) is a table of some files. tablecrypt and PyIceberg load the table and scan it. `pyarrow with the key` is the floor:
it is told the encrypted table's files with their keys, and which rows deletion vectors take, and reads each with ParquetFile, on a thread
for each processor; filters are those of Arrow datasets. It appends the same rows with write_table, in one file, with a key.

The files of the encrypted table are its own, or with `--written-by` those that plain PyIceberg or Iceberg Java wrote, with their row groups
and dictionaries, migrated; Java writes in Spark, which needs Java 17 or newer. With `--deleted`, one row in 100 is gone before the scans:
its files written again, or marked in deletion vectors.

TPC-H's lineitem is among the shapes where its generator is installed (pip install tpchgen-cli).

Run: python benchmarks/shapes.py [--files 4] [--share 1] [--rounds 7] [--shapes mixed wide] [--cases "full scan" append]
    [--codec zstd|snappy|uncompressed] [--written-by tablecrypt|pyiceberg|java]
    [--deleted copy-on-write|merge-on-read]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from _paired import OURS, Case, keep, run_rounds
from _shapes import SHAPES, Shape, lineitem
from _tables import ENCRYPTED, FLOOR, KEY_ID, catalogs_in, dataset_of, decryption_of, files_of, local_path
from _tpch import generate, generator
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tablecrypt import maintenance

if TYPE_CHECKING:
    from tests.support.java import JavaOracle

PYICEBERG: Final = "PyIceberg"
AIMS: Final = {"full scan": 1.08, "one column": 1.15, "one value": 1.05, "half of a sorted column": 1.05, "append": 1.08}
"""The ratios to the floor that are aimed at. Where the floor takes less than 30 ms, 5 ms more than it is the aim instead."""
_DELETED: Final = 100
"""One row in so many."""


def main() -> None:
    """Make the tables of one shape after another, run their rounds, print the figures."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        chosen = list(_chosen(options, Path(folder)))
        catalogs, said = catalogs_in(Path(folder)), dict[str, str]()
        java = stack.enter_context(_java(Path(folder) / "java")) if options.written_by == "java" else None
        for number, shape in enumerate(chosen):
            measured = _Measured(shape, catalogs, f"db.shape{number}", Path(folder), options, java)
            said[shape.name] = f"{shape.says}; {options.files} files of {measured.rows:,} rows, {measured.size_mb:.1f} MB each"
            print(f"{shape.name}: {said[shape.name]}")
            keep("shapes", said)
            run_rounds([case for case in measured.cases() if case.name.split(": ")[1] in options.cases], options.rounds)
            measured.drop()


@contextmanager
def _java(folder: Path) -> Iterator[JavaOracle]:
    """Iceberg Java with a catalog of its own in this folder."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.support.java import JavaOracle
    from tests.support.java_version import java_problem

    if (problem := java_problem()) is not None:
        raise SystemExit(problem)
    folder.mkdir()
    # Nobody is at this address: Java writes plaintext, and asks no KMS.
    with JavaOracle(folder, "http://127.0.0.1:9", buckets=()) as java:
        java.sql("CREATE NAMESPACE h.db")
        yield java


def _chosen(options: argparse.Namespace, folder: Path) -> Iterator[Shape]:
    for shape in SHAPES:
        # Rows are deleted by a value that few of them have.
        if shape.name in options.shapes and (shape.equals or not options.deleted):
            yield shape

    if "lineitem" not in options.shapes:
        return
    program = generator()
    if program is None:
        print("no TPC-H lineitem: pip install tpchgen-cli")
        return
    generate(program, folder / "generated", 0.2 * options.share)
    yield lineitem(folder / "generated")


@dataclass
class _Measured:
    """The tables of one shape, and what is done with them."""

    shape: Shape
    catalogs: tuple[Catalog, Catalog]
    name: str
    folder: Path
    options: argparse.Namespace
    java: JavaOracle | None
    new: dict[str, Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        share = 1 if self.shape.name == "lineitem" else self.options.share
        self.rows = int(self.shape.rows * share)
        self.properties = {"write.parquet.compression-codec": self.options.codec}
        if self.options.deleted:
            self.properties["write.delete.mode"] = self.options.deleted
        self._make_tables()
        self.files = files_of(self.catalogs[0].load_table(self.name))
        self._live = {file.file_path: self._live_rows(file) for file in self.files} if self.options.deleted == "merge-on-read" else {}
        self.size_mb = sum(file.file_size_in_bytes for file in self.files) / len(self.files) / 1e6

    def _make_tables(self) -> None:
        """Make the table in both catalogs: a commit for each file."""
        ours, plain = self.catalogs
        migrated = f"{self.name}_plain"
        match self.options.written_by:
            case "tablecrypt":
                self._append_files(ours, self.name, {**self.properties, **ENCRYPTED})
                self._append_files(plain, self.name, self.properties)
            case "pyiceberg":
                self._append_files(ours, migrated, self.properties)
                self._append_files(plain, self.name, self.properties)
            case "java":
                location = self._written_by_java(migrated)
                ours.register_table(migrated, location)
                plain.register_table(self.name, location)

        if ours.table_exists(migrated):
            maintenance.migrate(ours.load_table(migrated), KEY_ID, into=self.name)
            # Its files are those of the plain catalog's table where Java wrote them.
            ours.drop_table(migrated)
        if self.options.deleted:
            for catalog in self.catalogs:
                catalog.load_table(self.name).delete(self._one_value)

    def _append_files(self, catalog: Catalog, name: str, properties: dict[str, str]) -> None:
        table = catalog.create_table(name, self.shape.file(0, 1).schema, properties=properties)
        for number in range(self.options.files):
            table.append(self.shape.file(number, self.rows))

    def _written_by_java(self, name: str) -> str:
        """Let Iceberg Java write the table; return where its metadata is."""
        assert self.java is not None
        properties = ", ".join(f"'{name}'='{value}'" for name, value in {**self.properties, "format-version": "2"}.items())
        empty = self.folder / "empty.parquet"
        pq.write_table(self.shape.file(0, 1).slice(0, 0), empty)
        self.java.sql(f"CREATE TABLE h.{name} USING iceberg TBLPROPERTIES ({properties}) AS SELECT * FROM parquet.`{empty}`")
        for number in range(self.options.files):
            self.java.append(name, self.shape.file(number, self.rows))
        return self.java.metadata_location(name)

    @property
    def _one_value(self) -> str:
        assert self.shape.equals is not None
        return "{} = {!r}".format(*self.shape.equals)

    def cases(self) -> Iterator[Case]:
        """What is measured of the shape."""
        one = (self.shape.one,)
        yield self._scan("full scan")
        yield self._scan("one column", columns=one)
        if self.shape.equals and not self.options.deleted:
            yield self._scan("one value", self._one_value, pc.field(self.shape.equals[0]) == self.shape.equals[1])
        if self.shape.ordered:
            yield self._half_of(self.shape.ordered)
        yield self._append()

    def drop(self) -> None:
        """Make room for the next shape."""
        for catalog in self.catalogs:
            for name in (self.name, f"{self.name}_new"):
                if catalog.table_exists(name):
                    catalog.purge_table(name)

    def _half_of(self, column: str) -> Case:
        values = pc.min_max(self._floor(columns=(column,))[column]).as_py()
        quarter = (values["max"] - values["min"]) // 4
        first, end = values["min"] + quarter, values["max"] - quarter
        stored = pc.field(column)
        return self._scan("half of a sorted column", f"{column} >= {first} and {column} < {end}", (stored >= first) & (stored < end))

    def _scan(self, name: str, text: str = "", condition: pc.Expression | None = None, columns: tuple[str, ...] | None = None) -> Case:
        ours, plain = self.catalogs
        sides: dict[str, Callable[[], pa.Table]] = {
            OURS: partial(_scanned, ours, self.name, text, columns),
            FLOOR: partial(self._floor, condition, columns),
            PYICEBERG: partial(_scanned, plain, self.name, text, columns),
        }
        assert len({read().num_rows for read in sides.values()}) == 1, f"{self.shape.name}: {name}"
        return Case(f"{self.shape.name}: {name}", {**sides}, AIMS[name], FLOOR, warms_up=True)

    def _floor(self, condition: pc.Expression | None = None, columns: tuple[str, ...] | None = None) -> pa.Table:
        """What pyarrow alone makes of the encrypted files."""
        names = None if columns is None else list(columns)
        if condition is not None:
            if self._live and self.shape.equals:
                condition &= pc.field(self.shape.equals[0]) != self.shape.equals[1]
            return dataset_of(self.files).to_table(columns=names, filter=condition)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return pa.concat_tables(pool.map(partial(self._file_of, names), self.files))

    def _file_of(self, columns: list[str] | None, file: DataFile) -> pa.Table:
        rows = _read(columns, file)
        return rows.filter(self._live[file.file_path]) if self._live else rows

    def _live_rows(self, file: DataFile) -> pa.Array:
        assert self.shape.equals is not None
        column, value = self.shape.equals
        return pc.not_equal(_read([column], file)[column], pa.scalar(value))

    def _append(self) -> Case:
        rows = self.shape.file(0, self.rows)
        sides: dict[str, Callable[[], Any]] = {
            OURS: lambda: self.new[OURS].append(rows),
            FLOOR: lambda: self._write(rows),
            PYICEBERG: lambda: self.new[PYICEBERG].append(rows),
        }
        return Case(f"{self.shape.name}: append", sides, AIMS["append"], FLOOR, before=partial(self._make_new, rows.schema))

    def _make_new(self, schema: pa.Schema, side: str) -> None:
        if side == FLOOR:
            return
        catalog, name = self.catalogs[side == PYICEBERG], f"{self.name}_new"
        if catalog.table_exists(name):
            catalog.purge_table(name)
        self.new[side] = catalog.create_table(name, schema, properties={**self.properties, **(ENCRYPTED if side == OURS else {})})

    def _write(self, rows: pa.Table) -> None:
        codec = {"uncompressed": "none"}.get(self.options.codec, self.options.codec)
        encryption = pe.create_encryption_properties(bytes(16), aad_prefix=b"prefix", store_aad_prefix=False)
        pq.write_table(rows, self.folder / "floor.parquet", compression=codec, encryption_properties=encryption)


def _scanned(catalog: Catalog, name: str, row_filter: str, columns: Iterable[str] | None) -> pa.Table:
    scan = catalog.load_table(name).scan(selected_fields=tuple(columns or ("*",)))
    return (scan.filter(row_filter) if row_filter else scan).to_arrow()


def _read(columns: list[str] | None, file: DataFile) -> pa.Table:
    return pq.ParquetFile(local_path(file), decryption_properties=decryption_of(file)).read(columns, use_threads=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shapes = [*(shape.name for shape in SHAPES), "lineitem"]
    parser.add_argument("--shapes", nargs="*", choices=shapes, default=shapes, metavar="NAME", help=", ".join(shapes))
    parser.add_argument("--cases", nargs="*", choices=AIMS, default=list(AIMS), metavar="NAME", help=", ".join(AIMS))
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--share", type=float, default=1, help="of the rows that a file of each shape has")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--codec", choices=("zstd", "snappy", "uncompressed"), default="zstd")
    parser.add_argument("--written-by", choices=("tablecrypt", "pyiceberg", "java"), default="tablecrypt")
    parser.add_argument("--deleted", choices=("copy-on-write", "merge-on-read"), help="a hundredth of the rows, before the scans")
    return parser.parse_args()


if __name__ == "__main__":
    main()
