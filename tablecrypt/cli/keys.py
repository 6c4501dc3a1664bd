"""Commands about keys: a master key in a key file, and the KEKs and entries of encryption-keys in a table's metadata.

A master key goes into the key file and nowhere else: not to the terminal, not to a log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from tablecrypt.cli._framework import Chosen, DocumentedCommand, confirm, json_option, run_on
from tablecrypt.cli._output import show
from tablecrypt.cli.operations import Run, command_of
from tablecrypt.errors import ConfigurationError
from tablecrypt.kms.local_file import add_key, add_key_version, create_key_file

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


@command_of("rotate_kek")
def rotate_kek(run: Run, chosen: Chosen, columns: bool) -> None:
    """Rotate the KEK of each table that was chosen, or those of its protected columns."""
    run_on(run.settings, chosen, run.prepared("rotate_column_keks" if columns else ""), run.as_json)


@command_of("rewrap")
def rewrap(run: Run, chosen: Chosen, from_key_id: str | None, columns: bool, **options: Any) -> None:
    """Rewrap the KEKs of each table that was chosen, or those of its protected columns."""
    if columns and from_key_id is not None:
        raise ConfigurationError(
            "--columns excludes --from-key-id: column KEKs are wrapped again by the master keys that their entries name"
        )

    wrap_again = run.prepared("rewrap_column_keks") if columns else run.prepared(from_key_id=from_key_id, **options)
    run_on(run.settings, chosen, wrap_again, run.as_json)


@command_of("rescue")
def rescue(run: Run, table: str, expire_lost: bool, yes: bool, **options: Any) -> None:
    """Bring keys back, after a question where snapshots may be lost."""
    if expire_lost and not run.dry_run:
        confirm(f"Snapshots of {table} whose keys cannot be found will be removed. Continue?", yes)

    run.show(run.settings.table(table), expire_lost=expire_lost, **options)
