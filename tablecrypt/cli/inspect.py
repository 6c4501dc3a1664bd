"""`tablecrypt inspect`: how a table or a file is put together, without its rows and without a key byte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tablecrypt.cli import file_keys
from tablecrypt.cli.options import json_option
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb
from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    from tablecrypt.crypto.key_metadata import StandardKeyMetadata
    from tablecrypt.parquet import FileKeys


@click.command(
    cls=Verb,
    examples=[
        ("A table's keys, snapshots and files", "tablecrypt --catalog prod inspect db.orders"),
        (
            "One file of a table, with the key that the table has for it",
            "tablecrypt --catalog prod inspect db.orders --file s3://…/a.parquet",
        ),
        ("A file, by what it says without a key", "tablecrypt inspect ./rows.enc.parquet"),
        ("A file that encrypt-file made", "tablecrypt inspect ./rows.enc.parquet --key-file keys.json --key-id orders"),
    ],
    needs="For a table, permission to unwrap with its master key, and to read its metadata and manifests. For a file alone, none.",
)
@click.argument("source", metavar="TABLE|FILE")
@click.option("--file", "location", metavar="LOCATION", help="Show this file of the table.")
@file_keys.key_options
@json_option
@pass_settings
def inspect(settings: Settings, source: str, location: str | None, key_file: Path | None, key_id: str | None, as_json: bool) -> None:
    """Show how a table or a file is put together.

    What holds a / is a FILE, anything else a TABLE of the catalog. Of a table: its keys and what each opens, snapshots, and how many files
    of which kind there are. Of a file: AGS1 blocks, or Parquet modules; with its key also what the footer says. Key bytes are never shown.
    """
    if "/" not in source:
        show(_table(settings, source) if location is None else _file_of_table(settings, source, location), as_json)
        return
    if location is not None:
        raise ConfigurationError("--file is for tables")
    path = Path(source)
    key_metadata = file_keys.opened(file_keys.manager(settings, key_file, key_id), file_keys.key_path(path)) if key_id else None
    with path.open("rb") as raw:
        keys = None if key_metadata is None else file_keys.parquet_keys(key_metadata)
        show(_file(raw, source, key_metadata, keys), as_json)


def _table(settings: Settings, name: str) -> dict[str, Any]:
    from tablecrypt.maintenance import inspect as layers_of

    return layers_of(settings.table(name))


def _file_of_table(settings: Settings, name: str, location: str) -> dict[str, Any]:
    from tablecrypt.maintenance.reachable import reachable_files
    from tablecrypt.parquet import FileKeys
    from tablecrypt.table.encrypted_table import EncryptedTable
    from tablecrypt.table.read_restrictions import refuse_restricted
    from tablecrypt.table.table_file_io import TableFileIO

    table = settings.table(name)
    if not isinstance(table, EncryptedTable) or not isinstance(table.io, TableFileIO):
        raise ConfigurationError(f"{name} is not an encrypted table")
    refuse_restricted(table.io, "inspect --file")
    file = reachable_files(table.metadata, table.io).files.get(location)
    if file is None:
        raise ConfigurationError(f"no snapshot of {name} leads to {location}")
    with table.io.raw_input(location).open() as raw:
        keys = None if file.key is None else FileKeys.of_table_file(file.key)
        return {"kind": file.kind.value, "partition": file.partition, "keks": sorted(file.keks), **_file(raw, location, file.key, keys)}


def _file(raw: Any, location: str, key_metadata: StandardKeyMetadata | None, keys: FileKeys | None) -> dict[str, Any]:
    from tablecrypt.cli.file_layers import file_layers

    return file_layers(raw, location, key_metadata, keys)
