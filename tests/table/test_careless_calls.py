"""Filters, limits and keys that a careless caller writes are refused in one line, and no row is lost or missed by them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, Not
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FloatType, LongType, NestedField, StringType

from tablecrypt.errors import ConfigurationError, PlaintextRefusedError
from tablecrypt.maintenance import SortColumn, compact, erase, reencrypt, share
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedInMemoryCatalog
from tests.support.plaintext import CANARY
from tests.support.tables import MASTER_KEY, ROWS, data_files, ids, memory_catalog, memory_kms, new_table

FRACTIONS = ["id = 1.5", "id <= 1.5", "id > 2.5", "not (id != 0.4)", "text is null or id = 1.5", EqualTo(term="id", value=Decimal("1.5"))]
FRACTIONS += [In(term="id", literals={Decimal("1.5"), Decimal("3")}), Not(EqualTo(term="id", value=Decimal("1.5")))]
PRICES = pa.table(
    {
        "id": [1, 2],
        "price": pa.array([Decimal("1.00"), Decimal("1.01")], pa.decimal128(9, 2)),
        "day": [dt.date(2024, 1, 1), dt.date(2024, 1, 2)],
        "ratio": [0.0, -0.0],
        "text": [CANARY] * 2,
    }
)


@pytest.fixture
def table(catalog: EncryptedInMemoryCatalog) -> EncryptedTable:
    return new_table(catalog, appends=[ROWS])


@pytest.mark.parametrize("row_filter", FRACTIONS, ids=str)
@pytest.mark.parametrize("case_sensitive", [True, False])
def test_a_column_of_whole_numbers_is_not_compared_with_a_rounded_fraction(
    table: EncryptedTable, row_filter: Any, case_sensitive: bool
) -> None:
    said = r"^the filter compares column 'id', a whole number \(long\), with [\d.]+: compare it with a whole number$"
    with pytest.raises(ConfigurationError, match=said):
        table.delete(row_filter, case_sensitive=case_sensitive)
    with pytest.raises(ConfigurationError, match=said):
        table.overwrite(ROWS, row_filter, case_sensitive=case_sensitive)
    with pytest.raises(ConfigurationError, match=said):
        table.scan(row_filter, case_sensitive=case_sensitive).to_arrow()
    with pytest.raises(ConfigurationError, match=said):
        erase(table, row_filter)

    assert table.refresh().scan().to_arrow().num_rows == ROWS.num_rows


def test_a_whole_number_with_a_point_is_one(table: EncryptedTable) -> None:
    assert table.scan("id = 2.0").to_arrow().column("id").to_pylist() == [2]
    assert table.scan("id >= 2.0").to_arrow().column("id").to_pylist() == [2, 3]


@pytest.mark.parametrize("limit", ["3", 1.5, True, [1]])
def test_a_limit_that_is_no_whole_number_is_refused(table: EncryptedTable, limit: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^limit is an? .*; it must be a whole number, or None for all rows$"):
        table.scan(limit=limit)


@pytest.mark.parametrize("limit", [-1, -(10**30)])
def test_a_negative_limit_is_refused(table: EncryptedTable, limit: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"^limit is {limit}; it must be 0 or more, or None for all rows$"):
        table.scan(limit=limit)


@pytest.mark.parametrize(("limit", "rows"), [(10**30, 4), (4, 4), (3, 3), (2, 2), (0, 0), (np.int64(2), 2)])
@pytest.mark.parametrize("row_filter", ["id < 9", "true"])
def test_rows_are_counted_up_to_the_limit_that_they_are_read_to(table: EncryptedTable, limit: int, rows: int, row_filter: str) -> None:
    table.append(ROWS.slice(0, 2))
    table.delete("id = 2 and text is null")
    table.append(ROWS.slice(0, 1))
    scan = table.scan(row_filter, limit=limit)

    assert (scan.to_arrow().num_rows, scan.count()) == (rows, rows)


@pytest.mark.parametrize("wrong", ["no", "false", 0, 1, None])
def test_a_switch_is_true_or_false(table: EncryptedTable, wrong: Any) -> None:
    """Python takes the text "no" for True."""
    calls: dict[str, Callable[[], object]] = {
        "when_matched_update_all": lambda: table.upsert(ROWS, ["id"], when_matched_update_all=wrong),
        "when_not_matched_insert_all": lambda: table.upsert(ROWS, ["id"], when_not_matched_insert_all=wrong),
        "allow_incompatible_changes": lambda: table.update_schema(allow_incompatible_changes=wrong),
        "check_duplicate_files": lambda: table.add_files([], check_duplicate_files=wrong),
        "inclusive": lambda: table.snapshot_as_of_timestamp(0, inclusive=wrong),
        "descending": lambda: SortColumn("id", descending=wrong),
        "nulls_first": lambda: SortColumn("id", nulls_first=wrong),
    }
    of_names: list[Callable[[], object]] = [
        lambda: table.scan("id = 1", case_sensitive=wrong),
        lambda: table.incremental_append_scan(case_sensitive=wrong),
        lambda: table.delete("id = 1", case_sensitive=wrong),
        lambda: table.overwrite(ROWS, "id = 1", case_sensitive=wrong),
        lambda: table.upsert(ROWS, ["id"], case_sensitive=wrong),
        lambda: table.update_schema(case_sensitive=wrong),
        lambda: table.update_spec(case_sensitive=wrong),
        lambda: table.update_sort_order(case_sensitive=wrong),
        lambda: table.transaction().update_sort_order(case_sensitive=wrong),
    ]
    for name, call in [*calls.items(), *(("case_sensitive", call) for call in of_names)]:
        with pytest.raises(ConfigurationError, match=rf"^{name} is (an? \w+|None); it must be True or False$"):
            call()
    assert table.refresh().scan().to_arrow().num_rows == ROWS.num_rows


def test_one_key_column_of_an_upsert_is_one_name(table: EncryptedTable) -> None:
    wanted: Any = "id"
    new = pa.table({"id": pa.array([3, 4], pa.int64()), "text": [CANARY, CANARY]})

    assert table.upsert(new, join_cols=wanted).rows_inserted == 1
    assert table.upsert(new, join_cols=["id", "id"]).rows_inserted == 0
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3, 4]


@pytest.mark.parametrize("wrong", [[1], [None], 3, b"id"])
def test_key_columns_that_are_no_names_are_refused(table: EncryptedTable, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^join_cols "):
        table.upsert(ROWS, join_cols=wrong)

    assert table.refresh().scan().to_arrow().num_rows == ROWS.num_rows


@pytest.mark.parametrize("number", [1, 3000])
def test_a_key_that_is_not_a_number_is_refused_by_its_column(catalog: EncryptedInMemoryCatalog, number: int) -> None:
    keys = [float("nan"), *map(float, range(number))]
    rows = pa.table({"key": keys, "text": [CANARY] * len(keys)})
    table = new_table(catalog, appends=[rows])

    with pytest.raises(ConfigurationError, match=r"^the key column key has NaN, which is equal to nothing"):
        table.upsert(rows, join_cols=["key"])

    assert table.refresh().scan().to_arrow().num_rows == rows.num_rows


@pytest.mark.parametrize(
    "row_filter",
    [
        EqualTo(term="price", value=1.005),
        GreaterThanOrEqual(term="price", value=1.004),
        In(term="price", literals={1.005, 2.0}),
        EqualTo(term="price", value=1e30),
        LessThan(term="price", value=math.inf),
        "price < 10000000",
        "id = '1.5'",
        "price = 'cheap'",
        "price in ('1.00', 'x')",
        EqualTo(term="day", value=dt.datetime(2024, 1, 1, 12)),
        GreaterThanOrEqual(term="day", value=dt.datetime(2024, 1, 1, 0, 0, 0, 1)),
    ],
    ids=str,
)
def test_a_value_that_would_be_rounded_is_refused(catalog: EncryptedInMemoryCatalog, row_filter: Any) -> None:
    table = new_table(catalog, appends=[PRICES])
    for call in (table.delete, lambda given: table.scan(given).to_arrow()):
        with pytest.raises(ConfigurationError, match=r"^the filter compares column '(price|id|day)', .*: compare it with "):
            call(row_filter)

    assert ids(table) == [1, 2]


@pytest.mark.parametrize("row_filter", ["price = 1.0", "price in (1.0, 7.5)", EqualTo(term="price", value=Decimal(1))], ids=str)
def test_operations_take_the_filters_that_scans_take(tmp_path: Path, row_filter: Any) -> None:
    table = new_table(memory_catalog(tmp_path, memory_kms(tmp_path / "keys", MASTER_KEY, "alias/partner")), appends=[PRICES])

    assert share(table, "alias/partner", f"file://{tmp_path}/shared", row_filter, rewrite=True).rows == 1
    assert reencrypt(table, where=row_filter).data_files == 1
    assert compact(table, where=row_filter, rewrite_all=True).added_files == 1
    assert erase(table, row_filter, break_shares=True).rows == 1
    assert ids(table) == [2]


@pytest.mark.parametrize(
    ("row_filter", "found"),
    [
        ("price = 1.0", [1]),
        ("price = 1", [1]),
        ("price in (1.0, 2.00)", [1]),
        (EqualTo(term="price", value=1.01), [2]),
        (GreaterThan(term="price", value=Decimal(1)), [2]),
        (EqualTo(term="day", value=dt.datetime(2024, 1, 1)), [1]),
        (EqualTo(term="id", value=Decimal("1E+30")), []),
        ("ratio in (0.0, 5.0)", [1, 2]),
        ("ratio not in (0.0, 5.0)", []),
    ],
    ids=str,
)
def test_a_value_that_a_column_holds_may_be_written_otherwise(catalog: EncryptedInMemoryCatalog, row_filter: Any, found: list[int]) -> None:
    table = new_table(catalog, appends=[PRICES])
    assert ids(table, row_filter=row_filter) == found

    table.delete(row_filter)
    assert ids(table) == sorted({1, 2} - set(found))


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize(
    ("row_filter", "remaining"),
    [
        ("small < 3000000000", [1]),
        ("small > -3000000000", [1]),
        ("not (small > 3000000000)", [1]),
        ("small != 3000000000", [1]),
        ("small in (3000000000, 5)", [0, 1, 3, 4]),
        ("small not in (3000000000, 5)", [1, 2]),
        ("small in (3000000000, 4000000000)", [0, 1, 2, 3, 4]),
        ("small not in (3000000000, 4000000000)", [1]),
        (EqualTo(term="ratio", value=math.inf), [0, 1, 2, 4]),
        (LessThan(term="ratio", value=math.inf), [1, 2, 3]),
        (GreaterThanOrEqual(term="ratio", value=-math.inf), [1, 2]),
        (In(term="ratio", literals={-math.inf, 1.0}), [1, 2, 3]),
    ],
    ids=str,
)
def test_a_number_that_a_column_cannot_hold_takes_no_row_with_it(
    catalog: EncryptedInMemoryCatalog, mode: str, row_filter: Any, remaining: list[int]
) -> None:
    rows = pa.table(
        {
            "id": [0, 1, 2, 3, 4],
            "small": pa.array([1, None, 5, 2**31 - 1, -(2**31)], pa.int32()),
            "ratio": pa.array([1.0, None, math.nan, math.inf, -math.inf], pa.float32()),
            "text": [CANARY] * 5,
        }
    )
    table = new_table(catalog, appends=[rows], properties={"write.delete.mode": mode})
    found = table.scan(row_filter).to_arrow().column("id").to_pylist()

    table.delete(row_filter)

    assert ids(table) == remaining
    assert {0, 1, 2, 3, 4} - set(remaining) <= set(found)


MOMENTS = pa.table({"at": pa.array([dt.datetime(2026, 1, 1), None], pa.timestamp("us")), "time": [dt.time(1), None], "text": [CANARY] * 2})


@pytest.mark.parametrize("column", ["at", "time"])
@pytest.mark.parametrize(
    ("condition", "deleted"),
    [("> {0}", 0), ("= {0}", 0), ("in ({0}, 1)", 0), ("< -{0}", 0), ("< {0}", 1), ("!= {0}", 1), ("not in ({0}, 1)", 1), (">= -{0}", 1)],
)
def test_a_moment_compares_with_a_number_beyond_64_bits(
    catalog: EncryptedInMemoryCatalog, column: str, condition: str, deleted: int
) -> None:
    table = new_table(catalog, appends=[MOMENTS])
    row_filter = f"{column} {condition.format(2**63 + 1)}"

    assert table.scan(f"{column} is not null and {row_filter}").to_arrow().num_rows == deleted
    table.delete(row_filter)
    assert table.scan().to_arrow().num_rows == MOMENTS.num_rows - deleted


def test_partitions_of_infinity_are_found_again(catalog: EncryptedInMemoryCatalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "ratio", FloatType()), NestedField(3, "text", StringType()))
    by_ratio = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "ratio"))
    rows = pa.table({"id": [0, 1], "ratio": pa.array([math.inf, -math.inf], pa.float32()), "text": [CANARY] * 2})
    table = new_table(catalog, schema=schema, appends=[rows, rows], partitioned_by=by_ratio)

    compact(table)
    table.refresh().dynamic_partition_overwrite(rows)

    assert len(data_files(table)) == 2
    assert ids(table) == [0, 1]


@pytest.mark.parametrize("wrong", [["a"], "a", None, {1: "a"}, {"a": 1}, {"a": None}], ids=str)
def test_properties_of_a_snapshot_are_text_that_iceberg_java_reads(table: EncryptedTable, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^snapshot_properties (is|has) .* must be "):
        table.append(ROWS, snapshot_properties=wrong)
    with pytest.raises(ConfigurationError, match=r"^snapshot_properties (is|has) .* must be "):
        table.delete("id = 1", snapshot_properties=wrong)

    assert ids(table.refresh()) == [1, 2, 3]


def test_a_delete_from_a_table_as_it_was_before_maintenance_says_to_load_it_again(table: EncryptedTable) -> None:
    reencrypt(table.catalog.load_table(table.name()))
    with pytest.raises(ValidationException, match=r"nothing was committed: load it again, and write again$") as refused:
        table.delete("id = 2")
    assert str(refused.value).startswith("Deleted data files were found matching the filter. Others changed these files ")

    table.refresh().delete("id = 2")
    assert ids(table) == [1, 3]


@pytest.mark.parametrize("branch", ["", " ", 5, b"audit"])
def test_no_row_goes_to_a_branch_without_a_name(table: EncryptedTable, branch: Any) -> None:
    for change in (
        lambda: table.append(ROWS, branch=branch),
        lambda: table.overwrite(ROWS, branch=branch),
        lambda: table.delete("id = 1", branch=branch),
        lambda: table.upsert(ROWS, ["id"], branch=branch),
    ):
        with pytest.raises(ConfigurationError, match=r"^branch is .*; it must be the name of a branch"):
            change()

    assert list(table.refresh().metadata.refs) == ["main"]


@pytest.mark.parametrize(
    ("name", "said"), [("", "'' is no name for a"), (" ", "' ' is no name for a"), ("main", "main is a branch and cannot become")]
)
def test_no_tag_takes_the_name_of_a_branch_or_none(table: EncryptedTable, name: str, said: str) -> None:
    before = table.metadata.refs
    for target in (snapshot.snapshot_id for snapshot in table.snapshots()):
        with pytest.raises(ConfigurationError, match=f"^{said}"):
            table.manage_snapshots().create_tag(target, name).commit()

    assert table.refresh().metadata.refs == before


def test_a_branch_is_no_tag_until_it_is_removed(table: EncryptedTable) -> None:
    [snapshot] = table.snapshots()
    table.manage_snapshots().create_branch(snapshot.snapshot_id, "audit").commit()
    with pytest.raises(ConfigurationError, match=r"^audit is a branch and cannot become a tag"):
        table.manage_snapshots().create_tag(snapshot.snapshot_id, "audit").commit()
    table.append(ROWS, branch="audit")

    table.manage_snapshots().remove_branch("audit").commit()
    table.manage_snapshots().create_tag(snapshot.snapshot_id, "audit").commit()

    assert table.refresh().metadata.refs["audit"].snapshot_ref_type == "tag"


def test_neither_the_main_branch_nor_a_branch_in_the_place_of_a_tag_is_removed(table: EncryptedTable) -> None:
    [snapshot] = table.snapshots()
    table.manage_snapshots().create_branch(snapshot.snapshot_id, "audit").create_tag(snapshot.snapshot_id, "v1").commit()
    before = table.refresh().metadata.refs
    removals: dict[str, Callable[[ManageSnapshots], ManageSnapshots]] = {
        "the main branch cannot be dropped": lambda change: change.remove_branch("main"),
        "main is a branch and no tag: remove_branch removes it": lambda change: change.remove_tag("main"),
        "audit is a branch and no tag: remove_branch removes it": lambda change: change.remove_tag("audit"),
        "v1 is a tag and no branch: remove_tag removes it": lambda change: change.remove_branch("v1"),
    }

    for said, remove in removals.items():
        with pytest.raises(ConfigurationError, match=f"^{said}$"):
            remove(table.manage_snapshots()).commit()

    assert table.refresh().metadata.refs == before


@pytest.mark.parametrize("moment", [None, "2026-01-01", True, dt.datetime(2026, 1, 1)])
def test_the_snapshot_of_a_moment_is_asked_for_by_a_number(table: EncryptedTable, moment: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^timestamp_ms is .*; it must be a number$"):
        table.snapshot_as_of_timestamp(moment)

    assert table.snapshot_as_of_timestamp(math.inf) == table.snapshot_as_of_timestamp(2**60) == table.current_snapshot()


@pytest.mark.parametrize("name", ["operation", "added-records", "deleted-records", "total-records", "changed-partition-count"])
def test_what_a_commit_counts_is_no_property_of_its_snapshot(table: EncryptedTable, name: str) -> None:
    said = f"^snapshot_properties has '{name}', which a commit counts by itself: choose another name$"
    with pytest.raises(ConfigurationError, match=said):
        table.append(ROWS, snapshot_properties={name: "-3"})
    with pytest.raises(ConfigurationError, match=said):
        table.delete("id = 1", snapshot_properties={name: "-3"})

    table.refresh().append(ROWS, snapshot_properties={"my-records": "3"})
    summary = table.metadata.snapshots[-1].summary
    assert summary is not None
    assert (summary["total-records"], summary["my-records"]) == (str(2 * ROWS.num_rows), "3")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"properties": None}, "properties is None; it must be a mapping of names"),
        ({"properties": {1: "a"}}, "properties is a dict; it must be a mapping of names"),
        ({"location": Path("t")}, "location is a PosixPath; it must be text or None"),
    ],
)
def test_a_new_table_has_text_where_text_belongs(catalog: EncryptedInMemoryCatalog, wrong: dict[str, Any], said: str) -> None:
    for create in (catalog.create_table, catalog.create_table_if_not_exists, catalog.create_table_transaction):
        with pytest.raises(ConfigurationError, match=f"^{said}$"):
            create("db.odd", ROWS.schema, **wrong)
    assert catalog.list_tables("db") == []


@pytest.mark.parametrize("wrong", [None, "a=b", ["a"]])
def test_properties_are_a_mapping(catalog: EncryptedInMemoryCatalog, table: EncryptedTable, wrong: Any) -> None:
    for change in (
        lambda: table.transaction().set_properties(wrong),
        lambda: catalog.create_namespace("other", wrong),
        lambda: catalog.update_namespace_properties("db", updates=wrong),
    ):
        with pytest.raises(ConfigurationError, match=r"^(the )?properties .*; (it|they) must be a mapping of names$"):
            change()


def test_properties_are_given_in_one_way(table: EncryptedTable) -> None:
    with pytest.raises(ConfigurationError, match="not by both"):
        table.transaction().set_properties({"a": "b"}, c="d")


@pytest.mark.parametrize("wrong", [None, 3, ["a"], {"a": "b"}])
def test_names_of_properties_and_files_are_text(table: EncryptedTable, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^removals holds .*; it must be a name or a list of names$"):
        table.transaction().remove_properties("a", wrong)
    with pytest.raises(ConfigurationError, match=r"^file_paths (is|holds) .*; it must be a name or a list of names$"):
        table.add_files([wrong])
    with pytest.raises(PlaintextRefusedError, match=r"^plain\.parquet: "):
        table.add_files("plain.parquet")  # type: ignore[arg-type]


def test_a_table_is_registered_by_the_text_of_a_location(catalog: EncryptedInMemoryCatalog, table: EncryptedTable) -> None:
    for wrong in (None, Path(table.metadata_location)):
        with pytest.raises(ConfigurationError, match=r"^the location of a metadata file is .*; it must be text$"):
            catalog.register_table("db.other", wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, 3, b"db.t", ("db", None)])
@pytest.mark.parametrize("method", ["forget_pin", "accept_rollback", "load_unencrypted", "purge_files"])
def test_a_table_is_named_by_text(catalog: EncryptedInMemoryCatalog, method: str, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^identifier (is|holds) .*; it must be .*a name or a list of names$"):
        getattr(catalog, method)(wrong)


def test_what_is_done_with_masks_is_no_option_that_a_scan_leaves_unread(table: EncryptedTable) -> None:
    options = {"encryption.masked-reads": "error"}
    for scan in (lambda: table.scan(options=options), lambda: table.incremental_append_scan(options=options)):
        with pytest.raises(ConfigurationError, match=r"^encryption\.masked-reads is no option of a scan, .* give masked="):
            scan()
