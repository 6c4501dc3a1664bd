"""The corner of Parquet Modular Encryption that Iceberg uses: one key for the footer and every column, AES_GCM_V1, nothing in the clear.

    file   = "PARE" | encrypted modules of the column chunks | FileCryptoMetaData | encrypted footer | length, 4 bytes LE | "PARE"
    module = length, 4 bytes LE | nonce (12) | ciphertext | tag (16)
    AAD    = aad_prefix | aad_file_unique (8, stored in FileCryptoMetaData) | module type (1) | row group, column, page (2 bytes LE each)

The key is the file's DEK. The AAD prefix comes from the key metadata and is not stored in the file. Encrypting and decrypting is done by
Arrow's C++; every file gets its own property objects, because one object used twice would repeat aad_file_unique and so allow modules of
one file to be moved into the other.

What Arrow does not check is checked here: the leading magic, the file's length against the one in its key metadata, which the store
cannot change, and FileCryptoMetaData, above all its algorithm, in the very bytes that Arrow then reads the footer from (footer.py).
None of this costs a round trip of its own: a small file is read whole; of a larger one the end is fetched here instead of by Arrow, and the
leading magic while Arrow fetches the first columns, before any row is handed out.

Raises TamperedFileError for bytes or a key that are not the file's, PlaintextRefusedError for a plaintext Parquet file. Errors of the store
(file not found, permission, network) pass through unchanged.

Specification: Apache Parquet, "Parquet Modular Encryption", sections 4 and 5; Iceberg table spec, "Encryption".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyarrow import acero, fs

from tablecrypt import _magics as magics
from tablecrypt._arrow_types import cast_rows
from tablecrypt._bytes import length_of
from tablecrypt._per_process import SizeBoundedCache
from tablecrypt._store_errors import is_store_error, reraise_naming
from tablecrypt.crypto.aes_gcm import TAG_LENGTH
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, TablecryptError, TamperedFileError
from tablecrypt.files.encrypting_file_io import is_local
from tablecrypt.parquet.chunk_modules import LevelsInTheClearError, read_pages
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.footer import (
    ENCRYPTED_MAGIC,
    MAGIC_LENGTH,
    TAIL_LENGTH,
    EndThenFile,
    FileCiphers,
    StoredFooter,
    foreign_end,
    keys_of_chunks,
    read_checked_end,
    read_footer,
)
from tablecrypt.parquet.layout import FileLayout, encrypted_layout
from tablecrypt.parquet.protected.hidden_column_reader import ColumnAccess, OpenedColumns, open_columns
from tablecrypt.parquet.protected.hidden_columns import hidden_field_id
from tablecrypt.parquet.protected.protected_layout import check_as_arrow_reads
from tablecrypt.parquet.storage import Source, await_release, open_source, source_of
from tablecrypt.parquet.text_columns import LIMITS, CodingLimits, coded_columns, decoded, plain_schema, with_dictionaries, without_views

SMALL_FILE_LENGTH: Final = 1024 * 1024
"""Up to this many bytes a file is fetched whole: one request instead of one each for the head, the footer and the columns."""

_FEW_ROWS: Final = 131_072
"""Rows in a batch of Arrow's scanner, and at most in those of a stream."""
_BUFFER_LENGTH: Final = 8 * 1024 * 1024
_SCHEMAS: Final = SizeBoundedCache[tuple[bytes | None, str, tuple[str, ...] | None], tuple[pa.Schema, bool]]()
"""Of files, by the hash of the footer's plaintext and the columns that are read as dictionaries: names and types, and no key or value."""
_BYTES_OF_SCHEMAS: Final = 4 * 1024 * 1024
_BYTES_OF_A_COLUMN: Final = 512


@dataclass(frozen=True)
class ReadRequest:
    """What is read of an opened file.

    Attributes:
        columns: names of stored columns.
        row_filter: on those columns alone; None: all rows.
        read_ahead: how many bytes of row groups (uncompressed, at least one row group) may be fetched ahead; None: all of the file.
        part: only row groups whose first byte lies in these offsets; None: all.
    """

    columns: list[str]
    row_filter: pc.Expression | None = None
    read_ahead: int | None = None
    part: Container[int] | None = None


@dataclass(frozen=True)
class PositionedBatch:
    """A batch of rows, and where they lie in their file.

    An array of the positions takes longer to make than a column to read, so it is made where somebody asks for it.

    Attributes:
        parts: the positions (from 0) of the rows, in their order: several parts of the file, where row groups between them were left out.
        batch: the rows.
    """

    parts: tuple[range, ...]
    batch: pa.RecordBatch

    @cached_property
    def positions(self) -> pa.Array:
        """The position of each row (int64)."""
        return pa.concat_arrays([pa.array([], pa.int64()), *(pa.arange(part.start, part.stop) for part in self.parts)])


class UniformParquetFile:
    """An encrypted Parquet file, opened for reading: its footer is authenticated, its columns are when they are read.

    Args:
        source: the ciphertext, an open Arrow file or any seekable binary stream. The caller closes it.
        key_metadata: the file's DEK, AAD prefix and, where known, length.
        location: names the file in errors.
        dictionary_columns: columns to read as Arrow dictionaries. None: those that their writer had as some.
        int96_unit: of the timestamps of older engines, which are stored in 12 bytes: Arrow's "ns", in which moments beyond 1677 to 2262
            come out as others, or Iceberg's "us".
        small_file_length: files of up to so many bytes are read whole, longer ones in ranges.
        under_one_key: check that every column is encrypted with the key (layout.py). False: the caller knows it of what it reads.
        access: to protected columns, in a table that has some: the file is checked, and read, as hidden_column_reader.py says.
        coding: which columns are read as dictionaries beside those (text_columns.py).

    Attributes:
        schema: of the columns as they are stored.
        footer_tag: authenticates this footer and no other.
        length: of the ciphertext in bytes.
        protected: field ids of the columns that the file has hidden columns of.
        masks: of those that `access` masks, the ones whose masked values are read.

    Raises:
        TamperedFileError: the length, a magic, the algorithm or the footer is not what was written, or the key is another file's.
            Of protected columns the footer says something that their writer did not.
        PlaintextRefusedError: the file is plaintext Parquet, or a column of it is in the clear.
        FormatError: a column is encrypted with a key of its own.
    """

    def __init__(
        self,
        source: Any,
        key_metadata: StandardKeyMetadata,
        location: str,
        *,
        dictionary_columns: tuple[str, ...] | None = (),
        int96_unit: Literal["ns", "us"] = "ns",
        small_file_length: int = SMALL_FILE_LENGTH,
        under_one_key: bool = True,
        access: ColumnAccess | None = None,
        coding: CodingLimits = LIMITS,
    ) -> None:
        self._coding = coding
        self.location = location
        self._first_bytes: list[int] | None = None
        self._head_is_right = False
        self._fragments: dict[frozenset[str], ds.ParquetFileFragment] = {}
        self._file = source if isinstance(source, pa.NativeFile) else pa.PythonFile(source, mode="r")
        self.length = self._length = _check_length(self._file, key_metadata, location)
        self._is_in_memory = self._is_small = self._length <= small_file_length
        if self._is_small:
            # A mapped file would change with the one in storage, so it is copied.
            mapped = isinstance(self._file, pa.MemoryMappedFile)
            try:
                self._file = pa.BufferReader(self._file.read() if mapped else self._file.read_buffer())
            except OSError as error:
                reraise_naming(error, location)

        self._end, footer = read_checked_end(self._file, self._length, key_metadata, location)
        self.footer_tag = self._end[-TAIL_LENGTH - TAG_LENGTH : -TAIL_LENGTH]
        self._key_metadata = key_metadata
        self._dictionary_columns = dictionary_columns
        self._int96_unit = int96_unit
        self.protected: frozenset[int] = frozenset()
        self.masks: frozenset[int] = frozenset()
        columns = None if access is None else self._open_columns(footer, access)

        with self._translated("the footer"):
            # Of a file that is not in memory, from the very bytes that were checked: they are all that is there.
            opened = self._opened(self._file if self._is_in_memory else pa.BufferReader(self._end), _decryption(key_metadata))
            self._footer: pq.FileMetaData = opened.metadata

        # Before anything asks for statistics: Arrow ends the process over those of a column whose key it lacks.
        is_checked = columns is None and under_one_key
        digest = check_one_key(footer, key_metadata, self._footer, self._file) if is_checked else None
        self.schema: pa.Schema
        self.schema, self._is_of_other_types = self._schema_of(opened, digest)
        if columns is not None:
            self.schema = pa.schema([field for field in self.schema if hidden_field_id(field.name) is None], self.schema.metadata)
        if columns is not None and columns.protected:
            check_as_arrow_reads(self._footer, self.schema, columns.listed, location)

    @property
    def rows(self) -> int:
        """How many rows there are by the row groups, which is what is read, whatever the footer says of them all."""
        return sum(map(self._rows_of, range(self._footer.num_row_groups)))

    def batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass the request's filter. Row groups whose statistics rule them out are not read.

        Raises:
            TamperedFileError: a module does not authenticate. Batches yielded before are authentic.
        """
        coded = self._coded(request)
        for row_groups in self._portions(request, coded):
            yield from self._rows(request, coded, row_groups)

    def positioned_batches(self, request: ReadRequest) -> Iterator[PositionedBatch]:
        """Yield every row of the row groups that the statistics leave to the request's filter, each with its position in the file.

        The filter only prunes row groups: the caller applies it to the rows.
        """
        lengths = [self._rows_of(number) for number in range(self._footer.num_row_groups)]
        starts = list(itertools.accumulate(lengths, initial=0))
        every = replace(request, row_filter=None)
        coded = self._coded(every)
        for row_groups in self._portions(request):
            positions = _Positions([range(starts[number], starts[number] + lengths[number]) for number in row_groups])
            for batch in self._rows(every, coded, row_groups):
                yield PositionedBatch(positions.take(len(batch)), batch)

    def read(
        self, columns: list[str] | None, row_filter: pc.Expression | None, row_groups: list[int] | None, use_threads: bool
    ) -> pa.Table:
        """Return the rows that pass the filter as one table: of these columns and row groups, None for all.

        Raises:
            TamperedFileError: a module does not authenticate.
        """
        with self._translated("the footer"):
            fragment = self._fragment() if row_groups is None else self._fragment().subset(row_group_ids=row_groups)
        with self._translated("a column's modules"):
            self._check_head()
            return fragment.to_table(schema=self.schema, columns=columns, filter=row_filter, use_threads=use_threads)

    def fragment(self) -> ds.ParquetFileFragment:
        """Return the file for an Arrow dataset, its head checked. The fragment's format decrypts the file: treat it like the key.

        Arrow raises an OSError where a module of it does not authenticate.
        """
        self._check_head()
        return self._fragment()

    def footer(self) -> pq.FileMetaData:
        """Return row counts and column statistics. The object keeps a decryptor of the file: treat it like its key."""
        self._check_head()
        return self._footer

    def _open_columns(self, footer: StoredFooter, access: ColumnAccess) -> OpenedColumns:
        opened = open_columns(self._file, footer, self._key_metadata, access)
        self.protected, self.masks, view = opened.protected, opened.masks, opened.view
        if view is not None:
            await_release(view)
            self._file, self._length, self._first_bytes = pa.PythonFile(view, mode="r"), view.size(), view.first_bytes
            self._is_in_memory = True
        return opened

    def _schema_of(self, opened: pq.ParquetReader, digest: bytes | None) -> tuple[pa.Schema, bool]:
        """Return the columns as they are read, and whether Arrow's reader has other types for them.

        Args:
            digest: of the footer that was authenticated; None where nobody took one.
        """
        key = digest, self._int96_unit, self._dictionary_columns
        known = None if digest is None else _SCHEMAS.find(key)
        if known is not None:
            return known

        with self._translated("the footer"):
            stored = opened.schema_arrow
            # Here, where no row is read yet, a name in any struct that is not UTF-8 is an error.
            _ = opened.column_paths
        dictionaries = self._dictionary_columns
        schema = without_views(stored) if dictionaries is None else plain_schema(stored, dictionaries)
        made = schema, schema != stored
        if digest is not None:
            _SCHEMAS.keep(key, made, _BYTES_OF_A_COLUMN * opened.metadata.num_columns, _BYTES_OF_SCHEMAS)

        return made

    def _opened(self, source: pa.NativeFile, decryption: Any = None, coded: frozenset[str] = frozenset()) -> pq.ParquetReader:
        """Open the file for Arrow: with keys to read the footer from `source`, without them by the footer that was read already."""
        footer = None if decryption is not None else self._footer
        dictionaries = self._read_as_dictionaries(coded)
        # A ParquetFile around it would look at every column of the file, whichever are read.
        reader = pq.ParquetReader()
        reader.open(
            source,
            metadata=footer,
            read_dictionary=dictionaries,
            coerce_int96_timestamp_unit=self._int96_unit,
            decryption_properties=decryption,
            arrow_extensions_enabled=True,
        )

        return reader

    def _read_as_dictionaries(self, coded: frozenset[str]) -> set[str]:
        return {*(self._dictionary_columns or ()), *coded}

    def _fragment(self, coded: frozenset[str] = frozenset()) -> ds.ParquetFileFragment:
        """The file for Arrow's datasets. To make one, Arrow parses the footer, so that each is made once."""
        known = self._fragments.get(coded)
        if known is None:
            known = self._fragments[coded] = self._opened_fragment(coded)
        return known

    def _opened_fragment(self, coded: frozenset[str]) -> ds.ParquetFileFragment:
        file_format = _format(self._key_metadata, self._read_as_dictionaries(coded), self._int96_unit)
        if self._is_in_memory:
            # These are the bytes that were checked, or a view whose footer was made of them.
            return file_format.make_fragment(self._file)

        served = EndThenFile(self._end, self._file)
        await_release(served)
        fragment = file_format.make_fragment(served.PATH, filesystem=fs.PyFileSystem(served))
        fragment.ensure_complete_metadata()
        served.serve_file()

        return fragment

    def _portions(self, request: ReadRequest, coded: frozenset[str] = frozenset()) -> list[list[int]]:
        """Return the row groups to read, in lists of those that are read ahead together.

        Args:
            coded: columns that come as dictionaries where they are read, none of them one that the filter compares.
        """
        part, prune_by = request.part, request.row_filter
        with self._translated("the footer"):
            numbers = [number for number in range(self._footer.num_row_groups) if part is None or self._first_byte_of(number) in part]
            if prune_by is not None and numbers:
                pruned = self._fragment(coded).subset(row_group_ids=numbers).subset(filter=prune_by, schema=self.schema)
                numbers = [group.id for group in pruned.row_groups]

        if request.read_ahead is None:
            return [numbers] if numbers else []
        return list(self._packed(numbers, request.read_ahead))

    def _packed(self, row_groups: list[int], length: int) -> Iterator[list[int]]:
        """Yield consecutive row groups, packed to at least `length` bytes."""
        packed: list[int] = []
        filled = 0
        for number in row_groups:
            packed.append(number)
            filled += self._footer.row_group(number).total_byte_size
            if filled >= length:
                yield packed
                packed, filled = [], 0

        if packed:
            yield packed

    def _first_byte_of(self, row_group: int) -> int:
        return self._first_bytes[row_group] if self._first_bytes else _first_byte(self._footer.row_group(row_group))

    def _rows_of(self, row_group: int) -> int:
        return int(self._footer.row_group(row_group).num_rows)

    def _coded(self, request: ReadRequest) -> frozenset[str]:
        """Which of the columns come as dictionaries; see text_columns.py."""
        with self._translated("the footer"):
            return coded_columns(self._footer, self.schema, request.columns, request.row_filter, self._coding)

    def _rows(self, request: ReadRequest, coded: frozenset[str], row_groups: list[int]) -> Iterator[pa.RecordBatch]:
        if self._is_read_directly(request):
            # Batches of a stream wait to be taken, so they are small. A table takes all rows anyway, and longer for smaller batches.
            most = max(map(self._rows_of, row_groups)) if request.read_ahead is None else _FEW_ROWS
            batches = self._read(request, coded, row_groups, most)
        else:
            batches = self._scan(request, coded, row_groups)

        while True:
            with self._translated("a column's modules"):
                batch = next(batches, None)
            if batch is None:
                return
            yield from decoded(batch, coded, self._coding)

    def _is_read_directly(self, request: ReadRequest) -> bool:
        """Whether Arrow's reader reads the rows, and not its scanner.

        The scanner hides a store's delays. Where there are none, its threads and small batches take longer than they spare: of a small
        file, to be set up alone.
        """
        # Only the scanner gives other types than the file's, finds one of two columns of a name, and counts rows that have no columns.
        if self._is_of_other_types or not request.columns or len({*self.schema.names}) < len(self.schema.names):
            return False
        return self._is_small or is_local(self.location)

    def _read(self, request: ReadRequest, coded: frozenset[str], row_groups: list[int], most_rows: int) -> Iterator[pa.RecordBatch]:
        self._check_head()
        reader = self._opened(self._file, coded=coded)
        # The key of any other column may not be at hand, and Arrow cannot tell that from a changed file.
        asked = set(request.columns)
        leaves = [number for number, path in enumerate(reader.column_paths) if path[0] in asked]
        stored = with_dictionaries(self.schema, coded)
        schema = pa.schema([stored.field(name) for name in request.columns], stored.metadata)

        # For one column, or little of all, handing it to another thread takes longer.
        use_threads = len(leaves) > 1 and not self._is_small
        for batch in reader.iter_batches(max(1, most_rows), row_groups, leaves, use_threads):
            rows = batch if request.row_filter is None else kept(batch, passing(batch, request.row_filter))
            rows = rows.select(request.columns)
            # Arrow's reader names the entries of a map by the file, its schema by the format.
            yield rows if rows.schema.equals(schema, check_metadata=True) else cast_rows(rows, schema)

    def _scan(self, request: ReadRequest, coded: frozenset[str], row_groups: list[int]) -> Iterator[pa.RecordBatch]:
        fragment = self._fragment(coded).subset(row_group_ids=row_groups)
        schema = with_dictionaries(self.schema, coded)
        # Arrow begins to fetch here, in its own threads, so the head is read beside that and not before it.
        batches = ds.Scanner.from_fragment(fragment, schema=schema, columns=request.columns, filter=request.row_filter).to_batches()
        self._check_head()
        yield from batches

    def _check_head(self) -> None:
        if self._head_is_right:
            return

        head = self._file.read_at(MAGIC_LENGTH, 0)
        if head == ENCRYPTED_MAGIC:
            self._head_is_right = True
            return

        shown = "the magic of a plaintext Parquet file" if head == magics.PARQUET else f"{head!r}"
        raise TamperedFileError(self.location, f"begins with {shown}, not with {ENCRYPTED_MAGIC!r}, though its footer is encrypted")

    @contextmanager
    def _translated(self, part: str) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:
            # Only of an authentic footer does pyarrow decode names, so who wrote it is at fault.
            raise FormatError(f"{self.location}: {part} holds a name that is not UTF-8") from error
        except (OSError, pa.ArrowException, RuntimeError) as error:
            if isinstance(error, TablecryptError):
                raise
            if is_store_error(error):
                reraise_naming(error, self.location)
            # An authentic file with an encoding that Arrow lacks was not tampered with.
            if isinstance(error, pa.ArrowNotImplementedError):
                is_of_filter = "no kernel matching input types" in str(error)
                advice = ": filter by other columns, or filter the rows once they are read" if is_of_filter else ""
                raise FormatError(f"{self.location}: Arrow cannot read this of it: {error}{advice}") from error
            raise self._diagnosed(part, error) from error

    def _diagnosed(self, part: str, error: Exception) -> TablecryptError:
        head, tail = (self._file.read_at(MAGIC_LENGTH, 0), self._file.read_at(MAGIC_LENGTH, self._length - MAGIC_LENGTH))
        # Arrow says only that it cannot decrypt: the magics tell a plaintext file that was put in place from a changed one.
        if not head == tail == ENCRYPTED_MAGIC:
            return foreign_end(head, tail, self.location)
        refusal = self._refusal_of_pages()
        if refusal is None:
            return FormatError(f"{self.location}: {part} are what was written, and Arrow cannot decode them: {error}")
        if isinstance(refusal, LevelsInTheClearError):
            return refusal
        return TamperedFileError(self.location, f"{part} cannot be authenticated: the bytes were changed, or the key is another file's")

    def _refusal_of_pages(self) -> TablecryptError | None:
        """Why pages of a file without protected columns do not authenticate, if so: Arrow fails as on those that it cannot decode."""
        keys = FileKeys.of_table_file(self._key_metadata)
        try:
            for chunk in encrypted_layout(source_of(self._file, self.location), keys).chunks():
                for _ in read_pages(chunk):
                    pass
        except TablecryptError as refusal:
            return refusal
        return None


class UniformParquetWriter:
    """Writes one encrypted Parquet file into an open output stream, which the caller closes.

    Args:
        sink: where the ciphertext goes.
        schema: the Arrow schema of every table written; field ids in its metadata (PARQUET:field_id) are kept.
        key_metadata: a DEK and AAD prefix that no other file has.
        options: pyarrow.parquet.ParquetWriter's.

    Raises:
        ConfigurationError: an option that encryption excludes.
    """

    def __init__(self, sink: Any, schema: pa.Schema, key_metadata: StandardKeyMetadata, **options: Any) -> None:
        check_writer_options(options)
        self._sink = sink
        self._properties = pe.create_encryption_properties(
            footer_key=key_metadata.encryption_key.reveal(),
            aad_prefix=key_metadata.aad_prefix or None,
            # pyarrow stores the prefix by default. Then a file that replaces another would bring its own.
            store_aad_prefix=False,
            encryption_algorithm="AES_GCM_V1",
            plaintext_footer=False,
        )
        self._writer = pq.ParquetWriter(
            sink, schema=schema, store_decimal_as_integer=True, encryption_properties=self._properties, **options
        )

    def aad_file_unique(self) -> bytes:
        """Return what tells the modules of this file from those of others, before it is in the file's footer.

        The encryption properties decide it, so a file without columns that is written with them, and thrown away, has it too.
        """
        probe = pa.BufferOutputStream()
        pq.ParquetWriter(probe, pa.schema([]), encryption_properties=self._properties).close()
        with open_source(probe.getvalue(), "a file without columns") as source:
            algorithm = read_footer(source).algorithm
        assert algorithm is not None, "it was written with encryption properties"
        return algorithm.aad_file_unique

    def write(self, table: pa.Table, row_group_size: int) -> None:
        """Write a table in row groups of at most `row_group_size` rows."""
        self._writer.write(table, row_group_size=row_group_size)

    def close(self) -> tuple[pq.FileMetaData, int]:
        """Write the footer. Returns the file's metadata, statistics included, and its length in bytes."""
        self._writer.close()
        return self._writer.writer.metadata, self._sink.tell()


def passing(batch: pa.RecordBatch, row_filter: pc.Expression) -> pa.Array:
    """Return a mask of the rows that pass a filter; null where it is neither true nor false."""
    # RecordBatch.filter with an expression hands small batches to threads, and copies the rows twice.
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
    mask = acero.Declaration("project", acero.ProjectNodeOptions([row_filter], ["passes"]), [source])
    return mask.to_table(use_threads=False).column(0).combine_chunks()


def kept(batch: pa.RecordBatch, mask: pa.Array | None) -> pa.RecordBatch:
    """Return the rows where a mask is true; all where there is no mask. Where all are kept, none is copied."""
    return batch if mask is None or mask.true_count == len(mask) else batch.filter(mask)


def check_end(file: pa.NativeFile, key_metadata: StandardKeyMetadata, location: str) -> None:
    """Check what can be checked of a table's file by its length and its end, without decrypting the footer.

    Raises:
        TamperedFileError: the length, the magic or the file crypto metadata is not that of the file that the key metadata belongs to.
        PlaintextRefusedError: the file is plaintext Parquet.
    """
    read_checked_end(file, _check_length(file, key_metadata, location), key_metadata, location)


def _check_length(file: pa.NativeFile, key_metadata: StandardKeyMetadata, location: str) -> int:
    length = length_of(file)
    file.seek(0)
    if key_metadata.file_length is not None and length != key_metadata.file_length:
        raise TamperedFileError(location, f"has {length} bytes, but its key metadata says {key_metadata.file_length}")
    if length < 2 * MAGIC_LENGTH + 4:
        raise TamperedFileError(location, f"has {length} bytes, too few for a Parquet file")
    return length


def _format(key_metadata: StandardKeyMetadata, dictionary_columns: set[str], int96_unit: str) -> ds.ParquetFileFormat:
    options = ds.ParquetFragmentScanOptions(
        pre_buffer=True,
        buffer_size=_BUFFER_LENGTH,
        decryption_properties=_decryption(key_metadata),
    )
    read_options = ds.ParquetReadOptions(dictionary_columns=dictionary_columns, coerce_int96_timestamp_unit=int96_unit)
    return ds.ParquetFileFormat(read_options=read_options, default_fragment_scan_options=options)


def _decryption(key_metadata: StandardKeyMetadata) -> Any:
    return pe.create_decryption_properties(footer_key=key_metadata.encryption_key.reveal(), aad_prefix=key_metadata.aad_prefix or None)


def _first_byte(group: pq.RowGroupMetaData) -> int:
    column = group.column(0)
    offsets = [offset for offset in (column.dictionary_page_offset, column.data_page_offset) if offset]
    return int(min(offsets))


class _Positions:
    """Deals out the positions of rows that come in file order from these parts of the file."""

    def __init__(self, parts: list[range]) -> None:
        self._parts = list(reversed(parts))

    def take(self, count: int) -> tuple[range, ...]:
        taken: list[range] = []
        while count > 0:
            part = self._parts.pop()
            taken.append(part[:count])
            if part[count:]:
                self._parts.append(part[count:])
            count -= len(taken[-1])

        return tuple(taken)


_CHECKS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "data_page_version": (
        lambda value: value == "1.0",
        "parquet-java, which leaves the levels of version 2 pages in the clear, cannot read Arrow's, which are encrypted whole",
    ),
    "bloom_filter_options": (lambda value: not value, "Arrow does not write encrypted bloom filters"),
    "encryption_properties": (lambda value: value is None, "the encryption properties are made here, fresh for each file"),
}


def check_writer_options(options: dict[str, Any]) -> None:
    """ConfigurationError for an option of pyarrow's writer that encryption excludes."""
    for name, (allowed, reason) in _CHECKS.items():
        if name in options and not allowed(options[name]):
            raise ConfigurationError(f"an encrypted Parquet file cannot be written with {name}={options[name]!r}: {reason}")


def check_one_key(footer: StoredFooter, key_metadata: StandardKeyMetadata, opened: pq.FileMetaData, source: Any) -> bytes:
    """Check that every column chunk of a table's file is encrypted with the file's key. Returns the SHA-256 of the footer's plaintext.

    Args:
        footer: of the file, as it is stored.
        key_metadata: of the file.
        opened: the same footer, as Arrow opened it.
        source: the file, open, of which nothing is read.

    Raises:
        FormatError: a column has a key of its own.
        PlaintextRefusedError: a column is in the clear.
        TamperedFileError: the footer does not authenticate.
    """
    ciphers = FileCiphers(footer, FileKeys.of_table_file(key_metadata))
    # The quick answer decodes no chunk. Where it differs, the slow way names the column.
    digest, keys = keys_of_chunks(footer, ciphers)
    if keys != (False,) * (opened.num_row_groups * opened.num_columns):
        for chunk in FileLayout(Source(source, footer.location), footer, ciphers).chunks():
            _ = chunk.cipher  # an error for every other than that of the footer
    return digest
