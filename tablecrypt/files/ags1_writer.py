"""Writing an AGS1 file (layout: tablecrypt.crypto.ags1) as a stream: a full block leaves as soon as it is there.

Memory: the plaintext of at most one block, and one encrypted block on its way to the store. Every block gets a new random nonce. Nothing
in an AGS1 file says that it is whole: a writer that gives up after a full block leaves one byte more, a length that no AGS1 file has.

Raises FormatError past 2^31 - 1 blocks. What the store raises passes through, and the stream can then only be abandoned.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from pyiceberg.io import OutputStream

from tablecrypt.crypto import ags1
from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, AesGcm
from tablecrypt.crypto.key_metadata import StandardKeyMetadata

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ABORT_MARK: Final = b"\x00"


class Ags1OutputStream:
    """Takes plaintext, writes one AGS1 file to `raw`. The file is whole only after `close()` has returned.

    Leaving a `with` block by an exception abandons the file. Closing the stream closes `raw`.

    Args:
        raw: where the encrypted file goes. It is given `bytes` of its own each time, so it may keep them.
        key_metadata: the DEK and AAD prefix, used for this file and no other.
        random: returns as many unpredictable bytes as asked for.
    """

    mode: Final = "wb"

    def __init__(self, raw: OutputStream, key_metadata: StandardKeyMetadata, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._raw = raw
        self._cipher = AesGcm(key_metadata.encryption_key)
        self._aad_prefix = key_metadata.aad_prefix
        self._random = random
        self._pending = bytearray()
        self._blocks_written = 0
        self._plaintext_length = 0
        self._file_length: int | None = None
        self._closed = False
        self._broken = False

    @property
    def closed(self) -> bool:
        return self._closed

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

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        """How many plaintext bytes were written."""
        return self._plaintext_length

    def flush(self) -> None:
        """Does nothing: a block is encrypted only when it is full or the last."""

    def write(self, data: Buffer) -> int:
        """Take all of `data` and return its length in bytes. ValueError when closed, OSError after an earlier failure."""
        self._check_writable()
        view = memoryview(data).cast("B")
        written = len(view)
        if self._pending:
            space = ags1.BLOCK_LENGTH - len(self._pending)
            self._pending += view[:space]
            view = view[space:]
            if len(self._pending) == ags1.BLOCK_LENGTH:
                self._write_block(self._pending)
                self._pending.clear()
        while len(view) >= ags1.BLOCK_LENGTH:
            self._write_block(view[: ags1.BLOCK_LENGTH])
            view = view[ags1.BLOCK_LENGTH :]
        self._pending += view
        self._plaintext_length += written
        return written

    def close(self) -> None:
        """Write the last block and close `raw`. Closing twice is fine. OSError when an earlier write failed: the file is not whole."""
        if self._closed:
            return
        if self._broken:
            self.abort()
            raise OSError("an earlier write to the encrypted file failed: the file is incomplete")
        try:
            if self._pending or self._blocks_written == 0:
                self._write_block(self._pending)
        except BaseException:
            self.abort()
            raise
        self._closed = True
        self._pending.clear()
        self._raw.close()
        self._file_length = ags1.file_length(self._plaintext_length)

    def abort(self) -> None:
        """Give the file up: close `raw` over something that no reader takes for a whole file. Does nothing once closed."""
        if self._closed:
            return
        self._closed = True
        self._pending.clear()
        try:
            if self._blocks_written > 0 and not self._broken:
                self._put(_ABORT_MARK)
        finally:
            self._raw.close()

    def __enter__(self) -> Ags1OutputStream:
        return self

    def __exit__(self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None) -> None:
        if excinst is None:
            self.close()
            return
        try:
            self.abort()
        except Exception as failure:  # noqa: BLE001 - whatever the store raises, the caller's own exception is the one to see
            excinst.add_note(f"the unfinished encrypted file could not be closed either: {failure}")

    def _check_writable(self) -> None:
        if self._closed:
            raise ValueError("the encrypted file is closed")
        if self._broken:
            raise OSError("an earlier write to the encrypted file failed: nothing more can be written to it")

    def _write_block(self, plaintext: bytearray | memoryview) -> None:
        aad = ags1.block_aad(self._aad_prefix, self._blocks_written)
        nonce = self._random(NONCE_LENGTH)
        encrypted = self._cipher.encrypt_detached(nonce, plaintext, aad)
        self._put(ags1.header() + nonce if self._blocks_written == 0 else nonce)
        self._put(encrypted)
        self._blocks_written += 1

    def _put(self, data: bytes) -> None:
        try:
            self._put_all(data)
        except BaseException:
            self._broken = True
            raise

    def _put_all(self, data: bytes) -> None:
        while data:
            # Some stores answer None for "all of it", and unbuffered files may take only a part.
            taken = self._raw.write(data)
            if taken is None or taken == len(data):
                return
            data = data[taken:]
