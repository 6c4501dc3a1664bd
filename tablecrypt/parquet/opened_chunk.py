"""A column chunk opened whole: its pages as a plaintext file has them.

    sealed    header module | body module   | header module | body module
    opened    header | body | header | body | zeros, up to the length of the sealed chunk

Each body is opened at the place where it is wanted, and so written once: behind a header as long as it was sealed. In the clear a header
has another size and checksum, which now and then take another number of bytes; then the body is moved.

Raises what tablecrypt.parquet.pages raises; nothing of a chunk is returned before all of it is authenticated (see there for
AES_GCM_CTR_V1 and for chunks in the clear).
"""

from __future__ import annotations

import pyarrow as pa

from tablecrypt.parquet.layout import Chunk
from tablecrypt.parquet.pages import Page, StoredHeader, read_pages


def open_chunk(chunk: Chunk) -> memoryview:
    """Return the opened pages of a chunk, and zeros up to the length of its span in the file."""
    opened = _OpenedPages(chunk)
    for page in read_pages(chunk, opened.room):
        opened.add(page)
    return opened.finish()


class _OpenedPages:
    """Pages in the clear, one after the other. They are never longer than the sealed ones, so the memory holds them."""

    def __init__(self, chunk: Chunk) -> None:
        self._is_sealed = chunk.cipher is not None
        # Arrow's pool gives memory that it used before, which costs less than fresh memory of the system.
        self._memory = memoryview(pa.allocate_buffer(chunk.pages.length)).cast("B")
        self._end = 0

    def room(self, sealed: StoredHeader) -> memoryview:
        """Where the body of the next page is opened."""
        return self._memory[self._end + len(sealed.encoded) :]

    def add(self, page: Page) -> None:
        body = memoryview(page.body)
        header = page.header.of_body(body)
        start = self._end + len(header)
        end = start + body.nbytes
        is_in_place = self._is_sealed and len(header) == len(page.header.encoded)
        if not is_in_place:
            self._memory[start:end] = body
        self._memory[self._end : start] = header
        self._end = end

    def finish(self) -> memoryview:
        self._memory[self._end :] = bytes(self._memory.nbytes - self._end)
        return self._memory
