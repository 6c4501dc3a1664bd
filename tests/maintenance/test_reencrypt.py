"""Re-encryption: the same rows, row ids and statistics in files under other keys."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from tablecrypt.errors import ConfigurationError, TamperedFileError
from tablecrypt.maintenance import Progress, reencrypt
from tablecrypt.manifests.records import key_metadata_of
from tests.support.aws import AwsServer
from tests.support.deleting_twice_io import DELETING_TWICE_IO
from tests.support.kill_points import MORTAL_IN_MEMORY, Killed, dying_at, mortal_databases
from tests.support.listeners import once, stopping_after
from tests.support.tables import (
    BY_TEAM,
    MASTER_KEY,
    PARTITION_FOLDERS,
    TEAM_SCHEMA,
    encrypted_sql_catalog,
    encrypted_table,
    flip,
    folder_of,
    path_of,
    summary_of,
    team_rows,
    team_table,
)

EVERYTHING = ("*", "_row_id", "_last_updated_sequence_number")


def new_table(warehouse: Path, aws: AwsServer, **properties: str) -> Table:
    catalog = encrypted_sql_catalog(warehouse, aws)
    given = {"encryption.key-id": MASTER_KEY, "write.delete.mode": "merge-on-read", **properties}
    return catalog.create_table("db.rows", TEAM_SCHEMA, partition_spec=BY_TEAM, properties=given)


@pytest.fixture
def table(warehouse: Path, aws: AwsServer) -> Table:
    table = new_table(warehouse, aws)
    for first in (0, 100, 200):
        table.append(team_rows(first))
    table.delete("id = 3")
    table.delete("id in (104, 105)")
    return table


def contents(table: Table) -> list[dict[str, Any]]:
    """Every row with its row id and sequence number."""
    return sorted(table.scan(selected_fields=EVERYTHING).to_arrow().to_pylist(), key=lambda row: int(row["id"]))


def data_files(table: Table) -> dict[str, Any]:
    return {task.file.file_path: task.file for task in table.scan().plan_files()}


def test_rows_and_row_ids_stay_and_every_file_and_key_is_new(table: Table) -> None:
    before, files = contents(table), data_files(table)
    result = reencrypt(table)
    assert (result.data_files, result.delete_files, result.gone, result.resumed, result.unused) == (6, 0, 0, 0, ())
    after = data_files(table)
    assert contents(table) == before
    assert files.keys().isdisjoint(after)
    keys = [key_metadata_of(file).encryption_key.reveal() for file in (*files.values(), *after.values())]
    assert len(set(keys)) == 12


def test_statistics_sequence_numbers_and_partitions_stay(table: Table) -> None:
    of_file = ("lower_bounds", "upper_bounds", "column_sizes", "split_offsets", "first_row_id", "record_count")

    def facts(table: Table) -> list[Any]:
        tasks: Any = table.scan().plan_files()
        found = ([getattr(each.file, name) for name in of_file] + [each.data_sequence_number, each.file.partition[0]] for each in tasks)
        return sorted(found, key=str)

    before = facts(table)
    reencrypt(table)
    assert facts(table) == before


def test_the_snapshot_says_that_it_replaces(table: Table) -> None:
    before = summary_of(table).model_dump()
    result = reencrypt(table)
    after = summary_of(table).model_dump()
    assert table.metadata.current_snapshot_id == result.snapshot_id
    assert after["operation"] == "replace"
    for name in ("total-records", "total-data-files", "total-position-deletes", "total-delete-files"):
        assert after[name] == before[name]


def test_rows_deleted_earlier_stay_deleted_and_later_deletes_work(table: Table) -> None:
    reencrypt(table)
    table.delete("id = 106")
    assert {3, 104, 105, 106}.isdisjoint(row["id"] for row in contents(table))
    assert len(contents(table)) == 56


def test_keys_of_another_length_can_be_asked_for(table: Table) -> None:
    reencrypt(table, data_key_length=32)
    assert {len(key_metadata_of(file).encryption_key) for file in data_files(table).values()} == {32}


def test_a_filter_leaves_other_partitions_alone(table: Table) -> None:
    files = data_files(table)
    result = reencrypt(table, where="team = 'south'")
    stayed = files.keys() & data_files(table).keys()
    assert result.data_files == 3
    assert len(stayed) == 3 and {files[location].partition[0] for location in stayed} == {"north"}
    assert len(contents(table)) == 57


def test_only_files_with_keys_from_before_a_moment_are_taken(table: Table) -> None:
    second = table.snapshots()[1]
    moment = dt.datetime.fromtimestamp(second.timestamp_ms / 1000, dt.UTC)
    assert reencrypt(table, older_than=moment, dry_run=True).data_files == 2
    later = moment + dt.timedelta(days=1)
    assert reencrypt(table, older_than=later, dry_run=True).data_files == 6


def test_a_list_of_no_files_means_none_of_them(table: Table) -> None:
    """As `unshare` gives it where no file of the share is the table's any more."""
    before = sorted(data_files(table))

    assert reencrypt(table, files=[]).data_files == 0
    assert sorted(data_files(table)) == before
    assert reencrypt(table, files=before[:1]).data_files == 1


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_file_that_is_none_of_the_tables_is_refused_and_one_that_was_is_not(table: Table, dry_run: bool) -> None:
    first, *others = sorted(data_files(table))
    for wrong in (f"{first}x", first.rpartition("/")[2], f"{first.partition('/data/')[0]}/../other/data/a.parquet"):
        with pytest.raises(ConfigurationError, match=r"^files \(--file\) names '.*', and db\.rows has no such file: write"):
            reencrypt(table, files=[first, wrong], dry_run=dry_run)
    assert sorted(data_files(table)) == [first, *others]

    assert reencrypt(table, files=[first]).data_files == 1
    assert reencrypt(table, files=[first, others[0]], dry_run=dry_run).data_files == 1


def test_progress_grows_from_nothing_to_all(table: Table) -> None:
    heard: list[Progress] = []
    result = reencrypt(table, progress=heard.append)
    assert [heard[0].done, heard[-1].done, heard[-1].total] == [0, result.size, result.size]


def test_rows_that_others_append_and_delete_meanwhile_survive(table: Table) -> None:
    """The other writer comes in while files are encrypted: after the plan, before the commit."""
    other = table.catalog.load_table("db.rows")

    def interfere() -> None:
        other.append(team_rows(300))
        other.delete("id in (1, 101, 305)")

    reencrypt(table, progress=once(interfere))
    expected = ({*range(20), *range(100, 120), *range(200, 220), *range(300, 320)}) - {3, 104, 105, 1, 101, 305}
    assert {row["id"] for row in contents(table)} == expected


def test_a_file_that_others_drop_meanwhile_stays_dropped(table: Table) -> None:
    other = table.catalog.load_table("db.rows")

    result = reencrypt(table, progress=once(lambda: other.delete("team = 'south'")))

    assert (result.gone, len(result.unused)) == (3, 3)
    assert {row["team"] for row in contents(table)} == {"north"}


@pytest.mark.parametrize("step", range(7))
def test_a_killed_run_is_continued(table: Table, step: int) -> None:
    before = contents(table)
    with pytest.raises(Killed):
        reencrypt(table, progress=stopping_after(step, Killed))
    assert contents(table) == before
    result = reencrypt(table)
    assert (result.data_files, result.resumed) == (6, step)
    assert contents(table) == before
    assert not list(folder_of(table).glob("metadata/tablecrypt-reencrypt/*"))


UNOPENED: dict[str, Callable[[bytes], bytes]] = {
    "nested": lambda _: b"[" * 200_000,
    "no JSON": lambda _: b"{",
    "another value": lambda _: b"[]",
    "no keys": lambda part: json.dumps({**json.loads(part), "encryption-keys": []}).encode(),
    "another key": lambda part: json.dumps({**json.loads(part), "key-id": "nobody"}).encode(),
    "half a character": lambda part: part.replace(MASTER_KEY.encode(), b"\\ud800"),
}


@pytest.mark.parametrize("how", UNOPENED)
def test_a_part_of_the_journal_that_does_not_open_is_not_done(table: Table, how: str, caplog: pytest.LogCaptureFixture) -> None:
    before = contents(table)
    with pytest.raises(Killed):
        reencrypt(table, progress=stopping_after(3, Killed))
    (part,) = folder_of(table).glob("metadata/tablecrypt-reencrypt/*.json")
    part.write_bytes(UNOPENED[how](part.read_bytes()))

    result = reencrypt(table)

    assert (result.data_files, result.resumed) == (6, 0)
    assert contents(table) == before
    assert part.name in caplog.text


def test_nothing_is_written_beside_a_file_that_lies_outside_the_table(table: Table, tmp_path: Path) -> None:
    inside = table.inspect.files()["file_path"].to_pylist()
    task = next(iter(table.scan(row_filter="id = 0").plan_files()))
    source = tmp_path / "inbox" / "copy.parquet"
    source.parent.mkdir()
    source.write_bytes(path_of(task.file.file_path).read_bytes())
    encrypted_table(table).add_files([source.as_uri()], key_metadata={source.as_uri(): key_metadata_of(task.file)})
    before = table.scan().to_arrow().num_rows

    reencrypt(table)

    assert [each.name for each in source.parent.iterdir()] == [source.name]
    files = table.inspect.files()["file_path"].to_pylist()
    assert all(each.startswith(f"{table.location()}/data/") for each in files)
    assert not {*files} & {*inside, source.as_uri()}
    assert table.scan().to_arrow().num_rows == before


def test_a_damaged_file_is_named_and_nothing_is_committed(unwatched_warehouse: Path, aws: AwsServer) -> None:
    table = new_table(unwatched_warehouse, aws)
    table.append(team_rows(0))
    path = path_of(next(iter(data_files(table))))
    flip(path, path.stat().st_size // 3)
    before = table.metadata_location
    with pytest.raises(TamperedFileError, match=path.name):
        reencrypt(table)
    assert table.refresh().metadata_location == before


def test_an_empty_table_and_an_unfit_length(warehouse: Path, aws: AwsServer) -> None:
    table = new_table(warehouse, aws)
    assert reencrypt(table).snapshot_id is None
    with pytest.raises(ConfigurationError, match="data_key_length"):
        reencrypt(table, data_key_length=17)


@pytest.mark.slow
@mortal_databases()
def test_a_run_killed_at_any_step_is_finished_by_the_next(warehouse: Path, aws: AwsServer) -> None:
    """Every few steps of store, KMS and catalog, from the first file to the last clean-up."""
    catalog = encrypted_sql_catalog(warehouse, aws, MORTAL_IN_MEMORY)
    given = {"encryption.key-id": MASTER_KEY, "write.delete.mode": "merge-on-read"}
    table = catalog.create_table("db.rows", TEAM_SCHEMA, partition_spec=BY_TEAM, properties=given)
    for first in (0, 100):
        table.append(team_rows(first))
    table.delete("id = 3")
    before = contents(table)
    with dying_at(None) as life:
        reencrypt(table)
    steps = len(life.steps)
    for died_at in range(1, steps + 1, max(1, steps // 24)):
        with dying_at(died_at), pytest.raises(Killed):
            reencrypt(catalog.load_table("db.rows"))
        survivor = catalog.load_table("db.rows")
        assert contents(survivor) == before
        reencrypt(survivor)
        assert contents(survivor) == before
    assert not list(folder_of(table).glob("metadata/tablecrypt-reencrypt/*.json"))


@pytest.mark.parametrize("properties", [{}, {"write.object-storage.enabled": "true"}], ids=["simple", "object storage"])
def test_new_files_lie_where_no_name_shows_a_partition(tmp_path: Path, aws: AwsServer, properties: dict[str, str]) -> None:
    shown = team_table(encrypted_sql_catalog(tmp_path, aws, PARTITION_FOLDERS), 0, 100, properties=PARTITION_FOLDERS)
    assert all("/team=" in location for location in data_files(shown))
    shown.transaction().remove_properties(*PARTITION_FOLDERS).set_properties(properties).commit_transaction()

    reencrypt(shown)

    new = data_files(shown.refresh())
    assert len(new) == 4
    assert not [each for each in new if "team=" in each or not each.startswith(f"{shown.location()}/data/")]
    assert len({each.rpartition("/")[0] for each in new}) == (4 if properties else 1)


def test_a_journal_that_another_run_has_deleted_is_gone(tmp_path: Path, aws: AwsServer) -> None:
    table = team_table(encrypted_sql_catalog(tmp_path, aws, {"py-io-impl": DELETING_TWICE_IO}), 0, 100)

    assert reencrypt(table).data_files == 4
    assert not list(folder_of(table).glob("metadata/tablecrypt-reencrypt/*"))
