"""A Spark application on two hosts that leaves every trace that a test may want to search for keys, and the keys of its jobs.

Takes JSON on standard input: `folder`, `properties` of the catalog, `table` with columns id and note, `protected` with the same
columns, of which note has a column key, and `canary`. In the folder it leaves

    work/…       what the executors printed, at log level DEBUG
    events/…     the event log
    kept/…       what Spark wrote to local disks
    processes/…  command line and environment of every process of the application, from within tasks of each job
    ui/…         what the web UI and its REST interface say of each job
    secrets      one line of hexadecimal digits for each key of 32 bytes that the driver made: what jobs and plans are encrypted under

What the driver prints is its own log, with the plans of all reads.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

ROOT: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "catalog")]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB_KEY_LENGTH: Final = 32
_LOG4J: Final = """
rootLogger.level = debug
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
"""
_ENDPOINTS: Final = ("environment", "jobs", "stages?details=true", "sql?details=true&planDescription=true", "storage/rdd", "allexecutors")


def remember_keys_in(path: Path) -> None:
    """Write down each key of 32 bytes that this process makes. Call it before tablecrypt is imported."""
    original = secrets.token_bytes

    def remembering(nbytes: int | None = None) -> bytes:
        made = original(nbytes)
        if nbytes == JOB_KEY_LENGTH:
            with path.open("a") as stream:
                stream.write(made.hex() + "\n")
        return made

    secrets.token_bytes = remembering


def talkative_settings(folder: Path) -> dict[str, str]:
    """Settings with a UI, and with everything in the logs that driver and executors have to say."""
    from tests.support.class_archive import short_life_options

    (folder / "log4j2.properties").write_text(_LOG4J)
    return {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.log.level": "DEBUG",
        "spark.ui.showConsoleProgress": "false",
        # The level goes to the driver alone, and PySpark's driver takes it from nowhere else.
        "spark.executor.extraJavaOptions": f"{short_life_options()} -Dlog4j2.configurationFile=file://{folder}/log4j2.properties",
    }


def watched(rows: DataFrame, driver: int, folder: Path) -> DataFrame:
    """The same rows; each task that makes them writes down what every process of the application shows of itself."""

    from tests.support.processes import with_descendants

    def watch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 0:
                (folder / uuid.uuid4().hex).write_bytes(b"\n".join(shown_by(process) for process in with_descendants(driver)))
            yield batch

    return rows.mapInArrow(watch, rows.schema)


def shown_by(process: int) -> bytes:
    """Command line and environment."""
    try:
        return b"".join((Path(f"/proc/{process}") / name).read_bytes() for name in ("cmdline", "environ"))
    except OSError:
        return b""


def keep_ui(spark: SparkSession, folder: Path) -> None:
    """Write down what the UI says."""
    context: Any = spark.sparkContext
    address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
    for number, endpoint in enumerate(_ENDPOINTS):
        with urllib.request.urlopen(f"{address}/{endpoint}", timeout=60) as answer:
            (folder / f"rest-{number}").write_bytes(answer.read())
    executions = json.loads((folder / "rest-3").read_bytes())
    for execution in executions:
        with urllib.request.urlopen(f"{context.uiWebUrl}/SQL/execution/?id={execution['id']}", timeout=60) as answer:
            (folder / f"execution-{execution['id']}").write_bytes(answer.read())


def by_sql(spark: SparkSession, job: dict[str, Any], folder: Path) -> None:
    """Insert, change, read and compact by SQL; the procedures run jobs too."""
    table = job["table"]
    catalog = table.partition(".")[0]
    for statement in (
        f"INSERT INTO {table} SELECT id, '{job['canary']}' FROM range(3000, 4000)",
        f"MERGE INTO {table} t USING (SELECT 3001L id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = '{job['canary']} again'",
        f"DELETE FROM {table} WHERE id = 3002",
        f"CALL {catalog}.system.reencrypt('{table}', where => 'id >= 3000')",
        f"CALL {catalog}.system.verify('{table}')",
        f"INSERT INTO {job['protected']} SELECT id, '{job['canary']}' FROM range(0, 40, 1, 2)",
        f"UPDATE {job['protected']} SET note = '{job['canary']} again' WHERE id < 10 AND note IS NOT NULL",
    ):
        spark.sql(statement).collect()
    rows = spark.sql(f"SELECT a.id, b.note FROM {table} a JOIN {table} b ON a.id = b.id WHERE a.id >= 3000")
    for mode in ("extended", "formatted", "codegen", "cost"):
        rows.explain(mode=mode)
    assert watched(rows, os.getpid(), folder / "processes").count() == 999


def main() -> None:
    """Run the jobs."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    job = json.load(sys.stdin)
    folder = Path(job["folder"])
    remember_keys_in(folder / "secrets")
    for name in ("processes", "ui"):
        (folder / name).mkdir()

    import tablecrypt.spark as tcs
    from tests.support.driver_only_kms import for_this_process
    from tests.support.two_host_cluster import two_host_session

    spark = two_host_session(folder, talkative_settings(folder))

    def rows(first: int) -> DataFrame:
        made = spark.range(first, first + 1000, 1, 2).selectExpr("id", f"'{job['canary']}' AS note")
        return watched(made, os.getpid(), folder / "processes")

    # Without keys from Spark its executors could not do what they do.
    brought = for_this_process(job["properties"]) | {"tablecrypt.spark.executor-keys": "spark"}
    writes: tuple[tuple[Literal["python", "jvm"], dict[str, str]], ...] = (
        ("python", job["properties"]),
        ("jvm", job["properties"]),
        ("python", brought),
    )
    for number, (path_to_write, properties) in enumerate(writes):
        tcs.write_table(rows(1000 * number), job["table"], path=path_to_write, catalog_properties=properties)
        for path in ("python", "jvm"):
            table = tcs.read_table(spark, job["table"], row_filter="id >= 10", path=path, catalog_properties=properties)
            for mode in ("extended", "formatted", "codegen", "cost"):
                table.explain(mode=mode)
            assert watched(table, os.getpid(), folder / "processes").repartition(2, "id").count() == 1000 * number + 990
    tcs.catalog(spark, job["table"].partition(".")[0], job["properties"])
    by_sql(spark, job, folder)
    keep_ui(spark, folder / "ui")
    # Spark removes them when it stops.
    shutil.copytree(folder / "local", folder / "kept", ignore_dangling_symlinks=True)
    spark.stop()


if __name__ == "__main__":
    main()
