"""A file again under another DEK, its twins as they are: for somebody who may not use their column keys.

    old    PARE | covers, columns under the old DEK | twins | indexes | footer under the old DEK
    new    PARE | covers, columns under the new DEK | twins | indexes | footer under the new DEK      everything where it was

A twin is bound to the file's AAD prefix and aad_file_unique, and its metadata, which only its key opens, says where it lies. So the new
file has both of the old one's, and each module is as long as it was. The bytes of twins are copied and not authenticated: whoever has
their keys does that by reading them, in the new file as in the old.

Raises TamperedFileError where a module does not authenticate or modules lie over one another; FormatError where one would not be as long
as it was.

Specification: Apache Parquet, "Parquet Modular Encryption", sections 4.4 and 5.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, TamperedFileError
from tablecrypt.parquet.chunk_modules import read_bloom_filter, read_index, read_pages
from tablecrypt.parquet.footer import write_footer
from tablecrypt.parquet.keys import FOOTER_KEY_NAME
from tablecrypt.parquet.layout import Chunk, Span
from tablecrypt.parquet.modules import ModuleCipher, ModuleType
from tablecrypt.parquet.storage import Sink, Source, source_of
from tablecrypt.parquet.twin_rewriting import TwinLayout

_PIECE: Final = 4 * 1024 * 1024


def reencrypt_beside_twins(source: object, sink: object, old: StandardKeyMetadata, new: StandardKeyMetadata, location: str) -> int:
    """Write a file under another DEK, with its twins as they are. Returns its length in bytes, which is the old one's.

    Args:
        source: a seekable binary file with the old one.
        sink: a binary file that is open for writing.
        old: of the old file.
        new: another DEK, and the same AAD prefix.
        location: names the old file in errors.

    Raises: the errors that the module lists, and ConfigurationError for another AAD prefix.
    """
    if new.aad_prefix != old.aad_prefix:
        raise ConfigurationError(f"{location}: twins that are kept need the AAD prefix that the file has")
    read, out = source_of(source, location), Sink(sink)
    layout = TwinLayout(read, old)
    footer = layout.file.footer
    assert footer.algorithm is not None, "the layout is that of an encrypted file"
    aad_base = old.aad_prefix + footer.algorithm.aad_file_unique
    cipher = ModuleCipher(new.encryption_key, FOOTER_KEY_NAME, aad_base, False, location, secrets.token_bytes)
    twins = {twin.twin for twin in layout.twins}
    modules = [module for chunk in layout.file.chunks() if chunk.ordinals.column not in twins for module in _modules(chunk, cipher, out)]
    for module in sorted(modules, key=lambda module: module.span.start):
        _copy(read, out, module.span.start)
        module.write()
        if out.position != module.span.end:
            raise FormatError(f"{location}: {module.what} has another length when it is encrypted again; compact the file instead")
    _copy(read, out, footer.start)
    write_footer(out, layout.file.metadata, footer.algorithm, cipher, None, plaintext=False)
    return out.position


@dataclass(frozen=True)
class _Module:
    """Modules that follow one another in the old file, and what writes them into the new one."""

    span: Span
    what: str
    write: Callable[[], None]


def _modules(chunk: Chunk, cipher: ModuleCipher, out: Sink) -> Iterator[_Module]:
    yield _Module(chunk.pages, f"a page of {chunk.ordinals}", partial(_write_pages, chunk, cipher, out))
    for module_type, span in ((ModuleType.COLUMN_INDEX, chunk.column_index), (ModuleType.OFFSET_INDEX, chunk.offset_index)):
        if span is not None:
            what = chunk.ordinals.describe(module_type)
            yield _Module(span, what, partial(_write_index, chunk, span, module_type, cipher, out))
    found = read_bloom_filter(chunk)
    if found is not None:
        for module_type, span, plaintext in (
            (ModuleType.BLOOM_FILTER_HEADER, found.header_span, found.header),
            (ModuleType.BLOOM_FILTER_BITSET, found.bitset_span, found.bitset),
        ):
            encrypted = cipher.encrypt(chunk.ordinals.suffix(module_type), plaintext)
            yield _Module(span, chunk.ordinals.describe(module_type), partial(out.write, encrypted))


def _write_pages(chunk: Chunk, cipher: ModuleCipher, out: Sink) -> None:
    for page in read_pages(chunk):
        body = cipher.encrypt_page(chunk.ordinals.suffix(page.body_type, page.number), page.body)
        out.write(cipher.encrypt(chunk.ordinals.suffix(page.header_type, page.number), page.header.of_body(body)))
        out.write(body)


def _write_index(chunk: Chunk, span: Span, module_type: ModuleType, cipher: ModuleCipher, out: Sink) -> None:
    out.write(cipher.encrypt(chunk.ordinals.suffix(module_type), read_index(chunk, span, module_type)))


def _copy(source: Source, out: Sink, end: int) -> None:
    """Copy what lies before a position and has not been written."""
    if out.position > end:
        raise TamperedFileError(source.location, f"bytes {end} to {out.position} belong to two modules")
    while out.position < end:
        out.write(source.read_at(out.position, min(_PIECE, end - out.position)))
