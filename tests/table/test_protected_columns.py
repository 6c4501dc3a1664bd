"""Tables with protected columns: one that may use every key and one that may use the table's alone read and change the same rows.

The adversary has the table's key and the right to commit; the careless user filters, sorts, rewrites and copies what he cannot see.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, MapType, NestedField, StringType, StructType

from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError, KmsCredentialsError, TamperedFileError
from tablecrypt.maintenance import compact, reencrypt
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support import denying_kms
from tests.support.interrupted_catalog import InterruptedCatalog, at_commits, once
from tests.support.protected_tables import (
    EMAIL,
    SSN,
    Clients,
    clients,
    counted_columns,
    declare,
    loaded,
    opened_by_table_key,
    person,
    persons,
    protected_table,
    write_as_java_does,
)
from tests.support.tables import files_below, metadata_of

ROWS: Final = 30
OWN_KEYS: Final = pytest.raises(ColumnKeyDeniedError)


def _masked(row: dict[str, Any]) -> dict[str, Any]:
    person = None if row["person"] is None else {**row["person"], "email": None}
    return {**row, "ssn": None, "person": person}


def _all(table: EncryptedTable, **scan: Any) -> list[dict[str, Any]]:
    return sorted(table.scan(**scan).to_arrow().to_pylist(), key=lambda row: int(row["id"]))


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    return protected_table(both.payroll, appends=[persons(*range(20)), persons(*range(20, ROWS))])


@pytest.fixture
def seen_by_analyst(both: Clients, people: EncryptedTable) -> EncryptedTable:
    return loaded(both.analyst, people.name())


EXPECTED: Final = [person(number) for number in range(ROWS)]


def test_with_the_right_the_rows_are_those_that_were_written(people: EncryptedTable) -> None:
    assert _all(people) == EXPECTED
    assert _all(people, row_filter="ssn = 'SSN-0008'") == [person(8)]
    assert _all(people, row_filter="ssn is null") == [person(number) for number in range(0, ROWS, 7)]
    assert _all(people, row_filter="person.email = 'mail-21@example.org'") == [person(21)]


def test_without_it_values_are_masked_and_everything_else_is_as_it_was(seen_by_analyst: EncryptedTable) -> None:
    assert _all(seen_by_analyst) == [_masked(row) for row in EXPECTED]
    assert _all(seen_by_analyst, row_filter="id >= 28") == [_masked(person(28)), _masked(person(29))]
    assert _all(seen_by_analyst, selected_fields=("id", "note", "person.age"))[1] == {"id": 1, "person": {"age": 1}, "note": "note 1"}
    assert seen_by_analyst.scan("id < 5").count() == 5
    assert len(_all(seen_by_analyst, selected_fields=("id", "ssn", "_row_id"))) == ROWS


@pytest.mark.parametrize("row_filter", ["note != 'ssn'", "note != 'person' and id >= 0"])
def test_a_filter_that_has_the_name_of_a_protected_column_in_its_text_needs_no_key_of_it(
    people: EncryptedTable, seen_by_analyst: EncryptedTable, row_filter: str
) -> None:
    for table in (people, seen_by_analyst):
        assert table.scan(row_filter, selected_fields=("id",)).count() == ROWS
        assert table.scan(row_filter, selected_fields=("id",)).to_arrow().num_rows == ROWS


def test_credentials_that_expired_are_not_taken_for_a_missing_right(both: Clients, people: EncryptedTable) -> None:
    kept = {name: value for name, value in both.payroll.properties.items() if name != "encryption.kms-type"}
    anew = EncryptedSqlCatalog("prod", **{**kept, "encryption.kms-impl": denying_kms.CLASS})
    column_keks = [kek.wrapped_bytes() for kek in metadata_of(people).key_ring.column_keks]
    denying_kms.deny(kept["kms.memory.name"], column_keks, KmsCredentialsError("expired"))

    with pytest.raises(KmsCredentialsError):
        loaded(anew, people.name()).scan().to_arrow()


def test_long_text_columns_are_read_as_dictionaries_beside_hidden_ones(both: Clients) -> None:
    """Of so many rows text is read as dictionaries, for which the metadata of chunks is looked at: never that of a hidden column."""
    table = protected_table(both.payroll)
    count = 40_000
    names = pa.array([f"note {number % 9}" for number in range(count)])
    table.append(pa.table({"id": pa.array(range(count), pa.int64()), "ssn": names, "note": names}))
    assert table.scan(selected_fields=("ssn", "note")).to_arrow().group_by("ssn").aggregate([]).num_rows == 9
    seen = loaded(both.analyst, table.name()).scan("id >= 9").to_arrow()
    assert (seen["note"].null_count, seen["ssn"].null_count) == (0, count - 9)


def test_a_stream_and_a_limit_are_masked_alike(seen_by_analyst: EncryptedTable) -> None:
    streamed = seen_by_analyst.scan().to_arrow_batch_reader().read_all().to_pylist()
    assert sorted(streamed, key=lambda row: int(row["id"])) == [_masked(row) for row in EXPECTED]
    assert all(row["ssn"] is None for row in seen_by_analyst.scan(limit=3).to_arrow().to_pylist())


def test_masked_error_refuses_the_column_and_nothing_else(both: Clients, tmp_path: Path, seen_by_analyst: EncryptedTable) -> None:
    with pytest.raises(ColumnKeyDeniedError, match="pii"):
        seen_by_analyst.scan(masked="error").to_arrow()
    assert seen_by_analyst.scan(selected_fields=("id", "note"), masked="error").to_arrow().num_rows == ROWS
    with pytest.raises(ConfigurationError, match="masked is 'perhaps'; it must be mask or error"):
        seen_by_analyst.scan(masked="perhaps")


def test_the_catalog_says_what_scans_do_that_do_not_say_it_themselves(seen_by_analyst: EncryptedTable) -> None:
    seen_by_analyst.catalog.properties["encryption.masked-reads"] = "error"
    with OWN_KEYS:
        seen_by_analyst.scan().to_arrow()
    assert seen_by_analyst.scan(masked="mask").to_arrow().num_rows == ROWS


@pytest.mark.parametrize("row_filter", ["ssn = 'SSN-0008'", "ssn is null", "id = 1 or ssn != 'x'", "person.email = 'x'", "not ssn is null"])
def test_a_filter_on_masked_values_is_refused(seen_by_analyst: EncryptedTable, row_filter: str) -> None:
    for read in ("to_arrow", "to_arrow_batch_reader", "count"):
        with OWN_KEYS:
            getattr(seen_by_analyst.scan(row_filter), read)()


_MASKS: Final[dict[str, tuple[str, Callable[[str], str | None]]]] = {
    "redact": ("redact", lambda ssn: re.sub("[0-9]", "9", ssn.replace("SSN", "X" * 3))),
    "truncate": ("truncate(6)", lambda ssn: ssn[:6]),
    "constant": ("constant(hidden)", lambda ssn: "hidden"),
}


@pytest.mark.parametrize("name", sorted(_MASKS))
def test_stored_masks_are_what_readers_see_without_the_right(both: Clients, name: str) -> None:
    mask, masked = _MASKS[name]
    table = protected_table(both.payroll, appends=[persons(1, 2, 7)], **{"encryption.column-mask.ssn": mask})
    seen = loaded(both.analyst, table.name())
    shown = [row["ssn"] for row in _all(seen)]
    assert shown[:2] == [masked("SSN-0001"), masked("SSN-0002")]
    assert shown[2] == ("hidden" if name == "constant" else None)
    assert [row["ssn"] for row in _all(table)] == ["SSN-0001", "SSN-0002", None]
    with OWN_KEYS:
        seen.scan(f"ssn = '{masked('SSN-0001')}'").to_arrow()


def test_hashes_join_within_a_table_and_nobody_else_can_make_them(both: Clients) -> None:
    tables = [protected_table(both.payroll, name, **{"encryption.column-mask.ssn": "hash"}) for name in ("db.one", "db.other")]
    for table in tables:
        table.append(persons(1, 2))
        table.append(persons(1))
    shown = [[row["ssn"] for row in _all(loaded(both.analyst, table.name()))] for table in tables]
    for first, again, other in shown:
        assert first == again != other
        assert re.fullmatch("[0-9a-f]{64}", first)
    assert not set(shown[0]) & set(shown[1])


def test_the_mask_error_refuses_the_column(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[persons(1)], **{"encryption.column-mask.ssn": "error"})
    seen = loaded(both.analyst, table.name())
    with OWN_KEYS:
        seen.scan().to_arrow()
    assert seen.scan(selected_fields=("id",)).to_arrow().num_rows == 1


def test_a_mask_that_is_changed_holds_for_files_of_before_at_once(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[persons(1)], **{"encryption.column-mask.ssn": "truncate(6)"})
    declare(table, ssn="null")
    table.append(persons(2))
    seen = loaded(both.analyst, table.name())
    assert [row["ssn"] for row in _all(seen)] == [None, None]
    declare(table, ssn="redact")
    table.append(persons(3))
    seen.refresh()
    assert [row["ssn"] for row in _all(seen)] == ["SSN-00", None, "X" * 3 + "-9999"]


def test_nothing_of_the_values_is_in_what_the_tables_key_opens(people: EncryptedTable) -> None:
    secret = re.compile(rb"SSN-\d|mail-\d")
    assert not counted_columns(people) & {SSN, EMAIL}
    found = opened_by_table_key(people)
    assert any(b"note" in each for each in found)
    assert not [each for each in found if secret.search(each)]


def test_positions_and_files_are_deleted_without_the_right_and_filters_on_masks_are_not(seen_by_analyst: EncryptedTable) -> None:
    seen_by_analyst.delete("id = 3 or id = 25")
    assert [row["id"] for row in _all(seen_by_analyst)] == [number for number in range(ROWS) if number not in (3, 25)]
    before = seen_by_analyst.metadata.current_snapshot_id
    with OWN_KEYS:
        seen_by_analyst.delete("ssn = 'SSN-0008'")
    assert seen_by_analyst.refresh().metadata.current_snapshot_id == before


def test_what_reads_all_columns_to_write_them_again_is_refused_before_anything_is_written(
    both: Clients, people: EncryptedTable, seen_by_analyst: EncryptedTable, tmp_path: Path
) -> None:
    people.transaction().set_properties({"write.delete.mode": "copy-on-write"}).commit_transaction()
    seen_by_analyst.refresh()
    stored = files_below(tmp_path)
    changes: dict[str, Callable[[], Any]] = {
        "delete": lambda: seen_by_analyst.delete("id = 3"),
        "overwrite": lambda: seen_by_analyst.overwrite(persons(3), "id = 3"),
        "upsert": lambda: seen_by_analyst.upsert(persons(3), ["id"]),
        "append": lambda: seen_by_analyst.append(persons(99)),
        "compact": lambda: compact(seen_by_analyst, rewrite_all=True),
    }
    for name, change in changes.items():
        with pytest.raises(ColumnKeyDeniedError):
            pytest.fail(f"{name} went through: {change()}")
        assert files_below(tmp_path) == stored, name


def test_with_the_right_rows_are_changed_as_in_any_table(people: EncryptedTable, seen_by_analyst: EncryptedTable) -> None:
    people.delete("ssn = 'SSN-0008'")
    people.overwrite(persons(50), "id = 9")
    changed = persons(10).set_column(1, "ssn", pa.array(["SSN-new"], pa.large_string()))
    people.upsert(pa.concat_tables([changed, persons(51)]), ["id"])
    compact(people, rewrite_all=True)
    expected = [person(number) for number in (*range(8), *range(10, ROWS), 50, 51)]
    expected[8]["ssn"] = "SSN-new"
    assert _all(people) == expected
    assert _all(cast("EncryptedTable", seen_by_analyst.refresh())) == [_masked(row) for row in expected]


def test_renames_keep_the_protection_and_a_column_that_is_dropped_takes_it_along(
    people: EncryptedTable, seen_by_analyst: EncryptedTable
) -> None:
    with people.update_schema() as update:
        update.rename_column("ssn", "tax_id")
    people.append(persons(40).rename_columns(["id", "tax_id", "salary", "person", "phones", "note"]))
    seen_by_analyst.refresh()
    assert {row["tax_id"] for row in _all(seen_by_analyst)} == {None}
    assert [row["tax_id"] for row in _all(people)][-1] == "SSN-0040"
    with OWN_KEYS:
        seen_by_analyst.scan("tax_id = 'SSN-0040'").to_arrow()
    with people.update_schema() as update:
        update.delete_column("tax_id")
    with people.update_schema() as update:
        update.add_column("shoe_size", StringType())
    people.append(persons(41).drop_columns(["ssn"]))
    assert [row["id"] for row in _all(cast("EncryptedTable", seen_by_analyst.refresh()))] == [*range(ROWS), 40, 41]
    assert "tax_id" not in _all(people)[0]


@pytest.mark.parametrize("selected", [("*",), ("id", "person"), ("id", "person.age", "note")])
def test_the_struct_of_a_protected_field_that_was_dropped_is_read_without_it(
    people: EncryptedTable, seen_by_analyst: EncryptedTable, selected: tuple[str, ...]
) -> None:
    before = [row["person"] and {"age": row["person"]["age"]} for row in _all(people)]
    with people.update_schema() as update:
        update.delete_column("person.email")

    for table in (people, cast("EncryptedTable", seen_by_analyst.refresh())):
        assert [row["person"] for row in _all(table, selected_fields=selected)] == before


def test_time_travel_goes_back_over_the_day_on_which_the_column_was_protected(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[persons(1)], **{"encryption.column-keys": "", "write.delete.mode": "merge-on-read"})
    first = table.metadata.current_snapshot_id
    declare(table, "pii: ssn, person.email")
    table.append(persons(2))
    assert _all(table) == [person(1), person(2)]
    assert _all(table, snapshot_id=first) == [person(1)]
    seen = loaded(both.analyst, table.name())
    assert _all(seen) == [_masked(person(1)), _masked(person(2))]
    assert _all(seen, snapshot_id=first) == [_masked(person(1))]
    query = "SELECT ssn, person FROM people ORDER BY id"
    shown = [(None, _masked(person(number))["person"]) for number in (1, 2)]
    assert seen.scan(masked="mask").to_duckdb("people").execute(query).fetchall() == shown


def test_time_travel_shows_a_column_that_was_dropped_since(people: EncryptedTable, seen_by_analyst: EncryptedTable) -> None:
    snapshot, before = people.metadata.current_snapshot_id, _all(people)
    with people.update_schema() as update:
        update.delete_column("ssn")
        update.delete_column("person.email")
    assert _all(people, snapshot_id=snapshot) == before
    assert _all(cast("EncryptedTable", seen_by_analyst.refresh()), snapshot_id=snapshot) == [_masked(row) for row in before]


def test_a_file_that_holds_the_column_under_the_tables_key_is_refused(both: Clients, people: EncryptedTable) -> None:
    """As another engine writes it, or somebody who has the table's key and puts placeholders where values should be."""
    write_as_java_does(people, persons(77))
    for table in (people, loaded(both.analyst, people.name())):
        with pytest.raises(TamperedFileError, match="though it was written when the column was protected"):
            table.scan().to_arrow()
        assert table.scan(selected_fields=("id",)).to_arrow().num_rows == ROWS + 1


def test_a_bloom_filter_which_would_tell_values_outside_of_the_column_is_refused(people: EncryptedTable) -> None:
    with pytest.raises(ConfigurationError):
        people.transaction().set_properties({"write.parquet.bloom-filter-enabled.column.ssn": "true"}).commit_transaction()
        people.append(persons(60))


def test_required_columns_have_empty_values_as_their_null(both: Clients) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType(), required=True),
        NestedField(3, "home", StructType(NestedField(4, "street", StringType(), required=True)), required=True),
    )
    properties = {"encryption.key-id": "orders", "encryption.column-keys": "pii: id, name, home.street"}
    table = cast("EncryptedTable", both.payroll.create_table("db.required", schema, properties=properties))
    row = {"id": 5, "name": "Ada", "home": {"street": "Main"}}
    table.append(pa.Table.from_pylist([row], schema=schema_to_pyarrow(schema, include_field_ids=False)))
    assert table.scan().to_arrow().to_pylist() == [row]
    seen = loaded(both.analyst, "db.required")
    empty = {"id": 0, "name": "", "home": {"street": ""}}
    assert seen.scan().to_arrow().to_pylist() == [empty]
    assert seen.scan().to_arrow_batch_reader().read_all().to_pylist() == [empty]


def test_a_struct_with_required_fields_may_be_null_and_protected(both: Clients) -> None:
    rooms = NestedField(5, "rooms", MapType(6, LongType(), 7, StringType(), value_required=False), required=True)
    floor = NestedField(4, "floor", StructType(rooms), required=True)
    home = StructType(NestedField(3, "street", StringType(), required=True), floor)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "home", home))
    table = cast("EncryptedTable", both.payroll.create_table("db.homes", schema, properties={"encryption.key-id": "orders"}))
    found: list[dict[str, Any]] = [{"id": 1, "home": None}, {"id": 2, "home": {"street": "Main", "floor": {"rooms": [(3, "Ada")]}}}]
    rows = pa.Table.from_pylist(found, schema=schema_to_pyarrow(schema, include_field_ids=False))
    table.append(rows)
    declare(table, "pii: home")
    reencrypt(table)
    table.append(rows)
    compact(table, rewrite_all=True)
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: int(row["id"])) == sorted(found * 2, key=lambda row: int(row["id"]))
    seen = loaded(both.analyst, "db.homes")
    assert [row["home"] for row in seen.scan().to_arrow().to_pylist()] == [None] * 4
    assert [row["home"] for row in seen.scan().to_arrow_batch_reader().read_all().to_pylist()] == [None] * 4


def test_files_that_wait_for_their_commit_keep_their_column_keys_when_the_table_is_refreshed(tmp_path: Path) -> None:
    both = clients(tmp_path, catalog_class=InterruptedCatalog)
    table = protected_table(both.payroll, **{"encryption.column-keys": "", "commit.retry.num-retries": "0"})
    with table.update_spec() as spec:
        spec.add_identity("note")
    for number in range(3):
        table.append(persons(*(2 * number, 2 * number + 1)).set_column(5, "note", [["a", "b"]]))
    declare(table, "pii: ssn")

    def refuse() -> None:
        raise CommitFailedException("others were faster")

    with at_commits(before=once(refuse)):
        done = compact(table, rewrite_all=True, partial_progress=1, workers=1)
    assert (len(done.conflicts), done.groups) == (1, 1)
    fresh = loaded(both.payroll, table.name())
    assert [row["ssn"] for row in _all(fresh)] == [person(number)["ssn"] for number in range(6)]
