"""Every byte of a file has one owner: which spans of it none has, and which more than one.

bytes     0 ─ 4 ──────────── 100 ── 110 ─────── 200
owners    magic   pages      (gap)    footer            → "bytes 100 to 110 belong to nothing"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnedSpan:
    """Bytes from `start` to `end`, and what they are."""

    start: int
    end: int
    owner: str


def faults(spans: Iterable[OwnedSpan], length: int) -> Iterator[str]:
    """Say where the spans leave bytes of a file of that length without an owner, or give them two."""
    reached, before = 0, "the start of the file"
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        if span.start > reached:
            yield f"bytes {reached} to {span.start} belong to nothing: they are between {before} and {span.owner}"
        if span.start < reached:
            yield f"bytes {span.start} to {min(span.end, reached)} belong to {span.owner} and to {before}"
        if span.end > reached:
            reached, before = span.end, span.owner
    if reached < length:
        yield f"bytes {reached} to {length}, the end of the file, belong to nothing"
