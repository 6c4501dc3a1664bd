"""What a REST catalog's server restricts holds in Spark: every way to read applies it, and what would go past it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError, ReadRestrictionError
from tests.spark.conftest import Lake
from tests.support.plaintext import CANARY
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import new_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
RESTRICTIONS = {
    "required-row-filter": {"type": "lt", "left": {"type": "reference", "id": 1}, "right": 4},
    "required-column-projections": [{"field-id": 2, "action": "mask-alphanum"}, {"field-id": 3, "action": "sha-256-query-local"}],
}
TABLE = "restricted.db.cards"
CARDS = Schema(NestedField(1, "id", LongType()), NestedField(2, "card", StringType()), NestedField(3, "owner", StringType()))


@pytest.fixture
def server(lake: Lake) -> Iterator[RestrictingServer]:
    """A server in front of the lake, with a table of two files."""
    rows = pa.table({"id": range(8), "card": [f"{CANARY}-{each}" for each in range(8)], "owner": [f"o{each % 2}" for each in range(8)]})
    new_table(lake.catalog, "db.cards", rows.schema, appends=[rows.slice(0, 3), rows.slice(3)])
    with RestrictingServer(lake.catalog) as running:
        running.read_restrictions = RESTRICTIONS
        yield running


def client_properties(lake: Lake, server: RestrictingServer) -> dict[str, str]:
    return server.client_properties(
        **{name: value for name, value in lake.properties.items() if name.split(".")[0] in ("encryption", "kms", "client")}
    )


def _by_sql(spark: SparkSession, properties: dict[str, str]) -> DataFrame:
    tcs.catalog(spark, "restricted", properties)
    return spark.table(TABLE)


READERS: dict[str, Callable[[SparkSession, dict[str, str]], DataFrame]] = {
    "read_table": lambda spark, properties: tcs.read_table(spark, TABLE, catalog_properties=properties),
    "read_table on the Python path": lambda spark, properties: tcs.read_table(spark, TABLE, path="python", catalog_properties=properties),
    "Spark SQL": _by_sql,
    "the data source": lambda spark, properties: spark.read.format("tablecrypt").load(TABLE),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_way_to_read_applies_the_restrictions(spark: SparkSession, lake: Lake, server: RestrictingServer, reader: str) -> None:
    properties = client_properties(lake, server)
    tcs.register(spark, {"restricted": properties})
    found = READERS[reader](spark, properties)

    rows = sorted(found.collect())
    assert [row["id"] for row in rows] == [0, 1, 2, 3]
    assert {row["card"] for row in rows} == {"".join("n" if each.isdigit() else each if each in "-" else "x" for each in f"{CANARY}-0")}
    # One query, one salt: in both files, and so in both tasks, an owner has one hash.
    assert rows[0]["owner"] == rows[2]["owner"] != rows[1]["owner"] == rows[3]["owner"]
    assert found.count() == 4
    assert found.where(f"card = '{CANARY}-1'").count() == 0


def test_spark_s_own_reader_and_writes_other_than_appends_are_refused(spark: SparkSession, lake: Lake, server: RestrictingServer) -> None:
    properties = client_properties(lake, server)
    with pytest.raises(ConfigurationError, match="restricts"):
        tcs.read_table(spark, TABLE, path="jvm", catalog_properties=properties)

    rows = spark.createDataFrame([(9, "a", "b")], "id bigint, card string, owner string")
    for mode in ("overwrite", "merge"):
        with pytest.raises(ReadRestrictionError):
            tcs.write_table(rows, TABLE, mode=mode, keys=["id"] if mode == "merge" else None, catalog_properties=properties)
    with pytest.raises(ReadRestrictionError):
        tcs.delete_where(spark, TABLE, "id = 1", catalog_properties=properties)
    with pytest.raises(ReadRestrictionError):
        tcs.compact(spark, TABLE, catalog_properties=properties)
    tcs.write_table(rows, TABLE, catalog_properties=properties)
    assert lake.catalog.load_table("db.cards").scan().count() == 9


def test_deleted_rows_stay_so_in_spark_sql(spark: SparkSession, lake: Lake, server: RestrictingServer) -> None:
    from pyspark.errors import PySparkException

    administrators = lake.catalog.load_table("db.cards")
    with administrators.transaction() as transaction:
        transaction.set_properties({"write.delete.mode": "merge-on-read"})
    administrators.delete("id = 3")

    found = _by_sql(spark.newSession(), client_properties(lake, server))

    assert sorted(row["id"] for row in found.select("id", "_file").collect()) == [0, 1, 2]
    for place in ("_pos", "_deleted", "_row_id"):
        with pytest.raises(PySparkException, match="reading where rows lie"):
            found.select(place).collect()


def test_partitions_of_a_masked_column_are_not_told(spark: SparkSession, lake: Lake, server: RestrictingServer) -> None:
    from pyspark.errors import PySparkException

    rows = pa.table({"id": [0, 1, 2], "card": [f"{CANARY}-{each}" for each in "abb"], "owner": ["o", "o", "p"]})
    by_card = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "card"))
    new_table(lake.catalog, "db.by_card", CARDS, appends=[rows], partitioned_by=by_card)
    session = spark.newSession()
    for setting in ("spark.sql.sources.v2.bucketing.enabled", "spark.sql.iceberg.planning.preserve-data-grouping"):
        session.conf.set(setting, "true")
    tcs.catalog(session, "restricted", client_properties(lake, server))

    assert session.sql("SELECT count(*) AS rows FROM restricted.db.by_card GROUP BY card").collect() == [(3,)]
    with pytest.raises(PySparkException, match="reading _partition is not possible"):
        session.sql("SELECT id, _partition FROM restricted.db.by_card").collect()
    for query in ("SELECT _file FROM restricted.db.by_card", f"SELECT id FROM restricted.db.by_card WHERE _file LIKE '%{CANARY}-a%'"):
        with pytest.raises(PySparkException, match="reading _file is not possible"):
            session.sql(query).collect()
    [read] = session.sql("SELECT DISTINCT input_file_name() LIKE '%card%' FROM restricted.db.by_card").collect()
    assert tuple(read) == (False,)
