"""The integrity manifest: a MAC over every byte of some ORC files, which ORC's encryption lacks, under a key of the provider.

    {"format": "tablecrypt-orc-manifest", "version": 1,
     "key":   {"name": "integrity", "version": 0, "length": 16, "encrypted": "<base64>"},        the local key that MACs are made with
     "files": {"part-0.orc": {"length": 145729, "blocks": "<base64>", "mac": "<hex>"}, ...},
     "mac":   "<hex>"}

    MAC key      = HKDF-SHA256(local key, info "tablecrypt orc manifest 1"), 32 bytes
    blocks       = the SHA-256 of each 64 KiB of the file, the last block as long as what is left
    file's MAC   = HMAC-SHA256(MAC key, "file" | length of name, 4 bytes BE | name | length of file, 8 bytes BE | blocks)
    whole's MAC  = HMAC-SHA256(MAC key, "manifest" | number of files, 8 bytes BE | files' MACs in the order of their names)

A reader checks the whole manifest once, then each block when it fetches it: a projected read fetches what it needs and stays authentic,
and nothing can be exchanged between the check and the read. Names are bound: one file does not pass for another of the same manifest.

Anyone who can decrypt the manifest's key can also make manifests: give its key to those who write, and to readers who are to check. The
manifest says which key that is, so a reader says which it has to be: otherwise whoever has another key of the reader's makes one too.
Raises TamperedFileError where bytes and manifest differ, KeyMismatchError where the provider's key fits none of its MACs, KeyNotFoundError
for a file or key that is not there, FormatError for anything that is not a manifest.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import struct
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography.hazmat.primitives.constant_time import bytes_eq
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tablecrypt._parsed_json import ParsedJson
from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError, KeyMismatchError, KeyNotFoundError, TamperedFileError
from tablecrypt.orc.key_providers import LOCAL_KEY_LENGTHS, KeyProvider, MasterKeyVersion
from tablecrypt.orc.source import OrcSource

FORMAT: Final = "tablecrypt-orc-manifest"
VERSION: Final = 1
BLOCK_LENGTH: Final = 64 * 1024
DIGEST_LENGTH: Final = 32

_WHERE: Final = "the manifest"
_INFO: Final = b"tablecrypt orc manifest 1"
_NAME_LENGTH: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">Q")

CACHED_BLOCKS: Final = 64


@dataclass(frozen=True)
class FileDigests:
    """What a manifest says of one file: its length, and the SHA-256 of its blocks, concatenated."""

    length: int
    blocks: bytes

    def mac(self, key: Secret, name: str) -> bytes:
        encoded = name.encode()
        return _hmac(key, b"file", _NAME_LENGTH.pack(len(encoded)), encoded, _LENGTH.pack(self.length), self.blocks)

    def digest_of(self, block: int) -> bytes:
        return self.blocks[block * DIGEST_LENGTH : (block + 1) * DIGEST_LENGTH]


class FileHasher:
    """Takes a file's bytes in order and returns its digests."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._blocks = bytearray()
        self._length = 0

    def update(self, data: bytes) -> None:
        self._length += len(data)
        self._pending += data
        whole = len(self._pending) - len(self._pending) % BLOCK_LENGTH
        # A view saves a copy of each block. It has to be released before the bytearray may shrink.
        with memoryview(self._pending) as view:
            for start in range(0, whole, BLOCK_LENGTH):
                self._blocks += hashlib.sha256(view[start : start + BLOCK_LENGTH]).digest()
        del self._pending[:whole]

    def entry(self) -> FileDigests:
        last = hashlib.sha256(self._pending).digest() if self._pending else b""
        return FileDigests(self._length, bytes(self._blocks) + last)


class IntegrityManifestWriter:
    """Collects files and makes one manifest of them. `write_table(..., manifest=writer)` adds a file while it is written.

    Args:
        keys: the newest version of the key makes the MACs.
        key_name: preferably a key that serves only integrity.
    """

    @checked_arguments()
    def __init__(self, keys: KeyProvider, key_name: str) -> None:
        self._master = keys.current_version(key_name)
        self._local_key = keys.create_local_key(self._master)
        self._entries: dict[str, FileDigests] = {}

    def add(self, name: str, entry: FileDigests) -> None:
        """Add a file under a name that the manifest does not have yet."""
        if not name:
            raise ConfigurationError("a file in a manifest needs a name: give `name`, or a path")
        if name in self._entries:
            raise ConfigurationError(f"the manifest has a file {name!r} already")
        self._entries[name] = entry

    def finish(self) -> bytes:
        """Return the manifest."""
        key = _mac_key(self._local_key.key)
        # Sorted, because the MAC of the whole takes the files' MACs in the order of their names and JSON objects have no order.
        macs = {name: entry.mac(key, name) for name, entry in sorted(self._entries.items())}
        document = {
            "format": FORMAT,
            "version": VERSION,
            "key": {
                "name": self._master.name,
                "version": self._master.version,
                "length": self._master.length,
                "encrypted": base64.b64encode(self._local_key.encrypted).decode(),
            },
            "files": {
                name: {"length": entry.length, "blocks": base64.b64encode(entry.blocks).decode(), "mac": macs[name].hex()}
                for name, entry in sorted(self._entries.items())
            },
            "mac": _whole_mac(key, list(macs.values())).hex(),
        }
        return json.dumps(document, indent=1).encode()


@dataclass(frozen=True)
class IntegrityManifest:
    """A manifest whose MACs were verified."""

    entries: dict[str, FileDigests] = field(repr=False)

    @classmethod
    def open(cls, manifest: bytes, keys: KeyProvider | None, key_name: str | None = None) -> IntegrityManifest:
        """Verify a manifest, which has to be made with the key of this name; with any that the provider has, where none is given."""
        document = _parse(manifest)
        named = _mapping(document, "key").get("name")
        # Before the provider is asked: the holder of any other key could have made the manifest.
        if key_name is not None and named != key_name:
            raise KeyMismatchError(_WHERE, f"was made with the key {named!r}, and not with {key_name!r}, which manifest_key names")
        if keys is None:
            raise KeyNotFoundError(f"no key provider was given to check {_WHERE} with")

        # The entries are only parsed here: nothing of a file is read by them until all MACs fit.
        entries = {name: _entry(name, file) for name, file in _mapping(document, "files").items()}
        key = _mac_key(_local_key(_mapping(document, "key"), keys))
        macs = {name: entry.mac(key, name) for name, entry in sorted(entries.items())}
        # Compared in constant time: otherwise the time to an error would let a writer of the storage find a MAC byte by byte.
        changed = [name for name, mac in macs.items() if not bytes_eq(mac, _hex(document["files"][name], "mac"))]
        whole_fits = bytes_eq(_whole_mac(key, list(macs.values())), _hex(document, "mac"))
        # A wrong key fails every MAC and an edit only some. Both are refused: this decides which error helps the reader.
        if len(changed) == len(macs) and not whole_fits:
            raise KeyMismatchError(
                _WHERE, "no entry matches the provider's key: the manifest belongs to another key, or somebody changed it"
            )
        if changed:
            raise TamperedFileError(_WHERE, f"the entry of {changed[0]!r} was changed")
        # Every entry is authentic by itself: without this MAC a writer of the storage could leave files out of the manifest.
        if not whole_fits:
            raise TamperedFileError(_WHERE, "files were added or removed")

        return cls(entries)

    def entry(self, name: str) -> FileDigests:
        if name not in self.entries:
            raise KeyNotFoundError(f"{_WHERE} has no file {name!r}: give the name that the manifest has for it as `name`")
        return self.entries[name]


class CheckedSource:
    """A file that is checked against its manifest: reads whole blocks, and keeps the last few, because reads do not end at blocks."""

    def __init__(self, source: OrcSource, entry: FileDigests) -> None:
        # Bytes after the last block have no digest, and ORC is read from the end of the file.
        if source.length != entry.length:
            raise TamperedFileError(source.location, f"has {source.length} bytes, but its manifest says {entry.length}")
        self.location = source.location
        self.length = source.length
        self._source = source
        self._entry = entry
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def read_at(self, offset: int, length: int) -> bytes:
        # The source returns nothing or refuses such a range itself, so no unchecked byte leaves through this branch.
        if length <= 0 or offset + length > self.length:
            return self._source.read_at(offset, length)
        first, last = offset // BLOCK_LENGTH, (offset + length - 1) // BLOCK_LENGTH
        data = b"".join(self._block(number) for number in range(first, last + 1))
        begin = offset - first * BLOCK_LENGTH
        return data[begin : begin + length]

    def _block(self, number: int) -> bytes:
        # Kept as it was checked: a store that answers differently the second time changes nothing.
        if number in self._blocks:
            self._blocks.move_to_end(number)
            return self._blocks[number]

        start = number * BLOCK_LENGTH
        block = self._source.read_at(start, min(BLOCK_LENGTH, self.length - start))
        if not bytes_eq(hashlib.sha256(block).digest(), self._entry.digest_of(number)):
            raise TamperedFileError(self.location, f"bytes {start} to {start + len(block)} differ from the manifest")

        self._blocks[number] = block
        if len(self._blocks) > CACHED_BLOCKS:
            self._blocks.popitem(last=False)
        return block


def _mac_key(local_key: Secret) -> Secret:
    return Secret(HKDF(SHA256(), DIGEST_LENGTH, salt=None, info=_INFO).derive(local_key.reveal()))


def _hmac(key: Secret, *parts: bytes) -> bytes:
    mac = HMAC(key.reveal(), SHA256())
    for part in parts:
        mac.update(part)
    return mac.finalize()


def _whole_mac(key: Secret, macs: list[bytes]) -> bytes:
    return _hmac(key, b"manifest", _LENGTH.pack(len(macs)), *macs)


def _parse(manifest: bytes) -> dict[str, Any]:
    try:
        # Parsing comes before the MACs, so it may be anything: a thousand nested lists, or a name that UTF-8 cannot hold.
        document = ParsedJson(manifest).document
    except ValueError as error:
        raise FormatError(f"{_WHERE} is not JSON that can be read: {error}") from error

    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise FormatError(f"{_WHERE} is not one of format {FORMAT}, version {VERSION}")

    return document


def _local_key(key: dict[str, Any], keys: KeyProvider) -> Secret:
    name, version, length = key.get("name"), key.get("version"), key.get("length")
    # `True` is an int in Python and would pass isinstance as version 1.
    if not isinstance(name, str) or type(version) is not int or length not in LOCAL_KEY_LENGTHS:
        raise FormatError(f"{_WHERE} does not say which key it was made with")
    return keys.decrypt_local_key(MasterKeyVersion(name, version, length), _base64(key, "encrypted"))


def _entry(name: str, file: Any) -> FileDigests:
    # The MAC packs the length into 8 bytes: a number that does not fit would end in struct.error.
    if not isinstance(file, dict) or type(file.get("length")) is not int or not 0 <= file["length"] < 2**63:
        raise FormatError(f"{_WHERE} does not say how long {name!r} is")
    blocks = _base64(file, "blocks")
    if len(blocks) != -(-file["length"] // BLOCK_LENGTH) * DIGEST_LENGTH:
        raise FormatError(f"{_WHERE} has {len(blocks)} bytes of digests for the {file['length']} bytes of {name!r}")
    return FileDigests(file["length"], blocks)


def _mapping(document: dict[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    if not isinstance(found, dict):
        raise FormatError(f"{_WHERE} has no {name!r}")
    return found


def _base64(document: dict[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(document.get(name) or "", validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise FormatError(f"{_WHERE}: {name!r} is not base64") from error


def _hex(document: dict[str, Any], name: str) -> bytes:
    try:
        return bytes.fromhex(document.get(name) or "")
    except (ValueError, TypeError) as error:
        raise FormatError(f"{_WHERE}: {name!r} is not hexadecimal") from error
