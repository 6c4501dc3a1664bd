"""Encrypted ORC files taken apart and put together again, as somebody may who writes their storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tablecrypt.orc.compression import Compression
from tablecrypt.orc.messages import Encryption, Stream, StreamGroup, StripeFooter, StripeInformation
from tablecrypt.orc.protobuf import Field, blob_field, encode, integer_field, packed_field
from tablecrypt.orc.source import FileSource
from tablecrypt.orc.tail import MAGIC, UNENCRYPTED, locate_streams, read_tail
from tests.support.orc_files import encrypted

STRUCT = 12
TEXT = 7


@dataclass
class Part:
    """A stream of a column as it is stored."""

    kind: int
    column: int
    stored: bytes


@dataclass
class StripeParts:
    """A stripe: of what is not encrypted and of each variant the streams and encodings."""

    rows: int
    encrypt_id: int
    keys: tuple[bytes, ...]
    streams: list[list[Part]]
    encodings: list[list[bytes]]
    rest: list[Field]


@dataclass
class OrcParts:
    """All of a file that can be changed. `footer` is without stripes, lengths and the encryption; `metadata` are stripe statistics."""

    compression: Compression
    stripes: list[StripeParts]
    footer: list[Field]
    encryption: Encryption
    metadata: list[list[bytes]]
    statistics: bytes
    postscript: list[Field]

    @classmethod
    def of(cls, data: bytes) -> OrcParts:
        """Take a file apart."""
        source = FileSource(data)
        tail = read_tail(source)
        stripes = []
        for stripe in tail.stripes:
            footer = tail.read_stripe_footer(source, stripe)
            streams: list[list[Part]] = [[] for _ in footer.groups]
            for located in locate_streams(footer, stripe, "memory"):
                stored = source.read_at(located.offset, located.stream.length)
                streams[located.group - UNENCRYPTED].append(Part(located.stream.kind, located.stream.column, stored))
            encodings = [list(group.encodings) for group in footer.groups]
            stripes.append(
                StripeParts(stripe.information.rows, stripe.encrypt_id, stripe.encrypted_keys, streams, encodings, list(footer.rest))
            )

        return cls(
            tail.compression,
            stripes,
            tail.footer.without(2, 3, 6, 10),
            tail.require_encryption(),
            tail.stripe_statistics(),
            tail.statistics,
            tail.postscript.without(1, 5, 7),
        )

    def take_out(self, root: int) -> None:
        """Take a column out of the encryption. What remains of it is the mask."""
        variants = list(self.encryption.variants)
        number = next(number for number, variant in enumerate(variants) if variant.root == root)
        start = sum(stream.length for variant in variants[:number] for stream in variant.stripe_statistics)
        length = sum(stream.length for stream in variants.pop(number).stripe_statistics)
        self.statistics = self.statistics[:start] + self.statistics[start + length :]
        self.encryption = replace(self.encryption, variants=tuple(variants))
        for stripe in self.stripes:
            stripe.keys = stripe.keys[:number] + stripe.keys[number + 1 :]
            del stripe.streams[number + 1], stripe.encodings[number + 1]

    def file(self) -> bytes:
        """Put the file together."""
        content = bytearray(MAGIC)
        stripes = [_stored_stripe(content, stripe, self.compression) for stripe in self.stripes]
        end = len(content)
        statistics = [encode([blob_field(1, column) for column in stripe]) for stripe in self.metadata]
        metadata = self.compression.compress(encode([blob_field(1, stripe) for stripe in statistics]))
        rows = sum(stripe.rows for stripe in self.stripes)
        lengths = [integer_field(2, end), integer_field(6, rows), *(blob_field(3, stripe.encode()) for stripe in stripes)]
        footer = self.compression.compress(encode([*self.footer, *lengths, blob_field(10, self.encryption.encode())]))
        sizes = zip((1, 5, 7), (footer, metadata, self.statistics), strict=True)
        postscript = encode([*self.postscript, *(integer_field(number, len(section)) for number, section in sizes)])

        return bytes(content) + self.statistics + metadata + footer + postscript + bytes([len(postscript)])


def _stored_stripe(content: bytearray, stripe: StripeParts, compression: Compression) -> StripeInformation:
    """Append a stripe, and return what the footer says of it."""
    offset = len(content)
    groups = [[(Stream(part.kind, part.column, len(part.stored)), part.stored) for part in parts] for parts in stripe.streams]
    lengths = []
    for is_index in (True, False):
        stored = b"".join(stored for group in groups for stream, stored in group if stream.is_index == is_index)
        content += stored
        lengths.append(len(stored))

    told = zip(groups, stripe.encodings, strict=True)
    footer = StripeFooter(tuple(StreamGroup(tuple(stream for stream, _ in group), tuple(each)) for group, each in told), tuple(stripe.rest))
    encoded = compression.compress(footer.encode())
    content += encoded

    of_index, of_data = lengths
    return StripeInformation(offset, of_index, of_data, len(encoded), stripe.rows, stripe.encrypt_id, stripe.keys)


def type_of(kind: int, *children: int, fields: Sequence[Field] = ()) -> bytes:
    """Return a type of the footer."""
    return encode([integer_field(1, kind), packed_field(2, children), *fields])


def encoding(kind: int, dictionary_size: int = 0) -> bytes:
    """Return the encoding of a column in a stripe."""
    return encode([integer_field(1, kind), integer_field(2, dictionary_size)])


def file_of(types: Sequence[bytes], streams: Sequence[Part], encodings: Sequence[bytes], rows: int, codec: str = "uncompressed") -> bytes:
    """Return a file of a column `a`, number 1, with these types, streams and encodings, and an encrypted one, of which it has no rows."""
    parts = OrcParts.of(encrypted(pa.table({"ssn": ["1"]}), {"pii": ["ssn"]}, compression=codec))
    last = len(types) + 1
    root = type_of(STRUCT, 1, last, fields=[blob_field(3, b"a"), blob_field(3, b"ssn")])
    named = [blob_field(4, each) for each in (root, *types, type_of(TEXT))]
    parts.footer = [field for field in parts.footer if field[0] not in (4, 7)] + named + [blob_field(7, b"") for _ in named]
    (variant,) = parts.encryption.variants
    parts.encryption = replace(parts.encryption, variants=(replace(variant, root=last, stripe_statistics=()),))
    parts.metadata, parts.statistics = [[b""] * len(named)], b""
    (stripe,) = parts.stripes
    stripe.rows = rows
    stripe.streams = [list(streams), []]
    stripe.encodings[0] = [encoding(0), *encodings, encoding(0)]

    return parts.file()
