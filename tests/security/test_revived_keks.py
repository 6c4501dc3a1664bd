"""Somebody who can write metadata.json puts a retired KEK, or another table's, among a table's keys: nothing new is wrapped under it."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from tablecrypt.errors import AuthenticationError, FormatError, TamperedFileError
from tablecrypt.maintenance import audit, prune_keys, rewrap, rotate_kek
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited, read_metadata
from tests.support.tables import SCHEMA, keks, manifest_list_keys, rows, state, table_with_history, unpinned_catalog

YEAR_2200 = "7258118400000"
ENDLESS = {"properties": {"KEY_TIMESTAMP": "9" * 5000}}


@pytest.fixture
def table(tmp_path: Path, aws: AwsServer) -> Table:
    return table_with_history(unpinned_catalog(tmp_path, aws), "db.t")


def revive(table: Table, retired: dict[str, Any], timestamp: str | None = None, key_id: str | None = None) -> Table:
    entry = {**retired, "key-id": key_id or retired["key-id"], "properties": {"KEY_TIMESTAMP": timestamp or _now()}}
    return edited(table, lambda metadata: metadata.setdefault("encryption-keys", []).append(entry))


def _now() -> str:
    return str(time.time_ns() // 10**6)


def _kek(table: Table) -> dict[str, Any]:
    return next(dict(key) for key in read_metadata(table)["encryption-keys"] if "properties" in key)


def rotated(table: Table) -> dict[str, Any]:
    """Rotate a table's KEK, and return the entry of the one that is retired."""
    (retired,) = [key for key in read_metadata(table)["encryption-keys"] if "properties" in key]
    rotate_kek(table)
    return dict(retired)


def found(table: Table) -> dict[str, str]:
    (result,) = audit(table).tables
    return {finding.where: finding.kind.code for finding in result.findings if finding.kind.code.startswith("kek-")}


@pytest.mark.parametrize("timestamp", [YEAR_2200, None], ids=["in the year 2200", "made now"])
@pytest.mark.parametrize("branch", ["main", "side", "new"])
def test_a_retired_kek_that_is_put_back_wraps_no_new_commit(table: Table, timestamp: str | None, branch: str) -> None:
    retired = rotated(table)
    (current,) = keks(table)
    revived = revive(table, retired, timestamp)
    before = set(manifest_list_keys(revived))

    revived.append(rows(300), branch=branch)

    new = [key for key_id, key in manifest_list_keys(revived).items() if key_id not in before]
    assert [key.encrypted_by_id for key in new] == [current.key_id]
    assert len(state(revived)) == 5


def test_the_first_commit_of_a_table_makes_a_kek_of_its_own(table: Table, tmp_path: Path) -> None:
    empty = table.catalog.create_table("db.empty", SCHEMA, properties=table.properties)
    foreign = {**read_metadata(table)["encryption-keys"][0]}
    revived = revive(empty, foreign)
    revived.append(rows(0))
    (list_key,) = manifest_list_keys(revived).values()
    assert list_key.encrypted_by_id not in {foreign["key-id"], None}
    assert revived.scan().to_arrow().num_rows == 20


def test_a_head_that_is_pointed_at_a_revived_kek_stops_the_commit(table: Table) -> None:
    retired = rotated(table)
    head = table.current_snapshot()
    assert head is not None

    def point(metadata: dict[str, Any]) -> None:
        retired["properties"] = {"KEY_TIMESTAMP": YEAR_2200}
        metadata["encryption-keys"].append(retired)
        for key in metadata["encryption-keys"]:
            if key["key-id"] == head.key_id:  # type: ignore[attr-defined]
                key["encrypted-by-id"] = retired["key-id"]

    pointed = edited(table, point)
    with pytest.raises(AuthenticationError, match="does not open under KEK"):
        pointed.append(rows(300))


def test_an_audit_names_keks_from_the_future_and_those_that_no_snapshot_needs(table: Table) -> None:
    retired = rotated(table)
    assert found(table) == {}
    revived = revive(table, retired, YEAR_2200, "future")
    revived = revive(revived, retired, None, "unused")
    assert found(revived) == {"future": "kek-ahead", "unused": "kek-unused"}
    prune_keys(revived)
    assert found(revived) == {}


def test_an_old_kek_that_still_opens_snapshots_is_reported_as_retired(table: Table) -> None:
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=731)
    (result,) = audit(table, now=later).tables
    assert "kek-retired" in {finding.kind.code for finding in result.findings}


def test_a_timestamp_of_five_thousand_digits_is_a_format_error_and_stops_no_audit(table: Table) -> None:
    unneeded = edited(table, lambda metadata: metadata["encryption-keys"].append({**_kek(table), "key-id": "unneeded", **ENDLESS}))
    unneeded.append(rows(300))
    (result,) = audit(unneeded).tables
    assert "KEY_TIMESTAMP" in next(finding.message for finding in result.findings if finding.where == "unneeded")
    with pytest.raises(FormatError, match="KEY_TIMESTAMP"):
        edited(unneeded, lambda metadata: metadata["encryption-keys"][0].update(ENDLESS))


@pytest.fixture
def two_tables(tmp_path: Path, aws: AwsServer) -> tuple[Table, Table, str]:
    """A table of few readers under a master key of its own, one of many readers, and the first one's master key."""
    catalog, secret_key, open_key = unpinned_catalog(tmp_path, aws), aws.new_key(), aws.new_key()
    return table_with_history(catalog, "db.secret", secret_key), table_with_history(catalog, "db.open", open_key), secret_key


def _moved(entry: dict[str, Any], master_key: str) -> dict[str, Any]:
    return {**entry, "encrypted-by-id": master_key} if "properties" in entry else entry


def test_another_tables_kek_among_the_keys_is_left_as_it_is(two_tables: tuple[Table, Table, str], aws: AwsServer) -> None:
    secret, table, secret_key = two_tables
    (stolen,) = keks(secret)
    own_key = table.properties["encryption.key-id"]
    foreign = _moved(stolen.model_dump(mode="json", by_alias=True, exclude_none=True), own_key)
    planted = edited(table, lambda metadata: metadata["encryption-keys"].append(foreign))

    result = rewrap(planted, from_key_id=secret_key)

    assert result.unneeded == (stolen.key_id,)
    assert stolen.key_id not in result.keks
    kept = next(kek for kek in keks(planted) if kek.key_id == stolen.key_id)
    assert kept.encrypted_key_metadata == stolen.encrypted_key_metadata


def test_another_tables_whole_snapshot_does_not_make_its_kek_this_tables(two_tables: tuple[Table, Table, str]) -> None:
    """Its manifest-list key does open under its KEK, and its manifest list under that."""
    secret, table, secret_key = two_tables
    own_key, theirs = table.properties["encryption.key-id"], read_metadata(secret)

    def plant(metadata: dict[str, Any]) -> None:
        metadata["encryption-keys"] += [_moved(key, own_key) for key in theirs["encryption-keys"]]
        metadata["snapshots"] += theirs["snapshots"]
        metadata["refs"]["planted"] = {"snapshot-id": theirs["current-snapshot-id"], "type": "branch"}

    planted = edited(table, plant)
    location = planted.metadata_location
    with pytest.raises(AuthenticationError, match="it is not rewrapped"):
        rewrap(planted, from_key_id=secret_key, manifests_below=[table.location()])
    assert planted.refresh().metadata_location == location


def test_a_parent_that_metadata_invents_makes_no_ancestor(two_tables: tuple[Table, Table, str]) -> None:
    secret, table, secret_key = two_tables
    own_key, theirs = table.properties["encryption.key-id"], read_metadata(secret)

    def plant(metadata: dict[str, Any]) -> None:
        metadata["encryption-keys"] += [_moved(key, own_key) for key in theirs["encryption-keys"]]
        metadata["snapshots"] += theirs["snapshots"]
        for snapshot in metadata["snapshots"]:
            if snapshot["snapshot-id"] == metadata["current-snapshot-id"]:
                snapshot["parent-snapshot-id"] = theirs["current-snapshot-id"]

    planted = edited(table, plant)
    with pytest.raises((AuthenticationError, TamperedFileError), match="it is not rewrapped"):
        rewrap(planted, from_key_id=secret_key, manifests_below=[table.location()])
