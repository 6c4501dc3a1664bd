"""The DEKs of a protected column in some files, for a reader who is to open these files and no other that the column's key would open.

A column key opens the column in every file of its table. So whom rows are shared with gets none, but an entry of `encryption-keys` with the
DEKs themselves. It has the id of the column key that the files name, so that everything which looks for that key finds it:

    entry      key-id = that of the column key; encrypted-by-id = a column KEK of the reader's;
               properties = {"tablecrypt.column-key": "<field id>", "tablecrypt.given-deks": "1"};
               encrypted-key-metadata = nonce (12) | records encrypted | tag (16), by AES-GCM; AAD as in column_key_ring.py
    record     digest (16) | length of the DEK (1) | DEK; in the order of the digests
    digest     the first 16 bytes of SHA-256 of: field id (4, big endian) | SHA-256 of the column's nodes in the footer (32) | length of key
               metadata (4, big endian) | key metadata, as the footer stores it | the file's AAD prefix

The digest binds what the AAD under the column key binds: the DEK of another file, of another column, or beside a footer that says another
type, is not found. Whoever gives a DEK has opened it with the column key, which checked the same.

Raises TamperedFileError for a file that is not among them, FormatError for records that are none.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn, Self

from tablecrypt._bytes import ByteReader
from tablecrypt.crypto.aes_gcm import KEY_LENGTHS
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.keys.bound_schemas import BoundSchema

_DIGEST_LENGTH: Final = 16


@dataclass(frozen=True)
class FileColumn:
    """A hidden column of one file, as its footer says.

    Attributes:
        field_id: the column's.
        key_metadata: how the DEK is wrapped.
        aad_prefix: the file's.
        schema: what the footer says of the column.
    """

    field_id: int
    key_metadata: bytes
    aad_prefix: bytes
    schema: BoundSchema

    @property
    def digest(self) -> bytes:
        """By what its DEK is found."""
        numbers = struct.pack(">I32sI", self.field_id, self.schema.digest(), len(self.key_metadata))
        return hashlib.sha256(numbers + self.key_metadata + self.aad_prefix).digest()[:_DIGEST_LENGTH]


@dataclass(frozen=True)
class GivenDeks:
    """The DEKs of one column in the files that name one column key, by digest. Never pickled."""

    deks: Mapping[bytes, Secret] = field(repr=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("GivenDeks are never pickled: they hold keys in the clear")

    @classmethod
    def of(cls, found: Iterable[tuple[FileColumn, Secret]]) -> Self:
        """Return the DEKs of these hidden columns."""
        return cls({column.digest: dek for column, dek in found})

    @classmethod
    def decode(cls, records: Secret) -> Self:
        """Read the records of an entry."""
        reader, deks = ByteReader(records.reveal(), "a list of column DEKs"), dict[bytes, Secret]()
        while reader.left:
            digest, length = reader.take(_DIGEST_LENGTH), reader.number(1)
            if length not in KEY_LENGTHS:
                raise FormatError(f"a list of column DEKs holds a key of {length} bytes")
            deks[digest] = Secret(reader.take(length))
        return cls(deks)

    def encode(self) -> Secret:
        """Return the records."""
        records = (digest + bytes([len(self.deks[digest])]) + self.deks[digest].reveal() for digest in sorted(self.deks))
        return Secret(b"".join(records))

    def dek(self, column: FileColumn) -> bytes:
        """Return the DEK of a hidden column."""
        dek = self.deks.get(column.digest)
        if dek is None:
            raise TamperedFileError(
                column.schema.location,
                f"the DEK of the column with field id {column.field_id} is not among those that were given: the file is none of those that "
                "were shared with this column, or its footer was changed",
            )
        return dek.reveal()
