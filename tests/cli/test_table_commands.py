"""Each command that changes a table, on the command line: dry run, the change itself, JSON, and asking before something is destroyed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tablecrypt.maintenance import share, shares
from tests.support.aws import AwsServer
from tests.support.command import Command, Done, in_shell
from tests.support.shares import Partner
from tests.support.tables import MASTER_KEY, TEAM_SCHEMA, encrypted_sql_catalog, folder_of, maintained_table, team_rows

pytestmark = pytest.mark.slow


@pytest.fixture
def catalog(aws: AwsServer, unwatched_warehouse: Path) -> Catalog:
    return encrypted_sql_catalog(unwatched_warehouse, aws)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return maintained_table(catalog)


@pytest.fixture
def command(catalog: Catalog) -> Command:
    return Command.of(catalog)


def result_of(done: Done) -> dict:  # type: ignore[type-arg]
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


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
    assert result_of(command.run(*arguments, "--older-than", "0d"))["data_files"] == 2


def test_unshare_asks_about_no_share_that_the_table_does_not_have(command: Command, table: Table) -> None:
    refused = command.run("unshare", "db.rows", "s3://partner/orders")
    assert refused.code == 2
    assert "db.rows has no live share 's3://partner/orders'; it has none" in refused.stderr
    assert "--yes" not in refused.stderr


def test_unshare_asks_about_a_share_that_there_is(command: Command, table: Table, partner: Partner) -> None:
    shared = share(table, partner.key_id, partner.location)
    refused = command.run("unshare", "db.rows", shared.share_uuid)
    assert (refused.code, "--yes" in refused.stderr) == (2, True)
    assert [each.share_uuid for each in shares(table).shares] == [shared.share_uuid]


def test_migrate_asks_then_encrypts(command: Command, catalog: Catalog) -> None:
    plain = catalog.create_table("db.plain", TEAM_SCHEMA)
    plain.append(team_rows(0))

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
    assert command.run("shred", "db.rows", "--snapshot", "99", "--dry-run").code == 1
    assert (nowhere.code, json.loads(nowhere.stdout)["complete"], json.loads(nowhere.stdout)["not_found"]) == (1, False, [99])
    assert result_of(command.run("shred", "db.rows", "--snapshot", first, "--dry-run", "--json"))["complete"] is False
    assert len(table.refresh().metadata.snapshots) == 3
    done = command.run("shred", "db.rows", "--snapshot", first, "--yes", "--json")
    assert (done.code, json.loads(done.stdout)["effective"]) == (1, False), "live snapshots share all of its files"

    assert first not in {str(snapshot.snapshot_id) for snapshot in table.refresh().metadata.snapshots}
    again = command.run("shred", "db.rows", "--snapshot", first, "--yes")
    said = "  the keys of 1 snapshot had been destroyed before; files that live snapshots share stay readable\n"
    assert (again.code, said in again.stdout) == (0, True)


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


def test_orphans_lists_asks_and_removes(command: Command, table: Table) -> None:
    left = folder_of(table) / "data" / "left.parquet"
    left.write_bytes(b"left over")

    found = command.run("orphans", "db.rows", "--older-than", "0d", "--dry-run")
    assert (found.code, str(left) in found.stdout, left.exists()) == (0, True, True)
    refused = command.run("orphans", "db.rows", "--older-than", "0d")
    assert (refused.code, "--yes" in refused.stderr, left.exists()) == (2, True, True)
    done = command.run("orphans", "db.rows", "--older-than", "0d", "--yes", "--json", "--progress")
    removed = result_of(done)
    assert (removed["deleted"], removed["dry_run"]) == ([f"file://{left}"], False)
    assert done.stderr.splitlines()[-1].startswith("remove_orphan_files: 1 of 1 files")
    assert not left.exists()
    assert result_of(command.run("orphans", "db.rows", "--yes", "--json"))["dry_run"] is False


def test_on_a_terminal_the_answer_decides(command: Command, table: Table) -> None:
    left = folder_of(table) / "data" / "left.parquet"
    left.write_bytes(b"left over")

    code, shown = command.run_terminal("orphans", "db.rows", "--older-than", "0d", answer="n\n")
    assert (code, left.exists()) == (2, True)
    assert shown.endswith("nothing was done\r\n")
    code, shown = command.run_terminal("orphans", "db.rows", "--older-than", "0d", answer="y\n")
    assert (code, left.exists()) == (0, False)


def test_a_plain_table_is_refused_in_one_line(command: Command, catalog: Catalog) -> None:
    catalog.create_table("db.plain", TEAM_SCHEMA)

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


def test_cat_ends_quietly_when_its_reader_has_had_enough(command: Command, table: Table) -> None:
    table.append(team_rows(1000, 20_000))

    done = in_shell('"$@" | head -n 2', *command.leading, "cat", "db.rows")

    assert len(done.stdout.splitlines()) == 2
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_one_column_is_shredded_and_keks_of_columns_rotate(command: Command, catalog: Catalog) -> None:
    declared = {"encryption.key-id": MASTER_KEY, "encryption.column-keys": "alias/people: note"}
    catalog.create_table("db.columns", TEAM_SCHEMA, properties=declared)

    assert result_of(command.run("rotate-kek", "db.columns", "--columns", "--json"))["column_keys"] == 1
    assert result_of(command.run("rewrap", "db.columns", "--columns", "--json"))["keks"].keys() == {"alias/people"}
    assert command.run("rewrap", "db.columns", "--columns", "--from-key-id", "other").code == 2
    assert command.run("shred", "db.columns", "--column", "note", "--snapshot", "1").code == 2
    assert command.run("shred", "db.columns", "--column", "id", "--yes").code == 2
    done = command.run("shred", "db.columns", "--column", "note", "--yes", "--json")
    assert (done.code, json.loads(done.stdout)["complete"]) == (0, True)
    done = command.run("shred", "db.columns", "--column", "note", "--yes", "--json")
    assert (done.code, json.loads(done.stdout)["complete"]) == (1, False), "the column has no key any more"


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
    (tmp_path / "link.json").symlink_to(tmp_path / "nowhere" / "erased.json")
    other = command.run("erase", "db.rows", "--where", "id = 6", "--yes", "--certificate", str(tmp_path / "link.json"))
    assert other.code == 2 and "link.json exists already" in other.stderr
    assert "1 row" in command.run("erase", "db.rows", "--where", "id = 6", "--dry-run").stdout


def test_a_dry_run_of_an_erasure_says_what_it_could_not_search(command: Command, table: Table) -> None:
    left = folder_of(table) / "data" / "left.parquet"
    left.write_bytes(b"left over")
    said = f"not searched: file://{left}: a file that no snapshot names"

    foretold = command.run("erase", "db.rows", "--where", "id = 5", "--dry-run")
    done = command.run("erase", "db.rows", "--where", "id = 5", "--yes")

    assert (foretold.code, done.code) == (0, 1)
    assert said in done.stdout
    assert said in foretold.stdout
