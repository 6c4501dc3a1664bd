"""What is Spark's own in the executor's side of a job: the process, and the Arrow batches that tasks get and give.

A Python worker serves one task after the other, with this package and its libraries loaded. Around each task PySpark calls

    importlib.invalidate_caches()     before Python 3.13 reads the whole directory of an archive for every package that was imported from
                                      it or looked for in it: some 0.2 s for Spark's own (pyspark.zip, py4j, the jar of its core). Archives
                                      that the process was started with stay as they are, so their finders are forgotten: Python makes
                                      one again when it next imports from there. Those that were added to the session keep theirs.
    gc.collect()                      looks at every object of every module: some 0.1 s. Objects of modules live as long as the process,
                                      so gc.freeze() sets them aside, and the collector looks only at what tasks made.

For a short task both together take longer than its work, so `skip_per_task_setup` avoids both.

Raises ConfigurationError outside a Spark task, KmsError where this executor may not unwrap the job key.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zipimport import zipimporter

import pyarrow as pa

from tablecrypt.engines.job_keys import JobTicket
from tablecrypt.engines.tasks import WritingTask
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.exchange import collected_from, gathered
from tablecrypt.spark.session import ArrowFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESULT_SCHEMA: Final = "task long, message binary"
_ARROW_RESULT_SCHEMA: Final = pa.schema([("task", pa.int64()), ("message", pa.binary())])


@dataclass
class _Frozen:
    """The number of loaded modules when objects were last frozen."""

    modules: int = 0


_frozen = _Frozen()


def skip_per_task_setup() -> None:
    """Save a Python worker, at the beginning of a task, the work described above. In any other process, do nothing."""
    from pyspark import TaskContext

    if TaskContext.get() is None:
        return

    _forget_finders()
    # Only if modules were loaded: freezing also keeps what the task itself holds by now, and must not do so in every task.
    if len(sys.modules) > _frozen.modules:
        gc.freeze()
        _frozen.modules = len(sys.modules)


def _forget_finders() -> None:
    started_with = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    for path, finder in list(sys.path_importer_cache.items()):
        # Only archives that cannot change: one that was added to the session may be another file by now.
        if isinstance(finder, zipimporter) and finder.archive in started_with:
            sys.path_importer_cache.pop(path, None)


def open_task(ticket: JobTicket, encrypted_shared: bytes) -> WritingTask:
    """Open the job in the Spark task that this runs in. The SHARED message is a TableAccess, or has one as `access`."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise ConfigurationError("an encrypted partition is written inside a Spark task only")
    skip_per_task_setup()
    # taskAttemptId is unique in the application; attemptNumber counts the attempts of one task only.
    return WritingTask.open(ticket, encrypted_shared, context.partitionId(), context.taskAttemptId())


def task_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the task numbers that `in_tasks` sends."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def filled_batches(batches: Iterable[pa.RecordBatch]) -> tuple[pa.RecordBatch, Iterator[pa.RecordBatch]] | None:
    """Return a first batch with rows, and an iterator over all rows in batches, including the first; None if there are no rows."""
    filled = gathered(batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    return None if first is None else (first, itertools.chain([first], filled))


def result_batch(number: int, message: bytes) -> pa.RecordBatch:
    """Return a result as Spark collects it, in RESULT_SCHEMA."""
    return pa.RecordBatch.from_pydict({"task": [number], "message": [message]}, schema=_ARROW_RESULT_SCHEMA)


def results_of(rows: DataFrame, function: ArrowFunction) -> list[tuple[int, bytes]]:
    """Run a job that writes rows, and return what its tasks yield, in RESULT_SCHEMA, as (task number, RESULT message)."""
    return collected(collected_from(rows, function, RESULT_SCHEMA))


def collected(rows: Iterable[Any]) -> list[tuple[int, bytes]]:
    """Return rows of RESULT_SCHEMA, as Spark collects them, as (task number, RESULT message)."""
    return [(int(row["task"]), bytes(row["message"])) for row in rows]
