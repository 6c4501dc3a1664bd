"""AGS1 files (layout: tablecrypt.crypto.ags1) as streams: random access to the plaintext, and writing it in order.

A reader decrypts only the blocks that a read touches. The rules, in the order in which they hold:

1. The length of the file is what its key metadata says. A store that has another length for it was tampered with.
2. A length that no AGS1 file has is refused before anything is decrypted.
3. The header is checked before the first block is decrypted.
4. A byte is handed out only after its whole block has authenticated at its place. So must the one block of an empty file.
5. Once a read has been refused, every later one is: nothing can be pieced together from what is left.

A reader raises TamperedFileError for a wrong length, magic or block, PlaintextRefusedError for a plaintext file, FormatError for another
block length, and KeyMismatchError in place of the first where a key that the caller chose has decrypted no block yet; each names the file.
What the store itself raises passes through, and such a read may be tried again.

A writer passes a full block on as soon as it is there. Memory: the plaintext of at most one block, and one encrypted block on its way to
the store. Every block gets a new random nonce. Nothing in an AGS1 file says that it is whole: a writer that gives up after a full block
leaves one byte more, a length that no AGS1 file has. It raises FormatError past 2^31 - 1 blocks. What the store raises passes through, and
the stream can then only be abandoned.
"""

from __future__ import annotations

import io
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import SEEK_CUR, SEEK_END, SEEK_SET
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pyiceberg.io import InputStream, OutputStream

from tablecrypt._bytes import flat_view, read_up_to, write_all
from tablecrypt._store_errors import reraise_naming
from tablecrypt.crypto import ags1
from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, OVERHEAD, AesGcm
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import AuthenticationError, FormatError, KeyMismatchError, TablecryptError, TamperedFileError

if TYPE_CHECKING:
    from typing_extensions import Buffer

# A store that answers in small pieces makes us hold the pieces and their join; with one plaintext block that stays under 8 MiB.
FETCH_BLOCKS: Final = 3
_ABORT_MARK: Final = b"\x00"


class Ags1InputStream:
    """The plaintext of one AGS1 file as a read-only, seekable binary stream.

    Threads that share it share its position, as that of a file: what a read returns is authentic, and from where the position was by then.

    It holds at most one decrypted block, and reads at most FETCH_BLOCKS blocks from the store at once. Closing it closes `raw`.

    Args:
        raw: the encrypted file; `read` may return fewer bytes than asked for.
        key_metadata: the DEK, the AAD prefix and, where its writer recorded it, the trusted length.
        location: names the file in errors.
        file_length: the length in bytes that the store has for the file.
        may_not_fit: the caller chose the key, so until it decrypts a first block nothing shows that it is this file's.

    Raises: as the module says; the constructor already refuses a wrong length.
    """

    mode: Final = "rb"

    def __init__(
        self, raw: InputStream, key_metadata: StandardKeyMetadata, location: str, file_length: int, may_not_fit: bool = False
    ) -> None:
        self._raw = raw
        self._location = location
        self._may_not_fit = may_not_fit
        self._cipher = AesGcm(key_metadata.encryption_key)
        self._aad_prefix = key_metadata.aad_prefix
        self._position = 0
        # One read at a time: a second one would move `raw` under the first, and write into the block that the first copies from. Reentrant,
        # since a signal or the garbage collector may close the stream in the middle of a read.
        self._reading = RLock()
        self._closed = False
        self._failure: TablecryptError | None = None
        self._header_checked = False
        self._empty_block_checked = False
        self._cache = bytearray()
        self._cached_block: int | None = None
        self._plaintext_length = self._trusted_plaintext_length(key_metadata.file_length, file_length)

    @property
    def closed(self) -> bool:
        return self._closed

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Does nothing: io.BufferedReader asks for it."""

    def size(self) -> int:
        """How many plaintext bytes there are."""
        return self._plaintext_length

    def tell(self) -> int:
        """The plaintext offset of the next read."""
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """Move to a plaintext offset and return it. Past the end is allowed: reads there return nothing. ValueError for a negative one."""
        self._check_open()
        origins = {SEEK_SET: 0, SEEK_CUR: self._position, SEEK_END: self._plaintext_length}
        if whence not in origins:
            raise ValueError(f"whence is {SEEK_SET}, {SEEK_CUR} or {SEEK_END}, not {whence}")

        target = origins[whence] + offset
        if target < 0:
            raise ValueError(f"cannot seek to {target}, before the first byte")

        self._position = target

        return target

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` plaintext bytes, fewer only at the end; all that are left for None or a negative size."""
        with self._reading:
            self._check_open()
            left = max(0, self._plaintext_length - self._position)
            wanted = left if size is None or size < 0 else min(size, left)
            # BytesIO lends its bytes to write into, and gives them away without a copy.
            target = io.BytesIO(bytes(wanted))
            with target.getbuffer() as view:
                self.readinto(view)
        return target.getvalue()

    def readinto(self, buffer: Buffer) -> int:
        """Fill `buffer` with plaintext and return how many bytes that were: fewer than fit only at the end.

        Whole blocks are decrypted in place. After an error, what was written into `buffer` is authenticated plaintext or zeros.
        """
        with self._reading:
            self._check_open()
            with flat_view(buffer) as view, self._failing_for_good():
                del buffer
                self._check_empty_block()
                start = self._position
                count = min(len(view), max(0, self._plaintext_length - start))
                with view[:count] as target:
                    self._fill(target, start)

            self._position = start + count
            return count

    def close(self) -> None:
        """Close `raw` and forget the decrypted block. It may be called twice."""
        with self._reading:
            if self._closed:
                return
            self._closed = True
            self._cached_block = None
            self._cache = bytearray()
            self._raw.close()

    def __enter__(self) -> Ags1InputStream:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self._location} is closed")
        if self._failure is not None:
            # A fresh copy: raising one exception twice would pile up its tracebacks.
            raise type(self._failure)(*self._failure.args)

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        try:
            yield
        except TablecryptError as failure:
            self._failure = type(failure)(*failure.args)
            self._cached_block = None
            raise

    def _trusted_plaintext_length(self, trusted: int | None, stored: int) -> int:
        # AGS1 does not mark its last block: a file that was cut between blocks is noticed by this length alone.
        if trusted is not None and trusted != stored:
            self._refuse_plaintext(stored)
            raise self._refusal(f"has {stored} bytes in the store, but {trusted} according to its key metadata")

        try:
            return ags1.plaintext_length(stored)
        except FormatError as impossible:
            self._refuse_plaintext(stored)
            raise TamperedFileError(self._location, str(impossible)) from None

    def _refuse_plaintext(self, stored: int) -> None:
        """A plaintext file has a wrong length too, but what it is says more about what happened."""
        ags1.refuse_plaintext(bytes(self._fetch(0, min(stored, len(ags1.MAGIC)))), self._location)

    def _check_header(self, data: memoryview) -> None:
        ags1.check_header(bytes(data), self._location)
        self._header_checked = True

    def _check_empty_block(self) -> None:
        if self._plaintext_length > 0 or self._empty_block_checked:
            return
        # An empty file has a tag as well: without this check, any file of that length would pass for it.
        self._decrypt_block(0, self._fetch_blocks(0, 1), memoryview(bytearray()))
        self._empty_block_checked = True

    def _fill(self, target: memoryview, start: int) -> None:
        """Write the plaintext from a position on into all of `target`, a window of blocks at a time."""
        filled = 0
        while filled < len(target):
            block = ags1.block_of(start + filled)
            is_cached = block == self._cached_block
            last = block if is_cached else min(ags1.block_of(start + len(target) - 1), block + FETCH_BLOCKS - 1)
            end = min(len(target), self._end_of(last) - start)

            with target[filled:end] as window:
                if is_cached:
                    self._copy_cached(window, start + filled)
                else:
                    self._fill_window(window, start + filled, block, last)

            filled = end

    def _fill_window(self, target: memoryview, start: int, first: int, last: int) -> None:
        encrypted = self._fetch_blocks(first, last - first + 1)
        filled = 0
        for block in range(first, last + 1):
            length = ags1.block_plaintext_length(block, self._plaintext_length)
            encrypted_block, encrypted = encrypted[: length + OVERHEAD], encrypted[length + OVERHEAD :]
            count = min(len(target) - filled, self._end_of(block) - start - filled)

            with target[filled : filled + count] as part:
                if count == length:
                    self._decrypt_block(block, encrypted_block, part)
                else:
                    self._load_cache(block, encrypted_block, length)
                    self._copy_cached(part, start + filled)

            filled += count

    def _end_of(self, block: int) -> int:
        return min((block + 1) * ags1.BLOCK_LENGTH, self._plaintext_length)

    def _load_cache(self, block: int, encrypted_block: memoryview, length: int) -> None:
        # Forgotten first: if decryption fails, the buffer must not pass for the block that it held before.
        self._cached_block = None
        if len(self._cache) < length:
            self._cache = bytearray(length)
        self._decrypt_block(block, encrypted_block, memoryview(self._cache)[:length])
        self._cached_block = block

    def _copy_cached(self, target: memoryview, start: int) -> None:
        offset = start % ags1.BLOCK_LENGTH
        target[:] = memoryview(self._cache)[offset : offset + len(target)]

    def _decrypt_block(self, block: int, encrypted_block: memoryview, target: memoryview) -> None:
        try:
            self._cipher.decrypt_into(encrypted_block, ags1.block_aad(self._aad_prefix, block), target)
        except AuthenticationError as refused:
            raise self._refusal(f"block {block}: {refused}") from None
        # A block that authenticates proves the key: from here on, one that does not was changed.
        self._may_not_fit = False

    def _refusal(self, what: str) -> AuthenticationError:
        if self._may_not_fit:
            return KeyMismatchError(self._location, f"{what}: the key does not fit, or the file was changed")
        return TamperedFileError(self._location, what)

    def _fetch_blocks(self, first: int, count: int) -> memoryview:
        """The encrypted bytes of `count` neighbouring blocks, in one read; the first fetch of all brings the header too."""
        offset = ags1.block_offset(first)
        length = sum(ags1.block_plaintext_length(block, self._plaintext_length) + OVERHEAD for block in range(first, first + count))
        if self._header_checked:
            return self._fetch(offset, length)
        if first > 0:
            self._check_header(self._fetch(0, ags1.HEADER_LENGTH))
            return self._fetch(offset, length)

        data = self._fetch(0, offset + length)
        self._check_header(data[:offset])

        return data[offset:]

    def _fetch(self, offset: int, length: int) -> memoryview:
        data = read_up_to(self._raw, offset, length, self._location)
        if len(data) != length:
            raise TamperedFileError(self._location, f"ends at byte {offset + len(data)} instead of {offset + length}")
        return memoryview(data)


class NewFileStream(ABC):
    """A binary stream that writes a new file to `raw`, in order. Leaving a `with` block by an exception abandons the file.

    Args:
        raw: where the file goes.
        location: names the file in errors.
    """

    mode: Final = "wb"

    def __init__(self, raw: OutputStream, location: str) -> None:
        self._raw = raw
        self._location = location
        self._length = 0
        self._closed = False

    @abstractmethod
    def write(self, data: Buffer) -> int:
        """Take all of `data` and return its length in bytes."""

    @abstractmethod
    def close(self) -> None:
        """Make the file whole and close `raw`. It may be called twice."""

    @abstractmethod
    def abandon(self) -> None:
        """Give the file up and close `raw`. Does nothing once closed."""

    @property
    def closed(self) -> bool:
        return self._closed

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        """How many bytes were given to `write`."""
        return self._length

    def flush(self) -> None:  # noqa: B027 - nothing to override: what is held back is, and the store takes what it takes
        """Does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None) -> None:
        if excinst is None:
            self.close()
            return
        try:
            self.abandon()
        except Exception as failure:  # noqa: BLE001 - whatever the store raises, the caller's own exception is the one to see
            excinst.add_note(f"the unfinished file could not be closed either: {failure}")

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        """Give all of `data` to the store."""
        try:
            write_all(self._raw, data)
        except OSError as error:
            reraise_naming(error, self._location)

    def _close_raw(self) -> None:
        """Close the store's file, which may store the last of it only then."""
        try:
            self._raw.close()
        except OSError as error:
            reraise_naming(error, self._location)


class Ags1OutputStream(NewFileStream):
    """Takes plaintext, writes one AGS1 file to `raw`. The file is whole only after `close()` has returned.

    Leaving a `with` block by an exception abandons the file. Closing the stream closes `raw`.

    Args:
        raw: where the encrypted file goes. It gets a new `bytes` object each time, which it may keep.
        key_metadata: the DEK and AAD prefix, used for this file and no other.
        random: returns as many unpredictable bytes as asked for.
        location: names the file in errors.
    """

    def __init__(
        self,
        raw: OutputStream,
        key_metadata: StandardKeyMetadata,
        random: Callable[[int], bytes] = secrets.token_bytes,
        location: str = "the encrypted file",
    ) -> None:
        super().__init__(raw, location)
        self._cipher = AesGcm(key_metadata.encryption_key)
        self._aad_prefix = key_metadata.aad_prefix
        self._random = random
        self._pending = bytearray()
        self._blocks_written = 0
        self._file_length: int | None = None
        self._broken = False

    @property
    def file_length(self) -> int:
        """How long the encrypted file is, in bytes. ValueError before `close()` has returned, and for an abandoned file."""
        if self._file_length is None:
            raise ValueError("the encrypted file is not finished, it has no length yet")
        return self._file_length

    @property
    def finished(self) -> bool:
        """Whether the file is whole: closed, and not abandoned."""
        return self._file_length is not None

    def write(self, data: Buffer) -> int:
        """Take all of `data` and return its length in bytes. ValueError when closed, OSError after an earlier failure."""
        self._check_writable()
        with flat_view(data) as view:
            del data
            taken = 0
            if self._pending:
                taken = min(len(view), ags1.BLOCK_LENGTH - len(self._pending))
                self._pending += view[:taken]
                if len(self._pending) == ags1.BLOCK_LENGTH:
                    self._write_block(self._pending)
                    self._pending.clear()

            while len(view) - taken >= ags1.BLOCK_LENGTH:
                with view[taken : taken + ags1.BLOCK_LENGTH] as block:
                    self._write_block(block)
                taken += ags1.BLOCK_LENGTH

            self._pending += view[taken:]
            written = len(view)

        self._length += written
        return written

    def close(self) -> None:
        """Write the last block and close `raw`. It may be called twice. OSError when an earlier write failed: the file is not whole."""
        if self._closed:
            return
        if self._broken:
            self.abandon()
            raise OSError(f"{self._location}: an earlier write failed: the file is incomplete")

        try:
            # An empty plaintext is one empty block: a header alone would be no AGS1 file.
            if self._pending or self._blocks_written == 0:
                self._write_block(self._pending)
        except BaseException:
            self.abandon()
            raise

        self._closed = True
        self._pending.clear()
        self._close_raw()
        # Set last: a length, and so key metadata, exists only for a file that the store has taken whole.
        self._file_length = ags1.file_length(self._length)

    def abandon(self) -> None:
        """Give the file up: close `raw` over something that no reader takes for a whole file. Does nothing once closed."""
        if self._closed:
            return

        self._closed = True
        self._pending.clear()

        try:
            # Full blocks alone are a whole AGS1 file to a reader without the trusted length: one byte more makes it none.
            if self._blocks_written > 0 and not self._broken:
                self._put(_ABORT_MARK)
        finally:
            self._raw.close()

    def _check_writable(self) -> None:
        if self._closed:
            raise ValueError(f"{self._location}: is closed")
        if self._broken:
            raise OSError(f"{self._location}: an earlier write failed: nothing more can be written to it")

    def _write_block(self, plaintext: bytearray | memoryview) -> None:
        aad = ags1.block_aad(self._aad_prefix, self._blocks_written)
        # Random for each block, as in Iceberg Java: a counter would repeat if one DEK were ever used for two streams.
        nonce = self._random(NONCE_LENGTH)
        encrypted = self._cipher.encrypt_detached(nonce, plaintext, aad)
        self._put(ags1.header() + nonce if self._blocks_written == 0 else nonce)
        self._put(encrypted)
        self._blocks_written += 1

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        try:
            super()._put(data)
        except BaseException:
            self._broken = True
            raise
