"""PKMT1: the JSON that says how a key of a Parquet file is wrapped, as parquet-java and Arrow write it.

    in the file, key beside it      {"keyMaterialType": "PKMT1", "internalStorage": true, "isFooterKey": …, … }
    in the file, key elsewhere      {"keyMaterialType": "PKMT1", "internalStorage": false, "keyReference": "footerKey"}
    elsewhere                       {"footerKey": "{\\"keyMaterialType\\": \\"PKMT1\\", \\"isFooterKey\\": true, … }", "columnKey0": "…"}

    isFooterKey            true: kmsInstanceID and kmsInstanceURL stand beside it, for the columns' keys too
    masterKeyID            the key in the KMS
    wrappedDEK             in base64
    doubleWrapping         false: the KMS wrapped the DEK
                           true: a KEK did, AES-GCM: nonce (12) | ciphertext | tag (16), the AAD is the KEK's id; the KMS wrapped the KEK
    keyEncryptionKeyID     with double wrapping: the KEK's id, 16 random bytes in base64
    wrappedKEK             with double wrapping: in base64

kmsInstanceID and kmsInstanceURL are read and never used: whoever writes the file could name a KMS of his own. Which KMS is asked, the
client's configuration says.

Nothing of this is secret or authenticated by itself: a wrapped key that was changed does not unwrap, and a key of another file does not
open the footer. Raises FormatError for bytes that are no such JSON.

parquet-java, "KeyMaterial" and "KeyMetadata" of its key tools.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

from tablecrypt.errors import FormatError

MATERIAL_TYPE: Final = "PKMT1"
DEFAULT_KMS: Final = "DEFAULT"
_TYPE: Final = "keyMaterialType"
_INTERNAL: Final = "internalStorage"


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
        fields = json.loads(content)
    except (ValueError, RecursionError):
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
