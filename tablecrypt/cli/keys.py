"""Commands about keys: a master key in a key file, the KEKs and entries of encryption-keys in a table's metadata, and keys of shares.

A master key and a private key go into their files and nowhere else: not to the terminal, not to a log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from tablecrypt.arguments import file_path
from tablecrypt.cli._framework import OPENS_NONE, Chosen, DocumentedCommand, FilePath, confirm, json_option, run_on
from tablecrypt.cli._output import show
from tablecrypt.cli.operations import Run, command_of
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.errors import ConfigurationError
from tablecrypt.kms.local_file import add_key, add_key_version, create_key_file

DEFAULT_LENGTH: Final = 32
_KEY_FILE: Final = FilePath(dir_okay=False)


@click.command(
    cls=DocumentedCommand,
    takes_no_catalog=OPENS_NONE,
    examples=[
        ("A key for the tables of one team", "tablecrypt keygen --key-file ~/orders.keys --key-id orders"),
        ("A new version of it, which wraps from now on", "tablecrypt keygen --key-file ~/orders.keys --key-id orders --new-version"),
    ],
)
@click.option(
    "--key-file",
    required=True,
    type=_KEY_FILE,
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
    path, version = file_path("the key file", str(key_file)), 1
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


@command_of("rotate_kek")
def rotate_kek(run: Run, chosen: Chosen, columns: bool) -> None:
    """Rotate the KEK of each table that was chosen, or those of its protected columns."""
    run_on(run.settings, chosen, run.prepared("rotate_column_keks" if columns else ""), run.as_json)


@command_of("rewrap")
def rewrap(run: Run, chosen: Chosen, from_key_id: str | None, columns: bool, **options: Any) -> None:
    """Rewrap the KEKs of each table that was chosen, or those of its protected columns."""
    if columns and (from_key_id is not None or options["manifests_below"]):
        raise ConfigurationError(
            "--columns excludes --from-key-id and --manifests-below: column KEKs are wrapped again by the master keys that their entries "
            "name"
        )

    wrap_again = run.prepared("rewrap_column_keks") if columns else run.prepared(from_key_id=from_key_id, **options)
    run_on(run.settings, chosen, wrap_again, run.as_json)


@command_of("rescue")
def rescue(run: Run, table: str, expire_lost: bool, yes: bool, **options: Any) -> None:
    """Bring keys back, after a question where snapshots may be lost."""
    if expire_lost and not run.dry_run:
        confirm(f"Snapshots of {table} whose keys cannot be found will be removed. Continue?", yes)

    run.show(run.settings.table(table), expire_lost=expire_lost, **options)


@click.command(
    cls=DocumentedCommand,
    takes_no_catalog=OPENS_NONE,
    examples=[("A key pair, whose public half you send to whoever shares with you", "tablecrypt share-keygen partner.key")],
)
@click.argument("key_file", metavar="KEY_FILE", type=_KEY_FILE)
@json_option
def share_keygen(key_file: Path, as_json: bool) -> None:
    """Create a key pair to which shares are sealed.

    The private key goes into KEY_FILE, which its owner alone can read, and the public key beside it into a file that ends in .pub. Send the
    public one to whoever shares with you, on a way on which nobody can exchange it, and keep the private one: accept takes it.

    Keys are of ML-KEM-768 and X25519 together, so that a quantum computer that reads what is stored today is of no use.
    """
    from tablecrypt.maintenance.sharing.sealing import create_key_pair

    public_file, public_key = create_key_pair(file_path("the key file", str(key_file)))
    said = f"Created {key_file} and {public_file}. Its fingerprint is {public_key.key_id}: compare it with whoever got the public file."
    show({"key_file": str(key_file), "public_file": str(public_file), "key_id": public_key.key_id}, as_json, said)


@click.command(
    cls=DocumentedCommand,
    examples=[
        (
            "A share of somebody's orders, under your own key",
            "tablecrypt --catalog prod accept s3://partner/orders/metadata/00000-3f0c5a86-6e0f-4c1e-8d1c-2a9a4b3c1d5e.metadata.json "
            "--key-file partner.key --to alias/lake --location s3://lake/shared-orders",
        ),
    ],
    needs="Permission to wrap and unwrap with the master key, to read the share's metadata, and to write at the location.",
)
@click.argument("metadata", metavar="METADATA")
@click.option("--key-file", required=True, type=_KEY_FILE, metavar="FILE", help="The private key, as share-keygen made it.")
@click.option("--to", "to_key_id", required=True, metavar="TEXT", help="Your master key, which opens the share from now on.")
@click.option("--location", required=True, metavar="LOCATION", help="Where the accepted metadata goes: a folder of your own.")
@json_option
@pass_settings
def accept(settings: Settings, metadata: str, key_file: Path, to_key_id: str, location: str, as_json: bool) -> None:
    """Accept a share that was sealed to your public key.

    METADATA is the share's metadata.json, as the one who shares has sent it. New metadata at the location names the same files under your
    own master key: register it in a catalog. The share's files stay where they are. accept-update moves the table to each
    update of the share.
    """
    from tablecrypt.maintenance.sharing.acceptance import accept as accept_share

    properties = {name: str(value) for name, value in settings.kms_properties().items()}
    show(accept_share(metadata, to_key_id, str(key_file), location, properties), as_json)
