"""Writing an Avro object container file whose blocks hold many records.

    file  = "Obj" 0x01 | metadata map | sync (16 bytes) | block 0 | block 1 | ...
    block = number of records (varint) | length of what follows (varint) | records, compressed by avro.codec | sync

Iceberg Java closes a block at 64,000 bytes of uncompressed records. PyIceberg closes one after each call, that is after every manifest
entry: twice the size, and readers that decode by block are several times slower. Here records gather until a block is full.

Specification: Avro 1.11, "Object Container Files".
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Final, TypeVar

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, CODEC_MAPPING_ICEBERG_TO_AVRO, KNOWN_CODECS
from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.io import OutputFile
from pyiceberg.schema import Schema
from pyiceberg.typedef import StructProtocol

from tablecrypt.errors import ConfigurationError, MissingExtraError
from tablecrypt.manifests.avro_reader import AVRO_SCHEMA_KEY
from tablecrypt.manifests.avro_schema import to_avro_json

BLOCK_BYTES: Final = 64_000

D = TypeVar("D", bound=StructProtocol)
_HEADER_WRITER: Final = construct_writer(META_SCHEMA)


def avro_codec_name(compression: str) -> str:
    """Return Avro's name of a codec, given that or the name that `write.avro.compression-codec` uses (gzip, zstd, uncompressed).

    Raises:
        ConfigurationError: no such codec.
    """
    name = "null" if compression.lower() == "uncompressed" else CODEC_MAPPING_ICEBERG_TO_AVRO.get(compression.lower(), compression.lower())
    if name not in KNOWN_CODECS:
        raise ConfigurationError(f"unknown Avro codec {compression!r}: use gzip, zstd, snappy, bzip2 or uncompressed")
    return name


@dataclass(frozen=True, eq=False)
class AvroRecords:
    """A kind of record that files are written of. Its schema is brought into Avro's terms once, not for each file.

    Attributes:
        schema: the record's fields.
        name: the record's, in the file's schema.
    """

    schema: Schema
    name: str

    @cached_property
    def json(self) -> str:
        """The schema as it stands in the header of a file."""
        return to_avro_json(self.schema, self.name)

    @cached_property
    def writer(self) -> Writer:
        """Writes one record; it has no state."""
        return construct_writer(self.schema)


class BlockAvroOutputFile(AvroOutputFile[D]):
    """PyIceberg's Avro output file, with blocks of about 64 kB. `write_block` gathers; the block goes out when full and at the end.

    Left by an exception, it writes neither the gathered records nor an end: the file is not completed.

    Raises:
        ConfigurationError: unknown codec.
        MissingExtraError: the codec's package is not installed.
    """

    def __init__(
        self,
        output_file: OutputFile,
        records: AvroRecords,
        metadata: dict[str, str],
        compression: str,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        codec = avro_codec_name(compression)
        # PyIceberg's own would make the writer of the records again for each file.
        self.output_file = output_file
        self.writer = records.writer
        self.metadata = {**metadata, AVRO_CODEC_KEY: codec, AVRO_SCHEMA_KEY: records.json}
        self.sync_bytes = random(SYNC_SIZE)
        self._block = io.BytesIO()
        self._block_encoder = BinaryEncoder(self._block)
        self._block_records = 0

    def __enter__(self) -> BlockAvroOutputFile[D]:
        """Create the file and write the header."""
        self.output_stream = self.output_file.create(overwrite=True)
        self.encoder = BinaryEncoder(self.output_stream)
        _HEADER_WRITER.write(self.encoder, AvroFileHeader(MAGIC, self.metadata, self.sync_bytes))
        return self

    def __exit__(self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None) -> None:
        """Write the last block and close, or abandon the file."""
        if exctype is not None:
            self.output_stream.__exit__(exctype, excinst, exctb)
            return
        with self.output_stream:
            self._flush()

    def write_block(self, objects: list[D]) -> None:
        """Add records to the current block."""
        for record in objects:
            self._append(record)
            if self._block.tell() >= BLOCK_BYTES:
                self._flush()

    def _append(self, record: D) -> None:
        start = self._block.tell()
        try:
            self.writer.write(self._block_encoder, record)
        except BaseException:  # half a record would make the whole block unreadable
            self._block.seek(start)
            self._block.truncate()
            raise

        self._block_records += 1

    def _flush(self) -> None:
        if self._block_records == 0:
            return

        content = self._block.getvalue()
        if codec := self.compression_codec():
            content = self._compress(codec, content)
        self.encoder.write_int(self._block_records)
        self.encoder.write_bytes(content)
        self.encoder.write(self.sync_bytes)
        self._block.seek(0)
        self._block.truncate()
        self._block_records = 0

    def _compress(self, codec: type[Codec], content: bytes) -> bytes:
        try:
            compressed, _ = codec.compress(content)
        except ImportError as error:
            raise MissingExtraError(f"{self.output_file.location}: {error}") from error
        return compressed
