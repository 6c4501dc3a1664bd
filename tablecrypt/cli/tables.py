"""Commands that rewrite, copy or remove the files of a table."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tablecrypt.cli._framework import (
    DocumentedCommand,
    Run,
    confirm,
    delete_below_option,
    dry_run_option,
    end_with_found,
    json_option,
    manifests_below_option,
    moment,
    operation_options,
    table_argument,
    yes_option,
)
from tablecrypt.cli._output import say, show
from tablecrypt.cli.main import FOUND
from tablecrypt.cli.settings import Settings, parse_properties, pass_settings
from tablecrypt.errors import ConfigurationError
from tablecrypt.printable import bytes_shown, counted

if TYPE_CHECKING:
    from tablecrypt.maintenance import OrphanFiles


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("Files whose keys are older than two years", "tablecrypt --catalog prod reencrypt db.orders --older-than 730d"),
        ("Files that a declaration of column keys has not reached", "tablecrypt --catalog prod reencrypt db.people --out-of-line"),
        (
            "One partition, with longer keys",
            "tablecrypt --catalog prod reencrypt db.orders --where \"region = 'north'\" --data-key-length 32",
        ),
    ],
    needs="Permission to wrap and unwrap with the table's master key, to read and write its files, and to commit.",
)
@table_argument
@click.option("--where", metavar="FILTER", help="Only data files that may hold rows which pass this filter.")
@click.option(
    "--older-than", metavar="MOMENT", callback=moment, help="Only files whose keys were made before a date, or before an age such as 730d."
)
@click.option("--data-key-length", type=click.Choice([16, 24, 32]), help="Length of the new keys in bytes; by default what the table says.")
@click.option("--branch", default="main", show_default=True, help="The branch whose files are rewritten.")
@click.option("--out-of-line", is_flag=True, help="Only data files whose protected columns are not as the table's properties declare.")
@click.option("--accept-masks", is_flag=True, help="Protect a column also where all values that another engine wrote look like its mask.")
@operation_options(on_files=True)
def reencrypt(
    run: Run,
    table: str,
    where: str | None,
    older_than: dt.datetime | None,
    data_key_length: int | None,
    branch: str,
    out_of_line: bool,
    accept_masks: bool,
) -> None:
    """Re-encrypt data files under fresh keys.

    Data and delete files of TABLE are decrypted and encrypted module by module, without decoding a value, and replace the old ones in one
    snapshot. Row ids, statistics and the order of rows do not change. Run it again to continue an interrupted run. Older snapshots name the
    old files until they are expired. Protected columns become what the properties declare; where you may not use a column's key, the column
    stays as it is, and all else comes under fresh keys.
    """
    from tablecrypt.maintenance import reencrypt as encrypt_again

    filtered = {} if where is None else {"where": where}
    loaded = run.settings.table(table)
    options = {"older_than": older_than, "data_key_length": data_key_length, "branch": branch}
    run.show(encrypt_again, loaded, out_of_line=out_of_line, accept_masks=accept_masks, **filtered, **options)


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("What would be encrypted", "tablecrypt --catalog prod migrate db.orders --key-id alias/orders --dry-run"),
        ("Migrate in place", "tablecrypt --catalog prod migrate db.orders --key-id alias/orders --yes"),
        ("Into a new table", "tablecrypt --catalog prod migrate db.orders --key-id alias/orders --into db.encrypted_orders"),
    ],
    needs="Permission to wrap with the master key, to read, write and delete the table's files, and to commit.",
)
@table_argument
@click.option("--key-id", required=True, help="The master key: the table's encryption.key-id from now on.")
@click.option(
    "--set", "properties", metavar="NAME=VALUE", multiple=True, help="A further table property, such as encryption.data-key-length=32."
)
@click.option("--into", metavar="NAME", help="Make a new table of this name, and leave the plain one as it is.")
@click.option("--location", help="Location of the new table; by default beside the plain table's.")
@click.option("--drop-refs", is_flag=True, help="Drop other branches and tags, which would keep plaintext snapshots.")
@click.option("--keep-plaintext", is_flag=True, help="Do not delete the plaintext files after the commit.")
@delete_below_option
@yes_option
@operation_options(on_files=True)
def migrate(
    run: Run,
    table: str,
    key_id: str,
    into: str | None,
    location: str | None,
    properties: tuple[str, ...],
    drop_refs: bool,
    keep_plaintext: bool,
    delete_below: tuple[str, ...],
    yes: bool,
) -> None:
    """Encrypt a plaintext table.

    Every live file of TABLE is encrypted into a new file, without decoding a value, and one commit replaces the plain files by the
    encrypted ones. The table's history and its plaintext files are deleted. With --into both stay, and the encrypted table is a new one.
    Run it again to continue an interrupted run. The report lists every place where plaintext may remain. Files outside TABLE's folder stay
    as they are, unless --delete-below names their folder.
    """
    from tablecrypt.maintenance import migrate as encrypt_table

    if not run.dry_run and into is None:
        losses = "its history is lost" if keep_plaintext else "its history is lost and its plaintext files are deleted"
        confirm(f"Encrypt {table} under {key_id}: {losses}. Go on?", yes)
    run.show(
        encrypt_table,
        run.settings.plain_table(table),
        key_id,
        into=into,
        location=location,
        properties=parse_properties(properties, "--set"),
        drop_refs=drop_refs,
        keep_plaintext=keep_plaintext,
        delete_below=delete_below,
    )


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("What is worth rewriting", "tablecrypt --catalog prod compact db.orders --dry-run"),
        ("One partition, ordered", "tablecrypt --catalog prod compact db.orders --where \"day = '2024-02-29'\" --sort-by id"),
    ],
    needs="Permission to unwrap with the table's master key, to read and write its files, and to commit.",
)
@table_argument
@click.option("--where", metavar="FILTER", help="Only files that may hold rows which pass this filter.")
@click.option(
    "--target-file-size", type=click.IntRange(min=1), metavar="BYTES", help="Size of new files; by default write.target-file-size-bytes."
)
@click.option(
    "--min-input-files",
    type=click.IntRange(min=1),
    metavar="N",
    default=5,
    show_default=True,
    help="Rewrite short files where at least this many belong together.",
)
@click.option(
    "--delete-ratio",
    type=click.FloatRange(0, 1),
    metavar="X",
    default=0.3,
    show_default=True,
    help="Rewrite files in which a larger share of the rows is deleted.",
)
@click.option("--rewrite-all", is_flag=True, help="Rewrite every file that --where selects.")
@click.option("--sort-by", multiple=True, metavar="COLUMN", help="Order the rows of each group; repeatable.")
@click.option("--partial-progress", type=click.IntRange(min=1), metavar="N", help="Commit after every N groups, not once at the end.")
@click.option("--branch", default="main", show_default=True, help="The branch whose files are rewritten.")
@operation_options(on_files=True)
def compact(run: Run, table: str, where: str | None, **options: Any) -> None:
    """Merge small files and apply deletes.

    Small files of TABLE, and files with many deleted rows, are rewritten as files of the right size under fresh keys. Rows keep their ids.
    Older snapshots keep the old files until they are expired.
    """
    from tablecrypt.maintenance import compact as rewrite

    run.show(rewrite, run.settings.table(table), where, **options)


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("Into another bucket", "tablecrypt --catalog prod relocate db.orders s3://archive/orders"),
        (
            "Under another master key, and into the catalog",
            "tablecrypt --catalog prod relocate db.orders s3://lake-eu/orders --key-id alias/eu --as eu.orders",
        ),
    ],
    needs="Permission to unwrap with the table's master key and to wrap with the copy's, to read the table and to write the copy.",
)
@table_argument
@click.argument("location")
@click.option("--key-id", help="The copy's master key; by default the table's.")
@click.option("--register-as", "--as", "register_as", metavar="NAME", help="Register the copy under this name.")
@click.option("--current-only", is_flag=True, help="Copy the current snapshot alone, not all of them.")
@click.option("--trust-lengths", is_flag=True, help="Do not compare the content of files that an earlier run copied, only their lengths.")
@manifests_below_option
@operation_options(on_files=True)
def relocate(
    run: Run,
    table: str,
    location: str,
    key_id: str | None,
    register_as: str | None,
    current_only: bool,
    trust_lengths: bool,
    manifests_below: tuple[str, ...],
) -> None:
    """Copy a table to another location or master key.

    The copy of TABLE at LOCATION is a table of its own, which Iceberg Java can read. Paths in metadata, manifest lists and manifests are
    rewritten, and lists and manifests get fresh keys. Data files keep their keys (see reencrypt). The original does not change. Run it
    again to continue an interrupted run.
    """
    from tablecrypt.maintenance import relocate as copy_table

    loaded = run.settings.table(table)
    options = {"current_only": current_only, "trust_lengths": trust_lengths, "manifests_below": manifests_below}
    run.show(copy_table, loaded, location, key_id, register_as, **options)


@click.command(
    cls=DocumentedCommand,
    examples=[
        (
            "What would be destroyed, and what left",
            "tablecrypt --catalog prod shred db.orders --snapshot 4358109269873137077 --dry-run",
        ),
        ("Two snapshots", "tablecrypt --catalog prod shred db.orders --snapshot 4358109269873137077 --snapshot 71 --yes"),
        ("The whole table", "tablecrypt --catalog prod shred db.orders --whole-table db.orders --yes"),
        ("One protected column, in all snapshots", "tablecrypt --catalog prod shred db.people --column ssn --yes"),
    ],
    needs="Permission to wrap and unwrap with the table's master key (--column: the column's), to list, write and delete in its metadata "
    "folder, and to commit.",
    codes={FOUND: "not complete: something is left, refused, not found or still opened, or nothing became unreadable"},
)
@table_argument
@click.option("--snapshot", "snapshots", type=int, multiple=True, metavar="ID", help="A snapshot, in the table or expired; repeatable.")
@click.option("--whole-table", metavar="NAME", help="Shred the whole table: repeat its name here.")
@click.option("--column", metavar="NAME", help="Shred one protected column, in every file of every snapshot.")
@click.option(
    "--replace-heads",
    is_flag=True,
    help="Replace branch heads that hold keys of files they deleted by snapshots with the same rows, and shred those heads too.",
)
@delete_below_option
@yes_option
@operation_options()
def shred(
    run: Run,
    table: str,
    snapshots: tuple[int, ...],
    whole_table: str | None,
    column: str | None,
    replace_heads: bool,
    delete_below: tuple[str, ...],
    yes: bool,
) -> None:
    """Destroy the keys of snapshots, of a whole table, or of a column.

    Rows that were deleted from TABLE can be read in older snapshots for as long as the keys of those exist. Removes the keys from the table
    and from every metadata file that can still be read, and the KEK that opened them. It cannot be undone. The report says what copies
    elsewhere would still open.

    With --column the values of one protected column become unreadable in all snapshots, and all else stays.
    """
    from tablecrypt.maintenance import shred as destroy
    from tablecrypt.maintenance import shred_column

    if column is not None:
        if snapshots or whole_table is not None or replace_heads:
            raise ConfigurationError("--column excludes --snapshot, --whole-table and --replace-heads")
        if not run.dry_run:
            confirm(f"The keys of column {column} of {table} will be destroyed for good. Go on?", yes)
        shredded = run.show(shred_column, run.settings.table(table), column, delete_below=delete_below)
        if not run.dry_run and not shredded.is_complete:
            end_with_found()
        return
    if not snapshots and whole_table is None:
        raise ConfigurationError("name what to shred: --snapshot ID, --whole-table NAME or --column NAME")
    if snapshots and whole_table is not None:
        raise ConfigurationError("--snapshot and --whole-table exclude each other")
    if whole_table is not None and whole_table != table:
        raise ConfigurationError(f"--whole-table says {whole_table}, but the table is {table}: to destroy all of it, repeat its name")
    if not run.dry_run:
        what = f"{len(snapshots)} {'snapshot' if len(snapshots) == 1 else 'snapshots'} of {table}" if snapshots else f"all of {table}"
        confirm(f"The keys of {what} will be destroyed for good. Go on?", yes)
    loaded, named = run.settings.table(table), list(snapshots) or None
    done = run.show(destroy, loaded, named, whole_table=whole_table or "", replace_heads=replace_heads, delete_below=delete_below)
    if not run.dry_run and not done.is_complete:
        end_with_found()


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("Find", "tablecrypt --catalog prod orphans db.orders --dry-run"),
        ("Remove what is older than a week, in a nightly job", "tablecrypt --catalog prod orphans db.orders --older-than 7d --yes"),
    ],
    needs="Permission to unwrap with the table's master key, to read its metadata, and to list and delete in its folder.",
    codes={FOUND: "a file could not be deleted; the report says why"},
)
@table_argument
@click.option(
    "--older-than",
    metavar="MOMENT",
    callback=moment,
    help="Only files last written before a date, or before an age such as 7d; by default 3d.",
)
@click.option("--folder", metavar="LOCATION", help="Only files below this folder, which is the table's location or lies below it.")
@click.option(
    "--despite-other-prefixes",
    is_flag=True,
    help="Treat a file as an orphan even if the table has a file with the same path in another store, bucket or host.",
)
@delete_below_option
@yes_option
@dry_run_option
@json_option
@pass_settings
def orphans(
    settings: Settings,
    table: str,
    older_than: dt.datetime | None,
    folder: str | None,
    despite_other_prefixes: bool,
    delete_below: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Find and remove files that do not belong to the table.

    They are in the folder of TABLE, left by failed and cancelled writes and by expired snapshots. --older-than must be longer ago than the
    longest write takes. Do not use it if the folder holds files of another table.
    """
    from tablecrypt.maintenance import remove_orphan_files

    loaded = settings.table(table)
    remove = partial(
        remove_orphan_files, loaded, older_than, delete_below=delete_below, folder=folder, despite_other_prefixes=despite_other_prefixes
    )
    result = replace(remove(), dry_run=dry_run)
    if not dry_run and result.found:
        confirm(f"Delete {counted(len(result.found), 'file', 'files')} ({bytes_shown(result.size)}) under {loaded.location()}?", yes)
    if not dry_run and (result.found or result.refused):
        # Also where all are refused: it says why, if nothing tells that the folder is the table's.
        result = remove(dry_run=False)
    if as_json:
        show(result, as_json)
    else:
        _print_orphans(result)
    if result.failed:
        end_with_found()


def _print_orphans(result: OrphanFiles) -> None:
    for file in result.found:
        say(f"{file.size:>14,}  {file.location}")
    for location, problem in result.failed.items():
        say(f"{location}: {problem}")
    for location, reason in result.refused.items():
        say(f"refused: {location} {reason}")
    say(f"{len(result.found):,} found, {len(result.deleted):,} deleted, {len(result.failed):,} could not be deleted")
