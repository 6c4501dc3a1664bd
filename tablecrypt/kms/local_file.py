"""Master keys in a file of this machine, for one-person use, tests of a whole system, and places where no key service is.

Anyone who can read the file can read every table, so its mode must keep everyone but its owner out. Keep a copy of it in a safe: without it
the tables are lost. Wrapped keys have the layout that tablecrypt/kms/client.py draws.

    {"format": "tablecrypt-key-file", "version": 1,
     "keys": {"orders": {"1": "<base64 of 16, 24 or 32 bytes>", "2": "..."}}}
              └─ key id   └─ key version: the highest wraps, every one of them unwraps

Its mode is 0600 or narrower: a file that its group or others can read or write is refused, and so is one on a system without such modes.
It changes whole or not at all, by one process at a time (tablecrypt/_atomic_file.py).

Raises ConfigurationError when the file is absent, too open, being changed or no key file, or when a key is added twice. What is wrong with
it is no FormatError, which would be said of the table's files.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from tablecrypt._atomic_file import named_file
from tablecrypt.arguments import file_path
from tablecrypt.crypto.aes_gcm import KEY_LENGTHS
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, KeyNotFoundError, with_sentence
from tablecrypt.kms.client import WrappingClient, check_key_length, unwrap_with_master_key, wrap_with_master_key
from tablecrypt.properties import KMS_LOCAL_KEY_FILE
from tablecrypt.setting_kinds import did_you_mean

FORMAT: Final = "tablecrypt-key-file"
VERSION: Final = 1
_MOST_NAMES: Final = 8
_HIGHEST_KEY_VERSION: Final = 2**32 - 1
_FOREIGN_ACCESS: Final = stat.S_IRWXG | stat.S_IRWXO

KeyFile = dict[str, dict[int, Secret]]


def read_key_file(path: Path) -> KeyFile:
    """Every master key in the file, by key id and key version."""
    try:
        # One descriptor for the check and the reading, so that no other file slips in between.
        with path.open("rb") as file:
            _check_mode(path, os.fstat(file.fileno()))
            content = file.read()
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        advice = (
            f"there is none in {path.absolute().parent}: put yours there, or make a first one (tablecrypt keygen)"
            if is_missing
            else error.strerror
        )
        raise ConfigurationError(f"the key file {path} cannot be read: {advice}") from error

    return _decode(path, content)


def create_key_file(path: Path, key_id: str, length: int = 32, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
    """Make a key file with one fresh master key of `length` bytes. An existing file is a ConfigurationError."""
    check_key_length(length)
    _check_key_id(key_id)
    with changed_key_file(path) as file:
        # Inside the lock: of two processes that create the file at once, one must not overwrite the other's key.
        if path.exists():
            raise ConfigurationError(f"the key file {path} exists already: add keys to it")
        file.write(_encode({key_id: {1: Secret(random(length))}}))


def add_key(path: Path, key_id: str, length: int = 32, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
    """Add a fresh master key of `length` bytes to the file. A key id that it has already is a ConfigurationError."""
    check_key_length(length)
    _check_key_id(key_id)
    with changed_key_file(path) as file:
        # Read inside the lock, so that a key which another process has just added is not lost.
        keys = read_key_file(path)
        if key_id in keys:
            raise ConfigurationError(
                f"the key file {path} has a key {key_id!r} already: give the new one another --key-id, or add --new-version to rotate "
                "this one"
            )

        file.write(_encode({**keys, key_id: {1: Secret(random(length))}}))


def add_key_version(path: Path, key_id: str) -> int:
    """Rotate a master key: add a fresh version of its own length, which wraps from now on, and return the version's number."""
    with changed_key_file(path) as file:
        keys = read_key_file(path)
        if key_id not in keys:
            raise ConfigurationError(_no_key(path, key_id, keys))
        newest = max(keys[key_id])
        file.write(_encode({**keys, key_id: {**keys[key_id], newest + 1: Secret(secrets.token_bytes(len(keys[key_id][newest])))}}))
        return newest + 1


@contextmanager
def changed_key_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file for the whole next content of a key file; an error leaves the old one.

    Raises:
        ConfigurationError: another process is changing it, or it cannot be written.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(named_file(path, durable=True, until_named="exclusive"))
        except FileExistsError as error:
            raise ConfigurationError(f"{error.filename} exists: another process is changing the key file; if none is, remove it") from error
        except OSError as error:
            advice = f": there is no folder {path.parent}" if isinstance(error, FileNotFoundError) else f" ({error.strerror})"
            raise ConfigurationError(f"the key file {path} cannot be written{advice}") from error

        yield file


def _encode(keys: KeyFile) -> bytes:
    shown = {
        key_id: {str(version): base64.b64encode(key.reveal()).decode() for version, key in versions.items()}
        for key_id, versions in keys.items()
    }
    return json.dumps({"format": FORMAT, "version": VERSION, "keys": shown}, indent=2).encode() + b"\n"


def _check_mode(path: Path, status: os.stat_result) -> None:
    # A pipe or a device in its place could feed each reader other keys.
    if not stat.S_ISREG(status.st_mode):
        raise ConfigurationError(f"{path} is not a file")
    # Write access counts too: a master key that others can exchange protects nothing that is written from then on.
    if status.st_mode & _FOREIGN_ACCESS:
        mode = stat.S_IMODE(status.st_mode)
        raise ConfigurationError(f"the key file {path} has mode {mode:04o}, so others than its owner have access: chmod 600 {path}")


def _no_key(path: Path, key_id: str, keys: KeyFile) -> str:
    """Return what to say of a key that a file lacks: which it has. Their ids are no secret, tables name them in plaintext."""
    shown = [repr(each) for each in sorted(keys)[:_MOST_NAMES]]
    more = [f"{len(keys) - _MOST_NAMES} more"] if len(keys) > _MOST_NAMES else []
    has = f"it has {', '.join([*shown, *more])}" if keys else "it has none"
    return f"the key file {path} has no key {key_id!r}; {has}{did_you_mean(key_id, keys)}"


def _check_key_id(key_id: str) -> None:
    if not key_id or key_id != key_id.strip() or not key_id.isprintable():
        raise ConfigurationError(f"{key_id!r} cannot be a key id: it is empty, begins or ends in a blank, or is not printable")


def _decode(path: Path, content: bytes) -> KeyFile:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        # Not chained: json's error holds the whole text, keys included.
        raise ConfigurationError(f"the key file {path} is not JSON") from None

    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigurationError(f"{path} is not a key file of tablecrypt")
    if document.get("version") != VERSION:
        raise ConfigurationError(f"the key file {path} has a version other than {VERSION}, the only one that this release reads")

    keys = document.get("keys")
    if not isinstance(keys, dict):
        raise ConfigurationError(f"the key file {path} has no keys")

    return {key_id: _decode_versions(path, key_id, versions) for key_id, versions in keys.items()}


def _decode_versions(path: Path, key_id: str, versions: object) -> dict[int, Secret]:
    if not isinstance(versions, Mapping) or not versions:
        raise ConfigurationError(f"the key file {path}: key {key_id!r} has no versions")
    return {_decode_version(path, key_id, number): _decode_key(path, key_id, text) for number, text in versions.items()}


def _decode_version(path: Path, key_id: str, number: object) -> int:
    if not isinstance(number, str) or not number.isascii() or not number.isdigit() or not 1 <= int(number[:11]) <= _HIGHEST_KEY_VERSION:
        raise ConfigurationError(f"the key file {path}: a version of key {key_id!r} is not a number from 1 to {_HIGHEST_KEY_VERSION}")
    return int(number[:11])


def _decode_key(path: Path, key_id: str, text: object) -> Secret:
    try:
        key = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        key = b""
    if len(key) not in KEY_LENGTHS:
        raise ConfigurationError(f"the key file {path}: a version of key {key_id!r} is not base64 of 16, 24 or 32 bytes")
    return Secret(key)


class LocalFileKeyManagementClient(WrappingClient):
    """Wraps keys with the master keys of a key file that `tablecrypt keygen` made.

    Properties: `kms.local.key-file`, the path ("~" is the home folder). Required.
    Permissions: read access to the file; its mode is 0600 or narrower, anything wider is refused at every call.

    The file is read at each call, so a rotated key takes effect at once and no master key stays in this object.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        path = properties.get(KMS_LOCAL_KEY_FILE.name)
        if not path:
            raise ConfigurationError(f"set {KMS_LOCAL_KEY_FILE.name} to the path of a key file; tablecrypt keygen makes one")
        self._path = file_path(KMS_LOCAL_KEY_FILE.name, path)

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        check_key_length(len(key))
        versions = self._versions(wrapping_key_id)
        # Only wrapping is refused: what a zero key wrapped before has to open, to be wrapped again.
        if versions[max(versions)].is_zero:
            raise ConfigurationError(
                f"the newest version of key {wrapping_key_id!r} in the key file {self._path} is all zeros, which everybody can guess: "
                "make another with tablecrypt keygen --new-version"
            )

        return wrap_with_master_key(key, versions, wrapping_key_id)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        versions = self._versions(wrapping_key_id)
        try:
            return unwrap_with_master_key(wrapped_key, versions, wrapping_key_id)
        except (AuthenticationError, FormatError, KeyNotFoundError) as error:
            raise with_sentence(error, f"The key file is {self._path.absolute()}") from error

    def close(self) -> None:
        """Do nothing: the file is open only during a call."""

    def _versions(self, key_id: str) -> dict[int, Secret]:
        keys = read_key_file(self._path)
        if key_id not in keys:
            raise KeyNotFoundError(_no_key(self._path, key_id, keys))
        return keys[key_id]

    def __repr__(self) -> str:
        return f"LocalFileKeyManagementClient(path={str(self._path)!r})"
