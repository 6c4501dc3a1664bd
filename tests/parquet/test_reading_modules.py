"""Reading through our modules: only what is asked for is fetched and needs a key, and filters mean what they mean in pyarrow."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tablecrypt.errors import ConfigurationError, FormatError, KeyMismatchError, KeyNotFoundError, PlaintextRefusedError, TamperedFileError
from tablecrypt.parquet import FileKeys, dataset, decrypt, footer, inspect, read_schema, read_table, thrift
from tablecrypt.parquet.layout import FileLayout, encrypted_layout
from tablecrypt.parquet.modules import ModuleCipher
from tablecrypt.parquet.reading import PlaintextView
from tablecrypt.parquet.storage import Sink, source_of
from tablecrypt.parquet.structs import ColumnChunk, FileMetaData, SchemaElement
from tests.support.modular_files import (
    FOOTER_KEY,
    GCM_MODES,
    ID_KEY,
    MODES,
    NAME_KEY,
    PARTLY_PLAIN,
    Mode,
    encrypted,
    every_module,
    plain_file,
    sample_table,
)
from tests.support.mutations import flipped
from tests.support.plaintext import CANARY

pytestmark = pytest.mark.slow

TABLE = sample_table(60)
PLAINTEXT = plain_file(TABLE, **every_module(row_group_size=20))
COLUMN_KEYS = Mode(column_keys={"id": ID_KEY, "name": NAME_KEY})
DATA = encrypted(PLAINTEXT, COLUMN_KEYS.keys)
WITHOUT_ID = FileKeys(FOOTER_KEY, {"name": NAME_KEY}, COLUMN_KEYS.aad_prefix)

every_mode = pytest.mark.parametrize("mode", [*MODES, PARTLY_PLAIN], ids=str)
SELECTIONS: list[dict[str, Any]] = [
    {},
    {"columns": ["ratio"]},
    {"columns": ["tags", "id"]},
    {"columns": []},
    {"columns": ["name"], "filters": [("id", ">", 33)]},
    {"columns": ["tags"], "filters": [("ratio", ">", 10.0)]},
    {"columns": ["name", "id"], "filters": (pc.field("id") < 5) | pc.field("name").is_null()},
    {"filters": [[("id", "<", 5)], [("ratio", ">", 19.0)]]},
    {"filters": pc.field("id") > 1000},
    {"columns": ["ratio"], "filters": pc.field(0).is_valid()},
    {"columns": ["tags"], "filters": pc.field(0).is_valid() & (pc.field("ratio") > 10.0)},
    {"columns": ["ratio"], "use_threads": False},
]


@every_mode
@pytest.mark.parametrize("selection", SELECTIONS, ids=str)
def test_a_selection_is_what_pyarrow_selects_from_the_plaintext(mode: Mode, selection: dict[str, Any]) -> None:
    data = encrypted(PLAINTEXT, mode.keys)
    assert read_table(data, mode.keys, **selection) == pq.read_table(pa.BufferReader(PLAINTEXT), **selection)


@every_mode
def test_row_groups_are_chosen_by_number(mode: Mode) -> None:
    data = encrypted(PLAINTEXT, mode.keys)
    assert read_table(data, mode.keys, ["id"], row_groups=[2, 0])["id"].to_pylist() == [*range(20), *range(40, 60)]
    assert read_table(data, mode.keys, row_groups=[]).num_rows == 0
    with pytest.raises(ConfigurationError, match="no row group 3"):
        read_table(data, mode.keys, row_groups=[3])


@every_mode
def test_the_schema_takes_the_footer_alone(mode: Mode) -> None:
    assert (
        read_schema(encrypted(PLAINTEXT, mode.keys), FileKeys(FOOTER_KEY, aad_prefix=mode.aad_prefix, algorithm=mode.algorithm))
        == TABLE.schema
    )


def test_a_column_that_the_file_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no column 'nmae'; its columns are id, name, ratio, tags"):
        read_table(DATA, COLUMN_KEYS.keys, ["nmae"])


@every_mode
@pytest.mark.parametrize(
    "filters", [[("nmae", "=", 1)], pc.field("name") > 7, pc.field("nmae").is_null(), pc.field("name"), pc.field("id") + 1], ids=str
)
def test_a_filter_that_does_not_fit_the_columns_is_not_called_tampering(mode: Mode, filters: Any) -> None:
    with pytest.raises(ConfigurationError, match="filter does not fit"):
        read_table(encrypted(PLAINTEXT, mode.keys), mode.keys, filters=filters)


@every_mode
@pytest.mark.parametrize("filters", [pc.field("name").cast(pa.int64()) > 1, pc.scalar(1) / pc.field("id") > 0], ids=str)
def test_a_value_that_does_not_suit_the_filter_is_neither_tampering_nor_shown(mode: Mode, filters: Any) -> None:
    with pytest.raises(ConfigurationError, match="a value of the file does not suit the filter") as refused:
        read_table(encrypted(PLAINTEXT, mode.keys), mode.keys, filters=filters)
    assert CANARY not in str(refused.value)
    assert refused.value.__suppress_context__


@pytest.mark.parametrize("filters", [[("id", "~", 1)], [("id",)], ["id"], 7, [("id", "=", 10**30)]])
def test_what_is_no_filter_is_refused(filters: Any) -> None:
    with pytest.raises(ConfigurationError, match="filters are"):
        read_table(DATA, COLUMN_KEYS.keys, filters=filters)


def test_a_column_is_locked_without_its_key() -> None:
    of_filter: list[Any] = [[("id", "=", 1)], pc.field(0).is_valid()]
    for selection in ({}, {"columns": ["id"]}, *({"columns": ["ratio"], "filters": filters} for filters in of_filter)):
        with pytest.raises(KeyNotFoundError, match="the key of column id is needed"):
            read_table(DATA, WITHOUT_ID, **selection)
    assert read_table(DATA, WITHOUT_ID, ["name", "ratio"]) == TABLE.select(["name", "ratio"])
    with pytest.raises(KeyNotFoundError, match="the key of column id is needed"):
        decrypt(DATA, io.BytesIO(), WITHOUT_ID)


@pytest.mark.parametrize("keys", [FileKeys(FOOTER_KEY), FileKeys(FOOTER_KEY, {"text": ID_KEY})], ids=["one key", "a column's own key"])
@pytest.mark.parametrize("filters", [None, pc.field("text") == "b", pc.field("s", "raw") == b"y", pc.field("id") > 1], ids=str)
def test_columns_of_views_are_filtered_as_plain_text_is(keys: FileKeys, filters: pc.Expression | None) -> None:
    plain = pa.table({"text": ["a", "b", None], "s": [{"raw": b"x"}, {"raw": b"y"}, None], "id": [1, 2, 3]})
    views = plain.cast(pa.schema({"text": pa.string_view(), "s": pa.struct({"raw": pa.binary_view()}), "id": pa.int64()}))
    data = encrypted(plain_file(views), keys)
    wanted = plain if filters is None else plain.filter(filters)
    for rows in (read_table(data, keys, filters=filters), dataset(data, keys).to_table(filter=filters)):
        assert rows.schema == read_schema(data, keys)
        assert rows.to_pylist() == wanted.to_pylist()


def test_a_field_of_a_struct_is_a_column_as_in_pyarrow() -> None:
    table = pa.table({"s": pa.array([{"a": 1, "b": "x", "c": {"d": [2]}}] * 5), "t.u": pa.array([4] * 5)})
    plaintext = plain_file(table)
    keys = FileKeys(FOOTER_KEY, {"s.b": ID_KEY, "s.c": NAME_KEY})
    data = encrypted(plaintext, keys)
    for columns in (["s.a"], ["s.c.d", "t.u"], ["s.c"], ["s"]):
        assert read_table(data, keys, columns) == pq.read_table(pa.BufferReader(plaintext), columns=columns)
        assert read_table(encrypted(plaintext, FileKeys(FOOTER_KEY)), keys, columns) == read_table(data, keys, columns)
    with pytest.raises(KeyNotFoundError, match=r"the key of column s\.b is needed"):
        read_table(data, FileKeys(FOOTER_KEY, {"s.c": NAME_KEY}), ["s.a"])
    for name in ("s.e", "s.a.x", "s.c.d.list", "x.a", "t"):
        with pytest.raises(ConfigurationError, match="no column"):
            read_table(data, keys, [name])


def test_a_key_that_the_file_does_not_need_is_ignored() -> None:
    keys = FileKeys(FOOTER_KEY, {"id": ID_KEY, "name": NAME_KEY, "ratio": ID_KEY, "nothing": ID_KEY}, COLUMN_KEYS.aad_prefix)
    assert read_table(DATA, keys) == TABLE


def test_a_footer_in_the_last_bytes_is_fetched_in_one_request() -> None:
    source = _Counting(DATA)
    read_schema(source, COLUMN_KEYS.keys)
    assert source.spans == [(0, len(DATA))]


class _Retriever:
    """Finds keys by the metadata that the file stores, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def __call__(self, key_metadata: bytes) -> bytes:
        self.asked.append(key_metadata)
        keys = {b"kf": FOOTER_KEY, b"k1": ID_KEY, b"k2": NAME_KEY}
        if key_metadata not in keys:
            raise KeyNotFoundError(f"no key {key_metadata!r}")
        return keys[key_metadata]


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_only_keys_of_what_is_read_are_retrieved_and_each_once(plaintext_footer: bool) -> None:
    written = FileKeys(
        FOOTER_KEY,
        {"id": ID_KEY, "name": NAME_KEY},
        plaintext_footer=plaintext_footer,
        footer_key_metadata=b"kf",
        column_key_metadata={"id": b"k1", "name": b"k2"},
    )
    data = encrypted(PLAINTEXT, written)
    for selection, asked in (
        ({"columns": ["ratio"]}, [b"kf"]),
        ({"columns": ["id"]}, [b"k1", b"kf"]),
        ({"columns": ["ratio"], "filters": [("name", "=", "x")]}, [b"k2", b"kf"]),
        ({}, [b"k1", b"k2", b"kf"]),
    ):
        retriever = _Retriever()
        table = read_table(data, FileKeys(key_retriever=retriever), **selection)
        assert table == pq.read_table(pa.BufferReader(PLAINTEXT), **selection)
        assert sorted(retriever.asked) == asked


def test_a_retriever_serves_a_file_under_one_key() -> None:
    data = encrypted(PLAINTEXT, FileKeys(FOOTER_KEY, footer_key_metadata=b"kf"))
    assert read_table(data, FileKeys(key_retriever=_Retriever())) == TABLE
    with pytest.raises(KeyNotFoundError, match="no key b'other'"):
        read_table(encrypted(PLAINTEXT, FileKeys(FOOTER_KEY, footer_key_metadata=b"other")), FileKeys(key_retriever=_Retriever()))


class _Counting(io.BytesIO):
    """Remembers which spans were read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.spans: list[tuple[int, int]] = []

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        data = super().read(size)
        self.spans.append((start, start + len(data)))
        return data


LONG = plain_file(sample_table(60_000), **every_module(row_group_size=20_000, compression="none", use_dictionary=False))
"""Each chunk is longer than what is read of the end at first."""


@pytest.mark.parametrize("mode", MODES[1:], ids=str)
def test_only_chunks_that_are_asked_for_are_fetched(mode: Mode) -> None:
    data = encrypted(LONG, mode.keys)
    source = _Counting(data)
    read_table(source, mode.keys, ["ratio"], filters=[("id", ">=", 45_000)])
    for group in inspect(data, mode.keys).row_groups or ():
        for chunk in group.chunks:
            wanted = group.ordinal == 2 and chunk.path in ("id", "ratio")
            first = next(module.offset for module in chunk.modules if module.offset is not None)
            assert any(start <= first < end for start, end in source.spans) is wanted


def _with_footer(data: bytes, mode: Mode, edit: Callable[[FileLayout], None]) -> bytes:
    """The same modules under a footer that somebody changed who has the key."""
    layout = encrypted_layout(source_of(data), mode.keys)
    algorithm, keys = layout.footer.algorithm, mode.keys
    assert algorithm is not None and keys.footer_key is not None
    base = algorithm.admit(keys, "test")
    cipher = ModuleCipher(keys.footer_key, "the footer key", base, algorithm.ctr, "test", Random(0).randbytes)
    edit(layout)
    sink = io.BytesIO()
    footer.write_footer(Sink(sink), layout.metadata, algorithm, cipher, None, mode.plaintext_footer)
    return data[: layout.footer.start] + sink.getvalue()


def _put_name_elsewhere(layout: FileLayout) -> None:
    """The first chunk of column name is said to be in another file."""
    chunks = layout.row_groups[0]
    chunk = chunks[1].struct.copy()
    chunk.set(ColumnChunk.FILE_PATH, thrift.BINARY, b"elsewhere")
    chunks.encoded[1] = chunk.encode()


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_chunks_that_are_not_asked_for_are_not_looked_at(mode: Mode) -> None:
    """What an authentic footer says of another column is no business of this reader."""
    changed = _with_footer(encrypted(PLAINTEXT, mode.keys), mode, _put_name_elsewhere)
    for columns in (["ratio"], ["tags", "id"]):
        assert read_table(changed, mode.keys, columns) == TABLE.select(columns)
    for selection in ({"columns": ["name"]}, {"columns": ["id"], "filters": [("name", "=", "x")]}, {}):
        with pytest.raises(FormatError, match="column chunk 1 of row group 0 is malformed: its data is in another file"):
            read_table(changed, mode.keys, **selection)


@every_mode
def test_a_name_that_is_not_text_is_no_error_of_the_interpreter(mode: Mode) -> None:
    def rename(layout: FileLayout) -> None:
        layout.metadata.structs(FileMetaData.SCHEMA)[1].set(SchemaElement.NAME, thrift.BINARY, b"\x80")

    changed = _with_footer(encrypted(PLAINTEXT, mode.keys), mode, rename)
    for columns in (["ratio"], None):
        with pytest.raises(FormatError, match="cannot be decoded"):
            read_table(changed, mode.keys, columns)


@every_mode
def test_a_view_of_some_columns_gives_nothing_of_the_others(mode: Mode) -> None:
    view = PlaintextView(encrypted_layout(source_of(encrypted(PLAINTEXT, mode.keys)), mode.keys), {"tags"})
    file = pq.ParquetFile(pa.PythonFile(view, mode="r"), pre_buffer=False)
    assert file.read(columns=["tags"]) == TABLE.select(["tags"])
    for name in ("id", "name", "ratio"):
        with pytest.raises(OSError, match=r"crypt|deserialize"):
            file.read(columns=[name])


@pytest.mark.parametrize("mode", [*GCM_MODES, PARTLY_PLAIN], ids=str)
def test_damage_to_one_column_is_found_when_it_alone_is_read(mode: Mode) -> None:
    data = encrypted(PLAINTEXT, mode.keys)
    name = encrypted_layout(source_of(data), mode.keys).row_groups[2][1]
    for at in range(name.pages.start, name.pages.end, 7):
        damaged = flipped(data, at)
        with pytest.raises(TamperedFileError):
            read_table(damaged, mode.keys, ["name"])
        assert read_table(damaged, mode.keys, ["tags"]) == TABLE.select(["tags"])


def test_strict_keys_refuse_a_column_in_the_clear_when_it_is_read() -> None:
    data = encrypted(PLAINTEXT, PARTLY_PLAIN.keys)
    strict = FileKeys(FOOTER_KEY, PARTLY_PLAIN.column_keys, PARTLY_PLAIN.aad_prefix, strict=True)
    for selection in ({}, {"columns": ["ratio"]}, {"columns": ["id"], "filters": [("ratio", ">", 1.0)]}):
        with pytest.raises(PlaintextRefusedError, match="column ratio is in the clear"):
            read_table(data, strict, **selection)
    assert read_table(data, strict, ["name", "id"]) == TABLE.select(["name", "id"])


@every_mode
def test_a_dataset_reads_what_a_scan_asks_for(mode: Mode) -> None:
    files: list[Any] = [encrypted(PLAINTEXT, mode.keys), encrypted(PLAINTEXT, mode.keys)]
    both = dataset(files, mode.keys)
    assert both.schema == TABLE.schema
    assert both.to_table().num_rows == 120
    assert both.to_table(columns=["name"], filter=pc.field("id") == 41)["name"].to_pylist() == [TABLE["name"][41].as_py()] * 2
    assert both.count_rows() == 120


def test_a_dataset_gives_what_its_keys_open() -> None:
    rows = dataset(DATA, WITHOUT_ID)
    assert rows.to_table(columns=["name", "ratio"]) == TABLE.select(["name", "ratio"])
    with pytest.raises(KeyNotFoundError, match="the key of column id is needed"):
        rows.to_table()


def test_a_dataset_of_damaged_files_gives_no_row_of_them() -> None:
    damaged = flipped(DATA, 100)
    with pytest.raises(TamperedFileError, match="column id in row group 0"):
        dataset(damaged, COLUMN_KEYS.keys).to_table()


def test_no_file_is_no_dataset() -> None:
    with pytest.raises(ConfigurationError, match="at least one file"):
        dataset([], COLUMN_KEYS.keys)


@every_mode
def test_a_path_is_read_and_named_in_errors(mode: Mode, tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    path.write_bytes(encrypted(PLAINTEXT, mode.keys))
    assert read_table(path, mode.keys) == read_table(str(path), mode.keys) == read_table(path.as_uri(), mode.keys) == TABLE
    assert dataset(path, mode.keys).to_table() == TABLE
    with path.open("rb") as file:
        assert read_table(file, mode.keys) == TABLE
        assert not file.closed
    with pytest.raises(KeyMismatchError, match=r"part-0\.parquet: the "):
        read_table(path, FileKeys(bytes(16), mode.column_keys, mode.aad_prefix, algorithm=mode.algorithm))


def test_a_wide_file_of_many_row_groups_is_read_by_column() -> None:
    columns = {f"c{number}": pa.array([number] * 100) for number in range(60)}
    data = encrypted(plain_file(pa.table(columns), row_group_size=10), Mode(column_keys={"c7": ID_KEY}).keys)
    keys = Mode(column_keys={"c7": ID_KEY}).keys
    assert read_table(data, keys, ["c7", "c50"]).to_pydict() == {"c7": [7] * 100, "c50": [50] * 100}
