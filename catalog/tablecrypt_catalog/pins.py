"""What may be believed of a table, given what was seen of it before: the rules of the pins, without a file, a database or a clock.

metadata.json is plaintext and nothing authenticates it. Who can write to the storage can edit it or put back an old one; who can write to
the catalog can point it anywhere. A pin is what a trusted place (the catalog's database, or a file of this client) remembers of the newest
version that was seen, so that the next answer can be held against it:

    Sighting   table-uuid | encryption.key-id | encryption.data-key-length | metadata location | hash of the metadata
               | last-sequence-number | hashes of the wrapped KEKs

The hash is SHA-256 over the bytes of the metadata's JSON, uncompressed; its place decides what exactly those are (file or server answer).
A pin sees replays and edits. It cannot see a forged version that continues the pinned one in every field: only the authenticated manifest
lists can, see table/metadata.py.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.table.metadata import TableMetadata, TableMetadataV1

from tablecrypt import properties
from tablecrypt.errors import KeyIdChangedError, MetadataRollbackError, TamperedFileError
from tablecrypt.keys.key_settings import DEFAULT_DATA_KEY_LENGTH
from tablecrypt.table.metadata import EncryptedTableMetadata

_HASH_LENGTH: Final = 32
_WHOLE_NUMBER: Final = re.compile("[0-9]{1,9}")
_VERSION: Final = re.compile(r"(?:.*/)?(\d+)-[^/]*\.metadata\.json(?:\.gz)?", re.DOTALL)


@dataclass(frozen=True)
class Sighting:
    """One version of a table, as a catalog answered it or a commit wrote it. A pin is the newest that is believed.

    Attributes:
        key_id: None for a plaintext table, which is never pinned.
        metadata_hash: None where the bytes are not known; then they are not compared.
        kek_hashes: 16 bytes of SHA-256, in hexadecimal, of each KEK as the KMS wrapped it.
    """

    table_uuid: str
    key_id: str | None
    data_key_length: int
    metadata_location: str
    metadata_hash: str | None
    last_sequence_number: int
    kek_hashes: frozenset[str] = frozenset()

    @property
    def version(self) -> int | None:
        """The number that a metadata file's name begins with, which grows by one with each commit; None where it has none."""
        match = _VERSION.fullmatch(self.metadata_location)
        return int(match.group(1)) if match else None


def sighting(metadata: TableMetadata, metadata_location: str, metadata_hash: str | None) -> Sighting:
    """Return what a pin would keep of this version of a table."""
    keys = metadata.encryption_keys if isinstance(metadata, EncryptedTableMetadata) else []
    key_id = metadata.properties.get(properties.KEY_ID.name)
    return Sighting(
        table_uuid=str(metadata.table_uuid),
        key_id=None if key_id is None else str(key_id),
        data_key_length=_length(metadata.properties.get(properties.DATA_KEY_LENGTH.name)),
        metadata_location=metadata_location,
        metadata_hash=metadata_hash,
        last_sequence_number=0 if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number,
        kek_hashes=frozenset(hashlib.sha256(key.wrapped_bytes()).hexdigest()[:_HASH_LENGTH] for key in keys if key.is_kek),
    )


def refuse_overtaken(name: str, seen: Sighting, elsewhere: Mapping[str, Sighting]) -> None:
    """Refuse a table that was seen newer under another name: two catalogs have it, and one of them fell behind.

    Args:
        name: where it was seen now.
        elsewhere: what is pinned under every other name.

    Raises:
        MetadataRollbackError: a pin of the same table has a greater last-sequence-number.
    """
    for other, pin in elsewhere.items():
        if pin.table_uuid == seen.table_uuid and pin.last_sequence_number > seen.last_sequence_number:
            raise MetadataRollbackError(
                f"{name} is at sequence number {seen.last_sequence_number}, but the same table was seen at {pin.last_sequence_number} "
                f"as {other}: commits of two catalogs do not know of each other. Keep one of them, and drop the other's entry without purge"
            )


class TrustedTable:
    """What is trusted of the table behind one identifier, and what may be believed next.

    Rules, in the order in which they are checked:
        1. An unknown identifier is trusted on first use: the first encrypted version that is seen becomes the pin.
        2. An identifier that was encrypted is never believed to be plaintext, whatever table it names now.
        3. encryption.key-id never changes, not even with another table-uuid.
        4. Another table-uuid is a new table, and its pin starts anew, unless
           a. it is pinned under another identifier of the catalog: then the catalog answered with that table, or
           b. it holds a KEK of the pinned table: then it is that table in disguise. Nobody without the master key can wrap its KEK again.
        5. encryption.data-key-length never shrinks.
        6. The metadata at the pinned location has the pinned hash.
        7. last-sequence-number never shrinks.
        8. Metadata at another location has a greater version number, where both names have one.
    A pin is removed only by dropping the table through a catalog that keeps pins, or by forgetting it on purpose.
    """

    def __init__(self, name: str, pin: Sighting | None) -> None:
        self.name = name
        self.pin = pin

    def believe(self, seen: Sighting, pinned_as: str | None = None) -> Sighting | None:
        """Return the pin to keep after seeing this version; None where there was none and the table is plaintext.

        Args:
            seen: the version.
            pinned_as: another identifier under which its table-uuid is pinned.

        Raises:
            KeyIdChangedError: rules 2, 3 and 5.
            TamperedFileError: rules 4 and 6.
            MetadataRollbackError: rules 7 and 8.
        """
        pin = self.pin
        if pin is None:
            return None if seen.key_id is None else seen
        if seen.key_id is None:
            self.refuse_plaintext()
        self._check_key_id(pin, seen)
        if seen.table_uuid != pin.table_uuid:
            self._check_is_new_table(pin, seen, pinned_as)
            return seen
        self._check_data_key_length(pin, seen)
        if seen.metadata_location == pin.metadata_location:
            self._check_hash(pin, seen)
            return pin if pin.metadata_hash is not None else replace(pin, metadata_hash=seen.metadata_hash)
        self._check_is_newer(pin, seen)
        return replace(seen, kek_hashes=seen.kek_hashes | pin.kek_hashes)

    def refuse_plaintext(self) -> None:
        """Rule 2 on a plaintext table.

        Raises:
            KeyIdChangedError: the identifier is pinned.
        """
        if self.pin is not None:
            raise KeyIdChangedError(
                f"{self.name} was encrypted with {properties.KEY_ID.name} {self.pin.key_id}, and is a plaintext table now: refused. "
                "If it was dropped and created anew on purpose, forget its pin: catalog.forget_pin(identifier)"
            )

    def _check_key_id(self, pin: Sighting, seen: Sighting) -> None:
        if seen.key_id != pin.key_id:
            raise KeyIdChangedError(
                f"{self.name}: {properties.KEY_ID.name} is {seen.key_id}, but was {pin.key_id} when the table was seen before. "
                "If the table was created anew on purpose, forget its pin: catalog.forget_pin(identifier)"
            )

    def _check_is_new_table(self, pin: Sighting, seen: Sighting, pinned_as: str | None) -> None:
        if pinned_as is not None:
            raise TamperedFileError(
                seen.metadata_location,
                f"the catalog answered with it for {self.name}, but it is the metadata of {pinned_as}. "
                "If the tables were renamed on purpose, forget their pins: catalog.forget_pin(identifier)",
            )
        if seen.kek_hashes & pin.kek_hashes:
            raise TamperedFileError(
                seen.metadata_location,
                f"{self.name}: table-uuid is {seen.table_uuid}, but the metadata holds the keys of table {pin.table_uuid}",
            )

    def _check_data_key_length(self, pin: Sighting, seen: Sighting) -> None:
        if seen.data_key_length < pin.data_key_length:
            raise KeyIdChangedError(
                f"{self.name}: {properties.DATA_KEY_LENGTH.name} is {seen.data_key_length}, but was {pin.data_key_length} before: "
                "it cannot shrink"
            )

    def _check_hash(self, pin: Sighting, seen: Sighting) -> None:
        if None not in (pin.metadata_hash, seen.metadata_hash) and pin.metadata_hash != seen.metadata_hash:
            raise TamperedFileError(seen.metadata_location, f"{self.name}: the table metadata was edited since it was seen before")

    def _check_is_newer(self, pin: Sighting, seen: Sighting) -> None:
        if seen.last_sequence_number < pin.last_sequence_number:
            raise MetadataRollbackError(
                f"{self.name}: last-sequence-number is {seen.last_sequence_number} in {seen.metadata_location}, "
                f"but {pin.last_sequence_number} was seen before"
            )
        if seen.version is not None and pin.version is not None and seen.version <= pin.version:
            raise MetadataRollbackError(f"{self.name}: {seen.metadata_location} does not follow {pin.metadata_location}, seen before")


def _length(value: object) -> int:
    """A length that is no number counts as none: opening the table says what is wrong with it."""
    text = str(DEFAULT_DATA_KEY_LENGTH if value is None else value)
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else 0
