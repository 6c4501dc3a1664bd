"""A SQLite database and a warehouse that are relative to the current folder, and the same configuration in another one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import migrate, relocate, shred
from tablecrypt_catalog import load_catalog
from tests.support.command import run
from tests.support.pages import DOCS, blocks
from tests.support.tables import ROWS

KEY = {"encryption.key-id": "orders"}
LOADS_TWICE = """
import logging
from tablecrypt_catalog import load_catalog
logging.basicConfig(level=logging.INFO)
for _ in range(2):
    load_catalog("prod")
"""
LOOKING = (["audit"], ["verify", "db.orders"], ["doctor"], ["cat", "db.orders"], ["inspect", "db.orders"])


@pytest.fixture
def home(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the first start page, with its configuration and its key."""
    monkeypatch.chdir(warehouse)
    monkeypatch.setenv("PYICEBERG_HOME", str(warehouse))
    [configuration] = [text for language, text in blocks((DOCS / "start/sql-catalog.md").read_text(encoding="utf-8")) if language == "yaml"]
    (warehouse / ".pyiceberg.yaml").write_text(configuration.replace("orders.keys", str(warehouse / "orders.keys")), encoding="utf-8")
    assert run("keygen", "--key-file", "orders.keys", "--key-id", "orders").code == 0
    return warehouse


@pytest.fixture
def elsewhere(home: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def _table(catalog: Catalog) -> None:
    catalog.create_namespace("db")
    catalog.create_table("db.orders", ROWS.schema, properties=KEY).append(ROWS)


def test_a_table_is_read_and_written_from_any_folder(home: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _table(load_catalog("prod"))

    monkeypatch.chdir(elsewhere)
    table = load_catalog("prod", uri=f"sqlite:///{home}/catalog.db").load_table("db.orders")
    table.append(ROWS)

    assert table.location() == f"file://{home}/warehouse/db/orders"
    assert table.scan().to_arrow().num_rows == 6
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("arguments", [each for each in LOOKING if each != ["doctor"]], ids=lambda each: each[0])
def test_a_command_in_another_folder_makes_no_database_and_says_which_is_missing(
    home: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    _table(load_catalog("prod"))
    monkeypatch.chdir(elsewhere)

    done = run("--catalog", "prod", *arguments)

    assert done.code != 0
    assert f"there is no catalog database at {elsewhere}/catalog.db: sqlite:///catalog.db is relative to the current folder" in (
        done.stdout + done.stderr
    )
    assert not list(elsewhere.iterdir())


def test_doctor_comes_before_the_first_table_and_says_where_the_database_is_made(
    home: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(elsewhere)

    done = run("--catalog", "prod", "doctor")

    assert f"catalog prod: sqlite:///catalog.db is {elsewhere}/catalog.db" in caplog.text
    assert "there is no database yet, and a new one is made" in caplog.text
    assert "the catalog has tables: there is no table in it" in done.stdout
    assert (elsewhere / "catalog.db").exists()
    other = run("--catalog", "prod", "doctor", "db.orders")
    assert "Table does not exist: db.orders" in other.stdout


def test_a_command_says_once_which_files_relative_settings_mean(home: Path) -> None:
    _table(load_catalog("prod"))
    told = (
        f"catalog prod: sqlite:///catalog.db is {home}/catalog.db and warehouse 'warehouse' is {home}/warehouse "
        "(relative to the current folder)"
    )

    for arguments in LOOKING:
        assert run("--catalog", "prod", *arguments).stderr.splitlines().count(told) == 1
    assert told not in run("--quiet", "--catalog", "prod", "audit").stderr
    assert "relative" not in run("--catalog", "prod", "-p", f"uri=sqlite:///{home}/catalog.db", "-p", f"warehouse={home}", "audit").stderr


def test_a_database_without_a_byte_is_not_filled_with_tables(home: Path) -> None:
    """As a restore or a copy leaves it that failed."""
    (home / "empty.db").touch()

    done = run("--catalog", "prod", "-p", f"uri=sqlite:///{home}/empty.db", "audit")

    assert (done.code, done.stdout) == (2, "")
    assert f"the catalog database {home}/empty.db is empty: restore it from a copy, or delete it if it never had a table\n" in done.stderr
    assert (home / "empty.db").stat().st_size == 0


def test_a_database_of_an_absolute_path_that_is_not_there_is_refused_too(home: Path) -> None:
    done = run("--catalog", "prod", "-p", f"uri=sqlite:///{home}/typo.db", "audit")

    assert (done.code, done.stdout) == (2, "")
    assert f"there is no catalog database at {home}/typo.db\n" in done.stderr
    assert not (home / "typo.db").exists()


@pytest.mark.parametrize(
    ("uri", "advice"), [("sqlite:///nowhere/catalog.db", "make it"), ("sqlite:///~/catalog.db", "write the whole path in place of ~")]
)
def test_a_database_in_a_folder_that_is_not_there_is_refused_by_its_path(home: Path, uri: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{home}/(nowhere|~)/catalog\.db: there is no folder {home}/(nowhere|~): {advice}"):
        load_catalog("prod", uri=uri)


def test_python_makes_a_database_and_says_so_once(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tablecrypt_catalog"):
        load_catalog("prod")
        load_catalog("prod")
    [told] = [record for record in caplog.records if "relative to the current folder" in record.getMessage()]
    assert told.levelno == logging.WARNING
    assert "there is no database yet, and a new one is made" in told.getMessage()

    another = subprocess.run([sys.executable, "-c", LOADS_TWICE], check=True, capture_output=True, text=True, timeout=60)
    [line] = [line for line in another.stderr.splitlines() if "relative to the current folder" in line]
    assert line.startswith("INFO:tablecrypt_catalog.local_places:")


@pytest.fixture
def older(home: Path) -> Path:
    """A table with a relative location, as earlier versions of this package and other programs make them."""
    catalog = load_catalog("prod", **{"encryption.required": "false"})
    catalog.create_namespace("db")
    migrate(catalog.create_table("db.older", ROWS.schema), "orders")
    catalog.load_table("db.older").append(ROWS)
    assert catalog.load_table("db.older").location() == "warehouse/db/older"
    return home


def test_a_table_with_a_relative_location_is_refused_in_another_folder_and_kept(
    older: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(elsewhere)
    catalog = load_catalog("prod", uri=f"sqlite:///{older}/catalog.db")

    for use in (catalog.load_table, catalog.purge_table):
        with pytest.raises(
            ConfigurationError, match=rf"db.older: its metadata warehouse/.* would be {elsewhere}/warehouse/.*Run this in the folder"
        ):
            use("db.older")

    done = run("--catalog", "prod", "-p", f"uri=sqlite:///{older}/catalog.db", "cat", "db.older")
    assert (done.code, done.stdout) == (2, "")
    assert "its location is relative to the current folder" in done.stderr.splitlines()[-1]
    monkeypatch.chdir(older)
    assert load_catalog("prod").load_table("db.older").scan().to_arrow().num_rows == 3


def test_a_purge_that_lost_its_last_file_still_ends(older: Path) -> None:
    catalog = load_catalog("prod")
    os.unlink(catalog.load_table("db.older").metadata_location)

    catalog.purge_table("db.older")

    assert not catalog.table_exists("db.older")


def test_a_plain_table_with_a_relative_location_is_encrypted_into_a_new_one(home: Path) -> None:
    catalog = load_catalog("prod", **{"encryption.required": "false"})
    catalog.create_namespace("db")
    plain = catalog.create_table("db.plain", ROWS.schema)
    plain.append(ROWS)

    migrate(plain, "orders", into="db.sealed")

    assert catalog.load_table("db.sealed").location() == f"file://{home}/warehouse/db/sealed"
    assert catalog.load_table("db.sealed").scan().to_arrow() == plain.scan().to_arrow()
    # Nothing in this folder may stay plaintext at the end.
    catalog.purge_table("db.plain")


def test_plain_tables_keep_their_location(home: Path) -> None:
    catalog = load_catalog("prod", **{"encryption.required": "false"})
    catalog.create_namespace("db")

    assert catalog.create_table("db.plain", ROWS.schema).location() == "warehouse/db/plain"
    assert list(home.glob("warehouse/db/plain/metadata/*.metadata.json"))


def test_a_folder_whose_name_may_mean_several_places_is_what_a_refusal_to_delete_names(warehouse: Path) -> None:
    key_file = str(warehouse / "orders.keys")
    assert run("keygen", "--key-file", key_file, "--key-id", "orders").code == 0
    properties = {
        "type": "tablecrypt",
        "uri": f"sqlite:///{warehouse}/catalog.db",
        "warehouse": f"{warehouse}/a#b/wh",
        "encryption.kms-type": "local",
        "kms.local.key-file": key_file,
    }
    catalog = load_catalog("prod", **properties)
    catalog.create_namespace("db")
    table = catalog.create_table("db.orders", ROWS.schema, properties=KEY)
    for _ in range(2):
        table.append(ROWS)

    with pytest.raises(ConfigurationError) as raised:
        shred(table, all_but_heads=True)

    told = "contains a character with a special meaning in locations, so nothing there is deleted or overwritten: copy it with "
    assert f"{warehouse}/a#b/wh/db/orders {told}" in str(raised.value)
    assert table.scan().count() == 6
    moved = relocate(table, f"{warehouse}/ab/wh/db/orders", register_as="db.moved")
    assert moved.registered_as == "db.moved"
    assert len(shred(catalog.load_table("db.moved"), all_but_heads=True).snapshots) == 1


@pytest.mark.parametrize("properties", [KEY, {}], ids=["encrypted", "plain"])
def test_a_tilde_at_the_beginning_of_a_warehouse_or_location_is_the_home_folder(
    home: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    monkeypatch.setenv("HOME", str(elsewhere))
    catalog = load_catalog("prod", warehouse="~/lake", **{"encryption.required": "false"})
    catalog.create_namespace("db")
    catalog.create_namespace("placed", {"location": "~/placed"})

    made = [
        catalog.create_table("db.a", ROWS.schema, properties=properties),
        catalog.create_table("db.b", ROWS.schema, properties=properties, location="~/b"),
        catalog.create_table("placed.c", ROWS.schema, properties=properties),
    ]

    assert [each.location().removeprefix("file://") for each in made] == [f"{elsewhere}/{name}" for name in ("lake/db/a", "b", "placed/c")]
    assert not list(home.glob("~*"))
    with pytest.raises(ConfigurationError, match="'~nobody-at-all/x', and there is no such home folder: write the whole path"):
        catalog.create_table("db.d", ROWS.schema, properties=properties, location="~nobody-at-all/x")


@pytest.mark.parametrize("location", [" ", "\n", " warehouse/db/a"])
def test_a_location_that_begins_with_white_space_makes_no_folder(home: Path, location: str) -> None:
    catalog = load_catalog("prod")
    catalog.create_namespace("db", {"location": location})

    with pytest.raises(ConfigurationError, match="begins with white space: correct it, or the warehouse"):
        catalog.create_table("db.a", ROWS.schema, properties=KEY)
    with pytest.raises(ConfigurationError, match="begins with white space: correct it, or the warehouse"):
        catalog.create_table("db.a", ROWS.schema, properties=KEY, location=location)
    assert not list(home.glob("[ \n]*"))


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "\0", "a/b", "/a", "a/../b"])
def test_a_name_that_no_folder_can_have_is_refused_for_a_new_table(home: Path, name: str) -> None:
    catalog = load_catalog("prod")
    catalog.create_namespace("db")

    with pytest.raises(ConfigurationError, match="names no folder for a new table: choose another name, or give the table a location"):
        catalog.create_table(("db", name), ROWS.schema, properties=KEY)
    assert not list(home.glob("warehouse/**/*.json"))
