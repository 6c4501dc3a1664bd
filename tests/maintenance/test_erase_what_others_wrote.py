"""erase on tables that Iceberg Java wrote, after relocate, with delete files of other engines, and in a bucket that keeps versions."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, StringType

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import erase, relocate
from tablecrypt.table.deletes import RowDelta
from tablecrypt.table.table import EncryptedTable
from tests.maintenance.test_erase import FILTER, PERSON, SECRET, check_nothing_is_left, people, rows
from tests.support.aws import AwsServer
from tests.support.table_files import TableFiles
from tests.support.tables import encrypted_sql_catalog, folder_of
from tests.support.vectors import VectorTable, every_vector

pytestmark = pytest.mark.slow


@every_vector()
def test_a_row_that_java_wrote_is_erased_from_the_copy_of_its_table(java_storage: AwsServer, warehouse: Path, vector: VectorTable) -> None:
    catalog = encrypted_sql_catalog(warehouse, java_storage)
    relocate(catalog.register_table("db.original", vector.metadata_location), f"file://{warehouse}/warehouse/copy", register_as="db.copy")
    table = catalog.load_table("db.copy")
    column = next(each for each in table.schema().fields if isinstance(each.field_type, (IntegerType, LongType, StringType)))
    before = {name: table.scan().use_ref(name).to_arrow() for name in table.metadata.refs}
    stored = before["main"][column.name].to_pylist() if before else []
    value = next((each for each in stored if each is not None), None)
    if value is None:
        assert erase(table, EqualTo(column.name, 1)).found_nothing  # type: ignore[call-arg]
        return

    of_person = EqualTo(column.name, value)  # type: ignore[call-arg]
    if table.properties.get("write.format.default") == "avro":
        with pytest.raises(ConfigurationError, match="parquet only"):
            erase(table, of_person, delete_below=[table.location()])
        assert table.refresh().scan().count() == len(stored)
        table.transaction().set_properties({"write.format.default": "parquet"}).commit_transaction()
    erased = erase(table, of_person, delete_below=[table.location()])

    assert not (erased.remaining or erased.refused or erased.failed), erased
    assert all("compact(apply_deletes=True)" in reason for reason in erased.not_searched.values()), erased.not_searched
    table.refresh()
    for name, others in before.items():
        if column.name not in others.column_names:
            continue  # a tag from before the column was renamed
        kept = others.filter(pc.fill_null(pc.not_equal(others[column.name], value), True))
        assert table.scan().use_ref(name).to_arrow().num_rows == kept.num_rows, name
    assert erase(table, of_person, delete_below=[table.location()]).found_nothing


class TestDeleteFiles:
    """Of engines that write equality deletes, and position deletes as format version 2 has them."""

    @pytest.fixture
    def table(self, tmp_path: Path, aws: AwsServer) -> EncryptedTable:
        table = people(encrypted_sql_catalog(tmp_path, aws))
        assert isinstance(table, EncryptedTable)
        return table

    def delete(self, table: EncryptedTable, values: pa.Table, field_ids: list[int]) -> str:
        folder = folder_of(table) / uuid.uuid4().hex
        folder.mkdir()
        file = TableFiles(folder, table.schema()).equality_deletes(values, field_ids)
        with table.transaction() as transaction:
            transaction.update_snapshot().row_delta(RowDelta(added=[file])).commit()  # type: ignore[attr-defined]
        return file.file_path

    def test_an_equality_delete_that_names_the_person_goes_with_the_row_that_it_hides(self, table: EncryptedTable) -> None:
        self.delete(table, pa.table({"customer_id": pa.array([PERSON, 3], pa.int64())}), [1])
        assert table.scan().count() == 58
        erased = erase(table, FILTER)
        assert erased.is_complete, erased
        assert [(ref.rows, ref.hidden_rows) for ref in erased.refs] == [(0, 1)]
        assert table.refresh().scan().count() == 58
        check_nothing_is_left(table)

    def test_one_by_another_column_goes_where_it_applies_to_the_persons_file(self, table: EncryptedTable) -> None:
        self.delete(table, pa.table({"email": [SECRET]}), [3])
        erased = erase(table, FILTER)
        assert erased.is_complete, erased
        check_nothing_is_left(table)

    def test_one_that_applies_to_nothing_any_more_goes_too(self, table: EncryptedTable) -> None:
        table.delete("customer_id < 1000000")
        self.delete(table, pa.table({"customer_id": pa.array([PERSON], pa.int64())}), [1])
        table.append(rows(500, 510))
        erased = erase(table, FILTER)
        assert erased.is_complete, erased
        assert table.refresh().scan().count() == 10
        check_nothing_is_left(table)

    def test_one_of_which_nothing_can_be_said_is_listed(self, table: EncryptedTable) -> None:
        assert erase(table, FILTER).is_complete
        location = self.delete(table, pa.table({"email": ["somebody else"]}), [3])
        erased = erase(table, FILTER)
        assert not erased.is_complete
        assert list(erased.not_searched) == [location]


def test_in_a_bucket_older_versions_are_told(tmp_path: Path, aws: AwsServer) -> None:
    bucket = aws.bucket("erase-versions")
    aws.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    table: Table = people(encrypted_sql_catalog(tmp_path, aws, {"warehouse": f"s3://{bucket}/warehouse"}))
    erased = erase(table, FILTER)
    assert erased.is_complete, erased
    [versions] = [sentence for sentence in erased.outside if "older versions of data files" in sentence]
    hidden = [
        each["Key"]
        for each in aws.s3.list_object_versions(Bucket=bucket)["Versions"]
        if not each["IsLatest"] and not each["Key"].endswith((".metadata.json", "/"))
    ]
    assert f"keeps {len(hidden)} older versions" in versions
    assert {location.removeprefix(f"s3://{bucket}/") for location in erased.deleted if not location.endswith("metadata.json")} == set(
        hidden
    )
    assert erase(table, FILTER).found_nothing
