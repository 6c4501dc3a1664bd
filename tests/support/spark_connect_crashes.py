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
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.interrupted_catalog import INTERRUPTED, at_commits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def dying_commits(mark: Path, point: str) -> AbstractContextManager[None]:
    """Have this process die before or after the next commit in the block, unless the mark is there already; it is then."""

    def die_once() -> None:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return at_commits(before=die_once) if point == "before" else at_commits(after=die_once)


def append(spark: SparkSession, job: dict[str, Any]) -> None:
    """Append rows and die."""
    import tablecrypt.spark as tcs

    rows = spark.range(job["first"], job["last"], 1, 2).selectExpr("id", f"'{job['canary']}' AS note")
    with dying_commits(Path(job["folder"]) / f"mark-{job['first']}", "before"):
        tcs.write_table(rows, job["table"], catalog_properties=job["properties"] | INTERRUPTED)


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
    table, properties, point = job["table"], job["properties"] | INTERRUPTED, job["point"]

    def write_batch(df: DataFrame, batch_id: int) -> None:
        import tablecrypt.spark as tcs
        from tests.support.spark_connect_crashes import dying_commits

        with dying_commits(mark, point):
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
