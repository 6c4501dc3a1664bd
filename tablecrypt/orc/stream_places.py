"""Where the streams of a stripe stand: their footer states lengths, and their order is fixed.

    stripe = index of the unencrypted | index of variant 0, 1, ... | data of the unencrypted | data of variant 0, 1, ... | footer

Placeholders, which stand for the room that the encrypted streams take, have no place of their own.
Raises FormatError for streams that take more room than the stripe has, or that are of an unknown kind.
Specification: Apache ORC v1, "Stripes".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tablecrypt.errors import FormatError
from tablecrypt.orc.messages import LAST_STREAM_KIND, Stream, StripeFooter
from tablecrypt.orc.tail import Stripe

UNENCRYPTED: Final = -1


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
