"""A table with the protected column `team`, and the catalogs of three clients of it with key files of their own, for other processes too.

payroll    may use every key
analyst    may use the table's key alone
clerk      may use the table's key and that of another column
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tablecrypt import load_catalog
from tests.support.protected_tables import COLUMN_KEY, OTHER_COLUMN_KEY, TABLE_KEY
from tests.support.tables import TEAM_SCHEMA, key_file_kms, new_table, rows

NAME: Final = "db.people"


def table_of_three(folder: Path) -> dict[str, dict[str, str]]:
    """Make the table, with 20 rows in one file, and return the properties of each client's catalog."""
    kms = key_file_kms(folder / "payroll.json", TABLE_KEY, COLUMN_KEY, OTHER_COLUMN_KEY)
    place = {"type": "tablecrypt", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    files = {
        "payroll": folder / "payroll.json",
        "analyst": _without_keys(folder / "payroll.json", "analyst", COLUMN_KEY, OTHER_COLUMN_KEY),
        "clerk": _without_keys(folder / "payroll.json", "clerk", COLUMN_KEY),
    }
    clients = {who: {**place, **kms, "kms.local.key-file": str(file)} for who, file in files.items()}

    payroll = load_catalog("prod", **clients["payroll"])
    payroll.create_namespace("db")
    properties = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": f"{COLUMN_KEY}: team"}
    new_table(payroll, NAME, schema=TEAM_SCHEMA, appends=[rows(0, 20, TEAM_SCHEMA)], properties=properties)
    return clients


def _without_keys(key_file: Path, who: str, *lacking: str) -> Path:
    """The same key file with fewer keys."""
    held = json.loads(key_file.read_text())
    for key in lacking:
        del held["keys"][key]
    lesser = key_file.with_name(f"{who}.json")
    lesser.touch(0o600)
    lesser.write_text(json.dumps(held))
    return lesser
