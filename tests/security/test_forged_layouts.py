"""Who writes metadata.json adds a schema or a partition spec, and makes it current.

No filter loses rows by such a schema and no delete takes others; such a spec has no writer put values where no key is needed to read them.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import DecimalType, IntegerType, LongType, PrimitiveType, StringType

from tablecrypt.errors import ConfigurationError, TamperedFileError
from tablecrypt.maintenance import compact, erase, reencrypt
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited
from tests.support.tables import (
    encrypted_sql_catalog,
    encrypted_table,
    files_below,
    folder_of,
    ids,
    new_table,
    team_rows,
    team_table,
    unpinned_catalog,
)

AMOUNTS = pa.array([Decimal("1.23"), Decimal("4.56"), None], pa.decimal128(9, 2))
ROWS = pa.table({"id": [1, 2, 3], "amount": AMOUNTS, "size": pa.array([1, 4_000_000_000, None], pa.int64())})


@pytest.fixture
def catalog(tmp_path: Path, aws: AwsServer) -> Catalog:
    return unpinned_catalog(tmp_path, aws)


@pytest.fixture
def table(catalog: Catalog) -> EncryptedTable:
    return encrypted_table(new_table(catalog, appends=[ROWS]))


def with_schema(table: EncryptedTable, column: str, **changed: Any) -> EncryptedTable:
    """The table after somebody gave it another current schema, in which a column is another."""

    def edit(metadata: dict[str, Any]) -> None:
        [own] = metadata["schemas"]
        fields = [{**field, **(changed if field["name"] == column else {})} for field in own["fields"]]
        metadata["schemas"].append({**own, "schema-id": 1, "fields": fields})
        metadata["current-schema-id"] = 1

    return encrypted_table(edited(table, edit))


READS: dict[str, Callable[[EncryptedTable], object]] = {
    "scan": lambda table: table.scan().to_arrow(),
    "filter": lambda table: table.scan("amount > 1").to_arrow(),
    "count": lambda table: table.scan("size > 3000000000").count(),
    "delete": lambda table: table.delete("amount < 1"),
    "erase": lambda table: erase(table, "amount < 1", delete_below=[table.location()]),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    ("column", "forged"), [("amount", "decimal(9, 3)"), ("amount", "decimal(9, 0)"), ("amount", "decimal(5, 2)"), ("size", "int")]
)
def test_a_type_that_no_stored_value_can_become_is_refused(table: EncryptedTable, column: str, forged: str, read: str) -> None:
    planted = with_schema(table, column, type=forged)
    with pytest.raises((TamperedFileError, ConfigurationError), match=rf"column {column} .*is .* in (the manifest, but|snapshot .*, and) "):
        READS[read](planted)
    assert encrypted_table(edited(planted, lambda metadata: metadata.update({"current-schema-id": 0}))).scan().count() == 3


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_what_is_null_is_what_is_stored_also_where_a_schema_requires_values(catalog: Catalog, mode: str) -> None:
    table = encrypted_table(new_table(catalog, appends=[ROWS, ROWS.slice(0, 2)], properties={"write.delete.mode": mode}))
    planted = with_schema(table, "amount", required=True)

    assert ids(planted, row_filter="amount is null") == [3]
    assert planted.scan("amount is not null").count() == 4
    if mode == "copy-on-write":
        with pytest.raises(ConfigurationError, match="'amount' is required in the table, and the rows have nulls in it"):
            planted.delete("amount is not null")
        assert planted.refresh().scan().count() == 5
        return

    planted.delete("amount is not null")
    assert ids(planted.refresh()) == [3]


def test_rows_that_are_null_are_erased_also_where_a_schema_requires_values(table: EncryptedTable) -> None:
    planted = with_schema(table, "amount", required=True)

    erased = erase(planted, "amount is null", delete_below=[planted.location()])

    assert erased.shape == "amount is null"
    assert ids(planted.refresh()) == [1, 2]


@pytest.mark.parametrize(
    ("column", "to", "incompatible"),
    [
        ("amount", DecimalType(9, 3), False),
        ("amount", DecimalType(11, 0), True),
        ("size", IntegerType(), True),
        ("size", StringType(), True),
    ],
)
def test_a_column_is_not_given_a_type_that_its_rows_cannot_become(
    table: EncryptedTable, column: str, to: PrimitiveType, incompatible: bool
) -> None:
    with (
        pytest.raises(ConfigurationError, match=f"column '{column}' of type .* cannot become {to.__class__.__name__[:3].lower()}"),
        table.update_schema(allow_incompatible_changes=incompatible) as update,
    ):
        update.update_column(column, to)
    assert table.refresh().scan().count() == 3


def test_a_decimal_may_get_more_digits(table: EncryptedTable) -> None:
    with table.update_schema() as update:
        update.update_column("amount", DecimalType(12, 2))
    assert ids(table.refresh(), row_filter="amount > 2") == [2]
    assert isinstance(table.schema().find_type("size"), LongType)


def test_summaries_show_partitions_where_the_client_says_so_too(tmp_path: Path, aws: AwsServer) -> None:
    own = {"write.summary.partition-limit": "2"}
    plain, shown = (encrypted_sql_catalog(tmp_path, aws, properties) for properties in ({}, own))
    with pytest.raises(ConfigurationError, match="set it in the catalog's configuration too"):
        new_table(plain, properties=own)
    table = team_table(shown, 0, properties=own)
    with pytest.raises(ConfigurationError, match="set it in the catalog's configuration too"):
        plain.load_table(table.name()).transaction().set_properties({"write.summary.partition-limit": "3"})

    plain.load_table(table.name()).append(team_rows(100))
    of_plain, of_shown = (snapshot.model_dump_json() for snapshot in reversed(table.refresh().snapshots()))
    assert "partitions.team=" in of_shown
    assert "partitions.team=" not in of_plain


WRITES: dict[str, Callable[[EncryptedTable], object]] = {
    "append": lambda table: table.append(ROWS),
    "stream": lambda table: table.append(ROWS.to_reader()),
    "delete": lambda table: table.delete("id = 1"),
    "overwrite": lambda table: table.overwrite(ROWS),
    "upsert": lambda table: table.upsert(ROWS, join_cols=["id"]),
    "compact": lambda table: compact(table, rewrite_all=True),
    "erase": lambda table: erase(table, "id = 1", delete_below=[table.location()]),
    "reencrypt": reencrypt,
}


@pytest.mark.parametrize("properties", [{}, {"write.object-storage.enabled": "true"}], ids=["simple", "object storage"])
@pytest.mark.parametrize("write", WRITES)
def test_no_partition_value_is_in_a_name_or_a_summary_that_needs_no_key(catalog: Catalog, write: str, properties: dict[str, str]) -> None:
    table = new_table(catalog, appends=[ROWS], properties=properties)

    def partition_by_size(metadata: dict[str, Any]) -> None:
        field = {"source-id": 3, "field-id": 1000, "name": "size", "transform": "identity"}
        metadata["partition-specs"].append({"spec-id": 1, "fields": [field]})
        metadata.update({"default-spec-id": 1, "last-partition-id": 1000})
        metadata["properties"]["write.summary.partition-limit"] = "100"

    WRITES[write](encrypted_table(edited(table, partition_by_size)))

    stored = files_below(folder_of(table))
    assert not [path for path in stored if "size=" in str(path) or "4000000000" in str(path)]
    assert not [path for path in stored if b"4000000000" in path.read_bytes() or b"partitions.size" in path.read_bytes()]
