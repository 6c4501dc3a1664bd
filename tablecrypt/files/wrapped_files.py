"""Files that no manifest names, each an AGS1 stream, and the wrapped keys by which whoever names one opens it again.

    {"encryption-keys": [KEK, key of the stream], "key-id": …}      as metadata.json would hold them

The key's id is in `key-id`. Nothing here is secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.raw_output import ENCRYPTION_KEYS, KEY_ID
from tablecrypt.keys.key_ring import EncryptedKey, KeyChain, KeyRing
from tablecrypt.keys.manager import EncryptionManager


@dataclass(frozen=True)
class WrappedFileKey:
    """The key of one file: the KEK and the entry under it."""

    entries: tuple[EncryptedKey, ...]
    key_id: str

    @classmethod
    def of(cls, fields: Mapping[str, Any], what: str) -> WrappedFileKey:
        """Return what JSON says. FormatError, naming `what` it is, where it says something else, or half of it."""
        try:
            return cls(tuple(EncryptedKey.model_validate(key) for key in fields[ENCRYPTION_KEYS]), str(fields[KEY_ID]))
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{what}: not the keys of a file, or only half of them: {type(error).__name__}") from None

    @property
    def fields(self) -> dict[str, Any]:
        """What of it is kept, as JSON's types."""
        keys = [key.model_dump() for key in self.entries]
        return {ENCRYPTION_KEYS: keys, KEY_ID: self.key_id}

    @property
    def chain(self) -> KeyChain:
        """What opens the file. FormatError or KeyNotFoundError where that is not among the entries."""
        return KeyRing(self.entries).chain(self.key_id)


def write_wrapped(
    io: EncryptingFileIO, manager: EncryptionManager, location: str, content: bytes, keys: Iterable[EncryptedKey], key_id: str | None
) -> WrappedFileKey:
    """Write a file under a fresh DEK, and return what opens it.

    Args:
        io: the table's.
        manager: wraps the file's key.
        location: of the new file.
        content: its plaintext.
        keys, key_id: among these entries the one whose KEK wraps the file's key too, while it may; None for a new KEK.
    """
    output = io.encrypting_output(location, manager.new_key_metadata())
    with output.create() as stream:
        stream.write(content)

    ring = KeyRing(keys)
    wrapped = manager.encrypt_manifest_list_key_metadata(output.key_metadata, ring, key_id)
    chain = ring.with_others(wrapped.added).chain(wrapped.key_id)

    return WrappedFileKey((chain.kek, chain.manifest_list_key), wrapped.key_id)


def read_wrapped(io: EncryptingFileIO, manager: EncryptionManager, location: str, key: WrappedFileKey) -> bytes:
    """Return a file's plaintext.

    Raises:
        AuthenticationError, FormatError, KeyNotFoundError, KmsError: its key does not open, or the file is not what that key is for.
        FileNotFoundError: it is gone.
    """
    key_metadata = manager.decrypt_manifest_list_key_metadata(key.chain)
    with io.decrypting_input(location, key_metadata).open() as stream:
        return bytes(stream.read())
