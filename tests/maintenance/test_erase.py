"""erase: one person's rows leave every branch, tag and snapshot, and nothing that any key still opens holds them."""

from __future__ import annotations

import errno
import json
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, UUIDType

from tablecrypt.errors import AuthenticationError, ColumnKeyDeniedError, ConfigurationError
from tablecrypt.maintenance import erase, shred
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile, key_metadata_of, with_key
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited
from tests.support.handwritten_manifests import HandwrittenManifest, commit_by_hand, named_otherwise
from tests.support.listeners import once
from tests.support.plaintext import CANARY
from tests.support.protected_tables import Clients, protected_table
from tests.support.stored_text import readable_text
from tests.support.table_files import TableFiles
from tests.support.tables import (
    MASTER_KEY,
    PARTITION_FOLDERS,
    SHOWN_PARTITIONS,
    contents_below,
    data_files,
    encrypted_sql_catalog,
    flip,
    folder_of,
    metadata_path,
    new_table,
    path_of,
    unpinned_catalog,
)

SCHEMA: Final = Schema(
    NestedField(1, "customer_id", LongType()), NestedField(2, "region", StringType()), NestedField(3, "email", StringType())
)
PERSON: Final = 7
FILTER: Final = f"customer_id = {PERSON}"
SECRET: Final = f"{PERSON:03}@{CANARY}"


def rows(first: int, last: int, region: str = "north") -> pa.Table:
    ids = list(range(first, last))
    return pa.table(
        {"customer_id": ids, "region": [region] * len(ids), "email": [f"{each:03}@{CANARY}" for each in ids]}, schema=SCHEMA.as_arrow()
    )


def people(catalog: Catalog, properties: Mapping[str, str] | None = None, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> Table:
    """Three appends, of which the second holds the person; then an append after it."""
    creation = {"encryption.key-id": MASTER_KEY, **(properties or {})}
    table = catalog.create_table("db.people", SCHEMA, partition_spec=spec, properties=creation)
    table.append(rows(100, 120))
    table.append(rows(0, 20))
    table.append(rows(200, 220))
    return table


def check_nothing_is_left(table: Table, secret: str = SECRET) -> None:
    fresh = table.catalog.load_table(table.name())
    assert not [text for text in readable_text(fresh, folder_of(fresh)) if secret in text]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("deleted_before", [False, True])
def test_one_person_is_erased_and_everybody_else_stays(catalog: Catalog, mode: str, deleted_before: bool) -> None:
    table = people(catalog, {"write.delete.mode": mode})
    everybody = sorted(table.scan().to_arrow()["customer_id"].to_pylist())
    first = table.snapshots()[0].snapshot_id
    if deleted_before:
        table.delete(FILTER)
    assert any(SECRET in text for text in readable_text(table, folder_of(table)))

    erased = erase(table, FILTER)

    assert erased.is_complete, erased
    assert erased.shape == "customer_id = ?"
    assert sorted(table.refresh().scan().to_arrow()["customer_id"].to_pylist()) == [each for each in everybody if each != PERSON]
    assert table.scan(snapshot_id=first).count() == 20
    check_nothing_is_left(table)
    [ref] = erased.refs
    assert (ref.name, ref.kind, ref.rows + ref.hidden_rows) == ("main", "branch", 0 if deleted_before and mode == "copy-on-write" else 1)


def test_a_second_run_finds_nothing_and_writes_nothing(catalog: Catalog) -> None:
    table = people(catalog, {"write.delete.mode": "merge-on-read"})
    assert erase(table, FILTER).is_complete
    before = {path: path.stat().st_mtime_ns for path in folder_of(table).rglob("*")}
    again = erase(table, FILTER)
    assert again.is_complete
    assert again.found_nothing
    assert again.before == again.after
    assert {path: path.stat().st_mtime_ns for path in folder_of(table).rglob("*")} == before


def test_branches_and_tags_lose_the_person_and_keep_the_others(catalog: Catalog) -> None:
    table = people(catalog)
    second = table.snapshots()[1].snapshot_id
    table.manage_snapshots().create_branch(second, "side").create_tag(second, "audit-2024", max_ref_age_ms=10**12).commit()
    table.append(rows(300, 310), branch="side")

    erased = erase(table, FILTER)

    assert erased.is_complete, erased
    assert {(ref.name, ref.kind, ref.rows) for ref in erased.refs} == {
        ("main", "branch", 1),
        ("side", "branch", 1),
        ("audit-2024", "tag", 1),
    }
    refs = table.refresh().metadata.refs
    assert refs.keys() == {"main", "side", "audit-2024"}
    assert refs["audit-2024"].max_ref_age_ms == 10**12
    counts = {name: table.scan().use_ref(name).count() for name in refs}
    assert counts == {"main": 59, "side": 49, "audit-2024": 39}
    check_nothing_is_left(table)


def test_a_tag_gets_no_rows_of_a_branch_that_has_the_name_of_what_a_killed_run_leaves(catalog: Catalog) -> None:
    table = people(catalog)
    second = table.snapshots()[1].snapshot_id
    table.manage_snapshots().create_tag(second, "old").create_branch(second, "tablecrypt-erasing-old").commit()
    table.append(rows(300, 310), branch="tablecrypt-erasing-old")

    assert erase(table, FILTER).is_complete

    assert {name: table.refresh().scan().use_ref(name).count() for name in table.metadata.refs} == {"main": 59, "old": 39}


def test_a_branch_that_is_named_for_a_branch_is_nobodys_and_keeps_its_rows(catalog: Catalog) -> None:
    table = people(catalog)
    own = "tablecrypt-erasing-main"
    table.manage_snapshots().create_branch(table.snapshots()[-1].snapshot_id, own).commit()
    table.append(rows(300, 310), branch=own)

    erased = erase(table, FILTER)

    assert {(ref.name, ref.rows) for ref in erased.refs} == {("main", 1), (own, 1)}
    assert {name: table.refresh().scan().use_ref(name).count() for name in table.metadata.refs} == {"main": 59, own: 69}
    check_nothing_is_left(table)


def test_partition_folders_and_summaries_go_too(tmp_path: Path, aws: AwsServer) -> None:
    by_customer = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "customer_id"))
    table = people(encrypted_sql_catalog(tmp_path, aws, SHOWN_PARTITIONS), SHOWN_PARTITIONS, by_customer)
    assert any(f"customer_id={PERSON}" in str(path) for path in folder_of(table).rglob("*"))
    assert erase(table, FILTER).is_complete
    assert table.refresh().scan().count() == 59
    check_nothing_is_left(table)
    check_nothing_is_left(table, f"customer_id={PERSON}:")
    check_nothing_is_left(table, f"customer_id={PERSON}/")
    check_nothing_is_left(table, f'customer_id={PERSON}"')
    assert not [path for path in folder_of(table).rglob("*") if path.name == f"customer_id={PERSON}"]


def test_a_folder_that_stays_is_said_and_keeps_no_key(tmp_path: Path, aws: AwsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    by_customer = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "customer_id"))
    table = people(encrypted_sql_catalog(tmp_path, aws, SHOWN_PARTITIONS), PARTITION_FOLDERS, by_customer)

    # Of the standard library: only a mount makes a folder busy, and a FileIO knows no folders.
    def busy(folder: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rmdir", busy)
        erased = erase(table, FILTER)
    assert erased.retired_keks
    assert not erased.is_complete
    assert [(location.split("/")[-2], reason) for location, reason in erased.failed.items()] == [
        ("customer_id=?", "OSError: Device or resource busy")
    ]

    assert erase(table, FILTER).is_complete
    assert not [path for path in folder_of(table).rglob("*") if path.name == f"customer_id={PERSON}"]


def test_a_dry_run_counts_and_changes_nothing(catalog: Catalog, tmp_path: Path) -> None:
    table = people(catalog)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()}
    foretold = erase(table, FILTER, dry_run=True)
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()}
    assert foretold.dry_run
    assert not foretold.is_complete
    [ref] = foretold.refs
    assert (ref.rows, ref.rewritten_files) == (1, 1)
    assert foretold.snapshots == tuple(sorted(each.snapshot_id for each in table.snapshots()[1:]))
    done = erase(table, FILTER)
    assert set(foretold.snapshots) <= set(done.snapshots)
    assert set(foretold.deleted) <= set(done.deleted)


def test_what_others_write_meanwhile_is_found_and_the_next_run_ends_it(catalog: Catalog) -> None:
    """A writer appends the person's rows between the rewriting and the last search."""
    table = people(catalog)

    def write() -> None:
        catalog.load_table("db.people").append(rows(PERSON, PERSON + 1))

    erased = erase(table, FILTER, progress=once(write, lambda step: step.operation == "erase: files deleted"))

    assert not erased.is_complete
    assert [reason for reason in erased.remaining.values() if "run the same erasure again" in reason]
    assert erase(table, FILTER).is_complete
    check_nothing_is_left(table)


def test_snapshots_that_were_expired_and_not_shredded_are_searched_and_shredded(catalog: Catalog) -> None:
    table = people(catalog)
    table.delete(FILTER)
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:-1]]).commit()
    assert any(SECRET in text for text in readable_text(table, folder_of(table)))
    erased = erase(table, FILTER)
    assert erased.is_complete, erased
    assert len(erased.snapshots) >= 3
    assert table.refresh().scan().count() == 59
    check_nothing_is_left(table)


def test_staged_rows_of_others_are_not_dropped_in_silence(catalog: Catalog) -> None:
    table = people(catalog)
    table.append(rows(400, 410), snapshot_properties={"wap.id": "load-7"})
    staged = table.snapshots()[-1].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[-2].snapshot_id).commit()
    before = table.metadata_location
    with pytest.raises(ConfigurationError, match=rf"{staged} is staged"):
        erase(table, FILTER)
    assert table.refresh().metadata_location == before


@pytest.mark.parametrize(
    ("row_filter", "message"),
    [
        ("customer_id = 'seven'", "^the filter does not fit db"),
        ("customer_id is 7", "cannot be parsed"),
        (7, "or an expression, and not an int"),
        ("true", "true of every row"),
        ("customer_id is not null", "matches all of its 60 rows"),
    ],
)
def test_a_filter_that_cannot_be_meant_changes_nothing(catalog: Catalog, row_filter: Any, message: str) -> None:
    table = people(catalog)
    before = table.metadata_location
    with pytest.raises(ConfigurationError, match=message) as refused:
        erase(table, row_filter)
    assert "\n" not in str(refused.value)
    assert table.refresh().metadata_location == before


def test_a_table_whose_files_others_use_is_not_erased_from(catalog: Catalog) -> None:
    table = people(catalog, {"gc.enabled": "false"})
    before = table.metadata_location
    with pytest.raises(ConfigurationError, match=r"gc\.enabled"):
        erase(table, FILTER)
    assert table.refresh().metadata_location == before
    assert erase(table, FILTER, dry_run=True).refs[0].rows == 1


def test_no_value_of_a_row_is_in_the_result(catalog: Catalog) -> None:
    table = people(catalog)
    erased = erase(table, f"email = '{SECRET}' or (customer_id in (3, {PERSON}) and not region = 'south')")
    assert erased.shape == "email = ? or (customer_id in (?) and not (region = ?))"
    assert erased.columns == ("customer_id", "region", "email")
    said = json.dumps(erased.to_json())
    assert not [value for value in (SECRET, "south", "north") if value in said]
    assert erased.rows == 2


class TestPrincipals:
    @pytest.mark.parametrize("damage", [lambda path: flip(path, 30), Path.unlink], ids=["it does not authenticate", "it is gone"])
    def test_a_live_file_that_cannot_be_searched_is_listed_and_nothing_is_called_complete(
        self, catalog: Catalog, damage: Callable[[Path], None]
    ) -> None:
        table = people(catalog)
        [other] = [task.file.file_path for task in table.scan("customer_id >= 200").plan_files()]
        damage(path_of(other))
        erased = erase(table, FILTER)
        assert not erased.is_complete
        assert list(erased.not_searched) == [other]
        assert not erased.remaining

    def test_a_manifest_that_was_changed_stops_it_before_anything_changes(self, catalog: Catalog) -> None:
        table = people(catalog)
        flip(path_of(table.snapshots()[0].manifests(table.io)[0].manifest_path), 30)
        before = table.metadata_location
        with pytest.raises(AuthenticationError):
            erase(table, FILTER)
        assert table.refresh().metadata_location == before

    def test_older_metadata_that_names_another_tables_snapshots_deletes_none_of_its_files(self, catalog: Catalog, tmp_path: Path) -> None:
        """Somebody who writes storage adds another table's snapshots, with their keys, to a metadata file beside the table's own."""
        table, victim = people(catalog), catalog.create_table("db.victim", SCHEMA, properties={"encryption.key-id": MASTER_KEY})
        victim.append(rows(0, 20))
        stolen = json.loads(metadata_path(victim).read_bytes())
        stolen |= {"table-uuid": str(table.metadata.table_uuid), "location": table.location()}
        planted = folder_of(table) / "metadata" / "00001-00000000-0000-4000-8000-000000000000.metadata.json"
        planted.write_text(json.dumps(stolen))
        files = contents_below(folder_of(victim))

        erased = erase(table, FILTER)

        assert contents_below(folder_of(victim)) == files
        assert not erased.is_complete
        assert set(erased.refused) & {f"file://{path}" for path in files}
        assert victim.refresh().scan().count() == 20

    def test_a_plaintext_file_that_no_snapshot_names_is_listed(self, catalog: Catalog) -> None:
        table = people(catalog)
        stray = folder_of(table) / "data" / "stray.parquet"
        pq.write_table(pa.table({"customer_id": [PERSON]}), stray)
        try:
            erased = erase(table, FILTER)
        finally:
            stray.unlink()
        assert not erased.is_complete
        assert "plaintext" in erased.not_searched[f"file://{stray}"]
        assert erase(table, FILTER).is_complete

    @pytest.mark.parametrize(
        ("content", "is_named"),
        [
            (b"customer_id,email\n7,x\n", True),
            (b'{"rows": [{"customer_id": 7}]}', True),
            (b'{"format-version": 3, "loc', False),
            (b"", False),
        ],
        ids=["rows", "JSON of no table", "half a file of a commit", "one that was begun"],
    )
    def test_what_has_the_name_of_metadata_and_is_none_was_not_searched(self, catalog: Catalog, content: bytes, is_named: bool) -> None:
        table = people(catalog)
        export = folder_of(table) / "metadata" / "00009-5b0c0000-0000-4000-8000-000000000007.metadata.json"
        export.write_bytes(content)

        erased = erase(table, FILTER)

        assert list(erased.not_searched) == ([f"file://{export}"] if is_named else [])

    @pytest.mark.parametrize(("content", "is_named"), [(b"PFA1 and sketches", True), (b"7,x", True), (b"AGS1 and the rest", False)])
    def test_statistics_that_another_engine_wrote_were_not_searched(
        self, unwatched_warehouse: Path, aws: AwsServer, content: bytes, is_named: bool
    ) -> None:
        table = people(unpinned_catalog(unwatched_warehouse, aws))
        statistics = folder_of(table) / "metadata" / "of-partitions.parquet"
        statistics.write_bytes(content)
        first = table.snapshots()[0].snapshot_id
        entry = {"snapshot-id": first, "statistics-path": f"file://{statistics}", "file-size-in-bytes": len(content)}
        table = edited(table, lambda metadata: metadata.update({"partition-statistics": [entry]}))

        erased = erase(table, FILTER, delete_below=[table.location()])

        assert list(erased.not_searched) == ([f"file://{statistics}"] if is_named else [])
        assert erased.is_complete != is_named
        assert erased.searched.other_files == (not is_named)

    @pytest.mark.parametrize("which", ["data", "list", "metadata"])
    def test_metadata_that_calls_files_of_the_table_statistics_deletes_none_of_them(
        self, unwatched_warehouse: Path, aws: AwsServer, which: str
    ) -> None:
        table = people(unpinned_catalog(unwatched_warehouse, aws))
        first, second = table.snapshots()[:2]
        [data] = [task.file.file_path for task in table.scan("customer_id >= 200").plan_files()]
        called = {"data": data, "list": first.manifest_list, "metadata": str(metadata_path(table))}[which]
        entry = {"snapshot-id": second.snapshot_id, "statistics-path": called, "file-size-in-bytes": 4}
        table = edited(table, lambda metadata: metadata.update({"partition-statistics": [entry]}))

        erase(table, FILTER, delete_below=[table.location()])

        assert path_of(called).exists()
        assert table.refresh().scan().count() == 59
        assert table.scan(snapshot_id=first.snapshot_id).count() == 20

    def test_rows_in_what_somebody_calls_a_deletion_vector_were_not_searched(self, catalog: Catalog) -> None:
        table = people(catalog)
        [held] = [task.file for task in table.scan(FILTER).plan_files()]
        called = path_of(held.file_path).with_name("called-deletes.puffin")
        shutil.copy(path_of(held.file_path), called)
        vector = TableFiles(folder_of(table), table.schema()).deletion_vector("file:///of/no/file.parquet", [3])
        fields = {"file_path": f"file://{called}", "file_size_in_bytes": held.file_size_in_bytes}
        entry = named_otherwise(vector, **fields, key_metadata=key_metadata_of(held).encode(), content_size_in_bytes=40)
        commit_by_hand(table.refresh(), HandwrittenManifest([entry], ManifestContent.DELETES, spec_id=0))

        erased = erase(table, FILTER)

        assert list(erased.not_searched) == [f"file://{called}"]
        assert not erased.is_complete

    def test_older_metadata_without_keys_that_names_the_persons_partition_goes(self, tmp_path: Path, aws: AwsServer) -> None:
        """Such as of a table that was plain once."""
        by_person = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "customer_id"))
        table = people(encrypted_sql_catalog(tmp_path, aws, SHOWN_PARTITIONS), SHOWN_PARTITIONS, by_person)
        plain = json.loads(metadata_path(table).read_bytes())
        of_keys = {"encryption-keys", "next-row-id", "properties"}
        plain = {name: value for name, value in plain.items() if name not in of_keys} | {"format-version": 2, "statistics": []}
        for snapshot in plain["snapshots"]:
            for name in ("key-id", "first-row-id", "added-rows"):
                snapshot.pop(name, None)
        older = metadata_path(table).with_name("00000-5b0c0000-0000-4000-8000-000000000007.metadata.json")
        older.write_text(json.dumps(plain))
        assert f"customer_id={PERSON}" in older.read_text()

        erased = erase(table, FILTER)

        assert erased.is_complete, erased
        assert not [text for text in readable_text(table, folder_of(table)) if f"customer_id={PERSON}" in text]


class TestProtectedColumns:
    """Of a table whose deletes are merge-on-read, as the library sets it where columns have keys of their own."""

    @pytest.fixture
    def hr(self, both: Clients) -> Table:
        table = protected_table(both.payroll)
        table.append(pa.table({"id": [1, 2, 3], "ssn": ["SSN-1", "SSN-2", "SSN-3"], "note": ["a", "b", "c"]}))
        table.append(pa.table({"id": [4], "ssn": ["SSN-4"], "note": ["d"]}))
        return table

    def test_who_may_read_the_columns_erases_a_row_that_was_deleted_before(self, hr: Table) -> None:
        """The first trial of an officer: the row stayed in a live file, behind a deletion vector."""
        hr.delete("id = 3")
        held = {task.file.file_path for task in hr.scan().plan_files()}
        erased = erase(hr, "id = 3", delete_below=[hr.location()])
        assert erased.is_complete, erased
        assert [(ref.rows, ref.hidden_rows, ref.rewritten_files) for ref in erased.refs] == [(0, 1, 1)]
        live = hr.refresh().scan(selected_fields=("id", "ssn")).to_arrow().sort_by("id").to_pylist()
        assert live == [{"id": each, "ssn": f"SSN-{each}"} for each in (1, 2, 4)]
        assert len([location for location in held if not path_of(location).exists()]) == 1
        assert len(hr.snapshots()) == 1

    def test_a_filter_by_a_hidden_column_is_refused_before_anything_changes(self, both: Clients, hr: Table) -> None:
        before = hr.metadata_location
        with pytest.raises(ColumnKeyDeniedError):
            erase(both.analyst.load_table(hr.name()), "ssn = 'SSN-3'", delete_below=[hr.location()])
        assert hr.refresh().metadata_location == before
        assert erase(hr, "ssn = 'SSN-3'", delete_below=[hr.location()]).is_complete

    def test_who_may_not_read_the_columns_takes_out_all_else_and_a_holder_of_the_key_ends_it(self, both: Clients, hr: Table) -> None:
        held = [task.file.file_path for task in hr.scan("id = 3").plan_files()]

        erased = erase(both.analyst.load_table(hr.name()), "id = 3", delete_below=[hr.location()])

        assert not erased.is_complete
        assert not (erased.remaining or erased.not_searched or erased.refused or erased.failed), erased
        assert {(each.column, each.master_key_id, each.files, each.rows) for each in erased.hidden_columns} >= {("ssn", "pii", 1, 1)}
        assert not [location for location in held if path_of(location).exists()]
        others = [{"id": each, "ssn": f"SSN-{each}", "note": note} for each, note in ((1, "a"), (2, "b"), (4, "d"))]
        columns = ("id", "ssn", "note")
        assert hr.refresh().scan(selected_fields=columns).to_arrow().sort_by("id").to_pylist() == others
        again = erase(both.analyst.load_table(hr.name()), "id = 3", delete_below=[hr.location()])
        assert (again.is_complete, again.before) == (False, again.after)

        finished = erase(hr, "id = 3", delete_below=[hr.location()])

        assert finished.is_complete, finished
        assert not list(folder_of(hr).rglob("*-blanked.parquet"))
        assert hr.refresh().scan(selected_fields=columns).to_arrow().sort_by("id").to_pylist() == others


def test_bounds_that_outlived_their_row_are_found_and_go(catalog: Catalog) -> None:
    """Another engine has written a file again and has taken over the statistics of the old one."""
    table = new_table(catalog, "db.people", SCHEMA, appends=[rows(PERSON, 20)])
    [old] = data_files(table)
    table.delete(FILTER)
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as producer:
        [task] = list(table.scan().plan_files())
        producer.delete_data_file(task.file)
        new = with_key(EncryptedDataFile.of(task.file), key_metadata_of(task.file))
        new[DATA_FILE_POSITIONS["lower_bounds"]] = old.lower_bounds
        producer.append_data_file(new)
    others = [each.snapshot_id for each in table.refresh().snapshots()[:-1]]
    shred(table, others)
    assert table.scan().count() == 12

    foretold = erase(table, FILTER, dry_run=True)

    assert any("bounds of it that none of its rows has" in reason for reason in foretold.remaining.values())
    assert erase(table, FILTER).is_complete
    assert table.refresh().scan().count() == 12
    check_nothing_is_left(table, repr(old.lower_bounds[1]))


def test_bounds_in_a_struct_that_outlived_their_row_are_found_and_go(catalog: Catalog) -> None:
    people = [{"id": number, "contact": {"phone": {"number": 1000 + number}}} for number in range(4)]
    table = new_table(catalog, "db.people", appends=[pa.Table.from_pylist(people)])
    [old] = data_files(table)
    table.delete("contact.phone.number = 1000")
    [task] = list(table.scan().plan_files())
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as producer:
        producer.delete_data_file(task.file)
        new = with_key(EncryptedDataFile.of(task.file), key_metadata_of(task.file))
        new[DATA_FILE_POSITIONS["lower_bounds"]] = old.lower_bounds
        producer.append_data_file(new)
    shred(table, [each.snapshot_id for each in table.refresh().snapshots()[:-1]])

    foretold = erase(table, "contact.phone.number = 1000", dry_run=True)
    assert any("bounds of it that none of its rows has" in reason for reason in foretold.remaining.values())
    assert erase(table, "contact.phone.number = 1000").is_complete
    assert table.refresh().scan().to_arrow()["id"].to_pylist() == [1, 2, 3]
    assert all(1000 not in map(_number, (file.lower_bounds or {}).values()) for file in data_files(table))


def test_bounds_of_uuids_that_outlived_their_row_are_found_and_go(catalog: Catalog) -> None:
    """Filters compare a uuid with null alone. Its bounds are values all the same; those of a row that stays are no trace."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "device", UUIDType()))
    table = new_table(catalog, "db.people", schema)
    people = [{"id": number, "device": uuid.UUID(int=number).bytes} for number in (1, 2)]
    table.append(pa.Table.from_pylist(people, schema=table.schema().as_arrow()))
    [old] = data_files(table)
    assert old.lower_bounds[2] == uuid.UUID(int=1).bytes
    row_filter = "device is not null and id = 1"
    table.delete(row_filter)
    [task] = list(table.scan().plan_files())
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as producer:
        producer.delete_data_file(task.file)
        new = with_key(EncryptedDataFile.of(task.file), key_metadata_of(task.file))
        new[DATA_FILE_POSITIONS["lower_bounds"]] = {**task.file.lower_bounds, 2: old.lower_bounds[2]}
        producer.append_data_file(new)
    shred(table, [each.snapshot_id for each in table.refresh().snapshots()[:-1]])

    foretold = erase(table, row_filter, dry_run=True)
    assert any("bounds of it that none of its rows has" in reason for reason in foretold.remaining.values())
    assert erase(table, row_filter).is_complete
    assert [file.lower_bounds[2] for file in data_files(table.refresh())] == [uuid.UUID(int=2).bytes]


def _number(bound: bytes) -> int:
    return int.from_bytes(bound, "little")
