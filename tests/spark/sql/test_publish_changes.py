"""publish_changes and cherrypick_snapshot: what was written under a WAP id reaches the main branch once, or is refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationException
from pyiceberg.table import Table

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import erase, remove_orphan_files, shred
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt.manifests.copied_files import AlreadyAddedError, CopiedFiles, copied_files_of
from tablecrypt.spark.sql.calls import Call
from tablecrypt.spark.sql.procedures import PROCEDURES
from tablecrypt.spark.sql.snapshot_procedures import AlreadyPublishedError
from tablecrypt.table.protection.writing import StaleWriteError
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.transaction import EncryptedTransaction
from tablecrypt.table.updates import SnapshotGoneError
from tests.support.aws import AwsServer
from tests.support.interrupted_catalog import InterruptedCatalog, at_commits, once
from tests.support.plaintext import CANARY
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog, ids

COPIED: Final = CopiedFiles.of(["s3://lake/in/a.parquet"]).fingerprints


def rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "note": [CANARY]})


@pytest.fixture
def table(warehouse: Path, aws: AwsServer) -> Table:
    catalog = InterruptedCatalog("prod", **encrypted_sql_catalog(warehouse, aws).properties)
    table = catalog.create_table("db.t", rows(0).schema, properties={"encryption.key-id": MASTER_KEY, "commit.retry.min-wait-ms": "1"})
    table.append(rows(0))
    return table


def staged(table: Table, number: int, wap_id: str) -> int:
    table.append(rows(number), snapshot_properties={"wap.id": wap_id}, branch=None)
    return table.metadata.snapshots[-1].snapshot_id


def copied(table: Table, number: int, wap_id: str | None = None) -> None:
    """A row that add_files copies from a file, under a WAP id or on the main branch."""
    transaction = cast("EncryptedTransaction", table.refresh().transaction())
    with transaction:
        options = CommitOptions() if wap_id is None else CommitOptions(None, {"wap.id": wap_id})
        producer = transaction.append_producer(options, copied_files=COPIED)
        producer.commit_files(transaction._write(rows(number), producer.commit_uuid, "main"))


def call(table: Table, procedure: str, **arguments: Any) -> list[Any]:
    return list(PROCEDURES[procedure].run(Call(table.catalog, "prod", (), {"table": "db.t", **arguments})))


def _expired(table: Table) -> None:
    expire_snapshots(table, dt.datetime(2100, 1, 1, tzinfo=dt.UTC))


def _shredded(table: Table) -> None:
    shred(table, all_but_heads=True)


@pytest.mark.parametrize("count", [2, 3])
def test_an_id_of_several_snapshots_is_refused_with_their_ids(table: Table, count: int) -> None:
    found = [staged(table, number, "load-7") for number in range(1, 1 + count)]
    staged(table, 9, "load-8")
    before = table.refresh().metadata_location

    with pytest.raises(ConfigurationError, match=f"db.t: {count} snapshots were written with the WAP id load-7") as refused:
        call(table, "publish_changes", wap_id="load-7")

    assert ", ".join(map(str, found)) in str(refused.value) and "\n" not in str(refused.value)
    assert table.refresh().metadata_location == before
    call(table, "publish_changes", wap_id="load-8")
    assert ids(table.refresh()) == [0, 9]


def test_one_of_them_is_picked_by_its_snapshot_and_no_other(table: Table) -> None:
    first, second = staged(table, 1, "load-7"), staged(table, 2, "load-7")
    call(table, "cherrypick_snapshot", snapshot_id=second)
    assert ids(table.refresh()) == [0, 2]
    with pytest.raises(ConfigurationError, match="has these changes already"):
        call(table, "cherrypick_snapshot", snapshot_id=first)
    assert ids(table.refresh()) == [0, 2]


@pytest.mark.parametrize("procedure", ["publish_changes", "cherrypick_snapshot"])
def test_what_another_session_publishes_meanwhile_is_published_once(table: Table, procedure: str) -> None:
    snapshot_id = staged(table, 1, "load-7")
    table.append(rows(5))
    arguments = {"wap_id": "load-7"} if procedure == "publish_changes" else {"snapshot_id": snapshot_id}

    publish_first = once(lambda: call(table, "publish_changes", wap_id="load-7"))
    with at_commits(before=publish_first), pytest.raises(ValidationException, match="has these changes already"):
        call(table, procedure, **arguments)

    assert ids(table.refresh()) == [0, 1, 5]
    assert remove_orphan_files(table, older_than=dt.datetime(2100, 1, 1, tzinfo=dt.UTC)).found == ()
    summaries = [snapshot.summary for snapshot in table.metadata.snapshots]
    assert [summary["published-wap-id"] for summary in summaries if summary is not None].count("load-7") == 1


@pytest.mark.parametrize("procedure", ["publish_changes", "cherrypick_snapshot"])
def test_what_was_published_is_not_published_again_once_the_snapshot_that_says_so_is_erased(table: Table, procedure: str) -> None:
    snapshot_id = staged(table, 1, "load-7")
    table.append(rows(5))
    call(table, "publish_changes", wap_id="load-7")
    table.append(rows(6))
    assert len(erase(table.refresh(), "id = 5").snapshots) > 1

    arguments = {"wap_id": "load-7"} if procedure == "publish_changes" else {"snapshot_id": snapshot_id}
    with pytest.raises(AlreadyPublishedError, match=f"the main branch has files of snapshot {snapshot_id} already"):
        call(table, procedure, **arguments)

    assert ids(table.refresh()) == [0, 1, 6]


@pytest.mark.parametrize("procedure", ["publish_changes", "cherrypick_snapshot"])
@pytest.mark.parametrize("remove", [_expired, _shredded])
def test_what_is_expired_or_shredded_meanwhile_is_not_published(table: Table, procedure: str, remove: Callable[[Table], object]) -> None:
    snapshot_id = staged(table, 1, "load-7")
    table.append(rows(5))
    arguments = {"wap_id": "load-7"} if procedure == "publish_changes" else {"snapshot_id": snapshot_id}

    remove_first = once(lambda: remove(table.catalog.load_table("db.t")))
    with at_commits(before=remove_first), pytest.raises(SnapshotGoneError, match=f"snapshot {snapshot_id} is gone"):
        call(table, procedure, **arguments)

    assert ids(table.refresh()) == [0, 5]


@pytest.mark.parametrize("first", ["another id", "the main branch", "the main branch, meanwhile"])
def test_rows_of_one_file_that_were_written_twice_are_published_once(table: Table, first: str) -> None:
    copied(table, 1, "load-7")
    copied(table, 1, "load-8")
    table.append(rows(5))
    if first == "another id":
        call(table, "publish_changes", wap_id="load-8")
    elif first == "the main branch":
        copied(table, 1)

    meanwhile = once(lambda: copied(table, 1)) if first.endswith("meanwhile") else None
    with at_commits(before=meanwhile), pytest.raises(AlreadyAddedError, match="the main branch has rows of 1 of the files") as refused:
        call(table, "publish_changes", wap_id="load-7")

    assert "\n" not in str(refused.value)
    assert ids(table.refresh()) == [0, 1, 5]


def test_what_was_added_again_on_purpose_is_published_and_remembered(table: Table) -> None:
    copied(table, 1)
    copied(table, 1, "load-7")
    table.append(rows(5))

    call(table, "publish_changes", wap_id="load-7")

    assert ids(table.refresh()) == [0, 1, 1, 5]
    snapshot = table.current_snapshot()
    assert snapshot is not None and copied_files_of(table.io, snapshot.manifests(table.io)) == COPIED


@pytest.mark.parametrize("procedure", ["publish_changes", "cherrypick_snapshot"])
def test_rows_that_were_staged_before_a_column_was_declared_are_not_published_as_if_they_were_younger(
    table: Table, aws: AwsServer, procedure: str
) -> None:
    snapshot_id = staged(table, 1, "load-7")
    table.append(rows(5))
    with table.transaction() as transaction:
        transaction.set_properties({"encryption.column-keys": f"{aws.new_key()}: note"})
    before = table.refresh().metadata_location

    with pytest.raises(StaleWriteError, match="column 'note' was declared protected since the rows were written"):
        call(table, procedure, **({"wap_id": "load-7"} if procedure == "publish_changes" else {"snapshot_id": snapshot_id}))

    assert table.refresh().metadata_location == before
    staged(table, 2, "load-8")
    call(table, "publish_changes", wap_id="load-8")
    assert sorted(ids(table.refresh())) == [0, 2, 5]


@pytest.mark.parametrize("procedure", ["publish_changes", "cherrypick_snapshot"])
def test_rows_that_were_staged_under_a_former_master_key_are_not_published_as_if_they_were_younger(
    table: Table, aws: AwsServer, procedure: str
) -> None:
    def under(key_id: str) -> None:
        with table.refresh().transaction() as transaction:
            transaction.set_properties({"encryption.column-keys": f"{key_id}: note"})

    under(aws.new_key())
    snapshot_id = staged(table, 1, "load-7")
    table.append(rows(5))
    under(aws.new_key())
    before = table.refresh().metadata_location

    with pytest.raises(StaleWriteError, match="column 'note' has come under another master key since the rows were written"):
        call(table, procedure, **({"wap_id": "load-7"} if procedure == "publish_changes" else {"snapshot_id": snapshot_id}))

    assert table.refresh().metadata_location == before
    staged(table, 2, "load-8")
    table.append(rows(6))
    call(table, "publish_changes", wap_id="load-8")
    assert sorted(ids(table.refresh())) == [0, 2, 5, 6]
    assert table.scan().to_arrow()["note"].to_pylist() == [CANARY] * 4
