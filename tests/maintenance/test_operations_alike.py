"""What all operations have in common: a dry run that changes nothing, progress up to the whole, and results in JSON without a key."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.table import Table

from tablecrypt import maintenance as m
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import Progress, ProgressListener
from tablecrypt.maintenance.operation import Counted, no_progress
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.tables import MASTER_KEY, SCHEMA, encrypted_sql_catalog, metadata_of, rows

Operation = Callable[[Table, bool, ProgressListener], Any]

OPERATIONS: Final[dict[str, Operation]] = {
    "rotate_kek": lambda table, dry_run, heard: m.rotate_kek(table, dry_run=dry_run, progress=heard),
    "rewrap": lambda table, dry_run, heard: m.rewrap(table, dry_run=dry_run, progress=heard),
    "prune_keys": lambda table, dry_run, heard: m.prune_keys(table, dry_run=dry_run, progress=heard),
    "reencrypt": lambda table, dry_run, heard: m.reencrypt(table, dry_run=dry_run, progress=heard),
    "compact": lambda table, dry_run, heard: m.compact(table, rewrite_all=True, dry_run=dry_run, progress=heard),
    "erase": lambda table, dry_run, heard: m.erase(table, "id = 5", dry_run=dry_run, progress=heard),
    "rescue": lambda table, dry_run, heard: m.rescue(table, dry_run=dry_run, progress=heard),
    "relocate": lambda table, dry_run, heard: m.relocate(table, f"{table.location()}-copy", dry_run=dry_run, progress=heard),
    "shred": lambda table, dry_run, heard: m.shred(table, [first_of(table)], dry_run=dry_run, progress=heard),
}


def first_of(table: Table) -> int:
    return table.snapshots()[0].snapshot_id


def stored(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_dry_run_changes_no_byte_of_storage_and_catalog_and_says_that_it_was_one(table: Table, tmp_path: Path, operation: str) -> None:
    before = stored(tmp_path)
    result = OPERATIONS[operation](table, True, no_progress)
    assert stored(tmp_path) == before
    assert (result.table, result.dry_run) == ("db.t", True)


@pytest.mark.parametrize("look", [m.audit, m.verify])
def test_who_only_looks_changes_no_byte(table: Table, tmp_path: Path, look: Callable[[Table], Any]) -> None:
    before = stored(tmp_path)
    look(table)
    assert stored(tmp_path) == before


@pytest.mark.parametrize("operation", [*OPERATIONS, "verify", "remove_orphan_files"])
def test_a_plain_table_is_refused(catalog: EncryptedSqlCatalog, operation: str) -> None:
    plain = catalog.create_table("db.plain", SCHEMA)
    plain.append(rows(0))
    with pytest.raises(ConfigurationError, match=r"db\.plain is not an encrypted table"):
        OPERATIONS[operation](plain, False, no_progress) if operation in OPERATIONS else getattr(m, operation)(plain)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_progress_grows_to_the_whole_and_the_result_is_json_without_a_key(table: Table, operation: str) -> None:
    heard: list[Progress] = []
    result = OPERATIONS[operation](table, False, heard.append)
    phases = {step.operation for step in heard}
    assert phases
    for phase in phases:
        steps = [step for step in heard if step.operation == phase]
        assert [step.done for step in steps] == sorted(step.done for step in steps)
        assert steps[-1].done == steps[-1].total
    assert json.loads(json.dumps(result.to_json()))["dry_run"] is False
    assert pickle.loads(pickle.dumps(result)) == result
    wrapped = [key.encrypted_key_metadata for key in metadata_of(table).encryption_keys]
    assert not any(each in repr(result) or each in json.dumps(result.to_json()) for each in wrapped)


def test_migrations_and_orphans_have_results_of_the_same_kind(unwatched_warehouse: Path, aws: AwsServer) -> None:
    plain = encrypted_sql_catalog(unwatched_warehouse, aws).create_table("db.plain", SCHEMA)
    plain.append(rows(0))
    planned, done = m.migrate(plain, MASTER_KEY, dry_run=True), m.migrate(plain, MASTER_KEY)
    assert (planned.table, planned.dry_run, done.dry_run) == ("db.plain", True, False)
    assert json.loads(json.dumps(done.to_json()))["left"][0]["what"]
    found = m.remove_orphan_files(plain.catalog.load_table("db.plain"))
    assert json.loads(json.dumps(found.to_json())) == {
        "table": "db.plain",
        "dry_run": True,
        "found": [],
        "deleted": [],
        "failed": {},
        "refused": {},
        "known_elsewhere": [],
    }


def test_a_phase_that_begins_anew_is_told_of_where_it_comes_further() -> None:
    heard: list[Progress] = []
    counted = Counted("rotate_kek", "keys", heard.append)
    for keys in (["a", "b"], ["a", "b", "c"]):
        list(counted.track(keys))
    assert [(step.done, step.total) for step in heard] == [(0, 2), (1, 2), (2, 2), (3, 3)]
