"""Attacks on how the bytes of a protected column are read: a footer that says another type, by whoever has the table's key."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable
from typing import Final, cast

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType, IntegerType, ListType, LongType, NestedField, StringType, TimestampType

from tablecrypt import maintenance as m
from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, AesGcm
from tablecrypt.errors import AuthenticationError, TamperedFileError
from tablecrypt.keys.column_keys import key_id_in
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet import thrift
from tablecrypt.parquet.protected.hidden_columns import hidden_field_id
from tablecrypt.parquet.protected.protected_layout import ProtectedLayout
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.structs import ColumnChunk, ColumnCryptoMetaData, EncryptionWithColumnKey, FileMetaData, SchemaElement
from tablecrypt.parquet.thrift import Struct
from tablecrypt.table.protection.policy import column_keys
from tablecrypt.table.table import EncryptedTable
from tests.support.hidden_column_files import ProtectedFile
from tests.support.protected_tables import COLUMN_KEY, TABLE_KEY, Clients
from tests.support.tables import data_files, metadata_of, path_of

FIELD: Final = 2
TIMES: Final = [dt.datetime(1970, 1, 1, 9), dt.datetime(2020, 2, 1)]
VALUES: Final[dict[str, tuple[IcebergType, list[object]]]] = {
    "timestamp": (TimestampType(), list(TIMES)),
    "decimal": (DecimalType(9, 2), ["1.23", "4.56"]),
    "int": (IntegerType(), [1, -2]),
    "text": (StringType(), ["a", "b"]),
    "long": (LongType(), [1, 2]),
    "list": (ListType(3, StringType(), element_required=True), [["a"], []]),
}
"""By name, a type and values of it."""


def table_of(both: Clients, name: str) -> EncryptedTable:
    kind, values = VALUES[name]
    schema = Schema(NestedField(1, "id", LongType()), NestedField(FIELD, "secret", kind))
    properties = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": f"{COLUMN_KEY}: secret"}
    table = cast("EncryptedTable", both.payroll.create_table("db.typed", schema, properties=properties))
    arrow = table.schema().as_arrow()
    table.append(pa.table({"id": [1, 2], "secret": pa.array(values).cast(arrow.field("secret").type)}, schema=arrow))
    return table


def rewritten_footer(table: EncryptedTable, change: Callable[[Struct, list[list[Struct]]], None]) -> DataFile:
    """Write the footer of the table's file again, as whoever has the table's key does it."""
    (file,) = data_files(table)
    path = path_of(file.file_path)
    other = ProtectedFile.__new__(ProtectedFile)
    other.stored, other.key_metadata = path.read_bytes(), key_metadata_of(file)
    changed = other.changed(change)
    assert len(changed) == file.file_size_in_bytes, "the length does not tell"
    path.write_bytes(changed)
    return file


def in_version_1(table: EncryptedTable) -> None:
    """Make the key metadata of the file's hidden columns that of files from before the type was bound to it."""
    (file,) = data_files(table)
    io, metadata, prefix = table.io, metadata_of(table), key_metadata_of(file).aad_prefix
    keys = column_keys(metadata, io)
    found = ProtectedLayout(source_of(path_of(file.file_path).read_bytes()), key_metadata_of(file)).stored()

    def change(_: Struct, groups: list[list[Struct]]) -> None:
        for chunks in groups:
            for chunk in chunks:
                crypto = chunk.struct(ColumnChunk.CRYPTO_METADATA)
                if ColumnCryptoMetaData.WITH_COLUMN_KEY not in crypto:
                    continue
                own = crypto.struct(ColumnCryptoMetaData.WITH_COLUMN_KEY)
                stored = own.binary(EncryptionWithColumnKey.KEY_METADATA)
                dek = keys.unwrap(FIELD, stored, prefix, found.schemas[FIELD], 1)
                key_id = key_id_in(stored).encode()
                column_key = io.manager.columns.column_key(metadata.key_ring, key_id.decode(), FIELD, (COLUMN_KEY,))
                header = bytes([1, len(key_id)]) + key_id
                aad = b"tablecrypt column DEK" + header + FIELD.to_bytes(4, "big") + prefix
                own.set(
                    EncryptionWithColumnKey.KEY_METADATA,
                    thrift.BINARY,
                    header + AesGcm(column_key).encrypt(secrets.token_bytes(NONCE_LENGTH), dek, aad),
                )

    rewritten_footer(table, change)


def elements_of(footer: Struct) -> list[Struct]:
    """The nodes of the protected column: of placeholder and hidden column."""
    found: list[Struct] = []
    ours = False
    for element in footer.structs(FileMetaData.SCHEMA)[1:]:
        name = element.binary(SchemaElement.NAME).decode()
        if name in ("id", "secret") or hidden_field_id(name) is not None:
            ours = name != "id"
        if ours:
            found.append(element)
    return found


def replace_logical(old: bytes, new: bytes, converted: int | None = None) -> Callable[[Struct, list[list[Struct]]], None]:
    def change(footer: Struct, _: list[list[Struct]]) -> None:
        for element in elements_of(footer):
            field = element.fields[SchemaElement.LOGICAL_TYPE]
            assert isinstance(field.value, bytes) and field.value.count(old) == 1
            field.value = field.value.replace(old, new)
            if converted is not None:
                element.set(SchemaElement.CONVERTED_TYPE, thrift.I32, converted)

    return change


def to_millis(footer: Struct, groups: list[list[Struct]]) -> None:
    replace_logical(b"\x1c\x2c\x00", b"\x1c\x1c\x00", 9)(footer, groups)


def in_utc(footer: Struct, groups: list[list[Struct]]) -> None:
    replace_logical(b"\x8c\x12", b"\x8c\x11")(footer, groups)


def scale_3(footer: Struct, groups: list[list[Struct]]) -> None:
    replace_logical(b"\x15\x04", b"\x15\x06")(footer, groups)
    for element in elements_of(footer):
        element.set(SchemaElement.SCALE, thrift.I32, 3)


def as_enum(footer: Struct, groups: list[list[Struct]]) -> None:
    replace_logical(b"\x1c", b"\x4c", 4)(footer, groups)


def other_levels(footer: Struct, _: list[list[Struct]]) -> None:
    """A required list of optional elements has the levels of an optional list of required ones."""
    for element in elements_of(footer):
        repetition = element.integer(SchemaElement.REPETITION_TYPE)
        element.set(SchemaElement.REPETITION_TYPE, thrift.I32, {0: 1, 1: 0}.get(repetition, repetition))


ATTACKS: Final = {
    "milliseconds for microseconds": ("timestamp", to_millis),
    "times of UTC": ("timestamp", in_utc),
    "another scale": ("decimal", scale_3),
    "an enum for text": ("text", as_enum),
    "a required list of optional elements": ("list", other_levels),
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_footer_that_says_another_type_is_refused_by_every_reader_with_the_right(both: Clients, attack: str, version: int) -> None:
    kind, change = ATTACKS[attack]
    table = table_of(both, kind)
    values = table.scan().to_arrow()["secret"].to_pylist()
    if version == 1:
        in_version_1(table)
        assert table.scan().to_arrow()["secret"].to_pylist() == values
        assert m.verify(table).is_good
    file = rewritten_footer(table, change)
    with pytest.raises(TamperedFileError):
        table.scan().to_arrow()
    with pytest.raises(AuthenticationError):
        m.reencrypt(table)
    assert [each.location for each in m.verify(table).bad] == [file.file_path]
