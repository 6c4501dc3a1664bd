"""Writing encrypted Parquet files: Arrow tables in every mode, and files that exist, again under keys or in the clear.

    rows → pyarrow makes a plaintext file of one row group, in memory → its modules are encrypted and go to the sink

No plaintext reaches storage, and no more of it is in memory than one row group. pyarrow's options mean what they mean there; bloom filters,
which pyarrow does not write into encrypted files, are encrypted like everything else.

A file that exists is written again module by module (tablecrypt.parquet.module_writer):

    encrypt     plaintext → encrypted
    decrypt     encrypted → plaintext; of a file that `encrypt` made from one of pyarrow's, the same bytes as before
    reencrypt   encrypted → encrypted under other keys, another algorithm or AAD prefix

A sink that is a path is written only when all went well; in a file object an error leaves a part that no reader takes for a Parquet file.

Raises ConfigurationError for options that encryption excludes, for keys that cannot be used, and for what encryption has no space for.
For a file that is read: TamperedFileError, KeyMismatchError where a key decrypts nothing of it, PlaintextRefusedError, FormatError and
KeyNotFoundError. What pyarrow raises for rows that it cannot write passes through.

Specification: Apache Parquet, "Parquet Modular Encryption".
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError
from tablecrypt.parquet.file_keys import FileKeys, required_keys
from tablecrypt.parquet.layout import FileLayout, encrypted_layout, plain_layout
from tablecrypt.parquet.module_writer import FileEncryption, ModularWriter
from tablecrypt.parquet.storage import Sink, open_sink, open_source

Random = Callable[[int], bytes]
ROW_GROUP_SIZE: Final = 1024 * 1024
"""Rows in a row group, where the caller does not say: as many as pyarrow puts there."""
_EXCLUDED: Final = {
    "encryption_properties": "the keys say how the file is encrypted",
    "metadata_collector": "the metadata of the file is encrypted with it",
    "filesystem": "give a URI or an open file as the sink",
}


@checked_arguments(but=("keys",))
def encrypt(source: Any, sink: Any, keys: FileKeys, *, location: str | None = None, random: Random = secrets.token_bytes) -> int:
    """Encrypt a plaintext Parquet file. Returns the length of the encrypted file in bytes.

    Args:
        source: a path, URI, buffer or seekable binary file with plaintext Parquet.
        sink: a path, URI or binary file that is open for writing.
        keys: the keys to encrypt with; give each file its own keys or its own AAD prefix.
        location: names the source in errors.
        random: gives nonces and the random part of the AAD.

    Raises:
        ConfigurationError: there are no keys or they name columns that the file lacks, it is encrypted already, or has too many pages.
        FormatError: it is not a Parquet file that can be encrypted.
    """
    # `rewrite` takes None for a file in the clear: keys that were forgotten must not mean that.
    checked_keys = required_keys(keys)
    with open_source(source, location) as opened, open_sink(sink) as out:
        return rewrite(plain_layout(opened), out, checked_keys, random)


@checked_arguments(but=("keys",))
def decrypt(source: Any, sink: Any, keys: FileKeys, *, location: str | None = None) -> int:
    """Decrypt a Parquet file. Returns the length of the plaintext file in bytes. It needs all keys of the file.

    Every module is authenticated before it is written, except page bodies in AES_GCM_CTR_V1 and columns in the clear. Arguments and
    errors are those of `reencrypt`.
    """
    with open_source(source, location) as opened, open_sink(sink) as out:
        return rewrite(encrypted_layout(opened, keys), out, None, secrets.token_bytes)


@checked_arguments(but=("old", "new"))
def reencrypt(
    source: Any, sink: Any, old: FileKeys, new: FileKeys, *, location: str | None = None, random: Random = secrets.token_bytes
) -> int:
    """Encrypt a Parquet file again, under other keys, another algorithm or AAD prefix. Returns the length of the new file in bytes.

    Args:
        source: a path, URI, buffer or seekable binary file.
        sink: a path, URI or binary file that is open for writing.
        old: the keys of the source, for all of its columns.
        new: keys of the new file.
        location: names the source in errors.
        random: gives nonces and the random part of the AAD.

    Raises:
        TamperedFileError: a module does not authenticate, or the file is not what its footer says.
        KeyMismatchError: one of the old keys decrypts no module: it does not fit, or the file was changed.
        FormatError: the source is empty, or no Parquet file.
        PlaintextRefusedError: the source is plaintext.
        KeyNotFoundError: a key of the source is missing.
        ConfigurationError: there are no new keys, or they name columns that the file does not have.
    """
    # As in `encrypt`: None would write the new file in the clear.
    checked_keys = required_keys(new)
    with open_source(source, location) as opened, open_sink(sink) as out:
        return rewrite(encrypted_layout(opened, old), out, checked_keys, random)


def rewrite(layout: FileLayout, sink: Sink, keys: FileKeys | None, random: Random) -> int:
    """Write the file again with these keys, or in the clear without. Returns the length in bytes."""
    writer = ModularWriter(sink, FileEncryption(keys, layout.location, random))
    writer.add(layout)
    return writer.finish()


@checked_arguments(but=("keys",))
def write_table(table: pa.Table, sink: Any, keys: FileKeys, *, row_group_size: int = ROW_GROUP_SIZE, **options: Any) -> int:
    """Write a table as one encrypted Parquet file. Returns its length in bytes.

    Args:
        table: the rows.
        sink: a path, URI or binary file that is open for writing. A file appears at a path only if all went well.
        keys: the keys to encrypt with; give each file its own keys or its own AAD prefix.
        row_group_size: rows in a row group, at most.
        options: passed to pyarrow.parquet.ParquetWriter: compression, use_dictionary, write_page_index, bloom_filter_options, …

    Raises: the errors that the module lists.
    """
    with EncryptedParquetWriter(sink, table.schema, keys, **options) as writer:
        writer.write_table(table, row_group_size)
    return writer.file_length


class EncryptedParquetWriter:
    """Writes tables of one schema into one encrypted Parquet file. A context manager: if the block fails, no file appears at the path.

    Args:
        sink: a path, URI or binary file that is open for writing, which the caller closes.
        schema: the Arrow schema of every table written.
        keys: what to encrypt with.
        random: gives nonces and the random part of the AAD.
        options: passed to pyarrow.parquet.ParquetWriter.

    Raises: the errors that the module lists.
    """

    @checked_arguments(but=("keys",))
    def __init__(
        self, sink: Any, schema: pa.Schema, keys: FileKeys, *, random: Callable[[int], bytes] = secrets.token_bytes, **options: Any
    ) -> None:
        for name, reason in _EXCLUDED.items():
            if options.get(name) is not None:
                raise ConfigurationError(f"an encrypted Parquet file cannot be written with {name}: {reason}")
        self.schema = schema
        self._options = options
        self._file_length: int | None = None
        self._closed = False
        # Options that pyarrow refuses and keys that name no column are found here, before anything is written.
        empty = self._plaintext(schema.empty_table(), None)
        encryption = FileEncryption(required_keys(keys), "the new Parquet file", random)
        self._opened = open_sink(sink)
        self._sink = self._opened.__enter__()

        try:
            self._writer = ModularWriter(self._sink, encryption)
            # A file to which no rows are written has its schema from here.
            self._add(empty)
        # KeyboardInterrupt too: what is not whole must not get the name of the file.
        except BaseException as error:
            self._abandon(error)
            raise

    @property
    def file_length(self) -> int:
        """Bytes of the encrypted file. ConfigurationError before it is closed."""
        if self._file_length is None:
            raise ConfigurationError("the encrypted Parquet file is not finished, it has no length yet")
        return self._file_length

    def write_table(self, table: pa.Table, row_group_size: int = ROW_GROUP_SIZE) -> None:
        """Write a table in row groups of at most `row_group_size` rows. A table without rows makes no row group."""
        if row_group_size < 1:
            raise ConfigurationError(f"a row group cannot have {row_group_size} rows")
        if self._closed:
            raise ConfigurationError("the encrypted Parquet file is closed")
        for start in range(0, table.num_rows, row_group_size):
            self._add(self._plaintext(table.slice(start, row_group_size), row_group_size))

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write a batch as a row group, or as several if it is very long."""
        self.write_table(pa.Table.from_batches([batch]))

    def close(self) -> None:
        """Write the footer. It may be called twice."""
        if self._closed:
            return

        try:
            self._file_length = self._writer.finish()
        except BaseException as error:
            self._abandon(error)
            raise

        self._closed = True
        # Behind the footer: only now does the path get its file.
        self._opened.__exit__(None, None, None)

    def __enter__(self) -> EncryptedParquetWriter:
        return self

    def __exit__(self, exctype: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None:
            self.close()
        elif not self._closed:
            self._abandon(error)

    def _plaintext(self, table: pa.Table, row_group_size: int | None) -> pa.Buffer:
        # pyarrow's Python takes no column keys together with an AAD prefix. So it writes in the clear, into memory alone.
        buffer = pa.BufferOutputStream()
        with pq.ParquetWriter(buffer, self.schema, **self._options) as writer:
            if row_group_size is not None:
                writer.write_table(table, row_group_size=row_group_size)
        return buffer.getvalue()

    def _add(self, plaintext: pa.Buffer) -> None:
        with open_source(plaintext, "the new Parquet file") as source:
            self._writer.add(plain_layout(source))

    def _abandon(self, error: BaseException) -> None:
        self._closed = True
        self._opened.__exit__(type(error), error, error.__traceback__)
