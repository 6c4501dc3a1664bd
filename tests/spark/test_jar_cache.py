"""The cache folder of compiled jars: what lies there runs in drivers and executors.

Adversary: another user of the machine, who may write to a folder that this user's cache is pointed at; and a disk that loses bytes.
"""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.shared.jar_cache import JarCache, cache_folder, is_intact, jar_key, jar_name
from tests.spark.conftest import ROOT

KEY: Final = jar_key("sources", "4.1.4")
CONTENT: Final = b"the content of a jar" * 1000
NOBODY: Final = 65_534


@pytest.fixture
def cache(tmp_path: Path) -> JarCache:
    """A cache with one jar."""
    cache = JarCache(tmp_path / "cache")
    cache.keep(KEY, CONTENT)
    return cache


def kept_file(cache: JarCache) -> Path:
    [path] = cache.folder.iterdir()
    return path


def test_a_kept_jar_is_found_by_its_key_alone(cache: JarCache) -> None:
    assert cache.find(KEY) == CONTENT
    assert cache.find(jar_key("sources", "4.2.0")) is None
    assert cache.find(jar_key("changed sources", "4.1.4")) is None


def test_folder_and_file_are_this_users_alone(cache: JarCache) -> None:
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept_file(cache).stat().st_mode) == 0o600


@given(content=st.binary(max_size=200), other=st.binary(max_size=200))
def test_only_the_content_that_a_name_says_is_intact(content: bytes, other: bytes) -> None:
    assert is_intact(jar_name(KEY, content), content)
    assert is_intact(jar_name(KEY, content), other) == (content == other)


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1], CONTENT + b"\0", b"T" + CONTENT[1:]], ids=["empty", "cut", "longer", "changed"])
def test_a_damaged_jar_is_removed_and_not_used(cache: JarCache, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = kept_file(cache)
    path.write_bytes(damage)

    assert cache.find(KEY) is None
    assert not path.exists()
    assert f"{path} is damaged" in caplog.text
    cache.keep(KEY, CONTENT)
    assert cache.find(KEY) == CONTENT


def test_a_jar_under_the_name_of_another_key_is_not_used(cache: JarCache) -> None:
    other = jar_key("other")
    kept_file(cache).rename(cache.folder / f"{other}-{'0' * 32}.jar")

    assert cache.find(other) is None


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o702, 0o777, 0o1777], ids=oct)
def test_a_folder_that_others_can_write_to_is_neither_read_nor_written(
    cache: JarCache, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    cache.folder.chmod(mode)
    cache.keep(jar_key("new"), b"new")

    assert cache.find(KEY) is None
    assert len(list(cache.folder.iterdir())) == 1
    assert f"{cache.folder} is no cache of Java classes (other users can write to it)" in caplog.text


@pytest.mark.parametrize("mode", [0o660, 0o602], ids=oct)
def test_a_jar_that_others_can_write_to_is_not_used_until_it_is_replaced(cache: JarCache, mode: int) -> None:
    kept_file(cache).chmod(mode)

    assert cache.find(KEY) is None
    cache.keep(KEY, CONTENT)
    assert cache.find(KEY) == CONTENT
    assert stat.S_IMODE(kept_file(cache).stat().st_mode) == 0o600


def test_a_folder_of_another_user_is_neither_read_nor_written(cache: JarCache, caplog: pytest.LogCaptureFixture) -> None:
    cache, names = _of_another_user(cache)
    cache.keep(jar_key("new"), b"new")

    assert cache.find(KEY) is None
    assert sorted(path.name for path in cache.folder.iterdir()) == names
    assert f"{cache.folder} is no cache of Java classes (it belongs to another user)" in caplog.text


def _of_another_user(cache: JarCache) -> tuple[JarCache, list[str]]:
    """A cache whose folder somebody else owns, and what is in it: root gives its own away, and others take one of root's."""
    if os.geteuid():
        cache = JarCache(Path(os.__file__).parent if Path(os.__file__).stat().st_uid == 0 else Path("/usr"))
    else:
        os.chown(cache.folder, NOBODY, NOBODY)
    return cache, sorted(path.name for path in cache.folder.iterdir())


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_not_used(cache: JarCache, tmp_path: Path, kind: str) -> None:
    path = kept_file(cache)
    elsewhere = path.rename(tmp_path / "elsewhere.jar")
    if kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    else:
        path.mkdir(mode=0o700)

    assert cache.find(KEY) is None


def test_a_folder_that_cannot_be_made_is_told_and_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "home").write_text("a file")
    cache = JarCache(tmp_path / "home" / ".cache" / "tablecrypt")
    cache.keep(KEY, CONTENT)

    assert cache.find(KEY) is None
    assert "is no cache of Java classes (Not a directory)" in caplog.text
    assert "TABLECRYPT_CACHE" in caplog.text


_LIMITED: Final = """
import resource, signal, sys
from pathlib import Path
from tablecrypt.spark.shared.jar_cache import JarCache
signal.signal(signal.SIGXFSZ, getattr(signal, sys.argv[2]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
JarCache(Path(sys.argv[1])).keep(sys.argv[3], b"x" * 5000)
"""


@pytest.mark.parametrize(("handler", "status"), [("SIG_DFL", -signal.SIGXFSZ), ("SIG_IGN", 0)], ids=["killed", "no space"])
def test_a_jar_that_was_not_written_to_its_end_does_not_exist(tmp_path: Path, handler: str, status: int) -> None:
    """The system kills the process in the middle of the write, or refuses the rest."""
    cache = JarCache(tmp_path / "cache")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _LIMITED, str(cache.folder), handler, KEY]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert run.returncode == status, run.stderr
    assert cache.folder.is_dir()
    assert cache.find(KEY) is None
    cache.keep(KEY, CONTENT)
    assert cache.find(KEY) == CONTENT


def test_the_oldest_jars_go_and_files_of_others_stay(cache: JarCache) -> None:
    (cache.folder / "driver.jar").write_bytes(b"not ours")
    os.utime(cache.folder / "driver.jar", (0, 0))
    os.utime(next(cache.folder.glob(f"{KEY}-*")), (0, 0))
    keys = [jar_key(str(number)) for number in range(16)]
    for number, key in enumerate(keys):
        cache.keep(key, str(number).encode())

    assert cache.find(KEY) is None
    assert [cache.find(key) for key in keys] == [str(number).encode() for number in range(16)]
    assert (cache.folder / "driver.jar").exists()


def test_the_folder_is_the_platforms_or_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.delenv("TABLECRYPT_CACHE", raising=False)
    assert cache_folder() == tmp_path / (Path("Library") / "Caches" if sys.platform == "darwin" else Path("caches")) / "tablecrypt"

    monkeypatch.setenv("TABLECRYPT_CACHE", "~/classes")
    assert cache_folder() == tmp_path / "classes"


@pytest.mark.parametrize("named", ["", "classes", "./classes"])
def test_a_variable_that_names_no_folder_is_refused(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("TABLECRYPT_CACHE", named)

    with pytest.raises(ConfigurationError, match=r"TABLECRYPT_CACHE is '.*': name a folder by its whole path, or unset it"):
        cache_folder()


def test_a_user_without_a_home_has_no_cache(caplog: pytest.LogCaptureFixture) -> None:
    cache = JarCache(Path("~nobody-here/.cache"))
    with caplog.at_level(logging.INFO):
        assert cache.find(KEY) is None
    assert "no home folder" in caplog.text
