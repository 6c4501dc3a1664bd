"""Columns of categories, as pandas and Arrow have them, are written and read as the values that they stand for.

Arrow notes in a file that its writer had dictionaries, gives them again, and writes every value of them, whether a row has it or not.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table, TableProperties

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import erase, migrate, reencrypt, verify
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet import FileKeys, encrypt, read_table, write_table
from tablecrypt.parquet.chunk_modules import decrypt_chunk
from tablecrypt.parquet.layout import encrypted_layout
from tablecrypt.parquet.storage import source_of
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction
from tablecrypt.table.write import write_data_files
from tests.support.compare import assert_same_rows
from tests.support.handwritten_manifests import named_otherwise
from tests.support.protected_tables import COLUMN_KEY, Clients, declare, loaded, persons, protected_table
from tests.support.tables import MASTER_KEY, data_files, data_paths, encrypted_table, memory_catalog, metadata_of, new_table, path_of

COMPRESSION: Final = "write.parquet.compression-codec"
LINEAGE: Final = ("_row_id", "_last_updated_sequence_number")
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


def append_as_given(table: EncryptedTable, rows: pa.Table) -> None:
    """Append rows as earlier releases did, which wrote dictionaries as they were given."""
    mapping = table.schema().name_mapping.model_dump_json()
    table.transaction().set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping}).commit_transaction()
    without_keys = metadata_of(table).model_copy(update={"properties": {}, "encryption_keys": []})
    [file] = write_data_files(without_keys, rows, table.io, table.io.manager)
    key, plain = key_metadata_of(file), io.BytesIO()
    pq.write_table(rows, plain, compression="none")
    length = encrypt(plain, path_of(file.file_path), FileKeys.of_table_file(key))

    with table.transaction() as transaction:
        entry = named_otherwise(file, file_size_in_bytes=length, key_metadata=key.with_file_length(length).encode())
        cast("EncryptedTransaction", transaction).append_producer(CommitOptions()).commit_files([entry])


@pytest.fixture
def older(tmp_path: Path) -> EncryptedTable:
    """A table with a file whose dictionaries have values that no row of it has."""
    table = new_table(memory_catalog(tmp_path), schema=SCHEMA, properties={COMPRESSION: "uncompressed"})
    append_as_given(table, categories(PLAIN))
    return table


def test_dictionaries_of_other_writers_are_read_as_their_values(older: EncryptedTable) -> None:
    [stored] = stored_tables(older)
    assert pa.types.is_dictionary(stored.schema.field("city").type)

    older.append(PLAIN)

    assert_same_rows(older.scan().to_arrow(), pa.concat_tables([PLAIN, PLAIN]))
    assert_same_rows(older.scan("city = 'Oslo'").to_arrow(), pa.concat_tables([PLAIN.slice(0, 1)] * 2))
    assert_same_rows(older.scan().to_arrow_batch_reader().read_all(), pa.concat_tables([PLAIN, PLAIN]))
    as_asked = older.scan(selected_fields=("city", "code")).to_arrow(dictionary_columns=("city",))
    assert pa.types.is_dictionary(as_asked.schema.field("city").type)
    assert not pa.types.is_dictionary(as_asked.schema.field("code").type)


@pytest.mark.parametrize("take", [lambda table: table.delete("id = 1"), lambda table: erase(table, "id = 1")], ids=["delete", "erase"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_row_that_is_taken_leaves_no_value_in_a_dictionary(older: EncryptedTable, take: Callable[[Any], Any], mode: str) -> None:
    older.transaction().set_properties({"write.delete.mode": mode}).commit_transaction()
    taken = take(older)
    if mode == "merge-on-read" and taken is None:
        erase(older, "id = 1")

    [stored] = stored_tables(encrypted_table(older.refresh()))

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


def test_a_file_that_is_no_tables_keeps_the_dictionaries_of_its_writer(tmp_path: Path, older: EncryptedTable) -> None:
    [stored] = stored_tables(older)
    pq.write_table(categories(PLAIN), tmp_path / "plain.parquet")
    plain = pq.read_schema(tmp_path / "plain.parquet")
    assert all(stored.schema.field(name).type == plain.field(name).type for name in ("city", "code", "home", "tags"))
    assert pa.types.is_dictionary(plain.field("city").type)


def unused_in(table: EncryptedTable) -> list[str]:
    """The columns of its files in whose pages the value is that no row has."""
    found = []
    for file in data_files(table):
        layout = encrypted_layout(source_of(path_of(file.file_path)), FileKeys.of_table_file(key_metadata_of(file)))
        found += [chunk.path[0] for chunk in layout.chunks() if b"unused" in bytes(decrypt_chunk(chunk))]
    return found


def plain_table(tmp_path: Path, **properties: str) -> Table:
    """A table by PyIceberg, which writes dictionaries as they are."""
    table = memory_catalog(tmp_path).create_table("db.t", SCHEMA, properties={COMPRESSION: "uncompressed", **properties})
    table.append(categories(PLAIN))
    table.append(PLAIN)
    return table


@pytest.mark.parametrize("into", [None, "db.other"])
def test_a_migration_takes_no_value_along_that_no_row_has(tmp_path: Path, into: str | None) -> None:
    plain = plain_table(tmp_path)

    migrate(plain, MASTER_KEY, into=into)

    migrated = encrypted_table(plain.catalog.load_table(into or "db.t"))
    assert_same_rows(migrated.scan().to_arrow(), pa.concat_tables([PLAIN, PLAIN]))
    assert unused_in(migrated) == []
    assert verify(migrated).is_good
    assert [file.record_count for file in data_files(migrated)] == [3, 3]


def test_files_that_get_new_keys_keep_no_value_that_no_row_has(older: EncryptedTable) -> None:
    older.append(PLAIN)
    rows = older.scan(selected_fields=("*", *LINEAGE)).to_arrow()
    assert unused_in(older) == ["city", "code", "home", "tags", "pair"]

    reencrypt(older)

    again = encrypted_table(older.refresh())
    assert unused_in(again) == []
    assert_same_rows(again.scan(selected_fields=("*", *LINEAGE)).to_arrow(), rows)
    assert verify(again).is_good


def test_an_erasure_ends_values_that_no_row_has(older: EncryptedTable) -> None:
    """Whichever columns its filter compares: of which row such a value is nobody knows."""
    older.append(PLAIN)
    before = data_paths(older)

    erased = erase(older, "id = 77", dry_run=True)
    assert list(erased.remaining.values()) == [
        "dictionaries of its writer with values that none of its rows has: run the same erasure again"
    ]
    erased = erase(older, "id = 77")

    assert erased.is_complete and not erased.remaining
    after = encrypted_table(older.refresh())
    assert unused_in(after) == []
    assert len(set(data_paths(after)) & set(before)) == 1
    assert_same_rows(after.scan().to_arrow(), pa.concat_tables([PLAIN, PLAIN]))


def test_an_erasure_leaves_files_alone_whose_rows_have_every_value(tmp_path: Path) -> None:
    table = new_table(memory_catalog(tmp_path), schema=SCHEMA)
    coded = PLAIN.set_column(1, "city", PLAIN["city"].combine_chunks().dictionary_encode())
    append_as_given(table, coded)
    append_as_given(table, pa.concat_tables([coded] * 2))

    assert erase(table, "id = 77").found_nothing


@pytest.mark.parametrize("reads", [True, False])
def test_an_erasure_in_a_protected_table_ends_such_files_or_names_them(both: Clients, reads: bool) -> None:
    table = protected_table(both.payroll, **{"encryption.column-keys": ""})
    rows = persons(2, 3)
    append_as_given(table, rows.set_column(5, "note", rows["note"].combine_chunks().dictionary_encode()))
    declare(table, f"{COLUMN_KEY}: ssn")

    caller = loaded(both.payroll if reads else both.analyst)
    before = data_paths(caller)
    erased = erase(caller, "id = 77")

    assert erased.is_complete is reads
    assert (data_paths(loaded(both.payroll)) != before) is reads
    assert len(erased.not_searched) == (0 if reads else 1)
    assert all("by whoever may read all of its columns" in why for why in erased.not_searched.values())
    if not reads:
        assert erase(loaded(both.payroll), "id = 77").is_complete
        assert erase(loaded(both.analyst), "id = 77").is_complete


@pytest.mark.parametrize("is_unused", [True, False])
def test_add_files_takes_categories_without_values_that_no_row_has(tmp_path: Path, is_unused: bool) -> None:
    table = new_table(memory_catalog(tmp_path), schema=SCHEMA)
    keys, location = table.io.manager.new_key_metadata(), f"{table.location()}/data/added.parquet"
    coded = PLAIN["city"].combine_chunks().dictionary_encode()
    rows = PLAIN.set_column(1, "city", coded).slice(0, 1 if is_unused else 3)
    path_of(location).parent.mkdir(parents=True, exist_ok=True)
    write_table(rows, path_of(location), FileKeys.of_table_file(keys))

    if is_unused:
        with pytest.raises(ConfigurationError, match=r"added\.parquet: its columns are dictionaries .*remove_unused_categories"):
            table.add_files([location], key_metadata={location: keys})
        assert table.refresh().scan().count() == 0
        return
    table.add_files([location], key_metadata={location: keys})
    assert_same_rows(table.refresh().scan().to_arrow(), PLAIN)
