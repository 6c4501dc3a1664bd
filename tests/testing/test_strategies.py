"""What the strategies draw is taken by encrypted tables, and comes back."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import ListType, LongType, MapType, StringType, StructType

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.maintenance import verify
from tablecrypt.testing import strategies
from tablecrypt_catalog import EncryptedInMemoryCatalog
from tests.support.compare import assert_same_rows

pytestmark = pytest.mark.slow

KMS = {"encryption.kms-type": "memory", "kms.memory.name": "strategies"}
Create = Callable[[Schema, PartitionSpec, dict[str, str]], tuple[Table, Table]]


@pytest.fixture(scope="module")
def create(tmp_path_factory: pytest.TempPathFactory) -> Create:
    """Makes an encrypted table and a plain one."""
    MemoryKeyManagementClient({"kms.memory.name": "strategies"}).create_key("master")
    folder = tmp_path_factory.mktemp("strategies")
    encrypted = EncryptedInMemoryCatalog("encrypted", warehouse=f"file://{folder}/encrypted", **KMS)
    plain = InMemoryCatalog("plain", warehouse=f"file://{folder}/plain")
    encrypted.create_namespace("db")
    plain.create_namespace("db")
    numbers = itertools.count()

    def made(schema: Schema, spec: PartitionSpec, properties: dict[str, str]) -> tuple[Table, Table]:
        name = f"db.t{next(numbers)}"
        with_key = {**properties, "encryption.key-id": "master"}
        return (
            encrypted.create_table(name, schema, partition_spec=spec, properties=with_key),
            plain.create_table(name, schema, partition_spec=spec),
        )

    return made


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), schema=strategies.schemas(), properties=strategies.table_properties())
def test_any_rows_of_any_schema_and_layout_come_back_and_are_filtered_as_in_a_plain_table(
    create: Create, data: st.DataObject, schema: Schema, properties: dict[str, str]
) -> None:
    encrypted, plain = create(schema, data.draw(strategies.partition_specs(schema)), properties)
    written = data.draw(st.lists(strategies.rows(schema), min_size=1, max_size=2))
    for each in written:
        encrypted.append(each)
        plain.append(each)
    # Not those that PyIceberg reads from the plain table: it reads a null list of structs as an empty one.
    assert_same_rows(encrypted.scan().to_arrow(), pa.concat_tables(written))
    assert verify(encrypted).bad == ()

    primitive = tuple(field.name for field in schema.fields if field.field_type.is_primitive)
    if primitive:
        wanted = data.draw(strategies.row_filters(schema))
        ours, theirs = (table.scan(wanted, selected_fields=primitive) for table in (encrypted, plain))
        assert_same_rows(ours.to_arrow(), theirs.to_arrow())
        assert ours.count() == theirs.count()


@given(strategies.key_metadata())
def test_key_metadata_is_decoded_as_it_was_encoded(record: StandardKeyMetadata) -> None:
    assert StandardKeyMetadata.decode(record.encode()).encode() == record.encode()


@given(strategies.schemas(types=strategies.iceberg_types([LongType()]), max_columns=3))
def test_schemas_have_the_types_and_columns_that_were_asked_for(schema: Schema) -> None:
    assert 1 <= len(schema.fields) <= 3
    kinds = {type(schema.find_type(each)) for each in schema.field_ids}
    assert kinds <= {LongType, StructType, ListType, MapType, StringType}  # keys of maps are strings
