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
from tests.support.plaintext import CANARY, findings
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog

ROOT = Path(__file__).parents[2]
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
SPECS = {"flat": PartitionSpec(), "partitioned": PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))}


def asked_of_daft(catalog: dict[str, str], table: str) -> dict[str, Any]:
    done = subprocess.run(
        [os.environ["DAFT_PYTHON"], "-m", "tests.engines.daft_ways", json.dumps({"catalog": catalog, "table": table, "text": CANARY})],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'catalog'}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
def test_no_way_of_daft_leaves_plaintext_or_reads_without_us(tmp_path: Path, aws: AwsServer, spec: PartitionSpec) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws)
    properties = {"encryption.key-id": MASTER_KEY, "write.parquet.compression-codec": "uncompressed"}
    table = catalog.create_table("db.t", SCHEMA, partition_spec=spec, properties=properties)
    table.append(pa.table({"id": [3, 1], "name": [CANARY, CANARY]}))
    before = set(tmp_path.rglob("*.parquet"))

    answers = asked_of_daft({**catalog.properties, "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog"}, "db.t")

    for way in ("read_iceberg", "write_iceberg", "write_iceberg, overwrite"):
        assert answers[way].startswith("FormatError: ") and "table.append(rows)" in answers[way]
    assert answers["write_iceberg, io_config"].startswith("PlaintextRefusedError: ")
    assert "encrypted footer" in answers["read_iceberg, io_config"]
    assert answers["to_daft"].startswith("FormatError: ")
    assert answers["from_arrow"] == [1, 3]
    assert answers["append"] is None
    assert table.refresh().scan().count() == 4
    assert len(set(tmp_path.rglob("*.parquet")) - before) == (2 if spec.fields else 1), "what was appended"
    assert [found for path in tmp_path.rglob("*") if path.is_file() for found in findings(str(path), path.read_bytes())] == []
