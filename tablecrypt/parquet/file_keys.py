"""FileKeys: the keys of one Parquet file, what each is for, and how the file is protected with them.

    key of a column    the entry of column_keys for its dotted leaf path ("l.list.element"), else for the nearest group around it ("l");
                       without one, the footer key. Only a column named in plaintext_columns stays in the clear.
    on reading         the file says which key each column needs. A key given here is used; otherwise the key retriever is asked with the
                       key metadata that the file stores beside the column or the footer. Keys that the file does not need are ignored, and
                       so are store_aad_prefix and plaintext_footer: the file says those, too. It does not decide whether its content is
                       authenticated: AES_GCM_CTR_V1 and columns in the clear are read where algorithm and plaintext_columns ask for them.
    AAD prefix         b"" for none. One that the file stores must equal the one given here, if any.

Keys are Secrets from here on: no message, repr or pickle shows them.

Raises ConfigurationError for what cannot be used, KeyNotFoundError for a key that is not there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tablecrypt.arguments import checked_arguments, described, names_of
from tablecrypt.crypto.aes_gcm import KEY_LENGTHS
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError, KeyNotFoundError, PlaintextRefusedError

AES_GCM_V1: Final = "AES_GCM_V1"
AES_GCM_CTR_V1: Final = "AES_GCM_CTR_V1"
ALGORITHMS: Final = (AES_GCM_V1, AES_GCM_CTR_V1)
FOOTER_KEY_NAME: Final = "the footer key"

KeyRetriever = Callable[[bytes], Secret | bytes]
"""Finds a key by the key metadata that a file stores with it. Raises KeyNotFoundError, or what its key service raises."""

KeyByPath = Callable[[tuple[str, ...], bytes | None], Secret]
"""Finds the key of a hidden column, by its path in the file and its key metadata."""


@dataclass(frozen=True)
class EncryptingKey:
    """What a column is encrypted with: its own key, stored with this key metadata, or the footer key."""

    key: Secret
    name: str
    is_footer_key: bool
    key_metadata: bytes | None = None


class FileKeys:
    """The keys of one Parquet file: for the footer, for columns, and what a reader accepts.

    Args:
        footer_key: 16, 24 or 32 bytes; for the footer, and for the columns without a key of their own. None: the retriever's.
        column_keys: keys by column.
        aad_prefix: begins the AAD of each module, so that no file can replace another.
        store_aad_prefix: write the prefix into the file, where readers find it.
        algorithm: AES_GCM_V1, or AES_GCM_CTR_V1, which leaves the pages' bodies without authentication; on reading this accepts both.
        plaintext_footer: sign the footer instead of encrypting it; readers without keys see the schema and the plain columns.
        plaintext_columns: columns to leave in the clear: a list of names. One name alone is refused, as text is more often a slip there.
        footer_key_metadata: stored with the footer, for a reader's key retriever.
        column_key_metadata: the same by column; only for columns in column_keys.
        key_retriever: used on reading.
        file_length: how long the encrypted file is, from a place that storage cannot change; another length is refused.
        strict: on reading, refuse what is used without authentication and was not asked for: AES_GCM_CTR_V1, columns in the clear that
            plaintext_columns does not name, and a stored AAD prefix that was not also given here. False: the file decides, and so
            does anyone who can write it.
    """

    @checked_arguments(but=("footer_key", "plaintext_columns"))
    def __init__(
        self,
        footer_key: Secret | bytes | None = None,
        column_keys: Mapping[str, Secret | bytes] | None = None,
        aad_prefix: bytes = b"",
        store_aad_prefix: bool = False,
        algorithm: str = AES_GCM_V1,
        plaintext_footer: bool = False,
        *,
        plaintext_columns: Collection[str] = (),
        footer_key_metadata: bytes | None = None,
        column_key_metadata: Mapping[str, bytes] | None = None,
        key_retriever: KeyRetriever | None = None,
        file_length: int | None = None,
        strict: bool = True,
    ) -> None:
        self.footer_key = None if footer_key is None else _secret(footer_key, FOOTER_KEY_NAME)
        self.column_keys = {name: _secret(key, _name_of(name)) for name, key in (column_keys or {}).items()}
        self.aad_prefix = aad_prefix
        self.store_aad_prefix = store_aad_prefix
        self.algorithm = algorithm
        self.plaintext_footer = plaintext_footer
        self.plaintext_columns = frozenset(_listed(plaintext_columns))
        self.footer_key_metadata = footer_key_metadata
        self.column_key_metadata = dict(column_key_metadata or {})
        self.key_retriever = key_retriever
        self.file_length = file_length
        self.strict = strict
        self.of_a_table = False
        self._hidden_key: KeyByPath | None = None
        self._check()

    @classmethod
    def of_table_file(cls, key_metadata: StandardKeyMetadata, hidden_key: KeyByPath | None = None) -> FileKeys:
        """The keys of a data file of an Iceberg table: one key for all of it, an AAD prefix that is not stored, nothing in the clear.

        Args:
            key_metadata: of the file.
            hidden_key: finds the keys of protected columns, where the table has any.
        """
        keys = cls(key_metadata.encryption_key, aad_prefix=key_metadata.aad_prefix, file_length=key_metadata.file_length)
        keys.of_a_table = True
        keys._hidden_key = hidden_key
        return keys

    def __repr__(self) -> str:
        columns = ", ".join(sorted(self.column_keys))
        return f"FileKeys({self.footer_key!r}, columns with keys of their own: {columns or 'none'}, {self.algorithm})"

    @property
    def ctr(self) -> bool:
        """Whether pages' bodies are written without authentication."""
        return self.algorithm == AES_GCM_CTR_V1

    @property
    def accepts_ctr(self) -> bool:
        """Whether a file may be read whose pages' bodies are not authenticated."""
        return self.ctr or not self.strict

    def for_inspection(self) -> FileKeys:
        """Return the same keys for looking at how a file is encrypted, where nothing is refused for being as its writer chose it.

        A file of a table has no such choice: its keys stay as strict as they are.
        """
        if self.of_a_table:
            return self
        lenient = copy.copy(self)
        lenient.strict = False
        return lenient

    def required_footer_key(self) -> Secret:
        """The footer key for writing. ConfigurationError when there is none, or it is all zeros."""
        if self.footer_key is None:
            raise ConfigurationError("writing an encrypted Parquet file takes a footer_key: it encrypts or signs the footer")
        return _writing(self.footer_key, FOOTER_KEY_NAME)

    def column_key(self, path: tuple[str, ...]) -> EncryptingKey | None:
        """With what a written column is encrypted; None: it stays in the clear."""
        for name in _names_of(path):
            if name in self.plaintext_columns:
                return None
            if name in self.column_keys:
                return EncryptingKey(
                    _writing(self.column_keys[name], _name_of(name)), _name_of(name), False, self.column_key_metadata.get(name)
                )

        # A column that no argument names is encrypted: pyarrow's C++ would leave it in the clear without a word.
        return EncryptingKey(self.required_footer_key(), FOOTER_KEY_NAME, True)

    def accept_plain(self, path: tuple[str, ...], location: str) -> None:
        """PlaintextRefusedError for a column in the clear that is not accepted on reading."""
        # Whatever plaintext_columns names: an authenticated manifest vouches for every byte of a table's file.
        if self.of_a_table:
            raise PlaintextRefusedError(
                location,
                f"has column {'.'.join(path)} in the clear, which nothing authenticates; in a table's file every column is encrypted. Read "
                "the file with tablecrypt.parquet.read_table, where plaintext_columns names the column, and append the rows to the table",
            )

        if self.strict and not any(name in self.plaintext_columns for name in _names_of(path)):
            raise PlaintextRefusedError(location, f"column {'.'.join(path)} is in the clear, and plaintext_columns does not name it")

    def check_columns(self, paths: Iterable[tuple[str, ...]]) -> None:
        """ConfigurationError when a name stands for no column of the file, or for several: a column would be under the wrong key."""
        known: dict[str, set[tuple[str, ...]]] = {}
        for path in paths:
            for node in _nodes_of(path):
                known.setdefault(".".join(node), set()).add(node)

        for name in sorted(set(self.column_keys) | self.plaintext_columns):
            if name not in known:
                raise ConfigurationError(f"the file has no column {name!r}, which column_keys or plaintext_columns names")
            # A column "s.a" beside a struct "s" with a field "a": the key meant for one would be the other's, or both stay in the clear.
            if len(known[name]) > 1:
                raise ConfigurationError(
                    f"{name!r} in column_keys or plaintext_columns is the name of a column and of a field in a struct: rename one of them"
                )

    @property
    def skips_hidden_columns(self) -> bool:
        """Whether they are those of a table's file without the keys of its protected columns."""
        return self.of_a_table and self._hidden_key is None

    def find_footer_key(self, key_metadata: bytes | None, location: str) -> Secret:
        """The footer key for reading. KeyNotFoundError when there is none."""
        if self.footer_key is not None:
            return self.footer_key
        return self._retrieve(key_metadata, FOOTER_KEY_NAME, location)

    def find_column_key(self, path: tuple[str, ...], key_metadata: bytes | None, location: str) -> Secret:
        """The key of a column that has its own, for reading. KeyNotFoundError when there is none; FormatError in a table's file."""
        if self._hidden_key is not None:
            return self._hidden_key(path, key_metadata)

        if self.of_a_table:
            raise FormatError(
                f"{location}: column {'.'.join(path)} is encrypted with a key of its own, and a table keeps one key for each file. Read "
                "the file with tablecrypt.parquet.read_table and all of its keys and append the rows to the table, or bring it under one "
                "key with tablecrypt.parquet.reencrypt"
            )

        for name in _names_of(path):
            if name in self.column_keys:
                return self.column_keys[name]
        return self._retrieve(key_metadata, _name_of(".".join(path)), location)

    def _retrieve(self, key_metadata: bytes | None, name: str, location: str) -> Secret:
        if self.key_retriever is None:
            raise KeyNotFoundError(f"{location}: {name} is needed, and neither it nor a key retriever was given")
        if key_metadata is None:
            raise KeyNotFoundError(f"{location}: {name} is needed, and the file stores no key metadata to retrieve it by")
        return _secret(self.key_retriever(key_metadata), name)

    def _check(self) -> None:
        if self.footer_key is None and not self.column_keys and self.key_retriever is None:
            raise ConfigurationError(
                "FileKeys has no key: give a footer_key of 16, 24 or 32 bytes; to read, column_keys or a key_retriever"
            )
        if self.algorithm not in ALGORITHMS:
            raise ConfigurationError(f"algorithm is {' or '.join(ALGORITHMS)}, not {self.algorithm!r}")
        if self.store_aad_prefix and not self.aad_prefix:
            raise ConfigurationError("store_aad_prefix is set, and there is no aad_prefix to store")

        both = sorted(self.plaintext_columns & set(self.column_keys))
        if both:
            raise ConfigurationError(f"column {both[0]!r} is in column_keys and in plaintext_columns: it can be in one of them")

        keyless = sorted(set(self.column_key_metadata) - set(self.column_keys))
        if keyless:
            raise ConfigurationError(f"column_key_metadata names {keyless[0]!r}, which column_keys has no key for")
        for name, metadata in self.column_key_metadata.items():
            # It would be written as it is, into a footer that nobody can parse any more.
            if not isinstance(metadata, bytes):
                raise ConfigurationError(f"the key metadata of column {name!r} is {described(metadata)}; it must be bytes")


def required_keys(keys: object) -> FileKeys:
    """Return the keys. ConfigurationError for anything else, None above all: it never stands for a file in the clear."""
    if not isinstance(keys, FileKeys):
        given = "keys=None" if keys is None else f"keys of type {type(keys).__name__}"
        raise ConfigurationError(
            f"{given}: give parquet.FileKeys(...); a plaintext Parquet file is written by pyarrow, or by parquet.decrypt"
        )
    return keys


def _listed(columns: object) -> tuple[str, ...]:
    """Return the names that plaintext_columns lists. ConfigurationError for text: what stays in the clear is said in one way."""
    if isinstance(columns, str):
        raise ConfigurationError('plaintext_columns is a str; give a list of the columns that stay in the clear, such as ["name"]')
    return names_of("plaintext_columns", columns)


def _secret(key: object, name: str) -> Secret:
    if not isinstance(key, Secret | bytes | bytearray):
        raise ConfigurationError(f"{name} is a {type(key).__name__}; a key is bytes or a Secret")
    secret = key if isinstance(key, Secret) else Secret(bytes(key))
    if len(secret) not in KEY_LENGTHS:
        raise ConfigurationError(f"{name} has {len(secret)} bytes; AES keys have 16, 24 or 32")
    return secret


def _writing(key: Secret, name: str) -> Secret:
    """Return a key to write under. Files under a key of zeros, such as published examples, can still be read."""
    if key.is_zero:
        raise ConfigurationError(f"{name} is all zeros, which everybody can guess: make one with secrets.token_bytes(32)")
    return key


def _names_of(path: tuple[str, ...]) -> list[str]:
    """What a leaf column can be called: its dotted path, then that of each group around it, the nearest first."""
    return [".".join(node) for node in _nodes_of(path)]


def _nodes_of(path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The paths of a leaf column and of the groups around it, the nearest first."""
    return [path[:length] for length in range(len(path), 0, -1)]


def _name_of(column: str) -> str:
    return f"the key of column {column}"
