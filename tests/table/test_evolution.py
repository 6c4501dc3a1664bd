"""Tables that change: partition specs, schemas, defaults, name mappings and sort orders, with older files read right."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.sorting import SortDirection
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
)

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, PlaintextRefusedError
from tablecrypt.files.raw_output import RawContent
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO
from tests.support.plaintext import CANARY
from tests.support.tables import ENCRYPTED, encrypted_table, new_table
from tests.support.uniform_files import encrypt_uniform

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
IDS = pa.schema([("id", pa.int64()), ("text", pa.string())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [CANARY] * len(ids)})


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog, schema=SCHEMA)


def stored(table: Table, name: str, foreign: pa.Table) -> tuple[str, StandardKeyMetadata]:
    """Put an encrypted Parquet file of another writer beside the table's own."""
    assert isinstance(table.io, TableFileIO)
    location, encrypted = f"{table.location()}/data/{name}", encrypt_uniform(foreign)
    with table.io.raw_output(location, RawContent.SELF_ENCRYPTED).create() as sink:
        sink.write(encrypted.data)
    return location, encrypted.key_metadata


def column(table: Table, name: str) -> list[object]:
    ordered = table.scan().to_arrow().sort_by("id")
    values: list[object] = ordered.column(name).to_pylist()
    return values


FIELDS: dict[str, tuple[str, Transform[Any, Any]]] = {
    "id": ("id", IdentityTransform()),
    "id_bucket_4": ("id", BucketTransform(4)),
    "id_bucket_8": ("id", BucketTransform(8)),
    "text_trunc": ("text", TruncateTransform(3)),
}


def set_partition_fields(table: Table, wanted: set[str]) -> None:
    with table.update_spec() as update:
        present = {field.name for field in table.spec().fields}
        for name in sorted(present - wanted):
            update.remove_field(name)
        for name in sorted(wanted - present):
            update.add_field(*FIELDS[name], name)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(specs=st.lists(st.sets(st.sampled_from(sorted(FIELDS))), min_size=1, max_size=6))
def test_specs_evolve_as_in_version_2_and_an_id_means_one_field_for_ever(catalog: Catalog, tmp_path: Path, specs: list[set[str]]) -> None:
    plain_catalog = InMemoryCatalog("plain", warehouse=f"file://{tmp_path}")
    plain_catalog.create_namespace("db")
    plain = plain_catalog.create_table("db.t", SCHEMA, properties={"format-version": "2"})
    if catalog.table_exists("db.evolving"):
        catalog.drop_table("db.evolving")
    encrypted = new_table(catalog, "db.evolving", SCHEMA)

    for fields in specs:
        set_partition_fields(plain, fields)
        set_partition_fields(encrypted, fields)

    assert encrypted.specs() == plain.specs()
    assert encrypted.spec() == plain.spec()
    assert encrypted.last_partition_id() == plain.last_partition_id()
    meanings: dict[int, set[tuple[int, str]]] = {}
    for spec in encrypted.specs().values():
        for field in spec.fields:
            meanings.setdefault(field.field_id, set()).add((field.source_id, str(field.transform)))
    assert all(len(each) == 1 for each in meanings.values())


def test_rows_written_under_every_spec_are_found(table: Table) -> None:
    table.append(rows(1, 2))
    for number, fields in enumerate([{"id"}, {"id_bucket_4"}, {"id", "text_trunc"}, set(), {"id_bucket_4"}]):
        set_partition_fields(table, fields)
        table.append(rows(10 * number + 11, 10 * number + 12))
    assert len(column(table, "id")) == 12
    assert table.scan("id >= 30 and id < 50").count() == 4
    table.delete("id = 32")
    assert table.scan("id = 32").count() == 0
    assert len(column(table, "id")) == 11


def test_a_transaction_partitions_as_a_table_does(table: Table) -> None:
    set_partition_fields(table, {"id_bucket_4"})
    before = table.spec()
    set_partition_fields(table, set())
    with table.transaction() as transaction, transaction.update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket_4")
    assert table.spec() == before


def test_union_by_name_adds_columns_with_the_types_of_version_3(table: Table) -> None:
    table.append(rows(1))
    wider = pa.schema([*IDS, pa.field("at", pa.timestamp("ns"))])
    with table.update_schema() as update:
        update.union_by_name(wider)
    assert table.schema().find_type("at") == TimestampNanoType()
    table.append(pa.table({"id": [2], "text": [CANARY], "at": pa.array([1_700_000_000_000_000_001], pa.timestamp("ns"))}))
    assert table.scan().to_arrow().sort_by("id").column("at").cast(pa.int64()).to_pylist() == [None, 1_700_000_000_000_000_001]

    with table.transaction() as transaction, transaction.update_schema() as update:
        update.union_by_name(pa.schema([*wider, pa.field("until", pa.timestamp("ns"))]))
    assert table.schema().find_type("until") == TimestampNanoType()


def test_a_dropped_column_of_the_same_name_does_not_come_back(table: Table) -> None:
    table.append(rows(1))
    with table.update_schema() as update:
        update.delete_column("text")
    with table.update_schema() as update:
        update.add_column("text", StringType())
    assert column(table, "text") == [None]
    assert table.schema().find_field("text").field_id == 3


def test_initial_defaults_fill_older_rows_and_write_defaults_newer_ones(table: Table) -> None:
    table.append(rows(1))
    with table.update_schema() as update:
        update.add_column("grade", LongType(), default_value=7)
    table.append(rows(2))
    with table.update_schema() as update:
        update.set_default_value("grade", 9)
    table.append(rows(3))
    table.append(pa.table({"id": [4], "text": [CANARY], "grade": pa.array([None], pa.int64())}))
    field = table.schema().find_field("grade")
    assert (field.initial_default, field.write_default) == (7, 9)
    assert column(table, "grade") == [7, 7, 9, None]
    assert table.scan("grade = 9").count() == 1
    assert table.scan("grade = 7").count() == 2


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (IntegerType(), 2**40),
        (IntegerType(), "99999999999"),
        (LongType(), 2**70),
        (LongType(), "5.5"),
        (LongType(), Decimal("5.5")),
        (FloatType(), 1e300),
        (DoubleType(), math.inf),
        (DecimalType(5, 1), Decimal("123456.5")),
        (DecimalType(5, 1), 1.55),
        (DateType(), dt.datetime(2020, 1, 1, 5)),
        (DateType(), 2**31 - 1),
        (TimestampType(), 2**62),
    ],
    ids=str,
)
def test_a_default_that_a_column_cannot_hold_is_refused(table: Table, kind: PrimitiveType, default: Any) -> None:
    """PyIceberg rounds some and cuts others, and with others no row of the table can be read any more."""
    table.append(rows(1))
    said = r"^column 'more' of type .* cannot have the default .*: give it one that it can hold$"
    with pytest.raises(ConfigurationError, match=said), table.update_schema() as update:
        update.add_column("more", kind, default_value=default)
    with table.update_schema() as update:
        update.add_column("more", kind)
    with pytest.raises(ConfigurationError, match=said), table.update_schema() as update:
        update.set_default_value("more", default)

    table.refresh().append(rows(2))
    assert column(table, "more") == [None, None]


@pytest.mark.parametrize(
    ("kind", "default", "held"),
    [
        (LongType(), "5", 5),
        (DecimalType(5, 1), 7, Decimal("7.0")),
        (DecimalType(5, 1), 1.5, Decimal("1.5")),
        (DoubleType(), 0.1, 0.1),
        (DateType(), dt.datetime(2020, 1, 1), dt.date(2020, 1, 1)),
        (DateType(), "2020-01-01", dt.date(2020, 1, 1)),
        (BooleanType(), False, False),
    ],
    ids=str,
)
def test_a_default_may_be_written_otherwise(table: Table, kind: PrimitiveType, default: Any, held: object) -> None:
    table.append(rows(1))
    with table.update_schema() as update:
        update.add_column("more", kind, default_value=default)
    assert column(table, "more") == [held]


def test_files_without_field_ids_are_read_by_the_name_mapping(table: Table) -> None:
    location, key_metadata = stored(table, "foreign.parquet", pa.table({"text": [CANARY], "id": pa.array([5], pa.int64())}))
    encrypted_table(table).add_files([location], key_metadata={location: key_metadata})
    assert "schema.name-mapping.default" in table.properties
    table.append(rows(6))
    assert column(table, "text") == [CANARY, CANARY]
    with table.update_schema() as update:
        update.rename_column("text", "words")
    assert column(table, "words") == [CANARY, CANARY]
    assert table.scan("words is null").count() == 0
    assert table.scan("id = 5").to_arrow().num_rows == 1


@pytest.mark.parametrize("value", [7, 0, None])
def test_a_partition_value_stands_for_a_column_that_is_not_in_the_file(table: Table, value: int | None) -> None:
    set_partition_fields(table, {"id"})
    mapping = create_mapping_from_schema(SCHEMA).model_dump_json()
    table.transaction().set_properties({"schema.name-mapping.default": mapping}).commit_transaction()
    location, key_metadata = stored(table, "partial.parquet", pa.table({"text": [CANARY, "other"]}))
    partial = EncryptedDataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(value),
        record_count=2,
        file_size_in_bytes=key_metadata.file_length,
        key_metadata=key_metadata.encode(),
    )
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(partial)
    assert table.scan().to_arrow().column("id").to_pylist() == [value, value]
    matching = "id is null" if value is None else f"id = {value}"
    assert table.scan(f"{matching} and text = 'other'").to_arrow().num_rows == 1
    assert table.scan("id = 8").to_arrow().num_rows == 0


def test_a_sort_order_is_kept_and_claimed_for_no_file(table: Table) -> None:
    with table.update_sort_order() as update:
        update.asc("id", IdentityTransform())
    assert [(field.source_id, field.direction) for field in table.sort_order().fields] == [(1, SortDirection.ASC)]
    table.append(rows(2, 1))
    assert table.inspect.files().column("sort_order_id").to_pylist() == [None]
    with table.update_sort_order() as update:
        update.desc("text", IdentityTransform())
    assert sorted(table.sort_orders()) == [0, 1, 2]
    assert column(table, "id") == [1, 2]


@pytest.mark.parametrize("version", ["1", "2"])
def test_an_older_table_is_not_upgraded_to_an_encrypted_one_but_pointed_to_migration(catalog: Catalog, version: str) -> None:
    old = catalog.create_table("db.old", SCHEMA, properties={"format-version": version})
    assert not isinstance(old, EncryptedTable)
    with pytest.raises(PlaintextRefusedError, match="migrate"):
        old.transaction().set_properties(ENCRYPTED).commit_transaction()
    with pytest.raises(PlaintextRefusedError, match="migrate"), old.transaction() as transaction:
        transaction.set_properties({"format-version": "3", **ENCRYPTED})
    assert catalog.load_table("db.old").format_version == int(version)


@pytest.mark.parametrize("version", [1, 2])
def test_an_encrypted_table_stays_at_version_3(table: Table, version: int) -> None:
    assert table.transaction().upgrade_table_version(3).table_metadata.format_version == 3
    with pytest.raises(ConfigurationError, match="version 3"):
        table.transaction().upgrade_table_version(version)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["append", "overwrite", "delete"])
def test_a_commit_that_is_tried_again_names_its_files_under_the_spec_that_they_were_written_in(catalog: Catalog, mode: str) -> None:
    """Named under a spec of as many fields, by `other`, files that were partitioned by `id` would be passed by, or deleted, by mistake."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "other", LongType()))
    table = new_table(catalog, "db.numbers", schema, properties={"write.overwrite.isolation-level": "snapshot"})
    with table.update_spec() as update:
        update.add_field("id", IdentityTransform(), "by_id")
    table.append(pa.table({"id": [7, 7], "other": [70, 71]}))
    behind = catalog.load_table("db.numbers")
    with table.update_spec() as update:
        update.remove_field("by_id")
        update.add_field("other", IdentityTransform(), "by_other")
    table.append(pa.table({"id": [9], "other": [90]}))

    if mode == "append":
        behind.append(pa.table({"id": [1, 2], "other": [2, 3]}))
    elif mode == "overwrite":
        behind.overwrite(pa.table({"id": [1, 2], "other": [2, 3]}), "id = 1")
    else:
        behind.delete("id = 7 and other = 71")

    expected = {7: {70}, 9: {90}} if mode == "delete" else {7: {70, 71}, 9: {90}, 1: {2}, 2: {3}}
    for key, others in expected.items():
        for other in others:
            assert table.refresh().scan(f"other = {other}").to_arrow().to_pylist() == [{"id": key, "other": other}]
        assert set(table.scan(f"id = {key}").to_arrow().column("other").to_pylist()) == others
    table.delete("other = 1")
    assert table.scan().count() == sum(len(others) for others in expected.values())


@pytest.mark.parametrize("comparison", ["id < 5", "id <= 5", "id > 0", "id >= 1"])
def test_a_filter_compares_values_where_a_partition_is_null(table: Table, comparison: str) -> None:
    set_partition_fields(table, {"id"})
    table.append(pa.table({"id": pa.array([1, None, None], pa.int64()), "text": [CANARY, "a", "b"]}))
    scan = table.scan(f"{comparison} or text = 'a'")
    assert sorted(scan.to_arrow().column("text").to_pylist()) == ["a", CANARY]
    assert scan.count() == 2


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_column_comes_back_under_the_name_of_a_partition_column_that_was_dropped(catalog: Catalog, mode: str) -> None:
    table = new_table(catalog, schema=SCHEMA, properties={**ENCRYPTED, "write.delete.mode": mode})
    table.append(rows(1, 11))
    table.update_spec().add_identity("text").commit()
    table.append(rows(2, 12))
    table.update_spec().remove_field("text").commit()
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("text")
    table.delete("id = 12")

    with table.update_schema() as update:
        update.add_column("text", StringType())
    table.update_spec().add_identity("text").commit()
    table.append(pa.table({"id": [3, 13], "text": ["new"] * 2}))
    table.delete("id > 12")

    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "text": None},
        {"id": 2, "text": None},
        {"id": 3, "text": "new"},
        {"id": 11, "text": None},
    ]
    # No value of the column that was dropped is shown as one of the column that is.
    assert {row["partition"]["text"] for row in table.inspect.files().to_pylist()} == {None, "new"}
    assert {row["partition"]["text"] for row in table.inspect.partitions().to_pylist()} == {None, "new"}
    assert {row["data_file"]["partition"]["text"] for row in table.inspect.entries().to_pylist()} == {None, "new"}


def test_a_column_does_not_take_the_name_of_a_partition_field_of_the_current_spec(table: Table) -> None:
    table.update_spec().add_field("id", BucketTransform(4), "shard").commit()
    with pytest.raises(ValueError, match="shard"), table.update_schema() as update:
        update.add_column("shard", StringType())


@pytest.mark.parametrize(
    ("schema", "column", "told"),
    [
        (SCHEMA, "id", "identifier fields id: Identifier field 1 invalid: not a required field. Choose required columns"),
        (Schema(NestedField(1, "x", DoubleType(), required=True)), "x", "identifier fields x: .* must not be float or double field"),
    ],
)
def test_identifier_fields_that_identify_no_row_are_refused_in_one_line(catalog: Catalog, schema: Schema, column: str, told: str) -> None:
    table = new_table(catalog, schema=schema)
    before = table.metadata_location

    with pytest.raises(ConfigurationError, match=told) as refused, table.update_schema() as update:
        update.set_identifier_fields(column)

    assert "\n" not in str(refused.value)
    assert table.refresh().metadata_location == before
