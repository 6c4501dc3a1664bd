"""Columns that are protected by a tag in their documentation, for one table or a whole catalog.

The careless user adds a tagged column, tags one that has values, gives it two tags, or leaves a tagged column out of a declaration. The
adversary, with an engine that knows no tags, adds a tagged column that would be written in the clear.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.maintenance import migrate, reencrypt
from tablecrypt.table.protection.tags import parse_tags, tagged_columns, written_tags
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.protected_tables import TABLE_KEY, Clients, clients, declare, loaded
from tests.support.tables import metadata_of, new_table

TAGS = {"encryption.column-tags": "pii: pii; secret: fin"}


def schema(*docs: str | None) -> Schema:
    return Schema(
        NestedField(1, "id", LongType()), *(NestedField(at, f"c{at}", StringType(), doc=doc) for at, doc in enumerate(docs, start=2))
    )


@pytest.fixture
def both(tmp_path: Path) -> Clients:
    return clients(tmp_path, TAGS)


@pytest.fixture
def without(tmp_path: Path) -> Clients:
    """Clients whose catalog says nothing of tags."""
    return clients(tmp_path)


def created(catalog: EncryptedSqlCatalog, columns: Schema | pa.Schema, **properties: str) -> EncryptedTable:
    return new_table(catalog, "db.people", columns, properties={"encryption.key-id": TABLE_KEY, **properties})


def keys(table: Table) -> dict[str, str]:
    policy = ColumnPolicy.from_properties(table.refresh().metadata.properties, table.schema())
    return {str(table.schema().find_column_name(field_id)): column.column_key_id for field_id, column in policy.columns.items()}


def rows(table: EncryptedTable, **values: Any) -> pa.Table:
    return pa.Table.from_pylist([values], schema=table.schema().as_arrow())


def test_tagged_columns_of_a_new_table_are_protected_and_the_table_keeps_the_tags(both: Clients) -> None:
    table = created(both.payroll, schema("Social security number #pii", "plain", "#Secret, and more", None))
    assert keys(table) == {"c2": "pii", "c4": "fin"}
    assert parse_tags(table.metadata.properties["encryption.column-tags"]) == {"pii": "pii", "secret": "fin"}
    table.append(rows(table, id=1, c2="SSN-1", c3="x", c4="y"))
    assert both.analyst.load_table("db.people").scan().to_arrow().to_pylist() == [{"id": 1, "c2": None, "c3": "x", "c4": None, "c5": None}]


def test_a_table_of_an_arrow_schema_is_tagged_by_its_metadata(both: Clients) -> None:
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("ssn", pa.string(), metadata={"doc": "a number #pii"})])
    assert keys(created(both.payroll, columns)) == {"ssn": "pii"}


def test_a_transaction_that_creates_a_table_protects_its_tagged_columns(both: Clients) -> None:
    creation = both.payroll.create_table_transaction("db.people", schema("#pii"), properties={"encryption.key-id": TABLE_KEY})
    with creation, creation.update_schema() as change:
        change.add_column("salary", LongType(), doc="#secret")
    assert keys(both.payroll.load_table("db.people")) == {"c2": "pii", "salary": "fin"}


def test_a_tagged_column_is_protected_with_the_change_that_adds_it(without: Clients) -> None:
    table = created(without.payroll, schema(None), **TAGS)
    table.append(rows(table, id=1, c2="x"))
    with table.update_schema() as change:
        change.add_column("person", StructType(NestedField(1, "email", StringType(), doc="#pii"), NestedField(2, "age", LongType())))
    assert keys(table) == {"person.email": "pii"}
    table.append(rows(table, id=2, person={"email": "a@b", "age": 3}))
    assert {row["id"]: row["person"] for row in without.analyst.load_table("db.people").scan().to_arrow().to_pylist()} == {
        1: None,
        2: {"email": None, "age": 3},
    }
    assert table.scan("id = 2").to_arrow()["person"].to_pylist() == [{"email": "a@b", "age": 3}]


def test_a_tag_on_a_column_with_values_protects_those_that_come_and_masks_those_that_are_there(
    without: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    table = created(without.payroll, schema(None), **TAGS)
    table.append(rows(table, id=1, c2="before"))
    with table.update_schema() as change:
        change.update_column("c2", doc="now #pii")
    table.append(rows(table, id=2, c2="after"))
    assert "the protection of c2 changes" in caplog.text
    assert sorted(table.scan().to_arrow()["c2"].to_pylist()) == ["after", "before"]
    assert without.analyst.load_table("db.people").scan().to_arrow()["c2"].to_pylist() == [None, None]


def test_a_table_made_of_a_tagged_tables_schema_protects_its_columns_too(both: Clients) -> None:
    table = created(both.payroll, schema("#pii"))
    table.append(rows(table, id=1, c2="SSN-1"))
    for name, columns in (("db.of_schema", table.schema()), ("db.of_arrow", table.scan().to_arrow().schema)):
        new_table(both.payroll, name, columns, appends=[table.scan().to_arrow()], properties={"encryption.key-id": TABLE_KEY})
        assert both.analyst.load_table(name).scan().to_arrow()["c2"].to_pylist() == [None], name


def test_a_tag_that_is_taken_away_and_a_new_name_leave_the_protection(both: Clients) -> None:
    table = created(both.payroll, schema("#pii"))
    with table.update_schema() as change:
        change.update_column("c2", doc="harmless")
        change.rename_column("c2", "ssn")
    assert keys(table) == {"ssn": "pii"}


def test_setting_the_tags_of_a_table_protects_the_columns_that_have_them(without: Clients) -> None:
    table = created(without.payroll, schema("#pii", "#unknown"))
    assert keys(table) == {}
    table.transaction().set_properties(TAGS).commit_transaction()
    assert keys(table) == {"c2": "pii"}
    table.transaction().remove_properties("encryption.column-tags").commit_transaction()
    assert keys(table) == {"c2": "pii"}


def test_a_catalogs_tags_hold_for_tables_that_it_did_not_create(tmp_path: Path, without: Clients) -> None:
    created(without.payroll, schema(None))
    tagging = EncryptedSqlCatalog("prod", **{**without.payroll.properties, **TAGS})
    with tagging.load_table("db.people").update_schema() as change:
        change.add_column("ssn", StringType(), doc="#pii")
    assert keys(without.payroll.load_table("db.people")) == {"ssn": "pii"}


def test_no_column_comes_under_the_key_that_somebody_else_has_given_to_a_catalogs_tag(both: Clients) -> None:
    """The clerk has a tag stand for a key that he may use. The next column with the tag was his, and one that a declaration leaves out."""
    table = created(both.payroll, schema("#pii", None))
    loaded(both.clerk).transaction().set_properties({"encryption.column-tags": "pii: fin"}).commit_transaction()
    disputed = r"tag that stands for 'fin' by the table's encryption.column-tags"
    with pytest.raises(ConfigurationError, match=disputed), loaded(both.payroll).update_schema() as change:
        change.add_column("ssn", StringType(), doc="#pii")
    with pytest.raises(ConfigurationError, match=disputed):
        declare(loaded(both.payroll), "pii: c3")
    assert keys(table) == {"c2": "pii"}

    loaded(both.payroll).transaction().set_properties(TAGS).commit_transaction()
    with loaded(both.payroll).update_schema() as change:
        change.add_column("ssn", StringType(), doc="#pii")
    assert keys(table) == {"c2": "pii", "ssn": "pii"}


def test_what_is_declared_wins_over_a_tag_and_what_is_left_out_of_a_declaration_stays_tagged(both: Clients) -> None:
    table = created(
        both.payroll, schema("#pii", "#pii", None), **{"encryption.column-keys": "fin: c2", "encryption.column-mask.c3": "error"}
    )
    assert keys(table) == {"c2": "fin", "c3": "pii"}
    declare(table, "fin: c4")
    assert keys(table) == {"c2": "pii", "c3": "pii", "c4": "fin"}
    table.transaction().remove_properties("encryption.column-keys").commit_transaction()
    assert keys(table) == {"c2": "pii", "c3": "pii"}


def test_two_tags_of_one_column_are_refused_by_name_unless_the_column_is_declared(both: Clients) -> None:
    with pytest.raises(ConfigurationError, match=r"column 'c2' has tags of several master keys: #pii \('pii'\) and #secret \('fin'\)"):
        created(both.payroll, schema("#pii #secret"))
    assert not both.payroll.table_exists("db.people")
    table = created(both.payroll, schema("#pii #secret"), **{"encryption.column-keys": "fin: c2"})
    assert keys(table) == {"c2": "fin"}
    with pytest.raises(ConfigurationError, match="column 'c3' has tags of several"), table.update_schema() as change:
        change.add_column("c3", StringType(), doc="#secret #pii")
    assert table.refresh().schema().column_names == ["id", "c2"]


def test_a_tag_inside_of_a_list_is_refused_and_one_around_a_struct_covers_what_is_in_it(both: Clients) -> None:
    inner = StructType(NestedField(3, "email", StringType(), doc="#pii"))
    with pytest.raises(ConfigurationError, match="protect 'people' as a whole"):
        created(both.payroll, Schema(NestedField(1, "people", ListType(2, inner))))
    assert keys(created(both.payroll, Schema(NestedField(1, "person", inner, doc="#pii")))) == {"person": "pii"}


def test_a_partition_source_is_not_tagged_later(both: Clients) -> None:
    table = created(both.payroll, schema(None))
    with table.update_spec() as change:
        change.add_identity("c2")
    with pytest.raises(ConfigurationError, match="rows cannot be partitioned by column 'c2'"), table.update_schema() as change:
        change.update_column("c2", doc="#pii")


def test_a_table_that_is_not_encrypted_takes_no_tagged_column(both: Clients) -> None:
    with pytest.raises(ConfigurationError, match="protect columns of encrypted tables"):
        both.payroll.create_table("db.plain", schema("#pii"))
    both.payroll.create_table("db.plain", schema("#other"))


@pytest.mark.parametrize("into", [None, "db.people"])
def test_a_plain_table_with_a_tagged_column_is_not_migrated_without_its_protection(both: Clients, into: str | None) -> None:
    plain = SqlCatalog("plain", **{name: both.payroll.properties[name] for name in ("uri", "warehouse")})
    without = {name: value for name, value in both.payroll.properties.items() if name not in TAGS}
    untagged, tagged = EncryptedSqlCatalog("plain", **without), EncryptedSqlCatalog("plain", **both.payroll.properties)
    plain.create_namespace("db")
    plain.create_table("db.plain", schema("#pii", None)).append(pa.table({"id": [1], "c2": ["SSN-1"]}))

    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match=r"column 'c2' has a tag of this catalog's encryption\.column-tags"):
            migrate(tagged.load_table("db.plain"), TABLE_KEY, into=into, dry_run=dry_run)
    assert not isinstance(tagged.load_table("db.plain"), EncryptedTable)

    migrate(untagged.load_table("db.plain"), TABLE_KEY, into=into)
    table = loaded(tagged, into or "db.plain")
    with table.transaction() as transaction:
        transaction.set_properties(TAGS)
    reencrypt(table.refresh(), out_of_line=True)
    assert keys(table) == {"c2": "pii"}
    analyst = EncryptedSqlCatalog("plain", **both.analyst.properties)
    assert analyst.load_table(table.name()).scan().to_arrow().to_pylist() == [{"id": 1, "c2": None, "c3": None}]


def test_no_row_is_written_while_another_engines_tag_protects_nothing(without: Clients) -> None:
    table = created(without.payroll, schema("#pii"))
    tagged = metadata_of(table).model_copy(update={"properties": {**table.metadata.properties, **TAGS}})
    stale = EncryptedTable(table.name(), tagged, table.metadata_location, table.io, table.catalog)
    with pytest.raises(ConfigurationError, match=r"column 'c2' has a tag of encryption\.column-tags and is not protected"):
        stale.append(rows(table, id=1, c2="SSN-1"))
    table.transaction().set_properties(TAGS).commit_transaction()
    table.append(rows(table, id=1, c2="SSN-1"))
    assert without.analyst.load_table("db.people").scan().to_arrow()["c2"].to_pylist() == [None]


@pytest.mark.parametrize("text", ["pii", "pii:", ": key", "a b: key", "pii: a; #PII: b", "pii: a; : b"])
def test_tags_that_cannot_be_read_are_refused(without: Clients, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^encryption\.column-tags"):
        created(without.payroll, schema(None), **{"encryption.column-tags": text})


TAG = st.from_regex(r"[a-z0-9_-]{1,12}", fullmatch=True)
KEY = st.from_regex(r"[a-z][a-z0-9:/_-]{0,30}", fullmatch=True)


@given(st.dictionaries(TAG, KEY, max_size=6))
def test_tags_are_read_as_they_are_written(tags: dict[str, str]) -> None:
    assert parse_tags(written_tags(tags)) == tags


@given(st.lists(st.sampled_from(["#pii", "#PII", "#secret", "#pii2", "a#pii", "#", "word", "##pii"]), max_size=4))
def test_a_tag_is_a_word_of_its_own(words: list[str]) -> None:
    wanted = {{"#pii": "k1", "#PII": "k1", "#secret": "k2"}[word] for word in words if word in ("#pii", "#PII", "#secret")}
    columns, tags = schema(" ".join(words)), {"pii": "k1", "secret": "k2"}
    if len(wanted) > 1:
        with pytest.raises(ConfigurationError):
            tagged_columns(columns, tags)
    else:
        assert set(tagged_columns(columns, tags).values()) == wanted
