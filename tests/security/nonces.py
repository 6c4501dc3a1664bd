"""Every nonce, DEK and AAD prefix that writers have used, read from the bytes that they wrote.

    AGS1         the 12 bytes at the head of each block (header 8, then blocks of 1 MiB + 28)
    Parquet      "PARE", then modules up to FileCryptoMetaData, then that and the footer's module: length (4) | nonce (12) | ...
    metadata     of each manifest-list key the 12 bytes at the head of what the KEK seals

No key is needed for these, so files of abandoned commits count too. DEKs and prefixes come from the entries that name the files.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from pyiceberg.table import Table

from tablecrypt.crypto.aes_gcm import NONCE_LENGTH
from tablecrypt.crypto.ags1 import ENCRYPTED_BLOCK_LENGTH, HEADER_LENGTH
from tablecrypt.files.ags1_streams import Ags1OutputStream
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.maintenance.reachable import reachable_files

FEW_ROWS_A_PAGE: Final = {
    "write.parquet.page-size-bytes": "16",
    "write.parquet.page-row-limit": "4",
    "write.parquet.dict-size-bytes": "16",
}
"""Properties of a table whose files have a page, and so two nonces, for every four values."""
_PARQUET_END: Final = 8
_LENGTH: Final = 4


def stored_nonces(folder: Path) -> list[bytes]:
    """The nonces in all files below a folder."""
    found: list[bytes] = []
    entries: dict[tuple[str, str], bytes] = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        content = path.read_bytes()
        if content[:4] == b"AGS1":
            found.extend(_of_ags1(content))
        elif content[:4] == b"PARE":
            found.extend(_of_parquet(content))
        elif path.name.endswith(".metadata.json"):
            # One entry stands in every metadata file from its commit on.
            entries.update(_of_metadata(content))
    return [*found, *entries.values()]


def _of_ags1(content: bytes) -> Iterator[bytes]:
    for start in range(HEADER_LENGTH, len(content), ENCRYPTED_BLOCK_LENGTH):
        yield content[start : start + NONCE_LENGTH]


def _of_parquet(content: bytes) -> Iterator[bytes]:
    end = len(content) - _PARQUET_END
    footer = end - int.from_bytes(content[end : end + _LENGTH], "little")
    start = _LENGTH
    while start < footer:
        yield content[start + _LENGTH : start + _LENGTH + NONCE_LENGTH]
        start += _LENGTH + int.from_bytes(content[start : start + _LENGTH], "little")
    assert start == footer, "the modules of a Parquet file follow each other up to the footer"
    yield _of_footer(content[footer:end])


def _of_footer(footer: bytes) -> bytes:
    """The footer is FileCryptoMetaData, of unknown length, and a module that ends with the footer."""
    places = [at for at in range(len(footer)) if int.from_bytes(footer[at : at + _LENGTH], "little") == len(footer) - at - _LENGTH]
    assert len(places) == 1
    return footer[places[0] + _LENGTH : places[0] + _LENGTH + NONCE_LENGTH]


def _of_metadata(content: bytes) -> Iterator[tuple[tuple[str, str], bytes]]:
    for key in json.loads(content).get("encryption-keys", []):
        if "KEY_TIMESTAMP" not in (key.get("properties") or {}):
            encrypted = key["encrypted-key-metadata"]
            yield (key["key-id"], encrypted), base64.b64decode(encrypted)[:NONCE_LENGTH]


def keys_of(table: Table) -> tuple[list[bytes], list[bytes]]:
    """The DEKs and the AAD prefixes of all files that a table's snapshots lead to."""
    found = reachable_files(table.metadata, table.io)
    assert not found.unopened
    keys = [each.key for each in found.files.values()]
    assert None not in keys
    return [each.encryption_key.reveal() for each in keys if each], [each.aad_prefix for each in keys if each]


def small_files(manager: EncryptionManager, count: int, threads: int) -> tuple[bytes, bytes, bytes]:
    """Write so many files of no plaintext, on threads; return their DEKs, prefixes and nonces, each joined."""
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(lambda _: [_small_file(manager) for _ in range(count // threads)], range(threads)))
    deks, prefixes, nonces = zip(*itertools.chain.from_iterable(parts), strict=True)
    return b"".join(deks), b"".join(prefixes), b"".join(nonces)


def _small_file(manager: EncryptionManager) -> tuple[bytes, bytes, bytes]:
    key = manager.new_key_metadata()
    sink = _Kept()
    with Ags1OutputStream(sink, key):
        pass
    return key.encryption_key.reveal(), key.aad_prefix, sink.content[HEADER_LENGTH : HEADER_LENGTH + NONCE_LENGTH]


class _Kept(io.BytesIO):
    """Keeps what was written when it is closed."""

    content: bytes

    def close(self) -> None:
        if not self.closed:
            self.content = self.getvalue()
        super().close()


def cut(joined: bytes, length: int) -> list[bytes]:
    """Values of one length, apart again."""
    return [joined[start : start + length] for start in range(0, len(joined), length)]


def repeated(values: Iterable[bytes]) -> list[str]:
    """Values that are there more than once, in hex: of a DEK, only that it is so."""
    return [value.hex()[:6] for value, count in Counter(values).items() if count > 1]
