"""The statements of Spark SQL that make the table of a case, and take its steps."""

from __future__ import annotations

from typing import Any, Final

from conformance.adapters.protocol import Case, Unsupported
from conformance.rows import read_rows

_TYPES: Final = {"int": "int", "long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}
"""Names that are not the same in both."""


def create_table(name: str, case: Case) -> str:
    """Of the schema, partition spec and properties of a case, in the folder `out`."""
    schema = case["schema"]
    columns = ", ".join(f"{each['name']} {_type(each['type'])}{' NOT NULL' if each['required'] else ''}" for each in schema["fields"])
    names = {each["id"]: each["name"] for each in schema["fields"]}
    transforms = ", ".join(_transform(each["transform"], names[each["source-id"]]) for each in case["partition_spec"]["fields"])
    partitioned = f" PARTITIONED BY ({transforms})" if transforms else ""
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in {"format-version": "3", **case["properties"]}.items())
    return f"CREATE TABLE {name} ({columns}) USING iceberg{partitioned} LOCATION 'file://{case['out']}' TBLPROPERTIES ({properties})"


def statement_of(name: str, step: dict[str, Any]) -> str:
    """One step. Rows stand in the statement, as literals of their types."""
    column = step.get("column")
    match step["step"]:
        case "delete":
            return f"DELETE FROM {name} WHERE {column} IN ({', '.join(map(_literal, step['values']))})"
        case "upsert":
            return (
                f"MERGE INTO {name} AS target USING ({_rows(step['rows'])}) AS source ON target.{column} = source.{column} "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        case "add-column":
            return f"ALTER TABLE {name} ADD COLUMN {column} {_type(step['type'])}"
        case "rename-column":
            return f"ALTER TABLE {name} RENAME COLUMN {column} TO {step['name']}"
        case "drop-column":
            return f"ALTER TABLE {name} DROP COLUMN {column}"
        case other:
            raise Unsupported(f"there is no statement for a step of {other}")


def _rows(path: str) -> str:
    rows = read_rows(path)
    values = ", ".join(f"({', '.join(_literal(each) for each in row.values())})" for row in rows.to_pylist())
    return f"SELECT * FROM VALUES {values} AS given({', '.join(rows.column_names)})"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return f"{value}L"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"


def _transform(transform: str, column: str) -> str:
    """`bucket[2]` of the specification is bucket(2, column), `day` is days(column)."""
    if transform == "identity":
        return column
    if "[" in transform:
        kind, _, width = transform.rstrip("]").partition("[")
        return f"{kind}({width}, {column})"
    return f"{transform}s({column})"


def _type(kind: str | dict[str, Any]) -> str:
    if isinstance(kind, str):
        return _TYPES.get(kind, kind)
    match kind["type"]:
        case "list":
            return f"array<{_type(kind['element'])}>"
        case "map":
            return f"map<{_type(kind['key'])}, {_type(kind['value'])}>"
        case _:
            return "struct<" + ", ".join(f"{each['name']}: {_type(each['type'])}" for each in kind["fields"]) + ">"
