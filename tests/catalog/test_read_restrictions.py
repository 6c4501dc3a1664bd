"""A REST catalog's server restricts what may be read: every reader applies it, and what would go past it is refused."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType, IntegerType, ListType, LongType, MapType, NestedField, StringType, StructType

from tablecrypt.cli.main import run
from tablecrypt.errors import ConfigurationError, ReadRestrictionError
from tablecrypt.maintenance import compact, reencrypt, relocate, rotate_kek
from tablecrypt.table.deletes import RowDelta
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.plaintext import CANARY
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import BY_REGION, ENCRYPTED, current_snapshot, memory_kms, new_table, rows_of_file

KEYRING = memory_kms("restricted")
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "card", StringType()),
    NestedField(4, "pair", StructType(NestedField(7, "number", IntegerType()), NestedField(8, "mail", StringType()))),
    NestedField(5, "many", ListType(9, StringType(), element_required=False)),
    NestedField(6, "lookup", MapType(10, StringType(), 11, StringType(), value_required=False)),
)
BY_CARD = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "card"))
NORTH = {"type": "eq", "left": {"type": "reference", "id": 2}, "right": {"type": "literal", "value": "north"}}
CARD = {"field-id": 3, "action": "show-last-4"}


def rows(ids: range = range(6)) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": each,
                "region": ["north", "south", None][each % 3],
                "card": f"{CANARY}-4111-000{each}",
                "pair": None if each == 3 else {"number": each, "mail": f"u{each}@{CANARY}.org"},
                "many": [None, [], [f"{CANARY}{each}", None]][each % 3],
                "lookup": [("key", f"{each}"), ("other", None)],
            }
            for each in ids
        ],
        SCHEMA.as_arrow(),
    )


def masked(card: str) -> str:
    return "".join("n" if each.isdigit() else each if each in "-" else "x" for each in card[:-4]) + card[-4:]


def projections(*actions: dict[str, Any]) -> dict[str, Any]:
    return {"required-column-projections": list(actions)}


@pytest.fixture
def administrator(warehouse: Path, tmp_path: Path) -> EncryptedSqlCatalog:
    """The catalog behind the server, with a plain table beside the encrypted ones."""
    catalog = EncryptedSqlCatalog("server", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{warehouse}", **KEYRING)
    catalog.create_namespace("db")
    return catalog


@pytest.fixture
def server(administrator: EncryptedSqlCatalog) -> Iterator[RestrictingServer]:
    with RestrictingServer(administrator) as running:
        yield running


@pytest.fixture
def loaded(server: RestrictingServer) -> Callable[..., EncryptedTable]:
    """A table of rows, as a client loads it of whom the server wants these restrictions."""

    def load(restrictions: object, spec: PartitionSpec | None = None, **properties: str) -> EncryptedTable:
        new_table(server.catalog, "db.rows", SCHEMA, appends=[rows()], partitioned_by=spec or PartitionSpec(), properties=properties)
        server.read_restrictions = restrictions
        restricted = server.client(**KEYRING).load_table("db.rows")
        assert isinstance(restricted, EncryptedTable)
        return restricted

    return load


def _by_duckdb(table: EncryptedTable) -> pa.Table:
    return table.scan().to_duckdb("rows").sql("SELECT id, card FROM rows").to_arrow_table()


def _by_appends(table: EncryptedTable) -> pa.Table:
    return table.incremental_append_scan(from_snapshot_id_exclusive=None, selected_fields=("id", "card")).to_arrow()


def _by_time_travel(table: EncryptedTable) -> pa.Table:
    snapshot = table.metadata.snapshots[0].snapshot_id
    return table.scan(snapshot_id=snapshot).to_arrow()


def _by_transaction(table: EncryptedTable) -> pa.Table:
    return table.transaction().new_scan(ALWAYS_TRUE, True).to_arrow()


READERS: dict[str, Callable[[EncryptedTable], pa.Table]] = {
    "to_arrow": lambda table: table.scan().to_arrow(),
    "with a limit": lambda table: table.scan(limit=100).to_arrow(),
    "as dictionaries": lambda table: table.scan().to_arrow(dictionary_columns=("card",)),
    "to_arrow_batch_reader": lambda table: table.scan().to_arrow_batch_reader().read_all(),
    "stream of dictionaries": lambda table: table.scan().to_arrow_batch_reader(dictionary_columns=("card",)).read_all(),
    "to_pandas": lambda table: pa.Table.from_pandas(table.scan().to_pandas()),
    "to_polars of a scan": lambda table: table.scan().to_polars().to_arrow(),
    "to_polars of a table": lambda table: table.to_polars().collect().to_arrow(),
    "to_duckdb": _by_duckdb,
    "to_arrow_dataset": lambda table: table.scan().to_arrow_dataset().to_table(),
    "a fragment": lambda table: pa.concat_tables(each.to_table() for each in table.scan().to_arrow_dataset().get_fragments()),
    "Arrow's stream": lambda table: pa.table(table.scan()),
    "Polars filters": lambda table: table.to_polars().filter(pl.col("id") >= 0).collect().to_arrow(),
    "appends": _by_appends,
    "time travel": _by_time_travel,
    "a transaction": _by_transaction,
    "lineage": lambda table: table.scan(selected_fields=("id", "card", "_row_id")).to_arrow(),
    "a filter": lambda table: table.scan(row_filter="id >= 0").to_arrow(),
    "a refreshed table": lambda table: table.refresh().scan().to_arrow(),
    "a pickled table": lambda table: pickle.loads(pickle.dumps(table)).scan().to_arrow(),
    "a pickled scan": lambda table: pickle.loads(pickle.dumps(table.scan())).to_arrow(),
}


@pytest.mark.parametrize(
    "spec",
    [None, pytest.param(BY_REGION, marks=pytest.mark.slow), BY_CARD],
    ids=["unpartitioned", "by the filtered column", "by the masked column"],
)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_leaves_rows_out_and_masks_columns(loaded: Callable[..., EncryptedTable], reader: str, spec: PartitionSpec) -> None:
    table = loaded({"required-row-filter": NORTH, **projections(CARD)}, spec)
    expected = [(each["id"], masked(each["card"])) for each in rows().to_pylist() if each["region"] == "north"]

    found = READERS[reader](table)

    assert sorted(zip(found.column("id").to_pylist(), found.column("card").to_pylist(), strict=True)) == expected
    assert table.scan().count() == len(expected)


def test_what_the_command_prints_is_restricted(
    loaded: Callable[..., EncryptedTable], server: RestrictingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded({"required-row-filter": NORTH, **projections(CARD)})
    properties = [part for name, value in server.client_properties(**KEYRING).items() for part in ("--property", f"{name}={value}")]

    with pytest.raises(SystemExit) as ended:
        run([*properties, "cat", "db.rows", "--columns", "id,card"])

    assert not ended.value.code
    printed = capsys.readouterr().out
    assert [line.split(",")[0].strip('"') for line in printed.splitlines()] == ["id", "0", "3"]
    assert CANARY not in printed
    assert masked(f"{CANARY}-4111-0003") in printed


def test_masks_reach_into_structs_lists_and_maps(loaded: Callable[..., EncryptedTable]) -> None:
    table = loaded(
        projections(
            {"field-id": 8, "action": "mask-alphanum"},
            {"field-id": 9, "action": "sha-256-global"},
            {"field-id": 11, "action": "mask-to-fixed-value"},
        )
    )
    found = table.scan().to_arrow()
    found.validate(full=True)

    for was, now in zip(rows().to_pylist(), found.to_pylist(), strict=True):
        hashes = was["many"] and [each and hashlib.sha256(each.encode()).hexdigest() for each in was["many"]]
        assert now["many"] == hashes
        assert now["lookup"] == [("key", "XXXXXXXX"), ("other", "XXXXXXXX")]
        assert now["card"] == was["card"]
        if was["pair"] is None:
            assert now["pair"] is None
        else:
            assert now["pair"]["number"] == was["pair"]["number"]
            assert now["pair"]["mail"] == f"xn@{masked(f'{CANARY}0000')[:-4]}.xxx"


def test_a_field_is_masked_where_it_is_selected_alone(loaded: Callable[..., EncryptedTable]) -> None:
    table = loaded(
        {
            "required-row-filter": {"type": "eq", "left": {"type": "reference", "id": 7}, "right": 1},
            **projections({"field-id": 8, "action": "replace-with-null"}),
        }
    )

    assert table.scan(selected_fields=("pair.mail",)).to_arrow().to_pylist() == [{"pair": {"mail": None}}]
    assert table.scan(selected_fields=("pair.number",)).to_arrow().to_pylist() == [{"pair": {"number": 1}}]
    assert table.scan(selected_fields=("id",)).to_arrow().to_pylist() == [{"id": 1}]
    assert table.scan().count() == 1


def test_the_server_filters_true_values_and_the_reader_masked_ones(loaded: Callable[..., EncryptedTable]) -> None:
    card = rows().column("card")[2].as_py()
    true_card = {"type": "eq", "left": {"type": "reference", "id": 3}, "right": card}
    table = loaded({"required-row-filter": true_card, **projections({"field-id": 3, "action": "mask-alphanum"})})
    seen = masked(card + "0000")[:-4]

    assert table.scan().to_arrow().column("card").to_pylist() == [seen]
    assert table.scan(row_filter=f"card = '{seen}'", selected_fields=("id",)).to_arrow().to_pylist() == [{"id": 2}]
    assert table.scan(row_filter=f"card = '{card}'").to_arrow().num_rows == 0


@pytest.mark.parametrize("spec", [None, BY_CARD], ids=["unpartitioned", "by the masked column"])
@pytest.mark.parametrize("action", ["replace-with-null", "mask-to-fixed-value", "mask-alphanum", "sha-256-query-local"])
def test_a_filter_on_a_masked_column_tells_nothing_of_its_values(
    loaded: Callable[..., EncryptedTable], action: str, spec: PartitionSpec | None
) -> None:
    table = loaded(projections({"field-id": 3, "action": action}), spec)
    there, absent = rows().column("card")[2].as_py(), f"{CANARY}-4111-9999"

    for true_value in (there, absent):
        for asked in (f"card = '{true_value}'", f"card in ('{true_value}', 'a')", f"card like '{true_value}%'"):
            scan = table.scan(row_filter=asked)
            assert len(list(scan.plan_files())) == len(list(table.scan().plan_files()))
            assert (scan.count(), scan.to_arrow().num_rows, scan.to_arrow_batch_reader().read_all().num_rows) == (0, 0, 0)
        other = table.scan(row_filter=f"card != '{true_value}' or card is null")
        assert (other.count(), other.to_arrow().num_rows) == (6, 6)


def test_a_filter_on_a_masked_field_of_a_struct_sees_the_mask(loaded: Callable[..., EncryptedTable]) -> None:
    table = loaded(projections({"field-id": 4, "action": "mask-to-fixed-value"}))

    assert table.scan(row_filter="pair.number = 2").count() == 0
    assert table.scan(row_filter="pair.number = 0 and pair.mail = 'XXXXXXXX'").count() == 6
    assert table.scan(row_filter="pair.number = 0", selected_fields=("id",)).to_arrow().num_rows == 6


def test_a_filter_on_an_open_column_still_leaves_files_out(loaded: Callable[..., EncryptedTable]) -> None:
    table = loaded(projections(CARD), BY_REGION)

    assert len(list(table.scan(row_filter="region = 'south'").plan_files())) == 1
    assert table.scan(row_filter="region = 'south'").count() == 2


def test_a_hash_of_one_query_is_one_within_it_and_another_in_the_next(loaded: Callable[..., EncryptedTable]) -> None:
    table = loaded(projections({"field-id": 2, "action": "sha-256-query-local"}))
    first, second = (table.scan().to_arrow().column("region").to_pylist() for _ in range(2))

    assert first[0] == first[3] != first[1]
    assert first[2] is None
    assert set(first).isdisjoint(set(second) - {None})


def test_a_hash_is_the_same_in_all_reads_of_a_dataset(loaded: Callable[..., EncryptedTable], server: RestrictingServer) -> None:
    """An engine reads it file by file, groups, and joins it with itself."""
    server_table = loaded(projections({"field-id": 2, "action": "sha-256-query-local"}))
    server.catalog.load_table("db.rows").append(rows())
    table = cast("EncryptedTable", server_table.refresh())
    dataset = table.scan().to_arrow_dataset()
    hashes = [set(fragment.to_table().column("region").to_pylist()) for fragment in dataset.get_fragments()]

    assert len(hashes) == 2
    assert hashes[0] == hashes[1] == set(dataset.to_table().column("region").to_pylist())
    different = "SELECT count(*) FROM t AS a JOIN t AS b USING (id) WHERE a.region IS DISTINCT FROM b.region"
    assert table.scan().to_duckdb("t").execute(different).fetchall() == [(0,)]
    assert hashes[0] & set(table.scan().to_arrow_dataset().to_table().column("region").to_pylist()) <= {None}


@pytest.mark.parametrize("engine", ["DuckDB", "Polars", "Arrow"])
def test_an_engines_filter_on_a_masked_column_sees_the_masks(loaded: Callable[..., EncryptedTable], engine: str) -> None:
    """Also where the true values would match, or lie in one partition that the filter would leave."""
    table = loaded(projections(CARD), BY_CARD)
    true = next(each for each in rows().column("card").to_pylist() if each)

    assert rows_of_card(table, engine, true) == 0
    assert rows_of_card(table, engine, masked(true)) > 0


def rows_of_card(table: EncryptedTable, engine: str, value: str) -> int:
    if engine == "Polars":
        return table.to_polars().filter(pl.col("card") == value).collect().height
    if engine == "Arrow":
        return int(table.scan().to_arrow_dataset().to_table(filter=pc.field("card") == value).num_rows)
    return len(table.scan().to_duckdb("t").execute("SELECT id FROM t WHERE card = ?", [value]).fetchall())


def test_a_renamed_column_stays_masked_and_a_dropped_one_in_older_snapshots(
    loaded: Callable[..., EncryptedTable], server: RestrictingServer
) -> None:
    table = loaded(projections(CARD))
    snapshot = table.metadata.current_snapshot_id
    with server.catalog.load_table("db.rows").update_schema() as update:
        update.rename_column("card", "number")
    with server.catalog.load_table("db.rows").update_schema() as update:
        update.add_column("card", StringType())

    assert table.refresh().scan().to_arrow().column("number").to_pylist() == [masked(each) for each in rows().column("card").to_pylist()]
    with server.catalog.load_table("db.rows").update_schema() as update:
        update.delete_column("number")
    assert table.refresh().scan(snapshot_id=snapshot).to_arrow().column("card").to_pylist() == [
        masked(each) for each in rows().column("card").to_pylist()
    ]


def drop_a_field(update: UpdateSchema) -> None:
    update.delete_column("pair.mail")


def widen_a_field(update: UpdateSchema) -> None:
    update.update_column("pair.number", LongType())


def rename(update: UpdateSchema) -> None:
    update.rename_column("card", "number").rename_column("pair.mail", "address")


@pytest.mark.parametrize("evolve", [drop_a_field, widen_a_field, rename], ids=lambda each: each.__name__)
def test_what_filters_look_at_takes_nothing_from_an_older_snapshot(
    loaded: Callable[..., EncryptedTable], server: RestrictingServer, evolve: Callable[[UpdateSchema], None]
) -> None:
    older = loaded(None).metadata.current_snapshot_id
    with server.catalog.load_table("db.rows").update_schema() as update:
        evolve(update)
    with server.catalog.load_table("db.rows").update_schema() as update:
        if evolve is rename:
            # Under names that other columns have in the older snapshot.
            update.add_column("card", StringType()).add_column(("pair", "mail"), StringType())
        else:
            update.add_column("filtered", StringType())
    current = server.catalog.load_table("db.rows").schema()
    added = current.find_field("card" if evolve is rename else "filtered").field_id
    number = {"type": "gt", "left": {"type": "reference", "id": 7}, "right": 0}
    unknown = {"type": "is-null", "child": {"type": "reference", "id": added}}
    server.read_restrictions = {"required-row-filter": {"type": "and", "left": number, "right": unknown}}

    restricted = server.client(**KEYRING).load_table("db.rows")
    found = restricted.scan(snapshot_id=older, row_filter="pair.number < 5").to_arrow()
    if evolve is rename:
        with pytest.raises(ConfigurationError, match=r"the filter names 'card', which is another column now than in this snapshot"):
            restricted.scan(snapshot_id=older, row_filter="card is not null")

    assert found.schema.equals(rows().schema)
    assert found.to_pylist() == [each for each in rows().to_pylist() if each["pair"] and 0 < each["pair"]["number"] < 5]


@pytest.mark.parametrize(("compared", "literal", "found"), [("lt", 1e300, [1]), ("eq", 0.1, []), ("not-eq", 0.1, [1])])
def test_the_server_filters_an_older_snapshot_by_the_types_of_now(
    server: RestrictingServer, compared: str, literal: float, found: list[int]
) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "share", FloatType()))
    table = new_table(server.catalog, "db.shares", schema, appends=[pa.table({"id": [1], "share": pa.array([0.1], pa.float32())})])
    with server.catalog.load_table("db.shares").update_schema() as update:
        update.update_column("share", DoubleType())
    server.read_restrictions = {"required-row-filter": {"type": compared, "left": {"type": "reference", "id": 2}, "right": literal}}

    seen = server.client(**KEYRING).load_table("db.shares")

    assert seen.scan().to_arrow().column("id").to_pylist() == found
    assert seen.scan(snapshot_id=table.metadata.current_snapshot_id).to_arrow().column("id").to_pylist() == found


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_that_are_deleted_stay_so(loaded: Callable[..., EncryptedTable], server: RestrictingServer, mode: str) -> None:
    table = loaded({"required-row-filter": {"type": "not", "child": NORTH}, **projections(CARD)}, **{"write.delete.mode": mode})
    server.catalog.load_table("db.rows").delete("id = 1")

    assert table.refresh().scan().to_arrow().column("id").to_pylist() == [2, 4, 5]
    assert table.scan().count() == 3


def test_branches_are_restricted(loaded: Callable[..., EncryptedTable], server: RestrictingServer) -> None:
    table = loaded(projections(CARD))
    table.manage_snapshots().create_branch(current_snapshot(table).snapshot_id, "audit").commit()

    assert CANARY not in str(table.scan(selected_fields=("card",)).use_ref("audit").to_arrow().to_pylist())


def test_rows_are_appended_and_restrictions_stay_after_the_commit(loaded: Callable[..., EncryptedTable], server: RestrictingServer) -> None:
    table = loaded({"required-row-filter": NORTH, **projections(CARD)})
    table.append(rows(range(6, 12)))
    with table.transaction() as transaction:
        transaction.append(rows(range(12, 18)))
        transaction.set_properties({"comment": "appended"})

    assert table.scan().to_arrow().column("id").to_pylist() == [12, 15, 6, 9, 0, 3]
    assert CANARY not in str(table.scan(selected_fields=("card",)).to_arrow().to_pylist())
    assert server.catalog.load_table("db.rows").scan().count() == 18


CHANGES: dict[str, Callable[[EncryptedTable], object]] = {
    "delete": lambda table: table.delete("id = 1"),
    "delete of all": lambda table: table.delete(ALWAYS_TRUE),
    "overwrite": lambda table: table.overwrite(rows()),
    "overwrite of some": lambda table: table.overwrite(rows(), "id = 1"),
    "upsert": lambda table: table.upsert(rows(), ["id"]),
    "dynamic_partition_overwrite": lambda table: table.dynamic_partition_overwrite(rows()),
    "a row delta": lambda table: table.transaction().update_snapshot().row_delta(RowDelta()).produce(),
    "compact": lambda table: compact(table, rewrite_all=True),
    "reencrypt": reencrypt,
    "relocate": lambda table: relocate(table, f"{table.location()}-copy"),
    "rows to write again": lambda table: rows_of_file(table, next(iter(table.scan().plan_files()))),
    "positions to delete": lambda table: table.scan(row_filter="id = 1").matching_positions(next(iter(table.scan().plan_files()))),
}


@pytest.mark.parametrize("restrictions", [{"required-row-filter": NORTH}, projections(CARD)], ids=["filter", "mask"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_would_copy_or_replace_rows_is_refused(
    loaded: Callable[..., EncryptedTable], server: RestrictingServer, change: str, restrictions: dict[str, Any]
) -> None:
    table = loaded(restrictions, BY_REGION)

    with pytest.raises(ReadRestrictionError, match="restricts"):
        CHANGES[change](table)

    unchanged = server.catalog.load_table("db.rows")
    assert len(unchanged.metadata.snapshots) == 1
    assert unchanged.scan().to_arrow().sort_by("id").to_pylist() == rows().to_pylist()


@pytest.mark.parametrize(
    "name",
    [
        *("entries", "files", "data_files", "delete_files", "partitions", "manifests"),
        *("all_manifests", "all_files", "all_data_files", "all_delete_files"),
    ],
)
def test_tables_about_bounds_and_counts_are_refused(loaded: Callable[..., EncryptedTable], name: str) -> None:
    table = loaded(projections(CARD))

    with pytest.raises(ReadRestrictionError, match=f"inspect.{name} is not possible"):
        getattr(table.inspect, name)()
    assert table.inspect.snapshots().num_rows == 1
    assert table.inspect.refs().num_rows == 1


def test_keys_are_cared_for_by_whoever_may_not_read_all(loaded: Callable[..., EncryptedTable]) -> None:
    table = loaded(projections(CARD))
    rotate_kek(table)

    assert CANARY not in str(table.refresh().scan(selected_fields=("card",)).to_arrow().to_pylist())


REFUSED: dict[str, object] = {
    "no object": [],
    "an unknown kind": {"required-joins": []},
    "projections that are no list": {"required-column-projections": {}},
    "an unknown action": projections({"field-id": 3, "action": "mask-everything"}),
    "an action of an earlier draft": projections({"field-id": 3, "action": "apply-expression", "expression": True}),
    "an action with more to it": projections({"field-id": 3, "action": "show-last-4", "length": 8}),
    "no action": projections({"field-id": 3}),
    "no field id": projections({"action": "show-last-4"}),
    "a name for a field id": projections({"field-id": "card", "action": "show-last-4"}),
    "an unknown field": projections({"field-id": 99, "action": "show-last-4"}),
    "one field twice": projections(CARD, CARD),
    "a struct and a field of it": projections({"field-id": 4, "action": "replace-with-null"}, {"field-id": 8, "action": "mask-alphanum"}),
    "keys of a map": projections({"field-id": 10, "action": "mask-alphanum"}),
    "text masked in a long": projections({"field-id": 1, "action": "mask-alphanum"}),
    "a year of text": projections({"field-id": 3, "action": "truncate-to-year"}),
    "a hash of a struct": projections({"field-id": 4, "action": "sha-256-global"}),
    "an unknown expression": {"required-row-filter": {"type": "like"}},
    "a filter by name": {"required-row-filter": {"type": "eq", "term": "region", "value": "north"}},
    "a filter on an unknown field": {"required-row-filter": {"type": "is-null", "child": {"type": "reference", "id": 99}}},
    "a function of the user": {
        "required-row-filter": {
            "type": "eq",
            "left": {"type": "apply", "function": "mine", "arguments": [{"type": "reference", "id": 1}]},
            "right": 1,
        }
    },
}


@pytest.mark.parametrize("restrictions", REFUSED)
def test_restrictions_that_cannot_be_applied_refuse_the_table(loaded: Callable[..., EncryptedTable], restrictions: str) -> None:
    with pytest.raises(ReadRestrictionError, match=r"db\.rows cannot be read as the catalog's server requires"):
        loaded(REFUSED[restrictions])


def test_null_in_place_of_a_required_column_is_refused(server: RestrictingServer) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    server.catalog.create_table("db.required", schema, properties=ENCRYPTED)
    server.read_restrictions = projections({"field-id": 1, "action": "replace-with-null"})

    with pytest.raises(ReadRestrictionError, match="required long"):
        server.client(**KEYRING).load_table("db.required")


def test_restrictions_that_come_later_are_applied_from_the_next_load_on(
    loaded: Callable[..., EncryptedTable], server: RestrictingServer
) -> None:
    table = loaded(None)
    assert table.scan().to_arrow().to_pylist() == rows().to_pylist()

    server.read_restrictions = projections(CARD)
    assert CANARY not in str(table.refresh().scan(selected_fields=("card",)).to_arrow().to_pylist())
    server.read_restrictions = projections({"field-id": 3, "action": "nothing"})
    with pytest.raises(ReadRestrictionError):
        table.refresh()


@pytest.mark.parametrize(
    "nothing",
    [None, {}, {"required-row-filter": True}, {"required-row-filter": None, "required-column-projections": None}, projections()],
    ids=str,
)
def test_restrictions_that_say_nothing_restrict_nothing(loaded: Callable[..., EncryptedTable], nothing: object) -> None:
    table = loaded(nothing)

    assert table.scan().to_arrow().to_pylist() == rows().to_pylist()
    table.delete("id = 1")
    assert table.inspect.files().num_rows == 1


@pytest.mark.parametrize("never", [False, {"type": "false"}], ids=str)
def test_a_filter_that_is_never_true_leaves_no_row(loaded: Callable[..., EncryptedTable], never: object) -> None:
    table = loaded({"required-row-filter": never})

    assert table.scan().to_arrow().num_rows == 0
    assert table.scan().count() == 0
    assert table.scan().to_arrow_batch_reader().read_all().num_rows == 0


def test_a_plain_table_that_is_restricted_is_refused(server: RestrictingServer, warehouse: Path) -> None:
    server.catalog.create_table("db.plain", Schema(NestedField(1, "id", LongType())))
    client = server.client(**KEYRING)
    assert client.load_table("db.plain").scan().to_arrow().num_rows == 0

    server.read_restrictions = {"required-row-filter": False}
    with pytest.raises(ReadRestrictionError, match=r"db\.plain cannot be read.*not encrypted"):
        client.load_table("db.plain")


@pytest.mark.parametrize("key", [{}, ENCRYPTED], ids=["plain", "encrypted"])
def test_a_new_table_that_is_restricted_from_the_start_is_not_handed_out_unrestricted(
    server: RestrictingServer, key: dict[str, str]
) -> None:
    server.read_restrictions, server.restricts_creation = {"required-row-filter": False}, True

    with pytest.raises(ReadRestrictionError, match="restricts what you may read of the new table"):
        server.client(**KEYRING).create_table("db.made", SCHEMA, properties=key)
