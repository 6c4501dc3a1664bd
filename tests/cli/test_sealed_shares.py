"""A partner makes a key pair, gets a share that is sealed to it, and accepts that under his own master key: all by commands."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.command import Command, run
from tests.support.tables import ids, key_file_kms, new_table, rows


def catalog_in(folder: Path, key_id: str) -> tuple[Command, EncryptedSqlCatalog]:
    folder.mkdir()
    kms = key_file_kms(folder / "a.keys", key_id)
    properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse", **kms}
    catalog = EncryptedSqlCatalog("prod", **properties)
    catalog.create_namespace("db")
    return Command({"py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog", **properties}), catalog


def test_a_share_goes_from_one_organisation_to_another_that_share_no_key_service(unwatched_warehouse: Path) -> None:
    folder = unwatched_warehouse
    ours, catalog = catalog_in(folder / "ours", "orders")
    theirs, other = catalog_in(folder / "theirs", "lake")
    table = new_table(catalog, appends=[rows(0)], properties={"encryption.key-id": "orders"})

    made = run("share-keygen", str(folder / "mine.key"), "--json")
    shared = ours.run("share", "db.t", "--to", f"public-key:{folder}/mine.key.pub", "--location", f"file://{folder}/share", "--json")
    metadata = json.loads(shared.stdout)["metadata_location"]
    options = ("--key-file", str(folder / "mine.key"), "--to", "lake", "--location", f"file://{folder}/accepted", "--json")
    accepted = theirs.run("accept", metadata, *options)

    assert (made.code, shared.code, accepted.code) == (0, 0, 0), (made.stderr, shared.stderr, accepted.stderr)
    assert stat.S_IMODE((folder / "mine.key").stat().st_mode) == 0o600
    assert json.loads(made.stdout)["key_id"] == json.loads(shared.stdout)["to_key_id"]
    location = json.loads(accepted.stdout)["metadata_location"]
    assert ids(other.register_table("db.share", location)) == ids(table)
    assert theirs.run("accept", metadata, *options).code == 2

    table.append(rows(100))
    again = ours.run(
        "share", "db.t", "--to", f"public-key:{folder}/mine.key.pub", "--location", f"file://{folder}/share", "--update", "--json"
    )
    moved = theirs.run("accept-update", "db.share", json.loads(again.stdout)["metadata_location"], "--key-file", str(folder / "mine.key"))
    assert moved.code == 0, moved.stderr
    assert ids(other.load_table("db.share")) == ids(table.refresh())
    older = theirs.run("accept-update", "db.share", metadata, "--key-file", str(folder / "mine.key"))
    assert (older.code, "older state" in older.stderr) == (2, True)
    catalog.close()
    other.close()


@pytest.mark.parametrize(("given", "said"), [("total", "is not COLUMN=KEY"), ("=k", "is not COLUMN=KEY"), ("note=", "is not COLUMN=KEY")])
def test_a_column_without_a_key_is_refused_by_the_command(given: str, said: str, unwatched_warehouse: Path) -> None:
    ours, catalog = catalog_in(unwatched_warehouse / "ours", "orders")
    done = ours.run("share", "db.t", "--to", "lake", "--location", "file:///nowhere", "--column", given)
    twice = ours.run("share", "db.t", "--to", "lake", "--location", "file:///nowhere", "--column", "note=a", "--column", "note=b")

    assert (done.code, said in done.stderr) == (2, True)
    assert (twice.code, "note is named twice" in twice.stderr) == (2, True)
    catalog.close()
