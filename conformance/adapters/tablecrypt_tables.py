"""tablecrypt writes the table of a case."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from conformance.adapters.protocol import Case
from conformance.adapters.tablecrypt_parts import key_properties
from conformance.rows import read_rows
from tablecrypt import maintenance
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog


def written_table(case: Case) -> str:
    """Write it into the folder `out`; return where its newest metadata is."""
    schema, spec = Schema.model_validate(case["schema"]), PartitionSpec.model_validate(case["partition_spec"])
    with tempfile.TemporaryDirectory() as folder:
        database = f"sqlite:///{Path(folder) / 'catalog.db'}"
        catalog = EncryptedSqlCatalog("kit", uri=database, warehouse=f"file://{folder}", **key_properties(Path(case["key_file"])))
        try:
            catalog.create_namespace("db")
            location = f"file://{case['out']}"
            table = catalog.create_table("db.t", schema, location=location, partition_spec=spec, properties=case["properties"])
            for step in case["steps"]:
                _take(table, step)
                table.refresh()
            return str(table.metadata_location).removeprefix("file://")
        finally:
            catalog.close()


def _take(table: Table, step: dict[str, Any]) -> None:
    match step["step"]:
        case "append":
            table.append(read_rows(step["rows"]))
        case "delete":
            table.delete(f"{step['column']} in ({', '.join(map(str, step['values']))})")
        case "upsert":
            table.upsert(read_rows(step["rows"]), join_cols=[step["column"]])
        case "add-column":
            with table.update_schema() as update:
                field = NestedField.model_validate({"id": 1, "name": step["column"], "type": step["type"], "required": False})
                update.add_column(step["column"], field.field_type)
        case "rename-column":
            with table.update_schema() as update:
                update.rename_column(step["column"], step["name"])
        case "drop-column":
            with table.update_schema() as update:
                update.delete_column(step["column"])
        case "rotate":
            assert isinstance(table, EncryptedTable)
            maintenance.rotate_kek(table)
        case other:
            raise ValueError(f"a step of {other}")
