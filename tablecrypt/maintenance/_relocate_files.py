"""Where each file of a table goes when the table is copied to another location, and copying one. Each copying function runs on a
`Runner`, here or on a cluster's executors.

    <old location>/data/day=1/a.parquet     →  <new location>/data/day=1/a.parquet
    anywhere else:  <folder>/b.parquet      →  <new location>/data/elsewhere-<hash of the folder>/b.parquet

Spellings of one place count as the same: s3a: and s3:, file:/a and file:///a and /a.

    data files, equality deletes    byte for byte, under the DEK and AAD prefix that they have: neither depends on the place
    deletion vectors                the Puffin file's footer names data files: it is rewritten under a fresh DEK; the blobs stay
    position deletes                rows name data files: they are rewritten under a fresh DEK

A byte copy has the old file's name. What is rewritten has a name of its own in every run.

Raises PlaintextRefusedError for a file that does not begin as an encrypted one does, TamperedFileError for one of another length than its
manifest says or whose blocks do not authenticate, FormatError for a footer or rows that cannot be read.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io import InputFile, InputStream
from pyiceberg.manifest import FileFormat

from tablecrypt import _magics as magics
from tablecrypt._store_errors import reraise_naming
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, PlaintextRefusedError, TamperedFileError
from tablecrypt.files.deletion import refuse_link, store_of, unusable_location
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.raw_output import RawContent
from tablecrypt.maintenance.runner import FileDone
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile, UniformParquetWriter
from tablecrypt.table.deletes import position_delete_columns, with_other_paths
from tablecrypt.table.table_files import RunNames

_LOCATION: Final = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?/*(?P<rest>.*)", re.DOTALL)
_HOST: Final = re.compile("[A-Za-z]+:(?://)?[^/]")
_HASH_LENGTH: Final = 12
_LOCAL: Final = "file"

_CHUNK: Final = 8 * 1024 * 1024
_MAGIC: Final = {FileFormat.PARQUET.value: magics.ENCRYPTED_PARQUET, FileFormat.AVRO.value: magics.AGS1}
_ROW_GROUP_ROWS: Final = 1024 * 1024


@dataclass(frozen=True)
class PathMap:
    """From locations of one table to those of its copy.

    Args:
        old: the table's location.
        new: the copy's, without a slash at the end.

    Raises:
        ConfigurationError: the new one is no location that can be used, or one of them lies inside the other: each would count the other's
            files among its own.
    """

    old: str
    new: str

    def __post_init__(self) -> None:
        scheme, rest = _parts(self.new)
        if not rest or (scheme == _LOCAL and not self.new.lower().startswith((f"{_LOCAL}:", "/"))):
            # A relative path would be another place in every process that reads the copy.
            raise ConfigurationError(
                f"{self.new!r} is not a location for a table: write a complete one, such as s3://bucket/folder or /folder"
            )
        if "#" in self.new or "?" in self.new:
            raise ConfigurationError(f"{self.new!r}: PyIceberg leaves out what follows # or ? in a location: choose another")
        # file://host/path: what writes the first files takes it for path, and what writes the metadata refuses it.
        if scheme == _LOCAL and _HOST.match(self.new):
            raise ConfigurationError(f"{self.new!r} names a host, and a local file has none: write file:///…")
        if (problem := unusable_location(self.new)) is not None:
            raise ConfigurationError(f"{self.new!r} {problem}: choose another location")
        if _below(self.old, self.new) is not None or _below(self.new, self.old) is not None:
            raise ConfigurationError(f"a copy cannot lie inside the table, nor the table inside its copy: {self.old} and {self.new}")

    def __call__(self, location: str) -> str:
        """Return where a file goes."""
        below = _below(location, self.old)
        if below:
            return f"{self.new}/{below}"
        # Files of one name from different folders must not meet: the hash of the folder keeps them apart.
        folder, _, name = location.rpartition("/")
        return f"{self.new}/data/elsewhere-{hashlib.sha256(folder.encode()).hexdigest()[:_HASH_LENGTH]}/{name}"

    def folder(self, location: str) -> str | None:
        """Return where a folder goes that a property names; None for one outside the table, which stays the old table's."""
        below = _below(location, self.old)
        return None if below is None else f"{self.new}/{below}".rstrip("/")


def copy_location(location: str) -> str:
    """Return a location without slashes at the end; as it is if that leaves none, to be refused as it was written."""
    stripped = location.rstrip("/")
    return stripped if _parts(stripped)[1] else location


def _below(location: str, root: str) -> str | None:
    """Return what follows the root in a location inside it, "" for the root itself, None for one that is not inside."""
    (scheme, path), (root_scheme, root_path) = _parts(location), _parts(root)
    # With the slash at the end: /a/t2 is not below /a/t.
    if scheme != root_scheme or not f"{path}/".startswith(f"{root_path}/"):
        return None
    return path[len(root_path) :].lstrip("/")


def _parts(location: str) -> tuple[str, str]:
    match = _LOCATION.fullmatch(location)
    scheme = (match["scheme"] or "").lower() if match else ""
    return store_of(scheme), (match["rest"] if match else location).rstrip("/")


@dataclass(frozen=True)
class CopyWork:
    """A file to copy byte for byte.

    Attributes:
        file_format: PARQUET or AVRO.
        length: bytes of the file, as its manifest says.
        is_there: whether a file of that length is at the target already: then it is compared, and stays if it is the same.
    """

    source: str
    target: str
    file_format: str
    length: int
    is_there: bool


@dataclass(frozen=True)
class RewriteWork:
    """A delete file to rewrite because it names data files.

    Attributes:
        file_format: PUFFIN, PARQUET or AVRO.
        data_key_length: bytes of its new DEK.
        names: of the run's new files.
    """

    source: str
    file_format: str
    paths: PathMap
    data_key_length: int
    names: RunNames


@dataclass(frozen=True)
class RewrittenCopy:
    """A delete file that was rewritten.

    Attributes:
        first_path, last_path: the bounds of the data files that its rows name; None for a Puffin file.
    """

    location: str
    first_path: str | None = None
    last_path: str | None = None


def copy_file(io: EncryptingFileIO, work: CopyWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[int]:
    """Copy a file; its result is how many bytes were written, 0 for one that was there."""
    source, target = io.raw_input(work.source), io.raw_input(work.target)
    chunks = _checked_chunks(source, work)
    if work.is_there and _are_same(chunks, target):
        return FileDone(0)

    refuse_link(work.target)
    written = 0
    # A run that was killed, or a task that a cluster gave up, may have left half of the file.
    with io.raw_output(work.target, RawContent.SELF_ENCRYPTED).create(overwrite=True) as sink:
        # From the beginning again: comparing may have used up some of the chunks.
        for chunk in _checked_chunks(source, work):
            written += sink.write(chunk)

    return FileDone(written)


def rewrite_deletes(io: EncryptingFileIO, work: RewriteWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[RewrittenCopy]:
    """Rewrite a delete file under a fresh DEK; the key metadata knows its length."""
    folder, _, name = work.paths(work.source).rpartition("/")
    target = f"{folder}/{work.names.new_uuid()}-{name}"
    # Metadata names the source, and ".." in its name would lead out of the copy.
    refuse_link(target)
    key = StandardKeyMetadata.generate(work.data_key_length, secrets.token_bytes)
    if work.file_format == FileFormat.PUFFIN.value:
        return _rewrite_vectors(io, work, keys[0], target, key)
    return _rewrite_positions(io, work, keys[0], target, key)


def _checked_chunks(source: InputFile, work: CopyWork) -> Iterator[bytes]:
    """Yield a source's bytes, and raise where they cannot be those of the encrypted file that the manifest names."""
    length = 0
    with source.open() as stream:
        while chunk := _next_chunk(stream, work.source):
            if length == 0 and chunk[:4] != _MAGIC.get(work.file_format, b""):
                # Before the first byte is written: a plaintext file must not reach the new place.
                raise PlaintextRefusedError(work.source, f"does not begin as an encrypted {work.file_format} file does")
            length += len(chunk)
            yield chunk

    # The manifest's length is authenticated: a source that was cut is not copied as if it were whole.
    if length != work.length:
        raise TamperedFileError(work.source, f"has {length} bytes in the store, but {work.length} according to its manifest")


def _next_chunk(stream: InputStream, location: str) -> bytes:
    try:
        return bytes(stream.read(_CHUNK))
    except OSError as error:
        reraise_naming(error, location)


def _are_same(chunks: Iterator[bytes], target: InputFile) -> bool:
    with target.open() as stream:
        for chunk in chunks:
            if _read_exactly(stream, len(chunk)) != chunk:
                return False
        # The target may go on after the source ends.
        return not stream.read(1)


def _read_exactly(stream: Any, length: int) -> bytes:
    parts = bytearray()
    # A store may give fewer bytes at once than were asked for.
    while len(parts) < length and (part := stream.read(length - len(parts))):
        parts += part
    return bytes(parts)


def _rewrite_vectors(
    io: EncryptingFileIO, work: RewriteWork, old: StandardKeyMetadata, target: str, key: StandardKeyMetadata
) -> FileDone[RewrittenCopy]:
    with io.decrypting_input(work.source, old).open() as stream:
        content = bytes(stream.read())
    output = io.encrypting_output(target, key)
    with output.create(overwrite=True) as sink:
        sink.write(with_other_paths(content, work.source, work.paths))
    return FileDone(RewrittenCopy(target), (output.key_metadata,))


def _rewrite_positions(
    io: EncryptingFileIO, work: RewriteWork, old: StandardKeyMetadata, target: str, key: StandardKeyMetadata
) -> FileDone[RewrittenCopy]:
    if work.file_format != FileFormat.PARQUET.value:
        raise FormatError(
            f"{work.source}: position deletes in a {work.file_format} file cannot be copied: rewrite them into deletion vectors"
        )

    with io.raw_input(work.source).open() as source:
        opened = UniformParquetFile(source, old, work.source)
        schema = opened.schema
        path_name, position_name = position_delete_columns(schema, work.source)
        rows = pa.Table.from_batches(opened.batches(ReadRequest(schema.names)), schema)

    # A delete file names few data files in many rows: each path is mapped once.
    mapped = {path: work.paths(path) for path in rows[path_name].unique().to_pylist()}
    paths = pa.array([mapped[path] for path in rows[path_name].to_pylist()], schema.field(path_name).type)
    rows = rows.set_column(schema.names.index(path_name), schema.field(path_name), paths)
    # The specification wants rows sorted by path and position, and the new paths may sort differently.
    rows = rows.sort_by([(path_name, "ascending"), (position_name, "ascending")])
    with io.raw_output(target, RawContent.SELF_ENCRYPTED).create(overwrite=True) as sink:
        writer = UniformParquetWriter(sink, schema, key)
        writer.write(rows, _ROW_GROUP_ROWS)
        _, length = writer.close()

    return FileDone(RewrittenCopy(target, min(mapped.values()), max(mapped.values())), (key.with_file_length(length),))
