"""audit and verify on the command line: what they print, and the exit code that a job looks at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from tests.support.command import Command
from tests.support.tables import flip, folder_of, put_back, team_rows

pytestmark = pytest.mark.slow


@pytest.fixture
def table(module_table: Table) -> Iterator[Table]:
    with put_back(folder_of(module_table)):
        yield module_table


@pytest.fixture
def command(table: Table) -> Command:
    return Command.of(table.catalog)


def plaintext_in(table: Table) -> Path:
    path = folder_of(table) / "data" / "export.parquet"
    pq.write_table(team_rows(0), path)
    return path


def a_data_file(table: Table) -> Path:
    return sorted((folder_of(table) / "data").rglob("*.parquet"))[0]


def test_a_table_in_order_is_code_0(command: Command) -> None:
    for name in ("audit", "verify"):
        done = command.run(name, "db.rows")
        assert done.code == 0, done.stdout + done.stderr


def test_plaintext_is_code_1_and_named(command: Command, table: Table) -> None:
    path = plaintext_in(table)

    done = command.run("audit", "db.rows")

    assert done.code == 1
    assert str(path) in done.stdout
    assert "plaintext was found" in done.stdout


def test_data_that_could_not_be_read_is_not_said_to_be_plain(command: Command, table: Table) -> None:
    for path in (folder_of(table) / "data").rglob("*.parquet"):
        path.unlink()

    shown = command.run("audit", "db.rows").stdout

    assert "\n  2 of 2 files of team=north could not be read\n" in shown
    assert "is encrypted" not in shown


def test_json_of_audit_is_for_programs(command: Command, table: Table) -> None:
    plaintext_in(table)

    found = json.loads(command.run("audit", "db.rows", "--json").stdout)

    assert found["plaintext"] is True
    assert found["findings"]["critical"] == 1
    assert found["tables"][0]["findings"][0]["kind"] == "plaintext-orphan"
    assert {file["signature"] for file in found["tables"][0]["files"]} == {"AGS1", "PARE"}


@pytest.mark.parametrize(("level", "code"), [("critical", 0), ("error", 0), ("warning", 0), ("info", 1)])
def test_fail_on_says_from_where_on_it_is_code_1(command: Command, table: Table, level: str, code: int) -> None:
    (folder_of(table) / "data" / "left.parquet").write_bytes(a_data_file(table).read_bytes())

    assert command.run("audit", "db.rows", "--fail-on", level).code == code


def test_the_next_audit_tells_what_changed_since(command: Command, table: Table, tmp_path: Path) -> None:
    earlier, page = tmp_path / "earlier.json", tmp_path / "audit.html"
    earlier.write_text(command.run("audit", "--json").stdout)
    path = plaintext_in(table)

    shown = command.run("audit", "--since", str(earlier), "--html", str(page)).stdout
    assert "1 new finding, 0 resolved" in shown
    assert f"new      plaintext-orphan: {path}" in shown.replace("file://", "")
    assert "1 new and 0 resolved finding" in page.read_text()
    changes = json.loads(command.run("audit", "--json", "--since", str(earlier)).stdout)["changes"]
    assert [each["kind"] for each in changes["tables"][0]["new"]] == ["plaintext-orphan"]


def test_an_earlier_audit_that_is_none_is_refused_before_the_page_is_written(command: Command, tmp_path: Path) -> None:
    earlier, page = tmp_path / "earlier.json", tmp_path / "audit.html"
    for content, message in ((b"", "is empty"), (b"{}", "not what `tablecrypt audit --json` prints"), (b"\xff", "is not UTF-8")):
        earlier.write_bytes(content)
        done = command.run("audit", "--since", str(earlier), "--html", str(page))

        assert (done.code, done.stdout) == (2, "")
        assert message in done.stderr
        assert not page.exists()


def test_a_page_that_the_disk_does_not_hold_is_an_error_that_names_it(command: Command, tmp_path: Path) -> None:
    full = tmp_path / "page.html"
    full.symlink_to("/dev/full")

    done = command.run("audit", "--html", str(full))

    assert done.code == 2
    assert done.stderr == f"tablecrypt: No space left on device: {full}\n"


def test_a_bad_file_is_code_1_and_its_part_named(command: Command, table: Table) -> None:
    path = a_data_file(table)
    flip(path, 60)

    done = command.run("verify", "db.rows")

    assert done.code == 1
    assert f"bad data: file://{path}" in done.stdout
    assert "1 file is bad" in done.stdout


def test_json_of_verify_is_for_programs(command: Command, table: Table) -> None:
    flip(a_data_file(table), 60)

    found = json.loads(command.run("verify", "db.rows", "--json").stdout)

    assert found["good"] is False
    assert found["bad"][0]["kind"] == "data"


def test_a_quick_look_and_a_state_file(command: Command, tmp_path: Path) -> None:
    state = tmp_path / "state"

    assert command.run("verify", "db.rows", "--quick", "--resume-from", str(state), "--workers", "2").code == 0
    assert not state.exists()


def test_progress_is_on_stderr_and_the_result_alone_on_stdout(command: Command) -> None:
    assert command.run("verify", "db.rows", "--json").stderr == ""
    done = command.run_process("verify", "db.rows", "--json", "--progress")

    assert json.loads(done.stdout)["good"] is True
    assert done.stderr.splitlines()[-1].startswith("verify: ")


@pytest.mark.parametrize("name", ["audit", "verify", "inspect", "cat", "rotate-kek", "orphans"])
def test_a_table_that_is_not_there_is_one_line_and_code_2(command: Command, name: str) -> None:
    done = command.run(name, "db.nothing")

    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("tablecrypt: NoSuchTableError: ")
    assert done.stderr.count("\n") == 1


def test_a_terminal_sees_bars_and_what_is_bad(command: Command, table: Table) -> None:
    path = a_data_file(table)
    flip(path, 60)

    code, shown = command.run_terminal("verify", "db.rows")

    assert code == 1
    assert "\x1b[" in shown
    assert path.name in shown
