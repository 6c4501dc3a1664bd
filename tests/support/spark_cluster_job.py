"""A Spark application of its own, on a cluster whose executors are processes: it reads a table and loses an executor on the way.

It reads through Spark SQL too, and a table there whose files the executors' Python has to read.

Takes JSON on standard input: the tables' names, the catalog's properties, and a folder for its files. Its last line of output is JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "catalog")]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def cluster_session(folder: str) -> SparkSession:
    """Two executors of one core each, whose messages Spark authenticates and encrypts."""
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.authenticate": "true",
        "spark.authenticate.secret": os.urandom(16).hex(),
        "spark.network.crypto.enabled": "true",
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "catalog")]),
        "spark.sql.files.maxPartitionBytes": "1k",
        "spark.sql.files.openCostInBytes": "1",
        "spark.local.dir": f"{folder}/spark-local",
        "spark.sql.warehouse.dir": f"{folder}/spark-warehouse",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("tablecrypt-cluster-test")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def count_and_sum(rows: DataFrame, milliseconds: int = 0) -> list[int]:
    """Rows and the sum of their ids; each row may take a while."""
    slow = f"java_method('java.lang.Thread', 'sleep', cast({milliseconds} AS bigint))"
    counted = rows.selectExpr("id", f"{slow} AS waited") if milliseconds else rows.selectExpr("id", "'null' AS waited")
    [answer] = counted.selectExpr("count(id) AS rows", "sum(id) AS total", "max(waited) AS waited").collect()
    return [answer["rows"], answer["total"]]


def executors_of(driver: int) -> list[int]:
    """Process ids of this driver's executors."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            command = (process / "cmdline").read_bytes()
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == driver and b"CoarseGrainedExecutorBackend" in command:
            found.append(int(process.name))
    return found


def kill_one(driver: int, killed: list[int]) -> None:
    """Kill one executor, as a machine that dies would."""
    for executor in executors_of(driver)[:1]:
        os.kill(executor, signal.SIGKILL)
        killed.append(executor)


def main() -> None:
    """Run the job."""
    import tablecrypt.spark as tcs

    job = json.load(sys.stdin)
    spark = cluster_session(job["folder"])
    jvm: Any = spark.sparkContext._jvm
    driver = int(jvm.java.lang.ProcessHandle.current().pid())
    rows = tcs.read_table(spark, job["table"], catalog_properties=job["properties"])
    plan = rows._jdf.queryExecution().toString()
    killed: list[int] = []
    answers: dict[str, Any] = {"plan": "jvm" if "BatchScan" in plan else "python", "first": count_and_sum(rows)}
    timer = threading.Timer(1.5, kill_one, (driver, killed))
    timer.start()
    answers["while an executor was killed"] = count_and_sum(rows, milliseconds=2)
    timer.join()
    answers["killed"] = len(killed)
    answers["afterwards"] = count_and_sum(tcs.read_table(spark, job["table"], catalog_properties=job["properties"]))
    tcs.catalog(spark, job["table"].partition(".")[0], job["properties"])
    answers["by SQL"] = count_and_sum(spark.table(job["table"]))
    answers["by SQL and Python"] = count_and_sum(spark.table(job["portable"]).where("ref IS NOT NULL"))
    spark.stop()
    sys.stdout.write("\n" + json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
