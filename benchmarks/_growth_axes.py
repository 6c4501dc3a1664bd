"""What benchmarks/growth.py measures along each axis: the table of one size, and what is done with it.

    files       planning a scan of a table of so many data files, in manifests of at most 1,000; again; and one that reads one file
    snapshots   loading a table whose metadata.json lists so many snapshots, a commit after it, and one more
    columns     an append of 2,000 rows in so many columns, and a scan of them
    rows        an append of so many rows in 6 columns, and a scan of them, both as streams
    writers     48 appends by so many processes at the same time

The files of the first axis are named by manifests and not written, since no plan reads them. The snapshots of the second are written into
metadata.json at once: they follow the current one and were rolled back, so that a commit reads the manifest list of that one alone.

PyIceberg's commit loop, which is tablecrypt's too, makes a commit again where another writer was faster. Both get the same properties for
it, and a writer whose commit failed after all of its retries begins the append again.
"""

from __future__ import annotations

import itertools
import json
import secrets
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import planning
import pyarrow as pa
from _paired import OURS
from _tables import ENCRYPTED, catalogs_in, rows_of
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from tablecrypt.manifests.entries import CACHE
from tablecrypt.table.metadata import PARSED

PYICEBERG: Final = "PyIceberg"
TABLE: Final = "db.t"
PROCESSORS: Final = "processor time"
CLOCK: Final = "time on the clock"
COMMITS: Final = 48
RETRIES: Final = {"commit.retry.num-retries": "20", "commit.retry.min-wait-ms": "10", "commit.retry.max-wait-ms": "500"}
"""For every writer of both sides. By default PyIceberg tries 4 times, and waits 100 ms and longer."""
_PER_MANIFEST: Final = 1000
_CHUNK: Final = 1_000_000
_CHUNKS: Final = 10
"""Different chunks of rows; longer streams repeat them."""
Step = Callable[[], float]
"""Does something once, and returns its seconds."""


@dataclass(frozen=True)
class Axis:
    """What grows, and what is done at each of its sizes.

    Attributes:
        sizes: that both sides are measured at.
        steps: makes a side's table of a size in a folder, and returns what is done with it.
        measured: what the seconds are of.
    """

    sizes: tuple[int, ...]
    steps: Callable[[Path, str, int], dict[str, Step]]
    measured: str = PROCESSORS


def catalog_of(folder: Path, side: str) -> Catalog:
    """Return the catalog of a side in this folder."""
    return catalogs_in(folder)[side != OURS]


def _files(folder: Path, side: str, size: int) -> dict[str, Step]:
    table = _created(catalog_of(folder, side), side, planning.SCHEMA)
    planning.fill(table, size, max(1, size // _PER_MANIFEST))
    middle = planning.ROWS * (size // 2)

    def first() -> float:
        CACHE.clear()
        return _processor_seconds(lambda: planning.plan(table, f"column_1 >= {planning.ROWS}"))

    def again() -> float:
        planning.plan(table, f"column_1 >= {planning.ROWS}")
        return _processor_seconds(lambda: planning.plan(table, f"column_1 >= {planning.ROWS}"))

    def one() -> float:
        CACHE.clear()
        return _processor_seconds(lambda: planning.plan(table, f"column_1 = {middle + 1}"))

    return {"planning": first, "planning again": again, "planning for one file": one}


def _snapshots(folder: Path, side: str, size: int) -> dict[str, Step]:
    catalog, rows = catalog_of(folder, side), rows_of(0, 10)
    table = _created(catalog, side, rows.schema)
    table.append(rows)
    location = _with_history(table, size)
    catalog.drop_table(TABLE)
    catalog.register_table(TABLE, location)

    def load() -> float:
        PARSED.clear()
        return _processor_seconds(lambda: catalog.load_table(TABLE))

    def first_commit() -> float:
        PARSED.clear()
        return _processor_seconds(lambda: catalog.load_table(TABLE).append(rows))

    def next_commit() -> float:
        # The other side's steps forget what either has parsed.
        catalog.load_table(TABLE)
        return _processor_seconds(lambda: catalog.load_table(TABLE).append(rows))

    return {"loading the table": load, "a commit of a new process": first_commit, "one more commit": next_commit}


def _with_history(table: Table, size: int) -> str:
    """Write the table's metadata with so many snapshots of which all but one were rolled back; return where."""
    document = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    current = document["snapshots"][0]
    own_key = next((key for key in document.get("encryption-keys", ()) if key["key-id"] == current["key-id"]), None)
    for number in range(1, size):
        snapshot_id = secrets.randbits(62)
        later = {
            **current,
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": current["snapshot-id"],
            "sequence-number": current["sequence-number"] + number,
            "manifest-list": current["manifest-list"].replace(str(current["snapshot-id"]), str(snapshot_id)),
        }
        if own_key is not None:
            key = {**own_key, "key-id": secrets.token_hex(16)[: len(own_key["key-id"])]}
            document["encryption-keys"].append(key)
            later["key-id"] = key["key-id"]
        document["snapshots"].append(later)
        # The log ends with the current snapshot, to which the table was rolled back.
        document["snapshot-log"].insert(-1, {"timestamp-ms": current["timestamp-ms"], "snapshot-id": snapshot_id})
    document["last-sequence-number"] += size - 1
    location = f"{table.location()}/metadata/00002-{uuid.uuid4()}.metadata.json"
    Path(location.removeprefix("file://")).write_text(json.dumps(document, separators=(",", ":")))
    return location


def _columns(folder: Path, side: str, size: int) -> dict[str, Step]:
    values = rows_of(0, 2000)
    rows = pa.table({f"c{number}": values.column(number % 6) for number in range(size)})
    return _append_and_scan(_created(catalog_of(folder, side), side, rows.schema), lambda: rows)


def _rows(folder: Path, side: str, size: int) -> dict[str, Step]:
    chunks = [rows_of(number, min(size, _CHUNK)).to_batches() for number in range(min(_CHUNKS, size // _CHUNK) or 1)]
    schema = chunks[0][0].schema

    def stream() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(schema, _repeated(chunks, size))

    return _append_and_scan(_created(catalog_of(folder, side), side, schema), stream)


def _repeated(chunks: list[list[pa.RecordBatch]], count: int) -> Iterator[pa.RecordBatch]:
    for batches in itertools.islice(itertools.cycle(chunks), max(1, count // _CHUNK)):
        yield from batches


def _append_and_scan(table: Table, rows: Callable[[], pa.Table | pa.RecordBatchReader]) -> dict[str, Step]:
    first: list[int] = []

    def append() -> float:
        taken = _processor_seconds(lambda: table.append(rows()))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        first.append(snapshot.snapshot_id)
        return taken

    def scan() -> float:
        stream = table.scan(snapshot_id=first[0])
        return _processor_seconds(lambda: sum(batch.num_rows for batch in stream.to_arrow_batch_reader()))

    return {"append": append, "scan": scan}


def _writers(folder: Path, side: str, size: int) -> dict[str, Step]:
    def commits() -> float:
        table = _created(catalog_of(folder, side), side, rows_of(0, 1).schema, **RETRIES)
        taken = _taken_by_processes(folder, side, size)
        found = len(table.refresh().snapshots())
        if found != COMMITS:
            raise SystemExit(f"{side}: {size} writers made {found} commits of {COMMITS}")
        return taken / COMMITS

    return {"a commit": commits}


def _taken_by_processes(folder: Path, side: str, count: int) -> float:
    """Seconds from the moment when all writers are ready until the last one has committed."""
    command = [sys.executable, str(Path(__file__).with_name("_growth_writer.py")), str(folder), side, str(COMMITS // count)]
    writers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    for writer in writers:
        _line(writer.stdout)
    begin = time.perf_counter()
    for writer in writers:
        _tell(writer.stdin)
    codes = [writer.wait() for writer in writers]
    taken = time.perf_counter() - begin
    if any(codes):
        raise SystemExit(f"{side}: of {count} writers some failed: {codes}")
    return taken


def _line(stream: Any) -> None:
    if stream.readline() != "ready\n":
        raise SystemExit("a writer ended before it was ready")


def _tell(stream: Any) -> None:
    stream.write("go\n")
    stream.close()


def _created(catalog: Catalog, side: str, schema: pa.Schema | Schema, **properties: str) -> Table:
    if catalog.table_exists(TABLE):
        catalog.drop_table(TABLE)
    return catalog.create_table(TABLE, schema, properties={**(ENCRYPTED if side == OURS else {}), **properties})


def _processor_seconds(action: Callable[[], object]) -> float:
    begin = time.process_time()
    action()
    return time.process_time() - begin


AXES: Final = {
    "files": Axis((100, 1000, 10_000, 100_000), _files),
    "snapshots": Axis((10, 100, 1000, 10_000), _snapshots),
    "columns": Axis((10, 30, 100, 300, 1000), _columns),
    "rows": Axis((100_000, 1_000_000, 10_000_000, 100_000_000), _rows),
    "writers": Axis((1, 2, 4, 8, 16), _writers, CLOCK),
}
