"""relocate: the copy holds every row of every snapshot under keys of its own, nothing of it points back, and the table is as it was."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, StringType

from tablecrypt.errors import ConfigurationError, DeletionRefusedError, KeyNotFoundError, KmsError, PlaintextRefusedError, TamperedFileError
from tablecrypt.maintenance import Progress, Relocated, relocate, verify
from tablecrypt.maintenance.reachable import FileKind, reachable_files
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.listeners import end_of, once
from tests.support.plaintext import CANARY
from tests.support.tables import (
    MASTER_KEY,
    current_snapshot,
    encrypted_sql_catalog,
    files_below,
    folder_of,
    keks,
    manifest_list_keys,
    metadata_of,
    new_table,
    path_of,
    rows,
    state,
    table_with_history,
)

pytestmark = pytest.mark.slow

LINEAGE = ("id", "_row_id", "_last_updated_sequence_number")


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"file://{tmp_path}/warehouse/elsewhere/t"


def files_of(table: Table) -> set[str]:
    return set(reachable_files(table.metadata, table.io).files)


def test_the_copy_has_every_snapshot_branch_and_row_and_row_id(table: Table, place: str) -> None:
    before, location = state(table), table.metadata_location

    result = relocate(table, place, register_as="db.copy")

    copy = table.catalog.load_table("db.copy")
    assert state(copy) == before
    assert copy.location() == place
    assert copy.metadata.refs == table.metadata.refs
    assert copy.scan(selected_fields=LINEAGE).to_arrow() == table.scan(selected_fields=LINEAGE).to_arrow()
    assert copy.metadata.table_uuid != table.metadata.table_uuid
    assert (result.snapshots, result.files, result.found) == (4, 4, 0)
    assert result.metadata_location == copy.metadata_location
    assert table.refresh().metadata_location == location
    assert json.loads(json.dumps(result.to_json()))["registered_as"] == "db.copy"


def test_nothing_of_the_copy_names_a_place_of_the_original(table: Table, place: str) -> None:
    relocate(table, place, register_as="db.copy")

    copy = table.catalog.load_table("db.copy")
    assert table.location() not in metadata_of(copy).model_dump_json()
    assert all(location.startswith(f"{place}/") for location in files_of(copy))
    shutil.rmtree(folder_of(table))
    assert len(state(copy)) == 4


def test_no_key_is_the_originals_but_those_of_data_files(table: Table, place: str) -> None:
    relocate(table, place, register_as="db.copy")

    copy = table.catalog.load_table("db.copy")
    assert not {kek.key_id for kek in keks(copy)} & {kek.key_id for kek in keks(table)}
    assert not manifest_list_keys(copy).keys() & manifest_list_keys(table).keys()
    old, new = (reachable_files(each.metadata, each.io).files.values() for each in (table, copy))
    old_keys = {bytes(file.key.encryption_key.reveal()): file.kind for file in old if file.key is not None}
    new_keys = {bytes(file.key.encryption_key.reveal()): file.kind for file in new if file.key is not None}
    assert len(old_keys) == len(new_keys)
    assert {old_keys[key] for key in old_keys.keys() & new_keys.keys()} == {FileKind.DATA}


def test_the_copy_lives_on_and_neither_table_sees_the_other(table: Table, place: str) -> None:
    relocate(table, place, register_as="db.copy")
    copy = table.catalog.load_table("db.copy")

    copy.append(rows(600))
    copy.delete("id = 100")
    table.append(rows(700))

    assert copy.scan("id >= 600").count() == 20
    assert table.scan("id = 100").count() == 1
    assert len(state(copy)) == 6
    assert len(state(table)) == 5


def test_deletion_vectors_and_their_footers_name_the_copied_files(table: Table, place: str) -> None:
    relocate(table, place, register_as="db.copy")

    copy = table.catalog.load_table("db.copy")
    (vector,) = [file for file in reachable_files(copy.metadata, copy.io).files.values() if file.kind == FileKind.DELETION_VECTOR]
    assert vector.key is not None
    with copy.io.decrypting_input(vector.location, vector.key).open() as stream:  # type: ignore[attr-defined]
        content = stream.read()
    assert place.encode() in content
    assert table.location().encode() not in content
    copy.delete("id = 4")
    assert copy.scan("id < 5").to_arrow()["id"].to_pylist() == [0, 1, 2]


def test_another_master_key_opens_the_copy_and_the_old_one_does_not(table: Table, place: str, aws: AwsServer) -> None:
    key_id = aws.new_key()

    result = relocate(table, place, key_id=key_id, register_as="db.copy")

    copy = table.catalog.load_table("db.copy")
    assert copy.properties["encryption.key-id"] == result.table_key_id == key_id
    assert {kek.encrypted_by_id for kek in keks(copy)} == {key_id}
    assert MASTER_KEY not in metadata_of(copy).model_dump_json()
    assert len(state(copy)) == 4
    assert aws.kms.decrypt(KeyId=key_id, CiphertextBlob=keks(copy)[0].wrapped_bytes())["Plaintext"]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_master_key_that_the_kms_refuses_is_found_out_before_a_file_is_copied(table: Table, place: str, dry_run: bool) -> None:
    with pytest.raises((KeyNotFoundError, KmsError)):
        relocate(table, place, key_id="alias/nobody", dry_run=dry_run)
    assert not path_of(place).exists()


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_a_blank_master_key_is_not_the_tables_own(table: Table, place: str, blank: str) -> None:
    """As an unset variable leaves it, where the copy is to be under another key."""
    with pytest.raises(ConfigurationError, match=r"^key_id is blank: name the copy's master key, or leave it out for the table's own$"):
        relocate(table, place, key_id=blank)

    assert not path_of(place).exists()


def test_the_current_snapshot_alone(table: Table, place: str) -> None:
    result = relocate(table, place, register_as="db.copy", current_only=True)

    copy = table.catalog.load_table("db.copy")
    head = current_snapshot(table)
    assert state(copy) == {head.snapshot_id: state(table)[head.snapshot_id]}
    assert set(copy.metadata.refs) == {"main"}
    assert result.snapshots == 1
    assert len(manifest_list_keys(copy)) == 1


def test_partitions_of_every_kind_old_specs_and_dropped_columns(catalog: EncryptedSqlCatalog, place: str) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "day", DateType()),
        NestedField(3, "price", DecimalType(12, 2)),
        NestedField(4, "note", StringType()),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "day"),
        PartitionField(3, 1001, IdentityTransform(), "price"),
        PartitionField(4, 1002, BucketTransform(4), "note_bucket"),
    )
    table = new_table(catalog, "db.parts", schema, partitioned_by=spec)
    content = pa.table(
        {
            "id": list(range(6)),
            "day": [dt.date(2024, 1, 1 + each % 2) for each in range(5)] + [None],
            "price": [Decimal("1.50"), Decimal("-2.25"), None, Decimal("1.50"), Decimal("3.00"), Decimal("1.50")],
            "note": [f"{CANARY} / % {each}" for each in range(6)],
        },
        schema=schema.as_arrow(),
    )
    table.append(content)
    table.delete("id = 2")
    with table.update_spec() as update:
        update.remove_field("price")
    with table.update_schema() as update:
        update.delete_column("price")
    table.append(content.drop_columns(["price"]))

    relocate(table, place, register_as="db.copy")

    copy = catalog.load_table("db.copy")
    for snapshot in table.snapshots():
        old, new = (each.scan(snapshot_id=snapshot.snapshot_id).to_arrow().sort_by("id") for each in (table, copy))
        assert new == old
    assert copy.scan("day = '2024-01-02'").to_arrow().num_rows == table.scan("day = '2024-01-02'").to_arrow().num_rows
    copy.append(content.drop_columns(["price"]))


def test_files_outside_the_tables_location_come_along(tmp_path: Path, catalog: EncryptedSqlCatalog, place: str) -> None:
    data = f"file://{tmp_path}/warehouse/data-of-all"
    table = table_with_history(catalog, "db.t", **{"write.data.path": data})
    before = state(table)

    relocate(table, place, register_as="db.copy")

    copy = table.catalog.load_table("db.copy")
    assert "write.data.path" not in copy.properties
    assert all(location.startswith(f"{place}/") for location in files_of(copy))
    shutil.rmtree(f"{tmp_path}/warehouse/data-of-all")
    assert state(copy) == before


def test_from_a_disk_to_a_bucket(table: Table, aws: AwsServer) -> None:
    place = f"s3://{aws.bucket('relocated')}/tables/t"

    result = relocate(table, place, register_as="db.copy")

    copy = table.catalog.load_table("db.copy")
    assert copy.metadata_location.startswith(place)
    assert state(copy) == state(table)
    assert relocate(table, place, register_as="db.copy").found == result.files


def test_a_second_run_finds_all_done_and_a_newer_state_copies_what_is_new(table: Table, place: str) -> None:
    relocate(table, place, register_as="db.copy")
    data = path_of(place) / "data"
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*.parquet")}

    again = relocate(table, place, register_as="db.copy")
    table.append(rows(800))
    newer = relocate(table, place)

    assert again.found == again.files
    assert newer.found == 3
    assert newer.metadata_location != again.metadata_location
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(state(table.catalog.load_table("db.copy"))) == 4
    table.catalog.drop_table("db.copy")
    assert state(table.catalog.register_table("db.copy", newer.metadata_location)) == state(table)


def test_a_copy_is_not_said_to_be_registered_where_the_name_is_an_earlier_ones(table: Table, place: str, aws: AwsServer) -> None:
    """Who believed that it is dropped the original, and had the earlier state."""
    relocate(table, place, register_as="db.copy")
    copy = table.catalog.load_table("db.copy")
    copy.append(rows(900))
    assert relocate(table, place, register_as="db.copy").registered_as == "db.copy"

    with pytest.raises(TableAlreadyExistsError, match=r"db\.copy is an earlier copy there, and stays as it is\. This one is complete"):
        relocate(table, place, aws.new_key(), register_as="db.copy")
    table.append(rows(800))
    with pytest.raises(TableAlreadyExistsError, match="is an earlier copy there") as refused:
        relocate(table, place, register_as="db.copy")

    assert relocate(table, place).metadata_location in str(refused.value)
    assert state(table.catalog.load_table("db.copy")) == state(copy.refresh())


@pytest.mark.parametrize("content", [b"somebody's own", None])
@pytest.mark.parametrize("suffix", [".parquet", ".metadata.json"])
def test_nothing_is_written_through_a_link_in_the_place_of_a_copied_file(
    table: Table, place: str, tmp_path: Path, suffix: str, content: bytes | None
) -> None:
    relocate(table, place)
    # Every run gives these files the same names.
    link = min(files_below(path_of(place), suffix))
    shutil.rmtree(path_of(place))
    other = tmp_path / "other"
    if content is not None:
        other.write_bytes(content)
    link.parent.mkdir(parents=True)
    link.symlink_to(other)

    with pytest.raises(DeletionRefusedError, match=rf"it is a link, which leads to {re.escape(str(other))}$"):
        relocate(table, place)
    assert (other.read_bytes() if other.exists() else None) == content


@pytest.mark.parametrize("trust_lengths", [False, True])
def test_a_file_that_is_there_with_other_content_is_not_taken_for_copied(table: Table, place: str, trust_lengths: bool) -> None:
    result = relocate(table, place)
    folder = path_of(place)
    damaged = next((folder / "data").rglob("*.parquet"))
    whole = damaged.read_bytes()
    path_of(result.metadata_location).unlink()
    damaged.write_bytes(whole[:-1] if trust_lengths else whole[:-1] + bytes([whole[-1] ^ 1]))

    again = relocate(table, place, trust_lengths=trust_lengths)

    assert again.found == 2
    assert damaged.read_bytes() == whole


def test_a_run_that_another_one_overtakes_leaves_the_others_copy_as_it_is(table: Table, place: str) -> None:
    overtaking: list[Relocated] = []

    def overtake() -> None:
        overtaking.append(relocate(table.catalog.load_table("db.t"), place, register_as="db.copy"))

    overtaken = relocate(table, place, register_as="db.copy", progress=once(overtake, end_of("relocate: files")))

    assert overtaken.metadata_location == overtaking[0].metadata_location
    copy = table.catalog.load_table("db.copy")
    assert state(copy) == state(table)
    assert verify(copy).is_good


PLANTED: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "another master key": lambda said: said["properties"].update({"encryption.key-id": MASTER_KEY}),
    "another location": lambda said: said.update({"location": said["location"] + "/elsewhere"}),
    "no snapshot": lambda said: said.update({"snapshots": [], "refs": {}, "snapshot-log": [], "current-snapshot-id": None}),
    "another head": lambda said: said["refs"].pop("side"),
    "a property": lambda said: said["properties"].update({"write.data.path": "file:///elsewhere"}),
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_metadata_that_somebody_put_in_the_copys_place_is_not_taken_for_it(
    table: Table, place: str, aws: AwsServer, plant: Callable[[dict[str, Any]], object]
) -> None:
    other = aws.new_key()
    path = path_of(relocate(table, place, other).metadata_location)
    said = json.loads(path.read_bytes())
    plant(said)
    path.write_text(json.dumps(said))

    with pytest.raises(ConfigurationError, match="is not what relocate writes there"):
        relocate(table, place, other, register_as="db.copy")
    assert not table.catalog.table_exists("db.copy")


def test_a_dry_run_writes_nothing(table: Table, place: str) -> None:
    result = relocate(table, place, dry_run=True)
    assert (result.dry_run, result.files, result.snapshots) == (True, 4, 4)
    assert result.bytes == sum(path_of(each).stat().st_size for each in files_of(table) if "/data/" in each)
    assert not path_of(place).exists()


def test_progress_grows_to_the_whole(table: Table, place: str) -> None:
    heard: list[Progress] = []

    result = relocate(table, place, progress=heard.append)

    for operation in ("relocate: files", "relocate: delete files"):
        steps = [each for each in heard if each.operation == operation]
        assert [each.done for each in steps] == sorted(each.done for each in steps)
        assert steps[-1].done == steps[-1].total
    assert sum(total for total in {each.operation: each.total for each in heard}.values()) == result.bytes


def test_a_place_with_another_table_and_one_inside_the_table_are_refused(table: Table, tmp_path: Path) -> None:
    other = table_with_history(table.catalog, "db.other")
    for refused in (other.location(), f"{table.location()}/copy", table.location() + "/", f"file://{tmp_path}/warehouse", "file:///"):
        with pytest.raises(ConfigurationError):
            relocate(table, refused)
    assert len(state(other)) == 4


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_name_that_another_table_has_is_refused_before_a_file_is_copied(table: Table, place: str, dry_run: bool) -> None:
    table_with_history(table.catalog, "db.other")
    with pytest.raises(TableAlreadyExistsError, match=r"^db\.other is another table: choose another name for the copy"):
        relocate(table, place, register_as="db.other", dry_run=dry_run)
    assert not path_of(place).exists()
    assert relocate(table, place, register_as="db.copy").registered_as == "db.copy"


def test_a_table_without_snapshots_is_copied_too(table: Table, place: str) -> None:
    empty = new_table(table.catalog, "db.empty")

    result = relocate(empty, place, register_as="db.copy")

    copy = table.catalog.load_table("db.copy")
    assert (result.files, result.snapshots) == (0, 0)
    copy.append(rows(0))
    assert copy.scan().count() == 20
    assert empty.refresh().scan().count() == 0


def test_a_data_file_in_whose_place_is_plaintext_or_another_file_is_not_copied(
    unwatched_warehouse: Path, aws: AwsServer, tmp_path: Path
) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws, {"warehouse": unwatched_warehouse.as_uri()})
    table = table_with_history(catalog, "db.t")
    place = f"{unwatched_warehouse.as_uri()}/copy"
    victim = next(path_of(each) for each in sorted(files_of(table)) if each.endswith(".parquet"))
    whole = victim.read_bytes()

    victim.write_bytes(b"PAR1" + whole[4:])
    with pytest.raises(PlaintextRefusedError, match="does not begin as an encrypted PARQUET file"):
        relocate(table, place)
    victim.write_bytes(whole + b"more")
    with pytest.raises(TamperedFileError, match="according to its manifest"):
        relocate(table, place)

    victim.write_bytes(whole)
    relocate(table, place, register_as="db.copy")
    assert state(catalog.load_table("db.copy")) == state(table)
