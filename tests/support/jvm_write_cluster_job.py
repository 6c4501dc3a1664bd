"""A program of its own: executors in JVMs of their own write an encrypted table on the JVM path, and one of them is killed meanwhile.

stdin    {"table": "catalog.namespace.table", "properties": {...}, "folder": "...", "by_sql": whether through the SQL catalog}
stdout   the last line: {"rows": ..., "killed": ..., "executor_logs": "..."}
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from tests.support.plaintext import CANARY

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "catalog")]

ROWS = 1600
MILLISECONDS = 4


def kill_when_files_are_there(folder: Path, driver: int, killed: list[int], over: threading.Event) -> None:
    """Wait until both executors have begun to write, and kill one."""
    from tests.support.spark_cluster_job import kill_one

    while not over.wait(0.05):
        if len(list(folder.rglob("data/*.parquet"))) >= 2:
            kill_one(driver, killed)
            return


def main() -> None:
    """Run the job."""
    import tablecrypt.spark as tcs
    from tests.support.spark_cluster_job import cluster_session

    job = json.load(sys.stdin)
    spark = cluster_session(job["folder"])
    context: Any = spark.sparkContext
    driver = int(context._jvm.java.lang.ProcessHandle.current().pid())
    slow = f"java_method('java.lang.Thread', 'sleep', cast({MILLISECONDS} AS bigint))"
    rows = spark.range(0, ROWS, 1, 2).selectExpr("id", f"concat('{CANARY}', cast(rand(1) as string), coalesce({slow}, '')) AS note")
    killed: list[int] = []
    over = threading.Event()
    killer = threading.Thread(target=kill_when_files_are_there, args=(Path(job["folder"]), driver, killed, over))
    killer.start()
    if job["by_sql"]:
        tcs.catalog(spark, job["table"].partition(".")[0], job["properties"])
        rows.writeTo(job["table"]).append()
    else:
        tcs.write_table(rows, job["table"], path="jvm", catalog_properties=job["properties"])
    over.set()
    killer.join()
    logs = Path(sys.modules["pyspark"].__file__ or "").parent / "work" / str(context.applicationId)
    spark.stop()
    sys.stdout.write("\n" + json.dumps({"rows": ROWS, "killed": len(killed), "executor_logs": str(logs)}) + "\n")


if __name__ == "__main__":
    main()
