"""What is wrong with files that somebody wrote, seen without reading their rows: plaintext, magics, lengths, nonces and keys.

Of one case, a writer is asked twice: two files under one key must have no nonce in common, and two tables no DEK.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance import parquet_modules, streams
from conformance.parquet_modules import ModulesError
from conformance.streams import KeyMetadata, StreamError
from conformance.table_keys import TableKeysError, keys_of_files

PLAINTEXT: Final = "PLAINTEXT"
NO_SUCH_FORMAT: Final = "no such format"
OTHER_BYTES: Final = "other bytes"
OTHER_LENGTH: Final = "other length"
NONCE_TWICE: Final = "NONCE USED TWICE"
DEK_TWICE: Final = "DEK USED TWICE"
OTHER_DEK_LENGTH: Final = "DEK of another length"
PREFIX_STORED: Final = "AAD prefix stored"
PREFIX_NOT_STORED: Final = "AAD prefix not stored"
KEYS_NOT_OPENED: Final = "keys not opened"
FORGOTTEN: Final = "nothing written"


@dataclass(frozen=True)
class Written:
    """What a writer made of a case: a file, or the folder of a table and its newest metadata."""

    path: Path
    metadata: Path | None = None

    def files(self) -> list[Path]:
        return sorted(each for each in self.path.rglob("*") if each.is_file()) if self.path.is_dir() else [self.path]

    def name_of(self, file: Path) -> str:
        return file.name if self.path.is_dir() else "the file"


@dataclass(frozen=True)
class Problem:
    """The first thing that is wrong, in one of the words above, and where."""

    outcome: str
    message: str


def problem_of(case: dict[str, Any], written: Sequence[Written]) -> Problem | None:
    """Look at all that was written of one case; None where nothing is wrong."""
    return next(_problems(case, written), None)


def _problems(case: dict[str, Any], written: Sequence[Written]) -> Iterator[Problem]:
    for each in written:
        if not each.path.exists() or (case["level"] == "table" and not (each.metadata and each.metadata.is_file())):
            yield Problem(FORGOTTEN, "there is nothing where it said")
            return
    for each in written:
        yield from _plaintext(case, each)
    if case["level"] == "table":
        yield from _tables(case, written)
    elif case["level"] == "key-metadata":
        yield from _exact_bytes(case, written)
    else:
        yield from _files(case, written)


def _plaintext(case: dict[str, Any], written: Written) -> Iterator[Problem]:
    """Rows hold texts that stand in no file, since nothing is compressed and every file is encrypted but metadata.json, which has none."""
    for file in written.files():
        data = file.read_bytes()
        for marker in case.get("markers", ()):
            if marker.encode() in data:
                yield Problem(PLAINTEXT, f"{written.name_of(file)} has the text {marker!r}")


def _exact_bytes(case: dict[str, Any], written: Sequence[Written]) -> Iterator[Problem]:
    for each in written:
        data = each.path.read_bytes()
        if data != bytes.fromhex(case["bytes"]):
            yield Problem(OTHER_BYTES, f"{data.hex()}, not {case['bytes']}")


def _files(case: dict[str, Any], written: Sequence[Written]) -> Iterator[Problem]:
    """A stream or a Parquet file, of which the case says the key: no nonce comes twice under it."""
    found: list[bytes] = []
    for each in written:
        data = each.path.read_bytes()
        try:
            found += _nonces(case, data)
        except (StreamError, ModulesError) as error:
            yield Problem(NO_SUCH_FORMAT, str(error))
            return
        yield from _stream_length(case, data) if case["level"] == "ags1" else _stored_prefix(case, data)
    if len(set(found)) < len(found):
        yield Problem(NONCE_TWICE, f"{len(found) - len(set(found))} of {len(found)} nonces under one key came before")


def _nonces(case: dict[str, Any], data: bytes) -> list[bytes]:
    if case["level"] == "ags1":
        return [block[: streams.NONCE] for block in streams.blocks(data)]
    return parquet_modules.nonces(data, b"PAR1" if case["plaintext_footer"] else b"PARE")


def _stream_length(case: dict[str, Any], data: bytes) -> Iterator[Problem]:
    expected = streams.stream_length(case["plaintext"]["length"])
    if len(data) != expected:
        yield Problem(OTHER_LENGTH, f"{len(data)} bytes, not {expected}")


def _stored_prefix(case: dict[str, Any], data: bytes) -> Iterator[Problem]:
    prefix = bytes.fromhex(case["aad_prefix"])
    # A prefix that the reader does not need to know lets files be exchanged.
    if prefix and prefix in data and not case["aad_prefix_is_stored"]:
        yield Problem(PREFIX_STORED, "it stands in the file, and its reader was to supply it")
    if prefix not in data and case["aad_prefix_is_stored"]:
        yield Problem(PREFIX_NOT_STORED, "it does not stand in the file")


def _tables(case: dict[str, Any], written: Sequence[Written]) -> Iterator[Problem]:
    for each in written:
        yield from _files_of_table(each)
    if _opens_keys():
        yield from _keys(case, written)


def _files_of_table(table: Written) -> Iterator[Problem]:
    """Every file is a stream or an encrypted Parquet file but metadata.json, and what Hadoop's local file system puts beside each file."""
    for file in table.files():
        if file.name.endswith(".metadata.json") or (file.name.startswith(".") and file.name.endswith(".crc")):
            continue
        data = file.read_bytes()
        try:
            if data.startswith(b"AGS1"):
                list(streams.blocks(data))
            else:
                parquet_modules.nonces(data, b"PARE")
        except (StreamError, ModulesError) as error:
            yield Problem(NO_SUCH_FORMAT, f"{file.name}: {error}")


def _keys(case: dict[str, Any], written: Sequence[Written]) -> Iterator[Problem]:
    """One DEK for each file of both tables, of the length that was asked for; where the length of a file is said, it is right."""
    length, seen = int(case["properties"]["encryption.data-key-length"]), set[bytes]()
    for each in written:
        assert each.metadata is not None
        try:
            keys = keys_of_files(each.metadata, Path(case["key_file"]))
        except TableKeysError as error:
            yield Problem(KEYS_NOT_OPENED, str(error))
            return
        for path, key in keys.items():
            yield from _key_of_file(path, key, length)
            if key.key in seen:
                yield Problem(DEK_TWICE, f"{path.name} is encrypted with the DEK of another file")
            seen.add(key.key)


def _key_of_file(path: Path, key: KeyMetadata, length: int) -> Iterator[Problem]:
    if len(key.key) != length:
        yield Problem(OTHER_DEK_LENGTH, f"{path.name} has a DEK of {len(key.key)} bytes, and the table asks for {length}")
    if key.file_length is not None and key.file_length != path.stat().st_size:
        yield Problem(OTHER_LENGTH, f"{path.name} has {path.stat().st_size} bytes, and its key metadata says {key.file_length}")


def _opens_keys() -> bool:
    try:
        import cryptography
        import fastavro  # noqa: F401
    except ImportError as missing:
        print(f"Nobody looks whether a DEK is used twice: {missing}", file=sys.stderr)
        return False
    return bool(cryptography.__version__)
