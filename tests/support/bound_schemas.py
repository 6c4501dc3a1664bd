"""What a footer says of a protected column, where a test has no file."""

from __future__ import annotations

import secrets
from typing import Final

from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.keys.bound_schemas import OPTIONAL, BoundSchema, SchemaNode

OF_TEXT: Final = BoundSchema((SchemaNode(2, True, OPTIONAL, 6, 0, "STRING"),), (b"an optional string",), "s3://lake/file.parquet")
OF_BYTES: Final = BoundSchema((SchemaNode(2, True, OPTIONAL, 6, 0, ""),), (b"optional bytes",), "s3://lake/file.parquet")


def unbound_key_metadata(key_id: str, column_key: Secret, field_id: int, aad_prefix: bytes, dek: bytes) -> bytes:
    """Key metadata of version 1, which does not bind the column's schema."""
    header = bytes([1, len(key_id)]) + key_id.encode()
    aad = b"tablecrypt column DEK" + header + field_id.to_bytes(4, "big") + aad_prefix
    return header + AesGcm(column_key).encrypt(secrets.token_bytes(NONCE_LENGTH), dek, aad)
