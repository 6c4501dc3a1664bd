"""Partition specs from before a column was protected: their values leave names, manifests and summaries, and an audit tells until then.

The careless user partitions by a column, finds out, drops the partition field, declares the column, and does what the manual says. The
adversary has the table's key, or nothing but the storage.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform

from tablecrypt import maintenance as m
from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError
from tablecrypt.maintenance._audit.columns import partition_findings
from tablecrypt.maintenance.reachable import FileKind, ReachableFile
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.table.deletes import RowDelta
from tablecrypt.table.protection.exposed_values import ShownPartitions
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO
from tests.support.interrupted_catalog import InterruptedCatalog, at_commits
from tests.support.protected_tables import COLUMN_KEY, SSN, Clients, clients, declare, loaded, protected_table, table_of_people, write_only
from tests.support.restricting_server import RestrictingServer
from tests.support.stored_text import readable_text
from tests.support.table_files import TableFiles
from tests.support.tables import MERGE_ON_READ, PARTITION_FOLDERS, SHOWN_PARTITIONS, data_files, folder_of, metadata_of

VALUES: Final = ("HIVPOSITIVE", "INFLUENZA", "MEASLES")


def _rows(*numbers: int) -> pa.Table:
    rows = [
        {"id": number, "ssn": VALUES[number % 3], "person": {"email": VALUES[number % 3].lower(), "age": number}, "note": f"n{number % 2}"}
        for number in numbers
    ]
    return table_of_people(rows)


def _state(table: EncryptedTable, **scan: Any) -> list[dict[str, Any]]:
    fields = ("id", "ssn", "person", "note", "_row_id", "_last_updated_sequence_number")
    return sorted(table.refresh().scan(selected_fields=fields, **scan).to_arrow().to_pylist(), key=lambda row: int(row["id"]))


def _partitioned(both: Clients, source: str = "ssn", transform: Any = None, **properties: str) -> EncryptedTable:
    """A table of two files for each of its partitions, by a column that is not protected yet."""
    table = protected_table(both.payroll, **{"encryption.column-keys": "", **PARTITION_FOLDERS, **properties})
    with table.update_spec() as update:
        update.add_field(source, transform or IdentityTransform(), "shown")
    table.append(_rows(*range(6)))
    table.append(_rows(*range(6, 9)))
    return table


def _delete_as_others_do(table: EncryptedTable, kind: str, **values: list[Any]) -> None:
    """Delete id 2 from the file of its partition: by values, or by position in a file that names the data file, as in format version 2."""
    folder = folder_of(table) / "data" / "shown=MEASLES" / str(len(table.refresh().snapshots()))
    folder.mkdir(parents=True)
    files = TableFiles(folder, table.schema())
    files.metadata = table.metadata
    (task,) = table.scan("id = 2 and ssn = 'MEASLES'").plan_files()
    if kind == "position":
        file = files.position_deletes([(task.file.file_path, 0)], partition=task.file.partition)
    else:
        compared = pa.table(values, pa.schema([(name, {"id": pa.int64(), "ssn": pa.string()}[name]) for name in values]))
        ids = [table.schema().find_field(name).field_id for name in values]
        file = files.equality_deletes(compared, ids, partition=task.file.partition)
    with table.transaction() as transaction:
        transaction.update_snapshot().row_delta(RowDelta(added=[file])).commit()  # type: ignore[attr-defined]


def _declare(table: EncryptedTable, columns: str = "ssn, person.email") -> None:
    with table.update_spec() as update:
        for field in table.spec().fields:
            update.remove_field(field.name)
    declare(table, f"{COLUMN_KEY}: {columns}")


def _shown(both: Clients, table: EncryptedTable) -> list[m.Finding]:
    (audited,) = m.audit(loaded(both.analyst)).tables
    return [finding for finding in audited.findings if finding.kind == m.FindingKind.COLUMN_IN_PARTITIONS]


def _specs(table: EncryptedTable) -> set[int]:
    return {file.spec_id for file in data_files(table.refresh())}


def _live_text(table: EncryptedTable) -> Iterator[str]:
    """What the current metadata leads to: paths, entries with deleted ones, and summaries of lists and snapshots."""
    metadata = metadata_of(table.refresh())
    for snapshot in metadata.snapshots:
        yield snapshot.model_dump_json()
        for manifest in snapshot.manifests(table.io):
            yield repr(manifest.partitions)
            yield from (repr(entry.data_file) for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False))


def _vector_footers(table: EncryptedTable) -> Iterator[str]:
    io = cast("TableFileIO", table.refresh().io)
    for file in (file for task in table.scan().plan_files() for file in task.delete_files):
        with io.decrypting_input(file.file_path, key_metadata_of(file)).open() as puffin:
            yield puffin.read().decode("latin-1")


@pytest.fixture
def both(tmp_path: Path) -> Clients:
    return clients(tmp_path, SHOWN_PARTITIONS)


@pytest.mark.parametrize("out_of_line", [True, False], ids=["out of line", "all files"])
def test_no_stored_text_has_a_value_once_files_are_reencrypted_and_old_snapshots_shredded(both: Clients, *, out_of_line: bool) -> None:
    table = _partitioned(both)
    before = _state(table)
    _declare(table)
    assert any(value in text for value in VALUES for text in readable_text(loaded(both.analyst), folder_of(table)))

    done = m.reencrypt(table, out_of_line=out_of_line)
    assert (done.in_line, _specs(table), _state(table)) == (6, {table.spec().spec_id}, before)
    old = {str(path) for path in folder_of(table).rglob("shown=*/*")}
    m.shred(table, all_but_heads=True)

    named = "\n".join(_live_text(table))
    assert not [value for value in VALUES if value.lower() in named.lower() or "shown=" in named]
    # Shredding deletes no data file: orphans are for remove_orphan_files, or for the store.
    for path in old:
        Path(path).unlink(missing_ok=True)
    for folder in sorted(folder_of(table).rglob("shown=*")):
        folder.rmdir()
    texts = list(readable_text(loaded(both.analyst), folder_of(table)))
    assert not [value for value in VALUES for text in texts if value in text or value.lower() in text]
    assert _shown(both, table) == []
    assert _state(table) == before


def test_summaries_of_the_snapshots_that_move_files_name_no_old_partition(both: Clients) -> None:
    table = _partitioned(both, **{"write.summary.partition-limit": "100"})
    _declare(table)
    assert "HIVPOSITIVE" in "".join(snapshot.model_dump_json() for snapshot in metadata_of(table).snapshots)
    m.reencrypt(table, out_of_line=True)
    m.shred(table, all_but_heads=True)
    assert not [text for text in _live_text(table) if "HIV" in text]


OPERATIONS: Final[dict[str, Callable[[EncryptedTable], object]]] = {
    "delete of a file": lambda table: table.delete("id < 20"),
    "delete of a row": lambda table: table.delete("id = 1"),
    "overwrite": lambda table: table.overwrite(_rows(20), "id = 1"),
    "compact": lambda table: m.compact(table, rewrite_all=True),
    "reencrypt": lambda table: m.reencrypt(table, out_of_line=True),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_no_summary_that_is_written_once_the_column_is_protected_names_an_old_partition(both: Clients, operation: str, mode: str) -> None:
    properties = {"write.summary.partition-limit": "100", "write.delete.mode": mode}
    table = _partitioned(both, **properties)
    _declare(table)
    before = {snapshot.snapshot_id for snapshot in table.refresh().snapshots()}

    OPERATIONS[operation](table)

    written = [snapshot.model_dump_json() for snapshot in table.refresh().snapshots() if snapshot.snapshot_id not in before]
    assert written
    assert not [text for text in written for value in VALUES if value in text]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("operation", ["delete of a file", "delete of a row"])
def test_nor_does_that_of_a_writer_who_had_loaded_the_table_before(both: Clients, operation: str, mode: str) -> None:
    table = _partitioned(both, **{"write.summary.partition-limit": "100", "write.delete.mode": mode})
    stale = loaded(both.payroll)
    _declare(table)

    OPERATIONS[operation](stale)

    [snapshot] = table.refresh().snapshots()[2:]
    assert not [value for value in VALUES if value in snapshot.model_dump_json()]
    assert table.scan().count() == (0 if operation == "delete of a file" else 8)


def test_partitions_by_other_columns_are_still_summed_up(both: Clients) -> None:
    table = _partitioned(both, "note", **{"write.summary.partition-limit": "100"})
    declare(table, f"{COLUMN_KEY}: ssn")

    table.refresh().append(_rows(20))

    assert "partitions.shown=n0" in metadata_of(table).snapshots[-1].model_dump_json()


@pytest.mark.parametrize(
    ("source", "transform", "columns"),
    [
        ("ssn", BucketTransform(4), "ssn"),
        ("ssn", TruncateTransform(3), "ssn"),
        ("person.email", IdentityTransform(), "person.email"),
        ("person.email", IdentityTransform(), "person"),
    ],
    ids=["bucket", "truncate", "nested", "within"],
)
def test_every_transform_and_nested_sources_count(both: Clients, source: str, transform: Any, columns: str) -> None:
    table = _partitioned(both, source, transform)
    before = _state(table)
    _declare(table, columns)
    assert _shown(both, table)

    m.reencrypt(table, out_of_line=True)
    m.shred(table, all_but_heads=True)
    assert (_specs(table), _state(table), _shown(both, table)) == ({table.spec().spec_id}, before, [])
    assert not [text for text in _live_text(table) if "shown=" in text]


def test_two_specs_in_turn_and_a_partition_by_another_column(both: Clients) -> None:
    table = _partitioned(both)
    with table.update_spec() as update:
        update.remove_field("shown")
        update.add_field("ssn", TruncateTransform(2), "prefix")
    table.append(_rows(9, 10, 11))
    with table.update_spec() as update:
        update.remove_field("prefix")
        update.add_field("note", IdentityTransform(), "note_part")
    table.append(_rows(12, 13))
    before = _state(table)
    declare(table, f"{COLUMN_KEY}: ssn")
    assert set(ShownPartitions.of(metadata_of(table)).columns) == {1, 2}

    m.reencrypt(table, out_of_line=True)
    assert (_specs(table), _state(table)) == ({table.spec().spec_id}, before)
    assert {str(file.partition[0]) for file in data_files(table)} == {"n0", "n1"}


@pytest.mark.parametrize("out_of_line", [True, False], ids=["out of line", "all files"])
def test_deletes_on_old_files_are_applied_and_their_delete_files_go(both: Clients, *, out_of_line: bool) -> None:
    table = _partitioned(both, **MERGE_ON_READ)
    table.delete("id = 4")
    table.delete("id = 7")
    before = _state(table)
    _declare(table)
    table.append(_rows(20, 21))
    table.delete("id = 20")
    m.reencrypt(table, out_of_line=out_of_line)
    assert [row for row in _state(table) if row["id"] != 21] == before
    m.shred(table, all_but_heads=True)
    assert ({row["id"] for row in _state(table)}, _shown(both, table)) == ({0, 1, 2, 3, 5, 6, 8, 21}, [])


@pytest.mark.parametrize("out_of_line", [True, False], ids=["out of line", "all files"])
@pytest.mark.parametrize(("kind", "values"), [("position", {}), ("equality", {"id": [2]})], ids=["position", "equality"])
def test_delete_files_of_other_engines_in_old_partitions_are_applied_and_go(
    both: Clients, kind: str, values: dict[str, list[Any]], *, out_of_line: bool
) -> None:
    table = _partitioned(both)
    _delete_as_others_do(table, kind, **values)
    before = _state(table)
    assert [row["id"] for row in before] == [0, 1, 3, 4, 5, 6, 7, 8]
    _declare(table)
    (found,) = _shown(both, table)
    assert found.message.startswith("7 data and delete files")

    m.reencrypt(table, out_of_line=out_of_line)
    m.shred(table, all_but_heads=True)

    assert (_state(table), _shown(both, table)) == (before, [])
    assert not [text for text in _live_text(table) if "shown=" in text or "MEASLES" in text]


@pytest.mark.parametrize("branch", ["main", "side"])
@pytest.mark.parametrize("values", [{"ssn": ["MEASLES"]}, {"id": [2], "ssn": ["MEASLES"]}], ids=["column", "columns"])
def test_a_column_by_which_others_delete_rows_is_declared_once_these_deletes_are_applied(
    both: Clients, values: dict[str, list[Any]], branch: str
) -> None:
    """A declaration before would make every row that they may apply to unreadable, and no compaction could apply them any more."""
    table = _partitioned(both)
    undeleted = table.metadata.snapshots[-1].snapshot_id
    _delete_as_others_do(table, "equality", **values)
    if branch == "side":
        table.manage_snapshots().create_branch(table.refresh().metadata.snapshots[-1].snapshot_id, "side").commit()
        table.manage_snapshots().rollback_to_snapshot(undeleted).commit()
    before = _state(table)

    with pytest.raises(
        ConfigurationError, match=rf"'ssn' cannot be protected yet.*branch '{branch}'.*compact the branch with apply_deletes"
    ):
        _declare(table)
    assert _state(table) == before
    m.compact(table, apply_deletes=True, branch=branch)
    table.refresh()
    _declare(table)

    assert _state(table) == before
    m.reencrypt(table, out_of_line=True)
    m.reencrypt(table, out_of_line=True, branch=branch)
    m.shred(table, all_but_heads=True)
    assert (_state(table), _shown(both, table)) == (before, [])


def test_a_column_is_declared_where_rows_are_deleted_by_others(both: Clients) -> None:
    table = _partitioned(both)
    _delete_as_others_do(table, "equality", id=[2])
    before = _state(table)
    _declare(table)
    assert _state(table) == before


@pytest.mark.parametrize("out_of_line", [True, False], ids=["out of line", "all files"])
def test_without_the_column_s_key_nothing_is_written(both: Clients, *, out_of_line: bool) -> None:
    table = _partitioned(both)
    _declare(table)
    stored, location = {str(path) for path in folder_of(table).rglob("*")}, table.metadata_location
    with pytest.raises(ColumnKeyDeniedError):
        m.reencrypt(loaded(both.analyst), out_of_line=out_of_line)
    assert ({str(path) for path in folder_of(table).rglob("*")}, table.refresh().metadata_location) == (stored, location)


def test_files_that_have_hidden_columns_already_are_moved_too(both: Clients) -> None:
    table = _partitioned(both)
    _declare(table)
    m.reencrypt(table, out_of_line=True)
    assert m.reencrypt(table, out_of_line=True).data_files == 0


def test_an_interrupted_run_is_finished_by_the_next(both: Clients) -> None:
    """A compaction moves the files and leaves the old ones in its manifests, as deleted: so does a run that was killed in between."""
    table = _partitioned(both)
    _declare(table)
    m.compact(table, rewrite_all=True)
    assert _specs(table) == {table.spec().spec_id}
    m.shred(table, [each.snapshot_id for each in table.metadata.snapshots[:-1]])
    assert _shown(both, table)

    assert m.reencrypt(table, out_of_line=True).snapshot_id is not None
    m.shred(table, all_but_heads=True)
    assert _shown(both, table) == []
    assert not [text for text in _live_text(table) if "shown=" in text]


def test_branches_and_tags_that_keep_old_files_are_named_by_the_audit(both: Clients) -> None:
    table = _partitioned(both)
    head = cast("Any", table.current_snapshot()).snapshot_id
    table.manage_snapshots().create_tag(head, "kept").create_branch(head, "side").commit()
    _declare(table)
    m.reencrypt(table, out_of_line=True)
    m.shred(table, all_but_heads=True)
    (finding,) = _shown(both, table)
    assert finding.where == "ssn"
    assert "kept" in finding.message
    assert "side" in finding.message
    assert "main" not in finding.message
    assert not [value for value in VALUES if value in finding.message]

    m.reencrypt(table, out_of_line=True, branch="side")
    table.manage_snapshots().remove_tag("kept").commit()
    m.shred(table, all_but_heads=True)
    assert _shown(both, table) == []


def test_a_declaration_logs_the_specs_that_show_values(both: Clients, caplog: pytest.LogCaptureFixture) -> None:
    table = _partitioned(both)
    _declare(table)
    (told,) = [record.getMessage() for record in caplog.records if "partition" in record.getMessage()]
    assert "shown" in told
    assert "reencrypt" in told
    assert "shred" in told


def test_a_table_whose_specs_show_nothing_is_left_alone(both: Clients) -> None:
    table = _partitioned(both, "note")
    _declare(table)
    assert _shown(both, table) == []
    m.reencrypt(table, out_of_line=True)
    assert _specs(table) == {1}


def test_a_dropped_column_counts_as_long_as_old_files_have_it(both: Clients) -> None:
    table = _partitioned(both)
    _declare(table, "ssn")
    with table.update_schema() as update:
        update.delete_column("ssn")
    assert _shown(both, table)
    m.reencrypt(table, out_of_line=True)
    m.shred(table, all_but_heads=True)
    assert _shown(both, table) == []
    assert not [text for text in _live_text(table) if "shown=" in text]


def test_a_compaction_writes_under_the_current_spec(both: Clients) -> None:
    table = _partitioned(both)
    before = _state(table)
    _declare(table)
    m.compact(table, rewrite_all=True)
    assert (_specs(table), _state(table)) == ({table.spec().spec_id}, before)


def test_a_dry_run_counts_these_files_and_changes_nothing(both: Clients) -> None:
    table = _partitioned(both)
    _declare(table)
    done = m.reencrypt(table, out_of_line=True, dry_run=True)
    assert (done.data_files, done.in_line, done.snapshot_id) == (6, 6, None)
    assert _specs(table) == {1}


def test_equality_deletes_by_a_protected_column_are_told_without_their_names(both: Clients) -> None:
    table = protected_table(both.payroll)
    values = ReachableFile("values-HIVPOSITIVE", FileKind.EQUALITY_DELETES, "PARQUET", None, 1, frozenset(), equality_ids=frozenset({SSN}))
    others = replace(values, location="others", equality_ids=frozenset({1}))
    (finding,) = partition_findings(metadata_of(table), [values, others])
    assert (finding.kind, finding.where) == (m.FindingKind.COLUMN_IN_PARTITIONS, "ssn")
    assert "1 equality delete file holds" in finding.message
    assert "HIV" not in finding.message


def test_a_file_of_another_spec_in_an_old_folder_is_told(both: Clients) -> None:
    table = _partitioned(both)
    _declare(table)
    file = ReachableFile("file:///t/data/shown=HIV/a.parquet", FileKind.DATA, "PARQUET", None, 1, frozenset(), spec_id=table.spec().spec_id)
    assert [finding.where for finding in partition_findings(metadata_of(table), [file])] == ["ssn"]
    assert not list(partition_findings(metadata_of(table), [replace(file, location="file:///t/data/b.parquet")]))


def test_a_field_of_the_current_spec_with_the_name_of_an_old_one_shows_nothing(both: Clients) -> None:
    table = _partitioned(both)
    _declare(table)
    with table.update_spec() as update:
        update.add_field("note", IdentityTransform(), "shown")
    assert m.reencrypt(table, out_of_line=True).in_line == 6
    assert m.reencrypt(table, out_of_line=True).data_files == 0


def test_rows_of_different_partitions_come_to_lie_in_one_file(both: Clients) -> None:
    """A file for each old partition would show which rows have the same value, and be of few rows, whose lengths pages tell."""
    table = _partitioned(both)
    before = _state(table)
    _declare(table)
    m.reencrypt(table, out_of_line=True)
    assert (len(data_files(table)), _state(table)) == (1, before)


def test_a_compaction_puts_files_of_earlier_specs_together(both: Clients) -> None:
    table = _partitioned(both)
    before = _state(table)
    _declare(table)
    m.compact(table)
    assert (len(data_files(table.refresh())), _state(table)) == (1, before)


@pytest.mark.parametrize("compacted_first", [False, True])
def test_a_file_of_deletion_vectors_that_names_an_old_file_goes_too(both: Clients, *, compacted_first: bool) -> None:
    """One delete writes one file of vectors, whose footer names every data file that it is about."""
    table = _partitioned(both, **MERGE_ON_READ)
    _declare(table)
    table.append(_rows(20, 21))
    table.delete("id = 4 or id = 20")
    before = _state(table)
    assert any("shown=" in footer for footer in _vector_footers(table))
    if compacted_first:
        m.compact(table, "id < 10", rewrite_all=True)
    m.reencrypt(table, out_of_line=True)
    assert (_state(table), _specs(table)) == (before, {table.spec().spec_id})
    m.shred(table, all_but_heads=True)
    assert not [text for text in (*_live_text(table), *_vector_footers(table)) if "shown=" in text]


def test_empty_folders_that_show_values_go_with_the_last_orphan_in_them(both: Clients) -> None:
    table = _partitioned(both)
    _declare(table)
    (folder_of(table) / "data" / "shown=RUBELLA").mkdir()
    (folder_of(table) / "data" / "empty").mkdir()
    m.reencrypt(table, out_of_line=True)
    m.shred(table, all_but_heads=True)
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    m.remove_orphan_files(table, older_than=later)
    assert list(folder_of(table).rglob("shown=*"))
    m.remove_orphan_files(table, older_than=later, dry_run=False)
    assert not list(folder_of(table).rglob("shown=*"))
    assert (folder_of(table) / "data" / "empty").is_dir()


@pytest.mark.parametrize("out_of_line", [True, False], ids=["out of line", "all files"])
def test_a_writer_who_may_only_wrap_moves_nothing(both: Clients, *, out_of_line: bool) -> None:
    table = _partitioned(both)
    _declare(table)
    writers = loaded(write_only(both), table.name())
    location = table.metadata_location
    with pytest.raises(ColumnKeyDeniedError):
        m.reencrypt(writers, out_of_line=out_of_line)
    assert (table.refresh().metadata_location, _specs(table)) == (location, {1})


@pytest.mark.parametrize("commits", [0, 1, 2])
def test_a_run_that_is_killed_at_any_commit_is_finished_by_the_next(tmp_path: Path, commits: int) -> None:
    both = clients(tmp_path, SHOWN_PARTITIONS, InterruptedCatalog)
    table = _partitioned(both, **MERGE_ON_READ)
    table.delete("id = 4")
    _declare(table)
    table.append(_rows(20))
    before = _state(table)
    left = iter(range(commits))

    def die_when_none_is_left() -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    with at_commits(before=die_when_none_is_left), pytest.raises(KeyboardInterrupt):
        m.reencrypt(loaded(both.payroll, table.name()))
    m.reencrypt(table)
    m.shred(table, all_but_heads=True)
    assert (_state(table), _shown(both, table)) == (before, [])
    assert not [text for text in _live_text(table) if "shown=" in text]


def test_a_client_of_a_rest_server_moves_files_and_cleans_manifests(both: Clients) -> None:
    table = _partitioned(both, **MERGE_ON_READ)
    table.delete("id = 4")
    before = _state(table)
    _declare(table)
    with RestrictingServer(both.payroll) as server:
        keyring = {name: value for name, value in both.payroll.properties.items() if name.startswith(("encryption.", "kms."))}
        remote = loaded(server.client(**keyring, **PARTITION_FOLDERS), table.name())
        m.reencrypt(remote, out_of_line=True)
        m.shred(remote, all_but_heads=True, delete_below=[remote.location()])
    assert (_specs(table), _state(table), _shown(both, table)) == ({table.spec().spec_id}, before, [])
    assert not [text for text in _live_text(table) if "shown=" in text]
