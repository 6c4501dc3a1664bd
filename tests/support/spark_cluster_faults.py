"""A Spark application on two hosts in which everything that can happen to a task happens, again and again.

Takes JSON on standard input: `folder`; `properties` of the catalog; `warehouse`, its folder; `read`, `merged`, `written` and `protected`,
tables with columns id and note; `portable`, one whose files executors read in Python; `rows`, how many ids from 0 on the first two of them
hold; `canary`; and `jobs`, a list of (operation; path, mode or table; how often). Each job is run with every fault, and after each it looks
whether the rows are exact. Its last line of output is JSON: for each the number of jobs with exact rows. What executors printed is in
folder/work.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

ROOT: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "catalog")]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.spark_faults import Fault

ROWS_OF_WRITE: Final = 60_000
BATCHES_BEFORE: Final = 46
"""Of the 60 of each of two tasks: a Python worker gathers 10,000 rows, 20 batches, before it writes any, and JVM and pipes hold some."""
# Text that does not compress, so that the first of a task's files are written before the last of its rows are made.
NOTE: Final = "concat('{canary}', sha2(concat(id, ' {salt}'), 512), sha2(concat(-id, ' {salt}'), 512))"


class Jobs:
    """The jobs of one application."""

    def __init__(self, spark: SparkSession, job: dict[str, Any]) -> None:
        self._spark = spark
        self._job = job
        self._marks = Path(job["folder"]) / "marks"
        self._marks.mkdir()
        self._numbers = itertools.count()
        self._written = {"written": 0, "protected": 0}

    def read(self, path: Any, fault: Fault) -> bool:
        """Read the table while one task is struck."""
        import tablecrypt.spark as tcs
        from tests.support.spark_faults import faulty

        rows = tcs.read_table(self._spark, self._job["read"], path=path, catalog_properties=self._job["properties"])
        ids = faulty(rows, fault, self._new_mark(), after=1).select("id").collect()
        return sorted(row["id"] for row in ids) == list(range(self._job["rows"]))

    def write(self, path: Any, fault: Fault) -> bool:
        """Append rows while one task is struck, and look at all that the table holds."""
        import tablecrypt.spark as tcs

        rows = self._struck_rows("written", fault)
        tcs.write_table(rows, self._job["written"], path=path, catalog_properties=self._job["properties"])
        return self._is_exact("written")

    def sql(self, table: Any, fault: Fault) -> bool:
        """The same by INSERT INTO."""
        self._struck_rows(table, fault).createOrReplaceTempView("struck")
        self._spark.sql(f"INSERT INTO {self._job[table]} SELECT * FROM struck")
        return self._is_exact(table)

    def merge(self, path: Any, fault: Fault) -> bool:
        """Give each row of a table another note by MERGE in the mode `path`, while one of the tasks that write is struck."""
        from tests.support.spark_faults import register_faulty

        name, spark = self._job["merged"], self._spark
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.merge.mode' = '{path}')")
        mark = self._new_mark()
        register_faulty(spark, "struck", fault, mark, after=6, written=Path(self._job["warehouse"]))
        note = NOTE.format(canary=self._job["canary"], salt=mark.name)
        source = f"SELECT id, {note} AS note FROM range({self._job['rows']})"
        spark.sql(f"MERGE INTO {name} t USING ({source}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = struck(s.note)")
        counts = spark.sql(f"SELECT count(*), count(DISTINCT id), count_if(note = {note}), max(id) FROM {name}").first()
        return counts is not None and tuple(counts) == (*[self._job["rows"]] * 3, self._job["rows"] - 1)

    def _struck_rows(self, table: str, fault: Fault) -> DataFrame:
        """Rows that a table does not have yet; one task is struck after it has written a whole file of them."""
        from tests.support.spark_faults import faulty

        first = self._written[table]
        self._written[table] += ROWS_OF_WRITE
        note = NOTE.format(canary=self._job["canary"], salt=0)
        rows = self._spark.range(first, self._written[table], 1, 2).selectExpr("id", f"{note} AS note")
        return faulty(rows, fault, self._new_mark(), after=BATCHES_BEFORE, written=Path(self._job["warehouse"]))

    def _new_mark(self) -> Path:
        return self._marks / str(next(self._numbers))

    def strikes(self) -> int:
        """How many faults there have been."""
        return len(list(self._marks.glob("*.struck")))

    def _is_exact(self, table: str) -> bool:
        from pyiceberg.catalog import load_catalog

        catalog, _, name = self._job[table].partition(".")
        rows = load_catalog(catalog, **self._job["properties"]).load_table(name).scan(selected_fields=("id",)).to_arrow()
        return sorted(rows["id"].to_pylist()) == list(range(self._written[table]))


def main() -> None:
    """Run the jobs."""
    import tablecrypt.spark as tcs
    from tests.support.spark_faults import Fault
    from tests.support.two_host_cluster import two_host_session

    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    job = json.load(sys.stdin)
    # Two tasks write what MERGE joins, on whatever size of tables. Many Python workers are started.
    more = {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.python.daemon.module": "tests.support.preloaded_daemon",
    }
    spark = two_host_session(Path(job["folder"]), more)
    tcs.catalog(spark, job["written"].partition(".")[0], job["properties"])
    jobs = Jobs(spark, job)
    answers: dict[str, Any] = {}
    for operation, path, often in job["jobs"]:
        for fault in get_args(Fault):
            exact = [getattr(jobs, operation)(path, fault) for _ in range(often)]
            answers[f"{operation} {path} {fault}"] = exact.count(True)
    answers["strikes"] = jobs.strikes()
    answers["chosen"] = tcs.read_table(spark, job["read"], catalog_properties=job["properties"])._jdf.queryExecution().toString()
    answers["portable"] = [row["id"] for row in spark.sql(f"SELECT id FROM {job['portable']} WHERE ref IS NOT NULL ORDER BY id").collect()]
    spark.stop()
    sys.stdout.write("\n" + json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
