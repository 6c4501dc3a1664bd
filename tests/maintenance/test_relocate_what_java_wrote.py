"""relocate and rotate_kek on tables that Iceberg Java wrote: position deletes, v2 pasts, vectors, evolved partitions and all."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import Table

from tablecrypt.errors import FormatError
from tablecrypt.maintenance import relocate, rotate_kek
from tablecrypt.maintenance._relocate_files import PathMap
from tablecrypt.maintenance.reachable import FileKind, reachable_files
from tablecrypt.table.deletes import with_other_paths
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.java import LINEAGE_COLUMNS
from tests.support.tables import encrypted_sql_catalog
from tests.support.vectors import JAVA, VectorTable, every_vector, load

pytestmark = pytest.mark.slow


def assert_reads_as_java_read_it(table: Table, vector: VectorTable) -> None:
    for number, snapshot_id in enumerate(vector.snapshot_ids):
        assert_same_rows(table.scan(snapshot_id=snapshot_id).to_arrow(), vector.expected(f"snapshot-{number}"))
    assert_same_rows(table.scan().to_arrow(), vector.expected())
    for tag in vector.tags:
        assert_same_rows(table.scan().use_ref(tag).to_arrow(), vector.expected(f"tag-{tag}"))
    if vector.folder == JAVA:
        names = tuple(field.name for field in table.schema().fields)
        assert_same_rows(table.scan(selected_fields=(*names, *LINEAGE_COLUMNS)).to_arrow(), vector.expected("current-lineage"))


@every_vector()
def test_the_copy_of_a_table_of_javas_reads_as_java_read_it_and_so_after_a_rotation(
    java_storage: AwsServer, warehouse: Path, vector: VectorTable
) -> None:
    catalog = encrypted_sql_catalog(warehouse, java_storage)
    table = catalog.register_table("db.original", vector.metadata_location)
    place = f"file://{warehouse}/warehouse/copy"

    relocate(table, place, register_as="db.copy")

    copy = catalog.load_table("db.copy")
    rotate_kek(copy)
    assert_reads_as_java_read_it(copy, vector)
    assert all(location.startswith(place) for location in reachable_files(copy.metadata, copy.io).files)


def test_position_deletes_are_about_the_copied_files(java_storage: AwsServer, warehouse: Path) -> None:
    vector = load(JAVA)["position_deletes"]
    catalog = encrypted_sql_catalog(warehouse, java_storage)
    table = catalog.register_table("db.original", vector.metadata_location)
    relocate(table, f"file://{warehouse}/warehouse/copy", register_as="db.copy")
    copy = catalog.load_table("db.copy")
    kinds = {file.kind for file in reachable_files(copy.metadata, copy.io).files.values()}
    assert FileKind.POSITION_DELETES in kinds
    copy.delete("id = 1")
    table_rows = vector.expected()
    assert copy.scan().count() == table_rows.num_rows - table_rows["id"].to_pylist().count(1)


def test_a_puffin_footer_that_cannot_be_changed_is_an_error_that_names_the_file() -> None:
    location, paths = "s3://b/v.puffin", PathMap("s3://b/t", "s3://c/t")
    whole = b"PFA1" + b"blob" + b"PFA1" + b'{"blobs":[]}' + (12).to_bytes(4, "little") + bytes(4) + b"PFA1"
    assert with_other_paths(whole, location, paths) == whole
    compressed = whole[:-8] + b"\x01\x00\x00\x00PFA1"
    long = whole[:-12] + (100).to_bytes(4, "little") + bytes(4) + b"PFA1"
    for content in (
        b"",
        b"PFA1",
        whole[:-1],
        whole[4:],
        compressed,
        long,
        whole.replace(b'"blobs":[]', b'"blobs":12'),
        whole[:13] + whole[14:],
    ):
        with pytest.raises(FormatError, match=r"s3://b/v\.puffin"):
            with_other_paths(content, location, paths)
