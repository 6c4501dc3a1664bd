"""share: the partner reads exactly the shared rows with his own key, from files that were not copied, and the source is as it was."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DoubleType, ListType, LongType, MapType, NestedField, StringType, StructType

from tablecrypt.errors import ConfigurationError, KeyNotFoundError, KmsAccessDeniedError, MasterKeyRefusedError
from tablecrypt.maintenance import audit, reencrypt, relocate, share, unshare, verify
from tablecrypt.maintenance.reachable import FileKind, reachable_files
from tablecrypt.maintenance.runner import LocalRunner
from tablecrypt.maintenance.sharing.plan import plan_share
from tablecrypt.maintenance.sharing.records import live_shares
from tablecrypt.maintenance.sharing.result import storage_policy
from tablecrypt.table._pyiceberg.transactions import parse_row_filter
from tablecrypt.table.data_file_reader import opened_file
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support import write_only_kms
from tests.support.aws import AwsServer
from tests.support.protected_tables import declare
from tests.support.shares import LINEAGE, NORTH, Partner, in_order
from tests.support.table_files import delete_by_file
from tests.support.tables import (
    MASTER_KEY,
    MERGE_ON_READ,
    TEAM_SCHEMA,
    encrypted_table,
    files_below,
    folder_of,
    ids,
    memory_catalog,
    memory_kms,
    metadata_of,
    new_table,
    path_of,
    rows,
    rows_of_file,
    team_rows,
    team_table,
)


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> EncryptedTable:
    """Rows of two teams in two partitions, from two appends."""
    return team_table(catalog, 0, 100, properties=MERGE_ON_READ)


def test_the_partner_reads_the_shared_rows_with_his_own_key_alone(table: EncryptedTable, partner: Partner) -> None:
    result = share(table, partner.key_id, partner.location, NORTH)

    theirs = partner.register(result)
    assert ids(theirs) == ids(table, row_filter=NORTH)
    assert theirs.scan(selected_fields=LINEAGE).to_arrow().sort_by("id") == table.scan(NORTH, selected_fields=LINEAGE).to_arrow().sort_by(
        "id"
    )
    assert (result.files, result.rows) == (2, 20)
    assert theirs.metadata.table_uuid != table.metadata.table_uuid
    assert len(theirs.snapshots()) == 1
    assert theirs.properties["gc.enabled"] == "false"
    with pytest.raises(MasterKeyRefusedError):
        partner.catalog.register_table("db.source", table.metadata_location).scan().to_arrow()


def test_no_data_file_is_written_and_no_key_but_those_of_shared_files_is_the_sources(table: EncryptedTable, partner: Partner) -> None:
    result = share(table, partner.key_id, partner.location, NORTH)

    theirs = partner.register(result)
    assert {path.suffix for path in files_below(path_of(partner.location))} == {".avro", ".json"}
    ours, given = (reachable_files(each.metadata, each.io).files.values() for each in (table, theirs))
    old = {bytes(file.key.encryption_key.reveal()): file for file in ours if file.key is not None}
    shared = {bytes(file.key.encryption_key.reveal()): file for file in given if file.key is not None}
    assert {old[key].location for key in old.keys() & shared.keys()} == {task.file.file_path for task in table.scan(NORTH).plan_files()}
    assert {each.kind for key, each in shared.items() if key not in old} == {FileKind.MANIFEST, FileKind.MANIFEST_LIST}
    assert "alias/orders" not in metadata_of(theirs).model_dump_json()
    assert result.written_bytes == sum(path.stat().st_size for path in files_below(path_of(partner.location)))


def test_verify_and_audit_are_clean_at_the_partner(table: EncryptedTable, partner: Partner) -> None:
    table.delete("id = 2")
    theirs = partner.register(share(table, partner.key_id, partner.location, NORTH))

    assert verify(theirs).is_good
    assert [finding for each in audit(theirs).tables for finding in each.findings] == []


def test_the_table_remembers_the_share_before_it_is_there(table: EncryptedTable, partner: Partner) -> None:
    result = share(table, partner.key_id, partner.location, NORTH)

    [record] = live_shares(table.refresh())
    assert (record.share_uuid, record.key_id, record.metadata_location) == (result.share_uuid, partner.key_id, result.metadata_location)
    assert set(record.files) == {task.file.file_path for task in table.scan(NORTH).plan_files()}
    assert record.row_filter == NORTH


def test_deletion_vectors_go_with_their_files_and_show_nothing_of_others(table: EncryptedTable, partner: Partner) -> None:
    table.delete("id in (2, 3, 4)")

    result = share(table, partner.key_id, partner.location, NORTH)

    theirs = partner.register(result)
    assert ids(theirs) == ids(table, row_filter=NORTH)
    assert (result.rows, result.deleted_rows) == (18, 2)
    [vector] = [file for file in reachable_files(theirs.metadata, theirs.io).files.values() if file.kind == FileKind.DELETION_VECTOR]
    assert vector.location.startswith(partner.location)
    assert vector.key is not None
    with encrypted_table(theirs).io.decrypting_input(vector.location, vector.key).open() as stream:
        assert b"team=south" not in stream.read()


def test_a_dry_run_writes_nothing_and_says_what_would_be(table: EncryptedTable, partner: Partner) -> None:
    before, location = files_below(folder_of(table)), table.metadata_location

    planned = share(table, partner.key_id, partner.location, NORTH, dry_run=True)

    assert files_below(folder_of(table)) == before
    assert table.refresh().metadata_location == location
    assert not path_of(partner.location).exists()
    assert (planned.files, planned.rows, planned.written_bytes) == (2, 20, 0)
    assert json.loads(json.dumps(planned.to_json()))["dry_run"] is True


# ---- which files


def test_a_file_that_holds_other_rows_is_refused_with_its_number(catalog: EncryptedSqlCatalog, partner: Partner) -> None:
    table = new_table(catalog, appends=[rows(0), rows(100), rows(200)])

    assert share(table, partner.key_id, partner.location, "id < 100").files == 1
    with pytest.raises(ConfigurationError, match=r"1 file of 2 with matching rows .* hold other rows too"):
        share(table, partner.key_id, f"{partner.location}-2", "id < 110")


@pytest.mark.parametrize("kind", ["position", "equality"])
def test_position_and_equality_deletes_are_refused(catalog: EncryptedSqlCatalog, partner: Partner, kind: str) -> None:
    table = new_table(catalog, appends=[rows(0), rows(20)])
    delete_by_file(table, kind)

    with pytest.raises(ConfigurationError, match=r"2 files of 2 .* position or equality deletes.*compact --apply-deletes"):
        share(table.refresh(), partner.key_id, partner.location)


def test_a_filter_that_matches_no_file_is_refused(table: EncryptedTable, partner: Partner) -> None:
    with pytest.raises(ConfigurationError, match=r"no file of snapshot .* holds rows that match"):
        share(table, partner.key_id, partner.location, "team = 'west'")
    assert not path_of(partner.location).exists()


SCORES: Final = Schema(NestedField(1, "id", LongType()), NestedField(2, "score", DoubleType()), NestedField(3, "name", StringType()))
FILTERS: Final[dict[str, Callable[[dict[str, Any]], bool | None]]] = {
    "score > 1.0": lambda row: row["score"] is not None and row["score"] > 1.0,
    "score <= 1.0": lambda row: row["score"] is not None and row["score"] <= 1.0,
    "score != 1.0": lambda row: row["score"] is not None and not math.isnan(row["score"]) and row["score"] != 1.0,
    "score is not null": lambda row: row["score"] is not None,
    "not (score > 1.0)": lambda row: row["score"] is not None and not math.isnan(row["score"]) and row["score"] <= 1.0,
    "name = 'abcdefghijklmnop'": lambda row: row["name"] == "abcdefghijklmnop",
    "name != 'abcdefghijklmnop'": lambda row: row["name"] is not None and row["name"] != "abcdefghijklmnop",
    "name like 'abcdefghijklmnop%'": lambda row: row["name"] is not None and row["name"].startswith("abcdefghijklmnop"),
    "name <= 'abcdefghijklmnop'": lambda row: row["name"] is not None and row["name"] <= "abcdefghijklmnop",
    "name in ('abcdefghijklmnop', 'b')": lambda row: row["name"] in ("abcdefghijklmnop", "b"),
    "id not in (1, 2)": lambda row: row["id"] is not None and row["id"] not in (1, 2),
}
"""What a row must be for a filter to be true of it, as SQL means it. Text is longer than the 16 characters to which bounds are cut."""
ROW: Final = st.fixed_dictionaries(
    {
        "id": st.sampled_from([None, 1, 2, 3]),
        "score": st.sampled_from([None, math.nan, -0.0, 0.0, 1.0, 2.0, math.inf]),
        "name": st.sampled_from([None, "", "a", "b", "abcdefghijklmnop", "abcdefghijklmnopq", "abcdefghijklmnoq"]),
    }
)


OF_ONE_KIND: Final = st.lists(ROW.map(lambda row: [row, row]), min_size=1, max_size=4)
"""Files of rows that all match or of which none does: of others a share is mostly refused."""


@given(
    files=st.one_of(OF_ONE_KIND, st.lists(st.lists(ROW, min_size=1, max_size=3), min_size=1, max_size=4)),
    row_filter=st.sampled_from(sorted(FILTERS)),
)
@settings(deadline=None)
def test_every_row_of_a_shared_file_matches(files: list[list[dict[str, Any]]], row_filter: str) -> None:
    with TemporaryDirectory() as folder:
        catalog = memory_catalog(Path(folder))
        table = new_table(catalog, schema=SCORES, appends=[pa.Table.from_pylist(each, SCORES.as_arrow()) for each in files])
        try:
            plan = plan_share(table, parse_row_filter(row_filter), None, LocalRunner())
        except ConfigurationError:
            return
        given = [row for task in plan.tasks for row in rows_of_file(table, task).to_pylist()]

    assert all(FILTERS[row_filter](row) for row in given)
    assert len(given) == sum(bool(FILTERS[row_filter](row)) for each in files for row in each)


def test_columns_added_and_renamed_and_partitions_changed_since_are_as_the_source_reads_them(
    catalog: EncryptedSqlCatalog, partner: Partner
) -> None:
    table = team_table(catalog, 0)
    with table.update_schema() as schema:
        schema.rename_column("note", "remark")
        schema.add_column("score", DoubleType())
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "id_bucket")
    table.append(rows(100, schema=table.schema()))

    result = share(table, partner.key_id, partner.location, NORTH)

    theirs = partner.register(result)
    assert in_order(theirs.scan()) == in_order(table.scan(NORTH))
    assert theirs.schema().fields == table.schema().fields
    assert {spec_id: spec.fields for spec_id, spec in theirs.specs().items()} == {
        spec_id: spec.fields for spec_id, spec in table.specs().items()
    }
    with pytest.raises(ConfigurationError, match="hold other rows too"):
        share(table, partner.key_id, f"{partner.location}-2", "score = 25.0")


def test_an_older_snapshot_is_shared_as_time_travel_reads_it(table: EncryptedTable, partner: Partner) -> None:
    first = table.snapshots()[0].snapshot_id
    with table.update_schema() as schema:
        schema.rename_column("note", "remark")
        schema.delete_column("id")
    result = share(table, partner.key_id, partner.location, NORTH, snapshot=first)

    theirs = partner.register(result)
    assert ids(theirs) == list(range(0, 20, 2))
    assert result.snapshot_id == first
    assert result.columns == ("id", "team", "note")


def test_a_dropped_column_is_said_to_be_readable_and_its_bounds_are_not_given(table: EncryptedTable, partner: Partner) -> None:
    with table.update_schema() as schema:
        schema.delete_column("note")

    result = share(table, partner.key_id, partner.location, NORTH)

    theirs = partner.register(result)
    assert result.dropped == ("note",)
    assert {field_id for task in theirs.scan().plan_files() for field_id in task.file.lower_bounds} <= {1, 2}


def test_without_statistics_the_partner_gets_no_bounds(table: EncryptedTable, partner: Partner) -> None:
    theirs = partner.register(share(table, partner.key_id, partner.location, NORTH, no_statistics=True))

    assert all(not task.file.lower_bounds and not task.file.value_counts for task in theirs.scan().plan_files())
    assert ids(theirs, row_filter="id = 2") == [2]


NESTED: Final = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "person", StructType(NestedField(5, "email", StringType()), NestedField(6, "phones", ListType(7, StringType())))),
    NestedField(3, "tags", ListType(8, ListType(9, StringType()))),
    NestedField(4, "notes", MapType(10, StringType(), 11, StructType(NestedField(12, "text", StringType())))),
)


@pytest.mark.parametrize("protected", ["", "person.email", "tags", "notes", "person"])
def test_lists_maps_and_structs_are_shared_but_for_what_of_them_is_protected(
    catalog: EncryptedSqlCatalog, partner: Partner, aws: AwsServer, protected: str
) -> None:
    secret = aws.new_key()
    properties = {"encryption.column-keys": f"{secret}: {protected}"} if protected else {}
    table = new_table(catalog, schema=NESTED, appends=[rows(0, schema=NESTED)], properties=properties)
    names = [each for each in ("id", "person.email", "person.phones", "tags", "notes") if not each.startswith(protected or "none")]

    theirs = partner.register(share(table, partner.key_id, partner.location))

    assert in_order(theirs.scan()) == in_order(table.scan(selected_fields=tuple(names)))
    if protected:
        with_it = share(table, partner.key_id, f"{partner.location}-with", columns={protected: partner.column_key_id})
        assert in_order(partner.register(with_it, "db.with").scan()) == in_order(table.scan())


# ---- protected columns


def test_a_protected_column_stays_closed_and_is_no_column_of_the_share(
    catalog: EncryptedSqlCatalog, partner: Partner, aws: AwsServer
) -> None:
    secret = aws.new_key()
    properties = {"encryption.column-keys": f"{secret}: note", "encryption.column-mask.note": "truncate(2)"}
    table = team_table(catalog, 0, properties=properties)

    result = share(table, partner.key_id, partner.location, NORTH)

    theirs = partner.register(result)
    assert (result.columns, result.withheld, result.masked) == (("id", "team"), ("note",), ("note",))
    assert theirs.scan().to_arrow().column_names == ["id", "team"]
    assert ids(theirs) == ids(table, row_filter=NORTH)
    assert secret not in metadata_of(theirs).model_dump_json()
    assert verify(theirs).is_good
    assert [finding for each in audit(theirs).tables for finding in each.findings] == []


def test_a_file_that_holds_a_protected_column_in_the_clear_is_refused(
    catalog: EncryptedSqlCatalog, partner: Partner, aws: AwsServer
) -> None:
    table = team_table(catalog, 0)
    declare(table, f"{aws.new_key()}: note")
    table.append(team_rows(100))

    with pytest.raises(ConfigurationError, match=r"1 file of 2 .* hold a protected column in the clear.*reencrypt --out-of-line"):
        share(table, partner.key_id, partner.location, NORTH)

    reencrypt(table, out_of_line=True)
    assert share(table, partner.key_id, partner.location, NORTH).files == 2


# ---- files that are written again


def test_matching_rows_of_files_that_hold_others_are_written_once_and_keep_their_ids(
    catalog: EncryptedSqlCatalog, partner: Partner
) -> None:
    table = new_table(catalog, appends=[rows(0), rows(100), rows(200)], properties=MERGE_ON_READ)
    table.delete("id in (3, 105)")

    result = share(table, partner.key_id, partner.location, "id < 110", rewrite=True)

    theirs = partner.register(result)
    lineage = ("id", "note", "_row_id", "_last_updated_sequence_number")
    assert in_order(theirs.scan(selected_fields=lineage)) == in_order(table.scan("id < 110", selected_fields=lineage))
    assert (result.files, result.rewritten, result.rows) == (1, 1, 28)
    written = {task.file.file_path for task in theirs.scan().plan_files() if task.file.file_path.startswith(partner.location)}
    assert len(written) == 1
    assert result.rewritten_bytes == sum(path_of(location).stat().st_size for location in written)
    [record] = live_shares(table.refresh())
    assert not written & set(record.files)
    assert verify(theirs).is_good
    assert [finding for each in audit(theirs).tables for finding in each.findings] == []


def test_the_end_of_a_share_of_copies_alone_asks_for_nothing_more(catalog: EncryptedSqlCatalog, partner: Partner) -> None:
    table = new_table(catalog, appends=[rows(0)], properties=MERGE_ON_READ)
    result = share(table, partner.key_id, partner.location, "id < 5", rewrite=True)

    ended = unshare(table, result.share_uuid)
    assert (ended.files, ended.advice) == ((), "")
    assert ended.summary().endswith(f"by which {partner.key_id} opened no file of the table.")


@pytest.mark.parametrize("kind", ["position", "equality"])
def test_files_with_other_deletes_are_written_again_without_the_deleted_rows(
    catalog: EncryptedSqlCatalog, partner: Partner, kind: str
) -> None:
    table = new_table(catalog, appends=[rows(0), rows(20)])
    delete_by_file(table, kind)

    result = share(table.refresh(), partner.key_id, partner.location, rewrite=True)

    assert (result.files, result.rewritten, result.rows) == (0, 2, 38)
    assert ids(partner.register(result)) == [each for each in range(40) if each not in (3, 25)]


def test_a_column_that_may_not_leave_is_in_no_file_of_the_share(table: EncryptedTable, partner: Partner) -> None:
    result = share(table, partner.key_id, partner.location, NORTH, rewrite=True, without_columns=["note", "team"])

    theirs = partner.register(result)
    assert (result.columns, result.withheld, result.files) == (("id",), ("team", "note"), 0)
    assert ids(theirs) == ids(table, row_filter=NORTH)
    for task in theirs.scan().plan_files():
        with opened_file(theirs.io, task.file) as opened:
            assert opened.schema.names == ["id", "_row_id", "_last_updated_sequence_number"]
        assert "north" not in task.file.file_path
    assert verify(theirs).is_good


def test_columns_are_left_out_of_files_that_are_written_again_alone(table: EncryptedTable, partner: Partner) -> None:
    with pytest.raises(ConfigurationError, match="set rewrite as well"):
        share(table, partner.key_id, partner.location, NORTH, without_columns=["note"])
    with pytest.raises(ConfigurationError, match="has no column 'notes' to leave out; its columns are id, team, note"):
        share(table, partner.key_id, partner.location, NORTH, rewrite=True, without_columns="notes")


def test_a_file_with_a_protected_column_in_the_clear_is_written_again_without_it(
    catalog: EncryptedSqlCatalog, partner: Partner, aws: AwsServer
) -> None:
    table = team_table(catalog, 0)
    declare(table, f"{aws.new_key()}: note")
    table.append(team_rows(100))

    result = share(table, partner.key_id, partner.location, NORTH, rewrite=True)

    theirs = partner.register(result)
    assert (result.files, result.rewritten, result.columns) == (1, 1, ("id", "team"))
    assert ids(theirs) == ids(table.refresh(), row_filter=NORTH)
    assert verify(theirs).is_good
    assert [finding for each in audit(theirs).tables for finding in each.findings] == []


# ---- the storage policy


def test_the_policy_lets_read_exactly_the_shared_objects_and_the_share() -> None:
    policy = json.loads(storage_policy(["s3://lake/orders/data/a.parquet", "s3a://lake/orders/data/b*$?.parquet"], "s3://partner/orders"))

    [statement] = policy["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "s3:GetObject")
    assert statement["Resource"] == [
        "arn:aws:s3:::lake/orders/data/a.parquet",
        "arn:aws:s3:::lake/orders/data/b${*}${$}${?}.parquet",
        "arn:aws:s3:::partner/orders/*",
    ]


def test_another_store_has_no_such_policy() -> None:
    assert storage_policy(["file:///lake/orders/data/a.parquet"], "gs://partner/orders") == ""


# ---- careless users


def test_a_place_in_a_store_that_nobody_knows_is_refused_by_its_scheme(table: EncryptedTable, partner: Partner) -> None:
    for copy in (lambda place: share(table, partner.key_id, place, NORTH), lambda place: relocate(table, place)):
        with pytest.raises(ConfigurationError, match="no FileIO knows the scheme 'foo'"):
            copy("foo://bucket/orders")


def test_a_place_that_holds_a_share_or_a_table_is_refused(table: EncryptedTable, catalog: EncryptedSqlCatalog, partner: Partner) -> None:
    share(table, partner.key_id, partner.location, NORTH)
    before = {path: path.read_bytes() for path in files_below(path_of(partner.location))}

    with pytest.raises(ConfigurationError, match="holds this share already"):
        share(table, partner.key_id, partner.location, NORTH)
    with pytest.raises(ConfigurationError, match="holds another table"):
        share(new_table(catalog, "db.other", appends=[rows(0)]), partner.key_id, partner.location)
    assert {path: path.read_bytes() for path in files_below(path_of(partner.location))} == before


@pytest.mark.parametrize("inside", ["shares/a", "data/a"])
def test_a_place_inside_another_table_is_refused(
    table: EncryptedTable, catalog: EncryptedSqlCatalog, partner: Partner, inside: str
) -> None:
    other = new_table(catalog, "db.other", appends=[rows(0)])
    before = files_below(folder_of(other))

    for copy in (lambda place: share(table, partner.key_id, place, NORTH), lambda place: relocate(table, place)):
        with pytest.raises(ConfigurationError, match="lies in the folder of another table"):
            copy(f"{other.location()}/{inside}")
    assert files_below(folder_of(other)) == before
    assert live_shares(table.refresh()) == []


@pytest.mark.parametrize("inside", ["", "/shares/a", "/data/shares"])
def test_a_place_inside_the_table_is_refused(table: EncryptedTable, partner: Partner, inside: str) -> None:
    with pytest.raises(ConfigurationError, match="inside the table"):
        share(table, partner.key_id, f"{table.location()}{inside}", NORTH)


@pytest.mark.parametrize("dry_run", [False, True])
def test_the_tables_own_key_and_an_unknown_one_are_refused_and_leave_nothing(
    table: EncryptedTable, partner: Partner, dry_run: bool
) -> None:
    with pytest.raises(ConfigurationError, match=r"is the master key of db\.t itself"):
        share(table, "alias/orders", partner.location, NORTH, dry_run=dry_run)
    with pytest.raises(KeyNotFoundError):
        share(table, "alias/nobody", partner.location, NORTH, dry_run=dry_run)
    assert live_shares(table.refresh()) == []
    assert not path_of(partner.location).exists()


def test_a_table_without_rows_or_encryption_and_a_snapshot_that_is_not_there_are_refused(
    catalog: EncryptedSqlCatalog, partner: Partner
) -> None:
    plain = catalog.create_table("db.plain", TEAM_SCHEMA)
    with pytest.raises(ConfigurationError, match=r"db\.plain is not an encrypted table"):
        share(plain, partner.key_id, partner.location)
    with pytest.raises(ConfigurationError, match="has no rows to share"):
        share(new_table(catalog), partner.key_id, partner.location)
    with pytest.raises(ConfigurationError, match="has no snapshot 7 to share"):
        share(new_table(catalog, "db.u", appends=[rows(0)]), partner.key_id, partner.location, snapshot=7)


def test_who_may_wrap_under_the_partners_key_and_not_unwrap_shares(tmp_path: Path) -> None:
    kms = memory_kms(tmp_path, MASTER_KEY, "partner")
    refusing = {**kms, "encryption.kms-impl": write_only_kms.CLASS, write_only_kms.REFUSED: "partner"}
    del refusing["encryption.kms-type"]
    stored = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    EncryptedSqlCatalog("prod", **stored, **kms).create_namespace("db")
    table = new_table(EncryptedSqlCatalog("prod", **stored, **refusing), appends=[rows(0)])

    result = share(table, "partner", f"file://{tmp_path}/share")

    with pytest.raises(KmsAccessDeniedError):
        table.catalog.register_table("db.mine", result.metadata_location).scan().to_arrow()
    assert ids(EncryptedSqlCatalog("prod", **stored, **kms).register_table("db.theirs", result.metadata_location)) == ids(table)
