"""audit --bundle: evidence with its hash, whatever was found; bad paths before the audit; neither keys nor rows in it."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from tests.support.command import Command
from tests.support.plaintext import CANARY
from tests.support.tables import folder_of, keks, put_back, spelled_keys, team_rows

pytestmark = pytest.mark.slow


@pytest.fixture
def table(module_table: Table) -> Iterator[Table]:
    with put_back(folder_of(module_table)):
        yield module_table


@pytest.fixture
def command(table: Table) -> Command:
    return Command.of(table.catalog)


def members(bundle: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(bundle) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("chosen", [[], ["db.rows"], ["--include", "db.*"]], ids=["all", "one", "several"])
def test_a_bundle_is_written_and_its_hash_is_the_last_line(command: Command, tmp_path: Path, chosen: list[str]) -> None:
    bundle = tmp_path / "evidence.zip"

    done = command.run("audit", *chosen, "--bundle", str(bundle))

    assert done.code == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"SHA-256 of {bundle}: {sha256(bundle)}"
    assert ("chosen by name" in members(bundle)["cover.html"].decode()) == bool(chosen)


def test_json_stays_alone_on_stdout_and_is_what_the_bundle_has(command: Command, tmp_path: Path) -> None:
    bundle = tmp_path / "evidence.zip"

    done = command.run("audit", "--json", "--bundle", str(bundle))

    assert done.stdout.encode() == members(bundle)["audit.json"]
    assert done.stderr == f"SHA-256 of {bundle}: {sha256(bundle)}\n"


def test_a_bundle_with_findings_is_written_and_the_code_stays_the_audits(command: Command, table: Table, tmp_path: Path) -> None:
    earlier, bundle = tmp_path / "earlier.json", tmp_path / "evidence.zip"
    earlier.write_text(command.run("audit", "--json").stdout)
    pq.write_table(team_rows(0), folder_of(table) / "data" / "export.parquet")

    done = command.run("audit", "--since", str(earlier), "--bundle", str(bundle))

    assert done.code == 1
    assert "Plaintext was found" in members(bundle)["cover.html"].decode()
    assert json.loads(members(bundle)["audit.json"])["changes"]["tables"][0]["new"][0]["kind"] == "plaintext-orphan"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--bundle", "there.zip"], "there.zip exists already: name another file, or replace it with --force (replace=True in Python)"),
        (["--bundle", "evidence"], "evidence: the name must end in .zip"),
        (["--bundle", "nowhere/evidence.zip"], "nowhere/evidence.zip: there is no folder "),
        (["--force"], "--force replaces the file of --bundle, and no --bundle is given"),
    ],
)
def test_a_path_that_cannot_be_written_is_one_line_before_the_audit(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.zip").write_bytes(b"another")

    # The catalog is not asked: this one has no table of that name.
    done = command.run("audit", "db.nothing", *given)

    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"tablecrypt: {message}")
    assert [each.name for each in tmp_path.iterdir()] == ["there.zip"]


def test_force_replaces_the_bundle(command: Command, tmp_path: Path) -> None:
    (tmp_path / "evidence.zip").write_bytes(b"another")

    assert command.run("audit", "--bundle", str(tmp_path / "evidence.zip"), "--force").code == 0
    assert "SHA256SUMS" in members(tmp_path / "evidence.zip")


def test_no_key_and_no_row_is_in_the_bundle(command: Command, table: Table, tmp_path: Path) -> None:
    bundle = tmp_path / "evidence.zip"
    assert command.run("audit", "--bundle", str(bundle)).code == 0

    for name, content in members(bundle).items():
        assert not [each for each in spelled_keys(table) if each in content], name
        assert CANARY.encode() not in content
    for kek in keks(table.refresh()):
        assert kek.key_id.encode() in members(bundle)["audit.json"]
        assert kek.key_id.encode() in members(bundle)["audit.html"]
        assert base64.b64encode(kek.wrapped_bytes())[:16] not in b"".join(members(bundle).values())
