"""What a commit costs on a table with many snapshots, against the same commit on a table with few.

    python benchmarks/commit_cost.py [--snapshots 1000] [--commits 20]

Commits replace a table's only row while its history grows, so that the data and the number of live manifests stay the same. Printed are
the median time of an append at 10 and at `--snapshots` snapshots, the time to write, hash, read and parse metadata.json of that size once
(its own cost, which no implementation avoids), the ratio of what remains, and how many metadata files a commit reads.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import Table

from tablecrypt import load_catalog
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.table.metadata import read_metadata_file, write_metadata_file

FEW = 10
ROW = pa.table({"id": pa.array([1], pa.int64()), "text": ["one row"]})


class CountingFileIO(PyArrowFileIO):
    """Counts the metadata files that it is asked for."""

    metadata_reads = 0

    def new_input(self, location: str) -> PyArrowFile:
        if location.endswith(".metadata.json"):
            CountingFileIO.metadata_reads += 1
        return super().new_input(location)


def median_seconds(action: Callable[[], Any], times: int) -> float:
    """The median time of an action."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        action()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def grow(table: Table, snapshots: int) -> None:
    """Commit until the table has that many snapshots."""
    while len(table.metadata.snapshots) < snapshots:
        table.overwrite(ROW)


def measure(table: Table, commits: int) -> tuple[float, float, float]:
    """Seconds of a commit, seconds to parse and write its metadata.json once, and metadata files read by a commit."""
    CountingFileIO.metadata_reads = 0
    commit = median_seconds(lambda: table.append(ROW), commits)
    reads = CountingFileIO.metadata_reads / commits
    return commit, median_seconds(lambda: _write_and_read_metadata(table), 9), reads


def _write_and_read_metadata(table: Table) -> None:
    place = f"{table.location()}/metadata/{uuid.uuid4()}.metadata.json"
    file_io = PyArrowFileIO()
    written = write_metadata_file(table.metadata, file_io, place)
    read = read_metadata_file(file_io.new_input(place))
    if written.digest != read.digest:
        raise SystemExit("metadata.json does not read back as it was written")
    read.parse()


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshots", type=int, default=1000)
    parser.add_argument("--commits", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    MemoryKeyManagementClient({"kms.memory.name": "commit-cost"}, keys={"master": bytes(range(32))})
    with tempfile.TemporaryDirectory() as folder:
        catalog = load_catalog(
            "commits",
            **{
                "type": "tablecrypt",
                "py-io-impl": f"{__name__}.CountingFileIO",
                "uri": f"sqlite:///{folder}/catalog.db",
                "warehouse": f"file://{folder}/warehouse",
                "encryption.kms-type": "memory",
                "kms.memory.name": "commit-cost",
            },
        )
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", ROW.schema, properties={"encryption.key-id": "master"})
        grow(table, FEW)
        few = measure(table, options.commits)
        grow(table, options.snapshots)
        table.overwrite(ROW)
        many = measure(table, options.commits)
    for name, (commit, own, reads) in ((FEW, few), (options.snapshots, many)):
        own_cost = f"metadata.json itself {own * 1000:6.1f} ms, {reads:.0f} metadata files read"
        print(f"{name:6} snapshots: commit {commit * 1000:7.1f} ms, {own_cost}")
    rest = [commit - own for commit, own, _ in (few, many)]
    print(f"commit at {options.snapshots} / at {FEW} snapshots: {many[0] / few[0]:.2f}")
    print(f"beyond metadata.json's own cost: {rest[1] / rest[0]:.2f}")


if __name__ == "__main__":
    main()
