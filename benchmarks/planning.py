"""What planning a scan costs on a table of many files, against PyIceberg on the same table in plaintext.

    python benchmarks/planning.py [--files 10000] [--manifests 100] [--rounds 7]
    python benchmarks/planning.py --alone --files 1000000 --manifests 1000 [--rounds 3]

Both tables name the same files in as many manifests, with sizes, counts and bounds of ten columns, on local disk; the files themselves are
not written, since no plan reads them. A round plans both in turn. The figures are medians of the rounds' ratios of processor time, with the
least and the greatest: all threads count, and other work on the machine does not. Wall time is printed beside them. A plan is
`list(table.scan(...).plan_files())`, from reading the manifest list on:

    cold       no manifest is kept from an earlier plan
    warm       the manifests are those of the plan before
    filtered   nothing is kept, and one file in a hundred may match by its statistics
    narrow     nothing is kept, and one file may match

With `--alone` there is the encrypted table only, of a partition for each manifest, and each figure comes from a new process:

    cold       as above: every task
    stream     as cold, but no task is kept: table.scan().task_batches(), from which streams, datasets and counts read
    partition  the files of one partition, whose manifest is that of a plan before

Peak memory is what planning adds to a new process, with the table loaded and everything imported, on Linux.
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from tablecrypt import load_catalog
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.manifests.entries import CACHE
from tablecrypt.table.scan import EncryptedDataScan

COLUMNS: Final = 10
ROWS: Final = 1000
SCHEMA: Final = Schema(*(NestedField(number, f"column_{number}", LongType()) for number in range(1, COLUMNS + 1)))
AIMS: Final = {"cold": 0.2, "warm": 0.02, "filtered": 0.2, "narrow": 0.2}


def tables(folder: Path) -> dict[str, Table]:
    """The plaintext table and the encrypted one, made or loaded."""
    keys = {"encryption.kms-type": "local", "kms.local.key-file": str(folder / "keys")}
    plain = SqlCatalog("plain", uri=f"sqlite:///{folder}/plain.db", warehouse=f"file://{folder}/plain")
    ours = load_catalog("ours", type="tablecrypt", uri=f"sqlite:///{folder}/ours.db", warehouse=f"file://{folder}/ours", **keys)
    found = {}
    for name, catalog, properties in (("plain", plain, {}), ("ours", ours, {"encryption.key-id": "bench"})):
        catalog.create_namespace_if_not_exists("db")
        found[name] = catalog.create_table_if_not_exists("db.files", SCHEMA, properties=properties)
    return found


def fill(table: Table, files: int, manifests: int, size: int = 65_536) -> None:
    """Commit files that are not there, an equal number in each manifest; their entries say that each has about `size` bytes."""
    for first in range(0, files, files // manifests):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for file in _files(table, first, files // manifests, size):
                append.append_data_file(file)


def _files(table: Table, first: int, count: int, size: int) -> Iterator[DataFile]:
    ids = range(1, COLUMNS + 1)
    partition = Record() if table.spec().is_unpartitioned() else Record(first)
    # A partition holds one value of its column, which is what bounds would say.
    bounded = [column for column in ids if column not in {field.source_id for field in table.spec().fields}]
    for number in range(first, first + count):
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{table.location()}/data/00000-{number}-{secrets.token_hex(16)}-00001.parquet",
            file_format=FileFormat.PARQUET,
            partition=partition,
            record_count=ROWS,
            file_size_in_bytes=size + number,
            column_sizes={column: 4000 + number % 1000 + column for column in ids},
            value_counts=dict.fromkeys(ids, ROWS),
            null_value_counts=dict.fromkeys(ids, 0),
            nan_value_counts={},
            lower_bounds={column: struct.pack("<q", number * ROWS + column) for column in bounded},
            upper_bounds={column: struct.pack("<q", number * ROWS + ROWS - 1 + column) for column in bounded},
            key_metadata=StandardKeyMetadata.generate(16, secrets.token_bytes).with_file_length(size + number).encode(),
            split_offsets=[4],
        )
        file.spec_id = table.spec().spec_id
        yield file


def plan(table: Table, row_filter: str | BooleanExpression) -> int:
    """Plan a scan; return how many files it reads."""
    return len(list(table.scan(row_filter).plan_files()))


def timed(action: Callable[[], Any]) -> tuple[float, float]:
    """Processor and wall seconds of an action."""
    processor, wall = time.process_time(), time.perf_counter()
    action()
    return time.process_time() - processor, time.perf_counter() - wall


def rounds_of(
    found: dict[str, Table], kind: str, row_filter: str | BooleanExpression, rounds: int
) -> list[tuple[float, float, float, float]]:
    """Processor and wall seconds of both tables' plans, in turn."""
    taken = []
    for _ in range(rounds):
        if kind != "warm":
            CACHE.clear()
        plain, ours = (timed(lambda table=found[name]: plan(table, row_filter)) for name in ("plain", "ours"))  # type: ignore[misc]
        taken.append((*plain, *ours))
    return taken


def report(kind: str, files: int, taken: list[tuple[float, float, float, float]]) -> bool:
    """Print one kind of plan; return whether it is as fast as it should be."""
    ratios = sorted(ours / plain for plain, _, ours, _ in taken)
    plain, plain_wall, ours, ours_wall = (statistics.median(column) for column in zip(*taken, strict=True))
    ratio = statistics.median(ratios)
    print(
        f"{kind:9} {files:6} files   {ratio:.3f} of PyIceberg's ({ratios[0]:.3f} to {ratios[-1]:.3f}), aim {AIMS[kind]}: "
        f"{ours * 1000:.0f} ms to {plain * 1000:.0f} ms; wall {ours_wall * 1000:.0f} ms to {plain_wall * 1000:.0f} ms"
    )
    return ratio <= AIMS[kind]


def peak_of(folder: Path, name: str) -> int:
    """MiB that planning a whole table adds to the peak of a new process."""
    done = subprocess.run([sys.executable, __file__, "--peak-of", name, str(folder)], check=True, capture_output=True, text=True)
    return int(json.loads(done.stdout))


def _print_peak(folder: Path, name: str) -> None:
    table = tables(folder)[name]
    plan(table, "column_1 = -1")
    CACHE.clear()
    # The kernel counts the peak from here on.
    Path("/proc/self/clear_refs").write_text("5")
    before = _kibibytes("VmRSS")
    plan(table, AlwaysTrue())
    print((_kibibytes("VmHWM") - before) // 1024)


def _kibibytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def plan_as_stream(table: Table) -> int:
    """Plan a whole scan and keep no task; return how many files it would read."""
    return sum(len(tasks) for tasks in cast(EncryptedDataScan, table.scan()).task_batches())


ALONE: Final[dict[str, Callable[[Table], int]]] = {
    "cold": lambda table: plan(table, AlwaysTrue()),
    "stream": plan_as_stream,
    "partition": lambda table: plan(table, "column_2 = 0"),
}


def _print_alone(folder: Path, kind: str) -> None:
    table = tables(folder)["ours"]
    # Brings in all code, and reads the manifest that the plan of a partition finds kept.
    plan(table, "column_2 = 0")
    if kind != "partition":
        CACHE.clear()
    Path("/proc/self/clear_refs").write_text("5")
    before = _kibibytes("VmRSS")
    counts: list[int] = []
    processor, clock = timed(lambda: counts.append(ALONE[kind](table)))
    print(json.dumps([counts[0], processor, clock, (_kibibytes("VmHWM") - before) // 1024]))


def measure_alone(folder: Path, files: int, manifests: int, rounds: int) -> None:
    """Make the encrypted table, of a partition for each manifest, and print what plans of it take."""
    table = tables(folder)["ours"]
    table.update_spec().add_identity("column_2").commit()
    fill(table, files, manifests)
    for kind in ALONE:
        command = [sys.executable, __file__, "--alone-as", kind, str(folder)]
        taken = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(rounds)]
        count, processor, clock, peak = (statistics.median(column) for column in zip(*taken, strict=True))
        print(f"{kind:9} {count:8.0f} files   {processor:.2f} s of processors, {clock:.2f} s on the clock, peak memory {peak:.0f} MiB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--manifests", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--alone", action="store_true", help="the encrypted table only, and its partitions")
    parser.add_argument("--alone-as", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--peak-of", nargs=2, metavar=("TABLE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.peak_of:
        _print_peak(Path(options.peak_of[1]), options.peak_of[0])
        return 0
    if options.alone_as:
        _print_alone(Path(options.alone_as[1]), options.alone_as[0])
        return 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run(
            [sys.executable, "-m", "tablecrypt.cli", "keygen", "--key-file", str(folder / "keys"), "--key-id", "bench"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        if options.alone:
            measure_alone(folder, options.files, options.manifests, options.rounds)
            return 0
        found = tables(folder)
        for table in found.values():
            fill(table, options.files, options.manifests)
        some = f"column_3 >= {5 * ROWS} and column_3 < {(5 + options.files // 100) * ROWS}"
        filters: dict[str, str | BooleanExpression] = {
            "cold": AlwaysTrue(),
            "warm": AlwaysTrue(),
            "filtered": some,
            "narrow": f"column_1 = {42 * ROWS + 500}",
        }
        met = []
        for kind, row_filter in filters.items():
            counts = {plan(table, row_filter) for table in found.values()}
            assert len(counts) == 1, f"{kind}: the tables plan {counts} files"
            met.append(report(kind, counts.pop(), rounds_of(found, kind, row_filter, options.rounds)))
        peaks = {name: peak_of(folder, name) for name in found}
        print(f"peak memory of a plan: {peaks['ours']} MiB, PyIceberg {peaks['plain']} MiB")
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
