"""What Trino cannot read of encrypted tables fails loudly, and so does what was forged in storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import FixedType, NestedField

from tablecrypt.errors import TablecryptError
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.plaintext_scan import unwatch
from tests.support.table_changes import rows
from tests.support.tables import MERGE_ON_READ, TEAM_SCHEMA, current_snapshot, data_files, new_table
from tests.support.trino import BUCKET, Trino, TrinoError, new_name
from tests.support.uniform_files import downgraded
from tests.support.vectors import JAVA, VectorTable, load

pytestmark = pytest.mark.trino

NOT_PARQUET: Final = "Reading encrypted non-Parquet file is not supported"
READ_BY_TRINO: Final = ("all_types", "evolved", "equality_deletes", "partitioned", "upgraded")
"""Of the tables that Java wrote."""
WITH_OTHER_FILES: Final = ("avro_data", "key_length_24", "key_length_32", "position_deletes")


def registered(judge: Trino, vector: VectorTable) -> str:
    name = new_name()
    judge.catalog.register_table(name, vector.metadata_location)
    return name


@pytest.mark.usefixtures("java_storage")
@pytest.mark.parametrize("name", READ_BY_TRINO)
def test_trino_reads_what_java_wrote_with_equality_deletes_partitions_and_upgrades(judge: Trino, name: str) -> None:
    vector = load(JAVA)[name]

    expected = vector.expected()

    assert_same_rows(judge.rows(f"SELECT * FROM {registered(judge, vector)}", expected.schema), expected)


@pytest.mark.usefixtures("java_storage")
@pytest.mark.parametrize("name", WITH_OTHER_FILES)
def test_trino_gives_no_row_of_a_table_with_deletion_vectors_or_avro_files(judge: Trino, name: str) -> None:
    table = registered(judge, load(JAVA)[name])

    for selected in ("*", "count(*)"):
        with pytest.raises(TrinoError, match=NOT_PARQUET):
            judge.values(f"SELECT {selected} FROM {table}")


@pytest.mark.parametrize("selected", ["*", "id", "count(*)"])
def test_trino_gives_no_row_of_a_table_with_deletion_vectors_of_ours(judge: Trino, selected: str) -> None:
    table = new_table(judge.catalog, new_name(), TEAM_SCHEMA, appends=[rows(0, 5)], properties=MERGE_ON_READ)
    table.delete("id = 3")

    with pytest.raises(TrinoError, match=NOT_PARQUET):
        judge.values(f"SELECT {selected} FROM {named(table)}")


def test_trino_shows_rows_but_no_bounds_of_a_table_with_fixed_bytes(judge: Trino) -> None:
    schema = Schema(NestedField(1, "four", FixedType(4)))
    table = new_table(judge.catalog, new_name(), schema, appends=[pa.table({"four": pa.array([b"\x00\x01\x02\x03"], pa.binary(4))})])

    assert judge.values(f"SELECT four FROM {named(table)}") == [[b"\x00\x01\x02\x03"]]
    with pytest.raises(TrinoError, match=r"Unsupported iceberg type: fixed\[4\]"):
        judge.values(f'SELECT lower_bounds FROM db."{table.name()[1]}$files"')


def a_flipped_bit(aws: AwsServer, table: Table) -> None:
    (first, *_) = locations(table)
    data = content(aws, first)
    put(aws, first, data[:120] + bytes([data[120] ^ 1]) + data[121:])


def exchanged_data_files(aws: AwsServer, table: Table) -> None:
    exchange(aws, *locations(table))


def a_plaintext_file(aws: AwsServer, table: Table) -> None:
    (first, *_) = locations(table)
    sink = pa.BufferOutputStream()
    pq.write_table(rows(0, 5), sink)
    put(aws, first, sink.getvalue().to_pybytes())


def a_renamed_cipher(aws: AwsServer, table: Table) -> None:
    (first, *_) = locations(table)
    put(aws, first, downgraded(content(aws, first)))


def exchanged_manifests(aws: AwsServer, table: Table) -> None:
    exchange(aws, *(manifest.manifest_path for manifest in current_snapshot(table).manifests(table.io)))


def a_flipped_bit_in_the_manifest_list(aws: AwsServer, table: Table) -> None:
    location = current_snapshot(table).manifest_list
    data = content(aws, location)
    put(aws, location, data[:40] + bytes([data[40] ^ 1]) + data[41:])


@pytest.mark.parametrize(
    ("forgery", "said"),
    [
        (a_flipped_bit, "Tag mismatch"),
        (exchanged_data_files, "Tag mismatch"),
        (a_plaintext_file, "Applying decryptor on plaintext file"),
        # It decrypts what nothing authenticates then, and its decompressor stumbles over it.
        (a_renamed_cipher, "Unknown frame descriptor"),
        (exchanged_manifests, "Error processing metadata"),
        (a_flipped_bit_in_the_manifest_list, "Error processing metadata"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_trino_and_tablecrypt_give_no_row_of_a_forged_table(
    judge: Trino, aws: AwsServer, forgery: Callable[[AwsServer, Table], None], said: str
) -> None:
    table = new_table(judge.catalog, new_name(), TEAM_SCHEMA, appends=[rows(0, 5), rows(100, 5)])
    unwatch(table.location())

    forgery(aws, table)

    with pytest.raises(TrinoError) as refused:
        judge.values(f"SELECT * FROM {named(table)}")
    assert said in str(refused.value)
    with pytest.raises(TablecryptError):
        judge.catalog.load_table(table.name()).scan().to_arrow()


def named(table: EncryptedTable) -> str:
    return ".".join(table.name())


def locations(table: Table) -> list[str]:
    return [file.file_path for file in data_files(table)]


def exchange(aws: AwsServer, one: str, other: str) -> None:
    contents = content(aws, one), content(aws, other)
    put(aws, one, contents[1])
    put(aws, other, contents[0])


def content(aws: AwsServer, location: str) -> bytes:
    return aws.s3.get_object(Bucket=BUCKET, Key=key(location))["Body"].read()


def put(aws: AwsServer, location: str, data: bytes) -> None:
    aws.s3.put_object(Bucket=BUCKET, Key=key(location), Body=data)


def key(location: str) -> str:
    return location.removeprefix(f"s3://{BUCKET}/")
