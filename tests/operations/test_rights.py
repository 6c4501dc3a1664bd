"""An operation does its work with the rights that its declaration names, and is refused without any one of those that it needs."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table.update import TableUpdate
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt import maintenance
from tablecrypt.errors import ColumnKeyDeniedError, KmsAccessDeniedError
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.operations import OPERATIONS
from tablecrypt.operations.rights import rights_in
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.updates import AddEncryptionKeyUpdate
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support import rights_page
from tests.support.granted_rights import grant, noted, properties
from tests.support.plaintext import CANARY
from tests.support.policies import POLICIES
from tests.support.policies import ROLES as POLICY_FILES
from tests.support.tables import metadata_of, new_table, path_of

SCHEMA: Final = Schema(NestedField(1, "id", LongType()), NestedField(2, "ssn", StringType()))
ROWS: Final = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "ssn": [CANARY] * 3})
PROTECTED: Final = {
    "encryption.key-id": "table",
    "encryption.column-keys": "column: ssn",
    "write.delete.mode": "merge-on-read",
}
REFUSED: Final = (KmsAccessDeniedError, ColumnKeyDeniedError, PermissionError)
OF_AWS: Final[Mapping[str, str]] = {
    "kms:Decrypt": "unwrap",
    "kms:Encrypt": "wrap",
    "s3:GetObject": "read",
    "s3:PutObject": "write",
    "s3:ListBucket": "list",
    "s3:DeleteObject": "delete",
}


OF_PARTNERS: Final = frozenset({"wrap partner", "unwrap partner"})
"""With a master key that is none of the table's: a declaration says it in words."""


class Scene:
    """A table of three snapshots with a protected column."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        keys = {name: bytes([number]) * 16 for number, name in enumerate(("table", "column", "partner"))}
        MemoryKeyManagementClient({"kms.memory.name": str(folder)}, keys=keys)
        catalog = self.catalog()
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", SCHEMA, properties=PROTECTED)
        table.append(ROWS)
        table.append(ROWS)
        table.delete("id = 3")

    def catalog(self, name: str | None = None) -> EncryptedSqlCatalog:
        """The catalog of a client with the rights of this name; None: of one who may all."""
        stored = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/warehouse"}
        return EncryptedSqlCatalog("prod", **{**stored, **properties(self.folder, name)})

    def table(self) -> EncryptedTable:
        """The table, for a client who may all."""
        return cast("EncryptedTable", self.catalog().load_table("db.t"))

    def add_key(self) -> None:
        """Leave a key in the metadata that no snapshot needs."""
        table = self.table()
        kek = table.io.manager.columns.new_kek("column")
        transaction = table.transaction()
        transaction.apply((cast("TableUpdate", AddEncryptionKeyUpdate(key=kek)),))
        transaction.commit_transaction()

    def lose_keys(self) -> None:
        """Take the KEKs out of the metadata, and what it says of older metadata, as a tool that knows no keys leaves it."""
        table = self.table()
        location = f"{table.location()}/metadata/00099-00000000-0000-4000-8000-000000000000.metadata.json"
        kept = [each for each in metadata_of(table).encryption_keys if not each.is_kek]
        broken = metadata_of(table).model_copy(update={"encryption_keys": kept, "metadata_log": []})
        path_of(location).write_text(broken.model_dump_json(), encoding="utf-8")
        catalog = table.catalog
        catalog.drop_table("db.t")
        catalog.register_table("db.t", location)

    def add_plain_table(self) -> None:
        """Make a table that is not encrypted."""
        self.catalog().create_table("db.plain", SCHEMA).append(ROWS)

    def leave_orphan(self) -> None:
        """Leave a file in the table's folder that nothing names, and that is a month old."""
        orphan = path_of(self.table().location()) / "data" / "orphan.parquet"
        orphan.write_bytes(b"PARE")
        month_ago = (dt.datetime.now() - dt.timedelta(days=30)).timestamp()
        os.utime(orphan, (month_ago, month_ago))

    def share(self) -> None:
        """Share the table with the partner."""
        maintenance.share(self.table(), "partner", f"file://{self.folder}/share")

    def receive(self) -> None:
        """Have the table be a share of another one, and a newer state of it there."""
        catalog = self.catalog()
        catalog.drop_table("db.t")
        source = new_table(catalog, "db.source", SCHEMA, appends=[ROWS], properties={"encryption.key-id": "partner"})
        first = maintenance.share(source, "table", f"file://{self.folder}/share")
        catalog.register_table("db.t", first.metadata_location)
        source.append(ROWS)
        maintenance.share(source, "table", f"file://{self.folder}/share", update=True)


def of_table(operate: Callable[[EncryptedTable, Path], object]) -> Callable[[Catalog, Path], object]:
    return lambda catalog, folder: operate(cast("EncryptedTable", catalog.load_table("db.t")), folder)


def _newest(share: Path) -> str:
    return f"file://{max((share / 'metadata').glob('*.metadata.json'))}"


BEFORE: Final[Mapping[str, Callable[[Scene], None]]] = {
    "migrate": Scene.add_plain_table,
    "prune_keys": Scene.add_key,
    "rescue": Scene.lose_keys,
    "remove_orphan_files": Scene.leave_orphan,
    "shares": Scene.share,
    "accept_update": Scene.receive,
    "unshare": Scene.share,
}
WAYS: Final[Mapping[str, Callable[[Catalog, Path], Any]]] = {
    "list_tables": lambda catalog, folder: maintenance.list_tables(catalog),
    "doctor": lambda catalog, folder: maintenance.doctor(catalog, "db.t"),
    "migrate": lambda catalog, folder: maintenance.migrate(catalog.load_table("db.plain"), "table"),
    "relocate": of_table(lambda table, folder: maintenance.relocate(table, f"file://{folder}/copy")),
    "share": of_table(lambda table, folder: maintenance.share(table, "partner", f"file://{folder}/share")),
    "unshare": of_table(lambda table, folder: maintenance.unshare(table, f"file://{folder}/share")),
    "accept_update": of_table(lambda table, folder: maintenance.accept_update(table, _newest(folder / "share"))),
    "compact": of_table(lambda table, folder: maintenance.compact(table, min_input_files=2)),
    "erase": of_table(lambda table, folder: maintenance.erase(table, "id = 1")),
    "shred": of_table(lambda table, folder: maintenance.shred(table, [table.snapshots()[0].snapshot_id])),
    "shred_column": of_table(lambda table, folder: maintenance.shred_column(table, "ssn")),
    "remove_orphan_files": of_table(lambda table, folder: maintenance.remove_orphan_files(table, dry_run=False)),
}
"""How an operation is called, if not with a table alone."""


def run(name: str, folder: Path, rights: Set[str]) -> set[str]:
    """Run an operation with these rights, and return those that it used."""
    scene = Scene(folder)
    if name in BEFORE:
        BEFORE[name](scene)
    grant(str(folder), rights | OF_PARTNERS)
    operate = WAYS.get(name) or of_table(lambda table, folder: getattr(maintenance, name)(table))
    with noted() as used:
        operate(scene.catalog(str(folder)), folder)
    return used - OF_PARTNERS


def named(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """What an operation needs, and with what it can do more. These KEKs are new: what is needed for old ones is left out."""
    declared = OPERATIONS[name].rights
    return rights_in(declared.needs), rights_in(declared.more)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_uses_all_rights_that_it_names_and_no_others(name: str, unwatched_warehouse: Path) -> None:
    needs, more = named(name)

    assert run(name, unwatched_warehouse, needs | more) == needs | more


@pytest.mark.slow
@pytest.mark.parametrize(("name", "missing"), [(name, each) for name in OPERATIONS for each in sorted(named(name)[0])])
def test_without_a_right_that_it_needs_an_operation_is_refused(name: str, missing: str, unwatched_warehouse: Path) -> None:
    needs, more = named(name)

    with pytest.raises(REFUSED, match=f"does not allow to {missing}"):
        run(name, unwatched_warehouse, (needs | more) - {missing})


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_with_what_it_needs_alone_an_operation_does_what_it_can(name: str, unwatched_warehouse: Path) -> None:
    needs, more = named(name)

    assert run(name, unwatched_warehouse, needs) <= needs | more


def test_the_page_has_what_the_declarations_say() -> None:
    assert rights_page.PART.read() == rights_page.tables(), "run python -m tests.support.rights_page"


@pytest.mark.parametrize("role", POLICY_FILES)
def test_a_role_has_the_rights_that_its_policy_gives(role: str) -> None:
    policy = json.loads((POLICIES / "aws" / f"{role}.json").read_text(encoding="utf-8"))
    statements = {each["Sid"]: each for each in policy["Statement"]}
    keys = ("table", "column") if isinstance(statements["Keys"]["Resource"], list) else ("table",)
    allowed = {f"{OF_AWS[each]} {key}" for each in statements["Keys"]["Action"] if each in OF_AWS for key in keys}
    actions = [*statements["Files"]["Action"], *statements["Bucket"]["Action"]]
    allowed |= {f"{OF_AWS[each]} {place}" for each in actions if each in OF_AWS for place in ("metadata", "data")}

    assert rights_page.ROLES[role] == allowed


def test_roles_may_do_what_their_rights_allow() -> None:
    allowed = {
        role: {name for name, each in OPERATIONS.items() if rights_page.allowed_to(each.rights, rights) != "no"}
        for role, rights in rights_page.ROLES.items()
    }
    inspecting = {"list_tables", "describe", "doctor", "audit", "verify", "inspect", "shares"}

    assert allowed["auditor"] == allowed["masked-analyst"] == inspecting | {"remove_orphan_files"}
    assert allowed["reader"] == allowed["auditor"]
    assert allowed["operator"] == set(OPERATIONS)
    assert allowed["writer"] >= {"compact", "rotate_kek"}
    assert not allowed["key administrator"] & {"compact", "reencrypt", "migrate", "relocate", "verify"}
    assert rights_page.allowed_to(OPERATIONS["verify"].rights, rights_page.ROLES["auditor"]) == "in part"
