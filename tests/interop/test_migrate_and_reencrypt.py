"""Tables that Iceberg Java wrote in plaintext, migrated here, and Java reading them again; and re-encrypted tables likewise."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from tablecrypt.maintenance import migrate, reencrypt
from tablecrypt.table.table import EncryptedTable
from tests.support.compare import assert_same_rows
from tests.support.java import LINEAGE_COLUMNS, JavaOracle
from tests.support.plaintext import CANARY
from tests.support.tables import MASTER_KEY

pytestmark = pytest.mark.java


def written_by_java(java: JavaOracle, location: Path, version: int, properties: str = "") -> str:
    """A table with a history, in two partitions, merge-on-read where its version has that; returns its name in Java's catalog."""
    mode = "copy-on-write" if version == 1 else "merge-on-read"
    name = f"db.plain_{uuid.uuid4().hex[:8]}"
    java.sql("CREATE NAMESPACE IF NOT EXISTS h.db")
    java.sql(
        f"CREATE TABLE h.{name} (id INT, team STRING, note STRING) USING iceberg PARTITIONED BY (team) LOCATION 'file://{location}' "
        f"TBLPROPERTIES ('format-version'='{version}', 'write.delete.mode'='{mode}'{properties})"
    )
    for first in (0, 100):
        values = ", ".join(f"({first + each}, '{('red', 'blue')[each % 2]}', '{CANARY} {each}')" for each in range(20))
        java.sql(f"INSERT INTO h.{name} VALUES {values}")
    java.sql(f"DELETE FROM h.{name} WHERE id IN (3, 4, 104)")
    java.sql(f"ALTER TABLE h.{name} ADD COLUMN more BIGINT")
    java.sql(f"INSERT INTO h.{name} VALUES (200, 'red', '{CANARY}', 7)")
    return name


def taken_over(java: JavaOracle, catalog: Catalog, name: str) -> None:
    """The table under the same name in our catalog, out of Java's."""
    location = java.metadata_location(name)
    java.unregister(name)
    catalog.register_table(name, location)


def assert_java_reads(java: JavaOracle, catalog: Catalog, name: str) -> None:
    table = catalog.load_table(name)
    assert isinstance(table, EncryptedTable)
    java.register(name, table.metadata_location)
    columns = [field.name for field in table.schema().fields]
    ours = table.scan(selected_fields=(*columns, *LINEAGE_COLUMNS)).to_arrow()
    assert_same_rows(ours, java.rows(name, lineage=True))


@pytest.mark.parametrize(
    ("version", "properties"),
    [(1, ""), (2, ""), (2, ", 'write.format.default'='avro'"), (2, ", 'write.format.default'='orc'"), (3, "")],
    ids=["version-1", "version-2", "version-2-avro", "version-2-orc", "version-3"],
)
def test_a_table_that_java_wrote_plainly_is_migrated(
    java: JavaOracle, catalog: Catalog, warehouse: Path, version: int, properties: str
) -> None:
    name = written_by_java(java, warehouse / "java-table", version, properties)
    before = java.rows(name, lineage=version == 3)
    taken_over(java, catalog, name)
    result = migrate(catalog.load_table(name), MASTER_KEY)
    for each in result.left:
        if not each.location.endswith("metadata.json"):
            Path(each.location.removeprefix("file:").replace("//", "/")).unlink()  # Hadoop's checksum files
    table = catalog.load_table(name)
    assert_same_rows(table.scan(selected_fields=tuple(before.column_names)).to_arrow(), before)
    assert_java_reads(java, catalog, name)
    java.sql(f"INSERT INTO h.{name} VALUES (300, 'blue', '{CANARY}', 8)")
    java.sql(f"DELETE FROM h.{name} WHERE id = 5")
    assert java.rows(name).num_rows == before.num_rows


def test_equality_deletes_go_on_deleting(java: JavaOracle, catalog: Catalog, warehouse: Path) -> None:
    name = f"db.plain_{uuid.uuid4().hex[:8]}"
    java.sql("CREATE NAMESPACE IF NOT EXISTS h.db")
    java.sql(
        f"CREATE TABLE h.{name} (id INT, note STRING) USING iceberg LOCATION 'file://{warehouse}/equality' "
        "TBLPROPERTIES ('format-version'='2')"
    )
    java.sql(f"INSERT INTO h.{name} VALUES (1, '{CANARY}'), (2, '{CANARY}'), (3, '{CANARY}')")
    java.append_equality_deletes(name, "id", [2])
    java.sql(f"INSERT INTO h.{name} VALUES (2, '{CANARY} again')")
    before = java.rows(name)
    taken_over(java, catalog, name)
    result = migrate(catalog.load_table(name), MASTER_KEY)
    for each in result.left:
        if not each.location.endswith("metadata.json"):
            Path(each.location.removeprefix("file:").replace("//", "/")).unlink()
    assert_same_rows(catalog.load_table(name).scan().to_arrow(), before)
    assert_java_reads(java, catalog, name)
    java.unregister(name)
    reencrypt(catalog.load_table(name))
    assert_java_reads(java, catalog, name)


def test_java_reads_and_changes_a_reencrypted_table(java: JavaOracle, catalog: Catalog) -> None:
    properties = {"encryption.key-id": MASTER_KEY, "write.delete.mode": "merge-on-read"}
    rows = pa.table({"id": pa.array(range(50), pa.int32()), "note": [f"{CANARY} {each}" for each in range(50)]})
    name = f"db.again_{uuid.uuid4().hex[:8]}"
    table = catalog.create_table(name, rows.schema, properties=properties)
    table.append(rows)
    table.append(rows)
    table.delete("id in (7, 8)")
    reencrypt(table, data_key_length=32)
    assert_java_reads(java, catalog, name)
    java.sql(f"DELETE FROM h.{name} WHERE id = 9")
    assert java.rows(name).num_rows == 94
