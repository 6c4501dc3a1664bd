"""Where the encrypted modules of a Parquet file lie, seen without a key and without a library.

    file    magic | modules of pages, indexes and bloom filters, one behind the other | footer | its length, 4 bytes | magic
    module  length of what follows, 4 bytes little endian | nonce (12) | ciphertext | tag (16; bodies of pages in CTR have none)
    footer  "PARE": FileCryptoMetaData in plaintext | a module                "PAR1": in plaintext | nonce (12) | tag (16)

Bytes between the magics that no module explains are those of a column that is not encrypted.
"""

from __future__ import annotations

from typing import Final

from conformance.streams import NONCE, TAG

MAGIC_LENGTH: Final = 4
_SIGNATURE: Final = NONCE + TAG


class ModulesError(Exception):
    """These bytes are no Parquet file of which every module is encrypted."""


def nonces(data: bytes, magic: bytes) -> list[bytes]:
    """The nonces of all modules, of the footer's too. ModulesError for a file that has another magic, or bytes that are of no module."""
    if not data.startswith(magic) or not data.endswith(magic) or len(data) < 2 * MAGIC_LENGTH + 4:
        raise ModulesError(f"it begins with {data[:4]!r} and ends with {data[-4:]!r}, not with {magic!r}")
    footer_end = len(data) - MAGIC_LENGTH - 4
    footer = footer_end - _number(data, footer_end)
    if footer < MAGIC_LENGTH:
        raise ModulesError("its footer is longer than the file")

    found, at = [], MAGIC_LENGTH
    while at < footer:
        length = _number(data, at)
        if length < NONCE or at + 4 + length > footer:
            raise ModulesError(f"its bytes from {at} on are no encrypted module")
        found.append(data[at + 4 : at + 4 + NONCE])
        at += 4 + length
    return [*found, _footers_nonce(data, footer, footer_end, magic)]


def _footers_nonce(data: bytes, footer: int, end: int, magic: bytes) -> bytes:
    if magic == b"PAR1":
        return data[end - _SIGNATURE : end - _SIGNATURE + NONCE]
    # How long FileCryptoMetaData is stands nowhere: the module begins where its length leads to the end.
    for at in range(footer, end - _SIGNATURE):
        if at + 4 + _number(data, at) == end:
            return data[at + 4 : at + 4 + NONCE]
    raise ModulesError("its footer is no encrypted module")


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")
