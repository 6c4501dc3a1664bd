"""Parquet files with protected columns of many types, and all keys that open them."""

from __future__ import annotations

import decimal
import io
import re
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Self

import pyarrow as pa

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, FormatError, KeyNotFoundError
from tablecrypt.keys.bound_schemas import BoundSchema
from tablecrypt.parquet import FileKeys, thrift
from tablecrypt.parquet.chunk_modules import decrypt_chunk
from tablecrypt.parquet.columns_apart import with_columns_apart
from tablecrypt.parquet.footer import FileCiphers, read_footer, write_footer
from tablecrypt.parquet.layout import encrypted_layout
from tablecrypt.parquet.modules import ModuleCipher
from tablecrypt.parquet.protected.hidden_column_reader import ColumnAccess
from tablecrypt.parquet.protected.hidden_column_writer import ProtectedField, ProtectedParquetWriter
from tablecrypt.parquet.protected.hidden_columns import hidden_name, without_hidden_columns
from tablecrypt.parquet.storage import Sink, source_of
from tablecrypt.parquet.structs import COLUMN_CHUNK_SHAPE, FileMetaData, KeyValue, RowGroup
from tablecrypt.parquet.thrift import Struct, structs_of
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile

ROWS: Final = 1000
SSN, ID, PERSON, NAME, EMAIL, PHONES, TAGS, PAID, NOTE = 1, 2, 3, 4, 5, 6, 8, 11, 12
PROTECTED: Final = (SSN, EMAIL, PHONES, TAGS, PAID, NOTE)
SECRET: Final = re.compile(rb"top-secret|\xd2\x02\x96\x49")

EXTENSION: Final = 32767
"""The id of the field that Parquet leaves to extensions of each structure."""


def field(name: str, kind: pa.DataType, field_id: int, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, {"PARQUET:field_id": str(field_id)})


SCHEMA: Final = pa.schema(
    [
        field("ssn", pa.string(), SSN, nullable=False),
        field("id", pa.int64(), ID),
        field("person", pa.struct([field("name", pa.string(), NAME), field("email", pa.string(), EMAIL)]), PERSON),
        field("phones", pa.list_(field("element", pa.string(), 7)), PHONES),
        field("tags", pa.map_(field("key", pa.string(), 9, nullable=False), field("value", pa.int64(), 10)), TAGS),
        field("paid", pa.decimal128(12, 2), PAID),
        field("note", pa.string(), NOTE),
    ]
)


def _row(number: int) -> dict[str, Any]:
    return {
        "ssn": f"top-secret-{number}",
        "id": number,
        "person": None if number % 5 == 0 else {"name": f"n{number}", "email": f"top-secret-{number}@x" if number % 3 else None},
        "phones": [f"top-secret-{number}", "top-secret"] if number % 4 else None,
        "tags": [(f"top-secret-{number}", number)] if number % 2 else None,
        "paid": decimal.Decimal(1234567890) / 100 if number % 7 else None,
        "note": f"top-secret {number % 3}",
    }


TABLE: Final = pa.Table.from_pylist([_row(number) for number in range(ROWS)], schema=SCHEMA)


class ProtectedFile:
    """A file with protected columns, and all keys that open it."""

    def __init__(
        self,
        table: pa.Table = TABLE,
        protected: tuple[int, ...] = PROTECTED,
        key_metadata: StandardKeyMetadata | None = None,
        row_group_size: int = 300,
        keys: dict[int, Secret] | None = None,
        **options: Any,
    ) -> None:
        self.key_metadata = key_metadata or StandardKeyMetadata.generate(16, secrets.token_bytes)
        self.keys = keys or {field_id: Secret(secrets.token_bytes(16)) for field_id in protected}
        fields = [self._protected(field_id) for field_id in protected]
        sink = pa.BufferOutputStream()
        writer = ProtectedParquetWriter(sink, table.schema, self.key_metadata, fields, **{"compression": "zstd", **options})
        writer.write(table, row_group_size)
        self.metadata, length = writer.close()
        self.stored = sink.getvalue().to_pybytes()
        assert len(self.stored) == length

    @classmethod
    def of(cls, stored: bytes, key_metadata: StandardKeyMetadata, keys: dict[int, Secret]) -> Self:
        """A file that is there already."""
        file = cls.__new__(cls)
        file.stored, file.key_metadata, file.keys = stored, key_metadata, keys
        return file

    def _protected(self, field_id: int) -> ProtectedField:
        mask = (lambda field, values: pa.array(["masked"] * len(values), field.type)) if field_id == NOTE else None
        return ProtectedField(field_id, self.keys[field_id], partial(self._stored_with, field_id, self.key_metadata.aad_prefix), mask)

    @staticmethod
    def _stored_with(field_id: int, aad_prefix: bytes, schema: BoundSchema) -> bytes:
        return b"%d|" % field_id + aad_prefix + schema.digest()

    def unwrap(self, field_id: int, key_metadata: bytes, aad_prefix: bytes, schema: BoundSchema) -> bytes:
        """As the key service does it: the key metadata is bound to the field, the file and the column's schema in it."""
        if key_metadata != self._stored_with(field_id, aad_prefix, schema):
            raise AuthenticationError(f"the key of column {field_id} is that of another file or column")
        if field_id not in self.keys:
            raise KeyNotFoundError(f"no key of column {field_id}")
        return self.keys[field_id].reveal()

    def open(self, *opened: int, stored: bytes | None = None, masks_of: tuple[int, ...] = (), **options: Any) -> UniformParquetFile:
        stored = self.stored if stored is None else stored
        key_metadata = self.key_metadata.with_file_length(len(stored))
        access = ColumnAccess(frozenset(self.keys), frozenset(opened), frozenset(masks_of), self.unwrap)
        return UniformParquetFile(pa.BufferReader(stored), key_metadata, "memory", access=access, **options)

    def read(self, columns: list[str], *opened: int, stored: bytes | None = None) -> pa.Table:
        return pa.Table.from_batches(self.open(*opened, stored=stored).batches(ReadRequest(columns)))

    @property
    def all_keys(self) -> FileKeys:
        keys = {hidden_name(field_id): key for field_id, key in self.keys.items()}
        return FileKeys(self.key_metadata.encryption_key, keys, self.key_metadata.aad_prefix)

    def opened_by_the_table_key(self) -> list[bytes]:
        """All that whoever has the table's key alone sees of the file: its footer, and chunks without keys of their own, in the clear."""
        keys = FileKeys(self.key_metadata.encryption_key, aad_prefix=self.key_metadata.aad_prefix)
        layout = encrypted_layout(source_of(self.stored), keys)
        visible = [chunk for chunk in layout.chunks() if not chunk.has_own_key]
        return [layout.metadata.encode(), *(part for chunk in visible for part in (chunk.metadata.encode(), bytes(decrypt_chunk(chunk))))]

    def changed(self, change: Callable[[Struct, list[list[Struct]]], None], *, listed: bool = False) -> bytes:
        """The file with another footer, as someone makes it who has the table's key: `change` gets the footer and its chunks.

        Hidden columns are apart in it, or listed among the others, as in files from before.
        """
        metadata = with_columns_apart(self.stored_footer())
        groups = metadata.structs(FileMetaData.ROW_GROUPS)
        chunks = [[thrift.decode(each, COLUMN_CHUNK_SHAPE) for each in group.deferred_structs(RowGroup.COLUMNS)] for group in groups]
        change(metadata, chunks)
        for group, its in zip(groups, chunks, strict=True):
            group.set(RowGroup.COLUMNS, thrift.LIST, [chunk.encode() for chunk in its])
        return self.with_footer(metadata if listed else self._as_stored(metadata))

    @staticmethod
    def _as_stored(metadata: Struct) -> Struct:
        try:
            return without_hidden_columns(metadata)
        except FormatError:
            # A schema that is no tree cannot be divided: such a footer can list all columns alone.
            return metadata

    def stored_footer(self) -> Struct:
        """What the table's key opens: the footer as any reader of Parquet finds it."""
        footer = read_footer(source_of(self.stored))
        return footer.open(FileCiphers(footer, FileKeys.of_table_file(self.key_metadata)).footer)

    def with_footer_as_long(self, metadata: Struct) -> bytes:
        """The file with this footer, padded so that the file is as long as it was: its table knows its length."""
        padded, entries = metadata.copy(), structs_of(metadata, FileMetaData.KEY_VALUE_METADATA)
        for length in range(len(self.stored) - len(self.with_footer(metadata)), 0, -1):
            padding = Struct()
            padding.set(KeyValue.KEY, thrift.BINARY, b"padding")
            padding.set(KeyValue.VALUE, thrift.BINARY, bytes(length))
            padded.set(FileMetaData.KEY_VALUE_METADATA, thrift.LIST, [*entries, padding])
            if len(changed := self.with_footer(padded)) == len(self.stored):
                return changed

        raise AssertionError("no padding fits")

    def with_footer(self, metadata: Struct) -> bytes:
        """The file with this footer, encrypted with the table's key."""
        footer = read_footer(source_of(self.stored))
        assert footer.algorithm is not None
        aad_base = self.key_metadata.aad_prefix + footer.algorithm.aad_file_unique
        cipher = ModuleCipher(self.key_metadata.encryption_key, "the footer key", aad_base, False, "memory", secrets.token_bytes)
        end = io.BytesIO()
        write_footer(Sink(end, footer.start), metadata, footer.algorithm, cipher, None, plaintext=False)
        changed: bytes = self.stored[: footer.start] + end.getvalue()
        return changed
