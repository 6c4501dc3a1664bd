"""Parquet Modular Encryption, two ways: changed files, and files whose footer was written, and encrypted, by somebody with the key.

The second is where the parser behind the authentication is met: the bytes are FileMetaData in Thrift, encrypted as a good file's footer.
Decoding pages is Arrow's; what is tried here ends at the modules.
"""

from __future__ import annotations

import io

import atheris
from harness import fuzz

with atheris.instrument_imports(include=["tablecrypt"]):
    from tablecrypt.crypto.secret import Secret
    from tablecrypt.parquet import inspect, verify
    from tablecrypt.parquet.footer import FileCiphers, read_footer
    from tablecrypt.parquet.modules import FOOTER_SUFFIX, ModuleCipher
    from tablecrypt.parquet.storage import source_of
    from tests.support.modular_files import FOOTER_KEY, MODES, encrypted, plain_file, sample_table

# Every type of module in few bytes.
SMALL = plain_file(
    sample_table(2).select(["id", "name"]), row_group_size=1, write_page_index=True, bloom_filter_options={"id": {"ndv": 2, "fpp": 0.2}}
)
FILES = [encrypted(SMALL, mode.keys) for mode in MODES]
REENCRYPTED = 0x80


def check(data: bytes) -> None:
    """The first byte says under whose keys, and whether the rest is a file or a footer to be encrypted into one."""
    choice, content = (data[0], data[1:]) if data else (0, b"")
    mode = MODES[choice % REENCRYPTED % len(MODES)]
    file = _with_footer(choice % REENCRYPTED % len(MODES), content) if choice & REENCRYPTED else content
    inspect(file)
    inspect(file, mode.keys)
    verify(file, mode.keys)


def _with_footer(number: int, metadata: bytes) -> bytes:
    """A file of mode `number` with these bytes as its FileMetaData."""
    whole, keys = FILES[number], MODES[number].keys
    footer = read_footer(source_of(whole))
    assert footer.algorithm is not None
    aad = footer.algorithm.admit(keys, footer.location)
    cipher = ModuleCipher(Secret(FOOTER_KEY), "the footer key", aad, footer.algorithm.ctr, footer.location, bytes)
    encrypted = bytes(cipher.encrypt(FOOTER_SUFFIX, metadata)) if footer.is_encrypted else metadata + cipher.sign(metadata)
    end = whole[footer.start : footer.module_start] + encrypted
    return whole[: footer.start] + end + len(end).to_bytes(4, "little") + whole[-4:]


def seeds() -> list[bytes]:
    """For each mode a file, and its footer in the clear."""
    found = []
    for number, (mode, file) in enumerate(zip(MODES, FILES, strict=True)):
        stored = read_footer(source_of(io.BytesIO(file)))
        metadata = stored.open(FileCiphers(stored, mode.keys).footer).encode()
        found += [bytes([number]) + file, bytes([REENCRYPTED | number]) + metadata]
    return found


if __name__ == "__main__":
    fuzz(check, seeds())
