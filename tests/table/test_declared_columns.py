"""Declaring protected columns: at creation, later, through renames; and what may not be declared, or done to the properties afterwards."""

from __future__ import annotations

import copy
import logging
import pickle
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import AddPartitionSpecUpdate, RemovePropertiesUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from tablecrypt.errors import ConfigurationError, KeyIdChangedError, KeyNotFoundError
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.table.protection.policy import policy_of
from tablecrypt.table.protection.write_barrier import WRITE_BARRIER, changed_barrier
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of
from tests.support.edited_metadata import put_as_next_version, read_metadata
from tests.support.protected_tables import (
    COLUMN_KEY,
    EMAIL,
    OTHER_COLUMN_KEY,
    PEOPLE_SCHEMA,
    SALARY,
    SSN,
    TABLE_KEY,
    Clients,
    clients,
    loaded,
    persons,
    protected_table,
)
from tests.support.tables import encrypted_table, new_table


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Clients:
    return clients(tmp_path_factory.mktemp("declared"))


@pytest.fixture
def table(both: Clients) -> EncryptedTable:
    return protected_table(both.payroll, f"db.t{len(both.payroll.list_tables('db'))}")


def declare(table: EncryptedTable, properties: dict[str, str]) -> None:
    table.transaction().set_properties(properties).commit_transaction()


def remove(table: EncryptedTable, *names: str) -> None:
    table.transaction().remove_properties(*names).commit_transaction()


def policy(table: EncryptedTable) -> dict[int, tuple[str, str]]:
    return {field_id: (each.column_key_id, str(each.mask)) for field_id, each in policy_of(table.metadata).columns.items()}


def keys(text: str) -> dict[str, str]:
    return {"encryption.key-id": TABLE_KEY, "encryption.column-keys": text}


def test_names_become_field_ids_and_nothing_else_is_stored(table: EncryptedTable) -> None:
    assert policy(table) == {SSN: (COLUMN_KEY, "null"), EMAIL: (COLUMN_KEY, "null")}
    assert not [name for name in table.properties if name.startswith(("encryption.column-keys", "encryption.column-mask"))]
    assert table.schema().find_column_name(EMAIL) == "person.email"


def test_the_other_client_finds_the_same(both: Clients, table: EncryptedTable) -> None:
    assert policy(loaded(both.analyst, table.name())) == policy(table)


def test_an_arrow_schema_gets_the_ids_that_the_table_has(both: Clients) -> None:
    made = both.payroll.create_table(
        "db.arrow", pa.schema([("a", pa.struct([("b", pa.string())])), ("c", pa.string())]), properties=keys(f"{COLUMN_KEY}: a.b, c")
    )
    assert [made.schema().find_column_name(field_id) for field_id in policy(cast("EncryptedTable", made))] == ["c", "a.b"]


def test_a_table_may_be_declared_in_the_transaction_that_creates_it(both: Clients) -> None:
    with both.payroll.create_table_transaction("db.staged", PEOPLE_SCHEMA, properties=keys(f"{COLUMN_KEY}: ssn")) as transaction:
        transaction.set_properties({"encryption.column-mask.ssn": "redact"})
    assert policy(loaded(both.payroll, "db.staged")) == {SSN: (COLUMN_KEY, "redact")}


def test_a_column_can_be_declared_with_the_column_itself(table: EncryptedTable) -> None:
    with table.transaction() as transaction:
        with transaction.update_schema() as change:
            change.add_column("iban", StringType())
        transaction.set_properties({"encryption.column-keys": f"{COLUMN_KEY}: ssn, person.email; {OTHER_COLUMN_KEY}: iban"})
    assert policy(table)[table.schema().find_field("iban").field_id] == (OTHER_COLUMN_KEY, "null")


def test_a_rename_keeps_the_protection_and_an_older_metadata_does_too(table: EncryptedTable) -> None:
    before = policy(table)
    with table.update_schema() as change:
        change.rename_column("ssn", "social")
    assert policy(table) == before


def test_a_key_id_with_colons_ends_at_the_last_one(both: Clients) -> None:
    arn = "arn:aws:kms:eu-central-1:111122223333:key/abc"
    MemoryKeyManagementClient(both.payroll.properties).create_key(arn)
    made = both.payroll.create_table("db.arn", PEOPLE_SCHEMA, properties=keys(f"{arn}: ssn ; {COLUMN_KEY}:note"))
    assert [each[0] for each in policy(cast("EncryptedTable", made)).values()] == [arn, COLUMN_KEY]


def test_masks_are_kept_when_other_columns_are_declared_and_go_when_they_are_removed(table: EncryptedTable) -> None:
    declare(table, {"encryption.column-mask.ssn": "truncate(3)"})
    declare(table, {"encryption.column-keys": f"{COLUMN_KEY}: ssn; {OTHER_COLUMN_KEY}: salary"})
    assert policy(table) == {SSN: (COLUMN_KEY, "truncate(3)"), SALARY: (OTHER_COLUMN_KEY, "null")}
    remove(table, "encryption.column-mask.ssn")
    assert policy(table)[SSN] == (COLUMN_KEY, "null")


def test_removed_protection_is_remembered_for_the_files_that_have_it(table: EncryptedTable) -> None:
    declare(table, {"encryption.column-keys": f"{COLUMN_KEY}: person.email"})
    assert list(policy(table)) == [EMAIL]
    assert policy_of(table.metadata).master_keys(SSN) == (COLUMN_KEY,)
    remove(table, "encryption.column-keys")
    assert policy(table) == {}
    assert {each: former.key_id for each, former in policy_of(table.metadata).former.items()} == {SSN: COLUMN_KEY, EMAIL: COLUMN_KEY}


def test_a_column_may_change_its_master_key_once_until_files_are_encrypted_again(table: EncryptedTable) -> None:
    declare(table, {"encryption.column-keys": f"{OTHER_COLUMN_KEY}: ssn"})
    assert policy_of(table.metadata).master_keys(SSN) == (OTHER_COLUMN_KEY, COLUMN_KEY)
    with pytest.raises(ConfigurationError, match="reencrypt the table"):
        declare(table, {"encryption.column-keys": "third: ssn"})
    declare(table, {"encryption.column-keys": f"{COLUMN_KEY}: ssn"})


def test_the_engine_write_barrier_comes_and_goes_with_the_protection(table: EncryptedTable) -> None:
    assert {name: table.properties[name] for name in WRITE_BARRIER} == dict(WRITE_BARRIER)
    assert table.properties["write.metadata.metrics.column.person.email"] == "none"
    assert changed_barrier(table.properties, policy_of(table.metadata), table.schema()) == {}
    remove(table, "encryption.column-keys")
    assert not [name for name in table.properties if name in WRITE_BARRIER or name.startswith("write.metadata.metrics")]


def test_the_engine_write_barrier_can_be_turned_off_and_each_of_its_properties_chosen(both: Clients) -> None:
    off = protected_table(both.payroll, "db.unguarded", **{"encryption.column-guard": "false"})
    assert not [name for name in off.properties if name in WRITE_BARRIER]
    chosen = protected_table(both.payroll, "db.chosen", **{"write.delete.mode": "copy-on-write"})
    assert chosen.properties["write.delete.mode"] == "copy-on-write"
    assert chosen.properties["write.format.default"] == "orc"
    assert changed_barrier(chosen.properties, policy_of(chosen.metadata), chosen.schema()) == {"write.delete.mode": "copy-on-write"}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (keys(f"{TABLE_KEY}: ssn"), "own master key"),
        (keys(f"{COLUMN_KEY}: nothing"), "no column 'nothing'"),
        (keys(f"{COLUMN_KEY}: ssn, ssn"), "twice"),
        (keys(f"{COLUMN_KEY}: ssn; fin: ssn"), "twice"),
        *((keys(nothing), "names no column") for nothing in ("", " ", " ; ")),
        (keys("ssn") | {"encryption.column-tags": ""}, "must have a value"),
        (keys("ssn"), "not of the form"),
        (keys(f"{COLUMN_KEY}: ssn,"), "not of the form"),
        (keys(": ssn"), "not of the form"),
        (keys(f"{COLUMN_KEY}: person, person.email"), "leave one of the two out"),
        (keys(f"{COLUMN_KEY}: phones.element"), "as a whole"),
        (keys(f"{COLUMN_KEY}: ssn") | {"encryption.column-mask.note": "hash"}, "not protected"),
        (keys(f"{COLUMN_KEY}: ssn") | {"encryption.column-mask.ssn": "nullify"}, "use null"),
        (keys(f"{COLUMN_KEY}: salary") | {"encryption.column-mask.salary": "redact"}, "for text"),
        ({"encryption.key-id": TABLE_KEY, "encryption.column.2.key-id": COLUMN_KEY}, "belong to one table"),
        ({"encryption.column-keys": f"{COLUMN_KEY}: ssn"}, "encrypted tables"),
    ],
)
def test_what_cannot_be_declared_is_refused_and_no_table_is_made(both: Clients, properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        both.payroll.create_table("db.refused", PEOPLE_SCHEMA, properties=properties)
    assert not both.payroll.table_exists("db.refused")


@pytest.mark.parametrize("transform", [IdentityTransform(), BucketTransform(4)], ids=str)
@pytest.mark.parametrize("use", ["partitioned", "sorted"])
def test_no_table_is_partitioned_or_sorted_by_a_protected_column(both: Clients, use: str, transform: Any) -> None:
    spec = PartitionSpec(PartitionField(SSN, 1000, transform, "by"))
    layout: dict[str, Any] = {"partition_spec": spec} if use == "partitioned" else {"sort_order": SortOrder(SortField(SSN, transform))}
    with pytest.raises(ConfigurationError, match=f"cannot be {use}"):
        both.payroll.create_table("db.refused", PEOPLE_SCHEMA, properties=keys(f"{COLUMN_KEY}: ssn"), **layout)
    assert not both.payroll.table_exists("db.refused")


def test_no_identifier_field_is_protected_nor_a_struct_around_a_partition_source(both: Clients) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "s", StructType(NestedField(3, "d", LongType()))))
    identified = Schema(*schema.fields, identifier_field_ids=[1])
    with pytest.raises(ConfigurationError, match="equality deletes"):
        both.payroll.create_table("db.refused", identified, properties=keys(f"{COLUMN_KEY}: id"))
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "d"))
    with pytest.raises(ConfigurationError, match=r"partitioned by column 's\.d'"):
        both.payroll.create_table("db.refused", schema, partition_spec=spec, properties=keys(f"{COLUMN_KEY}: s"))


def test_a_layout_that_tells_a_protected_column_is_not_committed_later_either(table: EncryptedTable) -> None:
    with pytest.raises(ConfigurationError, match="cannot be partitioned"), table.update_spec() as spec:
        spec.add_identity("ssn")
    with pytest.raises(ConfigurationError, match="cannot be sorted"), table.update_sort_order() as order:
        order.asc("person.email", IdentityTransform())
    with pytest.raises(ConfigurationError, match="cannot be partitioned"), table.transaction() as transaction:
        with transaction.update_spec() as spec:
            spec.add_identity("note")
        transaction.set_properties({"encryption.column-keys": f"{COLUMN_KEY}: ssn, note"})
    assert table.refresh().spec().is_unpartitioned()


def test_no_partition_spec_that_tells_a_protected_column_is_added_that_is_not_the_default_either(table: EncryptedTable) -> None:
    """A writer may be told to use any spec of the table."""
    aside = table.transaction()
    spec = PartitionSpec(PartitionField(SSN, 1077, IdentityTransform(), "aside"), spec_id=7)
    aside.apply((AddPartitionSpecUpdate(spec=spec),))
    with pytest.raises(ConfigurationError, match="rows cannot be partitioned by column 'ssn'"):
        aside.commit_transaction()
    assert list(table.refresh().specs()) == [0]


def test_no_protected_column_has_a_write_default_which_whoever_may_commit_would_choose(table: EncryptedTable) -> None:
    with pytest.raises(ConfigurationError, match="'ssn' has a write-default"), table.update_schema() as change:
        change.set_default_value("ssn", "SSN-0001")
    with pytest.raises(ConfigurationError, match=r"'person.nick' has a write-default"), table.transaction() as transaction:
        transaction.set_properties({"encryption.column-keys": f"{COLUMN_KEY}: ssn, person"})
        with transaction.update_schema() as change:
            change.add_column(("person", "nick"), StringType(), default_value="forged")

    with table.update_schema() as change:
        change.set_default_value("note", "none")
    with pytest.raises(ConfigurationError, match="'note' has a write-default"):
        declare(table, {"encryption.column-keys": f"{COLUMN_KEY}: ssn, person.email, note"})
    with table.update_schema() as change:
        change.set_default_value("note", None)
    declare(table, {"encryption.column-keys": f"{COLUMN_KEY}: ssn, person.email, note"})


def test_a_write_default_that_another_engine_set_is_stored_in_no_protected_column(both: Clients, table: EncryptedTable) -> None:
    table.append(persons(1))
    metadata = read_metadata(table)
    theirs_now = copy.deepcopy(metadata["schemas"][0])
    theirs_now["fields"][1]["write-default"] = "SSN-0001"
    metadata |= {"schemas": [*metadata["schemas"], theirs_now | {"schema-id": 1}], "current-schema-id": 1}
    forged = put_as_next_version(table, metadata)
    theirs = encrypted_table(both.payroll.register_table(f"{name_of(table)}_forged", f"file://{forged}"))
    for rows in (persons(2).drop_columns(["ssn"]), persons(2)):
        with pytest.raises(ConfigurationError, match="'ssn' has a write-default"):
            theirs.append(rows)

    assert theirs.scan().to_arrow()["ssn"].to_pylist() == persons(1)["ssn"].to_pylist()
    with theirs.update_schema() as change:
        change.set_default_value("ssn", None)
    theirs.append(persons(2).drop_columns(["ssn"]))
    assert theirs.refresh().scan("id = 2").to_arrow()["ssn"].to_pylist() == [None]


@pytest.mark.parametrize("name", [f"encryption.column.{SSN}.key-id", f"encryption.column.{SSN}.mask"])
def test_nobody_takes_the_protection_away_by_removing_a_property(table: EncryptedTable, name: str) -> None:
    with pytest.raises(ConfigurationError, match="by hand"):
        remove(table, name)
    with pytest.raises(ConfigurationError, match="by hand"):
        declare(table, {name: "other"})
    past_the_check = table.transaction()
    past_the_check.apply((RemovePropertiesUpdate(removals=[f"encryption.column.{SSN}.key-id", f"encryption.column.{SSN}.mask"]),))
    with pytest.raises(KeyIdChangedError, match="'ssn'"):
        past_the_check.commit_transaction()


def test_a_dropped_column_that_comes_back_is_protected_or_refused(table: EncryptedTable) -> None:
    with table.update_schema() as change:
        change.delete_column("ssn")
    with pytest.raises(ConfigurationError, match="name of the protected column"), table.update_schema() as change:
        change.add_column("ssn", StringType())
    with table.transaction() as transaction:
        with transaction.update_schema() as change:
            change.add_column("ssn", StringType())
        transaction.set_properties({"encryption.column-keys": f"{COLUMN_KEY}: ssn, person.email"})
    assert sorted(policy(table)) == [EMAIL, table.schema().find_field("ssn").field_id]


def test_who_wants_a_dropped_column_back_in_the_clear_says_so(table: EncryptedTable) -> None:
    with table.update_schema() as change:
        change.delete_column("ssn")
    remove(table, f"encryption.column.{SSN}.key-id", f"encryption.column.{SSN}.mask")
    with table.update_schema() as change:
        change.add_column("ssn", StringType())
    assert list(policy(table)) == [EMAIL]


def test_a_copy_of_the_properties_protects_no_column_of_another_table(both: Clients, table: EncryptedTable) -> None:
    with pytest.raises(ConfigurationError, match="belong to one table"):
        both.payroll.create_table("db.copy", table.schema(), properties=table.properties)


def test_what_another_engine_has_declared_is_no_protection_and_is_refused(both: Clients) -> None:
    plain = new_table(both.payroll, "db.undeclared", PEOPLE_SCHEMA, properties={"encryption.key-id": TABLE_KEY})
    metadata = plain.metadata.model_copy(update={"properties": {**plain.metadata.properties, "encryption.column-keys": "pii: ssn"}})
    with pytest.raises(ConfigurationError, match="another engine has set"):
        policy_of(metadata)


def test_a_declaration_says_what_it_does_not_reach(both: Clients, caplog: pytest.LogCaptureFixture) -> None:
    plain = cast("EncryptedTable", both.payroll.create_table("db.late", PEOPLE_SCHEMA, properties={"encryption.key-id": TABLE_KEY}))
    for _ in range(2):
        plain.append(pa.table({"id": [1], "ssn": ["1"]}))
    with caplog.at_level(logging.WARNING):
        declare(plain, {"encryption.column-keys": f"{COLUMN_KEY}: ssn"})
    assert "the protection of ssn changes for files that are written from now on. 2 data files of the current snapshot" in caplog.text
    assert "reencrypt brings the current ones in line" in caplog.text


def test_a_declaration_that_is_refused_says_nothing_of_files(both: Clients, caplog: pytest.LogCaptureFixture) -> None:
    by_id = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    plain = new_table(both.payroll, "db.refused", PEOPLE_SCHEMA, partitioned_by=by_id, properties={"encryption.key-id": TABLE_KEY})
    plain.append(pa.table({"id": [1], "ssn": ["1"]}))
    with caplog.at_level(logging.WARNING):
        with pytest.raises(KeyNotFoundError):
            declare(plain, {"encryption.column-keys": "nobody: ssn"})
        with pytest.raises(ConfigurationError, match="partition"):
            declare(plain, {"encryption.column-keys": f"{COLUMN_KEY}: id, ssn"})
    assert "changes for files that are written from now on" not in caplog.text


def test_an_unknown_mask_of_a_column_with_dots_in_its_name_is_found_by_the_whole_name(both: Clients) -> None:
    schema = Schema(NestedField(1, "a.b", StringType()))
    made = both.payroll.create_table("db.dots", schema, properties=keys(f"{COLUMN_KEY}: a.b") | {"encryption.column-mask.a.b": "hash"})
    assert policy(cast("EncryptedTable", made)) == {1: (COLUMN_KEY, "hash")}


def test_a_pickled_table_keeps_its_policy_and_no_key(table: EncryptedTable) -> None:
    assert policy(pickle.loads(pickle.dumps(table))) == policy(table)
