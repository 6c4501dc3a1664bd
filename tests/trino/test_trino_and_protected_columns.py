"""Trino reads every column but the protected ones of a table that has some, and masks where files store them.

It answers each query of the page's table of statements as Iceberg Java does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, PrimitiveType, StringType, StructType

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.maintenance import compact, reencrypt, rewrap, rotate_column_keks, rotate_kek
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet.columns_apart import with_columns_apart
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.hidden_column_files import ProtectedFile
from tests.support.java_access import DATA, MASKS, NAMED, ON_MASKS, PART, QUERIES, RIGHT, SMALL
from tests.support.java_access import TYPES as ACCESS_TYPES
from tests.support.plaintext_scan import unwatch
from tests.support.table_changes import rows
from tests.support.tables import TEAM_SCHEMA, data_files, new_table
from tests.support.trino import Trino, TrinoError, new_name
from tests.trino.test_trino_reads import ALL_TYPES, all_types
from tests.trino.test_trino_refuses import content, put

pytestmark = pytest.mark.trino

NO_DICTIONARY: Final = re.compile(r"Dictionary is missing for .*descriptor=\[(\w+)")
SPELLED_OTHERWISE: Final = {
    "FROM t a JOIN small b": f"FROM t a JOIN (VALUES {', '.join(map(str, SMALL.items()))}) AS b (id, v)",
    "VERSION AS OF $first": "FOR VERSION AS OF $first",
}
NOT_IN_TRINO: Final = ("_row_id", ".files")
"""It has no _pos, and shows the metrics of files otherwise: each has a test of its own."""
ASKED: Final = [query for query in QUERIES if not any(word in query for word in NOT_IN_TRINO)]


@pytest.fixture(scope="module")
def table(judge: Trino, aws: AwsServer) -> EncryptedTable:
    """As the page has it: two files, `ssn` without masks and `email` with redacted text."""
    appends = [pa.Table.from_pylist(half, schema=ACCESS_TYPES) for half in (DATA[:200], DATA[200:])]
    properties = {
        "encryption.column-keys": f"{aws.kms_key_id('alias/people')}: ssn, email",
        "encryption.column-mask.email": "redact",
    }
    return new_table(judge.catalog, new_name(), ACCESS_TYPES, appends=appends, properties=properties)


@pytest.fixture(scope="module")
def of_java() -> dict[str, str]:
    """What the page says of each statement."""
    return dict(re.findall(r"^\| `(.*)` \| (.*) \|$", PART.read(), re.MULTILINE))


@pytest.mark.parametrize("query", ASKED)
def test_trino_answers_each_query_as_iceberg_java_does(judge: Trino, table: EncryptedTable, of_java: dict[str, str], query: str) -> None:
    asked = query
    for words, others in SPELLED_OTHERWISE.items():
        asked = asked.replace(words, others)
    asked = re.sub(r"\bt\b", named(table), asked).replace("$first", str(table.snapshots()[0].snapshot_id))

    assert outcome(judge, asked, QUERIES[query]) == of_java[query]


def outcome(judge: Trino, query: str, expected: list[tuple[Any, ...]]) -> str:
    try:
        found = [tuple(row) for row in judge.values(query)]
    except TrinoError as error:
        without = NO_DICTIONARY.search(str(error))
        return NAMED if without and without[1] in ("ssn", "email") else str(error)
    assert not [row for row in found if "@example.org" in str(row) or "SSN-" in str(row)], "Trino sees values"
    if sorted(map(repr, found)) == sorted(map(repr, expected)):
        return ON_MASKS if "WHERE email" in query else RIGHT
    return MASKS if len(found) == len(expected) and all("@xxxxxxx.xxx" in str(row) for row in found) else f"wrong: {found[:3]}"


def test_trino_sees_row_ids_and_no_metrics_of_protected_columns(judge: Trino, table: EncryptedTable) -> None:
    namespace, name = table.name()
    ids = judge.values(f'SELECT count(*), count(DISTINCT "$row_id"), max("$row_id") FROM {named(table)}')
    bounds = judge.values(f'SELECT lower_bounds."4", upper_bounds."4", lower_bounds."5", upper_bounds."5" FROM {namespace}."{name}$files"')
    counts = judge.values(f'SELECT value_counts, null_value_counts, column_sizes FROM {namespace}."{name}$files"')

    assert [table.schema().find_field(column).field_id for column in ("ssn", "email")] == [4, 5]
    assert ids == [[400, 400, 399]]
    assert bounds == [[None] * 4] * 2
    assert [set(each) for file in counts for each in file] == [{1, 2, 3, 6}] * 6


@pytest.mark.parametrize("length", ["16", "24", "32"])
@pytest.mark.parametrize(
    "change",
    [reencrypt, compact, rotate_kek, rewrap, rotate_column_keks],
    ids=lambda change: change.__name__,
)
def test_trino_reads_the_other_columns_after_each_change(
    judge: Trino, aws: AwsServer, change: Callable[[EncryptedTable], object], length: str
) -> None:
    table = protected_table(judge, aws, {"encryption.data-key-length": length})

    change(table)
    table.refresh().append(rows(100, 5))

    assert_others_are_read(judge, table)


def test_trino_reads_what_lies_beside_a_protected_field_of_a_struct(judge: Trino, aws: AwsServer) -> None:
    person = StructType(NestedField(3, "name", StringType()), NestedField(4, "email", StringType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "person", person))
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    people = pa.table({"id": [1, 2], "person": [{"name": "a", "email": "secret"}, None]}, schema=arrow)
    properties = {"encryption.column-keys": f"{aws.kms_key_id('alias/people')}: person.email"}
    table = new_table(judge.catalog, new_name(), schema, appends=[people], properties=properties)

    assert sorted(judge.values(f"SELECT id, person.name FROM {named(table)}")) == [[1, "a"], [2, None]]
    for selected in ("person", "person.email"):
        with pytest.raises(TrinoError, match="Dictionary is missing"):
            judge.values(f"SELECT {selected} FROM {named(table)}")


@pytest.mark.parametrize("required", [False, True], ids=["optional", "required"])
def test_trino_gives_no_answer_about_a_protected_column_of_any_type(judge: Trino, aws: AwsServer, required: bool) -> None:
    """A reader that took an error placeholder for nulls would count them, or find none."""
    kept = ALL_TYPES.fields if not required else [field for field in ALL_TYPES.fields if isinstance(field.field_type, PrimitiveType)]
    fields = [field.model_copy(update={"required": required}) for field in kept]
    schema = Schema(NestedField(100, "number", LongType()), *fields)
    full = all_types().slice(0, 2).append_column("number", pa.array([1, 2]))
    appended = full.select([field.name for field in schema.fields]).cast(schema_to_pyarrow(schema, include_field_ids=False))
    declared = {"encryption.column-keys": f"{aws.kms_key_id('alias/people')}: {', '.join(field.name for field in fields)}"}
    table = new_table(judge.catalog, new_name(), schema, appends=[appended], properties=declared)

    assert sorted(judge.values(f"SELECT number FROM {named(table)}")) == [[1], [2]]
    # It knows from the schema that a required column has no nulls, and reads none of it to say so.
    asked = ["SELECT {}", *([] if required else ["SELECT count({})", "SELECT count(*) FILTER (WHERE {} IS NULL)"])]
    for field in fields:
        for selected in asked:
            with pytest.raises(TrinoError, match="Dictionary is missing"):
                judge.values(f"{selected.format(field.name)} FROM {named(table)}")


def test_trino_reads_a_table_again_whose_deletion_vectors_were_applied(judge: Trino, aws: AwsServer) -> None:
    """The engine write barrier has deletes write deletion vectors, which Trino refuses in every encrypted table."""
    table = protected_table(judge, aws)
    table.delete("id = 3")
    with pytest.raises(TrinoError, match="Reading encrypted non-Parquet file is not supported"):
        judge.values(f"SELECT id FROM {named(table)}")

    compact(table, apply_deletes=True)

    assert_others_are_read(judge, table.refresh())


def test_trino_reads_deletes_where_the_barrier_is_off_and_files_are_written_again(judge: Trino, aws: AwsServer) -> None:
    table = protected_table(judge, aws, {"encryption.column-guard": "false"})

    table.delete("id = 3")

    assert_others_are_read(judge, table.refresh())


def test_trino_reads_files_that_list_hidden_columns_once_they_are_reencrypted(judge: Trino, aws: AwsServer) -> None:
    """As early builds wrote them. Trino opens the metadata of every column that is listed with the footer's key."""
    table = protected_table(judge, aws)
    (file,) = data_files(table)
    unwatch(table.location())
    put(aws, file.file_path, listing_hidden_columns(content(aws, file.file_path), key_metadata_of(file)))
    assert len(table.scan(row_filter="note IS NOT NULL").to_arrow()) == 12, "it is a file that opens with the column's key"
    assert judge.values(f"SELECT count(*) FROM {named(table)}") == [[12]]
    with pytest.raises(TrinoError, match="GCM tag check failed"):
        judge.values(f"SELECT id FROM {named(table)}")

    reencrypt(table)

    assert_others_are_read(judge, table.refresh())


def listing_hidden_columns(stored: bytes, key_metadata: StandardKeyMetadata) -> bytes:
    """The file with a footer that lists its hidden columns, as long as it was: the table knows its length."""
    file = ProtectedFile.of(stored, key_metadata, {})
    return file.with_footer_as_long(with_columns_apart(file.stored_footer()))


def protected_table(judge: Trino, aws: AwsServer, properties: dict[str, str] | None = None) -> EncryptedTable:
    declared = {"encryption.column-keys": f"{aws.kms_key_id('alias/people')}: note", **(properties or {})}
    return new_table(judge.catalog, new_name(), TEAM_SCHEMA, appends=[rows(0, 12)], properties=declared)


def assert_others_are_read(judge: Trino, table: Table) -> None:
    ours = table.scan(selected_fields=("id", "team")).to_arrow()
    assert_same_rows(judge.rows(f"SELECT id, team FROM {named(table)}", ours.schema), ours)
    assert judge.values(f"SELECT count(*) FROM {named(table)} WHERE id >= 0") == [[len(ours)]]
    with pytest.raises(TrinoError, match="Dictionary is missing"):
        judge.values(f"SELECT note FROM {named(table)}")


def named(table: Table) -> str:
    return ".".join(table.name())
