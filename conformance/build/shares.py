"""Shares: a partner reads data files of another table with his own master key. To other readers they are ordinary tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from conformance.build.column_keys import COLUMN, DECLARED, EXTENSION, OTHERS
from conformance.build.described import expected, metadata_of, remove_unread, table_case
from conformance.build.tables import KEY_ID, KEY_LENGTHS, RECIPES, Recipe, build_table, kit_catalog, listed_files, read_state, rows
from conformance.verdicts import ROOT
from tablecrypt.maintenance import share
from tablecrypt.maintenance.sharing.result import Shared
from tablecrypt.table.table import EncryptedTable
from tests.support.tables import encrypted_table

PARTNER: Final = "alias/conformance-partner"
PARTNERS_COLUMN: Final = "alias/conformance-partner-column"
CLAUSE: Final = "Iceberg table spec, Encryption: a table whose files lie in another table's folder, each with its own key_metadata"


def share_cases(kit: Path) -> Iterator[dict[str, Any]]:
    """Build them."""
    for length in KEY_LENGTHS:
        read = _read(kit, f"share-{length}", length, _APPENDS, _whole)
        yield from (read, _with_the_owners_key(read))
    yield _read(kit, "share-filtered-16", 16, _APPENDS, lambda source, location: share(source, PARTNER, location, "id < 100"))
    yield _read(kit, "share-deletion-vectors-16", 16, _of("deletion-vectors"), _whole)
    yield _read(kit, "share-updated-16", 16, _APPENDS, _updated)
    yield from _with_its_column(kit)
    for name, (refusal, edit) in EDITS.items():
        yield _forged(kit, name, refusal, edit)


Share = Callable[[EncryptedTable, str], Shared]


def _of(recipe: str) -> Recipe:
    return next(each for each in RECIPES if each.name == recipe)


def _shared(kit: Path, name: str, length: int, recipe: Recipe, make: Share) -> str:
    """Build a table and its share, and return the location of the share's metadata."""
    source = build_table(kit, kit_catalog(kit), f"{name}-source", recipe, length)
    shared = make(source, f"file://{ROOT}/cases/{name}")
    for folder in (f"{name}-source", name):
        for journal in (kit / "cases" / folder / "metadata").glob("tablecrypt-*"):
            shutil.rmtree(journal)
    remove_unread(kit, source)
    return shared.metadata_location


def _registered(kit: Path, name: str, location: str) -> EncryptedTable:
    return encrypted_table(kit_catalog(kit).register_table(f"db.{name}", location))


def _whole(source: EncryptedTable, location: str) -> Shared:
    return share(source, PARTNER, location)


def _updated(source: EncryptedTable, location: str) -> Shared:
    share(source, PARTNER, location)
    source.append(rows(500, 3))
    return share(source, PARTNER, location, update=True)


def _read(kit: Path, name: str, length: int, recipe: Recipe, make: Share) -> dict[str, Any]:
    location = _shared(kit, name, length, recipe, make)
    theirs = _registered(kit, name, location)
    found = expected(kit, name, read_state(theirs, {})) | listed_files(theirs, {})
    return table_case(name, "read", CLAUSE, metadata_of(location)) | {"keys": [PARTNER]} | found


def _with_the_owners_key(read: dict[str, Any]) -> dict[str, Any]:
    """The same share, for who has the master key of the table that was shared."""
    changed = {"id": f"{read['id']}-with-the-owners-key", "kind": "refuse", "keys": [KEY_ID]}
    return read | changed | {"refusal": ["key-denied"], "forged": "metadata"}


def _with_its_column(kit: Path) -> Iterator[dict[str, Any]]:
    """A protected column is shared under a second master key of the partner's."""
    name, recipe = "share-column-keys-16", replace(_APPENDS, properties=DECLARED)
    location = _shared(kit, name, 16, recipe, lambda source, place: share(source, PARTNER, place, columns={COLUMN: PARTNERS_COLUMN}))
    theirs, metadata = _registered(kit, name, location), metadata_of(location)
    shown, listed = read_state(theirs, {}), listed_files(theirs, {})

    who: dict[str, Any] = {"keys": [PARTNER, PARTNERS_COLUMN], "needs": ["column-keys"]}
    yield table_case(name, "read", EXTENSION, metadata) | who | expected(kit, name, shown) | listed
    others, name = shown.drop_columns([COLUMN]), f"{name}-without-its-key"
    who = {"folder": "cases/share-column-keys-16", "keys": [PARTNER], "columns": others.column_names}
    yield table_case(name, "read", OTHERS, metadata) | who | expected(kit, name, others) | listed


def _forged(kit: Path, name: str, refusal: tuple[str, ...], edit: Callable[[dict[str, Any], dict[str, Any]], object]) -> dict[str, Any]:
    case = f"forged-share-{name}-16"
    location = _shared(kit, case, 16, _APPENDS, _whole)
    (source,) = (kit / "cases" / f"{case}-source" / "metadata").glob("*.metadata.json")
    listed = listed_files(_registered(kit, case, location), {})
    path = kit / metadata_of(location)
    metadata = json.loads(path.read_text())
    edit(metadata, json.loads(source.read_text()))
    path.write_text(json.dumps(metadata))
    return table_case(case, "refuse", CLAUSE, metadata_of(location)) | {
        "keys": [PARTNER],
        "refusal": list(refusal),
        "forged": "metadata",
        "rows": "cases/share-16/expected.arrow",
        **listed,
    }


def _list_of_the_source(theirs: dict[str, Any], source: dict[str, Any]) -> None:
    theirs["snapshots"][-1]["manifest-list"] = source["snapshots"][-1]["manifest-list"]


def _entries_of_the_source(theirs: dict[str, Any], source: dict[str, Any]) -> None:
    theirs["encryption-keys"] = source["encryption-keys"]


EDITS: Final[dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any], dict[str, Any]], object]]]] = {
    "list-of-the-source": (("tampered",), _list_of_the_source),
    "entries-of-the-source": (("key", "key-denied"), _entries_of_the_source),
}
_APPENDS: Final = _of("appends")
