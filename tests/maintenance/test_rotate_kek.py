"""rotate_kek: every snapshot opens under the new KEK and none under the old, no file is touched, and no concurrent commit loses its key."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from tablecrypt.errors import KeyNotFoundError
from tablecrypt.maintenance import rotate_kek
from tablecrypt.maintenance._key_commit import commit_keys
from tablecrypt.maintenance._key_rotation import Rotation, plan_rotation
from tablecrypt.maintenance.operation import Counted, no_progress
from tablecrypt.table.updates import removed_keys
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.maintenance.test_prune_keys import expire_as_java
from tests.maintenance.test_rescue import rewritten
from tests.support.aws import AwsServer
from tests.support.tables import (
    MASTER_KEY,
    encrypted_sql_catalog,
    folder_of,
    keks,
    manifest_list_keys,
    metadata_of,
    new_table,
    rows,
    state,
    table_with_history,
)


def files(table: Table) -> dict[Path, int]:
    folder = folder_of(table)
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_every_snapshot_reads_under_the_new_kek_and_the_old_one_is_gone(table: Table) -> None:
    before, old, list_keys = state(table), keks(table), manifest_list_keys(table)

    result = rotate_kek(table)

    (new,) = keks(table)
    assert new.key_id not in {kek.key_id for kek in old}
    assert old[0].encrypted_key_metadata not in metadata_of(table).model_dump_json()
    assert manifest_list_keys(table).keys() == list_keys.keys()
    assert all(key.encrypted_by_id == new.key_id and key != list_keys[key.key_id] for key in manifest_list_keys(table).values())
    assert state(table) == before
    assert result.new_kek == new.key_id
    assert result.old_keks == (old[0].key_id,)
    assert (result.manifest_list_keys, result.pruned) == (4, 0)
    assert json.loads(json.dumps(result.to_json()))["table"] == "db.t"


def test_only_one_metadata_file_is_written(table: Table) -> None:
    before = files(table)

    rotate_kek(table)

    after = files(table)
    assert {path: after[path] for path in before} == before
    (added,) = after.keys() - before.keys()
    assert added.name.endswith(".metadata.json")


def test_a_new_kek_has_the_length_that_the_table_asks_for_now(table: Table, aws: AwsServer) -> None:
    table.transaction().set_properties({"encryption.data-key-length": "32"}).commit_transaction()

    rotate_kek(table)

    (kek,) = keks(table)
    opened = aws.kms.decrypt(KeyId=MASTER_KEY, CiphertextBlob=kek.wrapped_bytes())
    assert len(opened["Plaintext"]) == 32


def test_keys_of_snapshots_that_are_gone_go_too(table: Table) -> None:
    (gone,) = expire_as_java(table, 1)

    assert rotate_kek(table).pruned == 1
    assert gone not in manifest_list_keys(table)


def test_a_table_without_snapshots_has_nothing_to_rotate(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, "db.empty")
    location = table.metadata_location

    result = rotate_kek(table)

    assert (result.new_kek, result.old_keks, result.manifest_list_keys) == (None, (), 0)
    assert table.metadata_location == location


def test_commits_before_and_after_a_rotation_keep_their_keys_whatever_metadata_they_began_with(table: Table) -> None:
    """A writer that loaded the table before the rotation commits after it: it encrypts its snapshot again instead of losing its key."""
    writer = table.catalog.load_table("db.t")
    brancher = table.catalog.load_table("db.t")

    rotate_kek(table)
    writer.append(rows(300))
    brancher.append(rows(400), branch="side")

    assert len(keks(writer.refresh())) == 1
    assert sorted(writer.scan("id >= 300").to_arrow()["id"].to_pylist()) == list(range(300, 320))
    assert writer.scan("id >= 400").use_ref("side").count() == 20
    assert len(state(table)) == 6


def planned_rotation(fresh: Any) -> Rotation:
    return plan_rotation(fresh, fresh.io.manager.new_kek, Counted("rotate_kek", "keys", no_progress))


@pytest.mark.parametrize("branch", ["main", "side", "new"])
def test_a_snapshot_that_comes_in_while_the_rotation_is_planned_is_part_of_it(table: Table, branch: str) -> None:
    other = table.catalog.load_table("db.t")
    came_in: list[str] = []

    def plan_then_be_overtaken(fresh: object) -> object:
        planned = planned_rotation(fresh)
        if not came_in:
            other.append(rows(500), branch=branch)
            came_in.append(branch)
        return planned

    commit_keys(table, plan_then_be_overtaken, sleep=lambda seconds: None)  # type: ignore[type-var]

    (kek,) = keks(table)
    assert {key.encrypted_by_id for key in manifest_list_keys(table).values()} == {kek.key_id}
    assert len(manifest_list_keys(table)) == 5
    assert len(state(table)) == 5


@pytest.mark.parametrize(("least_ms", "waited"), [("100", [0.1, 0.2, 0.4, 0.8]), (str(2**31 - 1), [5.0] * 4)], ids=["usual", "weeks"])
def test_a_rotation_that_others_always_overtake_gives_up_and_changes_nothing(table: Table, least_ms: str, waited: list[float]) -> None:
    table.transaction().set_properties({"commit.retry.min-wait-ms": least_ms}).commit_transaction()
    other = table.catalog.load_table("db.t")
    waits: list[float] = []

    def plan_then_be_overtaken(fresh: object) -> object:
        planned = planned_rotation(fresh)
        other.append(rows(500, 1))
        return planned

    (kek,) = keks(table)
    with pytest.raises(CommitFailedException):
        commit_keys(table, plan_then_be_overtaken, sleep=waits.append, jitter=lambda: 0.0)  # type: ignore[type-var]

    assert waits == waited
    assert keks(table.refresh()) == [kek]


def test_a_table_that_has_lost_a_key_is_not_rotated(table: Table) -> None:
    lost = next(iter(manifest_list_keys(table)))
    registered = rewritten(table, lambda entries: [key for key in entries if key.key_id != lost])

    for dry_run in (True, False):
        with pytest.raises(KeyNotFoundError, match="needs encryption key"):
            rotate_kek(registered, dry_run)


def test_no_plan_can_take_a_key_that_a_snapshot_needs(table: Table) -> None:
    """The rule of every commit holds for these operations too."""

    class Careless:
        updates = removed_keys([next(iter(manifest_list_keys(table)))])

    with pytest.raises(KeyNotFoundError, match="which the metadata would lack after the commit"):
        commit_keys(table, lambda fresh: Careless())
    assert len(state(table)) == 4


def test_rotations_beside_many_writers_lose_no_commit_and_no_key(tmp_path: Path, aws: AwsServer) -> None:
    patient = {"commit.retry.num-retries": "10000", "commit.retry.min-wait-ms": "10", "commit.retry.max-wait-ms": "200"}
    table = table_with_history(encrypted_sql_catalog(tmp_path, aws), "db.t", **patient)

    def write(writer: int) -> None:
        mine = encrypted_sql_catalog(tmp_path, aws).load_table("db.t")
        for commit in range(4):
            mine.append(rows(1000 * (writer + 1) + 10 * commit, 1))

    with ThreadPoolExecutor(3) as threads:
        writers = [threads.submit(write, writer) for writer in range(3)]
        for _ in range(8):
            rotate_kek(table)
        for each in writers:
            each.result()

    rotate_kek(table)
    written = [1000 * (writer + 1) + 10 * commit for writer in range(3) for commit in range(4)]
    assert sorted(table.scan("id >= 1000").to_arrow()["id"].to_pylist()) == sorted(written)
    assert len(state(table)) == 4 + len(written)
    (kek,) = keks(table)
    assert {key.encrypted_by_id for key in manifest_list_keys(table).values()} == {kek.key_id}
