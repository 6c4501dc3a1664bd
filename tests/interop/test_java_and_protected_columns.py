"""Iceberg Java on a table with protected columns: right answers about every other column, and an error for what it cannot read or write."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation

from tablecrypt import maintenance as m
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance.columns.blanking import blanked_file
from tablecrypt.table.replace_files import EncryptedFileSwap
from tablecrypt.table.table import EncryptedTable
from tests.support import java_access
from tests.support.aws import AwsServer
from tests.support.java import JavaError, JavaOracle
from tests.support.protected_tables import PEOPLE_SCHEMA, declare, protected_table, table_of_people
from tests.support.tables import encrypted_sql_catalog

pytestmark = pytest.mark.java

ROWS: Final = 4000
NAME: Final = "kept.protected_people"


def _rows() -> pa.Table:
    rows = [
        {
            "id": number,
            "ssn": f"SSN-{number}",
            "salary": None,
            "person": {"email": f"{number}@example.org", "age": number % 90},
            "phones": [f"+49-{number}", "+49"] if number % 3 else None,
            "note": f"note {number % 7}",
        }
        for number in range(ROWS)
    ]
    return table_of_people(rows)


def _one(java: JavaOracle, query: str) -> list[tuple[Any, ...]]:
    answer = java.sql(query.replace("TABLE", f"h.{NAME}"))
    assert answer is not None
    return [tuple(row.values()) for row in answer.to_pylist()]


def _people(warehouse: Path, aws: AwsServer, name: str, rows: pa.Table, columns: str, **properties: str) -> EncryptedTable:
    """A table whose columns are under a master key that Java is not given."""
    keys = {"encryption.key-id": aws.kms_key_id("alias/orders"), "encryption.column-keys": f"{aws.kms_key_id('alias/people')}: {columns}"}
    return protected_table(encrypted_sql_catalog(warehouse, aws), name, appends=[rows], **keys, **properties)


def test_java_answers_about_other_columns_and_fails_loudly_for_protected_ones(warehouse: Path, aws: AwsServer, java: JavaOracle) -> None:
    row_groups = {"write.parquet.row-group-limit": "1500"}
    table = _people(warehouse, aws, "db.people", _rows(), "ssn, person.email, phones", **row_groups)
    java.register(NAME, table.metadata_location)

    assert _one(java, "SELECT count(*) FROM TABLE") == [(ROWS,)]
    assert _one(java, "SELECT id, note FROM TABLE WHERE id = 305") == [(305, "note 4")]
    assert _one(java, "SELECT count(*) FROM TABLE WHERE note = 'note 3' AND id < 100") == [(14,)]
    assert _one(java, "SELECT note, count(*), max(id) FROM TABLE GROUP BY note ORDER BY note LIMIT 1") == [("note 0", 572, 3997)]
    assert _one(java, "SELECT count(*) FROM TABLE a JOIN TABLE b ON a.id = b.id + 1 WHERE b.id >= 3990") == [(9,)]
    assert _one(java, "SELECT person.age FROM TABLE WHERE id = 91") == [(1,)]
    assert _one(java, "SELECT count(*) FROM TABLE WHERE upper(note) = 'NOTE 0' AND _row_id IS NOT NULL") == [(572,)]

    for query in (
        "SELECT ssn FROM TABLE",
        "SELECT * FROM TABLE",
        "SELECT min(ssn), max(ssn) FROM TABLE",
        "SELECT count(ssn) FROM TABLE",
        "SELECT id FROM TABLE WHERE ssn = 'SSN-5'",
        "SELECT id FROM TABLE WHERE ssn IS NULL",
        "SELECT person.email FROM TABLE",
        "SELECT phones FROM TABLE",
    ):
        with pytest.raises(JavaError, match=r"(dictionary was missing|could not read page)"):
            _one(java, query)

    before = java.metadata_location(NAME)
    for statement in (
        "INSERT INTO TABLE (id, ssn) VALUES (1000, 'SSN-JAVA')",
        "INSERT OVERWRITE TABLE SELECT id + 1000, 'SSN-JAVA', salary, null, null, note FROM TABLE WHERE id < 5",
        "UPDATE TABLE SET note = 'changed' WHERE id = 1",
    ):
        with pytest.raises(JavaError):
            java.sql(statement.replace("TABLE", f"h.{NAME}"))
        assert java.metadata_location(NAME) == before, statement
    java.sql(f"DELETE FROM h.{NAME} WHERE id >= 390")
    assert _one(java, "SELECT count(*) FROM TABLE") == [(390,)]

    table.catalog.drop_table("db.people")
    back = cast("EncryptedTable", table.catalog.register_table("db.people", java.metadata_location(NAME)))
    rows = sorted(back.scan().to_arrow().to_pylist(), key=lambda row: int(row["id"]))
    assert [row["ssn"] for row in rows] == [f"SSN-{number}" for number in range(390)]
    assert [row["person"]["email"] for row in rows] == [f"{number}@example.org" for number in range(390)]


def test_java_reads_a_file_in_which_rows_were_blanked_without_the_column_keys(warehouse: Path, aws: AwsServer, java: JavaOracle) -> None:
    """Row groups whose columns lie behind all protected ones: Java takes what lies around the middle of a split."""
    row_groups = {"write.parquet.row-group-limit": "1000"}
    table = _people(warehouse, aws, "db.blanked", _rows(), "ssn, person.email, phones", **row_groups)
    blanked = [0, 7, 999, 1000, 3999]

    (task,) = table.refresh().scan().plan_files()
    swaps = {task.file.file_path: blanked_file(table, task.file, blanked)}
    with table.transaction() as transaction:
        transaction.update_snapshot().producer(EncryptedFileSwap, Operation.REPLACE, swaps=swaps).commit()  # type: ignore[attr-defined]

    assert sorted(table.scan(selected_fields=("ssn",)).to_arrow()["ssn"].to_pylist()) == sorted(f"SSN-{each}" for each in range(ROWS))
    java.register("kept.blanked", table.metadata_location)
    answer = java.sql("SELECT id, note, person.age AS age FROM h.kept.blanked")
    assert answer is not None
    rows = [row for row in answer.to_pylist() if row["id"] is not None]
    assert len(answer) == ROWS
    assert sorted(row["id"] for row in rows) == [each for each in range(ROWS) if each not in blanked]
    assert all((row["note"], row["age"]) == (f"note {row['id'] % 7}", row["id"] % 90) for row in rows)
    counted = java.sql("SELECT count(*) AS rows FROM h.kept.blanked WHERE id = 3999 OR id = 0")
    assert counted is not None and counted.to_pylist() == [{"rows": 0}]


def test_the_page_says_what_java_does_with_each_statement(warehouse: Path, aws: AwsServer, java: JavaOracle) -> None:
    assert java_access.PART.read() == java_access.rendered(warehouse, aws, java), "python -m tests.support.java_access writes it again"


def test_files_that_java_wrote_under_the_tables_key_are_brought_in_line_and_java_reads_on(
    warehouse: Path, aws: AwsServer, java: JavaOracle
) -> None:
    catalog = encrypted_sql_catalog(warehouse, aws)
    table = catalog.create_table("db.late", PEOPLE_SCHEMA, properties={"encryption.key-id": aws.kms_key_id("alias/orders")})
    java.register("kept.late", table.metadata_location)
    java.sql(
        "INSERT INTO h.kept.late SELECT id, concat('SSN-', id), cast(id AS DECIMAL(9, 2)), "
        "named_struct('email', concat(id, '@example.org'), 'age', id), array(concat('+49-', id), '+49'), "
        "concat('note ', id % 7) FROM range(300)"
    )
    catalog.drop_table("db.late")
    late = cast("EncryptedTable", catalog.register_table("db.late", java.metadata_location("kept.late")))
    written = sorted(late.scan().to_arrow().to_pylist(), key=lambda row: int(row["id"]))
    declare(late, f"{aws.kms_key_id('alias/people')}: ssn, salary, person.email, phones", ssn="redact")
    exposed = [each for each in m.audit(late).tables[0].findings if each.kind == m.FindingKind.COLUMN_EXPOSED]
    assert exposed, "an audit names what Java wrote"

    assert m.reencrypt(late, out_of_line=True).in_line >= 1
    assert sorted(late.refresh().scan().to_arrow().to_pylist(), key=lambda row: int(row["id"])) == written
    verified = m.verify(late)
    assert verified.is_good
    assert verified.unchecked_columns == {}
    m.shred(late, [late.snapshots()[0].snapshot_id])
    assert not [each for each in m.audit(late.refresh()).tables[0].findings if each.kind == m.FindingKind.COLUMN_EXPOSED]

    java.register("kept.mended", late.metadata_location)
    mended = "h.kept.mended"
    assert _one(java, f"SELECT id, note, person.age FROM {mended} WHERE id = 205") == [(205, "note 2", 205)]
    assert _one(java, f"SELECT ssn FROM {mended} WHERE id = 205") == [("X" * 3 + "-999",)], "the mask"
    for column in ("salary", "person.email", "phones"):
        with pytest.raises(JavaError, match=r"(dictionary was missing|could not read page)"):
            _one(java, f"SELECT {column} FROM {mended}")


def test_masks_that_java_copies_where_the_engine_write_barrier_is_off_are_found_and_stay_no_values(
    warehouse: Path, aws: AwsServer, java: JavaOracle
) -> None:
    properties = {"encryption.column-mask.ssn": "redact", "encryption.column-guard": "false", "write.update.mode": "copy-on-write"}
    table = _people(warehouse, aws, "db.unguarded", _rows().slice(0, 20), "ssn", **properties)
    java.register("kept.unguarded", table.metadata_location)
    java.sql("UPDATE h.kept.unguarded SET note = 'changed' WHERE id = 7")
    table.catalog.drop_table("db.unguarded")
    back = cast("EncryptedTable", table.catalog.register_table("db.unguarded", java.metadata_location("kept.unguarded")))

    (finding,) = [each for each in m.audit(back).tables[0].findings if each.kind == m.FindingKind.COLUMN_MASKS_AS_VALUES]
    assert (finding.where, str(back.metadata.current_snapshot_id) in finding.message) == ("ssn", True)
    with pytest.raises(ConfigurationError, match="what its mask"):
        m.reencrypt(back)
    (before,) = [each.snapshot_id for each in back.snapshots() if each.snapshot_id != back.metadata.current_snapshot_id]
    assert set(back.scan(snapshot_id=before).to_arrow()["ssn"].to_pylist()) == {f"SSN-{number}" for number in range(20)}
