"""Columns of categories, as pandas and Arrow have them, are written and read as the values that they stand for.

Arrow notes in a file that its writer had dictionaries, gives them again, and writes every value of them, whether a row has it or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tablecrypt.maintenance import erase, migrate
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet import FileKeys, read_table
from tablecrypt.table.table import EncryptedTable
from tests.support.compare import assert_same_rows
from tests.support.protected_tables import Clients, loaded, persons, protected_table
from tests.support.tables import MASTER_KEY, data_files, encrypted_table, memory_catalog, new_table, path_of

SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("code", pa.binary()),
        ("level", pa.int32()),
        ("home", pa.struct([("street", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("pair", pa.list_(pa.string())),
    ]
)
PLAIN: Final = pa.table(
    {
        "id": [1, 2, 3],
        "city": ["Oslo", None, "Bergen"],
        "code": [b"o", b"b", None],
        "level": [7, None, 7],
        "home": [{"street": "Storgata"}, None, {"street": None}],
        "tags": [["a", "b"], [], None],
        "pair": [["a", "b"], ["c", "d"], ["e", "f"]],
    },
    schema=SCHEMA,
)
Write = Callable[[EncryptedTable, pa.Table], object]
WRITES: Final[dict[str, Write]] = {
    "append": lambda table, rows: table.append(rows),
    "append of a stream": lambda table, rows: table.append(rows.to_reader()),
    "overwrite": lambda table, rows: table.overwrite(rows),
    "overwrite of partitions": lambda table, rows: table.dynamic_partition_overwrite(rows),
    "upsert": lambda table, rows: table.upsert(rows, ["id"]),
}


def categories(rows: pa.Table) -> pa.Table:
    """The rows with dictionaries wherever values may be some, and a value in each that no row has."""

    def coded(values: pa.Array) -> pa.Array:
        # Arrow keeps what a filter leaves no row of.
        kept = pa.array([True] * len(values) + [False])
        unused = pa.array([b"unused" if values.type == pa.binary() else "unused"], values.type)
        return pa.concat_arrays([values, unused]).dictionary_encode().filter(kept)

    home, tags = rows["home"].combine_chunks(), rows["tags"].combine_chunks()
    made = {
        "id": rows["id"],
        "city": coded(rows["city"].combine_chunks()),
        "code": coded(rows["code"].combine_chunks()),
        "level": rows["level"].combine_chunks().dictionary_encode(),
        "home": pa.StructArray.from_arrays([coded(home.field("street"))], ["street"], mask=home.is_null()),
        "tags": pa.ListArray.from_arrays(tags.offsets, coded(tags.values), mask=tags.is_null()),
        "pair": pa.FixedSizeListArray.from_arrays(coded(rows["pair"].combine_chunks().flatten()), 2),
    }
    return pa.table(made)


def stored_tables(table: EncryptedTable) -> Iterator[pa.Table]:
    """Each data file as Arrow reads it, with the dictionaries that its writer had."""
    for file in data_files(table):
        yield read_table(path_of(file.file_path), FileKeys.of_table_file(key_metadata_of(file)))


@pytest.mark.parametrize(
    ("write", "partitioned"),
    [(write, partitioned) for write in WRITES for partitioned in (False, True) if partitioned or write != "overwrite of partitions"],
)
def test_categories_are_written_as_their_values(tmp_path: Path, write: str, partitioned: bool) -> None:
    table = new_table(memory_catalog(tmp_path), schema=SCHEMA)
    if partitioned:
        with table.update_spec() as spec:
            spec.add_identity("level")
    table.append(PLAIN.slice(0, 1))

    WRITES[write](table, categories(PLAIN))
    table.append(PLAIN.slice(2).set_column(0, "id", pa.array([4])))

    found = table.scan().to_arrow().sort_by("id")
    expected = [*PLAIN.to_pylist(), {**PLAIN.to_pylist()[2], "id": 4}]
    if write.startswith("append"):
        expected.insert(0, expected[0])
    assert found.to_pylist() == expected
    assert table.scan("city = 'Oslo'").to_arrow()["city"].to_pylist() == ["Oslo"] * (2 if write.startswith("append") else 1)
    assert not any("dictionary" in str(kind) for stored in stored_tables(table) for kind in stored.schema.types)


@pytest.fixture
def migrated(tmp_path: Path) -> EncryptedTable:
    """A file by PyIceberg, which writes dictionaries as they are."""
    catalog = memory_catalog(tmp_path)
    plain = catalog.create_table("db.t", SCHEMA)
    plain.append(categories(PLAIN))
    migrate(plain, MASTER_KEY)
    return encrypted_table(catalog.load_table("db.t"))


def test_dictionaries_of_other_writers_are_read_as_their_values(migrated: EncryptedTable) -> None:
    [stored] = stored_tables(migrated)
    assert pa.types.is_dictionary(stored.schema.field("city").type)

    migrated.append(PLAIN)

    assert_same_rows(migrated.scan().to_arrow(), pa.concat_tables([PLAIN, PLAIN]))
    assert_same_rows(migrated.scan("city = 'Oslo'").to_arrow(), pa.concat_tables([PLAIN.slice(0, 1)] * 2))
    assert_same_rows(migrated.scan().to_arrow_batch_reader().read_all(), pa.concat_tables([PLAIN, PLAIN]))
    as_asked = migrated.scan(selected_fields=("city", "code")).to_arrow(dictionary_columns=("city",))
    assert pa.types.is_dictionary(as_asked.schema.field("city").type)
    assert not pa.types.is_dictionary(as_asked.schema.field("code").type)


@pytest.mark.parametrize("take", [lambda table: table.delete("id = 1"), lambda table: erase(table, "id = 1")], ids=["delete", "erase"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_row_that_is_taken_leaves_no_value_in_a_dictionary(migrated: EncryptedTable, take: Callable[[Any], Any], mode: str) -> None:
    migrated.transaction().set_properties({"write.delete.mode": mode}).commit_transaction()
    taken = take(migrated)
    if mode == "merge-on-read" and taken is None:
        erase(migrated, "id = 1")

    [stored] = stored_tables(encrypted_table(migrated.refresh()))

    assert stored.num_rows == 2
    assert not any("dictionary" in str(kind) for kind in stored.schema.types)
    assert_same_rows(stored.select(SCHEMA.names), PLAIN.slice(1))


@pytest.mark.parametrize("mask", ["null", "error", "constant(z)", "redact", "hash", "truncate(2)"])
def test_categories_of_a_protected_column_are_masked_as_their_values(both: Clients, mask: str) -> None:
    rows, options = persons(1, 2, 3), {"encryption.column-mask.ssn": mask}
    coded = rows.set_column(1, "ssn", rows["ssn"].combine_chunks().dictionary_encode())

    table = protected_table(both.payroll, appends=[rows, coded], **options)

    assert_same_rows(table.scan().to_arrow(), pa.concat_tables([rows, rows]))
    if mask != "error":
        seen = loaded(both.analyst).scan(masked="mask").to_arrow()
        assert_same_rows(seen.slice(0, 3), seen.slice(3))
        assert seen["ssn"].to_pylist() != [*rows["ssn"].to_pylist()] * 2


def test_a_file_that_is_no_tables_keeps_the_dictionaries_of_its_writer(tmp_path: Path, migrated: EncryptedTable) -> None:
    [stored] = stored_tables(migrated)
    pq.write_table(categories(PLAIN), tmp_path / "plain.parquet")
    plain = pq.read_schema(tmp_path / "plain.parquet")
    assert all(stored.schema.field(name).type == plain.field(name).type for name in ("city", "code", "home", "tags"))
    assert pa.types.is_dictionary(plain.field("city").type)
