"""Scans of 200 small files against plain PyIceberg: in local files, and in S3 (moto) that takes 50 ms longer for each request.

A file holds 1,000 rows in 6 columns, and is of one commit with the others. Both sides load their table and scan it; see _paired.py.

Run: python benchmarks/small_files.py [--files 200] [--rows 1000] [--rounds 5] [--delay-ms 50]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
from _paired import OURS, Case, run_rounds
from _slow_s3 import slow_s3
from _tables import ENCRYPTED, catalogs_in, rows_of
from pyiceberg.catalog import Catalog


def main() -> None:
    """Make the tables, run the rounds, print the figures."""
    options = _options()
    with tempfile.TemporaryDirectory() as local, tempfile.TemporaryDirectory() as remote, slow_s3(options.delay_ms) as store:
        cases = _cases("local", Path(local), {}, options, 1.0)
        cases += _cases(f"S3 + {options.delay_ms} ms", Path(remote), store, options, 0.5)
        run_rounds(cases, options.rounds)


def _cases(name: str, folder: Path, properties: Mapping[str, str], options: argparse.Namespace, aim: float) -> list[Case]:
    catalogs = catalogs_in(folder, properties)
    for catalog, more in zip(catalogs, (ENCRYPTED, {}), strict=True):
        rows = rows_of(0, options.rows * options.files)
        # A file ends at this size, of Arrow memory.
        size = {"write.target-file-size-bytes": str(rows.nbytes // options.files)}
        table = catalog.create_table("db.t", rows.schema, properties={**more, **size})
        table.append(pa.Table.from_batches(rows.to_batches(max_chunksize=options.rows)))
        files = len(list(table.scan().plan_files()))
        assert abs(files - options.files) <= options.files // 4, files

    def case(what: str, read: str) -> Case:
        sides = {side: partial(globals()[read], catalog) for side, catalog in zip((OURS, "PyIceberg"), catalogs, strict=True)}
        return Case(f"{what}, {name}", {**sides}, aim)

    return [case("to_arrow", "_table"), case("stream", "_stream"), case("2 columns", "_columns")]


def _table(catalog: Catalog) -> int:
    return catalog.load_table("db.t").scan().to_arrow().num_rows  # type: ignore[no-any-return]


def _stream(catalog: Catalog) -> int:
    return sum(len(batch) for batch in catalog.load_table("db.t").scan().to_arrow_batch_reader())


def _columns(catalog: Catalog) -> int:
    return catalog.load_table("db.t").scan("id >= 0", selected_fields=("k", "v")).to_arrow().num_rows  # type: ignore[no-any-return]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1000, help="of each file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delay-ms", type=int, default=50)
    return parser.parse_args()


if __name__ == "__main__":
    main()
