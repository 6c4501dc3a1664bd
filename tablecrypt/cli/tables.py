"""Commands on tables that print in a form of their own (`list`, `describe`), or look before they ask (`migrate`, `orphans`)."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tablecrypt.cli._framework import confirm, end_with_found
from tablecrypt.cli._output import say, say_table, show
from tablecrypt.cli.operations import Run, command_of
from tablecrypt.cli.settings import parse_properties
from tablecrypt.printable import bytes_shown, counted, local_moment

if TYPE_CHECKING:
    from tablecrypt.maintenance import ListedTable, Listing, TableDescription
    from tablecrypt.maintenance._describe.table import DescribedColumn, TableSize

_LOCK: Final = "\N{LOCK}"
_NO_LOCK: Final = "  "
"""As wide as the lock is on a terminal."""


@command_of("list_tables")
def list_command(run: Run, namespace: str | None, quick: bool) -> None:
    """List the tables, and end with code 1 where some could not be."""
    from tablecrypt.maintenance import list_tables

    found = list_tables(run.settings.catalog_with(namespace), namespace, quick=quick)
    run.report(found, _print_listing, is_bad=not found.is_whole)


@command_of("describe")
def describe(run: Run, table: str, snapshots: int) -> None:
    """Describe a table, encrypted or plain, and end with code 1 where a part could not be read."""
    from tablecrypt.maintenance import describe as described

    found = described(run.settings.plain_table(table), snapshots)
    run.report(found, _print_description, is_bad=bool(found.unread))


@command_of("migrate")
def migrate(run: Run, table: str, key_id: str, properties: tuple[str, ...], yes: bool, **options: Any) -> None:
    """Encrypt a table, or delete what an earlier migration of it left."""
    from tablecrypt.maintenance import migrate as encrypt_table
    from tablecrypt.table.table import EncryptedTable

    loaded = run.settings.plain_table(table)
    options["properties"] = parse_properties(properties, "--set")

    if not run.dry_run and options["into"] is None:
        losses = "its history is lost" if options["keep_plaintext"] else "its history is lost and its plaintext files are deleted"
        question = f"Encrypt {table} under {key_id}: {losses}. Go on?"
        if isinstance(loaded, EncryptedTable):
            left = encrypt_table(loaded, key_id, **options, dry_run=True)
            if not left.deleted:
                if run.as_json or left.refused or left.left:
                    show(replace(left, dry_run=False), run.as_json)
                if not run.as_json:
                    say(f"{table} is encrypted already; nothing was done")
                return

            files = counted(left.deleted, "plaintext file", "plaintext files")
            question = f"{table} is encrypted already; {files} of an earlier migration will be deleted. Go on?"

        confirm(question, yes)

    run.show(loaded, key_id=key_id, **options)


@command_of("remove_orphan_files")
def orphans(run: Run, table: str, yes: bool, **options: Any) -> None:
    """Find files, and delete them after a question that says how many."""
    loaded = run.settings.table(table)
    found = replace(run, dry_run=True).call(loaded, **options)
    result = replace(found, dry_run=run.dry_run)

    if not run.dry_run and result.found:
        confirm(f"Delete {counted(len(result.found), 'file', 'files')} ({bytes_shown(result.size)}) under {loaded.location()}?", yes)
    if not run.dry_run and (result.found or result.refused):
        # Also where all are refused: it says why, if nothing tells that the folder is the table's.
        result = run.call(loaded, **options)

    show(result, run.as_json)
    if result.failed:
        end_with_found()


@command_of("unshare")
def unshare(run: Run, table: str, share: str, yes: bool, **options: Any) -> None:
    """Ask, and end the share."""
    loaded = run.settings.table(table)
    if not run.dry_run and not yes:
        # Nobody is asked about a share that there is not, or that cannot be ended.
        replace(run, dry_run=True).call(loaded, share=share, **options)
        confirm(f"Whom share {share} of {table} is for will open nothing by it any more. Go on?", yes)
    result = run.call(loaded, share=share, **options)
    show(result, run.as_json)
    if result.failed:
        end_with_found()


def _print_listing(found: Listing) -> None:
    """Print the tables of a catalog, then what they come to."""
    if found.tables:
        say_table(("", "table", "", "master key"), [_listed_cells(each) for each in found.tables])
    for each in found.tables:
        if each.problem is not None:
            say(f"{each.name} could not be loaded: {each.problem}")
    for namespace, problem in found.unlisted.items():
        say(f"namespace {namespace} could not be listed: {problem}")
    say(_listing_summary(found))


def _listed_cells(each: ListedTable) -> tuple[str, ...]:
    if each.kind == "view":
        return _NO_LOCK, each.name, "view", ""
    if each.problem is not None:
        return _NO_LOCK, each.name, "could not be loaded", ""
    # With --quick no table was loaded, so that nothing says whether it is encrypted.
    if each.encrypted is None:
        return _NO_LOCK, each.name, "", ""
    if each.encrypted:
        return _lock(True), each.name, "encrypted", each.table_key_id or ""

    return _NO_LOCK, each.name, "plain", "" if each.table_key_id is None else f"{each.table_key_id}, not used"


def _listing_summary(found: Listing) -> str:
    tables = [each for each in found.tables if each.kind == "table"]
    numbers = {
        "encrypted": sum(each.encrypted is True for each in tables),
        "plain": sum(each.encrypted is False for each in tables),
        "could not be loaded": sum(each.problem is not None for each in tables),
    }
    shown = ", ".join(f"{number:,} {what}" for what, number in numbers.items() if number)
    views = len(found.tables) - len(tables)
    parts = [
        f"{counted(len(tables), 'table', 'tables')}{f' ({shown})' if shown else ''}",
        *([counted(views, "view", "views")] if views else ()),
        counted(len(found.namespaces), "namespace", "namespaces"),
    ]

    return ", ".join(parts) + _empty_namespaces(found)


def _empty_namespaces(found: Listing) -> str:
    used = tuple(f"{each.name.rpartition('.')[0]}." for each in found.tables)
    empty = [name for name in found.namespaces if name not in found.unlisted and not any(each.startswith(f"{name}.") for each in used)]
    return f"; nothing in {', '.join(empty)}" if empty else ""


def _lock(encrypted: bool) -> str:
    if not encrypted:
        return _NO_LOCK

    try:
        # A pipe or an old terminal may have an encoding without the lock, in which printing it would raise.
        _LOCK.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return "* "

    return _LOCK


def _print_description(found: TableDescription) -> None:
    """Print what is known of a table, part by part."""
    kind = f"encrypted under master key {found.table_key_id}" if found.encrypted else _plain_kind(found)
    say(f"{_lock(found.encrypted)} {found.table}: {kind}, format version {found.format_version}".strip())
    say_table(
        None,
        [
            ("location", found.location),
            ("metadata", found.metadata_location.removeprefix(f"{found.location}/")),
            ("changed", _moment(found.updated)),
            ("size", "not known" if found.size is None else _size(found.size)),
            ("partitioned", ", ".join(_transformed(each.transform, each.column) for each in found.partition_fields) or "no"),
            (
                "sorted",
                ", ".join(f"{_transformed(each.transform, each.column)} {each.direction} {each.null_order}" for each in found.sort_fields)
                or "no",
            ),
        ],
    )
    for what, problem in found.unread.items():
        say(f"could not be read: {what}: {problem}")
    _print_columns(found)
    _print_history(found)
    _print_keys(found)
    if found.properties:
        say("")
        say("Properties")
        say_table(None, list(found.properties.items()))


def _plain_kind(found: TableDescription) -> str:
    return "plain" if found.table_key_id is None else f"plain, although encryption.key-id names {found.table_key_id}"


def _print_columns(found: TableDescription) -> None:
    say("")
    say("Columns")
    rows = [
        (str(each.field_id), each.name, each.type, "required" if each.required else "", _protection(each), each.doc or "")
        for each in found.columns
    ]
    say_table(("id", "column", "type", "", "protected by", "documentation"), rows, right=(0,))


def _protection(column: DescribedColumn) -> str:
    if column.master_key_id is not None:
        return f"{column.master_key_id}, mask {column.mask}"
    return "" if column.former_key_id is None else f"no longer; older files: {column.former_key_id}"


def _print_history(found: TableDescription) -> None:
    if found.refs:
        say("")
        say("Branches and tags")
        say_table(None, [(each.name, each.kind, str(each.snapshot_id)) for each in found.refs])

    if not found.snapshot_count:
        return

    left = found.snapshot_count - len(found.snapshots)
    say("")
    say(f"Snapshots, the newest first{f' ({left:,} older ones are not shown)' if left else ''}")
    rows = [
        (str(each.snapshot_id), _moment(each.made), each.operation or "", _number(each.rows_added), _number(each.rows_deleted))
        for each in found.snapshots
    ]
    say_table(("id", "made", "operation", "rows added", "deleted"), rows, right=(0, 3, 4))


def _print_keys(found: TableDescription) -> None:
    if not found.keks:
        return

    say("")
    say("KEKs, the oldest first")
    rows = [
        (each.key_id, each.master_key_id or "", "unknown" if each.created is None else _age(each.created), ", ".join(each.columns))
        for each in found.keks
    ]
    say_table(("id", "master key", "age", "columns"), rows)


def _age(moment: dt.datetime) -> str:
    days = (dt.datetime.now(dt.UTC) - moment).days
    # KEY_TIMESTAMP is what metadata says: a KEK that is dated in the future wraps nothing, so that it is shown as such.
    return "today" if days == 0 else counted(days, "day", "days") if days > 0 else f"dated in the future: {local_moment(moment)}"


def _moment(moment: dt.datetime | None) -> str:
    return "unknown" if moment is None else local_moment(moment)


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _transformed(transform: str, column: str) -> str:
    return column if transform == "identity" else f"{transform}({column})"


def _size(size: TableSize) -> str:
    if not size.data_files:
        return "no rows"

    shown = f"{counted(size.rows, 'row', 'rows')} in {counted(size.data_files, 'data file', 'data files')}, {bytes_shown(size.data_bytes)}"
    if not size.delete_files:
        return shown

    deleted = "an unknown number of these rows" if size.deleted_rows is None else f"{size.deleted_rows:,} of these rows"
    files = f"{counted(size.delete_files, 'delete file', 'delete files')} ({bytes_shown(size.delete_bytes)})"

    return f"{shown}; {files} {'hides' if size.delete_files == 1 else 'hide'} {deleted}"
