"""Shares: a partner reads data files of another table with his own master key. To other readers they are ordinary tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from conformance.build.described import expected, metadata_of, remove_unread, table_case
from conformance.build.tables import KEY_ID, KEY_LENGTHS, RECIPES, build_table, kit_catalog, listed_files, read_state
from conformance.verdicts import ROOT
from tablecrypt.maintenance import share
from tests.support.tables import encrypted_table

PARTNER: Final = "alias/conformance-partner"
CLAUSE: Final = "Iceberg table spec, Encryption: a table whose files lie in another table's folder, each with its own key_metadata"


def share_cases(kit: Path) -> Iterator[dict[str, Any]]:
    """Build them."""
    for length in KEY_LENGTHS:
        yield from _read(kit, length)
    for name, (refusal, edit) in EDITS.items():
        yield _forged(kit, name, refusal, edit)


def _shared(kit: Path, name: str, length: int) -> str:
    """Build a table and its share, and return the location of the share's metadata."""
    recipe = next(each for each in RECIPES if each.name == "appends")
    source = build_table(kit, kit_catalog(kit), f"{name}-source", recipe, length)
    shared = share(source, PARTNER, f"file://{ROOT}/cases/{name}")
    for folder in (f"{name}-source", name):
        for journal in (kit / "cases" / folder / "metadata").glob("tablecrypt-*"):
            shutil.rmtree(journal)
    remove_unread(kit, source)
    return shared.metadata_location


def _read(kit: Path, length: int) -> Iterator[dict[str, Any]]:
    name = f"share-{length}"
    location = _shared(kit, name, length)
    theirs = encrypted_table(kit_catalog(kit).register_table(f"db.{name}", location))
    held, metadata = {"keys": [PARTNER]}, metadata_of(location)
    rows = expected(kit, name, read_state(theirs, {})) | listed_files(theirs, {})

    yield table_case(name, "read", CLAUSE, metadata) | held | rows
    yield (
        table_case(f"{name}-with-the-owners-key", "refuse", CLAUSE, metadata)
        | {"folder": f"cases/{name}", "keys": [KEY_ID], "refusal": ["key-denied"], "forged": "metadata"}
        | rows
    )


def _forged(kit: Path, name: str, refusal: tuple[str, ...], edit: Callable[[dict[str, Any], dict[str, Any]], object]) -> dict[str, Any]:
    case = f"forged-share-{name}-16"
    location = _shared(kit, case, 16)
    (source,) = (kit / "cases" / f"{case}-source" / "metadata").glob("*.metadata.json")
    listed = listed_files(encrypted_table(kit_catalog(kit).register_table(f"db.{case}", location)), {})
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
