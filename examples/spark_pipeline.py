"""A day in the life of an encrypted table: raw files, a table by day, increments, streams, corrections, compaction, all through PySpark.

    raw/orders-1.csv ──read──────▶ append                     ┐
    raw/orders-2.json ─read──────▶ overwrite_partitions       │
    raw/live/*.json ──readStream─▶ stream_writer              ├─▶ prod.db.orders, partitioned by day ──readStream──▶ totals by region
    raw/corrections.csv ─read────▶ merge on id                │
                                   compact                    ┘

Copy `Pipeline`. The rest makes raw files, starts what the pipeline needs (moto simulates AWS KMS inside this process; a Spark session has
two cores) and shows after each step the files in ./demo/pipeline, which every run makes again.

Run: make demo-spark   (needs Java 17 or newer)
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, StringType
from pyspark.sql import DataFrame, SparkSession
from spark_first_table import CANARY, REGION, running_kms, running_spark

import tablecrypt.spark as tcs
from tablecrypt import load_catalog
from tablecrypt.errors import ConfigurationError

DEMO = Path("demo/pipeline").absolute()
RAW = DEMO / "raw"
TABLE = "prod.db.orders"
FIRST_DAY = dt.date(2026, 1, 1)
ORDERS_A_DAY = 20_000
RAW_SCHEMA = "id bigint, region string, day date, amount decimal(9, 2), note string"
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "amount", DecimalType(9, 2)),
    NestedField(5, "note", StringType()),
)
BY_DAY = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "day"))


@dataclass
class Pipeline:
    """The steps. `properties` describe the catalog; you may put them into .pyiceberg.yaml instead, under its name."""

    spark: SparkSession
    properties: dict[str, str]
    totals: Counter[str] = field(default_factory=Counter)

    def create(self) -> None:
        """Create the table; for encryption it only needs the name of its master key."""
        catalog = load_catalog("prod", **self.properties)
        catalog.create_namespace("db")
        catalog.create_table("db.orders", SCHEMA, partition_spec=BY_DAY, properties={"encryption.key-id": "alias/orders"})

    def load_first_day(self) -> None:
        """Append a CSV file."""
        orders = self.spark.read.csv(str(RAW / "orders-1.csv"), schema=RAW_SCHEMA, header=True)
        tcs.write_table(orders, TABLE, distribute_by="partition", sort_by=["id"], catalog_properties=self.properties)

    def load_second_day(self) -> None:
        """Replace the table's rows of a day, so that running it again changes nothing."""
        orders = self.spark.read.json(str(RAW / "orders-2.json"), schema=RAW_SCHEMA)
        tcs.write_table(
            orders, TABLE, "overwrite_partitions", distribute_by="partition", sort_by=["id"], catalog_properties=self.properties
        )

    def follow_live_orders(self) -> None:
        """Write each new raw file once, whenever this runs and wherever it stopped last time."""
        orders = self.spark.readStream.schema(RAW_SCHEMA).option("maxFilesPerTrigger", 1).json(str(RAW / "live"))
        self._run(orders, tcs.stream_writer(TABLE, catalog_properties=self.properties), "live")

    def follow_the_table(self) -> None:
        """Add up the rows that were appended since the last run."""
        tcs.register(self.spark, {"prod": self.properties})
        orders = self.spark.readStream.format("tablecrypt").option("skip-overwrite-snapshots", "true").load(TABLE)

        def add(batch: DataFrame, _: int) -> None:
            self.totals.update({row["region"]: row["count"] for row in batch.groupBy("region").count().collect()})

        self._run(orders, add, "totals")

    def correct(self) -> None:
        """Update rows by id from late corrections, and add the new ones among them."""
        corrections = self.spark.read.csv(str(RAW / "corrections.csv"), schema=RAW_SCHEMA, header=True)
        tcs.write_table(corrections, TABLE, "merge", keys=["id"], catalog_properties=self.properties)

    def compact(self) -> None:
        """Merge the many small files that streams leave; run it once a day, for example."""
        tcs.compact(self.spark, TABLE, min_input_files=2, catalog_properties=self.properties)

    def read(self, row_filter: str) -> DataFrame:
        """Return some of the rows."""
        return tcs.read_table(self.spark, TABLE, row_filter=row_filter, catalog_properties=self.properties)

    def _run(self, rows: DataFrame, write_batch: Any, name: str) -> None:
        checkpoint = str(DEMO / "checkpoints" / name)
        query = rows.writeStream.foreachBatch(write_batch).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()


# ── Copy the part above. The rest makes raw files, starts a KMS and Spark, and shows what happened. ──────────────────────────────────


def orders(day: int, first: int, count: int, note: str = CANARY) -> Iterable[dict[str, Any]]:
    for number in range(first, first + count):
        region = ("eu", "us", "asia")[number % 3]
        date = FIRST_DAY + dt.timedelta(days=day)
        yield {"id": number, "region": region, "day": date.isoformat(), "amount": f"{number % 100000 / 10:.2f}", "note": note}


def write_csv(name: str, rows: Iterable[dict[str, Any]]) -> None:
    with (RAW / name).open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["id", "region", "day", "amount", "note"])
        writer.writeheader()
        writer.writerows(rows)


def write_json(name: str, rows: Iterable[dict[str, Any]]) -> None:
    # Move the file into its folder when it is complete: a stream takes files as soon as it sees them.
    unfinished = RAW / Path(name).name
    unfinished.write_text("".join(json.dumps(row | {"amount": float(row["amount"])}) + "\n" for row in rows))
    unfinished.rename(RAW / name)


def show(step: str, table: Table) -> None:
    snapshots = table.refresh().snapshots()
    files = [task.file for task in table.scan().plan_files()]
    heads = Counter(Path(file.file_path.removeprefix("file://")).read_bytes()[:4].decode() for file in files)
    rows = sum(file.record_count for file in files)
    print(f"{step:<44} {rows:>7} rows  {len(snapshots):>2} snapshots  {len(files):>3} data files, which begin with {', '.join(heads)}")


def canaries_in(folder: Path) -> int:
    return sum(path.read_bytes().count(CANARY.encode()) for path in folder.rglob("*") if path.is_file())


def check(what: str, found: object, expected: object) -> None:
    print(f"{what}: {found}")
    if found != expected:
        sys.exit(f"{what} should be {expected}")


def run(pipeline: Pipeline) -> None:
    pipeline.create()
    table = load_catalog("prod", **pipeline.properties).load_table("db.orders")

    write_csv("orders-1.csv", orders(0, 0, ORDERS_A_DAY))
    pipeline.load_first_day()
    show("first day, from CSV", table)

    write_json("orders-2.json", orders(1, ORDERS_A_DAY, ORDERS_A_DAY))
    for again in ("", ", once more"):
        pipeline.load_second_day()
        show(f"second day, from JSON{again}", table)

    first = 2 * ORDERS_A_DAY
    for evening in ("in the morning", "in the evening"):
        for _ in range(2):
            write_json(f"live/orders-{first}.json", orders(2, first, 500))
            first += 500
        pipeline.follow_live_orders()
        show(f"live orders {evening}", table)
        pipeline.follow_the_table()
        print(f"{'':<44} appended so far, by region: {dict(sorted(pipeline.totals.items()))}")

    write_csv("corrections.csv", orders(0, 100, 50, f"{CANARY}, corrected"))
    pipeline.correct()
    show("late corrections, merged", table)

    pipeline.compact()
    show("compacted", table)

    print()
    check("orders in the table", pipeline.read("id >= 0").count(), first)
    check("corrected orders", pipeline.read(f"day = '{FIRST_DAY}'").where("note LIKE '%corrected'").count(), 50)
    check("appended orders that the stream saw", sum(pipeline.totals.values()), first - ORDERS_A_DAY)


def main() -> None:
    try:
        tcs.check_java()
    except ConfigurationError as error:
        sys.exit(str(error))
    shutil.rmtree(DEMO, ignore_errors=True)
    (RAW / "live").mkdir(parents=True)
    with running_kms() as kms_endpoint, running_spark() as spark:
        properties = {
            "type": "tablecrypt",
            "uri": f"sqlite:///{DEMO}/catalog.db",
            "warehouse": f"{DEMO}/warehouse",
            "encryption.required": "true",
            "encryption.kms-type": "aws",
            "kms.endpoint": kms_endpoint,  # without it: AWS's own
            "client.region": REGION,
        }
        run(Pipeline(spark, properties))
    in_raw, in_table = canaries_in(RAW), canaries_in(DEMO) - canaries_in(RAW)
    print(f"\n{CANARY!r} is {in_raw} times in the raw files, and {in_table} times in the table, its catalog and the checkpoints")
    if in_table or not in_raw:
        sys.exit("plaintext was found where only ciphertext may be" if in_table else "the search finds nothing, so it shows nothing")


if __name__ == "__main__":
    main()
