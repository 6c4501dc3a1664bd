"""Procedures on files: compaction, expiry, orphans, manifests, and registering a table.

rewrite_data_files and rewrite_position_delete_files have Iceberg's arguments and columns, and are done by compaction here. Options of
rewrite_data_files that only say how much runs at once have no effect; others that compaction does not have are refused.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import TableProperties
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import IdentityTransform
from pyiceberg.utils.properties import property_as_int

from tablecrypt import maintenance
from tablecrypt.engines.protected_columns import ensure_column_keys
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import Runner, SortColumn, ZOrder, expiry
from tablecrypt.maintenance.reachable import FileKind
from tablecrypt.manifests.records import is_deletion_vector
from tablecrypt.setting_kinds import one_of, truth, whole_number
from tablecrypt.spark.sql.calls import Call, Row, columns, moment_of
from tablecrypt.spark.sql.statements.operations import procedure, procedure_of
from tablecrypt.table.planning import FileCondition
from tablecrypt.table.replace_files import EncryptedManifestRewrite, is_worth_rewriting, manifests_by_kind
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import live_files, name_of

_OPTIONS: Final[Mapping[str, tuple[str, type]]] = {
    "target-file-size-bytes": ("target_file_size", int),
    "min-input-files": ("min_input_files", int),
    "delete-ratio-threshold": ("delete_ratio", float),
    "delete-file-threshold": ("delete_files", int),
    "rewrite-all": ("rewrite_all", bool),
}
"""Options of rewrite_data_files, with the arguments of compaction that they are."""
_ABOUT_CONCURRENCY: Final = frozenset(
    {
        "max-concurrent-file-group-rewrites",
        "max-file-group-size-bytes",
        "max-file-group-input-files",
        "rewrite-job-order",
        "use-starting-sequence-number",
        "remove-dangling-deletes",
        "partial-progress.max-commits",
        "partial-progress.max-failed-commits",
        "shuffle-partitions-per-file",
        "compression-factor",
    }
)
_OF_DELETE_FILES: Final = frozenset(
    {
        "max-concurrent-file-group-rewrites",
        "max-file-group-size-bytes",
        "max-file-group-input-files",
        "max-file-size-bytes",
        "min-file-size-bytes",
        "min-input-files",
        "partial-progress.enabled",
        "partial-progress.max-commits",
        "rewrite-all",
        "rewrite-job-order",
        "target-file-size-bytes",
    }
)
"""Iceberg's options of rewrite_position_delete_files, which has nothing to do here."""
_PARTIAL_PROGRESS: Final = "partial-progress.enabled"
_GROUPS_PER_COMMIT: Final = 10
_ORDER: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([\w.]+))(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", re.IGNORECASE)
_Z_ORDER: Final = re.compile(r"\s*zorder\s*\((.*)\)\s*", re.IGNORECASE)
_DELETES: Final = {
    "deleted_data_files_count": FileKind.DATA,
    "deleted_equality_delete_files_count": FileKind.EQUALITY_DELETES,
    "deleted_manifest_files_count": FileKind.MANIFEST,
    "deleted_manifest_lists_count": FileKind.MANIFEST_LIST,
}


def _compact(call: Call) -> Iterator[Row]:
    # Making column keys is a commit, which a dry run must not do.
    options = call.options(maintenance.compact)
    if not options.get("dry_run"):
        _make_column_keys(options["table"], call.runner)
    yield maintenance.compact(**options).to_json()


def _make_column_keys(table: EncryptedTable, runner: Runner | None) -> None:
    """Make those that a rewrite needs: executors make none."""
    if runner is not None:
        ensure_column_keys(table)


@procedure(
    columns(
        rewritten_data_files_count=pa.int32(),
        added_data_files_count=pa.int32(),
        rewritten_bytes_count=pa.int64(),
        failed_data_files_count=pa.int32(),
        removed_delete_files_count=pa.int32(),
    ),
    runs_jobs=True,
)
def rewrite_data_files(
    table: EncryptedTable,
    strategy: str | None = None,
    sort_order: str | None = None,
    options: Mapping[str, str] | None = None,
    where: FileCondition | None = None,
    branch: str = "main",
    workers: int | None = None,
    runner: Runner | None = None,
) -> Iterator[Row]:
    """Rewrite small files, and those with many deletes; Iceberg's procedure."""
    _make_column_keys(table, runner)
    arguments = _compaction_arguments(options or {})
    sort_by = _sort_by(table, strategy, sort_order)
    compacted = maintenance.compact(table, where, sort_by=sort_by, branch=branch or "main", runner=runner, workers=workers, **arguments)
    yield {
        "rewritten_data_files_count": compacted.rewritten_files,
        "added_data_files_count": compacted.added_files,
        "rewritten_bytes_count": compacted.rewritten_bytes,
        "failed_data_files_count": 0,
        "removed_delete_files_count": compacted.removed_delete_files,
    }


def _compaction_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, value in options.items():
        if name == _PARTIAL_PROGRESS:
            if truth(f"the option {name}", value):
                arguments["partial_progress"] = _GROUPS_PER_COMMIT
        elif name in _OPTIONS:
            argument, kind = _OPTIONS[name]
            arguments[argument] = _converted(name, value, kind)
        elif name not in _ABOUT_CONCURRENCY:
            raise ConfigurationError(f"rewrite_data_files does not support the option {name}; it supports {', '.join(sorted(_OPTIONS))}")

    return arguments


def _converted(name: str, value: str, kind: type) -> Any:
    if kind is bool:
        return truth(f"the option {name}", value)
    try:
        return kind(value)
    except ValueError:
        raise ConfigurationError(f"the option {name} is {value!r}; it must be a number") from None


def _sort_by(table: EncryptedTable, strategy: str | None, order: str | None) -> tuple[SortColumn | ZOrder, ...]:
    """Return what rewrite_data_files is to sort by. ConfigurationError for an order that it does not know."""
    strategy = one_of("strategy", strategy or ("binpack" if order is None else "sort"), ("binpack", "sort"))
    if strategy == "binpack":
        if order is not None:
            raise ConfigurationError("sort_order belongs to strategy => 'sort'")
        return ()
    if order is None:
        return _order_of(table)

    z_order = _Z_ORDER.fullmatch(order)
    if z_order is not None:
        return (ZOrder(tuple(_sorted_column(part).name for part in z_order[1].split(","))),)

    return tuple(_sorted_column(part) for part in order.split(","))


def _sorted_column(part: str) -> SortColumn:
    """Read `name DESC NULLS LAST`. Without a word about nulls they come first in ascending order and last in descending, as in Spark."""
    match = _ORDER.fullmatch(part)
    if match is None:
        raise ConfigurationError(f"sort_order has {part.strip()!r}: write columns, as in 'day, id DESC NULLS LAST', or zorder(x, y)")
    descending = (match[3] or "asc").lower() == "desc"
    nulls = match[4].lower() if match[4] is not None else "last" if descending else "first"
    return SortColumn(match[1].replace("``", "`") if match[1] is not None else match[2], descending, nulls == "first")


def _order_of(table: EncryptedTable) -> tuple[SortColumn, ...]:
    fields = table.sort_order().fields
    if not fields:
        raise ConfigurationError(f"{name_of(table)} has no sort order: give sort_order")
    if not all(isinstance(field.transform, IdentityTransform) for field in fields):
        raise ConfigurationError(f"{name_of(table)} is sorted by transforms of columns: give sort_order with columns")

    return tuple(
        SortColumn(
            # The whole path: another column may have the name that a field has in its struct.
            str(table.schema().find_column_name(field.source_id)),
            field.direction == SortDirection.DESC,
            field.null_order == NullOrder.NULLS_FIRST,
        )
        for field in fields
    )


@procedure(
    columns(
        rewritten_delete_files_count=pa.int32(),
        added_delete_files_count=pa.int32(),
        rewritten_bytes_count=pa.int64(),
        added_bytes_count=pa.int64(),
    )
)
def rewrite_position_delete_files(
    table: EncryptedTable, options: Mapping[str, str] | None = None, where: FileCondition | None = None
) -> Iterator[Row]:
    """Merge position deletes; a table with deletion vectors has nothing to merge."""
    if unknown := sorted((options or {}).keys() - _OF_DELETE_FILES):
        raise ConfigurationError(f"rewrite_position_delete_files has no option {', '.join(unknown)}")

    deletes = live_files(table.current_snapshot(), table.io, ManifestContent.DELETES)
    others = sum(not is_deletion_vector(file) for file in deletes)
    if others:
        raise ConfigurationError(
            f"{name_of(table)} has {others} delete files from before it had deletion vectors: "
            "the procedure compact applies them, with apply_deletes => true"
        )

    # A data file has one deletion vector, which each delete replaces: nothing is left to merge.
    yield {"rewritten_delete_files_count": 0, "added_delete_files_count": 0, "rewritten_bytes_count": 0, "added_bytes_count": 0}


@procedure(columns(rewritten_manifests_count=pa.int32(), added_manifests_count=pa.int32()))
def rewrite_manifests(
    table: EncryptedTable, use_caching: bool = False, spec_id: int | None = None, sort_by: Sequence[str] | None = None
) -> Iterator[Row]:
    """Rewrite manifests so that files of one partition are near each other."""
    spec_id = table.metadata.default_spec_id if spec_id is None else spec_id
    if (spec := table.specs().get(spec_id)) is None:
        raise ConfigurationError(f"{name_of(table)} has no partition spec {spec_id}; it has {', '.join(map(str, table.specs()))}")

    if sort_by is not None and not sort_by:
        raise ConfigurationError("sort_by is empty: name partition fields, or leave it out")

    by, fields = tuple(sort_by or ()), [field.name for field in spec.fields]
    if unknown := [name for name in by if name not in fields]:
        raise ConfigurationError(f"{name_of(table)} has no partition field {', '.join(unknown)}; it has {', '.join(fields) or 'none'}")

    snapshot = table.current_snapshot()
    before = snapshot.manifests(table.io) if snapshot is not None else []
    default = TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT
    target = property_as_int(dict(table.properties), TableProperties.MANIFEST_TARGET_SIZE_BYTES, default) or default
    # A snapshot that changes nothing would only make the history longer, and conflict with other writers.
    if not any(is_worth_rewriting(group, spec_id, target) for group in manifests_by_kind(before)):
        yield {"rewritten_manifests_count": 0, "added_manifests_count": 0}
        return

    transaction = table.transaction()
    with transaction:
        updating = transaction.update_snapshot()
        updating.producer(EncryptedManifestRewrite, Operation.REPLACE, target_size=target, spec_id=spec_id, sort_by=by).commit()
    current = table.current_snapshot()
    after = {manifest.manifest_path for manifest in (current.manifests(table.io) if current is not None else ())}
    known = {manifest.manifest_path for manifest in before}
    yield {"rewritten_manifests_count": len(known - after), "added_manifests_count": len(after - known)}


@procedure(
    columns(
        deleted_data_files_count=pa.int64(),
        deleted_position_delete_files_count=pa.int64(),
        deleted_equality_delete_files_count=pa.int64(),
        deleted_manifest_files_count=pa.int64(),
        deleted_manifest_lists_count=pa.int64(),
        deleted_statistics_files_count=pa.int64(),
    )
)
def expire_snapshots(
    table: EncryptedTable,
    older_than: dt.datetime | None = None,
    retain_last: int | None = None,
    max_concurrent_deletes: int | None = None,
    stream_results: bool = False,
    snapshot_ids: Sequence[int] = (),
    clean_expired_metadata: bool = False,
    dry_run: bool = False,
    delete_below: Sequence[str] = (),
    break_shares: bool = False,
) -> Iterator[Row]:
    """Remove old snapshots, and the keys and files that only they needed."""
    _check_concurrency(max_concurrent_deletes)
    expired = expiry.expire_snapshots(
        table,
        older_than,
        retain_last,
        snapshot_ids,
        dry_run=dry_run,
        delete_below=delete_below,
        clean_metadata=clean_expired_metadata,
        break_shares=break_shares,
    )
    kinds = Counter(expired.deleted.values())
    vectors = kinds[FileKind.POSITION_DELETES] + kinds[FileKind.DELETION_VECTOR]
    counts = {name: kinds[kind] for name, kind in _DELETES.items()}
    yield {**counts, "deleted_position_delete_files_count": vectors, "deleted_statistics_files_count": kinds[FileKind.STATISTICS]}


@procedure(columns(orphan_file_location=pa.string()))
def remove_orphan_files(
    call: Call,
    table: EncryptedTable,
    older_than: dt.datetime | None = None,
    location: str | None = None,
    dry_run: bool = False,
    max_concurrent_deletes: int | None = None,
    file_list_view: str | None = None,
    equal_schemes: Mapping[str, str] | None = None,
    equal_authorities: Mapping[str, str] | None = None,
    prefix_mismatch_mode: str = "ERROR",
    prefix_listing: bool = False,
    delete_below: Sequence[str] = (),
    break_shares: bool = False,
) -> Iterator[Row]:
    """Delete files below the table's location that do not belong to the table."""
    _check_concurrency(max_concurrent_deletes)
    mode = prefix_mismatch_mode.upper() or "ERROR"
    if mode not in ("ERROR", "IGNORE", "DELETE"):
        raise ConfigurationError(f"prefix_mismatch_mode is {mode!r}; it must be ERROR, IGNORE or DELETE")

    look = partial(
        maintenance.remove_orphan_files,
        table,
        older_than,
        delete_below=delete_below,
        folder=location,
        listed=None if file_list_view is None else _listed(call),
        despite_other_prefixes=mode == "DELETE",
        break_shares=break_shares,
    )
    # A first look that deletes nothing: in mode ERROR one conflict has to save all files.
    found = look(dry_run=True)

    if found.known_elsewhere and mode == "ERROR":
        known = found.known_elsewhere[0]
        raise ConfigurationError(
            f"{known} {found.refused[known]}, as are {len(found.known_elsewhere) - 1} others. Nothing was deleted: "
            "prefix_mismatch_mode => 'IGNORE' leaves them, 'DELETE' deletes them"
        )

    found = found if dry_run else look(dry_run=False)
    if found.failed:
        left, said = next(iter(found.failed.items()))
        # A row for each deleted file would not show that some are still there.
        raise OSError(f"{len(found.failed)} of {len(found.found)} orphan files could not be deleted, such as {left}: {said}")

    for each in [file.location for file in found.found] if dry_run else found.deleted:
        yield {"orphan_file_location": each}


def _check_concurrency(number: int | None) -> None:
    if number is not None:
        whole_number("max_concurrent_deletes", number, least=1)


def _listed(call: Call) -> list[tuple[str, dt.datetime]]:
    """Return the files of file_list_view, which the driver has read."""
    return [(str(location), moment_of(modified, f"last_modified of {location}")) for location, modified in call.items("file_list")]


@procedure(columns(current_snapshot_id=pa.int64(), total_records_count=pa.int64(), total_data_files_count=pa.int64()))
def register_table(call: Call, table: str, metadata_file: str) -> Iterator[Row]:
    """Register an existing metadata file as a table."""
    snapshot = call.catalog.register_table(call.identifier(), metadata_file).current_snapshot()
    summary = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
    yield {
        "current_snapshot_id": None if snapshot is None else snapshot.snapshot_id,
        "total_records_count": int(summary["total-records"]) if "total-records" in summary else None,
        "total_data_files_count": int(summary["total-data-files"]) if "total-data-files" in summary else None,
    }


PROCEDURES: Final = (
    procedure_of(maintenance.compact, _compact),
    rewrite_data_files,
    rewrite_position_delete_files,
    rewrite_manifests,
    expire_snapshots,
    remove_orphan_files,
    register_table,
)
