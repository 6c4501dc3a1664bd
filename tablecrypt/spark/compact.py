"""Compaction as a job on the cluster: `tablecrypt.maintenance.compact`, with its work on executors.

without sort_by    groups of files of one partition, each rewritten by one task that streams them; rows keep their order
with sort_by       all rows that are rewritten, sorted by Spark over all of a partition's new files (see sorted_compaction.py)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table.refs import MAIN_BRANCH

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.session import check_session
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.parquet_options import target_file_size as target_file_size_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tablecrypt.maintenance import Compacted, ProgressListener


def compact(
    spark: SparkSession,
    identifier: str,
    where: str | BooleanExpression | None = None,
    *,
    target_file_size: int | None = None,
    min_input_files: int = 5,
    delete_ratio: float = 0.3,
    rewrite_all: bool = False,
    sort_by: Sequence[str] = (),
    partial_progress: int | None = None,
    branch: str = MAIN_BRANCH,
    progress: ProgressListener | None = None,
    dry_run: bool = False,
    catalog_properties: Mapping[str, str] | None = None,
) -> Compacted:
    """Rewrite an encrypted table's short files, and those with many deletes, into files of the right size.

    Args:
        spark: a session of Spark 4.0 or newer, classic or Connect.
        identifier: "catalog.namespace.table", as for `read_table`.
        where: only files that may hold matching rows are looked at; by default all.
        target_file_size: stored bytes of a new file; by default write.target-file-size-bytes.
        min_input_files: how many files of a partition are worth rewriting because they are short.
        delete_ratio: from which part of its rows on, marked as deleted, a file is rewritten for that alone.
        rewrite_all: whether to rewrite every file that `where` leaves.
        sort_by: columns to order rows by, ascending, nulls first: within each partition over all of its rewritten files. Rows pass through
            Spark's shuffle then, so its files on executors' disks hold them (spark.io.encryption.enabled encrypts those).
        partial_progress: commit after every so many groups; by default once, at the end. Not with `sort_by`.
        branch: the branch whose files are rewritten.
        progress: hears of the data files that are done.
        dry_run: whether to plan only.
        catalog_properties: properties for load_catalog, beside those that it finds.

    Rows keep their `_row_id` and `_last_updated_sequence_number`.

    Raises:
        ConfigurationError: not an encrypted table, or an argument that cannot be used.
        ValidationException: others removed files, or rows from them, while they were rewritten. Nothing was committed, and nothing is left.
            With `partial_progress` it is in the result instead, and other groups are committed.
        CommitFailedException: other writers were faster, again and again. Likewise.
        TamperedFileError, KeyNotFoundError, KmsError: a file does not open. What was not committed before is deleted.
    """
    from tablecrypt.maintenance.compaction import Compaction
    from tablecrypt.maintenance.compaction_plan import CompactionRules
    from tablecrypt.maintenance.progress import unheard
    from tablecrypt.spark.runner import SparkRunner
    from tablecrypt.spark.sorted_compaction import rewritten_in_order

    check_session(spark)
    located = LocatedTable.of(identifier, catalog_properties)
    size = target_file_size_of(located.table.metadata.properties) if target_file_size is None else target_file_size
    rules = CompactionRules(size, min_input_files, delete_ratio, rewrite_all)
    if sort_by and partial_progress is not None:
        raise ConfigurationError("partial_progress commits group by group, and sort_by orders rows across groups: leave one of them out")
    compaction = Compaction.plan(located.table, where, branch, rules, sort_by, partial_progress)
    if dry_run or not compaction.groups:
        return compaction.result(dry_run)
    listener = progress or unheard
    if sort_by:
        return rewritten_in_order(spark, located, compaction, listener)
    return compaction.run(SparkRunner(spark, compaction.table), listener)
