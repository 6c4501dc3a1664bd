"""`tablecrypt cat`: rows of a table, or of a file that encrypt-file made, on stdout."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tablecrypt.cli import file_keys
from tablecrypt.cli._framework import DocumentedCommand
from tablecrypt.cli._rows import ROW_FORMATS, print_rows
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

    from tablecrypt.crypto.key_metadata import StandardKeyMetadata

_COPIED = 1024 * 1024
_MOST_ROWS = 2**63 - 1


@click.command(
    cls=DocumentedCommand,
    examples=[
        (
            "Some columns of some rows",
            "tablecrypt --catalog prod cat db.orders --columns id,total --where \"region = 'north'\" --limit 20",
        ),
        ("A table as it was", "tablecrypt --catalog prod cat db.orders --snapshot 4358109269873137077 --format json"),
        ("Values or nothing of protected columns", "tablecrypt --catalog prod cat db.people --masked error"),
        ("A Parquet file", "tablecrypt cat ./rows.enc.parquet --key-file orders.keys --key-id orders"),
    ],
    needs="Permission to unwrap with the master key, and to read the table's files.",
)
@click.argument("source", metavar="TABLE|FILE")
@click.option("--columns", metavar="A,B,…", help="Only these columns, in this order.")
@click.option("--where", metavar="FILTER", help="Only rows that pass this filter; tables only.")
@click.option("--limit", type=click.IntRange(0, _MOST_ROWS), metavar="N", help="At most this many rows.")
@click.option("--snapshot", type=int, metavar="ID", help="The table as it was at this snapshot.")
@click.option(
    "--masked",
    type=click.Choice(("mask", "error")),
    help="What to do with protected columns whose keys you may not use: print their masks, or refuse; by default what the catalog says.",
)
@click.option(
    "--format",
    "row_format",
    type=click.Choice(ROW_FORMATS),
    help="By default a table on a terminal, in which long values are cut, and csv elsewhere. json prints one object per line.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@file_keys.key_options
@pass_settings
def cat(
    settings: Settings,
    source: str,
    columns: str | None,
    where: str | None,
    limit: int | None,
    snapshot: int | None,
    masked: str | None,
    row_format: str | None,
    as_json: bool,
    key_file: Path | None,
    key_id: str | None,
) -> None:
    """Print rows of a table or a file.

    An argument that contains a / is the path of a FILE; anything else is the name of a TABLE of the catalog. A file needs the .key.json
    that encrypt-file left beside it; an AGS1 file is printed as the bytes it holds. Everything is authenticated before it is printed. The
    output is plaintext.
    """
    names = None if columns is None else [each.strip() for each in columns.split(",")]
    wanted = "json" if as_json else row_format
    if as_json and row_format not in (None, "json"):
        raise ConfigurationError(f"--json and --format {row_format} exclude each other")
    if "/" not in source:
        file_keys.check_unused(key_file, key_id)
        print_rows(_table_rows(settings, source, names, where, limit, snapshot, masked), wanted)
        return
    if where is not None or snapshot is not None or masked is not None:
        raise ConfigurationError("--where, --snapshot and --masked are for tables")

    path = file_keys.present(source)
    key_metadata = file_keys.read_key(file_keys.manager(settings, key_file, key_id), file_keys.key_path(path))
    _print_file(path, key_metadata, names, limit, wanted)


def _table_rows(
    settings: Settings,
    name: str,
    columns: list[str] | None,
    row_filter: str | None,
    limit: int | None,
    snapshot: int | None,
    masked: str | None,
) -> pa.RecordBatchReader:
    given = {"row_filter": row_filter, "masked": masked}
    chosen: dict[str, Any] = {option: value for option, value in given.items() if value is not None}
    selected = ("*",) if columns is None else tuple(columns)
    from pyparsing import ParseBaseException

    table = settings.table(name)

    try:
        rows = table.scan(selected_fields=selected, limit=limit, snapshot_id=snapshot, **chosen).to_arrow_batch_reader()
    # PyIceberg's parser says at which character it stopped, which helps less than an example.
    except ParseBaseException as wrong:
        raise ConfigurationError(f"{row_filter!r} is not a filter; a valid one is: region = 'north' and total > 3") from wrong
    except ConfigurationError:
        raise
    except TypeError as wrong:
        raise ConfigurationError(f"{row_filter!r} does not fit {name}: {wrong}") from wrong
    except ValueError as wrong:
        advice = (
            "tablecrypt inspect lists its snapshots"
            if snapshot is not None
            else f"its columns are {', '.join(table.schema().column_names)}"
        )
        said = str(wrong).removesuffix(", case_sensitive=True")
        raise ConfigurationError(f"{name}: {said}; {advice}") from wrong

    return rows if columns is None else _in_order(rows, columns)


def _in_order(rows: pa.RecordBatchReader, columns: list[str]) -> pa.RecordBatchReader:
    """Return rows with the columns in the order in which they are named, each once: a field is a part of its column, and * is all."""
    import pyarrow as pa

    names = rows.schema.names
    order = list(dict.fromkeys(column for each in columns for column in (names if each == "*" else [_column_of(each, names)])))
    schema = pa.schema([rows.schema.field(name) for name in order])

    return pa.RecordBatchReader.from_batches(schema, (batch.select(order) for batch in rows))


def _column_of(name: str, columns: list[str]) -> str:
    """Return the column that a name means, or that holds the field which it means."""
    return max((each for each in columns if name == each or name.startswith(f"{each}.")), key=len)


def _print_file(
    path: Path, key_metadata: StandardKeyMetadata, columns: list[str] | None, limit: int | None, row_format: str | None
) -> None:
    if file_keys.begins_as_encrypted_parquet(path):
        from tablecrypt import parquet

        rows = parquet.read_table(str(path), file_keys.parquet_keys(key_metadata), columns=columns)
        print_rows((rows if limit is None else rows.slice(0, limit)).to_reader(), row_format)
        return

    if columns is not None or limit is not None or row_format is not None:
        raise ConfigurationError(f"{path} is an AGS1 file, which has bytes and not rows: leave out --columns, --limit, --format and --json")

    with file_keys.opened_stream(path, key_metadata) as stream:
        shutil.copyfileobj(stream, sys.stdout.buffer, _COPIED)
    sys.stdout.buffer.flush()
