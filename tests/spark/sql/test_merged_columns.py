"""The columns that an append of other columns adds to its table: which these are, when they come, and what is refused.

The careless user appends under other names, in another order or of types that do not fit, or changes the table meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, ListType, LongType, NestedField, StringType, StructType

from tablecrypt.errors import ConfigurationError
from tests.spark.conftest import Lake
from tests.spark.sql.test_plan import Asked
from tests.support.tables import metadata_of

SCHEMA: Final = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "note", StringType()),
    NestedField(3, "price", DecimalType(9, 2)),
    NestedField(4, "parts", ListType(5, StructType(NestedField(6, "ratio", FloatType())), element_required=False)),
)
PROPERTIES: Final = {"encryption.key-id": "alias/orders", "write.spark.accept-any-schema": "true", "write.wap.enabled": "true"}
MERGE: Final = {"mergeSchema": "true"}


def column(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def struct(*columns: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(columns)}


class Append:
    """An append of rows with columns of their own."""

    def __init__(
        self,
        lake: Lake,
        *columns: dict[str, Any],
        options: Mapping[str, str] = MERGE,
        sensitive: bool = False,
        wap_id: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.asked = Asked(lake, "db.t")
        if wap_id is not None:
            loaded = self.asked("load_table", catalog=self.asked.catalog, namespace=["db"], name="t", wap_id=wap_id)
            self.asked.table = loaded.fields["table"]
        self.fields = {
            "table": self.asked.table,
            "mode": "append",
            "filter": [],
            "options": dict(options),
            "settings": dict(settings or {}),
            "row_schema": json.dumps(struct(*columns)),
            "case_sensitive": sensitive,
        }
        self.write = self.asked("begin_write", **self.fields).fields["write"]

    def columns(self) -> dict[str, Any]:
        """What rows are brought to."""
        told = json.loads(self.asked("align_rows", **self.fields).fields["schema"])
        return {each["name"]: each["type"] for each in told["fields"]}

    def commit(self) -> None:
        """Commit the append of no rows."""
        self.asked("commit_write", write=self.write)


@pytest.fixture(autouse=True)
def table(lake: Lake) -> Any:
    return lake.catalog.create_table("db.t", SCHEMA, properties=PROPERTIES)


def test_columns_come_with_the_commit_and_not_before(lake: Lake, table: Any) -> None:
    before = table.metadata_location
    ratio = {"type": "array", "elementType": struct(column("unit", "string"), column("ratio", "double")), "containsNull": True}
    append = Append(lake, column("ID", "long"), column("price", "decimal(12,2)"), column("parts", ratio), column("more", "byte"))
    assert list(append.columns()) == ["id", "note", "price", "parts", "more"]
    assert table.refresh().metadata_location == before

    append.commit()

    merged = table.refresh().schema()
    assert [str(field.field_type) for field in merged.fields[:3]] == ["long", "string", "decimal(12, 2)"]
    parts = merged.find_type("parts.element")
    assert isinstance(parts, StructType) and [(each.name, str(each.field_type)) for each in parts.fields] == [
        ("ratio", "double"),
        ("unit", "string"),
    ]
    assert merged.find_field("id").required and not merged.find_field("more").required
    assert [merged.find_field(name).field_id for name in ("id", "note", "price", "parts")] == [1, 2, 3, 4]
    assert not table.metadata.snapshots and metadata_of(table).properties == PROPERTIES


def test_narrower_types_and_fewer_columns_change_nothing(lake: Lake, table: Any) -> None:
    before = table.metadata_location
    append = Append(
        lake, column("price", "decimal(4,2)"), column("note", "void"), options={}, settings={"mergeSchema": "true", "check-ordering": "no"}
    )
    assert append.columns()["id"] == "integer"
    append.commit()
    assert table.refresh().metadata_location == before


@pytest.mark.parametrize("leaves_a_column", [True, False], ids=["added", "added and dropped"])
def test_columns_that_others_added_meanwhile_end_the_write(lake: Lake, table: Any, leaves_a_column: bool) -> None:
    """The files have the ids that the new columns would have got, and those are somebody else's now."""
    append = Append(lake, column("id", "integer"), column("mine", "string"))
    table.update_schema().add_column("theirs", StringType()).commit()
    if not leaves_a_column:
        table.update_schema().delete_column("theirs").commit()
    before = table.refresh().metadata_location

    with pytest.raises(ConfigurationError, match=r"changed while the rows were written; nothing was committed"):
        append.commit()

    assert table.refresh().metadata_location == before


def test_columns_that_an_append_does_not_need_to_add_are_others_business(lake: Lake, table: Any) -> None:
    append = Append(lake, column("id", "integer"), column("note", "string"))
    table.update_schema().update_column("id", LongType()).update_column("parts.element.ratio", DoubleType()).commit()
    with pytest.raises(ConfigurationError, match="its schema was changed"):
        append.commit()
    Append(lake, column("id", "integer"), column("note", "string")).commit()
    assert str(table.refresh().schema().find_type("id")) == "long"


@pytest.mark.parametrize(
    ("columns", "fields", "reason"),
    [
        ([column("id", "long"), column("more", "long")], {"options": {}}, "lacks the column more: the write option mergeSchema=true"),
        ([column("id", "long"), column("more", "long")], {"options": {"mergeSchema": "no"}}, "lacks the column more"),
        (
            [column("id", "long"), column("more", "long")],
            {"options": {"mergeSchema": "no"}, "settings": {"merge-schema": "true"}},
            "lacks the column more",
        ),
        ([column("id", "long")], {"settings": {"check-nullability": "true"}}, "may have nulls in id, which is required"),
        ([column("note", "string"), column("id", "long")], {}, "the column id after note.*check-ordering=false"),
        ([column("id", "long"), column("new", "long"), column("NEW", "long")], {}, "the column new twice"),
        ([column("id", "string")], {}, "id of db.t is int, and the rows have string, which it cannot be promoted to"),
        ([column("id", "integer"), column("price", "decimal(12,3)")], {}, r"price of db.t is decimal\(9, 2\)"),
        ([column("id", "integer"), column("parts", "string")], {}, "parts of db.t"),
        ([column("id", "integer"), column("more", "void")], {}, "more, which db.t lacks, has no type"),
        ([column("id", "integer"), column("more", "variant")], {}, "Spark's type variant"),
        ([column("id", "integer"), column("ID", "integer")], {"sensitive": True}, "differ in case alone"),
        ([column("id", "integer"), column("more", "long")], {"wap_id": "load-1"}, "before the rows are published"),
    ],
    ids=[
        "new",
        "not merged",
        "option first",
        "nulls",
        "order",
        "twice",
        "type",
        "scale",
        "kind",
        "no type",
        "no such type",
        "case",
        "audited",
    ],
)
def test_columns_that_do_not_fit_are_refused_before_rows_are_written(
    lake: Lake, table: Any, columns: list[dict[str, Any]], fields: dict[str, Any], reason: str
) -> None:
    before = table.metadata_location
    with pytest.raises(ConfigurationError, match=reason):
        Append(lake, *columns, **fields)
    assert table.refresh().metadata_location == before


def test_a_stream_adds_no_columns(lake: Lake) -> None:
    append = Append(lake, column("id", "integer"), options={})
    of_stream = append.fields | {"options": dict(MERGE), "query_id": "q"}
    with pytest.raises(ConfigurationError, match="mergeSchema is for batch writes"):
        append.asked("begin_write", **of_stream)
