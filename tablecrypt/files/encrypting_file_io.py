"""A FileIO that lets nothing but ciphertext through: it wraps any PyIceberg FileIO and fails closed.

    caller                         what is allowed                                     through
    this package, AGS1 files       read and write with the file's own key metadata     decrypting_input, encrypting_output
    this package, Parquet files    write a file that encrypts itself, checked to be so  raw_output (see raw_output.py)
    this package                   read stored bytes, of which nothing is promised     raw_input
    this package, migration        read a plaintext file, to encrypt it                plaintext_input
    anyone                         read the table's metadata JSON                      new_input
    anyone                         delete what this object wrote, or what is in scope  delete (see files/deletion.py)
    anyone                         anything else: PlaintextRefusedError                new_input, new_output

PyIceberg's own writers call new_output, so a code path of PyIceberg that does not know of encryption fails before it writes a byte.
No key is held here: key metadata comes in with each call. So the object pickles as the FileIO it wraps.

Every reader of rows gets the table's FileIO: scans, transactions, their pickled copies, Spark's executors. So what a catalog's server
restricts of a table's rows travels with it, and no reader can be built without. tablecrypt.table.restrictions says what it means.

A file that no manifest names, such as a journal or the record of a share, is an AGS1 stream too. Whoever names it keeps the wrapped keys
that open it again, of which none is secret:

    {"encryption-keys": [KEK, key of the stream], "key-id": …}      as metadata.json would hold them; the stream's key has this id
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from tablecrypt import _magics as magics
from tablecrypt._bytes import length_of
from tablecrypt.crypto import ags1
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import (
    ConfigurationError,
    FormatError,
    PlaintextRefusedError,
    ReadRestrictionError,
    TablecryptError,
    TamperedFileError,
)
from tablecrypt.files.ags1_streams import Ags1InputStream, Ags1OutputStream
from tablecrypt.files.deletion import NOTHING, DeletionScope
from tablecrypt.files.raw_output import ENCRYPTION_KEYS, KEY_ID, TABLE_METADATA_SUFFIXES, RawContent, RawOutputFile
from tablecrypt.keys.key_ring import EncryptedKey, KeyChain, KeyRing
from tablecrypt.keys.manager import EncryptionManager

_SALT_BYTES: Final = 32
_ENCRYPTED_MAGICS: Final = (magics.ENCRYPTED_PARQUET, magics.AGS1)


@dataclass(frozen=True)
class ReadRestrictions:
    """Restrictions that are not empty.

    Attributes:
        text: the `read-restrictions` object of the server's answer, as JSON.
        salt: what sha-256-query-local hashes before each value; None until a query begins.
    """

    text: str
    salt: bytes | None = None

    def of_query(self) -> ReadRestrictions:
        """Return these restrictions with a salt: their own where a query has begun, else a new random one."""
        return self if self.salt is not None else replace(self, salt=secrets.token_bytes(_SALT_BYTES))


class DecryptingInputFile(InputFile):
    """The plaintext of one AGS1 file. Its length is that of the plaintext, by the trusted length in the key metadata where there is one."""

    def __init__(self, inner: InputFile, key_metadata: StandardKeyMetadata) -> None:
        super().__init__(inner.location)
        self._inner = inner
        self._key_metadata = key_metadata

    def __len__(self) -> int:
        """How many plaintext bytes the file holds. TamperedFileError for a length that no AGS1 file has."""
        trusted = self._key_metadata.file_length
        try:
            return ags1.plaintext_length(len(self._inner) if trusted is None else trusted)
        except FormatError as impossible:
            raise TamperedFileError(self.location, str(impossible)) from None

    def exists(self) -> bool:
        return self._inner.exists()

    def open(self, seekable: bool = True) -> Ags1InputStream:
        """Open the plaintext, always seekable. Raises what Ags1InputStream's constructor raises, and what the store does."""
        raw = self._inner.open(seekable=True)
        try:
            return Ags1InputStream(raw, self._key_metadata, self.location, length_of(raw))
        except BaseException:
            raw.close()
            raise


class EncryptingOutputFile(OutputFile):
    """One new AGS1 file. `key_metadata` is for this file and no other, so it can be created only once."""

    def __init__(self, inner: OutputFile, key_metadata: StandardKeyMetadata) -> None:
        """ConfigurationError when the key metadata has a file length: it belongs to a file already."""
        if key_metadata.file_length is not None:
            raise ConfigurationError(
                f"{inner.location}: this key metadata belongs to a finished file already; a DEK is never used for two files"
            )

        super().__init__(inner.location)
        self._inner = inner
        self._key_metadata = key_metadata
        self._stream: Ags1OutputStream | None = None

    @property
    def key_metadata(self) -> StandardKeyMetadata:
        """The file's key metadata; with the length of the encrypted file once that is finished."""
        if self._stream is None or not self._stream.finished:
            return self._key_metadata
        return self._key_metadata.with_file_length(self._stream.file_length)

    def __len__(self) -> int:
        """How long the encrypted file is, in bytes. ValueError before it is finished."""
        if self._stream is None:
            raise ValueError(f"{self.location} is not written yet")
        return self._stream.file_length

    def exists(self) -> bool:
        return self._inner.exists()

    def create(self, overwrite: bool = False) -> Ags1OutputStream:
        """Open for writing plaintext. ConfigurationError the second time: a DEK is never used for two files."""
        # A second stream would encrypt other bytes under the same DEK and AAD prefix, and both files would authenticate.
        if self._stream is not None:
            raise ConfigurationError(f"{self.location}: was created already; a DEK is never used for two files")
        self._stream = Ags1OutputStream(self._inner.create(overwrite=overwrite), self._key_metadata, location=self.location)
        return self._stream

    def to_input_file(self) -> DecryptingInputFile:
        return DecryptingInputFile(self._inner.to_input_file(), self.key_metadata)


class PlaintextInputFile(InputFile):
    """A file in the clear: the source of an encryption."""

    def __init__(self, inner: InputFile) -> None:
        super().__init__(inner.location)
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        return self._inner.exists()

    def open(self, seekable: bool = True) -> InputStream:
        """Open the file, always seekable. ConfigurationError where it is encrypted already."""
        stream = self._inner.open(seekable=True)
        try:
            magic = bytes(stream.read(len(ags1.MAGIC)))
            # A file that is encrypted twice opens to ciphertext, under a key that no manifest has.
            if magic in _ENCRYPTED_MAGICS:
                raise ConfigurationError(f"{self.location}: is encrypted already (it begins with {magic!r}), so it is not encrypted again")
            stream.seek(0)
        except BaseException:
            stream.close()
            raise

        return stream


class EncryptingFileIO(FileIO):
    """See the module. `inner` does the storing; `properties` are its properties.

    Attributes:
        deletable: below which folders it deletes files that it did not write itself.
        own_folders: below which folders the writes of its table go.
        read_restrictions: what readers of rows leave out and mask; None where all may be read. Files are not looked at for it.
    """

    def __init__(self, inner: FileIO, read_restrictions: ReadRestrictions | None = None) -> None:
        """ConfigurationError when `inner` is an EncryptingFileIO itself."""
        if isinstance(inner, EncryptingFileIO):
            raise ConfigurationError("this FileIO encrypts already: wrap the one inside it")

        super().__init__(inner.properties)
        self.inner = inner
        self.deletable = NOTHING
        self.own_folders = NOTHING
        self._written: set[str] = set()
        self.read_restrictions = read_restrictions

    def __reduce__(self) -> tuple[type[EncryptingFileIO], tuple[FileIO, ReadRestrictions | None]]:
        return type(self), (self.inner, self.read_restrictions)

    def new_input(self, location: str) -> InputFile:
        """The table's metadata JSON, which is plaintext by specification. PlaintextRefusedError for any other file."""
        # Decided by the name alone: metadata JSON is the only plaintext that the specification has for an encrypted table.
        if location.endswith(TABLE_METADATA_SUFFIXES):
            return self.inner.new_input(location)
        raise PlaintextRefusedError(
            location, "only table metadata JSON is readable without its key; read the table through its own scan and inspect methods"
        )

    def new_output(self, location: str) -> OutputFile:
        """Always PlaintextRefusedError: code that brings no key metadata would write plaintext."""
        raise PlaintextRefusedError(
            location, "this table is encrypted: write to it through its own methods (append, overwrite, delete, upsert)"
        )

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file that this object has opened for writing, or that is in the scope `deletable`.

        Raises:
            DeletionRefusedError: it is neither.
        """
        name = location if isinstance(location, str) else location.location
        # A file that this object began is its own to remove, wherever the table's properties had it written.
        if name not in self._written:
            self.deletable.check(name)
        self.inner.delete(name)

    def delete_new(self, location: str) -> None:
        """Delete a file of a write that failed, which no metadata names: one of this object, or below the folders that writes go to.

        Which folders these are, unpinned metadata may say: what lies there under a name that a write gave is at most a new file.

        Raises:
            DeletionRefusedError: it lies elsewhere.
        """
        if location not in self._written and self.deletable.reason_against(location) is not None:
            self.own_folders.check(location)
        self.inner.delete(location)

    def decrypting_input(self, location: str, key_metadata: StandardKeyMetadata) -> DecryptingInputFile:
        """The plaintext of an AGS1 file."""
        return DecryptingInputFile(self._input(location), key_metadata)

    def encrypting_output(self, location: str, key_metadata: StandardKeyMetadata) -> EncryptingOutputFile:
        """A new AGS1 file, under key metadata that no other file has."""
        output = EncryptingOutputFile(self.inner.new_output(location), key_metadata)
        # Noted before a byte is written, so that a failed write can be taken back.
        self._written.add(location)
        return output

    def raw_input(self, location: str) -> InputFile:
        """The stored bytes, whatever they are: the reader checks them."""
        return self._input(location)

    def _input(self, location: str) -> InputFile:
        try:
            if "\0" in location:
                # Stores say so only when the file is opened.
                raise ValueError("no path holds a NUL")
            return self.inner.new_input(location)
        except ValueError:
            # Whoever may commit writes the names in manifests.
            with refusing_made_up(location, self.own_folders):
                raise

    def raw_output(self, location: str, content: RawContent) -> RawOutputFile:
        """A file that is stored as it is given, checked to be of this kind. PlaintextRefusedError for a name that such a file has not."""
        self._written.add(location)
        return RawOutputFile(self.inner, location, content)

    def plaintext_input(self, location: str) -> PlaintextInputFile:
        """A plaintext file that is about to be encrypted. Opening an encrypted one is a ConfigurationError."""
        return PlaintextInputFile(self.inner.new_input(location))


def encrypting_io(io: FileIO, what: str = "an encrypted table") -> EncryptingFileIO:
    """Return the FileIO of an encrypted table, through which `what` is read. ConfigurationError where it is another."""
    if not isinstance(io, EncryptingFileIO):
        raise ConfigurationError(f"{what} is read through an EncryptingFileIO, not {type(io).__name__}")
    return io


def store_io(io: FileIO) -> FileIO:
    """Return the store's own FileIO: of a table, encrypted or not, what does the storing."""
    return io.inner if isinstance(io, EncryptingFileIO) else io


@contextmanager
def refusing_made_up(location: str, own_folders: DeletionScope) -> Iterator[None]:
    """Turn what a store raises for a name that is none of a table's files into FormatError.

    metadata.json and manifests have names, which whoever writes these chooses. A store says of a made-up one what its client library
    raises, of any kind: that a path holds a NUL, that a scheme is not known, that there is a folder and no file.

    Args:
        location: what the block reads.
        own_folders: of the table. What the store says of a file there stays as it is: it may be that the store cannot be reached.

    Raises:
        FormatError: the file lies elsewhere, or is not named as a table's file, and cannot be read.
        FileNotFoundError, PermissionError: as the store says.
    """
    try:
        yield
    # These already say what is wrong, and callers tell a missing file from a denied one.
    except (TablecryptError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        # Whoever chose the name chose the store, the library that reads it, and so the kind of error.
        reason = own_folders.reason_against(location)
        if reason is None:
            raise
        raise FormatError(f"{location}: cannot be read ({type(error).__name__}), and as a file of the table it {reason}") from error


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


def is_local(location: str) -> bool:
    """Whether a file lies in the local file system, so that no read of it is a request."""
    return urlsplit(location).scheme in ("", "file")


def read_restrictions_of(io: FileIO) -> ReadRestrictions | None:
    """Return what readers of rows through a FileIO leave out and mask; None where all may be read."""
    return io.read_restrictions if isinstance(io, EncryptingFileIO) else None


def refuse_restricted(io: FileIO, operation: str) -> None:
    """Refuse what would go past the restrictions of a table, or make masked values the table's own.

    Args:
        io: the table's.
        operation: what was asked for, as the error says it.

    Raises:
        ReadRestrictionError: the table's reader is restricted.
    """
    if read_restrictions_of(io) is not None:
        raise ReadRestrictionError(
            f"{operation} is not possible: the catalog's server restricts which rows and values you may read of this table. "
            "Reading and appending are; for anything else connect as a user whom the server does not restrict"
        )
