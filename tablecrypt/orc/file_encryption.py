"""Turning the ORC files that pyarrow wrote, with true values beside their masks, into one encrypted file.

    plain stripe, as pyarrow wrote it      id  ssn (mask)  email (mask) │ ssn (true)  email (true)        the shadows: trailing columns
    encrypted stripe                       id  ssn (mask)  email (mask) │ variant 0: ssn   variant 1: email

    stripe = index | encrypted index, by variant | data | encrypted data, by variant | footer
    file   = "ORC" | stripe ... | encrypted stripe statistics, by variant and column
             | Metadata | Footer with Encryption | PostScript | its length

Streams are moved and encrypted as they are; no value is decoded. A shadow's columns take the numbers of the columns that they shadow. Of a
shadow that is encrypted in part only the encrypted sub-columns are kept; nothing else of a shadow reaches the file. Two placeholder streams
tell readers that do not know encryption how much space the encrypted streams take.

Rows come in parts. Each part is an ORC file in memory; its stripes are encrypted and written at once, and of its tail only the statistics
are kept. So memory holds one part, whatever the size of the file. Statistics of shadows are encrypted with the local keys of their
variants, under stripe id n + 1 of n stripes.

Specification: Apache ORC v1, "Column Encryption", "Encryption Variants", "Stripes", "File Tail".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.orc.column_plan import ColumnPlan
from tablecrypt.orc.compression import Compression
from tablecrypt.orc.key_providers import KeyProvider, LocalKey
from tablecrypt.orc.messages import Encryption, MaskDescription, Stream, StreamGroup, StreamKind, StripeFooter, StripeInformation, Variant
from tablecrypt.orc.protobuf import Field, Message, blob_field, encode, integer_field
from tablecrypt.orc.source import FileSource, OrcSource
from tablecrypt.orc.statistics import merge_statistics
from tablecrypt.orc.stream_cipher import MAX_STRIPE_ID, crypt_stream
from tablecrypt.orc.tail import MAGIC, UNENCRYPTED, Stripe, Tail, locate_streams, read_tail

FIRST_STRIPE_ID: Final = 1

_ATTRIBUTES: Final = 7
_ENCRYPT_ATTRIBUTE: Final = b"encrypt"
_MASK_ATTRIBUTE: Final = b"mask"


class ShadowColumns:
    """Where the true values of encrypted columns are in the file that pyarrow wrote.

    Shadows follow the public columns, one for each top-level column that is encrypted wholly or in part, in the order of those.
    """

    def __init__(self, plan: ColumnPlan) -> None:
        self.public = range(len(plan.schema))
        starts: dict[int, int] = {}
        position = len(plan.schema)
        for top in plan.shadowed:
            starts[top.id] = position - top.id
            position += len(top.subtree)
        self.length = position
        self._shifts = [starts[one.top.id] for one in plan.encrypted]
        self._subtrees = [one.column.subtree for one in plan.encrypted]
        self._groups = {
            column_id + shift: (number, column_id)
            for number, (subtree, shift) in enumerate(zip(self._subtrees, self._shifts, strict=True))
            for column_id in subtree
        }

    def destination(self, column_id: int) -> tuple[int, int] | None:
        """Return the variant (or UNENCRYPTED) and the number that a written column has in the encrypted file; None: it is not kept."""
        return (UNENCRYPTED, column_id) if column_id in self.public else self._groups.get(column_id)

    def written(self, variant: int) -> range:
        """Return the written columns of a variant."""
        subtree, shift = self._subtrees[variant], self._shifts[variant]
        return range(subtree.start + shift, subtree.stop + shift)

    def shadow_of(self, column_id: int) -> int | None:
        """Return the written column with the true values of an encrypted column, or None for a column that is not encrypted."""
        return next((written for written, (_, own) in self._groups.items() if own == column_id), None)


@dataclass(frozen=True)
class _MovedStream:
    stream: Stream
    group: int
    data: bytes


@dataclass(frozen=True)
class EncryptedStripe:
    """A finished stripe: its bytes, in pieces, and what the footer says of it, except where it begins."""

    pieces: tuple[bytes, ...]
    information: StripeInformation


class StripeEncryptor:
    """Encrypts the stripes of one file, one after the other.

    Args:
        shadows: where the true values are.
        keys: a fresh local key for each variant, used for this file only.
    """

    def __init__(self, shadows: ShadowColumns, keys: list[LocalKey]) -> None:
        self._shadows = shadows
        self._keys = keys
        self.count = 0

    def encrypt(self, tail: Tail, source: OrcSource) -> Iterator[EncryptedStripe]:
        """Encrypt the stripes of one file that pyarrow wrote."""
        for stripe in tail.stripes:
            # Counted over all parts: a stripe id that came twice under one local key would repeat its IVs.
            stripe_id = FIRST_STRIPE_ID + self.count
            self.count += 1
            footer = tail.read_stripe_footer(source, stripe)
            streams = list(self._move(footer, stripe, source, stripe_id, tail.location))
            yield self._assemble(streams, footer, stripe, tail.compression)

    def _move(self, footer: StripeFooter, stripe: Stripe, source: OrcSource, stripe_id: int, location: str) -> Iterator[_MovedStream]:
        for located in locate_streams(footer, stripe, location):
            destination = self._shadows.destination(located.stream.column)
            # The rest of a shadow holds true values of columns that are plain or only masked: it must not reach the file.
            if destination is None:
                continue

            group, column_id = destination
            data = source.read_at(located.offset, located.stream.length)
            if group != UNENCRYPTED:
                # The IV takes the number that the column has in the finished file: readers know nothing of shadows.
                data = crypt_stream(self._keys[group].key, column_id, located.stream.kind, stripe_id, data)
            yield _MovedStream(replace(located.stream, column=column_id), group, data)

    def _assemble(self, streams: list[_MovedStream], footer: StripeFooter, stripe: Stripe, compression: Compression) -> EncryptedStripe:
        # Readers derive offsets from this order alone (ORC v1, "Stripes"). Sorting is stable: streams of a group stay as they were.
        index = sorted((one for one in streams if one.stream.is_index), key=lambda one: one.group)
        data = sorted((one for one in streams if not one.stream.is_index), key=lambda one: one.group)
        encoded = compression.compress(self._footer(index, data, footer).encode())
        information = StripeInformation(0, _length(index), _length(data), len(encoded), stripe.information.rows)
        return EncryptedStripe((*(one.data for one in index), *(one.data for one in data), encoded), information)

    def _footer(self, index: list[_MovedStream], data: list[_MovedStream], footer: StripeFooter) -> StripeFooter:
        encodings = footer.groups[0].encodings
        public = (
            *(one.stream for one in index if one.group == UNENCRYPTED),
            Stream(StreamKind.ENCRYPTED_INDEX, 0, _length([one for one in index if one.group != UNENCRYPTED])),
            *(one.stream for one in data if one.group == UNENCRYPTED),
            Stream(StreamKind.ENCRYPTED_DATA, 0, _length([one for one in data if one.group != UNENCRYPTED])),
        )
        variants = [
            StreamGroup(
                tuple(one.stream for one in index + data if one.group == number),
                tuple(encodings[written] for written in self._shadows.written(number)),
            )
            for number in range(len(self._keys))
        ]
        return StripeFooter((StreamGroup(public, encodings[: len(self._shadows.public)]), *variants), footer.rest)


def _length(streams: list[_MovedStream]) -> int:
    return sum(one.stream.length for one in streams)


class FileAssembly:
    """An encrypted file that is being written. `put` takes its bytes in order.

    Args:
        plan: what to encrypt and mask.
        shadows: where parts have the true values.
        keys: gives a fresh local key for each encrypted column.
        put: takes each piece of the file.
    """

    def __init__(self, plan: ColumnPlan, shadows: ShadowColumns, keys: KeyProvider, put: Callable[[bytes], object]) -> None:
        self._plan = plan
        self._shadows = shadows
        # All keys come before the first byte, so that a denied key leaves no half-written stripe.
        self._masters = {name: keys.current_version(name) for name in sorted({one.key_name for one in plan.encrypted})}
        self._local_keys = [keys.create_local_key(self._masters[one.key_name]) for one in plan.encrypted]
        self._provider_kind = keys.kind
        self._encryptor = StripeEncryptor(shadows, self._local_keys)
        self._output = put
        self._position = 0
        self._stripes: list[StripeInformation] = []
        self._stripe_statistics: list[list[bytes]] = []
        self._file_statistics: list[list[bytes]] = []
        self._first_tail: Tail | None = None
        self._put(MAGIC)

    def add(self, part: FileSource) -> None:
        """Encrypt and write the stripes of a part."""
        tail = read_tail(part)
        self._first_tail = self._first_tail or tail
        self._stripe_statistics += tail.stripe_statistics()
        self._file_statistics.append(tail.file_statistics)
        for stripe in self._encryptor.encrypt(tail, part):
            self._add_stripe(stripe)

    def finish(self) -> None:
        """Write the tail. At least one part must have been added, even if it has no rows."""
        if self._first_tail is None:
            raise ConfigurationError("an ORC file has at least one part")

        tail = self._first_tail
        compress = tail.compression.compress
        contents_length = self._position
        statistics = [merge_statistics(column) for column in zip(*self._file_statistics, strict=True)]
        variants = [self._variant(number, statistics, compress) for number in range(len(self._local_keys))]
        statistics_length = self._position - contents_length
        public = len(self._shadows.public)
        metadata = compress(
            # Only the public columns: the statistics of shadows are minima and maxima of the true values.
            encode([blob_field(1, encode([blob_field(1, one) for one in stripe[:public]])) for stripe in self._stripe_statistics])
        )
        footer = compress(encode(self._footer(tail, contents_length, statistics[:public], variants)))
        lengths = [integer_field(1, len(footer)), integer_field(5, len(metadata)), integer_field(7, statistics_length)]
        postscript = encode([*tail.postscript.without(1, 5, 7), *lengths])
        self._put(metadata + footer + postscript + bytes([len(postscript)]))

    def _put(self, data: bytes) -> None:
        self._output(data)
        self._position += len(data)

    def _add_stripe(self, stripe: EncryptedStripe) -> None:
        # One id stays free: the statistics of a file with n stripes take n + 1.
        if len(self._stripes) + FIRST_STRIPE_ID >= MAX_STRIPE_ID:
            raise ConfigurationError(f"an encrypted ORC file has at most {MAX_STRIPE_ID - 1} stripes: write larger ones")

        at = stripe.information
        first = not self._stripes
        self._stripes.append(
            StripeInformation(
                self._position,
                at.index_length,
                at.data_length,
                at.footer_length,
                at.rows,
                FIRST_STRIPE_ID if first else None,
                tuple(key.encrypted for key in self._local_keys) if first else (),
            )
        )
        for piece in stripe.pieces:
            self._put(piece)

    def _variant(self, number: int, statistics: list[bytes], compress: Callable[[bytes], bytes]) -> Variant:
        """Write a variant's stripe statistics and describe it."""
        one, key = self._plan.encrypted[number], self._local_keys[number]
        stripe_id = FIRST_STRIPE_ID + len(self._stripes)
        # Compressed before it is encrypted, as streams are: ciphertext does not get shorter.
        streams: list[Stream] = []

        for column_id, written in zip(one.column.subtree, self._shadows.written(number), strict=True):
            of_stripes = encode([blob_field(1, stripe[written]) for stripe in self._stripe_statistics])
            encrypted = crypt_stream(key.key, column_id, StreamKind.STRIPE_STATISTICS, stripe_id, compress(of_stripes))
            streams.append(Stream(StreamKind.STRIPE_STATISTICS, column_id, len(encrypted)))
            self._put(encrypted)

        of_file = encode([blob_field(1, statistics[written]) for written in self._shadows.written(number)])
        encrypted = crypt_stream(key.key, one.column.id, StreamKind.FILE_STATISTICS, stripe_id, compress(of_file))

        return Variant(one.column.id, list(self._masters).index(one.key_name), key.encrypted, tuple(streams), encrypted)

    def _footer(self, tail: Tail, contents_length: int, statistics: list[bytes], variants: list[Variant]) -> list[Field]:
        encryption = Encryption(
            masks=tuple(MaskDescription(mask.name, mask.parameters, columns).encode() for mask, columns in self._plan.described),
            keys=tuple(self._masters.values()),
            variants=tuple(variants),
            provider=self._provider_kind,
        )
        return [
            # pyarrow's own types, counts and statistics cover the shadows: all of these are written anew.
            *tail.footer.without(2, 3, 4, 6, 7, 10),
            integer_field(2, contents_length),
            *(blob_field(3, stripe.encode()) for stripe in self._stripes),
            *(blob_field(4, one) for one in self._types()),
            integer_field(6, sum(stripe.rows for stripe in self._stripes)),
            *(blob_field(7, column) for column in statistics),
            blob_field(10, encryption.encode()),
        ]

    def _types(self) -> list[bytes]:
        """Return the types of the public columns, with the attributes that ORC's Java writer puts on encrypted and masked columns."""
        attributes: dict[int, list[Field]] = {column.id: [] for column in self._plan.schema}
        for one in self._plan.encrypted:
            attributes[one.column.id].append(_attribute(_ENCRYPT_ATTRIBUTE, one.key_name.encode()))
        for mask, columns in self._plan.described:
            for column_id in columns:
                attributes[column_id].append(_attribute(_MASK_ATTRIBUTE, mask.name.encode()))
        types: list[bytes] = []
        for column in self._plan.schema:
            kept = [field for field in column.message.fields if not _is_own_attribute(field)]
            types.append(encode([*kept, *attributes[column.id]]))
        return types


def _attribute(name: bytes, value: bytes) -> Field:
    return blob_field(_ATTRIBUTES, encode([blob_field(1, name), blob_field(2, value)]))


def _is_own_attribute(field: Field) -> bool:
    """Whether a type's field is an attribute about encryption: it describes the file that the rows were read from, not this one."""
    number, _, value = field
    if number != _ATTRIBUTES or not isinstance(value, bytes):
        return False
    return Message.parse(value, "an attribute").blob(1) in (_ENCRYPT_ATTRIBUTE, _MASK_ATTRIBUTE)
