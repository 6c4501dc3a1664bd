"""Parquet files that few writers write: with columns that the footer holds apart, and with an ordinal that the AAD has no room for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.parquet import FileKeys, thrift
from tablecrypt.parquet.layout import Span, plain_layout
from tablecrypt.parquet.module_writer import FileEncryption, ModularWriter, NewChunk, PlacedChunk, write_pages
from tablecrypt.parquet.modules import MAX_ORDINAL, ModuleOrdinals
from tablecrypt.parquet.protected.hidden_column_writer import ProtectedField, ProtectedParquetWriter
from tablecrypt.parquet.storage import Sink, open_source
from tablecrypt.parquet.thrift import RowGroup, Struct

_LOCATION: Final = "a file of the kit"
_WRAPPED: Final = -MAX_ORDINAL - 1


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


def with_wrapped_ordinal(rows: pa.Table, keys: FileKeys, random: Any) -> bytes:
    """A file whose row group is said to be number -32768, where a writer comes to that counts on from 32767 in two bytes."""
    plaintext, encrypted = io.BytesIO(), io.BytesIO()
    pq.write_table(rows, plaintext)
    writer = _CountsOn(Sink(encrypted), FileEncryption(keys, _LOCATION, random))
    with open_source(plaintext.getvalue(), _LOCATION) as source:
        writer.add(plain_layout(source))
    writer.finish()
    return encrypted.getvalue()


class _CountsOn(ModularWriter):
    def _write_pages(self, placed: PlacedChunk, column: int) -> NewChunk:
        ordinals = ModuleOrdinals(0, column, ".".join(placed.path))
        # It takes no such ordinal, in order that nobody writes one.
        object.__setattr__(ordinals, "row_group", _WRAPPED)
        return write_pages(self._sink, self._encryption.cipher(placed.path), placed, ordinals)

    def _row_group(self, old: Struct, placed: Sequence[PlacedChunk], chunks: list[NewChunk], span: Span) -> Struct:
        group = super()._row_group(old, placed, chunks, span)
        group.set(RowGroup.ORDINAL, thrift.I16, _WRAPPED)
        return group
