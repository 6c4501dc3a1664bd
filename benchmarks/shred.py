"""What shredding a table with a long history costs: memory above that of an idle process, and how often each older metadata file is read.

    history    metadata files of about 2 MB that a table left behind, of which each forgot one snapshot and its key and has one more than
               the file before; all hold the KEK that goes
    shred      maintenance.shred of one snapshot of the current metadata, and so of all that the history still opens

Every file must be read to find what it holds, and once more to write it over: 2 reads. Files are local and in the page cache. The aim is
300 MB above the idle process, for however many files, and those 2 reads.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from tablecrypt import load_catalog
from tablecrypt.kms.local_file import create_key_file
from tablecrypt.maintenance import shred

AIM_BYTES: Final = 300_000_000
AIM_READS: Final = 2
LOGGED: Final = 100
SCHEMA: Final = Schema(NestedField(1, "id", LongType()))


class CountingFileIO(PyArrowFileIO):
    """Counts the metadata files that it is asked for."""

    reads: ClassVar[Counter[str]] = Counter()

    def new_input(self, location: str) -> PyArrowFile:
        if location.endswith(".metadata.json"):
            self.reads[location] += 1
        return super().new_input(location)


def make_table(folder: Path) -> Table:
    """A table of three snapshots."""
    create_key_file(folder / "keys.json", "bench")
    catalog = load_catalog(
        "bench",
        **{
            "type": "tablecrypt",
            "py-io-impl": f"{__name__}.CountingFileIO",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
            "encryption.kms-type": "local",
            "kms.local.key-file": str(folder / "keys.json"),
        },
    )
    catalog.create_namespace("db")
    table = catalog.create_table("db.rows", SCHEMA, properties={"encryption.key-id": "bench"})
    for first in range(3):
        table.append(pa.table({"id": [first]}, schema=SCHEMA.as_arrow()))
    return table.refresh()


def leave_history(table: Table, files: int, size: int) -> list[str]:
    """Write so many older metadata files, of about so many bytes each, and return where they are."""
    folder = f"{table.location()}/metadata"
    document = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    snapshot, key = document["snapshots"][0], next(each for each in document["encryption-keys"] if not each.get("properties"))
    window = size // (len(json.dumps(_nth(snapshot, folder, 0))) + len(json.dumps(key)))
    locations = [f"{folder}/{number:05d}-{uuid.UUID(int=number)}.metadata.json" for number in range(files)]
    snapshots = [json.dumps(_nth(snapshot, folder, number)) for number in range(files + window)]
    keys = [json.dumps({**key, "key-id": f"key-{number:012d}"}) for number in range(files + window)]
    for number, location in enumerate(locations):
        log = [{"metadata-file": each, "timestamp-ms": document["last-updated-ms"]} for each in locations[max(0, number - LOGGED) : number]]
        rest = {**document, "metadata-log": log}
        text = json.dumps({**rest, "snapshots": ["SNAPSHOTS"], "encryption-keys": ["KEYS"]})
        text = text.replace('"SNAPSHOTS"', ",".join([*map(json.dumps, document["snapshots"]), *snapshots[number : number + window]]))
        text = text.replace('"KEYS"', ",".join([*map(json.dumps, document["encryption-keys"]), *keys[number : number + window]]))
        Path(location.removeprefix("file://")).write_text(text)
    return locations


def _nth(snapshot: dict[str, Any], folder: str, number: int) -> dict[str, Any]:
    """A snapshot that expired long ago, with its manifest list."""
    snapshot_id = 10**18 + number
    return {
        **snapshot,
        "snapshot-id": snapshot_id,
        "key-id": f"key-{number:012d}",
        "manifest-list": f"{folder}/snap-{snapshot_id}-0-{uuid.UUID(int=number)}.avro",
    }


def memory(name: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def main() -> int:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--megabytes", type=float, default=2.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        table = make_table(Path(scratch))
        older = leave_history(table, arguments.files, int(arguments.megabytes * 1e6))
        stored = sum(Path(each.removeprefix("file://")).stat().st_size for each in older)
        CountingFileIO.reads.clear()
        Path("/proc/self/clear_refs").write_text("5")
        idle, start = memory("VmRSS"), time.perf_counter()
        result = shred(table, [table.snapshots()[0].snapshot_id], delete_below=[table.location()])
        seconds, above = time.perf_counter() - start, memory("VmHWM") - idle
        if not set(older) <= set(result.rewritten):
            raise SystemExit("not every older file was written over")
    reads = max(CountingFileIO.reads[each] for each in older)
    print(f"{len(older):,} older files, {stored / 1e6:,.0f} MB: {seconds:.0f} s, {seconds / len(older) * 1e3:.0f} ms a file")
    print(f"peak memory {above / 1e6:.0f} MB above the idle process ({idle / 1e6:.0f} MB); each older file read {reads} times")
    print(f"{len(result.expired_before):,} snapshots that had expired before are out of reach with the one that was named")
    met = above <= AIM_BYTES and reads <= AIM_READS
    print(f"aim: {AIM_BYTES / 1e6:.0f} MB, {AIM_READS} reads: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
