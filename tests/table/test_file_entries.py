"""Files as bytes, for the inside of a encrypted message: nothing that reading or committing needs is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.engines.job_keys import JobKey, Role
from tablecrypt.engines.job_messages import encode_positions
from tablecrypt.engines.tasks import decrypted_results
from tablecrypt.errors import AuthenticationError, FormatError
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.planning import EncryptedFileScanTask
from tests.support.mutations import arbitrary

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "region", StringType()), NestedField(3, "at", TimestampType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"), PartitionField(3, 1001, DayTransform(), "day"))
KEY_METADATA = StandardKeyMetadata(Secret(bytes(range(16))), bytes(range(16, 32)), 1234).encode()


CODEC = FileEntryCodec(new_table_metadata(SCHEMA, SPEC, UNSORTED_SORT_ORDER, "file:///table", {"format-version": "3"}))


def data_file(path: str = "file:///table/data/a.parquet", **changed: Any) -> EncryptedDataFile:
    fields: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": path,
        "file_format": FileFormat.PARQUET,
        "partition": Record("eu", 19000),
        "record_count": 10,
        "file_size_in_bytes": 1234,
        "value_counts": {1: 10},
        "lower_bounds": {1: b"\x00"},
        "upper_bounds": {1: b"\xff"},
        "key_metadata": KEY_METADATA,
        "first_row_id": 77,
    }
    file = EncryptedDataFile.from_args(**(fields | changed))
    file.spec_id = 0
    return file


def vector(path: str = "file:///table/data/d.puffin") -> EncryptedDataFile:
    return data_file(
        path,
        content=DataFileContent.POSITION_DELETES,
        file_format=FileFormat.PUFFIN,
        referenced_data_file="file:///table/data/a.parquet",
        content_offset=4,
        content_size_in_bytes=40,
        first_row_id=None,
    )


def test_a_written_file_comes_back_whole() -> None:
    written = data_file(first_row_id=None)
    files = [written, data_file("file:///table/data/b.parquet", partition=Record(None, None), first_row_id=None)]

    back = CODEC.decode_files(CODEC.encode_files(files))

    assert [list(_comparable(file)) for file in back] == [list(_comparable(file)) for file in files]
    assert [file.spec_id for file in back] == [0, 0]


def test_a_scan_task_keeps_its_deletes_its_keys_and_its_sequence_number() -> None:
    tasks = [
        EncryptedFileScanTask(data_file(), {vector()}, data_sequence_number=5),
        EncryptedFileScanTask(data_file("file:///table/data/b.parquet"), set(), data_sequence_number=None),
    ]

    first, second = CODEC.decode_tasks(CODEC.encode_tasks(tasks))

    assert first.data_sequence_number == 5
    assert second.data_sequence_number is None
    assert second.delete_files == set()
    [delete] = first.delete_files
    assert isinstance(delete, EncryptedDataFile)
    assert isinstance(first.file, EncryptedDataFile)
    assert (delete.content_offset, delete.content_size_in_bytes, delete.referenced_data_file) == (4, 40, first.file.file_path)
    assert first.file.first_row_id == 77
    assert bytes(first.file.key_metadata or b"") == KEY_METADATA
    assert (first.file.partition[0], first.file.partition[1]) == ("eu", 19000)


def test_the_planned_task_keeps_its_statistics() -> None:
    task = EncryptedFileScanTask(data_file(), set())

    CODEC.encode_tasks([task])

    assert task.file.lower_bounds == {1: b"\x00"}


@given(length=st.integers(0, 200))
def test_cut_entries_are_a_format_error(length: int) -> None:
    content = CODEC.encode_files([data_file()])

    with pytest.raises(FormatError):
        CODEC.decode_files(content[: min(length, len(content) - 1)])


DELETES: tuple[set[DataFile], ...] = ({vector()}, set())
TASKS = [CODEC.encode_tasks([EncryptedFileScanTask(data_file(), deletes)]) for deletes in DELETES]


@given(content=arbitrary(TASKS))
def test_other_bytes_are_a_format_error_or_entries(content: bytes) -> None:
    try:
        CODEC.decode_tasks(content)
    except FormatError as error:
        assert str(error)


def test_bytes_after_the_last_entry_are_refused() -> None:

    with pytest.raises(FormatError):
        CODEC.decode_files(CODEC.encode_files([data_file()]) + b"\x00")


def test_a_result_that_came_twice_is_refused() -> None:
    key = JobKey(bytes(16), Secret(bytes(32)))
    path = f"file:///table/data/00000-3-{key.new_uuid()}.parquet"
    no_marks = encode_positions({})
    encrypted = key.encrypt(Role.RESULT, 3, len(no_marks).to_bytes(8, "little") + no_marks + CODEC.encode_files([data_file(path)]))

    [result] = decrypted_results(key, CODEC, [(3, encrypted)])
    assert [file.file_path for file in result.files] == [path]
    with pytest.raises(AuthenticationError, match="sent two results"):
        decrypted_results(key, CODEC, [(3, encrypted), (3, encrypted)])
    with pytest.raises(AuthenticationError):
        decrypted_results(key, CODEC, [(4, encrypted)])


def test_encrypted_entries_show_no_key() -> None:
    content = CODEC.encode_files([data_file()])
    dek = bytes(range(16))

    assert dek in content
    assert dek not in JobKey(bytes(16), Secret(bytes(32))).encrypt(Role.RESULT, 0, content)


def _comparable(file: Any) -> list[Any]:
    return [
        tuple(value[position] for position in range(len(value))) if isinstance(value, Record) else value
        for value in EncryptedDataFile.of(file).values()
    ]


def test_a_length_past_the_end_is_refused_before_it_is_used() -> None:
    """PyIceberg's compiled decoder believes every length: it would copy memory behind the bytes, or end the process."""
    content = CODEC.encode_files([data_file()])
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\x7f"
    refused = 0
    for at in range(len(content)):
        for changed in (content[:at] + huge + content[at + 1 :], content[:at] + huge):
            try:
                CODEC.decode_files(changed)
            except FormatError:
                refused += 1
    assert refused > len(content)
