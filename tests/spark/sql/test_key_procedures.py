"""Procedures that make encrypted tables: under which master key."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tablecrypt.errors import ConfigurationError, MasterKeyRefusedError
from tablecrypt.spark.sql.calls import Call
from tablecrypt.spark.sql.procedures import PROCEDURES
from tests.support.aws import AwsServer
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog


@pytest.mark.parametrize("procedure", ["snapshot", "migrate"])
def test_a_table_gets_the_default_key_of_the_namespace_it_goes_to(aws: AwsServer, tmp_path: Path, procedure: str) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws, {"encryption.allowed-key-ids": MASTER_KEY})
    catalog.create_namespace("sales", {"encryption.default-key-id": MASTER_KEY})
    catalog.create_namespace("foreign", {"encryption.default-key-id": "alias/of-somebody-else"})
    rows = pa.table({"id": [1]})
    catalog.create_table("db.plain", rows.schema).append(rows)

    def call(target: str) -> None:
        names = {"table": target, "source_table": "db.plain"} if procedure == "snapshot" else {"table": "db.plain", "into": target}
        list(PROCEDURES[procedure].run(Call(catalog, "prod", (), names)))

    with pytest.raises(ConfigurationError, match="for catalog or namespace"):
        call("db.copy")
    with pytest.raises(MasterKeyRefusedError):
        call("foreign.copy")
    assert not catalog.list_tables("foreign")
    call("sales.copy")

    made = catalog.load_table("sales.copy")
    assert made.properties["encryption.key-id"] == MASTER_KEY
    assert made.scan().to_arrow() == rows
