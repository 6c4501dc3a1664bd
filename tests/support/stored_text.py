"""All that anybody with a table's master key can read in storage, as text: what an erased value must not be in.

Every metadata file that is stored is tried, whether a catalog or a log names it or not: its snapshots' manifest lists, manifests, data and
delete files are decrypted by the keys that the file still holds. What is not encrypted, and the names of files and folders, count too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyiceberg.table import Table

from tablecrypt.errors import AuthenticationError, FormatError, KeyNotFoundError, PlaintextRefusedError
from tablecrypt.manifests import EncryptedManifestFile
from tablecrypt.manifests.records import is_deletion_vector
from tablecrypt.parquet.uniform import ReadRequest
from tablecrypt.table.data_file_reader import opened_file
from tablecrypt.table.metadata import EncryptedTableMetadata, read_metadata_file
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO

_CLOSED = (AuthenticationError, FormatError, KeyNotFoundError, PlaintextRefusedError, FileNotFoundError)


def readable_text(table: Table, folder: Path) -> Iterator[str]:
    """Yield all text that is stored below a folder or can be decrypted from there.

    Args:
        table: gives the master key, and nothing else.
        folder: of the table.
    """
    assert isinstance(table, EncryptedTable)
    io = table.io
    assert isinstance(io, TableFileIO)
    for path in folder.rglob("*"):
        yield str(path.relative_to(folder))
        if path.is_file():
            yield path.read_bytes().decode("latin-1")
    for path in folder.rglob("*.metadata.json*"):
        with suppress(*_CLOSED, ValueError):
            metadata = read_metadata_file(io.inner.new_input(f"file://{path}")).parse()
            if isinstance(metadata, EncryptedTableMetadata):
                yield from _opened(metadata, io)


def _opened(metadata: EncryptedTableMetadata, io: TableFileIO) -> Iterator[str]:
    for snapshot in metadata.snapshots:
        with suppress(*_CLOSED):
            for manifest in snapshot.manifests(io):
                yield repr(manifest.partitions)
                with suppress(*_CLOSED):
                    yield from _entries(EncryptedManifestFile.of(manifest), io)


def _entries(manifest: EncryptedManifestFile, io: TableFileIO) -> Iterator[str]:
    for entry in manifest.read(io).entries:
        file = entry.data_file
        yield f"{file.file_path} {file.lower_bounds} {file.upper_bounds} {file.partition}"
        if is_deletion_vector(file) or not file.key_metadata:
            continue
        with suppress(*_CLOSED), opened_file(io, file) as opened:
            for batch in opened.batches(ReadRequest(opened.schema.names)):
                yield str(batch.to_pylist())
