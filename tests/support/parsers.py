"""Every parser of bytes that somebody else may have written, with valid files to start from: what tests and fuzzers of parsers share.

A parser takes any bytes and returns, or raises an error of tablecrypt. Seeds are made by this package's own writers, most of them small: a
change in a small file hits something more often. They are the same in every run, so that a failing change can be played again.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt import orc
from tablecrypt.crypto import ags1
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.engines.job_messages import WorkItem, decode_items, decode_positions, encode_items, encode_positions
from tablecrypt.errors import TablecryptError
from tablecrypt.files.ags1_streams import Ags1InputStream
from tablecrypt.hadoop_kms.access import AllowListFile
from tablecrypt.hadoop_kms.master_keys import MasterKeyFile, create_key
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.kms.client import unwrap_with_master_key, wrap_with_master_key
from tablecrypt.kms.local_file import read_key_file
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.manifests.entries import Column
from tablecrypt.manifests.manifest_file import parse_manifest
from tablecrypt.manifests.manifest_list import parse_manifest_list
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.orc.integrity_manifest import IntegrityManifest
from tablecrypt.orc.reader import open_view
from tablecrypt.orc.source import FileSource
from tablecrypt.orc.tail import read_tail
from tablecrypt.parquet import FileKeys, inspect, verify
from tablecrypt.parquet.chunk_modules import StoredHeader
from tablecrypt.parquet.columns_apart import with_columns_apart
from tablecrypt.parquet.key_material import KeyMaterial, reference_in, reference_to
from tablecrypt.parquet.structs import COLUMN_CHUNK_SHAPE, FILE_META_DATA_SHAPE
from tablecrypt.parquet.thrift import decode
from tablecrypt.parquet.uniform import ReadRequest
from tablecrypt.table.canonical_metadata import metadata_hash
from tablecrypt.table.data_file_reader import AvroDataFile
from tablecrypt.table.deletes import parse_deletion_vector
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.metadata import EncryptedTableMetadata, MetadataFile, decompressed
from tests.support.ags1_files import LOCATION, ags1_file, key_metadata
from tests.support.golden import GOLDEN
from tests.support.hidden_column_files import TABLE, ProtectedFile
from tests.support.manifest_bytes import entries_of, manifest_row
from tests.support.manifests import decrypt_file, entry, local_io, write_manifest, write_manifest_list
from tests.support.modular_files import FOOTER_KEY, MODES, encrypted, every_module, plain_file, sample_table
from tests.support.orc_files import CODECS, local_keys, repeatable_keys, sample_rows
from tests.support.orc_files import encrypted as encrypted_orc
from tests.support.table_files import deletion_vector_blob

Parse = Callable[[bytes], object]


@dataclass(frozen=True)
class Parser:
    """One parser: what it is called, what it does with bytes, and valid files."""

    name: str
    parse: Parse
    make_seeds: Callable[[], Sequence[bytes]]

    def refuses_or_reads(self, data: bytes) -> bool:
        """Whether it read the bytes; False where it raised an error of tablecrypt, which says something. Other errors go through."""
        try:
            self.parse(data)
        except TablecryptError as error:
            assert str(error)
            return False
        return True


# --- The table format -------------------------------------------------------------------------------------------------------------------


def _key_metadata_seeds() -> list[bytes]:
    kinds: tuple[tuple[int, bytes, int | None], ...] = (
        (16, bytes(16), 4096),
        (24, b"", None),
        (32, b"", 2**40),
        (16, bytes(range(16)), None),
    )
    return [StandardKeyMetadata(Secret(bytes(range(length))), prefix, size).encode() for length, prefix, size in kinds]


def _key_metadata(data: bytes) -> None:
    decoded = StandardKeyMetadata.decode(data)
    assert StandardKeyMetadata.decode(decoded.encode()) == decoded


def _ags1(data: bytes) -> None:
    for trusted in (None, len(data)):
        with Ags1InputStream(io.BytesIO(data), key_metadata(trusted), LOCATION, len(data)) as stream:
            stream.seek(7)
            while stream.read(4096):
                pass


def _golden_metadata() -> list[bytes]:
    """metadata.json as Iceberg Java wrote it, with keys, history and partitions."""
    found = sorted(GOLDEN.rglob("*.metadata.json"))
    assert found
    return [path.read_bytes() for path in found[:4]]


def _metadata_json(data: bytes) -> None:
    metadata = MetadataFile("s3://b/t/metadata/1.metadata.json", data).parse()
    metadata_hash(data)
    if not isinstance(metadata, EncryptedTableMetadata):
        return
    ring: KeyRing = metadata.key_ring
    for snapshot in metadata.snapshots:
        if snapshot.key_id is not None:
            with contextlib.suppress(TablecryptError):
                ring.chain(snapshot.key_id).manifest_list_key.wrapped_bytes()
    for kek in ring.keks:
        with contextlib.suppress(TablecryptError):
            assert kek.created_at_ms >= 0
            kek.wrapped_bytes()


@cache
def _manifests() -> tuple[bytes, bytes]:
    store = local_io()
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / "manifest.avro"
        written = write_manifest(store, manifest, [entry(), entry(path="s3://bucket/data/b.parquet")], compression="null")
        plain = decrypt_file(store, manifest, StandardKeyMetadata.decode(written.key_metadata or b""))
        list_key = write_manifest_list(store, Path(folder) / "list.avro", [written])
        return plain, decrypt_file(store, Path(folder) / "list.avro", list_key)


def _manifest_columns(data: bytes) -> None:
    entries = entries_of((manifest_row(), data))
    for row in range(len(entries)):
        assert entries.file(row).file_path == entries.decoded(row).file_path
    entries.partitions()
    statistics = entries.statistics(frozenset({1, 2}))
    for column in (Column.VALUE_COUNTS, Column.LOWER_BOUNDS):
        statistics.bounds(column, 1)


def _avro_seeds() -> list[bytes]:
    import fastavro

    fields = [{"name": "id", "type": "long", "field-id": 1}, {"name": "note", "type": ["null", "string"], "default": None, "field-id": 2}]
    records = [{"id": number, "note": f"note {number}" if number % 2 else None} for number in range(4)]
    seeds = []
    for codec in ("null", "deflate"):
        sink = io.BytesIO()
        fastavro.writer(sink, {"type": "record", "name": "table", "fields": fields}, records, codec=codec, sync_marker=bytes(16))
        seeds.append(sink.getvalue())
    return seeds


def _avro(data: bytes) -> None:
    file = AvroDataFile(io.BytesIO(data), LOCATION)
    for _ in file.batches(ReadRequest(file.schema.names)):
        pass


def _deletion_vectors() -> list[bytes]:
    from pyroaring import BitMap

    def bitmap(*parts: tuple[int, list[int]]) -> bytes:
        keyed = b"".join(key.to_bytes(4, "little") + BitMap(values).serialize() for key, values in parts)
        return len(parts).to_bytes(8, "little") + keyed

    runs = list(range(1000, 3000))
    return [deletion_vector_blob(each) for each in (bitmap(), bitmap((0, [3, 9])), bitmap((0, runs), (1, [0, 2**32 - 1])))]


def _deletion_vector(data: bytes) -> None:
    for blob in (data, deletion_vector_blob(data[8:-4])):
        with contextlib.suppress(TablecryptError):
            parse_deletion_vector(blob, LOCATION, rows=10_000)
    parse_deletion_vector(data, LOCATION)


@cache
def _entries() -> tuple[FileEntryCodec, bytes]:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "region", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    codec = FileEntryCodec(new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "file:///table", {"format-version": "3"}))
    file = EncryptedDataFile.from_args(
        content=DataFileContent.DATA,
        file_path="file:///table/data/a.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record("eu"),
        record_count=10,
        file_size_in_bytes=1234,
        value_counts={1: 10},
        lower_bounds={1: b"\x00"},
        key_metadata=_key_metadata_seeds()[0],
        first_row_id=77,
    )
    file.spec_id = 0
    return codec, codec.encode_files([file, file])


def _file_entries(data: bytes) -> None:
    codec = _entries()[0]
    codec.decode_files(data)


# --- Parquet ----------------------------------------------------------------------------------------------------------------------------

_SMALL_FILE: Final = plain_file(sample_table(2).select(["id", "name"]), **every_module(row_group_size=1, write_page_checksum=True))


def _footer_of(file: bytes) -> bytes:
    return file[-8 - int.from_bytes(file[-8:-4], "little") : -8]


def _thrift(data: bytes) -> None:
    for shape in ({}, FILE_META_DATA_SHAPE, COLUMN_CHUNK_SHAPE):
        with contextlib.suppress(TablecryptError):
            struct = decode(data, shape)
            assert decode(struct.encode(), shape).encode() == struct.encode()
    decode(data, FILE_META_DATA_SHAPE)


def _columns_apart(data: bytes) -> None:
    listed = with_columns_apart(decode(data, FILE_META_DATA_SHAPE))
    assert decode(listed.encode(), FILE_META_DATA_SHAPE).encode() == listed.encode()


def _page_header(data: bytes) -> None:
    header = StoredHeader.decode_at(data)
    assert data.startswith(header.encoded)


def _parquet(data: bytes) -> None:
    with contextlib.suppress(TablecryptError):
        inspect(data, FileKeys(FOOTER_KEY))
    for mode in MODES[::3]:
        with contextlib.suppress(TablecryptError):
            verify(data, mode.keys)
    inspect(data)


def _key_material_seeds() -> list[bytes]:
    single = KeyMaterial(True, "alias/footer", bytes(range(60)))
    double = KeyMaterial(False, "alias/column", bytes(range(44)), bytes(16), bytes(range(80)))
    return [single.encode(internal=True).encode(), double.encode(internal=True).encode(), reference_to("columnKey1").encode()]


def _key_material(data: bytes) -> None:
    if reference_in(data, LOCATION) is None:
        KeyMaterial.decode(data, LOCATION)


# --- ORC --------------------------------------------------------------------------------------------------------------------------------


def _orc_seeds() -> list[bytes]:
    rows = sample_rows(6).select(["id", "text", "home", "tags"])
    encrypt = {"pii": ["text", "home.zip"], "pii256": ["tags"]}
    return [encrypted_orc(rows, encrypt, repeatable_keys(), compression=codec) for codec in CODECS]


def _orc(data: bytes) -> None:
    source = FileSource(data)
    view = open_view(read_tail(source), source, local_keys(), None, masked=True)
    while view.read(1 << 16):
        pass


def _orc_manifest_seeds() -> list[bytes]:
    rows = pa.table({"text": ["a", "b"]})
    data = encrypted_orc(rows, {"pii": ["text"]}, repeatable_keys())
    return [
        orc.create_integrity_manifest(dict.fromkeys(names, data), repeatable_keys(), "other") for names in (["a.orc"], ["a.orc", "b/c.orc"])
    ]


# --- What key services and Spark hand over ----------------------------------------------------------------------------------------------


def _from_file(read: Callable[[Path], object]) -> Parse:
    """The parser of a file that is read by its path."""

    def parse(data: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="tablecrypt-parser-") as folder:
            path = Path(folder) / "file"
            path.write_bytes(data)
            path.chmod(0o600)
            read(path)

    return parse


def _key_file_seeds() -> list[bytes]:
    def text(length: int, first: int) -> str:
        return base64.b64encode(bytes(range(first, first + length))).decode()

    keys = {"orders": {"1": text(32, 0), "2": text(32, 1)}, "people": {"1": text(16, 2)}}
    return [json.dumps({"format": "tablecrypt-key-file", "version": 1, "keys": keys}, indent=indent).encode() for indent in (None, 2)]


_MASTER: Final = {1: Secret(bytes(range(32))), 2: Secret(bytes(range(1, 33)))}


def _encrypted_keys() -> list[bytes]:
    return [wrap_with_master_key(bytes(length), _MASTER, "orders", lambda size: bytes(range(size))) for length in (16, 24, 32)]


_HADOOP_KMS: Final = MemoryKeyManagementClient({"kms.memory.name": "parsers"}, {"master": bytes(32)}, lambda length: bytes(range(length)))


def _hadoop_key_files() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.json"
        for name, length in (("pii", 16), ("cards", 32)):
            create_key(path, _HADOOP_KMS, name, "master", 1_700_000_000_000, length, lambda size: bytes(range(size)))
        return [path.read_bytes()]


def _hadoop_key_file(path: Path) -> None:
    keys = MasterKeyFile(path, _HADOOP_KMS)
    for name in keys.names():
        keys.create_local_key(keys.current_version(name))


_ALLOW_LIST: Final = b"""[users.etl]
keys = ["pii", "cards"]
token-sha256 = ["%s"]
certificates = ["etl.example.org"]

[users.analyst]
keys = ["cards"]
masks = ["pii"]
""" % (b"9f" * 32)


def _positions() -> list[bytes]:
    from pyroaring import BitMap64

    return [
        encode_positions(each) for each in ({}, {(0, 1): BitMap64([1, 5, 2**33])}, {(0, 0): BitMap64(range(100)), (7, 2): BitMap64([0])})
    ]


def _work_items() -> list[bytes]:
    items = [WorkItem(0, "a"), WorkItem(1, {"rows": 3, "name": "b", "data": b"c" * 30})]
    return [encode_items(items[:1]), encode_items(items)]


PARSERS: Final[Sequence[Parser]] = (
    Parser("key metadata", _key_metadata, _key_metadata_seeds),
    Parser("AGS1", _ags1, lambda: [ags1_file(bytes(length)) for length in (0, 1, 100, 5000)]),
    Parser("AGS1 header", lambda data: ags1.check_header(data, LOCATION), lambda: [ags1.header()]),
    Parser("metadata.json", _metadata_json, _golden_metadata),
    Parser(
        "metadata.json.gz",
        lambda data: decompressed("s3://b/1.gz.metadata.json", data),
        lambda: [_gzip(json_file) for json_file in _golden_metadata()],
    ),
    Parser("manifest", lambda data: parse_manifest(data, LOCATION, ManifestContent.DATA), lambda: [_manifests()[0]]),
    Parser("manifest by column", _manifest_columns, lambda: [_manifests()[0]]),
    Parser("manifest list", lambda data: parse_manifest_list(data, LOCATION), lambda: [_manifests()[1]]),
    Parser("Avro data", _avro, _avro_seeds),
    Parser("deletion vector", _deletion_vector, _deletion_vectors),
    Parser("file entries", _file_entries, lambda: [_entries()[1]]),
    Parser("Thrift", _thrift, lambda: [_footer_of(_SMALL_FILE), _footer_of(plain_file(sample_table(1)))]),
    Parser("columns apart", _columns_apart, lambda: [ProtectedFile(TABLE.slice(0, 2)).stored_footer().encode()]),
    Parser("page header", _page_header, lambda: [_SMALL_FILE[4:80], plain_file(sample_table(3))[4:80]]),
    Parser("Parquet", _parquet, lambda: [encrypted(_SMALL_FILE, mode.keys) for mode in MODES[::3]]),
    Parser("Parquet key material", _key_material, _key_material_seeds),
    Parser("ORC", _orc, _orc_seeds),
    Parser("ORC manifest", lambda data: IntegrityManifest.open(data, repeatable_keys()), _orc_manifest_seeds),
    Parser("key file", _from_file(read_key_file), _key_file_seeds),
    Parser("wrapped key", lambda data: unwrap_with_master_key(data, _MASTER, "orders"), _encrypted_keys),
    Parser("Hadoop KMS key file", _from_file(_hadoop_key_file), _hadoop_key_files),
    Parser("Hadoop KMS allow list", _from_file(lambda path: AllowListFile(path).read()), lambda: [_ALLOW_LIST]),
    Parser("row positions", decode_positions, _positions),
    Parser("work items", lambda data: decode_items(data, frozenset({"tablecrypt"})), _work_items),
)
BY_NAME: Final = {parser.name: parser for parser in PARSERS}


@cache
def seeds_of(name: str) -> Sequence[bytes]:
    """The valid files of a parser, made once in a process."""
    return tuple(BY_NAME[name].make_seeds())


def _gzip(data: bytes) -> bytes:
    import gzip

    return gzip.compress(data, mtime=0)
