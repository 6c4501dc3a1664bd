"""Every snapshot of every table that Iceberg Java 1.12 wrote (tests/vectors/golden and tests/vectors/java) reads here as Java read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.java import LINEAGE_COLUMNS
from tests.support.tables import encrypted_sql_catalog
from tests.support.vectors import GOLDEN, JAVA, VectorTable, load

pytestmark = pytest.mark.slow

VECTORS = [*load(GOLDEN).values(), *load(JAVA).values()]
Opened = Callable[[VectorTable], Table]


def named(vector: object) -> str | None:
    return f"{vector.folder.name}-{vector.name}" if isinstance(vector, VectorTable) else None


@pytest.fixture
def opened(java_storage: AwsServer, warehouse: Path) -> Opened:
    catalog = encrypted_sql_catalog(warehouse, java_storage)
    return lambda vector: catalog.register_table(f"db.{vector.folder.name}_{vector.name}", vector.metadata_location)


@pytest.mark.parametrize("vector", VECTORS, ids=named)
def test_every_snapshot_reads_as_java_read_it(opened: Opened, vector: VectorTable) -> None:
    table = opened(vector)
    for number, snapshot_id in enumerate(vector.snapshot_ids):
        assert_same_rows(table.scan(snapshot_id=snapshot_id).to_arrow(), vector.expected(f"snapshot-{number}"))
    assert_same_rows(table.scan().to_arrow(), vector.expected())
    assert table.scan().count() == vector.expected().num_rows


@pytest.mark.parametrize("vector", [each for each in VECTORS if each.folder == JAVA], ids=named)
def test_every_row_has_the_id_and_sequence_number_that_java_gives_it(opened: Opened, vector: VectorTable) -> None:
    table = opened(vector)
    names = tuple(field.name for field in table.schema().fields)
    assert_same_rows(table.scan(selected_fields=(*names, *LINEAGE_COLUMNS)).to_arrow(), vector.expected("current-lineage"))


@pytest.mark.parametrize(("vector", "tag"), [(vector, tag) for vector in VECTORS for tag in vector.tags], ids=named)
def test_tags_read_as_java_read_them(opened: Opened, vector: VectorTable, tag: str) -> None:
    assert_same_rows(opened(vector).scan().use_ref(tag).to_arrow(), vector.expected(f"tag-{tag}"))


@pytest.mark.parametrize(("vector", "branch"), [(vector, branch) for vector in VECTORS for branch in vector.branches], ids=named)
def test_branches_have_the_rows_that_java_read(opened: Opened, vector: VectorTable, branch: str) -> None:
    # Java shows a branch in the table's newest schema, PyIceberg (and so this side) in that of the branch's snapshot.
    actual, expected = opened(vector).scan().use_ref(branch).to_arrow(), vector.expected(f"branch-{branch}")
    shared = [field.name for field in expected.schema if field.name in actual.schema.names and _same_type(actual, expected, field.name)]
    assert "id" in shared
    assert_same_rows(actual.select(shared), expected.select(shared))


def _same_type(one: pa.Table, other: pa.Table, name: str) -> bool:
    return bool(one.schema.field(name).type == other.schema.field(name).type)


@pytest.mark.parametrize("vector", VECTORS, ids=named)
def test_metadata_that_java_wrote_is_written_again_with_every_field(opened: Opened, vector: VectorTable) -> None:
    table = opened(vector)
    with table.io.new_input(table.metadata_location).open() as stream:
        java = json.loads(stream.read())
    assert _without_defaults(json.loads(table.metadata.model_dump_json())) == _without_defaults(java)


def _without_defaults(value: Any) -> Any:
    """JSON without what may be left out: nulls, and the empty list of identifier fields that PyIceberg writes and Java does not."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if each is not None and (key, each) != ("identifier-field-ids", [])}
        return {key: _without_defaults(each) for key, each in kept.items()}
    return [_without_defaults(each) for each in value] if isinstance(value, list) else value
