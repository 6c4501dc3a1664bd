"""A plaintext file has no name until it is whole: a process that is killed leaves nothing."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tablecrypt.cli.files import whole_file
from tablecrypt.errors import ConfigurationError

WRITER = """
import os, signal, sys
from pathlib import Path
from tablecrypt.cli.files import whole_file
with whole_file(Path(sys.argv[1]), sys.argv[2] == "replace") as file:
    file.write(b"secret " * 100_000)
    file.flush()
    os.kill(os.getpid(), int(sys.argv[3]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("replace", ["new", "replace"])
def test_a_killed_writer_leaves_nothing(tmp_path: Path, number: signal.Signals, replace: str) -> None:
    target = tmp_path / "rows.parquet"
    done = subprocess.run([sys.executable, "-c", WRITER, str(target), replace, str(int(number))], check=False, timeout=60)
    assert done.returncode == -number
    assert list(tmp_path.iterdir()) == []


def test_a_whole_file_has_its_name_and_is_its_owners_alone(tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    for content, replace in ((b"one", False), (b"two", True)):
        with whole_file(target, replace) as file:
            file.write(content)
        assert target.read_bytes() == content
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_or_a_file_that_came_meanwhile_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    with pytest.raises(KeyError), whole_file(target, False) as file:
        file.write(b"half")
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigurationError, match="there already"), whole_file(target, False) as file:
        file.write(b"ours")
        target.write_bytes(b"theirs")
    assert target.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["rows.parquet"]
