"""A command that looked at nothing does not end as if all were well: no tables, globs that match none, a command in another directory."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from tablecrypt import load_catalog
from tablecrypt import maintenance as m
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance.report import html_page
from tests.support.command import Command
from tests.support.plaintext import CANARY
from tests.support.tables import key_file_kms, new_table

ROWS = pa.table({"id": [1, 2, 3], "item": [CANARY, "desk", "chair"]})


@pytest.fixture
def properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Those of docs/start/sql-catalog.md, with relative places, in a directory that has only the keys."""
    monkeypatch.chdir(tmp_path)
    kms = key_file_kms(tmp_path / "orders.keys", "orders")
    return {"type": "tablecrypt", "uri": "sqlite:///catalog.db", "warehouse": "warehouse", **kms}


@pytest.fixture
def catalog(properties: dict[str, str], warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.chdir(warehouse)
    catalog = load_catalog("prod", **properties)
    for namespace, name in (("db", "orders"), ("tpch", "lineitem"), ("tpch", "orders")):
        catalog.create_namespace_if_not_exists(namespace)
        new_table(catalog, f"{namespace}.{name}", appends=[ROWS], properties={"encryption.key-id": "orders"})
    return catalog


def test_an_audit_in_another_directory_looks_at_no_table_and_fails(
    catalog: Catalog, properties: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command(properties)
    assert command.run("audit").code == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    not_there = command.run("audit")
    assert (not_there.code, not_there.stdout) == (2, "")
    assert f"there is no catalog database at {elsewhere}/catalog.db" in not_there.stderr
    assert not list(elsewhere.iterdir())
    load_catalog("prod", **properties).close()

    done = command.run("audit")

    assert (done.code, done.stdout) == (2, "0 tables looked at\n")
    assert "0 tables of catalog prod were looked at: there is none: is it the catalog that you mean?" in done.stderr
    assert len(done.stderr.splitlines()) == 2, "the other one says which folder is meant"
    as_json = command.run("audit", "--json")
    assert (as_json.code, json.loads(as_json.stdout)["empty"]) == (2, True)
    assert command.run("verify", "--include", "*").code == 2


def test_the_result_in_python_and_on_the_page_says_that_it_is_empty(properties: dict[str, str], catalog: Catalog, tmp_path: Path) -> None:
    nothing = m.audit(load_catalog("prod", **{**properties, "uri": f"sqlite:///{tmp_path}/other.db"}))

    assert nothing.is_empty
    assert not m.audit(catalog).is_empty
    with pytest.raises(ConfigurationError, match="0 tables of catalog prod"):
        nothing.refuse_empty()
    page = html_page(nothing)
    assert "No table was looked at." in page
    assert "No plaintext was found." not in page


def test_an_audit_takes_a_glob_in_the_place_of_a_table(properties: dict[str, str], catalog: Catalog) -> None:
    command = Command(properties)

    done = command.run("audit", "tpc*", "--json")
    assert [each["table"] for each in json.loads(done.stdout)["tables"]] == ["tpch.lineitem", "tpch.orders"]
    assert json.loads(done.stdout)["whole_catalog"] is False
    assert "1 table looked at" in command.run("audit", "tpc*", "--exclude", "*.lineitem").stdout
    assert "2 tables: 2 done" in command.run("verify", "tpch.*", "--quick").stdout
    assert "2 tables: 2 done" in command.run("rotate-kek", "*.orders", "--dry-run").stdout
    assert "1 table: 1 done" in command.run("rewrap", "db.?rders", "--dry-run").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("audit", "tcph.*"), "'tcph.*' matches none of the 3 tables of catalog prod. Did you mean tpch.*?"),
        (("audit", "--include", "tpch.lineitm"), "Did you mean tpch.lineitem?"),
        (("verify", "--include", "db.ordrs"), "Did you mean db.orders?"),
        (("verify", "tcph.*"), "Did you mean tpch.*?"),
        (("audit", "db.*", "--exclude", "db.orders"), "exclude leaves out every table"),
        (("rotate-kek", "db.*", "--exclude", "*"), "exclude leaves out every table"),
        (("audit", "db"), "write namespace.name"),
    ],
)
def test_globs_that_leave_no_table_are_refused_with_a_near_name(
    properties: dict[str, str], catalog: Catalog, arguments: tuple[str, ...], said: str
) -> None:
    done = Command(properties).run(*arguments)

    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_table_whose_name_has_a_wildcard_is_named_with_brackets(properties: dict[str, str], catalog: Catalog) -> None:
    for name in ("db.a*b", "db.a[1]", "db.axb"):
        new_table(catalog, name, appends=[ROWS], properties={"encryption.key-id": "orders"})
    command = Command(properties)

    def audited(glob: str) -> list[str]:
        return [each["table"] for each in json.loads(command.run("audit", glob, "--json").stdout)["tables"]]

    assert audited("db.a*b") == ["db.a*b", "db.axb"]
    assert audited("db.a[*]b") == ["db.a*b"]
    assert "to name this one table, write db.a[[]1]" in command.run("audit", "db.a[1]").stderr
    assert audited("db.a[[]1]") == ["db.a[1]"]

    # Commands for one table too: those of PyIceberg's names, and doctor, which loads the table itself.
    for glob, name in (("db.a[*]b", "db.a*b"), ("db.a[[]1]", "db.a[1]")):
        assert json.loads(command.run("describe", glob, "--json").stdout)["table"] == name
        assert f"load {name}" in command.run("doctor", glob).stdout
    assert "or db.a[[]1] for a table of that name" in command.run("cat", "db.a[1]").stderr
