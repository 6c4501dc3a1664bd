"""gc.enabled=false: no operation deletes or writes over a file that another table may need, in Python, on the command line or on a server.

The careless user is the adversary: each operation runs on a table whose files others may use, with each value that the property can get.
Operations that are not in the lists here fail the tests: a new one has to be put on the right side.
"""

from __future__ import annotations

import ast
import datetime as dt
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.table import Table

from tablecrypt import maintenance as m
from tablecrypt.cli.commands import TABLE_COMMANDS
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance._storage import refused_deletion
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.command import Command
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace
from tests.support.tables import MASTER_KEY, SCHEMA, encrypted_sql_catalog, folder_of, rows

ROOT: Final = Path(__file__).parents[2]
LATER: Final = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
REASON: Final = r"GC is disabled \(gc\.enabled='false'\): deleting files may corrupt other tables"
Operation = Callable[[Table], Any]


def compared(table: Table) -> m.AuditChanges:
    earlier = json.dumps(m.audit(table).to_json())
    return m.changes_since(m.audit(table), earlier)


DELETES: Final[dict[str, Operation]] = {
    "remove_orphan_files": lambda table: m.remove_orphan_files(table, LATER, dry_run=False),
    "erase": lambda table: m.erase(table, "id = 5"),
    "shred": lambda table: m.shred(table, [table.snapshots()[0].snapshot_id]),
    "shred_column": lambda table: m.shred_column(table, "note"),
    "migrate": lambda table: m.migrate(table, MASTER_KEY),
}
"""Of tablecrypt.maintenance. `migrate` is of a plain table."""
ALSO_DELETE: Final[dict[str, Operation]] = {
    "shred of a whole table": lambda table: m.shred(table, whole_table="db.t"),
    "expire_snapshots": lambda table: expire_snapshots(table, LATER),
    "PyIceberg's expire_snapshots": lambda table: table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit(),
    "purge_table": lambda table: table.catalog.purge_table("db.t"),
    "purge_files": lambda table: of_own(table).purge_files("db.t", delete_below=[table.location()]),
    "purge of a plain table": lambda table: table.catalog.purge_table("db.plain"),
}
DRY_RUNS: Final[dict[str, Operation]] = {
    "remove_orphan_files": lambda table: m.remove_orphan_files(table, LATER),
    "erase": lambda table: m.erase(table, "id = 5", dry_run=True),
    "shred": lambda table: m.shred(table, [table.snapshots()[0].snapshot_id], dry_run=True),
    "shred_column": lambda table: m.shred_column(table, "note", dry_run=True),
    "expire_snapshots": lambda table: expire_snapshots(table, LATER, dry_run=True),
    "migrate": lambda table: m.migrate(table.catalog.load_table("db.plain"), MASTER_KEY, dry_run=True),
}


def moved(table: Table) -> object:
    """The table is shared, and the share moves to its next state."""
    place = f"{table.location()}-moved"
    first = m.share(table, "alias/people", place, "id < 5", rewrite=True)
    theirs = table.catalog.register_table("db.moved", first.metadata_location)
    return m.accept_update(theirs, m.share(table, "alias/people", place, "id < 6", rewrite=True, update=True).metadata_location)


KEEPS: Final[dict[str, Operation]] = {
    "accept_update": moved,
    "audit": m.audit,
    "changes_since": compared,
    "compact": lambda table: m.compact(table, rewrite_all=True),
    "describe": m.describe,
    "doctor": lambda table: m.doctor(table.catalog, "db.t"),
    "doctor_without_catalog": lambda table: m.doctor_without_catalog("prod", ConfigurationError("no catalog")),
    "inspect": m.inspect,
    "list_tables": lambda table: m.list_tables(table.catalog),
    "on_tables": lambda table: m.on_tables(table.catalog, m.rotate_kek),
    "prune_keys": m.prune_keys,
    "reencrypt": m.reencrypt,
    "relocate": lambda table: m.relocate(table, f"{table.location()}-copy"),
    "rescue": m.rescue,
    "rewrap": m.rewrap,
    "rewrap_column_keks": m.rewrap_column_keks,
    "rotate_column_keks": m.rotate_column_keks,
    "rotate_kek": m.rotate_kek,
    "share": lambda table: m.share(table, "alias/people", f"{table.location()}-share"),
    "shares": m.shares,
    "unshare": lambda table: m.unshare(table, m.share(table, "alias/people", f"{table.location()}-ended").share_uuid),
    "verify": m.verify,
    "write_evidence": lambda table: m.write_evidence(m.audit(table), folder_of(table).parent / "evidence.zip"),
}
COMMANDS_THAT_DELETE: Final = (
    ("orphans", "db.t", "--older-than", "0d", "--yes"),
    ("erase", "db.t", "--where", "id = 5", "--yes"),
    ("shred", "db.t", "--whole-table", "db.t", "--yes"),
    ("shred", "db.t", "--column", "note", "--yes"),
    ("migrate", "db.plain", "--key-id", MASTER_KEY, "--yes"),
)
COMMANDS_THAT_KEEP: Final = {
    "list",
    "describe",
    "doctor",
    "audit",
    "verify",
    "inspect",
    "cat",
    "compact",
    "relocate",
    "share",
    "shares",
} | {*("rotate-kek", "rewrap", "prune-keys", "reencrypt", "rescue", "unshare", "accept-update")}
WHERE_FILES_ARE_DELETED: Final = {
    "tablecrypt/files/encrypting_file_io.py": "the one way to the store; it asks which files are the table's",
    "tablecrypt/files/raw_output.py": "a file of its own that it did not finish",
    "tablecrypt/maintenance/_doctor/check_up.py": "its own probe",
    "tablecrypt/maintenance/_file_rewrite.py": "its own journal, which is committed",
    "tablecrypt/maintenance/_storage.py": "checksums of a file that is gone, or another one now; refused_deletion, for others of these",
    "tablecrypt/maintenance/sharing/unshare.py": "metadata of a share that ends, and no file of the table",
    "tablecrypt/spark/shared/coordinator.py": "files of a write that is not committed",
    "tablecrypt/table/table_files.py": "files of a write that is not committed",
    "tablecrypt/table/metadata.py": "a metadata.json of its own that it did not finish",
    "tablecrypt/maintenance/_migrate/plaintext.py": "migrate",
    "tablecrypt/maintenance/_orphan_files.py": "remove_orphan_files",
    "tablecrypt/maintenance/_shred_scrub.py": "shred, shred_column",
    "tablecrypt/maintenance/erasure/removal.py": "erase",
    "tablecrypt/maintenance/sharing/states.py": "older metadata of a share, of which the table's files are no part",
    "tablecrypt/maintenance/expiry.py": "expire_snapshots",
    "catalog/tablecrypt_catalog/_pyiceberg/metastore.py": "the metadata.json of its own commit, which was refused",
    "catalog/tablecrypt_catalog/purge.py": "purge_table, purge_files",
}


def of_own(table: Table) -> EncryptedSqlCatalog:
    assert isinstance(table.catalog, EncryptedSqlCatalog)
    return table.catalog


@pytest.fixture
def catalog(unwatched_warehouse: Path, aws: AwsServer) -> EncryptedSqlCatalog:
    return encrypted_sql_catalog(unwatched_warehouse, aws)


@pytest.fixture
def table(catalog: EncryptedSqlCatalog, aws: AwsServer) -> Table:
    """A table with a protected column, deleted rows and an orphan, and the plain table db.plain beside it."""
    disabled = {"gc.enabled": "false", "write.delete.mode": "merge-on-read"}
    plain = catalog.create_table("db.plain", SCHEMA, properties=disabled)
    plain.append(rows(0))
    declared = {"encryption.key-id": MASTER_KEY, "encryption.column-keys": f"{aws.new_key()}: note"}
    table = catalog.create_table("db.t", SCHEMA, properties={**disabled, **declared})
    for first in (0, 100):
        table.append(rows(first))
    table.delete("id = 3")
    (folder_of(table) / "data" / "left-over.parquet").write_bytes(b"left over")
    return table


@pytest.fixture
def command(catalog: EncryptedSqlCatalog) -> Command:
    return Command.of(catalog)


def stored(folder: Path) -> dict[Path, bytes]:
    """Every file of the tables, and their catalog."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-journal", "-wal"))}


def target(table: Table, name: str) -> Table:
    return table.catalog.load_table("db.plain") if name == "migrate" else table


@pytest.mark.parametrize("operation", [*DELETES, *ALSO_DELETE])
def test_what_deletes_files_is_refused_before_anything_changes(table: Table, unwatched_warehouse: Path, operation: str) -> None:
    before = stored(unwatched_warehouse)

    with pytest.raises(ConfigurationError, match=REASON) as refused:
        {**DELETES, **ALSO_DELETE}[operation](target(table, operation))

    assert "set gc.enabled=true" in str(refused.value) and "\n" not in str(refused.value)
    assert stored(unwatched_warehouse) == before
    assert {table.catalog.load_table(name).name() for name in ("db.t", "db.plain")} == {("db", "t"), ("db", "plain")}


@pytest.mark.parametrize("operation", DRY_RUNS)
def test_a_dry_run_says_what_would_go(table: Table, unwatched_warehouse: Path, operation: str) -> None:
    before = stored(unwatched_warehouse)
    assert DRY_RUNS[operation](table).dry_run
    assert stored(unwatched_warehouse) == before


@pytest.mark.parametrize("operation", KEEPS)
def test_what_deletes_no_files_goes_on(table: Table, operation: str) -> None:
    folder = folder_of(table)
    before = stored(folder)

    KEEPS[operation](table)

    assert {path: stored(folder).get(path) for path in before} == before


def test_a_migration_that_keeps_plaintext_goes_on(table: Table, unwatched_warehouse: Path) -> None:
    plain = table.catalog.load_table("db.plain")
    folder = folder_of(plain)
    before = stored(folder)
    with pytest.raises(ConfigurationError, match=r"keep them: keep_plaintext=True \(--keep-plaintext\)"):
        m.migrate(plain, MASTER_KEY)

    m.migrate(plain, MASTER_KEY, keep_plaintext=True)

    assert {path: stored(folder).get(path) for path in before} == before
    with pytest.raises(ConfigurationError, match=REASON):
        m.migrate(plain, MASTER_KEY)


@pytest.mark.parametrize("value", ["False", "no", "OFF", "0"])
def test_every_word_for_off_stops_deletion(table: Table, value: str) -> None:
    table.transaction().set_properties({"gc.enabled": value}).commit_transaction()
    with pytest.raises(ConfigurationError, match=rf"GC is disabled \(gc\.enabled='{value}'\)"):
        m.remove_orphan_files(table, LATER, dry_run=False)


@pytest.mark.parametrize("value", ["true", "TRUE", "yes", None])
def test_with_gc_enabled_files_go(table: Table, value: str | None) -> None:
    with table.transaction() as transaction:
        if value is None:
            transaction.remove_properties("gc.enabled")
        else:
            transaction.set_properties({"gc.enabled": value})
    assert m.remove_orphan_files(table, LATER, dry_run=False).deleted
    table.catalog.purge_table("db.t")
    assert not table.catalog.table_exists("db.t")


def test_a_stale_table_is_refused_as_the_catalog_has_it_now(catalog: EncryptedSqlCatalog, table: Table) -> None:
    table.transaction().set_properties({"gc.enabled": "true"}).commit_transaction()
    stale = catalog.load_table("db.t")
    table.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    for operation in (DELETES["remove_orphan_files"], DELETES["shred"], ALSO_DELETE["expire_snapshots"]):
        with pytest.raises(ConfigurationError, match=REASON):
            operation(stale)


def test_older_metadata_goes_after_a_commit_as_in_iceberg_java(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"})
    for number in range(3):
        table.append(rows(200 + number, 1))
    kept = list((folder_of(table) / "metadata").glob("*.metadata.json"))
    assert len([path for path in kept if path.name >= Path(table.metadata.metadata_log[0].metadata_file).name]) == 2


@pytest.mark.parametrize("given", COMMANDS_THAT_DELETE, ids=" ".join)
def test_commands_are_refused(command: Command, table: Table, unwatched_warehouse: Path, given: tuple[str, ...]) -> None:
    before = stored(unwatched_warehouse)
    done = command.run(*given)
    assert done.code != 0 and "GC is disabled (gc.enabled='false')" in done.stderr
    assert stored(unwatched_warehouse) == before


@pytest.mark.java
def test_a_servers_tables_are_not_purged(rest_server: RestServer, aws: AwsServer) -> None:
    catalog, namespace = encrypted_rest_catalog(rest_server.uri, aws), new_namespace(rest_server)
    for name, properties in (("t", {"encryption.key-id": MASTER_KEY}), ("plain", {})):
        table = catalog.create_table(f"{namespace}.{name}", SCHEMA, properties={**properties, "gc.enabled": "false"})
        table.append(rows(0))
        for purge in (lambda name: catalog.drop_table(name, purge_requested=True), catalog.purge_table):
            with pytest.raises(ConfigurationError, match=REASON):
                purge(f"{namespace}.{name}")
        assert catalog.load_table(f"{namespace}.{name}").scan().to_arrow().num_rows == 20
        catalog.drop_table(f"{namespace}.{name}")


def test_no_operation_is_missing_from_these_lists() -> None:
    functions = {name for name in m.__all__ if inspect.isfunction(getattr(m, name))}
    assert functions == DELETES.keys() | KEEPS.keys() and not DELETES.keys() & KEEPS.keys()
    assert TABLE_COMMANDS.keys() == {command for command, *_ in COMMANDS_THAT_DELETE} | COMMANDS_THAT_KEEP


def test_no_other_module_deletes_files() -> None:
    found = set()
    for package in ("tablecrypt", "catalog/tablecrypt_catalog"):
        for path in (ROOT / package).rglob("*.py"):
            calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            if any(map(_deletes, calls)):
                found.add(str(path.relative_to(ROOT)))
    assert found == WHERE_FILES_ARE_DELETED.keys()


def _deletes(call: ast.expr) -> bool:
    """Whether what is called deletes files: by its name, or that of the FileIO that is asked."""
    if isinstance(call, ast.Name):
        return call.id == refused_deletion.__name__
    if not isinstance(call, ast.Attribute) or call.attr not in ("delete", "delete_new"):
        return False
    receiver = call.value.attr if isinstance(call.value, ast.Attribute) else call.value.id if isinstance(call.value, ast.Name) else ""
    return receiver.strip("_") in ("io", "inner", "encrypting")
