"""Somebody who can write metadata.json says things in it that one reader sees and another skips, or that contradict each other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tablecrypt._parsed_json import ParsedJson
from tablecrypt.errors import ConfigurationError, FormatError, KeyNotFoundError, TamperedFileError
from tablecrypt.maintenance import audit, describe, relocate, remove_orphan_files, verify
from tablecrypt.table.canonical_metadata import unknown_keys
from tablecrypt.table.metadata import REQUIRED_KEYS, MetadataFile
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited, read_metadata
from tests.support.tables import MASTER_KEY, metadata_path, new_table, path_of, unpinned_catalog
from tests.support.vectors import VECTORS

ROWS = pa.table({"id": [1, 2, 3], "nested": [{"a": 1}, {"a": 2}, None]})
MAPPING = "schema.name-mapping.default"
STATISTICS = {"statistics-path": "file:///s.stats", "file-size-in-bytes": 1}
PUFFIN = {**STATISTICS, "file-footer-size-in-bytes": 1, "blob-metadata": []}


@pytest.fixture
def catalog(tmp_path: Path, aws: AwsServer) -> Catalog:
    return unpinned_catalog(tmp_path, aws)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog, appends=[ROWS, ROWS])


def _field(metadata: dict[str, Any], *path: int) -> dict[str, Any]:
    fields = metadata["schemas"][0]["fields"]
    for at in path[:-1]:
        fields = fields[at]["type"]["fields"]
    return fields[path[-1]]  # type: ignore[no-any-return]


def _renamed(metadata: dict[str, Any], old: str, new: str) -> None:
    metadata[new] = metadata.pop(old)


STRAY_KEYS: dict[str, Callable[[dict[str, Any]], object]] = {
    "initial_default": lambda metadata: _field(metadata, 0).update(initial_default=7),
    "write_default": lambda metadata: _field(metadata, 1, 0).update(write_default=7),
    "max_ref_age_ms": lambda metadata: metadata["refs"]["main"].update(max_ref_age_ms=1),
    "key_id": lambda metadata: metadata["snapshots"][0].update(key_id="another"),
    "encryption_keys": lambda metadata: _renamed(metadata, "encryption-keys", "encryption_keys"),
    "current_snapshot_id": lambda metadata: metadata.update(current_snapshot_id=1),
    "identifier_field_ids": lambda metadata: metadata["schemas"][0].update(identifier_field_ids=[1]),
    "source-ids": lambda metadata: metadata["partition-specs"][0].update(
        fields=[{"name": "p", "transform": "identity", "source-id": 1, "source-ids": [1], "field-id": 1000}]
    ),
    "of-the-future": lambda metadata: metadata.update({"of-the-future": {}}),
}


@pytest.mark.parametrize("key", STRAY_KEYS)
def test_a_key_that_a_hash_leaves_out_is_refused_and_named(table: Table, key: str) -> None:
    with pytest.raises(FormatError, match=f"{key}' is not one of Iceberg's") as error:
        edited(table, STRAY_KEYS[key])
    assert table.metadata_location in str(error.value)


@pytest.mark.parametrize("old", ['"location":', '"name":"id"', '"key-id":', '"operation":', '"KEY_TIMESTAMP":', '"encryption.key-id":'])
def test_a_key_that_stands_twice_is_refused_and_named(table: Table, old: str) -> None:
    path = metadata_path(table)
    text, name = path.read_text(), old.split('"')[1]
    assert old in text
    path.write_text(text.replace(old, f'"{name}":"another",{old}', 1))
    with pytest.raises(FormatError, match=f"'{name}' occurs twice"):
        table.refresh()


NUMBERS: dict[str, Callable[[dict[str, Any], int], object]] = {
    "last-column-id": lambda metadata, number: metadata.update({"last-column-id": number}),
    "last-partition-id": lambda metadata, number: metadata.update({"last-partition-id": number}),
    "next-row-id": lambda metadata, number: metadata.update({"next-row-id": number}),
    "last-sequence-number": lambda metadata, number: metadata.update({"last-sequence-number": number}),
    "schema-id": lambda metadata, number: metadata["schemas"].append({**metadata["schemas"][0], "schema-id": number}),
    "spec-id": lambda metadata, number: metadata["partition-specs"].append({"spec-id": number, "fields": []}),
    "order-id": lambda metadata, number: metadata["sort-orders"].append({"order-id": number, "fields": []}),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_from_which_no_commit_can_count_on_is_refused(table: Table, name: str) -> None:
    with pytest.raises(TamperedFileError, match=f"its {name} is {2**63 - 1}: no writer of Iceberg has counted that far"):
        edited(table, lambda metadata: NUMBERS[name](metadata, 2**63 - 1))


@pytest.mark.parametrize("type_", [{"id": 8, "name": "b", "required": False, "type": "string"}, "\x00", None, 7])
def test_what_is_no_type_is_refused(table: Table, type_: object) -> None:
    with pytest.raises(FormatError, match=r"cannot be read as table metadata: .*(type|visit)"):
        edited(table, lambda metadata: _field(metadata, 1, 0).update(type=type_))


def test_a_summary_that_holds_more_than_text_is_described(table: Table) -> None:
    table = edited(table, lambda metadata: metadata["snapshots"][0]["summary"].update({"total-records": [3]}))
    first = describe(table).snapshots[-1]
    assert (first.rows, first.rows_added) == (None, 3)


def test_an_error_that_names_what_somebody_wrote_is_one_line(table: Table) -> None:
    key_id = "one\ntwo\x1b[31m"
    edited(table, lambda metadata: metadata["snapshots"][-1].update({"key-id": key_id}))
    table.refresh()
    with pytest.raises(KeyNotFoundError, match=re.escape(r"encryption key one\x0atwo\x1b[31m is not in")):
        table.scan().to_arrow()


def test_keys_that_maps_may_have_are_refused_nowhere(table: Table) -> None:
    def add(metadata: dict[str, Any]) -> None:
        metadata["properties"]["any_name"] = "x"
        metadata["snapshots"][0]["summary"]["any_name"] = "x"
        metadata["refs"]["any_name"] = {"snapshot-id": metadata["snapshots"][0]["snapshot-id"], "type": "tag"}

    assert edited(table, add).scan().to_arrow().num_rows == 6


@pytest.mark.parametrize("folder", sorted(path.name for path in VECTORS.iterdir() if any(path.rglob("*.metadata.json"))))
def test_what_java_and_pyiceberg_wrote_has_no_key_that_is_refused(folder: str) -> None:
    for path in (VECTORS / folder).rglob("*.metadata.json"):
        if path.name.endswith(".gz.metadata.json"):
            continue
        parsed = ParsedJson(path.read_bytes())
        assert (parsed.repeated, list(unknown_keys(parsed.document))) == ([], [])


def test_a_plain_table_is_read_as_pyiceberg_reads_it(catalog: Catalog) -> None:
    table = catalog.create_table("db.plain", ROWS.schema, properties={"format-version": "2"})
    table.append(ROWS)
    assert edited(table, lambda metadata: metadata.update({"of-the-future": {}})).scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("text", ["NaN", "1" * 5000, '"\\ud800"', "[" * 100_000, '{"a": 1e999}', "\ufeff1"])
def test_json_that_only_python_reads_is_a_format_error(table: Table, text: str) -> None:
    content = metadata_path(table).read_text()
    broken = content.replace('"last-column-id":', f'"last-column-id":{text},"was":', 1).encode()
    with pytest.raises(FormatError, match=r"metadata\.json"):
        MetadataFile(table.metadata_location, broken).parse()


@pytest.mark.parametrize("value", ["what\nnobody shows", ["what nobody shows"], {"part": "what nobody shows"}])
def test_a_part_of_another_type_is_named_in_one_line_without_what_it_holds(table: Table, value: Any) -> None:
    whole = read_metadata(table)
    for name in ("schemas", "snapshots", "last-column-id", "encryption-keys", "sort-orders"):
        with pytest.raises(FormatError) as refused:
            MetadataFile("v1.metadata.json", json.dumps({**whole, name: value}).encode()).parse()

        assert re.fullmatch(r"v1\.metadata\.json: .{1,200}", str(refused.value)), name
        assert "nobody" not in str(refused.value), name


def _first(metadata: dict[str, Any]) -> int:
    return metadata["snapshots"][0]["snapshot-id"]  # type: ignore[no-any-return]


def _without_main(metadata: dict[str, Any]) -> None:
    metadata["refs"].pop("main")
    metadata["current-snapshot-id"] = 7


def _set_parent(metadata: dict[str, Any], child: int, parent: int) -> None:
    metadata["snapshots"][child]["parent-snapshot-id"] = metadata["snapshots"][parent]["snapshot-id"]


CONTRADICTIONS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "dangling": (lambda metadata: metadata.update({"current-snapshot-id": 7}), "no such snapshot exists"),
    "dangling without main": (_without_main, "no such snapshot exists"),
    "minus one": (lambda metadata: metadata.update({"current-snapshot-id": -1}), "main points to"),
    "null": (lambda metadata: metadata.update({"current-snapshot-id": None}), "main points to"),
    "older than main": (lambda metadata: metadata.update({"current-snapshot-id": _first(metadata)}), "main points to"),
    "main older": (lambda metadata: metadata["refs"]["main"].update({"snapshot-id": _first(metadata)}), "main points to"),
    "log": (lambda metadata: metadata["snapshot-log"].reverse(), "snapshot log ends with"),
    "two snapshots": (lambda metadata: metadata["snapshots"].append(metadata["snapshots"][0]), "two snapshots"),
    "two keys": (lambda metadata: metadata["encryption-keys"].append(metadata["encryption-keys"][0]), "two encryption keys"),
    "two schemas": (lambda metadata: metadata["schemas"].append(metadata["schemas"][0]), "two schemas"),
    "two columns": (lambda metadata: metadata["schemas"][0]["fields"][1].update(id=1), "two columns of schema 0 have the id 1"),
    "a column to come": (lambda metadata: metadata.update({"last-column-id": 1}), "last-column-id is 1"),
    "two specs": (lambda metadata: metadata["partition-specs"].append(metadata["partition-specs"][0]), "two partition specs"),
    "before 1970": (lambda metadata: metadata["snapshots"][0].update({"timestamp-ms": -1}), "has the time -1 ms, which is no date"),
    "after 9999": (lambda metadata: metadata["snapshots"][1].update({"timestamp-ms": 253_402_300_800_000}), "which is no date"),
    "last of 63 bits": (lambda metadata: metadata["snapshots"][0].update({"timestamp-ms": 2**63 - 1}), "which is no date"),
    "its own parent": (lambda metadata: _set_parent(metadata, 0, 0), "is an ancestor of itself"),
    "a circle of parents": (lambda metadata: _set_parent(metadata, 0, 1), "is an ancestor of itself"),
    "two statistics": (
        lambda metadata: metadata.update(statistics=[{"snapshot-id": _first(metadata), **PUFFIN}] * 2),
        "two statistics files",
    ),
    "two partition statistics": (
        lambda metadata: metadata.update({"partition-statistics": [{"snapshot-id": _first(metadata), **STATISTICS}] * 2}),
        "two partition statistics files",
    ),
}


@pytest.mark.parametrize("edit", CONTRADICTIONS)
def test_metadata_that_contradicts_itself_is_refused_and_reads_as_no_empty_table(table: Table, edit: str) -> None:
    change, problem = CONTRADICTIONS[edit]
    with pytest.raises(TamperedFileError, match=problem) as error:
        edited(table, change)
    assert error.value.location == table.metadata_location


def test_a_table_without_a_current_snapshot_that_says_so_everywhere_is_an_empty_one(table: Table) -> None:
    def forget(metadata: dict[str, Any]) -> None:
        metadata["refs"] = {"kept": {"snapshot-id": _first(metadata), "type": "branch"}}
        metadata["current-snapshot-id"] = -1

    assert edited(table, forget).scan().to_arrow().num_rows == 0


@pytest.mark.parametrize("time", [0, 253_402_300_799_999])
def test_the_first_and_the_last_time_that_a_calendar_has_are_read(table: Table, time: int) -> None:
    loaded = edited(table, lambda metadata: metadata["snapshots"][0].update({"timestamp-ms": time}))
    assert loaded.scan().to_arrow().num_rows == 6


NO_FILES = {
    "empty": "",
    "NUL": "{}/a\0b.avro",
    "NUL at the end": "{}/a.avro\0",
    "newline": "{}/a\nb.avro",
    "escape": "{}/a\x1b[2J.avro",
    "folder": "{}/metadata/",
    "root": "file:///",
    "bucket": "s3://",
    "long name": "{}/" + "a" * 300 + ".avro",
    "long path": "{}/" + "a/" * 4000 + "a.avro",
}


@pytest.mark.parametrize("snapshot", [0, -1], ids=["older", "current"])
@pytest.mark.parametrize("name", NO_FILES)
def test_a_manifest_list_under_a_name_that_no_file_has_is_a_named_error_and_a_finding(
    catalog: Catalog, table: Table, name: str, snapshot: int
) -> None:
    named = NO_FILES[name].format(table.location())
    with pytest.raises(TamperedFileError, match=r"names the manifest list '.*', which is no file's name$") as error:
        edited(table, lambda metadata: metadata["snapshots"][snapshot].update({"manifest-list": named}))
    assert (error.value.location, str(error.value).isprintable()) == (table.metadata_location, True)
    (finding,) = (each for each in audit(catalog).findings if "no file's name" in each.message)
    assert finding.kind.code == "refused-table"


ELSEWHERE = {"folder": "{}/metadata", "another folder": "/etc", "scheme": "ftp://host/a.avro", "store": "memory://a"}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_a_store_says_of_a_manifest_list_elsewhere_is_a_named_error_and_a_finding(catalog: Catalog, table: Table, name: str) -> None:
    named = ELSEWHERE[name].format(table.location())
    loaded = edited(table, lambda metadata: metadata["snapshots"][-1].update({"manifest-list": named}))
    operations: tuple[Callable[[], object], ...] = (
        lambda: loaded.scan().to_arrow(),
        lambda: loaded.scan().count(),
        lambda: loaded.append(ROWS),
        lambda: loaded.delete("id = 1"),
        lambda: remove_orphan_files(loaded, delete_below=[loaded.location()]),
        lambda: relocate(loaded, f"{loaded.location()}-copy"),
    )
    for operation in operations:
        with pytest.raises((FormatError, TamperedFileError), match=re.escape(named)):
            operation()
    assert named in {bad.location for bad in verify(loaded).bad}
    assert named in {finding.where for finding in audit(catalog).findings}


def test_what_the_store_says_of_a_manifest_list_in_its_place_stays_as_it_is(table: Table) -> None:
    path = path_of(table.current_snapshot().manifest_list)  # type: ignore[union-attr]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        table.refresh().scan().to_arrow()
    path.mkdir()
    with pytest.raises(OSError, match="is a directory"):
        table.refresh().scan().to_arrow()


@pytest.mark.parametrize("mapping", ["{", "[1]", '[{"names": 5}]', "[" * 100_000])
def test_a_name_mapping_that_is_none_is_refused_on_load_and_on_commit(catalog: Catalog, table: Table, mapping: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a name mapping"):
        table.transaction().set_properties({MAPPING: mapping})
    with pytest.raises(ConfigurationError, match="is not a name mapping"):
        catalog.create_table("db.new", ROWS.schema, properties={"encryption.key-id": MASTER_KEY, MAPPING: mapping})
    with pytest.raises(ConfigurationError, match="is not a name mapping"):
        edited(table, lambda metadata: metadata["properties"].update({MAPPING: mapping}))


@pytest.mark.parametrize("timestamp", ["-1", "", "soon", "1.5", "٣", "9" * 5000, "9223372036854775808"])
def test_a_timestamp_that_is_none_is_a_format_error_for_readers_and_writers(table: Table, timestamp: str) -> None:
    with pytest.raises(FormatError, match="KEY_TIMESTAMP"):
        edited(table, lambda metadata: metadata["encryption-keys"][0].update(properties={"KEY_TIMESTAMP": timestamp})).append(ROWS)


def test_the_edits_of_these_tests_are_of_a_table_that_loads(table: Table) -> None:
    assert edited(table, lambda metadata: None).scan().to_arrow().num_rows == 6


@pytest.mark.parametrize("how", ["dropped", "null"])
def test_no_field_that_version_3_requires_is_made_up(table: Table, how: str) -> None:
    whole = read_metadata(table)
    for key in REQUIRED_KEYS:
        with pytest.raises(FormatError) as error:
            edited(table, lambda metadata, key=key: metadata.pop(key) if how == "dropped" else metadata.update({key: None}))  # type: ignore[misc]
        assert table.metadata_location in str(error.value) or table.name()[-1] in str(error.value)
        edited(table, lambda metadata: metadata.update(whole))
