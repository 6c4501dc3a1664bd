"""Tables with a column that has a master key of its own: for who may use it, for others, and after others changed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from conformance.build.described import expected, metadata_of, remove_unread, table_case
from conformance.build.forged_tables import Scene, exchange, flip_entry
from conformance.build.odd_files import first_letters
from conformance.build.tables import KEY_ID, KEY_LENGTHS, RECIPES, Recipe, build_table, kit_catalog, listed_files, read_state
from conformance.build.tables import rows as rows_of

COLUMN: Final = "team"
COLUMN_KEY_ID: Final = "alias/conformance-column"
EXTENSION: Final = "tablecrypt, column keys: an extension"
OTHERS: Final = "Iceberg table spec, Encryption; what a footer holds apart is none of its columns"
DECLARED: Final = {"encryption.column-keys": f"{COLUMN_KEY_ID}: {COLUMN}"}
_MASKED: Final = {**DECLARED, f"encryption.column-mask.{COLUMN}": "truncate(1)"}
_NEEDS: Final = {"needs": ["column-keys"]}
_PROPERTY: Final = "encryption.column.2."
_LENGTHS: Final = {"appends": KEY_LENGTHS, "deletion-vectors": KEY_LENGTHS, "upsert": (16,), "evolved-schema": (16,), "rotated": (16,)}


def column_key_cases(kit: Path) -> Iterator[dict[str, Any]]:
    """Build them."""
    for recipe in RECIPES:
        for length in _LENGTHS.get(recipe.name, ()):
            yield from _read(kit, recipe, length)
    yield from _read(kit, _ROW_GROUPS, 16)
    yield _masked(kit)
    # Iceberg's own expiry drops entries that no snapshot names: the properties have copies.
    yield _edited(kit, "column-keys-lost-entries-16", "read", lambda at: at.edit(_without_entries))
    for name, (refusal, forge) in FORGERIES.items():
        yield _forged(kit, name, refusal, forge)


def _read(kit: Path, recipe: Recipe, length: int) -> Iterator[dict[str, Any]]:
    """The column's master key opens all; without it the other columns are read, and this one is refused."""
    name = f"column-keys-{recipe.name}-{length}"
    table = build_table(kit, kit_catalog(kit), name, _with(recipe, DECLARED), length)
    remove_unread(kit, table)
    rows, listed, metadata = read_state(table, {}), listed_files(table, {}), metadata_of(table.metadata_location)
    others = rows.drop_columns([COLUMN])
    here = {"folder": f"cases/{name}", "keys": [KEY_ID]}

    yield table_case(name, "read", EXTENSION, metadata) | _NEEDS | expected(kit, name, rows) | listed
    others_of = f"{name}-without-its-key"
    yield (
        table_case(others_of, "read", OTHERS, metadata)
        | here
        | {"columns": others.column_names}
        | expected(kit, others_of, others)
        | listed
    )
    denied = {"columns": ["id", COLUMN], "forged": "content", "refusal": ["key-denied", "placeholder"]}
    column = f"{name}-denied"
    yield table_case(column, "refuse", EXTENSION, metadata) | here | denied | expected(kit, column, rows.select(["id", COLUMN])) | listed


def _masked(kit: Path) -> dict[str, Any]:
    name = "column-keys-masked-16"
    table = build_table(kit, kit_catalog(kit), name, _with(_APPENDS, _MASKED), 16)
    remove_unread(kit, table)
    rows = read_state(table, {})
    shown = rows.set_column(rows.column_names.index(COLUMN), COLUMN, first_letters(rows[COLUMN]))
    who = {"keys": [KEY_ID], "masks": True}
    return (
        table_case(name, "read", OTHERS, metadata_of(table.metadata_location)) | who | expected(kit, name, shown) | listed_files(table, {})
    )


def _forged(kit: Path, name: str, refusal: tuple[str, ...], forge: Callable[[Scene], object]) -> dict[str, Any]:
    return _edited(kit, f"forged-column-keys-{name}-16", "refuse", forge) | {"refusal": list(refusal), "forged": "content"}


def _edited(kit: Path, case: str, kind: str, edit: Callable[[Scene], object]) -> dict[str, Any]:
    table = build_table(kit, kit_catalog(kit), case, _with(_APPENDS, DECLARED), 16)
    rows, listed = expected(kit, case, read_state(table, {})), listed_files(table, {})
    edit(Scene(kit, table, table))
    remove_unread(kit, table)
    return table_case(case, kind, EXTENSION, metadata_of(table.metadata_location)) | _NEEDS | rows | listed


def _with(recipe: Recipe, properties: dict[str, str]) -> Recipe:
    return replace(recipe, properties={**recipe.properties, **properties})


def _column_entries(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Column KEKs, and the column keys under them."""
    keks = [each for each in metadata["encryption-keys"] if each["encrypted-by-id"] == COLUMN_KEY_ID]
    of_keks = {each["key-id"] for each in keks}
    return [*keks, *(each for each in metadata["encryption-keys"] if each["encrypted-by-id"] in of_keks)]


def _without_entries(metadata: dict[str, Any]) -> None:
    for entry in _column_entries(metadata):
        metadata["encryption-keys"].remove(entry)


def _without_entries_and_copies(metadata: dict[str, Any]) -> None:
    _without_entries(metadata)
    for name in [each for each in metadata["properties"] if each.startswith("encryption.column-entry.")]:
        del metadata["properties"][name]


def _flipped(metadata: dict[str, Any]) -> None:
    flip_entry(_column_entries(metadata)[-1])


def _without_declaration(metadata: dict[str, Any]) -> None:
    for name in [each for each in metadata["properties"] if each.startswith(_PROPERTY)]:
        del metadata["properties"][name]


def _of_another_column(metadata: dict[str, Any]) -> None:
    """Say of the protection that it is that of `note`."""
    for name in [each for each in metadata["properties"] if each.startswith(_PROPERTY)]:
        metadata["properties"][name.replace(_PROPERTY, "encryption.column.3.")] = metadata["properties"].pop(name)


def _under_the_tables_key(metadata: dict[str, Any]) -> None:
    metadata["properties"][f"{_PROPERTY}key-id"] = KEY_ID


def _kek_under_the_tables_key(metadata: dict[str, Any]) -> None:
    for entry in _column_entries(metadata):
        if entry["encrypted-by-id"] == COLUMN_KEY_ID:
            entry["encrypted-by-id"] = KEY_ID


FORGERIES: Final[dict[str, tuple[tuple[str, ...], Callable[[Scene], object]]]] = {
    "declaration-removed": (("key-id", "format", "tampered"), lambda at: at.edit(_without_declaration)),
    "declaration-of-another-column": (("key-id", "format", "tampered", "key"), lambda at: at.edit(_of_another_column)),
    "declaration-names-the-tables-key": (("key-id", "format", "key"), lambda at: at.edit(_under_the_tables_key)),
    "kek-said-to-be-under-the-tables-key": (("key-id", "format", "key", "tampered"), lambda at: at.edit(_kek_under_the_tables_key)),
    "entries-removed": (("key", "key-id"), lambda at: at.edit(_without_entries_and_copies)),
    "column-key-flipped-bit": (("tampered",), lambda at: at.edit(_flipped)),
    "files-exchanged": (("tampered",), lambda at: exchange(*at.data())),
}
_ROW_GROUPS: Final = Recipe(
    "row-groups",
    EXTENSION,
    lambda table: table.append(rows_of(1000, 1010)),
    properties={"write.parquet.row-group-limit": "1000"},
    appends=0,
)
_APPENDS: Final = next(each for each in RECIPES if each.name == "appends")
