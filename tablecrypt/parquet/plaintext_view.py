"""An encrypted Parquet file as pyarrow may read it: a plaintext file that is decrypted chunk by chunk, as it is read, and stored nowhere.

    encrypted file   PARE | chunk 0, encrypted        | chunk 1, encrypted   | indexes, bloom filters | footer, encrypted | length | PARE
    view             PAR1 | chunk 0        | zeros | chunk 1   | zeros | zeros                        | footer | length | PAR1

A chunk in the clear is never longer than it is encrypted, so it has the same place in both, and nothing but the footer has to be read
before the view can be. A read fetches the chunk in which it begins, authenticates all of its modules, and only then returns bytes of it;
what it asks for beyond that chunk is zeros. Projection and row-group pruning are the reader's doing: what it does not read is not fetched.

The view has no page indexes and no bloom filters. A column whose key is not there is locked: its chunks cannot be read, and raise the error
that says so. Of columns that were not asked for, the footer holds what it held, for a reader to step over: there is no chunk of them.

Raises what tablecrypt.parquet.chunk_modules raises; KeyNotFoundError or KmsAccessDeniedError for a locked column.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from tablecrypt.errors import KeyNotFoundError, KmsAccessDeniedError, TablecryptError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.chunk_modules import decrypt_chunk
from tablecrypt.parquet.footer import PLAIN_MAGIC, described, plain_end
from tablecrypt.parquet.layout import Chunk, FileLayout, RowGroupLayout, Span
from tablecrypt.parquet.storage import export_buffer
from tablecrypt.parquet.thrift import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup, Struct

_FOOTER_GUESS: Final = 64 * 1024
"""A reader that fetches so much of the end at once, to have the footer with it, meets zeros before the footer and no chunk."""

_NOT_IN_THE_VIEW: Final = (FileMetaData.ENCRYPTION_ALGORITHM, FileMetaData.FOOTER_SIGNING_KEY_METADATA)
_NOT_IN_A_CHUNK: Final = (
    ColumnChunk.OFFSET_INDEX_OFFSET,
    ColumnChunk.OFFSET_INDEX_LENGTH,
    ColumnChunk.COLUMN_INDEX_OFFSET,
    ColumnChunk.COLUMN_INDEX_LENGTH,
    ColumnChunk.CRYPTO_METADATA,
    ColumnChunk.ENCRYPTED_COLUMN_METADATA,
)
_NOT_IN_METADATA: Final = (ColumnMetaData.BLOOM_FILTER_OFFSET, ColumnMetaData.BLOOM_FILTER_LENGTH)


@dataclass(frozen=True, slots=True)
class _Region:
    """Where in the view a chunk is; or why it cannot be there."""

    span: Span
    chunk: Chunk
    locked: TablecryptError | None


class PlaintextView:
    """A read-only, seekable binary file. Not for use by two threads at a time; pyarrow takes care of that.

    Args:
        layout: the encrypted file.
        columns: names of the top-level columns to decrypt; a reader can take no others. None: all whose keys can be had.
    """

    closed: Final = False
    mode: Final = "rb"

    def __init__(self, layout: FileLayout, columns: Set[str] | None = None) -> None:
        self._layout = layout
        self._leaves = None if columns is None else layout.leaves_of(columns)
        self._position = 0
        # A reader that takes a chunk in pieces has it decrypted once.
        self._last: tuple[_Region, memoryview] | None = None
        self._regions: list[_Region] = []
        self._locked_end = layout.footer.start
        groups = [
            self._row_group(group, chunks)
            for group, chunks in zip(layout.metadata.structs(FileMetaData.ROW_GROUPS), layout.row_groups, strict=True)
        ]
        self._regions.sort(key=lambda region: region.span.start)
        self._starts = [region.span.start for region in self._regions]
        metadata = layout.metadata.copy(without=_NOT_IN_THE_VIEW)
        metadata.set(FileMetaData.ROW_GROUPS, thrift.LIST, groups)
        self._footer = plain_end(metadata)
        self._footer_start = self._locked_end + _FOOTER_GUESS

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def size(self) -> int:
        """Bytes of the view."""
        return self._footer_start + len(self._footer)

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset and return it."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size()}[whence]
        self._position = origin + offset
        return self._position

    def read(self, size: int | None = -1) -> memoryview:
        """Return `size` bytes, fewer at the end."""
        left = max(0, self.size() - self._position)
        length = left if size is None or size < 0 else min(size, left)
        data = self._read_at(self._position, length)
        self._position += length
        return export_buffer(data)

    def close(self) -> None:
        """Does nothing: the caller that opened the encrypted file closes it."""

    def flush(self) -> None:
        """Does nothing."""

    def _read_at(self, offset: int, length: int) -> bytes | memoryview:
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or offset >= self._regions[at].span.end:
            return self._read_around_chunks(offset, length)
        region = self._regions[at]
        if region.locked is not None:
            raise region.locked
        return self._read_chunk(region, offset - region.span.start, length)

    def _read_around_chunks(self, offset: int, length: int) -> bytes:
        head = PLAIN_MAGIC[offset : offset + length]
        end = self._footer[max(0, offset - self._footer_start) : max(0, offset + length - self._footer_start)]
        return head + bytes(length - len(head) - len(end)) + end

    def _read_chunk(self, region: _Region, skipped: int, length: int) -> bytes | memoryview:
        if self._last is None or self._last[0] is not region:
            self._last = (region, decrypt_chunk(region.chunk))
        decrypted = self._last[1][skipped : skipped + length]
        if decrypted.nbytes < length:
            return bytes(decrypted) + bytes(length - decrypted.nbytes)
        if decrypted.nbytes == region.span.length:
            self._last = None
        return decrypted

    def _row_group(self, group: Struct, chunks: RowGroupLayout) -> Struct:
        with described(self._layout.location, "a row group in the footer"):
            num_rows = group.integer(RowGroup.NUM_ROWS)
        encoded = list(chunks.encoded)
        for column in range(len(chunks)) if self._leaves is None else self._leaves:
            encoded[column] = self._chunk(chunks[column], num_rows).encode()
        copy = group.copy()
        copy.set(RowGroup.COLUMNS, thrift.LIST, encoded)
        return copy

    def _chunk(self, chunk: Chunk, num_rows: int) -> Struct:
        try:
            metadata, region = chunk.metadata.copy(without=_NOT_IN_METADATA), _Region(chunk.pages, chunk, None)
        except (KeyNotFoundError, KmsAccessDeniedError) as error:
            if self._leaves is not None:
                raise
            span = Span(self._locked_end, 1)
            self._locked_end += span.length
            metadata, region = _locked_metadata(chunk, span, num_rows), _Region(span, chunk, error)
        self._regions.append(region)
        struct = chunk.struct.copy(without=_NOT_IN_A_CHUNK)
        struct.set(ColumnChunk.META_DATA, thrift.STRUCT, metadata)
        return struct


def _locked_metadata(chunk: Chunk, span: Span, num_values: int) -> Struct:
    """What makes a reader that wants the column read that span, and meet the error."""
    metadata = Struct()
    metadata.set(ColumnMetaData.TYPE, thrift.I32, 0)
    metadata.set(ColumnMetaData.ENCODINGS, thrift.LIST, thrift.encode_binaries([]))
    metadata.set(ColumnMetaData.PATH_IN_SCHEMA, thrift.LIST, thrift.encode_binaries([name.encode() for name in chunk.path]))
    metadata.set(ColumnMetaData.CODEC, thrift.I32, 0)
    metadata.set(ColumnMetaData.NUM_VALUES, thrift.I64, num_values)
    metadata.set(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, thrift.I64, span.length)
    metadata.set(ColumnMetaData.TOTAL_COMPRESSED_SIZE, thrift.I64, span.length)
    metadata.set(ColumnMetaData.DATA_PAGE_OFFSET, thrift.I64, span.start)
    return metadata
