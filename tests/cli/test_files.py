"""encrypt-file, decrypt-file, cat and inspect on single files: what went in comes back, and nothing comes back from changed bytes."""

from __future__ import annotations

import base64
import io
import json
import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.aws import AwsServer
from tests.support.command import Done, in_shell, run, run_terminal
from tests.support.full_disk import no_file_beyond
from tests.support.plaintext import CANARY
from tests.support.tables import MASTER_KEY, flip

pytestmark = pytest.mark.slow

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    for key_id in ("orders", "people"):
        assert run("keygen", "--key-file", str(path), "--key-id", key_id).code == 0
    return ("--key-file", str(path), "--key-id", "orders")


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"id": range(50), "note": [f"{CANARY} {each}" for each in range(50)], "many": [[each] for each in range(50)]}), path
    )
    return path


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_bytes((CANARY.encode() + b"\n") * (3 * MIB // len(CANARY)))
    return path


def encrypted(source: Path, keys: tuple[str, ...], *more: str) -> Path:
    target = source.with_name(f"sealed-{source.name}")
    done = run("encrypt-file", str(source), str(target), *keys, *more)
    assert done.code == 0, done.stderr
    return target


def refused(done: Done) -> str:
    assert (done.code, done.stdout) == (2, ""), done
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("length", [0, 1, 1000, MIB, 2 * MIB + 5])
def test_a_stream_comes_back(tmp_path: Path, keys: tuple[str, ...], length: int) -> None:
    source, back = tmp_path / "a.bin", tmp_path / "b.bin"
    source.write_bytes(bytes(each % 251 for each in range(length)))

    target = encrypted(source, keys)
    assert run("decrypt-file", str(target), str(back), *keys).code == 0

    assert target.read_bytes()[:4] == b"AGS1"
    assert back.read_bytes() == source.read_bytes()


def test_a_parquet_file_comes_back_as_parquet(parquet: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    target, back = encrypted(parquet, keys), tmp_path / "back.parquet"

    assert run("decrypt-file", str(target), str(back), *keys).code == 0

    assert target.read_bytes()[:4] == b"PARE"
    assert pq.read_table(back) == pq.read_table(parquet)


def test_a_parquet_file_may_become_a_stream(parquet: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    target, back = encrypted(parquet, keys, "--format", "ags1"), tmp_path / "back.parquet"

    assert target.read_bytes()[:4] == b"AGS1"
    assert run("decrypt-file", str(target), str(back), *keys).code == 0
    assert back.read_bytes() == parquet.read_bytes()


def test_no_plaintext_and_no_key_is_in_what_is_written(stream: Path, keys: tuple[str, ...]) -> None:
    target = encrypted(stream, keys)
    kept = target.with_name(f"{target.name}.key.json").read_text()

    assert CANARY.encode() not in target.read_bytes()
    assert next(key["encrypted-by-id"] for key in json.loads(kept)["encryption-keys"]) == "orders"
    master = base64.b64decode(json.loads(Path(keys[1]).read_text())["keys"]["orders"]["1"])
    assert base64.b64encode(master).decode() not in kept


def test_what_is_written_is_for_its_owner_alone(stream: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    target, back = encrypted(stream, keys), tmp_path / "back"
    assert run("decrypt-file", str(target), str(back), *keys).code == 0

    for path in (target, target.with_name(f"{target.name}.key.json"), back):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("offset", [0, 5, 100, MIB + 100, -1])
def test_a_flipped_bit_leaves_no_plaintext_file(stream: Path, keys: tuple[str, ...], tmp_path: Path, offset: int) -> None:
    target, back = encrypted(stream, keys), tmp_path / "back"
    flip(target, offset)
    before = set(tmp_path.iterdir())

    assert str(target) in refused(run("decrypt-file", str(target), str(back), *keys))

    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("offset", [0, 50, 300, -30])
def test_a_flipped_bit_of_a_parquet_file_leaves_none_either(parquet: Path, keys: tuple[str, ...], tmp_path: Path, offset: int) -> None:
    target, back = encrypted(parquet, keys), tmp_path / "back"
    flip(target, offset)

    refused(run("decrypt-file", str(target), str(back), *keys))

    assert not back.exists()


def test_a_cut_file_is_refused(stream: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    target = encrypted(stream, keys)
    target.write_bytes(target.read_bytes()[: 8 + MIB + 28])

    assert "key metadata" in refused(run("decrypt-file", str(target), str(tmp_path / "back"), *keys))


def test_another_master_key_does_not_open(stream: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    target = encrypted(stream, keys)

    for arguments in (("decrypt-file", str(target), str(tmp_path / "back")), ("cat", str(target)), ("inspect", str(target))):
        said = refused(run(*arguments, *keys[:3], "people"))
        assert f"{target}.key.json: the file's key is wrapped by master key orders, and people was named: write --key-id 'orders'" in said


def test_the_key_of_another_file_does_not_open(stream: Path, parquet: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    first, second = encrypted(stream, keys), encrypted(parquet, keys, "--format", "ags1")
    second.with_name(f"{second.name}.key.json").replace(first.with_name(f"{first.name}.key.json"))

    for arguments in (("decrypt-file", str(first), str(tmp_path / "back")), ("cat", str(first))):
        assert "the key does not fit, or the file was changed" in refused(run(*arguments, *keys))


def test_the_key_of_another_parquet_file_does_not_open(stream: Path, parquet: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    first, second = encrypted(parquet, keys), encrypted(stream, keys)
    second.with_name(f"{second.name}.key.json").replace(first.with_name(f"{first.name}.key.json"))

    for arguments in (("decrypt-file", str(first), str(tmp_path / "back")), ("cat", str(first)), ("inspect", str(first))):
        assert "does not fit, or the file was changed" in refused(run(*arguments, *keys))


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "is empty"), (b"ORC" + bytes(50), "begins like an ORC file"), (b"id,name\n", "begins with b'id,name")],
    ids=["empty", "ORC", "text"],
)
def test_a_file_of_another_kind_is_said_to_be_so(stream: Path, keys: tuple[str, ...], tmp_path: Path, content: bytes, says: str) -> None:
    target = encrypted(stream, keys)
    target.write_bytes(content)

    for arguments in (("decrypt-file", str(target), str(tmp_path / "back")), ("cat", str(target)), ("inspect", str(target))):
        assert says in refused(run(*arguments, *keys))


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "[" * 100_000, '{"tablecrypt": "file-key", "version": 1}', '{"tablecrypt": "file-key", "version": 2}'],
    ids=["empty", "half", "list", "deep", "fields missing", "newer"],
)
def test_a_malformed_key_is_refused(stream: Path, keys: tuple[str, ...], tmp_path: Path, content: str) -> None:
    target = encrypted(stream, keys)
    target.with_name(f"{target.name}.key.json").write_text(content)

    assert ".key.json" in refused(run("decrypt-file", str(target), str(tmp_path / "back"), *keys))


def test_a_missing_key_and_a_missing_key_id_are_said(stream: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    target = encrypted(stream, keys)
    assert "--key-id" in refused(run("decrypt-file", str(target), str(tmp_path / "back"), *keys[:2]))
    target.with_name(f"{target.name}.key.json").unlink()

    assert "key does not exist" in refused(run("decrypt-file", str(target), str(tmp_path / "back"), *keys))


def test_a_file_that_is_there_is_kept_without_force(stream: Path, keys: tuple[str, ...]) -> None:
    target = encrypted(stream, keys)
    before = target.read_bytes()

    assert "--force" in refused(run("encrypt-file", str(stream), str(target), *keys))
    assert target.read_bytes() == before
    assert run("encrypt-file", str(stream), str(target), *keys, "--force").code == 0
    assert target.read_bytes() != before


def test_a_closed_stdin_is_not_taken_for_an_empty_file(tmp_path: Path, keys: tuple[str, ...]) -> None:
    target = tmp_path / "a.ags1"

    assert "stdin is closed" in refused(in_shell('"$@" <&-', "encrypt-file", "-", str(target), *keys))
    assert not target.exists()


def test_a_link_leads_to_the_file_that_is_written(stream: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    target, link, real = encrypted(stream, keys), tmp_path / "link", tmp_path / "real"
    real.write_bytes(b"old")
    link.symlink_to(real)
    assert run("decrypt-file", str(target), str(link), *keys, "--force").code == 0
    assert (link.is_symlink(), real.read_bytes()) == (True, stream.read_bytes())
    assert real.stat().st_mode & 0o777 == 0o600

    # Without --force what it leads to is not replaced, even where nothing is there.
    real.unlink()
    assert "exists already" in refused(run("decrypt-file", str(target), str(link), *keys))
    assert not real.exists()


def test_a_pipe_takes_what_is_written_and_stays(stream: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    target, pipe, taken = encrypted(stream, keys), tmp_path / "pipe", tmp_path / "taken"
    os.mkfifo(pipe)
    with taken.open("wb") as output, subprocess.Popen(["cat", str(pipe)], stdout=output) as reader:
        assert run("decrypt-file", str(target), str(pipe), *keys, "--force").code == 0
        assert reader.wait(timeout=60) == 0
    assert (pipe.is_fifo(), taken.read_bytes()) == (True, stream.read_bytes())


def test_a_key_goes_to_where_the_key_files_link_leads(tmp_path: Path) -> None:
    real, link = tmp_path / "keys.json", tmp_path / "link.json"
    link.symlink_to(real)
    for key_id in ("a", "b"):
        assert run("keygen", "--key-file", str(link), "--key-id", key_id).code == 0
    assert link.is_symlink()
    assert json.loads(real.read_bytes())["keys"].keys() == {"a", "b"}
    assert {path.name for path in tmp_path.iterdir()} == {"keys.json", "link.json"}


def test_force_replaces_neither_what_is_read_nor_a_key(stream: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    target, named_as_a_key, link = encrypted(stream, keys), tmp_path / "a.key.json", tmp_path / "link"
    named_as_a_key.write_text("{}")
    link.symlink_to(keys[1])
    key = target.with_name(f"{target.name}.key.json")
    before = {path: path.read_bytes() for path in (target, named_as_a_key, key, Path(keys[1]))}

    for command, source, written, what in (
        ("encrypt-file", named_as_a_key, tmp_path / "a", "a.key.json is the source"),
        ("encrypt-file", stream, Path(keys[1]), "is the key file"),
        ("encrypt-file", stream, link, "is the key file"),
        ("decrypt-file", target, Path(keys[1]), "is the key file"),
        ("decrypt-file", target, key, "is the source's key"),
    ):
        assert what in refused(run(command, str(source), str(written), *keys, "--force"))

    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("command", ["encrypt-file", "decrypt-file"])
def test_a_target_without_a_name_is_refused(command: str, stream: Path, keys: tuple[str, ...]) -> None:
    source = stream if command == "encrypt-file" else encrypted(stream, keys)

    assert "Invalid value for 'TARGET': it is blank: name a file" in run(command, str(source), "", *keys).stderr


def test_what_comes_through_a_pipe_comes_back_whole(stream: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    pipe, target, back = (tmp_path / name for name in ("pipe", "sealed", "back"))
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pipe.write_bytes, stream.read_bytes())
        done = run("encrypt-file", str(pipe), str(target), *keys)
        written.result()

    assert done.code == 0, done.stderr
    assert run("decrypt-file", str(target), str(back), *keys).code == 0
    assert back.read_bytes() == stream.read_bytes()


def test_a_pipe_is_not_read_as_parquet(keys: tuple[str, ...], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert "is a pipe" in refused(run("encrypt-file", str(tmp_path / "pipe"), str(tmp_path / "sealed"), "--format", "parquet", *keys))


@pytest.mark.parametrize("name", ["encrypt-file", "decrypt-file"])
def test_a_target_that_is_no_file_of_its_own_is_refused(stream: Path, keys: tuple[str, ...], name: str) -> None:
    source = encrypted(stream, keys) if name == "decrypt-file" else stream
    content = source.read_bytes()

    assert "is the source" in refused(run(name, str(source), str(source), "--force", *keys))
    if name == "encrypt-file":
        assert "is not a file" in refused(run(name, str(source), "-", *keys))
    assert "there is no folder" in refused(run(name, str(source), str(source.parent / "nowhere" / "x"), *keys))
    assert "in another folder" in refused(run(name, str(source), "/proc/x", *keys, "--dry-run"))
    assert source.read_bytes() == content


def test_bytes_come_from_stdin_and_go_to_stdout(stream: Path, parquet: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    target = str(tmp_path / "piped.ags1")
    assert in_shell(f'cat {stream} | "$@"', "encrypt-file", "-", target, *keys).code == 0

    assert run("decrypt-file", target, "-", *keys).raw == stream.read_bytes()
    assert pq.read_table(io.BytesIO(run("decrypt-file", str(encrypted(parquet, keys)), "-", *keys).raw)) == pq.read_table(parquet)


@pytest.mark.parametrize("cut", [1, MIB, 2 * MIB])
def test_a_file_that_was_cut_sends_nothing_to_stdout(stream: Path, keys: tuple[str, ...], cut: int) -> None:
    target = encrypted(stream, keys)
    target.write_bytes(target.read_bytes()[:-cut])
    done = run("decrypt-file", str(target), "-", *keys)

    assert (done.code, done.raw) == (2, b"")


def test_a_terminal_gets_no_file(stream: Path, keys: tuple[str, ...]) -> None:
    code, shown = run_terminal("decrypt-file", str(encrypted(stream, keys)), "-", *keys)

    assert (code, CANARY in shown) == (2, False)
    assert "stdout is a terminal" in shown


def test_inspect_has_a_line_for_each_module(parquet: Path, keys: tuple[str, ...]) -> None:
    lines = run("inspect", str(encrypted(parquet, keys)), *keys).stdout.splitlines()

    assert sum("type: dictionary page header" in line for line in lines) == 3
    assert all(line.count("offset:") <= 1 for line in lines)


def test_a_dry_run_writes_nothing(stream: Path, keys: tuple[str, ...], tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())

    done = run("encrypt-file", str(stream), str(tmp_path / "sealed"), *keys, "--dry-run", "--json")

    assert json.loads(done.stdout)["format"] == "ags1"
    assert set(tmp_path.iterdir()) == before


def test_the_key_may_come_from_a_key_service(aws: AwsServer, stream: Path, tmp_path: Path) -> None:
    service = [part for name, value in aws.kms_properties.items() for part in ("-p", f"{name}={value}")]
    target, back = tmp_path / "sealed", tmp_path / "back"

    assert run(*service, "encrypt-file", str(stream), str(target), "--key-id", MASTER_KEY).code == 0
    assert run(*service, "decrypt-file", str(target), str(back), "--key-id", MASTER_KEY).code == 0

    assert back.read_bytes() == stream.read_bytes()


def test_cat_prints_rows_of_a_parquet_file(parquet: Path, keys: tuple[str, ...]) -> None:
    target = str(encrypted(parquet, keys))

    assert run("cat", target, *keys, "--columns", "id", "--limit", "2").stdout == '"id"\n0\n1\n'
    assert json.loads(run("cat", target, *keys, "--json").stdout.splitlines()[3])["many"] == [3]
    assert "CSV cannot hold" in run("cat", target, *keys).stderr


def test_cat_prints_the_bytes_of_a_stream(stream: Path, keys: tuple[str, ...]) -> None:
    assert run("cat", str(encrypted(stream, keys)), *keys).raw == stream.read_bytes()


def test_cat_refuses_what_a_file_does_not_have(stream: Path, keys: tuple[str, ...]) -> None:
    target = str(encrypted(stream, keys))

    refused(run("cat", target, *keys, "--limit", "3"))
    refused(run("cat", target, *keys, "--json"))
    refused(run("cat", target, *keys, "--where", "id > 3"))


def test_inspect_shows_a_file_with_and_without_its_key(stream: Path, parquet: Path, keys: tuple[str, ...]) -> None:
    shown = json.loads(run("inspect", str(encrypted(stream, keys)), "--json").stdout)
    assert (shown["format"], shown["blocks"], shown["plaintext_bytes"]) == ("AGS1", 4, stream.stat().st_size)
    target = str(encrypted(parquet, keys))
    without, within = (json.loads(run("inspect", target, *given, "--json").stdout) for given in ((), keys))

    assert (without["footer"], without["columns"]) == ("encrypted", [])
    assert [each["column"] for each in within["columns"]] == ["id", "note", "many.list.element"]
    assert within["key_length"] == 32


def test_inspect_shows_no_key(stream: Path, keys: tuple[str, ...]) -> None:
    master = json.loads(Path(keys[1]).read_text())["keys"]["orders"]["1"]
    done = run("inspect", str(encrypted(stream, keys)), *keys)

    assert master not in done.stdout
    assert base64.b64decode(master).hex() not in done.stdout


def test_inspect_refuses_a_file_of_no_known_format(stream: Path) -> None:
    assert "neither" in refused(run("inspect", str(stream)))


def test_no_file_gets_its_name_where_the_disk_has_no_room_for_its_key(keys: tuple[str, ...], tmp_path: Path) -> None:
    source, target = tmp_path / "short.txt", tmp_path / "short.ags1"
    source.write_text("short")

    with no_file_beyond(200):
        done = run("encrypt-file", str(source), str(target), *keys)

    assert done.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["short.txt"]
    assert run("encrypt-file", str(source), str(target), *keys).code == 0
