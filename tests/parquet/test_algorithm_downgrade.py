"""Whoever writes storage changes the plaintext that says how a file is encrypted: no reader takes unauthenticated pages for rows.

The rows are in uncompressed pages of required columns, where AES-CTR turns changed bytes into changed values and nothing else notices.
"""

from __future__ import annotations

import io
import secrets
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import TablecryptError, TamperedFileError
from tablecrypt.parquet import FileKeys, decrypt, encrypt, read_table, reencrypt, verify
from tablecrypt.parquet.footer import END_GUESS
from tablecrypt.parquet.uniform import SMALL_FILE_LENGTH, ReadRequest, UniformParquetFile
from tests.support.modular_files import AAD_PREFIX, FOOTER_KEY, Mode, encrypted, plain_file
from tests.support.uniform_files import CTR_UNION, LOCATION, UNION, EncryptedFile, downgraded, encrypt_uniform, read

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("ratio", pa.float64(), nullable=False)])
PLAIN_OPTIONS: dict[str, Any] = {"compression": "none", "use_dictionary": False}


def required_rows(count: int = 8) -> pa.Table:
    return pa.table({"id": range(count), "ratio": [each / 3 for each in range(count)]}, schema=SCHEMA)


ENCRYPTED = encrypt_uniform(required_rows(), **PLAIN_OPTIONS)


def end_start(data: bytes) -> int:
    """Where FileCryptoMetaData, or a plaintext footer, begins."""
    return len(data) - 8 - int(struct.unpack("<I", data[-8:-4])[0])


each_way_of_reading = pytest.mark.parametrize("reading", [read, partial(read, small_file_length=0)], ids=["read whole", "read in ranges"])


@each_way_of_reading
def test_a_table_file_that_says_ctr_is_refused(reading: Callable[..., pa.Table]) -> None:
    with pytest.raises(TamperedFileError, match="AES_GCM_CTR_V1") as refused:
        reading(downgraded(ENCRYPTED.data), ENCRYPTED.key_metadata)
    assert refused.value.location == LOCATION


@pytest.mark.parametrize("work", [read_table, verify, lambda data, keys: decrypt(data, io.BytesIO(), keys)])
def test_keys_refuse_ctr_that_they_did_not_ask_for(work: Callable[[bytes, FileKeys], object]) -> None:
    """Of a file of its own writer in CTR, and of one that was made to say so."""
    plaintext = plain_file(required_rows(), **PLAIN_OPTIONS)
    chosen = encrypted(plaintext, Mode(algorithm="AES_GCM_CTR_V1").keys)
    forced = downgraded(encrypted(plaintext, Mode().keys))
    for data in (chosen, forced):
        with pytest.raises(TamperedFileError, match=r"ask for it: FileKeys\(algorithm="):
            work(data, FileKeys(FOOTER_KEY, aad_prefix=AAD_PREFIX))
    for keys in (Mode(algorithm="AES_GCM_CTR_V1").keys, FileKeys(FOOTER_KEY, aad_prefix=AAD_PREFIX, strict=False)):
        work(chosen, keys)


def test_keys_that_accept_ctr_read_gcm_too() -> None:
    data = encrypted(plain_file(required_rows(), **PLAIN_OPTIONS), Mode().keys)
    assert read_table(data, Mode(algorithm="AES_GCM_CTR_V1").keys) == required_rows()


def test_reencrypting_does_not_make_a_change_authentic() -> None:
    old, new = FileKeys.of_table_file(ENCRYPTED.key_metadata), FileKeys(b"n" * 16)
    with pytest.raises(TamperedFileError, match="AES_GCM_CTR_V1"):
        reencrypt(downgraded(ENCRYPTED.data), io.BytesIO(), old, new)


def changes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each other value of each byte of the magics, FileCryptoMetaData (or all of a short plaintext footer) and the trailer."""
    start = end_start(data)
    crypto = data.index(b"\x00\x00", start) + 2 - start if data.endswith(b"PARE") else len(data) - 8 - start
    for at in (*range(4), *range(start, start + crypto), *range(len(data) - 8, len(data))):
        for value in range(256):
            if value != data[at]:
                yield at, data[:at] + bytes([value]) + data[at + 1 :]


def refused_or_equal(work: Callable[[], pa.Table], rows: pa.Table, at: int) -> bool:
    """Whether it was refused, by an error of ours; other rows fail the test."""
    try:
        found = work()
    except TablecryptError:
        return True
    assert found == rows, f"byte {at} changed rows"
    return False


@pytest.mark.slow
@each_way_of_reading
def test_no_value_of_a_plaintext_byte_changes_rows_of_a_table_file(reading: Callable[..., pa.Table]) -> None:
    """The length is not known here, which is the reader's weakest case. Every value of every byte is refused."""
    unknown_length = StandardKeyMetadata(ENCRYPTED.key_metadata.encryption_key, ENCRYPTED.key_metadata.aad_prefix)
    refused = [refused_or_equal(partial(reading, changed, unknown_length), ENCRYPTED.table, at) for at, changed in changes(ENCRYPTED.data)]
    assert len(refused) > 15 * 255
    assert all(refused)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    [Mode(), Mode(store_aad_prefix=True), Mode(column_keys={"id": b"i" * 16}), Mode(plaintext_footer=True)],
    ids=["encrypted footer", "stored prefix", "column key", "signed footer"],
)
def test_no_value_of_a_plaintext_byte_changes_rows_under_keys_of_ones_own(mode: Mode) -> None:
    table = required_rows(2).select(["id"])
    data = encrypted(plain_file(table, **PLAIN_OPTIONS, write_statistics=False, store_schema=False), mode.keys)
    # Of a signed footer every seventh change: it is long, and authenticated as a whole.
    chosen = [each for number, each in enumerate(changes(data)) if not mode.plaintext_footer or number % 7 == 0]
    refused = [refused_or_equal(partial(read_table, changed, mode.keys), table, at) for at, changed in chosen]
    assert len(refused) > 1000
    assert all(refused)


class _Changing(io.BytesIO):
    """A store in which the file is exchanged after its end was read for the first time. Notes each read."""

    def __init__(self, before: bytes, after: bytes) -> None:
        super().__init__(before)
        self._after = after
        self.reads: list[tuple[int, int]] = []

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        data = super().read(size)
        self.reads.append((start, start + len(data)))
        if start + len(data) == len(self._after):
            self.seek(0)
            self.write(self._after)
            self.seek(start + len(data))
        return data


def long_file() -> EncryptedFile:
    """One that the reader does not fetch whole."""
    encrypted = encrypt_uniform(required_rows(100_000), row_group_size=20_000, **PLAIN_OPTIONS)
    assert len(encrypted.data) > SMALL_FILE_LENGTH
    return encrypted


def all_rows(file: UniformParquetFile) -> pa.Table:
    return pa.Table.from_batches(list(file.batches(ReadRequest(file.schema.names))), schema=file.schema)


def test_the_bytes_that_are_checked_are_those_that_the_reader_gets() -> None:
    encrypted = long_file()
    changing = _Changing(encrypted.data, downgraded(encrypted.data))
    assert all_rows(UniformParquetFile(changing, encrypted.key_metadata, LOCATION)) == encrypted.table
    with pytest.raises(TamperedFileError, match="AES_GCM_CTR_V1"):
        UniformParquetFile(_Changing(downgraded(encrypted.data), encrypted.data), encrypted.key_metadata, LOCATION)


def test_the_footer_is_fetched_once() -> None:
    """Also by pyarrow, which keeps what it has read: neither opening nor any scan costs a request for it."""
    encrypted = long_file()
    source = _Changing(encrypted.data, encrypted.data)
    file = UniformParquetFile(source, encrypted.key_metadata, LOCATION)
    assert all_rows(file) == all_rows(file) == encrypted.table
    assert file.footer().num_rows == encrypted.table.num_rows
    start = end_start(encrypted.data)
    assert [each for each in source.reads if each[1] > start] == [(len(encrypted.data) - END_GUESS, len(encrypted.data))]


def test_a_footer_longer_than_the_first_read_is_checked_whole() -> None:
    wide = pa.table({f"c{number}": pa.array([1.5], pa.float64()) for number in range(900)})
    encrypted = encrypt_uniform(wide, **PLAIN_OPTIONS)
    assert len(encrypted.data) - end_start(encrypted.data) > END_GUESS
    source = _Changing(encrypted.data, encrypted.data)
    assert all_rows(UniformParquetFile(source, encrypted.key_metadata, LOCATION)) == wide
    with pytest.raises(TamperedFileError, match="AES_GCM_CTR_V1"):
        read(downgraded(encrypted.data), encrypted.key_metadata)


def test_a_mapped_file_does_not_change_under_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    path.write_bytes(ENCRYPTED.data)
    with pa.memory_map(str(path)) as mapped:
        file = UniformParquetFile(mapped, ENCRYPTED.key_metadata, LOCATION)
        with path.open("r+b") as stored:
            stored.write(b"PAR1" + bytes(len(ENCRYPTED.data) - 4))
        assert all_rows(file) == ENCRYPTED.table


def test_a_file_exchanged_between_its_two_openings_is_refused() -> None:
    """Ours parses the footer to see which reader fits, and pyarrow's opens the file again."""
    plaintext = plain_file(required_rows(100_000), **PLAIN_OPTIONS)
    one, other = (encrypted(plaintext, Mode().keys, seed=seed) for seed in (1, 2))
    assert len(one) > SMALL_FILE_LENGTH
    with pytest.raises(TamperedFileError, match="exchanged for another file while it was read"):
        read_table(_Changing(one, other), Mode().keys)


def test_the_end_of_another_files_prefix_is_not_taken_for_a_file_identifier() -> None:
    """A file under the prefix "t/10" must not stand in for one under "t/1", with "0" moved to its identifier."""
    plaintext = plain_file(required_rows(), **PLAIN_OPTIONS)
    data = encrypted(plaintext, FileKeys(FOOTER_KEY, aad_prefix=b"t/10"))
    start = end_start(data)
    assert data[start + 2 : start + 4] == b"\x28\x08"
    moved = data[:start] + UNION + b"\x28\x090" + data[start + 4 :]
    moved = moved[:-8] + struct.pack("<I", len(moved) - 8 - start) + moved[-4:]
    assert read_table(data, FileKeys(FOOTER_KEY, aad_prefix=b"t/10")) == required_rows()
    with pytest.raises(TamperedFileError, match="aad_file_unique does not have 8 bytes"):
        read_table(moved, FileKeys(FOOTER_KEY, aad_prefix=b"t/1"))
    with pytest.raises(TamperedFileError, match="aad_file_unique does not have 8 bytes"):
        read(moved, StandardKeyMetadata(ENCRYPTED.key_metadata.encryption_key, b"t/1"))


def test_two_algorithms_at_once_are_refused() -> None:
    """A parser that takes the first of them and one that takes the last would read different things."""
    start = end_start(ENCRYPTED.data)
    details = ENCRYPTED.data[start + 2 : ENCRYPTED.data.index(b"\x00\x00", start) + 1]
    for crypto in (UNION + details + b"\x1c" + details + b"\x00\x00", CTR_UNION + details + b"\x0c\x02" + details + b"\x00\x00"):
        body = ENCRYPTED.data[:start] + crypto + ENCRYPTED.data[ENCRYPTED.data.index(b"\x00\x00", start) + 2 : -8]
        data = body + struct.pack("<I", len(body) - start) + b"PARE"
        with pytest.raises(TamperedFileError, match="malformed"):
            read(data, StandardKeyMetadata(ENCRYPTED.key_metadata.encryption_key, ENCRYPTED.key_metadata.aad_prefix))


def test_a_prefix_that_the_table_does_not_know_is_refused() -> None:
    """Of a table whose writer uses no AAD prefix."""
    key_metadata = StandardKeyMetadata(ENCRYPTED.key_metadata.encryption_key, b"")
    sink = io.BytesIO()
    encrypt(plain_file(required_rows(), **PLAIN_OPTIONS), sink, FileKeys(key_metadata.encryption_key), random=secrets.token_bytes)
    assert read(sink.getvalue(), key_metadata) == required_rows()
    with pytest.raises(TamperedFileError, match="AAD prefix, where none is expected"):
        read(ENCRYPTED.data, key_metadata)
