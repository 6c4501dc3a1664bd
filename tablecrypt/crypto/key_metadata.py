"""StandardKeyMetadata: the key of one file, and what a reader needs besides it.

    bytes  = 0x01 (schema version) | record
    record = encryption_key: bytes | aad_prefix: null or bytes | file_length: null or long

The record is Avro binary without a header. A long is a zigzag varint of 7 bits per byte, least significant first; bytes are a long (how
many) and the bytes; a union is a long (0 null, 1 the value) and the value.

    encryption_key   the DEK: 16, 24 or 32 bytes
    aad_prefix       begins the AAD of every encrypted part of the file; 16 random bytes here
    file_length      bytes of the encrypted file. A reader trusts this and not the store: it is what defeats truncation.

Follows the Iceberg specification, appendix "Standard Key Metadata". The bytes hold the DEK in the clear: they are only ever
stored inside something encrypted. Raises FormatError for bytes that are not exactly one such record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tablecrypt._bytes import ByteReader, varint, zigzag
from tablecrypt.crypto.aes_gcm import KEY_LENGTHS
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError

SCHEMA_VERSION: Final = 1
AAD_PREFIX_LENGTH: Final = 16

_UNION_NULL: Final = 0
_UNION_VALUE: Final = 1
_MAX_LONG: Final = 2**63 - 1


@dataclass(frozen=True)
class StandardKeyMetadata:
    """The DEK, AAD prefix (empty when null) and encrypted length in bytes (None when unknown) of one file.

    Its repr does not show the DEK, and it cannot be pickled. Raises ConfigurationError for an impossible DEK or length.
    """

    encryption_key: Secret
    aad_prefix: bytes
    file_length: int | None = None

    def __post_init__(self) -> None:
        if len(self.encryption_key) not in KEY_LENGTHS:
            raise ConfigurationError(f"a DEK has 16, 24 or 32 bytes, not {len(self.encryption_key)}")
        if self.file_length is not None and not 0 <= self.file_length <= _MAX_LONG:
            raise ConfigurationError(f"a file cannot be {self.file_length} bytes long")

    @classmethod
    def generate(cls, key_length: int, random: Callable[[int], bytes]) -> StandardKeyMetadata:
        """A fresh DEK of `key_length` bytes and a fresh AAD prefix, for one file. ConfigurationError for a length that AES lacks."""
        return cls(Secret(random(key_length)), random(AAD_PREFIX_LENGTH))

    def with_file_length(self, file_length: int) -> StandardKeyMetadata:
        """The same key, with the length in bytes that the encrypted file turned out to have."""
        return replace(self, file_length=file_length)

    def encode(self) -> bytes:
        """The layout above. Holds the DEK in the clear."""
        prefix = _encode_long(_UNION_VALUE) + _encode_bytes(self.aad_prefix) if self.aad_prefix else _encode_long(_UNION_NULL)
        length = _encode_long(_UNION_NULL) if self.file_length is None else _encode_long(_UNION_VALUE) + _encode_long(self.file_length)
        return bytes([SCHEMA_VERSION]) + _encode_bytes(self.encryption_key.reveal()) + prefix + length

    @classmethod
    def decode(cls, data: bytes) -> StandardKeyMetadata:
        """Read the layout above. FormatError for another version, a cut or overlong record, or a key length that AES does not have."""
        record = ByteReader(data, "key metadata")
        version = record.number(1)
        # The first byte decides the schema of the rest: guessing an unknown one could take other bytes for the DEK.
        if version != SCHEMA_VERSION:
            raise FormatError(f"key metadata has schema version {version}; only {SCHEMA_VERSION} is known")

        key = Secret(_read_bytes(record))
        if len(key) not in KEY_LENGTHS:
            raise FormatError(f"key metadata holds a key of {len(key)} bytes; AES keys have 16, 24 or 32")

        aad_prefix = _read_bytes(record) if _read_is_set(record) else b""
        file_length = _read_long(record) if _read_is_set(record) else None
        # Avro's long is signed, and no file has a negative length.
        if file_length is not None and file_length < 0:
            raise FormatError(f"key metadata says that the file is {file_length} bytes long")

        # Bytes behind the record would make two blobs of one key, and hide what another reader might take for fields.
        record.check_exhausted()

        return cls(key, aad_prefix, file_length)


def _read_long(record: ByteReader) -> int:
    # A longer spelling of the same number would let two byte strings mean one record.
    return record.long(is_shortest=True)


def _read_bytes(record: ByteReader) -> bytes:
    return record.take(_read_long(record))


def _read_is_set(record: ByteReader) -> bool:
    branch = _read_long(record)
    if branch not in (_UNION_NULL, _UNION_VALUE):
        raise FormatError(f"key metadata chooses branch {branch} of a union of two")
    return branch == _UNION_VALUE


def _encode_long(value: int) -> bytes:
    return varint(zigzag(value))


def _encode_bytes(value: bytes) -> bytes:
    return _encode_long(len(value)) + value
