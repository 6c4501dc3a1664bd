"""Commands on files without a table: `encrypt-file` and `decrypt-file`, as AGS1 or as Parquet Modular Encryption.

A file is there whole or not at all, and its owner alone can read it (tablecrypt/_atomic_file.py says what a killed process leaves).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import click

from tablecrypt import _magics as magics
from tablecrypt._atomic_file import check_folder_of, named_file
from tablecrypt.cli import file_keys
from tablecrypt.cli._framework import DocumentedCommand, FilePath, dry_run_option, json_option
from tablecrypt.cli._output import show
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.errors import ConfigurationError
from tablecrypt.printable import bytes_shown

if TYPE_CHECKING:
    from pyiceberg.io import OutputStream

    from tablecrypt.crypto.key_metadata import StandardKeyMetadata

_COPIED: Final = 4 * 1024 * 1024


@click.command(
    "encrypt-file",
    cls=DocumentedCommand,
    examples=[
        ("Under a key of a key file", "tablecrypt encrypt-file rows.parquet rows.enc.parquet --key-file orders.keys --key-id orders"),
        ("From another program", "pg_dump orders | tablecrypt encrypt-file - dump.sql.ags1 --key-file orders.keys --key-id orders"),
        (
            "Under a key of AWS KMS",
            "tablecrypt -p encryption.kms-type=aws -p client.region=eu-central-1 encrypt-file a.bin a.ags1 --key-id alias/orders",
        ),
    ],
    needs="Permission to wrap with the master key.",
)
@click.argument("source", type=FilePath(exists=True, dir_okay=False, allow_dash=True))
@click.argument("target", type=FilePath(dir_okay=False))
@file_keys.key_options
@click.option("--format", "file_format", type=click.Choice(["auto", "parquet", "ags1"]), default="auto", show_default=True)
@click.option(
    "--data-key-length", type=click.Choice([16, 24, 32]), default=32, show_default=True, help="Length of the file's key in bytes."
)
@click.option("--force", is_flag=True, help="Replace TARGET and its key.")
@dry_run_option
@json_option
@pass_settings
def encrypt_file(
    settings: Settings,
    source: Path,
    target: Path,
    key_file: Path | None,
    key_id: str | None,
    file_format: str,
    data_key_length: int,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Encrypt one file.

    A Parquet SOURCE is encrypted module by module, without decoding a value, and stays a Parquet file. Any other file becomes an AGS1
    stream, as does a pipe; SOURCE - is stdin. The file's fresh key is written to TARGET.key.json, wrapped under the master key: keep both
    files. SOURCE does not change.
    """
    if str(source) == "-":
        # What is opened next would get the number of a closed stdin, and be encrypted in its place.
        if sys.stdin is None:
            raise ConfigurationError("the source is -, and stdin is closed: pipe the file in, or name it")
        source = Path("/dev/stdin")
    _check_target(target, {"the source": source, "the key file": key_file})
    # Parquet is read from its end, and a pipe has none yet.
    if file_format == "parquet" and not source.is_file():
        raise ConfigurationError(f"{source} is a pipe, which a Parquet file cannot be read from: leave out --format parquet")

    as_parquet = file_format == "parquet" or (file_format == "auto" and _begins_as_parquet(source))
    described = {
        "source": str(source),
        "target": str(target),
        "key": str(file_keys.key_path(target)),
        "format": "parquet" if as_parquet else "ags1",
    }
    keys = file_keys.manager(settings, key_file, key_id, data_key_length)
    if dry_run:
        size = source.stat().st_size
        show({**described, "bytes": size}, as_json, f"Would encrypt {source} ({bytes_shown(size)}) into {target}.")
        return

    key_metadata = keys.new_key_metadata()
    # Both are whole before either gets its name: where the key cannot be wrapped, no file is left that nothing opens.
    with _new_file(file_keys.key_path(target), force) as key_sink, _new_file(target, force) as sink:
        length = (_encrypt_parquet if as_parquet else _encrypt_stream)(source, sink, key_metadata)
        key_sink.write(file_keys.key_json(keys, key_metadata.with_file_length(length)).encode())
        # In a buffer it is not written: on a full disk the target would get its name without it.
        key_sink.flush()
    said = f"Encrypted {source} into {target} ({bytes_shown(length)}). Its key is in {described['key']}: keep both files."
    show({**described, "bytes": length}, as_json, said)


@click.command(
    "decrypt-file",
    cls=DocumentedCommand,
    examples=[
        ("With a key file", "tablecrypt decrypt-file rows.enc.parquet rows.parquet --key-file orders.keys --key-id orders"),
        ("Into another program", "tablecrypt decrypt-file dump.sql.ags1 - --key-file orders.keys --key-id orders | psql"),
    ],
    needs="Permission to unwrap with the master key, and the .key.json file that encrypt-file left beside SOURCE.",
)
@click.argument("source", type=FilePath(exists=True, dir_okay=False))
@click.argument("target", type=FilePath(dir_okay=False))
@file_keys.key_options
@click.option("--force", is_flag=True, help="Replace TARGET.")
@dry_run_option
@json_option
@pass_settings
def decrypt_file(
    settings: Settings, source: Path, target: Path, key_file: Path | None, key_id: str | None, force: bool, dry_run: bool, as_json: bool
) -> None:
    """Decrypt one file.

    SOURCE is a file that encrypt-file made, with SOURCE.key.json beside it. TARGET gets its name only after every byte of SOURCE has been
    authenticated, and only its owner may read it. If TARGET is -, the plaintext goes to stdout, each part after it has been authenticated:
    the output is authentic, but complete only if the exit code is 0.
    """
    to_stdout = str(target) == "-"
    if to_stdout and as_json and not dry_run:
        raise ConfigurationError("--json says on stdout what became of TARGET, and with - the plaintext goes there: leave one out")
    if not to_stdout:
        _check_target(target, {"the source": source, "the source's key": file_keys.key_path(source), "the key file": key_file})
    key_metadata = file_keys.read_key(file_keys.manager(settings, key_file, key_id), file_keys.key_path(source))
    described = {"source": str(source), "target": str(target)}
    # After the key is opened, so that a dry run meets what would refuse the decryption.
    if dry_run:
        size = source.stat().st_size
        show({**described, "bytes": size}, as_json, f"Would decrypt {source} ({bytes_shown(size)}) into {target}.")
        return

    with _stdout() if to_stdout else _new_file(target, force) as sink:
        _decrypt(source, sink, key_metadata)
    if to_stdout:
        return

    size = target.stat().st_size
    show({**described, "bytes": size}, as_json, f"Decrypted {source} into {target} ({bytes_shown(size)}).")


def _begins_as_parquet(source: Path) -> bool:
    # Of a pipe the first bytes can be read once only: they are the stream's.
    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(4) == magics.PARQUET


def _encrypt_parquet(source: Path, sink: BinaryIO, key_metadata: StandardKeyMetadata) -> int:
    from tablecrypt import parquet

    return parquet.encrypt(str(source), sink, parquet.FileKeys.of_table_file(key_metadata), location=str(source))


def _encrypt_stream(source: Path, sink: BinaryIO, key_metadata: StandardKeyMetadata) -> int:
    from tablecrypt.files.ags1_streams import Ags1OutputStream

    with source.open("rb") as plaintext, Ags1OutputStream(cast("OutputStream", sink), key_metadata) as stream:
        shutil.copyfileobj(plaintext, stream, _COPIED)
    return stream.file_length


def _decrypt(source: Path, sink: BinaryIO, key_metadata: StandardKeyMetadata) -> None:
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


def _check_target(target: Path, kept: Mapping[str, Path | None]) -> None:
    """Refuse a target that is no file of its own.

    Args:
        target: what is to be written; beside it, the file of its key may be.
        kept: what neither of them may replace, by what people call it.

    Raises:
        ConfigurationError: it is - or one of `kept`, or in a folder that is not there or cannot be written to.
    """
    if str(target) == "-":
        raise ConfigurationError("- is not a file: name a file, since the key of an encrypted file is stored beside it")
    check_folder_of(target)
    # Through links as well: the source is read while the target is written.
    for written, (what, file) in product((target, file_keys.key_path(target)), kept.items()):
        if file is not None and file.exists() and written.exists() and written.samefile(file):
            raise ConfigurationError(f"{written} is {what}, which stays as it is: name another file")


@contextmanager
def _stdout() -> Iterator[BinaryIO]:
    """Yield stdout for the bytes of a file.

    Raises:
        ConfigurationError: it is a terminal, which would obey what is in the file.
    """
    if sys.stdout.isatty():
        raise ConfigurationError("stdout is a terminal: send it to a file or a program")
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


@contextmanager
def _new_file(path: Path, replace: bool) -> Iterator[BinaryIO]:
    """Yield an open file that its owner alone can read, and that gets its name when it is whole.

    Raises:
        ConfigurationError: there is one of that name, and `replace` is not set.
    """
    try:
        with named_file(path, replace=replace) as file:
            yield file
    except FileExistsError as error:
        raise ConfigurationError(f"{path} exists already: name another file, or add --force") from error
