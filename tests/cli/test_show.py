"""What people see of a result: tables, and moments in local time; programs get the epoch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tablecrypt.cli.show import show

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
        "snapshots: snapshot id  timestamp                  kek",
        "                     7  2026-01-02 08:34:05+05:30  none",
        "                  1234  1970-01-01 05:30:00+05:30  a\\x1b[2J",
        "keks:      key id  timestamp",
        "           k       9999999999999999999",
        "unopened:  none",
    ]


def test_programs_get_the_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, True)

    assert json.loads(capsys.readouterr().out) == RESULT
