"""Each command that changes a table, on the command line: dry run, the change itself, JSON, and asking before something is destroyed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.support.aws import AwsServer
from tests.support.catalogs import MASTER_KEY, encrypted_sql_catalog
from tests.support.command import Command, Done
from tests.support.key_tables import keks as keks_of
from tests.support.maintained_table import SCHEMA, folder_of, maintained_table, path_of, rows

pytestmark = pytest.mark.slow


@pytest.fixture
def catalog(aws: AwsServer, unwatched_warehouse: Path) -> Catalog:
    return encrypted_sql_catalog(unwatched_warehouse, aws)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return maintained_table(catalog)


@pytest.fixture
def command(catalog: Catalog) -> Command:
    given = ("uri", "warehouse", "encryption.kms-type", "kms.endpoint", "client.region")
    return Command({"py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog", **{name: str(catalog.properties[name]) for name in given}})


def result_of(done: Done) -> dict:  # type: ignore[type-arg]
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_rotate_kek_changes_nothing_dry_and_the_kek_then(command: Command, table: Table) -> None:
    keks = [kek.key_id for kek in keks_of(table)]

    assert result_of(command.run("rotate-kek", "db.rows", "--dry-run", "--json"))["old_keks"] == keks
    assert keks_of(table.refresh())[0].key_id == keks[0]
    assert result_of(command.run("rotate-kek", "db.rows", "--json"))["manifest_list_keys"] == 3
    assert [kek.key_id for kek in keks_of(table.refresh())] != keks
    assert len(table.scan().to_arrow()) == 39


@pytest.mark.parametrize("name", ["rewrap", "prune-keys", "reencrypt", "compact", "rescue"])
def test_a_command_runs_dry_and_for_real(command: Command, table: Table, name: str) -> None:
    before = table.scan().to_arrow().sort_by("id")
    location = table.metadata_location

    result_of(command.run(name, "db.rows", "--dry-run", "--json"))
    assert table.refresh().metadata_location == location
    result_of(command.run(name, "db.rows", "--json"))

    assert table.refresh().scan().to_arrow().sort_by("id") == before


def test_compact_says_which_deletes_it_left_and_applies_them_if_asked(command: Command, table: Table) -> None:
    left = command.run("compact", "db.rows")
    assert left.code == 0
    assert "below the delete ratio (--apply-deletes rewrites them)" in left.stdout.splitlines()[-1]

    applied = command.run("compact", "db.rows", "--apply-deletes")
    assert applied.code == 0
    assert "--apply-deletes" not in applied.stdout
    assert not any(task.delete_files for task in table.refresh().scan().plan_files())
    assert result_of(command.run("compact", "db.rows", "--json"))["left_with_deletes"] == 0


def test_reencrypt_takes_a_filter_an_age_and_a_length(command: Command, table: Table) -> None:
    arguments = ("reencrypt", "db.rows", "--where", "team = 'north'", "--data-key-length", "32", "--workers", "1", "--dry-run", "--json")

    assert result_of(command.run(*arguments))["data_files"] == 2
    assert result_of(command.run(*arguments, "--older-than", "1d"))["data_files"] == 0
    assert result_of(command.run(*arguments, "--older-than", "2999-01-01"))["data_files"] == 2
    assert command.run(*arguments, "--older-than", "yesterday").code == 2


def test_relocate_copies_and_registers(command: Command, table: Table, catalog: Catalog, unwatched_warehouse: Path) -> None:
    place = f"file://{unwatched_warehouse}/copy"

    result_of(command.run("relocate", "db.rows", place, "--dry-run", "--json"))
    assert not path_of(place).exists()
    result_of(command.run("relocate", "db.rows", place, "--as", "db.copy", "--json"))

    assert catalog.load_table("db.copy").location() == place
    assert len(catalog.load_table("db.copy").scan().to_arrow()) == 39


def test_migrate_asks_then_encrypts(command: Command, catalog: Catalog) -> None:
    plain = catalog.create_table("db.plain", SCHEMA)
    plain.append(rows(0))

    result_of(command.run("migrate", "db.plain", "--key-id", MASTER_KEY, "--dry-run", "--json"))
    refused = command.run("migrate", "db.plain", "--key-id", MASTER_KEY)
    assert refused.code == 2
    assert "--yes" in refused.stderr
    result_of(command.run("migrate", "db.plain", "--key-id", MASTER_KEY, "--yes", "--json"))

    assert catalog.load_table("db.plain").properties["encryption.key-id"] == MASTER_KEY
    assert command.run("verify", "db.plain").code == 0


def test_shred_asks_and_needs_a_target(command: Command, table: Table) -> None:
    first = str(table.metadata.snapshots[0].snapshot_id)

    assert "--snapshot" in command.run("shred", "db.rows", "--yes").stderr
    assert "exclude" in command.run("shred", "db.rows", "--yes", "--snapshot", "1", "--whole-table", "db.rows").stderr
    assert "--yes" in command.run("shred", "db.rows", "--snapshot", first).stderr
    typo = command.run("shred", "db.rows", "--whole-table", "db.row", "--yes")
    assert (typo.code, "--whole-table says db.row, but the table is db.rows" in typo.stderr) == (2, True)
    assert "confirm=" not in typo.stderr
    nowhere = command.run("shred", "db.rows", "--snapshot", "99", "--yes", "--json")
    assert (nowhere.code, json.loads(nowhere.stdout)["complete"], json.loads(nowhere.stdout)["not_found"]) == (1, False, [99])
    assert result_of(command.run("shred", "db.rows", "--snapshot", first, "--dry-run", "--json"))["complete"] is False
    assert len(table.refresh().metadata.snapshots) == 3
    done = command.run("shred", "db.rows", "--snapshot", first, "--yes", "--json")
    assert (done.code, json.loads(done.stdout)["effective"]) == (1, False), "live snapshots share all of its files"

    assert first not in {str(snapshot.snapshot_id) for snapshot in table.refresh().metadata.snapshots}


def test_a_shredding_that_leaves_something_readable_is_code_1(command: Command, table: Table) -> None:
    """The head, which deleted a file, holds its DEK until another takes its place."""
    table.delete("id >= 100")
    selected = [part for each in table.snapshots()[:-1] for part in ("--snapshot", str(each.snapshot_id))]

    assert command.run("shred", "db.rows", *selected, "--dry-run").code == 0
    left = command.run("shred", "db.rows", *selected, "--yes", "--json")
    assert left.code == 1
    assert json.loads(left.stdout)["complete"] is False
    assert result_of(command.run("shred", "db.rows", *selected, "--replace-heads", "--yes", "--json"))["complete"] is True


def test_a_dry_run_of_shredding_the_whole_table_needs_no_name(command: Command, table: Table) -> None:
    """As a page says it: --whole-table took --dry-run for the table's name."""
    done = command.run("shred", "db.rows", "--whole-table", "--dry-run")

    assert done.code == 0
    assert done.stdout.startswith("db.rows: 3 snapshots would be shredded\n")
    assert "this was a dry run: nothing was destroyed\n" in done.stdout
    assert "complete: " not in done.stdout
    unnamed = command.run("shred", "db.rows", "--whole-table", "--yes")
    assert (unnamed.code, "repeat its name: --whole-table db.rows" in unnamed.stderr) == (2, True)
    assert len(table.refresh().snapshots()) == 3


def test_all_but_the_heads_are_shredded_and_a_second_run_finds_nothing(command: Command, table: Table) -> None:
    table.delete("id >= 100")
    everything = ("shred", "db.rows", "--all-but-heads")

    half = command.run(*everything, "--yes")
    assert half.code == 1
    assert "not complete: 2 deleted files can still be read with the keys in snapshot " in half.stdout
    still_half = command.run(*everything, "--yes")
    assert (still_half.code, "deleted files can still be read" in still_half.stdout) == (1, True)
    foretold = command.run(*everything, "--replace-heads", "--dry-run")
    assert (foretold.code, "1 snapshot would be shredded" in foretold.stdout, "can still be read" in foretold.stdout) == (0, True, False)

    done = command.run(*everything, "--replace-heads", "--yes")
    assert done.code == 0, done.stdout
    assert "complete: no file of the table opens what was shredded\n" in done.stdout
    again = command.run(*everything, "--replace-heads", "--yes")
    assert (again.code, again.stdout.splitlines()[0]) == (0, "db.rows: no snapshot was found to shred that has a key")
    assert command.run("verify", "db.rows").code == 0
    assert len(table.refresh().snapshots()) == 1


@pytest.mark.parametrize("name", ["reencrypt", "compact"])
def test_a_filter_that_does_not_fit_is_one_line(command: Command, table: Table, name: str) -> None:
    for where in ("", "(((", "nobody = 3", "id = 'north'"):
        done = command.run(name, "db.rows", "--where", where)
        assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr


def test_a_wrong_property_is_told_by_its_own_option(command: Command, table: Table) -> None:
    done = command.run("migrate", "db.rows", "--key-id", MASTER_KEY, "--set", "nothing", "--yes")

    assert (done.code, done.stderr) == (2, "tablecrypt: --set nothing: write name=value\n")


def test_a_page_that_cannot_be_written_is_told_before_the_audit(command: Command, table: Table, tmp_path: Path) -> None:
    done = command.run("audit", "db.rows", "--html", str(tmp_path / "nowhere" / "page.html"))

    assert (done.code, done.stderr.count("\n")) == (2, 1)
    assert "there is no folder" in done.stderr


def test_orphans_lists_asks_and_removes(command: Command, table: Table) -> None:
    left = folder_of(table) / "data" / "left.parquet"
    left.write_bytes(b"left over")

    found = command.run("orphans", "db.rows", "--older-than", "2999-01-01", "--dry-run")
    assert (found.code, str(left) in found.stdout, left.exists()) == (0, True, True)
    refused = command.run("orphans", "db.rows", "--older-than", "2999-01-01")
    assert (refused.code, "--yes" in refused.stderr, left.exists()) == (2, True, True)
    removed = result_of(command.run("orphans", "db.rows", "--older-than", "2999-01-01", "--yes", "--json"))
    assert (removed["deleted"], removed["dry_run"]) == ([f"file://{left}"], False)
    assert not left.exists()
    assert result_of(command.run("orphans", "db.rows", "--yes", "--json"))["dry_run"] is False


def test_on_a_terminal_the_answer_decides(command: Command, table: Table) -> None:
    left = folder_of(table) / "data" / "left.parquet"
    left.write_bytes(b"left over")

    code, shown = command.run_terminal("orphans", "db.rows", "--older-than", "2999-01-01", answer="n\n")
    assert (code, left.exists()) == (2, True)
    assert shown.endswith("nothing was done\r\n")
    code, shown = command.run_terminal("orphans", "db.rows", "--older-than", "2999-01-01", answer="y\n")
    assert (code, left.exists()) == (0, False)


def test_a_plain_table_is_refused_in_one_line(command: Command, catalog: Catalog) -> None:
    catalog.create_table("db.plain", SCHEMA)

    for name in ("verify", "rotate-kek", "rewrap", "prune-keys", "reencrypt", "compact", "orphans", "inspect", "rescue"):
        done = command.run(name, "db.plain")
        assert (done.code, done.stderr.count("\n")) == (2, 1), (name, done.stderr)
        assert "not an encrypted table" in done.stderr


def test_inspect_shows_the_layers_of_a_table_and_of_its_files(command: Command, table: Table) -> None:
    shown = result_of(command.run("inspect", "db.rows", "--json"))

    assert [each["kind"] for each in shown["files"]] == ["manifest list", "manifest", "data", "deletion vector"]
    assert shown["keks"][0]["snapshots"] == 3
    vector = next(folder_of(table).rglob("*.puffin"))
    data = next(folder_of(table).rglob("*.parquet"))
    described = result_of(command.run("inspect", "db.rows", "--file", f"file://{vector}", "--json"))
    assert (described["format"], described["blocks"], described["kind"]) == ("AGS1", 1, "deletion vector")
    described = result_of(command.run("inspect", "db.rows", "--file", f"file://{data}", "--json"))
    assert (described["format"], described["footer"]) == ("Parquet", "encrypted")
    assert {each["column"] for each in described["columns"]} == {"id", "team", "note"}
    assert command.run("inspect", "db.rows", "--file", "file:///nowhere").code == 2


def test_cat_prints_rows(command: Command, table: Table) -> None:
    lines = command.run("cat", "db.rows", "--columns", "team,id", "--where", "id >= 100", "--limit", "3").stdout.splitlines()

    assert lines[0] == '"team","id"'
    assert len(lines) == 4
    first = table.metadata.snapshots[0].snapshot_id
    lines = command.run("cat", "db.rows", "--snapshot", str(first), "--json").stdout.splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == list(range(20))


def test_cat_prints_an_arrow_stream(command: Command, table: Table) -> None:
    import pyarrow as pa

    done = command.run("cat", "db.rows", "--format", "arrow")

    assert pa.ipc.open_stream(done.raw).read_all().num_rows == 39


@pytest.mark.parametrize(("arguments", "said"), [(("--where", "id >>> 3"), "is not a filter"), (("--columns", "nothing"), "nothing")])
def test_cat_refuses_in_one_line(command: Command, table: Table, arguments: tuple[str, str], said: str) -> None:
    done = command.run("cat", "db.rows", *arguments)

    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


def test_cat_ends_quietly_when_its_reader_has_had_enough(command: Command, table: Table) -> None:
    table.append(rows(1000, 20_000))
    line = " ".join(["python", "-m", "tablecrypt.cli", *(f"'{part}'" for part in command.leading), "cat", "db.rows"])

    done = shell(f"{line} | head -n 2")

    assert len(done.stdout.splitlines()) == 2
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def shell(line: str) -> Done:
    import os
    import subprocess
    import sys

    from tests.support.command import ROOT

    path = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PYTHONPATH": path, "PATH": programs}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=300, env=environment)
    return Done(done.returncode, done.stdout, done.stderr)


def test_one_column_is_shredded_and_keks_of_columns_rotate(command: Command, catalog: Catalog) -> None:
    declared = {"encryption.key-id": MASTER_KEY, "encryption.column-keys": "alias/people: note"}
    catalog.create_table("db.columns", SCHEMA, properties=declared)

    assert result_of(command.run("rotate-kek", "db.columns", "--columns", "--json"))["column_keys"] == 0
    assert result_of(command.run("rewrap", "db.columns", "--columns", "--json"))["keks"] == {}
    assert command.run("rewrap", "db.columns", "--columns", "--from-key-id", "other").code == 2
    assert command.run("shred", "db.columns", "--column", "note", "--snapshot", "1").code == 2
    assert command.run("shred", "db.columns", "--column", "id", "--yes").code == 2
    done = command.run("shred", "db.columns", "--column", "note", "--yes", "--json")
    assert (done.code, json.loads(done.stdout)["complete"]) == (1, False), "nothing was ever written under a key of the column"


def test_one_person_is_erased_with_a_certificate(command: Command, table: Table, tmp_path: Path) -> None:
    """What an officer types: look first, then erase; a second run finds nothing."""
    foretold = command.run("erase", "db.rows", "--where", "id = 5", "--dry-run")
    assert foretold.code == 0
    assert foretold.stdout.splitlines()[-1] == "nothing was changed"
    refused = command.run("erase", "db.rows", "--where", "id = 5")
    assert refused.code == 2 and "--yes" in refused.stderr
    page, facts = tmp_path / "erased.html", tmp_path / "erased.json"
    done = command.run("erase", "db.rows", "--where", "id = 5", "--yes", "--certificate", str(page), "--certificate", str(facts))
    assert done.code == 0
    assert done.stdout.splitlines()[-1] == "complete: nothing of such rows was found"
    assert page.read_text().startswith("<!doctype html>") and json.loads(facts.read_text())
    again = command.run("erase", "db.rows", "--where", "id = 5", "--yes")
    assert again.code == 0 and "no row with id = ? was found" in again.stdout
    for wrong in ("team = 5 and", "who = 5", "true"):
        failed = command.run("erase", "db.rows", "--where", wrong, "--yes")
        assert failed.code == 2 and len(failed.stderr.splitlines()) == 1
    other = command.run("erase", "db.rows", "--where", "id = 6", "--yes", "--certificate", str(tmp_path / "erased.txt"))
    assert other.code == 2 and ".html" in other.stderr
