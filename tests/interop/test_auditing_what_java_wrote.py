"""Audit and verify of the tables that Iceberg Java wrote (tests/vectors/golden and tests/vectors/java): all authentic, no plaintext."""

from __future__ import annotations

from pathlib import Path

import pytest

from tablecrypt.maintenance import Severity, audit, verify
from tests.support.aws import AwsServer
from tests.support.tables import encrypted_sql_catalog
from tests.support.vectors import GOLDEN, JAVA, VectorTable, load

pytestmark = pytest.mark.slow

VECTORS = [*load(GOLDEN).values(), *load(JAVA).values()]


def named(vector: object) -> str | None:
    return f"{vector.folder.name}-{vector.name}" if isinstance(vector, VectorTable) else None


@pytest.mark.parametrize("vector", VECTORS, ids=named)
def test_javas_tables_verify_and_hold_no_plaintext(java_storage: AwsServer, tmp_path: Path, vector: VectorTable) -> None:
    table = encrypted_sql_catalog(tmp_path, java_storage).register_table("db.rows", vector.metadata_location)

    verified, audited = verify(table), audit(table)

    assert verified.is_good, verified.bad
    assert verified.files == len(audited.tables[0].files) >= 2 * len(vector.snapshot_ids)
    assert [finding for finding in audited.findings if finding.severity > Severity.INFO] == []
