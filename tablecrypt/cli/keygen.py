"""`tablecrypt keygen`: a master key for the local key management client (encryption.kms-type=local).

The key goes into the key file and nowhere else: not to the terminal, not to a log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from tablecrypt.cli.options import json_option
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb
from tablecrypt.errors import ConfigurationError
from tablecrypt.kms.local_file import add_key, add_key_version, create_key_file

DEFAULT_LENGTH: Final = 32


@click.command(
    cls=Verb,
    examples=[
        ("A key for the tables of one team", "tablecrypt keygen --key-file ~/keys.json --key-id orders"),
        ("A new version of it, which wraps from now on", "tablecrypt keygen --key-file ~/keys.json --key-id orders --new-version"),
    ],
)
@click.option(
    "--key-file", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Key file; made with mode 0600 if it is not there."
)
@click.option("--key-id", required=True, help="Name of the key: what a table's encryption.key-id says.")
@click.option("--length", type=click.Choice([16, 24, 32]), help="Length of a new key in bytes; 32 unless given.")
@click.option("--new-version", is_flag=True, help="Add a version to a key that the file has, of the same length.")
@json_option
def keygen(key_file: Path, key_id: str, length: int | None, new_version: bool, as_json: bool) -> None:
    """Make a master key in a key file.

    The key is random, and for the key service that is a file: encryption.kms-type=local. The file is made where there is none.

    With --new-version the key gets another version. The newest version wraps; all of them unwrap, so tables written before still open.
    tablecrypt rewrap has a table's KEKs wrapped by the newest version.

    Keep a copy of the file in a safe place, anew after each change: without it, every table under its keys is lost.
    """
    path, version = key_file.expanduser(), 1
    if new_version and length is not None:
        raise ConfigurationError("--length belongs to a new key: a new version is as long as the key is")
    if new_version:
        version = add_key_version(path, key_id)
    elif path.exists():
        add_key(path, key_id, length or DEFAULT_LENGTH)
    else:
        create_key_file(path, key_id, length or DEFAULT_LENGTH)
    show({"key_id": key_id, "version": version, "key_file": str(path)}, as_json)
