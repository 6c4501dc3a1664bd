"""What the reader and writer of uniformly encrypted Parquet files promise when nobody interferes."""

from __future__ import annotations

import io
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.parquet import FileKeys, encrypt
from tablecrypt.parquet.footer import FileCiphers, read_footer
from tablecrypt.parquet.modules import FOOTER_SUFFIX, ModuleCipher
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile
from tests.support.plaintext import CANARY
from tests.support.sample_rows import extreme_rows
from tests.support.uniform_files import LOCATION, encrypt_uniform, read, sample_table


@pytest.mark.parametrize("key_length", [16, 24, 32])
def test_what_was_written_is_read(key_length: int) -> None:
    encrypted = encrypt_uniform(sample_table(), key_length)
    assert read(encrypted.data, encrypted.key_metadata) == encrypted.table


def test_every_type_is_read_as_it_was_written() -> None:
    encrypted = encrypt_uniform(extreme_rows())
    # NaN differs from itself, so rows are compared by what they print as.
    assert str(read(encrypted.data, encrypted.key_metadata).to_pydict()) == str(encrypted.table.to_pydict())


def test_a_file_is_ciphertext_between_two_magics() -> None:
    encrypted = encrypt_uniform(sample_table(), compression="none", use_dictionary=False)
    assert encrypted.data[:4] == encrypted.data[-4:] == b"PARE"
    assert CANARY.encode() not in encrypted.data


def test_the_aad_prefix_is_not_in_the_file() -> None:
    encrypted = encrypt_uniform(sample_table())
    assert encrypted.key_metadata.aad_prefix not in encrypted.data


def test_two_files_of_the_same_rows_under_the_same_key_share_no_module() -> None:
    key_metadata = StandardKeyMetadata.generate(16, secrets.token_bytes)
    first, second = (encrypt_uniform(sample_table(), key_metadata=key_metadata).data for _ in range(2))
    blocks = {first[at : at + 16] for at in range(4, len(first) - 16)}
    assert not any(second[at : at + 16] in blocks for at in range(4, len(second) - 16, 16))


class _CountedReads(io.BytesIO):
    reads = 0

    def read(self, size: int | None = -1) -> bytes:
        self.reads += 1
        return super().read(size)


def test_a_small_file_is_fetched_in_one_request() -> None:
    encrypted = encrypt_uniform(sample_table())
    source = _CountedReads(encrypted.data)
    file = UniformParquetFile(source, encrypted.key_metadata, LOCATION)
    assert pa.Table.from_batches(file.batches(ReadRequest(["id"]))) == encrypted.table.select(["id"])
    assert source.reads == 1


def test_pages_that_their_writer_damaged_are_not_called_changed() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": [CANARY * 9]}), sink, use_dictionary=False, compression="zstd")
    plain = sink.getvalue().replace(b"\x28\xb5\x2f\xfd", bytes(4))
    key_metadata, encrypted = StandardKeyMetadata.generate(16, secrets.token_bytes), io.BytesIO()
    length = encrypt(plain, encrypted, FileKeys.of_table_file(key_metadata))

    with pytest.raises(FormatError, match=r"a column's modules are what was written, and Arrow cannot decode them: ZSTD"):
        read(encrypted.getvalue(), replace(key_metadata, file_length=length))


def test_the_footer_gives_the_statistics() -> None:
    encrypted = encrypt_uniform(sample_table(60), row_group_size=20)
    footer = UniformParquetFile(pa.BufferReader(encrypted.data), encrypted.key_metadata, LOCATION).footer()
    assert (footer.num_rows, footer.num_row_groups) == (60, 3)
    assert footer.row_group(1).column(0).statistics.min == 20


def test_a_file_whose_writer_had_views_is_filtered_like_any_other() -> None:
    inside = pa.array([{"x": ["a"]}, {"x": None}, None], pa.struct([("x", pa.list_(pa.string_view()))]))
    names, codes = pa.array(["a", "b" * 20, None], pa.string_view()), pa.array([b"a", None, b"c"], pa.binary_view())
    encrypted = encrypt_uniform(pa.table({"name": names, "code": codes, "inside": inside}))
    file = UniformParquetFile(pa.BufferReader(encrypted.data), encrypted.key_metadata, LOCATION)
    assert file.schema.types[:2] == [pa.large_string(), pa.large_binary()]
    assert pa.Table.from_batches(file.batches(ReadRequest(file.schema.names))).to_pylist() == encrypted.table.to_pylist()
    kept = pa.Table.from_batches(file.batches(ReadRequest(["code", "name"], pc.field("name") == "a")))
    assert kept.to_pylist() == [{"code": b"a", "name": "a"}]


def test_what_arrow_cannot_do_is_not_called_tampering() -> None:
    encrypted = encrypt_uniform(sample_table(60))
    file = UniformParquetFile(pa.BufferReader(encrypted.data), encrypted.key_metadata, LOCATION)
    with pytest.raises(FormatError, match="Arrow cannot read this of it"):
        list(file.batches(ReadRequest(["id"], pc.field("id") == pa.scalar("x", pa.string_view()))))


def test_a_filter_that_arrow_cannot_apply_says_what_to_do() -> None:
    encrypted = encrypt_uniform(pa.table({"half": pa.array([1.0, 2.0], pa.float16())}))
    file = UniformParquetFile(pa.BufferReader(encrypted.data), encrypted.key_metadata, LOCATION)
    with pytest.raises(FormatError, match=r"Arrow cannot read this of it: .*halffloat.*: filter by other columns, or filter the rows"):
        list(file.batches(ReadRequest(["half"], pc.field("half") > 1.5)))


def test_a_name_that_is_not_utf_8_is_one_error_of_ours() -> None:
    """Whoever has the file's key may have written its footer."""
    encrypted = encrypt_uniform(pa.table({"name": [1]}))
    stored = read_footer(source_of(io.BytesIO(encrypted.data)))
    keys = FileKeys.of_table_file(encrypted.key_metadata)
    assert stored.algorithm is not None
    aad = stored.algorithm.admit(keys, LOCATION)
    footer = stored.open(FileCiphers(stored, keys).footer).encode().replace(b"name", b"na\xff\xfe")
    cipher = ModuleCipher(encrypted.key_metadata.encryption_key, "the key", aad, False, LOCATION, secrets.token_bytes)
    end = encrypted.data[stored.start : stored.module_start] + bytes(cipher.encrypt(FOOTER_SUFFIX, footer))
    data = encrypted.data[: stored.start] + end + len(end).to_bytes(4, "little") + b"PARE"
    with pytest.raises(FormatError, match=f"^{LOCATION}: the footer holds a name that is not UTF-8"):
        UniformParquetFile(pa.BufferReader(data), replace(encrypted.key_metadata, file_length=None), LOCATION)


@pytest.mark.parametrize("row_group_size", [7, 20, 1000])
@pytest.mark.parametrize("read_ahead", [None, 1, 300])
@pytest.mark.parametrize("prune_by", [None, pc.field("id") >= 41, (pc.field("id") < 5) | (pc.field("id") > 50)])
def test_positions_are_those_in_the_whole_file(row_group_size: int, prune_by: pc.Expression | None, read_ahead: int | None) -> None:
    encrypted = encrypt_uniform(sample_table(60), row_group_size=row_group_size)
    file = UniformParquetFile(pa.BufferReader(encrypted.data), encrypted.key_metadata, LOCATION)
    found = list(file.positioned_batches(ReadRequest(["id"], prune_by, read_ahead)))
    for each in found:
        assert each.positions.to_pylist() == each.batch.column("id").to_pylist()
    matching = encrypted.table if prune_by is None else encrypted.table.filter(prune_by)
    assert set(matching.column("id").to_pylist()) <= {number for each in found for number in each.positions.to_pylist()}


def test_no_row_group_left_means_no_batch() -> None:
    encrypted = encrypt_uniform(sample_table(60))
    file = UniformParquetFile(pa.BufferReader(encrypted.data), encrypted.key_metadata, LOCATION)
    assert list(file.positioned_batches(ReadRequest(["id"], pc.field("id") > 1000))) == []


@pytest.mark.parametrize(
    "options", [{"data_page_version": "2.0"}, {"bloom_filter_options": {"id": {}}}, {"encryption_properties": "another's"}]
)
def test_what_would_leave_plaintext_or_repeat_keys_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        encrypt_uniform(sample_table(), **options)


def test_pyarrow_reads_the_file_with_key_and_prefix_and_not_without(tmp_path: Path) -> None:
    encrypted = encrypt_uniform(sample_table())
    (tmp_path / "encrypted.parquet").write_bytes(encrypted.data)
    with pytest.raises(OSError, match="encrypted"):
        pq.read_table(tmp_path / "encrypted.parquet")
