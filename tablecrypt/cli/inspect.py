"""`tablecrypt inspect`: the structure of a table or a file, without its rows and without a key byte.

Of an AGS1 stream it shows the blocks, of a Parquet file the modules.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tablecrypt import _magics as magics
from tablecrypt import parquet
from tablecrypt._bytes import length_of
from tablecrypt._magics import looks_like
from tablecrypt.cli import file_keys
from tablecrypt.cli._output import show
from tablecrypt.cli.operations import Run, command_of
from tablecrypt.cli.settings import Settings
from tablecrypt.crypto import ags1
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.parquet.inspection import ModuleInspection


@command_of("inspect", file_keys.key_options)
def inspect(run: Run, source: str, location: str | None, key_file: Path | None, key_id: str | None) -> None:
    """Show the structure of a table, of a file of it, or of a file by its path."""
    if "/" not in source:
        file_keys.check_unused(key_file, key_id)
        show(_layers_of_table(run.settings, source) if location is None else _file_of_table(run.settings, source, location), run.as_json)
        return
    if location is not None:
        raise ConfigurationError("--file is for tables")

    path = file_keys.present(source)
    # A key file alone opens nothing: `manager` asks for the key's id.
    has_key = key_file is not None or key_id is not None
    key_metadata = file_keys.read_key(file_keys.manager(run.settings, key_file, key_id), file_keys.key_path(path)) if has_key else None
    with path.open("rb") as raw:
        keys = None if key_metadata is None else file_keys.parquet_keys(key_metadata)
        show(file_layers(raw, source, key_metadata, keys), run.as_json)


def _layers_of_table(settings: Settings, name: str) -> dict[str, Any]:
    from tablecrypt.maintenance import inspect as layers_of

    return layers_of(settings.table(name))


def _file_of_table(settings: Settings, name: str, location: str) -> dict[str, Any]:
    from tablecrypt.files.encrypting_file_io import refuse_restricted
    from tablecrypt.maintenance.columns.verification import hidden_column_keys
    from tablecrypt.maintenance.reachable import reachable_files
    from tablecrypt.parquet import FileKeys
    from tablecrypt.table.table import EncryptedTable
    from tablecrypt.table.table_files import TableFileIO

    table = settings.table(name)
    if not isinstance(table, EncryptedTable) or not isinstance(table.io, TableFileIO):
        raise ConfigurationError(f"{name} is not an encrypted table")

    # Keys and bounds of single files are more than a REST server's restrictions let this user see.
    refuse_restricted(table.io, "inspect --file")
    # The key comes from the table's manifests: a location alone opens nothing, and none outside of the table is read.
    file = reachable_files(table.metadata, table.io).files.get(location)
    if file is None:
        raise ConfigurationError(f"no snapshot of {name} leads to {location}")

    with table.io.raw_input(location).open() as raw:
        keys = (
            None
            if file.key is None
            else FileKeys.of_table_file(file.key, hidden_column_keys(table, file.key, location, file.sequence_number))
        )
        return {
            "kind": file.kind.value,
            "partition": file.partition,
            "keks": sorted(file.keks),
            **file_layers(raw, location, file.key, keys),
        }


def file_layers(raw: Any, location: str, key_metadata: StandardKeyMetadata | None, keys: parquet.FileKeys | None) -> dict[str, Any]:
    """Return the layers of a file, as JSON's types.

    Args:
        raw: the stored bytes, seekable.
        location: names the file.
        key_metadata: its key, to say how long it is and what goes with it; None: only what can be seen without one.
        keys: the same as keys of a Parquet file, to look inside.

    Raises:
        FormatError: it is neither an AGS1 stream nor Parquet.
        TamperedFileError, KeyMismatchError, PlaintextRefusedError: it is not what it should be.
    """
    length = length_of(raw)
    raw.seek(0)
    head = raw.read(ags1.HEADER_LENGTH)
    described = {"file": location, "bytes": length, **_key(key_metadata)}
    if head.startswith(ags1.MAGIC):
        # Before blocks are counted: their length is what the header says.
        ags1.check_header(head, location)
        return {**described, **_ags1_layers(length, location)}
    if head.startswith((magics.ENCRYPTED_PARQUET, magics.PARQUET)):
        raw.seek(0)
        return {**described, "format": "Parquet", **_parquet_layers(raw, location, keys)}

    raise FormatError(f"{location}: {looks_like(head)}: it is neither an AGS1 stream nor a Parquet file")


def _key(key_metadata: StandardKeyMetadata | None) -> dict[str, Any]:
    if key_metadata is None:
        return {}
    return {
        "key_length": len(key_metadata.encryption_key),
        "aad_prefix_length": len(key_metadata.aad_prefix),
        "trusted_length": key_metadata.file_length,
    }


def _ags1_layers(length: int, location: str) -> dict[str, Any]:
    try:
        plaintext = ags1.plaintext_length(length)
    except FormatError as impossible:
        raise FormatError(f"{location}: {impossible}") from None

    blocks = ags1.block_count(plaintext)
    return {
        "format": "AGS1",
        "plaintext_bytes": plaintext,
        "blocks": blocks,
        "block_length": ags1.BLOCK_LENGTH,
        "last_block_offset": ags1.block_offset(blocks - 1),
        "last_block_length": ags1.block_plaintext_length(blocks - 1, plaintext),
    }


def _parquet_layers(raw: Any, location: str, keys: parquet.FileKeys | None) -> dict[str, Any]:
    found = parquet.inspect(raw, keys, location=location)
    columns = [
        {"row_group": group.ordinal, "column": chunk.path, "key": chunk.key, "locked": chunk.locked, "modules": _modules(chunk.modules)}
        for group in found.row_groups or ()
        for chunk in group.chunks
    ]
    return {
        "footer": found.footer,
        "algorithm": found.algorithm,
        "needs_aad_prefix": found.needs_aad_prefix,
        "footer_modules": _modules(found.footer_modules),
        "columns": columns,
    }


def _modules(modules: tuple[ModuleInspection, ...]) -> list[dict[str, Any]]:
    return [
        {"type": each.type, "page": each.page, "offset": each.offset, "size": each.size, "cipher": each.cipher, "key": each.key}
        for each in modules
    ]
