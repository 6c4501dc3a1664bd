"""Files that are stored byte for byte as they are given, each checked to be of the kind that its writer names.

    RawContent        what the first bytes, the last bytes and the name must be
    SELF_ENCRYPTED    PARE … PARE (Parquet Modular Encryption), or AGS1 and a length that an AGS1 file can have
    METADATA_JSON     a JSON object, or gzip, under a name of table metadata
    JOURNAL_KEYS      a JSON object of wrapped keys alone, under the name of a journal's part (maintenance/_file_rewrite.py)

The first bytes are looked at before any of them reaches the store, the last ones when the stream closes. What is not of its kind is
deleted and refused with PlaintextRefusedError. Only a few bytes are kept of what passes through, except for JOURNAL_KEYS, which are small.
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.io import FileIO, InputFile, OutputFile, OutputStream

from tablecrypt import _magics as magics
from tablecrypt._bytes import flat_view
from tablecrypt.crypto import ags1
from tablecrypt.errors import FormatError, PlaintextRefusedError
from tablecrypt.files.ags1_streams import NewFileStream

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

TABLE_METADATA_SUFFIXES: Final = (".metadata.json", ".metadata.json.gz", ".gz.metadata.json")
JOURNAL_FOLDER: Final = "tablecrypt-"
"""How the folder of a journal begins, below the table's metadata folder; the operation's name follows."""
JOURNAL_ENTRIES: Final = ".entries"
JOURNAL_KEYS: Final = ".json"
"""How the two files of a part of a journal end."""
ENCRYPTION_KEYS: Final = "encryption-keys"
KEY_ID: Final = "key-id"
"""The fields of the JSON: wrapped keys, as metadata.json has them, and the id of the one that opens the entries."""
_JOURNAL_PART: Final = re.compile(
    rf".*/metadata/{JOURNAL_FOLDER}(?P<operation>[a-z-]+)/[0-9a-f-]{{36}}(?P<kind>{re.escape(JOURNAL_ENTRIES)}|{re.escape(JOURNAL_KEYS)})",
    re.DOTALL,
)
_WRAPPED_KEY_FIELDS: Final = frozenset({KEY_ID, "encrypted-key-metadata", "encrypted-by-id", "properties"})
_SHORTEST_PARQUET: Final = 12
_EDGE: Final = 4
_LONGEST_JOURNAL_PART: Final = 1024 * 1024


class RawContent(Enum):
    """What a file is that is stored as it is given; see the module for what is checked of each."""

    SELF_ENCRYPTED = "an encrypted file: PARE at both ends, or an AGS1 stream"
    METADATA_JSON = "table metadata: a JSON object or gzip, under a name that ends in .metadata.json or .metadata.json.gz"
    JOURNAL_KEYS = "the wrapped keys of a journal: JSON under metadata/tablecrypt-<command>/"


class RawOutputFile(OutputFile):
    """A new file that is stored as it is given. PlaintextRefusedError for a name that its kind of content does not have."""

    def __init__(self, io: FileIO, location: str, content: RawContent) -> None:
        super().__init__(location)
        if not _may_be_named(content, location):
            raise PlaintextRefusedError(location, f"is not the name of {content.value}")
        self._io = io
        self._inner = io.new_output(location)
        self._content = content

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        return self._inner.exists()

    def create(self, overwrite: bool = False) -> RawOutputStream:
        return RawOutputStream(self._inner.create(overwrite=overwrite), self._io, self.location, self._content)

    def to_input_file(self) -> InputFile:
        return self._inner.to_input_file()


class RawOutputStream(NewFileStream):
    """Passes bytes on to `raw` as they are. `close` raises PlaintextRefusedError, and leaves no file, where they are not of their kind.

    Leaving a `with` block by an exception deletes what is not of its kind, and raises that exception.
    """

    def __init__(self, raw: OutputStream, io: FileIO, location: str, content: RawContent) -> None:
        super().__init__(raw, location)
        self._io = io
        self._content = content
        self._first = b""
        self._last = b""
        self._kept: bytearray | None = bytearray() if content == RawContent.JOURNAL_KEYS else None

    def write(self, data: Buffer) -> int:
        """Take all of `data`; return its length in bytes. PlaintextRefusedError where the file's first bytes are not of its kind."""
        if self._closed:
            raise ValueError(f"{self._location}: is closed")

        with flat_view(data) as view:
            del data
            if self._kept is not None:
                self._keep(view)
            elif self._length >= _EDGE:
                self._put(view)
            else:
                self._begin(view)

            written = len(view)
            self._last = bytes(view[-_EDGE:]) if written >= _EDGE else (self._last + bytes(view))[-_EDGE:]

        self._length += written
        return written

    def close(self) -> None:
        """Close the file. It may be called twice. PlaintextRefusedError, with no file left, where it is not what it was to be."""
        if self._closed:
            return

        problem = self._problem()
        if problem is not None:
            self._refuse(problem)
        if self._kept is not None:
            self._put(self._kept)
        elif self._length < _EDGE:
            self._put(self._first)

        self._closed = True
        self._close_raw()

    def abandon(self) -> None:
        """Close the file as it is. It is deleted where it is not of its kind. Does nothing once closed."""
        if self._closed:
            return

        self._closed = True
        is_whole = self._kept is None and self._problem() is None

        try:
            self._raw.close()
        finally:
            if not is_whole:
                self._delete()

    def _begin(self, view: memoryview) -> None:
        # Less than the magic is held back until the rest of it comes.
        self._first += bytes(view[: _EDGE - len(self._first)])
        if len(self._first) < _EDGE:
            return

        # Before the first byte reaches the store: plaintext that was stored for a moment may live on in the store's versions.
        self._check_first()
        self._put(self._first)
        with view[_EDGE - self._length :] as rest:
            self._put(rest)

    def _keep(self, view: memoryview) -> None:
        assert self._kept is not None
        # Kept in memory until it is checked as a whole, so its length has to be bounded.
        if len(self._kept) + len(view) > _LONGEST_JOURNAL_PART:
            self._refuse(f"has more than {_LONGEST_JOURNAL_PART} bytes")
        self._kept += view

    def _check_first(self) -> None:
        if not _may_begin(self._content, self._first):
            self._refuse("begins otherwise")

    def _problem(self) -> str | None:
        """What shows that the bytes so far are not a whole file of their kind."""
        if self._content == RawContent.JOURNAL_KEYS:
            return None if self._kept is not None and _is_wrapped_keys(self._kept) else "holds something else"
        if not _may_begin(self._content, self._first):
            return "begins otherwise"
        if self._content == RawContent.METADATA_JSON:
            return None
        # Both ends: a writer that fails halfway leaves PARE in front and no footer.
        if self._first == magics.ENCRYPTED_PARQUET:
            return None if self._length >= _SHORTEST_PARQUET and self._last == magics.ENCRYPTED_PARQUET else "ends otherwise"

        try:
            # A stream that was abandoned has a length that no AGS1 file has.
            ags1.plaintext_length(self._length)
        except FormatError as error:
            return str(error)

        return None

    def _refuse(self, problem: str) -> None:
        self._closed = True
        # The refusal is the error to raise: a store that cannot close a file that is not wanted changes nothing in that.
        with suppress(OSError):
            self._raw.close()
        self._delete()
        raise PlaintextRefusedError(self._location, f"was to be {self._content.value}, but {problem}; it is deleted")

    def _delete(self) -> None:
        try:
            self._io.delete(self._location)
        except FileNotFoundError:
            return
        except Exception as error:  # noqa: BLE001 - every store has errors of its own, and the refusal is the one to raise
            logger.warning("could not delete %s: %s", self._location, type(error).__name__)


def operation_of_journal(location: str) -> str | None:
    """Return the operation in whose journal a file is, as its name says; None for the name of another file."""
    found = _JOURNAL_PART.fullmatch(location)
    return found["operation"] if found else None


def are_wrapped_keys(document: Any) -> bool:
    """Whether the JSON of a journal's part holds wrapped keys and their ids, and nothing else, which would be stored in the clear."""
    try:
        return set(document) == {ENCRYPTION_KEYS, KEY_ID} and all(set(key) <= _WRAPPED_KEY_FIELDS for key in document[ENCRYPTION_KEYS])
    except TypeError:
        return False


def _may_be_named(content: RawContent, location: str) -> bool:
    if content == RawContent.METADATA_JSON:
        return location.endswith(TABLE_METADATA_SUFFIXES)
    if content == RawContent.JOURNAL_KEYS:
        return operation_of_journal(location) is not None and location.endswith(JOURNAL_KEYS)
    return not location.endswith(TABLE_METADATA_SUFFIXES)


def _may_begin(content: RawContent, first: bytes) -> bool:
    if content == RawContent.METADATA_JSON:
        return first.startswith((b"{", magics.GZIP))
    return first in (magics.ENCRYPTED_PARQUET, ags1.MAGIC)


def _is_wrapped_keys(stored: bytearray) -> bool:
    try:
        return are_wrapped_keys(json.loads(stored.decode()))
    except (ValueError, RecursionError):
        return False
