"""Commands on tables with protected columns, run by somebody who may use every key and by somebody who may use the table's alone."""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa
import pytest

from tablecrypt.table.table import EncryptedTable
from tests.support.command import Command
from tests.support.protected_tables import SSN, Clients, declare, protected_table

ROWS: Final = pa.table({"id": [1, 2], "ssn": ["SSN-1", "SSN-2"]})


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    """Its first file is from before the declaration."""
    table = protected_table(both.payroll, appends=[ROWS], **{"encryption.column-keys": ""})
    declare(table, "pii: ssn")
    table.append(ROWS)
    return table


def _command(both: Clients, who: str) -> Command:
    return Command.of(getattr(both, who))


def test_cat_prints_values_masks_or_nothing(both: Clients, people: EncryptedTable) -> None:
    printed = _command(both, "payroll").run("cat", "db.people", "--columns", "id,ssn", "--masked", "error")
    assert printed.code == 0, printed.stderr
    assert sorted(printed.stdout.splitlines()[1:]) == ['1,"SSN-1"'] * 2 + ['2,"SSN-2"'] * 2
    analyst = _command(both, "analyst")
    masked = analyst.run("cat", "db.people", "--columns", "id,ssn", "--masked", "mask")
    assert sorted(masked.stdout.splitlines()[1:]) == ["1,"] * 2 + ["2,"] * 2
    refused = analyst.run("cat", "db.people", "--masked", "error")
    assert (refused.code, refused.stdout) == (2, "")
    assert "pii" in refused.stderr
    assert analyst.run("cat", "db.people", "--columns", "id", "--masked", "error").code == 0, "no protected column is asked for"


def test_reencrypt_names_the_files_that_it_brought_in_line_and_verify_what_it_did_not_check(both: Clients, people: EncryptedTable) -> None:
    payroll, analyst = _command(both, "payroll"), _command(both, "analyst")
    refused = analyst.run("reencrypt", "db.people", "--out-of-line")
    assert refused.code == 2
    assert "pii" in refused.stderr
    done = payroll.run("reencrypt", "db.people", "--out-of-line", "--json")
    assert {name: json.loads(done.stdout)[name] for name in ("data_files", "in_line", "twins_kept")} == {
        "data_files": 1,
        "in_line": 1,
        "twins_kept": 0,
    }
    lines = analyst.run("verify", "db.people").stdout
    assert "protected column ssn: not authenticated in 2 files" in lines
    assert "not authenticated" not in payroll.run("verify", "db.people").stdout


@pytest.mark.parametrize("who", ["payroll", "analyst"])
def test_inspect_shows_what_is_protected_and_by_which_keys(both: Clients, people: EncryptedTable, who: str) -> None:
    command = _command(both, who)
    table = json.loads(command.run("inspect", "db.people", "--json").stdout)
    assert table["protected_columns"] == [{"column": "ssn", "field_id": SSN, "master_key_id": "pii", "mask": "null"}]
    assert [(kek["wrapped_by"], kek["columns"]) for kek in table["column_keks"]] == [("pii", ["ssn"])]
    with_hidden_column = [command.run("inspect", "db.people", "--file", file) for file in _locations(people)]
    assert {done.code for done in with_hidden_column} == {0}
    text = "".join(done.stdout for done in with_hidden_column)
    assert f"__protected__.{SSN}" in text
    assert "SSN-" not in text


def _locations(table: EncryptedTable) -> list[str]:
    return [task.file.file_path for task in table.scan().plan_files()]
