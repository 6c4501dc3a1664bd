"""Engines get no masks of protected columns unless somebody asks for them: they evaluate conditions, joins and groups on what they get.

The careless user is an analyst who may not use the column's key and asks for rows by it, in the SQL of DuckDB, Polars and DataFusion, and
by every other way in which an engine takes a scan. He would get an answer about masks, and not know it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, cast

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from tablecrypt.keys.refusals import refusals
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.kms.resilient import ResilientKeyManagementClient
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.protected_tables import COLUMN_KEY, TABLE_KEY, Clients, clients, loaded
from tests.support.tables import new_table

pytestmark = pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg plugin")

PERSON: Final = pa.struct([("email", pa.string()), ("age", pa.int64())])
ROWS: Final = pa.table(
    {
        "id": pa.array(range(30), pa.int64()),
        "ssn": [f"SSN-{number % 20:04d}" for number in range(30)],
        "person": pa.array([{"email": f"mail-{number}@example.org", "age": number} for number in range(30)], PERSON),
        "note": [f"note {number % 3}" for number in range(30)],
    }
)
DECLARED: Final = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": f"{COLUMN_KEY}: ssn, person.email"}
NAMES_BOTH_WAYS_OUT: Final = r"(?s)ColumnKeyDeniedError.*masks of \W*ssn\b.*selected_fields.*masked=.mask"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Clients:
    """Two clients of one table, to which no test writes."""
    made = clients(tmp_path_factory.mktemp("masks"))
    table = made.payroll.create_table("db.people", ROWS.schema, properties=DECLARED)
    for start in (0, 15):
        table.append(ROWS.slice(start, 15))
    return made


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    return loaded(both.payroll)


@pytest.fixture
def analyst(both: Clients) -> EncryptedTable:
    return loaded(both.analyst)


def refused(read: Callable[[], object], match: str = NAMES_BOTH_WAYS_OUT) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  each engine has errors of its own; what they say is matched
        pytest.fail(f"rows were shown: {read()}")
    assert re.search(match, f"{type(caught.value).__name__}: {caught.value}")


def by_duckdb(table: EncryptedTable, query: str, masked: str | None = None) -> list[Any]:
    connection = table.scan(masked=masked).to_duckdb("people")
    connection.register("known", pa.table({"ssn": ["SSN-0008", None], "city": ["Oslo", "Rome"]}))
    return connection.execute(query).fetchall()


def by_polars(table: EncryptedTable, query: str, masked: str | None = None) -> list[Any]:
    known = pl.DataFrame({"ssn": ["SSN-0008", None], "city": ["Oslo", "Rome"]}).lazy()
    with pl.SQLContext({"people": table.to_polars(masked=masked), "known": known}) as context:
        return context.execute(query).collect().rows()


def by_datafusion(table: EncryptedTable, query: str, masked: str | None = None) -> list[Any]:
    context = pytest.importorskip("datafusion").SessionContext()
    context.register_dataset("people", table.scan(masked=masked).to_arrow_dataset())
    context.from_arrow(pa.table({"ssn": ["SSN-0008", None], "city": ["Oslo", "Rome"]}), "known")
    return [tuple(row.values()) for row in context.sql(query).to_pylist()]


Engine = Callable[..., list[Any]]
ENGINES: Final[dict[str, Engine]] = {"DuckDB": by_duckdb, "Polars": by_polars, "DataFusion": by_datafusion}
BY_SSN: Final[dict[str, list[Any]]] = {
    "SELECT count(*) FROM people WHERE ssn = 'SSN-0008'": [(2,)],
    "SELECT count(*) FROM people WHERE ssn LIKE 'SSN-000%'": [(20,)],
    "SELECT count(*) FROM people WHERE ssn LIKE '%8'": [(3,)],
    "SELECT count(*) FROM people WHERE lower(ssn) = 'ssn-0008'": [(2,)],
    "SELECT count(*) FROM people WHERE ssn IS NULL": [(0,)],
    "SELECT city, id FROM people JOIN known ON people.ssn = known.ssn ORDER BY id": [("Oslo", 8), ("Oslo", 28)],
    "SELECT ssn, count(*) AS n FROM people GROUP BY ssn HAVING count(*) > 1 ORDER BY ssn LIMIT 1": [("SSN-0000", 2)],
    "SELECT count(DISTINCT ssn) FROM people": [(20,)],
    "SELECT sum(CASE WHEN ssn = 'SSN-0008' THEN 1 ELSE 0 END) FROM people": [(2,)],
    "SELECT max(ssn) FROM people": [("SSN-0019",)],
    "SELECT id FROM people ORDER BY ssn DESC, id LIMIT 1": [(19,)],
}
"""What asks for the column, with the right answers."""
BY_OTHERS: Final[dict[str, list[Any]]] = {
    "SELECT count(*) AS n FROM people": [(30,)],
    "SELECT count(*) FROM people WHERE id > 3": [(26,)],
    "SELECT note, count(*) AS n FROM people GROUP BY note ORDER BY note": [("note 0", 10), ("note 1", 10), ("note 2", 10)],
    "SELECT sum(id) FROM people": [(435,)],
}


@pytest.mark.parametrize("query", list(BY_SSN))
@pytest.mark.parametrize("engine", list(ENGINES))
def test_no_query_by_a_column_is_answered_from_its_masks(people: EncryptedTable, analyst: EncryptedTable, engine: str, query: str) -> None:
    assert ENGINES[engine](people, query) == BY_SSN[query]
    refused(lambda: ENGINES[engine](analyst, query))


@pytest.mark.parametrize("query", list(BY_OTHERS))
@pytest.mark.parametrize("engine", list(ENGINES))
def test_queries_by_other_columns_ask_for_nothing(analyst: EncryptedTable, engine: str, query: str) -> None:
    assert ENGINES[engine](analyst, query) == BY_OTHERS[query]


def test_rows_are_counted_where_the_first_column_is_protected(both: Clients) -> None:
    """DuckDB asks for this column to count rows, and is refused it: it would ask in the same way to look at values."""
    rows, query = ROWS.select(["ssn", "person", "id", "note"]), "SELECT count(*) FROM people"
    both.payroll.create_table("db.first", rows.schema, properties=DECLARED).append(rows)
    seen = loaded(both.analyst, "db.first")
    assert by_polars(seen, query) == by_datafusion(seen, query) == [(30,)]
    assert seen.scan().to_arrow_dataset().scanner(columns=[]).count_rows() == seen.scan().count() == 30
    refused(lambda: by_duckdb(seen, query))
    assert seen.scan(selected_fields=("id",)).to_duckdb("people").execute(query).fetchall() == [(30,)]


ON_MASKS: Final[dict[str, list[Any]]] = {
    "SELECT count(*) FROM people WHERE ssn LIKE '%8'": [(0,)],
    "SELECT ssn, count(*) AS n FROM people GROUP BY ssn": [(None, 30)],
    "SELECT count(DISTINCT ssn) FROM people": [(0,)],
    "SELECT city, id FROM people JOIN known ON people.ssn = known.ssn": [],
}


@pytest.mark.parametrize("query", list(ON_MASKS))
def test_who_asks_for_masks_gets_answers_about_masks(analyst: EncryptedTable, query: str) -> None:
    assert by_duckdb(analyst, query, masked="mask") == ON_MASKS[query]
    catalog = EncryptedSqlCatalog("prod", **{**analyst.catalog.properties, "encryption.masked-reads": "mask"})
    asking = loaded(catalog, analyst.name())
    assert by_duckdb(asking, query) == ON_MASKS[query]
    refused(lambda: by_duckdb(asking, query, masked="error"))


def test_who_asks_for_masks_is_refused_a_condition_that_reaches_the_scan_all_the_same(analyst: EncryptedTable) -> None:
    condition = "ssn = 'SSN-0008'"
    refused(lambda: analyst.scan(condition, masked="mask").to_arrow(), COLUMN_KEY)
    refused(lambda: by_duckdb(analyst, f"SELECT id FROM people WHERE {condition}", masked="mask"), COLUMN_KEY)
    refused(lambda: analyst.to_polars(masked="mask").filter(pl.col("ssn") == "SSN-0008").collect(), COLUMN_KEY)


def test_what_people_look_at_shows_masks(analyst: EncryptedTable) -> None:
    scan = analyst.scan()
    assert scan.to_arrow()["ssn"].null_count == 30
    assert scan.to_arrow_batch_reader().read_all()["ssn"].null_count == 30
    assert scan.to_pandas()["ssn"].isna().all()


def _replacement(table: EncryptedTable) -> object:
    people = table.scan()
    assert people is not None
    return duckdb.sql("SELECT ssn FROM people").fetchall()  # type: ignore[union-attr]


HANDED_OVER: Final[dict[str, Callable[[EncryptedTable], object]]] = {
    "DuckDB, SELECT *": lambda table: by_duckdb(table, "SELECT * FROM people"),
    "DuckDB, a scan in a variable": _replacement,
    "Polars": lambda table: table.to_polars().collect(),
    "Polars, the first rows": lambda table: table.to_polars().head(2).collect(),
    "Polars on the dataset": lambda table: pl.scan_pyarrow_dataset(table.scan().to_arrow_dataset()).collect(),
    "Polars by its own scan": lambda table: pl.scan_iceberg(table).filter(pl.col("ssn") == "SSN-0008").collect(),
    "Polars, a frame": lambda table: table.scan().to_polars(),
    "Polars, a frame of appends": lambda table: table.incremental_append_scan(from_snapshot_id_exclusive=None).to_polars(),
    "Arrow's stream": lambda table: pa.table(table.scan()),
    "a frame of Arrow's stream": lambda table: pl.DataFrame(table.scan()),
    "dataset": lambda table: table.scan().to_arrow_dataset().to_table(),
    "dataset, a filter": lambda table: table.scan().to_arrow_dataset().filter(pc.field("ssn") == "x").to_table(columns=["id"]),
    "dataset, an expression": lambda table: table.scan().to_arrow_dataset().to_table(columns={"is": pc.field("ssn") == "SSN-0008"}),
    "dataset, batches": lambda table: list(table.scan().to_arrow_dataset().to_batches()),
    "dataset, the first rows": lambda table: table.scan(limit=3).to_arrow_dataset().head(2),
    "dataset, a fragment": lambda table: next(table.scan().to_arrow_dataset().get_fragments()).to_table(),
    "dataset of appends": lambda table: table.incremental_append_scan(from_snapshot_id_exclusive=None).to_arrow_dataset().to_table(),
}


@pytest.mark.parametrize("way", list(HANDED_OVER))
def test_every_way_to_an_engine_is_refused_masks(people: EncryptedTable, analyst: EncryptedTable, way: str) -> None:
    assert HANDED_OVER[way](people) is not None
    refused(lambda: HANDED_OVER[way](analyst))


def _narrow(table: EncryptedTable) -> Iterable[object]:
    scan = table.scan(selected_fields=("id", "person.age"))
    yield scan.to_polars().height
    yield pa.table(scan).num_rows
    yield scan.to_duckdb("t").execute("SELECT count(*) FROM t WHERE person.age >= 0").fetchall()[0][0]
    yield table.to_polars().select("id").collect().height
    yield pl.scan_iceberg(table).select("id").collect().height
    yield ds.Dataset.to_table(scan.to_arrow_dataset()).num_rows


def test_a_scan_that_leaves_the_columns_out_is_any_engines(analyst: EncryptedTable) -> None:
    assert list(_narrow(analyst)) == [30] * 6


def test_a_struct_is_refused_for_the_field_in_it(analyst: EncryptedTable) -> None:
    refused(lambda: by_duckdb(analyst, "SELECT person FROM people"), r"masks of 'person\.email'")
    refused(lambda: analyst.to_polars().select("person").collect(), r"masks of 'person\.email'")


@pytest.mark.parametrize("mask", ["redact", "truncate(6)", "constant(hidden)", "hash"])
def test_masks_that_files_hold_are_asked_for_too(both: Clients, mask: str) -> None:
    name = f"db.{mask[:4]}"
    new_table(both.payroll, name, appends=[ROWS], properties={**DECLARED, "encryption.column-mask.ssn": mask})
    seen = loaded(both.analyst, name)
    query = "SELECT count(*) FROM people WHERE ssn LIKE '%8'"
    refused(lambda: by_duckdb(seen, query))
    shown = by_duckdb(seen, "SELECT ssn FROM people", masked="mask")
    assert by_duckdb(seen, query, masked="mask") == [(sum(ssn.endswith("8") for (ssn,) in shown),)]


def test_a_right_that_is_withdrawn_ends_what_an_open_dataset_shows(tmp_path: Path) -> None:
    both = clients(tmp_path, {"encryption.kms.cache-ttl-ms": "0"})
    both.payroll.create_table("db.people", ROWS.schema, properties=DECLARED).append(ROWS)
    table = loaded(both.payroll)
    connection, query = table.scan().to_duckdb("people"), "SELECT count(*) FROM people WHERE lower(ssn) = 'ssn-0008'"
    assert connection.execute(query).fetchall() == [(2,)]
    keyring = MemoryKeyManagementClient({"kms.memory.name": both.payroll.properties["kms.memory.name"]})
    del keyring._keyring[COLUMN_KEY]
    refused(lambda: connection.execute(query).fetchall())
    assert connection.execute("SELECT count(*) FROM people WHERE id > 3").fetchall() == [(26,)]


def _all_ways(table: EncryptedTable, masked: str) -> None:
    table.scan(masked=masked).to_arrow()
    table.scan(masked=masked).to_arrow_batch_reader().read_all()
    by_duckdb(table, "SELECT ssn, person FROM people", masked)
    by_polars(table, "SELECT ssn FROM people", masked)


def _asked(catalog: EncryptedSqlCatalog) -> int:
    """How often a catalog's client has had the key service unwrap a key."""
    io = cast("TableFileIO", catalog.load_table("db.people").io)
    return cast("ResilientKeyManagementClient", io.manager.columns.kms).calls["unwrap_key"]


def test_the_key_service_is_asked_once_for_each_master_key_however_often_columns_are_read(both: Clients) -> None:
    # With another property they have clients of their own, which have seen no key and heard no refusal.
    fresh = {"encryption.kms.cache-max-keys": "99"}
    reader, analyst = (EncryptedSqlCatalog("prod", **{**each.properties, **fresh}) for each in (both.payroll, both.analyst))
    asked, remembered = refusals().asked[COLUMN_KEY], refusals().remembered[COLUMN_KEY]
    for _ in range(3):
        _all_ways(loaded(reader), "error")
        _all_ways(loaded(analyst), "mask")
    assert _asked(reader) == _asked(analyst) == 2
    assert refusals().asked[COLUMN_KEY] == asked + 1
    assert refusals().remembered[COLUMN_KEY] > remembered + 10
