"""`tablecrypt hadoop-kms-token`: the proof of a user of `hadoop-kms` who has no client certificate.

The token goes into a file of mode 0600 and nowhere else: not to the terminal, not to a log.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from tablecrypt.cli.options import json_option
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb
from tablecrypt.errors import ConfigurationError


@click.command(
    cls=Verb,
    examples=[
        ("A token", "tablecrypt hadoop-kms-token --token-file etl.token"),
        ("Where it goes", "hadoop.security.key.provider.path=kms://https@kms.example.org:9600/token/<token>/kms"),
    ],
)
@click.option("--token-file", required=True, type=click.Path(dir_okay=False, path_type=Path), help="A file that is not there yet.")
@json_option
def hadoop_kms_token(token_file: Path, as_json: bool) -> None:
    """Make a token for a user of hadoop-kms.

    Prints the token's hash, which belongs into the allow list: [users.NAME] token-sha256 = ["..."]. Who has the token is that user: it
    stands in Spark's settings, so use it over TLS, and client certificates where many people can see those.
    """
    from tablecrypt.hadoop_kms.access import new_token, token_hash

    token = new_token()
    try:
        descriptor = os.open(token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(f"the token file {token_file} cannot be made ({error.strerror})") from error
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    show({"token_sha256": token_hash(token), "token_file": str(token_file)}, as_json)
