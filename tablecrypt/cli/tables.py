"""Commands that rewrite, copy or remove the files of a table."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from functools import partial
from typing import Any

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
from tablecrypt.printable import bytes_shown, counted


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
    from tablecrypt.table.table import EncryptedTable

    loaded = run.settings.plain_table(table)
    options: dict[str, Any] = {
        "into": into,
        "location": location,
        "properties": parse_properties(properties, "--set"),
        "drop_refs": drop_refs,
        "keep_plaintext": keep_plaintext,
        "delete_below": delete_below,
    }
    if not run.dry_run and into is None:
        losses = "its history is lost" if keep_plaintext else "its history is lost and its plaintext files are deleted"
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
    run.show(encrypt_table, loaded, key_id, **options)


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("What is worth rewriting", "tablecrypt --catalog prod compact db.orders --dry-run"),
        ("One partition, ordered", "tablecrypt --catalog prod compact db.orders --where \"day = '2024-02-29'\" --sort-by id"),
        ("Rows that were deleted leave every file", "tablecrypt --catalog prod compact db.orders --apply-deletes"),
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
    help="Leave short files of a partition that has fewer of them.",
)
@click.option(
    "--delete-ratio",
    type=click.FloatRange(0, 1),
    metavar="X",
    default=0.3,
    show_default=True,
    help="Leave the deletes of a file in which a smaller share of the rows is deleted.",
)
@click.option("--delete-files", type=click.IntRange(min=1), metavar="N", help="Rewrite also files that have N delete files or more.")
@click.option("--apply-deletes", is_flag=True, help="Rewrite also every file of which any row is deleted, however few they are.")
@click.option("--rewrite-all", is_flag=True, help="Rewrite every file that --where selects.")
@click.option("--sort-by", multiple=True, metavar="COLUMN", help="Order the rows of each group; repeatable.")
@click.option("--partial-progress", type=click.IntRange(min=1), metavar="N", help="Commit after every N groups, not once at the end.")
@click.option("--branch", default="main", show_default=True, help="The branch whose files are rewritten.")
@operation_options(on_files=True)
def compact(run: Run, table: str, where: str | None, **options: Any) -> None:
    """Merge small files and apply deletes.

    Small files of TABLE, and files with many deleted rows, are rewritten as files of the right size under fresh keys. What is below
    --min-input-files and --delete-ratio stays as it is: a few deleted rows are hidden from readers then, and still stored, unless
    --apply-deletes is given. Rows keep their ids. Older snapshots keep the old files until they are expired.
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
    show(result, as_json)
    if result.failed:
        end_with_found()
