"""A table remembers which files its rows were copied from, as long as it has rows of them, and where only who has its key reads it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table.snapshots import Operation

from tablecrypt import maintenance
from tablecrypt.errors import FormatError
from tablecrypt.manifests.copied_files import (
    HEADER_FIELD,
    AlreadyAddedError,
    CopiedFiles,
    copied_files_of,
    fingerprint,
    fingerprints_in,
    header_field,
)
from tablecrypt.manifests.manifest_file import EncryptedManifestFile, read_manifest_header, remembers_files
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.table.replace_files import EncryptedManifestRewrite
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction
from tests.support.plaintext import CANARY
from tests.support.tables import folder_of, new_table

SOURCES: Final = ("s3a://lake/in/a.parquet", "s3a://lake/in/b.parquet")
Change = Callable[[EncryptedTable], object]


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [CANARY] * len(ids)})


@pytest.fixture
def table(catalog: SqlCatalog) -> EncryptedTable:
    return new_table(catalog, schema=rows(1).schema)


def stage_copy(transaction: EncryptedTransaction, sources: Iterable[str], *ids: int, is_checked: bool = True) -> None:
    copied = CopiedFiles.of(sources, is_checked)
    transaction.check_each_base(lambda metadata: copied.check(transaction.table.io, metadata, "main"))
    files = transaction._write(rows(*ids), transaction.update_snapshot().fast_append().commit_uuid, "main")
    transaction.append_producer(CommitOptions(), copied_files=copied.fingerprints).commit_files(files)


def copy(table: EncryptedTable, sources: Iterable[str], *ids: int, is_checked: bool = True) -> None:
    table.refresh()
    with table.transaction() as transaction:
        stage_copy(cast("EncryptedTransaction", transaction), sources, *ids, is_checked=is_checked)


def remembered(table: EncryptedTable) -> frozenset[bytes]:
    snapshot = table.refresh().current_snapshot()
    return copied_files_of(table.io, snapshot.manifests(table.io)) if snapshot is not None else frozenset()


def rewrite_manifests(table: EncryptedTable, target_size: int = 8_000_000) -> None:
    with table.transaction() as transaction:
        updating = cast("EncryptedTransaction", transaction).update_snapshot()
        updating.producer(EncryptedManifestRewrite, Operation.REPLACE, target_size=target_size).commit()


def test_a_file_is_copied_once(table: EncryptedTable) -> None:
    copy(table, SOURCES, 1, 2)
    with pytest.raises(AlreadyAddedError, match=r"has rows of 1 of the source's files already: s3://lake/in/b\.parquet;") as raised:
        copy(table, ["s3://lake/in/b.parquet", "s3://lake/in/c.parquet"], 3)
    assert isinstance(raised.value, ValueError)
    assert table.refresh().scan().count() == 2

    copy(table, ["s3://lake/in/c.parquet"], 3)
    copy(table, SOURCES, 1, 2, is_checked=False)
    assert table.refresh().scan().count() == 5
    assert remembered(table) == {fingerprint(each) for each in (*SOURCES, "s3n://lake/in/c.parquet")}


def test_two_copies_at_once_do_not_both_commit(catalog: SqlCatalog, table: EncryptedTable) -> None:
    first, second = (EncryptedTransaction(catalog.load_table("db.t")) for _ in range(2))
    stage_copy(first, SOURCES, 1, 2)
    stage_copy(second, SOURCES[1:], 2)
    first.commit_transaction()
    with pytest.raises(AlreadyAddedError, match="already"):
        second.commit_transaction()
    assert table.refresh().scan().count() == 2
    assert len(table.metadata.snapshots) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.append(rows(7)),
        lambda table: table.delete("id = 1"),
        lambda table: table.upsert(rows(1, 2).set_column(1, "text", pa.array([f"{CANARY} again"] * 2)), join_cols=["id"]),
        maintenance.compact,
        maintenance.reencrypt,
        rewrite_manifests,
    ],
    ids=["append", "delete", "upsert", "compact", "reencrypt", "rewrite manifests"],
)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("merges", ["true", "false"])
def test_files_are_remembered_while_there_are_rows_of_them(table: EncryptedTable, change: Change, merges: str, mode: str) -> None:
    properties = {"commit.manifest-merge.enabled": merges, "commit.manifest.min-count-to-merge": "2", "write.delete.mode": mode}
    table.transaction().set_properties({**properties, "write.merge.mode": mode, "write.update.mode": mode}).commit_transaction()
    table.append(rows(10))
    copy(table, SOURCES, 1, 2)
    copy(table, ["s3://lake/in/c.parquet"], 3)
    known = remembered(table)
    assert len(known) == 3
    table.append(rows(11))
    table.refresh()
    change(table)
    assert remembered(table) == known
    maintenance.verify(table.refresh())


def test_an_encrypted_file_is_not_added_by_two_at_once(catalog: SqlCatalog, table: EncryptedTable, tmp_path: Path) -> None:
    other = new_table(catalog, "db.other", appends=[rows(1, 2)])
    [task] = other.scan().plan_files()
    keys = {task.file.file_path: key_metadata_of(task.file)}
    first, second = (EncryptedTransaction(catalog.load_table("db.t")) for _ in range(2))
    for each in (first, second):
        each.add_files([task.file.file_path], key_metadata=keys)
    first.commit_transaction()
    with pytest.raises(AlreadyAddedError, match="already referenced"):
        second.commit_transaction()
    table.refresh()
    assert table.scan().count() == 2

    with pytest.raises(ValueError, match="already referenced"):
        table.add_files([task.file.file_path], key_metadata=keys)
    table.add_files([task.file.file_path], key_metadata=keys, check_duplicate_files=False)
    assert table.scan().count() == 4


def test_files_are_forgotten_with_the_last_of_their_rows(table: EncryptedTable) -> None:
    table.append(rows(10))
    copy(table, SOURCES, 1, 2)
    table.refresh().delete("id < 3")
    assert remembered(table) == frozenset()
    copy(table, SOURCES, 1, 2)
    table.refresh().overwrite(rows(5))
    assert remembered(table) == frozenset()
    copy(table, SOURCES, 1, 2)
    assert table.refresh().scan().count() == 3


@pytest.mark.parametrize(("others", "last"), [("2, 3, 4, 5, 6", 1), ("1, 2, 4, 5, 6", 3)])
@pytest.mark.parametrize("way", ["one manifest for each file", "one file is rewritten", "others are merged"])
def test_files_are_remembered_while_there_is_one_row_of_them(table: EncryptedTable, way: str, others: str, last: int) -> None:
    if way == "others are merged":
        properties = {"commit.manifest.min-count-to-merge": "2", "commit.manifest.target-size-bytes": "1"}
        table.transaction().set_properties(properties).commit_transaction()
    copy(table, SOURCES, 1, 6)
    table.refresh().append(rows(2, 4))
    copy(table, SOURCES, 3, is_checked=False)
    table.refresh()
    if way == "one manifest for each file":
        rewrite_manifests(table, 1)
        assert len(table.refresh().metadata.snapshots[-1].manifests(table.io)) == 3
    elif way == "one file is rewritten":
        rewrite_manifests(table)
        table.refresh().delete("id = 6")
    else:
        table.refresh().append(rows(5))
    known = {fingerprint(each) for each in SOURCES}
    assert remembered(table) == known

    table.refresh().delete(f"id in ({others})")
    assert remembered(table) == known
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [last]
    table.refresh().delete(f"id = {last}")
    assert remembered(table) == frozenset()


def test_a_copy_on_another_branch_says_nothing_of_this_one(table: EncryptedTable) -> None:
    table.append(rows(10))
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, "other").commit()
    copy(table, SOURCES, 1, 2)
    CopiedFiles.of(SOURCES).check(table.io, table.refresh().metadata, "other")
    with pytest.raises(AlreadyAddedError):
        CopiedFiles.of(SOURCES).check(table.io, table.metadata, "main")


def test_no_file_of_the_table_shows_what_was_copied(table: EncryptedTable) -> None:
    copy(table, SOURCES, 1, 2)
    wanted = [part for each in SOURCES for part in (each.encode(), fingerprint(each), base64.b64encode(fingerprint(each))[:20])]
    for path in folder_of(table).rglob("*"):
        assert not path.is_file() or not any(part in path.read_bytes() for part in wanted)


def test_a_copied_table_remembers_too(catalog: SqlCatalog, table: EncryptedTable, warehouse: Path) -> None:
    copy(table, SOURCES, 1, 2)
    copied = maintenance.relocate(table.refresh(), f"file://{warehouse}/moved")
    moved = catalog.register_table("db.moved", copied.metadata_location)
    assert remembered(moved) == remembered(table)  # type: ignore[arg-type]
    assert moved.scan().count() == 2


def test_a_very_long_header_is_read(table: EncryptedTable) -> None:
    copy(table, [f"s3://lake/in/{number}.parquet" for number in range(60_000)], 1, 2)
    assert len(remembered(table)) == 60_000
    assert table.refresh().scan(row_filter=AlwaysTrue()).to_arrow().num_rows == 2
    [manifest] = table.metadata.snapshots[-1].manifests(table.io)
    assert remembers_files(manifest)
    row = EncryptedManifestFile.of(manifest)
    assert len(read_manifest_header(table.io, row.manifest_path, row.open_key_metadata())[HEADER_FIELD]) > 1024 * 1024


@pytest.mark.parametrize("value", ["%", "AAAA", base64.b64encode(bytes(17)).decode()])
def test_a_header_that_is_no_list_of_fingerprints_is_refused(value: str) -> None:
    with pytest.raises(FormatError, match="m0"):
        fingerprints_in({HEADER_FIELD: value}, "m0.avro")


def test_a_header_says_what_was_put_into_it() -> None:
    known = {fingerprint(each) for each in SOURCES}
    assert fingerprints_in(header_field(known), "m0.avro") == known
    assert header_field(()) == {}
    assert fingerprint("file:/tmp/a") == fingerprint("file:///tmp/a") != fingerprint("file:///tmp/b")
