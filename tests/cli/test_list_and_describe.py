"""`list` and `describe`: what a person sees of a catalog and of a table, with all keys, with some, and with none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from tablecrypt import load_catalog
from tablecrypt.kms.local_file import add_key, create_key_file
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.command import Command, Done
from tests.support.plaintext import CANARY
from tests.support.tables import current_snapshot, path_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True, doc="one for each person\x1b[2J"),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "address", StructType(NestedField(4, "city", StringType()), NestedField(5, "lines", ListType(6, StringType())))),
)


@pytest.fixture
def catalog(unwatched_warehouse: Path) -> Iterator[EncryptedSqlCatalog]:
    """A catalog with a table whose column is protected, a plain one, one in a nested namespace, and an empty namespace."""
    create_key_file(unwatched_warehouse / "all.keys", "orders", 32)
    (unwatched_warehouse / "analyst.keys").write_bytes((unwatched_warehouse / "all.keys").read_bytes())
    (unwatched_warehouse / "analyst.keys").chmod(0o600)
    add_key(unwatched_warehouse / "all.keys", "pii", 32)
    create_key_file(unwatched_warehouse / "stranger.keys", "another", 32)
    made = EncryptedSqlCatalog("prod", **properties_of(unwatched_warehouse))
    for namespace in (("db",), ("db", "eu"), ("empty",)):
        made.create_namespace(namespace)
    declared = {"encryption.key-id": "orders", "encryption.column-keys": "pii: ssn", "encryption.column-mask.ssn": "truncate(4)"}
    people = made.create_table(
        "db.people",
        SCHEMA,
        partition_spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket")),
        sort_order=SortOrder(SortField(1, IdentityTransform())),
        properties={**declared, "owner": "sales\x1b[31m", "s3.secret-access-key": "AKIA-very-secret"},
    )
    for first in (0, 10):
        people.append(rows(first))
    people.manage_snapshots().create_tag(people.snapshots()[0].snapshot_id, "first").commit()
    people.delete("id = 3")
    made.create_table(("db", "eu", "orders"), SCHEMA, properties={"encryption.key-id": "orders"})
    made.create_table("db.plain", SCHEMA).append(rows(0))
    yield made
    made.close()


def properties_of(folder: Path, keys: str = "all.keys") -> dict[str, str]:
    return {
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
        "encryption.kms-type": "local",
        "kms.local.key-file": f"{folder}/{keys}",
    }


def rows(first: int) -> pa.Table:
    address = {"city": CANARY, "lines": ["a"]}
    return pa.Table.from_pylist(
        [{"id": first + each, "ssn": f"{CANARY}-{each}", "address": address} for each in range(10)], schema=SCHEMA.as_arrow()
    )


@pytest.fixture
def command(catalog: EncryptedSqlCatalog, unwatched_warehouse: Path) -> Command:
    return with_keys(unwatched_warehouse, "all.keys")


def with_keys(folder: Path, keys: str) -> Command:
    return Command({"py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog", **properties_of(folder, keys)})


def result_of(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_catalog_is_listed_with_nested_namespaces_and_a_lock_beside_what_is_encrypted(command: Command) -> None:
    done = command.run("list")

    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "    table                    master key",
        "🔒  db.people     encrypted  orders",
        "    db.plain      plain",
        "🔒  db.eu.orders  encrypted  orders",
        "3 tables (2 encrypted, 1 plain), 3 namespaces; nothing in empty",
    ]


def test_a_listing_as_json_has_stable_names(command: Command) -> None:
    found = result_of(command.run("list", "db.eu", "--json"))

    table = {"name": "db.eu.orders", "kind": "table", "encrypted": True, "table_key_id": "orders", "problem": None}
    assert found == {"catalog": "prod", "namespaces": ["db.eu"], "tables": [table], "unlisted": {}}


def test_a_listing_needs_no_key(command: Command, unwatched_warehouse: Path) -> None:
    stranger = with_keys(unwatched_warehouse, "stranger.keys").run("list")

    assert (stranger.code, stranger.stdout) == (0, command.run("list").stdout)


def test_a_quick_listing_loads_no_table(command: Command, catalog: EncryptedSqlCatalog, unwatched_warehouse: Path) -> None:
    for metadata in unwatched_warehouse.rglob("*.metadata.json"):
        metadata.unlink()
    done = command.run("list", "--quick")

    assert done.code == 0
    assert [line.strip() for line in done.stdout.splitlines()[1:4]] == ["db.people", "db.plain", "db.eu.orders"]
    assert "🔒" not in done.stdout


def test_a_broken_table_does_not_end_the_listing(command: Command, catalog: EncryptedSqlCatalog, unwatched_warehouse: Path) -> None:
    broken = catalog.load_table("db.people").metadata_location
    path_of(broken).write_text("{")
    done = command.run("list")

    assert done.code == 1
    assert "db.people     could not be loaded" in done.stdout
    assert "🔒  db.eu.orders  encrypted" in done.stdout
    assert re.search("^db.people could not be loaded: [A-Za-z]+Error: ", done.stdout, re.MULTILINE)
    assert "3 tables (1 encrypted, 1 plain, 1 could not be loaded)" in done.stdout
    assert result_of(command.run("list", "--json"))["tables"][0]["problem"]


def test_a_namespace_that_is_misspelt_is_refused_with_the_nearest(command: Command) -> None:
    done = command.run("list", "emty")

    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "there is no namespace emty in catalog prod. Did you mean empty?" in done.stderr
    nested = command.run("list", "db.eur")
    assert "Did you mean db.eu?" in nested.stderr


def test_an_empty_namespace_and_an_empty_catalog_say_so(command: Command, tmp_path: Path) -> None:
    assert command.run("list", "empty").stdout == "0 tables, 1 namespace; nothing in empty\n"
    empty = {"type": "tablecrypt", "uri": f"sqlite:///{tmp_path}/empty.db", "warehouse": f"file://{tmp_path}"}
    load_catalog("prod", **empty).close()
    done = Command({**empty, "encryption.kms-type": "memory"}).run("list")
    assert (done.code, done.stdout) == (0, "0 tables, 0 namespaces\n")


def test_a_table_is_described_whole(command: Command, catalog: EncryptedSqlCatalog) -> None:
    table = catalog.load_table("db.people")
    done = command.run("describe", "db.people")

    assert (done.code, done.stderr) == (0, "")
    head, columns, refs, snapshots, keks, properties = done.stdout.split("\n\n")
    assert head.splitlines()[0] == "🔒 db.people: encrypted under master key orders, format version 3"
    assert f"location     {table.location()}\n" in head
    assert re.search(r"^size +20 rows in \d data files, [\d.]+ kB; 1 delete file \(\d+ B\) hides 1 of these rows$", head, re.MULTILINE)
    assert re.search(r"^partitioned +bucket\[4\]\(id\)$", head, re.MULTILINE)
    assert re.search(r"^sorted +id asc nulls-first$", head, re.MULTILINE)
    assert columns.splitlines() == [
        "Columns",
        "id  column                 type              protected by           documentation",
        " 1  id                     long    required                         one for each person\\x1b[2J",
        " 2  ssn                    string            pii, mask truncate(4)",
        " 3  address                struct",
        " 4  address.city           string",
        " 5  address.lines          list",
        " 6  address.lines.element  string  required",
    ]
    assert [line.split()[:2] for line in refs.splitlines()[1:]] == [["first", "tag"], ["main", "branch"]]
    listed = snapshots.splitlines()
    assert listed[0] == "Snapshots, the newest first"
    assert [line.split()[0] for line in listed[2:]] == [str(each.snapshot_id) for each in reversed(table.snapshots())]
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d +append +10$", listed[-1])
    assert [line.split()[1:] for line in keks.splitlines()[2:]] == [["pii", "today", "ssn"], ["orders", "today"]]
    assert "owner" in properties
    assert "sales\\x1b[31m" in properties


def test_no_secret_and_no_control_character_is_shown(command: Command) -> None:
    for arguments in (("describe", "db.people"), ("describe", "db.people", "--json"), ("list",)):
        shown = command.run(*arguments).stdout
        assert "very-secret" not in shown
        assert "\x1b" not in shown
    assert "s3.secret-access-key" in shown or "s3.secret-access-key" in command.run("describe", "db.people").stdout


def test_a_description_as_json_has_stable_names(command: Command) -> None:
    found = result_of(command.run("describe", "db.people", "--json", "--snapshots", "1"))

    assert list(found) == [
        *("table", "encrypted", "table_key_id", "format_version", "table_uuid", "location", "metadata_location", "updated", "columns"),
        *("partition_fields", "sort_fields", "properties", "refs", "snapshot_count", "snapshots", "keks", "size", "unread"),
    ]
    assert (found["snapshot_count"], len(found["snapshots"])) == (3, 1)
    assert found["columns"][1] == {
        "field_id": 2,
        "name": "ssn",
        "type": "string",
        "required": False,
        "doc": None,
        "master_key_id": "pii",
        "mask": "truncate(4)",
        "former_key_id": None,
    }
    assert (found["size"]["rows"], found["size"]["deleted_rows"]) == (20, 1)
    assert found["unread"] == {}


def test_older_snapshots_are_counted_and_a_negative_number_is_refused(command: Command) -> None:
    assert "Snapshots, the newest first (2 older ones are not shown)" in command.run("describe", "db.people", "--snapshots", "1").stdout
    assert command.run("describe", "db.people", "--snapshots", "-1").code == 2


def test_an_analyst_without_the_columns_key_sees_the_same(command: Command, unwatched_warehouse: Path) -> None:
    analyst = with_keys(unwatched_warehouse, "analyst.keys").run("describe", "db.people")

    assert (analyst.code, analyst.stdout) == (0, command.run("describe", "db.people").stdout)


@pytest.mark.parametrize("keys", ["stranger.keys", "nowhere.keys"])
def test_without_the_tables_key_all_but_the_size_is_shown_and_the_code_is_1(command: Command, unwatched_warehouse: Path, keys: str) -> None:
    done = with_keys(unwatched_warehouse, keys).run("describe", "db.people")

    assert (done.code, done.stderr) == (1, "")
    assert re.search("^size +not known$", done.stdout, re.MULTILINE)
    assert re.search("^could not be read: file://.*snap-.*: .*key file", done.stdout, re.MULTILINE)
    assert done.stdout.split("\n\n")[1:] == command.run("describe", "db.people").stdout.split("\n\n")[1:]


def test_a_manifest_that_is_damaged_is_named(command: Command, catalog: EncryptedSqlCatalog) -> None:
    table = catalog.load_table("db.people")
    snapshot = current_snapshot(table)
    manifest = path_of(snapshot.manifests(table.io)[0].manifest_path)
    manifest.write_bytes(manifest.read_bytes()[:-1] + b"?")
    done = command.run("describe", "db.people")

    assert done.code == 1
    assert f"could not be read: file://{manifest}: " in done.stdout


def test_a_plain_table_is_described_too(command: Command) -> None:
    lines = command.run("describe", "db.plain").stdout.splitlines()

    assert lines[0] == "db.plain: plain, format version 2"
    assert any(line.startswith("size         10 rows in 1 data file, ") for line in lines)


def test_a_plain_table_that_names_a_master_key_is_not_taken_for_an_encrypted_one(command: Command, unwatched_warehouse: Path) -> None:
    properties = properties_of(unwatched_warehouse)
    bare = SqlCatalog("prod", uri=properties["uri"], warehouse=properties["warehouse"])
    bare.create_table("empty.deceptive", SCHEMA, properties={"encryption.key-id": "orders"})
    bare.close()

    assert command.run("list", "empty").stdout.splitlines()[1] == "    empty.deceptive  plain  orders, not used"
    first = command.run("describe", "empty.deceptive").stdout.splitlines()[0]
    assert first == "empty.deceptive: plain, although encryption.key-id names orders, format version 2"


def test_on_a_terminal_that_knows_no_lock_there_is_a_star(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = command.run_process("list")

    assert (done.code, done.stdout.splitlines()[1]) == (0, "*   db.people     encrypted  orders")


@pytest.mark.parametrize("line", [("list", "empty"), ("describe", "empty.日本"), ("list", "empty", "--json")])
def test_a_name_that_the_encoding_of_the_output_has_not_is_printed_as_its_characters_numbers(
    catalog: EncryptedSqlCatalog, command: Command, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    catalog.create_table("empty.日本", SCHEMA, properties={"encryption.key-id": "orders"})
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")

    done = command.run_process(*line)

    assert (done.code, done.stderr) == (0, "")
    assert r"empty.\u65e5\u672c" in done.stdout
