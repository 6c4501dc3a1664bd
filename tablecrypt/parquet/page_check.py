"""Authenticating the pages of a column chunk without keeping anything of them, for a check of whole files at the speed of the cipher.

    pages  = page | page | …
    page   = header module | body module        each: length (4, little endian) | nonce (12) | ciphertext | tag (16)

The length of each module stands before it and its place gives its AAD, so no header has to be parsed, and every module is decrypted into
the same memory. What a reader checks besides, that a header says the length and the checksum of its body, is between bytes of one writer
that are all authentic. For AES_GCM_V1 only: in AES_GCM_CTR_V1 bodies are no modules.

A module that does not authenticate does not end the check: the length before it says where the next one is. A length that cannot be does,
as TamperedFileError.

Specification: Apache Parquet, "Parquet Modular Encryption", section 5.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tablecrypt.errors import KeyMismatchError, TamperedFileError
from tablecrypt.parquet.layout import Chunk
from tablecrypt.parquet.modules import GCM_OVERHEAD, LENGTH_BYTES, ModuleCipher, ModuleType, sealed_length
from tablecrypt.parquet.pages import Window

_DICTIONARY: Final = (ModuleType.DICTIONARY_PAGE_HEADER, ModuleType.DICTIONARY_PAGE)
_DATA: Final = (ModuleType.DATA_PAGE_HEADER, ModuleType.DATA_PAGE)


def authenticate_pages(chunk: Chunk, cipher: ModuleCipher) -> Iterator[tuple[ModuleType, TamperedFileError | KeyMismatchError | None]]:
    """Yield the type of each module of a chunk's pages, and what is wrong with it if it does not authenticate.

    Args:
        chunk: sealed with AES_GCM_V1.
        cipher: the chunk's.
    """
    window, place = Window(chunk.source, chunk.pages), chunk.place
    scratch = memoryview(bytearray())
    number = 0
    while window.left:
        is_dictionary = window.position == chunk.pages.start and chunk.has_dictionary
        for module_type in _DICTIONARY if is_dictionary else _DATA:
            what = place.describe(module_type, number)
            length = sealed_length(window.peek(LENGTH_BYTES), window.left, what, chunk.location)
            framed = window.peek(length)
            window.position += length
            if len(scratch) < length - GCM_OVERHEAD:
                scratch = memoryview(bytearray(length - GCM_OVERHEAD))
            try:
                cipher.open_into(place.suffix(module_type, number), framed, what, scratch)
            except (TamperedFileError, KeyMismatchError) as error:
                yield module_type, error
            else:
                yield module_type, None
        number += not is_dictionary
