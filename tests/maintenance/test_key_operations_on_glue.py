"""The operations that change keys on Glue (moto's), whose entries pin the metadata that an operation writes."""

from __future__ import annotations

import uuid

import pytest
from pyiceberg.table import Table

from tablecrypt.maintenance import prune_keys, relocate, rescue, rewrap, rotate_kek, shred
from tablecrypt.table.canonical_metadata import metadata_hash
from tests.support.aws import AwsServer
from tests.support.glue import encrypted_glue_catalog
from tests.support.tables import keks, rows, state, table_with_history

pytestmark = pytest.mark.slow


@pytest.fixture
def table(aws: AwsServer) -> Table:
    bucket = aws.bucket(f"glue-{uuid.uuid4().hex[:12]}")
    catalog = encrypted_glue_catalog(aws, bucket)
    database = f"db{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(database)
    return table_with_history(catalog, f"{database}.t")


def test_each_operation_leaves_a_table_that_its_entry_pins(table: Table) -> None:
    before, (old,) = state(table), keks(table)
    for operation in (rotate_kek, rewrap, prune_keys, rescue):
        operation(table)
        assert_is_pinned(table)
        assert state(table) == before
    assert old not in keks(table)

    place = f"{table.location().rpartition('/')[0]}/copy"
    relocate(table, place, register_as=f"{table.name()[0]}.copy")
    copy = table.catalog.load_table(f"{table.name()[0]}.copy")
    assert_is_pinned(copy)
    assert state(copy) == before

    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    result = shred(table, [each for each in before if each not in heads])
    assert not (result.left or result.refused or result.still_opened)
    assert_is_pinned(table)
    assert state(table) == {each: found for each, found in before.items() if each in heads}
    table.append(rows(900))
    assert state(copy) == before


def assert_is_pinned(table: Table) -> None:
    database, name = table.name()
    entry = table.catalog.glue.get_table(DatabaseName=database, Name=name)["Table"]  # type: ignore[attr-defined]
    with table.io.new_input(table.metadata_location).open() as stream:
        assert entry["Parameters"]["metadata_hash"] == metadata_hash(stream.read())
    assert entry["Parameters"]["encryption.key-id"] == table.properties["encryption.key-id"]
