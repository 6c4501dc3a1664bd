"""One of the processes that append to a table at the same time, for the axis `writers` of benchmarks/growth.py.

    python benchmarks/_growth_writer.py FOLDER SIDE COMMITS

It says `ready` when it has loaded the table, waits for a line, appends as often as it is told, and ends. The append of which every retry
failed is begun again.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pyarrow as pa
from _growth_axes import TABLE, catalog_of
from _tables import rows_of
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table


def main() -> None:
    """Append when told to."""
    folder, side, commits = sys.argv[1:]
    # Of each retry: there are a thousand.
    logging.getLogger("pyiceberg.table").setLevel(logging.ERROR)
    table, rows = catalog_of(Path(folder), side).load_table(TABLE), rows_of(0, 100)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for _ in range(int(commits)):
        append(table, rows)


def append(table: Table, rows: pa.Table) -> None:
    """Append the rows once, however many attempts that takes."""
    while True:
        try:
            table.append(rows)
        except CommitFailedException:
            table.refresh()
        else:
            return


if __name__ == "__main__":
    main()
