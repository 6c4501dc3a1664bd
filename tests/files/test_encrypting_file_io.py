"""The FileIO that fails closed: over local files through PyArrow and fsspec, and over S3."""

from __future__ import annotations

import base64
import pickle
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, DeletionRefusedError, PlaintextRefusedError, TamperedFileError
from tablecrypt.files.deletion import NOTHING, DeletionScope
from tablecrypt.files.encrypting_file_io import DecryptingInputFile, EncryptingFileIO, EncryptingOutputFile, ReadRestrictions, encrypting_io
from tablecrypt.files.raw_output import RawContent
from tests.support.ags1_files import KEY, MIB, ags1_file, key_metadata, pattern
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.tables import path_of

SECRET = CANARY.encode()


@pytest.fixture(params=["pyarrow", "fsspec"])
def io(request: pytest.FixtureRequest) -> EncryptingFileIO:
    return EncryptingFileIO(PyArrowFileIO() if request.param == "pyarrow" else FsspecFileIO({}))


@pytest.fixture
def location(tmp_path: Path) -> str:
    return (tmp_path / "one.avro").as_uri()


def fresh() -> StandardKeyMetadata:
    return StandardKeyMetadata.generate(16, secrets.token_bytes)


def write(io: EncryptingFileIO, location: str, plaintext: bytes) -> EncryptingOutputFile:
    output = io.encrypting_output(location, fresh())
    with output.create() as stream:
        stream.write(plaintext)
    return output


@pytest.mark.parametrize("length", [0, 1, MIB, 2 * MIB + 5])
def test_what_was_written_reads_back_by_its_key_metadata(io: EncryptingFileIO, location: str, length: int) -> None:
    output = write(io, location, pattern(length))
    source = io.decrypting_input(location, output.key_metadata)
    assert len(source) == length
    with source.open() as stream:
        assert stream.read() == pattern(length)
    with output.to_input_file().open() as stream:
        stream.seek(length // 2)
        assert stream.read() == pattern(length)[length // 2 :]


def test_the_finished_file_knows_its_length_in_the_store(io: EncryptingFileIO, location: str) -> None:
    output = io.encrypting_output(location, fresh())
    with pytest.raises(ValueError, match="not written"):
        len(output)
    with output.create() as stream:
        stream.write(SECRET)
        with pytest.raises(ValueError, match="not finished"):
            len(output)
    stored = path_of(location).read_bytes()
    assert len(output) == output.key_metadata.file_length == len(stored) == 36 + len(SECRET)
    assert stored[:4] == b"AGS1"
    assert SECRET not in stored


def test_the_streams_are_pyicebergs(io: EncryptingFileIO, location: str) -> None:
    output = io.encrypting_output(location, fresh())
    with output.create() as sink:
        assert isinstance(sink, OutputStream)
    with output.to_input_file().open(seekable=False) as source:
        assert isinstance(source, InputStream)


def write_and_fail(output: EncryptingOutputFile) -> None:
    with output.create() as stream:
        stream.write(pattern(MIB))
        raise ZeroDivisionError


def test_an_abandoned_file_gets_no_length(io: EncryptingFileIO, location: str) -> None:
    output = io.encrypting_output(location, fresh())
    with pytest.raises(ZeroDivisionError):
        write_and_fail(output)
    assert output.key_metadata.file_length is None
    with pytest.raises(TamperedFileError):
        output.to_input_file().open()


def test_one_dek_writes_one_file_only(io: EncryptingFileIO, location: str) -> None:
    output = write(io, location, b"once")
    with pytest.raises(ConfigurationError, match="DEK"):
        output.create(overwrite=True)
    with pytest.raises(ConfigurationError, match="DEK"):
        io.encrypting_output(location + "2", output.key_metadata)


def test_an_existing_file_is_overwritten_only_when_asked_for(location: str) -> None:
    # Not with fsspec: PyIceberg's fsspec files never see that a file:// location exists.
    io = EncryptingFileIO(PyArrowFileIO())
    first = io.encrypting_output(location, fresh())
    assert not first.exists()
    first.create().close()
    assert first.exists()
    assert first.to_input_file().exists()
    with pytest.raises(FileExistsError):
        io.encrypting_output(location, fresh()).create()
    second = io.encrypting_output(location, fresh())
    with second.create(overwrite=True) as stream:
        stream.write(b"second")
    with second.to_input_file().open() as source:
        assert source.read() == b"second"


def test_a_file_that_is_longer_or_shorter_in_the_store_is_refused_with_both_lengths(io: EncryptingFileIO, location: str) -> None:
    output = write(io, location, b"plaintext")
    stored = path_of(location).read_bytes()
    for changed in (stored + b"\x00", stored[:-1]):
        path_of(location).write_bytes(changed)
        source = io.decrypting_input(location, output.key_metadata)
        with pytest.raises(TamperedFileError, match=f"{location}: has {len(changed)} bytes.*{len(stored)}"):
            source.open()
        assert len(source) == len(b"plaintext")


def test_an_impossible_length_has_no_plaintext_length(io: EncryptingFileIO, location: str) -> None:
    path_of(location).write_bytes(b"AGS1" + bytes(20))
    for trusted in (None, 24):
        with pytest.raises(TamperedFileError, match=location):
            len(io.decrypting_input(location, key_metadata(trusted)))


def test_a_plaintext_file_is_refused_when_it_is_opened(io: EncryptingFileIO, location: str) -> None:
    path_of(location).write_bytes(b"Obj\x01" + bytes(500))
    with pytest.raises(PlaintextRefusedError, match=location):
        io.decrypting_input(location, key_metadata(99)).open()


def test_a_missing_file_is_the_stores_own_error(io: EncryptingFileIO, location: str) -> None:
    assert not io.decrypting_input(location, key_metadata(99)).exists()
    with pytest.raises(FileNotFoundError):
        io.decrypting_input(location, key_metadata(99)).open()


@pytest.mark.parametrize("name", ["00000-x.metadata.json", "v3.metadata.json.gz", "v3.gz.metadata.json"])
def test_table_metadata_is_read_as_it_is(io: EncryptingFileIO, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"{}")
    with io.new_input((tmp_path / name).as_uri()).open() as stream:
        assert stream.read() == b"{}"


@pytest.mark.parametrize("name", ["x.parquet", "x.avro", "x.puffin", "metadata.json", "x.metadata.json.parquet", "version-hint.text", ""])
def test_nothing_else_is_read_without_its_key(io: EncryptingFileIO, tmp_path: Path, name: str) -> None:
    location = tmp_path.as_uri() + "/" + name
    with pytest.raises(PlaintextRefusedError, match=location):
        io.new_input(location)


@pytest.mark.parametrize("name", ["x.parquet", "x.avro", "x.puffin", "00000-x.metadata.json", ""])
def test_nothing_is_written_without_key_metadata(io: EncryptingFileIO, tmp_path: Path, name: str) -> None:
    with pytest.raises(PlaintextRefusedError, match="own methods"):
        io.new_output(tmp_path.as_uri() + "/" + name)
    assert list(tmp_path.iterdir()) == []


def test_a_format_that_encrypts_itself_reaches_the_stored_bytes(io: EncryptingFileIO, location: str) -> None:
    with io.raw_output(location, RawContent.SELF_ENCRYPTED).create() as sink:
        sink.write(b"PARE1234PARE")
    with io.raw_input(location).open() as source:
        assert source.read() == b"PARE1234PARE"


@pytest.mark.parametrize("as_what", ["location", "input", "output"])
def test_deleting_passes_through(io: EncryptingFileIO, location: str, as_what: str) -> None:
    output = write(io, location, b"plaintext")
    targets: dict[str, str | InputFile | OutputFile] = {"location": location, "input": output.to_input_file(), "output": output}
    io.delete(targets[as_what])
    assert not path_of(location).exists()


def test_an_encrypting_file_io_is_not_wrapped_again(io: EncryptingFileIO) -> None:
    with pytest.raises(ConfigurationError):
        EncryptingFileIO(io)


@pytest.mark.parametrize("inner", [PyArrowFileIO, FsspecFileIO])
def test_it_pickles_without_keys_and_works_on_the_other_side(inner: Callable[[dict[str, str]], FileIO], location: str) -> None:
    io = EncryptingFileIO(inner({"s3.region": "eu-west-1"}))
    output = io.encrypting_output(location, key_metadata())
    with output.create() as stream:
        stream.write(b"plaintext")
    with io.decrypting_input(location, output.key_metadata).open() as source:
        source.read()
    pickled = pickle.dumps(io)
    for spelling in (KEY, KEY.hex().encode(), base64.b64encode(KEY)):
        assert spelling not in pickled
    restored = pickle.loads(pickled)
    assert restored.properties == io.properties
    assert restored.decrypting_input(location, output.key_metadata).open().read() == b"plaintext"


def test_what_holds_key_metadata_can_be_shown_but_not_pickled(io: EncryptingFileIO, location: str) -> None:
    output = io.encrypting_output(location, key_metadata())
    sink = output.create()
    sink.write(b"plaintext")
    sink.close()
    source = DecryptingInputFile(io.raw_input(location), output.key_metadata)
    with source.open() as stream:
        stream.read(1)
        for holder in (output, sink, source, stream):
            assert KEY.hex() not in f"{holder} {holder!r}"
            assert repr(KEY)[2:-1] not in f"{holder} {holder!r}"
            with pytest.raises(TypeError):
                pickle.dumps(holder)


def test_a_refusal_does_not_show_or_carry_the_key(io: EncryptingFileIO, location: str) -> None:
    path_of(location).write_bytes(ags1_file(b"plaintext", key=bytes(16)))
    with pytest.raises(TamperedFileError) as refused:
        io.decrypting_input(location, key_metadata()).open().read()
    restored = pickle.loads(pickle.dumps(refused.value))
    assert (type(restored), str(restored)) == (type(refused.value), str(refused.value))
    assert KEY not in pickle.dumps(refused.value)
    assert KEY.hex() not in str(refused.value)
    assert key_metadata().encryption_key == Secret(KEY)


@pytest.mark.parametrize("inner", [PyArrowFileIO, FsspecFileIO])
def test_s3_holds_only_ciphertext_and_gives_it_back(inner: type[FileIO], aws: AwsServer) -> None:
    io = EncryptingFileIO(inner(aws.s3_properties))
    location = f"s3://{aws.bucket('encrypting-file-io')}/{inner.__name__}.avro"
    output = write(io, location, SECRET + pattern(3 * MIB))
    stored = io.raw_input(location).open().read()
    assert len(stored) == len(output)
    assert SECRET not in stored
    with output.to_input_file().open() as stream:
        assert stream.read() == SECRET + pattern(3 * MIB)
        stream.seek(2 * MIB)
        assert stream.read(10) == pattern(3 * MIB)[2 * MIB - len(SECRET) :][:10]


@pytest.mark.parametrize(("method", "scope"), [("delete", "deletable"), ("delete_new", "deletable"), ("delete_new", "own_folders")])
def test_what_this_object_did_not_write_is_deleted_in_the_scope_alone(
    io: EncryptingFileIO, tmp_path: Path, method: str, scope: str
) -> None:
    delete = getattr(io, method)
    (tmp_path / "t").mkdir()
    inside, outside = tmp_path / "t" / "x.parquet", tmp_path / "x.parquet"
    for file in (inside, outside):
        file.write_bytes(b"")
        with pytest.raises(DeletionRefusedError) as refused:
            delete(file.as_uri())
        assert refused.value.location == file.as_uri()
    setattr(io, scope, DeletionScope(((tmp_path / "t").as_uri(),)))
    with pytest.raises(DeletionRefusedError) as refused:
        delete(outside.as_uri())
    assert refused.value.location == outside.as_uri()
    delete(inside.as_uri())
    assert outside.exists()
    assert not inside.exists()


@pytest.mark.parametrize("method", ["delete", "delete_new"])
def test_what_this_object_wrote_it_may_delete(io: EncryptingFileIO, location: str, method: str) -> None:
    write(io, location, b"plaintext")
    getattr(io, method)(location)
    raw = location.removesuffix("avro") + "parquet"
    with io.raw_output(raw, RawContent.SELF_ENCRYPTED).create() as sink:
        sink.write(b"PARE1234PARE")
    getattr(io, method)(raw)
    assert not path_of(location).exists()
    assert not path_of(raw).exists()


def test_restrictions_and_properties_travel_and_scopes_do_not(tmp_path: Path) -> None:
    io = EncryptingFileIO(FsspecFileIO({"s3.region": "eu-west-1"}), ReadRestrictions("{}"))
    io.deletable = io.own_folders = DeletionScope((tmp_path.as_uri(),))
    restored = pickle.loads(pickle.dumps(io))
    assert restored.read_restrictions == ReadRestrictions("{}")
    assert restored.properties == io.properties == {"s3.region": "eu-west-1"}
    assert restored.deletable == restored.own_folders == NOTHING


def test_a_refusal_names_the_file_and_the_way_that_is_open(io: EncryptingFileIO) -> None:
    with pytest.raises(PlaintextRefusedError, match="its own scan and inspect methods") as unread:
        io.new_input("/t/x.avro")
    with pytest.raises(PlaintextRefusedError, match="write to it through its own methods") as unwritten:
        io.new_output("/t/x.avro")
    assert unread.value.location == unwritten.value.location == "/t/x.avro"
    with pytest.raises(ConfigurationError, match="wrap the one inside it"):
        EncryptingFileIO(io)


def test_an_impossible_length_is_named_with_its_file(io: EncryptingFileIO, location: str) -> None:
    path_of(location).write_bytes(b"AGS1")
    with pytest.raises(TamperedFileError) as refused:
        len(io.decrypting_input(location, fresh()))
    assert refused.value.location == location
    assert "bytes, not 4" in str(refused.value)


def test_only_an_encrypting_file_io_reads_an_encrypted_table() -> None:
    io = EncryptingFileIO(PyArrowFileIO())
    assert encrypting_io(io) is io
    with pytest.raises(ConfigurationError, match=r"^a manifest is read through an EncryptingFileIO, not PyArrowFileIO$"):
        encrypting_io(PyArrowFileIO(), "a manifest")
