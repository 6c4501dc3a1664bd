"""How a file is written: which cipher seals each column, and what the footer says about it.

                                  encrypted footer                      plaintext footer
    column under the footer key   meta_data, crypto: footer key         stripped meta_data, crypto: footer key, sealed metadata
    column with its own key       crypto: column key, sealed metadata   stripped meta_data, crypto: column key, sealed metadata
    column in the clear           meta_data                             meta_data

"Stripped" is without statistics, size statistics, encoding statistics, key-value metadata and bloom filter: only what an older reader
needs to step over the column. Other readers expect the sealed metadata beside a plaintext footer under either key.

Specification: Apache Parquet, "Parquet Modular Encryption", sections 5.2 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tablecrypt.parquet import thrift
from tablecrypt.parquet.footer import ENCRYPTED_MAGIC, PLAIN_MAGIC, Algorithm, write_footer
from tablecrypt.parquet.keys import FOOTER_KEY_NAME, ColumnKey, FileKeys
from tablecrypt.parquet.modules import ModuleCipher, ModuleType, Place
from tablecrypt.parquet.storage import Sink
from tablecrypt.parquet.structures import ColumnChunk, ColumnCryptoMetaData, ColumnMetaData, EncryptionWithColumnKey
from tablecrypt.parquet.thrift import Struct

FILE_UNIQUE_LENGTH: Final = 8

_STRIPPED: Final = (
    ColumnMetaData.KEY_VALUE_METADATA,
    ColumnMetaData.STATISTICS,
    ColumnMetaData.ENCODING_STATS,
    ColumnMetaData.BLOOM_FILTER_OFFSET,
    ColumnMetaData.BLOOM_FILTER_LENGTH,
    ColumnMetaData.SIZE_STATISTICS,
    ColumnMetaData.GEOSPATIAL_STATISTICS,
)


class Sealing:
    """The protection of one new file. `Sealing(None, …)` leaves all of it in the clear.

    Args:
        keys: what each column is sealed with.
        location: names the file in errors.
        random: gives aad_file_unique and nonces.
    """

    def __init__(self, keys: FileKeys | None, location: str, random: Callable[[int], bytes]) -> None:
        self._keys = keys
        self._location = location
        self._random = random
        self._ciphers: dict[str, ModuleCipher] = {}
        self._algorithm: Algorithm | None = None
        if keys is not None:
            stored_prefix = keys.aad_prefix if keys.store_aad_prefix else None
            supply = bool(keys.aad_prefix) and not keys.store_aad_prefix
            self._algorithm = Algorithm(keys.ctr, random(FILE_UNIQUE_LENGTH), stored_prefix, supply)
            self._footer_cipher: ModuleCipher | None = self._cipher(ColumnKey(keys.required_footer_key(), FOOTER_KEY_NAME, True))
        else:
            self._footer_cipher = None

    @property
    def is_encrypted(self) -> bool:
        return self._keys is not None

    @property
    def magic(self) -> bytes:
        """The first bytes of the file."""
        return PLAIN_MAGIC if self._keys is None or self._keys.plaintext_footer else ENCRYPTED_MAGIC

    def check_columns(self, paths: list[tuple[str, ...]]) -> None:
        """ConfigurationError for keys of columns that the file does not have."""
        if self._keys is not None:
            self._keys.check_columns(paths)

    def cipher(self, path: tuple[str, ...]) -> ModuleCipher | None:
        """What seals the modules of a column; None: they stay in the clear."""
        column_key = self._column_key(path)
        return None if column_key is None else self._cipher(column_key)

    def put_metadata(self, chunk: Struct, metadata: Struct, place: Place, path: tuple[str, ...]) -> None:
        """Put the metadata of a column into its ColumnChunk, as the table above says."""
        column_key = self._column_key(path)
        if column_key is None or self._keys is None:
            chunk.set(ColumnChunk.META_DATA, thrift.STRUCT, metadata)
            return
        chunk.set(ColumnChunk.CRYPTO_METADATA, thrift.STRUCT, _crypto_metadata(column_key, metadata))
        if column_key.is_footer_key and not self._keys.plaintext_footer:
            chunk.set(ColumnChunk.META_DATA, thrift.STRUCT, metadata)
            return
        sealed = self._cipher(column_key).seal(place.suffix(ModuleType.COLUMN_METADATA), metadata.encode())
        chunk.set(ColumnChunk.ENCRYPTED_COLUMN_METADATA, thrift.BINARY, bytes(sealed))
        if self._keys.plaintext_footer:
            chunk.set(ColumnChunk.META_DATA, thrift.STRUCT, metadata.copy(without=_STRIPPED))

    def write_footer(self, sink: Sink, metadata: Struct) -> None:
        """Write all that follows the last module of a column."""
        key_metadata = None if self._keys is None else self._keys.footer_key_metadata
        in_the_clear = self._keys is None or self._keys.plaintext_footer
        write_footer(sink, metadata, self._algorithm, self._footer_cipher, key_metadata, in_the_clear)

    def _column_key(self, path: tuple[str, ...]) -> ColumnKey | None:
        return None if self._keys is None else self._keys.column_key(path)

    def _cipher(self, column_key: ColumnKey) -> ModuleCipher:
        cipher = self._ciphers.get(column_key.name)
        if cipher is None:
            assert self._keys is not None and self._algorithm is not None
            aad_base = self._keys.aad_prefix + self._algorithm.aad_file_unique
            cipher = ModuleCipher(column_key.key, column_key.name, aad_base, self._keys.ctr, self._location, self._random)
            self._ciphers[column_key.name] = cipher
        return cipher


def _crypto_metadata(column_key: ColumnKey, metadata: Struct) -> Struct:
    crypto = Struct()
    if column_key.is_footer_key:
        crypto.set(ColumnCryptoMetaData.WITH_FOOTER_KEY, thrift.STRUCT, Struct())
        return crypto
    own = Struct({EncryptionWithColumnKey.PATH_IN_SCHEMA: metadata.fields[ColumnMetaData.PATH_IN_SCHEMA]})
    if column_key.key_metadata is not None:
        own.set(EncryptionWithColumnKey.KEY_METADATA, thrift.BINARY, column_key.key_metadata)
    crypto.set(ColumnCryptoMetaData.WITH_COLUMN_KEY, thrift.STRUCT, own)
    return crypto
