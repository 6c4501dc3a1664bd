"""Pins of this client, in the JSON file that the catalog property encryption.pins names, shared by its threads and processes.

A check begins before the catalog is asked, so that what others commit meanwhile is no rollback, and ends with the answer:

    pin_check = pins.begin_check(identifier)
    table = …                                   the catalog's answer, or a commit
    pin_check.verify(version, proof)            raises what the rules of the pins refuse, or moves the pin (see proven_heads.py)

Without encryption.pins all of this does nothing. The file:

    {"format": 5,
     "pins": [{"catalog": "prod", "identifier": ["db", "orders"],
               "table-uuid": "…", "encryption.key-id": "…", "encryption.data-key-length": 16,
               "metadata-location": "…", "metadata-hash": "…" or null, "last-sequence-number": 7, "kek-hashes": ["…"],
               "heads": {"main": [<snapshot id>, <sequence number>], …}, "retired-keks": ["…"],
               "folders": ["<location>", "<write.data.path>", …],
               "protected-columns": [<see protected_columns.py>, …]}, …]}

Pins are in the order in which their tables were first seen. An empty list of folders says that they are not known yet. Format 4 did not
say until when former master keys of columns count: it is read, and written in format 5. A file of another format is refused.
The file has mode 0600 and is replaced as a whole, so a reader needs no lock. A writer holds an exclusive lock on `<file>.lock` from
reading the old content to replacing it; waiting for it longer than 10 seconds is an error. A file that cannot be understood is an
error, never an empty set of pins. The pins are as trustworthy as the file: keep it where those against whom they help cannot write.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier, Properties

from tablecrypt import properties
from tablecrypt._atomic_file import atomic_file
from tablecrypt._bytes import small_content
from tablecrypt._parsed_json import problem_of
from tablecrypt.arguments import file_path
from tablecrypt.errors import (
    ConfigurationError,
    FormatError,
    KeyIdChangedError,
    MetadataRollbackError,
    TablecryptError,
    TamperedFileError,
    with_sentence,
)
from tablecrypt_catalog.pins.protected_columns import StoredColumn, columns_from, stored_columns
from tablecrypt_catalog.pins.proven_heads import Proof, taken_on_trust
from tablecrypt_catalog.pins.record import NO_MOVES, Head, Moves, TableVersion, TrustedTable, is_ahead, refuse_overtaken, table_version

if TYPE_CHECKING:
    from filelock import BaseFileLock

Place = tuple[str, tuple[str, ...]]
"""A catalog's name and a table identifier in it."""
LOCK_TIMEOUT_S: Final = 10.0
logger = logging.getLogger(__name__)
_MOST_BYTES: Final = 1024 * 1024 * 1024
"""Of a pin file: some 1,000 bytes a table."""
_LOCK_POLL_S: Final = 0.01


class ClientPins:
    """The pins that one catalog of this client has in the file that its property encryption.pins names.

    Args:
        catalog_name: the catalog's name, under which its tables are pinned.
        catalog_properties: those that this client gave to the catalog, and none that a server sent.

    Attributes:
        places: the path of the pin file; none at all without one.
    """

    def __init__(self, catalog_name: str, catalog_properties: Properties) -> None:
        path = catalog_properties.get(properties.PINS.name)
        self._file = None if path is None else PinFile(str(path))
        self._catalog_name = catalog_name
        self.places: tuple[str, ...] = () if path is None else (str(path),)

    def begin_check(self, identifier: str | Identifier) -> PinCheck:
        """Return the check of what the catalog will say of a table. Begin it before the catalog is asked.

        Raises:
            FormatError: the pin file cannot be read.
        """
        return PinCheck(self._file, self._place(identifier))

    def forget(self, identifier: str | Identifier) -> None:
        """Remove a table's pin: the next table under this identifier is trusted on first use."""
        if self._file is not None:
            self._file.forget(self._place(identifier))

    def rename(self, old: str | Identifier, new: str | Identifier) -> None:
        """Move a table's pin to its new identifier."""
        if self._file is not None:
            self._file.rename(self._place(old), self._place(new))

    def _place(self, identifier: str | Identifier) -> Place:
        return self._catalog_name, tuple(Catalog.identifier_to_tuple(identifier))


class PinCheck:
    """The check of one answer of a catalog, begun before the catalog was asked: it keeps the pin as it was then."""

    def __init__(self, file: PinFile | None, place: Place) -> None:
        self._file = file
        self._place = place
        self._pins = {} if file is None else file.recall_all()
        self._before = self._pins.get(place)

    @property
    def has_pin(self) -> bool:
        """Whether the identifier had a pin when this check began."""
        return self._before is not None

    @property
    def _trusted(self) -> TrustedTable:
        return TrustedTable(name_of(self._place), self._before)

    def verify(self, seen: TableVersion, proof: Proof = taken_on_trust, moved: Moves = NO_MOVES) -> TableVersion | None:
        """Hold the catalog's answer against the pin, and move the pin to what of it is proven.

        Args:
            seen: the answer.
            proof: says what of the answer may be pinned.
            moved: what this client has asked of the catalog with which the answer came.

        Returns:
            What is trusted of the answer; None where nothing is pinned.

        Raises:
            KeyIdChangedError, TamperedFileError, MetadataRollbackError: as `TrustedTable.verify_update` and `refuse_conflict`.
            FormatError: the pin file cannot be read.
            TablecryptError: another process holds the lock of the pin file for too long.
        """
        if self._file is None:
            return None

        # Two catalogs with one table lose each other's commits, which no rule on a single pin shows.
        refuse_conflict(self._pins, self._place, seen)
        if not moved and _moves_nothing(self._place, self._before, seen):
            return self._before

        trusted = self._check_update(seen, moved)
        # Outside the lock of the pin file: it reads the table's storage.
        proven = proof(self._before, seen)

        return trusted if proven is None else self._file.remember(self._place, self._before, proven, moved)

    def check_before(self, seen: TableVersion) -> None:
        """Hold a version against the pin before the catalog is asked to make it the table's. The pin stays as it is.

        Raises:
            KeyIdChangedError, TamperedFileError, MetadataRollbackError: as `verify`.
        """
        refuse_conflict(self._pins, self._place, seen)
        self._check_update(seen, NO_MOVES)

    def check_new_name(self, seen: TableVersion) -> None:
        """Refuse the check's identifier as the new name of a table, where it has the pin of another one that speaks against this table.

        Raises:
            KeyIdChangedError, TamperedFileError, MetadataRollbackError: as `TrustedTable.verify_update`.
        """
        self._trusted.verify_update(seen)

    def _check_update(self, seen: TableVersion, moved: Moves) -> TableVersion | None:
        return self._trusted.verify_update(seen, _pinned_elsewhere(self._pins, self._place, seen), moved)

    def accept_rollback(self, seen: TableVersion) -> TableVersion | None:
        """Move the pin to the catalog's answer, be it older than the pin, and return it; None where nothing is pinned.

        Raises:
            KeyIdChangedError, TamperedFileError: as `TrustedTable.accept_rollback`.
            FormatError, TablecryptError: as `verify`.
        """
        if self._file is None:
            return None
        self._file.accept_rollback(self._place, seen)
        return seen

    def refuse_plaintext(self, found: str = "a plaintext table") -> None:
        """Refuse what is no encrypted table where one is pinned: a plaintext table, or a view.

        Raises:
            KeyIdChangedError: the identifier has a pin.
        """
        TrustedTable(".".join(self._place[1]), self._before).refuse_plaintext(found)

    def check_new_key(self, table_key_id: str) -> None:
        """Refuse the master key of a new table before there is one.

        Raises:
            KeyIdChangedError: the identifier has a pin, with another key.
        """
        self._trusted.check_key_id(table_key_id)

    def verify_base(self, seen: TableVersion, proof: Proof = taken_on_trust) -> TableVersion | None:
        """Do as `verify` for the base of a commit, which the catalog gave before this check began.

        Raises:
            CommitFailedException: the base is older than what was seen before, maybe by another process a moment ago. Loading the table
                again tells: it is a MetadataRollbackError if the catalog still answers with it.
        """
        try:
            return self.verify(seen, proof)
        except MetadataRollbackError as error:
            raise CommitFailedException(f"the commit is based on old metadata: {error}") from error

    def record_commit(
        self, metadata: TableMetadata, metadata_location: str, metadata_hash: str | None = None, moved: Moves = NO_MOVES
    ) -> None:
        """Move the pin to what a commit wrote. That is in the catalog already, so a pin file that cannot be written is only logged.

        Args:
            metadata: as it was committed.
            metadata_location: where its file is.
            metadata_hash: SHA-256 of the file's JSON where it is known; else that of the metadata as PyIceberg writes it.
            moved: what `moves_of` gives for the commit.

        Raises:
            KeyIdChangedError, TamperedFileError, MetadataRollbackError: as `TrustedTable.verify_update`. The commit stands.
        """
        if self._file is None:
            return
        # A commit that changes nothing leaves the file where it was. Of a hash the pin says whether that is so: a server may lie.
        if metadata_hash is None and self._before is not None and self._before.metadata_location == metadata_location:
            return

        is_pinned = properties.KEY_ID.name in metadata.properties
        digest = metadata_hash or (hashlib.sha256(metadata.model_dump_json().encode()).hexdigest() if is_pinned else None)
        try:
            self._file.remember(self._place, self._before, table_version(metadata, metadata_location, digest), moved)
        except (KeyIdChangedError, TamperedFileError, MetadataRollbackError) as refused:
            # A server wrote the metadata: whoever goes on with it would write by what it says, in the clear perhaps.
            raise with_sentence(refused, "The commit that was answered so stands: nothing of it was deleted") from refused
        except (OSError, TablecryptError) as error:
            logger.warning("%s is committed, but its pin could not be moved: %s", metadata_location, error)


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=True)

    catalog: str
    identifier: list[str]
    table_uuid: str = Field(alias="table-uuid")
    table_key_id: str = Field(alias="encryption.key-id")
    data_key_length: int = Field(alias="encryption.data-key-length")
    metadata_location: str = Field(alias="metadata-location")
    metadata_hash: str | None = Field(alias="metadata-hash")
    last_sequence_number: int = Field(alias="last-sequence-number")
    kek_hashes: list[str] = Field(alias="kek-hashes")
    heads: dict[str, tuple[int, int]]
    retired_keks: list[str] = Field(alias="retired-keks")
    folders: list[str]
    protected_columns: list[StoredColumn] = Field(alias="protected-columns")

    @classmethod
    def of(cls, place: Place, pin: TableVersion) -> Self:
        fields = {name: getattr(pin, name) for name in cls.model_fields if hasattr(pin, name)}
        sets = {"kek_hashes": sorted(pin.kek_hashes), "retired_keks": sorted(pin.retired_keks)}
        heads = {name: tuple(head) for name, head in pin.heads.items()}
        lists = {"folders": list(pin.folders), "catalog": place[0], "identifier": list(place[1])}
        return cls(**{**fields, **sets, **lists, "heads": heads, "protected_columns": stored_columns(pin.columns)})

    @property
    def place(self) -> Place:
        return self.catalog, tuple(self.identifier)

    @property
    def pin(self) -> TableVersion:
        return TableVersion(
            table_uuid=self.table_uuid,
            table_key_id=self.table_key_id,
            data_key_length=self.data_key_length,
            metadata_location=self.metadata_location,
            metadata_hash=self.metadata_hash,
            last_sequence_number=self.last_sequence_number,
            kek_hashes=frozenset(self.kek_hashes),
            heads={name: Head(*head) for name, head in self.heads.items()},
            retired_keks=frozenset(self.retired_keks),
            folders=tuple(self.folders),
            columns=columns_from(self.protected_columns),
        )


class _Content(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    # The rows of protected columns say themselves what they lack.
    format: Literal[4, 5]
    pins: list[_Entry]


_FORMAT: Final = re.compile(rb'\s*\{\s*"format"\s*:\s*([1-9][0-9]{0,8})\s*,')
_NEWER: Final = (
    "a newer release of tablecrypt has written this pin file, in a format that this one does not read: upgrade tablecrypt here too, or "
    "give this client a pin file of its own"
)
_OLDER: Final = (
    "this pin file is of a format from before the first release, and lacks what pins compare today: remove it to trust every table again, "
    "and audit these"
)


class PinFile:
    """The pins of one file. Any number of these may use the same path, in any number of threads and processes.

    Args:
        path: where the file is, or will be at the first pin; `~` is the home folder.
        lock_timeout_s: how long a writer waits for another one, in seconds.
    """

    def __init__(self, path: str, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        # Links are followed once, so that all processes lock and replace the same file.
        self.path = Path(os.path.realpath(file_path("encryption.pins", path)))
        self._lock_timeout_s = lock_timeout_s

    def recall_all(self) -> dict[Place, TableVersion]:
        """Return every pin.

        Raises:
            FormatError: the file is not a pin file.
        """
        return self._read()

    def remember(self, place: Place, before: TableVersion | None, seen: TableVersion, moved: Moves = NO_MOVES) -> TableVersion | None:
        """Move the pin to what a catalog answered, if the rules of `TrustedTable` allow it.

        Args:
            place: the table.
            before: the pin as it was when the catalog had not been asked yet. What another process has seen since then does not make
                the answer a rollback: it stays the pin.
            seen: the answer.
            moved: what a commit of this client has moved. Branches and tags that fell do so in every pin of the table.

        Returns:
            What is pinned of the table now; None where nothing is.

        Raises:
            KeyIdChangedError, TamperedFileError, MetadataRollbackError: as `TrustedTable.verify_update`.
            FormatError: the file is not a pin file.
            TablecryptError: another process holds the lock for too long.
        """
        if not moved and _moves_nothing(place, before, seen):
            # Most answers move nothing, and need no lock.
            return before

        with self._locked():
            pins = self._read()
            now = pins.get(place)
            # The pin was forgotten on purpose meanwhile: to write it again would undo that.
            if now != before and now is None:
                return None

            try:
                pin = TrustedTable(name_of(place), now).verify_update(seen, _pinned_elsewhere(pins, place, seen), moved)
            except MetadataRollbackError:
                # Otherwise the pin went ahead since the catalog was asked, and this is the older of two right answers.
                if now == before:
                    raise
                return now

            moved_along = _with_moved_heads(pins, seen, moved)
            if pin is not None:
                moved_along[place] = pin
            if moved_along != pins:
                self._write(moved_along)
            return pin

    def accept_rollback(self, place: Place, seen: TableVersion) -> None:
        """Move the pin to what a catalog answered, be it older than the pin. Of the table's names this one counts from now on.

        Raises:
            KeyIdChangedError, TamperedFileError: as `TrustedTable.accept_rollback`.
            FormatError, TablecryptError: as `remember`.
        """
        with self._locked():
            pins = self._read()
            pin = TrustedTable(name_of(place), pins.pop(place, None)).accept_rollback(seen, _pinned_elsewhere(pins, place, seen))
            if pin is not None:
                self._write({place: pin, **pins})

    def forget(self, place: Place) -> None:
        """Remove the pin of a table, if there is one."""
        if not self.path.exists():
            return
        with self._locked():
            pins = self._read()
            if pins.pop(place, None) is not None:
                self._write(pins)

    def rename(self, old: Place, new: Place) -> None:
        """Move the pin of a table to its new identifier."""
        if not self.path.exists():
            return
        with self._locked():
            pins = self._read()
            if old in pins:
                self._write({new if place == old else place: pin for place, pin in pins.items() if place != new or old == new})

    def _read(self) -> dict[Place, TableVersion]:
        try:
            content = small_content(self.path, _MOST_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigurationError(f"the pin file {self.path} cannot be read: {error.strerror}") from error

        # By itself, since validation of another format would complain about a field and not name the release to use.
        told = _FORMAT.match(content)
        if told is not None and int(told[1]) not in (4, 5):
            raise FormatError(f"{self.path}: {_NEWER if int(told[1]) > 5 else _OLDER}")

        try:
            entries = _Content.model_validate_json(content).pins
        except ValidationError as error:
            raise FormatError(
                f"{self.path}: not a readable pin file. Without its pins an older or edited table would be trusted: restore the file, "
                f"or remove it to trust every table again. {problem_of(error)}"
            ) from error

        return {entry.place: entry.pin for entry in entries}

    def _write(self, pins: Mapping[Place, TableVersion]) -> None:
        content = _Content(format=5, pins=[_Entry.of(place, pin) for place, pin in pins.items()])
        # Durable: a pin that a crash takes back would let the version before it pass.
        with atomic_file(self.path, durable=True) as file:
            file.write(json.dumps(content.model_dump(by_alias=True), indent=1, ensure_ascii=False).encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock file. Every holder opens it for itself, so that the lock keeps threads apart too."""
        from filelock import FileLock  # here, since it takes 50 ms and most catalogs have no pin file

        lock = FileLock(f"{self.path}.lock", self._lock_timeout_s, mode=0o600)
        try:
            self._acquire(lock)
            yield
        finally:
            # Whatever was interrupted: a lock that Ctrl-C left behind would keep this process, and every other, from the pins.
            lock.release(force=True)

    def _acquire(self, lock: BaseFileLock) -> None:
        from filelock import Timeout

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(poll_interval=_LOCK_POLL_S)
        except Timeout as error:
            raise TablecryptError(f"{self.path}.lock was held by another process for {self._lock_timeout_s:g} seconds") from error
        except OSError as error:
            raise ConfigurationError(f"{self.path}.lock, beside the pin file, cannot be made: {error.strerror}") from error


def refuse_conflict(pins: Mapping[Place, TableVersion], place: Place, seen: TableVersion) -> None:
    """Compare what a catalog answered with what is pinned of the same table under other names.

    Args:
        pins: all, in the order in which their tables were first seen.
        place: where it was seen now.
        seen: the answer.

    Raises:
        MetadataRollbackError: as `refuse_overtaken`.
    """
    places = list(pins)
    earlier = places[: places.index(place)] if place in pins else places
    refuse_overtaken(name_of(place), seen, {name_of(other): pins[other] for other in earlier})

    for other in places[len(earlier) + 1 :]:
        if is_ahead(pins[other], seen):
            logger.warning(
                "%s is at sequence number %s, but %s, where the same table was first seen later, was at %s: "
                "if two catalogs hold the table, their commits do not know of each other",
                *(name_of(place), seen.last_sequence_number, name_of(other), pins[other].last_sequence_number),
            )


def _moves_nothing(place: Place, before: TableVersion | None, seen: TableVersion) -> bool:
    if before is not None and before.table_uuid != seen.table_uuid:
        return False
    try:
        return TrustedTable(name_of(place), before).verify_update(seen) == before
    except MetadataRollbackError:
        # Another process may have moved a branch back meanwhile, and the pin with it.
        return False


def _with_moved_heads(pins: Mapping[Place, TableVersion], seen: TableVersion, moved: Moves) -> dict[Place, TableVersion]:
    """Return all pins, with what this client has moved back or removed moved so under every name of the table.

    What it moved forward stays: another catalog that has not seen that commit would be locked out.
    """

    def is_above(name: str, head: Head) -> bool:
        return name in moved.refs and (name not in seen.heads or seen.heads[name].sequence_number < head.sequence_number)

    def along(pin: TableVersion) -> TableVersion:
        if pin.table_uuid != seen.table_uuid or not any(is_above(name, head) for name, head in pin.heads.items()):
            return pin
        heads = {name: seen.heads.get(name) if is_above(name, head) else head for name, head in pin.heads.items()}
        return replace(pin, heads={name: head for name, head in heads.items() if head is not None})

    return {place: along(pin) for place, pin in pins.items()}


def _pinned_elsewhere(pins: Mapping[Place, TableVersion], place: Place, seen: TableVersion) -> str | None:
    names = (name_of(other) for other, pin in pins.items() if other[0] == place[0] and other != place and pin.table_uuid == seen.table_uuid)
    return next(names, None)


def name_of(place: Place) -> str:
    """Return how errors name a table."""
    return ".".join((place[0], *place[1]))
