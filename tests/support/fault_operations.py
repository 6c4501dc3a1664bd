"""Every operation that changes a table, as data: what it begins from, what it does, and what may be there after it failed.

What an interrupted operation leaves is decided by two views of the scene, taken where nothing failed: one before, one after. An operation
that is one commit leaves one of them. A run again must end in the second, unless rows would be written twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.types import LongType

from tablecrypt.maintenance import compact, migrate, prune_keys, reencrypt, relocate, rescue, rewrap, rotate_kek, shred
from tablecrypt.table.metadata import write_metadata_file
from tests.support.fault_scene import Scene
from tests.support.plaintext import findings
from tests.support.tables import MASTER_KEY, SCHEMA, metadata_of, path_of, rows, table_with_history

Views = dict[str, Any]


def _history(scene: Scene) -> None:
    table_with_history(scene.catalog(), "db.t")


def _copy_on_write(scene: Scene) -> None:
    _history(scene)
    scene.table().transaction().set_properties({"write.delete.mode": "copy-on-write"}).commit_transaction()


def _stray_keys(scene: Scene) -> None:
    """Two snapshots expired as Iceberg Java does: their keys stay."""
    _history(scene)
    table = scene.table()
    transaction = table.transaction()
    gone = [each.snapshot_id for each in table.snapshots()[:2]]
    transaction.apply((RemoveSnapshotsUpdate(snapshot_ids=gone),))  # type: ignore[attr-defined]
    transaction.commit_transaction()


def _lost_keys(scene: Scene) -> None:
    """The KEK is gone from the newest metadata, as another tool would lose it."""
    _history(scene)
    table = scene.table()
    metadata = metadata_of(table)
    broken = metadata.model_copy(update={"encryption_keys": [key for key in metadata.encryption_keys if not key.is_kek]})
    location = f"{table.location()}/metadata/00099-00000000-0000-4000-8000-000000000000.metadata.json"
    catalog = scene.catalog()
    write_metadata_file(broken, load_file_io(catalog.properties, location), location)
    catalog.drop_table("db.t")
    catalog.register_table("db.t", location)


def _plain(scene: Scene) -> None:
    table = scene.catalog().create_table("db.t", SCHEMA, properties={"format-version": "2"})
    table.append(rows(0))
    table.append(rows(100))


def _change_much(scene: Scene) -> None:
    table = scene.table()
    with table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.add_column("more", LongType())
        transaction.append(rows(500))
        transaction.delete("id = 105")
        transaction.set_properties({"owner": "us"})


def _expire(scene: Scene) -> None:
    table = scene.table()
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots() if each.snapshot_id not in heads]).commit()


def _shred(scene: Scene) -> None:
    table = scene.table()
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    selected = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in heads]
    if selected:
        shred(table, selected)


def _relocate(scene: Scene) -> None:
    relocate(scene.table(), f"{scene.storage.warehouse}/copy", register_as="db.copy", workers=1)


def _migrate(scene: Scene) -> None:
    result = migrate(scene.table(), MASTER_KEY)
    for each in result.left:
        # What an attempt that was interrupted wrote and nothing names: the result lists it for its caller to delete. It holds no row.
        path = path_of(each.location)
        if each.what == "a file that the table does not name" and path.exists() and not any(findings(str(path), path.read_bytes())):
            path.unlink()


def _purge(scene: Scene) -> None:
    try:
        scene.catalog().purge_table("db.t")
    except NoSuchTableError:
        return


def _on_table(change: Callable[[Table], object]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        change(scene.table())

    return run


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        name: what a test calls it.
        run: does it, with a new client.
        prepare: makes the tables that it begins from.
        again: whether a run again may follow one that was interrupted, and ends as one that was not.
        readable: whether the tables can be read before it and while it is under way.
        plaintext: whether plaintext is there before it, so that none is looked for until it is done.
    """

    name: str
    run: Callable[[Scene], None]
    prepare: Callable[[Scene], None] = _history
    again: bool = True
    readable: bool = True
    plaintext: bool = False


_ENCRYPTED: Final = {"encryption.key-id": MASTER_KEY}

OPERATIONS: Final = (
    Operation("create", lambda scene: _discard(scene.catalog().create_table("db.new", SCHEMA, properties=_ENCRYPTED)), again=False),
    Operation("append", _on_table(lambda table: table.append(rows(500))), again=False),
    Operation("overwrite", _on_table(lambda table: table.overwrite(rows(500), "id < 110")), again=False),
    Operation("delete copy-on-write", _on_table(lambda table: table.delete("id in (5, 105)")), _copy_on_write, again=False),
    Operation("delete merge-on-read", _on_table(lambda table: table.delete("id in (5, 105)")), again=False),
    Operation("upsert", _on_table(lambda table: table.upsert(rows(118, 40), join_cols=["id"])), again=False),
    Operation("transaction", _change_much, again=False),
    Operation("expire", _expire),
    Operation("rotate_kek", _on_table(rotate_kek)),
    Operation("rewrap", _on_table(rewrap)),
    Operation("prune_keys", _on_table(prune_keys), _stray_keys),
    Operation("reencrypt", _on_table(reencrypt)),
    Operation("compact", _on_table(lambda table: compact(table, rewrite_all=True))),
    Operation("relocate", _relocate),
    Operation("migrate", _migrate, _plain, plaintext=True),
    Operation("rescue", _on_table(rescue), _lost_keys, readable=False),
    Operation("shred", _shred),
    Operation("purge", _purge, readable=False),
)


def _discard(made: object) -> None:
    """An operation has no result."""
