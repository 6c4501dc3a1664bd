"""Rows of encrypted tables as Datasets of Ray, and Datasets as rows: what Ray reads and writes is what the table itself does."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import ray
from pyiceberg.exceptions import ValidationException
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType, NestedField, StringType

import tablecrypt.ray as tcr
from tablecrypt.errors import ConfigurationError, FormatError, TamperedFileError
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.plaintext import CANARY
from tests.support.tables import SCHEMA, current_snapshot, data_files, data_paths, flip, ids, new_table, rows, team_rows, team_table


def sorted_rows(dataset: Any) -> list[dict[str, Any]]:
    return sorted(dataset.take_all(), key=lambda row: row["id"])


def test_a_dataset_has_the_rows_of_the_scan(encrypted: EncryptedSqlCatalog) -> None:
    table = team_table(encrypted, 0, 20, 40)
    table.delete("id = 3")
    dataset = tcr.read_table(table)

    assert dataset.schema().base_schema == table.scan().to_arrow().schema
    assert sorted_rows(dataset) == sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert dataset.count() == 59
    assert sum(row["id"] for row in dataset.select_columns(["id"]).take_all()) == sum(range(60)) - 3
    some = table.scan("id < 30 and team = 'north'", selected_fields=("note", "id"))
    assert sorted_rows(tcr.read_table(some)) == sorted(some.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert len(tcr.read_table(table.scan(limit=7)).take_all()) == 7
    assert tcr.read_table(table.scan("id > 100")).take_all() == []


def test_a_dataset_stays_at_its_snapshot(encrypted: EncryptedSqlCatalog) -> None:
    table = new_table(encrypted, appends=[rows(0)])
    dataset = tcr.read_table(table)
    table.append(rows(20))

    assert dataset.count() == 20
    assert len(dataset.take_all()) == 20


def test_a_tampered_file_is_named_in_few_lines(encrypted: EncryptedSqlCatalog) -> None:
    table = new_table(encrypted, appends=[rows(0)])
    [path] = data_paths(table)
    flip(path, path.stat().st_size // 2)

    with pytest.raises(TamperedFileError, match=path.name) as raised:
        tcr.read_table(table).take_all()

    assert len(str(raised.value).splitlines()) < 10


def test_a_dataset_is_appended_in_one_commit(encrypted: EncryptedSqlCatalog) -> None:
    table = new_table(encrypted, appends=[rows(0)])

    ray.data.from_arrow([rows(20), rows(40)]).write_datasink(tcr.datasink(table, snapshot_properties={"run": "7"}))

    assert ids(table.refresh()) == list(range(60))
    assert len(table.snapshots()) == 2
    assert current_snapshot(table).summary["run"] == "7"  # type: ignore[index]
    assert all(file.key_metadata for file in data_files(table))


def test_a_datasink_that_was_used_commits_nothing_more(encrypted: EncryptedSqlCatalog) -> None:
    """Its files would be in the table twice."""
    table = new_table(encrypted)
    sink = tcr.datasink(table)
    written = pickle.loads(pickle.dumps(sink)).write([rows(20)], SimpleNamespace(task_idx=0))
    sink.on_write_complete(SimpleNamespace(write_returns=[written]))

    with pytest.raises(ConfigurationError, match="is for one write"):
        sink.on_write_complete(SimpleNamespace(write_returns=[written]))
    with pytest.raises(ConfigurationError, match="is for one write"):
        ray.data.from_arrow(rows(40)).write_datasink(sink)
    assert len(table.refresh().snapshots()) == 1


def test_a_dataset_overwrites_what_the_table_has_then(encrypted: EncryptedSqlCatalog) -> None:
    table = team_table(encrypted, 0)
    sink = tcr.datasink(table, "overwrite")
    encrypted.load_table("db.t").append(team_rows(100))

    ray.data.from_arrow(team_rows(20)).write_datasink(sink)

    assert ids(table.refresh()) == list(range(20, 40))


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_an_upsert_updates_rows_that_differ_and_adds_the_others(encrypted: EncryptedSqlCatalog, mode: str) -> None:
    table = new_table(encrypted, appends=[rows(0), rows(20)], properties={"write.merge.mode": mode})
    before = {row["id"]: row["_row_id"] for row in table.scan(selected_fields=("id", "_row_id")).to_arrow().to_pylist()}
    changed = pa.table({"id": [3, 25, 26, 50, 51], "note": [f"{CANARY} new", f"{CANARY} new", f"{CANARY} 26", CANARY, CANARY]})

    ray.data.from_arrow([changed.slice(0, 2), changed.slice(2)]).write_datasink(tcr.datasink(table, "upsert", keys=["id"]))

    table.refresh()
    after = {row["id"]: row for row in table.scan(selected_fields=("*", "_row_id")).to_arrow().to_pylist()}
    assert len(table.snapshots()) == 3
    assert ids(table) == [*range(40), 50, 51]
    assert [after[each]["note"] for each in (3, 25, 26, 50)] == [f"{CANARY} new", f"{CANARY} new", f"{CANARY} 26", CANARY]
    assert {each: row["_row_id"] for each, row in after.items() if each in before} == before
    assert bool([task for task in table.scan().plan_files() if task.delete_files]) == (mode == "merge-on-read")


def test_an_upsert_of_new_rows_alone_appends(encrypted: EncryptedSqlCatalog) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()), identifier_field_ids=[1])
    table = new_table(encrypted, schema=schema)

    ray.data.from_arrow(rows(0)).write_datasink(tcr.datasink(table, "upsert"))
    ray.data.from_arrow(rows(10)).write_datasink(tcr.datasink(table.refresh(), "upsert"))

    assert ids(table.refresh()) == list(range(30))
    assert [snapshot.summary.operation for snapshot in table.snapshots() if snapshot.summary] == [Operation.APPEND] * 2


@pytest.mark.parametrize("replaces", [True, False])
def test_of_two_upserts_at_once_one_inserts_a_key(encrypted: EncryptedSqlCatalog, tmp_path: Path, replaces: bool) -> None:
    table = new_table(encrypted, appends=[rows(0)])
    first, second = (tcr.datasink(encrypted.load_table("db.t"), "upsert", keys=["id"]) for _ in range(2))
    ray.data.from_arrow(rows(50, 5)).write_datasink(first)
    stored = set(tmp_path.rglob("*.parquet"))
    changed = pa.table({"id": [3, 52], "note": [f"{CANARY} new", CANARY]}) if replaces else rows(52, 1)

    with pytest.raises(ValidationException, match="conflicting files that the upsert is about"):
        ray.data.from_arrow(changed).write_datasink(second)

    assert ids(table.refresh()) == [*range(20), *range(50, 55)]
    assert set(tmp_path.rglob("*.parquet")) == stored


def test_a_key_that_occurs_twice_commits_nothing(encrypted: EncryptedSqlCatalog, tmp_path: Path) -> None:
    table = new_table(encrypted, appends=[rows(0)])
    twice = ray.data.from_arrow([rows(10, 5), rows(14, 5)])

    with pytest.raises(ConfigurationError, match="more than once"):
        twice.write_datasink(tcr.datasink(table, "upsert", keys=["id"]))

    assert len(table.refresh().snapshots()) == 1
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_rows_that_do_not_fit_are_refused_in_one_line_and_leave_no_file(encrypted: EncryptedSqlCatalog, tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()))
    table = new_table(encrypted, schema=schema)
    with_null = ray.data.from_arrow(pa.table({"id": pa.array([1, None], pa.int64()), "note": [CANARY, None]}))

    with pytest.raises(ConfigurationError, match="'id' is required") as raised:
        with_null.write_datasink(tcr.datasink(table))
    assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(ConfigurationError, match="do not fit"):
        ray.data.from_arrow(pa.table({"id": ["a"]})).write_datasink(tcr.datasink(table))
    ray.data.from_items([{"id": 1, "note": None}, {"id": 2, "note": None}]).write_datasink(tcr.datasink(table))

    assert ids(table.refresh()) == [1, 2]
    assert len(list(tmp_path.rglob("*.parquet"))) == len(data_files(table))


def test_an_error_of_the_users_own_code_stays_theirs(encrypted: EncryptedSqlCatalog) -> None:
    table = new_table(encrypted, schema=SCHEMA)

    def fails(row: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError(row["id"])

    with pytest.raises(ray.exceptions.RayTaskError, match="ZeroDivisionError"):
        ray.data.from_arrow(rows(0)).map(fails).write_datasink(tcr.datasink(table))

    assert table.refresh().current_snapshot() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [({"mode": "replace"}, "mode 'replace'"), ({"keys": ["id"]}, "keys go with"), ({"branch": "other"}, "no branch 'other'")],
)
def test_options_that_cannot_be_used_are_refused_at_once(encrypted: EncryptedSqlCatalog, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        tcr.datasink(new_table(encrypted), **options)


def test_what_is_no_encrypted_table_is_refused() -> None:
    no_table: Any = "db.t"
    for call in (tcr.read_table, tcr.datasink):
        with pytest.raises(ConfigurationError, match="takes an encrypted table"):
            call(no_table)


def test_no_rows_append_nothing_and_overwrite_everything(encrypted: EncryptedSqlCatalog) -> None:
    table: EncryptedTable = new_table(encrypted, appends=[rows(0)])
    none = ray.data.from_arrow(rows(0)).filter(lambda row: row["id"] > 1000)

    none.write_datasink(tcr.datasink(table))
    assert len(table.refresh().snapshots()) == 1
    none.write_datasink(tcr.datasink(table, "overwrite"))

    assert ids(table.refresh()) == []


def test_rays_own_ways_with_iceberg_are_refused_with_the_line_to_write(encrypted: EncryptedSqlCatalog, tmp_path: Path) -> None:
    table = new_table(encrypted, appends=[rows(0)])
    before = set(tmp_path.rglob("*"))
    prod = {"name": "prod", "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog", **encrypted.properties}

    with pytest.raises(FormatError, match=r"tablecrypt\.ray\.read_table\(table\)") as reading:
        ray.data.read_iceberg(table_identifier="db.t", catalog_kwargs=prod).take_all()
    with pytest.raises(FormatError, match=r"tablecrypt\.ray\.datasink\(table\)") as writing:
        ray.data.from_arrow(rows(20)).write_iceberg(table_identifier="db.t", catalog_kwargs=prod)

    assert [len(str(raised.value).splitlines()) for raised in (reading, writing)] == [1, 1]
    assert set(tmp_path.rglob("*")) == before
    assert ids(table.refresh()) == list(range(20))
