"""What Spark's UI shows of a scan and of a write: Iceberg's metrics and what decryption took, and nothing of rows or keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.transforms import IdentityTransform

from tablecrypt.manifests import EncryptedDataFile
from tablecrypt.spark.sql.writes.commits import write_metrics
from tests.spark.conftest import Lake, SparkRun
from tests.spark.sql.test_row_level import MARK, in_mode
from tests.spark.sql.test_write import SIMPLE, create
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
UNLOGGED: Final = f"{CANARY} in no statement"
BY_NOTE: Final = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "note"))


def metrics_of(rows: DataFrame) -> dict[str, int]:
    """The scan's metrics once its rows are read, without Spark's own."""
    rows.collect()
    plan = rows._jdf.queryExecution().executedPlan()
    plan = plan.executedPlan() if "AdaptiveSparkPlan" in plan.nodeName() else plan
    metrics = plan.collectLeaves().apply(0).metrics()
    names = [str(metrics.keys().toSeq().apply(at)) for at in range(metrics.size())]
    return {name: int(metrics.apply(name).value()) for name in names if name != "numOutputRows"}


def write_metrics_of(statement: DataFrame) -> dict[str, int]:
    """The metrics of a statement that wrote, those that are not 0."""
    plan = statement._jdf.queryExecution().executedPlan()
    # Spark runs a statement when it is made, and keeps its plan in that of the result.
    writes = [each for each in _nodes(plan) if each.metrics().contains("addedRecords")]
    [metrics] = [each.metrics() for each in writes]
    names = [str(metrics.keys().toSeq().apply(at)) for at in range(metrics.size())]
    found = {name: int(metrics.apply(name).value()) for name in names if name.startswith(("added", "removed", "total"))}
    return {name: value for name, value in found.items() if value}


def _nodes(plan: Any) -> list[Any]:
    """The plan's own nodes and those that it shows inside."""
    below = [plan.children().apply(at) for at in range(plan.children().size())]
    inside = [plan.innerChildren().apply(at) for at in range(plan.innerChildren().size())]
    plans = [each for each in (*below, *inside) if "org.apache.spark.sql.execution" in each.getClass().getName()]
    return [plan, *(node for each in plans for node in _nodes(each))]


def shown_of_last(spark: SparkSession) -> dict[str, str]:
    """What the UI shows of the query that ran last, by description."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(300_000)
    store = spark._jsparkSession.sharedState().statusStore()
    last = store.executionsList().last()
    values = store.executionMetrics(last.executionId())
    metrics = [last.metrics().apply(at) for at in range(last.metrics().size())]
    return {each.name(): str(values.apply(each.accumulatorId())) for each in metrics if values.contains(each.accumulatorId())}


def test_a_scan_shows_icebergs_metrics(spark: SparkSession, prod: Lake, new_name: str) -> None:
    name = f"prod.{new_name}"
    table = create(prod, new_name, SIMPLE, BY_NOTE, properties=in_mode(MARK))
    for note in "ab":
        spark.sql(f"INSERT INTO {name} SELECT id, concat('{note}{CANARY}', id % 2) FROM range(1000)")
    spark.sql(f"DELETE FROM {name} WHERE id IN (2, 4, 6) AND note < 'b'")
    tasks = {task.file.file_path: task for task in table.refresh().scan().plan_files()}
    [read] = [task for path, task in tasks.items() if task.delete_files]
    [vector] = map(EncryptedDataFile.of, read.delete_files)
    size = read.file.file_size_in_bytes

    found = metrics_of(spark.sql(f"SELECT id FROM {name} WHERE note = 'a{CANARY}0' AND id < 5000"))
    assert {key: found[key] for key in found if not key.endswith(("Duration", "Size", "Bytes"))} == {
        "numSplits": 1,
        "numDeletes": 3,
        "pythonFiles": 0,
        "totalDataManifest": 2,
        "scannedDataManifests": 1,
        "skippedDataManifests": 1,
        "resultDataFiles": 1,
        "skippedDataFiles": 1,
        "totalDeleteManifests": 1,
        "scannedDeleteManifests": 1,
        "skippedDeleteManifests": 0,
        "resultDeleteFiles": 1,
        "equalityDeleteFiles": 0,
        "indexedDeleteFiles": 1,
        "positionalDeleteFiles": 1,
        "skippedDeleteFiles": 0,
    }
    assert found["totalDataFileSize"] == size
    assert found["totalDeleteFileSize"] == vector.content_size_in_bytes
    assert size / 8 < found["decryptedBytes"] < size
    assert min(found[each] for each in ("totalPlanningDuration", "keysDuration", "scanDuration")) > 0

    shown = shown_of_last(spark)
    assert shown["number of result data files"] == "1"
    assert shown["number of row deletes applied"] == "3"
    assert int(shown["bytes of columns that Spark's reader decrypted"]) == found["decryptedBytes"]
    duration = r"\d+(\.\d+)? (ns|us|ms|s)"
    assert re.fullmatch(rf"total \(min, med, max\)\n{duration} \({duration}, {duration}, {duration}\)", shown["total scan duration"])
    whole = metrics_of(spark.sql(f"SELECT * FROM {name}"))
    assert (whole["numSplits"], whole["skippedDataFiles"], whole["skippedDataManifests"], whole["numDeletes"]) == (4, 0, 0, 3)
    assert whole["totalDataFileSize"] == sum(task.file.file_size_in_bytes for task in tasks.values())
    assert whole["decryptedBytes"] > found["decryptedBytes"]


def test_metrics_count_files_that_python_reads_and_their_numbers_alone_are_logged(
    spark: SparkSession, spark_run: SparkRun, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    name = f"prod.{new_name}"
    table = create(prod, new_name, SIMPLE, properties={"encryption.column-keys": f"{aws.new_key()}: note"})
    rows = [{"id": each, "note": f"{UNLOGGED} {each}"} for each in range(10)]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))

    found = metrics_of(spark.sql(f"SELECT note FROM {name}"))
    assert (found["pythonFiles"], found["numSplits"], found["decryptedBytes"]) == (1, 1, 0)
    changed = metrics_of(spark.sql(f"SELECT id FROM {name}.changes"))
    assert (changed["resultDataFiles"], changed["totalDataManifest"]) == (1, 0)
    logged = b"".join(spark_run.events().values())
    assert b"bytes of columns that Spark's reader decrypted" in logged
    assert UNLOGGED.encode() not in logged


def test_a_write_shows_what_its_commit_added_removed_and_left(spark: SparkSession, prod: Lake, new_name: str) -> None:
    name = f"prod.{new_name}"
    table = create(prod, new_name, SIMPLE, properties=in_mode(MARK))

    inserted = write_metrics_of(spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 'a' FROM range(1000)"))
    [file] = [task.file for task in table.refresh().scan().plan_files()]
    assert inserted == {
        "addedDataFiles": 1,
        "addedRecords": 1000,
        "addedFileSizeInBytes": file.file_size_in_bytes,
        "totalDataFiles": 1,
        "totalRecords": 1000,
        "totalFileSizeInBytes": file.file_size_in_bytes,
    }

    deleted = write_metrics_of(spark.sql(f"DELETE FROM {name} WHERE id IN (2, 4, 6)"))
    sizes = {key: deleted.pop(key) for key in ("addedFileSizeInBytes", "totalFileSizeInBytes")}
    assert deleted == {
        "addedDeleteFiles": 1,
        "addedPositionalDeleteFiles": 1,
        "addedPositionalDeletes": 3,
        "totalDataFiles": 1,
        "totalDeleteFiles": 1,
        "totalPositionalDeletes": 3,
        "totalRecords": 1000,
    }
    assert sizes["totalFileSizeInBytes"] == file.file_size_in_bytes + sizes["addedFileSizeInBytes"]

    replaced = write_metrics_of(spark.sql(f"INSERT OVERWRITE {name} SELECT /*+ COALESCE(1) */ id, 'b' FROM range(10)"))
    assert {key: replaced[key] for key in ("addedRecords", "removedRecords", "removedDataFiles", "totalRecords")} == {
        "addedRecords": 10,
        "removedRecords": 1000,
        "removedDataFiles": 1,
        "totalRecords": 10,
    }
    assert shown_of_last(spark)["number of removed records"] == "1000"


def test_a_write_that_commits_nothing_shows_nothing(spark: SparkSession, prod: Lake, new_name: str) -> None:
    name = f"prod.{new_name}"
    create(prod, new_name, SIMPLE)

    assert write_metrics_of(spark.sql(f"INSERT INTO {name} SELECT id, 'a' FROM range(10) WHERE id > 10")) == {}


def test_what_a_server_makes_of_a_summary_fails_no_write() -> None:
    summary = Summary(
        Operation.APPEND, **{"added-records": "many", "total-records": "-1", "added-data-files": "2", "total-data-files": "²"}
    )
    snapshot = Snapshot(snapshot_id=1, sequence_number=1, timestamp_ms=1, manifest_list="list", summary=summary)
    assert {name: value for name, value in write_metrics(snapshot).items() if value} == {"addedDataFiles": 2}
