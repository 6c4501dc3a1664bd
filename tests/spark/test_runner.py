"""Work on files as Spark jobs: the same results as on threads here, keys encrypted both ways, failures said and survived."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tablecrypt.engines.job_keys import Role
from tablecrypt.engines.job_messages import WorkItem, encode_items
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError
from tablecrypt.maintenance.runner import FileWork, LocalRunner
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.spark.runner import SharedWorkContent, SparkRunner, collected_results
from tablecrypt.spark.tables import LocatedTable, job_columns
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.support.file_functions import (
    Copying,
    add,
    copy_encrypted,
    copy_failing_once,
    count_rows,
    note_and_wait,
    raise_lookup_error,
    refuse_seven,
)
from tests.support.plaintext import CANARY
from tests.support.tables import SCHEMA, data_files, folder_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture
def table(lake: Lake) -> EncryptedTable:
    made = lake.catalog.create_table("db.rows", SCHEMA, properties={"encryption.key-id": "alias/orders"})
    for count in (3, 5, 7, 9, 11):
        made.append(pa.table({"id": range(count), "note": [CANARY] * count}, schema=SCHEMA.as_arrow()))
    assert isinstance(made, EncryptedTable)
    return made


def counting(table: EncryptedTable) -> list[FileWork[str]]:
    files = data_files(table)
    return [FileWork(file.file_path, (key_metadata_of(file),), file.file_size_in_bytes) for file in files]


def copying(table: EncryptedTable) -> list[FileWork[Copying]]:
    return [FileWork(Copying(each.work, f"{table.location()}/copies"), size=each.size) for each in counting(table)]


def test_results_are_those_of_threads_here(spark: SparkSession, table: EncryptedTable) -> None:
    works = counting(table)

    on_spark = list(SparkRunner(spark).run(table, count_rows, works))

    assert sorted(done.result for _, done in on_spark) == [3, 5, 7, 9, 11]
    assert sorted((index, done.result) for index, done in on_spark) == sorted(
        (index, done.result) for index, done in LocalRunner().run(table, count_rows, works)
    )
    assert list(SparkRunner(spark).run(table, count_rows, [])) == []


def test_files_written_by_executors_open_with_the_keys_that_come_back(spark: SparkSession, table: EncryptedTable) -> None:
    works = counting(table)
    done = dict(SparkRunner(spark).run(table, copy_encrypted, copying(table)))

    assert sorted(done) == list(range(len(works)))
    for index, each in done.items():
        with (
            table.io.decrypting_input(each.result.location, each.keys[0]).open() as copied,
            table.io.raw_input(works[index].work).open() as original,
        ):
            assert copied.read() == original.read()


def test_a_partial_of_a_function_travels(spark: SparkSession, table: EncryptedTable) -> None:
    done = dict(SparkRunner(spark).run(table, partial(add, 1000), [FileWork(number) for number in range(50)]))

    assert {index: each.result for index, each in done.items()} == {number: number + 1000 for number in range(50)}


def test_results_come_while_the_rest_still_runs(spark: SparkSession, table: EncryptedTable, tmp_path: Path) -> None:
    works = [FileWork(number, size=2**30) for number in range(40)]
    results = SparkRunner(spark).run(table, partial(note_and_wait, str(tmp_path)), works)

    next(results)
    begun = len(list(tmp_path.iterdir()))
    results.close()  # type: ignore[attr-defined]

    assert begun < 40


def test_an_error_of_a_work_is_raised_as_itself(spark: SparkSession, table: EncryptedTable) -> None:
    with pytest.raises(FormatError, match="seven is not read"):
        list(SparkRunner(spark).run(table, refuse_seven, [FileWork(number) for number in range(20)]))


def test_what_nobody_expected_fails_the_job_with_its_text(spark: SparkSession, table: EncryptedTable) -> None:
    with pytest.raises(Exception, match="work 3 fails on purpose") as raised:
        list(SparkRunner(spark).run(table, raise_lookup_error, [FileWork(3)]))

    assert type(raised.value).__name__ == "PythonException"


def test_of_a_task_that_is_tried_again_one_result_counts(spark: SparkSession, lake: Lake, table: EncryptedTable) -> None:
    works = copying(table)

    done = list(SparkRunner(spark).run(table, copy_failing_once, works))

    assert sorted(index for index, _ in done) == list(range(len(works)))
    written = {path.name for path in folder_of(table).glob("copies/*")}
    assert len(written) > len(works), "no copy of a first attempt is left, so no task was tried again"
    assert {each.result.location.rpartition("/")[2] for _, each in done} < written
    for _, each in done:
        with table.io.decrypting_input(each.result.location, each.keys[0]).open() as copied:
            assert copied.read()


def test_a_function_that_no_name_leads_to_is_refused(spark: SparkSession, table: EncryptedTable) -> None:
    with pytest.raises(ConfigurationError, match="must be a function of a module"):
        list(SparkRunner(spark).run(table, lambda io, work, keys: None, [FileWork(1)]))  # type: ignore[arg-type, return-value]


def test_a_part_for_another_task_is_refused(spark: SparkSession, table: EncryptedTable) -> None:
    ticket, job_key = LocatedTable.of_table(table).issue_job(spark)
    content = SharedWorkContent(pickle.dumps(table.io.inner), count_rows, job_columns(table))
    shared = job_key.encrypt(Role.SHARED, 0, pickle.dumps(content))
    first, second = (
        job_key.encrypt(Role.TASK, number, encode_items([WorkItem(number, work.work, work.keys)]))
        for number, work in enumerate(counting(table)[:2])
    )

    assert [number for number, _ in collected_results(spark, ticket, shared, {0: first, 1: second})] == [0, 1]
    with pytest.raises(Exception, match=f"{AuthenticationError.__name__}.*the TASK message of task"):
        collected_results(spark, ticket, shared, {0: second, 1: first})
