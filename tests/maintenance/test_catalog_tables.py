"""An operation on the tables of a catalog: globs choose, one table's failure stops no other, and a slip in a glob is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.typedef import Identifier

from tablecrypt import load_catalog
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import audit, on_tables, rotate_kek, verify
from tablecrypt.maintenance.catalog_tables import identifiers_of
from tablecrypt_catalog import EncryptedInMemoryCatalog
from tests.support.command import Command
from tests.support.tables import TEAM_SCHEMA, data_paths, flip, key_file_kms, metadata_path, new_table, team_rows


@pytest.fixture(scope="module")
def properties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("several")
    places = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return {"type": "tablecrypt", **places, **key_file_kms(folder / "keys.json")}


@pytest.fixture(scope="module")
def catalog(properties: dict[str, str]) -> Catalog:
    """Four tables: two in order, one that is damaged, one that is not encrypted; and one whose metadata is gone."""
    catalog = load_catalog("prod", **properties)
    for namespace in ("db", "eu"):
        catalog.create_namespace(namespace)
    for name in ("db.a", "db.b", "eu.a", "eu.gone"):
        new_table(catalog, name, TEAM_SCHEMA, appends=[team_rows(0, 2)])
    catalog.create_table("db.plain", TEAM_SCHEMA)
    (data,) = data_paths(catalog.load_table("db.b"))
    flip(data, 60)
    metadata_path(catalog.load_table("eu.gone")).unlink()
    return catalog


def outcomes(found: Any) -> dict[str, str]:
    return {
        each.table: "skipped" if each.is_skipped else "failed" if each.error else "good" if each.result.is_good else "bad"
        for each in found.outcomes
    }


def test_one_table_that_fails_stops_no_other(catalog: Catalog) -> None:
    found = on_tables(catalog, verify)

    assert outcomes(found) == {"db.a": "good", "db.b": "bad", "db.plain": "skipped", "eu.a": "good", "eu.gone": "failed"}
    assert isinstance(found.failed[0].error, FileNotFoundError)
    assert found.to_json()["tables"][4]["error"].startswith("FileNotFoundError: ")


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        (["db.*"], ["*.plain"], ["db.a", "db.b"]),
        ("*.a", [], ["db.a", "eu.a"]),
        (["eu.a", "db.a"], ["eu.*"], ["db.a"]),
        ((), ("*.[b-z]*",), ["db.a", "eu.a"]),
    ],
)
def test_globs_choose_tables(catalog: Catalog, include: Any, exclude: Any, names: list[str]) -> None:
    rotated = on_tables(catalog, lambda table: rotate_kek(table, dry_run=True), include=include, exclude=exclude)

    assert [each.table for each in rotated.outcomes] == names
    assert [each.table for each in audit(catalog, include=include, exclude=exclude).tables] == names


@pytest.mark.parametrize(("include", "exclude"), [(["DB.*"], ()), (["db.*", "dbb.*"], ()), ((), ["db"])])
def test_a_glob_that_matches_no_table_is_refused(catalog: Catalog, include: Any, exclude: Any) -> None:
    with pytest.raises(ConfigurationError, match="matches none of the 5 tables of catalog prod"):
        on_tables(catalog, verify, include=include, exclude=exclude)


def test_globs_beside_one_table_are_refused(catalog: Catalog) -> None:
    with pytest.raises(ConfigurationError, match="one table"):
        audit(catalog.load_table("db.a"), include=["db.*"])


@pytest.mark.parametrize("include", [3, None, [None], b"db.*", {"db.*": 1}])
def test_globs_that_are_no_names_are_refused(catalog: Catalog, include: Any) -> None:
    with pytest.raises(ConfigurationError, match="include"):
        on_tables(catalog, verify, include=cast("list[str]", include))


def test_an_interrupt_stops_all_of_it(catalog: Catalog) -> None:
    def interrupt(table: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_tables(catalog, interrupt)


def test_the_command_tells_each_table_and_sums_up(catalog: Catalog, properties: dict[str, str]) -> None:
    command = Command(properties)
    done = command.run("verify", "--include", "*", "--progress")
    lines = done.stdout.splitlines()

    assert done.code == 1
    assert lines[-1] == "5 tables: 2 done, 1 bad, 1 failed, 1 not encrypted"
    assert "db.plain: not encrypted, left as it is" in lines
    assert any(line.startswith("eu.gone: FAILED: FileNotFoundError: ") for line in lines)
    assert {line.partition(":")[0] for line in done.stderr.splitlines()} == {"verify db.a", "verify db.b", "verify eu.a"}
    assert command.run("verify", "--include", "db.b").code == 1
    assert command.run("verify", "--exclude", "db.b", "--exclude", "*.gone").code == 0


@pytest.mark.parametrize("operation", ["rewrap", "rotate-kek"])
def test_a_command_that_changes_keys_goes_on_after_a_failure(catalog: Catalog, properties: dict[str, str], operation: str) -> None:
    before = {name: catalog.load_table(name).metadata_location for name in ("db.a", "eu.a")}
    done = Command(properties).run(operation, "--include", "eu.*", "--json")
    told = json.loads(done.stdout)

    assert (done.code, told["done"], told["failed"]) == (1, 1, 1)
    assert catalog.load_table("eu.a").metadata_location != before["eu.a"]
    assert catalog.load_table("db.a").metadata_location == before["db.a"]


@pytest.mark.parametrize(
    ("name", "told"),
    [("db.pla", ". Did you mean db.plain?"), ("dbb.plain", ". Did you mean db.plain?"), ("zz.top", "zz.top"), ("eu.xyz", "")],
)
def test_a_slip_in_a_name_is_told_what_comes_near(catalog: Catalog, properties: dict[str, str], name: str, told: str) -> None:
    done = Command(properties).run("inspect", name)

    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("tablecrypt: NoSuchTableError: ")
    assert told in done.stderr
    assert ("Did you mean" in done.stderr) == told.startswith(". Did")


@pytest.mark.parametrize("operation", ["verify", "rewrap", "rotate-kek"])
def test_no_name_is_not_all_tables(catalog: Catalog, properties: dict[str, str], operation: str) -> None:
    command = Command(properties)

    assert (command.run(operation).code, "name a table" in command.run(operation).stderr) == (2, True)
    assert command.run(operation, "db.a", "--include", "db.*").code == 2
    assert "one table" in command.run("audit", "db.a", "--exclude", "db.*").stderr


def test_a_state_file_is_for_one_table(catalog: Catalog, properties: dict[str, str], tmp_path: Path) -> None:
    done = Command(properties).run("verify", "--include", "*", "--resume-from", str(tmp_path / "state"))

    assert (done.code, "one table" in done.stderr) == (2, True)


def test_two_tables_whose_names_differ_in_where_a_dot_belongs_are_both_meant(tmp_path: Path) -> None:
    class Dotted(EncryptedInMemoryCatalog):
        """As REST servers are, which allow dots in names."""

        def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
            below: dict[str | Identifier, list[Identifier]] = {(): [("a.b",), ("a",)], ("a",): [("a", "b")]}
            return below.get(namespace, [])

        def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
            return [] if namespace == ("a",) else [(*namespace, "t")]

    catalog = Dotted("memory", warehouse=f"file://{tmp_path}")

    assert identifiers_of(catalog) == identifiers_of(catalog, include=["a.b.*"]) == [("a", "b", "t"), ("a.b", "t")]
    with pytest.raises(ConfigurationError, match="matches none of the 2 tables"):
        identifiers_of(catalog, include=["b.*"])
