"""tablecrypt hadoop-kms and its helpers, run as processes of their own: keys, a token, a server, and how it stops."""

from __future__ import annotations

import base64
import json
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tablecrypt.cli.main import run
from tablecrypt.errors import ConfigurationError, KmsError
from tablecrypt.hadoop_kms import HadoopKmsKeys
from tablecrypt.hadoop_kms.access import new_token, token_hash
from tablecrypt.hadoop_kms.master_keys import MasterKeyFile
from tablecrypt.kms.factory import load_kms
from tablecrypt.kms.local_file import create_key_file
from tablecrypt.kms.resilient import RetryPolicy
from tests.support.aws import AwsServer
from tests.support.certificates import Authority

MAIN = "from tablecrypt.cli.main import main; main()"
PATIENCE = 120


def _run(*arguments: str) -> None:
    """Run a command in this process, errors included."""
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 0


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
    _run(*kms, "hadoop-kms-key", "pii", "--key-file", str(path), "--master-key", "orc")
    return path


@pytest.fixture
def token(tmp_path: Path) -> str:
    """A token of the user etl, who may use pii by tmp_path/allow.toml."""
    token = new_token()
    (tmp_path / "allow.toml").write_text(f'[users.etl]\nkeys = ["pii"]\ntoken-sha256 = ["{token_hash(token)}"]\n')
    return token


def test_a_key_is_made_and_rolled(tmp_path: Path, kms: list[str], keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    _run(*kms, "hadoop-kms-key", "pii", "--key-file", str(keys), "--roll", "--json")
    assert json.loads(capsys.readouterr().out) == {"key": "pii", "version": 1, "key_file": str(keys)}
    provider = MasterKeyFile(keys, load_kms({"encryption.kms-type": "local", "kms.local.key-file": str(tmp_path / "kms.json")}))
    assert provider.current_version("pii").version == 1
    with pytest.raises(ConfigurationError, match="has a key 'pii' already"):
        _run(*kms, "hadoop-kms-key", "pii", "--key-file", str(keys), "--master-key", "orc")
    with pytest.raises(ConfigurationError, match="needs --master-key"):
        _run(*kms, "hadoop-kms-key", "cards", "--key-file", str(keys))


def test_a_token_is_in_its_file_and_not_on_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "etl.token"
    _run("hadoop-kms-token", "--token-file", str(path), "--json")
    token, printed = path.read_text().strip(), capsys.readouterr().out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(printed)["token_sha256"] == token_hash(token)
    assert token not in printed
    with pytest.raises(ConfigurationError, match="cannot be made"):
        _run("hadoop-kms-token", "--token-file", str(path))
    assert path.read_text().strip() == token


def test_a_server_serves_says_who_asked_and_stops_when_told(tmp_path: Path, kms: list[str], keys: Path, token: str) -> None:
    with _serving(*kms, "hadoop-kms", "--key-file", str(keys), "--allow-list", str(tmp_path / "allow.toml")) as (process, url):
        client = HadoopKmsKeys(url.replace("/kms", f"/token/{token}/kms"), retry=RetryPolicy(budget_seconds=0))
        local = client.create_local_key(client.current_version("pii"))
        with pytest.raises(KmsError, match="refuses other to this user"):
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
    _run(*kms, "hadoop-kms-key", "pii", "--key-file", str(key_file), "--master-key", "alias/orders", "--length", "32")
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
    given = {"--key-file": str(keys), "--allow-list": str(tmp_path / "allow.toml")} | {options[0]: options[1]}
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        _run(*kms, "hadoop-kms", *(word for option in given.items() for word in option))


def test_names_are_not_believed_on_an_address_that_others_reach(tmp_path: Path, kms: list[str], keys: Path, token: str) -> None:
    certificate, private_key = Authority(tmp_path).issue("server")
    tls = ["--certificate", str(certificate), "--private-key", str(private_key), "--host", "0.0.0.0", "--port", "0"]
    with pytest.raises(ConfigurationError, match="names that anyone can claim would be believed"):
        _run(*kms, "hadoop-kms", "--key-file", str(keys), "--allow-list", str(tmp_path / "allow.toml"), "--believe-names", *tls)
