"""Files that are stored as they are given: each is of the kind that its writer named, or it is not there."""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from tablecrypt.errors import ConfigurationError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.raw_output import RawContent, RawOutputStream
from tests.support.ags1_files import ags1_file
from tests.support.aws import AwsServer

PLAIN_PARQUET = b"PAR1" + bytes(100) + b"PAR1"
ENCRYPTED_PARQUET = b"PARE" + bytes(100) + b"PARE"
PART = f"{uuid.UUID(int=1)}.json"
WRAPPED = {"key-id": "k", "encrypted-key-metadata": "AAAA", "encrypted-by-id": "m", "properties": {"KEY_TIMESTAMP": "1"}}


@pytest.fixture(params=["pyarrow", "fsspec"])
def io(request: pytest.FixtureRequest) -> EncryptingFileIO:
    return EncryptingFileIO(PyArrowFileIO() if request.param == "pyarrow" else FsspecFileIO({}))


def put(io: EncryptingFileIO, location: str, content: RawContent, *pieces: bytes) -> None:
    with io.raw_output(location, content).create() as sink:
        for piece in pieces:
            sink.write(piece)


@pytest.mark.parametrize("stored", [ENCRYPTED_PARQUET, b"PARE1234PARE", ags1_file(b"rows"), ags1_file(b"")])
@pytest.mark.parametrize("piece", [1, 3, 5, 1000])
def test_what_encrypts_itself_is_stored_as_it_is(io: EncryptingFileIO, tmp_path: Path, stored: bytes, piece: int) -> None:
    put(io, (tmp_path / "x.parquet").as_uri(), RawContent.SELF_ENCRYPTED, *(stored[at : at + piece] for at in range(0, len(stored), piece)))

    assert (tmp_path / "x.parquet").read_bytes() == stored


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"PAR",
        b"PARE",
        b"PAREPARE",
        PLAIN_PARQUET,
        b"PARE" + bytes(100),
        b"PARE" + bytes(100) + b"PAR1",
        b"PAR1" + bytes(100) + b"PARE",
        b"Obj\x01" + bytes(100),
        b"ORC" + bytes(100),
        b"PFA1" + bytes(100),
        b'{"rows": 1}',
        b"AGS1",
        b"AGS1" + bytes(20),
        ags1_file(b"rows")[:20],
        gzip.compress(b"rows"),
    ],
)
@pytest.mark.parametrize("piece", [1, 1000])
def test_what_does_not_encrypt_itself_is_refused_and_nothing_is_left(
    io: EncryptingFileIO, tmp_path: Path, stored: bytes, piece: int
) -> None:
    location = (tmp_path / "x.parquet").as_uri()
    with pytest.raises(PlaintextRefusedError, match=location):
        put(io, location, RawContent.SELF_ENCRYPTED, *(stored[at : at + piece] for at in range(0, len(stored), piece)))

    assert list(tmp_path.iterdir()) == []


ENDS = st.sampled_from([b"", b"PARE", b"AGS1"])


@given(stored=st.tuples(ENDS, st.binary(max_size=200), ENDS).map(b"".join), cut=st.integers(0, 200))
def test_any_bytes_are_stored_only_with_the_magic_of_an_encrypted_file(
    tmp_path_factory: pytest.TempPathFactory, stored: bytes, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    try:
        put(EncryptingFileIO(PyArrowFileIO()), (folder / "x").as_uri(), RawContent.SELF_ENCRYPTED, stored[:cut], stored[cut:])
    except PlaintextRefusedError:
        assert list(folder.iterdir()) == []
    else:
        assert stored.startswith((b"PARE", b"AGS1"))
        assert (folder / "x").read_bytes() == stored


def test_plaintext_is_refused_before_a_byte_of_it_reaches_the_store(io: EncryptingFileIO, tmp_path: Path) -> None:
    sink = io.raw_output((tmp_path / "x.parquet").as_uri(), RawContent.SELF_ENCRYPTED).create()
    with pytest.raises(PlaintextRefusedError):
        sink.write(PLAIN_PARQUET)

    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="closed"):
        sink.write(b"more")
    sink.close()


def test_a_file_that_is_given_up_half_written_is_not_left(io: EncryptingFileIO, tmp_path: Path) -> None:
    def write_half() -> None:
        with io.raw_output((tmp_path / "x.parquet").as_uri(), RawContent.SELF_ENCRYPTED).create() as sink:
            sink.write(b"PARE" + bytes(100))
            raise LookupError("given up")

    with pytest.raises(LookupError, match="given up"):
        write_half()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.parquet", RawContent.METADATA_JSON),
        ("metadata.json", RawContent.METADATA_JSON),
        ("x.json", RawContent.METADATA_JSON),
        ("x.metadata.json", RawContent.SELF_ENCRYPTED),
        ("x.json", RawContent.JOURNAL_KEYS),
        ("metadata/x.json", RawContent.JOURNAL_KEYS),
        ("metadata/tablecrypt-reencrypt/x.parquet", RawContent.JOURNAL_KEYS),
        ("data/tablecrypt-reencrypt/x.json", RawContent.JOURNAL_KEYS),
    ],
)
def test_a_name_that_a_kind_does_not_have_is_refused_at_once(io: EncryptingFileIO, tmp_path: Path, name: str, content: RawContent) -> None:
    with pytest.raises(PlaintextRefusedError, match="not the name"):
        io.raw_output((tmp_path / name).as_uri(), content)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("1.metadata.json", b'{"format-version":3}'),
        ("1.gz.metadata.json", gzip.compress(b"{}")),
        ("v1.metadata.json", b"{}"),
        *(("1.metadata.json", few_bytes) for few_bytes in (b"{ }\n", b"{ } \n", b"{}")),
    ],
)
def test_table_metadata_is_stored_once(io: EncryptingFileIO, tmp_path: Path, name: str, stored: bytes) -> None:
    put(io, (tmp_path / name).as_uri(), RawContent.METADATA_JSON, stored)

    assert (tmp_path / name).read_bytes() == stored


@pytest.mark.parametrize("stored", [PLAIN_PARQUET, b"Obj\x01rows", b"", b"id,name\n"])
def test_rows_are_no_table_metadata(io: EncryptingFileIO, tmp_path: Path, stored: bytes) -> None:
    with pytest.raises(PlaintextRefusedError):
        put(io, (tmp_path / "1.metadata.json").as_uri(), RawContent.METADATA_JSON, stored)

    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    folder = tmp_path / "metadata" / "tablecrypt-reencrypt"
    folder.mkdir(parents=True)
    return folder


def test_wrapped_keys_of_a_journal_are_stored(io: EncryptingFileIO, journal: Path) -> None:
    part = json.dumps({"encryption-keys": [WRAPPED], "key-id": "k"}).encode()
    put(io, (journal / PART).as_uri(), RawContent.JOURNAL_KEYS, part[:9], part[9:])

    assert (journal / PART).read_bytes() == part


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"[]",
        b"{}",
        b"1",
        b"null",
        b"[" * 100_000,
        PLAIN_PARQUET,
        json.dumps({"encryption-keys": [WRAPPED]}).encode(),
        json.dumps({"encryption-keys": 1, "key-id": "k"}).encode(),
        json.dumps({"encryption-keys": [1], "key-id": "k"}).encode(),
        json.dumps({"encryption-keys": [WRAPPED], "key-id": "k", "rows": [1]}).encode(),
        json.dumps({"encryption-keys": [WRAPPED | {"rows": [1]}], "key-id": "k"}).encode(),
        json.dumps({"encryption-keys": [WRAPPED], "key-id": "k" * 2_000_000}).encode(),
    ],
)
def test_what_is_more_than_wrapped_keys_is_no_part_of_a_journal(io: EncryptingFileIO, journal: Path, stored: bytes) -> None:
    with pytest.raises(PlaintextRefusedError):
        put(io, (journal / PART).as_uri(), RawContent.JOURNAL_KEYS, stored)

    assert list(journal.iterdir()) == []


@pytest.mark.parametrize("stored", [ENCRYPTED_PARQUET, ags1_file(b"rows")])
def test_an_encrypted_file_is_no_plaintext_source(io: EncryptingFileIO, tmp_path: Path, stored: bytes) -> None:
    (tmp_path / "x").write_bytes(stored)
    with pytest.raises(ConfigurationError, match=f"^{(tmp_path / 'x').as_uri()}: is encrypted already"):
        io.plaintext_input((tmp_path / "x").as_uri()).open()


@pytest.mark.parametrize("stored", [PLAIN_PARQUET, b"", b"Obj"])
def test_a_plaintext_source_is_read_from_its_first_byte(io: EncryptingFileIO, tmp_path: Path, stored: bytes) -> None:
    (tmp_path / "x").write_bytes(stored)
    source = io.plaintext_input((tmp_path / "x").as_uri())

    assert len(source) == len(stored)
    with source.open() as stream:
        assert stream.read() == stored


@pytest.mark.parametrize("made", [PyArrowFileIO, FsspecFileIO])
def test_a_bucket_keeps_nothing_of_what_is_refused(made: Callable[[dict[str, str]], PyArrowFileIO | FsspecFileIO], aws: AwsServer) -> None:
    io, folder = EncryptingFileIO(made(aws.s3_properties)), f"s3://{aws.bucket('raw-output')}/{made.__name__}"
    for stored in (PLAIN_PARQUET, b"PARE" + bytes(100)):
        with pytest.raises(PlaintextRefusedError):
            put(io, f"{folder}/x.parquet", RawContent.SELF_ENCRYPTED, stored)
        assert not io.raw_input(f"{folder}/x.parquet").exists()
    put(io, f"{folder}/x.parquet", RawContent.SELF_ENCRYPTED, ENCRYPTED_PARQUET)
    assert io.raw_input(f"{folder}/x.parquet").open().read() == ENCRYPTED_PARQUET


@pytest.mark.parametrize(
    ("name", "content", "stored", "said"),
    [
        ("x.parquet", RawContent.SELF_ENCRYPTED, PLAIN_PARQUET, "begins otherwise"),
        ("x.parquet", RawContent.SELF_ENCRYPTED, b"PA", "begins otherwise"),
        ("x.parquet", RawContent.SELF_ENCRYPTED, b"PARE" + bytes(100), "ends otherwise"),
        ("x.avro", RawContent.SELF_ENCRYPTED, b"AGS1", "bytes, not 4"),
        (f"metadata/tablecrypt-x/{PART}", RawContent.JOURNAL_KEYS, b"{}", "holds something else"),
        (f"metadata/tablecrypt-x/{PART}", RawContent.JOURNAL_KEYS, bytes(1024 * 1024 + 1), "has more than 1048576 bytes"),
    ],
    ids=["plaintext", "two bytes", "no end", "too short", "no keys", "too long"],
)
def test_a_refusal_says_which_file_was_to_be_what(tmp_path: Path, name: str, content: RawContent, stored: bytes, said: str) -> None:
    location = (tmp_path / name).as_uri()
    with pytest.raises(PlaintextRefusedError) as refused:
        put(EncryptingFileIO(PyArrowFileIO()), location, content, stored)
    assert refused.value.location == location
    assert f"was to be {content.value}, but " in str(refused.value)
    assert said in str(refused.value)
    assert str(refused.value).endswith("; it is deleted")


def test_a_name_that_is_refused_is_named(io: EncryptingFileIO) -> None:
    with pytest.raises(PlaintextRefusedError) as refused:
        io.raw_output("/t/rows.json", RawContent.METADATA_JSON)
    assert refused.value.location == "/t/rows.json"


def test_a_file_that_is_there_is_written_over_only_when_asked_for(tmp_path: Path) -> None:
    output = EncryptingFileIO(PyArrowFileIO()).raw_output((tmp_path / "x.parquet").as_uri(), RawContent.SELF_ENCRYPTED)
    (tmp_path / "x.parquet").write_bytes(b"before")
    with pytest.raises(FileExistsError):
        output.create()
    assert (tmp_path / "x.parquet").read_bytes() == b"before"
    with output.create(overwrite=True) as sink:
        sink.write(ENCRYPTED_PARQUET)
    assert (tmp_path / "x.parquet").read_bytes() == ENCRYPTED_PARQUET


def test_a_part_of_a_journal_may_have_its_whole_length(io: EncryptingFileIO, journal: Path) -> None:
    part = json.dumps({"encryption-keys": [WRAPPED], "key-id": "k"}).encode().ljust(1024 * 1024)
    put(io, (journal / PART).as_uri(), RawContent.JOURNAL_KEYS, part)
    assert (journal / PART).read_bytes() == part


def test_a_whole_encrypted_file_stays_when_its_writer_fails_afterwards(io: EncryptingFileIO, tmp_path: Path) -> None:
    sink = io.raw_output((tmp_path / "x.parquet").as_uri(), RawContent.SELF_ENCRYPTED).create()
    sink.write(ENCRYPTED_PARQUET)
    sink.abandon()
    assert (tmp_path / "x.parquet").read_bytes() == ENCRYPTED_PARQUET


def test_wrapped_keys_are_not_left_by_a_writer_that_fails(io: EncryptingFileIO, journal: Path) -> None:
    sink = io.raw_output((journal / PART).as_uri(), RawContent.JOURNAL_KEYS).create()
    sink.write(json.dumps({"encryption-keys": [WRAPPED], "key-id": "k"}).encode())
    sink.abandon()
    assert list(journal.iterdir()) == []


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_a_closed_stream_takes_nothing_more(io: EncryptingFileIO, tmp_path: Path, end: str) -> None:
    sink = io.raw_output((tmp_path / "x.parquet").as_uri(), RawContent.SELF_ENCRYPTED).create()
    assert (sink.readable(), sink.seekable(), sink.writable(), sink.closed) == (False, False, True, False)
    sink.write(ENCRYPTED_PARQUET)
    getattr(sink, end)()
    assert sink.closed is True
    with pytest.raises(ValueError, match="is closed"):
        sink.write(b"PARE")
    sink.abandon()
    sink.close()
    assert (tmp_path / "x.parquet").read_bytes() == ENCRYPTED_PARQUET


class Halting(PyArrowFileIO):
    """A store that cannot delete."""

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError("no")


class Unbuffered:
    """A stream that takes a few bytes at a time, or says nothing of how many it took; and may be unable to close."""

    def __init__(self, most: int | None, closes: bool = True) -> None:
        self.most, self.closes, self.taken = most, closes, b""

    def write(self, data: bytes) -> int | None:
        piece = bytes(data[: self.most])
        self.taken += piece
        return None if self.most is None else len(piece)

    def close(self) -> None:
        if not self.closes:
            raise OSError("cannot close")


@pytest.mark.parametrize("most", [None, 1, 7, 1000])
def test_all_bytes_reach_a_store_that_takes_them_piece_by_piece(most: int | None) -> None:
    raw = Unbuffered(most)
    with RawOutputStream(cast("OutputStream", raw), PyArrowFileIO(), "x.parquet", RawContent.SELF_ENCRYPTED) as sink:
        sink.write(ENCRYPTED_PARQUET)
    assert raw.taken == ENCRYPTED_PARQUET


def test_the_refusal_is_the_error_where_the_store_can_neither_close_nor_delete(caplog: pytest.LogCaptureFixture) -> None:
    sink = RawOutputStream(cast("OutputStream", Unbuffered(None, closes=False)), Halting(), "x.parquet", RawContent.SELF_ENCRYPTED)
    with pytest.raises(PlaintextRefusedError, match="begins otherwise"):
        sink.write(PLAIN_PARQUET)
    assert caplog.messages == ["could not delete x.parquet: PermissionError"]


def test_the_writers_own_error_is_the_one_to_see_where_the_store_cannot_close() -> None:
    sink = RawOutputStream(cast("OutputStream", Unbuffered(None, closes=False)), PyArrowFileIO(), "/none/x", RawContent.SELF_ENCRYPTED)
    with pytest.raises(LookupError) as seen, sink:
        raise LookupError("given up")
    assert seen.value.__notes__ == ["the unfinished file could not be closed either: cannot close"]
