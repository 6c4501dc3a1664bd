"""Whatever entry is written, the same entry is read, here and by an independent Avro reader."""

from __future__ import annotations

import io as python_io
import math
import tempfile
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

from tablecrypt.manifests import EncryptedDataFile, EncryptedManifestFile, ManifestWriterV3
from tests.support.manifests import SNAPSHOT_ID, data_file, decrypt_file, entry, file_of, local_io, new_key, write_manifest

INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
COUNTS = st.integers(0, 2**63 - 1)
ROW_COUNTS = st.integers(0, 2**40)
FIELD_IDS = st.integers(1, 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
MAPS_OF_COUNTS = st.none() | st.dictionaries(FIELD_IDS, COUNTS, max_size=5)
MAPS_OF_BOUNDS = st.none() | st.dictionaries(FIELD_IDS, st.binary(max_size=40), max_size=5)

# Each partition field: its source type, its transform, and the values that it may have.
PARTITION_FIELDS: list[tuple[str, Transform[Any, Any], st.SearchStrategy[Any]]] = [
    ("long", BucketTransform(16), st.integers(0, 15)),
    ("timestamp", YearTransform(), INTS),
    ("timestamptz", MonthTransform(), INTS),
    ("date", DayTransform(), INTS),
    ("timestamp_ns", HourTransform(), INTS),
    ("boolean", IdentityTransform(), st.booleans()),
    ("int", IdentityTransform(), INTS),
    ("long", IdentityTransform(), LONGS),
    ("float", IdentityTransform(), st.floats(width=32)),
    ("double", IdentityTransform(), st.floats()),
    ("decimal(9, 2)", IdentityTransform(), st.decimals("-9999999.99", "9999999.99", places=2)),
    ("decimal(38, 10)", TruncateTransform(7), st.decimals(Decimal(10) ** 27 * -1, Decimal(10) ** 27, places=10)),
    ("date", IdentityTransform(), INTS),
    ("time", IdentityTransform(), st.integers(0, 86_400_000_000 - 1)),
    ("timestamp", IdentityTransform(), LONGS),
    ("timestamptz", IdentityTransform(), LONGS),
    ("timestamp_ns", IdentityTransform(), LONGS),
    ("timestamptz_ns", IdentityTransform(), LONGS),
    ("string", TruncateTransform(5), TEXT),
    ("uuid", IdentityTransform(), st.uuids()),
    ("fixed[5]", IdentityTransform(), st.binary(min_size=5, max_size=5)),
    ("binary", IdentityTransform(), st.binary(max_size=40)),
    ("string", VoidTransform(), st.none()),
]
SCHEMA = Schema(*(NestedField(number, f"c{number}", source) for number, (source, _, _) in enumerate(PARTITION_FIELDS, start=1)))
SPEC = PartitionSpec(
    *(PartitionField(number, 999 + number, transform, f"p {number}") for number, (_, transform, _) in enumerate(PARTITION_FIELDS, start=1)),
    spec_id=7,
)
PARTITIONS = st.tuples(*(st.none() | values for _, _, values in PARTITION_FIELDS))


@st.composite
def data_files(draw: st.DrawFn, content: DataFileContent = DataFileContent.DATA) -> EncryptedDataFile:
    deletes = content != DataFileContent.DATA
    counts: dict[str, Any] = {
        name: draw(MAPS_OF_COUNTS) for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
    }
    return data_file(
        content=content,
        file_path="s3://bucket/data/" + draw(TEXT),
        file_format=draw(st.sampled_from(FileFormat)),
        partition=Record(*draw(PARTITIONS)),
        record_count=draw(ROW_COUNTS),
        file_size_in_bytes=draw(COUNTS),
        **counts,
        lower_bounds=draw(MAPS_OF_BOUNDS),
        upper_bounds=draw(MAPS_OF_BOUNDS),
        key_metadata=draw(st.binary(min_size=1, max_size=80)),
        split_offsets=draw(st.none() | st.lists(COUNTS, max_size=4)),
        equality_ids=draw(st.none() | st.lists(FIELD_IDS, max_size=4)) if deletes else None,
        sort_order_id=draw(st.none() | INTS),
        first_row_id=None if deletes else draw(st.none() | COUNTS),
        referenced_data_file=draw(st.none() | TEXT) if deletes else None,
        content_offset=draw(st.none() | COUNTS) if deletes else None,
        content_size_in_bytes=draw(st.none() | COUNTS) if deletes else None,
    )


@st.composite
def entries(draw: st.DrawFn, content: ManifestContent) -> ManifestEntry:
    kinds = (
        [DataFileContent.DATA] if content == ManifestContent.DATA else [DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES]
    )
    file = draw(data_files(draw(st.sampled_from(kinds))))
    status = draw(st.sampled_from(ManifestEntryStatus))
    if status == ManifestEntryStatus.ADDED and draw(st.booleans()):
        return ManifestEntry(status, draw(st.sampled_from([None, SNAPSHOT_ID])), None, None, file)
    return ManifestEntry(status, draw(COUNTS), draw(COUNTS), draw(st.none() | COUNTS), file)


@given(st.data(), st.sampled_from(ManifestContent), st.sampled_from(["gzip", "zstd", "uncompressed", "bzip2"]))
@settings(max_examples=60, deadline=None)
def test_entries_are_read_as_they_were_written(data: st.DataObject, content: ManifestContent, compression: str) -> None:
    written = data.draw(st.lists(entries(content), min_size=1, max_size=6))
    expected = [_fields(each) for each in written]
    with tempfile.TemporaryDirectory() as folder:
        row = write_manifest(local_io(), f"{folder}/m.avro", written, SPEC, SCHEMA, content, compression)
        read = row.fetch_manifest_entry(local_io(), discard_deleted=False)
    assert [_fields(each) for each in read] == [_inherited(fields, each) for fields, each in zip(expected, written, strict=True)]
    assert all(each.data_file.spec_id == SPEC.spec_id for each in read)


def test_an_independent_avro_reader_reads_the_same_partition_values(tmp_path: Path) -> None:
    aware = datetime(2024, 2, 29, 13, 5, 7, 123456, tzinfo=UTC)
    cases: list[tuple[str, Any, Any]] = [
        ("boolean", True, True),
        ("int", -5, -5),
        ("long", -(2**63), -(2**63)),
        ("float", 1.5, 1.5),
        ("double", -0.1, -0.1),
        ("decimal(9, 2)", Decimal("-1.50"), Decimal("-1.50")),
        ("date", 19782, date(2024, 2, 29)),
        ("time", 47_107_123_456, time(13, 5, 7, 123456)),
        ("timestamp", 1_709_211_907_123_456, aware),
        ("timestamptz", 1_709_211_907_123_456, aware),
        ("string", "ä", "ä"),
        ("uuid", uuid.UUID(int=7), uuid.UUID(int=7).bytes),
        ("fixed[3]", b"abc", b"abc"),
        ("binary", b"", b""),
    ]
    schema = Schema(*(NestedField(number, f"c{number}", source) for number, (source, _, _) in enumerate(cases, start=1)))
    spec = PartitionSpec(
        *(PartitionField(field.field_id, 999 + field.field_id, IdentityTransform(), field.name) for field in schema.fields)
    )
    written = entry(partition=Record(*(value for _, value, _ in cases)))
    row = write_manifest(local_io(), tmp_path / "m.avro", [written], spec, schema)
    (record,) = fastavro.reader(python_io.BytesIO(decrypt_file(local_io(), row.manifest_path, row.open_key_metadata())))
    assert isinstance(record, dict)
    assert list(record["data_file"]["partition"].values()) == [expected for _, _, expected in cases]


def test_a_partition_field_whose_source_column_was_dropped_is_null(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "kept", "int"))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "kept"), PartitionField(2, 1001, IdentityTransform(), "gone"))
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry(partition=Record(5, None))], spec, schema)
    (read,) = row.fetch_manifest_entry(local_io())
    assert read.data_file.partition == Record(5, None)
    plaintext = decrypt_file(local_io(), row.manifest_path, row.open_key_metadata())
    (record,) = fastavro.reader(python_io.BytesIO(plaintext))
    assert isinstance(record, dict)
    assert record["data_file"]["partition"] == {"kept": 5, "gone": None}


def test_two_partition_fields_of_one_named_avro_type_are_read_back(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "a", "uuid"), NestedField(2, "b", "uuid"), NestedField(3, "c", "decimal(9, 2)"))
    spec = PartitionSpec(*(PartitionField(number, 999 + number, IdentityTransform(), f"p{number}") for number in (1, 2, 3)))
    values = (uuid.UUID(int=1), uuid.UUID(int=2), Decimal("1.50"))
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry(partition=Record(*values))], spec, schema)
    (read,) = row.fetch_manifest_entry(local_io())
    assert read.data_file.partition == Record(*values)


def test_a_data_file_of_version_2_is_written_with_the_new_fields_null(tmp_path: Path) -> None:
    version_2 = data_file().values()[:16]
    made_by_pyiceberg = DataFile(*version_2)
    row = write_manifest(
        local_io(), tmp_path / "m.avro", [ManifestEntry(ManifestEntryStatus.ADDED, SNAPSHOT_ID, None, None, made_by_pyiceberg)]
    )
    (read,) = row.fetch_manifest_entry(local_io())
    assert file_of(read).values()[16:] == [None, None, None, None]


def test_row_ids_are_not_written_for_delete_files(tmp_path: Path) -> None:
    deletes = entry(content=DataFileContent.POSITION_DELETES, first_row_id=5)
    row = write_manifest(local_io(), tmp_path / "m.avro", [deletes], content=ManifestContent.DELETES)
    (read,) = row.fetch_manifest_entry(local_io())
    assert file_of(read).first_row_id is None
    assert file_of(deletes).first_row_id == 5


@pytest.mark.parametrize("length", [16, 24, 32])
def test_a_manifest_opens_under_each_key_length(tmp_path: Path, length: int) -> None:
    row = _row_under_key(tmp_path / "m.avro", length)
    assert len(row.open_key_metadata().encryption_key) == length
    assert len(row.fetch_manifest_entry(local_io())) == 1


def _row_under_key(location: Path, length: int) -> EncryptedManifestFile:
    output = local_io().encrypting_output(str(location), new_key(length))
    with ManifestWriterV3(PartitionSpec(), SCHEMA, output, SNAPSHOT_ID, "gzip") as writer:
        writer.add_entry(entry())
    return writer.to_manifest_file()


def _inherited(fields: list[Any], written: ManifestEntry) -> list[Any]:
    """What an uncommitted manifest lets its entries inherit: its snapshot id, and that the sequence number is not known yet (-1)."""
    status, snapshot_id, sequence_number, file_sequence_number, *rest = fields
    if snapshot_id is None:
        snapshot_id = SNAPSHOT_ID
    if status == ManifestEntryStatus.ADDED:
        sequence_number = -1 if sequence_number is None else sequence_number
        file_sequence_number = -1 if file_sequence_number is None else file_sequence_number
    return [status, snapshot_id, sequence_number, file_sequence_number, *rest]


def _fields(each: ManifestEntry) -> list[Any]:
    file = file_of(each)
    partition = [_comparable(file.partition[position]) for position in range(len(file.partition))]
    values = [partition if value is file.partition else _comparable(value) for value in file.values()]
    return [each.status, each.snapshot_id, each.sequence_number, each.file_sequence_number, *values]


def _comparable(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return dict(value) if hasattr(value, "items") else value
