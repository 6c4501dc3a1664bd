"""Daft opens a table's files by itself: by none of its ways does it leave plaintext, or read a row that is not decrypted by us.

Daft wants an older pyarrow than the other tests have, so it runs in an interpreter of its own, which `make daft` sets up and names in
DAFT_PYTHON.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.aws import AwsServer
from tests.support.column_principals import NAME, table_of_three
from tests.support.pages import DOCS, run_page
from tests.support.plaintext import CANARY, findings
from tests.support.tables import MASTER_KEY, TEAM_SCHEMA, encrypted_sql_catalog, rows

ROOT = Path(__file__).parents[2]
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
SPECS = {"flat": PartitionSpec(), "partitioned": PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))}


def asked_of_daft(catalog: dict[str, str], table: str, program: str = "daft_ways") -> dict[str, Any]:
    done = subprocess.run(
        [os.environ["DAFT_PYTHON"], "-m", f"tests.engines.{program}", json.dumps({"catalog": catalog, "table": table, "text": CANARY})],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'catalog'}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # PyIceberg prints how columns differ.
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
def test_no_way_of_daft_leaves_plaintext_or_reads_without_us(tmp_path: Path, aws: AwsServer, spec: PartitionSpec) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws)
    properties = {"encryption.key-id": MASTER_KEY, "write.parquet.compression-codec": "uncompressed"}
    table = catalog.create_table("db.t", SCHEMA, partition_spec=spec, properties=properties)
    table.append(pa.table({"id": [3, 1], "name": [CANARY, CANARY]}))

    answers = asked_of_daft({**catalog.properties, "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog"}, "db.t")

    for way in ("read_iceberg", "write_iceberg", "write_iceberg, overwrite"):
        assert answers[way].startswith("FormatError: ") and "table.append(rows)" in answers[way]
    assert answers["write_iceberg, io_config"].startswith("PlaintextRefusedError: ")
    assert "encrypted footer" in answers["read_iceberg, io_config"]
    assert answers["to_daft"].startswith("FormatError: ")
    assert answers["from_arrow"] == [1, 3]
    assert answers["append"] is None
    assert answers["read"] == [1, 1, 2, 3] and answers["read by a scan's filter"] == [2, 3]
    assert answers["read, and filtered by another column"] == {"name": [CANARY]}
    assert answers["count"] == 3
    assert answers["write"]["rows"] == [2]
    *errors, is_unchanged = answers["a sink that was used"]
    assert is_unchanged and all("for one write" in error for error in errors)
    assert answers["overwrite"] == [{"rows": [1], "files": [1]}, [9]]
    assert (
        answers["another type"].startswith("RuntimeError: ")
        and "column 'id' is large_string, and int64 in the table" in answers["another type"]
    )
    assert answers["another mode"].startswith("ConfigurationError: mode 'upsert' is not known")
    assert answers["pickled"] == "EncryptedSink"
    assert answers["no encrypted table"].startswith("ConfigurationError: tablecrypt.daft.read_table takes an encrypted table")
    assert answers["a column is declared meanwhile"].startswith("StaleWriteError: ")
    assert answers["read afterwards"] == [9]
    assert table.refresh().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist() == [9]
    assert [found for path in tmp_path.rglob("*") if path.is_file() for found in findings(str(path), path.read_bytes())] == []


def test_who_may_not_use_a_columns_key_neither_reads_nor_writes_it_by_daft(tmp_path: Path) -> None:
    clients = table_of_three(tmp_path)

    answers = {who: asked_of_daft(properties, NAME, "daft_principals") for who, properties in clients.items()}

    for who in ("analyst", "clerk"):
        assert answers[who]["read"].startswith("ColumnKeyDeniedError: ") and "'team'" in answers[who]["read"]
        assert answers[who]["sink"].startswith("ColumnKeyDeniedError: ")
        assert answers[who]["masked"] == [None] * 20
        assert answers[who]["other columns"] == list(range(20))
    assert sorted(answers["payroll"]["read"]) == sorted(row["team"] for row in rows(0, 20, TEAM_SCHEMA).to_pylist())
    assert answers["payroll"]["sink"] == "EncryptedSink"


def test_the_page_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PYICEBERG_HOME": str(tmp_path)}

    run_page((DOCS / "daft.md").read_text(encoding="utf-8"), tmp_path, environment, interpreter=os.environ["DAFT_PYTHON"])
