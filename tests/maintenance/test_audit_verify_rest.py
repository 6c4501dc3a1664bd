"""Audit and verify of a table of Iceberg's REST server, which answers with metadata instead of a file of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tablecrypt.maintenance import FindingKind, audit, verify
from tests.support.aws import AwsServer
from tests.support.plaintext_scan import unwatch
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace
from tests.support.tables import folder_of, maintained_table, team_rows

pytestmark = pytest.mark.java


def test_a_rest_table_is_audited_and_verified(rest_server: RestServer, aws: AwsServer, tmp_path: Path) -> None:
    catalog = encrypted_rest_catalog(rest_server.uri, aws, {"encryption.pins": str(tmp_path / "pins.json")})
    table = maintained_table(catalog, f"{new_namespace(rest_server)}.rows")
    unwatch(folder_of(table))

    assert verify(table).is_good
    assert audit(table).findings == ()
    pq.write_table(team_rows(0), folder_of(table) / "data" / "export.parquet")
    assert [finding.kind for finding in audit(table).findings] == [FindingKind.PLAINTEXT_ORPHAN]


def test_without_a_pin_file_nothing_pins_a_rest_table(rest_server: RestServer, aws: AwsServer) -> None:
    table = maintained_table(encrypted_rest_catalog(rest_server.uri, aws), f"{new_namespace(rest_server)}.rows")

    assert [finding.kind for finding in audit(table).findings] == [FindingKind.PINS_MISSING]
