"""Compaction: the same rows with the same identity in fewer files; what others do meanwhile is kept, or nothing is committed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import CommitTableResponse
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from tablecrypt.errors import ConfigurationError, FormatError, TamperedFileError
from tablecrypt.maintenance import Progress, compact
from tablecrypt.maintenance.runner import FileDone, FileFunction, FileWork, LocalRunner, R, W
from tablecrypt.manifests.records import DATA_FILE_POSITIONS
from tablecrypt.table.deletes import RowDelta
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.listeners import is_done, once
from tests.support.plaintext import CANARY
from tests.support.table_files import TableFiles, delete_by_file
from tests.support.tables import (
    BY_REGION,
    MERGE_ON_READ,
    REGION_SCHEMA,
    current_snapshot,
    encrypted_sql_catalog,
    encrypted_table,
    flip,
    folder_of,
    path_of,
    summary_of,
)
from tests.support.tables import new_table as created

pytestmark = pytest.mark.slow

LINEAGE = ("*", "_row_id", "_last_updated_sequence_number")

NewTable = Callable[..., EncryptedTable]


@pytest.fixture
def new_table(warehouse: Path, aws: AwsServer) -> NewTable:
    def make(spec: PartitionSpec = BY_REGION, appends: int = 6, **properties: str) -> EncryptedTable:
        """Ten rows in each append."""
        content = [rows(10 * number, 10 * number + 10) for number in range(appends)]
        catalog = encrypted_sql_catalog(warehouse, aws)
        everything = {**MERGE_ON_READ, **properties}
        return created(catalog, "db.rows", REGION_SCHEMA, appends=content, partitioned_by=spec, properties=everything)

    return make


def rows(first: int, last: int) -> pa.Table:
    ids = list(range(first, last))
    return pa.table(
        {"id": ids, "region": [f"r{each % 2}" for each in ids], "note": [f"{CANARY} {each}" for each in ids]},
        schema=REGION_SCHEMA.as_arrow(),
    )


def content(table: EncryptedTable, **scan: Any) -> list[dict[str, Any]]:
    """All rows with their identity, in the order of their ids."""
    found: list[dict[str, Any]] = table.refresh().scan(selected_fields=LINEAGE, **scan).to_arrow().sort_by("id").to_pylist()
    return found


def files(table: EncryptedTable) -> list[str]:
    return sorted(task.file.file_path for task in table.refresh().scan().plan_files())


def stored(table: EncryptedTable) -> set[str]:
    return {path.name for path in folder_of(table).rglob("*.parquet")}


def test_files_whose_partition_field_says_nothing_any_more_are_compacted(new_table: NewTable) -> None:
    table = new_table(PartitionSpec(PartitionField(1, 1000, VoidTransform(), "id")), appends=2)
    compacted = compact(table, rewrite_all=True)
    assert (compacted.rewritten_files, compacted.added_files) == (2, 1)
    assert len(content(table)) == 20


def test_short_files_become_one_for_each_partition_and_rows_keep_their_identity(new_table: NewTable) -> None:
    table = new_table()
    before = content(table)
    heard: list[Progress] = []

    done = compact(table, progress=heard.append)

    assert content(table) == before
    assert len(files(table)) == 2
    assert (done.groups, done.rewritten_files, done.added_files, done.removed_delete_files) == (2, 12, 2, 0)
    assert done.rewritten_bytes > done.added_bytes > 0
    summary = summary_of(table)
    assert done.snapshot_ids == (current_snapshot(table).snapshot_id,)
    assert summary.operation == Operation.REPLACE
    assert (summary["total-records"], summary["total-data-files"]) == ("60", "2")
    assert [(each.operation, each.total) for each in heard] == [("compact", 12)] * 2
    assert heard[-1].done == 12


def test_the_table_that_was_compacted_can_be_changed_at_once(new_table: NewTable) -> None:
    table = new_table()

    compact(table)
    table.delete("id < 15")

    assert len(content(table)) == 45


def test_new_files_are_as_old_as_the_snapshot_that_was_read(new_table: NewTable) -> None:
    """So an equality delete that others commit while files are rewritten is younger than the new files, and deletes from them too."""
    table = new_table()
    read = current_snapshot(table.refresh())

    compact(table)

    tasks = list(table.refresh().scan().plan_files())
    assert {task.data_sequence_number for task in tasks} == {read.sequence_number}  # type: ignore[attr-defined]


def test_a_second_compaction_finds_nothing_to_do(new_table: NewTable) -> None:
    table = new_table()
    compact(table)
    before = table.refresh().metadata_location

    done = compact(table)

    assert (done.groups, done.snapshot_ids) == (0, ())
    assert table.refresh().metadata_location == before


def test_deletion_vectors_are_applied_and_go(new_table: NewTable) -> None:
    table = new_table()
    table.delete("id in (3, 4, 25)")
    before = content(table)

    done = compact(table)

    assert content(table) == before
    assert done.removed_delete_files == 3
    assert not any(task.delete_files for task in table.scan().plan_files())
    summary = summary_of(table)
    assert (summary["total-position-deletes"], summary["removed-dvs"]) == ("0", "3")


def test_one_short_file_alone_stays_however_few_are_worth_it(new_table: NewTable) -> None:
    table = new_table(appends=2)

    before = len(files(table))
    assert compact(table, min_input_files=1).rewritten_files == before
    assert compact(table, min_input_files=1).rewritten_files == 0


def test_many_deletes_make_a_partition_worth_it_and_few_do_not(new_table: NewTable) -> None:
    table = new_table(appends=1)
    table.delete("id in (0, 1, 2, 3)")
    before = content(table)

    assert compact(table, delete_ratio=0.5, delete_files=2).groups == 0
    assert compact(table, delete_ratio=0.5, delete_files=1, dry_run=True).rewritten_files == 2
    done = compact(table, delete_ratio=0.4)

    assert content(table) == before
    assert (done.groups, done.rewritten_files, done.removed_delete_files) == (2, 2, 2)


def delete_files(table: EncryptedTable) -> int:
    """How many delete files the newest snapshot's manifests list, used or not."""
    snapshot = current_snapshot(table.refresh())
    manifests = [each for each in snapshot.manifests(table.io) if each.content == ManifestContent.DELETES]
    return sum(len(each.fetch_manifest_entry(table.io, discard_deleted=True)) for each in manifests)


def test_deletes_are_applied_where_that_is_asked_and_the_rules_would_leave_them(new_table: NewTable) -> None:
    """On a table with protected columns `compact(table)` did nothing, and said nothing of the rows that it left."""
    table = new_table(PartitionSpec(), **{"write.target-file-size-bytes": "3000"})
    table.delete("id in (3, 25)")
    before, all_files = content(table), files(table)
    with_deletes = {task.file.file_path for task in table.scan().plan_files() if task.delete_files}
    left = compact(table)
    assert (left.groups, left.left_with_deletes, left.snapshot_ids) == (0, 2, ())

    planned, done = compact(table, apply_deletes=True, dry_run=True), compact(table, apply_deletes=True)

    assert content(table) == before
    assert set(all_files) - set(files(table)) == with_deletes, "other files than those with deletes were rewritten"
    for result in (planned, done):
        assert (result.rewritten_files, result.removed_delete_files, result.left_with_deletes) == (2, 2, 0)
    assert delete_files(table) == 0
    location = table.metadata_location
    assert compact(table, apply_deletes=True).snapshot_ids == ()
    assert table.refresh().metadata_location == location


@pytest.mark.parametrize("kind", ["position", "equality"])
def test_deletes_of_other_engines_are_applied(new_table: NewTable, kind: str) -> None:
    table = new_table(PartitionSpec())
    delete_by_file(table, kind)
    before = content(table)
    with_deletes = {task.file.file_path for task in table.scan().plan_files() if task.delete_files}

    done = compact(table, apply_deletes=True)

    assert content(table) == before
    assert [row["id"] for row in before] == [each for each in range(60) if each not in (3, 25)]
    assert not with_deletes & set(files(table))
    assert (delete_files(table), done.removed_delete_files, done.left_with_deletes) == (0, 1, 0)


def test_position_deletes_of_a_partition_go_with_the_last_group_of_it_that_is_committed(new_table: NewTable) -> None:
    table = new_table(PartitionSpec())
    delete_by_file(table, "position")
    before = content(table)

    done = compact(table, rewrite_all=True, target_file_size=1000, partial_progress=1)

    assert content(table) == before
    assert (done.rewritten_files, len(done.snapshot_ids), done.conflicts) == (6, 6, ())
    assert (delete_files(table), done.removed_delete_files, done.left_with_deletes) == (0, 1, 0)


def test_deletes_are_applied_only_in_files_that_may_match(new_table: NewTable) -> None:
    table = new_table(appends=1)
    table.delete("id in (3, 4)")
    before = content(table)

    done = compact(table, "region = 'r1'", apply_deletes=True)

    assert content(table) == before
    assert (done.rewritten_files, done.removed_delete_files, done.left_with_deletes) == (1, 1, 0)
    assert (delete_files(table), compact(table).left_with_deletes) == (1, 1)


def test_delete_files_that_apply_to_nothing_go_with_apply_deletes(new_table: NewTable) -> None:
    """An equality delete holds the values of the rows that it deletes."""
    table = new_table(PartitionSpec(), appends=2)
    delete_by_file(table, "equality")
    table.delete("id < 100")
    table.append(rows(200, 210))
    before = content(table)
    assert delete_files(table) == 1
    assert compact(table).snapshot_ids == ()

    planned, done = compact(table, apply_deletes=True, dry_run=True), compact(table, apply_deletes=True)

    assert content(table) == before
    assert (planned.removed_delete_files, done.removed_delete_files, done.groups, len(done.snapshot_ids)) == (1, 1, 0, 1)
    assert delete_files(table) == 0


def test_rows_stay_deleted_where_a_branch_is_moved_back_while_their_deletes_go(new_table: NewTable) -> None:
    table = new_table(PartitionSpec(), appends=2)
    delete_by_file(table, "equality")
    deleted = current_snapshot(table.refresh())
    table.delete("id < 10")
    live = [row["id"] for row in content(table, snapshot_id=deleted.snapshot_id)]

    def move_back(other: EncryptedTable) -> None:
        other.manage_snapshots().rollback_to_snapshot(deleted.snapshot_id).commit()

    with pytest.raises(ValidationException, match=r"overtaken: .* came back meanwhile"):
        compact(table, apply_deletes=True, progress=meanwhile(table, move_back))

    assert [row["id"] for row in content(table)] == live == [each for each in range(20) if each != 3]


def test_files_that_are_all_deleted_leave_none(new_table: NewTable) -> None:
    table = new_table(PartitionSpec())
    table.delete("id < 59")
    before = content(table)

    done = compact(table)

    assert content(table) == before
    assert [row["id"] for row in before] == [59]
    assert len(files(table)) == 1
    assert done.conflicts == ()


def test_only_files_that_may_match_are_rewritten(new_table: NewTable) -> None:
    table = new_table()
    before = content(table)

    done = compact(table, "region = 'r1'")

    assert content(table) == before
    assert (done.rewritten_files, done.added_files) == (6, 1)
    assert len(files(table)) == 7


def test_files_of_an_earlier_partitioning_and_schema_become_files_of_today(new_table: NewTable) -> None:
    table = new_table(PartitionSpec())
    with table.update_spec() as change:
        change.add_field("id", BucketTransform(2), "id_bucket")
    with table.update_schema() as evolution:
        evolution.rename_column("note", "comment")
        evolution.add_column("extra", StringType())
        evolution.delete_column("region")
    before = content(table)

    compact(table)

    assert content(table) == before
    assert {task.file.spec_id for task in table.scan().plan_files()} == {table.spec().spec_id}
    assert len(files(table)) == 2


def test_rows_of_a_file_in_another_partition_come_into_their_own(new_table: NewTable) -> None:
    """As a writer's fault may have left them, whose rows no filter of the partition finds."""
    table = new_table(appends=0)
    file = TableFiles(folder_of(table), table.schema(), table.spec()).data_of_others(rows(0, 4))
    file[DATA_FILE_POSITIONS["partition"]] = Record("r0")
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    found = content(table)
    assert len(found) == 4 and content(table, row_filter="region = 'r1'") == []

    compact(table, rewrite_all=True)

    assert content(table) == found
    assert [row["id"] for row in content(table, row_filter="region = 'r1'")] == [1, 3]


def test_a_long_file_is_cut(new_table: NewTable) -> None:
    table = new_table(PartitionSpec(), appends=0, **{"write.parquet.row-group-limit": "500"})
    table.append(rows(0, 20_000))
    before = content(table)
    size = next(iter(table.scan().plan_files())).file.file_size_in_bytes

    done = compact(table, target_file_size=size // 4)

    assert content(table) == before
    assert 3 <= done.added_files <= 8


def test_the_greatest_size_makes_one_file(new_table: NewTable) -> None:
    table = new_table(PartitionSpec(), appends=3)

    assert compact(table, rewrite_all=True, target_file_size=2**63 - 1).added_files == 1


@pytest.mark.parametrize("sort_by", [[], ["id"]], ids=["as they are", "sorted"])
def test_what_was_compacted_is_not_too_short_for_the_next_run(new_table: NewTable, sort_by: list[str]) -> None:
    table = new_table(PartitionSpec(), appends=0)
    # Rows take many times as much memory as bytes in a file.
    columns = {"id": random.Random(7).choices(range(2**40), k=50_000), "region": ["r1"] * 50_000, "note": [CANARY * 4] * 50_000}
    alike = pa.table(columns, schema=REGION_SCHEMA.as_arrow())
    for _ in range(6):
        table.append(alike)

    done = compact(table, target_file_size=1_500_000, sort_by=sort_by)

    assert done.added_files < done.rewritten_files
    assert not compact(table, target_file_size=1_500_000, sort_by=sort_by).rewritten_files


def test_rows_of_a_group_are_sorted(new_table: NewTable) -> None:
    table = new_table(PartitionSpec(), appends=0)
    for first in (40, 0, 20):
        table.append(rows(first, first + 20).sort_by([("id", "descending")]))
    before = content(table)

    table.update_sort_order().asc("region", IdentityTransform(), NullOrder.NULLS_LAST).asc(
        "id", IdentityTransform(), NullOrder.NULLS_LAST
    ).commit()
    compact(table, min_input_files=2, sort_by=["region", "id"])
    assert {task.file.sort_order_id for task in table.refresh().scan().plan_files()} == {table.metadata.default_sort_order_id}
    compact(table, rewrite_all=True, sort_by=["id", "region"])
    assert {task.file.sort_order_id for task in table.refresh().scan().plan_files()} == {None}
    compact(table, rewrite_all=True, sort_by=["region", "id"])

    assert content(table) == before
    in_file = table.scan().to_arrow()
    assert in_file["id"].to_pylist() == in_file.sort_by([("region", "ascending"), ("id", "ascending")])["id"].to_pylist()


def test_a_dry_run_says_what_would_be_done_and_does_nothing(new_table: NewTable) -> None:
    table = new_table()
    table.delete("id = 3")
    location, names = table.refresh().metadata_location, stored(table)

    planned = compact(table, dry_run=True)

    assert (table.refresh().metadata_location, stored(table)) == (location, names)
    done = compact(table)
    assert planned.dry_run and not done.dry_run
    for name in ("groups", "rewritten_files", "rewritten_bytes", "removed_delete_files"):
        assert getattr(planned, name) == getattr(done, name)


def test_a_branch_is_compacted_and_main_is_left(new_table: NewTable) -> None:
    table = new_table()
    head = current_snapshot(table)
    table.manage_snapshots().create_branch(head.snapshot_id, "work").commit()
    table.append(rows(100, 110), branch="work")
    main, before = files(table), table.refresh().scan(selected_fields=LINEAGE).use_ref("work").to_arrow().sort_by("id")

    done = compact(table, branch="work")

    table.refresh()
    assert done.rewritten_files == 14
    assert table.scan(selected_fields=LINEAGE).use_ref("work").to_arrow().sort_by("id") == before
    assert files(table) == main
    assert table.metadata.refs["work"].snapshot_id == done.snapshot_ids[0]


def test_an_empty_table_has_nothing_to_compact(new_table: NewTable) -> None:
    assert compact(new_table(appends=0)).groups == 0


def test_time_travel_still_reads_the_old_files(new_table: NewTable) -> None:
    table = new_table()
    head = current_snapshot(table)
    before = content(table)

    compact(table)

    assert content(table, snapshot_id=head.snapshot_id) == before


def meanwhile(table: EncryptedTable, act: Callable[[EncryptedTable], object]) -> Callable[[Progress], None]:
    """A listener that does something once, between the rewriting and the commit, through another handle on the table."""
    return once(lambda: act(encrypted_table(table.catalog.load_table(table.name()))), is_done)


class LosingCatalog(EncryptedSqlCatalog):
    """One whose answers to commits are lost."""

    def commit_table(self, *arguments: Any) -> CommitTableResponse:
        raise ConnectionError("the answer of the catalog was lost")


class BusyCatalog(EncryptedSqlCatalog):
    """One to which others always commit first."""

    def commit_table(self, *arguments: Any) -> CommitTableResponse:
        raise CommitFailedException("others were faster")


def through(catalog: type[EncryptedSqlCatalog], table: EncryptedTable) -> EncryptedTable:
    """The same table, of another catalog."""
    return encrypted_table(catalog("prod", **table.catalog.properties).load_table(table.name()))


class OvertakenRunner(LocalRunner):
    """Another deletes a row before the first group is done."""

    def run(self, table: EncryptedTable, function: FileFunction[W, R], works: Sequence[FileWork[W]]) -> Iterator[tuple[int, FileDone[R]]]:
        for number, done in enumerate(super().run(table, function, works)):
            if number == 0:
                table.catalog.load_table(table.name()).delete("id = 7")
            yield done


class MiscountingRunner(LocalRunner):
    """Its workers are told of one row more than there is."""

    def run(self, table: EncryptedTable, function: FileFunction[W, R], works: Sequence[FileWork[W]]) -> Iterator[tuple[int, FileDone[R]]]:
        told: list[FileWork[Any]] = [replace(each, work=replace(each.work, live_rows=31)) for each in cast("Any", works)]
        return super().run(table, function, told)


def test_rows_appended_meanwhile_are_kept(new_table: NewTable) -> None:
    table = new_table()
    before = content(table)

    compact(table, progress=meanwhile(table, lambda other: other.append(rows(1000, 1010))))

    after = content(table)
    assert [row["id"] for row in after] == [*range(60), *range(1000, 1010)]
    assert after[:60] == before
    assert len({row["_row_id"] for row in after}) == 70


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_rows_deleted_meanwhile_are_a_conflict_that_loses_nothing(new_table: NewTable, mode: str) -> None:
    table = new_table(**{"write.delete.mode": mode})
    known = stored(table)

    with pytest.raises(ValidationException, match=r"overtaken: (rows of .* were deleted|1 data file was removed) meanwhile"):
        compact(table, progress=meanwhile(table, lambda other: other.delete("id = 7")))

    assert [row["id"] for row in content(table)] == [each for each in range(60) if each != 7]
    assert len(stored(table) - known) == (1 if mode == "copy-on-write" else 0), "files of the compaction are left"


def test_an_equality_delete_committed_meanwhile_deletes_from_the_new_files(new_table: NewTable) -> None:
    table = new_table(PartitionSpec())

    def delete_by_equality(other: EncryptedTable) -> None:
        deletes = TableFiles(folder_of(other), other.schema())
        file = deletes.equality_deletes(pa.table({"id": pa.array([7, 42], pa.int64())}), [1])
        with other.transaction() as transaction:
            transaction.update_snapshot().row_delta(RowDelta(added=[file])).commit()  # type: ignore[attr-defined]

    done = compact(table, progress=meanwhile(table, delete_by_equality))

    assert done.rewritten_files == 6
    assert [row["id"] for row in content(table)] == [each for each in range(60) if each not in (7, 42)]
    assert compact(table).removed_delete_files == 1
    assert [row["id"] for row in content(table)] == [each for each in range(60) if each not in (7, 42)]


def test_a_delete_in_a_file_that_is_not_rewritten_is_no_conflict(new_table: NewTable) -> None:
    table = new_table()

    done = compact(table, "region = 'r0'", progress=meanwhile(table, lambda other: other.delete("id = 7")))

    assert done.added_files == 1
    assert [row["id"] for row in content(table)] == [each for each in range(60) if each != 7]


def test_two_compactions_at_once_do_not_both_land(new_table: NewTable) -> None:
    table = new_table()
    before = content(table)

    with pytest.raises(ValidationException, match=r"overtaken: \d+ data files? w(as|ere) removed meanwhile"):
        compact(table, progress=meanwhile(table, compact))

    assert content(table) == before
    assert len(files(table)) == 2


def test_partial_progress_commits_groups_and_says_which_conflicted(new_table: NewTable) -> None:
    table = new_table()

    done = compact(table, partial_progress=1, runner=OvertakenRunner(1))

    assert len(done.snapshot_ids) == 1
    assert [("were deleted meanwhile" in each) for each in done.conflicts] == [True]
    assert [row["id"] for row in content(table)] == [each for each in range(60) if each != 7]
    assert len(files(table)) == 7


def test_commits_of_partial_progress_follow_each_other(new_table: NewTable) -> None:
    table = new_table()
    table.delete("id in (3, 4)")
    before = content(table)

    done = compact(table, partial_progress=1)

    assert content(table) == before
    assert (len(done.snapshot_ids), done.groups, done.removed_delete_files, done.conflicts) == (2, 2, 2, ())


def test_a_tampered_file_stops_it_and_nothing_is_left(new_table: NewTable) -> None:
    table = new_table()
    victim = path_of(files(table)[3])
    middle = victim.stat().st_size // 2
    flip(victim, middle)
    known, location = stored(table), table.refresh().metadata_location

    with pytest.raises(TamperedFileError, match=victim.name):
        compact(table, workers=1)

    assert stored(table) == known
    assert table.refresh().metadata_location == location
    flip(victim, middle)


def test_a_commit_of_unknown_outcome_deletes_nothing(new_table: NewTable) -> None:
    table = new_table()
    known = stored(table)

    with pytest.raises(ConnectionError):
        compact(through(LosingCatalog, table))

    assert len(stored(table) - known) == 2


def test_a_commit_that_others_always_beat_leaves_nothing(new_table: NewTable) -> None:
    table = new_table(**{"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "2"})
    known = stored(table)

    with pytest.raises(CommitFailedException):
        compact(through(BusyCatalog, table))

    assert stored(table) == known


def test_a_count_that_does_not_fit_the_manifest_is_refused(new_table: NewTable) -> None:
    table = new_table()
    known = stored(table)

    with pytest.raises(FormatError, match="31 rows by their manifests, but 30 were read"):
        compact(table, runner=MiscountingRunner())

    assert stored(table) == known


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target_file_size": 0}, "target_file_size is 0"),
        ({"target_file_size": 2**63}, f"target_file_size is {2**63}; it must be a number of bytes from 1 to {2**63 - 1}"),
        ({"min_input_files": 0}, "min_input_files is 0"),
        ({"delete_ratio": 0}, "delete_ratio is 0"),
        ({"delete_files": 0}, "delete_files is 0"),
        ({"sort_by": ["id", "nothing"]}, "sort_by names 'nothing'"),
        ({"partial_progress": 0}, "partial_progress is 0"),
        ({"workers": 0}, "workers is 0"),
    ],
)
def test_arguments_that_cannot_be_are_refused(new_table: NewTable, arguments: dict[str, Any], message: str) -> None:
    table = new_table(appends=5)

    with pytest.raises(ConfigurationError, match=message):
        compact(table, **arguments)
