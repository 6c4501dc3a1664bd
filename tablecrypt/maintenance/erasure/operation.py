"""Erasing the rows of a person from an encrypted table, its history included, and proving it.

    search    every file that a key of the table opens, of every snapshot, for rows that the filter matches: search.py
    plan      what branches, tags and snapshots have to do with these files: plan.py
    rewrite   branches and tags, until no head names such a file: rewriting.py
    remove    the snapshots that do, their files and their keys: removal.py
    prove     search again, whatever is stored now: proof.py

There is no journal. Each step leaves a table that is right, and finds what is to be done in the table itself; a run that was killed is
continued by the next one with the same filter. Only the counts of what an earlier run has finished are not known to the next one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table

from tablecrypt.arguments import checked_arguments
from tablecrypt.files.encrypting_file_io import refuse_restricted
from tablecrypt.maintenance.erasure.plan import RefWork, Searching, is_working_branch, works
from tablecrypt.maintenance.erasure.proof import Proof, hidden_columns, state_of, unreachable
from tablecrypt.maintenance.erasure.removal import Removed, remove, unneeded_files
from tablecrypt.maintenance.erasure.result import Erased, ErasedRef, PartitionValues, TableState
from tablecrypt.maintenance.erasure.rewriting import Rewriting, has_hidden_columns
from tablecrypt.maintenance.erasure.row_filter import ErasureFilter
from tablecrypt.maintenance.operation import (
    Counted,
    ProgressListener,
    checked_filter,
    checked_moment,
    no_progress,
    reload,
    require_encrypted,
)
from tablecrypt.maintenance.runner import Runner, runner_or_threads
from tablecrypt.table.parquet_options import parquet_writer_options
from tablecrypt.table.protection.authenticated import check_compared
from tablecrypt.table.shares import SharedFiles, deleting_io, keeping_shared
from tablecrypt.table.table_files import heads_of, name_of


@checked_arguments(but=("row_filter", "now"))
def erase(
    table: Table,
    row_filter: str | BooleanExpression,
    dry_run: bool = False,
    delete_below: Sequence[str] = (),
    progress: ProgressListener = no_progress,
    runner: Runner | None = None,
    workers: int | None = None,
    now: dt.datetime | None = None,
    break_shares: bool = False,
) -> Erased:
    """Erase the rows that a filter matches from an encrypted table, its branches, tags and history, and search what is left for them.

    The rows are deleted on every branch. Data files that still store them, hidden or not, are written again without them. Tags move to
    snapshots of the same rows without them. Every snapshot that has such a file, or names it as deleted, goes with its files and keys; time
    travel to those snapshots ends. Then all that is stored for the table is decrypted and searched.

    Values of a protected column whose key the caller may not use stay as ciphertext; all else of the rows goes. The result says which, and
    is not complete: the same call by a user who may use the key ends it.

    If it was killed, or others committed meanwhile, call it again with the same filter.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        row_filter: such as "customer_id = 7". A row is erased where it is true, as in a delete.
        dry_run: only find and count what would be done.
        delete_below: folders in which the table's files may be deleted or written over, beside those that pinned metadata names.
        progress: listener for reports of files that were searched, rewritten and deleted.
        runner: rewrites data files, such as `tablecrypt.spark.SparkRunner(spark)`; by default threads here do.
        workers: how many files are rewritten at once, without `runner`; by default one for each core.
        now: the time that the result says, which has a time zone; by default the clock's when it ends.
        break_shares: go on where live shares name files that have to go, or that cannot be searched any more. The result says which.

    Raises:
        SharedFilesError, ShareRecordError: live shares do, or their records cannot be read. Nothing has changed.
        ConfigurationError: the table is not encrypted; the filter does not fit it, matches every row, or compares a protected column by a
            name that another one had; a staged snapshot holds such rows; or the table has gc.enabled=false, or neither a pin nor
            `delete_below` says where it lies. Nothing has changed.
        ColumnKeyDeniedError: the filter compares a protected column that cannot be read, or the table has such a column and its deletes are
            not merge-on-read. Nothing has changed.
        AuthenticationError, KeyNotFoundError, FormatError: a snapshot's manifests cannot be read. Nothing has changed.
        KmsError: the KMS refused.
        CommitFailedException, ValidationException: other writers committed first, several times in a row: call it again.
    """
    require_encrypted(table)
    rewriter = runner_or_threads(runner, workers)
    if now is not None:
        checked_moment("now", now)
    fresh = reload(table)
    # Past a server's row filter the rows to erase may not show: a search that finds none would be no proof.
    refuse_restricted(fresh.io, "erase")
    rows = ErasureFilter(fresh.schema(), checked_filter(fresh, row_filter))
    # By an exchanged name the rows of others would go for good, or none, and the report would call that complete.
    check_compared(fresh.metadata, fresh.io, fresh.schema(), rows.field_ids)

    if not dry_run:
        # Refused before anything is rewritten: otherwise the rows would leave the heads and stay in the history, which may not be deleted.
        deleting_io(fresh, delete_below, break_shares=break_shares)
        # Properties that the Parquet writer refuses would stop the run after some branches have changed.
        parquet_writer_options(fresh.metadata.properties)

    is_blind = has_hidden_columns(fresh)
    before = state_of(fresh)
    searching = Searching.of(fresh, rows, is_blind, Counted("erase: files searched", "files", progress))
    searching.check_staged()
    planned = works(searching, rows)
    if dry_run:
        return _foretell(searching, planned, rows, before, now, delete_below)

    shared = _checked_shares(searching, planned, break_shares)
    refs = _rewrite(searching, planned, Rewriting(rows, rewriter, progress, is_blind))
    # Files never change, so the first search still holds for them. Files that came since are searched at the end.
    removed = remove(searching.again(reload(table)), rows.field_ids, delete_below, progress, break_shares)
    table.refresh()
    # A new search of all that is stored now, and not of what the run knows: others may have committed such rows meanwhile.
    last = Searching.of(reload(table), rows, is_blind, Counted("erase: files searched again", "files", progress))

    result = _result(last, rows, before, state_of(last.table), refs, removed, now, dry_run=False)
    return replace(result, outside=(*result.outside, *_still_shared(shared)))


def _rewrite(searching: Searching, planned: Sequence[RefWork], rewriting: Rewriting) -> list[ErasedRef]:
    refs = [work.erased(rewriting.erase(searching, work)) for work in planned]
    # Of tags that were moved away from such rows after a run was killed.
    fresh = reload(searching.table)
    if left := [name for name in fresh.metadata.refs if is_working_branch(fresh, name)]:
        with fresh.manage_snapshots() as management:
            for name in left:
                management.remove_branch(name)

    return refs


def _foretell(
    searching: Searching,
    planned: Sequence[RefWork],
    row_filter: ErasureFilter,
    before: TableState,
    now: dt.datetime | None,
    delete_below: Sequence[str],
) -> Erased:
    """Return what is known beforehand of what a run would do."""
    removed, table, named = Removed(), searching.table, searching.named
    removed.snapshots |= searching.suspects
    # Not `deleting_io`, which raises where nothing may be deleted: a dry run reports what would be refused.
    scope = keeping_shared(table, table.io.deleting_below(delete_below), break_shares=False).deletable

    for location in _unneeded(searching, planned):
        if (reason := scope.reason_against(location)) is not None:
            removed.refused[location] = reason
        else:
            removed.deleted[location] = named.length_of(location)

    refs = [work.erased(work.snapshot_id) for work in planned]

    return _result(searching, row_filter, before, before, refs, removed, now, dry_run=True)


def _checked_shares(searching: Searching, planned: Sequence[RefWork], break_shares: bool) -> SharedFiles:
    """Return what the table shares. Refuse to erase what live shares go on to have: files that have to go, or that no manifest opens."""
    shared = SharedFiles.of(searching.table, break_shares=break_shares)
    if not shared.shares:
        return shared

    named = {location for entries in searching.named.entries.values() for location in entries}
    shared.but(named.difference(_unneeded(searching, planned))).check(
        "live shares name files that have to go, or that only they need and nothing searches", break_shares=break_shares
    )
    return shared


def _still_shared(shared: SharedFiles) -> Iterator[str]:
    # Of every share: its folder may hold copies of rows whose files were not shared as they are.
    for each in shared.said:
        yield f"Nothing is erased from {each}, which may have such rows: update the share, or end it; what was read there is not known."


def _unneeded(searching: Searching, planned: Sequence[RefWork]) -> list[str]:
    """Return the files that nothing needs once what is planned is done."""
    table, named, going = searching.table, searching.named, searching.suspects
    staying = {each.snapshot_id for each in table.metadata.snapshots} - going
    replaced = {task.file.file_path for work in planned for task in work.rewrite} | searching.held
    # The snapshots that take the places of heads need what is not rewritten.
    heads = heads_of(table.metadata) & going
    manifests = {manifest for head in heads for manifest in named.manifests[head]}
    kept = {manifest for manifest in manifests if replaced.isdisjoint(named.entries[manifest])}
    kept |= {location for manifest in manifests for location in named.entries[manifest]} - replaced

    return unneeded_files(searching, going, named.locations_of(staying) | kept)


def _result(
    searching: Searching,
    row_filter: ErasureFilter,
    before: TableState,
    after: TableState,
    refs: Sequence[ErasedRef],
    removed: Removed,
    now: dt.datetime | None,
    dry_run: bool,
) -> Erased:
    proof, hide = Proof.of(searching), PartitionValues(searching.table.metadata.partition_specs)
    return Erased(
        table=name_of(searching.table),
        dry_run=dry_run,
        table_uuid=str(searching.table.metadata.table_uuid),
        time=(now or dt.datetime.now(dt.UTC)).astimezone(dt.UTC),
        shape=row_filter.shape,
        columns=row_filter.columns,
        before=before,
        after=after,
        refs=tuple(refs),
        snapshots=tuple(sorted(removed.snapshots)),
        retired_keks=tuple(sorted(removed.retired_keks)),
        # Results are printed and kept: a folder that is named for a partition value would repeat the erased value there.
        deleted=tuple(map(hide.of, removed.deleted)),
        deleted_bytes=sum(removed.deleted.values()),
        metadata_rewritten=tuple(map(hide.of, removed.metadata_rewritten)),
        searched=proof.searched,
        remaining=hide.of_all(proof.remaining),
        not_searched=hide.of_all(proof.not_searched),
        refused=hide.of_all(removed.refused),
        failed=hide.of_all(removed.failed),
        hidden_columns=hidden_columns(searching),
        outside=unreachable(searching.table, row_filter.field_ids),
    )
