"""Sources give exactly what is asked for, whatever pieces the store answers in; sinks take all of what they are given."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tablecrypt.errors import ConfigurationError, TamperedFileError
from tablecrypt.parquet import FileKeys, decrypt, encrypt, read_table, reencrypt, write_table
from tablecrypt.parquet.storage import export_buffer, open_sink, open_source, wait_until_released
from tests.support.modular_files import FOOTER_KEY, ID_KEY, plain_file, sample_table

DATA = bytes(range(256)) * 4
KEYS = FileKeys(FOOTER_KEY, {"id": ID_KEY})
KEYS_OF_ALL = FileKeys(FOOTER_KEY)

LETS_GO_AT_THE_END = """
import atexit
from threading import Event, Thread

from tablecrypt.parquet.storage import export_buffer

held = [export_buffer(b"rows")]
ending = Event()


def let_go():
    ending.wait()
    print("let go", flush=True)
    held.clear()


Thread(target=let_go, daemon=True).start()
atexit.register(ending.set)
"""


@pytest.mark.parametrize("file", [io.StringIO("text"), io.TextIOWrapper(io.BytesIO(DATA))], ids=["string", "text file"])
def test_a_text_file_is_refused_by_name(file: io.TextIOBase) -> None:
    with pytest.raises(ConfigurationError, match="text file"):
        read_table(file, KEYS)
    with pytest.raises(ConfigurationError, match="text file"):
        write_table(pa.table({"id": [1]}), file, KEYS)


def test_what_arrow_says_of_columns_is_one_line() -> None:
    data = io.BytesIO()
    write_table(pa.table({"id": [1], "name": ["a"]}), data, KEYS)
    with pytest.raises(ConfigurationError, match="does not fit") as refused:
        read_table(data, KEYS, filters=[("nobody", "=", 1)])
    assert "\n" not in str(refused.value)


def one_in_memory(path: Path) -> tuple[Any, Any]:
    file = io.BytesIO(path.read_bytes())
    return file, file


def one_on_disk(path: Path) -> tuple[Any, Any]:
    file = path.open("r+b")
    return file, file


def two_of_one_path(path: Path) -> tuple[Any, Any]:
    return path.open("rb"), path.open("r+b")


def a_path_and_its_file(path: Path) -> tuple[Any, Any]:
    return path, path.open("r+b")


@pytest.mark.parametrize("opened", [one_in_memory, one_on_disk, two_of_one_path, a_path_and_its_file])
def test_what_is_read_is_never_written_into(opened: Callable[[Path], tuple[Any, Any]], tmp_path: Path) -> None:
    plain, sealed = tmp_path / "plain.parquet", tmp_path / "sealed.parquet"
    pq.write_table(sample_table(), plain)
    encrypt(plain, sealed, KEYS)
    before = plain.read_bytes(), sealed.read_bytes()

    rewrites: list[tuple[Path, Callable[[Any, Any], object]]] = [
        (plain, lambda source, sink: encrypt(source, sink, KEYS)),
        (sealed, lambda source, sink: decrypt(source, sink, KEYS)),
        (sealed, lambda source, sink: reencrypt(source, sink, KEYS, KEYS)),
    ]
    for path, rewrite in rewrites:
        source, sink = opened(path)
        with pytest.raises(
            ConfigurationError, match=r"^the source and the sink are one open file: write into another one, or give its path"
        ):
            rewrite(source, sink)
        for each in (source, sink):
            if not isinstance(each, Path):
                each.close()
    assert (plain.read_bytes(), sealed.read_bytes()) == before

    encrypt(plain, plain, KEYS)
    assert read_table(plain, KEYS) == sample_table()


def test_rows_without_columns_are_refused(tmp_path: Path) -> None:
    rows, sealed = pa.table({"id": [1, 2, 3]}).select([]), tmp_path / "sealed.parquet"
    pq.write_table(rows, tmp_path / "plain.parquet")
    writes: list[Callable[[], object]] = [
        lambda: write_table(rows, sealed, KEYS_OF_ALL),
        lambda: encrypt(tmp_path / "plain.parquet", sealed, KEYS_OF_ALL),
    ]
    for write in writes:
        with pytest.raises(ConfigurationError, match=r"^there are rows without columns, which no encrypted Parquet file holds: give at"):
            write()
    assert not sealed.exists()


def test_two_columns_of_one_name_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a different name for every column"):
        write_table(pa.table([[1], [2]], names=["id", "id"]), tmp_path / "rows.parquet", KEYS)
    assert not list(tmp_path.iterdir())


class _Stingy(io.BytesIO):
    """Reads and writes at most seven bytes at a time."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(7 if size is None or size < 0 else min(size, 7))

    def write(self, data: object) -> int:
        return super().write(memoryview(data)[:7])  # type: ignore[arg-type]


class _Silent(io.BytesIO):
    """Does not say how much it wrote."""

    def write(self, data: object) -> None:  # type: ignore[override]
        super().write(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "source", [DATA, bytearray(DATA), memoryview(DATA), pa.py_buffer(DATA), io.BytesIO(DATA), _Stingy(DATA), pa.BufferReader(DATA)]
)
def test_each_kind_of_source_gives_the_same_bytes(source: object) -> None:
    with open_source(source) as opened:
        assert opened.length == len(DATA)
        for start, length in ((0, 1024), (1000, 24), (5, 0), (17, 100)):
            assert bytes(opened.read_at(start, length)) == DATA[start : start + length]
            memory = bytearray(length)
            opened.read_into(start, memoryview(memory))
            assert memory == DATA[start : start + length]
        for start, length in ((0, 1025), (1024, 1), (-1, 2), (3, -1)):
            with pytest.raises(TamperedFileError, match="outside the file"):
                opened.read_at(start, length)
        with pytest.raises(TamperedFileError, match="outside the file"):
            opened.read_into(1000, memoryview(bytearray(25)))


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    with open_source(path) as opened:
        path.write_bytes(DATA[:100])
        with pytest.raises(TamperedFileError, match=r"ends after 100 bytes, though it had 1024"):
            opened.read_at(90, 200)
        with pytest.raises(TamperedFileError, match=r"ends after 100 bytes, though it had 1024"):
            opened.read_into(90, memoryview(bytearray(200)))


def test_a_file_that_is_open_stays_open_and_a_path_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    file = io.BytesIO(DATA)
    with open_source(file):
        pass
    assert not file.closed
    with open_source(path) as opened:
        pass
    assert opened.file.closed


def test_the_location_is_what_the_source_calls_itself(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    for source in (path, str(path)):
        with open_source(source) as opened:
            assert opened.location == str(path)
    with path.open("rb") as file, open_source(file) as opened:
        assert opened.location == str(path)
    with open_source(DATA) as opened:
        assert opened.location == "the Parquet file"
    with open_source(DATA, "s3://bucket/key") as opened:
        assert opened.location == "s3://bucket/key"


def test_stores_that_take_a_little_at_a_time_get_the_whole_file() -> None:
    plaintext = plain_file(sample_table())
    for sink in (_Stingy(), _Silent()):
        encrypt(_Stingy(plaintext), sink, KEYS)
        assert read_table(_Stingy(sink.getvalue()), KEYS) == sample_table()


def test_a_link_leads_to_what_is_written_and_no_plaintext_stays_behind_it(tmp_path: Path) -> None:
    target, link, rows = tmp_path / "rows.parquet", tmp_path / "link", sample_table()
    target.write_bytes(plain_file(rows))
    link.symlink_to(target)

    encrypt(link, link, KEYS)

    assert link.is_symlink()
    assert target.read_bytes()[:4] == b"PARE"
    assert read_table(target, KEYS).equals(rows)
    reencrypt(link, link, KEYS, KEYS_OF_ALL)
    assert read_table(target, KEYS_OF_ALL).equals(rows)
    decrypt(link, link, KEYS_OF_ALL)
    assert pq.read_table(target).equals(rows)


def test_a_pipe_takes_what_is_written(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(pipe.read_bytes)
        write_table(sample_table(), pipe, KEYS)
        written = reading.result()

    assert pipe.is_fifo()
    assert read_table(io.BytesIO(written), KEYS).equals(sample_table())


def test_a_path_gets_its_file_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open_sink(path) as sink:
        sink.write(b"abc")
        assert not path.exists()
    assert path.read_bytes() == b"abc"
    with pytest.raises(RuntimeError), open_sink(path) as sink:
        sink.write(b"other")
        raise RuntimeError
    assert path.read_bytes() == b"abc"
    assert list(tmp_path.iterdir()) == [path]


def test_errors_of_the_store_pass_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "nothing", KEYS)
    with pytest.raises(FileNotFoundError):
        encrypt(plain_file(sample_table()), tmp_path / "no folder" / "file", KEYS)


class _Failing(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        raise PermissionError(13, "Access Denied")


def test_a_refused_read_is_not_called_tampering() -> None:
    with pytest.raises(PermissionError, match="Access Denied"):
        read_table(_Failing(DATA), KEYS)


def test_what_is_no_file_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"no read\(\)"), open_source(object()):
        pass
    with pytest.raises(ConfigurationError, match=r"no write\(\)"), open_sink(object()):
        pass


def test_the_end_waits_until_other_threads_let_go() -> None:
    run = subprocess.run([sys.executable, "-c", LETS_GO_AT_THE_END], capture_output=True, text=True, check=True)
    assert run.stdout == "let go\n"


def test_what_a_caller_holds_on_to_does_not_keep_a_process() -> None:
    held = export_buffer(b"rows")
    wait_until_released(patience_s=0)
    assert bytes(held) == b"rows"
