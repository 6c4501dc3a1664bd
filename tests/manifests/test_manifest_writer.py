"""The manifest writer: what it counts, what it refuses, and what it leaves behind when it fails."""

from __future__ import annotations

import importlib.util
import io as python_io
import json
from pathlib import Path

import fastavro
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, IntegerType, NestedField, StringType

from tablecrypt.errors import ConfigurationError, MissingExtraError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingOutputFile
from tablecrypt.manifests import ManifestWriterV3
from tests.support.manifests import SCHEMA, SNAPSHOT_ID, UNPARTITIONED, data_file, decrypt_file, entry, local_io, new_key, write_manifest

ADDED, EXISTING, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED


def _output(folder: Path) -> EncryptingOutputFile:
    return local_io().encrypting_output(str(folder / "m.avro"), new_key())


def _writer(output: EncryptingOutputFile, content: ManifestContent = ManifestContent.DATA, compression: str = "gzip") -> ManifestWriterV3:
    return ManifestWriterV3(UNPARTITIONED, SCHEMA, output, SNAPSHOT_ID, compression, content)


def test_the_row_has_the_length_of_the_ciphertext_and_the_key_that_opens_it(tmp_path: Path) -> None:
    output = _output(tmp_path)
    with _writer(output) as writer:
        writer.add(entry())
    row = writer.to_manifest_file()
    stored = (tmp_path / "m.avro").read_bytes()
    assert stored.startswith(b"AGS1")
    assert row.manifest_length == len(stored) == row.open_key_metadata().file_length
    assert row.open_key_metadata() == output.key_metadata


def test_the_row_counts_files_and_rows_by_status(tmp_path: Path) -> None:
    with _writer(_output(tmp_path)) as writer:
        writer.add(entry(record_count=1))
        writer.add(entry(record_count=2))
        writer.existing(entry(EXISTING, 1, 5, 5, record_count=4))
        writer.delete(entry(EXISTING, 1, 3, 3, record_count=8))
    row = writer.to_manifest_file()
    assert (row.added_files_count, row.existing_files_count, row.deleted_files_count) == (2, 1, 1)
    assert (row.added_rows_count, row.existing_rows_count, row.deleted_rows_count) == (3, 4, 8)
    assert (row.sequence_number, row.min_sequence_number, row.first_row_id) == (-1, 5, None)
    assert (row.content, row.partition_spec_id, row.added_snapshot_id) == (ManifestContent.DATA, 0, SNAPSHOT_ID)


def test_the_lowest_sequence_number_is_that_of_live_entries_alone(tmp_path: Path) -> None:
    row = write_manifest(local_io(), tmp_path / "a.avro", [entry(EXISTING, 1, 5, 5), entry(DELETED, 1, 2, 2)])
    assert row.min_sequence_number == 5
    row = write_manifest(local_io(), tmp_path / "b.avro", [entry(DELETED, 1, 2, 2)])
    assert row.min_sequence_number == -1
    row = write_manifest(local_io(), tmp_path / "c.avro", [entry(EXISTING, 1, 0, 0), entry(EXISTING, 1, 2, 2)])
    assert row.min_sequence_number == 0


def test_partition_summaries_bound_the_partitions(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "day", DateType()), NestedField(2, "name", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"), PartitionField(2, 1001, IdentityTransform(), "name"))
    partitions = [Record(5, "b"), Record(3, None), Record(9, "a")]
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry(partition=partition) for partition in partitions], spec, schema)
    assert row.partitions is not None
    day, name = row.partitions
    assert (day.contains_null, day.lower_bound, day.upper_bound) == (False, to_bytes(DateType(), 3), to_bytes(DateType(), 9))
    assert (name.contains_null, name.lower_bound, name.upper_bound) == (True, b"a", b"b")


def test_entries_share_blocks_of_about_64_kilobytes(tmp_path: Path) -> None:
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry(path=f"s3://bucket/{'x' * 1000}/{number}") for number in range(1000)])
    blocks = list(fastavro.block_reader(python_io.BytesIO(decrypt_file(local_io(), row.manifest_path, row.open_key_metadata()))))
    assert 10 <= len(blocks) <= 20
    assert sum(block.num_records for block in blocks) == 1000
    assert [each.data_file.file_path.rsplit("/", 1)[1] for each in row.fetch_manifest_entry(local_io())] == [str(n) for n in range(1000)]


@pytest.mark.parametrize(
    ("compression", "codec"),
    [("gzip", "deflate"), ("deflate", "deflate"), ("zstd", "zstandard"), ("uncompressed", "null"), ("null", "null"), ("GZIP", "deflate")],
)
def test_the_codec_has_avros_name(tmp_path: Path, compression: str, codec: str) -> None:
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry()], compression=compression)
    reader = fastavro.reader(python_io.BytesIO(decrypt_file(local_io(), row.manifest_path, row.open_key_metadata())))
    assert reader.metadata["avro.codec"] == codec


def test_an_unknown_codec_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="lzma"):
        _writer(_output(tmp_path), compression="lzma")
    assert not (tmp_path / "m.avro").exists()


@pytest.mark.skipif(importlib.util.find_spec("snappy") is not None, reason="the codec is installed")
def test_a_codec_that_is_not_installed_is_a_missing_extra(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match="snappy"):
        write_manifest(local_io(), tmp_path / "m.avro", [entry()], compression="snappy")


def test_the_header_holds_defaults_of_columns_as_json_values(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "n", IntegerType(), required=True, initial_default=5, write_default=6))
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry()], schema=schema)
    metadata = fastavro.reader(python_io.BytesIO(decrypt_file(local_io(), row.manifest_path, row.open_key_metadata()))).metadata
    (field,) = json.loads(metadata["schema"])["fields"]
    assert (field["initial-default"], field["write-default"]) == (5, 6)


def test_a_data_file_made_by_pyiceberg_is_taken(tmp_path: Path) -> None:
    plain = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="s3://bucket/a.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
        key_metadata=b"key",
    )
    row = write_manifest(local_io(), tmp_path / "m.avro", [ManifestEntry(ADDED, SNAPSHOT_ID, None, None, plain)])
    assert [each.data_file.file_path for each in row.fetch_manifest_entry(local_io())] == ["s3://bucket/a.parquet"]


@pytest.mark.parametrize("status", [ADDED, EXISTING])
def test_a_live_file_without_key_metadata_is_refused_by_name(tmp_path: Path, status: ManifestEntryStatus) -> None:
    with (
        pytest.raises(PlaintextRefusedError, match=r"^s3://bucket/plain\.parquet: "),
        _writer(_output(tmp_path)) as writer,
    ):
        writer.add_entry(ManifestEntry(status, SNAPSHOT_ID, 1, 1, data_file("s3://bucket/plain.parquet", key_metadata=None)))


def test_the_removal_of_a_plaintext_file_can_be_recorded(tmp_path: Path) -> None:
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry(DELETED, SNAPSHOT_ID, 1, 1, key_metadata=None)])
    assert row.deleted_files_count == 1


@pytest.mark.parametrize(
    ("manifest", "file"),
    [
        (ManifestContent.DATA, DataFileContent.POSITION_DELETES),
        (ManifestContent.DATA, DataFileContent.EQUALITY_DELETES),
        (ManifestContent.DELETES, DataFileContent.DATA),
    ],
)
def test_data_and_deletes_are_not_mixed(tmp_path: Path, manifest: ManifestContent, file: DataFileContent) -> None:
    with pytest.raises(ConfigurationError, match="in a manifest of"), _writer(_output(tmp_path), manifest) as writer:
        writer.add(entry(content=file))


@pytest.mark.parametrize(("status", "snapshot_id"), [(ADDED, 1), (EXISTING, SNAPSHOT_ID), (DELETED, SNAPSHOT_ID)])
def test_only_what_this_commit_adds_may_lack_a_sequence_number(tmp_path: Path, status: ManifestEntryStatus, snapshot_id: int) -> None:
    with pytest.raises(ConfigurationError, match="sequence number"), _writer(_output(tmp_path)) as writer:
        writer.add_entry(entry(status, snapshot_id))


def test_an_empty_manifest_is_not_written(tmp_path: Path) -> None:
    writer = _writer(_output(tmp_path))
    with pytest.raises(ValueError, match="empty manifest"), writer:
        pass
    _assert_no_manifest(writer, tmp_path)


@pytest.mark.parametrize("entries", [0, 1])
def test_an_exception_leaves_no_manifest_and_is_not_hidden(tmp_path: Path, entries: int) -> None:
    writer = _writer(_output(tmp_path))
    with pytest.raises(KeyError, match="the caller's own"), writer:
        for _ in range(entries):
            writer.add(entry())
        raise KeyError("the caller's own")
    _assert_no_manifest(writer, tmp_path)


def test_a_refused_entry_leaves_no_manifest_even_when_the_caller_goes_on(tmp_path: Path) -> None:
    writer = _writer(_output(tmp_path))
    with pytest.raises(ConfigurationError, match="abandoned"), writer:
        writer.add(entry())
        with pytest.raises(PlaintextRefusedError):
            writer.add(entry(key_metadata=None))
    _assert_no_manifest(writer, tmp_path)


def test_a_value_that_cannot_be_encoded_leaves_no_manifest(tmp_path: Path) -> None:
    writer = _writer(_output(tmp_path))
    with pytest.raises(AttributeError), writer:
        writer.add(entry(file_path=5))
    _assert_no_manifest(writer, tmp_path)


def test_the_row_is_not_given_out_before_the_file_is_complete(tmp_path: Path) -> None:
    with _writer(_output(tmp_path)) as writer:
        writer.add(entry())
        with pytest.raises(ConfigurationError, match="not complete"):
            writer.to_manifest_file()
    assert writer.to_manifest_file().added_files_count == 1


def test_nothing_is_added_after_the_end(tmp_path: Path) -> None:
    with _writer(_output(tmp_path)) as writer:
        writer.add(entry())
    assert writer.closed
    with pytest.raises(RuntimeError):
        writer.add(entry())
    assert writer.to_manifest_file().added_files_count == 1


def test_tell_grows_with_what_is_written(tmp_path: Path) -> None:
    with _writer(_output(tmp_path), compression="uncompressed") as writer:
        start = writer.tell()
        for _ in range(1000):
            writer.add(entry())
        assert writer.tell() - start > 64_000


def _assert_no_manifest(writer: ManifestWriterV3, folder: Path) -> None:
    assert writer.closed
    with pytest.raises(ConfigurationError, match="not complete"):
        writer.to_manifest_file()
    left = folder / "m.avro"
    assert not left.exists() or not left.read_bytes().startswith(b"AGS1")
