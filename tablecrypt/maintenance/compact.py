"""Compaction: many short data files become few of the right size, and their deletes are applied. The rows stay what they are.

    plan      scan tasks of one snapshot ─▶ groups of files of one partition (see compaction_plan.py)
    rewrite   each group on a thread here or on an executor of a Spark cluster (see compaction_group.py)
    commit    new files in place of the old ones, one snapshot of operation "replace" (see table/rewritten_files.py)

Rows that others add meanwhile are kept: the commit is tried again on top of theirs. A file that others removed while it was rewritten, or
deleted rows of, is a conflict: nothing of that commit lands, and its new files are deleted.

Time travel to earlier snapshots reads the old files until those snapshots expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from tablecrypt.arguments import checked_arguments
from tablecrypt.maintenance.compaction import Compacted, Compaction
from tablecrypt.maintenance.compaction_plan import DELETE_RATIO, MIN_INPUT_FILES, CompactionRules
from tablecrypt.maintenance.progress import ProgressListener, unheard
from tablecrypt.maintenance.runner import runner_for
from tablecrypt.table.parquet_properties import target_file_size as target_file_size_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@checked_arguments(but=("where",))
def compact(
    table: Table,
    where: str | BooleanExpression | None = None,
    *,
    target_file_size: int | None = None,
    min_input_files: int = MIN_INPUT_FILES,
    delete_ratio: float = DELETE_RATIO,
    rewrite_all: bool = False,
    sort_by: Sequence[str] = (),
    partial_progress: int | None = None,
    branch: str = MAIN_BRANCH,
    progress: ProgressListener = unheard,
    dry_run: bool = False,
    spark: SparkSession | None = None,
    workers: int | None = None,
) -> Compacted:
    """Rewrite an encrypted table's short files, and those with many deletes, into files of the right size.

    Args:
        table: an encrypted table; its current state is loaded anew.
        where: only files that may hold matching rows are looked at; by default all.
        target_file_size: stored bytes of a new file; by default write.target-file-size-bytes.
        min_input_files: how many files of a partition are worth rewriting because they are short.
        delete_ratio: from which part of its rows on, marked as deleted, a file is rewritten for that alone.
        rewrite_all: whether to rewrite every file that `where` leaves.
        sort_by: columns to order the rows of each group by, ascending. A group is sorted in the memory of its worker.
        partial_progress: commit after every so many groups; by default once, at the end.
        branch: the branch whose files are rewritten.
        progress: hears of the data files that are done.
        dry_run: whether to plan only.
        spark: a session whose executors do the work; by default threads of this process do.
        workers: how many groups at once, without `spark`; by default one for each core.

    Raises:
        ConfigurationError: the table is not encrypted, or an argument cannot be used.
        ValidationException: others removed files, or rows from them, while they were rewritten. Nothing was committed, and nothing is left.
            With `partial_progress` it is in the result instead, and other groups are committed.
        CommitFailedException: other writers were faster, again and again. Likewise.
        TamperedFileError, KeyNotFoundError, KmsError: a file does not open. What was not committed before is deleted.
    """
    size = target_file_size_of(table.metadata.properties) if target_file_size is None else target_file_size
    rules = CompactionRules(size, min_input_files, delete_ratio, rewrite_all)
    compaction = Compaction.plan(table, where, branch, rules, sort_by, partial_progress)
    if dry_run or not compaction.groups:
        return compaction.result(dry_run)
    return compaction.run(runner_for(compaction.table, spark, workers), progress)
