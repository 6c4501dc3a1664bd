"""`tablecrypt encrypt-file`: one file, as AGS1 or as Parquet Modular Encryption, with its wrapped key beside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from tablecrypt.cli import file_keys
from tablecrypt.cli.options import dry_run_option, json_option
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb
from tablecrypt.cli.whole_file import check_target, whole_file
from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    from pyiceberg.io import OutputStream

    from tablecrypt.crypto.key_metadata import StandardKeyMetadata

_COPIED = 4 * 1024 * 1024


@click.command(
    "encrypt-file",
    cls=Verb,
    examples=[
        ("Under a key of a key file", "tablecrypt encrypt-file rows.parquet rows.enc.parquet --key-file keys.json --key-id orders"),
        ("From another program", "pg_dump orders | tablecrypt encrypt-file - dump.sql.ags1 --key-file keys.json --key-id orders"),
        (
            "Under a key of AWS KMS",
            "tablecrypt -p encryption.kms-type=aws -p client.region=eu-central-1 encrypt-file a.bin a.ags1 --key-id alias/orders",
        ),
    ],
    needs="Permission to wrap with the master key.",
)
@click.argument("source", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@file_keys.key_options
@click.option("--format", "file_format", type=click.Choice(["auto", "parquet", "ags1"]), default="auto", show_default=True)
@click.option("--data-key-length", type=click.Choice([16, 24, 32]), default=32, show_default=True, help="Bytes of the file's key.")
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

    A Parquet SOURCE is encrypted module by module, without decoding a value, and stays a Parquet file; any other, and what comes through
    a pipe, becomes an AGS1 stream; - as SOURCE is stdin. Its fresh key is written beside TARGET, as TARGET.key.json, wrapped under the
    master key: keep both. SOURCE stays as it is.
    """
    source = Path("/dev/stdin") if str(source) == "-" else source
    check_target(source, target)
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
        show({**described, "bytes": source.stat().st_size}, as_json)
        return
    key_metadata = keys.new_key_metadata()
    with whole_file(file_keys.key_path(target), force) as key_sink, whole_file(target, force) as sink:
        length = (_encrypt_parquet if as_parquet else _encrypt_stream)(source, sink, key_metadata)
        key_sink.write(file_keys.sealed(keys, key_metadata.with_file_length(length)).encode())
    show({**described, "bytes": length}, as_json)


def _begins_as_parquet(source: Path) -> bool:
    # Of a pipe the first bytes can be read once only: they are the stream's.
    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(4) == b"PAR1"


def _encrypt_parquet(source: Path, sink: BinaryIO, key_metadata: StandardKeyMetadata) -> int:
    from tablecrypt import parquet

    return parquet.encrypt(str(source), sink, parquet.FileKeys.of_table_file(key_metadata), location=str(source))


def _encrypt_stream(source: Path, sink: BinaryIO, key_metadata: StandardKeyMetadata) -> int:
    from tablecrypt.files.ags1_writer import Ags1OutputStream

    with source.open("rb") as plaintext, Ags1OutputStream(cast("OutputStream", sink), key_metadata) as stream:
        shutil.copyfileobj(plaintext, stream, _COPIED)
    return stream.file_length
