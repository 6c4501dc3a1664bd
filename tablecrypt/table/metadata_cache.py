"""Metadata files of encrypted tables as they were parsed, kept in the process: a commit need not parse again what was loaded just before.

Loading a table reads its metadata.json and hashes it, always; what was parsed is kept under that hash, SHA-256 of the JSON. So a file that
was edited, or put back, is parsed and checked like any other, and what the pins say of a hash is asked in either case. Nothing of it
is secret: metadata.json is plaintext, and the keys in it are wrapped.

Commits keep what they have written, which the next commit would read. The longest unused goes first. A forked child starts with an empty
cache.
"""

from __future__ import annotations

import os
from copy import deepcopy
from typing import Final, NoReturn

from pyiceberg.table.metadata import TableMetadata

from tablecrypt._size_bounded_cache import SizeBoundedCache

MOST_BYTES: Final = 32 * 1024 * 1024
"""How many bytes of JSON all that is kept was at most: 30,000 snapshots of one table. Parsed, they take several times as much."""


class Unchanging(dict[str, str]):
    """The counts and notes of a snapshot's summary. PyIceberg's can be set, and the next commit would write what was set."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("the summary of a snapshot that is committed does not change")

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refuse

    def __reduce__(self) -> tuple[type[Unchanging], tuple[dict[str, str]]]:
        return Unchanging, (dict(self),)


class MetadataCache(SizeBoundedCache[str, TableMetadata]):
    """Parsed metadata by the hash of its JSON."""

    def get(self, digest: str) -> TableMetadata | None:
        """Return metadata that is kept. Its lists and dicts are the caller's own; their items are shared, and immutable."""
        return deepcopy(self.find(digest))

    def put(self, digest: str, metadata: TableMetadata, size: int) -> None:
        """Keep the metadata of an encrypted table, parsed from JSON of this hash and `size` bytes."""
        if size <= MOST_BYTES:
            self.keep(digest, deepcopy(metadata), size, MOST_BYTES)


PARSED: Final = MetadataCache()
os.register_at_fork(after_in_child=PARSED.start_empty)
