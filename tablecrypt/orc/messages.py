"""The messages in an ORC file's tail and stripe footers: where things are, and which keys encrypt them.

    PostScript         1 footer length  2 compression  3 block size  5 metadata length  7 stripe statistics length  8000 "ORC"
    Footer             2 content length  3 stripes  4 types  6 rows  7 statistics  10 encryption
    StripeInformation  1 offset  2 index length  3 data length  4 footer length  5 rows  6 encrypt stripe id  7 encrypted local keys
    StripeFooter       1 streams  2 encodings  3 timezone  4 encrypted variants: 1 streams  2 encodings
    Stream             1 kind  2 column  3 length
    Encryption         1 masks  2 keys: 1 name  2 version  3 algorithm   3 variants   4 key provider
    Variant            1 root column  2 index of its key  3 encrypted local key of the tail  4 stripe statistics  5 file statistics

Statistics, encodings and types are carried as the bytes they are. Lengths are bytes. Raises FormatError.
Specification: Apache ORC v1, orc_proto.proto.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tablecrypt.errors import FormatError
from tablecrypt.orc.key_providers import MasterKeyVersion
from tablecrypt.orc.protobuf import Field, Message, blob_field, encode, integer_field, packed_field

ALGORITHM_KEY_LENGTHS: Final = {1: 16, 2: 32}
_ALGORITHMS: Final = {length: number for number, length in ALGORITHM_KEY_LENGTHS.items()}


class StreamKind(IntEnum):
    """The kinds of streams that this library distinguishes; all other kinds below 10 hold data too."""

    PRESENT = 0
    DATA = 1
    LENGTH = 2
    SECONDARY = 5
    ROW_INDEX = 6
    BLOOM_FILTER = 7
    BLOOM_FILTER_UTF8 = 8
    ENCRYPTED_INDEX = 9
    ENCRYPTED_DATA = 10
    STRIPE_STATISTICS = 100
    FILE_STATISTICS = 101


INDEX_KINDS: Final = frozenset({StreamKind.ROW_INDEX, StreamKind.BLOOM_FILTER, StreamKind.BLOOM_FILTER_UTF8})
PLACEHOLDER_KINDS: Final = frozenset({StreamKind.ENCRYPTED_INDEX, StreamKind.ENCRYPTED_DATA})
LAST_STREAM_KIND: Final = StreamKind.ENCRYPTED_DATA
"""The highest kind of a stream in a stripe."""
ENCODING_VERSIONS: Final = (1, 1, 2, 2)
"""Which version of run-length encoding the numbers of a column have, by the kind of its encoding (DIRECT, DICTIONARY, and both in V2)."""
BLOOM_FILTER_KINDS: Final = frozenset({StreamKind.BLOOM_FILTER, StreamKind.BLOOM_FILTER_UTF8})


@dataclass(frozen=True)
class Stream:
    """What a footer says of one stream; where it begins follows from those before it."""

    kind: int
    column: int
    length: int

    @classmethod
    def parse(cls, message: Message) -> Stream:
        return cls(message.integer(1), message.integer(2), message.integer(3))

    def encode(self) -> bytes:
        return encode([integer_field(1, self.kind), integer_field(2, self.column), integer_field(3, self.length)])

    @property
    def is_index(self) -> bool:
        return self.kind in INDEX_KINDS

    @property
    def is_placeholder(self) -> bool:
        """Whether it is only a placeholder for the space that encrypted streams take."""
        return self.kind in PLACEHOLDER_KINDS


@dataclass(frozen=True)
class StreamGroup:
    """The streams and encodings of the unencrypted columns, or of one variant's, in a stripe."""

    streams: tuple[Stream, ...]
    encodings: tuple[bytes, ...]

    @classmethod
    def parse(cls, message: Message) -> StreamGroup:
        return cls(tuple(Stream.parse(stream) for stream in message.messages(1)), tuple(message.blobs(2)))

    def fields(self) -> list[Field]:
        return [blob_field(1, stream.encode()) for stream in self.streams] + [blob_field(2, encoding) for encoding in self.encodings]


@dataclass(frozen=True)
class StripeFooter:
    """The streams of a stripe: `groups[0]` unencrypted, then one group for each variant. `rest` is the writer's timezone."""

    groups: tuple[StreamGroup, ...]
    rest: tuple[Field, ...]

    @classmethod
    def parse(cls, message: Message) -> StripeFooter:
        groups = (StreamGroup.parse(message), *(StreamGroup.parse(variant) for variant in message.messages(4)))
        return cls(groups, tuple(message.without(1, 2, 4)))

    def encode(self) -> bytes:
        variants = [blob_field(4, encode(group.fields())) for group in self.groups[1:]]
        return encode([*self.groups[0].fields(), *self.rest, *variants])


@dataclass(frozen=True)
class StripeInformation:
    """Where a stripe is. Only the first stripe of a file, and of each part of a merged file, has the last two."""

    offset: int
    index_length: int
    data_length: int
    footer_length: int
    rows: int
    encrypt_stripe_id: int | None = None
    encrypted_local_keys: tuple[bytes, ...] = ()

    @classmethod
    def parse(cls, message: Message) -> StripeInformation:
        offset, index_length, data_length, footer_length, rows = (message.integer(number) for number in range(1, 6))
        return cls(offset, index_length, data_length, footer_length, rows, message.optional_integer(6), tuple(message.blobs(7)))

    def encode(self) -> bytes:
        numbers = (self.offset, self.index_length, self.data_length, self.footer_length, self.rows)
        fields = [integer_field(number, value) for number, value in enumerate(numbers, start=1)]
        if self.encrypt_stripe_id is not None:
            fields.append(integer_field(6, self.encrypt_stripe_id))
        return encode(fields + [blob_field(7, key) for key in self.encrypted_local_keys])

    @property
    def streams_length(self) -> int:
        return self.index_length + self.data_length

    @property
    def end(self) -> int:
        return self.offset + self.streams_length + self.footer_length


@dataclass(frozen=True)
class Variant:
    """A column and those below it, encrypted under one key."""

    root: int
    key: int
    encrypted_key: bytes
    stripe_statistics: tuple[Stream, ...]
    file_statistics: bytes

    @classmethod
    def parse(cls, message: Message) -> Variant:
        statistics = tuple(Stream.parse(stream) for stream in message.messages(4))
        return cls(message.integer(1), message.integer(2), message.blob(3), statistics, message.blob(5))

    def encode(self) -> bytes:
        fields = [integer_field(1, self.root), integer_field(2, self.key), blob_field(3, self.encrypted_key)]
        fields += [blob_field(4, stream.encode()) for stream in self.stripe_statistics]
        return encode([*fields, blob_field(5, self.file_statistics)])


@dataclass(frozen=True)
class MaskDescription:
    """How the unencrypted copy of some columns was made, for information."""

    name: str
    parameters: tuple[str, ...]
    columns: tuple[int, ...]

    def encode(self) -> bytes:
        parameters = [blob_field(2, parameter.encode()) for parameter in self.parameters]
        return encode([blob_field(1, self.name.encode()), *parameters, packed_field(3, self.columns)])


@dataclass(frozen=True)
class Encryption:
    """What a file says about its encrypted columns."""

    masks: tuple[bytes, ...]
    keys: tuple[MasterKeyVersion, ...]
    variants: tuple[Variant, ...]
    provider: int

    @classmethod
    def parse(cls, message: Message, what: str) -> Encryption:
        keys = tuple(_parse_key(key, what) for key in message.messages(2))
        variants = tuple(Variant.parse(variant) for variant in message.messages(3))
        return cls(tuple(message.blobs(1)), keys, variants, message.integer(4))

    def encode(self) -> bytes:
        fields = [blob_field(1, mask) for mask in self.masks]
        fields += [blob_field(2, _encode_key(key)) for key in self.keys]
        fields += [blob_field(3, variant.encode()) for variant in self.variants]
        return encode([*fields, integer_field(4, self.provider)])


def _parse_key(message: Message, what: str) -> MasterKeyVersion:
    algorithm = message.integer(3)
    # Without authentication the footer may say anything. It chooses between ORC's two ciphers and nothing else.
    if algorithm not in ALGORITHM_KEY_LENGTHS:
        raise FormatError(f"{what}: an unknown encryption algorithm {algorithm}; ORC knows 1 (AES_CTR_128) and 2 (AES_CTR_256)")
    names = message.texts(1)
    return MasterKeyVersion(names[-1] if names else "", message.integer(2), ALGORITHM_KEY_LENGTHS[algorithm])


def _encode_key(key: MasterKeyVersion) -> bytes:
    return encode([blob_field(1, key.name.encode()), integer_field(2, key.version), integer_field(3, _ALGORITHMS[key.length])])
