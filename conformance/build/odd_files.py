"""Parquet files that few writers write: with columns that the footer holds apart, and with an ordinal that the AAD has no room for."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.parquet import FileKeys, thrift
from tablecrypt.parquet.layout import Span, plain_layout
from tablecrypt.parquet.modules import ModuleOrdinals, ModuleType
from tablecrypt.parquet.protected.hidden_column_writer import ProtectedField, ProtectedParquetWriter
from tablecrypt.parquet.storage import Sink, open_source
from tablecrypt.parquet.structs import RowGroup
from tablecrypt.parquet.thrift import Struct
from tablecrypt.parquet.writing import FileEncryption, ModularWriter, NewChunk, PlacedChunk, write_pages

_LOCATION: Final = "a file of the kit"
AFTER_THE_LAST: Final = -(2**15)
"""The ordinal to which such a writer comes after 32767."""


def with_columns_apart(rows: pa.Table, column: str, key: StandardKeyMetadata, column_key: bytes) -> bytes:
    """A file as a table with a protected column has it. The column's own name has the first letters of its values."""
    number = rows.column_names.index(column)
    fields = [field.with_metadata({"PARQUET:field_id": str(each)}) for each, field in enumerate(rows.schema, 1)]
    protected = ProtectedField(number + 1, Secret(column_key), lambda _: b"of the column", lambda _, values: first_letters(values))
    sink = io.BytesIO()
    writer = ProtectedParquetWriter(sink, pa.schema(fields), key, [protected], compression="zstd")
    writer.write(rows.cast(pa.schema(fields)), rows.num_rows)
    writer.close()
    return sink.getvalue()


def first_letters(values: pa.Array) -> pa.Array:
    """Of texts."""
    return pc.utf8_slice_codeunits(values, 0, 1)


def with_wrapped_ordinals(plaintext: bytes, keys: FileKeys, random: Callable[[int], bytes], row_group: int = 0) -> bytes:
    """A file of a writer that counts on in two bytes, so that -32768 comes after 32767.

    Args:
        plaintext: the Parquet file that is encrypted, of one row group.
        keys: what it is encrypted with.
        random: gives nonces and the random part of the AAD.
        row_group: the ordinal of its row group.
    """
    encrypted = io.BytesIO()
    writer = _Wrapping(Sink(encrypted), FileEncryption(keys, _LOCATION, random), row_group)
    with open_source(plaintext, _LOCATION) as source:
        writer.add(plain_layout(source))
    writer.finish()
    return encrypted.getvalue()


@dataclass(frozen=True, slots=True)
class _WrappingOrdinals(ModuleOrdinals):
    def __post_init__(self) -> None:
        """It takes what ModuleOrdinals refuses."""

    def suffix(self, module_type: ModuleType, page: int = 0) -> bytes:
        first = ModuleOrdinals.suffix(self, module_type)
        return first[:-2] + struct.pack("<H", page % 2**16) if module_type.has_page else first


class _Wrapping(ModularWriter):
    def __init__(self, sink: Sink, encryption: FileEncryption, row_group: int) -> None:
        super().__init__(sink, encryption)
        self._ordinal = row_group

    def _write_pages(self, placed: PlacedChunk, column: int) -> NewChunk:
        ordinals = _WrappingOrdinals(self._ordinal, column, ".".join(placed.path))
        return write_pages(self._sink, self._encryption.cipher(placed.path), placed, ordinals)

    def _row_group(self, old: Struct, placed: Sequence[PlacedChunk], chunks: list[NewChunk], span: Span) -> Struct:
        group = super()._row_group(old, placed, chunks, span)
        group.set(RowGroup.ORDINAL, thrift.I16, self._ordinal)
        return group
