"""A table that another writer gave encryption.key-id without encrypting it: audits say so, `migrate` takes it, nothing else opens it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tablecrypt.errors import ConfigurationError, PlaintextRefusedError
from tablecrypt.maintenance import audit, migrate, reencrypt, remove_orphan_files, verify
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.command import Command
from tests.support.edited_metadata import edited
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog, folder_of, new_table, unpinned_catalog

pytestmark = pytest.mark.slow
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def catalog(unwatched_warehouse: Path, aws: AwsServer) -> Catalog:
    """Our catalog, whose database holds a table that PyIceberg's own catalog made."""
    ours = encrypted_sql_catalog(unwatched_warehouse, aws)
    plain = SqlCatalog("prod", uri=str(ours.properties["uri"]), warehouse=str(ours.properties["warehouse"]))
    plain.create_table("db.t", ROWS.schema, properties={"encryption.key-id": MASTER_KEY}).append(ROWS)
    return ours


def command_of(catalog: Catalog) -> Command:
    return Command.of(catalog)


def test_it_is_refused_to_everybody_else(catalog: Catalog) -> None:
    with pytest.raises(PlaintextRefusedError, match="migrate"):
        catalog.load_table("db.t")
    with pytest.raises(PlaintextRefusedError):
        catalog.load_unencrypted("db.t").append(ROWS)  # type: ignore[attr-defined]


def test_an_audit_of_the_catalog_or_the_table_finds_plaintext(catalog: Catalog) -> None:
    for target in (catalog, catalog.load_unencrypted("db.t")):  # type: ignore[attr-defined]
        found = audit(target)
        assert found.has_plaintext
        assert found.to_json()["plaintext"] is True
    command = command_of(catalog)
    for named in ((), ("db.t",)):
        done = command.run("audit", *named, "--json", "--fail-on", "critical")
        assert (done.code, json.loads(done.stdout)["plaintext"]) == (1, True)


def test_a_migration_takes_it(catalog: Catalog) -> None:
    with pytest.raises(ConfigurationError, match="under alias/orders"):
        migrate(catalog.load_unencrypted("db.t"), "alias/another")  # type: ignore[attr-defined]

    planned = migrate(catalog.load_unencrypted("db.t"), MASTER_KEY, dry_run=True)  # type: ignore[attr-defined]
    done = migrate(catalog.load_unencrypted("db.t"), MASTER_KEY)  # type: ignore[attr-defined]

    assert (planned.files, planned.deleted, planned.refused) == (done.files, done.deleted, done.refused)
    table = catalog.load_table("db.t")
    assert table.scan().to_arrow() == ROWS
    assert not audit(table).has_plaintext or {each.kind.code for each in audit(table).findings} <= {
        "stale-plaintext-metadata",
        "plain-metadata",
    }


def test_files_of_others_stay_unless_their_folder_is_named(catalog: Catalog, unwatched_warehouse: Path) -> None:
    import pyarrow.parquet as pq

    sources = [unwatched_warehouse / "elsewhere" / name for name in ("a.parquet", "b.parquet")]
    sources[0].parent.mkdir()
    for name, source in zip(("one", "two"), sources, strict=True):
        pq.write_table(ROWS, source)
        catalog.create_table(f"db.{name}", ROWS.schema).add_files([f"file://{source}"])

    planned = migrate(catalog.load_table("db.one"), MASTER_KEY, dry_run=True)
    done = migrate(catalog.load_table("db.one"), MASTER_KEY)
    assert planned.refused == done.refused and set(done.refused) == {f"file://{sources[0]}"}
    assert planned.deleted == done.deleted
    assert f"file://{sources[0]}" in {each.location for each in done.left}
    assert sorted(sources[0].parent.iterdir()) == sources, "no ciphertext in the folder of others, and no file of theirs is gone"
    assert catalog.load_table("db.one").scan().to_arrow() == ROWS

    folder = f"file://{sources[1].parent}"
    planned = migrate(catalog.load_table("db.two"), MASTER_KEY, dry_run=True, delete_below=[folder])
    done = migrate(catalog.load_table("db.two"), MASTER_KEY, delete_below=[folder])
    assert (planned.deleted, planned.refused) == (done.deleted, done.refused) == (done.deleted, {})
    assert not sources[1].exists() and sources[0].exists()


def test_create_if_not_exists_returns_an_intact_table(catalog: Catalog) -> None:
    made = catalog.create_table("db.orders", ROWS.schema, properties={"encryption.key-id": MASTER_KEY})
    for asked in ({}, {"encryption.key-id": MASTER_KEY}):
        found = catalog.create_table_if_not_exists("db.orders", ROWS.schema, properties=asked)
        assert found.metadata.table_uuid == made.metadata.table_uuid
    with pytest.raises(ConfigurationError, match="there already"):
        catalog.create_table_if_not_exists("db.orders", ROWS.schema, properties={"encryption.key-id": "alias/another"})


def _make_version_3(metadata: dict[str, Any]) -> None:
    """As another program does that knows nothing of keys, and sets any property: its snapshots have no key-id."""
    metadata.update({"format-version": 3, "next-row-id": ROWS.num_rows})
    metadata["properties"]["encryption.key-id"] = MASTER_KEY
    metadata["snapshots"][0].update({"first-row-id": 0, "added-rows": ROWS.num_rows})


@pytest.fixture
def plain_version_3(unwatched_warehouse: Path, aws: AwsServer) -> Table:
    table = unpinned_catalog(unwatched_warehouse, aws).create_table("db.v3", ROWS.schema, properties={"format-version": "2"})
    table.append(ROWS)
    return edited(table, _make_version_3)


VERSION_3_USES: dict[str, Callable[[Table], object]] = {
    "scan": lambda table: table.scan().to_arrow(),
    "count": lambda table: table.scan().count(),
    "append": lambda table: table.append(ROWS),
    "delete": lambda table: table.delete("id = 1"),
    "inspect": lambda table: table.inspect.files(),
    "reencrypt": reencrypt,
    "orphans": lambda table: remove_orphan_files(table, dt.datetime.now(dt.UTC), dry_run=False, delete_below=[table.location()]),
    "migrate": lambda table: migrate(table, MASTER_KEY, delete_below=[table.location()]),
    "purge": lambda table: table.catalog.purge_files("db.v3", delete_below=[table.location()]),  # type: ignore[attr-defined]
}


def test_plain_snapshots_of_version_3_are_neither_read_nor_added_to_nor_deleted(plain_version_3: Table) -> None:
    folder = folder_of(plain_version_3)
    before = set(folder.rglob("*"))
    for use in VERSION_3_USES.values():
        with pytest.raises(PlaintextRefusedError, match="has no key-id"):
            use(plain_version_3)
    assert before <= set(folder.rglob("*"))
    assert audit(plain_version_3).has_plaintext
    assert not verify(plain_version_3).is_good


def test_plain_snapshots_of_version_3_migrate_once_the_property_is_gone(plain_version_3: Table) -> None:
    plain = edited(plain_version_3, lambda metadata: metadata["properties"].pop("encryption.key-id"))
    migrate(plain, MASTER_KEY, delete_below=[plain.location()])
    table = plain.catalog.load_table("db.v3")
    assert isinstance(table, EncryptedTable)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert not audit(table).has_plaintext


def test_verifying_nothing_does_not_say_that_all_is_well(catalog: Catalog) -> None:
    catalog.create_table("db.empty", ROWS.schema, properties={"encryption.key-id": MASTER_KEY})

    assert "nothing was verified" in command_of(catalog).run("verify", "db.empty").stdout
    assert json.loads(command_of(catalog).run("verify", "db.empty", "--json").stdout)["empty"] is True


def test_a_file_name_cannot_erase_its_finding(catalog: Catalog, unwatched_warehouse: Path) -> None:
    table = new_table(catalog, "db.shown", appends=[ROWS])
    name = "x\x1b[2K\x1b[1A\u202e.parquet"
    (folder_of(table) / "data" / name).write_bytes(b"PAR1")

    shown = command_of(catalog).run("audit", "db.shown").stdout

    assert "\x1b" not in shown and "\u202e" not in shown
    assert "x\\x1b[2K\\x1b[1A\\u202e.parquet" in shown
