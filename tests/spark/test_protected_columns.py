"""Protected columns in Spark: two programs use the same tables, of which one may use the columns' master key and the other may not.

Every way to read shows values to the one and masks to the other; every way to write holds the columns under their own keys, and is refused
to whom it would write masks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import tablecrypt.spark as tcs
from tablecrypt import maintenance
from tablecrypt.errors import ConfigurationError
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import CATALOG, Lake
from tests.support.aws import AwsServer
from tests.support.driver_only_kms import for_this_process
from tests.support.plaintext import CANARY
from tests.support.protected_tables import declare, loaded, write_as_java_does
from tests.support.tables import metadata_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
NAME: Final = "db.people"
ROWS: Final = pa.table({"id": [1, 2, 3, 4], "ssn": [f"{CANARY}-{each}" for each in range(1, 5)], "note": ["a", "b", "a", "b"]})
SSNS: Final = ROWS["ssn"].to_pylist()
MASKED: Final = [None] * 4
COLUMNS: Final = "id bigint, ssn string, note string"


@dataclass(frozen=True)
class Programs:
    """A lake with a table, and the properties with which two programs load its catalog.

    Attributes:
        payroll: may use every key.
        analyst: may use the table's key alone.
        column_key: the master key of the column ssn.
    """

    lake: Lake
    payroll: dict[str, str]
    analyst: dict[str, str]
    column_key: str

    @property
    def identifier(self) -> str:
        """The table's name as tablecrypt.spark takes it."""
        return self.lake.identifier(NAME)

    @property
    def table(self) -> EncryptedTable:
        """The table as it is now, for who may use every key."""
        return loaded(self.lake.catalog)

    def rows(self) -> dict[int, str]:
        """What the table holds, by id."""
        found = self.table.scan().to_arrow()
        return dict(zip(found["id"].to_pylist(), found["ssn"].to_pylist(), strict=True))

    def files(self) -> set[Path]:
        """The data files that exist, in the table or not."""
        return set(self.lake.warehouse.rglob("*.parquet"))


@pytest.fixture
def programs(lake: Lake, aws: AwsServer) -> Programs:
    column_key = aws.new_key()
    properties = {"encryption.key-id": "alias/orders", "encryption.column-keys": f"{column_key}: ssn"}
    lake.catalog.create_table(NAME, ROWS.schema, properties=properties)
    return Programs(lake, lake.properties, lake.properties | {"encryption.allowed-key-ids": "alias/orders"}, column_key)


def by_data_source(spark: SparkSession, programs: Programs, properties: dict[str, str], **options: str) -> DataFrame:
    tcs.register(spark, {CATALOG: properties})
    return spark.read.format("tablecrypt").options(**options).load(programs.identifier)


def by_read_table(spark: SparkSession, programs: Programs, properties: dict[str, str], **options: Any) -> DataFrame:
    options["row_filter"] = options.pop("filter", None)
    return tcs.read_table(spark, programs.identifier, catalog_properties=properties, **options)


def ssns(rows: DataFrame) -> list[str | None]:
    return [row["ssn"] for row in sorted(rows.collect(), key=lambda row: row["id"])]


@pytest.mark.parametrize("read", [by_read_table, by_data_source])
def test_one_sees_values_and_the_other_masks(spark: SparkSession, programs: Programs, read: Callable[..., DataFrame]) -> None:
    programs.table.append(ROWS.slice(0, 2))
    programs.table.append(ROWS.slice(2))

    assert ssns(read(spark, programs, programs.payroll)) == SSNS
    assert ssns(read(spark, programs, programs.analyst)) == MASKED
    assert ssns(read(spark, programs, programs.payroll, filter=f"ssn = '{CANARY}-2'")) == [f"{CANARY}-2"]
    assert ssns(read(spark, programs, programs.analyst, filter="note = 'b'")) == [None, None]
    assert ssns(read(spark, programs, programs.payroll, masked="error")) == SSNS
    assert ssns(read(spark, programs, programs.payroll).where(f"upper(ssn) = upper('{CANARY}-2')")) == [f"{CANARY}-2"]
    assert ssns(read(spark, programs, programs.analyst).where("note = 'b'")) == [None, None]
    for condition in (f"ssn = '{CANARY}-2'", "ssn IS NULL", "cast(length(ssn) AS string) = '3'"):
        masks = read(spark, programs, programs.analyst).where(condition)
        with pytest.raises(Exception, match="does not let you use"):
            masks.collect()
    for refused in ({"filter": f"ssn = '{CANARY}-2'"}, {"filter": "ssn is null"}, {"masked": "error"}):
        with pytest.raises(Exception, match="does not let you use"):
            read(spark, programs, programs.analyst, **refused).collect()


@pytest.mark.parametrize("read", [by_read_table, by_data_source])
def test_conditions_see_into_structs_and_a_copy_of_masks_is_a_table_of_its_own(
    spark: SparkSession, lake: Lake, aws: AwsServer, tmp_path: Path, read: Callable[..., DataFrame]
) -> None:
    rows = pa.table({"id": [1, 2], "ssn": [CANARY] * 2, "person": [{"email": f"{CANARY}@x.org", "age": age} for age in (7, 8)]})
    properties = {"encryption.key-id": "alias/orders", "encryption.column-keys": f"{aws.new_key()}: person.email"}
    lake.catalog.create_table(NAME, rows.schema, properties=properties).append(rows)
    programs = Programs(lake, lake.properties, lake.properties | {"encryption.allowed-key-ids": "alias/orders"}, "")

    masks = read(spark, programs, programs.analyst)
    assert [row["id"] for row in masks.where("person.age = 8 AND person IS NOT NULL").collect()] == [2]
    for condition in ("person.email IS NULL", "struct(person.*) IN (struct('a', 7L))"):
        with pytest.raises(Exception, match="does not let you use"):
            masks.where(condition).collect()
    masks.write.parquet(str(tmp_path / "copy"))
    assert spark.read.parquet(str(tmp_path / "copy")).where("person.email IS NULL").count() == 2


def test_spark_s_own_reader_serves_the_other_columns(spark: SparkSession, programs: Programs) -> None:
    programs.table.append(ROWS)
    for properties in (programs.payroll, programs.analyst):
        others = tcs.read_table(spark, programs.identifier, ["id", "note"], "note = 'b'", path="jvm", catalog_properties=properties)
        assert sorted(row["id"] for row in others.collect()) == [2, 4]
        with pytest.raises(ConfigurationError, match="protected by a key of its own"):
            tcs.read_table(spark, programs.identifier, path="jvm", catalog_properties=properties)
    with pytest.raises(ConfigurationError, match="protected by keys of their own"):
        tcs.write_table(spark.createDataFrame([], COLUMNS), programs.identifier, path="jvm", catalog_properties=programs.payroll)


def test_what_spark_writes_and_changes_is_under_the_column_s_key(spark: SparkSession, programs: Programs) -> None:
    name, properties = programs.identifier, programs.payroll
    rows = [(each, f"{CANARY}-{each}", "ab"[each % 2]) for each in range(1, 9)]
    tcs.write_table(spark.createDataFrame(rows, COLUMNS).repartition(2), name, catalog_properties=properties)
    tcs.register(spark, {CATALOG: properties})
    spark.createDataFrame([(9, f"{CANARY}-9", "a")], COLUMNS).write.format("tablecrypt").mode("append").save(name)
    merged = spark.createDataFrame([(2, f"{CANARY}-new", "a"), (10, f"{CANARY}-10", "b")], COLUMNS)
    tcs.write_table(merged, name, "merge", keys=["id"], catalog_properties=properties)
    tcs.delete_where(spark, name, f"ssn = '{CANARY}-3'", catalog_properties=properties)
    expected = {each: f"{CANARY}-{each}" for each in range(1, 11) if each != 3} | {2: f"{CANARY}-new"}
    assert programs.rows() == expected

    tcs.compact(spark, programs.identifier, rewrite_all=True, catalog_properties=properties)
    assert programs.rows() == expected
    assert not [finding for finding in maintenance.audit(programs.table).findings if finding.kind.name.startswith("COLUMN_")]
    assert ssns(tcs.read_table(spark, name, catalog_properties=programs.analyst)) == [None] * len(expected)
    assert len(metadata_of(programs.table).key_ring.column_keys) == 1


def test_masks_never_are_written_back(spark: SparkSession, programs: Programs) -> None:
    programs.table.append(ROWS)
    tcs.register(spark, {CATALOG: programs.analyst})
    name, before, files = programs.identifier, programs.table.metadata_location, programs.files()
    masks = tcs.read_table(spark, name, catalog_properties=programs.analyst)

    for write in (
        lambda: tcs.write_table(masks, name, catalog_properties=programs.analyst),
        lambda: tcs.write_table(masks, name, "overwrite", catalog_properties=programs.analyst),
        lambda: tcs.write_table(masks, name, "merge", keys=["id"], catalog_properties=programs.analyst),
        lambda: masks.write.format("tablecrypt").mode("append").save(name),
        lambda: tcs.delete_where(spark, name, "ssn is null", catalog_properties=programs.analyst),
        lambda: tcs.compact(spark, name, rewrite_all=True, catalog_properties=programs.analyst),
    ):
        with pytest.raises(Exception, match="does not let you use"):
            write()
    # The same rows, after somebody has granted the right.
    for mode in ("append", "overwrite"):
        with pytest.raises(ConfigurationError, match="has masks in ssn"):
            tcs.write_table(masks.where("id > 1"), name, mode, catalog_properties=programs.payroll)
    tcs.register(spark, {CATALOG: programs.payroll})
    with pytest.raises(Exception, match="it reads masks of ssn, which would be stored as values"):
        masks.write.format("tablecrypt").mode("append").save(name)
    assert programs.table.metadata_location == before
    assert programs.files() == files

    # The engine write barrier keeps deletes by position, which write no row.
    tcs.delete_where(spark, name, "id = 2", catalog_properties=programs.analyst)
    assert programs.rows() == {1: SSNS[0], 3: SSNS[2], 4: SSNS[3]}


def test_executors_without_the_column_s_key_fail_the_job_and_leave_nothing(spark: SparkSession, programs: Programs) -> None:
    programs.table.append(ROWS)
    before, files = programs.table.metadata_location, programs.files()
    properties = for_this_process(programs.payroll, programs.column_key)

    with pytest.raises(Exception, match="this executor may not use"):
        tcs.read_table(spark, programs.identifier, catalog_properties=properties).collect()
    with pytest.raises(Exception, match="this executor may not use"):
        tcs.write_table(spark.createDataFrame([(5, CANARY, "a")], COLUMNS), programs.identifier, catalog_properties=properties)
    assert programs.table.metadata_location == before
    assert programs.files() == files


def test_executors_encrypt_files_again_and_verify_them(spark: SparkSession, programs: Programs) -> None:
    runner, expected = tcs.SparkRunner(spark), dict(enumerate(SSNS, 1))
    declare(programs.table, ssn="hash")
    programs.table.append(ROWS.slice(0, 2))
    write_as_java_does(programs.table, ROWS.slice(2))
    done = maintenance.reencrypt(programs.table, runner=runner)
    assert (done.data_files, done.in_line, done.twins_kept) == (2, 1, 0)
    assert programs.rows() == expected
    hashes = ssns(tcs.read_table(spark, programs.identifier, catalog_properties=programs.analyst))
    assert len({each for each in hashes if each is not None and len(each) == 64}) == 4

    verified = maintenance.verify(programs.table, runner=runner)
    assert (verified.is_good, verified.unchecked_columns) == (True, {})
    seen = load_catalog(CATALOG, **programs.analyst).load_table(NAME)
    assert maintenance.verify(seen, runner=runner).unchecked_columns == {"ssn": 3}, "in the snapshots before too"
    assert maintenance.reencrypt(seen, runner=runner).twins_kept == 2
    assert programs.rows() == expected

    write_as_java_does(programs.table, ROWS.slice(0, 2).set_column(1, "ssn", pa.array(hashes[:2])))
    with pytest.raises(ConfigurationError, match="what its mask"):
        maintenance.reencrypt(programs.table, runner=runner)
