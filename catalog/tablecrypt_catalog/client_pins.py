"""The hook between a catalog and the client's pin file, which the catalog property encryption.pins names.

    question = pins.ask(identifier)      before the catalog is asked, so that what others commit meanwhile is no rollback
    table = …                            the catalog's answer, or a commit
    question.answered(sighting)          raises what the rules of the pins refuse, or moves the pin

Without encryption.pins all of this does nothing.
"""

from __future__ import annotations

import hashlib
import logging

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier, Properties

from tablecrypt import properties
from tablecrypt.errors import MetadataRollbackError, TablecryptError
from tablecrypt_catalog.pin_file import PinFile, Place, refuse_conflict
from tablecrypt_catalog.pins import NO_MOVES, Moves, Sighting, TrustedTable, sighting

logger = logging.getLogger(__name__)


class PinQuestion:
    """One question to a catalog about one table, asked when its pin was as it is kept here."""

    def __init__(self, file: PinFile | None, place: Place) -> None:
        self._file = file
        self._place = place
        self._pins = {} if file is None else file.recall_all()
        self._before = self._pins.get(place)

    def answered(self, seen: Sighting) -> Sighting | None:
        """Hold the catalog's answer against the pin, move the pin to it, and return it; None where nothing is pinned.

        Raises:
            KeyIdChangedError, TamperedFileError, MetadataRollbackError: as `TrustedTable.believe` and `refuse_conflict`.
            FormatError: the pin file cannot be read.
            TablecryptError: another process holds the lock of the pin file for too long.
        """
        if self._file is None:
            return None
        refuse_conflict(self._pins, self._place, seen)
        return self._file.remember(self._place, self._before, seen)

    def accept_rollback(self, seen: Sighting) -> None:
        """Move the pin to the catalog's answer, be it older than the pin.

        Raises:
            KeyIdChangedError, TamperedFileError: as `TrustedTable.accept_rollback`.
            FormatError, TablecryptError: as `answered`.
        """
        if self._file is not None:
            self._file.accept_rollback(self._place, seen)

    def refuse_plaintext(self) -> None:
        """Refuse to create a plaintext table where an encrypted one is pinned.

        Raises:
            KeyIdChangedError: the identifier has a pin.
        """
        TrustedTable(".".join(self._place[1]), self._before).refuse_plaintext()

    def answered_as_base(self, seen: Sighting) -> Sighting | None:
        """Do as `answered` for the base of a commit, which the catalog gave before this question was asked.

        Raises:
            CommitFailedException: the base is older than what was seen before, maybe by another process a moment ago. Loading the table
                anew tells: it is a MetadataRollbackError if the catalog still answers with it.
        """
        try:
            return self.answered(seen)
        except MetadataRollbackError as error:
            raise CommitFailedException(f"the commit is based on old metadata: {error}") from error

    def landed(self, metadata: TableMetadata, metadata_location: str, metadata_hash: str | None = None, moved: Moves = NO_MOVES) -> None:
        """Move the pin to what a commit wrote. That is in the catalog already, so a pin file that cannot be written is only logged.

        Args:
            metadata: as it was committed.
            metadata_location: where its file is.
            metadata_hash: SHA-256 of the file's JSON where it is known; else that of the metadata as PyIceberg writes it.
            moved: what `moves_of` gives for the commit.
        """
        if self._file is None or (self._before is not None and self._before.metadata_location == metadata_location):
            return
        is_pinned = properties.KEY_ID.name in metadata.properties
        digest = metadata_hash or (hashlib.sha256(metadata.model_dump_json().encode()).hexdigest() if is_pinned else None)
        try:
            self._file.remember(self._place, self._before, sighting(metadata, metadata_location, digest), moved)
        except (OSError, TablecryptError) as error:
            logger.warning("%s is committed, but its pin could not be moved: %s", metadata_location, error)


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

    def ask(self, identifier: str | Identifier) -> PinQuestion:
        """Return the question to ask before asking the catalog for a table.

        Raises:
            FormatError: the pin file cannot be read.
        """
        return PinQuestion(self._file, self._place(identifier))

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
