"""What Spark's UI shows of a scan: Iceberg's metrics and what decryption took, and nothing of rows or keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from tablecrypt.manifests import EncryptedDataFile
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
