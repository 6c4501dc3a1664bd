"""Encrypting, decrypting and re-encrypting files between stores: whole or not at all, in bounded memory."""

from __future__ import annotations

import io
import secrets
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, KeyMismatchError, KeyNotFoundError, PlaintextRefusedError, TamperedFileError
from tablecrypt.parquet import FileKeys, decrypt, encrypt, inspect, read_table, reencrypt, verify, write_table
from tablecrypt.parquet.uniform import UniformParquetFile
from tests.support import uniform_files
from tests.support.modular_files import FOOTER_KEY, ID_KEY, Mode, encrypted, every_module, plain_file, reencrypted, sample_table
from tests.support.mutations import flipped

pytestmark = pytest.mark.slow

TABLE = sample_table(60)
PLAINTEXT = plain_file(TABLE, **every_module())
KEYS = Mode(column_keys={"id": ID_KEY}).keys


def test_a_table_file_is_reencrypted_under_the_key_of_another() -> None:
    """What the maintenance of tables does: the new key metadata opens the file as any data file of a table."""
    encrypted = uniform_files.encrypt_uniform(uniform_files.sample_table(), row_group_size=20, write_page_index=True)
    fresh = StandardKeyMetadata.generate(16, secrets.token_bytes)

    data = reencrypted(encrypted.data, FileKeys.of_table_file(encrypted.key_metadata), FileKeys.of_table_file(fresh))

    assert uniform_files.read(data, fresh.with_file_length(len(data))) == encrypted.table
    report = verify(data, FileKeys.of_table_file(fresh.with_file_length(len(data))))
    assert report.complete
    with pytest.raises(TamperedFileError):
        verify(data, FileKeys.of_table_file(encrypted.key_metadata))


def test_a_plaintext_file_is_encrypted_into_a_table_file() -> None:
    plaintext = plain_file(uniform_files.sample_table())
    key_metadata = StandardKeyMetadata.generate(32, secrets.token_bytes)
    data = encrypted(plaintext, FileKeys.of_table_file(key_metadata))
    footer = UniformParquetFile(pa.BufferReader(data), key_metadata.with_file_length(len(data)), "file").footer()
    assert footer.row_group(0).column(0).statistics.max == 59
    assert uniform_files.read(data, key_metadata) == uniform_files.sample_table()


def test_streams_of_a_file_io_are_source_and_sink(tmp_path: Path) -> None:
    file_io = PyArrowFileIO()
    plain, encrypted, moved, back = (str(tmp_path / name) for name in ("plain", "encrypted", "moved", "back"))
    (tmp_path / "plain").write_bytes(PLAINTEXT)
    new = FileKeys(b"n" * 32)
    with file_io.new_input(plain).open() as source, file_io.new_output(encrypted).create() as sink:
        length = encrypt(source, sink, KEYS, location=plain)
    with file_io.new_input(encrypted).open() as source, file_io.new_output(moved).create() as sink:
        reencrypt(source, sink, KEYS, new, location=encrypted)
    with file_io.new_input(moved).open() as source, file_io.new_output(back).create() as sink:
        decrypt(source, sink, new, location=moved)
    assert length == (tmp_path / "encrypted").stat().st_size
    assert (tmp_path / "back").read_bytes() == PLAINTEXT


def test_a_file_is_rewritten_in_its_own_place(tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    path.write_bytes(PLAINTEXT)
    encrypt(path, path, KEYS)
    assert read_table(path, KEYS) == TABLE
    decrypt(path, path, KEYS)
    assert path.read_bytes() == PLAINTEXT
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("named", [str, Path.as_uri], ids=["path", "URI"])
def test_a_refused_file_leaves_what_was_there(tmp_path: Path, named: Callable[[Path], str]) -> None:
    damaged = bytearray(encrypted(PLAINTEXT, KEYS))
    damaged[-200] ^= 1
    damaged[3000] ^= 1
    path = tmp_path / "out.parquet"
    path.write_bytes(b"what was there")
    with pytest.raises(KeyMismatchError):
        decrypt(bytes(damaged), named(path), KEYS)
    assert path.read_bytes() == b"what was there"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_not_the_verbs_input_is_refused_with_what_to_do() -> None:
    data = encrypted(PLAINTEXT, KEYS)
    with pytest.raises(ConfigurationError, match="encrypted already; reencrypt it"):
        encrypt(data, io.BytesIO(), KEYS)
    with pytest.raises(PlaintextRefusedError):
        decrypt(PLAINTEXT, io.BytesIO(), KEYS)
    with pytest.raises(PlaintextRefusedError):
        reencrypt(PLAINTEXT, io.BytesIO(), KEYS, KEYS)
    with pytest.raises(KeyNotFoundError, match="column id"):
        reencrypt(data, io.BytesIO(), FileKeys(FOOTER_KEY, aad_prefix=KEYS.aad_prefix), KEYS)
    with pytest.raises(FormatError, match="begins like an AGS1 file: it is no Parquet file"):
        encrypt(b"AGS1" + bytes(1000), io.BytesIO(), KEYS)
    with pytest.raises(ConfigurationError, match="is not a path, a buffer or a binary file"):
        encrypt(17, io.BytesIO(), KEYS)
    with pytest.raises(ConfigurationError, match=r"no write\(\)"):
        encrypt(PLAINTEXT, 17, KEYS)


@pytest.mark.parametrize("options", [{"compresion": "zstd"}, {"compression": "zst"}, {"version": "9"}, {"use_dictionary": 3}], ids=str)
def test_options_that_pyarrow_refuses_are_refused_before_anything_is_written(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="pyarrow cannot write these rows with these options as Parquet: "):
        write_table(TABLE, tmp_path / "file", KEYS, **options)
    assert not list(tmp_path.iterdir())


def test_a_corrupt_page_is_not_given_a_new_checksum() -> None:
    plaintext = plain_file(TABLE, write_page_checksum=True)
    page = next(module for module in inspect(plaintext).modules() if module.type == "data page")
    assert page.offset is not None
    with pytest.raises(TamperedFileError, match="checksum"):
        encrypted(flipped(plaintext, page.offset + page.size // 2), KEYS)


def test_data_of_another_file_is_refused() -> None:
    with pytest.raises(TamperedFileError, match="after its plaintext footer"):
        encrypted(PLAINTEXT[:4] + bytes(len(PLAINTEXT) - 12) + PLAINTEXT[-8:], KEYS)
    with pytest.raises(FormatError, match="a page header of column id in row group 0, at byte 4 is malformed"):
        encrypted(PLAINTEXT[:4] + b"\xff" * 100 + PLAINTEXT[104:], KEYS)


class _Discarded(io.RawIOBase):
    """A sink that keeps nothing."""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        return memoryview(data).nbytes  # type: ignore[arg-type]


def test_memory_stays_far_below_the_file_and_the_column_chunk(tmp_path: Path) -> None:
    rows = 6_000_000
    random = np.random.default_rng(7)
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({"x": random.random(rows)}), path, compression="none", use_dictionary=False, row_group_size=rows)
    assert path.stat().st_size > 40 * 2**20
    encrypted = tmp_path / "encrypted.parquet"
    encrypt(path, encrypted, FileKeys(FOOTER_KEY))
    works: list[tuple[Path, Callable[[BinaryIO], object]]] = [
        (path, lambda file: encrypt(file, _Discarded(), FileKeys(FOOTER_KEY))),
        (encrypted, lambda file: reencrypt(file, _Discarded(), FileKeys(FOOTER_KEY), FileKeys(b"n" * 16, algorithm="AES_GCM_CTR_V1"))),
        (encrypted, lambda file: verify(file, FileKeys(FOOTER_KEY))),
    ]
    for source, work in works:
        # A file of Python's, so that what is read of it is counted.
        with source.open("rb") as file:
            tracemalloc.start()
            work(file)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 24 * 2**20
