"""What write_table puts into a file: rows that come back, no plaintext of encrypted columns anywhere, statistics of the true values."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt import orc
from tablecrypt.errors import ConfigurationError, KeyNotFoundError, KmsAccessDeniedError
from tablecrypt.orc.column_keys import LocalColumnKeys
from tablecrypt.orc.messages import BLOOM_FILTER_KINDS, StreamKind
from tablecrypt.orc.source import FileSource
from tablecrypt.orc.tail import UNENCRYPTED, Tail, locate_streams, read_tail
from tests.support.orc_files import CODECS, EPOCH, EVERY_COLUMN, encrypted, local_keys, plain, same_rows, sample_rows, visible_parts
from tests.support.plaintext import CANARY

pytestmark = pytest.mark.slow

SECRET_TEXT = ["text", "raw", "home.zip", "tags._elem", "attrs._value"]


def tail_of(data: bytes) -> Tail:
    return read_tail(FileSource(data))


def streams_of(data: bytes) -> list[tuple[int, int, int]]:
    """(group, column, kind) of each stream of the first stripe."""
    source = FileSource(data)
    tail = read_tail(source)
    located = locate_streams(tail.read_stripe_footer(source, tail.stripes[0]), tail.stripes[0], "memory")
    return [(one.group, one.stream.column, one.stream.kind) for one in located]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("key", ["pii", "pii256"])
@pytest.mark.parametrize("stripe_size", [10_000, 2**26])
def test_rows_come_back_through_every_codec_key_length_and_number_of_stripes(codec: str, key: str, stripe_size: int) -> None:
    rows = sample_rows(300)
    data = encrypted(rows, {key: list(EVERY_COLUMN)}, compression=codec, stripe_size=stripe_size)
    assert same_rows(orc.read_table(data, local_keys(key)), rows)
    assert (len(tail_of(data).stripes) > 2) == (stripe_size == 10_000)


class _Stingy(io.BytesIO):
    """Reads and writes at most a hundred bytes at a time, as unbuffered files may."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(100 if size is None or size < 0 else min(size, 100))

    def write(self, data: object) -> int:
        return super().write(memoryview(data)[:100])  # type: ignore[arg-type]


def test_a_file_that_takes_and_gives_pieces_has_all_rows() -> None:
    rows, file = sample_rows(), _Stingy()
    orc.write_table(rows, file, {"pii": ["text"]}, local_keys())
    file.seek(0)
    assert same_rows(orc.read_table(file, local_keys()), rows)
    assert same_rows(orc.read_table(file.getvalue(), local_keys()), rows)


@pytest.mark.parametrize("mask", [None, 5, ["nullify"]])
def test_what_is_no_mask_is_refused_by_name(mask: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be the name of a mask"):
        orc.write_table(sample_rows(), io.BytesIO(), {"pii": ["text"]}, local_keys(), mask={"text": mask})


@pytest.mark.parametrize("column", EVERY_COLUMN)
def test_each_type_is_encrypted_alone_and_null_without_its_key(column: str) -> None:
    rows = sample_rows()
    data = encrypted(rows, {"pii": [column]})
    assert same_rows(orc.read_table(data, local_keys()), rows)
    masked = orc.read_table(data, masked=True)
    assert masked[column].null_count == len(rows)
    assert same_rows(masked.drop_columns([column]), rows.drop_columns([column]))


def test_sub_columns_keep_their_parents_in_the_clear() -> None:
    rows = sample_rows()
    data = encrypted(rows, {"pii": ["home.zip", "tags._elem"], "pii256": ["attrs._value", "home.geo.lat"]})
    assert same_rows(orc.read_table(data, local_keys()), rows)
    masked = orc.read_table(data, masked=True).to_pylist()
    for mask, row in zip(masked, rows.to_pylist(), strict=True):
        assert mask["home"] == (row["home"] and {"zip": None, "geo": {"lat": None}})
        assert mask["tags"] == (None if row["tags"] is None else [None] * len(row["tags"]))
        assert mask["attrs"] == (row["attrs"] and [(key, None) for key, _ in row["attrs"]])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("mask", ["nullify", "redact", "sha256", orc.KeyedHash(b"k" * 16)], ids=str)
def test_no_plaintext_of_an_encrypted_column_is_in_the_file(codec: str, mask: Any) -> None:
    rows = sample_rows(500)
    options = {"compression": codec, "stripe_size": 20_000, "bloom_filter_columns": ["text", "raw", "home.zip", "id"]}
    data = encrypted(rows, {"pii": SECRET_TEXT}, mask=dict.fromkeys(SECRET_TEXT, mask), **options)
    parts = list(visible_parts(data))
    assert len(parts) > 50
    for where, content in parts:
        assert CANARY[:12].encode() not in content, where


def test_the_look_for_plaintext_finds_it_where_it_may_be() -> None:
    data = encrypted(sample_rows(500), {"pii": ["text"]}, stripe_size=20_000)
    found = {where.split("(")[0] for where, content in visible_parts(data) if CANARY[:12].encode() in content}
    assert found >= {"the footer", "the stripe statistics", "stream Stream"}


def test_statistics_of_encrypted_columns_are_those_of_all_rows_and_open_with_the_key_alone() -> None:
    rows = sample_rows(400)
    wanted = tail_of(plain(rows, compression="zstd")).file_statistics
    tail = tail_of(encrypted(rows, {"pii": [name for name in rows.column_names if name != "id"]}, stripe_size=10_000))
    keys = LocalColumnKeys(tail, local_keys())
    assert len(tail.stripes) > 3
    for number, variant in enumerate(keys.encryption.variants):
        assert keys.file_statistics(number) == [wanted[column] for column in tail.schema[variant.root].subtree]
        for column in tail.schema[variant.root].subtree:
            assert tail.file_statistics[column] != wanted[column]
    assert tail.file_statistics[1] == wanted[1]


def test_bloom_filters_hold_true_values_and_are_encrypted_with_them() -> None:
    data = encrypted(sample_rows(), {"pii": ["text", "home"]}, bloom_filter_columns=["id", "text", "home.zip"])
    schema = tail_of(data).schema
    filters = {(group, column) for group, column, kind in streams_of(data) if kind in BLOOM_FILTER_KINDS}
    # Variants are in the order of columns: text before home.
    assert filters == {(UNENCRYPTED, schema.find("id").id), (0, schema.find("text").id), (1, schema.find("home.zip").id)}
    assert same_rows(orc.read_table(data, local_keys()), sample_rows())


@pytest.mark.parametrize("column", ["home", "tags", "nope"])
def test_a_bloom_filter_needs_a_column_of_values(column: str) -> None:
    with pytest.raises(ConfigurationError, match=column):
        encrypted(sample_rows(), {"pii": ["text"]}, bloom_filter_columns=[column])


def test_no_two_streams_of_a_file_share_an_iv_under_one_key() -> None:
    data = encrypted(sample_rows(300), {"pii": list(EVERY_COLUMN)}, stripe_size=5_000)
    tail = tail_of(data)
    source = FileSource(data)
    assert tail.encryption is not None
    used: list[tuple[int, int, int, int]] = []
    for stripe in tail.stripes:
        located = locate_streams(tail.read_stripe_footer(source, stripe), stripe, "memory")
        used += [(one.group, one.stream.column, one.stream.kind, stripe.encrypt_id) for one in located if one.group != UNENCRYPTED]
    after = len(tail.stripes) + 1
    for number, variant in enumerate(tail.encryption.variants):
        used += [(number, stream.column, stream.kind, after) for stream in variant.stripe_statistics]
        used.append((number, variant.root, StreamKind.FILE_STATISTICS, after))
    assert len(used) == len(set(used))
    assert len({variant.encrypted_key for variant in tail.encryption.variants}) == len(EVERY_COLUMN)


def test_two_files_of_the_same_rows_share_no_encrypted_stream() -> None:
    def streams(data: bytes) -> set[bytes]:
        source = FileSource(data)
        tail = read_tail(source)
        located = locate_streams(tail.read_stripe_footer(source, tail.stripes[0]), tail.stripes[0], "memory")
        return {source.read_at(one.offset, one.stream.length) for one in located if one.group != UNENCRYPTED and one.stream.length > 3}

    first, second = (encrypted(sample_rows(), {"pii": ["text", "home"]}) for _ in range(2))
    assert streams(first)
    assert not streams(first) & streams(second)


def test_the_newest_key_version_writes_and_older_files_still_open() -> None:
    rows = sample_rows()
    first, second = b"1" * 16, b"2" * 32
    old = encrypted(rows, {"pii": ["text"]}, orc.LocalKeys({"pii": [first]}))
    rolled = orc.LocalKeys({"pii": [first, second]})
    new = encrypted(rows, {"pii": ["text"]}, rolled)
    assert [str(tail_of(data).encryption.keys[0]) for data in (old, new)] == ["pii@0", "pii@1"]  # type: ignore[union-attr]
    for data in (old, new):
        assert same_rows(orc.read_table(data, rolled), rows)
    with pytest.raises(KeyNotFoundError, match="version 1"):
        orc.read_table(new, orc.LocalKeys({"pii": [first]}))


def test_a_mask_without_encryption_is_all_that_the_file_has() -> None:
    rows = sample_rows().select(["id", "text", "raw"])
    data = encrypted(rows, {"pii": ["raw"]}, mask={"text": "redact"})
    read = orc.read_table(data, local_keys())["text"].to_pylist()
    assert read[0] == "x9xxxx.xxxxxxxxx.xxxx.xxx.xxxxxx 9"
    assert not [where for where, content in visible_parts(data) if CANARY.encode() in content]


def test_the_footer_says_which_masks_were_applied() -> None:
    data = encrypted(sample_rows(), {"pii": ["text", "born", "raw"]}, mask={"text": "sha256", "born": "redact,Yy,2000"})
    tail = tail_of(data)
    assert tail.encryption is not None
    described = b"".join(tail.encryption.masks)
    for part in (b"nullify", b"sha256", b"redact", b"Yy", b"2000"):
        assert part in described


def test_attributes_of_the_file_that_rows_came_from_do_not_stay() -> None:
    again = orc.read_table(encrypted(sample_rows(), {"pii": ["text"]}), local_keys())
    assert again.schema.field("text").metadata == {b"encrypt": b"pii", b"mask": b"nullify"}
    data = encrypted(again, {"pii256": ["raw"]})
    schema = orc.read_table(data, local_keys()).schema
    assert not schema.field("text").metadata
    assert schema.field("raw").metadata[b"encrypt"] == b"pii256"


@pytest.mark.parametrize("rows", [0, 1])
def test_files_of_few_rows_are_whole(rows: int) -> None:
    table = sample_rows(rows)
    data = encrypted(table, {"pii": ["text", "home"]})
    assert same_rows(orc.read_table(data, local_keys()), table)
    assert orc.verify(data, local_keys()).rows == rows
    with pytest.raises(KeyNotFoundError):
        orc.read_table(data)


class RecordingSink:
    """Keeps what is written, and how many batches had been taken from the source each time."""

    def __init__(self, source: CountedBatches) -> None:
        self.data = bytearray()
        self.taken: list[int] = []
        self._source = source

    def write(self, data: bytes) -> None:
        self.data += data
        self.taken.append(self._source.taken)


class CountedBatches:
    """Ten batches of fifty rows, and how many of them were taken."""

    def __init__(self) -> None:
        self.tables = [sample_rows(50, first) for first in range(0, 500, 50)]
        self.taken = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for table in self.tables:
            self.taken += 1
            yield from table.to_batches()


def test_a_stripe_is_written_before_the_rows_of_the_next_are_taken() -> None:
    source = CountedBatches()
    sink = RecordingSink(source)
    rows = pa.RecordBatchReader.from_batches(source.tables[0].schema, iter(source))
    orc.write_table(rows, sink, encrypt={"pii": ["text"]}, keys=local_keys(), stripe_size=source.tables[0].nbytes // 2)
    assert set(sink.taken) >= set(range(1, 11))
    assert same_rows(orc.read_table(sink.data, local_keys()), pa.concat_tables(source.tables))


@settings(max_examples=20)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 4_000))
def test_slices_and_chunks_make_no_difference(start: int, length: int, stripe_size: int) -> None:
    whole = pa.concat_tables([sample_rows(30), sample_rows(40, 30), sample_rows(10, 70)])
    rows = whole.slice(start, length)
    encrypt = {"pii": ["home.zip", "tags._elem", "text"], "pii256": ["attrs"]}
    data = encrypted(rows, encrypt, mask={"home.zip": "redact", "attrs": "sha256"}, stripe_size=stripe_size, compression="uncompressed")
    assert same_rows(orc.read_table(data, local_keys()), rows)


@pytest.mark.parametrize("encrypt", [["plain"], ["struct"], ["list"], ["map"], ["struct.y"]])
def test_values_after_a_null_struct_in_a_struct_stay_where_they_are(encrypt: list[str]) -> None:
    outer = pa.struct([("y", pa.struct([("x", pa.int64())]))])
    values = [{"y": None}, {"y": {"x": 1}}, None, {"y": {"x": 2}}]
    rows = pa.table(
        {
            "plain": pa.array(range(4), pa.int64()),
            "struct": pa.array(values, outer),
            "list": pa.array([values, None, [], values[1:]], pa.list_(outer)),
            "map": pa.array([[("a", values[0]), ("b", values[1])], None, [], [("c", values[3])]], pa.map_(pa.string(), outer)),
        }
    )

    assert orc.read_table(encrypted(rows, {"pii": encrypt}), local_keys()).to_pylist() == rows.to_pylist()


def test_a_failing_write_leaves_at_a_path_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.orc"
    orc.write_table(sample_rows(), path, encrypt={"pii": ["text"]}, keys=local_keys())

    def failing() -> Any:
        yield from sample_rows().to_batches()
        raise OSError("the source is gone")

    reader = pa.RecordBatchReader.from_batches(sample_rows().schema, failing())
    with pytest.raises(OSError, match="gone"):
        orc.write_table(reader, path, encrypt={"pii": ["text"]}, keys=local_keys(), stripe_size=1)
    assert same_rows(orc.read_table(path, local_keys()), sample_rows())
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_leads_to_what_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "rows.orc", tmp_path / "link"
    target.write_bytes(b"what was there")
    link.symlink_to(target)

    orc.write_table(sample_rows(), link, encrypt={"pii": ["text"]}, keys=local_keys())

    assert link.is_symlink()
    assert same_rows(orc.read_table(target, local_keys()), sample_rows())


def test_a_file_takes_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "rows.orc"
    for first in (0, 50):
        orc.write_table(sample_rows(100, first), path, encrypt={"pii": ["text"]}, keys=local_keys())
        assert same_rows(orc.read_table(path, local_keys()), sample_rows(100, first))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("encrypt", "options", "said"),
    [
        ({}, {}, "names no column"),
        ({"pii": []}, {}, "names no column"),
        ({"pii": ["nope"]}, {}, "no column 'nope'"),
        ({"pii": ["text", "text"]}, {}, "twice"),
        ({"pii": ["text"], "other": ["text"]}, {}, "twice"),
        ({"pii": ["home"], "other": ["home.zip"]}, {}, "twice"),
        ({"pii": ["home.zip", "home"]}, {}, "twice"),
        ({"pii": ["text"]}, {"mask": {"text": "rot13"}}, "no mask 'rot13'"),
        ({"pii": ["text"]}, {"mask": {"nope": "nullify"}}, "no column 'nope'"),
        ({"pii": ["number"]}, {"mask": {"number": "sha256"}}, "no text or bytes"),
        ({"pii": ["attrs._key"]}, {}, "keys of the map"),
        ({"pii": ["text"]}, {"compression": "lzo"}, "pyarrow cannot write"),
        ({"pii": ["text"]}, {"compression_block_size": -1}, "pyarrow cannot write"),
        ({"pii": ["text"]}, {"compression_block_size": 2**23}, "compression_block_size is 8388608; it must be at most 8388607"),
        ({"pii": ["text"]}, {"batch_size": 2**40}, "batch_size is 1099511627776; it must be at most 16777216"),
        ({"pii": ["text"]}, {"stripe_size": 0}, "stripe size"),
        ({"pii": ["text"]}, {"colour": "red"}, "colour"),
    ],
)
def test_what_cannot_be_written_is_said_before_a_byte_is(encrypt: Any, options: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.orc"
    with pytest.raises(ConfigurationError, match=said):
        orc.write_table(sample_rows(), path, encrypt=encrypt, keys=local_keys(), **options)
    assert not path.exists()


@pytest.mark.parametrize(
    ("kind", "stored", "value", "masked"),
    [
        (pa.large_string(), pa.string(), "Ab", "Xx"),
        (pa.string_view(), pa.string(), "Ab", "Xx"),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), "Ab", "Xx"),
        (pa.large_list(pa.large_string()), pa.list_(pa.string()), ["Ab", None], ["Xx", None]),
        (pa.list_(pa.string(), 2), pa.list_(pa.string()), ["Ab", "c"], ["Xx", "x"]),
        (pa.struct([pa.field("a", pa.large_list(pa.int64()), False)]), pa.struct([("a", pa.list_(pa.int64()))]), {"a": [12]}, {"a": [99]}),
        (pa.map_(pa.string(), pa.large_string()), pa.map_(pa.string(), pa.string()), [("a", "Ab")], [("x", "Xx")]),
        (pa.large_binary(), pa.binary(), b"Ab", None),
        (pa.binary(2), pa.binary(), b"Ab", None),
        (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"), EPOCH.replace(month=5), EPOCH),
    ],
    ids=str,
)
def test_arrows_other_kinds_of_text_and_lists_are_written_too(kind: pa.DataType, stored: pa.DataType, value: Any, masked: Any) -> None:
    rows = pa.table({"x": pa.array([value, None], kind)})
    data = encrypted(rows, {"pii": ["x"]}, mask={"x": "redact"})
    for keys, wanted in ((local_keys(), value), (None, masked)):
        read = orc.read_table(data, keys, masked=True)["x"]
        assert read.combine_chunks().cast(stored).equals(pa.array([wanted, None], stored))


def test_types_that_orc_does_not_have_are_refused() -> None:
    rows = pa.table({"text": ["a"], "span": pa.array([1], pa.duration("s"))})
    with pytest.raises(ConfigurationError, match="pyarrow cannot write"):
        encrypted(rows, {"pii": ["text"]})


@pytest.mark.parametrize("year", [1600, 9999])
def test_moments_that_no_reader_of_ours_could_read_are_refused(year: int) -> None:
    moments = pa.array([{"until": dt.datetime(year, 12, 31)}], pa.struct([("until", pa.timestamp("us"))]))
    rows = pa.table({"text": ["a"], "span": moments})
    with pytest.raises(ConfigurationError, match=r"^column 'span' has a moment before 1677-09-22 or after 2262-04-11, which .* as text$"):
        encrypted(rows, {"pii": ["text"]})


def test_two_columns_or_fields_of_one_name_are_refused() -> None:
    one, other = pa.array(["a"]), pa.array(["b"])
    home = pa.StructArray.from_arrays([one, other], names=["zip", "zip"])
    for rows, column in ((pa.Table.from_arrays([one, other], names=["text", "text"]), "text"), (pa.table({"home": home}), "home.zip")):
        with pytest.raises(ConfigurationError, match="a different name"):
            encrypted(rows, {"pii": [column]})


@pytest.mark.parametrize("before", [None, b"a file of before"])
def test_a_key_that_is_not_there_or_not_allowed_leaves_a_path_as_it_was(tmp_path: Path, before: bytes | None) -> None:
    class Refusing(orc.LocalKeys):
        def current_version(self, name: str) -> orc.MasterKeyVersion:
            raise KmsAccessDeniedError("denied")

    path = tmp_path / "rows.orc"
    if before is not None:
        path.write_bytes(before)
    with pytest.raises(KeyNotFoundError, match="absent"):
        orc.write_table(sample_rows(), path, encrypt={"absent": ["text"]}, keys=local_keys())
    with pytest.raises(KmsAccessDeniedError):
        orc.write_table(sample_rows(), path, encrypt={"pii": ["text"]}, keys=Refusing({}))
    assert (path.read_bytes() if path.exists() else None) == before


def test_names_with_dots_are_found() -> None:
    rows = pa.table({"a.b": [CANARY], "a": [{"x": 1, "b.c": {"d": CANARY}}]})
    data = encrypted(rows, {"pii": ["a.b", "a.b.c.d"]})
    assert orc.read_table(data, local_keys()).to_pylist() == rows.to_pylist()
    masked = orc.read_table(data, masked=True).to_pylist()
    assert masked == [{"a.b": None, "a": {"x": 1, "b.c": {"d": None}}}]


@pytest.mark.parametrize("request_of", [{"encrypt": {"pii": ["a.b"]}}, {"encrypt": {"pii": ["c"]}, "mask": {"a.b": "redact"}}])
def test_a_name_that_stands_for_a_column_and_for_a_field_is_refused(request_of: dict[str, Any], tmp_path: Path) -> None:
    rows = {"a": [{"b": CANARY}], "a.b": [CANARY], "c": [CANARY]}
    for names in (["a", "a.b", "c"], ["a.b", "a", "c"]):
        with pytest.raises(ConfigurationError, match=r"^'a.b' is the name of a column and of a field in a struct: rename one of them$"):
            orc.write_table(pa.table({name: rows[name] for name in names}), tmp_path / "rows.orc", keys=local_keys(), **request_of)
    assert not any(tmp_path.iterdir())


def test_a_name_in_a_manifest_needs_the_manifest(tmp_path: Path) -> None:
    rows = pa.table({"ssn": [CANARY]})
    data = encrypted(rows, {"pii": ["ssn"]})
    with pytest.raises(ConfigurationError, match=r"^name is given, and no manifest: it is the file's name there$"):
        orc.write_table(rows, tmp_path / "rows.orc", {"pii": ["ssn"]}, local_keys(), name="rows")
    for read in (lambda: orc.read_table(data, local_keys(), name="rows"), lambda: list(orc.read_batches(data, local_keys(), name="rows"))):
        with pytest.raises(ConfigurationError, match=r"^name is given, and no manifest: without one nothing checks the file's bytes$"):
            read()
    assert not any(tmp_path.iterdir())
