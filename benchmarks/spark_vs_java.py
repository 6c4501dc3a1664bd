"""Whole Spark jobs on encrypted tables against encrypted Iceberg Java, in one session, in the same run.

    encrypted Java    Iceberg's own Spark runtime on an encrypted v3 table: the reference
    plain Java        the same without encryption
    Spark's Parquet   df.write.parquet and spark.read.parquet, no table
    ours, Python      tablecrypt.spark through mapInArrow
    ours, JVM         tablecrypt.spark with Spark's own Parquet reader and writer

All write zstd Parquet of the same rows (id, region, day, amount, note) from the same tasks into local files; keys come from moto's KMS.
A write is timed from the DataFrame to the commit, a read from planning to the last row, which Spark's noop sink takes. A round runs each
job on each side once; which side goes first changes from round to round. The first round warms up and is not counted.

It prints a table in Markdown: median seconds, and in brackets the ratio to encrypted Java as the median of the rounds' own ratios, with the
lowest and the highest. With `--memory-rows` it measures instead how much memory a Python worker takes for one partition of so many rows;
33,000,000 of these are 2 GB in Arrow.

Needs Java 17 or newer, and fetches Iceberg's jars the first time.

Run: python benchmarks/spark_vs_java.py [--rows 1000000] [--rounds 4] [--tasks 4] [--setting NAME=VALUE]
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "catalog")]


import tablecrypt.spark as tcs  # noqa: E402  the paths above come first
from tablecrypt import load_catalog  # noqa: E402
from tests.support.aws import CREDENTIALS, REGION, AwsServer  # noqa: E402
from tests.support.java_oracle import start_session  # noqa: E402
from tests.support.java_version import java_problem  # noqa: E402
from tests.support.processes import parent_of, with_descendants  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = ("id", "region", "day", "amount", "note")
REFERENCE: Final = "encrypted Java"
JOBS: Final = ("write", "full scan", "1 of 5 columns", "filtered scan")
_KEY_ID: Final = "alias/orders"
_COLUMN_TYPES: Final = "id bigint, region string, day date, amount decimal(9, 2), note string"


def rows(spark: SparkSession, count: int, tasks: int) -> DataFrame:
    """Rows that cost little to make; the last column does not compress."""
    return spark.range(0, count, 1, tasks).selectExpr(
        "id",
        "element_at(array('eu', 'us', 'asia', 'africa'), cast(id % 4 AS int) + 1) AS region",
        "date_add(date'2026-01-01', cast(id % 365 AS int)) AS day",
        "cast(id % 1000000 / 20 AS decimal(9, 2)) AS amount",
        "cast(xxhash64(id) AS string) AS note",
    )


@dataclass(frozen=True)
class Side:
    """One way to write and read a table of a name that no table had before."""

    name: str
    create: Callable[[str], None]
    write: Callable[[DataFrame, str], None]
    read: Callable[[str, tuple[str, ...], tuple[int, int] | None], DataFrame]
    drop: Callable[[str], None]


def java_side(spark: SparkSession, name: str, properties: str) -> Side:
    """Iceberg Java."""

    def read(table: str, columns: tuple[str, ...], ids: tuple[int, int] | None) -> DataFrame:
        where = f" WHERE id >= {ids[0]} AND id < {ids[1]}" if ids else ""
        return spark.sql(f"SELECT {', '.join(columns)} FROM h.bench.{table}{where}")

    return Side(
        name,
        lambda table: _sql(spark, f"CREATE TABLE h.bench.{table} ({_COLUMN_TYPES}) USING iceberg TBLPROPERTIES ({properties})"),
        lambda df, table: df.writeTo(f"h.bench.{table}").append(),
        read,
        lambda table: _sql(spark, f"DROP TABLE h.bench.{table} PURGE"),
    )


def parquet_side(spark: SparkSession, folder: Path) -> Side:
    """Spark's own Parquet."""

    def read(table: str, columns: tuple[str, ...], ids: tuple[int, int] | None) -> DataFrame:
        df = spark.read.parquet(f"{folder}/{table}")
        return (df.where(f"id >= {ids[0]} AND id < {ids[1]}") if ids else df).select(*columns)

    return Side(
        "Spark's Parquet",
        lambda _table: None,
        lambda df, table: df.write.option("compression", "zstd").parquet(f"{folder}/{table}"),
        read,
        lambda table: shutil.rmtree(folder / table),
    )


def our_side(spark: SparkSession, name: str, path: Any, properties: dict[str, str], folder: Path) -> Side:
    """This package. Tables of both paths lie in one catalog."""
    catalog = load_catalog("bench", **properties)

    def create(table: str) -> None:
        schema = _arrow_schema(rows(spark, 0, 1))
        catalog.create_table(f"db.{table}", schema, properties={"encryption.key-id": _KEY_ID})

    def read(table: str, columns: tuple[str, ...], ids: tuple[int, int] | None) -> DataFrame:
        row_filter = f"id >= {ids[0]} and id < {ids[1]}" if ids else None
        return tcs.read_table(spark, f"bench.db.{table}", list(columns), row_filter, path=path, catalog_properties=properties)

    def drop(table: str) -> None:
        catalog.drop_table(f"db.{table}")
        shutil.rmtree(folder / "db" / table)

    return Side(
        name,
        create,
        lambda df, table: tcs.write_table(df, f"bench.db.{table}", path=path, catalog_properties=properties),
        read,
        drop,
    )


def run_round(sides: list[Side], df: DataFrame, count: int, number: int) -> dict[tuple[str, str], float]:
    """Run each job on each side once; return seconds by job and side."""
    took: dict[tuple[str, str], float] = {}
    order = [sides[(number + offset) % len(sides)] for offset in range(len(sides))]
    if number % 2:
        # Or each side would always follow the same other one, and pay for what that left behind.
        order.reverse()
    tables = {side.name: f"t{number}_{sides.index(side)}" for side in sides}
    for side in order:
        side.create(tables[side.name])
    selections: dict[str, tuple[tuple[str, ...], tuple[int, int] | None]] = {
        "full scan": (COLUMNS, None),
        "1 of 5 columns": (("amount",), None),
        "filtered scan": (COLUMNS, (count * 4 // 10, count * 5 // 10)),
    }
    for job in JOBS:
        for side in order:
            table = tables[side.name]
            begin = time.perf_counter()
            if job == "write":
                side.write(df, table)
            else:
                side.read(table, *selections[job]).write.format("noop").mode("overwrite").save()
            took[job, side.name] = time.perf_counter() - begin
    for side in order:
        for ids, many in ((None, count), (selections["filtered scan"][1], count * 5 // 10 - count * 4 // 10)):
            found = side.read(tables[side.name], ("id",), ids).count()
            if found != many:
                raise SystemExit(f"{side.name}: {found} rows of {many}")
        side.drop(tables[side.name])
    return took


def markdown(rounds: list[dict[tuple[str, str], float]], names: list[str]) -> str:
    """The table: a row for each side, a column for each job."""
    lines = [f"| | {' | '.join(JOBS)} |", f"|---|{'---|' * len(JOBS)}"]
    for name in names:
        cells = []
        for job in JOBS:
            seconds = statistics.median(took[job, name] for took in rounds)
            ratios = [took[job, name] / took[job, REFERENCE] for took in rounds]
            spread = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}]"
            cells.append(f"{seconds:.2f} s" if name == REFERENCE else f"{seconds:.2f} s, {spread}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def worker_memory(spark: SparkSession, side: Side, count: int) -> str:
    """Write and read one partition on the Python path; the most memory that a Python worker held meanwhile."""
    side.create("memory")
    peaks = {}
    for job in ("write", "read"):
        for process in _python_workers():
            os.kill(process, signal.SIGKILL)
        if job == "write":
            side.write(rows(spark, count, 1), "memory")
        else:
            side.read("memory", COLUMNS, None).write.format("noop").mode("overwrite").save()
        # Spark keeps its workers for the next job, so they are there to be asked.
        peaks[job] = max(map(_peak_mib, _python_workers()))
    side.drop("memory")
    return (
        f"one partition of {count} rows: at most {peaks['write']} MiB in a Python worker that writes, {peaks['read']} MiB in one that reads"
    )


def _python_workers() -> list[int]:
    """Python processes under Spark's daemons of this run."""
    own = [process for process in with_descendants(os.getpid()) if b"pyspark.daemon" in Path(f"/proc/{process}/cmdline").read_bytes()]
    return [process for process in own if parent_of(process) in own]


def _peak_mib(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


def main() -> None:
    """Run the rounds and print the table."""
    options = _options()
    if (problem := java_problem()) is not None:
        print(problem)
        return
    os.environ.update(CREDENTIALS)
    os.environ.update(AWS_REGION=REGION, AWS_DEFAULT_REGION=REGION, PYSPARK_PYTHON=sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    server = AwsServer()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = _session(folder, server, options.tasks, options.setting)
        properties = {
            "type": "tablecrypt",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/ours",
            **server.kms_properties,
        }
        load_catalog("bench", **properties).create_namespace("db")
        _sql(spark, "CREATE NAMESPACE h.bench")
        sides = [
            java_side(spark, REFERENCE, f"'format-version'='3', 'encryption.key-id'='{server.kms_key_id(_KEY_ID)}'"),
            java_side(spark, "plain Java", "'format-version'='3'"),
            parquet_side(spark, folder / "parquet"),
            our_side(spark, "ours, Python", "python", properties, folder / "ours"),
            our_side(spark, "ours, JVM", "jvm", properties, folder / "ours"),
        ]
        if options.memory_rows:
            print(worker_memory(spark, sides[3], options.memory_rows))
            return
        df = rows(spark, options.rows, options.tasks)
        rounds = []
        for number in range(options.rounds + 1):
            took = run_round(sides, df, options.rows, number)
            sys.stderr.write(f"round {number}: " + ", ".join(f"{job} {side} {value:.2f}" for (job, side), value in took.items()) + "\n")
            rounds.append(took)
        print(f"\n{options.rows} rows × {len(COLUMNS)} columns, {options.tasks} tasks, {options.rounds} rounds, Spark {spark.version}\n")
        print(markdown(rounds[1:], [side.name for side in sides]))


def _session(folder: Path, server: AwsServer, tasks: int, settings: list[str]) -> SparkSession:
    more = {
        "spark.driver.memory": "3g",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Dderby.stream.error.file={folder}/derby.log",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(tasks),
        "spark.ui.showConsoleProgress": "false",
        **dict(setting.split("=", 1) for setting in settings),
    }
    return start_session(folder, server.endpoint, REGION, [], None, more)


def _sql(spark: SparkSession, statement: str) -> None:
    spark.sql(statement)


def _arrow_schema(df: DataFrame) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(df.schema)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=4, help="partitions of the DataFrame that is written")
    parser.add_argument("--memory-rows", type=int, default=0, help="measure a worker's memory for one partition of so many rows instead")
    parser.add_argument("--setting", action="append", default=[], help="a further setting of the session, NAME=VALUE; may be repeated")
    return parser.parse_args()


if __name__ == "__main__":
    main()
