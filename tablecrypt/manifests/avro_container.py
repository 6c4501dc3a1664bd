"""Avro object container files: read from memory, strictly, and written in blocks that hold many records.

    file  = "Obj" 0x01 | metadata map | sync (16 bytes) | block 0 | block 1 | ...
    block = number of records (varint) | length of what follows (varint) | records, compressed by avro.codec | sync

The bytes come out of an AGS1 stream, so they are what their writer wrote: what is checked here is that the writer was right. A file that
ends inside a block, has bytes after its last block, a sync marker that differs, or a block whose records are not as long as it says is
refused, where PyIceberg's AvroFile would return the records it has met so far. The frame is parsed here with bounds checks; the records
themselves are decoded by PyIceberg's reader tree over its compiled decoder, one decompressed block in memory at a time.
Compressed blocks hold at most 16 MiB each, together 8 MiB or 64 times what is stored, and at most 1,024 records, or one for every 4 bytes.

A block is decompressed up to a bound, for a few thousand bytes may say that they are gigabytes:

    deflate     raw deflate; bytes may follow it, as PyIceberg writes them
    zstandard   one frame, whose window is bounded too
    snappy      says first how much it holds; then a CRC-32
    bzip2       one stream

The compiled decoder is kept inside its bytes. By itself it believes every length: one that is too great makes it copy memory behind the
buffer or end the process, and a negative one moves it back. Here each length and count is compared with what is left before the compiled
method that uses it runs. Numbers need no check: the bytes are followed by as many zero bytes again and some more, which end a
number, and the position is checked after each record.

Written, records gather until a block is full. Iceberg Java closes a block at 64,000 bytes of uncompressed records. PyIceberg closes one
after each call, that is after every manifest entry: twice the size, and readers that decode by block are several times slower.

Raises FormatError, naming the file; ImportError where the library of a codec is not installed.

Specification: Avro 1.11, "Object Container Files", "Required Codecs", "Optional Codecs".
"""

from __future__ import annotations

import bz2
import io
import secrets
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from io import BytesIO
from types import TracebackType
from typing import Final, Generic, TypeVar, cast

import pyarrow as pa
from pyiceberg.avro import STRUCT_DOUBLE
from pyiceberg.avro.codecs import AVRO_CODEC_KEY, CODEC_MAPPING_ICEBERG_TO_AVRO, KNOWN_CODECS
from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.reader import DoubleReader, Reader
from pyiceberg.avro.resolver import ReadSchemaResolver, SchemaPartnerAccessor, construct_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.exceptions import ResolveError
from pyiceberg.io import OutputFile
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.typedef import StructProtocol
from pyiceberg.types import DoubleType, IcebergType

from tablecrypt._bytes import ByteReader
from tablecrypt.errors import ConfigurationError, FormatError, MissingExtraError
from tablecrypt.manifests.avro_schema import JAVA_SCHEMA_KEY, as_java_writes, from_avro_json, to_avro_json

_RAW_DEFLATE: Final = -15
_MAX_WINDOW: Final = 8 * 1024 * 1024
"""What a Zstandard decoder has to support at least, and no level but the "ultra" ones asks for more."""
_CRC_LENGTH: Final = 4
# Longer than the longest number and value of fixed length a record may hold (a double, a UUID, a decimal), whatever the bytes' length.
_MIN_PADDING: Final = 64
AVRO_SCHEMA_KEY: Final = "avro.schema"
_SMALL: Final = 8 * 1024 * 1024
_RATIO: Final = 64
_LARGEST_BLOCK: Final = 16 * 1024 * 1024
"""Decompressed. Writers begin a new block after some 64 KiB, or after each record."""
_MIN_RECORD: Final = 4
"""Compressed bytes: each file that a manifest names has a path and a key of its own, which no codec makes shorter."""
_FEW_RECORDS: Final = 1024
AVRO_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
"""What comes of bytes that are no Avro, whoever decodes them."""
_CODEC_ERRORS: Final = (*AVRO_ERRORS, OSError, pa.ArrowException)
_DECODING_ERRORS: Final = (*AVRO_ERRORS, ResolveError, RuntimeError)
BLOCK_BYTES: Final = 64_000
"""Of uncompressed records, after which a writer closes a block."""
_HEADER_WRITER: Final = construct_writer(META_SCHEMA)

D = TypeVar("D", bound=StructProtocol)
R = TypeVar("R", bound=StructProtocol)


def decompress_block(codec: str, compressed: bytes, limit: int) -> bytes:
    """Return what a block of at most `limit` bytes holds; `codec` is one of PyIceberg's KNOWN_CODECS but null.

    Raises:
        FormatError: it does not decompress, or holds more.
        ImportError: the codec's library is not installed.
    """
    try:
        block = _CODECS[codec](compressed, limit)
    # A signal's handler that bounds the time of a call may raise here, and its error is not the file's: so codecs' errors go by name.
    except TimeoutError:
        raise
    except _CODEC_ERRORS as error:
        raise FormatError(f"an Avro block cannot be decompressed: {error}") from error

    if len(block) > limit:
        raise FormatError(f"an Avro block holds more than {limit} bytes when it is decompressed; no writer makes such a block")
    return block


def _deflate(compressed: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj(_RAW_DEFLATE)
    # One byte over the limit is enough to see that there is more, and the rest is never decompressed.
    return _whole(stream.decompress(compressed, limit + 1), limit, stream.eof)


def _bzip2(compressed: bytes, limit: int) -> bytes:
    stream = bz2.BZ2Decompressor()
    return _whole(stream.decompress(compressed, limit + 1), limit, stream.eof)


def _zstandard(compressed: bytes, limit: int) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError

    block = bytearray()
    try:
        with ZstdDecompressor(max_window_size=_MAX_WINDOW).stream_reader(BytesIO(compressed)) as stream:
            while len(block) <= limit and (chunk := stream.read(min(limit + 1 - len(block), _MAX_WINDOW))):
                block += chunk
    except ZstdError as error:
        raise ValueError(str(error)) from error
    return bytes(block)


def _snappy(compressed: bytes, limit: int) -> bytes:
    packed, checksum = compressed[:-_CRC_LENGTH], compressed[-_CRC_LENGTH:]
    length = ByteReader(packed, "an Avro block").varint()
    # Snappy states the length in front. It is checked before pyarrow allocates that many bytes.
    if length > limit:
        raise FormatError(f"an Avro block says that it holds {length} bytes, of which {limit} are allowed")

    block = pa.Codec("snappy").decompress(packed, decompressed_size=length, asbytes=True) if length else b""
    if zlib.crc32(block) != int.from_bytes(checksum, "big"):
        raise FormatError("an Avro block's CRC-32 is not that of its bytes")

    return cast("bytes", block)


def _whole(block: bytes, limit: int, ended: bool) -> bytes:
    if len(block) <= limit and not ended:
        raise FormatError("an Avro block is cut short")
    return block


_CODECS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "deflate": _deflate,
    "bzip2": _bzip2,
    "zstandard": _zstandard,
    "snappy": _snappy,
}


class _BoundedDecoder:
    """Decodes `data`. What needs no check is the compiled decoder's own method."""

    def __init__(self, data: bytes) -> None:
        compiled = new_decoder(data + bytes(len(data) + _MIN_PADDING))
        self._length = len(data)
        self._read, self._read_ints, self._skip = compiled.read, compiled.read_ints, compiled.skip
        self.tell, self.read_int, self.skip_int = compiled.tell, compiled.read_int, compiled.skip_int
        self.read_boolean, self.skip_boolean = compiled.read_boolean, compiled.skip_boolean
        self.read_float, self.skip_float = compiled.read_float, compiled.skip_float
        self.read_double, self.skip_double = compiled.read_double, compiled.skip_double

    def read(self, n: int) -> bytes:
        self._check(n)
        return self._read(n)

    def read_bytes(self) -> bytes:
        return self.read(self.read_int())

    def read_utf8(self) -> str:
        return self.read(self.read_int()).decode()

    def read_ints(self, count: int) -> tuple[int, ...]:
        self._check(count)
        return self._read_ints(count)

    def read_int_bytes_dict(self, count: int, dest: dict[int, bytes]) -> None:
        self._check(count)
        # The statistics of a data file's columns: most of a manifest, so nothing is looked up twice.
        read, read_int, tell, length = self._read, self.read_int, self.tell, self._length
        for _ in range(count):
            key, size = read_int(), read_int()
            if not 0 <= size <= length - tell():
                self._check(size)
            dest[key] = read(size)

    def skip(self, n: int) -> None:
        self._check(n)
        self._skip(n)

    def skip_bytes(self) -> None:
        self.skip(self.read_int())

    def skip_utf8(self) -> None:
        self.skip(self.read_int())

    def _check(self, wanted: int) -> None:
        left = self._length - self.tell()
        if not 0 <= wanted <= left:
            raise FormatError(f"asks for {wanted} bytes or values where {left} bytes are left")


def bounded_decoder(data: bytes) -> BinaryDecoder:
    """Return a decoder of `data` that reads nothing else."""
    return cast("BinaryDecoder", _BoundedDecoder(data))


@dataclass(frozen=True, eq=False)
class RecordTypes(Generic[R]):
    """What a record is decoded into: the schema asked for, and by field id the class of each struct (-1: the record) and each enum."""

    schema: Schema
    structs: Mapping[int, Callable[..., StructProtocol]]
    enums: Mapping[int, Callable[..., Enum]]


class AvroContainer(Generic[R]):
    """An Avro file in memory: `metadata` is its header's map, iterating yields its records once through; so do its blocks.

    Raises:
        FormatError: the bytes are not an Avro container file, or its records do not fit the schema asked for.
    """

    def __init__(self, data: bytes, location: str, types: RecordTypes[R]) -> None:
        self._frame = _Frame(data, f"{location}: the Avro file")
        self.location = location
        if self._frame.take(len(MAGIC)) != MAGIC:
            raise FormatError(f"{location}: not an Avro file: it does not begin with {MAGIC!r}")

        self.metadata = self._frame.metadata_map()
        if JAVA_SCHEMA_KEY in self.metadata and AVRO_SCHEMA_KEY in self.metadata:
            self.metadata[AVRO_SCHEMA_KEY] = as_java_writes(self.metadata[AVRO_SCHEMA_KEY])
        self._sync = self._frame.take(SYNC_SIZE)
        self._codec = self._find_codec()
        self._left = max(_SMALL, _RATIO * len(data))
        self._reader = self._resolve(types)

    def __iter__(self) -> Iterator[R]:
        for count, block in self.blocks():
            yield from self.records(block, count)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield how many records each block says that it holds, and the decompressed block; once through."""
        while self._frame.left:
            count = self._frame.long()
            compressed = self._frame.sized()
            if self._frame.take(SYNC_SIZE) != self._sync:
                raise FormatError(f"{self.location}: a sync marker in the Avro file differs from its header's")
            # Checked before the block is decompressed: records become Python objects, many times the size of their bytes.
            if self._codec != "null" and count > max(_FEW_RECORDS, len(compressed) // _MIN_RECORD):
                raise FormatError(f"{self.location}: an Avro block of {len(compressed)} compressed bytes cannot hold {count} records")

            block = compressed if self._codec == "null" else self._decompress(compressed)
            # The bound for the whole file: thousands of blocks may keep to theirs and still fill the memory.
            self._left -= len(block)
            yield count, block

    def records(self, block: bytes, count: int) -> Iterator[R]:
        """Yield the records of a block, which has to hold exactly `count`."""
        # A record of fields that are all null takes no byte: without this, an empty block could claim 2^60 of them.
        if not 0 <= count <= len(block):
            raise FormatError(f"{self.location}: an Avro block of {len(block)} bytes cannot hold {count} records")

        length, read = len(block), self._reader.read
        decoder = bounded_decoder(block)

        try:
            for _ in range(count):
                record = read(decoder)
                # Numbers are read without a check, so a record may end in the padding behind its block.
                if decoder.tell() > length:
                    raise FormatError("ends after its block")
                yield record
        except FormatError as error:
            raise FormatError(f"{self.location}: a record in the Avro file {error}") from None
        except _DECODING_ERRORS as error:
            raise FormatError(f"{self.location}: a record in the Avro file cannot be decoded: {type(error).__name__}") from error

        if decoder.tell() != length:
            raise FormatError(f"{self.location}: an Avro block holds {length - decoder.tell()} bytes after its last record")

    def _decompress(self, compressed: bytes) -> bytes:
        try:
            return decompress_block(self._codec, compressed, min(self._left, _LARGEST_BLOCK))
        except FormatError as error:
            raise FormatError(f"{self.location}: {error}") from error
        except ImportError as error:
            raise MissingExtraError(f"{self.location}: {error}") from error

    def _find_codec(self) -> str:
        name = self.metadata.get(AVRO_CODEC_KEY, "null")
        if name in [str(known) for known in KNOWN_CODECS]:
            return name
        raise FormatError(f"{self.location}: unknown Avro codec {name!r}")

    def _resolve(self, types: RecordTypes[R]) -> Reader:
        if AVRO_SCHEMA_KEY not in self.metadata:
            raise FormatError(f"{self.location}: the Avro header has no {AVRO_SCHEMA_KEY}")

        try:
            return _reader_for(self.metadata[AVRO_SCHEMA_KEY], types)
        except FormatError as error:
            raise FormatError(f"{self.location}: {error}") from error
        except _DECODING_ERRORS as error:
            raise FormatError(f"{self.location}: the file's Avro schema does not fit: {error}") from error


def read_record(avro_schema: str, types: RecordTypes[R], stored: bytes) -> R:
    """Decode one record, of which another reader has found where it begins and ends.

    Raises:
        FormatError: its bytes do not decode to what the schema says; a text that is not UTF-8, for one.
    """
    try:
        record: R = _reader_for(avro_schema, types).read(bounded_decoder(stored))
    except _DECODING_ERRORS as error:
        raise FormatError(f"a record cannot be decoded: {type(error).__name__}") from error
    return record


@lru_cache(maxsize=64)
def _reader_for(avro_schema: str, types: RecordTypes[R]) -> Reader:
    """Return the reader tree, which keeps no state. The manifests of one table share a few schemas; building a tree takes a millisecond."""
    resolver = _Resolver(dict(types.structs), dict(types.enums))
    reader: Reader = visit_with_partner(from_avro_json(avro_schema), types.schema, resolver, SchemaPartnerAccessor())  # type: ignore[misc]
    return reader


class _ExactDoubleReader(DoubleReader):
    """Reads all 64 bits. The compiled decoder's read_double returns a C float: a partition value 0.1 would come back as 0.10000000149."""

    def read(self, decoder: BinaryDecoder) -> float:
        (value,) = STRUCT_DOUBLE.unpack(decoder.read(STRUCT_DOUBLE.size))
        return float(value)


class _Resolver(ReadSchemaResolver):
    """PyIceberg's, with doubles read exactly."""

    def visit_double(self, double_type: DoubleType, partner: IcebergType | None) -> Reader:
        return _ExactDoubleReader()  # type: ignore[no-untyped-call]


class _Frame(ByteReader):
    """The container's own structure."""

    def sized(self) -> bytes:
        return self.take(self.long())

    def metadata_map(self) -> dict[str, str]:
        """Read the header's map. Avro may split a map into parts; a negative count is followed by the part's length in bytes."""
        entries: dict[str, str] = {}
        while count := self.long():
            if count < 0:
                self.long()
            for _ in range(abs(count)):
                key = self._text()
                entries[key] = self._text()

        return entries

    def _text(self) -> str:
        try:
            return self.sized().decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{self.what}: the metadata in the header is not UTF-8") from error


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
        # The writer gives each length and text by itself, and the stream looks at its state each time.
        header = io.BytesIO()
        _HEADER_WRITER.write(BinaryEncoder(header), AvroFileHeader(MAGIC, self.metadata, self.sync_bytes))
        self.encoder.write(header.getvalue())

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
