"""Commands about keys: a master key in a key file, and the KEKs and entries of encryption-keys in a table's metadata.

A master key goes into the key file and nowhere else: not to the terminal, not to a log.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tablecrypt.cli._framework import (
    TABLE_FAILED,
    Chosen,
    DocumentedCommand,
    Run,
    confirm,
    dry_run_option,
    glob_options,
    json_option,
    manifests_below_option,
    operation_options,
    optional_table_argument,
    run_on,
    table_argument,
    yes_option,
)
from tablecrypt.cli._output import show
from tablecrypt.cli.main import FOUND
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.errors import ConfigurationError
from tablecrypt.kms.local_file import add_key, add_key_version, create_key_file

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tablecrypt.maintenance import ProgressListener, Rewrapped, RewrappedColumnKeks, RotatedColumnKeks, RotatedKek

DEFAULT_LENGTH: Final = 32


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("A key for the tables of one team", "tablecrypt keygen --key-file ~/orders.keys --key-id orders"),
        ("A new version of it, which wraps from now on", "tablecrypt keygen --key-file ~/orders.keys --key-id orders --new-version"),
    ],
)
@click.option(
    "--key-file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The key file; created with mode 0600 if it does not exist.",
)
@click.option("--key-id", required=True, help="The key's name, as a table's encryption.key-id gives it.")
@click.option("--length", type=click.Choice([16, 24, 32]), help="Length of a new key in bytes; 32 unless given.")
@click.option("--new-version", is_flag=True, help="Add a version of the same length to a key in the file.")
@json_option
def keygen(key_file: Path, key_id: str, length: int | None, new_version: bool, as_json: bool) -> None:
    """Create a master key in a key file.

    The key is random. It is for encryption.kms-type=local, the key service that is a file. The file is created if it does not exist.

    With --new-version the key gets another version. The newest version wraps; all of them unwrap, so that tables written before still open.
    tablecrypt rewrap wraps a table's KEKs under the newest version.

    Keep a copy of the file in a safe place, and make a new one after each change. Without the file, every table under its keys is lost.
    """
    path, version = key_file.expanduser(), 1
    if new_version and length is not None:
        raise ConfigurationError("--length belongs to a new key: a new version is as long as the key is")
    if new_version:
        version = add_key_version(path, key_id)
        said = f"Added version {version} of master key {key_id} to {path}: it wraps from now on."
    elif path.exists():
        add_key(path, key_id, length or DEFAULT_LENGTH)
        said = f"Added master key {key_id} to {path}. Keep a copy of the file in a safe place."
    else:
        create_key_file(path, key_id, length or DEFAULT_LENGTH)
        said = f"Created the key file {path} with master key {key_id}. Keep a copy of it in a safe place."
    show({"key_id": key_id, "version": version, "key_file": str(path)}, as_json, said)


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("What would change", "tablecrypt --catalog prod rotate-kek db.orders --dry-run"),
        ("Rotate", "tablecrypt --catalog prod rotate-kek db.orders"),
        ("Every table of a namespace but one", "tablecrypt --catalog prod rotate-kek --include 'db.*' --exclude db.archive"),
    ],
    needs="Permission to wrap and unwrap with the table's master key, and to commit to the table.",
    codes={FOUND: TABLE_FAILED},
)
@optional_table_argument
@glob_options
@click.option("--columns", is_flag=True, help="Rotate the KEKs of protected columns instead of the table's.")
@operation_options()
def rotate_kek(run: Run, table: str | None, include: tuple[str, ...], exclude: tuple[str, ...], columns: bool) -> None:
    """Replace the KEK of a table.

    Wraps the manifest-list key of every snapshot of TABLE under a new KEK and removes the old KEKs, in one metadata commit. No file is read
    or written. Data keys do not change (see reencrypt), older metadata files keep the old KEK (see shred), and the master key keeps its
    version (see rewrap).
    """
    from tablecrypt.maintenance import rotate_column_keks
    from tablecrypt.maintenance import rotate_kek as rotate

    def one(table: Table, heard: ProgressListener) -> RotatedKek | RotatedColumnKeks:
        return (rotate_column_keks if columns else rotate)(table, dry_run=run.dry_run, progress=heard)

    run_on(run.settings, Chosen.of(table, include, exclude), one, run.as_json)


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("After the master key was rotated in the key service", "tablecrypt --catalog prod rewrap db.orders"),
        ("After an alias was moved to another key", "tablecrypt --catalog prod rewrap db.orders --from-key-id 1234abcd-12ab-34cd"),
        ("Every table of the catalog", "tablecrypt --catalog prod rewrap --include '*'"),
    ],
    needs="On AWS kms:ReEncryptFrom and kms:ReEncryptTo, elsewhere permission to unwrap and wrap; and to commit to the table.",
    codes={FOUND: TABLE_FAILED},
)
@optional_table_argument
@glob_options
@click.option("--from-key-id", metavar="KEY", help="The master key that wraps the KEKs now, if its alias was moved.")
@click.option("--columns", is_flag=True, help="Wrap the KEKs of protected columns again instead of the table's.")
@manifests_below_option
@operation_options()
def rewrap(
    run: Run,
    table: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    from_key_id: str | None,
    columns: bool,
    manifests_below: tuple[str, ...],
) -> None:
    """Rewrap the KEKs under the newest version of the master key.

    Run it before an old version of TABLE's master key is disabled, or after its alias was moved to another key. The KEKs do not change, nor
    does anything under them. Older metadata files keep the KEKs as the old version wrapped them.
    """
    from tablecrypt.maintenance import rewrap as wrap_again
    from tablecrypt.maintenance import rewrap_column_keks

    if columns and from_key_id is not None:
        raise ConfigurationError(
            "--columns excludes --from-key-id: column KEKs are wrapped again by the master keys that their entries name"
        )

    def one(table: Table, heard: ProgressListener) -> Rewrapped | RewrappedColumnKeks:
        if columns:
            return rewrap_column_keks(table, dry_run=run.dry_run, progress=heard)
        return wrap_again(table, from_key_id, dry_run=run.dry_run, progress=heard, manifests_below=manifests_below)

    run_on(run.settings, Chosen.of(table, include, exclude), one, run.as_json)


@click.command(
    cls=DocumentedCommand,
    examples=[("After Iceberg Java expired snapshots", "tablecrypt --catalog prod prune-keys db.orders")],
    needs="Permission to commit to the table. The key service is not asked.",
)
@table_argument
@dry_run_option
@json_option
@pass_settings
def prune_keys(settings: Settings, table: str, dry_run: bool, as_json: bool) -> None:
    """Remove keys that no snapshot needs.

    Iceberg Java never removes an entry of encryption-keys, so the metadata of TABLE grows with every commit. Pruning makes nothing
    unreadable: older metadata files still hold the entries (see shred).
    """
    from tablecrypt.maintenance import prune_keys as prune

    show(prune(settings.table(table), dry_run=dry_run), as_json)


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("What can be brought back", "tablecrypt --catalog prod rescue db.orders --dry-run"),
        ("From a metadata file of a backup", "tablecrypt --catalog prod rescue db.orders --metadata s3://backup/00041-a.metadata.json"),
    ],
    needs="Permission to unwrap with the table's master key, to read and list its metadata folder, and to commit to the table.",
)
@table_argument
@click.option("--metadata", multiple=True, metavar="LOCATION", help="A metadata file that may hold the keys; repeatable.")
@click.option("--expire-lost", is_flag=True, help="Remove snapshots whose keys cannot be found.")
@yes_option
@operation_options()
def rescue(run: Run, table: str, metadata: tuple[str, ...], expire_lost: bool, yes: bool) -> None:
    """Recover lost keys from older metadata.

    Helps if another tool wrote the metadata of TABLE and dropped entries of encryption-keys. Searches the metadata files that the table
    left behind, and those given. It cannot replace a lost master key, and does not know whether a key was removed on purpose.
    """
    from tablecrypt.maintenance import rescue as bring_back

    if expire_lost and not run.dry_run:
        confirm(f"Snapshots of {table} whose keys cannot be found will be removed. Continue?", yes)
    run.show(bring_back, run.settings.table(table), metadata, expire_lost)
