"""Attacks on uniformly encrypted Parquet files: none of them gives a row that was not written, and each error names the file."""

from __future__ import annotations

import io
import secrets
import traceback
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import AuthenticationError, PlaintextRefusedError, TamperedFileError
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile
from tests.support.mutations import flipped
from tests.support.uniform_files import LOCATION, EncryptedFile, encrypt_uniform, read, sample_table

ENCRYPTED = encrypt_uniform(sample_table())


each_way_of_reading = pytest.mark.parametrize("reading", [read, partial(read, small_file_length=0)], ids=["read whole", "read in ranges"])


def without_length(encrypted: EncryptedFile) -> StandardKeyMetadata:
    return StandardKeyMetadata(encrypted.key_metadata.encryption_key, encrypted.key_metadata.aad_prefix)


def test_no_flipped_bit_changes_a_row() -> None:
    """One bit in every byte. Harmless are only some in the stop bytes of FileCryptoMetaData, which the format leaves in the clear and
    whose upper halves Thrift does not look at; where Arrow writes a page index (it does not here), no reader looks at that either."""
    harmless = 0
    for at in range(len(ENCRYPTED.data)):
        changed = flipped(ENCRYPTED.data, at, at * 3 % 8)
        try:
            assert read(changed, ENCRYPTED.key_metadata) == ENCRYPTED.table
            harmless += 1
        except TamperedFileError as error:
            assert error.location == LOCATION
    assert harmless <= 3


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_overwritten_range_changes_a_row(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(ENCRYPTED.data) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=len(ENCRYPTED.data) - at))
    changed = ENCRYPTED.data[:at] + noise + ENCRYPTED.data[at + len(noise) :]
    try:
        assert read(changed, ENCRYPTED.key_metadata) == ENCRYPTED.table
    except TamperedFileError as error:
        assert error.location == LOCATION


@each_way_of_reading
@pytest.mark.parametrize("kept", [0, 4, 7, 8, 100, len(ENCRYPTED.data) - 4, len(ENCRYPTED.data) - 1])
def test_a_cut_file_is_refused(kept: int, reading: Callable[..., pa.Table]) -> None:
    with pytest.raises(TamperedFileError, match=rf"{kept} bytes.*{len(ENCRYPTED.data)}"):
        reading(ENCRYPTED.data[:kept], ENCRYPTED.key_metadata)
    with pytest.raises(TamperedFileError):
        reading(ENCRYPTED.data[:kept], without_length(ENCRYPTED))


@each_way_of_reading
@pytest.mark.parametrize("extra", [b"\0", b"PARE", ENCRYPTED.data])
def test_bytes_before_or_after_are_refused(extra: bytes, reading: Callable[..., pa.Table]) -> None:
    for changed in (ENCRYPTED.data + extra, extra + ENCRYPTED.data):
        with pytest.raises(TamperedFileError, match="bytes"):
            reading(changed, ENCRYPTED.key_metadata)


@each_way_of_reading
@pytest.mark.parametrize(
    ("changed", "said"),
    [(b"PAR1" + ENCRYPTED.data[4:], "begins with"), (ENCRYPTED.data[:-4] + b"PAR1", "ends with"), (b"AGS1" + bytes(1000), "begins with")],
    ids=["a plaintext head", "a plaintext tail", "no Parquet file"],
)
def test_another_magic_is_refused(changed: bytes, said: str, reading: Callable[..., pa.Table]) -> None:
    with pytest.raises(TamperedFileError, match=said):
        reading(changed, without_length(ENCRYPTED))


@each_way_of_reading
def test_a_plaintext_file_in_its_place_is_refused(reading: Callable[..., pa.Table]) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(ENCRYPTED.table, sink)
    plaintext = sink.getvalue().to_pybytes()
    with pytest.raises(PlaintextRefusedError) as refused:
        reading(plaintext, without_length(ENCRYPTED))
    assert refused.value.location == LOCATION


@each_way_of_reading
def test_another_files_bytes_are_refused(reading: Callable[..., pa.Table]) -> None:
    other = encrypt_uniform(sample_table())
    with pytest.raises(AuthenticationError):
        reading(other.data, without_length(ENCRYPTED))


@each_way_of_reading
def test_a_wrong_key_is_refused(reading: Callable[..., pa.Table]) -> None:
    wrong = StandardKeyMetadata.generate(16, secrets.token_bytes)
    with pytest.raises(TamperedFileError, match="key is another file's"):
        reading(ENCRYPTED.data, StandardKeyMetadata(wrong.encryption_key, ENCRYPTED.key_metadata.aad_prefix, len(ENCRYPTED.data)))


@pytest.mark.parametrize("prefix", [b"", b"x" * 16])
def test_a_wrong_or_missing_aad_prefix_is_refused(prefix: bytes) -> None:
    with pytest.raises(TamperedFileError):
        read(ENCRYPTED.data, StandardKeyMetadata(ENCRYPTED.key_metadata.encryption_key, prefix))


def test_column_chunks_swapped_between_row_groups_are_refused() -> None:
    encrypted = encrypt_uniform(sample_table(60), row_group_size=30, compression="none", use_dictionary=False)
    footer = UniformParquetFile(pa.BufferReader(encrypted.data), encrypted.key_metadata, LOCATION).footer()
    chunks = [footer.row_group(group).column(0) for group in range(2)]
    first, second = ((chunk.data_page_offset, chunk.total_compressed_size) for chunk in chunks)
    assert first[1] == second[1]
    changed = bytearray(encrypted.data)
    changed[first[0] : sum(first)], changed[second[0] : sum(second)] = (
        encrypted.data[second[0] : sum(second)],
        encrypted.data[first[0] : sum(first)],
    )
    with pytest.raises(TamperedFileError, match="column"):
        read(bytes(changed), encrypted.key_metadata)


def test_rows_before_the_damage_are_authentic_and_none_follow() -> None:
    encrypted = encrypt_uniform(sample_table(4000), row_group_size=100)
    footer = UniformParquetFile(pa.BufferReader(encrypted.data), encrypted.key_metadata, LOCATION).footer()
    damaged = flipped(encrypted.data, footer.row_group(30).column(0).data_page_offset + 20)
    file = UniformParquetFile(pa.BufferReader(damaged), encrypted.key_metadata, LOCATION)
    seen: list[int] = []
    with pytest.raises(TamperedFileError):
        for batch in file.batches(ReadRequest(["id"])):
            seen += batch.column("id").to_pylist()
    assert seen == list(range(len(seen)))
    assert len(seen) <= 3000


def test_a_column_that_is_not_read_does_not_fail_the_others() -> None:
    footer = UniformParquetFile(pa.BufferReader(ENCRYPTED.data), ENCRYPTED.key_metadata, LOCATION).footer()
    damaged = flipped(ENCRYPTED.data, footer.row_group(0).column(2).data_page_offset + 20)
    assert read(damaged, ENCRYPTED.key_metadata, ["id"]) == ENCRYPTED.table.select(["id"])
    with pytest.raises(TamperedFileError):
        read(damaged, ENCRYPTED.key_metadata, ["ratio"])


class _FailingStore(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        raise PermissionError(13, "Access Denied")


def test_an_error_of_the_store_is_not_called_tampering() -> None:
    with pytest.raises(PermissionError, match="Access Denied"):
        UniformParquetFile(_FailingStore(ENCRYPTED.data), ENCRYPTED.key_metadata, LOCATION)


def test_no_error_shows_the_key() -> None:
    key = ENCRYPTED.key_metadata.encryption_key.reveal()
    for data in (flipped(ENCRYPTED.data, 30), flipped(ENCRYPTED.data, -300), ENCRYPTED.data[:-1], b"PAR1" + ENCRYPTED.data[4:]):
        with pytest.raises(TamperedFileError) as refused:
            read(data, ENCRYPTED.key_metadata)
        shown = "".join(traceback.format_exception(refused.value))
        assert key.hex() not in shown
        assert repr(key)[2:-1] not in shown
