"""Pins in a JSON file of this client, shared by its threads and processes.

    {"format": 1,
     "pins": [{"catalog": "prod", "identifier": ["db", "orders"],
               "table-uuid": "…", "encryption.key-id": "…", "encryption.data-key-length": 16,
               "metadata-location": "…", "metadata-hash": "…" or null, "last-sequence-number": 7, "kek-hashes": ["…"]}, …]}

The file has mode 0600 and is replaced as a whole, so a reader needs no lock. A writer holds an exclusive flock on `<file>.lock` from
reading the old content to replacing it; who waits longer than 10 seconds for it gets an error. A file that cannot be understood is an
error, never an empty set of pins. The pins are as trustworthy as the file: keep it where those against whom they help cannot write.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tablecrypt.errors import ConfigurationError, FormatError, MetadataRollbackError, TablecryptError
from tablecrypt_catalog.pins import Sighting, TrustedTable

Place = tuple[str, tuple[str, ...]]
"""A catalog's name and a table identifier in it."""

LOCK_TIMEOUT_S: Final = 10.0
_LOCK_POLL_S: Final = 0.01


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=True)

    catalog: str
    identifier: list[str]
    table_uuid: str = Field(alias="table-uuid")
    key_id: str = Field(alias="encryption.key-id")
    data_key_length: int = Field(alias="encryption.data-key-length")
    metadata_location: str = Field(alias="metadata-location")
    metadata_hash: str | None = Field(alias="metadata-hash")
    last_sequence_number: int = Field(alias="last-sequence-number")
    kek_hashes: list[str] = Field(alias="kek-hashes")

    @classmethod
    def of(cls, place: Place, pin: Sighting) -> Self:
        fields = {name: getattr(pin, name) for name in cls.model_fields if hasattr(pin, name)}
        return cls(**{**fields, "catalog": place[0], "identifier": list(place[1]), "kek_hashes": sorted(pin.kek_hashes)})

    @property
    def place(self) -> Place:
        return self.catalog, tuple(self.identifier)

    @property
    def pin(self) -> Sighting:
        fields = self.model_dump(exclude={"catalog", "identifier"})
        return Sighting(**{**fields, "kek_hashes": frozenset(self.kek_hashes)})


class _Content(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    format: Annotated[Literal[1], Field()]
    pins: list[_Entry]


class PinFile:
    """The pins of one file. Any number of these may use the same path, in any number of threads and processes.

    Args:
        path: where the file is, or will be at the first pin; `~` is the home folder.
        lock_timeout_s: how long a writer waits for another one, in seconds.
    """

    def __init__(self, path: str, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        if not path:
            raise ConfigurationError("encryption.pins is empty; it must be the path of the pin file")
        self.path = Path(os.path.realpath(Path(path).expanduser()))
        self._lock_timeout_s = lock_timeout_s

    def recall(self, place: Place) -> Sighting | None:
        """Return the pin of a table; None for one that was never seen. Raises as `recall_all`."""
        return self._read().get(place)

    def recall_all(self) -> dict[Place, Sighting]:
        """Return every pin.

        Raises:
            FormatError: the file is not a pin file.
        """
        return self._read()

    def remember(self, place: Place, before: Sighting | None, seen: Sighting) -> None:
        """Believe what a catalog answered, if the rules of `TrustedTable` allow it, and move the pin to it.

        Args:
            place: the table.
            before: the pin as it was when the catalog had not been asked yet. What another process has seen since then does not make
                the answer a rollback: it stays the pin.
            seen: the answer.

        Raises:
            KeyIdChangedError, TamperedFileError, MetadataRollbackError: as `TrustedTable.believe`.
            FormatError: the file is not a pin file.
            TablecryptError: another process holds the lock for too long.
        """
        same_table = before is None or before.table_uuid == seen.table_uuid
        if same_table and TrustedTable(name_of(place), before).believe(seen) == before:
            # Most answers move nothing, and need no lock.
            return
        with self._locked():
            pins = self._read()
            now = pins.get(place)
            if now != before and now is None:
                return
            try:
                pin = TrustedTable(name_of(place), now).believe(seen, _pinned_elsewhere(pins, place, seen))
            except MetadataRollbackError:
                if now == before:
                    raise
                return
            if pin is not None and pin != now:
                self._write({**pins, place: pin})

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
            pin = pins.pop(old, None)
            if pin is not None:
                self._write({**pins, new: pin})

    def _read(self) -> dict[Place, Sighting]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            entries = _Content.model_validate_json(content).pins
        except ValidationError as error:
            raise FormatError(
                f"{self.path}: not a readable pin file. Without its pins an older or edited table would be trusted: restore the file, "
                f"or remove it to trust every table anew. {error}"
            ) from error
        return {entry.place: entry.pin for entry in entries}

    def _write(self, pins: Mapping[Place, Sighting]) -> None:
        content = _Content(format=1, pins=[_Entry.of(place, pin) for place, pin in sorted(pins.items())])
        # mkstemp makes files of mode 0600.
        handle, temporary = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(content.model_dump(by_alias=True), file, indent=1, ensure_ascii=False)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock file. Every holder opens it for itself, so that flock keeps threads apart too."""
        try:
            import fcntl
        except ImportError as error:
            raise ConfigurationError("encryption.pins needs file locks as Linux and macOS have them") from error
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + self._lock_timeout_s
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() >= deadline:
                        raise TablecryptError(
                            f"{self.path}.lock was held by another process for {self._lock_timeout_s:g} seconds"
                        ) from error
                    time.sleep(_LOCK_POLL_S)
            yield
        finally:
            os.close(handle)


def _pinned_elsewhere(pins: Mapping[Place, Sighting], place: Place, seen: Sighting) -> str | None:
    names = (name_of(other) for other, pin in pins.items() if other[0] == place[0] and other != place and pin.table_uuid == seen.table_uuid)
    return next(names, None)


def name_of(place: Place) -> str:
    """Return how errors name a table."""
    return ".".join((place[0], *place[1]))
