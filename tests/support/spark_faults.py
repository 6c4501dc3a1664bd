"""What goes wrong in a Spark job, once: in the first attempt of one task that gets so far, after some of its rows.

    raise   the task fails
    kill    the executor dies with all its Python workers, as a machine does
    slow    the task stays where it is until Spark, which has the answer of a speculative copy, ends it

Each leaves an empty file as it strikes, so that a test can count them. Other attempts of the task wait for that file: a copy that overtook
the first attempt would have Spark end it before anything went wrong.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pandas as pd
import pyarrow as pa

from tests.support.processes import parent_of, with_descendants
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Fault = Literal["raise", "kill", "slow"]

PATIENCE: Final = 300.0
_PARTITION: Final = 1


def faulty(rows: DataFrame, fault: Fault, mark: Path, after: int, written: Path | None = None) -> DataFrame:
    """The same rows, but for the fault.

    Args:
        rows: of two partitions or more.
        fault: what goes wrong.
        mark: a file; whoever makes it is struck, and then makes the one that `struck` names.
        after: how many batches the task lets through before.
        written: a folder below which the task must have written a whole data file before.
    """

    def let_through(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == after:
                _strike_once(fault, mark, written)
            yield batch

    return rows.mapInArrow(let_through, rows.schema)


def register_faulty(spark: SparkSession, name: str, fault: Fault, mark: Path, after: int, written: Path) -> None:
    """Make a function of SQL that gives its text back, but for the fault, which is that of `faulty`."""
    from pyspark.sql.pandas.functions import pandas_udf

    def let_through(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for number, batch in enumerate(batches):
            if number == after:
                _strike_once(fault, mark, written)
            yield batch

    # Its stubs know no function of iterators.
    udf: Any = pandas_udf
    spark.udf.register(name, udf(let_through, "string"))


def _strike_once(fault: Fault, mark: Path, written: Path | None) -> None:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    if context.partitionId() != _PARTITION:
        return
    if not _is_made(mark):
        wait_until(struck(mark).exists, f"no attempt was struck for {mark}", PATIENCE)
        return
    if written is not None:
        wait_for_file(written, f"{_PARTITION:05d}-{context.taskAttemptId()}-*.parquet")
    struck(mark).touch()
    strike(fault)


def strike(fault: Fault) -> None:
    """Let it go wrong in this Python worker."""
    if fault == "raise":
        raise RuntimeError("this task fails on purpose")
    if fault == "kill":
        kill_executor()
    time.sleep(PATIENCE)
    raise RuntimeError(f"nobody ended a task that stood still for {PATIENCE} s")


def kill_executor() -> None:
    """Kill all that this worker's executor has started and that could still tidy up, then the executor, and then this worker."""
    executor = parent_of(os.getppid())
    assert executor is not None
    for process in with_descendants(executor):
        if process not in (executor, os.getpid()):
            os.kill(process, signal.SIGKILL)
    os.kill(executor, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def struck(mark: Path) -> Path:
    """The file that is there once the fault has struck."""
    return mark.with_suffix(".struck")


def wait_for_file(folder: Path, pattern: str) -> None:
    """Wait until a whole file of this name is there."""
    wait_until(lambda: any(_is_whole(path) for path in folder.rglob(pattern)), f"no {pattern} came to be in {folder}", PATIENCE)


def _is_made(mark: Path) -> bool:
    """Whether this process makes the file, which no other does then."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _is_whole(path: Path) -> bool:
    """Whether it ends as an encrypted Parquet file does, all of which begin with the same four bytes."""
    return path.read_bytes()[4:].endswith(b"PARE")
