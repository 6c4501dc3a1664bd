"""Java's own serialisation of table metadata, reproduced: on every file that Java wrote, and whatever order another writer chose."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tablecrypt.errors import FormatError
from tablecrypt.table.canonical_metadata import canonical_metadata, metadata_hash
from tablecrypt.table.metadata import EncryptedTableMetadata
from tests.support.vectors import VECTORS

ORDERED_MAPS = {"properties", "summary", "refs"}


def content(path: Path) -> bytes:
    stored = path.read_bytes()
    return gzip.decompress(stored) if stored.startswith(b"\x1f\x8b") else stored


def is_javas_own(path: Path) -> bool:
    """The two files that a script made, so that Java would write version 2, are spaced as Python does it."""
    return not content(path).startswith(b'{"format-version": ')


FILES = sorted(path for path in VECTORS.glob("*/s3/**/*.metadata.json") if is_javas_own(path))
NEWEST = next(path for path in FILES if path.parts[-3] == "evolved" and json.loads(content(path))["refs"].get("main"))


def document(**changes: Any) -> dict[str, Any]:
    return {**json.loads(content(NEWEST)), **changes}


def canonical(tree: dict[str, Any]) -> bytes | None:
    return canonical_metadata(json.dumps(tree).encode())


def with_column(type_name: Any, default: Any) -> dict[str, Any]:
    field = {"id": 99, "name": "new", "required": False, "type": type_name, "initial-default": default, "write-default": default}
    return document(schemas=[{"type": "struct", "schema-id": 0, "fields": [field]}])


def default_of(canonical_document: bytes | None) -> Any:
    assert canonical_document is not None
    return json.loads(canonical_document)["schemas"][0]["fields"][0]["initial-default"]


def shuffled(tree: Any, order: random.Random) -> Any:
    """The same JSON with the keys of its objects in another order, but for maps, which have an order in Java."""
    if isinstance(tree, list):
        return [shuffled(item, order) for item in tree]
    if not isinstance(tree, dict):
        return tree
    keys = order.sample(list(tree), len(tree))
    return {key: tree[key] if key in ORDERED_MAPS else shuffled(tree[key], order) for key in keys}


def test_there_are_files_of_both_versions() -> None:
    versions = [json.loads(content(path))["format-version"] for path in FILES]
    assert (versions.count(2), versions.count(3)) >= (10, 50)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}-{path.name[:5]}")
def test_what_java_wrote_is_its_own_canonical_form(path: Path) -> None:
    written = content(path)
    assert canonical_metadata(written) == written
    assert metadata_hash(written) == base64.b64encode(hashlib.sha256(written).digest()).decode()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}-{path.name[:5]}")
def test_neither_spacing_nor_the_order_of_fields_changes_it(path: Path) -> None:
    written = content(path)
    order = random.Random(path.name)
    for _ in range(4):
        assert canonical_metadata(json.dumps(shuffled(json.loads(written), order), indent=2).encode()) == written


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}-{path.name[:5]}")
def test_our_models_keep_everything_that_java_hashes(path: Path) -> None:
    written = content(path)
    if json.loads(written)["format-version"] == 3:
        assert canonical_metadata(EncryptedTableMetadata.model_validate_json(written).model_dump_json().encode()) == written


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("\\/")
def test_strings_escape_as_little_as_java_does(text: str) -> None:
    written = canonical(document(properties={text: text}))
    assert written is not None
    assert json.loads(written)["properties"] == {text: text}
    raw = written.decode("utf-8")
    assert all(character in raw for character in text if character >= " " and character not in '"\\')
    assert "\\/" not in raw.replace("\\\\", "")


def test_every_escape_is_the_one_that_java_chooses() -> None:
    written = canonical(document(properties={"k": '"\\\b\t\n\f\r\x00\x1f\x7f/<é\u2028😀'}))
    assert written is not None
    assert b'"properties":{"k":"\\"\\\\\\b\\t\\n\\f\\r\\u0000\\u001F\x7f/<\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80"}' in written


def test_half_a_surrogate_pair_has_no_canonical_form() -> None:
    assert canonical(document(properties={"k": "\ud83d"})) is None


def test_what_java_does_not_know_is_left_out() -> None:
    assert canonical(document(**{"of-tomorrow": {"a": 1}})) == content(NEWEST)


def test_what_java_fills_in_is_filled_in() -> None:
    empty = document(**{"current-snapshot-id": -1, "snapshots": [], "snapshot-log": [], "encryption-keys": []})
    for absent in ("refs", "statistics", "partition-statistics", "metadata-log", "snapshots", "encryption-keys", "current-snapshot-id"):
        empty.pop(absent, None)
    written = canonical(empty)
    assert written is not None
    assert b'"current-snapshot-id":null,"next-row-id":' in written
    assert b'"refs":{},"snapshots":[],"statistics":[],"partition-statistics":[],"snapshot-log":[],"metadata-log":[]}' in written
    assert b"encryption-keys" not in written


def test_main_points_to_the_current_snapshot_where_refs_are_missing() -> None:
    tree = document()
    del tree["refs"]
    written = canonical(tree)
    assert written is not None
    assert json.loads(written)["refs"] == {"main": {"snapshot-id": tree["current-snapshot-id"], "type": "branch"}}


@pytest.mark.parametrize(
    ("location", "kept"), [("s3://b/t///", "s3://b/t"), ("file:///", "file://"), ("s3://", "s3://"), ("s3://b/t", "s3://b/t")]
)
def test_a_location_does_not_end_with_a_slash(location: str, kept: str) -> None:
    written = canonical(document(location=location))
    assert written is not None
    assert json.loads(written)["location"] == kept


@pytest.mark.parametrize(
    ("spelled", "written"),
    [("decimal(9,2)", "decimal(9, 2)"), ("decimal( 9 , 2 )", "decimal(9, 2)"), ("fixed[ 4 ]", "fixed[4]"), ("uuid", "uuid")],
)
def test_types_are_spelled_as_java_spells_them(spelled: str, written: str) -> None:
    found = canonical(with_column(spelled, None))
    assert found is not None
    assert json.loads(found)["schemas"][0]["fields"][0] == {"id": 99, "name": "new", "required": False, "type": written}


@pytest.mark.parametrize(
    ("type_name", "default", "written"),
    [
        ("boolean", False, False),
        ("int", 0, 0),
        ("long", -(2**63), -(2**63)),
        ("string", "1.500", "1.500"),
        ("decimal(9,2)", "-0.10", "-0.10"),
        ("date", "2026-01-02", "2026-01-02"),
        ("time", "10:20:30.500000", "10:20:30.5"),
        ("timestamp", "2026-01-02T10:20:30.000000", "2026-01-02T10:20:30"),
        ("timestamptz", "2026-01-02T10:20:30.120000+00:00", "2026-01-02T10:20:30.12+00:00"),
        ("timestamp_ns", "2026-01-02T10:20:30.123456780", "2026-01-02T10:20:30.12345678"),
        ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        ("binary", "00ff", "00FF"),
        ("fixed[2]", "00Ff", "00FF"),
    ],
)
def test_defaults_are_spelled_as_java_spells_them(type_name: str, default: Any, written: Any) -> None:
    assert default_of(canonical(with_column(type_name, default))) == written


@pytest.mark.parametrize(
    ("type_name", "default"),
    [
        ("float", 1.5),
        ("double", 1e30),
        ("double", 1),
        ("timestamptz", "2026-01-02T10:20:30Z"),
        ("timestamptz", "2026-01-02T10:20:30+02:00"),
        ("uuid", "F79C3E09-677C-4BBD-A479-3F349CB785E7"),
        ("decimal(9, 2)", "1E+2"),
        ("decimal(9, 2)", "-0.00"),
        ("date", "today"),
        ("geometry(srid:4326)", None),
        ({"type": "struct", "fields": []}, {}),
    ],
)
def test_a_form_that_depends_on_javas_version_is_not_guessed(type_name: Any, default: Any) -> None:
    tree = with_column(type_name, default)
    assert canonical(tree) is None
    assert metadata_hash(json.dumps(tree).encode()) is None


def test_several_properties_of_one_key_are_not_put_into_an_order() -> None:
    key = {"key-id": "a", "encrypted-key-metadata": "AA==", "properties": {"KEY_TIMESTAMP": "1", "other": "2"}}
    assert canonical(document(**{"encryption-keys": [key]})) is None


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"format-version": 3}',
        b'{"format-version": 1}',
        b'{"format-version": 4}',
        b'{"format-version": "3"}',
        b'{"format-version": [3]}',
        b"[" * 100_000,
    ],
    ids=range(9),
)
def test_what_is_not_table_metadata_is_refused(broken: bytes) -> None:
    with pytest.raises(FormatError, match="table metadata"):
        canonical_metadata(broken)


@given(st.data())
def test_no_value_out_of_place_escapes_as_another_error(data: st.DataObject) -> None:
    tree = json.loads(content(NEWEST))
    places = [(holder, key) for holder in holders(tree) for key in (holder if isinstance(holder, dict) else range(len(holder)))]
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(st.sampled_from([None, True, 0, -1.5, "", [], {}, [[]], {"a": None}, "decimal(1,", float("nan")]))
    try:
        canonical(tree)
    except FormatError as error:
        assert "table metadata" in str(error)


def holders(tree: Any) -> list[Any]:
    if not isinstance(tree, dict | list):
        return []
    children = tree.values() if isinstance(tree, dict) else tree
    return [tree, *(holder for child in children for holder in holders(child))]
