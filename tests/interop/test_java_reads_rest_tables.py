"""The metadata.json that Iceberg's REST server writes for an encrypted table is one that Iceberg Java opens, reads and appends to."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType

from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.java import LINEAGE_COLUMNS, JavaOracle
from tests.support.plaintext import CANARY
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace
from tests.support.tables import MASTER_KEY, path_of

pytestmark = pytest.mark.java

ROWS = pa.table({"id": pa.array(range(20), pa.int64()), "text": [f"{CANARY} {number}" for number in range(20)]})


@pytest.mark.parametrize("data_key_length", ["16", "24", "32"])
def test_java_reads_appends_to_and_hands_back_a_table_of_the_rest_server(
    rest_server: RestServer, aws: AwsServer, java: JavaOracle, data_key_length: str
) -> None:
    catalog, namespace = encrypted_rest_catalog(rest_server.uri, aws), new_namespace(rest_server)
    properties = {"encryption.key-id": MASTER_KEY, "encryption.data-key-length": data_key_length}
    with catalog.create_table_transaction(f"{namespace}.t", ROWS.schema, properties=properties) as creation:
        creation.append(ROWS)
    table = catalog.load_table(f"{namespace}.t")
    first = table.current_snapshot()
    assert first is not None
    table.delete("id < 5")
    table.upsert(pa.table({"id": [7, 100], "text": ["seven", CANARY]}), join_cols=["id"])
    with table.update_schema() as update:
        update.add_column("note", StringType())
    table.append(ROWS.slice(0, 2).append_column("note", pa.array(["a", None])))

    identifier = f"rest.{namespace}"
    java.register(identifier, absolute(table.metadata_location))
    assert_same_rows(java.rows(identifier, lineage=True), rows_with_lineage(table))
    assert_same_rows(java.rows(identifier, snapshot_id=first.snapshot_id), ROWS)

    java.append(identifier, pa.table({"id": [200], "text": [CANARY], "note": ["from Java"]}))
    catalog.drop_table(f"{namespace}.t")
    back = catalog.register_table(f"{namespace}.back", java.metadata_location(identifier))
    assert_same_rows(rows_with_lineage(back), java.rows(identifier, lineage=True))
    back.append(pa.table({"id": [300], "text": [CANARY], "note": [None]}, schema=back.scan().to_arrow().schema))
    assert back.scan("id >= 200").count() == 2


def absolute(location: str) -> str:
    """The server writes file:/path; Java's registration asks for a whole URI."""
    return path_of(location).as_uri()


def rows_with_lineage(table: Table) -> pa.Table:
    return table.scan(selected_fields=("id", "text", "note", *LINEAGE_COLUMNS)).to_arrow()
