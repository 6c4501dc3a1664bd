"""How the key of a Parquet file is wrapped, and where that is written down: PKMT1, as parquet-java and Arrow write it.

    in the file, key beside it      {"keyMaterialType": "PKMT1", "internalStorage": true, "isFooterKey": …, … }
    in the file, key elsewhere      {"keyMaterialType": "PKMT1", "internalStorage": false, "keyReference": "footerKey"}
    elsewhere                       {"footerKey": "{\"keyMaterialType\": \"PKMT1\", \"isFooterKey\": true, … }", "columnKey0": "…"}

    isFooterKey            true: kmsInstanceID and kmsInstanceURL follow, for the columns' keys too
    masterKeyID            the key in the KMS
    wrappedDEK             in base64
    doubleWrapping         false: the KMS wrapped the DEK
                           true: a KEK did, AES-GCM: nonce (12) | ciphertext | tag (16), the AAD is the KEK's id; the KMS wrapped the KEK
    keyEncryptionKeyID     with double wrapping: the KEK's id, 16 random bytes in base64
    wrappedKEK             with double wrapping: in base64

kmsInstanceID and kmsInstanceURL are read and never used: the writer of a file could name a KMS of his own. Which KMS is asked, the
client's configuration says.

Key material may be in a file beside the Parquet file, so that master keys can be rotated without touching the data.

    folder/orders.parquet                                 key metadata: {"internalStorage": false, "keyReference": "columnKey0"}
    folder/_KEY_MATERIAL_FOR_orders.parquet.json          {"footerKey": "<PKMT1 JSON>", "columnKey0": "<PKMT1 JSON>", …}

The name begins with _ so that readers of the folder pass it over.

DEKs are wrapped and unwrapped through a KMS: one call for each key, or one for many files (double wrapping).

    single     KMS master key ── wraps ──▶ DEK
    double     KMS master key ── wraps ──▶ KEK ── AES-GCM, AAD = the KEK's id ──▶ DEK

With double wrapping one KEK serves all files that are written under a master key while it is fresh, and a KEK that was unwrapped serves all
files that are read meanwhile.

Nothing of this is secret or authenticated by itself: a wrapped key that was changed does not unwrap, and a key of another file does not
open the footer.

Raises FormatError for bytes that are no such JSON, KeyNotFoundError for a file or an entry that is not there, KmsError and its kin where
the KMS refuses, AuthenticationError for a wrapped key that does not open.

Specification: parquet-java, "KeyMaterial" and "KeyMetadata" of its key tools.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from pyarrow import fs

from tablecrypt._parsed_json import ParsedJson
from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, KeyNotFoundError
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.resilient import AllowedKeys, unwrap_key, wrap_key
from tablecrypt.parquet.storage import whole_file

MATERIAL_TYPE: Final = "PKMT1"
DEFAULT_KMS: Final = "DEFAULT"
_TYPE: Final = "keyMaterialType"
_INTERNAL: Final = "internalStorage"
_PREFIX: Final = "_KEY_MATERIAL_FOR_"
_SUFFIX: Final = ".json"
KEK_ID_LENGTH: Final = 16
DEFAULT_LIFETIME_S: Final = 600.0


@dataclass(frozen=True)
class KeyMaterial:
    """How one DEK is wrapped. `kek_id` and `wrapped_kek` are both there, for double wrapping, or neither."""

    is_footer_key: bool
    master_key_id: str
    wrapped_dek: bytes
    kek_id: bytes | None = None
    wrapped_kek: bytes | None = None
    kms_instance_id: str = DEFAULT_KMS
    kms_instance_url: str = DEFAULT_KMS

    def encode(self, internal: bool) -> str:
        """Return the JSON, for the file itself (internal) or for a place beside it."""
        fields: dict[str, Any] = {_TYPE: MATERIAL_TYPE}
        if internal:
            fields[_INTERNAL] = True
        fields["isFooterKey"] = self.is_footer_key
        if self.is_footer_key:
            fields |= {"kmsInstanceID": self.kms_instance_id, "kmsInstanceURL": self.kms_instance_url}
        fields |= {"masterKeyID": self.master_key_id, "wrappedDEK": _text(self.wrapped_dek), "doubleWrapping": self.kek_id is not None}
        if self.kek_id is not None and self.wrapped_kek is not None:
            fields |= {"keyEncryptionKeyID": _text(self.kek_id), "wrappedKEK": _text(self.wrapped_kek)}
        return json.dumps(fields)

    @classmethod
    def decode(cls, content: str | bytes, where: str) -> KeyMaterial:
        """Return what the JSON says.

        Args:
            content: the JSON.
            where: names it in errors.
        """
        fields = _fields(content, where)
        double = _value(fields, "doubleWrapping", bool, where)
        is_footer_key = _value(fields, "isFooterKey", bool, where)
        return cls(
            is_footer_key,
            _value(fields, "masterKeyID", str, where),
            _bytes(fields, "wrappedDEK", where),
            _bytes(fields, "keyEncryptionKeyID", where) if double else None,
            _bytes(fields, "wrappedKEK", where) if double else None,
            _value(fields, "kmsInstanceID", str, where) if is_footer_key else DEFAULT_KMS,
            _value(fields, "kmsInstanceURL", str, where) if is_footer_key else DEFAULT_KMS,
        )


def reference_to(name: str) -> str:
    """Return the JSON for a file whose key material is elsewhere, under this name."""
    return json.dumps({_TYPE: MATERIAL_TYPE, _INTERNAL: False, "keyReference": name})


def reference_in(content: bytes, where: str) -> str | None:
    """Return the name under which a file's key material is elsewhere; None where `content` is the key material itself."""
    fields = _fields(content, where)
    return None if _value(fields, _INTERNAL, bool, where) else _value(fields, "keyReference", str, where)


def _fields(content: str | bytes, where: str) -> dict[str, Any]:
    try:
        fields = ParsedJson(content).document
    except ValueError:
        fields = None

    if not isinstance(fields, dict) or fields.get(_TYPE) != MATERIAL_TYPE:
        raise FormatError(
            f"{where} is not key material of type {MATERIAL_TYPE}: give the keys themselves, or a key retriever that knows it"
        )

    return fields


def _value(fields: dict[str, Any], name: str, kind: type[Any], where: str) -> Any:
    value = fields.get(name)
    if not isinstance(value, kind):
        raise FormatError(f"{where}: {name} of the key material is {type(value).__name__}, not {kind.__name__}")
    return value


def _bytes(fields: dict[str, Any], name: str, where: str) -> bytes:
    try:
        return base64.b64decode(_value(fields, name, str, where), validate=True)
    except ValueError as error:  # binascii.Error, or text that is not ASCII
        raise FormatError(f"{where}: {name} of the key material is not base64") from error


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


@dataclass(frozen=True)
class ExternalKeyMaterial:
    """The key material of one Parquet file, in a file beside it.

    Args:
        location: path or URI of the Parquet file.
    """

    location: str

    @property
    def path(self) -> str:
        """Where the key material is."""
        folder, separator, name = self.location.rpartition("/")
        return f"{folder}{separator}{_PREFIX}{name}{_SUFFIX}"

    def save(self, materials: Mapping[str, KeyMaterial]) -> None:
        """Write the file: the name of each key, and how it is wrapped. One that is there is replaced."""
        content = json.dumps({name: material.encode(internal=False) for name, material in materials.items()})
        file_system, path = _file_system(self.path)
        # A rotation replaces this file while others read it, and a part of it would open no data file.
        with whole_file(file_system, path) as sink:
            sink.write(content.encode())

    def load(self) -> dict[str, KeyMaterial]:
        """Read the file."""
        file_system, path = _file_system(self.path)
        try:
            with file_system.open_input_stream(path) as source:
                content = source.readall()
        except FileNotFoundError as error:
            raise KeyNotFoundError(f"{self.location}: its keys are in {self.path}, which is not there") from error

        try:
            entries = ParsedJson(content).document
        except ValueError as error:
            raise FormatError(f"{self.path}: not JSON") from error

        if not isinstance(entries, dict) or not all(isinstance(entry, str) for entry in entries.values()):
            raise FormatError(f"{self.path}: not a file of key material")

        return {name: KeyMaterial.decode(entry, f"{self.path}: {name}") for name, entry in entries.items()}


def files_with_external_keys(folder: str) -> list[ExternalKeyMaterial]:
    """Return every Parquet file in a folder that has its key material beside it."""
    file_system, path = _file_system(folder)
    found = file_system.get_file_info(fs.FileSelector(path))
    names = [info.base_name for info in found if info.base_name.startswith(_PREFIX) and info.base_name.endswith(_SUFFIX)]
    return [ExternalKeyMaterial(f"{folder.rstrip('/')}/{name[len(_PREFIX) : -len(_SUFFIX)]}") for name in sorted(names)]


def _file_system(location: str) -> tuple[fs.FileSystem, str]:
    if "://" not in location:
        return fs.LocalFileSystem(), location
    try:
        file_system, path = fs.FileSystem.from_uri(location)
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"{location}: not a location where key material can be kept: {error}") from error
    return file_system, path


@dataclass(frozen=True)
class _Kek:
    key: Secret
    kek_id: bytes
    wrapped: bytes
    until: float


@dataclass
class KeyWrapper:
    """Wraps and unwraps DEKs; used by many threads.

    Args:
        kms: holds the master keys.
        random: gives keys, ids and nonces.
        lifetime_s: for how many seconds a KEK is reused.
        clock: seconds, from any moment.
        allowed: the master keys that may be named; all of them unless given.
    """

    kms: KeyManagementClient
    random: Callable[[int], bytes]
    lifetime_s: float = DEFAULT_LIFETIME_S
    clock: Callable[[], float] = time.monotonic
    allowed: AllowedKeys = field(default_factory=AllowedKeys)
    _lock: Lock = field(default_factory=Lock, repr=False)
    _writing: dict[tuple[str, int], _Kek] = field(default_factory=dict, repr=False)
    _reading: dict[tuple[str, bytes], _Kek] = field(default_factory=dict, repr=False)

    def wrap(self, dek: Secret, master_key_id: str, is_footer_key: bool, kek_length: int | None) -> KeyMaterial:
        """Wrap a DEK.

        Args:
            dek: the key.
            master_key_id: names the master key.
            is_footer_key: whether it is a file's footer key.
            kek_length: bytes of the KEK, for double wrapping; None for single.

        Raises:
            MasterKeyRefusedError: the master key is not allowed.
        """
        self.allowed.check((master_key_id,), "the configuration of a Parquet file's keys")
        if kek_length is None:
            return KeyMaterial(is_footer_key, master_key_id, wrap_key(self.kms, dek, master_key_id))
        kek = self._kek_for_writing(master_key_id, kek_length)
        wrapped = AesGcm(kek.key).encrypt(self.random(NONCE_LENGTH), dek.reveal(), kek.kek_id)
        return KeyMaterial(is_footer_key, master_key_id, wrapped, kek.kek_id, kek.wrapped)

    def unwrap(self, material: KeyMaterial) -> Secret:
        """Return the DEK.

        Raises:
            MasterKeyRefusedError: the key material names a master key that is not allowed.
        """
        # Before the KMS is asked: key material comes from storage, and its writer must not choose the master key.
        self.allowed.check((material.master_key_id,), "the key material of a Parquet file")
        if material.kek_id is None or material.wrapped_kek is None:
            return unwrap_key(self.kms, material.wrapped_dek, material.master_key_id)

        kek = self._kek_for_reading(material.master_key_id, material.kek_id, material.wrapped_kek)

        try:
            return Secret(AesGcm(kek.key).decrypt(material.wrapped_dek, material.kek_id))
        except AuthenticationError as error:
            raise AuthenticationError(
                f"a key wrapped under master key {material.master_key_id} does not open under its KEK: the key material was changed"
            ) from error

    def _kek_for_writing(self, master_key_id: str, length: int) -> _Kek:
        # Held during the call of the KMS, so that threads which write at the same time make one KEK and not one each.
        with self._lock:
            known = self._writing.get((master_key_id, length))
            if known is None or known.until <= self.clock():
                key = Secret(self.random(length))
                wrapped = wrap_key(self.kms, key, master_key_id)
                known = _Kek(key, self.random(KEK_ID_LENGTH), wrapped, self.clock() + self.lifetime_s)
                self._writing[master_key_id, length] = known

            return known

    def _kek_for_reading(self, master_key_id: str, kek_id: bytes, wrapped: bytes) -> _Kek:
        with self._lock:
            known = self._reading.get((master_key_id, kek_id))
            # The id is what the file says: other wrapped bytes under it are another KEK.
            if known is None or known.until <= self.clock() or known.wrapped != wrapped:
                key = unwrap_key(self.kms, wrapped, master_key_id)
                known = _Kek(key, kek_id, wrapped, self.clock() + self.lifetime_s)
                self._reading[master_key_id, kek_id] = known
            return known
