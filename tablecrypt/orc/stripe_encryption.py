"""Turning stripes with the true values of some columns beside their masks into stripes of an encrypted file.

    plain stripe, as pyarrow wrote it      id  ssn (mask)  email (mask) │ ssn (true)  email (true)        the shadows: trailing columns
    encrypted stripe                       id  ssn (mask)  email (mask) │ variant 0: ssn   variant 1: email

Streams are moved and encrypted as they are, no value is decoded. A shadow's columns take the numbers of the columns they stand for. Of a
shadow that is encrypted in part only the encrypted sub-columns are kept; nothing else of a shadow reaches the file.

    stripe = index | encrypted index, by variant | data | encrypted data, by variant | footer

Two placeholder streams tell readers that know no encryption how much room the encrypted ones take.
Specification: Apache ORC v1, "Column Encryption", "Stripes".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tablecrypt.orc.column_plan import ColumnPlan
from tablecrypt.orc.compression import Compression
from tablecrypt.orc.keys import LocalKey
from tablecrypt.orc.messages import Stream, StreamGroup, StreamKind, StripeFooter, StripeInformation
from tablecrypt.orc.source import Source
from tablecrypt.orc.stream_cipher import crypt_stream
from tablecrypt.orc.stream_places import UNENCRYPTED, place_streams
from tablecrypt.orc.tail import Stripe, Tail

FIRST_STRIPE_ID: Final = 1


class ShadowColumns:
    """Where the true values of encrypted columns stand in what pyarrow wrote.

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

    def place(self, column_id: int) -> tuple[int, int] | None:
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
    """A finished stripe: its bytes, in pieces, and what the footer says of it but for where it begins."""

    pieces: tuple[bytes, ...]
    information: StripeInformation


class StripeEncryptor:
    """Encrypts the stripes of one file, one after the other.

    Args:
        shadows: where the true values stand.
        keys: a fresh local key for each variant, used for this file only.
    """

    def __init__(self, shadows: ShadowColumns, keys: list[LocalKey]) -> None:
        self._shadows = shadows
        self._keys = keys
        self.count = 0

    def encrypt(self, tail: Tail, source: Source) -> Iterator[EncryptedStripe]:
        """Encrypt the stripes of one file that pyarrow wrote."""
        for stripe in tail.stripes:
            stripe_id = FIRST_STRIPE_ID + self.count
            self.count += 1
            footer = tail.read_stripe_footer(source, stripe)
            streams = list(self._move(footer, stripe, source, stripe_id, tail.location))
            yield self._assemble(streams, footer, stripe, tail.compression)

    def _move(self, footer: StripeFooter, stripe: Stripe, source: Source, stripe_id: int, location: str) -> Iterator[_MovedStream]:
        for placed in place_streams(footer, stripe, location):
            place = self._shadows.place(placed.stream.column)
            if place is None:
                continue
            group, column_id = place
            data = source.read_at(placed.offset, placed.stream.length)
            if group != UNENCRYPTED:
                data = crypt_stream(self._keys[group].key, column_id, placed.stream.kind, stripe_id, data)
            yield _MovedStream(replace(placed.stream, column=column_id), group, data)

    def _assemble(self, streams: list[_MovedStream], footer: StripeFooter, stripe: Stripe, compression: Compression) -> EncryptedStripe:
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
