"""Reading protected columns: the file as pyarrow reads it for someone who may use some of the column keys.

    file    PARE | placeholders, columns, hidden columns                  | footer
    view    PARE | placeholders, columns, hidden columns (the same bytes) | space for each hidden column in the clear | another footer

In the footer of the view the chunk of a placeholder is that of its hidden column, in the clear, with the placeholder's path. So pyarrow's
C++ decrypts every other column from the bytes of the file, and finds the values where the column's field id is. A hidden column is
decrypted here, when pyarrow asks for it. The footer is encrypted again under the file's DEK; it leaves memory as little as the hidden
columns in the clear do.

The placeholder of a masked column stays where it is if it holds masked values. An error placeholder is read as the nulls that pyarrow wrote
there, or empty values where the column is required: its pages are put into the view as they were (placeholders.py).

What is checked of a file before any of it is read is in protected_layout.py.

Raises TamperedFileError, FormatError; KeyNotFoundError, AuthenticationError and KMS errors from the column keys.

Specification: Apache Parquet, "Parquet Modular Encryption", sections 5.2 and 5.3.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import TamperedFileError
from tablecrypt.keys.bound_schemas import BoundSchema
from tablecrypt.parquet import thrift
from tablecrypt.parquet.chunk_modules import decrypt_chunk
from tablecrypt.parquet.footer import StoredFooter, described, write_footer
from tablecrypt.parquet.layout import Chunk, FileLayout, RowGroupLayout, Span
from tablecrypt.parquet.modules import ModuleCipher
from tablecrypt.parquet.protected.hidden_columns import Leaf, of_shown_columns
from tablecrypt.parquet.protected.placeholders import nulls_of_error_placeholder
from tablecrypt.parquet.protected.protected_layout import ProtectedLayout
from tablecrypt.parquet.storage import FileView, Sink, Source
from tablecrypt.parquet.structs import (
    BLOOM_FILTER,
    INDEXES_AND_ENCRYPTION,
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    RowGroup,
    SchemaElement,
)
from tablecrypt.parquet.thrift import Struct

_GAP: Final = 64 * 1024
"""Between the spaces for hidden columns, so that pyarrow fetches one at a time."""


@dataclass(frozen=True)
class ColumnAccess:
    """What a reader of a table's files may do with protected columns.

    Attributes:
        protected: field ids of all of them.
        opened: of those whose values are wanted, and may be had.
        masked: of those that are wanted, and whose placeholders are read.
        unwrap: returns the DEK of a hidden column: field id, key metadata, AAD prefix of the file, what its footer says of the column.
    """

    protected: frozenset[int]
    opened: frozenset[int]
    masked: frozenset[int]
    unwrap: Callable[[int, bytes, bytes, BoundSchema], bytes]


@dataclass(frozen=True)
class OpenedColumns:
    """The protected columns of one file, as a reader may see them.

    Attributes:
        protected: field ids of those that the file hides.
        masks: of the masked ones those whose placeholders hold masked values.
        listed: the columns that Arrow has to find in the file, or in the view.
        view: the file with opened hidden columns and error placeholders; None where nothing of it has to be opened.
    """

    protected: frozenset[int]
    masks: frozenset[int]
    listed: list[Leaf]
    view: OpenedView | None


def open_columns(file: pa.NativeFile, footer: StoredFooter, key_metadata: StandardKeyMetadata, access: ColumnAccess) -> OpenedColumns:
    """Check the protected columns of a file, and open those that a reader may see.

    Args:
        file: the ciphertext.
        footer: its end.
        key_metadata: of the file.
        access: to its hidden columns.

    Raises: the errors that the module lists.
    """

    def hidden_key(field_id: int, stored: bytes) -> Secret:
        return Secret(access.unwrap(field_id, stored, key_metadata.aad_prefix, layout.schemas[field_id]))

    layout = ProtectedLayout(Source(file, footer.location), key_metadata, hidden_key, footer=footer, known=access.protected)
    leaves = layout.hidden_leaves
    masks = frozenset(hidden.field_id for hidden in leaves if hidden.field_id in access.masked and layout.has_masks(hidden))
    nulls = access.masked - masks
    # In the place of a placeholder: its hidden column, or the placeholder itself, of which nulls are read.
    replaced = {hidden.placeholder: hidden.ordinal for hidden in leaves if hidden.field_id in access.opened}
    replaced |= {hidden.placeholder: hidden.placeholder for hidden in leaves if hidden.field_id in nulls}
    view = OpenedView(file, layout.file, replaced, layout.cipher(key_metadata.encryption_key)) if replaced else None

    return OpenedColumns(layout.protected, masks, layout.listed, view)


@dataclass(frozen=True, slots=True)
class _Space:
    """Where in the view the pages of a hidden column or an error placeholder are, and how they are made."""

    span: Span
    open: Callable[[], memoryview]


class OpenedView(FileView):
    """A read-only, seekable binary file; see the module. Not for use by two threads at a time; pyarrow takes care of that.

    Args:
        file: the ciphertext.
        layout: of the file.
        replaced: for the ordinal of each placeholder that is opened, the ordinal of its hidden column; its own where nulls are read of it.
        cipher: encrypts the footer of the view.

    Attributes:
        first_bytes: of each row group, as in the file.
    """

    def __init__(self, file: pa.NativeFile, layout: FileLayout, replaced: Mapping[int, int], cipher: ModuleCipher) -> None:
        super().__init__()
        self._file = Source(file, layout.location)
        self._spaces: list[_Space] = []
        self._end = layout.footer.start
        # A reader that takes a chunk in pieces has it decrypted once.
        self._last: tuple[_Space, memoryview] | None = None
        # Of the file and not of the view, in which an opened first column lies behind all row groups: the parts of a job are cut by these.
        self.first_bytes = [group[0].pages.start for group in layout.row_groups]
        elements = layout.metadata.structs(FileMetaData.SCHEMA)
        leaves = [element for element in elements[1:] if not element.optional_integer(SchemaElement.NUM_CHILDREN)]
        self._types = [element.optional_integer(SchemaElement.TYPE) for element in leaves]
        groups = zip(layout.metadata.structs(FileMetaData.ROW_GROUPS), layout.row_groups, strict=True)
        metadata = layout.metadata.copy()
        metadata.set(FileMetaData.ROW_GROUPS, thrift.LIST, [self._row_group(group, chunks, replaced) for group, chunks in groups])
        self._starts = [space.span.start for space in self._spaces]
        # Arrow goes by the Arrow schema in the footer where that has as many columns as the footer lists: those that the file lists.
        if layout.holds_columns_apart:
            metadata = of_shown_columns(metadata)
        # Encrypted under the DEK, so that pyarrow opens the view with the decryption properties of the file.
        end = io.BytesIO()
        write_footer(Sink(end, self._end), metadata, layout.footer.algorithm, cipher, None, plaintext=False)
        self._footer = end.getvalue()

    def size(self) -> int:
        """Bytes of the view."""
        return self._end + len(self._footer)

    def _read_at(self, offset: int, length: int) -> bytes | memoryview:
        parts: list[bytes | memoryview] = []
        while length > 0:
            part = self._part_at(offset, length)
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _part_at(self, offset: int, length: int) -> bytes | memoryview:
        """Return what comes at an offset, up to `length` bytes of it and at least one."""
        if offset >= self._end:
            return self._footer[offset - self._end : offset - self._end + length]

        at = bisect_right(self._starts, offset) - 1
        if at >= 0 and offset < self._spaces[at].span.end:
            space = self._spaces[at]
            skipped = offset - space.span.start
            return self._decrypted(space)[skipped : skipped + length]

        following = self._starts[at + 1] if at + 1 < len(self._starts) else self._end
        length = min(length, following - offset)
        # Stored bytes as they are: pyarrow's C++ authenticates them as modules of the file.
        if offset < self._file.length:
            return self._file.read_at(offset, min(length, self._file.length - offset))

        return bytes(length)

    def _decrypted(self, space: _Space) -> memoryview:
        if self._last is None or self._last[0] is not space:
            self._last = (space, space.open())
        return self._last[1]

    def _row_group(self, group: Struct, chunks: RowGroupLayout, replaced: Mapping[int, int]) -> Struct:
        encoded = list(chunks.encoded)
        for placeholder, values in replaced.items():
            encoded[placeholder] = self._opened(chunks[placeholder], chunks[values]).encode()
        copy = group.copy()
        copy.set(RowGroup.COLUMNS, thrift.LIST, encoded)
        # The footer leaves hidden columns out of it, and how much is read ahead follows from it.
        opened = [
            chunks[hidden].metadata.integer(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE)
            for placeholder, hidden in replaced.items()
            if hidden != placeholder
        ]
        copy.set(RowGroup.TOTAL_BYTE_SIZE, thrift.I64, group.integer(RowGroup.TOTAL_BYTE_SIZE) + sum(opened))

        return copy

    def _opened(self, placeholder: Chunk, values: Chunk) -> Struct:
        """The ColumnChunk of a placeholder whose pages are those of its hidden column, or its own as nulls, in the clear."""
        metadata = values.metadata.copy(without=BLOOM_FILTER)
        with described(values.location, f"the metadata of {values.ordinals}"):
            replaced = placeholder.metadata
            # The schema's, too: key metadata binds what it says, and Arrow decodes pages by it.
            kinds = {metadata.integer(ColumnMetaData.TYPE), replaced.integer(ColumnMetaData.TYPE), self._types[placeholder.ordinals.column]}

        if len(kinds) != 1:
            raise TamperedFileError(values.location, f"{values.ordinals} is of another type than its placeholder, or than the schema says")

        # Behind the file, so that no other column moves: the view is the file itself up to its length.
        span = Span(max(self._end, self._file.length) + _GAP, values.pages.length)
        self._spaces.append(_Space(span, partial(nulls_of_error_placeholder if values is placeholder else decrypt_chunk, values)))
        self._end = span.end
        metadata.set(ColumnMetaData.PATH_IN_SCHEMA, thrift.LIST, replaced.stored_list(ColumnMetaData.PATH_IN_SCHEMA))
        moved = span.start - values.pages.start
        # In the clear pages are shorter, but are read one after the other: only where the first is counts, and whether it is a dictionary.
        for field_id in (ColumnMetaData.DICTIONARY_PAGE_OFFSET, ColumnMetaData.DATA_PAGE_OFFSET):
            offset = metadata.optional_integer(field_id)
            if offset:
                metadata.set(field_id, thrift.I64, offset + moved)

        chunk = placeholder.struct.copy(without=INDEXES_AND_ENCRYPTION)
        chunk.set(ColumnChunk.META_DATA, thrift.STRUCT, metadata)

        return chunk
