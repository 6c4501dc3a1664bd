"""`python -m conformance.build [FOLDER]`: write every case below FOLDER/cases, and FOLDER/manifest.json. FOLDER is this one by default."""

from __future__ import annotations

# First of all, before anything of tablecrypt or PyIceberg.
from conformance.build.fixed import FIXED  # isort: skip

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from conformance.build.column_keys import column_key_cases
from conformance.build.described import expected, expected_once, metadata_of, remove_unread, table_case
from conformance.build.files import FileCase, every_file
from conformance.build.forged_tables import FORGERIES, Forgery, Scene, recipe_of
from conformance.build.shares import share_cases
from conformance.build.tables import RECIPES, Recipe, build_table, kit_catalog, listed_files, read_state
from conformance.build.writes import every_write
from conformance.rows import digest

KIT = Path(__file__).parents[1]


def build(kit: Path) -> int:
    """Write the kit; return the number of its cases."""
    shutil.rmtree(kit / "cases", ignore_errors=True)
    (kit / "cases").mkdir(parents=True)
    if kit != KIT:
        shutil.copy(KIT / "keys.json", kit / "keys.json")
    cases = [
        *(_table(kit, recipe, length) for recipe in RECIPES for length in recipe.key_lengths),
        *(_forged(kit, forgery, length) for forgery in FORGERIES for length in forgery.key_lengths),
        _rolled_back(kit),
        *share_cases(kit),
        *column_key_cases(kit),
        *(_file(kit, case) for case in every_file()),
        *every_write(kit),
    ]
    (kit / "manifest.json").write_text(json.dumps({"format": 1, "cases": cases}, indent=1) + "\n")
    return len(cases)


def _table(kit: Path, recipe: Recipe, length: int) -> dict[str, Any]:
    name = f"{recipe.name}-{length}"
    table = build_table(kit, kit_catalog(kit), name, recipe, length)
    state = recipe.read(table)
    rows, listed = read_state(table, state), listed_files(table, state)
    remove_unread(kit, table)
    return table_case(name, "read", recipe.clause, metadata_of(table.metadata_location)) | state | expected(kit, name, rows) | listed


def _forged(kit: Path, forgery: Forgery, length: int) -> dict[str, Any]:
    name = f"forged-{forgery.name}-{length}"
    recipe, catalog = recipe_of(forgery), kit_catalog(kit)
    table = build_table(kit, catalog, name, recipe, length)
    neighbour = build_table(kit, catalog, f"{name}-neighbour", recipe, length)
    listed = listed_files(table, {})
    forgery.forge(Scene(kit, table, neighbour))
    shutil.rmtree(kit / "cases" / f"{name}-neighbour")
    remove_unread(kit, table)
    return table_case(name, "refuse", forgery.clause, metadata_of(table.metadata_location)) | {
        "refusal": list(forgery.refusal),
        "forged": forgery.forged,
        "rows": f"cases/{recipe.name}-{length}/expected.arrow",
        **listed,
        **({"needs": list(forgery.needs)} if forgery.needs else {}),
    }


def _rolled_back(kit: Path) -> dict[str, Any]:
    """The reader sees the newest metadata, and afterwards the file of the same name with what an older one says."""
    name = "rolled-back-metadata-16"
    table = build_table(kit, kit_catalog(kit), name, RECIPES[0], 16)
    older = table.metadata.metadata_log[-1].metadata_file
    clause = "Iceberg table spec, Encryption: metadata.json is not authenticated"
    seen = {"seen_before": metadata_of(table.metadata_location), "refusal": ["rollback"], "needs": ["pins"]}
    return table_case(name, "refuse", clause, metadata_of(older)) | seen


def _file(kit: Path, case: FileCase) -> dict[str, Any]:
    folder = kit / "cases" / case.name
    folder.mkdir()
    if case.first_of is None:
        (folder / "file").write_bytes(case.data)
    kind = "refuse" if case.refusal else "read"
    described_case: dict[str, Any] = {"id": case.name, "level": case.level, "kind": kind, "clause": case.clause}
    described_case |= {"folder": f"cases/{case.name}", "file": f"cases/{case.name}/file", **case.opening}
    if case.first_of is not None:
        described_case["made_of"] = {"file": f"cases/{case.first_of}/file", "first": len(case.data)}
    if case.needs:
        described_case["needs"] = list(case.needs)
    if case.refusal:
        described_case["refusal"] = list(case.refusal)
    if case.rows is not None:
        described_case["columns"] = case.rows.column_names
        described_case |= expected(kit, case.name, case.rows) if case.has_own_rows else expected_once(kit, case.rows)
    if case.plaintext is None:
        return described_case
    return described_case | {"plaintext": digest(case.plaintext)}


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else KIT
    print(f"{build(target)} cases in {target}")
    FIXED.begin("")
