"""Streams through foreachBatch: each micro-batch is written exactly once, in any mode of write_table.

df.writeStream.foreachBatch(tcs.stream_writer("prod.db.orders", mode="merge", keys=["id"])).option("checkpointLocation", …).start()
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table.refs import MAIN_BRANCH

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.commit import BatchAlreadyCommittedError, BatchMarker
from tablecrypt.spark.distribution import Distribution
from tablecrypt.spark.read import Path
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.spark.write import Mode, WriteOptions, write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"


def stream_writer(
    identifier: str,
    mode: Mode = "append",
    *,
    overwrite_filter: str | BooleanExpression | None = None,
    keys: Sequence[str] | None = None,
    branch: str = MAIN_BRANCH,
    distribute_by: Distribution | None = None,
    sort_by: Sequence[str] | None = None,
    path: Path | None = None,
    query_id: str | None = None,
    snapshot_properties: Mapping[str, str] | None = None,
    catalog_properties: Mapping[str, str] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch that writes each micro-batch into an encrypted table exactly once.

    Args:
        query_id: names the query in the table, the same through restarts; by default the id that Spark keeps in the query's checkpoint.
            Spark Connect does not show it, so there it has to be given.

    The other arguments are those of `write_table`. Each snapshot says which micro-batch it holds, and a batch that the branch's history
    holds is not written again.

    Raises:
        ConfigurationError: options that contradict each other. What `write_table` raises is raised in the query.
    """
    options = WriteOptions(mode, overwrite_filter, keys, branch, distribute_by, sort_by, snapshot_properties or {}, path=path)

    def write_batch(df: DataFrame, batch_id: int) -> None:
        marker = BatchMarker(query_id or _query_id(df), batch_id, branch)
        try:
            write_rows(df, LocatedTable.of(identifier, catalog_properties), replace(options, marker=marker))
        # Spark repeats a batch whose end its checkpoint has not: the table has it, and the query goes on.
        except BatchAlreadyCommittedError:
            logger.info("%s already contains batch %s of query %s", identifier, batch_id, marker.query_id)

    return write_batch


def _query_id(df: DataFrame) -> str:
    context = getattr(df.sparkSession, "sparkContext", None)
    # A local property that Spark sets for the thread of the query; the checkpoint keeps its value through restarts.
    query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
    if not query_id:
        raise ConfigurationError("the streaming query's id is not known here: give stream_writer a query_id")
    return str(query_id)
