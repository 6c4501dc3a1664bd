"""An encrypted ORC file seen as a plain one: pyarrow.orc reads it like any other, and only what it reads is fetched and decrypted.

    encrypted stripe   index | encrypted index | data | encrypted data | footer with variants
                         │            │           │            │
    plain stripe       index of both ─┴──────── data of both ──┴───────── footer without variants

No value is decoded and no stream copied: the view is a list of segments, each either bytes made for it or a stream in the file with the key
and IV that decrypt it. AES-CTR can begin anywhere, so reading a range costs just that range. Of a column that is encrypted and granted the
view has the true streams, encodings and statistics; of any other column what the file stores unencrypted. For a column without rights that
is its mask. Columns keep their numbers.

Of LZO files the view has only the streams that are going to be read, in chunks that are not compressed, and no indexes, which state offsets
within compressed streams:

    in the file    header | LZO        header | LZO     header | original
    in the view    header | original   header | original   header | original

pyarrow's own LZO decoder is never given a chunk: it reads literals past the end of a chunk that does not have
them, and confuses two kinds of matches that Java's writer leaves out. Offsets in the view must be known before it is read, and the length
of what a chunk holds is known only once it is decompressed. So an LZO stream is decompressed twice, when it gets its offset and when it is
read; only where its chunks begin stays in memory.

Numbers that pyarrow's decoder trusts, such as lengths of texts, are checked (trusted_numbers.py) before it gets the first of a stream.

Raises FormatError for footers, chunks and numbers that do not fit the file, and MissingExtraError for LZO without lzallright. Errors of the
store pass through.
"""

from __future__ import annotations

import io
import os
from array import array
from bisect import bisect_right
from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Final

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError
from tablecrypt.orc.column_keys import LocalColumnKeys
from tablecrypt.orc.compression import Compression, CompressionKind, original_chunk
from tablecrypt.orc.messages import ENCODING_VERSIONS, Stream, StreamGroup, StripeFooter, StripeInformation
from tablecrypt.orc.protobuf import Message, blob_field, encode, integer_field
from tablecrypt.orc.source import OrcSource
from tablecrypt.orc.stream_cipher import crypt_stream
from tablecrypt.orc.tail import MAGIC, UNENCRYPTED, LocatedStream, Stripe, Tail, locate_streams
from tablecrypt.orc.trusted_numbers import MAX_ELEMENTS, check_of

_POSTSCRIPT_LIMIT: Final = 255


@dataclass(frozen=True)
class MadeBytes:
    """Bytes of the view itself, from `start` on: its header, stripe footers and tail."""

    start: int
    data: bytes

    @property
    def length(self) -> int:
        return len(self.data)

    def read(self, source: OrcSource, begin: int, length: int) -> bytes:
        return self.data[begin : begin + length]


@dataclass(frozen=True)
class StreamBytes:
    """A stream of the file, which begins at `start` in the view. Without a key it is not encrypted."""

    start: int
    located: LocatedStream
    stripe_id: int
    key: Secret | None
    encoding_version: int

    @property
    def length(self) -> int:
        return self.located.stream.length

    def read(self, source: OrcSource, begin: int, length: int) -> bytes:
        raw = source.read_at(self.located.offset + begin, length)
        if self.key is None:
            return raw
        return crypt_stream(self.key, self.located.stream.column, self.located.stream.kind, self.stripe_id, raw, begin)


class ExpandedStream:
    """The stream `stored`, decompressed, which begins at `start` in the view. `what` names it in errors."""

    def __init__(self, stored: StreamBytes, source: OrcSource, compression: Compression, what: str) -> None:
        self.start = stored.start
        self._stored = stored
        self._compression = compression
        self._what = what
        # Arrays, because a stream can consist of chunks that hold nothing.
        self._stored_ends = array("Q", [0])
        self._ends = array("Q", [0])
        for end, contents in compression.open_chunks(stored.read(source, 0, stored.length), what):
            self._stored_ends.append(end)
            self._ends.append(self._ends[-1] + len(original_chunk(contents)))

    @property
    def length(self) -> int:
        return self._ends[-1]

    @property
    def located(self) -> LocatedStream:
        return self._stored.located

    @property
    def encoding_version(self) -> int:
        return self._stored.encoding_version

    def read(self, source: OrcSource, begin: int, length: int) -> bytes:
        """Return `length` bytes from `begin` on, at least one."""
        first = bisect_right(self._ends, begin) - 1
        last = bisect_right(self._ends, begin + length - 1)
        stored = self._stored.read(source, self._stored_ends[first], self._stored_ends[last] - self._stored_ends[first])
        opened = b"".join(original_chunk(contents) for _, contents in self._compression.open_chunks(stored, self._what))
        return opened[begin - self._ends[first] :][:length]


ViewSegment = MadeBytes | StreamBytes | ExpandedStream


class ViewLayout:
    """Lays the segments of a view out, from the header to the postscript.

    Args:
        tail: the encrypted file's.
        source: its bytes; of the stripes only their footers are read, unless they are LZO.
        keys: its local keys.
        columns: those that are going to be read.
        owners: for each column to decrypt the number of its variant.
    """

    def __init__(self, tail: Tail, source: OrcSource, keys: LocalColumnKeys, columns: Set[int], owners: dict[int, int]) -> None:
        self._tail = tail
        self._source = source
        self._keys = keys
        self._columns = columns
        self._owners = owners
        self._expands = tail.compression.kind is CompressionKind.LZO
        self._segments: list[ViewSegment] = []
        self._end = 0

    def build(self) -> list[ViewSegment]:
        self._add_bytes(MAGIC)
        stripes = [self._add_stripe(stripe) for stripe in self._tail.stripes]
        contents_length = self._end
        compress = self._tail.compression.compress
        metadata = compress(self._metadata())
        footer = compress(self._footer(stripes, contents_length))
        # Field 7, the length of the encrypted statistics, is left out: the view has none, and a decoder would look for them.
        postscript = encode([*self._tail.postscript.without(1, 5, 7), integer_field(1, len(footer)), integer_field(5, len(metadata))])
        # One byte states its length, and the file's own postscript may have brought any number of unknown fields.
        if len(postscript) > _POSTSCRIPT_LIMIT:
            raise FormatError(f"{self._tail.location}: its postscript is too long")

        self._add_bytes(metadata + footer + postscript + bytes([len(postscript)]))

        return self._segments

    def _add_bytes(self, data: bytes) -> None:
        self._segments.append(MadeBytes(self._end, data))
        self._end += len(data)

    def _add_stripe(self, stripe: Stripe) -> StripeInformation:
        footer = self._tail.read_stripe_footer(self._source, stripe)
        kept = [one for one in locate_streams(footer, stripe, self._tail.location) if self._is_kept(one)]
        encodings = self._encodings(footer)
        versions = [self._encoding_version(encoding) for encoding in encodings]
        offset = self._end
        streams = tuple(self._add_stream(one, stripe, versions[one.stream.column]) for one in kept)
        plain = StripeFooter((StreamGroup(streams, encodings),), footer.rest)
        encoded = self._tail.compression.compress(plain.encode())
        self._add_bytes(encoded)

        return StripeInformation(
            offset,
            sum(stream.length for stream in streams if stream.is_index),
            sum(stream.length for stream in streams if not stream.is_index),
            len(encoded),
            stripe.information.rows,
        )

    def _is_kept(self, located: LocatedStream) -> bool:
        column = located.stream.column
        # Each column has one group: its variant if the key was granted, else the mask. A stream that a variant claims of a column outside
        # its subtree has no owner, and goes.
        if self._owners.get(column, UNENCRYPTED) != located.group:
            return False
        return not self._expands or (column in self._columns and not located.stream.is_index)

    def _add_stream(self, located: LocatedStream, stripe: Stripe, encoding_version: int) -> Stream:
        key = None if located.group == UNENCRYPTED else self._keys.stripe_key(located.group, stripe)
        stored = StreamBytes(self._end, located, stripe.encrypt_id, key, encoding_version)
        segment = self._expanded(stored) if self._expands else stored
        self._segments.append(segment)
        self._end += segment.length
        return replace(located.stream, length=segment.length)

    def _expanded(self, stored: StreamBytes) -> ExpandedStream:
        column = self._tail.schema.name_of(stored.located.stream.column)
        return ExpandedStream(stored, self._source, self._tail.compression, f"{self._tail.location}: a stream of column {column!r}")

    def _encodings(self, footer: StripeFooter) -> tuple[bytes, ...]:
        encodings = list(footer.groups[0].encodings)
        # Encodings are found by position: with one missing, the columns behind it would be decoded as another type.
        if len(encodings) != len(self._tail.schema):
            raise FormatError(f"{self._tail.location}: a stripe has {len(encodings)} encodings for {len(self._tail.schema)} columns")

        for column_id, number in self._owners.items():
            own = footer.groups[number + 1].encodings
            root = self._keys.encryption.variants[number].root
            if column_id - root >= len(own):
                raise FormatError(f"{self._tail.location}: a stripe has no encoding for the encrypted column {column_id}")
            encodings[column_id] = own[column_id - root]

        return tuple(encodings)

    def _encoding_version(self, encoding: bytes) -> int:
        message = Message.parse(encoding, f"{self._tail.location}: a column's encoding")
        kind, dictionary_size = message.integer(1), message.integer(2)
        # The decoder makes room for a dictionary before it reads the first text, and for the largest sizes too little room.
        if dictionary_size > MAX_ELEMENTS:
            raise FormatError(f"{self._tail.location}: a stripe has a dictionary of {dictionary_size} texts, more than {MAX_ELEMENTS}")
        if kind >= len(ENCODING_VERSIONS):
            # A decoder would take it for the oldest one.
            raise FormatError(f"{self._tail.location}: a stripe has a column of an unknown encoding {kind}")
        return ENCODING_VERSIONS[kind]

    def _metadata(self) -> bytes:
        stripes = self._tail.stripe_statistics()
        position = 0
        for number, variant in enumerate(self._keys.encryption.variants):
            for stream in variant.stripe_statistics:
                raw = self._tail.statistics[position : position + stream.length]
                position += stream.length
                # A slice past the end would decrypt fewer bytes than the footer says, without an error.
                if position > len(self._tail.statistics):
                    raise FormatError(f"{self._tail.location}: the encrypted stripe statistics take more space than they have")
                # A column that is shown as its mask keeps the mask's statistics: filters have to agree with the values that the view has.
                if self._owners.get(stream.column) == number:
                    self._place_statistics(stripes, stream.column, self._keys.stripe_statistics(number, stream, raw))

        encoded = [encode([blob_field(1, column) for column in columns]) for columns in stripes]

        return encode([blob_field(1, stripe) for stripe in encoded])

    def _place_statistics(self, stripes: list[list[bytes]], column_id: int, statistics: list[bytes]) -> None:
        for columns, own in zip(stripes, statistics, strict=False):
            if column_id >= len(columns):
                raise FormatError(f"{self._tail.location}: the stripe statistics have no column {column_id}")
            columns[column_id] = own

    def _footer(self, stripes: list[StripeInformation], contents_length: int) -> bytes:
        statistics = self._tail.file_statistics
        for column_id, number in self._owners.items():
            if column_id >= len(statistics):
                raise FormatError(f"{self._tail.location}: the file statistics have no column {column_id}")
            statistics[column_id] = self._keys.file_statistics(number)[column_id - self._keys.encryption.variants[number].root]

        # Without field 10, the encryption, a decoder takes the view for a plain file.
        fields = self._tail.footer.without(2, 3, 7, 10)
        fields.append(integer_field(2, contents_length))
        fields += [blob_field(3, stripe.encode()) for stripe in stripes]

        return encode(fields + [blob_field(7, column) for column in statistics])


class PlainView(io.RawIOBase):
    """A readable, seekable file of plain ORC over an encrypted one. Not safe for several threads at once.

    Args:
        tail: the encrypted file's.
        source: its bytes.
        keys: its local keys.
        columns: those that are going to be read.
        owners: for each column to decrypt the number of its variant.
    """

    def __init__(self, tail: Tail, source: OrcSource, keys: LocalColumnKeys, columns: Set[int], owners: dict[int, int]) -> None:
        super().__init__()
        self._source = source
        self._position = 0
        self._tail = tail
        self._checked: set[int] = set()
        self.failure: BaseException | None = None
        self._segments = ViewLayout(tail, source, keys, columns, owners).build()
        self._starts = [segment.start for segment in self._segments]
        self._length = self._segments[-1].start + self._segments[-1].length

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._length - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        try:
            data = self._read_range(self._position, wanted)
        except BaseException as failure:
            # pyarrow's ORC reader turns any exception from here into its own: the caller asks for this one.
            self.failure = failure
            raise

        self._position += len(data)

        return data

    def _read_range(self, position: int, length: int) -> bytes:
        parts: list[bytes] = []
        index = bisect_right(self._starts, position) - 1
        while length > 0:
            segment = self._segments[index]
            begin = position - segment.start
            taken = min(length, segment.length - begin)
            if taken > 0:
                # Before the first byte reaches the decoder, which allocates what a length claims.
                self._check_numbers(segment)
                parts.append(segment.read(self._source, begin, taken))

            position += taken
            length -= taken
            index += 1

        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _check_numbers(self, segment: ViewSegment) -> None:
        """Check a stream of numbers that the decoder trusts, as a whole, when the first of it is read."""
        if isinstance(segment, MadeBytes) or segment.start in self._checked:
            return

        stream = segment.located.stream
        if (trusted := check_of(self._tail.schema, stream)) is not None:
            what = f"{self._tail.location}: the {trusted.numbers} of column {self._tail.schema.name_of(stream.column)!r}"
            numbers = self._tail.compression.decompress(segment.read(self._source, 0, segment.length), what)
            trusted.check(numbers, segment.encoding_version, what)
        self._checked.add(segment.start)
