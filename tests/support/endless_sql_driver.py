"""A Spark application of its own that runs statements of SQL until somebody kills it.

stdin    {"folder": "…", "properties": {…}, "statements": ["…", …], "batch": "INSERT INTO … range({first}, {last})"}
stdout   a number after each batch of rows that has been committed: 0, 1, 2, …

The statements run all at once, and the batches one after the other beside them. The catalog is `prod`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from threading import Thread
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "catalog")]
ROWS_OF_BATCH: Final = 10


def main() -> None:
    """Run the statements."""
    from pyspark.sql import SparkSession

    import tablecrypt.spark as tcs

    job = json.load(sys.stdin)
    folder = Path(job["folder"])
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    builder: Any = SparkSession.builder.master("local[6]").appName("to be killed")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    tcs.catalog(spark, "prod", job["properties"])
    for statement in job["statements"]:
        Thread(target=spark.sql, args=(statement,), daemon=True).start()
    for number in range(10**6):
        first = number * ROWS_OF_BATCH
        spark.sql(job["batch"].format(first=first, last=first + ROWS_OF_BATCH))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
