"""The builder's writer of Parquet: Arrow writes each row group in the clear, into memory, and tablecrypt's module writer encrypts it.

Arrow itself would draw nonces that nothing can replace.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from conformance.build.fixed import FIXED
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.footer import PLAIN_MAGIC
from tablecrypt.parquet.layout import plain_layout
from tablecrypt.parquet.storage import Sink, open_source
from tablecrypt.parquet.thrift import Struct
from tablecrypt.parquet.uniform import check_writer_options
from tablecrypt.parquet.writing import FILE_UNIQUE_LENGTH, FileEncryption, ModularWriter

_LOCATION: Final = "a file of the kit"


class FixedParquetWriter:
    """What UniformParquetWriter is in the builder's process."""

    def __init__(self, sink: Any, schema: pa.Schema, key_metadata: StandardKeyMetadata, **options: Any) -> None:
        check_writer_options(options)
        self._schema, self._options = schema, {**options, "store_decimal_as_integer": True}
        self._file_unique = FIXED.randbytes(FILE_UNIQUE_LENGTH)
        keys = FileKeys(key_metadata.encryption_key, aad_prefix=key_metadata.aad_prefix)
        self._sink, self._counted = sink, Sink(sink)
        self._modules = ModularWriter(self._counted, FileEncryption(keys, _LOCATION, FIXED.randbytes, self._file_unique))
        self._add(schema.empty_table(), None)

    def aad_file_unique(self) -> bytes:
        return self._file_unique

    def write(self, table: pa.Table, row_group_size: int) -> None:
        for start in range(0, table.num_rows, row_group_size):
            self._add(table.slice(start, row_group_size), row_group_size)

    def close(self) -> tuple[pq.FileMetaData, int]:
        footers: list[bytes] = []

        def keep(footer: Struct) -> Struct:
            footers.append(footer.encode())
            return footer

        self._counted.position = self._sink.tell()
        length = self._modules.finish(keep)
        (footer,) = footers
        return pq.read_metadata(pa.BufferReader(PLAIN_MAGIC + footer + len(footer).to_bytes(4, "little") + PLAIN_MAGIC)), length

    def _add(self, table: pa.Table, row_group_size: int | None) -> None:
        plaintext = pa.BufferOutputStream()
        with pq.ParquetWriter(plaintext, self._schema, **self._options) as writer:
            if row_group_size is not None:
                writer.write_table(table, row_group_size)

        # Between two row groups, the writer of protected files writes hidden columns into the same sink.
        self._counted.position = self._sink.tell()
        with open_source(plaintext.getvalue(), _LOCATION) as source:
            self._modules.add(plain_layout(source))
