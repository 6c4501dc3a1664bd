"""`tablecrypt keygen`: a master key for the local key management client (encryption.kms-type=local).

The key goes into the key file and nowhere else: not to the terminal, not to a log.
"""

from __future__ import annotations

from pathlib import Path

import click

from tablecrypt.cli.options import json_option
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb
from tablecrypt.kms.key_file import add_key, create_key_file


@click.command(
    cls=Verb,
    examples=[("A key for the tables of one team", "tablecrypt keygen --key-file ~/keys.json --key-id orders")],
)
@click.option(
    "--key-file", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Key file; made with mode 0600 if it is not there."
)
@click.option("--key-id", required=True, help="Name of the key: what a table's encryption.key-id says.")
@click.option("--length", default=32, show_default=True, type=click.Choice([16, 24, 32]), help="Length of the key in bytes.")
@json_option
def keygen(key_file: Path, key_id: str, length: int, as_json: bool) -> None:
    """Make a master key in a key file.

    The key is random, and for the key service that is a file: encryption.kms-type=local. The file is made where there is none.

    Keep a copy of the file in a safe place: without it, every table under its keys is lost.
    """
    path = key_file.expanduser()
    if path.exists():
        add_key(path, key_id, length)
    else:
        create_key_file(path, key_id, length)
    show({"key_id": key_id, "key_file": str(path)}, as_json)
