"""Checking a whole encrypted file: every module authenticates at its place, and every byte of the file belongs to something.

A fault does not end the check, so that one look tells all of the damage; then it is one TamperedFileError that names what failed. Where all
that failed is under keys that decrypt nothing of the file, it is a KeyMismatchError: they do not fit, or the file was changed. What cannot
be authenticated by design is not hidden in a success: columns in the clear and bodies of pages in AES_GCM_CTR_V1 are in the result.

Not checked are values: a page that authenticates is what its writer encrypted, whatever it decodes to.

Pages are authenticated at nearly the speed of the cipher, and nothing of them is kept. The length of each module stands before it and its
place gives its AAD, so no header has to be parsed, and all modules of a file are read and decrypted in the same memory. What a reader
checks besides, that a header says the length and the checksum of its body, is between bytes of one writer that are all authentic. For
AES_GCM_V1 only: in AES_GCM_CTR_V1 bodies are no modules.

Every byte of a file has one owner:

    bytes     0 ─ 4 ──────────── 100 ── 110 ─────── 200
    owners    magic   pages      (gap)    footer            → "bytes 100 to 110 belong to nothing"

But for zeros, which stand where a file that was blanked has modules no more (carried_over_columns.py).

Raises TamperedFileError, KeyMismatchError, PlaintextRefusedError for a plaintext file, KeyNotFoundError when a key of any column is
missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, KeyMismatchError, KeyNotFoundError, TamperedFileError
from tablecrypt.parquet.chunk_modules import PIECE_LENGTH, read_bloom_filter, read_index, read_pages
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.footer import MAGIC_LENGTH
from tablecrypt.parquet.layout import Chunk, FileLayout, Span, encrypted_layout
from tablecrypt.parquet.modules import GCM_OVERHEAD, LENGTH_BYTES, ModuleCipher, ModuleType, check_page, impossible_length, stated_length
from tablecrypt.parquet.protected.hidden_columns import hidden_field_id
from tablecrypt.parquet.storage import Source, open_source
from tablecrypt.parquet.structs import ColumnChunk
from tablecrypt.parquet.uniform import UniformParquetFile

_SHOWN_FAULTS: Final = 10
_LONG_SHARE: Final = 4
_AHEAD: Final = 1024
"""A module that takes a quarter of a piece or more is read alone, with so much after it that the next module's length is there."""
_DICTIONARY: Final = (ModuleType.DICTIONARY_PAGE_HEADER, ModuleType.DICTIONARY_PAGE)
_DATA: Final = (ModuleType.DATA_PAGE_HEADER, ModuleType.DATA_PAGE)


@dataclass(frozen=True, slots=True)
class PieceLengths:
    """How many bytes of a file are read at once.

    Attributes:
        local: of a file on this machine: what was just read is decrypted while it is in the processor's cache.
        remote: elsewhere, where a piece is a request.
    """

    local: int = 1024 * 1024
    remote: int = PIECE_LENGTH


PIECES: Final = PieceLengths()


@dataclass(frozen=True, slots=True)
class OwnedSpan:
    """Bytes from `start` to `end`, and what they are."""

    start: int
    end: int
    owner: str


def coverage_gaps(spans: Iterable[OwnedSpan], length: int, are_zeros: Callable[[int, int], bool]) -> Iterator[str]:
    """Say where the spans leave bytes of a file of that length without an owner, or give them two.

    Args:
        spans: what is known of the file.
        length: of the file.
        are_zeros: whether bytes between two spans are zeros, which need no owner.
    """
    reached, before = 0, "the start of the file"
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        if span.start > reached and not are_zeros(reached, span.start):
            yield f"bytes {reached} to {span.start} belong to nothing: they are between {before} and {span.owner}"
        if span.start < reached:
            yield f"bytes {span.start} to {min(span.end, reached)} belong to {span.owner} and to {before}"
        if span.end > reached:
            reached, before = span.end, span.owner

    if reached < length:
        yield f"bytes {reached} to {length}, the end of the file, belong to nothing"


@dataclass(frozen=True)
class Verification:
    """What was authenticated, and what the algorithm leaves unauthenticated.

    Attributes:
        length: bytes of the file, each of which belongs to a known part.
        algorithm: AES_GCM_V1 or AES_GCM_CTR_V1.
        modules: how many of each type authenticated.
        unauthenticated_pages: pages whose bodies AES_GCM_CTR_V1 encrypts and does not authenticate.
        columns_in_the_clear: dotted paths.
        rows: how many the row groups have.
        hidden_columns: dotted paths of a table's protected columns, whose own keys were not given. Their bytes are not authenticated, and
            neither is that no byte of the file belongs to nothing.
    """

    location: str
    length: int
    algorithm: str
    modules: dict[str, int]
    unauthenticated_pages: int
    columns_in_the_clear: tuple[str, ...]
    rows: int
    hidden_columns: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all of the file is authenticated, but for hidden columns."""
        return not self.unauthenticated_pages and not self.columns_in_the_clear


@checked_arguments(but=("keys",))
def verify(source: Any, keys: FileKeys, *, location: str | None = None) -> Verification:
    """Authenticate a whole encrypted Parquet file. It needs all keys of the file.

    Args:
        source: a path, URI, buffer or seekable binary file.
        keys: of the footer and every column; FileKeys.of_table_file(key_metadata) for a data file of an Iceberg table.
        location: names the file in errors.

    Raises: the errors that the module lists. The message names each module that failed, and bytes that belong to nothing or twice.
    """
    with open_source(source, location) as opened:
        layout = encrypted_layout(opened, keys)
        checks = FileChecks(layout, keys)
        for chunk in layout.chunks():
            checks.check_chunk(chunk)
        return checks.result()


def verify_footer(source: Any, key_metadata: StandardKeyMetadata, location: str) -> int:
    """Check the ends of a table's file and which keys its columns are under; return how many rows the footer says that it has.

    Args:
        source: a seekable binary file.
        key_metadata: of the file.
        location: names it in errors.

    Raises:
        TamperedFileError, PlaintextRefusedError: the file is not what was written.
        FormatError: a column that is no hidden one is under a key of its own.
    """
    try:
        file = UniformParquetFile(source, key_metadata, location)
        file.footer()
    # The quick way refuses every column under a key of its own, and hidden columns are to have one.
    except FormatError:
        with open_source(source, location) as opened:
            layout = encrypted_layout(opened, FileKeys.of_table_file(key_metadata))
            for chunk in layout.chunks():
                if not (chunk.has_own_key and hidden_field_id(chunk.path[0]) is not None):
                    _ = chunk.cipher
            return layout.rows

    return file.rows


@dataclass(frozen=True)
class _Fault:
    """What failed, and where that may be for a key that does not fit, the key's cipher."""

    what: str
    cipher: ModuleCipher | None = None

    @property
    def is_of_the_key(self) -> bool:
        """Whether the key has decrypted nothing so far."""
        return self.cipher is not None and self.cipher.may_not_fit


class FileChecks:
    """The checks of one file, and what they found so far.

    Args:
        layout: of the file.
        keys: of the footer and every column.
        pieces: in which it is read.
    """

    def __init__(self, layout: FileLayout, keys: FileKeys, pieces: PieceLengths = PIECES) -> None:
        self._layout = layout
        self._keys = keys
        self._hidden: dict[str, None] = {}
        self._modules: Counter[str] = Counter({ModuleType.FOOTER.label: 1})
        self._unauthenticated_pages = 0
        self._in_the_clear: dict[str, None] = {}
        self._faults: list[_Fault] = []
        self._modules_of = _ModuleReader(layout.source, pieces)
        self._spans = [OwnedSpan(0, MAGIC_LENGTH, "the first magic"), OwnedSpan(layout.footer.start, layout.source.length, "the footer")]

    def check_chunk(self, chunk: Chunk) -> None:
        """Authenticate what belongs to a column chunk. What fails is in the result."""
        if self._is_hidden(chunk):
            self._hidden[chunk.ordinals.path] = None
            return

        if not chunk.is_encrypted:
            self._in_the_clear[chunk.ordinals.path] = None
        checks: tuple[Callable[[Chunk], None], ...] = (
            self._pages,
            lambda chunk: self._index(chunk, chunk.column_index, ModuleType.COLUMN_INDEX),
            lambda chunk: self._index(chunk, chunk.offset_index, ModuleType.OFFSET_INDEX),
            self._bloom_filter,
        )
        # Without its metadata nothing of a chunk can be found.
        for check in checks if self._passes(self._metadata, chunk) else ():
            self._passes(check, chunk)

    def _is_hidden(self, chunk: Chunk) -> bool:
        """Whether it is a hidden column of a table's file, and its key was not given."""
        if not (self._keys.of_a_table and chunk.has_own_key and hidden_field_id(chunk.path[0]) is not None):
            return False
        if self._keys.skips_hidden_columns:
            return True

        try:
            _ = chunk.cipher
        except KeyNotFoundError:
            return True

        return False

    def result(self) -> Verification:
        """What was found. An error as the module says if that is any fault."""
        layout = self._layout
        self._refuse_faults()
        algorithm = layout.footer.algorithm
        assert algorithm is not None, "the layout is that of an encrypted file"

        return Verification(
            layout.location,
            layout.source.length,
            algorithm.name,
            dict(self._modules),
            self._unauthenticated_pages,
            tuple(self._in_the_clear),
            layout.rows,
            tuple(self._hidden),
        )

    def _refuse_faults(self) -> None:
        layout = self._layout
        every = [fault.what for fault in self._faults]
        mismatches = sum(fault.is_of_the_key for fault in self._faults)
        if not mismatches and not self._hidden:
            # Nothing can be found in what a key does not decrypt: its bytes would seem to belong to nothing.
            every += coverage_gaps(self._spans, layout.source.length, self._are_zeros)
        if not every:
            return

        more = f"; and {len(every) - _SHOWN_FAULTS} more" if len(every) > _SHOWN_FAULTS else ""
        what = "; ".join(every[:_SHOWN_FAULTS]) + more
        # With any other fault among them, a wrong key does not explain all of it: the file was changed.
        raise KeyMismatchError(layout.location, what) if mismatches == len(every) else TamperedFileError(layout.location, what)

    def _are_zeros(self, start: int, end: int) -> bool:
        pieces = range(start, end, PIECE_LENGTH)
        return not any(any(self._layout.source.read_at(at, min(PIECE_LENGTH, end - at))) for at in pieces)

    def _passes(self, check: Callable[[Chunk], None], chunk: Chunk) -> bool:
        try:
            check(chunk)
        except (TamperedFileError, KeyMismatchError) as error:
            self._fail(chunk, error)
            return False
        except FormatError as error:
            self._faults.append(_Fault(str(error).removeprefix(f"{self._layout.location}: ")))
            return False

        return True

    def _metadata(self, chunk: Chunk) -> None:
        self._own(chunk.pages, f"the pages of {chunk.ordinals}")
        if ColumnChunk.ENCRYPTED_COLUMN_METADATA in chunk.struct:
            self._count(chunk, ModuleType.COLUMN_METADATA)

    def _pages(self, chunk: Chunk) -> None:
        if chunk.cipher is not None and not chunk.cipher.ctr:
            self._page_modules(chunk, chunk.cipher)
            return
        for page in read_pages(chunk):
            self._count(chunk, page.header_type)
            if chunk.cipher is not None:
                self._unauthenticated_pages += 1

    def _page_modules(self, chunk: Chunk, cipher: ModuleCipher) -> None:
        """Authenticate the modules of a chunk's pages. One that fails does not end it: the length before it says where the next one is."""
        modules, ordinals = self._modules_of.begin(chunk.pages), chunk.ordinals
        authentic = dict.fromkeys((*_DICTIONARY, *_DATA), 0)
        number = 0

        while modules.left:
            is_dictionary = chunk.has_dictionary and modules.left == chunk.pages.length
            check_page(number, ordinals, chunk.location)
            for module_type in _DICTIONARY if is_dictionary else _DATA:
                framed = modules.take()
                if framed is None:
                    what = ordinals.describe(module_type, number)
                    # Without a length there is no next module, so the walk through this chunk ends.
                    raise impossible_length(modules.peek(LENGTH_BYTES), modules.left, what, chunk.location)

                if cipher.opens(ordinals.suffix(module_type, number), framed, modules.plaintext_of(framed)):
                    authentic[module_type] += 1
                else:
                    self._fail(chunk, cipher.refusal(ordinals.describe(module_type, number)))

            number += not is_dictionary

        for module_type, count in authentic.items():
            self._count(chunk, module_type, count)

    def _index(self, chunk: Chunk, span: Span | None, module_type: ModuleType) -> None:
        if span is None:
            return
        self._own(span, chunk.ordinals.describe(module_type))
        read_index(chunk, span, module_type)
        self._count(chunk, module_type)

    def _bloom_filter(self, chunk: Chunk) -> None:
        found = read_bloom_filter(chunk)
        if found is None:
            return
        for module_type, span in ((ModuleType.BLOOM_FILTER_HEADER, found.header_span), (ModuleType.BLOOM_FILTER_BITSET, found.bitset_span)):
            self._own(span, chunk.ordinals.describe(module_type))
            self._count(chunk, module_type)

    def _fail(self, chunk: Chunk, error: TamperedFileError | KeyMismatchError) -> None:
        self._faults.append(_Fault(error.what, chunk.cipher if isinstance(error, KeyMismatchError) else None))

    def _own(self, span: Span, owner: str) -> None:
        self._spans.append(OwnedSpan(span.start, span.end, owner))

    def _count(self, chunk: Chunk, module_type: ModuleType, count: int = 1) -> None:
        if chunk.is_encrypted and count:
            self._modules[module_type.label] += count


class _ModuleReader:
    """The modules of one span after another, all in the same memory: a module is there until the next one is taken.

        memory    taken | left of this piece | free
                        begin                end       what is left moves to the front, and the next piece is read behind it

    No byte is read twice. Of a local file a piece ends soon after a long module, so that little is left to move: moving bytes takes about
    as long as decrypting them. Elsewhere a piece is a request, and they are as few as can be.
    """

    def __init__(self, source: Source, pieces: PieceLengths) -> None:
        self._source = source
        self._piece = min(pieces.local if source.is_local else pieces.remote, source.length)
        self._long = self._piece // _LONG_SHARE if source.is_local else self._piece
        self._memory = memoryview(bytearray(self._piece))
        self._plaintext = memoryview(bytearray())
        self._begin = self._end = 0
        self._unread = Span(0, 0)

    def begin(self, span: Span) -> _ModuleReader:
        """Go to the first module of a span of the file."""
        self._begin = self._end = 0
        self._unread = span
        return self

    @property
    def left(self) -> int:
        """How many bytes of the span were not taken."""
        return self._unread.length + self._end - self._begin

    def take(self) -> memoryview | None:
        """The next module, encrypted with AES-GCM; None where its length is none that it can have."""
        begin = self._begin
        end = begin + stated_length(self._memory[begin : self._end])
        # Most modules are in memory, and there are thousands in a file.
        if begin + GCM_OVERHEAD <= end <= self._end:
            self._begin = end
            return self._memory[begin:end]

        length = stated_length(self.peek(LENGTH_BYTES))
        if not GCM_OVERHEAD <= length <= self.left:
            return None

        framed = self.peek(length)
        self._begin += length

        return framed

    def peek(self, length: int) -> memoryview:
        """The next `length` bytes, or as many as are left."""
        if self._end - self._begin < length:
            self._read(min(length, self.left))
        return self._memory[self._begin : min(self._begin + length, self._end)]

    def plaintext_of(self, framed: memoryview) -> memoryview:
        """Memory as long as the plaintext of this module, for the cipher alone."""
        length = framed.nbytes - GCM_OVERHEAD
        if self._plaintext.nbytes < length:
            self._plaintext = memoryview(bytearray(framed.nbytes))
        return self._plaintext[:length]

    def _read(self, needed: int) -> None:
        """Have `needed` bytes in memory, none of which are beyond the span, and more, as the class says."""
        kept = self._memory[self._begin : self._end]
        wanted = needed + _AHEAD if needed > self._long else self._piece
        if wanted > self._memory.nbytes:
            self._memory = memoryview(bytearray(wanted))
        self._memory[: kept.nbytes] = kept
        length = min(wanted - kept.nbytes, self._unread.length)
        self._source.read_into(self._unread.start, self._memory[kept.nbytes : kept.nbytes + length])
        self._begin, self._end = 0, kept.nbytes + length
        self._unread = Span(self._unread.start + length, self._unread.length - length)
