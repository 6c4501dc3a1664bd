"""Writing Arrow tables: pyarrow's options work, row groups come one by one, and a failure leaves no file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tablecrypt.errors import ConfigurationError, TamperedFileError
from tablecrypt.parquet import EncryptedParquetWriter, FileKeys, encrypt, inspect, read_table, verify, write_table
from tests.support.modular_files import FOOTER_KEY, ID_KEY, MODES, PARTLY_PLAIN, Mode, decrypted, every_module, plain_file, sample_table

pytestmark = pytest.mark.slow

TABLE = sample_table(50)
KEYS = Mode(column_keys={"id": ID_KEY}).keys
ONE_KEY = FileKeys(FOOTER_KEY)

every_mode = pytest.mark.parametrize("mode", [*MODES, PARTLY_PLAIN], ids=str)


@every_mode
def test_what_was_written_is_read(mode: Mode) -> None:
    sink = io.BytesIO()
    length = write_table(TABLE, sink, mode.keys, **every_module())
    assert length == len(sink.getvalue())
    assert not sink.closed
    assert read_table(sink.getvalue(), mode.keys) == TABLE
    report = verify(sink.getvalue(), mode.keys)
    assert report.modules["bloom filter bitset"] == report.modules["bloom filter header"] == 2 * 3


def test_a_written_file_decrypts_to_one_that_pyarrow_reads_with_all_its_options() -> None:
    sink = io.BytesIO()
    options = every_module(compression="zstd", version="2.4", data_page_version="2.0", sorting_columns=[pq.SortingColumn(0)])
    write_table(TABLE, sink, KEYS, **options)

    file = pq.ParquetFile(pa.BufferReader(decrypted(sink.getvalue(), KEYS)))
    expected = pq.ParquetFile(pa.BufferReader(plain_file(TABLE, **options)))

    assert file.read() == TABLE
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (50, 3)
    for group in range(3):
        assert file.metadata.row_group(group).sorting_columns == expected.metadata.row_group(group).sorting_columns
        for column in range(file.metadata.num_columns):
            found, wanted = (each.metadata.row_group(group).column(column) for each in (file, expected))
            assert (found.compression, found.encodings, found.statistics) == (wanted.compression, wanted.encodings, wanted.statistics)
            assert (found.has_column_index, found.has_offset_index) == (True, True)


def test_tables_and_batches_are_written_one_after_the_other() -> None:
    sink = io.BytesIO()
    with EncryptedParquetWriter(sink, TABLE.schema, KEYS) as writer:
        for start in (0, 20):
            writer.write_table(TABLE.slice(start, 20), row_group_size=15)
        writer.write_table(TABLE.slice(0, 0))
        writer.write_batch(TABLE.slice(40).combine_chunks().to_batches()[0])
    assert writer.file_length == len(sink.getvalue())
    assert read_table(sink.getvalue(), KEYS) == TABLE
    groups = inspect(sink.getvalue(), KEYS).row_groups
    assert groups is not None
    assert [group.ordinal for group in groups] == [0, 1, 2, 3, 4]


@every_mode
def test_a_table_without_rows_is_a_file(mode: Mode) -> None:
    sink = io.BytesIO()
    write_table(TABLE.slice(0, 0), sink, mode.keys)
    assert read_table(sink.getvalue(), mode.keys) == TABLE.slice(0, 0)
    verify(sink.getvalue(), mode.keys)


@every_mode
def test_a_file_of_arrow_without_rows_is_encrypted_and_read(mode: Mode) -> None:
    none = TABLE.slice(0, 0).append_column("flag", pa.array([], pa.bool_()))
    encrypted = io.BytesIO()
    encrypt(plain_file(none), encrypted, mode.keys)
    assert pq.ParquetFile(pa.BufferReader(plain_file(none))).metadata.row_group(0).column(none.num_columns - 1).data_page_offset == 0
    verify(encrypted.getvalue(), mode.keys)
    assert read_table(encrypted.getvalue(), mode.keys) == none
    assert pq.read_table(pa.BufferReader(decrypted(encrypted.getvalue(), mode.keys))) == none


def test_no_two_files_share_a_module_under_the_same_keys() -> None:
    files = []
    for _ in range(2):
        sink = io.BytesIO()
        write_table(TABLE, sink, KEYS)
        files.append(sink.getvalue())
    one, other = ({data[at : at + 16] for at in range(4, len(data) - 16)} for data in files)
    assert len(one & other) < 60, "only what stands in the clear at the end"


def test_randomness_that_is_passed_in_decides_every_byte() -> None:
    def write() -> bytes:
        counter = iter(range(10**6))
        sink = io.BytesIO()
        with EncryptedParquetWriter(sink, TABLE.schema, KEYS, random=lambda length: next(counter).to_bytes(length, "big")) as writer:
            writer.write_table(TABLE)
        return sink.getvalue()

    assert write() == write()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"encryption_properties": "x"}, "the keys say"),
        ({"metadata_collector": []}, "metadata"),
        ({"filesystem": "s3"}, "URI"),
        ({"write_batch_size": 0}, "write_batch_size is 0; it must be at least 1"),
        ({"max_rows_per_page": -1}, "max_rows_per_page is -1; it must be at least 1"),
        ({"compression": 5}, "compression is 5; it must be the name of a codec, or a dict of such names by column"),
        ({"flavor": "sprak"}, "flavor is 'sprak'; pyarrow knows 'spark' alone"),
        ({"use_dictionary": ["nam"]}, r"use_dictionary names 'nam', which is no column of the file\. Did you mean name\?"),
        ({"write_statistics": ["id", "other"]}, "write_statistics names 'other', which is no column of the file$"),
        ({"use_byte_stream_split": ["other"]}, "use_byte_stream_split names 'other'"),
        ({"column_encoding": {"other": "PLAIN"}, "use_dictionary": False}, "column_encoding names 'other'"),
        ({"bloom_filter_options": {"other": True}}, "bloom_filter_options names 'other'"),
        ({"compression": {"other": "zstd"}}, "compression names 'other'"),
        ({"compression_level": {"other": 3}, "compression": "zstd"}, "compression_level names 'other'"),
    ],
)
def test_options_that_encryption_excludes_or_pyarrow_ignores_or_never_ends_with_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        write_table(TABLE, io.BytesIO(), KEYS, **options)


def test_options_by_column_name_leaf_columns() -> None:
    rows = pa.table({"tags": pa.array([["a", "a"], None], pa.list_(pa.string())), "id": pa.array([1, 2])})
    sink = io.BytesIO()
    write_table(rows, sink, ONE_KEY, use_dictionary=["tags.list.element"], compression={"id": "zstd", "tags.list.element": "none"})
    assert read_table(sink.getvalue(), ONE_KEY) == rows
    with pytest.raises(ConfigurationError, match=r"use_dictionary names 'tags', which is no column of the file\. Did you mean tags\.list"):
        write_table(rows, io.BytesIO(), ONE_KEY, use_dictionary=["tags"])


def test_rows_that_pyarrow_cannot_write_are_refused_in_one_line() -> None:
    indices, values = pa.array([0, 1], pa.int8()), pa.array(["a", None])
    rows = pa.table({"of": pa.DictionaryArray.from_arrays(indices, values)})
    with pytest.raises(ConfigurationError, match="pyarrow cannot write these rows with these options as Parquet: Writing DictionaryArray"):
        write_table(rows, io.BytesIO(), ONE_KEY)


def test_a_wrong_option_or_key_leaves_the_sink_untouched(tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    path.write_bytes(b"what was there")
    with pytest.raises(ConfigurationError, match="no_such_option"):
        write_table(TABLE, path, KEYS, no_such_option=True)
    with pytest.raises(ConfigurationError, match="no column 'idd'"):
        write_table(TABLE, path, FileKeys(FOOTER_KEY, {"idd": ID_KEY}))
    with pytest.raises(ConfigurationError, match="0 rows"):
        write_table(TABLE, path, KEYS, row_group_size=0)
    assert path.read_bytes() == b"what was there"
    assert list(tmp_path.iterdir()) == [path]


def test_an_exception_while_writing_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    with pytest.raises(RuntimeError, match="in the middle"), EncryptedParquetWriter(path, TABLE.schema, KEYS) as writer:
        writer.write_table(TABLE)
        raise RuntimeError("in the middle")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigurationError, match="closed"):
        writer.write_table(TABLE)
    with pytest.raises(ConfigurationError, match="not finished"):
        _ = writer.file_length


class _FullOnce(io.BytesIO):
    """Takes nothing of one write, the one after as many as are to come first."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.writes = writes

    def write(self, data: Any) -> int:
        self.writes -= 1
        if self.writes == -1:
            raise OSError("no space is left")
        return super().write(data)


def test_a_file_of_which_a_write_failed_is_not_finished() -> None:
    sink = _FullOnce(5)
    writer = EncryptedParquetWriter(sink, TABLE.schema, KEYS)
    with pytest.raises(OSError, match="no space"):
        writer.write_table(TABLE)
    with pytest.raises(OSError, match="an earlier write failed"):
        writer.write_table(TABLE)
    with pytest.raises(OSError, match="the encrypted Parquet file is incomplete"):
        writer.close()
    writer.close()
    with pytest.raises(TamperedFileError, match="as no Parquet file does"):
        read_table(sink.getvalue(), KEYS)


def test_a_path_and_a_uri_get_the_whole_file(tmp_path: Path) -> None:
    for sink in (tmp_path / "a.parquet", str(tmp_path / "b.parquet"), (tmp_path / "c.parquet").as_uri()):
        write_table(TABLE, sink, KEYS)
        assert read_table(sink, KEYS) == TABLE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "b.parquet", "c.parquet"]


def test_closing_twice_is_fine() -> None:
    sink = io.BytesIO()
    writer = EncryptedParquetWriter(sink, TABLE.schema, KEYS)
    writer.write_table(TABLE)
    writer.close()
    writer.close()
    assert read_table(sink.getvalue(), KEYS) == TABLE


def test_a_table_of_another_schema_is_refused_by_pyarrow() -> None:
    with pytest.raises(ValueError, match="schema"), EncryptedParquetWriter(io.BytesIO(), TABLE.schema, KEYS) as writer:
        writer.write_table(pa.table({"other": [1]}))
