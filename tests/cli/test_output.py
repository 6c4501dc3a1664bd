"""What people and programs see of a result, and what the command says on stderr while it works."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tablecrypt import load_catalog
from tablecrypt.cli._output import progress_shown, show
from tablecrypt.cli._rows import _write_csv, _write_json, _write_table
from tablecrypt.cli.audit import _print_audit
from tablecrypt.cli.settings import Settings
from tablecrypt.errors import FormatError
from tablecrypt.maintenance import Audit, Finding, FindingKind, LiveShare, Progress, TableAudit
from tests.support.busy_kms import CLASS, BusyKeyManagementClient
from tests.support.command import Done, in_shell, run, run_terminal

RESULT = {
    "table": "db.t",
    "made_at": "2026-01-02T03:04:05.678900+00:00",
    "snapshots": [
        {"snapshot_id": 7, "timestamp_ms": 1767323045000, "kek": None},
        {"snapshot_id": 1234, "timestamp_ms": 0, "kek": "a\x1b[2J"},
    ],
    "keks": [{"key_id": "k", "timestamp_ms": "9" * 19}],
    "unopened": [],
}


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_people_see_tables_and_local_time(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, False)

    assert capsys.readouterr().out.splitlines() == [
        "table:     db.t",
        "made at:   2026-01-02 08:34:05+05:30",
        "snapshots: snapshot id  timestamp                  KEK",
        "                     7  2026-01-02 08:34:05+05:30  none",
        "                  1234  1970-01-01 05:30:00+05:30  a\\x1b[2J",
        "KEKs:      key id  timestamp",
        "           k       9999999999999999999",
        "unopened:  none",
    ]


def test_people_see_since_when_rows_are_shared_in_local_time() -> None:
    share = LiveShare("uuid", "partner", dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "/shared", "/shared/m.json", 7, "", {}, 2)
    assert str(share) == "uuid: 2 files, to partner since 2026-01-02 08:34:05+05:30, at /shared"


def test_programs_get_the_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, True)

    assert json.loads(capsys.readouterr().out) == RESULT


STEPS = [Progress("verify", done, 1000, "files") for done in range(1001)]


def shown_to_a_log(settings: Settings, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with progress_shown(settings, clock=lambda: 0.0) as heard:
        for step in STEPS:
            heard(step)
    return capsys.readouterr().err.splitlines()


def test_a_log_is_told_nothing_unless_it_asks(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown_to_a_log(Settings(), capsys) == []
    assert shown_to_a_log(Settings(quiet=True), capsys) == []
    lines = shown_to_a_log(Settings(progress=True), capsys)
    assert (len(lines), lines[-1]) == (11, "verify: 1,000 of 1,000 files")


def encrypted_while_busy(folder: Path, failures: int, *leading: str) -> Done:
    source = folder / "a.bin"
    service = ("-p", f"encryption.kms-impl={CLASS}")
    source.write_bytes(b"rows")
    BusyKeyManagementClient.failures = failures
    try:
        return run(*leading, *service, "encrypt-file", str(source), str(folder / "a.ags1"), "--key-id", "orders")
    finally:
        BusyKeyManagementClient.failures = 0


def test_a_key_service_that_is_asked_again_is_told_once_in_a_second(tmp_path: Path) -> None:
    done = encrypted_while_busy(tmp_path, 2)

    assert done.code == 0
    assert done.stderr == "KMS unavailable, retrying, 30 s left: throttled: \\x1b[2J\n"


def test_quiet_says_nothing_of_retries_and_all_of_errors(tmp_path: Path) -> None:
    assert encrypted_while_busy(tmp_path, 1, "--quiet").stderr == ""
    refused = encrypted_while_busy(tmp_path, 1, "--quiet", "-p", "encryption.kms.retry-budget-ms=0")
    assert refused.code == 2


def test_the_last_line_of_an_audit_tells_plaintext_from_other_critical_findings(capsys: pytest.CaptureFixture[str]) -> None:
    def last_line(*kinds: FindingKind) -> str:
        findings = tuple(Finding(kind, "here", "so") for kind in kinds)
        table = TableAudit("db.t", "file:///t", "", None, None, None, (), (), (), (), findings)
        _print_audit(Audit("c", True, dt.datetime.now(dt.UTC), (table,)), None)
        return capsys.readouterr().out.splitlines()[-1]

    assert last_line(FindingKind.MISSING_FILE) == "1 table looked at: no plaintext was found"
    assert last_line(FindingKind.REUSED_KEY) == "1 table looked at: no plaintext was found, but there are critical findings"
    assert last_line(FindingKind.REUSED_KEY, FindingKind.PLAINTEXT_FILE) == "1 table looked at: plaintext was found"


def test_a_terminal_sees_no_bar_when_it_is_to_be_quiet(tmp_path: Path) -> None:
    """The catalog is empty, so that the audit of it ends with that it looked at nothing."""
    properties = {"type": "tablecrypt", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    load_catalog("prod", **properties).close()
    catalog = (part for name, value in properties.items() for part in ("-p", f"{name}={value}"))
    code, shown = run_terminal(*catalog, "-p", "encryption.kms-type=memory", "audit", "--quiet")

    assert code == 2
    assert [line.partition(" ")[0] for line in shown.splitlines()] == ["0", "tablecrypt:"]


def test_rows_as_csv_have_no_control_character_in_the_names_of_columns() -> None:
    rows = pa.table({"id\x1b]0;owned\x07": [1], "\u202enote": ["a"]})
    sink = io.BytesIO()
    _write_csv(rows.to_reader(), sink)
    assert sink.getvalue().decode().splitlines() == ['"id\\x1b]0;owned\\x07","\\u202enote"', '1,"a"']


NOT_IN_PYTHON = {
    "text that is not UTF-8": pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers()),
    "a moment outside of the years 1 to 9999": pa.array([10**7], pa.int32()).cast(pa.date32()),
}


@pytest.mark.parametrize("write", [_write_json, _write_table])
@pytest.mark.parametrize("said", NOT_IN_PYTHON)
def test_a_value_that_python_does_not_have_is_one_line_with_what_to_do(said: str, write: Callable[..., None]) -> None:
    with pytest.raises(FormatError, match=f"column odd has {said}: use --format arrow, or leave it out by --columns"):
        write(pa.table({"id": [1], "odd": NOT_IN_PYTHON[said]}).to_reader(), io.BytesIO())


def test_rows_as_json_are_json_where_numbers_are_none() -> None:
    odd = [math.nan, math.inf, -math.inf, 1.5, None]
    rows = pa.table({"one": odd, "nested": [[{"some": each}] for each in odd]})
    sink = io.BytesIO()
    _write_json(rows.to_reader(), sink)

    read = [json.loads(line, parse_constant=pytest.fail) for line in sink.getvalue().splitlines()]
    assert [each["one"] for each in read] == [each["nested"][0]["some"] for each in read] == ["NaN", "Infinity", "-Infinity", 1.5, None]


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_full_stdout_does_not_look_as_if_nothing_was_done(tmp_path: Path, as_json: tuple[str, ...]) -> None:
    made = tmp_path / "orders.keys"

    done = in_shell('"$@" >/dev/full', "keygen", "--key-file", str(made), "--key-id", "orders", *as_json)

    assert done.code == 2
    assert done.stderr == "tablecrypt: No space left on device: stdout took no more of the result, and what the command did is done\n"
    assert made.exists()
