"""How the plain view of an encrypted file is laid out: a segment for each stream that it takes over, and made bytes between them.

    encrypted stripe   index | encrypted index | data | encrypted data | footer with variants
                         │            │           │            │
    plain stripe       index of both ─┴──────── data of both ──┴───────── footer without variants

Of a column that is encrypted and granted the view has the true streams, encodings and statistics; of any other what stands unencrypted in
the file. For a column without rights that is its mask. Columns keep their numbers.

Of LZO files the view has the streams that are going to be read and no others, each expanded (expanded_stream.py), and no indexes: those
say where in a compressed stream something begins.

Raises FormatError for footers that do not fit the file.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Final

from tablecrypt.errors import FormatError
from tablecrypt.orc.column_keys import ColumnKeys
from tablecrypt.orc.compression import CompressionKind
from tablecrypt.orc.expanded_stream import ExpandedStream
from tablecrypt.orc.messages import ENCODING_VERSIONS, Stream, StreamGroup, StripeFooter, StripeInformation
from tablecrypt.orc.protobuf import Message, blob_field, encode, integer_field
from tablecrypt.orc.segments import MadeBytes, StreamBytes
from tablecrypt.orc.source import Source
from tablecrypt.orc.stream_places import UNENCRYPTED, PlacedStream, place_streams
from tablecrypt.orc.tail import MAGIC, Stripe, Tail

_POSTSCRIPT_LIMIT: Final = 255

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

    def __init__(self, tail: Tail, source: Source, keys: ColumnKeys, columns: Set[int], owners: dict[int, int]) -> None:
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
        postscript = encode([*self._tail.postscript.without(1, 5, 7), integer_field(1, len(footer)), integer_field(5, len(metadata))])
        if len(postscript) > _POSTSCRIPT_LIMIT:
            raise FormatError(f"{self._tail.location}: its postscript is too long")
        self._add_bytes(metadata + footer + postscript + bytes([len(postscript)]))
        return self._segments

    def _add_bytes(self, data: bytes) -> None:
        self._segments.append(MadeBytes(self._end, data))
        self._end += len(data)

    def _add_stripe(self, stripe: Stripe) -> StripeInformation:
        footer = self._tail.read_stripe_footer(self._source, stripe)
        kept = [one for one in place_streams(footer, stripe, self._tail.location) if self._is_kept(one)]
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

    def _is_kept(self, placed: PlacedStream) -> bool:
        column = placed.stream.column
        if self._owners.get(column, UNENCRYPTED) != placed.group:
            return False
        return not self._expands or (column in self._columns and not placed.stream.is_index)

    def _add_stream(self, placed: PlacedStream, stripe: Stripe, encoding_version: int) -> Stream:
        key = None if placed.group == UNENCRYPTED else self._keys.stripe_key(placed.group, stripe)
        stored = StreamBytes(self._end, placed, stripe.encrypt_id, key, encoding_version)
        segment = self._expanded(stored) if self._expands else stored
        self._segments.append(segment)
        self._end += segment.length
        return replace(placed.stream, length=segment.length)

    def _expanded(self, stored: StreamBytes) -> ExpandedStream:
        column = self._tail.schema.name_of(stored.placed.stream.column)
        return ExpandedStream(stored, self._source, self._tail.compression, f"{self._tail.location}: a stream of column {column!r}")

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
        return tuple(encodings)

    def _encoding_version(self, encoding: bytes) -> int:
        kind = Message.parse(encoding, f"{self._tail.location}: a column's encoding").integer(1)
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
