"""tablecrypt keygen, run as a process of its own: what it makes, what it says, and what it never says."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tablecrypt.kms.factory import load_kms

pytestmark = pytest.mark.slow
MAIN = "from tablecrypt.cli.main import main; main()"


def _run(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", before + MAIN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, umask=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_keygen_makes_a_file_that_the_local_kms_wraps_with(path: Path) -> None:
    done = _run("keygen", "--key-file", str(path), "--key-id", "orders")
    assert (done.returncode, done.stderr) == (0, "")
    assert "orders" in done.stdout
    assert str(path) in done.stdout
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    client = load_kms({"encryption.kms-type": "local", "kms.local.key-file": str(path)})
    assert len(client.generate_key("orders", 32).key) == 32


def test_keygen_never_says_the_key(path: Path) -> None:
    done = _run("keygen", "--key-file", str(path), "--key-id", "orders", "--length", "24")
    text = json.loads(path.read_text())["keys"]["orders"]["1"]
    key = base64.b64decode(text)
    assert len(key) == 24
    assert not [shown for shown in (text, key.hex()) if shown in done.stdout + done.stderr]


@pytest.mark.parametrize(
    "arguments", [[], ["--key-file", "k"], ["--key-id", "orders"], ["--key-file", "k", "--key-id", "o", "--length", "17"]]
)
def test_wrong_arguments_are_code_2(arguments: list[str]) -> None:
    done = _run("keygen", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_without_click_the_extra_is_named() -> None:
    done = _run("keygen", before="import sys; sys.modules['click'] = None; ")
    assert done.returncode == 2
    assert done.stderr.startswith("tablecrypt: the tablecrypt command needs the package click. Install tablecrypt again from where you")
    assert done.stderr.endswith('with this extra: pip install "…[cli]"\n')


def test_a_new_version_wraps_and_older_ones_still_open(path: Path) -> None:
    _run("keygen", "--key-file", str(path), "--key-id", "orders", "--length", "24")
    client = load_kms({"encryption.kms-type": "local", "kms.local.key-file": str(path)})
    old = client.wrap_key(bytes(16), "orders")

    done = _run("keygen", "--key-file", str(path), "--key-id", "orders", "--new-version", "--json")

    assert (done.returncode, json.loads(done.stdout)["version"]) == (0, 2)
    versions = json.loads(path.read_text())["keys"]["orders"]
    assert {number: len(base64.b64decode(key)) for number, key in versions.items()} == {"1": 24, "2": 24}
    assert client.wrap_key(bytes(16), "orders")[:5] == b"\x01\x00\x00\x00\x02"
    assert client.unwrap_key(old, "orders") == bytes(16)


@pytest.mark.parametrize("extra", [["--key-id", "nobody"], ["--key-id", "orders", "--length", "16"]])
def test_a_new_version_is_of_a_key_that_is_there_and_as_long(path: Path, extra: list[str]) -> None:
    _run("keygen", "--key-file", str(path), "--key-id", "orders")
    before = path.read_bytes()
    done = _run("keygen", "--key-file", str(path), "--new-version", *extra)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert path.read_bytes() == before
