"""TPC-H in Spark SQL: encrypted tables through the catalog, against encrypted Iceberg Java and plaintext Parquet, in one session.

    encrypted Java    Iceberg's own Spark runtime on encrypted v3 tables in a Hive metastore: the reference
    ours              the same statements on a catalog of this package's
    Parquet           the same statements on Spark's own tables of plaintext Parquet files; it has no MERGE

It writes all tables with CREATE TABLE … AS SELECT, scans the largest one, runs the 22 queries of tpch.sql and compares their rows with
those of the generated files, merges 1 % of the orders, and at last times a query of a table of 25 rows, of which nearly all is the
catalogs' own work. Which side goes first changes from round to round. The first round warms up and is not counted. Ratios are ours / the
other side as the median of the rounds' own ratios.

Needs Java 17 or newer and the generator `tpchgen-cli` (pip install tpchgen-cli), and fetches Iceberg's jars the first time.

Run: python benchmarks/tpch.py [--scale 0.1] [--rounds 3] [--tasks 4]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "catalog")]

from _tpch import TABLES, generate, generator, queries, same_rows  # noqa: E402  the paths above come first

import tablecrypt.spark as tcs  # noqa: E402
from tablecrypt import load_catalog  # noqa: E402
from tests.support.aws import CREDENTIALS, REGION, AwsServer  # noqa: E402
from tests.support.java_oracle import start_session  # noqa: E402
from tests.support.java_version import java_problem  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA: Final = "h.tpch"
OURS: Final = "prod.tpch"
PARQUET: Final = "spark_catalog.parquet"
GENERATED: Final = "spark_catalog.generated"
_KEY_ID: Final = "alias/orders"
_SMALL_QUERIES: Final = 15
_SCANS: Final = 5
Seconds = dict[tuple[str, str], float]


def load(spark: SparkSession, catalog: str, kind: str, tasks: int) -> float:
    """Write all tables of a side, which are of this kind; how long that took."""
    begin = time.perf_counter()
    for table in TABLES:
        hint = f"/*+ REPARTITION({tasks}) */" if table in ("orders", "lineitem") else ""
        spark.sql(f"CREATE TABLE {catalog}.{table} {kind} AS SELECT {hint} * FROM {GENERATED}.{table}")
    return time.perf_counter() - begin


def encrypted(key_id: str) -> str:
    """What CREATE TABLE says of an encrypted table."""
    return f"USING iceberg TBLPROPERTIES ('format-version' = '3', 'encryption.key-id' = '{key_id}', 'write.merge.mode' = 'merge-on-read')"


def run_queries(spark: SparkSession, catalog: str, only: list[int]) -> dict[int, tuple[float, list[Any]]]:
    """Seconds and rows of each query."""
    spark.sql(f"USE {catalog}")
    results = {}
    for number in only:
        begin = time.perf_counter()
        rows = spark.sql(queries()[number]).collect()
        results[number] = (time.perf_counter() - begin, [tuple(row) for row in rows])
    return results


def merge(spark: SparkSession, catalog: str, number: int) -> float:
    """Update 1 % of the orders; how long that took. Every call takes other orders."""
    begin = time.perf_counter()
    spark.sql(
        f"MERGE INTO {catalog}.orders t USING (SELECT o_orderkey AS k FROM {GENERATED}.orders WHERE pmod(o_orderkey, 100) = {number}) s "
        "ON t.o_orderkey = s.k WHEN MATCHED THEN UPDATE SET t.o_totalprice = t.o_totalprice + 1"
    )
    return time.perf_counter() - begin


def timed(work: Callable[[], Any]) -> float:
    """How long it takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def run_round(
    spark: SparkSession, number: int, kinds: dict[str, str], options: argparse.Namespace, expected: dict[int, list[Any]]
) -> Seconds:
    """Every job on every side."""
    took: Seconds = {}
    for side in list(kinds) if number % 2 else list(kinds)[::-1]:
        catalog = f"{side}{number}"
        spark.sql(f"CREATE NAMESPACE {catalog}")
        took["write", side] = load(spark, catalog, kinds[side], options.tasks)
        scan = spark.table(f"{catalog}.lineitem").write.format("noop").mode("overwrite")
        took["scan", side] = statistics.median(timed(scan.save) for _ in range(_SCANS))
        for query, (seconds, rows) in run_queries(spark, catalog, options.queries).items():
            took[f"query {query}", side] = seconds
            if not same_rows(rows, expected[query]):
                raise SystemExit(f"query {query} of {catalog} gives other rows than Parquet: {rows[:3]}, expected {expected[query][:3]}")
        took["22 queries" if len(options.queries) == 22 else "queries", side] = sum(took[f"query {each}", side] for each in options.queries)
        if side != PARQUET:
            took["merge 1 %", side] = merge(spark, catalog, number)
        small = [timed(spark.sql(f"SELECT * FROM {catalog}.nation WHERE n_nationkey = {each}").collect) for each in range(_SMALL_QUERIES)]
        took["small query", side] = statistics.median(small)
        spark.sql("USE spark_catalog.default")
        for table in TABLES:
            spark.sql(f"DROP TABLE {catalog}.{table} PURGE")
    return took


def markdown(rounds: list[Seconds]) -> Iterator[str]:
    """The table: a row for each job."""
    yield from ("| | ours | encrypted Java | ours / Java | Parquet | ours / Parquet |", "|---|---|---|---|---|---|")
    for job in dict.fromkeys(job for took in rounds for job, _ in took):
        ours = [took[job, OURS] for took in rounds]
        cells = [f"{statistics.median(ours):.2f} s"]
        for side in (JAVA, PARQUET):
            theirs = [took[job, side] for took in rounds if (job, side) in took]
            cells += _compared(ours, theirs) if theirs else ["", ""]
        yield f"| {job} | {' | '.join(cells)} |"
    over = statistics.median(took["small query", OURS] - took["small query", PARQUET] for took in rounds)
    yield f"\nA query of 25 rows takes {over:.3f} s longer than on Parquet files."


def _compared(ours: list[float], theirs: list[float]) -> list[str]:
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return [f"{statistics.median(theirs):.2f} s", f"{statistics.median(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}]"]


def main() -> None:
    """Run the rounds and print the table."""
    options = _options()
    if (problem := java_problem()) is not None:
        print(problem)
        return
    if (program := generator()) is None:
        print("no tpchgen-cli, which makes the tables: pip install tpchgen-cli")
        return
    os.environ.update(CREDENTIALS)
    os.environ.update(AWS_REGION=REGION, AWS_DEFAULT_REGION=REGION, PYSPARK_PYTHON=sys.executable)
    server = AwsServer()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(program, folder / "generated", options.scale)
        spark = _session(folder, server, options.tasks)
        properties = {
            "type": "tablecrypt",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/ours",
            **server.kms_properties,
        }
        load_catalog("prod", **properties)
        tcs.catalog(spark, "prod", properties)
        spark.sql(f"CREATE NAMESPACE {GENERATED}")
        for table in TABLES:
            spark.sql(f"CREATE TABLE {GENERATED}.{table} USING parquet LOCATION '{folder}/generated/{table}.parquet'")
        expected = {query: rows for query, (_, rows) in run_queries(spark, GENERATED, options.queries).items()}
        kinds = {
            JAVA: encrypted(server.kms_key_id(_KEY_ID)),
            OURS: encrypted(_KEY_ID),
            PARQUET: "USING parquet OPTIONS ('compression' = 'zstd')",
        }
        rounds = []
        for number in range(options.rounds + 1):
            rounds.append(run_round(spark, number, kinds, options, expected))
            sys.stderr.write(f"round {number}: " + ", ".join(f"{job} {side} {took:.2f}" for (job, side), took in rounds[-1].items()) + "\n")
        print(f"\nTPC-H, scale {options.scale}, {options.tasks} tasks, {options.rounds} rounds, Spark {spark.version}\n")
        print("\n".join(markdown(rounds[1:])))


def _session(folder: Path, server: AwsServer, tasks: int) -> SparkSession:
    settings = {
        "spark.driver.memory": "3g",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Dderby.stream.error.file={folder}/derby.log",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(tasks),
        "spark.ui.showConsoleProgress": "false",
    }
    return start_session(folder, server.endpoint, REGION, [], None, settings)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1, help="1 is a gigabyte of text")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=4, help="partitions of the large tables, and of shuffles")
    parser.add_argument("--queries", type=int, nargs="*", default=sorted(queries()), help="which of the 22")
    return parser.parse_args()


if __name__ == "__main__":
    main()
