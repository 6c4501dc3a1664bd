"""Results of workers that were taken over: nothing is committed that the worker did not write, and no file of a table is deleted."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import DataFile, FileFormat
from pyroaring import BitMap64

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.engines.changes import marked_files, numbered_files
from tablecrypt.engines.job_keys import Role
from tablecrypt.engines.rewriting import check_remaining
from tablecrypt.engines.tasks import WritingTask, decrypted_results
from tablecrypt.engines.writes import begin_write, commit_files, commit_to, current_table
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, FIRST_ROW_ID
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.table import EncryptedTable
from tests.support.manifests import data_file
from tests.support.tables import data_files, data_paths, encrypted_table, ids, key_file_kms, new_table, rows

Forge = Callable[[list[DataFile], "Others"], Sequence[DataFile]]


class Others:
    """Files that a worker can name and has not written in this job: of the table, of another one, and of another job."""

    def __init__(self, table: EncryptedTable, other: EncryptedTable, written_before: Sequence[DataFile]) -> None:
        self.own, self.other, self.before = data_files(table)[0], data_files(other)[0], written_before[0]


@pytest.fixture
def lake(warehouse: Path) -> Catalog:
    """A catalog whose keys other processes reach, with a table of the rows 0 and 1, and another one."""
    kms = key_file_kms(warehouse.parent / f"{warehouse.name}.keys.json")
    place = {"uri": f"sqlite:///{warehouse.parent}/{warehouse.name}.db", "warehouse": warehouse.as_uri()}
    catalog = load_catalog("prod", **{"py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog", **place, **kms})
    catalog.create_namespace("db")
    new_table(catalog, appends=[rows(0, 2)])
    new_table(catalog, "db.other", appends=[rows(100, 1)])
    return catalog


def job(
    table: EncryptedTable,
    forge: Callable[[list[DataFile]], Sequence[DataFile]],
    branch: str = "main",
    meanwhile: Callable[[], object] = dict,
    *,
    overwrites: bool = False,
) -> None:
    """Write the rows 10 and 11 by two tasks, of which the second reports what `forge` makes of its files, and others work meanwhile."""
    options = commit_to(table, branch, None)
    running, access = begin_write(table, branch, "Ray")
    shared = running.key.encrypt(Role.SHARED, 0, pickle.dumps(access))
    messages = []
    for number in (0, 1):
        task = WritingTask.open(running.ticket, shared, number, 0)
        files = task.write(rows(10 + number, 1))
        messages.append((number, task.encrypted_result(list(forge(files)) if number else files)))

    meanwhile()
    files = [file for result in decrypted_results(running.key, FileEntryCodec(running.metadata), messages) for file in result.files]
    commit_files(current_table(table, running, files, branch), running, files, options, overwrites=overwrites)


def written_before(table: EncryptedTable) -> list[DataFile]:
    """What a job wrote that is over."""
    running, access = begin_write(table, "main", "Ray")
    shared = running.key.encrypt(Role.SHARED, 0, pickle.dumps(access))
    return WritingTask.open(running.ticket, shared, 1, 0).write(rows(50, 1))


def at(file: DataFile, location: str) -> DataFile:
    file[DATA_FILE_POSITIONS["file_path"]] = location
    return file


FORGED: Final[dict[str, Forge]] = {
    "a file of the table": lambda files, others: [*files, others.own],
    "a file of another table": lambda files, others: [*files, others.other],
    "a file of another job": lambda files, others: [*files, others.before],
    "a file twice": lambda files, others: [*files, *files],
    "a file twice in other words": lambda files, others: [*files, at(copy(files[0]), files[0].file_path.replace("file://", "file:"))],
    "the place of a file of the table": lambda files, others: [at(files[0], others.own.file_path)],
    "a place outside of the table": lambda files, others: [at(files[0], "file:///elsewhere/data.parquet")],
    "a folder with the name of the file": lambda files, others: [at(files[0], f"{files[0].file_path}/data.parquet")],
}


ELSEWHERE: Final[dict[str, Forge]] = {
    "outside of every table": lambda files, others: [at(files[0], f"file:///elsewhere/{named(files[0])}")],
    "in another table": lambda files, others: [at(files[0], f"{others.other.file_path.rpartition('/')[0]}/{named(files[0])}")],
    "above the table": lambda files, others: [at(files[0], f"{others.own.file_path.rpartition('/')[0]}/../../{named(files[0])}")],
}


def named(file: DataFile) -> str:
    return file.file_path.rpartition("/")[2]


@pytest.mark.parametrize("forge", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_result_that_names_a_file_of_its_job_in_another_place_than_the_table_is_refused(lake: Catalog, forge: Forge) -> None:
    table, other = (encrypted_table(lake.load_table(name)) for name in ("db.t", "db.other"))
    others = Others(table, other, written_before(table))

    with pytest.raises(AuthenticationError, match="reports a file where none of the table's is written: it "):
        job(table, lambda files: forge(files, others))

    assert ids(lake.load_table("db.t")) == [0, 1]


def test_a_file_in_the_folder_that_the_table_names_for_its_data_is_committed(lake: Catalog, warehouse: Path) -> None:
    table = encrypted_table(lake.load_table("db.t"))
    table.transaction().set_properties({"write.data.path": f"{warehouse.as_uri()}/apart"}).commit_transaction()
    job(encrypted_table(table.refresh()), lambda files: files)

    assert ids(lake.load_table("db.t")) == [0, 1, 10, 11]


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_result_that_names_files_which_its_job_did_not_write_is_refused_and_deletes_nothing(lake: Catalog, forge: Forge) -> None:
    table, other = (encrypted_table(lake.load_table(name)) for name in ("db.t", "db.other"))
    others = Others(table, other, written_before(table))
    before = [*data_paths(table), *data_paths(other)]

    with pytest.raises(AuthenticationError, match="reports a file that it did not write, or a file twice"):
        job(table, lambda files: forge(files, others))

    assert ids(lake.load_table("db.t")) == [0, 1]
    assert all(path.is_file() for path in before)


WRONG: Final[dict[str, dict[str, object]]] = {
    "no rows": {"record_count": 0},
    "more rows": {"record_count": 2},
    "another format": {"file_format": FileFormat.AVRO},
    "another key": {"key_metadata": StandardKeyMetadata(Secret(bytes(16)), b"prefix").encode()},
    "a name of its job where nothing is": {"file_path": None},
}


@pytest.mark.parametrize("said", WRONG.values(), ids=WRONG)
def test_files_that_are_not_what_their_worker_says_take_no_rows_place(lake: Catalog, said: dict[str, object]) -> None:
    def forge(files: list[DataFile]) -> list[DataFile]:
        for name, value in said.items():
            other = files[0].file_path.replace("-00000.parquet", "-00001.parquet")
            files[0][DATA_FILE_POSITIONS[name]] = other if value is None else value
        return files

    with pytest.raises(AuthenticationError, match="is not what the worker that wrote it says of it, and is not committed"):
        job(encrypted_table(lake.load_table("db.t")), forge, overwrites=True)

    assert ids(lake.load_table("db.t")) == [0, 1]


def test_a_worker_that_leaves_out_rows_of_files_that_it_writes_again_is_found_out(lake: Catalog) -> None:
    table = encrypted_table(lake.load_table("db.t"))
    table.transaction().set_properties({"write.delete.mode": "merge-on-read"}).commit_transaction()
    table.append(rows(2, 3))
    table.delete("id = 3")
    tasks = list(encrypted_table(table.refresh()).scan().tasks())
    [with_vector] = [(task, BitMap64([0])) for task in tasks if task.delete_files]

    check_remaining([with_vector], [data_file(record_count=1)])
    with pytest.raises(FormatError, match="have 1 rows by their manifests, but 0 were read"):
        check_remaining([with_vector], [])


@pytest.mark.parametrize("overwrites", [False, True])
def test_the_result_of_an_honest_worker_is_committed(lake: Catalog, overwrites: bool) -> None:
    job(encrypted_table(lake.load_table("db.t")), lambda files: files, overwrites=overwrites)

    assert ids(lake.load_table("db.t")) == ([10, 11] if overwrites else [0, 1, 10, 11])


@pytest.mark.parametrize("count", [-(2**63), -1, 2**40 + 1, 2**63 - 5])
def test_a_result_that_claims_a_number_of_rows_that_no_file_has_uses_up_no_row_ids(lake: Catalog, count: int) -> None:
    """After 2^63 - 5 rows more, nothing could be appended any more, not even after a rollback."""

    def claim(files: list[DataFile]) -> list[DataFile]:
        files[0][DATA_FILE_POSITIONS["record_count"]] = count
        return files

    with pytest.raises(FormatError, match=f"is to be added with {count} rows"):
        job(encrypted_table(lake.load_table("db.t")), claim)

    table = encrypted_table(lake.load_table("db.t"))
    assert table.metadata.next_row_id == 2
    table.append(rows(20, 1))
    assert ids(table) == [0, 1, 20]


@pytest.mark.parametrize("claimed", [0, 2**62, -5])
def test_a_result_that_claims_row_ids_gets_those_that_are_next(lake: Catalog, claimed: int) -> None:
    """With the ids of other rows, the worker's rows would pass for later versions of these."""

    def claim(files: list[DataFile]) -> list[DataFile]:
        files[0][FIRST_ROW_ID] = claimed
        return files

    job(encrypted_table(lake.load_table("db.t")), claim)

    found = lake.load_table("db.t").scan(selected_fields=("id", "_row_id")).to_arrow().to_pylist()
    assert sorted((row["id"], row["_row_id"]) for row in found) == [(0, 0), (1, 1), (10, 2), (11, 3)]


@pytest.mark.parametrize("name", ["column_sizes", "value_counts", "null_value_counts", "nan_value_counts"])
def test_a_result_that_claims_counts_that_no_file_has_is_refused(lake: Catalog, name: str) -> None:
    def claim(files: list[DataFile]) -> list[DataFile]:
        files[0][DATA_FILE_POSITIONS[name]] = {1: -5}
        return files

    with pytest.raises(FormatError, match=f"is to be added with {name} that no file has"):
        job(encrypted_table(lake.load_table("db.t")), claim)

    assert ids(lake.load_table("db.t")) == [0, 1]


def drop_branch(table: EncryptedTable) -> None:
    table.manage_snapshots().remove_branch("audit").commit()


def put_tag_in_its_place(table: EncryptedTable) -> None:
    drop_branch(table)
    (head,) = (each.snapshot_id for each in table.refresh().snapshots())
    table.manage_snapshots().create_tag(head, "audit").commit()


@pytest.mark.parametrize("gone", [drop_branch, put_tag_in_its_place])
def test_a_job_whose_branch_was_dropped_meanwhile_makes_none_of_its_rows_alone(
    lake: Catalog, gone: Callable[[EncryptedTable], None]
) -> None:
    table = encrypted_table(lake.load_table("db.t"))
    (head,) = (each.snapshot_id for each in table.snapshots())
    table.manage_snapshots().create_branch(head, "audit").commit()
    table = encrypted_table(table.refresh())

    with pytest.raises(ConfigurationError, match="its branch 'audit' was dropped while the rows were written; nothing was committed"):
        job(table, lambda files: files, "audit", lambda: gone(encrypted_table(lake.load_table("db.t"))))

    current = lake.load_table("db.t")
    assert [each.snapshot_id for each in current.snapshots()] == [head]
    assert len(list(Path(current.location().removeprefix("file://")).rglob("*.parquet"))) == 1


@pytest.mark.parametrize(
    ("number", "row", "said"),
    [
        ((0, 1), 0, r"rows of file \(0, 1\), which the job does not have"),
        ((1, 0), 0, r"rows of file \(1, 0\), which the job does not have"),
        ((0, 0), 2, "a task marks row 2 of it, and it has 2"),
        ((0, 0), 2**63, f"a task marks row {2**63} of it"),
    ],
)
def test_a_result_that_marks_rows_which_the_files_of_its_job_do_not_have_is_refused(
    lake: Catalog, number: tuple[int, int], row: int, said: str
) -> None:
    tasks = list(encrypted_table(lake.load_table("db.t")).scan().plan_files())
    files = numbered_files([tasks])
    assert marked_files(files, {(0, 0): BitMap64([1])}) == [(tasks[0], BitMap64([1]))]
    assert marked_files(files, {(0, 0): BitMap64()}) == []

    with pytest.raises(FormatError, match=said):
        marked_files(files, {(0, 0): BitMap64([1]), number: BitMap64([row])})
