"""Commands on tables that print in a form of their own (`list`, `describe`), or look before they ask (`migrate`, `orphans`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tablecrypt.cli._framework import confirm, end_with_found
from tablecrypt.cli._listing import print_description, print_listing
from tablecrypt.cli._output import say, show
from tablecrypt.cli.operations import Run, command_of
from tablecrypt.cli.settings import parse_properties
from tablecrypt.printable import bytes_shown, counted


@command_of("list_tables")
def list_command(run: Run, namespace: str | None, quick: bool) -> None:
    """List the tables, and end with code 1 where some could not be."""
    from tablecrypt.maintenance import list_tables

    found = list_tables(run.settings.catalog_with(namespace), namespace, quick=quick)
    run.report(found, print_listing, is_bad=not found.is_whole)


@command_of("describe")
def describe(run: Run, table: str, snapshots: int) -> None:
    """Describe a table, encrypted or plain, and end with code 1 where a part could not be read."""
    from tablecrypt.maintenance import describe as described

    found = described(run.settings.plain_table(table), snapshots)
    run.report(found, print_description, is_bad=bool(found.unread))


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
    if not run.dry_run:
        confirm(f"Whom share {share} of {table} is for will open nothing by it any more. Go on?", yes)
    result = run.call(run.settings.table(table), share=share, **options)
    show(result, run.as_json)
    if result.failed:
        end_with_found()
