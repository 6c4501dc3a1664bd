"""The proof that somebody with a protected column's key shared it. By it alone the record of a share is believed, which others can write.

    proof    "<key-id of a column key of the column>:<base64 of the MAC>"
             MAC = HMAC-SHA256 of a JSON array of texts: table-uuid, share-uuid, field id, the partner's master key, the share's filter,
                   when the record was made, in milliseconds since the epoch
             key: HKDF-SHA256(the column key, info "tablecrypt shared column key"), 32 bytes

A proof counts as long as no state of the share is newer: what an update takes back, a record from before it does not bring back.

Only column keys that this table made itself count, and none of a writer who may wrap and not unwrap: he knows such a key, and no other.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tablecrypt.crypto.secret import Secret
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing

_INFO: Final = b"tablecrypt shared column key"
_MAC_LENGTH: Final = 32


def share_proof(maker: ColumnKeyMaker, ring: KeyRing, field_id: int, master_key_id: str, said: Sequence[str]) -> str:
    """Return the proof that a column is shared; empty where the table has no column key of it that proves anything.

    Args:
        maker: opens column keys.
        ring: the table's keys.
        field_id: the column.
        master_key_id: the column's.
        said: what is proven of the share.

    Raises:
        ColumnKeyDeniedError, KmsError: the key cannot be used.
        AuthenticationError, FormatError, KeyNotFoundError: it does not open.
    """
    entry = next(iter(_proving(ring, field_id, master_key_id)), None)
    return "" if entry is None else f"{entry.key_id}:{base64.b64encode(_mac(maker.open(ring, entry), said)).decode()}"


def is_share_proven(maker: ColumnKeyMaker, ring: KeyRing, field_id: int, master_key_id: str, said: Sequence[str], proof: str) -> bool:
    """Whether a proof is that of a column. Arguments and errors are those of `share_proof`."""
    key_id, _, mac = proof.rpartition(":")
    entry = next((each for each in _proving(ring, field_id, master_key_id) if each.key_id == key_id), None)
    if entry is None:
        return False
    return Secret(_mac(maker.open(ring, entry), said)) == Secret(_decoded(mac))


def _proving(ring: KeyRing, field_id: int, master_key_id: str) -> Iterable[EncryptedKey]:
    keys = (each for each in ring.keys_of_column(field_id, master_key_id) if each.wraps_deks)
    return (each for each in keys if not (each.is_write_only or ring.is_strange(each)))


def _mac(column_key: Secret, said: Sequence[str]) -> bytes:
    mac = HMAC(HKDF(SHA256(), _MAC_LENGTH, salt=None, info=_INFO).derive(column_key.reveal()), SHA256())
    mac.update(json.dumps(list(said)).encode())
    return mac.finalize()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
