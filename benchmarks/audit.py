"""How long an audit of a table with many files takes, against the least that reading the beginning of each file can take.

    audit     maintenance.audit: metadata, manifests, listing the folder, the first bytes of every file, the rules
    heads     opening each of the same files and reading four bytes of it, on as many threads, and nothing else

Files are local and in the page cache. The aim is 10,000 files in seconds: 10 or less. Peak memory is that of the whole process.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from tablecrypt import load_catalog
from tablecrypt.kms.local_file import create_key_file
from tablecrypt.maintenance import audit
from tablecrypt.maintenance._audit.file_signatures import THREADS

AIM_SECONDS: Final = 10
SCHEMA: Final = Schema(NestedField(1, "part", LongType()), NestedField(2, "id", LongType()))
BY_PART: Final = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part"))
FILES_OF_AN_APPEND: Final = 1000


def make_table(folder: Path, files: int) -> Table:
    """A table of so many data files, one in each partition and append."""
    create_key_file(folder / "keys.json", "bench")
    catalog = load_catalog(
        "bench",
        **{
            "type": "tablecrypt",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
            "encryption.kms-type": "local",
            "kms.local.key-file": str(folder / "keys.json"),
        },
    )
    catalog.create_namespace("db")
    table = catalog.create_table("db.rows", SCHEMA, partition_spec=BY_PART, properties={"encryption.key-id": "bench"})
    for first in range(0, files, FILES_OF_AN_APPEND):
        parts = range(first, min(files, first + FILES_OF_AN_APPEND))
        table.append(pa.table({"part": parts, "id": parts}, schema=SCHEMA.as_arrow()))
    return table.refresh()


def read_heads(paths: list[Path]) -> None:
    def read(path: Path) -> bytes:
        with path.open("rb") as file:
            return file.read(4)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, paths))


def peak_memory() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description="audit of a table with many files")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        table = make_table(Path(scratch), arguments.files)
        paths = list((Path(scratch) / "warehouse").rglob("*.*"))
        audits: list[float] = []
        heads: list[float] = []
        for _ in range(arguments.rounds):
            start = time.perf_counter()
            found = audit(table)
            audits.append(time.perf_counter() - start)
            start = time.perf_counter()
            read_heads(paths)
            heads.append(time.perf_counter() - start)
        if found.findings or len(found.tables[0].files) < arguments.files:
            raise SystemExit("the audit did not see what there is")
    seconds, floor = statistics.median(audits), statistics.median(heads)
    print(f"{len(found.tables[0].files):,} files: audit {seconds:.2f} s, heads alone {floor:.2f} s, ratio {seconds / floor:.1f}")
    print(f"{len(found.tables[0].files) / seconds:,.0f} files/s, peak memory {peak_memory() / 1e6:.0f} MB, making of the table included")
    met = seconds <= AIM_SECONDS
    print(f"aim: {AIM_SECONDS} s: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
