"""The end of a Parquet file: the footer in its three forms, and the metadata that is needed to decrypt it.

    plain                 FileMetaData | length (4, LE) | "PAR1"
    signed, in the clear  FileMetaData with encryption_algorithm | nonce (12) | tag (16) | length of all these (4, LE) | "PAR1"
    encrypted             FileCryptoMetaData | FileMetaData as an encrypted module | length of both (4, LE) | "PARE"

The file begins with the same magic. FileCryptoMetaData is in the clear and nothing authenticates it by itself. A changed AAD field
makes the footer fail to decrypt. A changed algorithm does not: a reader would then take pages that nothing authenticates for pages of
AES_GCM_CTR_V1, so the caller's keys say which algorithms are accepted (Algorithm.admit). Two parsers must not read two things in it, so it
has to be encoded as every Thrift writer encodes it: without fields that are not known here, long numbers or bits that mean nothing.

A signed footer is checked before anything but its encryption_algorithm is parsed.

Raises TamperedFileError for an end that no writer makes or that does not authenticate, KeyMismatchError where the caller's key decrypts
nothing, FormatError for authentic bytes that are no footer and for a file that is not Parquet at either end, ConfigurationError for an
AAD prefix that the caller has to supply.

A table's file has its end fetched once: what is checked here are the very bytes that Arrow reads the footer from.

    storage ── last 64 KiB, more for a long footer ──▶ end = FileCryptoMetaData | encrypted footer | length | "PARE"
                                                        ├──▶ checked: magic, AES_GCM_V1, AAD fields
                                                        └──▶ these bytes alone ──▶ Arrow opens the footer
            ◀── column chunks, at the places that the authenticated footer names ── Arrow's scan of the file itself

FileCryptoMetaData is plaintext and says by which algorithm pages are encrypted. Arrow believes it, so it must not come from storage a
second time between the check and the reader: anyone who can write storage could change it in between.

Specification: Apache Parquet, "Parquet Modular Encryption", sections 4.4.1, 5.2, 5.4 and 5.5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Final, TypeAlias

import pyarrow as pa

from tablecrypt import _magics as magics
from tablecrypt._magics import HEAD_LENGTH, looks_like
from tablecrypt._per_process import SizeBoundedCache
from tablecrypt._store_errors import reraise_naming
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError, PlaintextRefusedError, TamperedFileError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.columns_apart import ENTRY, with_columns_apart
from tablecrypt.parquet.file_keys import AES_GCM_CTR_V1, AES_GCM_V1, FOOTER_KEY_NAME, FileKeys
from tablecrypt.parquet.modules import FOOTER_SUFFIX, SIGNATURE_LENGTH, ModuleCipher, module_length
from tablecrypt.parquet.storage import RefusingFileSystem, Sink, Source
from tablecrypt.parquet.structs import (
    FILE_CRYPTO_META_DATA_SHAPE,
    FILE_META_DATA_SHAPE,
    FOOTER_CRYPTO_SHAPE,
    AesGcmV1,
    ColumnChunk,
    EncryptionAlgorithm,
    FileCryptoMetaData,
    FileMetaData,
    RowGroup,
)
from tablecrypt.parquet.thrift import Struct, decode_padded, stored_values

PLAIN_MAGIC: Final = magics.PARQUET
ENCRYPTED_MAGIC: Final = magics.ENCRYPTED_PARQUET
MAGIC_LENGTH: Final = 4
_MAGICS: Final = (PLAIN_MAGIC, ENCRYPTED_MAGIC)
TAIL_LENGTH: Final = 8
AAD_FILE_UNIQUE_LENGTH: Final = 8
END_GUESS: Final = 64 * 1024
"""So many bytes of the end are fetched at once: most footers are in them."""

_TAIL: Final = struct.Struct("<I4s")
_NOT_ACCEPTED_IN_A_TABLE: Final = (
    "says that it is written with AES_GCM_CTR_V1, which leaves pages unauthenticated; the files of a table are written with AES_GCM_V1, so "
    "its plaintext file crypto metadata was changed"
)
_NOT_ASKED_FOR: Final = (
    "says that it is written with AES_GCM_CTR_V1, which leaves pages unauthenticated. Anyone who can write the file can make it say so. "
    'If its writer chose that algorithm, ask for it: FileKeys(algorithm="AES_GCM_CTR_V1")'
)
_KEY_OF_CHUNK: Final = (FileMetaData.ROW_GROUPS, RowGroup.COLUMNS, ColumnChunk.CRYPTO_METADATA)
_FOOTER_KEY: Final = b"\x1c\x00\x00"
_OWN_KEY: Final = b"\x2c"
_MOST_BYTES: Final = 4 * 1024 * 1024
_BYTES_OF_ONE: Final = 128
_Keys: TypeAlias = tuple[bool | None, ...]
_KEPT: Final = SizeBoundedCache[bytes, _Keys]()
"""What footers say, up to about so many bytes. No key and no value is in it."""


@dataclass(frozen=True)
class Algorithm:
    """EncryptionAlgorithm: how modules are encrypted, and what begins the AAD of each of them in this file."""

    ctr: bool
    aad_file_unique: bytes
    aad_prefix: bytes | None
    supply_aad_prefix: bool

    @property
    def name(self) -> str:
        return AES_GCM_CTR_V1 if self.ctr else AES_GCM_V1

    @classmethod
    def decode(cls, union: Struct) -> Algorithm:
        """FormatError unless it is one of the two algorithms, with an aad_file_unique."""
        if len(union.fields) != 1 or not {EncryptionAlgorithm.AES_GCM_V1, EncryptionAlgorithm.AES_GCM_CTR_V1} & union.fields.keys():
            raise FormatError("the encryption algorithm is neither AES_GCM_V1 nor AES_GCM_CTR_V1")

        ctr = EncryptionAlgorithm.AES_GCM_CTR_V1 in union
        details = union.struct(EncryptionAlgorithm.AES_GCM_CTR_V1 if ctr else EncryptionAlgorithm.AES_GCM_V1)
        _refuse_unknown(details, AesGcmV1.AAD_PREFIX, AesGcmV1.AAD_FILE_UNIQUE, AesGcmV1.SUPPLY_AAD_PREFIX)
        unique = details.optional_binary(AesGcmV1.AAD_FILE_UNIQUE)
        if unique is None or len(unique) != AAD_FILE_UNIQUE_LENGTH:
            # Of another length it could take up the end of another file's AAD prefix.
            raise FormatError(f"its aad_file_unique does not have {AAD_FILE_UNIQUE_LENGTH} bytes, so nothing binds its modules to the file")

        prefix = details.optional_binary(AesGcmV1.AAD_PREFIX)

        return cls(ctr, unique, prefix, details.flag(AesGcmV1.SUPPLY_AAD_PREFIX))

    def encode(self) -> Struct:
        """The union, as `decode` reads it."""
        details = Struct()
        if self.aad_prefix is not None:
            details.set(AesGcmV1.AAD_PREFIX, thrift.BINARY, self.aad_prefix)
        details.set(AesGcmV1.AAD_FILE_UNIQUE, thrift.BINARY, self.aad_file_unique)
        if self.supply_aad_prefix:
            details.set(AesGcmV1.SUPPLY_AAD_PREFIX, thrift.TRUE, True)
        union = Struct()
        union.set(EncryptionAlgorithm.AES_GCM_CTR_V1 if self.ctr else EncryptionAlgorithm.AES_GCM_V1, thrift.STRUCT, details)

        return union

    def admit(self, keys: FileKeys, location: str) -> bytes:
        """Return AAD prefix | aad_file_unique, the prefix stored in the file or supplied by the caller.

        Raises:
            TamperedFileError: the keys do not accept the algorithm, or another AAD prefix is expected.
            ConfigurationError: a caller who gave keys of his own did not give the AAD prefix that the file was written with.
        """
        # The algorithm is plaintext: whoever writes storage could rename AES_GCM_V1 to the one that authenticates no page.
        if self.ctr and not keys.accepts_ctr:
            raise TamperedFileError(location, _NOT_ACCEPTED_IN_A_TABLE if keys.of_a_table else _NOT_ASKED_FOR)

        supplied = keys.aad_prefix
        if self.aad_prefix is None:
            if self.supply_aad_prefix and not supplied:
                if keys.of_a_table:
                    raise TamperedFileError(location, "says it was written with an AAD prefix, where none is expected")
                raise ConfigurationError(f"{location}: written with an AAD prefix that is not stored in the file: supply it as aad_prefix")
            if supplied and not self.supply_aad_prefix:
                raise TamperedFileError(location, "says it was written without an AAD prefix, where one is expected")

            return supplied + self.aad_file_unique

        if supplied and supplied != self.aad_prefix:
            raise TamperedFileError(location, "stores another AAD prefix than the one expected: this is another file")
        # A stored prefix binds a file to no place: whoever exchanges the file exchanges the prefix with it.
        if keys.strict and not supplied:
            raise TamperedFileError(location, "stores an AAD prefix, where none is expected")

        return self.aad_prefix + self.aad_file_unique


@dataclass(frozen=True)
class StoredFooter:
    """A footer as it lies in the file, not decrypted yet. Offsets are bytes from the start of the file.

    Attributes:
        start: where FileCryptoMetaData begins, or FileMetaData if that is in the clear.
        module_start: where the footer module begins; as `start` when it is in the clear.
        end: where the length field begins.
        stored: the encrypted module, or FileMetaData in the clear.
        algorithm: None in a plaintext file.
        key_metadata: of the footer key.
        signature: of a footer in the clear.
    """

    location: str
    start: int
    module_start: int
    end: int
    stored: bytes
    algorithm: Algorithm | None
    key_metadata: bytes | None
    signature: bytes | None

    @property
    def is_encrypted(self) -> bool:
        return self.algorithm is not None and self.signature is None

    def open(self, cipher: ModuleCipher | None) -> Struct:
        """Return FileMetaData, authenticated if there is a cipher. Without one the footer must be in the clear."""
        if self.is_encrypted and cipher is not None:
            decrypted = cipher.decrypt(FOOTER_SUFFIX, memoryview(self.stored), "the footer")
            with described(self.location, "the footer"):
                return thrift.decode_padded(decrypted, FILE_META_DATA_SHAPE)

        if self.signature is not None and cipher is not None:
            cipher.check_signature(self.stored, self.signature)
        with described(self.location, "the footer"):
            return thrift.decode(self.stored, FILE_META_DATA_SHAPE)


def read_footer(source: Source, *, of_a_table: bool = False) -> StoredFooter:
    """Find the footer and what decrypting it takes. Reads the first bytes too: both magics must say the same.

    Args:
        source: the file.
        of_a_table: an authenticated layer above says that it is a Parquet file, so if it is none it was exchanged: TamperedFileError.
    """
    location = source.location
    if source.length < MAGIC_LENGTH + TAIL_LENGTH:
        raise _no_parquet_file(source, f"has {source.length} bytes, too few for a Parquet file", of_a_table)

    end = source.length - TAIL_LENGTH
    guess_start = max(0, source.length - END_GUESS)
    last = source.read_at(guess_start, source.length - guess_start)
    length, tail = _TAIL.unpack(last[-TAIL_LENGTH:])
    head = bytes(last[:MAGIC_LENGTH] if guess_start == 0 else source.read_at(0, MAGIC_LENGTH))
    if tail not in _MAGICS:
        raise _no_parquet_file(source, f"ends with {tail!r}, as no Parquet file does", of_a_table)
    if head != tail:
        raise TamperedFileError(location, f"begins with {head!r} and ends with {tail!r}: the same magic must be at both ends")
    if length > end - MAGIC_LENGTH:
        raise TamperedFileError(location, f"says its footer has {length} bytes, of {end - MAGIC_LENGTH} that there are")

    start = end - length
    stored = bytes(last[start - guess_start : -TAIL_LENGTH] if start >= guess_start else source.read_at(start, length))

    return encrypted_footer(location, start, stored) if tail == ENCRYPTED_MAGIC else _in_the_clear(location, start, stored)


def write_footer(
    sink: Sink, metadata: Struct, algorithm: Algorithm | None, cipher: ModuleCipher | None, key_metadata: bytes | None, plaintext: bool
) -> None:
    """Write the end of a file: plain without an algorithm and cipher, signed if `plaintext`, else encrypted."""
    start = sink.position
    if algorithm is None or cipher is None:
        sink.write(plain_end(metadata))
        return

    if plaintext:
        # Before it is encoded, so that the signature covers the algorithm too (section 5.5).
        metadata.set(FileMetaData.ENCRYPTION_ALGORITHM, thrift.STRUCT, algorithm.encode())
        if key_metadata is not None:
            metadata.set(FileMetaData.FOOTER_SIGNING_KEY_METADATA, thrift.BINARY, key_metadata)
        encoded = metadata.encode()
        sink.write(encoded + cipher.sign(encoded))
        magic = PLAIN_MAGIC
    else:
        crypto = Struct()
        crypto.set(FileCryptoMetaData.ENCRYPTION_ALGORITHM, thrift.STRUCT, algorithm.encode())
        if key_metadata is not None:
            crypto.set(FileCryptoMetaData.KEY_METADATA, thrift.BINARY, key_metadata)
        sink.write(crypto.encode())
        sink.write(cipher.encrypt(FOOTER_SUFFIX, metadata.encode()))
        magic = ENCRYPTED_MAGIC

    sink.write(_tail(sink.position - start, magic))


def plain_end(metadata: Struct) -> bytes:
    """All of a plaintext file that follows its last module."""
    encoded = metadata.encode()
    return encoded + _tail(len(encoded), PLAIN_MAGIC)


@contextmanager
def described(location: str, what: str) -> Iterator[None]:
    """Say in which file and module the bytes are that a FormatError from inside is about."""
    try:
        yield
    except FormatError as error:
        raise FormatError(f"{location}: {what} is malformed: {error}") from None


@contextmanager
def unauthenticated(location: str, what: str) -> Iterator[None]:
    """As `described`, for bytes that nobody vouches for: what cannot be read there was changed."""
    try:
        yield
    except FormatError as error:
        raise TamperedFileError(location, f"{what} is malformed: {error}") from None


def _no_parquet_file(source: Source, what: str, of_a_table: bool) -> FormatError | TamperedFileError:
    """A file that begins like a Parquet file was one and lost its end. Of any other file only a table can say that it was one."""
    head = bytes(source.read_at(0, min(source.length, HEAD_LENGTH)))
    if of_a_table or head[:MAGIC_LENGTH] in _MAGICS:
        return TamperedFileError(source.location, what)
    return FormatError(f"{source.location}: {looks_like(head)}: it is no Parquet file")


def _tail(length: int, magic: bytes) -> bytes:
    if length >= 2**31:
        raise ConfigurationError(f"the footer has {length} bytes, more than a Parquet file can say")
    return _TAIL.pack(length, magic)


def encrypted_footer(location: str, start: int, stored: bytes) -> StoredFooter:
    """Take apart what lies between the last module and the length field of a file with an encrypted footer.

    Args:
        location: names the file in errors.
        start: of FileCryptoMetaData in the file.
        stored: FileCryptoMetaData and the encrypted footer, nothing more.
    """
    with unauthenticated(location, "the file crypto metadata"):
        crypto, length = thrift.decode_at(stored, FILE_CRYPTO_META_DATA_SHAPE)
    if length == len(stored) and _has_offset_of_the_footer(crypto, start):
        raise FormatError(
            f"{location}: follows the early draft of Parquet Modular Encryption, of 2018, which readers of the specification do not open: "
            "decrypt it with the program that wrote it"
        )

    with unauthenticated(location, "the file crypto metadata"):
        algorithm = Algorithm.decode(crypto.struct(FileCryptoMetaData.ENCRYPTION_ALGORITHM))
        _refuse_unknown(crypto, FileCryptoMetaData.ENCRYPTION_ALGORITHM, FileCryptoMetaData.KEY_METADATA)
        key_metadata = crypto.optional_binary(FileCryptoMetaData.KEY_METADATA)
        # Arrow parses these bytes once more: in their canonical form it can find no other algorithm in them.
        if crypto.encode() != stored[:length]:
            raise FormatError("it is not encoded as Thrift encodes it")

    module = stored[length:]
    if module_length(module, len(module), "the footer", location) != len(module):
        raise TamperedFileError(location, "has bytes after its encrypted footer that do not belong to it")

    return StoredFooter(location, start, start + length, start + len(stored), module, algorithm, key_metadata, None)


def _has_offset_of_the_footer(crypto: Struct, start: int) -> bool:
    """In files of the drafts the footer stood before FileCryptoMetaData, which said where."""
    offsets = [crypto.fields[field_id].value for field_id in FileCryptoMetaData.OF_THE_EARLY_DRAFT if field_id in crypto]
    return any(type(offset) is int and MAGIC_LENGTH <= offset < start for offset in offsets)


def _refuse_unknown(struct: Struct, *known: int) -> None:
    """How a file is encrypted has to be understood whole: a field that we do not know may change what another one means."""
    unknown = struct.fields.keys() - set(known)
    if unknown:
        raise FormatError(f"it has fields that are not known here: {sorted(unknown)}")


def _in_the_clear(location: str, start: int, stored: bytes) -> StoredFooter:
    with unauthenticated(location, "the plaintext footer"):
        crypto, length = thrift.decode_at(stored, FOOTER_CRYPTO_SHAPE)
        union = crypto.optional_struct(FileMetaData.ENCRYPTION_ALGORITHM)
        algorithm = None if union is None else Algorithm.decode(union)
        key_metadata = crypto.optional_binary(FileMetaData.FOOTER_SIGNING_KEY_METADATA)

    signature = stored[length:]
    expected = 0 if algorithm is None else SIGNATURE_LENGTH
    if algorithm is not None and not signature:
        raise TamperedFileError(
            location, "has an unsigned plaintext footer: it was forged, or follows the early draft of the specification"
        )
    if len(signature) != expected:
        raise TamperedFileError(location, f"has {len(signature)} bytes after its plaintext footer, where a signature of {expected} belongs")

    end = start + len(stored)

    return StoredFooter(location, start, start, end, stored[:length], algorithm, key_metadata, signature if algorithm else None)


def read_checked_end(file: pa.NativeFile, length: int, key_metadata: StandardKeyMetadata, location: str) -> tuple[bytes, StoredFooter]:
    """Return all that follows the last module of a table's file, and the footer in it.

    One request, two where the footer is longer than 64 KiB.

    Args:
        file: the ciphertext.
        length: of the file in bytes, at least 8.
        key_metadata: of the file.
        location: names it in errors.
    """
    guess = min(length, END_GUESS)
    last = _read_at(file, length - guess, guess, location)
    footer_length, tail = _TAIL.unpack(last[-TAIL_LENGTH:])
    if tail != ENCRYPTED_MAGIC:
        raise foreign_end(_read_at(file, 0, MAGIC_LENGTH, location), tail, location)

    start = length - TAIL_LENGTH - footer_length
    if start < MAGIC_LENGTH:
        raise TamperedFileError(location, f"says its footer has {footer_length} bytes, of {length} in all")

    missing = footer_length + TAIL_LENGTH - guess
    end = last[-(footer_length + TAIL_LENGTH) :] if missing <= 0 else _read_at(file, start, missing, location) + last

    return end, _checked_footer(end[:-TAIL_LENGTH], start, key_metadata, location)


def foreign_end(head: bytes, tail: bytes, location: str) -> TamperedFileError | PlaintextRefusedError:
    """Return the error for a file of which one of these, or both, is not the magic of an encrypted Parquet file."""
    if head == tail == PLAIN_MAGIC:
        return PlaintextRefusedError(location, "is a plaintext Parquet file, where the table holds only encrypted ones")
    name, magic = ("begins", head) if head != ENCRYPTED_MAGIC else ("ends", tail)
    return TamperedFileError(location, f"{name} with {magic!r}, not with {ENCRYPTED_MAGIC!r} as an encrypted Parquet file does")


class EndThenFile(RefusingFileSystem):
    """A file system of one file, from which Arrow reads the footer out of checked bytes, and after `serve_file` everything else.

    Arrow keeps the footer that it has read with the fragment, and reads none again when it scans.

    Args:
        end: as `read_checked_end` returns it.
        file: the ciphertext.
    """

    def __init__(self, end: bytes, file: pa.NativeFile) -> None:
        super().__init__("this file system has one file, which is opened and nothing else")
        self._end: bytes | None = end
        self._file = file

    def serve_file(self) -> None:
        """Give the file itself from now on."""
        self._end = None

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self._file if self._end is None else pa.BufferReader(self._end)


def _checked_footer(stored: bytes, start: int, key_metadata: StandardKeyMetadata, location: str) -> StoredFooter:
    try:
        footer = encrypted_footer(location, start, stored)
    except FormatError as error:
        raise TamperedFileError(location, f"no table holds such a file: {error}") from error

    assert footer.algorithm is not None, "an encrypted footer has an algorithm"
    # Here, as Arrow believes whatever algorithm the file names.
    footer.algorithm.admit(FileKeys.of_table_file(key_metadata), location)
    return footer


def _read_at(file: pa.NativeFile, offset: int, length: int, location: str) -> bytes:
    try:
        data: bytes = file.read_at(length, offset)
    except OSError as error:
        reraise_naming(error, location)
    if len(data) != length:
        raise TamperedFileError(location, f"ends after {offset + len(data)} bytes, though it was longer when it was opened")
    return data


class FileCiphers:
    """The ciphers that decrypt one encrypted file: one for each key, made when it is first needed."""

    def __init__(self, footer: StoredFooter, keys: FileKeys) -> None:
        if footer.algorithm is None:
            raise PlaintextRefusedError(footer.location, "is a plaintext Parquet file, where an encrypted one is expected")

        self._footer = footer
        self._algorithm = footer.algorithm
        self._keys = keys
        # Before any key is used: the plaintext of the file names the algorithm, and the keys say which are accepted.
        self._aad_base = footer.algorithm.admit(keys, footer.location)
        self._of_columns: dict[tuple[tuple[str, ...], bytes | None], ModuleCipher] = {}

    @cached_property
    def footer_key(self) -> Secret:
        """Given by the caller, or retrieved."""
        return self._keys.find_footer_key(self._footer.key_metadata, self._footer.location)

    @cached_property
    def footer(self) -> ModuleCipher:
        """The cipher of the footer and of columns without a key of their own."""
        return self._cipher(self.footer_key, FOOTER_KEY_NAME)

    def column(self, path: tuple[str, ...], key_metadata: bytes | None) -> ModuleCipher:
        """The cipher of a column with a key of its own. KeyNotFoundError when the key is not there."""
        # By key metadata too, which each row group states for itself.
        cipher = self._of_columns.get((path, key_metadata))
        if cipher is None:
            key = self._keys.find_column_key(path, key_metadata, self._footer.location)
            cipher = self._of_columns[path, key_metadata] = self._cipher(key, f"the key of column {'.'.join(path)}")
        return cipher

    def accept_plain(self, path: tuple[str, ...]) -> None:
        """PlaintextRefusedError for a column in the clear that the keys do not accept."""
        self._keys.accept_plain(path, self._footer.location)

    def _cipher(self, key: Secret, name: str) -> ModuleCipher:
        location, ctr = self._footer.location, self._algorithm.ctr
        # A table's DEK comes from an authenticated manifest: where it opens nothing, the file is at fault and not the key.
        return ModuleCipher(key, name, self._aad_base, ctr, location, may_not_fit=not self._keys.of_a_table)


def keys_of_chunks(footer: StoredFooter, ciphers: FileCiphers) -> tuple[bytes, _Keys]:
    """Return the SHA-256 of the footer's plaintext, and what it says of each chunk's key.

    That is, in the order of the footer, whether a chunk has a key of its own; None: in the clear, or said in no known way.

    Raises:
        FormatError: the footer is none of Parquet.
        TamperedFileError: the footer does not authenticate.
    """
    # pyarrow's FileMetaData does not say under which key a column is, so the stored footer is opened once more.
    metadata = bytes(ciphers.footer.decrypt(FOOTER_SUFFIX, memoryview(footer.stored), "the footer"))
    # By the hash of the very bytes that were authenticated just now: of a footer that was exchanged, nothing is kept.
    digest = sha256(metadata).digest()
    if (known := _KEPT.find(digest)) is not None:
        return digest, known

    with described(footer.location, "the footer"):
        stored = stored_values(_listing_all(metadata), _KEY_OF_CHUNK)
    # Bytes are compared and not decoded: what a writer says in other bytes is left to the slow way.
    keys = tuple(False if key == _FOOTER_KEY else True if key.startswith(_OWN_KEY) else None for key in stored)
    _KEPT.keep(digest, keys, _BYTES_OF_ONE + 8 * len(keys), _MOST_BYTES)

    return digest, keys


def _listing_all(metadata: bytes) -> bytes:
    """Return the footer with the chunks of columns that it holds apart: they have keys too."""
    return with_columns_apart(decode_padded(metadata, FILE_META_DATA_SHAPE)).encode() if ENTRY in metadata else metadata
