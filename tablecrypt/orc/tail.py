"""The tail of an ORC file: where everything is and which columns are encrypted, checked against the file's length.

    file   = "ORC" | stripe ... | encrypted stripe statistics | stripe statistics (Metadata) | Footer | PostScript | its length (1 byte)
             └──── contents ───┘                                └──────── compressed ────────┘   └─ never compressed ─┘
    stripe = index of the unencrypted | index of variant 0, 1, ... | data of the unencrypted | data of variant 0, 1, ... | footer

The tail is read from its end; nothing in it is encrypted but the statistics of encrypted columns. Every offset and length it states is
checked once, here, so that the code that reads stripes later stays inside the file. A stripe's footer states only the lengths of its
streams: their order is fixed. Placeholders, which only show how much space the encrypted streams take, have no location.

The id that a stripe has in IVs, and its local keys, are stored with the first stripe of a file; the next stripe has the next id and the
same keys. In a file merged from several, the first stripe of each brings its own.

Raises FormatError, naming the file; PlaintextRefusedError for an ORC file without encryption.
Specification: Apache ORC v1, "File Tail", "Stripes", "Column Encryption".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tablecrypt import _magics as magics
from tablecrypt._magics import HEAD_LENGTH, looks_like
from tablecrypt.errors import FormatError, PlaintextRefusedError
from tablecrypt.orc.compression import Compression, CompressionKind
from tablecrypt.orc.messages import LAST_STREAM_KIND, Encryption, Stream, StripeFooter, StripeInformation
from tablecrypt.orc.protobuf import Message
from tablecrypt.orc.schema import Schema
from tablecrypt.orc.source import OrcSource
from tablecrypt.orc.stream_cipher import MAX_STRIPE_ID

MAGIC: Final = magics.ORC
_GUESS: Final = 16 * 1024
_MAX_ROWS: Final = 2**31 - 1
_TIME_ZONE: Final = 3

UNENCRYPTED: Final = -1


@dataclass(frozen=True)
class Stripe:
    """A stripe, with the id in its IVs and the encrypted local key of each variant."""

    information: StripeInformation
    encrypt_id: int
    encrypted_keys: tuple[bytes, ...]


@dataclass(frozen=True)
class Tail:
    """Everything that the end of a file says. `statistics_offset` is where the encrypted stripe statistics begin."""

    location: str
    postscript: Message
    compression: Compression
    footer: Message
    metadata: bytes
    schema: Schema
    stripes: tuple[Stripe, ...]
    statistics_offset: int
    statistics: bytes
    encryption: Encryption | None

    @property
    def file_statistics(self) -> list[bytes]:
        """The statistics of each column; those of its mask if it is encrypted."""
        return self.footer.blobs(7)

    def require_encryption(self) -> Encryption:
        if self.encryption is None:
            raise PlaintextRefusedError(
                self.location, "is an ORC file without encrypted columns: if you expect that, read it with pyarrow.orc"
            )
        return self.encryption

    def stripe_statistics(self) -> list[list[bytes]]:
        """For each stripe the statistics of each column; those of its mask if it is encrypted."""
        what = f"{self.location}: the stripe statistics"
        metadata = Message.parse(self.compression.decompress(self.metadata, what), what)
        return [stripe.blobs(1) for stripe in metadata.messages(1)]

    def read_stripe_footer(self, source: OrcSource, stripe: Stripe) -> StripeFooter:
        """Fetch and check a stripe's footer."""
        at = stripe.information
        what = f"{self.location}: the footer of the stripe at {at.offset}"
        raw = source.read_at(at.offset + at.streams_length, at.footer_length)
        message = Message.parse(self.compression.decompress(raw, what), what)
        # The decoder opens a file of this name, below the folder of time zones: a pipe elsewhere would hold it up for good.
        if any(".." in zone for zone in message.texts(_TIME_ZONE)):
            raise FormatError(f"{what} names a time zone outside of the folder that has them")

        footer = StripeFooter.parse(message)
        # Groups and keys are matched by position: with one missing, streams would be decrypted under the key of another column.
        if len(footer.groups) != 1 + len(stripe.encrypted_keys):
            raise FormatError(f"{what} has {len(footer.groups) - 1} encrypted variants, the file has {len(stripe.encrypted_keys)}")

        highest = max((stream.column for group in footer.groups for stream in group.streams), default=0)
        # Encodings and types are looked up by this number later, without another check.
        if highest >= len(self.schema):
            raise FormatError(f"{what} has a stream of column {highest}, the file has {len(self.schema)} columns")

        return footer


@dataclass(frozen=True)
class LocatedStream:
    """A stream and where it begins in the file. `group` is the number of its variant, UNENCRYPTED for none."""

    stream: Stream
    group: int
    offset: int


def read_tail(source: OrcSource) -> Tail:
    """Read and check the tail of an ORC file."""
    postscript, before_postscript = _read_postscript(source)
    where = f"{source.location}: the postscript"
    compression = _compression(postscript, where)
    footer_length, metadata_length, statistics_length = (postscript.integer(number) for number in (1, 5, 7))
    tail_length = footer_length + metadata_length + statistics_length
    # Lengths are varints of up to 64 bits: the sum is checked before that many bytes are asked for.
    if tail_length + len(MAGIC) > before_postscript:
        raise FormatError(f"{where} names a footer and statistics of {tail_length} bytes, more than the file has")

    statistics_offset = before_postscript - tail_length
    sections = source.read_at(statistics_offset, tail_length)
    statistics, sections = sections[:statistics_length], sections[statistics_length:]
    what = f"{source.location}: the footer"
    footer = Message.parse(compression.decompress(sections[metadata_length:], what), what)
    schema = Schema.parse(footer.messages(4), what)
    encryption = _encryption(footer, schema, what)

    return Tail(
        location=source.location,
        postscript=postscript,
        compression=compression,
        footer=footer,
        metadata=sections[:metadata_length],
        schema=schema,
        stripes=_stripes(footer, encryption, statistics_offset, what),
        statistics_offset=statistics_offset,
        statistics=statistics,
        encryption=encryption,
    )


def locate_streams(footer: StripeFooter, stripe: Stripe, what: str) -> list[LocatedStream]:
    """Find where each stream of a stripe is: index before data, and in each the unencrypted streams before the variants in order."""
    located: list[LocatedStream] = []
    information = stripe.information
    position, end = information.offset, information.offset + information.streams_length

    for of_index in (True, False):
        for number, group in enumerate(footer.groups, start=UNENCRYPTED):
            for stream in group.streams:
                if stream.is_placeholder or stream.is_index != of_index:
                    continue
                if stream.kind > LAST_STREAM_KIND:
                    raise FormatError(f"{what}: a stream of an unknown kind {stream.kind} in the stripe at {information.offset}")

                located.append(LocatedStream(stream, number, position))
                position += stream.length
                if position > end:
                    raise FormatError(f"{what}: the streams of the stripe at {information.offset} take more space than it has")

    return located


def _read_postscript(source: OrcSource) -> tuple[Message, int]:
    """Return the postscript and the offset where it begins."""
    if source.length < len(MAGIC) + 2:
        raise no_orc_file(source, f"{source.length} bytes are too few for one")

    end = source.read_at(max(0, source.length - _GUESS), min(source.length, _GUESS))
    length = end[-1]
    if length + 1 + len(MAGIC) > source.length:
        raise no_orc_file(source, f"its last byte names a postscript of {length} bytes, more than there are")

    try:
        postscript = Message.parse(end[-1 - length : -1], f"{source.location}: the postscript")
    except FormatError as error:
        raise no_orc_file(source, "its postscript cannot be read") from error

    # Any byte may end a file of another format and parse as a short message: only this field says that it is ORC.
    if postscript.optional_blob(8000) != MAGIC:
        raise no_orc_file(source, f"its postscript does not say {MAGIC!r}")

    return postscript, source.length - 1 - length


def no_orc_file(source: OrcSource, why: str) -> FormatError:
    """Return the error for a file that is not ORC, with what it looks like."""
    head = source.read_at(0, min(source.length, HEAD_LENGTH))
    return FormatError(f"{source.location}: is not an ORC file: it {looks_like(head)}, and {why}")


def _compression(postscript: Message, what: str) -> Compression:
    number = postscript.integer(2)
    if number not in set(CompressionKind):
        raise FormatError(f"{what} names an unknown compression {number}")
    try:
        return Compression(CompressionKind(number), postscript.integer(3))
    except FormatError as error:
        raise FormatError(f"{what}: {error}") from error


def _encryption(footer: Message, schema: Schema, what: str) -> Encryption | None:
    raw = footer.optional_blob(10)
    if raw is None:
        return None

    encryption = Encryption.parse(Message.parse(raw, f"{what}'s encryption"), what)
    for variant in encryption.variants:
        if variant.root >= len(schema) or variant.key >= len(encryption.keys):
            raise FormatError(f"{what} encrypts column {variant.root} with key number {variant.key}, which it does not have")
    # An encryption message without variants encrypts nothing: such a file is refused as plaintext.
    return encryption if encryption.variants else None


def _stripes(footer: Message, encryption: Encryption | None, end_of_contents: int, what: str) -> tuple[Stripe, ...]:
    variants = 0 if encryption is None else len(encryption.variants)
    stripes: list[Stripe] = []
    encrypt_id = 0
    keys: tuple[bytes, ...] = ()
    end = len(MAGIC)

    for information in map(StripeInformation.parse, footer.messages(3)):
        # In order and without overlap: otherwise one stretch of bytes would be decrypted under two IVs and counted twice.
        if information.offset < end or information.end > end_of_contents or information.rows > _MAX_ROWS:
            raise FormatError(f"{what} has a stripe at {information.offset} to {information.end}, outside the space that is left for it")

        end = information.end
        encrypt_id = encrypt_id + 1 if information.encrypt_stripe_id is None else information.encrypt_stripe_id
        keys = information.encrypted_local_keys or keys
        # Without a key for each variant, or with an id that no IV has room for, a stripe cannot be decrypted as it was encrypted.
        if variants and (len(keys) != variants or not 1 <= encrypt_id <= MAX_STRIPE_ID):
            raise FormatError(f"{what} has {len(keys)} local keys for {variants} encrypted columns in the stripe at {information.offset}")

        stripes.append(Stripe(information, encrypt_id, keys if variants else ()))

    rows = sum(stripe.information.rows for stripe in stripes)
    # Readers answer counts from the footer alone, so it has to agree with the stripes.
    if rows != footer.integer(6):
        raise FormatError(f"{what} says {footer.integer(6)} rows, its stripes have {rows}")

    return tuple(stripes)
