"""A Spark Connect client that commits, and processes that are killed while they do: the client itself, or the server's foreachBatch worker.

Takes JSON on standard input: `remote`, the server's address; `properties`, the catalog's; `table` with columns id and note; `folder`;
`canary`; and

    what = batch     append the ids `first` to `last`; the process is killed between data and commit
    what = stream    stream micro-batches of five ids into the table, `times` times: each time the worker that commits is killed at `point`,
                     "before" the commit or "after" it and so before the checkpoint, and the query is started again
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyspark.sql import DataFrame, SparkSession

    from tablecrypt.spark.write import WriteOptions
    from tablecrypt.table.table import EncryptedTable


def dying_commits(mark: Path, point: str) -> None:
    """Have this process die before or after the next commit, unless the mark is there already; it is then."""
    from tablecrypt.spark import write

    original = write._commit

    def die() -> None:
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    def commit(table: EncryptedTable, files: list[DataFile], options: WriteOptions) -> None:
        if point == "before" and not mark.exists():
            die()
        original(table, files, options)
        if point == "after" and not mark.exists():
            die()

    write._commit = commit


def append(spark: SparkSession, job: dict[str, Any]) -> None:
    """Append rows and die."""
    import tablecrypt.spark as tcs

    dying_commits(Path(job["folder"]) / f"mark-{job['first']}", "before")
    rows = spark.range(job["first"], job["last"], 1, 2).selectExpr("id", f"'{job['canary']}' AS note")
    tcs.write_table(rows, job["table"], catalog_properties=job["properties"])


def stream(spark: SparkSession, job: dict[str, Any]) -> int:
    """Stream, and return how often the query failed because its worker died."""
    from tests.support.spark_patience import patiently

    marks = Path(job["folder"]) / "marks"
    marks.mkdir()
    numbers = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="5", startTimestamp="0").load()
    rows = numbers.selectExpr("value AS id", f"'{job['canary']}' AS note")
    failures = 0
    for number in range(job["times"]):
        write_batch = dying_writer(job, marks / str(number))
        checkpoint = f"{job['folder']}/checkpoint"
        writer = rows.writeStream.foreachBatch(write_batch).option("checkpointLocation", checkpoint).trigger(once=True)
        for _ in range(2):
            query = patiently(writer.start)
            try:
                query.awaitTermination()
            except Exception:  # noqa: BLE001  Connect gives its own error for a query whose worker died
                failures += 1
    return failures


def dying_writer(job: dict[str, Any], mark: Path) -> Any:
    """A function for foreachBatch whose process dies once."""
    table, properties, point = job["table"], job["properties"], job["point"]

    def write_batch(df: DataFrame, batch_id: int) -> None:
        import tablecrypt.spark as tcs
        from tests.support.spark_connect_crashes import dying_commits

        dying_commits(mark, point)
        tcs.stream_writer(table, query_id="a-query", catalog_properties=properties)(df, batch_id)

    return write_batch


def main() -> None:
    """Run the job."""
    from pyspark.sql import SparkSession

    job = json.load(sys.stdin)
    spark = SparkSession.builder.remote(job["remote"]).getOrCreate()
    failures = None
    if job["what"] == "batch":
        append(spark, job)
    else:
        failures = stream(spark, job)
    spark.stop()
    sys.stdout.write("\n" + json.dumps({"failures": failures}) + "\n")


if __name__ == "__main__":
    main()
