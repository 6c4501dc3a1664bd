"""Which data files a scan reads, and which deletes apply to each of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import BooleanExpression, EqualTo, GreaterThan, IsNull
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.errors import FormatError, PlaintextRefusedError
from tablecrypt.manifests import EncryptedManifestFile
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, partition_values
from tablecrypt.table.planning import EncryptedFileScanTask, ScanPlanner
from tests.support.manifest_bytes import manifest_bytes
from tests.support.manifests import SNAPSHOT_ID, encrypt_file
from tests.support.plaintext import CANARY
from tests.support.table_files import PATH_ID, TableFiles
from tests.support.tables import BY_TEAM

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "team", StringType()))


def rows(ids: range, team: str | None = CANARY) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "team": pa.array([team] * len(ids), pa.string())})


def plan(
    files: TableFiles, manifests: list[EncryptedManifestFile], row_filter: BooleanExpression = ALWAYS_TRUE
) -> dict[str, EncryptedFileScanTask]:
    return {task.file.file_path: task for task in ScanPlanner(files.metadata, files.io, row_filter).plan_files(manifests)}


@pytest.fixture
def files(tmp_path: Path) -> TableFiles:
    return TableFiles(tmp_path, SCHEMA)


@pytest.fixture
def partitioned(tmp_path: Path) -> TableFiles:
    return TableFiles(tmp_path, SCHEMA, BY_TEAM)


def with_team(file: DataFile, team: str | None) -> DataFile:
    file[3] = Record(team)
    return file


def test_a_deletion_vector_applies_to_the_file_that_it_names_and_to_no_other(files: TableFiles) -> None:
    one, other = files.data(rows(range(10))), files.data(rows(range(10)))
    vector = files.deletion_vector(one.file_path, [3])
    tasks = plan(files, files.manifests((1, one), (1, other), (2, vector)))
    assert tasks[one.file_path].delete_files == {vector}
    assert tasks[other.file_path].delete_files == set()


def test_a_deletion_vector_applies_whatever_its_partition_says(partitioned: TableFiles) -> None:
    one = partitioned.data(rows(range(10), "a"))
    vector = with_team(partitioned.deletion_vector(one.file_path, [3]), "b")
    tasks = plan(partitioned, partitioned.manifests((1, one), (2, vector)))
    assert tasks[one.file_path].delete_files == {vector}


def test_a_deletion_vector_replaces_the_position_deletes_of_its_file(files: TableFiles) -> None:
    one, other = files.data(rows(range(10))), files.data(rows(range(10)))
    positions = files.position_deletes([(one.file_path, 1), (other.file_path, 1)])
    vector = files.deletion_vector(one.file_path, [1, 3])
    tasks = plan(files, files.manifests((1, one), (1, other), (2, positions), (3, vector)))
    assert tasks[one.file_path].delete_files == {vector}
    assert tasks[other.file_path].delete_files == {positions}


def test_two_deletion_vectors_of_one_file_are_refused(files: TableFiles) -> None:
    one = files.data(rows(range(10)))
    vectors = [files.deletion_vector(one.file_path, [at]) for at in (1, 2)]
    with pytest.raises(FormatError, match="two deletion vectors"):
        plan(files, files.manifests((1, one), (2, vectors[0]), (3, vectors[1])))


def test_a_deletion_vector_that_names_no_file_is_refused(files: TableFiles) -> None:
    one = files.data(rows(range(10)))
    vector = files.deletion_vector(one.file_path, [1], referenced_data_file=None)
    with pytest.raises(FormatError, match="names no data file"):
        plan(files, files.manifests((1, one), (2, vector)))


@pytest.mark.parametrize(("number", "applies"), [(1, False), (2, True), (3, True)])
def test_positions_are_deleted_from_data_that_is_not_newer(files: TableFiles, number: int, applies: bool) -> None:
    old, one = files.data(rows(range(10))), files.data(rows(range(10)))
    for delete in (files.deletion_vector(one.file_path, [1]), files.position_deletes([(one.file_path, 1)])):
        tasks = plan(files, files.manifests((1, old), (2, one), (number, delete)))
        assert tasks[one.file_path].delete_files == ({delete} if applies else set())


@pytest.mark.parametrize(("number", "applies"), [(1, False), (2, False), (3, True)])
def test_equal_rows_are_deleted_from_data_that_is_older(files: TableFiles, number: int, applies: bool) -> None:
    old, one = files.data(rows(range(10))), files.data(rows(range(10)))
    delete = files.equality_deletes(pa.table({"id": pa.array([3], pa.int64())}), [1])
    tasks = plan(files, files.manifests((1, old), (2, one), (number, delete)))
    assert tasks[one.file_path].delete_files == ({delete} if applies else set())


@pytest.mark.parametrize(("team", "another"), [("a", "b"), (None, "None")], ids=["two names", "null and the name None"])
def test_position_deletes_apply_within_their_partition(partitioned: TableFiles, team: str | None, another: str) -> None:
    one, other = partitioned.data(rows(range(10), team)), partitioned.data(rows(range(10), another))
    delete = with_team(partitioned.position_deletes([(one.file_path, 1)]), team)
    tasks = plan(partitioned, partitioned.manifests((1, one), (1, other), (2, delete)))
    assert tasks[one.file_path].delete_files == {delete}
    assert tasks[other.file_path].delete_files == set()


def test_position_deletes_that_name_one_file_apply_to_it_alone(files: TableFiles) -> None:
    one, other = files.data(rows(range(10))), files.data(rows(range(10)))
    path = one.file_path.encode()
    named = files.position_deletes([(one.file_path, 1)], referenced_data_file=one.file_path)
    bounded = files.position_deletes([(one.file_path, 1)], lower_bounds={PATH_ID: path}, upper_bounds={PATH_ID: path})
    tasks = plan(files, files.manifests((1, one), (1, other), (2, named), (2, bounded)))
    assert tasks[one.file_path].delete_files == {named, bounded}
    assert tasks[other.file_path].delete_files == set()


def test_position_deletes_outside_whose_bounds_a_file_lies_do_not_apply_to_it(files: TableFiles) -> None:
    one = files.data(rows(range(10)))
    delete = files.position_deletes([("x", 1), ("y", 1)], lower_bounds={PATH_ID: b"x"}, upper_bounds={PATH_ID: b"y"})
    assert plan(files, files.manifests((1, one), (2, delete)))[one.file_path].delete_files == set()


def test_equality_deletes_without_partition_apply_to_every_partition(partitioned: TableFiles) -> None:
    a, b = partitioned.data(rows(range(10), "a")), partitioned.data(rows(range(10), "b"))
    delete = with_team(partitioned.equality_deletes(pa.table({"id": pa.array([3], pa.int64())}), [1]), "a")
    tasks = plan(partitioned, partitioned.manifests((1, a), (1, b), (2, delete)))
    assert tasks[a.file_path].delete_files == {delete}
    assert tasks[b.file_path].delete_files == set()

    (partitioned.folder / "other").mkdir()
    unpartitioned = TableFiles(partitioned.folder / "other", SCHEMA)
    everywhere = unpartitioned.equality_deletes(pa.table({"id": pa.array([3], pa.int64())}), [1])
    everywhere.spec_id = 1
    partitioned.metadata = partitioned.metadata.model_copy(
        update={"partition_specs": [*partitioned.metadata.partition_specs, PartitionSpec(spec_id=1)]}
    )
    tasks = plan(partitioned, partitioned.manifests((1, a), (1, b), (2, everywhere)))
    assert tasks[a.file_path].delete_files == tasks[b.file_path].delete_files == {everywhere}


def test_a_filter_leaves_out_files_whose_statistics_rule_them_out(files: TableFiles) -> None:
    low, high = files.data(rows(range(10))), files.data(rows(range(100, 110)))
    assert plan(files, files.manifests((1, low), (1, high)), GreaterThan(term="id", value=50)).keys() == {high.file_path}


def test_a_filter_leaves_out_partitions_and_is_satisfied_by_them(partitioned: TableFiles) -> None:
    a, null = partitioned.data(rows(range(10), "a")), partitioned.data(rows(range(10), None))
    manifests = partitioned.manifests((1, a), (1, null))
    tasks = plan(partitioned, manifests, EqualTo(term="team", value="a"))
    assert tasks.keys() == {a.file_path}
    assert tasks[a.file_path].residual == ALWAYS_TRUE
    assert plan(partitioned, manifests, IsNull(term="team")).keys() == {null.file_path}


def test_a_filter_never_leaves_out_deletes_by_their_own_statistics(files: TableFiles) -> None:
    one = files.data(rows(range(10)))
    delete = files.equality_deletes(
        pa.table({"id": pa.array([3], pa.int64()), "team": pa.array(["other"], pa.string())}),
        [1],
        lower_bounds={2: b"other"},
        upper_bounds={2: b"other"},
    )
    tasks = plan(files, files.manifests((1, one), (2, delete)), EqualTo(term="team", value=CANARY))
    assert tasks[one.file_path].delete_files == {delete}


def test_a_task_knows_its_files_sequence_number_and_first_row_id(files: TableFiles) -> None:
    one = files.data(rows(range(10)))
    task = plan(files, files.manifests((7, one)))[one.file_path]
    assert task.data_sequence_number == 7
    assert task.file[16] == 7000


def test_a_file_without_key_metadata_is_refused(files: TableFiles) -> None:
    one, unkeyed = (files.data(rows(range(10))) for _ in range(2))
    (listed,) = files.manifests((1, one))
    unkeyed[DATA_FILE_POSITIONS["key_metadata"]] = None
    added = [ManifestEntry(ManifestEntryStatus.ADDED, SNAPSHOT_ID, None, None, file) for file in (one, unkeyed)]
    key = encrypt_file(files.io, f"{listed.manifest_path}.unkeyed", manifest_bytes(added, SCHEMA))
    manifest = EncryptedManifestFile.of(listed).with_key_metadata(key)
    manifest[0] = f"{listed.manifest_path}.unkeyed"
    with pytest.raises(PlaintextRefusedError, match=rf"^{unkeyed.file_path}: .*no key metadata"):
        plan(files, [manifest])


def test_planning_reads_manifests_and_no_data_file(files: TableFiles, tmp_path: Path) -> None:
    one = files.data(rows(range(10)))
    manifests = files.manifests((1, one))
    PyArrowFileIO().delete(one.file_path)
    assert plan(files, manifests).keys() == {one.file_path}


def test_partitions_of_nan_are_one_partition() -> None:
    first, second = (partition_values(Record(1, float("nan"))) for _ in range(2))
    assert first == second and hash(first) == hash(second)
    assert first != partition_values(Record(1, 0.0))
