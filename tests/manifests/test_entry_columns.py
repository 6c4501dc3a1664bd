"""Entries read in columns are the entries that the strict reader reads, whoever wrote them, and whatever they hold."""

from __future__ import annotations

import pickle
from copy import copy, deepcopy
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, DecimalType, DoubleType, LongType, NestedField, StringType, StructType, UUIDType

from tablecrypt.errors import FormatError, PlaintextRefusedError
from tablecrypt.manifests.avro_columns import NULL, Bytes, Irregular, Lanes, fields_of
from tablecrypt.manifests.avro_container import AvroContainer
from tablecrypt.manifests.entries import Column, decode_manifests, read_entry
from tablecrypt.manifests.manifest_file import ENTRY_TYPES, inherit, parse_manifest
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile
from tests.support.manifest_bytes import LOCATION, entries_of, manifest_bytes, manifest_row, plain_value, values_of, varint
from tests.support.manifests import entry

SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "t", StringType()),
    NestedField(3, "x", DoubleType()),
    NestedField(4, "u", UUIDType()),
    NestedField(5, "d", DecimalType(20, 2)),
    NestedField(6, "b", BinaryType()),
)
NAMES = ("n", "t", "x", "u", "d", "b")
SPEC = PartitionSpec(*(PartitionField(each, 1000 + each, IdentityTransform(), f"p_{NAMES[each - 1]}") for each in range(1, 7)), spec_id=3)
KNOWN_FROM_COLUMNS = (
    *("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes"),
    *("key_metadata", "first_row_id", "referenced_data_file"),
)
NUMBERS = st.integers(0, 2**62)
FORMATS = ("\x0ePARQUET", "\x0cPUFFIN", "PARQUET", "\x08AVRO", "a", "é")
"""What a path may hold that looks like the field behind it."""
PATHS = st.lists(st.sampled_from(FORMATS), max_size=6).map("".join)
COUNTS = st.none() | st.dictionaries(st.integers(1, 3000), NUMBERS, max_size=4)
BOUNDS = st.none() | st.dictionaries(st.integers(1, 2**31 - 1), st.binary(max_size=70), max_size=4)
PARTITIONS = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | PATHS,
    st.none() | st.floats(allow_nan=False),
    st.none() | st.uuids().map(lambda each: UUID(int=each.int)),
    st.none() | st.decimals(-(10**17), 10**17, places=2),
    st.none() | st.binary(max_size=12),
)


@st.composite
def _entries(draw: st.DrawFn) -> ManifestEntry:
    fields: dict[str, Any] = {
        "content": draw(st.sampled_from(DataFileContent)),
        "file_format": draw(st.sampled_from(FileFormat)),
        "partition": Record(*draw(PARTITIONS)),
        "record_count": draw(st.integers(0, 2**40)),
        "file_size_in_bytes": draw(NUMBERS),
        **{name: draw(COUNTS) for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")},
        **{name: draw(BOUNDS) for name in ("lower_bounds", "upper_bounds")},
        "key_metadata": draw(st.binary(min_size=1, max_size=90)),
        "split_offsets": draw(st.none() | st.lists(NUMBERS, max_size=3)),
        "equality_ids": draw(st.none() | st.lists(st.integers(1, 100), max_size=3)),
        "sort_order_id": draw(st.none() | st.integers(0, 5)),
        "first_row_id": draw(st.none() | st.integers(0, 2**40)),
        "referenced_data_file": draw(st.none() | PATHS),
        "content_offset": draw(st.none() | NUMBERS),
        "content_size_in_bytes": draw(st.none() | NUMBERS),
    }
    numbers = [draw(st.none() | st.integers(0, 2**40)) for _ in range(3)]
    return entry(draw(st.sampled_from(ManifestEntryStatus)), *numbers, path="s3://b/" + draw(PATHS), **fields)


MANIFESTS = st.tuples(
    st.lists(_entries(), max_size=6),
    st.sampled_from(["null", "deflate", "zstandard"]),
    st.sampled_from([1, 2, 100]),
    st.sampled_from([-1, 0, 9]),
    st.none() | st.integers(0, 2**40),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(MANIFESTS, max_size=4))
def test_entries_in_columns_are_those_of_the_strict_reader(manifests: list[Any]) -> None:
    rows, contents, expected = [], [], []
    for entries, codec, together, number, first_row_id in manifests:
        row = manifest_row(partition_spec_id=3, sequence_number=number, first_row_id=first_row_id)
        content = manifest_bytes(entries, SCHEMA, SPEC, codec, together)
        read = parse_manifest(content, LOCATION, row.content).entries
        inherit(read, row, row.first_row_id)
        rows.append(row)
        contents.append(content)
        expected += [values_of(each) for each in read if each.status != ManifestEntryStatus.DELETED]
    if not rows:
        return
    found = entries_of(*zip(rows, contents, strict=True))
    assert [values_of(found.entry(row)) for row in range(len(found))] == expected


@settings(deadline=None, max_examples=60)
@given(st.lists(_entries(), min_size=1, max_size=5), st.data())
def test_a_file_knows_from_the_columns_what_it_knows_when_it_is_decoded(entries: list[ManifestEntry], data: st.DataObject) -> None:
    found = entries_of((manifest_row(partition_spec_id=3), manifest_bytes(entries, SCHEMA, SPEC)))
    rows = data.draw(st.lists(st.integers(0, len(found) - 1), unique=True).map(sorted)) if len(found) else []
    fewer, names = found.only(np.array(rows, np.int64)), KNOWN_FROM_COLUMNS
    for at, row in enumerate(rows):
        file, decoded = fewer.file(at), found.decoded(row)
        assert {name: getattr(file, name) for name in names} == {name: getattr(decoded, name) for name in names}
        assert type(file) is not EncryptedDataFile
        assert file.upper_bounds == decoded.upper_bounds
        assert type(file) is EncryptedDataFile, "a file that is asked for more becomes an ordinary one"
        assert {name: getattr(file, name) for name in names} == {name: getattr(decoded, name) for name in names}


@settings(deadline=None, max_examples=60)
@given(st.lists(_entries(), min_size=1, max_size=6), st.sampled_from([1, 100]))
def test_statistics_are_those_of_the_file_whether_few_entries_are_asked_or_many(entries: list[ManifestEntry], together: int) -> None:
    live = [each for each in entries if each.status != ManifestEntryStatus.DELETED]
    maps = {
        Column.VALUE_COUNTS: "value_counts",
        Column.NULL_VALUE_COUNTS: "null_value_counts",
        Column.NAN_VALUE_COUNTS: "nan_value_counts",
        Column.LOWER_BOUNDS: "lower_bounds",
        Column.UPPER_BOUNDS: "upper_bounds",
    }
    asked = {each for entry in live for name in maps.values() for each in getattr(entry.data_file, name) or {}} | {7}

    # Beyond some number of entries their maps are read side by side.
    for times in (1, 70):
        found = entries_of((manifest_row(partition_spec_id=3), manifest_bytes(live * times, SCHEMA, SPEC, together=together)))
        statistics = found.statistics(frozenset(asked))
        for column, name in maps.items():
            for field_id in asked:
                expected = [(getattr(entry.data_file, name) or {}).get(field_id) for entry in live] * times
                if name.endswith("counts"):
                    assert [None if each == NULL else each for each in statistics.counts(column, field_id).tolist()] == expected
                    continue
                places = zip(*(each.tolist() for each in statistics.bounds(column, field_id)), strict=True)
                assert [None if begin < 0 else found.records[begin:end] for begin, end in places] == expected


def test_a_file_is_changed_and_copied_like_any_other() -> None:
    found = entries_of((manifest_row(), manifest_bytes([entry(record_count=7)], SCHEMA)))
    for duplicate in (copy, deepcopy):
        file, other = found.file(0), duplicate(found.file(0))
        file[DATA_FILE_POSITIONS["record_count"]] = 8
        assert (file.record_count, other.record_count, found.file(0).record_count) == (8, 7, 7)
        assert other == file and other.spec_id == file.spec_id == 0


def test_nothing_that_holds_the_keys_of_files_is_pickled_or_shown() -> None:
    content = manifest_bytes([entry(key_metadata=b"the key of a file")], SCHEMA)
    (columns,) = decode_manifests([AvroContainer(content, LOCATION, ENTRY_TYPES)])
    found = entries_of((manifest_row(), content))
    for each in (columns, found, found.file(0)):
        assert "the key" not in repr(each)
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(each)


def test_a_live_file_without_a_key_is_refused_by_name_and_a_deleted_one_is_not() -> None:
    gone = entry(ManifestEntryStatus.DELETED, 1, 1, 1, path="s3://b/gone", key_metadata=None)
    assert len(entries_of((manifest_row(), manifest_bytes([gone, entry()], SCHEMA)))) == 1
    for key in (None, b""):
        with pytest.raises(PlaintextRefusedError, match=f"^s3://b/plain: the entry in {LOCATION} has no key metadata"):
            entries_of((manifest_row(), manifest_bytes([entry(), entry(path="s3://b/plain", key_metadata=key)], SCHEMA)))


def _changed(content: bytes, before: bytes, after: bytes) -> bytes:
    assert content.count(before) == 1 and len(before) == len(after)
    return content.replace(before, after)


def test_a_format_in_letters_of_both_cases_is_read_as_the_strict_reader_reads_it() -> None:
    content = _changed(manifest_bytes([entry(record_count=5)], SCHEMA), b"\x0ePARQUET", b"\x0eParquet")
    found = entries_of((manifest_row(), content))
    assert (found.file(0).file_format, found.file(0).record_count) == (FileFormat.PARQUET, 5)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\x0ePARQUET", b"\x0ePARQUIT"),
        (b"\x0ePARQUET", b"\x0dPARQUET"),
        (b"\x0ePARQUET", b"\x7ePARQUET"),
        (b"\x02a\x03bc", b"\xff\xff\xff\xff\x7f"[:5]),
    ],
    ids=["no format", "a negative length", "a length beyond the block", "a length beyond the file"],
)
def test_what_is_no_manifest_is_refused(before: bytes, after: bytes) -> None:
    bounds = {1: b"\x02a\x03bc"}
    content = manifest_bytes([entry(lower_bounds=bounds), entry()], SCHEMA)
    if content.count(before) != 1:
        content = manifest_bytes([entry(lower_bounds=bounds)], SCHEMA)
    changed = _changed(content, before, after) if before[:1] == b"\x0e" else content.replace(b"\x0a" + before, after + before[:1])
    with pytest.raises(FormatError, match=f"^{LOCATION}"):
        entries_of((manifest_row(), changed))


@pytest.mark.parametrize("last", [1, 2, 0x7E])
def test_a_size_over_64_bits_is_not_proved_so_that_no_reader_of_columns_goes_by_it(last: int) -> None:
    lanes = Lanes(Bytes(b"\x02\x02" + b"\x80" * 9 + bytes([last]) + bytes(8)), np.array([0]))
    for _, part, counts in lanes.parts():
        for _, item in part.each_item(counts):
            item.number()
            item.text()
    assert lanes.failed.all()


@settings(deadline=None, max_examples=150)
@given(st.lists(_entries(), min_size=1, max_size=3), st.data())
def test_bytes_that_a_writer_got_wrong_are_refused_or_read_as_the_strict_reader_reads_them(
    entries: list[ManifestEntry], data: st.DataObject
) -> None:
    content = bytearray(manifest_bytes(entries, SCHEMA, SPEC))
    begin = content.index(b"\x00", content.index(b"avro.codec")) + 17
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(begin, len(content) - 17))] = data.draw(st.integers(0, 255))
    assert _by_columns(bytes(content)) == _strictly(bytes(content))


def test_a_number_below_zero_stays_the_same_where_entries_are_written_again_to_be_read_by_columns() -> None:
    header = manifest_bytes([], SCHEMA, SPEC)
    # An index of ten bytes that means null, which no reader of columns goes by; split_offsets = [-1].
    block = bytes.fromhex(
        "00000280010280808001003273333a2f2f622f0e504152515545540c50554646494e61c3a9064f52430000000000ffffffff"
        "ffffffffff02000000000000000002028002020100020a80808080800002040202000000000000"
    )
    content = header + varint(1) + varint(len(block)) + block + header[-16:]
    assert _strictly(content) is not None
    assert _by_columns(content) == _strictly(content)


def _strictly(content: bytes) -> Any:
    try:
        return [_values_as_stored(each) for each in AvroContainer(content, LOCATION, ENTRY_TYPES)]
    except FormatError:
        return None


def _by_columns(content: bytes) -> Any:
    try:
        (columns,) = decode_manifests([AvroContainer(content, LOCATION, ENTRY_TYPES)])
        places = zip(columns.numbers[Column.BEGIN].tolist(), columns.numbers[Column.END].tolist(), strict=True)
        return [_values_as_stored(read_entry(columns.avro_schema, columns.records[begin:end])) for begin, end in places]
    except FormatError:
        return None


def _values_as_stored(each: ManifestEntry) -> str:
    numbers = [each.status, each.snapshot_id, each.sequence_number, each.file_sequence_number]
    return repr([*numbers, *(plain_value(value) for value in EncryptedDataFile.of(each.data_file).values())])


def test_entries_of_one_partition_share_it() -> None:
    files = [entry(partition=Record(number % 2, "a", 0.5, None, Decimal("1.00"), b"x")) for number in range(6)]
    found = entries_of((manifest_row(partition_spec_id=3), manifest_bytes(files, SCHEMA, SPEC)))
    partitions, places = found.partitions()
    assert [(spec_id, plain_value(each)[0]) for spec_id, each in partitions] == [(3, 0), (3, 1)]
    assert [plain_value(partitions[place][1])[0] for place in places] == [number % 2 for number in range(6)]
    assert found.file(0).partition is found.file(2).partition


def test_a_data_file_that_may_be_null_is_left_to_the_strict_reader() -> None:
    file = NestedField(2, "data_file", StructType(NestedField(100, "file_path", StringType(), required=True)))
    is_always_there = file.model_copy(update={"required": True})

    assert [field.field_id for field in fields_of(Schema(is_always_there), 2, frozenset())] == [100]
    for other in (file, NestedField(2, "data_file", LongType(), required=True)):
        with pytest.raises(Irregular, match="data_file is no struct that is always there"):
            fields_of(Schema(other), 2, frozenset())
