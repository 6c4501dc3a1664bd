"""`tablecrypt decrypt-file`: the plaintext of a file that encrypt-file made."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from tablecrypt.cli import file_keys
from tablecrypt.cli.options import dry_run_option, json_option
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb
from tablecrypt.cli.whole_file import check_target, stdout_sink, whole_file

if TYPE_CHECKING:
    from tablecrypt.crypto.key_metadata import StandardKeyMetadata

_COPIED = 4 * 1024 * 1024


@click.command(
    "decrypt-file",
    cls=Verb,
    examples=[
        ("With a key file", "tablecrypt decrypt-file rows.enc.parquet rows.parquet --key-file keys.json --key-id orders"),
        ("Into another program", "tablecrypt decrypt-file dump.sql.ags1 - --key-file keys.json --key-id orders | psql"),
    ],
    needs="Permission to unwrap with the master key, and the .key.json file that encrypt-file left beside SOURCE.",
)
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@file_keys.key_options
@click.option("--force", is_flag=True, help="Replace TARGET.")
@dry_run_option
@json_option
@pass_settings
def decrypt_file(
    settings: Settings, source: Path, target: Path, key_file: Path | None, key_id: str | None, force: bool, dry_run: bool, as_json: bool
) -> None:
    """Decrypt one file.

    SOURCE is a file that encrypt-file made, with SOURCE.key.json beside it. TARGET gets its name only after every byte of SOURCE has
    authenticated, and only its owner may read it. With - as TARGET the plaintext goes to stdout, each part after it has authenticated: what
    comes out is authentic, and whole only if the exit code is 0.
    """
    to_stdout = str(target) == "-"
    if not to_stdout:
        check_target(source, target)
    key_metadata = file_keys.opened(file_keys.manager(settings, key_file, key_id), file_keys.key_path(source))
    described = {"source": str(source), "target": str(target)}
    if dry_run:
        show({**described, "bytes": source.stat().st_size}, as_json)
        return
    with stdout_sink() if to_stdout else whole_file(target, force) as sink:
        decrypt_to(source, sink, key_metadata)
    if to_stdout:
        return
    show({**described, "bytes": target.stat().st_size}, as_json)


def decrypt_to(source: Path, sink: BinaryIO, key_metadata: StandardKeyMetadata) -> None:
    """Write the plaintext of an encrypted file, Parquet or AGS1.

    Raises:
        KeyMismatchError: the key opens nothing of the file.
        TamperedFileError: the file is not what was encrypted. What was written before is authentic, and not whole.
        FormatError: the file is empty, or of another format.
    """
    if file_keys.begins_as_encrypted_parquet(source):
        from tablecrypt import parquet

        parquet.decrypt(str(source), sink, file_keys.parquet_keys(key_metadata), location=str(source))
        return
    with file_keys.opened_stream(source, key_metadata) as stream:
        shutil.copyfileobj(stream, sink, _COPIED)
