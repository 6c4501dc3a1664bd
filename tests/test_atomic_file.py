"""A file is there whole or not at all, whoever writes it and however the writing ends."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from tablecrypt._atomic_file import Place, atomic_file, named_file
from tests.support.observed_calls import observed

WRITER = """
import os, sys
from pathlib import Path
from tablecrypt._atomic_file import atomic_file
with atomic_file(Path(sys.argv[1]), replace=sys.argv[2] == "replace", durable=sys.argv[4] == "durable") as file:
    file.write(b"secret " * 100_000)
    file.flush()
    os.kill(os.getpid(), int(sys.argv[3]))
"""


@pytest.fixture(params=["unnamed", "hidden", "exclusive"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each place where a file can be until it is whole."""
    return cast("Place", request.param)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("replace", ["new", "replace"])
@pytest.mark.parametrize("durable", ["durable", "fast"])
def test_a_killed_writer_leaves_nothing(tmp_path: Path, number: signal.Signals, replace: str, durable: str) -> None:
    target = tmp_path / "rows.parquet"
    done = subprocess.run([sys.executable, "-c", WRITER, str(target), replace, str(int(number)), durable], check=False, timeout=60)
    assert done.returncode == -number
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path, place: Place, durable: bool) -> None:
    target = tmp_path / "file"
    for content in (b"one", b"two"):
        with atomic_file(target, durable=durable, until_named=place) as file:
            file.write(content)
            assert not target.exists() or target.read_bytes() != content
        assert target.read_bytes() == content
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o640)])
def test_a_private_file_is_its_owners_alone_and_another_what_the_umask_lets(tmp_path: Path, place: Place, private: bool, mode: int) -> None:
    target = tmp_path / "file"
    before = os.umask(0o027)
    try:
        for _ in range(2):
            with atomic_file(target, private=private, until_named=place) as file:
                file.write(b"rows")
            assert stat.S_IMODE(target.stat().st_mode) == mode
    finally:
        os.umask(before)


def test_an_error_leaves_what_was_there(tmp_path: Path, place: Place) -> None:
    target = tmp_path / "file"
    for content in (None, b"before"):
        if content is not None:
            target.write_bytes(content)
        with pytest.raises(KeyError), atomic_file(target, until_named=place) as file:
            file.write(b"half")
            raise KeyError
        assert [each.read_bytes() for each in tmp_path.iterdir()] == ([] if content is None else [content])


def test_where_there_is_no_folder_the_error_names_the_file_that_was_asked_for(tmp_path: Path, place: Place) -> None:
    target = tmp_path / "nowhere" / "rows.parquet"
    with pytest.raises(FileNotFoundError) as refused, atomic_file(target, until_named=place):
        pass
    assert refused.value.filename == str(target)


def test_a_writer_may_close_the_file_itself(tmp_path: Path, place: Place) -> None:
    with atomic_file(tmp_path / "file", durable=True, until_named=place) as file:
        file.write(b"rows")
        file.close()
    assert (tmp_path / "file").read_bytes() == b"rows"


def test_a_file_that_is_there_is_not_replaced_unless_it_may_be(tmp_path: Path, place: Place) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"theirs")
    with pytest.raises(FileExistsError) as refused, atomic_file(target, replace=False, until_named=place):
        pytest.fail("nothing is opened")
    assert (refused.value.filename, target.read_bytes(), list(tmp_path.iterdir())) == (str(target), b"theirs", [target])


def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path: Path, place: Place) -> None:
    target = tmp_path / "file"
    with pytest.raises(FileExistsError), atomic_file(target, replace=False, until_named=place) as file:
        file.write(b"ours")
        target.write_bytes(b"theirs")
    assert target.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [target]


def test_of_two_exclusive_writers_one_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with atomic_file(target, until_named="exclusive") as first:
        with pytest.raises(FileExistsError) as refused, atomic_file(target, until_named="exclusive"):
            pytest.fail("the first still holds it")
        assert Path(refused.value.filename) == tmp_path / "file.new"
        first.write(b"first")
    assert target.read_bytes() == b"first"


def test_a_writer_that_is_done_does_not_remove_what_the_next_one_writes(tmp_path: Path) -> None:
    """The next one may begin as soon as the file has its name: its half of a file would get the name of a third one's."""
    removed: list[Path] = []
    with (
        observed(Path.unlink, lambda names: removed.append(names["self"])),
        atomic_file(tmp_path / "file", until_named="exclusive") as file,
    ):
        file.write(b"ours")
    assert removed == []


def test_a_durable_file_is_flushed_before_it_has_its_name_and_its_folder_after(tmp_path: Path, place: Place) -> None:
    """Without the second flush a power cut may bring the folder back without the file, or with the old one."""
    target = tmp_path / "file"
    flushed: list[tuple[bool, bool, int]] = []

    def look(names: Mapping[str, Any]) -> None:
        status = os.fstat(names["descriptor"])
        flushed.append((stat.S_ISDIR(status.st_mode), target.exists(), 0 if stat.S_ISDIR(status.st_mode) else status.st_size))

    with observed(os.fsync, look), atomic_file(target, durable=True, until_named=place) as file:
        file.write(b"rows")
    assert flushed == [(False, False, 4), (True, True, 0)]


def test_a_link_that_somebody_names_leads_to_the_new_content(tmp_path: Path, place: Place) -> None:
    folder, link = tmp_path / "elsewhere", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder / "file")
    for content in (b"first", b"second"):
        with named_file(link, until_named=place) as file:
            file.write(content)
        assert (link.is_symlink(), (folder / "file").read_bytes()) == (True, content)
    assert [path.name for path in folder.iterdir()] == ["file"]


@pytest.mark.parametrize("leads_somewhere", [True, False])
def test_a_link_in_the_place_of_a_new_file_is_refused(tmp_path: Path, leads_somewhere: bool) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    if leads_somewhere:
        real.write_bytes(b"theirs")
    link.symlink_to(real)
    with pytest.raises(FileExistsError, match=str(link)), named_file(link, replace=False):
        pytest.fail("there is something of that name")
    assert real.exists() == leads_somewhere


def test_no_folder_is_replaced_that_somebody_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for path in (Path("folder"), Path()):
        with pytest.raises(IsADirectoryError), named_file(path) as file:
            file.write(b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
