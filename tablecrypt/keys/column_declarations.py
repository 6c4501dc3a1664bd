"""The declaration of a protected column, authenticated under its column key: nobody without that key makes the protection weaker unseen.

A table's properties say how a column is protected, and whoever may commit can change them. So an entry of `encryption-keys` repeats what
they say, for each column and each master key under which it has column keys:

    declaration    encrypted-by-id = the key-id of a column key of the column; properties = {"tablecrypt.column-declaration": "<field id>"};
                   encrypted-key-metadata = nonce (12) | payload encrypted | tag (16), AES-GCM
                   key: HKDF-SHA256(the column key, info "tablecrypt column declaration key"), as long as the column key
                   AAD: "tablecrypt column declaration" | 0 | table-uuid | 0 | field id | 0 | key-id of the column key, all as UTF-8

The key is derived, so that its random nonces and those of the DEKs that the column key wraps never meet under one key. The AAD keeps the
entry of another table, column or column key from being taken for this one. The payload is canonical JSON: UTF-8, sorted names, no spaces.

    {"field-id": 8, "former": [["alias/old", 41]], "key-id": "alias/pii", "mask": "truncate(4)", "names": ["person.ssn"], "revision": 3,
     "since": 12, "version": 1}

    key-id      the column's master key; null where the column is protected no more
    former      master keys under which files from before hold the column, each with the last data sequence number that such a file may have
    names       every name that the column has or had, with dots
    revision    counts up: the highest one that opens counts

Rules:
    1. For each master key under which the table has column keys of the column, the newest declaration under one of them has to allow what
       the properties say: see `weakened`. So whoever holds another master key than the earlier one cannot claim the column for his.
    2. What protects the column better needs no declaration: a mask that shows nothing, an earlier `since`, a former master key less or
       until an earlier file.
    3. An entry that does not open is no declaration, whoever put it there.
    4. A declaration says how this table protects its own values: beside keys of this table, nothing is read under a column key that was
       made for another one (column_key_ring.py). A copy of a table, made by somebody without the column's key, has foreign keys alone: who
       declares the column there makes them the copy's.

Which of the two is older when somebody puts back metadata with the declaration of that time, only pins tell.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ColumnKeyDeniedError, ConfigurationError, FormatError
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import ColumnMask, ColumnPolicy, ProtectedColumn
from tablecrypt.keys.key_ring import COLUMN_DECLARATION, EncryptedKey, KeyRing

PAYLOAD_VERSION: Final = 1
PROTECTION: Final = "protection"
KEY: Final = "key"
MASK: Final = "mask"
SINCE: Final = "since"
FORMER: Final = "former"
UNTIL: Final = "until"

_INFO: Final = b"tablecrypt column declaration key"
_AAD: Final = b"tablecrypt column declaration"
_ID_LENGTH: Final = 16


@dataclass(frozen=True)
class ColumnDeclaration:
    """How a column is protected, or that it is no more.

    Attributes:
        field_id: the column's.
        column: its protection; None where there is none.
        former: by former master key, the last data sequence number that a file under it may have; None where properties do not say.
        names: every name that it has or had.
        revision: counts up with each declaration of the column.
    """

    field_id: int
    column: ProtectedColumn | None
    former: Mapping[str, int | None]
    names: tuple[str, ...] = ()
    revision: int = 0

    @classmethod
    def stated(cls, policy: ColumnPolicy, field_id: int) -> Self:
        """Return what a table's properties say of a column."""
        former = policy.former.get(field_id)
        return cls(field_id, policy.columns.get(field_id), {} if former is None else {former.key_id: former.until})

    @property
    def shows_stored_mask(self) -> bool:
        """Whether files hold masked values that others read."""
        return self.column is not None and self.column.mask.is_stored

    def payload(self) -> bytes:
        """Return the canonical JSON."""
        column = self.column
        fields = {
            "version": PAYLOAD_VERSION,
            "revision": self.revision,
            "field-id": self.field_id,
            "names": sorted(self.names),
            "key-id": None if column is None else column.column_key_id,
            "mask": None if column is None else str(column.mask),
            "since": None if column is None else column.since,
            "former": sorted([key_id, until] for key_id, until in self.former.items()),
        }
        return json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Return the declaration in an authenticated payload.

        Raises:
            FormatError: another version of tablecrypt wrote it.
        """
        try:
            fields = json.loads(payload)
            # It is authentic, and so not passed over like an entry that does not open: it may forbid what the properties say.
            if fields["version"] != PAYLOAD_VERSION:
                raise FormatError(f"a column's declaration has version {fields['version']}; this release reads version {PAYLOAD_VERSION}")

            return cls(
                fields["field-id"],
                _column(fields),
                dict(fields["former"]),
                tuple(fields["names"]),
                fields["revision"],
            )
        except (ValueError, TypeError, LookupError, ConfigurationError) as error:
            raise FormatError(f"a column's declaration cannot be read ({type(error).__name__}): a newer release has written it") from error


def _column(fields: Mapping[str, Any]) -> ProtectedColumn | None:
    if fields["key-id"] is None:
        return None
    return ProtectedColumn(fields["field-id"], fields["key-id"], ColumnMask.parse(fields["mask"]), fields["since"])


def weakened(declared: ColumnDeclaration, stated: ColumnDeclaration) -> dict[str, str]:
    """Return in which respects a column is protected less than was declared, each with a sentence on it; nothing where it is not.

    Args:
        declared: what was authenticated.
        stated: what a table's properties say.
    """
    found: dict[str, str] = {}
    before, now = declared.column, stated.column
    if before is not None and now is None:
        found[PROTECTION] = f"was protected under master key {before.column_key_id!r}, and the properties do not protect it now"

    if before is not None and now is not None:
        if now.column_key_id != before.column_key_id:
            found[KEY] = f"was under master key {before.column_key_id!r}, and the properties say {now.column_key_id!r} now"
        # Other readers see nothing through `null` and `error`: a change to one of them weakens nothing (rule 2).
        if now.mask != before.mask and now.mask.is_stored:
            found[MASK] = f"was masked by {before.mask}, and the properties say {now.mask} now"
        if now.since is not None and (before.since is None or before.since < now.since):
            found[SINCE] = f"may be unprotected in files up to sequence number {now.since} now, which was {before.since or 'not so'} before"

    # Named as a former key, the column's own key opens no file that it does not open anyway.
    own = now.column_key_id if now is not None else None
    for key_id in stated.former.keys() - declared.former.keys() - {own}:
        found[FORMER] = f"may be under the former master key {key_id!r} now, which was not so before"

    # Of a column that was not protected no end was kept. An end that is missing opens nothing: see former_keys.py.
    for key_id in stated.former.keys() & declared.former.keys() - {own} if before is not None else ():
        until, end = stated.former[key_id], declared.former[key_id]
        if until is not None and end is not None and end < until:
            found[UNTIL] = (
                f"may be under the former master key {key_id!r} in files up to sequence number {until} now, which was {end} before"
            )

    return found


def sealed(
    declaration: ColumnDeclaration, column_key_id: str, column_key: Secret, table_uuid: str, random: Callable[[int], bytes]
) -> EncryptedKey:
    """Return the entry that holds a declaration.

    Args:
        declaration: what it says.
        column_key_id: the id of a column key of the column.
        column_key: that key.
        table_uuid: the table's.
        random: the source of the nonce and of the entry's id.
    """
    aad = _aad(table_uuid, declaration.field_id, column_key_id)
    encrypted = AesGcm(_key(column_key)).encrypt(random(NONCE_LENGTH), declaration.payload(), aad)
    return EncryptedKey(
        key_id=base64.b64encode(random(_ID_LENGTH)).decode(),
        encrypted_key_metadata=base64.b64encode(encrypted).decode(),
        encrypted_by_id=column_key_id,
        properties={COLUMN_DECLARATION: str(declaration.field_id)},
    )


def opened(entry: EncryptedKey, field_id: int, column_key: Secret, table_uuid: str) -> ColumnDeclaration:
    """Return the declaration in an entry.

    Raises:
        AuthenticationError: it is that of another table, column or column key, or was changed.
        FormatError: another version of tablecrypt wrote it.
    """
    aad = _aad(table_uuid, field_id, entry.encrypted_by_id or "")
    try:
        encrypted = entry.wrapped_bytes()
    except FormatError as error:
        # Whoever may commit can put it in, as he can put in bytes that do not open: rule 3 holds for both.
        raise AuthenticationError(f"declaration {entry.key_id} holds no ciphertext: the entry was changed") from error

    return ColumnDeclaration.from_payload(AesGcm(_key(column_key)).decrypt(encrypted, aad))


def _key(column_key: Secret) -> Secret:
    return Secret(HKDF(SHA256(), len(column_key), salt=None, info=_INFO).derive(column_key.reveal()))


def _aad(table_uuid: str, field_id: int, column_key_id: str) -> bytes:
    return b"\0".join((_AAD, table_uuid.encode(), str(field_id).encode(), column_key_id.encode()))


class Declarations:
    """The declarations in one version of a table's metadata.

    Args:
        maker: opens column keys.
        ring: the keys of that version.
        table_uuid: the table's.
    """

    def __init__(self, maker: ColumnKeyMaker, ring: KeyRing, table_uuid: str) -> None:
        self._maker = maker
        self._ring = ring
        self._table_uuid = table_uuid

    def newest(self, field_id: int) -> dict[str, tuple[ColumnDeclaration, ...]]:
        """Return the newest declarations of a column by the master key that authenticates them; two people may have made one each at once.

        A master key is there without a declaration where the column has column keys under it and none of them authenticates one. It is
        left out where this user may not use it.

        Raises:
            KeyNotFoundError, FormatError, AuthenticationError, KmsError: a column key does not open, and not because the KMS refuses it.
        """
        found: dict[str, tuple[ColumnDeclaration, ...]] = {}
        for master_key_id, entries in self.column_keys(field_id).items():
            try:
                found[master_key_id] = self._newest_under(field_id, entries)
            except ColumnKeyDeniedError:
                continue  # who may not use the key relies on pins

        return found

    def column_keys(self, field_id: int) -> dict[str, list[EncryptedKey]]:
        """Return the column keys of a column by their master key: those first that are this table's, and of them that their makers open."""
        by_master: dict[str, list[EncryptedKey]] = {}
        for entry in self._ring.column_keys:
            if entry.field_id == field_id and entry.wraps_deks:
                by_master.setdefault(self._ring.master_key_id(entry) or "", []).append(entry)
        return {
            master_key_id: sorted(entries, key=lambda each: (self._ring.is_strange(each), each.is_write_only))
            for master_key_id, entries in by_master.items()
        }

    def entries(self, field_id: int, column_keys: Iterable[EncryptedKey]) -> list[EncryptedKey]:
        """Return the entries that say they are declarations of a column under one of these column keys."""
        ids = {entry.key_id for entry in column_keys}
        return [each for each in self._ring.column_declarations if each.encrypted_by_id in ids and each.declared_field == str(field_id)]

    def _newest_under(self, field_id: int, column_keys: list[EncryptedKey]) -> tuple[ColumnDeclaration, ...]:
        below = self.entries(field_id, column_keys)
        needed = [entry for entry in column_keys if any(each.encrypted_by_id == entry.key_id for each in below)]
        # Where there is no declaration, one key tells whether this user may open any.
        keys = {entry.key_id: self._maker.open(self._ring, entry) for entry in needed or column_keys[:1]}
        found = [each for entry in below if (each := self._opened(entry, field_id, keys[entry.encrypted_by_id or ""])) is not None]
        highest = max((each.revision for each in found), default=0)
        # Two users who declared at the same time wrote the same revision: either counts.
        return tuple(each for each in found if each.revision == highest)

    def _opened(self, entry: EncryptedKey, field_id: int, key: Secret) -> ColumnDeclaration | None:
        try:
            return opened(entry, field_id, key, self._table_uuid)
        except AuthenticationError:
            return None  # rule 3: a junk entry takes nothing away from the right one
