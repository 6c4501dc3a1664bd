"""The check-up: it tells each right that is missing, by its name, goes on with the others, and leaves nothing behind."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from tablecrypt import load_catalog
from tablecrypt.errors import ConfigurationError
from tablecrypt.kms.local_file import create_key_file
from tablecrypt.maintenance import CheckUp, audit, doctor
from tablecrypt.maintenance._doctor import PROBE, fits
from tablecrypt.maintenance._doctor.check_up import try_to_write
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support import refusing_services
from tests.support.command import Command, run
from tests.support.configuration import configure, run_python
from tests.support.edited_metadata import edit_json
from tests.support.protected_tables import Clients, clients, protected_table, write_only
from tests.support.tables import MASTER_KEY, TEAM_SCHEMA, metadata_path, new_table, team_rows


@pytest.fixture
def properties(tmp_path: Path, unwatched_warehouse: Path) -> dict[str, str]:
    create_key_file(tmp_path / "keys.json", MASTER_KEY, 32)
    return {
        "type": "tablecrypt",
        "uri": f"sqlite:///{unwatched_warehouse}/catalog.db",
        "warehouse": f"file://{unwatched_warehouse}",
        "encryption.kms-impl": refusing_services.KMS,
        "kms.local.key-file": str(tmp_path / "keys.json"),
        "py-io-impl": refusing_services.IO,
    }


@pytest.fixture
def catalog(properties: dict[str, str]) -> Iterator[Catalog]:
    catalog = load_catalog("prod", **properties)
    catalog.create_namespace("db")
    new_table(catalog, "db.rows", TEAM_SCHEMA, appends=[team_rows(0)])
    refusing_services.asked.clear()
    yield catalog
    refusing_services.refused.clear()


def failing(found: CheckUp) -> set[str]:
    """The failing checks, without the places in their names."""
    return {each["name"].partition(" file:")[0] for each in found.to_json()["checks"] if each["state"] == "fails"}


def test_a_table_in_order_is_well_and_stays_as_it_is(catalog: Catalog, unwatched_warehouse: Path) -> None:
    before = {path: path.stat().st_size for path in unwatched_warehouse.rglob("*")}
    found = doctor(catalog, "db.rows")

    assert failing(found) == set()
    assert found.is_well
    assert {path: path.stat().st_size for path in unwatched_warehouse.rglob("*")} == before
    assert {each.area for each in found.checks} == {"configuration", "keys", "table", "storage", "pins", "versions"}


@pytest.mark.parametrize(
    ("right", "fails"),
    [
        ("wrap", {f"wrap with {MASTER_KEY}"}),
        ("unwrap", {f"unwrap with {MASTER_KEY}", f"open the table's KEK with {MASTER_KEY}"}),
        ("write", {"write to"}),
        ("delete", {"delete from"}),
    ],
)
def test_a_right_that_is_missing_is_named_and_the_others_are_tried(catalog: Catalog, right: str, fails: set[str]) -> None:
    refusing_services.refused.add(right)
    found = doctor(catalog, "db.rows")

    assert failing(found) == fails
    assert all(each.advice and f"may not {right}" in each.found for each in found.checks if each.state.value == "fails")


def test_a_table_that_cannot_be_read_leaves_its_key_to_be_tried(catalog: Catalog) -> None:
    refusing_services.refused.add("read")

    assert failing(doctor(catalog, "db.rows", key_ids=[MASTER_KEY])) == {"load db.rows"}


def test_a_misspelt_table_gets_the_name_that_is_near(catalog: Catalog) -> None:
    [said] = [each.found for each in doctor(catalog, "db.row").checks if each.state.value == "fails"]

    assert said == "NoSuchTableError: Table does not exist: db.row. Did you mean db.rows?"


def test_a_probe_that_may_not_be_deleted_is_named_and_is_no_plaintext(catalog: Catalog, unwatched_warehouse: Path) -> None:
    refusing_services.refused.add("delete")
    found = doctor(catalog, "db.rows")
    left = sorted(unwatched_warehouse.rglob(f"{PROBE}*"))

    assert left
    assert all(path.read_bytes().startswith(b"AGS1") for path in left)
    assert all(any(str(path) in each.advice for each in found.checks) for path in left)
    assert not audit(catalog.load_table("db.rows")).has_plaintext


def test_looking_alone_wraps_nothing_and_writes_nothing(catalog: Catalog) -> None:
    found = doctor(catalog, "db.rows", read_only=True)

    assert found.is_well
    assert (refusing_services.asked["wrap"], refusing_services.asked["write"], refusing_services.asked["delete"]) == (0, 0, 0)
    assert refusing_services.asked["unwrap"] == 1


def test_a_key_that_is_not_there_fails_beside_one_that_is(catalog: Catalog) -> None:
    assert failing(doctor(catalog, key_ids=["nobody's", MASTER_KEY])) == {"wrap with nobody's"}


def test_keys_that_the_configuration_names_are_tried(catalog: Catalog, properties: dict[str, str]) -> None:
    allowed = {"encryption.default-key-id": "late", "encryption.allowed-key-ids": f"{MASTER_KEY}, soon,late, team/*"}

    assert failing(doctor(load_catalog("prod", **properties, **allowed))) == {"wrap with late", "wrap with soon"}


def said_of_plaintext(properties: dict[str, str], table: str | None = None, **more: str) -> str:
    """What the first check says, which is on plaintext."""
    found = doctor(load_catalog("prod", **properties, **more), table)
    first = found.checks[0]
    assert first.name == "this catalog refuses plaintext"
    assert found.refuses_plaintext is (more.get("encryption.required") == "true")
    return first.found


def test_it_begins_with_whether_the_catalog_refuses_plaintext_and_why(catalog: Catalog, properties: dict[str, str]) -> None:
    allowed = {"encryption.allowed-key-ids": "*"}
    catalog.update_namespace_properties("db", updates={"encryption.default-key-id": "of-namespace"})

    assert said_of_plaintext(properties).startswith("no: encryption.required is not true")
    assert "is a plain one" in said_of_plaintext(properties)
    assert said_of_plaintext(properties, **{"encryption.required": "true"}).startswith("yes: encryption.required=true")
    assert "gets of-catalog" in said_of_plaintext(properties, **{"encryption.default-key-id": "of-catalog"})
    assert "gets of-namespace" in said_of_plaintext(properties, "db.rows", **allowed)
    lines = Command(properties | allowed).run("doctor").stdout.splitlines()
    assert lines[1].strip().startswith("--     this catalog refuses plaintext: no: ")
    assert json.loads(Command(properties | allowed).run("doctor", "--json").stdout)["refuses_plaintext"] is False


def test_a_default_key_that_the_client_does_not_allow_fails(catalog: Catalog) -> None:
    catalog.update_namespace_properties("db", updates={"encryption.default-key-id": "of-namespace"})

    assert failing(doctor(catalog, "db.rows")) == {"this catalog refuses plaintext"}


def test_the_key_service_that_nobody_contacted_is_not_well(catalog: Catalog) -> None:
    found = doctor(catalog)
    service = next(each for each in found.checks if each.name == "the key service")

    assert (service.state.value, "nothing was contacted" in service.found) == ("untried", True)
    assert refusing_services.asked.total() == 0
    assert service in found.untried
    assert next(each for each in doctor(catalog, "db.rows").checks if each.name == "the key service").state.value == "works"


def test_an_empty_catalog_does_not_pass_all_checks(properties: dict[str, str]) -> None:
    load_catalog("prod", **properties).close()
    done = Command(properties).run("doctor")

    assert "the catalog has tables: there is no table in it" in done.stdout
    assert "all checks pass" not in done.stdout
    assert done.stdout.splitlines()[-1] == "nothing fails, but 3 checks were not tried"


class TestColumnKeys:
    """A table with the column `ssn` under a master key of its own."""

    @pytest.fixture
    def both(self, tmp_path: Path) -> Clients:
        made = clients(tmp_path)
        protected_table(made.payroll).append(pa.table({"id": [1], "ssn": ["SSN-1"]}))
        return made

    def test_each_is_tried_once(self, both: Clients) -> None:
        found = doctor(both.payroll, "db.people")

        assert found.is_well
        tried = [each.name for each in found.checks if each.area == "keys"]
        assert tried.count("wrap with pii") == tried.count("unwrap with pii") == tried.count("wrap with orders") == 1
        assert "open the KEK of column ssn, person.email with pii" in tried

    def test_an_analyst_hears_which_column_has_a_key_that_he_lacks(self, both: Clients) -> None:
        found = doctor(both.analyst, "db.people")

        assert failing(found) == {"wrap with pii", "open the KEK of column ssn, person.email with pii"}
        assert any("who see masks without it" in each.advice for each in found.checks)
        assert failing(doctor(both.analyst, "db.people", read_only=True)) == {"open the KEK of column ssn, person.email with pii"}

    def test_who_may_only_wrap_hears_that_he_may_not_read(self, both: Clients) -> None:
        fails = {"unwrap with pii", "open the KEK of column ssn, person.email with pii"}

        assert failing(doctor(write_only(both), "db.people")) == fails

    def test_a_key_of_a_column_that_is_declared_and_not_yet_written_is_tried(self, both: Clients) -> None:
        protected_table(both.payroll, "db.new", **{"encryption.column-keys": "fin: salary"})

        assert failing(doctor(both.analyst, "db.new")) == {"open the KEK of column salary with fin", "wrap with fin"}


def test_a_table_whose_metadata_was_edited_fails(catalog: Catalog) -> None:
    location = catalog.load_table("db.rows").metadata_location.removeprefix("file://")
    Path(location).write_bytes(Path(location).read_bytes().replace(MASTER_KEY.encode(), b"alias/others"))

    assert failing(doctor(catalog, "db.rows")) == {"load db.rows"}


def test_a_table_whose_snapshot_has_no_key_fails_and_is_not_called_empty(catalog: Catalog) -> None:
    table = catalog.load_table("db.rows")
    edit_json(metadata_path(table), lambda content: [each.pop("key-id") for each in content["snapshots"]])
    cast("EncryptedSqlCatalog", catalog).forget_pin("db.rows")

    found = doctor(catalog, "db.rows")

    assert not found.is_well
    assert [each.found for each in found.checks if "has no key-id" in each.found]


def test_a_plain_table_is_told_as_one(catalog: Catalog) -> None:
    catalog.create_table("db.plain", TEAM_SCHEMA)
    told = [each.found for each in doctor(catalog, "db.plain").checks if each.name == "is encrypted"]

    assert told == ["a plain table: what is written to it is not encrypted"]


def test_key_ids_that_are_no_names_are_refused(catalog: Catalog) -> None:
    with pytest.raises(ConfigurationError, match="key_ids"):
        doctor(catalog, key_ids=cast("list[str]", [3]))


@pytest.mark.parametrize(
    ("installed", "bounds", "fit"),
    [("0.12.0", ">=0.12,<0.13", True), ("0.13.0", ">=0.12,<0.13", False), ("25", ">=25", True), ("9.9", ">=25", False), ("1", "", True)],
)
def test_versions_are_held_against_their_bounds(installed: str, bounds: str, fit: bool) -> None:
    assert fits(installed, bounds) is fit


def test_the_command_says_what_fails_and_what_to_do(catalog: Catalog, properties: dict[str, str]) -> None:
    command = Command(properties)
    assert command.run("doctor", "db.rows").code == 0
    refusing_services.refused.add("wrap")
    done = command.run("doctor", "db.rows")

    assert (done.code, done.stderr) == (1, "")
    assert f"  FAILS  wrap with {MASTER_KEY}: KmsAccessDeniedError: this client may not wrap\n         → " in done.stdout
    assert json.loads(command.run("doctor", "db.rows", "--json").stdout)["well"] is False


CLASS = {"py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog"}


@pytest.mark.parametrize(
    ("changed", "state", "said"),
    [
        ({}, "works", "'type: tablecrypt': PyIceberg's own loader refuses it; tablecrypt run, tablecrypt activate and"),
        ({"type": ""} | CLASS, "fails", "py-catalog-impl alone: PyIceberg's loader ignores it and opens a plain catalog (sql)"),
        ({"type": "", "uri": ""} | CLASS, "noted", "py-catalog-impl alone: PyIceberg's loader ignores it and finds no catalog without it"),
        ({"type": ""}, "fails", "no 'type: tablecrypt': PyIceberg's loader opens a plain catalog (sql)"),
        ({"type": "SQL"}, "fails", "'type: sql': PyIceberg's loader opens a plain catalog (sql)"),
    ],
)
def test_it_says_what_programs_written_for_pyiceberg_make_of_the_configuration(
    catalog: Catalog,
    properties: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, str],
    state: str,
    said: str,
) -> None:
    configure(tmp_path, {"prod": {name: value for name, value in {**properties, **changed}.items() if value}})
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))

    (check,) = [each for each in doctor(catalog).checks if each.name == "programs written for PyIceberg"]

    assert (check.state.value, check.found[: len(said)]) == (state, said)
    assert ("write 'type: tablecrypt'" in check.advice) == (state != "works")


@pytest.mark.slow
@pytest.mark.usefixtures("catalog")
def test_in_a_registered_process_those_programs_open_it(properties: dict[str, str], tmp_path: Path) -> None:
    configure(tmp_path, {"prod": properties})

    done = run_python(
        "-m",
        "tablecrypt.cli",
        "run",
        "python",
        "-m",
        "tablecrypt.cli",
        "--catalog",
        "prod",
        "doctor",
        variables={"PYICEBERG_HOME": str(tmp_path)},
    )

    assert "PyIceberg's own loader opens the encrypting catalog in this environment, where it is registered" in done.stdout


def test_a_catalog_that_is_not_configured_is_a_check_that_fails() -> None:
    done = run("--catalog", "nowhere", "doctor")

    assert (done.code, done.stderr) == (1, "")
    assert "FAILS  load the catalog" in done.stdout
    assert "pyarrow" in done.stdout


def test_half_of_a_probe_is_deleted(catalog: Catalog, unwatched_warehouse: Path) -> None:
    """As on a full disk, which takes the name of a file and none of its bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        checks = list(try_to_write(PyArrowFileIO(), unwatched_warehouse.as_uri()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert [each.state.value for each in checks] == ["fails"]
    assert not list(unwatched_warehouse.rglob(f"{PROBE}*"))
