"""What a REST server's answers must hold. Pure: what was sent and what came back in, an error or nothing out.

An answer to a load may restrict what the reader sees: each restriction must be applicable in full, before the table is handed out.

Of a commit, a server that is not ours writes the metadata. It may add what other writers committed meanwhile, and may give the entries of
`encryption-keys` in any order; it may not lose or change what a reader needs. Rules:

    1. The answer is the same table's: table-uuid and location.
    2. It has format version 3, the same encryption.key-id and no smaller encryption.data-key-length.
    3. It is not older than the commit: every snapshot sent is in it, last-sequence-number has not gone back, and the branches and tags that
       the commit set point where it set them, or to something newer.
    4. Every snapshot that this client knows has the key-id that it had.
    5. Every key entry that was sent is there as it was sent. Every other entry that this client knows has the value that it had, or one
       that others may have given it meanwhile: a KEK that was rewrapped keeps its age and master key, a manifest-list key that was wrapped
       again is under another KEK.
    6. Every snapshot has a key-id, and its key and the KEK above are there.
    7. The columns of data files that the commit adds are protected as they were when these were written, or more weakly.

When a rule is broken the commit has landed in some form already: its files must not be deleted.

Iceberg REST catalog specification, `loadTable`, `ReadRestrictions`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.typedef import IcebergBaseModel, Identifier

from tablecrypt import properties
from tablecrypt.errors import KeyIdChangedError, KeyNotFoundError, MetadataRollbackError, ReadRestrictionError, TamperedFileError
from tablecrypt.files.encrypting_file_io import ReadRestrictions
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.protection.writing import WrittenUnder
from tablecrypt.table.restrictions.read_restrictions import check_restrictions, parse_restrictions
from tablecrypt.table.updates import AddEncryptedSnapshotUpdate, AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate
from tablecrypt_catalog.pins.record import moved_refs, table_version
from tablecrypt_catalog.table_encryption import is_encrypted


def check_answer(
    staged: EncryptedTableMetadata, updates: Iterable[IcebergBaseModel], answer: TableMetadata, location: str
) -> EncryptedTableMetadata:
    """Check a server's answer to a commit; return it.

    Args:
        staged: the metadata that the commit makes of what this client knew.
        updates: what was sent.
        answer: the metadata that came back.
        location: the metadata file that the answer names.

    Raises:
        TamperedFileError: rules 1, 4 and 5, and a snapshot without key-id.
        KeyIdChangedError: rules 2 and 7.
        MetadataRollbackError: rule 3.
        KeyNotFoundError: a key entry is missing (rules 5 and 6).
    """
    sent = list(updates)
    # Which table it is comes first: all other rules compare two versions of one.
    check_same_table(staged, answer, location)
    encrypted = _check_still_encrypted(staged, answer, location)
    _check_not_older(staged, sent, encrypted, location)
    _check_heads(staged, sent, encrypted, location)
    _check_snapshots(staged, encrypted, location)
    _check_keys(staged, sent, encrypted, location)
    _check_every_snapshot_opens(encrypted, location)
    _check_protection(staged, sent, encrypted, location)

    return encrypted


def check_same_table(known: TableMetadata, answer: TableMetadata, location: str) -> None:
    """Rule 1.

    Raises:
        TamperedFileError: the answer has another table-uuid or location.
    """
    if answer.table_uuid != known.table_uuid:
        raise TamperedFileError(location, f"the catalog answered for table {known.table_uuid} with table {answer.table_uuid}")
    # Java leaves a slash at the end out.
    if answer.location.rstrip("/") != known.location.rstrip("/"):
        raise TamperedFileError(location, f"the catalog answered that the table at {known.location} is at {answer.location}")


def _check_still_encrypted(known: EncryptedTableMetadata, answer: TableMetadata, location: str) -> EncryptedTableMetadata:
    before, after = table_version(known, location, None), table_version(answer, location, None)
    if after.table_key_id != before.table_key_id:
        raise KeyIdChangedError(
            f"{location}: the catalog answered with {properties.KEY_ID.name} {after.table_key_id}, but the table has {before.table_key_id}"
        )
    if after.data_key_length < before.data_key_length:
        raise KeyIdChangedError(
            f"{location}: the catalog answered with {properties.DATA_KEY_LENGTH.name} {after.data_key_length}, "
            f"but the table has {before.data_key_length}"
        )
    if not isinstance(answer, EncryptedTableMetadata):
        raise KeyIdChangedError(f"{location}: the catalog answered with format version {answer.format_version}, which holds no keys")

    return answer


def _check_not_older(known: EncryptedTableMetadata, sent: list[IcebergBaseModel], answer: EncryptedTableMetadata, location: str) -> None:
    if answer.last_sequence_number < known.last_sequence_number:
        raise MetadataRollbackError(
            f"{location}: the catalog answered a commit with older metadata: "
            f"its last sequence number is {answer.last_sequence_number}, and was to be {known.last_sequence_number}"
        )

    for update in sent:
        # A server that drops the snapshot and answers with success would lose rows without an error.
        if isinstance(update, AddSnapshotUpdate) and answer.snapshot_by_id(update.snapshot.snapshot_id) is None:
            raise MetadataRollbackError(
                f"{location}: the catalog answered the commit of snapshot {update.snapshot.snapshot_id} with metadata that lacks it"
            )


def _check_heads(known: EncryptedTableMetadata, sent: list[IcebergBaseModel], answer: EncryptedTableMetadata, location: str) -> None:
    asked, answered = table_version(known, location, None).heads, table_version(answer, location, None).heads
    for name in moved_refs(sent) & asked.keys():
        now = answered.get(name)
        if now is None or (now != asked[name] and now.sequence_number <= asked[name].sequence_number):
            found = "is gone" if now is None else f"points to snapshot {now.snapshot_id}"
            raise MetadataRollbackError(
                f"{location}: the commit set {name} to snapshot {asked[name].snapshot_id}, but in the catalog's answer it {found}"
            )


def _check_snapshots(known: EncryptedTableMetadata, answer: EncryptedTableMetadata, location: str) -> None:
    key_ids = {snapshot.snapshot_id: snapshot.key_id for snapshot in known.snapshots}
    for snapshot in answer.snapshots:
        before = key_ids.get(snapshot.snapshot_id, snapshot.key_id)
        # The key-id leads to the key of the manifest list: without it, or with another, no reader could open the snapshot.
        if snapshot.key_id is None or snapshot.key_id != before:
            raise TamperedFileError(
                location, f"the catalog answered with key-id {snapshot.key_id} for snapshot {snapshot.snapshot_id}, which has {before}"
            )


def _check_keys(known: EncryptedTableMetadata, sent: list[IcebergBaseModel], answer: EncryptedTableMetadata, location: str) -> None:
    answered = {key.key_id: key for key in answer.encryption_keys}
    added = _added_key_ids(sent)
    for key_id in added - answered.keys():
        raise KeyNotFoundError(f"{location}: the catalog answered without encryption key {key_id}, which this commit added")

    for key in known.encryption_keys:
        found = answered.get(key.key_id)
        if found is None or _content(found) == _content(key):
            continue
        # An entry that this commit has just added cannot have been rotated by others yet.
        if key.key_id in added or not _may_have_become(key, found):
            raise TamperedFileError(location, f"the catalog answered with another value of encryption key {key.key_id}")


def _added_key_ids(sent: list[IcebergBaseModel]) -> set[str]:
    added: set[str] = set()
    for update in sent:
        if isinstance(update, AddEncryptionKeyUpdate):
            added.add(update.key.key_id)
        elif isinstance(update, RemoveEncryptionKeyUpdate):
            added.discard(update.key_id)
    return added


def _may_have_become(before: EncryptedKey, after: EncryptedKey) -> bool:
    """Whether a rotation or a rewrap by others explains another value of an entry. What it opens is authenticated when it is used."""
    if before.is_wrapped_by_kms:
        return (before.encrypted_by_id, before.properties) == (after.encrypted_by_id, after.properties)
    return before.kind == after.kind and before.encrypted_by_id != after.encrypted_by_id


def _check_every_snapshot_opens(answer: EncryptedTableMetadata, location: str) -> None:
    ring = answer.key_ring
    for snapshot in answer.snapshots:
        try:
            ring.chain(_key_id(snapshot))
        except KeyNotFoundError as error:
            raise KeyNotFoundError(f"{location}: the catalog answered with snapshot {snapshot.snapshot_id}, but: {error}") from error


def _check_protection(known: EncryptedTableMetadata, sent: list[IcebergBaseModel], answer: EncryptedTableMetadata, location: str) -> None:
    for update in sent:
        if not isinstance(update, AddEncryptedSnapshotUpdate) or update.written_under is None:
            continue

        added = update.snapshot
        if (what := WrittenUnder.of(known).differs_from(answer, added.sequence_number)) is not None:
            raise KeyIdChangedError(
                f"{location}: {what} while snapshot {added.snapshot_id} was committed, and its files do not fit that. The commit stands: "
                f"go back to snapshot {added.parent_snapshot_id}, shred snapshot {added.snapshot_id}, and write the rows again"
            )


def _key_id(snapshot: EncryptedSnapshot) -> str:
    assert snapshot.key_id is not None
    return snapshot.key_id


def _content(key: EncryptedKey) -> tuple[bytes, str | None, dict[str, str]]:
    # A server may write no properties as an empty object.
    return key.wrapped_bytes(), key.encrypted_by_id, key.properties or {}


def applicable_restrictions(name: Identifier, metadata: TableMetadata, answered: object) -> ReadRestrictions | None:
    """Return what readers of a table have to apply; None where the server restricts nothing.

    Args:
        name: the table's.
        metadata: as the server answered it.
        answered: the answer's `read-restrictions`.

    Raises:
        ReadRestrictionError: something of it cannot be applied, or the table is not encrypted, which PyIceberg reads without applying any.
    """
    try:
        restrictions = parse_restrictions(answered)
        if restrictions is None:
            return None
        if not isinstance(metadata, EncryptedTableMetadata) or not is_encrypted(name, metadata):
            raise ReadRestrictionError("the table is not encrypted, so PyIceberg reads it and applies no restrictions")
        check_restrictions(restrictions, metadata)
    except ReadRestrictionError as error:
        raise ReadRestrictionError(f"{'.'.join(name)} cannot be read as the catalog's server requires: {error}") from None

    return restrictions
