"""Files that programs without Iceberg wrote have no field ids, and protection finds their columns as readers do: by their names.

Encrypted, `add_files` takes them as they are. `migrate` gives those of a plain table field ids. The analyst has the table's key, and no
column's.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import StringType

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, KeyIdChangedError
from tablecrypt.maintenance import FindingKind, audit, migrate, reencrypt, share, shred, verify
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet import FileKeys, encrypt, thrift
from tablecrypt.parquet.layout import encrypted_layout, plain_layout
from tablecrypt.parquet.protected.hidden_columns import leaves_of
from tablecrypt.parquet.protected.mapped_ids import with_mapped_ids
from tablecrypt.parquet.protected.protected_layout import ProtectedLayout
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.structs import FileMetaData, Repetition, SchemaElement
from tablecrypt.parquet.thrift import Struct
from tablecrypt.table._pyiceberg.arrow import stored_schema
from tablecrypt.table.protection.policy import policy_of
from tablecrypt.table.table import EncryptedTable
from tests.support.edited_metadata import edited
from tests.support.plaintext import CANARY
from tests.support.protected_tables import (
    COLUMN_KEY,
    PEOPLE_SCHEMA,
    TABLE_KEY,
    Clients,
    counted_columns,
    declare,
    loaded,
    opened_by_table_key,
    persons,
)
from tests.support.tables import encrypted_table, path_of

SECRET: Final = CANARY.encode()


@pytest.fixture
def people(both: Clients, tmp_path: Path) -> EncryptedTable:
    """A table with one file of a program without Iceberg, and one without rows, whose columns are declared after that."""
    table = encrypted_table(both.payroll.create_table("db.people", PEOPLE_SCHEMA, properties={"encryption.key-id": TABLE_KEY}))
    for path in _files_of_other_programs(tmp_path):
        key = StandardKeyMetadata.generate(16, secrets.token_bytes)
        location = f"{table.location()}/data/{path.name}"
        path_of(location).parent.mkdir(parents=True, exist_ok=True)
        length = encrypt(path, path_of(location), FileKeys.of_table_file(key))
        table.add_files([location], key_metadata={location: key.with_file_length(length)})
    declare(table, f"{COLUMN_KEY}: ssn, person.email, phones")

    return loaded(both.payroll)


def _files_of_other_programs(folder: Path) -> Iterator[Path]:
    rows = persons(1, 2, 3)
    named = rows.set_column(1, "ssn", pa.array([f"{CANARY} {number}" for number in (1, 2, 3)]))
    # As Hudi notes it.
    named = named.replace_schema_metadata({"hoodie_min_record_key": f"{CANARY} 1"})
    for name, stored in (("people", named), ("empty", rows.slice(0, 0))):
        path = folder / f"{name}.parquet"
        pq.write_table(stored, path, write_page_index=True, bloom_filter_options={"ssn": True, "id": True})
        yield path


def _rows(table: Any) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: int(row["id"]))


def _exposed(table: EncryptedTable) -> set[str]:
    return {finding.where for finding in audit(table).findings if finding.kind == FindingKind.COLUMN_EXPOSED}


def test_the_analyst_sees_nulls_of_a_file_from_before(both: Clients, people: EncryptedTable) -> None:
    seen, all_rows = _rows(loaded(both.analyst)), _rows(people)

    assert [row["ssn"] for row in all_rows] == [f"{CANARY} {number}" for number in (1, 2, 3)]
    assert seen == [{**row, "ssn": None, "phones": None, "person": {**row["person"], "email": None}} for row in all_rows]


def test_an_audit_says_that_the_file_shows_the_columns(people: EncryptedTable) -> None:
    assert _exposed(people) == {"ssn", "person.email", "phones"}


def test_reencrypt_protects_them(both: Clients, people: EncryptedTable) -> None:
    before = _rows(people)
    with people.update_schema() as update:
        update.rename_column("ssn", "number")
    reencrypt(people)
    shred(people.refresh(), all_but_heads=True, replace_heads=True)
    reencrypt(people.refresh())

    table = loaded(both.payroll)
    assert [{"ssn" if name == "number" else name: value for name, value in row.items()} for row in _rows(table)] == before
    assert [(row["number"], row["person"]["email"], row["phones"]) for row in _rows(loaded(both.analyst))] == [(None, None, None)] * 3
    assert counted_columns(table).isdisjoint({2, 5, 7})
    assert not [stored for stored in opened_by_table_key(table) if SECRET in stored]
    assert _exposed(table) == set()
    assert verify(table).bad == ()
    assert not [name for name in table.properties if name.endswith(".since")]
    for task in table.scan().plan_files():
        stored = ProtectedLayout(source_of(path_of(task.file.file_path).read_bytes()), key_metadata_of(task.file)).stored()
        assert stored.columns == frozenset(table.schema().field_ids)


def test_a_share_does_not_take_the_file_along(people: EncryptedTable, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="hold a protected column in the clear"):
        share(people, COLUMN_KEY, f"file://{tmp_path}/share", row_filter="id > 0")


def test_a_column_that_the_mapping_does_not_name_may_be_any(both: Clients, people: EncryptedTable) -> None:
    with people.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": '[{"field-id": 1, "names": ["id"]}]'})
    table = loaded(both.payroll)

    assert _exposed(table) == {"ssn", "person.email", "phones"}
    with pytest.raises(FormatError, match=r"has no field id, and the table's property schema.name-mapping.default has none for its name"):
        reencrypt(table)


def test_the_analyst_cannot_have_the_mapping_give_a_protected_name_to_another_column(both: Clients, people: EncryptedTable) -> None:
    mapping = people.schema().name_mapping.model_dump_json()
    swapped = mapping.replace('"ssn"', '"kept"').replace('"note"', '"ssn"').replace('"kept"', '"note"')
    said = r"schema.name-mapping.default gives the name 'ssn' of the protected column with field id 2 to column 'note': set it as it was"
    with pytest.raises(ConfigurationError, match=said), loaded(both.analyst).transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": swapped})

    properties = {**people.metadata.properties, "schema.name-mapping.default": swapped}
    with pytest.raises(ConfigurationError, match=said):
        policy_of(people.metadata.model_copy(update={"properties": properties}), {9})


def _of_no_column(names: list[dict[str, Any]]) -> None:
    _mapped(names, "ssn")["names"] = ["moved"]
    names.append({"field-id": 999, "names": ["SSN", "ssn"]})


def _of_a_struct(names: list[dict[str, Any]]) -> None:
    _mapped(names, "ssn")["names"] = ["moved"]
    _mapped(names, "person")["names"].append("ssn")


def _named_twice(names: list[dict[str, Any]]) -> None:
    names.insert(0, {"field-id": 999, "names": ["ssn"]})


def _of_another_struct(names: list[dict[str, Any]]) -> None:
    _mapped(names, "person")["field-id"] = 999


def _within_a_struct(names: list[dict[str, Any]]) -> None:
    _mapped(_mapped(names, "person")["fields"], "email")["field-id"] = 999


def _within_a_list(names: list[dict[str, Any]]) -> None:
    _mapped(_mapped(names, "phones")["fields"], "element")["field-id"] = 999


def _mapped(names: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(each for each in names if each["names"] == [name])


def test_a_name_that_only_the_mapping_knows_belongs_to_the_protected_column(both: Clients, people: EncryptedTable) -> None:
    names = json.loads(people.schema().name_mapping.model_dump_json())
    _mapped(names, "ssn")["names"].append("tax")
    with people.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": json.dumps(names)})
    loaded(both.payroll).append(persons(4))

    analyst = loaded(both.analyst)
    with (
        pytest.raises(KeyIdChangedError, match="field id 2 has or had the name 'tax', and column 'tax'"),
        analyst.update_schema() as update,
    ):
        update.add_column("tax", StringType())
    names[-1]["names"], names[1]["names"] = [], ["note", "ssn", "tax"]
    with pytest.raises(ConfigurationError, match="takes the name of the protected column"), analyst.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": json.dumps(names)})


@pytest.mark.parametrize("forge", [_of_no_column, _of_a_struct, _named_twice, _of_another_struct, _within_a_struct, _within_a_list])
def test_no_mapping_has_a_protected_name_lead_to_what_is_no_column(
    both: Clients, people: EncryptedTable, forge: Callable[[list[dict[str, Any]]], None]
) -> None:
    names = json.loads(people.schema().name_mapping.model_dump_json())
    forge(names)
    forged = {"schema.name-mapping.default": json.dumps(names)}
    said = r"schema.name-mapping.default gives the name '.*' of the protected column with field id (2|5|7) to (column|field id) "
    with pytest.raises(ConfigurationError, match=said), loaded(both.analyst).transaction() as transaction:
        transaction.set_properties(forged)

    # As somebody wrote it who may write storage: no null in place of a value, and none of the columns on its way into another file.
    both.payroll.forget_pin(people.name())
    opened = edited(people, lambda metadata: metadata["properties"].update(forged))
    for use in (_rows, reencrypt, lambda table: table.append(persons(9))):
        with pytest.raises(ConfigurationError, match=said):
            use(opened)


def test_migrate_gives_the_file_field_ids_that_no_mapping_changes(both: Clients, tmp_path: Path) -> None:
    plain = both.payroll.create_table("db.plain", PEOPLE_SCHEMA)
    tagged = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), ["a", "b"])
    for number, path in enumerate(_files_of_other_programs(tmp_path)):
        if number == 0:
            pq.write_table(pq.read_table(path).set_column(5, "note", tagged), path)
        plain.add_files([path.as_uri()])
    before = _rows(plain)
    migrate(plain, TABLE_KEY, into="db.people")
    declare(loaded(both.payroll), f"{COLUMN_KEY}: ssn, person.email, phones")

    analyst = loaded(both.analyst)
    mapping = analyst.metadata.properties["schema.name-mapping.default"]
    for forged in (mapping.replace('"salary"', '"kept"').replace('"note"', '"salary"').replace('"kept"', '"note"'), "[]"):
        with analyst.transaction() as transaction:
            transaction.set_properties({"schema.name-mapping.default": forged})
        assert _rows(loaded(both.payroll)) == before
    with analyst.transaction() as transaction:
        transaction.remove_properties("schema.name-mapping.default")
    assert _rows(loaded(both.payroll)) == before
    for task in loaded(both.payroll).scan().plan_files():
        layout = encrypted_layout(
            source_of(path_of(task.file.file_path).read_bytes(), "file"), FileKeys.of_table_file(key_metadata_of(task.file))
        )
        assert {
            each for leaf in leaves_of(layout.metadata.structs(FileMetaData.SCHEMA)) for each in leaf.field_ids
        } == plain.schema().field_ids


def test_a_mapping_keeps_names_of_columns_that_were_dropped(both: Clients, people: EncryptedTable) -> None:
    mapping = people.schema().name_mapping.model_dump_json()
    with people.update_schema() as update:
        update.delete_column("phones").delete_column("note")
    with people.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": mapping})

    table = loaded(both.payroll)
    assert [(row["ssn"], row["person"]["email"]) for row in _rows(table)] == [
        (f"{CANARY} {number}", persons(number).to_pylist()[0]["person"]["email"]) for number in (1, 2, 3)
    ]
    reencrypt(table)


NESTED: Final = {
    "a": pa.int64(),
    "s": pa.struct([("b", pa.string()), ("t", pa.struct([("c", pa.int32())]))]),
    "l": pa.list_(pa.struct([("d", pa.int64()), ("e", pa.list_(pa.string()))])),
    "single": pa.list_(pa.struct([("g", pa.int64())])),
    "m": pa.map_(pa.string(), pa.struct([("f", pa.int64())])),
    "one": pa.struct([("element", pa.int64())]),
    "lists": pa.list_(pa.list_(pa.map_(pa.int64(), pa.list_(pa.int32())))),
}


def _compliant(rows: pa.Table) -> bytes:
    return _written(rows, use_compliant_nested_type=True)


def _named_item(rows: pa.Table) -> bytes:
    return _written(rows, use_compliant_nested_type=False)


def _without_repeated_groups(rows: pa.Table, element: bytes = b"array") -> bytes:
    """As older writers stored lists: their elements are the repeated nodes, by this name."""
    layout = plain_layout(source_of(_written(rows), "file"))
    kept: list[Struct] = []
    for node in layout.metadata.structs(FileMetaData.SCHEMA):
        if kept and kept[-1].optional_binary(SchemaElement.NAME) == b"list":
            kept.pop()
            node.set(SchemaElement.NAME, thrift.BINARY, element)
            node.set(SchemaElement.REPETITION_TYPE, thrift.I32, Repetition.REPEATED)
        kept.append(node)
    layout.metadata.set(FileMetaData.SCHEMA, thrift.LIST, kept)
    footer = layout.metadata.encode()
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _written(rows: pa.Table, **options: Any) -> bytes:
    stored = pa.BufferOutputStream()
    pq.write_table(rows, stored, store_schema=False, **options)
    return bytes(stored.getvalue())


@pytest.mark.parametrize(
    "write", [_compliant, _named_item, _without_repeated_groups, partial(_without_repeated_groups, element=b"single_tuple")]
)
def test_columns_have_the_field_ids_that_readers_find(both: Clients, write: Callable[[pa.Table], bytes]) -> None:
    rows = pa.table({name: pa.array([], kind) for name, kind in NESTED.items()})
    mapping = (
        encrypted_table(both.payroll.create_table("db.nested", rows.schema, properties={"encryption.key-id": TABLE_KEY}))
        .schema()
        .name_mapping
    )
    content = write(rows)

    elements = plain_layout(source_of(content, "file")).metadata.structs(FileMetaData.SCHEMA)
    found = leaves_of(with_mapped_ids(elements, mapping.root))
    assert not any(leaf.field_ids for leaf in leaves_of(elements))

    arrow = pq.read_schema(pa.BufferReader(content)).remove_metadata()
    expected = stored_schema(arrow.serialize().to_pybytes(), mapping.model_dump_json(), "loc")
    assert {each for leaf in found for each in leaf.field_ids} == expected.field_ids
    for leaf in found:
        name = expected.find_column_name(leaf.field_ids[-1])
        assert name is not None
        assert name.split(".")[0] == leaf.path[0]
        assert len(leaf.field_ids) == len(name.split("."))
