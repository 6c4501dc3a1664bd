"""What a Parquet file consists of: a tree of its modules with their types, places, sizes and the names of their keys.

    FileInspection ── row_groups ── RowGroupInspection ── chunks ── ChunkInspection ── modules ── ModuleInspection
          └─ footer modules

Only what the tree needs is decrypted: the footer, the metadata of columns, headers of pages in the clear. The length of an encrypted module
is in the clear before it, so pages are listed without decrypting them. Whether they authenticate is not tested here: `verify` does that.

Without keys, of an encrypted footer only its place is known; a plaintext footer is shown unauthenticated, as it is to anyone.

Raises TamperedFileError or FormatError for a file whose modules cannot be told apart, KeyMismatchError where a key decrypts nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import KeyNotFoundError, KmsAccessDeniedError
from tablecrypt.parquet.chunk_modules import Window, bloom_filter_spans, read_pages
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.footer import FileCiphers, StoredFooter, read_footer
from tablecrypt.parquet.layout import Chunk, FileLayout, Span
from tablecrypt.parquet.modules import CTR_OVERHEAD, GCM_OVERHEAD, LENGTH_BYTES, SIGNATURE_LENGTH, ModuleType, module_length
from tablecrypt.parquet.storage import open_source
from tablecrypt.parquet.structs import ColumnChunk
from tablecrypt.parquet.thrift import Struct

FOOTER_KEY: Final = "footer"
"""What the footer key is called here. Other keys are called by the dotted path of their column."""


@dataclass(frozen=True, slots=True)
class ModuleInspection:
    """One module.

    Attributes:
        type: as the specification names it, in lower case.
        page: of data pages and their headers, from 0.
        offset: bytes from the start of the file. None inside of an encrypted footer.
        size: bytes as stored, with length, nonce and tag.
        cipher: AES_GCM, AES_CTR, "signed" of a plaintext footer, or None in the clear.
        key: its name. None in the clear.
    """

    type: str
    page: int | None
    offset: int | None
    size: int
    cipher: str | None
    key: str | None


@dataclass(frozen=True, slots=True)
class ChunkInspection:
    """A column chunk.

    Attributes:
        key: its name. None for a column in the clear.
        key_metadata: stored with a key of the column's own.
        locked: its key is not there, and with it the places of its pages and bloom filter are not.
    """

    column: int
    path: str
    key: str | None
    key_metadata: bytes | None
    locked: bool
    modules: tuple[ModuleInspection, ...]


@dataclass(frozen=True, slots=True)
class RowGroupInspection:
    """A row group and its ordinal."""

    ordinal: int
    chunks: tuple[ChunkInspection, ...]


@dataclass(frozen=True, slots=True)
class FileInspection:
    """The structure of a Parquet file. `str()` shows it as a tree, one line for each module.

    Attributes:
        length: bytes.
        footer: "plaintext", "signed" or "encrypted".
        algorithm: AES_GCM_V1 or AES_GCM_CTR_V1; None in a plaintext file.
        aad_prefix: stored in the file; None without one.
        needs_aad_prefix: whether readers have to supply one.
        footer_key_metadata: stored with the footer key.
        footer_modules: the footer.
        row_groups: None when the footer could not be decrypted without keys.
    """

    location: str
    length: int
    footer: str
    algorithm: str | None
    aad_prefix: bytes | None
    needs_aad_prefix: bool
    footer_key_metadata: bytes | None
    footer_modules: tuple[ModuleInspection, ...]
    row_groups: tuple[RowGroupInspection, ...] | None

    def modules(self) -> Iterator[ModuleInspection]:
        """All modules, in the order of row groups and columns, the footer last."""
        for group in self.row_groups or ():
            for chunk in group.chunks:
                yield from chunk.modules
        yield from self.footer_modules

    def __str__(self) -> str:
        return "\n".join(_lines(self))


@checked_arguments()
def inspect(source: Any, keys: FileKeys | None = None, *, location: str | None = None) -> FileInspection:
    """Describe a Parquet file, encrypted or not.

    Args:
        source: a path, URI, buffer or seekable binary file.
        keys: the keys that you have; None shows what anyone can see. Columns without a key are listed as locked.
        location: names the file in errors.

    Raises: as the module says; with keys, TamperedFileError when the footer or a column's metadata does not authenticate.
    """
    with open_source(source, location) as opened:
        footer = read_footer(opened, of_a_table=keys is not None and keys.of_a_table)
        # Keys that refuse nothing for being unauthenticated: what the writer left so is what an inspection shows.
        ciphers = None if keys is None or footer.algorithm is None else FileCiphers(footer, keys.for_inspection())
        visible = ciphers is not None or not footer.is_encrypted
        layout = FileLayout(opened, footer, ciphers) if visible else None
        groups = None if layout is None else tuple(_row_group(layout, number) for number in range(len(layout.row_groups)))
        algorithm = footer.algorithm

        return FileInspection(
            location=footer.location,
            length=opened.length,
            footer="encrypted" if footer.is_encrypted else "plaintext" if algorithm is None else "signed",
            algorithm=None if algorithm is None else algorithm.name,
            aad_prefix=None if algorithm is None else algorithm.aad_prefix,
            needs_aad_prefix=algorithm is not None and algorithm.supply_aad_prefix,
            footer_key_metadata=footer.key_metadata,
            footer_modules=_footer_modules(footer),
            row_groups=groups,
        )


def _footer_modules(footer: StoredFooter) -> tuple[ModuleInspection, ...]:
    label = ModuleType.FOOTER.label
    if footer.algorithm is None:
        return (ModuleInspection(label, None, footer.start, len(footer.stored), None, None),)
    if footer.is_encrypted:
        return (ModuleInspection(label, None, footer.module_start, len(footer.stored), "AES_GCM", FOOTER_KEY),)
    return (ModuleInspection(label, None, footer.start, len(footer.stored) + SIGNATURE_LENGTH, "signed", FOOTER_KEY),)


def _row_group(layout: FileLayout, number: int) -> RowGroupInspection:
    chunks = layout.row_groups[number]
    ordinal = chunks[0].ordinals.row_group if chunks else number
    return RowGroupInspection(ordinal, tuple(_chunk(layout, chunk) for chunk in chunks))


def _chunk(layout: FileLayout, chunk: Chunk) -> ChunkInspection:
    key = None if not chunk.is_encrypted else chunk.ordinals.path if chunk.has_own_key else FOOTER_KEY
    metadata = _metadata(chunk)
    modules = list(_column_metadata(chunk, key))
    if metadata is not None:
        modules += _pages(layout, chunk, metadata, key)
        modules += _bloom_filter(chunk, metadata, key)
    modules += _indexes(chunk, key)

    return ChunkInspection(chunk.ordinals.column, chunk.ordinals.path, key, chunk.key_metadata, metadata is None, tuple(modules))


def _metadata(chunk: Chunk) -> Struct | None:
    try:
        return chunk.metadata
    except (KeyNotFoundError, KmsAccessDeniedError):
        return chunk.read_metadata_in_the_clear()


def _column_metadata(chunk: Chunk, key: str | None) -> Iterator[ModuleInspection]:
    encrypted = chunk.struct.optional_binary(ColumnChunk.ENCRYPTED_COLUMN_METADATA)
    if encrypted is not None:
        yield ModuleInspection(ModuleType.COLUMN_METADATA.label, None, None, len(encrypted), "AES_GCM", key)


def _pages(layout: FileLayout, chunk: Chunk, metadata: Struct, key: str | None) -> Iterator[ModuleInspection]:
    if key is None:
        for page in read_pages(chunk):
            number = None if page.is_dictionary else page.number
            yield _module(page.header_type, number, page.header_span, None, key)
            yield _module(page.body_type, number, page.body_span, None, key)
        return

    ctr = layout.footer.algorithm is not None and layout.footer.algorithm.ctr
    span, is_dictionary = chunk.pages_by(metadata)
    window, number = Window(layout.source, span), 0

    while window.left:
        header, body = (
            (ModuleType.DICTIONARY_PAGE_HEADER, ModuleType.DICTIONARY_PAGE)
            if is_dictionary
            else (ModuleType.DATA_PAGE_HEADER, ModuleType.DATA_PAGE)
        )
        # AES_GCM_CTR_V1 encrypts headers with AES-GCM as well.
        for module_type, by_ctr in ((header, False), (body, ctr)):
            length = _framed_length(window, chunk, module_type, number, by_ctr)
            _, taken = window.take(length)
            yield _module(module_type, None if is_dictionary else number, taken, "AES_CTR" if by_ctr else "AES_GCM", key)

        number += not is_dictionary
        is_dictionary = False


def _framed_length(window: Window, chunk: Chunk, module_type: ModuleType, number: int, ctr: bool) -> int:
    what = chunk.ordinals.describe(module_type, number)
    least = CTR_OVERHEAD if ctr else GCM_OVERHEAD
    return module_length(window.peek(LENGTH_BYTES), window.left, what, chunk.location, least)


def _indexes(chunk: Chunk, key: str | None) -> Iterator[ModuleInspection]:
    for module_type, span in ((ModuleType.COLUMN_INDEX, chunk.column_index), (ModuleType.OFFSET_INDEX, chunk.offset_index)):
        if span is not None:
            yield _module(module_type, None, span, key and "AES_GCM", key)


def _bloom_filter(chunk: Chunk, metadata: Struct, key: str | None) -> Iterator[ModuleInspection]:
    spans = bloom_filter_spans(chunk, metadata)
    if spans is not None:
        for module_type, span in zip((ModuleType.BLOOM_FILTER_HEADER, ModuleType.BLOOM_FILTER_BITSET), spans, strict=True):
            yield _module(module_type, None, span, key and "AES_GCM", key)


def _module(module_type: ModuleType, page: int | None, span: Span, cipher: str | None, key: str | None) -> ModuleInspection:
    return ModuleInspection(module_type.label, page, span.start, span.length, cipher, key)


def _lines(file: FileInspection) -> Iterator[str]:
    yield f"{file.location}: {file.length} bytes, footer {file.footer}, {file.algorithm or 'not encrypted'}"
    for group in file.row_groups or ():
        yield f"  row group {group.ordinal}"
        for chunk in group.chunks:
            locked = ", locked" if chunk.locked else ""
            yield f"    column {chunk.column} {chunk.path}: {_key(chunk.key)}{locked}"
            yield from (f"      {_line(module)}" for module in chunk.modules)

    yield from (f"  {_line(module)}" for module in file.footer_modules)


def _line(module: ModuleInspection) -> str:
    page = "" if module.page is None else f" {module.page}"
    where = "in the footer" if module.offset is None else f"at {module.offset}"
    return f"{module.type}{page}: {module.size} bytes {where}, {module.cipher or 'in the clear'}"


def _key(name: str | None) -> str:
    if name is None:
        return "in the clear"
    return "footer key" if name == FOOTER_KEY else f"key of {name}"
