"""The encryption manager: makes a DEK and an AAD prefix for each file, and encrypts and decrypts manifest-list keys.

    KMS master key ── wraps (in the KMS) ──▶ KEK ── AES-GCM, AAD = KEY_TIMESTAMP ──▶ StandardKeyMetadata of a manifest list

    encrypted manifest-list key = nonce (12) | ciphertext | tag (16)        key: the KEK; AAD: the KEK's KEY_TIMESTAMP as UTF-8 digits

What a table's properties say about the keys made for it:

    encryption.data-key-length    bytes of every DEK and KEK: 16 (default), 24 or 32
    encryption.kek-lifespan-ms    1 to 63072000000, which is 730 days and the default

No operation here writes. Encrypting returns the entries that have to be added to `encryption-keys`; one commit stores them together with
the snapshot that names them. Iceberg table spec, "Encryption Keys" and "Key Metadata".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from tablecrypt import properties as names
from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.aes_gcm import KEY_LENGTHS, NONCE_LENGTH, AesGcm
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError, KeyIdChangedError
from tablecrypt.keys.column_key_ring import ColumnKeyMaker, PendingKeys
from tablecrypt.keys.key_ring import KEY_TIMESTAMP, EncryptedKey, KeyChain, KeyRing, may_wrap
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.resilient import rewrap_key, unwrap_kek, wrap_for_another, wrap_key

DEFAULT_DATA_KEY_LENGTH: Final = names.DATA_KEY_LENGTH.whole_number({})
DEFAULT_KEK_LIFESPAN_MS: Final = names.KEK_LIFESPAN_MS.whole_number({})
"""NIST SP 800-57 part 1, section 5.3.6: two years is the upper bound for a symmetric key-wrapping key's originator period."""


@dataclass(frozen=True)
class KeySettings:
    """Lengths and lifespans that may be used.

    Raises:
        ConfigurationError: one that may not.
    """

    data_key_length: int = DEFAULT_DATA_KEY_LENGTH
    kek_lifespan_ms: int = DEFAULT_KEK_LIFESPAN_MS

    def __post_init__(self) -> None:
        if self.data_key_length not in KEY_LENGTHS:
            raise ConfigurationError(f"{names.DATA_KEY_LENGTH.name} is {self.data_key_length}; it must be 16, 24 or 32 bytes")
        if not 0 < self.kek_lifespan_ms <= DEFAULT_KEK_LIFESPAN_MS:
            raise ConfigurationError(
                f"{names.KEK_LIFESPAN_MS.name} is {self.kek_lifespan_ms}; it must be between 1 and {DEFAULT_KEK_LIFESPAN_MS} (730 days)"
            )

    @classmethod
    def of(cls, table_properties: Mapping[str, object]) -> Self:
        """Return what a table's properties say."""
        return cls(names.DATA_KEY_LENGTH.whole_number(table_properties), names.KEK_LIFESPAN_MS.whole_number(table_properties))

    @classmethod
    def of_stored(cls, table_properties: Mapping[str, object]) -> Self:
        """Return what a table's properties say, for opening it.

        Values that cannot be used, which another client has set, keep nobody from reading. In their place stand the longest key and the
        default lifespan; commits are checked by `of`, and refused until somebody sets usable values.
        """
        try:
            return cls.of(table_properties)
        except ConfigurationError:
            return cls(data_key_length=max(KEY_LENGTHS))


KEY_ID_LENGTH: Final = 16
_FINGERPRINT_OF: Final = b"tablecrypt KEK fingerprint 1"
_FINGERPRINT_DIGITS: Final = 32


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class NewManifestListKey:
    """An encrypted manifest-list key: the id that the snapshot stores, and the entries to add to `encryption-keys`."""

    key_id: str
    added: tuple[EncryptedKey, ...]


@dataclass(frozen=True)
class OpenKek:
    """A KEK and its entry."""

    entry: EncryptedKey
    key: Secret


class EncryptionManager:
    """The key hierarchy of one table.

    Args:
        kms: the client that wraps and unwraps KEKs. It caches what it unwrapped, so a KEK costs one call within the cache's TTL.
        table_key_id: the master key's id in the KMS, the table property encryption.key-id.
        data_key_length: bytes of every DEK and KEK made here: 16, 24 or 32.
        kek_lifespan_ms: age at which a KEK wraps nothing new; at most 730 days.
        now_ms, random: the clock and the source of randomness.

    Raises:
        ConfigurationError: a length or lifespan that is not allowed.
    """

    @checked_arguments()
    def __init__(
        self,
        kms: KeyManagementClient,
        table_key_id: str,
        *,
        data_key_length: int = DEFAULT_DATA_KEY_LENGTH,
        kek_lifespan_ms: int = DEFAULT_KEK_LIFESPAN_MS,
        now_ms: Callable[[], int] = _now_ms,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        if not table_key_id:
            raise ConfigurationError("encryption.key-id is empty: name the master key in the KMS")

        settings = KeySettings(data_key_length, kek_lifespan_ms)
        self.kms = kms
        self.table_key_id = table_key_id
        self.data_key_length = settings.data_key_length
        self.kek_lifespan_ms = settings.kek_lifespan_ms
        self._now_ms = now_ms
        self._random = random
        self._uncommitted: EncryptedKey | None = None
        self.pending_columns = PendingKeys()

    def __repr__(self) -> str:
        return f"EncryptionManager(table_key_id={self.table_key_id!r}, data_key_length={self.data_key_length})"

    @property
    def columns(self) -> ColumnKeyMaker:
        """What makes and opens the keys of protected columns. Each shares with the others what was made and not committed yet."""
        lengths = self.data_key_length, self.kek_lifespan_ms
        return ColumnKeyMaker(self.kms, self.table_key_id, *lengths, self._now_ms, self._random, pending=self.pending_columns)

    def take_over(self, earlier: EncryptionManager, ring: KeyRing) -> None:
        """Share with another manager of the same table what each makes, so that one commits files that were written through the other.

        Args:
            earlier: the other manager.
            ring: the keys of the metadata that it was used with. What these hold was committed: were it gone now, it was shredded.
        """
        pending = earlier.pending_columns
        with pending.lock.get():
            if pending.made:
                pending.forget(ring)
            self.pending_columns = pending

    def new_key_metadata(self) -> StandardKeyMetadata:
        """Return a fresh DEK and AAD prefix for one file. Never use the result for a second file."""
        return StandardKeyMetadata.generate(self.data_key_length, self._random)

    def encrypt_manifest_list_key_metadata(
        self, key_metadata: StandardKeyMetadata, ring: KeyRing, parent_key_id: str | None = None
    ) -> NewManifestListKey:
        """Wrap a manifest list's key metadata under the KEK of the previous snapshot, or under a new KEK if that one may not wrap any more.

        Args:
            key_metadata: DEK, AAD prefix and file length of the manifest list that was written.
            ring: the keys of the metadata that the commit is based on.
            parent_key_id: the key-id of the snapshot that the new one follows, of the current one for a new branch; None for a table's
                first.

        Raises:
            AuthenticationError, FormatError, KeyNotFoundError: the key of the snapshot that it follows does not unwrap under its KEK.
            KmsError: the KMS refused to wrap or unwrap the KEK, or answered wrongly.
        """
        kek = self._current_kek(ring, parent_key_id)
        entry = self._encrypt(self._new_key_id(), key_metadata, kek)
        return NewManifestListKey(entry.key_id, (entry,) if kek.key_id in ring else (kek, entry))

    def reencrypt_manifest_list_key_metadata(self, chain: KeyChain, kek: EncryptedKey) -> EncryptedKey:
        """Return a manifest-list key's entry encrypted under another KEK. Its key-id stays, since its snapshot names it.

        Raises:
            AuthenticationError, FormatError, KeyIdChangedError, KmsError: as `decrypt_manifest_list_key_metadata`.
        """
        return self._encrypt(chain.manifest_list_key.key_id, self.decrypt_manifest_list_key_metadata(chain), kek)

    def new_kek(self) -> EncryptedKey:
        """Make a KEK and have the KMS wrap it, regardless of existing KEKs: one call wraps it, another checks that it unwraps.

        Raises:
            KmsError: the KMS refused to wrap or unwrap it, or answered wrongly.
        """
        return self._kek_entry(wrap_key(self.kms, Secret(self._random(self.data_key_length)), self.table_key_id))

    def new_kek_for_another(self) -> OpenKek:
        """Make a KEK for somebody who may use this master key. Who may wrap under it and not unwrap makes one that nobody has checked.

        Raises:
            KmsError: the KMS refused to wrap it, or answered wrongly.
        """
        key = Secret(self._random(self.data_key_length))
        return OpenKek(self._kek_entry(wrap_for_another(self.kms, key, self.table_key_id)), key)

    def new_sealed_kek(self, seal: Callable[[EncryptedKey, Secret], bytes]) -> OpenKek:
        """Make a KEK that no KMS wraps: somebody seals it, given its entry and itself."""
        key, entry = Secret(self._random(self.data_key_length)), self._kek_entry(b"")
        return OpenKek(entry.model_copy(update={"encrypted_key_metadata": _base64(seal(entry, key))}), key)

    def encrypt_under(self, kek: OpenKek, key_metadata: StandardKeyMetadata) -> EncryptedKey:
        """Return the entry of a manifest list's key metadata under a KEK that was made here. The KMS is not asked."""
        return self._entry_under(self._new_key_id(), key_metadata, kek)

    def rewrap_kek(self, chain: KeyChain, from_key_id: str | None = None) -> EncryptedKey:
        """Return a KEK's entry, wrapped by the newest version of the table's master key. The KEK itself, its id and its age stay.

        Args:
            chain: the KEK, and a manifest-list key that it must unwrap: without that it may be the KEK of another table.
            from_key_id: the master key that wraps it now, where encryption.key-id, an alias for instance, meant another key then.

        Raises:
            KeyIdChangedError: the entry says that another master key wraps it than the table's.
            AuthenticationError: it does not unwrap the manifest-list key, or is not wrapped by that master key.
            KmsError: the KMS refused one of the two keys, or answered wrongly.
        """
        self._check_master_key(chain.kek)
        old, from_key_id = chain.kek.wrapped_bytes(), from_key_id or self.table_key_id
        key = unwrap_kek(self.kms, old, from_key_id, f"KEK {chain.kek.key_id}")
        # For its error alone: a KEK that does not open this table's key may be another table's, and is not rewrapped here.
        _encoded_key_metadata(chain, key)
        wrapped = rewrap_key(self.kms, old, self.table_key_id, from_key_id, key)
        return chain.kek.model_copy(update={"encrypted_key_metadata": _base64(wrapped)})

    def check_usable(self, ring: KeyRing, parent_key_id: str | None = None) -> None:
        """Ask the KMS now for what a commit needs, so that it refuses before any file is written.

        Raises:
            AuthenticationError, FormatError, KeyNotFoundError, KmsError: as `encrypt_manifest_list_key_metadata`.
        """
        self._unwrap(self._current_kek(ring, parent_key_id))

    def fingerprint(self, kek: EncryptedKey) -> str:
        """Return 32 hex digits that identify a KEK whatever the id, date or wrapping of its entry, and reveal nothing about its bytes.

        HMAC-SHA-256 under the KEK, of a fixed text, cut to 16 bytes. For remembering KEKs that were retired.

        Raises:
            AuthenticationError, KeyIdChangedError, KmsError: the KEK cannot be unwrapped.
        """
        return hmac.new(self._unwrap(kek).reveal(), _FINGERPRINT_OF, hashlib.sha256).hexdigest()[:_FINGERPRINT_DIGITS]

    def decrypt_manifest_list_key_metadata(self, chain: KeyChain) -> StandardKeyMetadata:
        """Unwrap a manifest list's key metadata.

        Raises:
            AuthenticationError: the entry, its KEK or the KEK's timestamp is not what was encrypted.
            FormatError: what was encrypted is not a StandardKeyMetadata.
            KeyIdChangedError: the KEK is wrapped by another master key than the table's.
            KmsError: the KMS refused to unwrap the KEK.
        """
        return StandardKeyMetadata.decode(_encoded_key_metadata(chain, self._unwrap(chain.kek)))

    def _current_kek(self, ring: KeyRing, parent_key_id: str | None) -> EncryptedKey:
        now_ms = self._now_ms()
        chain = ring.current_kek(parent_key_id, self.table_key_id, now_ms, self.kek_lifespan_ms)
        if chain is not None:
            # Unwrapping it is what tells this KEK from one that somebody has put into the metadata.
            self.decrypt_manifest_list_key_metadata(chain)
            return chain.kek

        # A KEK that was made for an attempt which failed is as good for the next one, and spares the KMS its calls. One that was
        # committed may have been retired since: it wraps only where the snapshot that is followed says so.
        kek = self._uncommitted
        if kek is None or kek.key_id in ring or not may_wrap(kek, now_ms, self.kek_lifespan_ms):
            kek = self._uncommitted = self.new_kek()
        return kek

    def _encrypt(self, key_id: str, key_metadata: StandardKeyMetadata, kek: EncryptedKey) -> EncryptedKey:
        return self._entry_under(key_id, key_metadata, OpenKek(kek, self._unwrap(kek)))

    def _entry_under(self, key_id: str, key_metadata: StandardKeyMetadata, kek: OpenKek) -> EncryptedKey:
        encrypted = AesGcm(kek.key).encrypt(self._random(NONCE_LENGTH), key_metadata.encode(), kek.entry.timestamp.encode())
        return EncryptedKey(key_id=key_id, encrypted_key_metadata=_base64(encrypted), encrypted_by_id=kek.entry.key_id)

    def _kek_entry(self, wrapped: bytes) -> EncryptedKey:
        return EncryptedKey(
            key_id=self._new_key_id(),
            encrypted_key_metadata=_base64(wrapped),
            encrypted_by_id=self.table_key_id,
            properties={KEY_TIMESTAMP: str(self._now_ms())},
        )

    def _unwrap(self, kek: EncryptedKey) -> Secret:
        # Before the KMS is asked: metadata is not authenticated, and must not choose the master key.
        self._check_master_key(kek)
        return unwrap_kek(self.kms, kek.wrapped_bytes(), self.table_key_id, f"KEK {kek.key_id}")

    def _check_master_key(self, kek: EncryptedKey) -> None:
        if kek.encrypted_by_id != self.table_key_id:
            raise KeyIdChangedError(
                f"KEK {kek.key_id} is wrapped by master key {kek.encrypted_by_id}, but the table's is {self.table_key_id}: "
                "an entry of encryption-keys or the property encryption.key-id was changed"
            )

    def _new_key_id(self) -> str:
        return _base64(self._random(KEY_ID_LENGTH))


def key_metadata_under(chain: KeyChain, kek: Secret) -> StandardKeyMetadata:
    """Return a manifest list's key metadata, given the chain's KEK, which was opened before. The KMS is not asked.

    Raises:
        AuthenticationError: the entry does not open under this KEK.
    """
    return StandardKeyMetadata.decode(_encoded_key_metadata(chain, kek))


def _encoded_key_metadata(chain: KeyChain, kek: Secret) -> bytes:
    """Return the StandardKeyMetadata that a chain's KEK encrypts, encoded."""
    try:
        return AesGcm(kek).decrypt(chain.manifest_list_key.wrapped_bytes(), chain.kek.timestamp.encode())
    except AuthenticationError as error:
        raise AuthenticationError(
            f"encryption key {chain.manifest_list_key.key_id} does not open under KEK {chain.kek.key_id}: "
            "the entry, the KEK or its KEY_TIMESTAMP was changed"
        ) from error


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
