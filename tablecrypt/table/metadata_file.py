"""A metadata.json as bytes: read once, hashed, and parsed into the class that its content calls for.

    <version>-<uuid>.metadata.json      JSON
    <version>-<uuid>.gz.metadata.json   gzip of the JSON

The digest is SHA-256, in hexadecimal, over the uncompressed JSON, so that it is the same for both.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from dataclasses import dataclass
from typing import Final

from pydantic_core import from_json
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO, InputFile
from pyiceberg.serializers import Compressor
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from tablecrypt.errors import FormatError
from tablecrypt.table.metadata import EncryptedTableMetadata

_VERSION_3: Final = re.compile(rb'"format-version"\s*:\s*3\b')


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
            FormatError: the bytes are not JSON, or not table metadata of a known version.
        """
        try:
            if self._is_version_3():
                return EncryptedTableMetadata.model_validate_json(self.content)
            return TableMetadataUtil.parse_raw(self.content.decode())
        except (ValueError, ValidationError) as error:
            raise FormatError(f"{self.location}: not readable as table metadata: {error}") from error

    def _is_version_3(self) -> bool:
        # The usual spelling spares parsing the JSON twice, which is most of what loading a table with a long history costs.
        if _VERSION_3.search(self.content):
            return True
        parsed = from_json(self.content)
        return isinstance(parsed, dict) and parsed.get("format-version") == 3


def read_metadata_file(file: InputFile) -> MetadataFile:
    """Read a metadata.json.

    Raises:
        FormatError: its name says gzip, and it is not.
    """
    try:
        with file.open() as stream, Compressor.get_compressor(file.location).stream_decompressor(stream) as json:
            return MetadataFile(file.location, json.read())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(f"{file.location}: not readable as gzip: {error}") from error


def write_metadata_file(metadata: TableMetadata, io: FileIO, location: str) -> MetadataFile:
    """Write a new metadata.json, compressed where its name says so."""
    content = metadata.model_dump_json().encode()
    with io.new_output(location).create() as stream:
        stream.write(Compressor.get_compressor(location).bytes_compressor()(content))
    return MetadataFile(location, content)
