"""pyarrow's own key tools as an independent reader of column keys: its core finds them by the key metadata that our writer stores."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from tablecrypt.crypto.secret import Secret
from tablecrypt.parquet import FileKeys


class _Unwrapped(pe.KmsClient):  # type: ignore[misc]
    """A key service whose wrapped keys are the keys, in base64: for tests only."""

    def __init__(self, config: Any) -> None:
        pe.KmsClient.__init__(self)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


def with_key_material(keys: FileKeys) -> FileKeys:
    """The same keys, each stored in its key metadata in the form that pyarrow's key tools read. The AAD prefix is stored too."""
    assert keys.footer_key is not None
    return FileKeys(
        keys.footer_key,
        keys.column_keys,
        keys.aad_prefix,
        bool(keys.aad_prefix),
        keys.algorithm,
        keys.plaintext_footer,
        plaintext_columns=keys.plaintext_columns,
        footer_key_metadata=_material(keys.footer_key, True),
        column_key_metadata={name: _material(key, False) for name, key in keys.column_keys.items()},
    )


def read_by_pyarrow(data: bytes) -> pa.Table:
    """What pyarrow's core reads of a file with such key metadata."""
    factory = pe.CryptoFactory(_Unwrapped)
    properties = factory.file_decryption_properties(pe.KmsConnectionConfig(), pe.DecryptionConfiguration())
    return pq.ParquetFile(pa.BufferReader(data), decryption_properties=properties, page_checksum_verification=True).read()


def _material(key: Secret, is_footer_key: bool) -> bytes:
    fields: dict[str, object] = {"keyMaterialType": "PKMT1", "internalStorage": True, "isFooterKey": is_footer_key}
    if is_footer_key:
        fields |= {"kmsInstanceID": "DEFAULT", "kmsInstanceURL": "DEFAULT"}
    fields |= {"masterKeyID": "test", "wrappedDEK": base64.b64encode(key.reveal()).decode(), "doubleWrapping": False}
    return json.dumps(fields).encode()
