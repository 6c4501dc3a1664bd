"""Streams from and into encrypted tables: each appended row once, each micro-batch once, whatever stops in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

import tablecrypt.spark as tcs
from tablecrypt.spark.commit import BATCH_ID, QUERY_ID, BatchAlreadyCommittedError, BatchMarker, begin
from tests.spark.conftest import Lake
from tests.support.interrupted_catalog import INTERRUPTED, at_commits
from tests.support.plaintext import CANARY
from tests.support.tables import folder_of, ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()))
KEY = {"encryption.key-id": "alias/orders"}


@pytest.fixture
def source(spark: SparkSession, lake: Lake) -> Iterator[Table]:
    tcs.register(spark, {"sparktest": lake.properties})
    yield lake.catalog.create_table("db.source", SCHEMA, properties=KEY)
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def sink(lake: Lake) -> Table:
    return lake.catalog.create_table("db.sink", SCHEMA, properties=KEY)


def append(table: Table, *numbers: int) -> None:
    table.refresh().append(pa.table({"id": list(numbers), "note": [CANARY] * len(numbers)}, schema=SCHEMA.as_arrow()))


def stream(spark: SparkSession, **options: Any) -> DataFrame:
    named = {name.replace("_", "-"): str(value) for name, value in options.items()}
    return spark.readStream.format("tablecrypt").options(**named).load("sparktest.db.source")


def run(df: DataFrame, checkpoint: Path, do: Callable[[DataFrame, int], None]) -> None:
    query = df.writeStream.foreachBatch(do).option("checkpointLocation", str(checkpoint)).start()
    query.processAllAvailable()
    query.stop()


def markers(table: Table) -> list[tuple[str, str]]:
    summaries = [snapshot.summary for snapshot in table.refresh().snapshots()]
    return [(str(summary[QUERY_ID]), str(summary[BATCH_ID])) for summary in summaries if summary is not None]


def test_a_stream_gives_appended_rows_in_limited_batches_and_goes_on_after_a_restart(
    spark: SparkSession, source: Table, tmp_path: Path
) -> None:
    for number in range(4):
        append(source, number)
    batches: list[list[int]] = []

    def collect(df: DataFrame, _: int) -> None:
        batches.append(sorted(row["id"] for row in df.collect()))

    run(stream(spark, max_snapshots_per_batch=3), tmp_path / "checkpoint", collect)
    assert batches == [[0, 1, 2], [3]]
    for number in (4, 5):
        append(source, number)
    run(stream(spark, max_files_per_batch=1), tmp_path / "checkpoint", collect)
    assert batches == [[0, 1, 2], [3], [4], [5]]


def test_a_stream_stops_at_an_overwrite_unless_told_to_pass_over_it(spark: SparkSession, source: Table, tmp_path: Path) -> None:
    append(source, 1, 2)
    source.refresh().delete("id = 1")
    append(source, 3)
    seen: list[int] = []

    def collect(df: DataFrame, _: int) -> None:
        seen.extend(row["id"] for row in df.collect())

    with pytest.raises(Exception, match=r"a stream returns appended rows only. Set skip-overwrite-snapshots=true"):
        run(stream(spark), tmp_path / "checkpoint", collect)
    assert sorted(seen) == [1, 2]
    run(stream(spark, skip_overwrite_snapshots="true"), tmp_path / "checkpoint", collect)
    assert sorted(seen) == [1, 2, 3]


def test_a_table_streams_into_another_with_each_batch_once(spark: SparkSession, source: Table, sink: Table, tmp_path: Path) -> None:
    for first in (0, 10):
        append(source, *range(first, first + 10))
    checkpoint = tmp_path / "checkpoint"

    def run_once() -> None:
        writer = stream(spark, max_snapshots_per_batch=1).writeStream.format("tablecrypt").option("checkpointLocation", str(checkpoint))
        query = writer.start("sparktest.db.sink")
        query.processAllAvailable()
        query.stop()

    run_once()
    assert ids(sink.refresh()) == list(range(20))
    assert [batch for _, batch in markers(sink)] == ["0", "1"]
    for number in range(3):
        # The last batch is in the table, and its checkpoint does not know.
        newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        (checkpoint / "commits" / f".{newest.name}.crc").unlink(missing_ok=True)
        run_once()
        assert ids(sink.refresh()) == list(range(20 + number))
        append(source, 20 + number)
        run_once()
        assert ids(sink.refresh()) == list(range(21 + number))
    assert len({query for query, _ in markers(sink)}) == 1
    files = {task.file.file_path.rpartition("/")[2] for task in sink.scan().plan_files()}
    assert {path.name for path in folder_of(sink).rglob("*.parquet")} == files


class DriverDiedError(Exception):
    """The driver stopped at a chosen point."""


def die() -> None:
    raise DriverDiedError


@pytest.mark.parametrize("point", ["before the commit", "after the commit"])
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_driver_that_dies_leaves_each_batch_once(
    spark: SparkSession, lake: Lake, source: Table, sink: Table, tmp_path: Path, point: str, mode: Any
) -> None:
    numbers = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="5", startTimestamp="0").load()
    rows = numbers.selectExpr("value AS id", f"'{CANARY}' AS note")
    keys = ["id"] if mode == "merge" else None
    write_batch = tcs.stream_writer("sparktest.db.sink", mode, keys=keys, catalog_properties=lake.properties | INTERRUPTED)
    writer = rows.writeStream.foreachBatch(write_batch).option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(once=True)
    for _ in range(5):
        dying = at_commits(before=die) if point == "before the commit" else at_commits(after=die)
        with dying, pytest.raises(Exception, match=DriverDiedError.__name__):
            writer.start().awaitTermination(60)
        assert writer.start().awaitTermination(60)

    found = ids(sink.refresh())
    assert found == list(range(len(found)))
    assert len(found) >= 25
    batches = [int(batch) for _, batch in markers(sink)]
    assert batches == sorted(set(batches))


def test_a_batch_that_another_process_commits_first_is_left_out(lake: Lake, source: Table, sink: Table) -> None:
    append(sink, 0)
    marker = BatchMarker("a-query", 4, "main")
    transaction = begin(sink.refresh(), marker)  # type: ignore[arg-type]
    other = begin(lake.catalog.load_table("db.sink"), marker)  # type: ignore[arg-type]
    for each, ends in ((other, False), (transaction, True)):
        each.append(pa.table({"id": [1], "note": [CANARY]}, schema=SCHEMA.as_arrow()), marker.summary)
        if ends:
            with pytest.raises(BatchAlreadyCommittedError):
                each.commit_transaction()
        else:
            each.commit_transaction()

    assert ids(sink.refresh()) == [0, 1]
    assert marker.is_in(sink.metadata)
    assert BatchMarker("a-query", 3, "main").is_in(sink.metadata)
    assert not BatchMarker("a-query", 5, "main").is_in(sink.metadata)
    assert not BatchMarker("b-query", 4, "main").is_in(sink.metadata)
