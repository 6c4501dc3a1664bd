"""What a Python worker is spared between two tasks, and that its imports go on as before."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tablecrypt.spark.executor_job import skip_per_task_setup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java


def in_a_task(spark: SparkSession, look: Callable[[], Any]) -> Any:
    """What a function returns in a task of its own."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"found": [json.dumps(look())]})

    [row] = spark.range(0, 1, 1, 1).mapInArrow(run, "found string").collect()
    return json.loads(row["found"])


def test_finders_in_archives_of_spark_are_forgotten(spark: SparkSession) -> None:
    def look() -> list[list[str]]:
        from pkgutil import get_importer
        from zipimport import zipimporter

        import pyspark

        archive = getattr(pyspark.__loader__, "archive", None)
        if archive is None:
            return [["pyspark is not in an archive here"], []]
        get_importer(archive)

        def found() -> list[str]:
            return [
                path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter) and finder.archive == archive
            ]

        before = found()
        skip_per_task_setup()
        return [before, found()]

    before, after = in_a_task(spark, look)

    assert before
    assert not after


def test_modules_of_spark_are_imported_as_before(spark: SparkSession) -> None:
    def look() -> str:
        import importlib

        skip_per_task_setup()
        sys.modules.pop("pyspark.sql.avro.functions", None)
        importlib.invalidate_caches()
        return importlib.import_module("pyspark.sql.avro.functions").__name__

    assert in_a_task(spark, look) == "pyspark.sql.avro.functions"


def test_a_finder_in_an_archive_that_was_added_is_kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    archive = str(tmp_path_factory.mktemp("added") / "added.zip")

    def look() -> bool:
        from pkgutil import get_importer
        from zipfile import ZipFile

        with ZipFile(archive, "w") as file:
            file.writestr("module_that_was_added.py", "")
        finder = get_importer(archive)
        skip_per_task_setup()
        return finder is not None and sys.path_importer_cache.pop(archive) is finder

    assert in_a_task(spark, look) is True


def test_objects_of_modules_are_set_aside_once(spark: SparkSession) -> None:
    def look() -> list[int]:
        skip_per_task_setup()
        before = gc.get_freeze_count()
        made = [[number] for number in range(1000)]
        skip_per_task_setup()
        return [before, gc.get_freeze_count(), len(made)]

    before, after, made = in_a_task(spark, look)

    assert before > made
    assert after < before + made


def test_a_process_without_a_task_is_left_alone() -> None:
    finders, frozen = dict(sys.path_importer_cache), gc.get_freeze_count()

    skip_per_task_setup()

    assert dict(sys.path_importer_cache) == finders
    assert gc.get_freeze_count() == frozen
