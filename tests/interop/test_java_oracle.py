"""The oracle itself is to be trusted: it reads tables known to be right, and what goes through it comes back unchanged."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest

from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.java import JavaError, JavaOracle
from tests.support.plaintext import CANARY
from tests.support.sample_rows import EXTREME_COLUMNS, extreme_rows
from tests.support.vectors import GOLDEN, JAVA, load

ENCRYPTED = "TBLPROPERTIES ('format-version' = '3', 'encryption.key-id' = 'alias/orders')"
EVOLVED = load(JAVA)["evolved"]
"""A known table with branches, tags, and what else Java had to read back."""

pytestmark = pytest.mark.java


@pytest.fixture(scope="module", autouse=True)
def _namespace(java: JavaOracle) -> None:
    java.sql("CREATE NAMESPACE IF NOT EXISTS h.oracle")


@pytest.fixture(scope="module")
def _vectors_in_s3(aws: AwsServer) -> None:
    for folder in (GOLDEN, JAVA):
        aws.load_bucket(folder / "s3")


@pytest.mark.usefixtures("_vectors_in_s3")
def test_every_state_of_a_known_table_reads_equal(java: JavaOracle) -> None:
    java.register("oracle.evolved", EVOLVED.metadata_location)
    assert java.metadata_location("oracle.evolved") == EVOLVED.metadata_location
    assert_same_rows(java.rows("oracle.evolved"), EVOLVED.expected())
    for number, snapshot_id in enumerate(EVOLVED.snapshot_ids):
        assert_same_rows(java.rows("oracle.evolved", snapshot_id), EVOLVED.expected(f"snapshot-{number}"))
    for kind, names in (("branch", EVOLVED.branches), ("tag", EVOLVED.tags)):
        for name in names:
            assert_same_rows(java.rows("oracle.evolved", name), EVOLVED.expected(f"{kind}-{name}"))
    assert_same_rows(java.rows("oracle.evolved", lineage=True), EVOLVED.expected("current-lineage"))


def test_every_type_comes_back_as_it_was_appended(java: JavaOracle) -> None:
    java.sql(f"CREATE TABLE h.oracle.types ({EXTREME_COLUMNS}) USING iceberg {ENCRYPTED}")
    java.append("oracle.types", extreme_rows())
    assert_same_rows(java.rows("oracle.types"), extreme_rows())


def test_lineage_columns_follow_the_rows(java: JavaOracle) -> None:
    java.sql(f"CREATE TABLE h.oracle.lineage (id bigint, text string) USING iceberg {ENCRYPTED}")
    for first in (0, 2):
        java.append("oracle.lineage", pa.table({"id": [first, first + 1], "text": [CANARY, CANARY]}))
    rows = java.rows("oracle.lineage", columns=["id"], lineage=True, where="id > 0")
    assert set(rows.column_names) == {"id", "_row_id", "_last_updated_sequence_number"}
    assert len(set(rows["_row_id"].to_pylist())) == 3
    assert {row["id"]: row["_last_updated_sequence_number"] for row in rows.to_pylist()} == {1: 1, 2: 2, 3: 2}


def test_an_appended_table_is_read_again_under_another_name(java: JavaOracle) -> None:
    java.sql(f"CREATE TABLE h.oracle.first_name (id bigint, text string) USING iceberg {ENCRYPTED}")
    rows = pa.table({"id": [1, 2], "text": [CANARY, None]})
    java.append("oracle.first_name", rows)
    location = java.metadata_location("oracle.first_name")

    java.unregister("oracle.first_name")
    assert Path(urlparse(location).path).is_file()
    with pytest.raises(JavaError, match="TABLE_OR_VIEW_NOT_FOUND"):
        java.rows("oracle.first_name")

    java.register("oracle.second_name", location)
    java.append("oracle.second_name", rows)
    assert_same_rows(java.rows("oracle.second_name"), pa.concat_tables([rows, rows]))
    assert java.metadata_location("oracle.second_name") != location


def test_a_table_in_s3_is_written_and_read(java: JavaOracle, aws: AwsServer) -> None:
    aws.bucket("java-oracle")
    java.sql(f"CREATE TABLE h.oracle.in_s3 (id bigint, text string) USING iceberg LOCATION 's3://java-oracle/in_s3' {ENCRYPTED}")
    rows = pa.table({"id": [1], "text": [CANARY]})
    java.append("oracle.in_s3", rows)
    assert java.metadata_location("oracle.in_s3").startswith("s3://java-oracle/in_s3/metadata/")
    assert_same_rows(java.rows("oracle.in_s3"), rows)


def test_a_refusal_names_the_java_exception(java: JavaOracle) -> None:
    with pytest.raises(JavaError) as caught:
        java.sql("CALL h.system.register_table(table => 'oracle.nothing', metadata_file => 'file:///nowhere/v1.metadata.json')")
    assert caught.value.java_class is not None
    assert caught.value.java_class.startswith("org.apache.iceberg.exceptions.")


def test_equality_deletes_take_older_rows_only(java: JavaOracle) -> None:
    java.sql(f"CREATE TABLE h.oracle.by_value (id int, text string) USING iceberg {ENCRYPTED}")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "text": [CANARY, CANARY, None]})
    java.append("oracle.by_value", rows)
    java.append_equality_deletes("oracle.by_value", "id", [1, 3])
    java.append("oracle.by_value", rows.slice(2))
    assert_same_rows(java.rows("oracle.by_value"), rows.slice(1))


def test_a_statement_without_rows_gives_none(java: JavaOracle) -> None:
    assert java.sql("CREATE NAMESPACE IF NOT EXISTS h.oracle") is None


def test_an_oracle_whose_process_ended_says_so(tmp_path: Path, aws: AwsServer) -> None:
    with pytest.raises(JavaError, match="process ended"), JavaOracle(tmp_path, aws.endpoint, timeout=0.1):
        pass
