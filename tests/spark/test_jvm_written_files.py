"""The results of writing tasks: encrypted for one task of one write, and nothing but whole results understood."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType
from pyroaring import BitMap, BitMap64

from tablecrypt.errors import AuthenticationError, FormatError
from tablecrypt.spark.shared.task_keys import ResultKey
from tablecrypt.spark.shared.written_files import WrittenFile, decode_result, partition_record, split_results
from tablecrypt.table.file_entries import FileEntryCodec
from tests.support.mutations import mutations

SCHEMA: Final = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ratio", DoubleType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "text", StringType()),
)
SPEC: Final = PartitionSpec(
    PartitionField(3, 1000, IdentityTransform(), "day"),
    PartitionField(2, 1001, VoidTransform(), "gone"),
    PartitionField(4, 1002, IdentityTransform(), "text"),
    PartitionField(1, 1003, BucketTransform(4), "bucket"),
)
LOCATION: Final = "file:///lake/data/00003-17-0f0e0d0c-0b0a-0908-0706-050403020100-00000.parquet"
DELETED: Final = {"file:///lake/data/old.parquet": [0, 7, 2**31 - 1]}
MARKED: Final = {location: BitMap(positions) for location, positions in DELETED.items()}
PARTITION: Final = b"\x01" + struct.pack(">I", 4) + struct.pack("<i", -1) + b"\x00" + b"\x01" + struct.pack(">I", 4) + struct.pack("<i", 3)


def metadata() -> TableMetadata:
    return new_table_metadata(SCHEMA, SPEC, UNSORTED_SORT_ORDER, "file:///lake", {"format-version": "2"})


def sized(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def footer() -> bytes:
    sink = pa.BufferOutputStream()
    columns = {"id": [1, 2], "ratio": [0.5, float("nan")], "day": pa.array([-1, -1], pa.date32()), "text": ["a", None]}
    pq.write_table(pa.table(columns), sink)
    content = bytes(sink.getvalue())
    return content[-8 - struct.unpack("<I", content[-8:-4])[0] : -8]


def result(
    partition: bytes = PARTITION,
    footer_bytes: bytes | None = None,
    dek: bytes = bytes(16),
    nan_count: int = 1,
    deleted: Mapping[str, BitMap] = MARKED,
) -> bytes:
    nans = struct.pack(">IIQ", 1, 2, nan_count)
    parts = sized(LOCATION.encode()) + struct.pack(">Q", 4711) + sized(dek) + sized(bytes(range(16))) + sized(partition)
    deletes = b"".join(sized(location.encode()) + sized(positions.serialize()) for location, positions in deleted.items())
    file = parts + nans + sized(footer() if footer_bytes is None else footer_bytes)
    return struct.pack(">QIB", 17, 1, 0) + file + struct.pack(">I", len(deleted)) + deletes


def encrypted(key: ResultKey, task: int, content: bytes, write_id: bytes | None = None) -> bytes:
    """As SealedMessage.java does it, with the standard's key derivation written out."""
    own = ec.generate_private_key(ec.SECP256R1())
    driver = serialization.load_der_public_key(key.public_key)
    assert isinstance(driver, ec.EllipticCurvePublicKey)
    public = own.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digest = hashes.Hash(hashes.SHA256())
    for part in (b"\x00\x00\x00\x01", own.exchange(ec.ECDH(), driver), write_id or key.write_id, public, key.public_key):
        digest.update(part)
    nonce = bytes(12)
    message = AESGCM(digest.finalize()).encrypt(nonce, content, (write_id or key.write_id) + struct.pack(">I", task))
    return struct.pack(">H", len(public)) + public + nonce + message


def test_a_result_opens_in_its_write_as_that_of_its_task() -> None:
    key = ResultKey()

    assert key.decrypt(3, encrypted(key, 3, b"what was written")) == b"what was written"
    for task, other in ((4, encrypted(key, 3, b"")), (3, encrypted(ResultKey(), 3, b"")), (3, encrypted(key, 3, b"", write_id=bytes(16)))):
        with pytest.raises(AuthenticationError, match="does not authenticate"):
            key.decrypt(task, other)


@given(st.data())
def test_a_changed_or_shortened_result_does_not_open(data: st.DataObject) -> None:
    key = ResultKey()
    content = bytearray(encrypted(key, 0, b"what was written"))
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]

    with pytest.raises(AuthenticationError):
        key.decrypt(0, bytes(content))


def test_a_public_key_of_another_kind_does_not_open() -> None:
    other = ed25519.Ed25519PrivateKey.generate().public_key()
    public = other.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)

    with pytest.raises(AuthenticationError):
        ResultKey().decrypt(0, struct.pack(">H", len(public)) + public + bytes(28))


def test_a_file_becomes_the_manifest_entry_that_its_footer_tells_of() -> None:
    decoded = decode_result(result())
    [file] = decoded.files
    entry = file.entry(metadata())

    assert decoded.attempt == 17
    assert {location: list(positions) for location, positions in decoded.deleted.items()} == DELETED
    assert entry.file_path == LOCATION
    assert entry.file_size_in_bytes == 4711
    assert entry.record_count == 2
    assert entry.partition == Record(-1, None, None, 3)
    assert entry.value_counts == {1: 2, 2: 2, 3: 2, 4: 2}
    assert entry.null_value_counts == {1: 0, 2: 0, 3: 0, 4: 1}
    assert entry.nan_value_counts == {2: 1}
    assert entry.lower_bounds == {1: struct.pack("<q", 1), 2: struct.pack("<d", 0.5), 3: struct.pack("<i", -1), 4: b"a"}
    assert entry.upper_bounds == {1: struct.pack("<q", 2), 2: struct.pack("<d", 0.5), 3: struct.pack("<i", -1), 4: b"a"}


def test_a_dek_is_not_in_the_repr_of_what_was_decoded() -> None:
    [file] = decode_result(result(dek=b"0123456789abcdef")).files

    assert "0123456789abcdef" not in repr(file)
    assert isinstance(file, WrittenFile)
    assert file.key_metadata.encryption_key.reveal() == b"0123456789abcdef"


def described_by_python(location: str, *entries: DataFile) -> bytes:
    """A task's result of one file that Python wrote."""
    content = FileEntryCodec(metadata()).encode_files(entries)
    return struct.pack(">QIB", 17, 1, 1) + sized(location.encode()) + sized(content) + struct.pack(">I", 0)


def test_the_entry_of_a_file_that_python_wrote_is_taken_as_it_is_and_only_for_its_location() -> None:
    [spark] = decode_result(result()).files
    entry = spark.entry(metadata())
    [file] = decode_result(described_by_python(LOCATION, entry)).files
    assert file.entry(metadata()) == entry
    assert repr(file) == f"FileOfPython(location={LOCATION!r})"

    for location, *entries in ((LOCATION + "x", entry), (LOCATION,), (LOCATION, entry, entry)):
        [file] = decode_result(described_by_python(location, *entries)).files
        with pytest.raises(FormatError, match="that of another file"):
            file.entry(metadata())
    with pytest.raises(FormatError):
        decode_result(result()[:12] + b"\x02" + result()[13:])


@given(st.binary(max_size=200))
@example(b"attempt " + bytes(8))
def test_bytes_that_are_no_result_are_refused(content: bytes) -> None:
    try:
        decode_result(content)
    except FormatError:
        return
    assert content[8:] == bytes(8)


@given(mutations([result()]))
def test_a_damaged_result_is_refused_or_tells_of_files_all_the_same(content: bytes) -> None:
    try:
        files = decode_result(content).files
        for file in files:
            file.entry(metadata())
    except FormatError as error:
        assert str(error)


@pytest.mark.parametrize(
    "content",
    [result()[:-1], result() + b"\x00", result(dek=bytes(5)), struct.pack(">QI", 1, 2**32 - 1)],
    ids=["too short", "too long", "a key of five bytes", "more files than bytes"],
)
def test_results_that_are_not_whole_are_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        decode_result(content)


@pytest.mark.parametrize("partition", [b"", PARTITION + b"\x00", b"\x01\x00\x00\x00\x02ab\x00\x00", PARTITION[:-1]])
def test_partition_values_that_are_not_of_the_spec_are_refused(partition: bytes) -> None:
    with pytest.raises(FormatError, match=r"partition values|ends early"):
        partition_record(partition, SPEC, SCHEMA)


@pytest.mark.parametrize("content", [b"", b"PAR1", bytes(100), footer()[:-20]])
def test_a_footer_that_is_none_is_refused(content: bytes) -> None:
    [file] = decode_result(result(footer_bytes=content)).files

    with pytest.raises(FormatError, match="description of it is malformed"):
        file.entry(metadata())


@pytest.mark.parametrize("count", [2**63, 2**64 - 1])
def test_a_count_that_no_file_has_is_refused(count: int) -> None:
    """A manifest would hold it as another number. Results of Python are held to the same."""
    [file] = decode_result(result(nan_count=count)).files

    with pytest.raises(FormatError, match="is to be added with nan_value_counts that no file has"):
        file.entry(metadata())


def test_marks_of_all_rows_in_a_few_bytes_are_taken_in_at_once() -> None:
    """One by one, the rows that one worker marks would hold the planner of all queries for minutes."""
    every = BitMap().flip(0, 2**32)
    content = result(deleted={LOCATION: every, "none": BitMap()})
    assert len(content) < 2**20

    deleted = decode_result(content).deleted

    assert deleted == {LOCATION: BitMap64().flip(0, 2**32), "none": BitMap64()}


def test_results_come_each_with_its_length() -> None:
    assert split_results(b"") == []
    assert split_results(sized(b"one") + sized(b"") + sized(b"three")) == [b"one", b"", b"three"]
    with pytest.raises(FormatError):
        split_results(sized(b"one")[:-1])
