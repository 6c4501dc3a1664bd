"""erase by careless users and where others write: nobody else is erased, and what was not searched is no proof."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType, NestedField, StringType, StructType

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import Erased, erase, reencrypt
from tests.maintenance.test_erase import check_nothing_is_left
from tests.support.plaintext import CANARY
from tests.support.protected_tables import TABLE_KEY, Clients, clients, protected_table
from tests.support.tables import SHOWN_PARTITIONS, folder_of

SCHEMA: Final = Schema(NestedField(1, "customer_id", IntegerType()), NestedField(2, "email", StringType()))
FILTER: Final = "customer_id = 7"
BY_CUSTOMER: Final = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "customer_id"))


@pytest.fixture
def elsewhere(unwatched_warehouse: Path) -> Clients:
    """Clients of a warehouse into which a test writes plaintext on purpose."""
    return clients(unwatched_warehouse)


def people(
    catalog: Catalog,
    schema: Schema = SCHEMA,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    properties: Mapping[str, str] | None = None,
) -> Table:
    creation = {"encryption.key-id": TABLE_KEY, **(properties or {})}
    return catalog.create_table("db.people", schema, partition_spec=spec, properties=creation)


def rows(table: Table, *ids: int) -> pa.Table:
    schema = table.schema().select("customer_id", "email").as_arrow()
    return pa.table({"customer_id": ids, "email": [CANARY if each == 7 else f"m{each}" for each in ids]}, schema=schema)


def rows_with_ids(table: Table) -> list[str]:
    fields = (*(field.name for field in table.refresh().schema().fields), "_row_id", "_last_updated_sequence_number")
    return sorted(map(repr, table.scan(selected_fields=fields).to_arrow().to_pylist()))


def erased_from(table: Table, row_filter: str = FILTER) -> Erased:
    """Erase, and check that nothing is left, and that the others are as before."""
    others = rows_with_ids(table)
    erased = erase(table, row_filter)
    assert erased.is_complete, erased
    assert rows_with_ids(table) == [row for row in others if CANARY not in row]
    check_nothing_is_left(table, CANARY)
    assert erase(table, row_filter).found_nothing
    return erased


class TestFilters:
    @pytest.mark.parametrize(
        ("row_filter", "message"),
        [
            ("customer_id = 7.5", "column 'customer_id', a whole number"),
            ("not customer_id in (6.5, 7.5)", "column 'customer_id', a whole number"),
            ("email = 'x' or customer_id > 7.25", "column 'customer_id', a whole number"),
            ("customer_id = 99999999999999999999", "true of no row"),
            ("false", "true of no row"),
            ("customer = 7", r"has no column customer\. Did you mean customer_id\?"),
            ("CUSTOMER_ID = 7", r"has no column CUSTOMER_ID\. Did you mean customer_id\?"),
            ("zzz = 7", "has no column zzz; its columns are customer_id, email"),
        ],
    )
    def test_one_that_cannot_be_meant_erases_nobody(self, both: Clients, row_filter: str, message: str) -> None:
        """PyIceberg rounds 7.5 to 8, who is somebody else."""
        table = people(both.payroll)
        table.append(rows(table, 1, 7, 8))
        before = table.metadata_location
        with pytest.raises(ConfigurationError, match=message):
            erase(table, row_filter)
        assert table.refresh().metadata_location == before

    @pytest.mark.parametrize(
        "row_filter", ["customer_id = 7.0", "customer_id = '7'", "customer_id == 7", "customer_id > 6 and email != 'm8'"]
    )
    def test_one_that_is_written_in_another_way_erases_the_person(self, both: Clients, row_filter: str) -> None:
        table = people(both.payroll)
        table.append(rows(table, 1, 7, 8))
        erased_from(table, row_filter)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
class TestSchemasThatChanged:
    def test_a_column_that_was_widened(self, both: Clients, mode: str) -> None:
        schema = Schema(*SCHEMA.fields, NestedField(3, "f", FloatType()), NestedField(4, "d", DecimalType(5, 2)))
        table = people(both.payroll, schema, properties={"write.delete.mode": mode})
        table.append(rows(table, 1, 7, 8))
        table.append(rows(table, 6, 9))
        with table.update_schema() as change:
            change.update_column("customer_id", LongType()).update_column("f", DoubleType()).update_column("d", DecimalType(12, 2))
        table.append(rows(table, 7, 10))
        erased_from(table)

    def test_columns_that_were_renamed_dropped_and_made_again(self, both: Clients, mode: str) -> None:
        table = people(both.payroll, properties={"write.delete.mode": mode})
        table.append(rows(table, 1, 7))
        with table.update_schema() as change:
            change.rename_column("customer_id", "cid").delete_column("email")
        with table.update_schema() as change:
            change.add_column("customer_id", LongType()).add_column("email", StringType())
        table.append(rows(table, 30, 31))
        assert erase(table, "cid = 7").is_complete
        assert sorted(table.refresh().scan().to_arrow()["customer_id"].to_pylist(), key=str) == [30, 31, None]
        check_nothing_is_left(table, CANARY)

    def test_columns_whose_name_another_one_had_are_told(self, both: Clients, mode: str) -> None:
        table = people(both.payroll, properties={"write.delete.mode": mode})
        table.append(rows(table, 1, 7))
        with table.update_schema() as change:
            change.delete_column("customer_id").rename_column("email", "mail")
        with table.update_schema() as change:
            change.add_column("customer_id", IntegerType()).add_column("email", StringType())
        table.append(rows(table, 7, 8))

        by_id, by_mail = erase(table, FILTER), erase(table, "email = 'm8'")

        assert [each for each in by_id.outside if "'customer_id'" in each and "field id 1, not 3" in each and "was dropped" in each]
        assert [each for each in by_mail.outside if "'email'" in each and "field id 2, not 4" in each and "is 'mail' now" in each]
        assert not [each for each in erase(table, "mail = 'x'").outside if "had the name" in each]

    def test_partitions_that_changed(self, tmp_path: Path, mode: str) -> None:
        payroll = clients(tmp_path, SHOWN_PARTITIONS).payroll
        table = people(payroll, SCHEMA, BY_CUSTOMER, properties={"write.delete.mode": mode, **SHOWN_PARTITIONS})
        table.append(rows(table, 1, 7))
        with table.update_spec() as change:
            change.remove_field("customer_id").add_field("email", IdentityTransform(), "mail")
        table.append(rows(table, 2, 7))
        with table.update_spec() as change:
            change.remove_field("mail").add_field("customer_id", BucketTransform(4), "bucket")
        table.append(rows(table, 3, 7))
        erased_from(table)

    def test_a_nested_column(self, both: Clients, mode: str) -> None:
        person = StructType(NestedField(3, "id", LongType()), NestedField(4, "mail", StringType()))
        table = people(
            both.payroll, Schema(NestedField(1, "k", LongType()), NestedField(2, "person", person)), properties={"write.delete.mode": mode}
        )
        persons = [{"id": 7, "mail": CANARY}, {"id": 8, "mail": "m"}, None]
        table.append(pa.table({"k": [1, 2, 3], "person": persons}, schema=table.schema().as_arrow()))
        erased_from(table, "person.id = 7")


def test_the_result_names_no_partition(tmp_path: Path) -> None:
    table = people(clients(tmp_path, SHOWN_PARTITIONS).payroll, SCHEMA, BY_CUSTOMER, properties=SHOWN_PARTITIONS)
    table.append(rows(table, 1, 7000007, 8))
    for dry_run in (True, False):
        erased = erase(table, "customer_id = 7000007", dry_run=dry_run)
        assert any("/customer_id=?/" in location for location in erased.deleted)
        said = json.dumps(erased.to_json())
        assert "7000007" not in said


@pytest.mark.parametrize("name", ["data/export.csv", "data/export.csv.gz", "metadata/notes.txt", "data/.export.csv.crc", "data/x.parquet"])
def test_files_that_are_not_the_tables_and_not_encrypted_are_no_proof(elsewhere: Clients, name: str) -> None:
    table = people(elsewhere.payroll)
    table.append(rows(table, 1, 7))
    text = f"7,{CANARY}".encode()
    path = folder_of(table) / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else b"crc\x00" + text if name.endswith(".crc") else text)
    erased = erase(table, FILTER)
    assert not erased.is_complete
    assert [location.endswith(name) for location in erased.not_searched] == [True]
    path.unlink()
    assert erase(table, FILTER).is_complete


def test_a_writer_that_began_before_cannot_bring_the_person_back(both: Clients) -> None:
    table = people(both.payroll, properties={"write.delete.mode": "copy-on-write"})
    table.append(rows(table, 1, 7, 9))
    stale = both.payroll.load_table("db.people")
    writing = stale.transaction()
    writing.delete("customer_id = 9")
    assert erase(table, FILTER).is_complete
    with pytest.raises(Exception, match="Cannot find starting snapshot"):
        writing.commit_transaction()
    assert sorted(table.refresh().scan().to_arrow()["customer_id"].to_pylist()) == [1, 9]
    check_nothing_is_left(table, CANARY)
    assert erase(table, FILTER).found_nothing


def test_blanked_rows_are_known_after_they_were_encrypted_again(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[pa.table({"id": [1, 2, 3], "ssn": ["SSN-1", "SSN-2", "SSN-3"]})])
    assert erase(both.analyst.load_table("db.people"), "id = 3").hidden_columns
    reencrypt(both.analyst.load_table("db.people"))
    again = erase(both.analyst.load_table("db.people"), "id = 3")
    assert {(column.column, column.rows) for column in again.hidden_columns} == {("ssn", 1), ("person.email", 1)}

    assert erase(table, "id = 3").is_complete

    [task] = table.refresh().scan().plan_files()
    assert (task.file.record_count, task.delete_files) == (2, set())
    assert not list(folder_of(table).rglob("*-blanked.parquet"))
    assert table.scan(selected_fields=("id", "ssn")).to_arrow().to_pylist() == [{"id": 1, "ssn": "SSN-1"}, {"id": 2, "ssn": "SSN-2"}]


@pytest.mark.parametrize(
    ("row_filter", "question"),
    [
        ("email not in ('a', 'b')", "'email' is null"),
        ("not (email in ('a', 'b') or customer_id = 1)", "'email' is null"),
        ("score != 0", "'score' is nan"),
        ("not (score = 0)", "'score' is nan"),
        ("score not in (0.0, 1.0) and score is not null", "'score' is nan"),
    ],
)
def test_a_filter_that_leaves_open_what_becomes_of_null_or_nan_is_refused_and_says_what_to_add(
    both: Clients, row_filter: str, question: str
) -> None:
    table = both.payroll.create_table(
        "db.t", Schema(*SCHEMA.fields, NestedField(3, "score", DoubleType())), properties={"encryption.key-id": TABLE_KEY}
    )
    table.append(
        pa.table({"customer_id": [2, 3, 4], "email": ["c", None, "a"], "score": [1.0, float("nan"), 0.0]}, schema=table.schema().as_arrow())
    )
    with pytest.raises(ConfigurationError, match=f"rows whose {question}, which a scan by it finds and a delete leaves") as refused:
        erase(table, row_filter)
    column, what = question.replace("'", "").split(" is ")
    assert f"or {column} is {what}" in str(refused.value)

    for settled in (f"({row_filter}) and {column} is not {what}", f"({row_filter}) or {column} is {what}"):
        found = set(ids_of(table, settled))
        before = set(ids_of(table, "customer_id > 0"))
        assert erase(table, settled).is_complete
        assert set(ids_of(table.refresh(), "customer_id > 0")) == before - found
        assert ids_of(table, settled) == []


def ids_of(table: Table, row_filter: str) -> list[int]:
    return [int(each) for each in table.scan(row_filter).to_arrow()["customer_id"].to_pylist()]


@pytest.mark.parametrize(
    ("row_filter", "left"),
    [
        ("tags is null", [1, 3]),
        ("tags is not null and customer_id = 1", [2, 3]),
        ("counts is null", [1, 3]),
        ("home is null", [1, 3]),
        ("home.tags is null", [1]),
        ("home.city is null", [1]),
    ],
)
def test_rows_are_erased_by_the_nulls_of_lists_maps_and_structs(both: Clients, row_filter: str, left: list[int]) -> None:
    columns = {
        "customer_id": [1, 2, 3],
        "tags": [["a"], None, []],
        "counts": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "home": [{"city": "x", "tags": ["q"]}, None, {"city": None, "tags": None}],
    }
    table = both.payroll.create_table("db.people", pa.table(columns).schema, properties={"encryption.key-id": TABLE_KEY})
    table.append(pa.table(columns))
    assert not erase(table, row_filter, dry_run=True).is_complete
    assert erase(table, row_filter).is_complete
    assert sorted(table.refresh().scan().to_arrow()["customer_id"].to_pylist()) == left
