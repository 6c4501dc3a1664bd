"""A metadata.json as bytes: read once, hashed, and parsed into the class that its content calls for.

    <version>-<uuid>.metadata.json      JSON
    <version>-<uuid>.gz.metadata.json   gzip of the JSON

The digest is SHA-256, in hexadecimal, over the uncompressed JSON, so that it is the same for both.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO, InputFile
from pyiceberg.serializers import Compressor
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.deletion import DeletionScope, Place
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.metadata_checks import ParsedJson, check_keys, is_encrypted_tables

_GZIP_SUFFIXES: Final = (".gz.metadata.json", ".metadata.json.gz")
_GZIP: Final = 31
"""zlib's window bits for a gzip stream of any window."""
_SMALL: Final = 32 * 1024 * 1024
_RATIO: Final = 64


@dataclass(frozen=True)
class MetadataFile:
    """The uncompressed JSON of a metadata.json, and where it is."""

    location: str
    content: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the JSON, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    def parse(self) -> TableMetadata:
        """Return version 3 metadata with everything that encryption needs, other versions as PyIceberg reads them.

        Raises:
            FormatError: the bytes are not JSON, or not table metadata of a known version; or they are an encrypted table's and hold a key
                that is not read or not hashed (`check_keys`).
        """
        try:
            parsed = ParsedJson(self.content)
            metadata = _validated(parsed.document)
        except (ValueError, ValidationError) as error:
            raise FormatError(f"{self.location}: not readable as table metadata: {error}") from error
        if is_encrypted_tables(metadata):
            check_keys(self.location, parsed, parsed.document)
        return metadata


def _validated(document: Any) -> TableMetadata:
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    # Validating changes the object at the top.
    fields = dict(document)
    return EncryptedTableMetadata.model_validate(fields) if fields.get("format-version") == 3 else TableMetadataUtil.parse_obj(fields)


def read_metadata_file(file: InputFile) -> MetadataFile:
    """Read a metadata.json.

    Raises:
        FormatError: its name says gzip, and it is not, or it comes to more than `decompressed` allows.
    """
    with file.open() as stream:
        return MetadataFile(file.location, decompressed(file.location, bytes(stream.read())))


def read_named_metadata_file(io: FileIO, location: str, own_folders: DeletionScope) -> MetadataFile:
    """Read a metadata file that other metadata names, or that lies in a table's folder: somebody may have made up the name, or the file.

    Args:
        io: the store's own.
        location: of the file.
        own_folders: of the table. What the store says of a file outside of them is an error of the name.

    Raises:
        FormatError: it is no metadata file by its name, its spelling or its content; or lies elsewhere and cannot be read.
        FileNotFoundError: it is not there.
    """
    if not location.endswith(TABLE_METADATA_SUFFIXES):
        raise FormatError(f"{location}: not named as a metadata file is")
    try:
        Place.of(location)
        return read_metadata_file(io.new_input(location))
    except FileNotFoundError:
        raise
    except ConfigurationError as error:
        raise FormatError(f"{location}: {error}") from error
    except (OSError, ValueError) as error:
        if own_folders.reason_against(location) is None:
            raise
        raise FormatError(f"{location}: lies outside the table's folders, and is not readable: {type(error).__name__}") from error


def decompressed(location: str, stored: bytes, may_be_cut: bool = False) -> bytes:
    """Return the JSON of a metadata file's bytes: those of a gzip stream where its name says so, else as they are.

    What it may come to is bounded: 32 MiB, or 64 times the bytes that are stored where that is more.

    Args:
        location: names the compression.
        stored: the file's bytes.
        may_be_cut: whether to return what half a stream, or none, says.

    Raises:
        FormatError: its name says gzip, and it is not, or it comes to more.
    """
    if not location.endswith(_GZIP_SUFFIXES):
        return stored
    limit = max(_SMALL, _RATIO * len(stored))
    found, rest = bytearray(), stored
    try:
        while rest:
            stream = zlib.decompressobj(_GZIP)
            found += stream.decompress(rest, limit + 1 - len(found))
            if len(found) > limit:
                raise FormatError(f"{location}: {len(stored)} bytes of gzip come to more than {limit}, which no metadata file does")
            if not stream.eof:
                raise EOFError("the stream ends before its end")
            rest = stream.unused_data.lstrip(b"\0")
    except (zlib.error, EOFError) as error:
        if may_be_cut:
            return bytes(found) or stored
        raise FormatError(f"{location}: not readable as gzip: {error}") from error
    return bytes(found)


def write_metadata_file(metadata: TableMetadata, io: FileIO, location: str) -> MetadataFile:
    """Write a new metadata.json, compressed where its name says so."""
    content = metadata.model_dump_json().encode()
    with io.new_output(location).create() as stream:
        stream.write(Compressor.get_compressor(location).bytes_compressor()(content))
    return MetadataFile(location, content)
