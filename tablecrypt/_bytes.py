"""Numbers and lengths in bytes: varints, frames, and a reader that never goes past the end.

    varint    7 bits a byte, least significant first; the highest bit says that another byte follows
    zigzag    0, -1, 1, -2 … as 0, 1, 2, 3 …, so that small negative numbers are short varints too
    frame     length (8 bytes, little endian, unless the format has another) | as many bytes

Thrift, protobuf, Avro and this package's own messages are made of these.

Raises FormatError for bytes that end early or are no such number.

Of open files: `length_of`, `read_up_to`, `write_all`. Of a small file of this machine: `small_content`.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tablecrypt._store_errors import reraise_naming
from tablecrypt.errors import FormatError

if TYPE_CHECKING:
    from typing_extensions import Buffer

SMALL_DECOMPRESSED: Final = 32 * 1024 * 1024
DECOMPRESSED_RATIO: Final = 64
"""JSON from whoever may write it comes to so many bytes, or to so many times those of which it is decompressed."""

_FRAME_LENGTH: Final = 8
_TOO_LARGE: Final = 2**64
_LAST_SHIFT: Final = 70

Order = Literal["little", "big"]


def read_varint(data: bytes, at: int, is_shortest: bool = True) -> tuple[int, int]:
    """The number of at most 64 bits at a place, and where it ends. IndexError where the data end inside it.

    Args:
        data: whatever holds it.
        at: where it begins.
        is_shortest: refuse one that is longer than it needs to be, where two spellings of a number must not mean the same.
    """
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at

    value &= 0x7F
    shift = 7

    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        # Checked in the loop: Python's integers would grow with as many bytes as a hostile file brings.
        if value >= _TOO_LARGE or shift > _LAST_SHIFT:
            raise FormatError("a number has more than 64 bits")
        # A last byte of zero adds nothing to the number, so the same number would have two spellings.
        if byte == 0 and is_shortest:
            raise FormatError("a number is written longer than it needs to be")
        if byte < 0x80:
            return value, at


def write_varint(out: bytearray, value: int) -> None:
    """Append a number that is not negative."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def varint(value: int) -> bytes:
    """A number that is not negative, alone."""
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def zigzag(value: int) -> int:
    """A number of 64 bits as one that is not negative."""
    return (value << 1) ^ (value >> 63)


def from_zigzag(value: int) -> int:
    """What `zigzag` was given."""
    return (value >> 1) ^ -(value & 1)


def frame(content: bytes, size: int = _FRAME_LENGTH, order: Order = "little") -> bytes:
    """The length of some bytes, in `size` bytes, and the bytes."""
    return len(content).to_bytes(size, order) + content


class ByteReader:
    """Bytes, read from front to back. FormatError, naming `what` they are, where there are too few; no message shows them."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self.what = what
        self.position = 0

    @property
    def left(self) -> int:
        """How many bytes were not read yet."""
        return len(self._data) - self.position

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        # A negative length would move back and read bytes again; a slice past the end would be short without an error.
        if not 0 <= length <= self.left:
            raise FormatError(f"{self.what} ends early: {length} bytes should follow byte {self.position}, {self.left} do")
        self.position += length
        return self._data[self.position - length : self.position]

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(self.left)

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """What is laid out like this."""
        return layout.unpack(self.take(layout.size))

    def number(self, size: int, order: Order = "little", *, signed: bool = False) -> int:
        """A number of `size` bytes."""
        return int.from_bytes(self.take(size), order, signed=signed)

    def varint(self, is_shortest: bool = False) -> int:
        """A varint of at most 64 bits."""
        try:
            value, self.position = read_varint(self._data, self.position, is_shortest)
        except IndexError:
            raise FormatError(f"{self.what} ends inside a number") from None
        except FormatError as error:
            raise FormatError(f"{self.what}: {error}") from None

        return value

    def long(self, is_shortest: bool = False) -> int:
        """A zigzag varint: a signed number of at most 64 bits."""
        return from_zigzag(self.varint(is_shortest))

    def frame(self, size: int = _FRAME_LENGTH, order: Order = "little") -> bytes:
        """The bytes behind their length."""
        return self.take(self.number(size, order))

    def check_exhausted(self) -> None:
        """Raise FormatError where anything is left."""
        if self.left:
            raise FormatError(f"{self.what} is followed by {self.left} bytes that do not belong to it")


def read_up_to(file: Any, offset: int, length: int, location: str) -> bytes:
    """Return `length` bytes of an open binary file from `offset` on; fewer only where it ends.

    Raises what the file raises, which names `location` where it would name no file.
    """
    pieces: list[bytes] = []
    try:
        file.seek(offset)
        # Unbuffered files and some stores answer with less than was asked for.
        while length and (piece := file.read(length)):
            pieces.append(piece)
            length -= len(piece)
    except OSError as error:
        reraise_naming(error, location)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def small_content(path: Path, most: int) -> bytes:
    """Return all of a file of this machine that holds settings, keys or a result.

    Raises:
        OSError: it cannot be read, or has more than `most` bytes: a device never ends.
    """
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is longer than {most} bytes", str(path))
    return content


def write_all(file: Any, data: bytes | bytearray | memoryview) -> None:
    """Write all of `data` to a binary file. No view of what is left of it outlives the call, as with `flat_view`."""
    rest = data
    try:
        while rest:
            # Some stores answer None for "all of it", and unbuffered files may take only a part.
            taken = file.write(rest)
            if taken is None or taken == len(rest):
                return
            rest = rest[taken:]
    finally:
        if isinstance(rest, memoryview) and rest is not data:
            rest.release()


@contextmanager
def flat_view(buffer: Buffer) -> Iterator[memoryview]:
    """Lend the bytes of a buffer that belongs to the caller, and release them at the end, whatever happens.

    An exception keeps the frames of its traceback alive, and they their views. The garbage collector may clear what the views are of, such
    as a BytesIO, before it clears the frames: some releases of Python crash then. So code that slices such a view releases the slice too,
    and forgets the buffer itself where the caller may be Python's own, as io.BufferedReader is.
    """
    with memoryview(buffer) as whole, whole.cast("B") as view:
        yield view


def length_of(file: Any) -> int:
    """Return the length of an open, seekable binary file in bytes, from the file itself: asking the store again would cost a request.

    Its position is any afterwards. Raises what the file raises.
    """
    # Arrow's files. Its client of Google's storage begins to read where a seek leads to, and the store refuses a read that begins at the
    # end.
    if callable(size := getattr(file, "size", None)):
        return int(size())
    file.seek(0, SEEK_END)
    return int(file.tell())
