"""A Spark Connect client that uses an encrypted table in every way that has no need of a JVM beside it.

Takes JSON on standard input: `remote`, the server's address; `properties`, the catalog's; `folder`, for checkpoints. The tables db.rows
(id, region, note; partitioned by region), db.source and db.sink (id, note), and db.people (ssn, which is protected; one row) exist. Its
last line of output is JSON: for each step the ids that the table holds after it, or the error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "sparktest.db.rows"
SINK = "sparktest.db.sink"
SOURCE = "sparktest.db.source"
PEOPLE = "sparktest.db.people"


class Client:
    """The steps, in the order in which they run."""

    def __init__(self, spark: SparkSession, properties: dict[str, str], folder: str, canary: str) -> None:
        self._spark = spark
        self._properties = properties
        self._folder = folder
        self._canary = canary

    def rows(self, first: int, count: int) -> DataFrame:
        """Rows of db.rows."""
        columns = ("id", "concat('r', cast(id % 3 AS string)) AS region", f"'{self._canary}' AS note")
        return self._spark.range(first, first + count, 1, 2).selectExpr(*columns)

    def write(self, first: int, count: int, mode: Any, table: str = TABLE, **arguments: Any) -> list[int]:
        """Write rows and return what the table holds then."""
        import tablecrypt.spark as tcs

        rows = self.rows(first, count)
        tcs.write_table(rows if table == TABLE else rows.drop("region"), table, mode, catalog_properties=self._properties, **arguments)
        return self.read(table)

    def read(self, table: str = TABLE, **arguments: Any) -> list[int]:
        """Return the ids that the table holds."""
        import tablecrypt.spark as tcs

        return _ids(tcs.read_table(self._spark, table, catalog_properties=self._properties, **arguments))

    def read_with_keys_of_spark(self) -> list[int]:
        """Read with keys that Spark brings to the executors."""
        import tablecrypt.spark as tcs

        properties = self._properties | {"tablecrypt.spark.executor-keys": "spark"}
        return _ids(tcs.read_table(self._spark, TABLE, catalog_properties=properties))

    def delete(self, row_filter: str) -> list[int]:
        """Delete rows and return what is left."""
        import tablecrypt.spark as tcs

        tcs.delete_where(self._spark, TABLE, row_filter, catalog_properties=self._properties)
        return self.read()

    def compact(self, **arguments: Any) -> dict[str, Any]:
        """Rewrite all files; return how many groups of them there were, and what the table holds."""
        import tablecrypt.spark as tcs

        done = tcs.compact(self._spark, TABLE, rewrite_all=True, catalog_properties=self._properties, **arguments)
        return {"groups": done.groups, "ids": self.read()}

    def source(self, **options: str) -> list[int]:
        """Read through format("tablecrypt")."""
        return _ids(self._spark.read.format("tablecrypt").options(**options).load(TABLE))

    def masks_by_source(self, **options: str) -> list[Any]:
        """Read db.people through format("tablecrypt") without the right to the key of its column."""
        restricted = {"catalog.encryption.allowed-key-ids": "alias/orders", **options}
        return [row["ssn"] for row in self._spark.read.format("tablecrypt").options(**restricted).load(PEOPLE).collect()]

    def masks_by_function(self, **arguments: Any) -> list[Any]:
        """Read db.people through read_table without the right to the key of its column."""
        import tablecrypt.spark as tcs

        return [row["ssn"] for row in tcs.read_table(self._spark, PEOPLE, catalog_properties=self._restricted(), **arguments).collect()]

    def _restricted(self) -> dict[str, str]:
        return self._properties | {"encryption.allowed-key-ids": "alias/orders"}

    def save(self, first: int, count: int, mode: str) -> list[int]:
        """Write through format("tablecrypt")."""
        self.rows(first, count).write.format("tablecrypt").mode(mode).save(TABLE)
        return self.read()

    def view(self) -> int:
        """Count rows in SQL."""
        self._spark.sql(f"CREATE TEMPORARY VIEW connected USING tablecrypt OPTIONS (table '{TABLE}')")
        return int(self._spark.sql("SELECT count(*) FROM connected").collect()[0][0])

    def stream(self) -> list[int]:
        """Stream db.source into db.sink by the data source at both ends, in two runs."""
        for first in (0, 5):
            self.write(first, 5, "append", SOURCE)
            rows = self._spark.readStream.format("tablecrypt").load(SOURCE)
            writer = rows.writeStream.format("tablecrypt").option("checkpointLocation", f"{self._folder}/format")
            _finish(partial(writer.start, SINK))
        return self.read(SINK)

    def for_each_batch(self, query_id: str | None) -> list[int]:
        """Stream db.source into db.sink by stream_writer; the second run writes the batch of the first again, which changes nothing."""
        import tablecrypt.spark as tcs

        write_batch = tcs.stream_writer(SINK, query_id=query_id, catalog_properties=self._properties)
        for run in ("once", "again"):
            rows = self._spark.readStream.format("tablecrypt").load(SOURCE).selectExpr("id + 100 AS id", "note")
            writer = rows.writeStream.foreachBatch(write_batch).option("checkpointLocation", f"{self._folder}/{query_id}-{run}")
            _finish(writer.start)
        return self.read(SINK)


def _finish(start: Callable[[], Any]) -> None:
    """Start a query and let it do what there is to do."""
    from tests.support.spark_patience import patiently

    def run() -> None:
        query = start()
        query.processAllAvailable()
        query.stop()

    patiently(run)


def _ids(rows: DataFrame) -> list[int]:
    return sorted(row["id"] for row in rows.select("id").collect())


def _answer(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except Exception as error:  # noqa: BLE001  the error is the answer: the test decides what it means
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Run every step."""
    from pyspark.sql import SparkSession

    import tablecrypt.spark as tcs

    job = json.load(sys.stdin)
    spark = SparkSession.builder.remote(job["remote"]).getOrCreate()
    client = Client(spark, job["properties"], job["folder"], job["canary"])
    tcs.register(spark)
    steps: dict[str, Callable[[], Any]] = {
        "append": lambda: client.write(0, 30, "append"),
        "columns and filter": lambda: client.read(columns=["id"], row_filter="id >= 25"),
        "overwrite by filter": lambda: client.write(100, 2, "overwrite", overwrite_filter="id > 10"),
        "overwrite partitions": lambda: client.write(99, 1, "overwrite_partitions", distribute_by="partition", sort_by=["id"]),
        "merge": lambda: client.write(1, 4, "merge", keys=["id"]),
        "delete": lambda: client.delete("id < 2 or region = 'r2'"),
        "overwrite": lambda: client.write(0, 20, "overwrite"),
        "read by the JVM": lambda: client.read(path="jvm"),
        "write by the JVM": lambda: client.write(0, 1, "append", path="jvm"),
        "keys by broadcast": client.read_with_keys_of_spark,
        "format read": lambda: client.source(columns="id", filter="id >= 15"),
        "format append": lambda: client.save(20, 5, "append"),
        "view": client.view,
        "masks by source": client.masks_by_source,
        "masks by source, refused": lambda: client.masks_by_source(masked="error"),
        "catalogs": lambda: tcs.register(spark, {"sparktest": job["properties"]}),
        "masks by function": client.masks_by_function,
        "masks by function, asked for": lambda: client.masks_by_function(masked="mask"),
        "format overwrite": lambda: client.save(50, 5, "overwrite"),
        "compact": client.compact,
        "compact in order": lambda: client.compact(sort_by=["id"]),
        "stream": client.stream,
        "foreachBatch": lambda: client.for_each_batch("a-query"),
        "foreachBatch without a name": lambda: client.for_each_batch(None),
    }
    answers = {name: _answer(step) for name, step in steps.items()}
    spark.stop()
    sys.stdout.write("\n" + json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
