"""An encrypted ORC file seen as a plain one: pyarrow.orc reads it like any other, and only what it reads is fetched and decrypted.

    encrypted stripe   index | encrypted index | data | encrypted data | footer with variants
                         │            │           │            │
    plain stripe       index of both ─┴──────── data of both ──┴───────── footer without variants

No value is decoded and no stream copied: the view is a list of segments, each either bytes made here (header, stripe footers, tail) or a
stream in the file with the key and IV that open it. AES-CTR can begin anywhere, so a read of any range costs just that range. Of a column
that is encrypted and granted the view has the true streams, encodings and statistics; of any other what stands unencrypted in the
file. For a column without rights that is its mask. Columns keep their numbers.

The one thing looked at beforehand are lengths (lengths.py), since pyarrow's decoder believes them: of lists, maps and texts, when the first
of a stream of them is read.

Raises FormatError for footers that do not fit the file. What the store raises passes through.
"""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Final

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError
from tablecrypt.orc.column_keys import ColumnKeys
from tablecrypt.orc.lengths import MAX_BYTES, MAX_ELEMENTS, check_lengths
from tablecrypt.orc.messages import ENCODING_VERSIONS, LAST_STREAM_KIND, Stream, StreamGroup, StreamKind, StripeFooter, StripeInformation
from tablecrypt.orc.protobuf import Message, blob_field, encode, integer_field
from tablecrypt.orc.source import Source
from tablecrypt.orc.stream_cipher import crypt_stream
from tablecrypt.orc.tail import MAGIC, Stripe, Tail

UNENCRYPTED: Final = -1
_POSTSCRIPT_LIMIT: Final = 255


@dataclass(frozen=True)
class PlacedStream:
    """A stream and where it begins in the file. `group` is the number of its variant, UNENCRYPTED for none."""

    stream: Stream
    group: int
    offset: int


def place_streams(footer: StripeFooter, stripe: Stripe, what: str) -> list[PlacedStream]:
    """Find where each stream of a stripe stands: index before data, and in each the unencrypted ones before the variants in order."""
    placed: list[PlacedStream] = []
    information = stripe.information
    position, end = information.offset, information.offset + information.streams_length
    for of_index in (True, False):
        for number, group in enumerate(footer.groups, start=UNENCRYPTED):
            for stream in group.streams:
                if stream.is_placeholder or stream.is_index != of_index:
                    continue
                if stream.kind > LAST_STREAM_KIND:
                    raise FormatError(f"{what}: a stream of an unknown kind {stream.kind} in the stripe at {information.offset}")
                placed.append(PlacedStream(stream, number, position))
                position += stream.length
                if position > end:
                    raise FormatError(f"{what}: the streams of the stripe at {information.offset} take more room than it has")
    return placed


@dataclass(frozen=True)
class _Segment:
    """A range of the view: `data`, or else `length` bytes of the file from `offset` on, to be decrypted where there is a `key`.

    A stream of lengths has the version of its encoding in `lengths_version`, all else 0.
    """

    start: int
    length: int
    data: bytes | None = None
    offset: int = 0
    key: Secret | None = None
    stream: Stream | None = None
    stripe_id: int = 0
    lengths_version: int = 0

    def read(self, source: Source, begin: int, length: int) -> bytes:
        if self.data is not None:
            return self.data[begin : begin + length]
        raw = source.read_at(self.offset + begin, length)
        if self.key is None or self.stream is None:
            return raw
        return crypt_stream(self.key, self.stream.column, self.stream.kind, self.stripe_id, raw, begin)


class PlainView(io.RawIOBase):
    """A readable, seekable file of plain ORC over an encrypted one. Not safe for several threads at once.

    Args:
        tail: the encrypted file's.
        source: its bytes.
        keys: its local keys.
        owners: for each column to decrypt the number of its variant.
    """

    def __init__(self, tail: Tail, source: Source, keys: ColumnKeys, owners: dict[int, int]) -> None:
        super().__init__()
        self._source = source
        self._position = 0
        self._tail = tail
        self._checked: set[int] = set()
        self.failure: BaseException | None = None
        self._segments = _ViewBuilder(tail, source, keys, owners).build()
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
            # The ORC reader below turns whatever comes out of here into its own error: the caller asks for this one.
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
                self._check_lengths(segment)
                parts.append(segment.read(self._source, begin, taken))
            position += taken
            length -= taken
            index += 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _check_lengths(self, segment: _Segment) -> None:
        """Check a stream of lengths as a whole when the first of it is read."""
        if not segment.lengths_version or segment.start in self._checked or segment.stream is None:
            return
        column = self._tail.schema[segment.stream.column]
        what = f"{self._tail.location}: the lengths of column {self._tail.schema.name_of(column.id)!r}"
        lengths = self._tail.compression.decompress(segment.read(self._source, 0, segment.length), what)
        check_lengths(lengths, segment.lengths_version, MAX_ELEMENTS if column.children else MAX_BYTES, what)
        self._checked.add(segment.start)


class _ViewBuilder:
    """Lays the segments of a view out, from the header to the postscript."""

    def __init__(self, tail: Tail, source: Source, keys: ColumnKeys, owners: dict[int, int]) -> None:
        self._tail = tail
        self._source = source
        self._keys = keys
        self._owners = owners
        self._segments: list[_Segment] = []
        self._end = 0

    def build(self) -> list[_Segment]:
        self._add_bytes(MAGIC)
        stripes = [self._add_stripe(stripe) for stripe in self._tail.stripes]
        contents_length = self._end
        compress = self._tail.compression.compress
        metadata = compress(self._metadata())
        footer = compress(self._footer(stripes, contents_length))
        postscript = encode([*self._tail.postscript.without(1, 5, 7), integer_field(1, len(footer)), integer_field(5, len(metadata))])
        if len(postscript) > _POSTSCRIPT_LIMIT:
            raise FormatError(f"{self._tail.location}: its postscript is too long")
        self._add_bytes(metadata + footer + postscript + bytes([len(postscript)]))
        return self._segments

    def _add_bytes(self, data: bytes) -> None:
        self._segments.append(_Segment(self._end, len(data), data))
        self._end += len(data)

    def _add_stripe(self, stripe: Stripe) -> StripeInformation:
        footer = self._tail.read_stripe_footer(self._source, stripe)
        placed = place_streams(footer, stripe, self._tail.location)
        kept = [one for one in placed if self._owners.get(one.stream.column, UNENCRYPTED) == one.group]
        encodings = self._encodings(footer)
        offset = self._end
        for one in kept:
            self._add_stream(one, stripe, ENCODING_VERSIONS[_encoding_kind(encodings[one.stream.column])])
        plain = StripeFooter((StreamGroup(tuple(one.stream for one in kept), encodings),), footer.rest)
        encoded = self._tail.compression.compress(plain.encode())
        self._add_bytes(encoded)
        return StripeInformation(
            offset,
            sum(one.stream.length for one in kept if one.stream.is_index),
            sum(one.stream.length for one in kept if not one.stream.is_index),
            len(encoded),
            stripe.information.rows,
        )

    def _add_stream(self, placed: PlacedStream, stripe: Stripe, encoding_version: int) -> None:
        stream = placed.stream
        segment = _Segment(
            self._end,
            stream.length,
            offset=placed.offset,
            stream=stream,
            stripe_id=stripe.encrypt_id,
            lengths_version=encoding_version if stream.kind == StreamKind.LENGTH else 0,
        )
        if placed.group != UNENCRYPTED:
            segment = replace(segment, key=self._keys.stripe_key(placed.group, stripe))
        self._segments.append(segment)
        self._end += stream.length

    def _encodings(self, footer: StripeFooter) -> tuple[bytes, ...]:
        encodings = list(footer.groups[0].encodings)
        if len(encodings) != len(self._tail.schema):
            raise FormatError(f"{self._tail.location}: a stripe has {len(encodings)} encodings for {len(self._tail.schema)} columns")
        for column_id, number in self._owners.items():
            own = footer.groups[number + 1].encodings
            root = self._keys.encryption.variants[number].root
            if column_id - root >= len(own):
                raise FormatError(f"{self._tail.location}: a stripe has no encoding for the encrypted column {column_id}")
            encodings[column_id] = own[column_id - root]
        for encoding in encodings:
            # A decoder would take an unknown encoding for the oldest one.
            if _encoding_kind(encoding) >= len(ENCODING_VERSIONS):
                raise FormatError(f"{self._tail.location}: a stripe has a column of an unknown encoding {_encoding_kind(encoding)}")
        return tuple(encodings)

    def _metadata(self) -> bytes:
        stripes = self._tail.stripe_statistics()
        position = 0
        for number, variant in enumerate(self._keys.encryption.variants):
            for stream in variant.stripe_statistics:
                raw = self._tail.statistics[position : position + stream.length]
                position += stream.length
                if position > len(self._tail.statistics):
                    raise FormatError(f"{self._tail.location}: the encrypted stripe statistics take more room than they have")
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
        fields = self._tail.footer.without(2, 3, 7, 10)
        fields.append(integer_field(2, contents_length))
        fields += [blob_field(3, stripe.encode()) for stripe in stripes]
        return encode(fields + [blob_field(7, column) for column in statistics])


def _encoding_kind(encoding: bytes) -> int:
    return Message.parse(encoding, "a column's encoding").integer(1)
