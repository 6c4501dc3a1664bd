"""tablecrypt hadoop-kms and its helpers, run as processes of their own: keys, a token, a server, and how it stops."""

from __future__ import annotations

import base64
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tablecrypt.errors import KmsAccessDeniedError
from tablecrypt.kms.factory import load_kms
from tablecrypt.kms.key_file import create_key_file
from tablecrypt.kms.retry import RetryPolicy
from tablecrypt.orc.hadoop_kms_client import HadoopKmsKeys
from tablecrypt.orc.hadoop_kms_keys import MasterKeyFile
from tests.support.aws import AwsServer

MAIN = "from tablecrypt.cli.main import main; main()"
PATIENCE = 120


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MAIN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, umask=0)


@contextmanager
def _serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process and the URL that it printed."""
    command = [sys.executable, "-c", MAIN, *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "http://127.0.0.1:" in line, process.communicate()[1]
            yield process, line.split()[-1]
        finally:
            process.kill()


@pytest.fixture
def kms(tmp_path: Path) -> list[str]:
    """The options that name a key service with the key "orc"."""
    create_key_file(tmp_path / "kms.json", "orc")
    return ["-p", "encryption.kms-type=local", "-p", f"kms.local.key-file={tmp_path / 'kms.json'}"]


@pytest.fixture
def keys(tmp_path: Path, kms: list[str]) -> Path:
    path = tmp_path / "orc-keys.json"
    done = _run(*kms, "hadoop-kms-key", "pii", "--key-file", str(path), "--master-key", "orc")
    assert (done.returncode, done.stderr) == (0, "")
    return path


@pytest.fixture
def token(tmp_path: Path) -> str:
    """A token of the user etl, who may use pii by tmp_path/allow.toml."""
    path = tmp_path / "etl.token"
    done = _run("hadoop-kms-token", "--token-file", str(path), "--json")
    assert done.returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = path.read_text().strip()
    assert token not in done.stdout + done.stderr
    (tmp_path / "allow.toml").write_text(f'[users.etl]\nkeys = ["pii"]\ntoken-sha256 = ["{json.loads(done.stdout)["token_sha256"]}"]\n')
    return token


def test_a_key_is_made_and_rolled(tmp_path: Path, kms: list[str], keys: Path) -> None:
    rolled = _run(*kms, "hadoop-kms-key", "pii", "--key-file", str(keys), "--roll", "--json")
    assert json.loads(rolled.stdout) == {"key": "pii", "version": 1, "key_file": str(keys)}
    provider = MasterKeyFile(keys, load_kms({"encryption.kms-type": "local", "kms.local.key-file": str(tmp_path / "kms.json")}))
    assert provider.current_version("pii").version == 1
    again = _run(*kms, "hadoop-kms-key", "pii", "--key-file", str(keys), "--master-key", "orc")
    assert (again.returncode, again.stdout) == (2, "")
    assert "has a key 'pii' already" in again.stderr


def test_a_server_serves_says_who_asked_and_stops_when_told(tmp_path: Path, kms: list[str], keys: Path, token: str) -> None:
    with _serving(*kms, "hadoop-kms", "--key-file", str(keys), "--allow-list", str(tmp_path / "allow.toml")) as (process, url):
        client = HadoopKmsKeys(url.replace("/kms", f"/token/{token}/kms"), retry=RetryPolicy(budget_seconds=0))
        local = client.create_local_key(client.current_version("pii"))
        with pytest.raises(KmsAccessDeniedError):
            client.current_version("other")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert "user=etl peer=127.0.0.1 operation=decrypt key=pii@0 status=200" in log
    assert "refused: user etl is not allowed to use key other" in log
    key = local.key.reveal()
    assert not [secret for secret in (token, key.hex(), base64.b64encode(key).decode()) if secret in log]


def test_aws_kms_stands_behind_it(tmp_path: Path, aws: AwsServer, token: str) -> None:
    kms = [argument for name, value in aws.kms_properties.items() for argument in ("-p", f"{name}={value}")]
    key_file = tmp_path / "aws-keys.json"
    assert (
        _run(*kms, "hadoop-kms-key", "pii", "--key-file", str(key_file), "--master-key", "alias/orders", "--length", "32").returncode == 0
    )
    with _serving(*kms, "hadoop-kms", "--key-file", str(key_file), "--allow-list", str(tmp_path / "allow.toml")) as (process, url):
        client = HadoopKmsKeys(url.replace("/kms", f"/token/{token}/kms"), retry=RetryPolicy(budget_seconds=0))
        master = client.current_version("pii")
        local = client.create_local_key(master)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert len(local.key) == 32
    assert MasterKeyFile(key_file, load_kms(aws.kms_properties)).decrypt_local_key(master, local.encrypted) == local.key


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 is not a loopback address, and without TLS keys would cross the network"),
        (["--certificate", "c.pem"], "go together"),
        (["--client-ca", "c.pem"], "client certificates need TLS"),
        (["--allow-list", "absent.toml"], "the allow list absent.toml cannot be read"),
        (["--key-file", "absent.json"], "the key file absent.json cannot be read"),
    ],
)
def test_a_server_that_could_not_serve_safely_does_not_start(
    tmp_path: Path, kms: list[str], keys: Path, token: str, options: list[str], said: str
) -> None:
    done = _run(*kms, "hadoop-kms", "--key-file", str(keys), "--allow-list", str(tmp_path / "allow.toml"), *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_token_file_that_is_there_is_left_alone(tmp_path: Path, token: str) -> None:
    before = (tmp_path / "etl.token").read_text()
    done = _run("hadoop-kms-token", "--token-file", str(tmp_path / "etl.token"))
    assert done.returncode == 2
    assert os.strerror(17) in done.stderr
    assert (tmp_path / "etl.token").read_text() == before
