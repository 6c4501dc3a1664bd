"""A key file that is not the table's: each command says so in one line, calls no file bad or an orphan, and deletes nothing."""

from __future__ import annotations

import base64
import datetime as dt
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog

from tablecrypt import load_catalog
from tablecrypt import maintenance as m
from tablecrypt.errors import MasterKeyMismatchError, TablecryptError
from tablecrypt.kms.local_file import add_key, create_key_file
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt_catalog import encrypted
from tests.support.command import Command
from tests.support.edited_metadata import edited
from tests.support.tables import key_file_kms, new_table

ROWS = pa.table({"id": [1, 2, 3], "item": ["lamp", "desk", "chair"]})
WRONG = ("not JSON", "empty", "another key", "another service")
SAID = {
    "not JSON": "is not JSON",
    "empty": "is not JSON",
    "another key": "'orders' is not the master key that wrapped KEK",
    "another service": "'orders' is not the master key that wrapped KEK",
}
READING = (
    *("verify db.orders", "audit db.orders", "audit", "cat db.orders", "inspect db.orders", "verify db.orders --quick"),
    *("rescue db.orders --dry-run", "reencrypt db.orders --dry-run", "orphans db.orders --dry-run --older-than 0d"),
)
CHANGING = (
    *("rotate-kek db.orders", "rewrap db.orders", "rescue db.orders", "rescue db.orders --expire-lost --yes", "reencrypt db.orders"),
    *("orphans db.orders --older-than 0d --yes", "shred db.orders --whole-table db.orders --yes", "compact db.orders --rewrite-all"),
    "relocate db.orders {folder}/copy",
)


@pytest.fixture
def folder(unwatched_warehouse: Path) -> Path:
    return unwatched_warehouse


@pytest.fixture
def properties(folder: Path, tmp_path: Path) -> dict[str, str]:
    places = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    return {"type": "tablecrypt", **places, **key_file_kms(tmp_path / "orders.keys", "orders")}


@pytest.fixture
def catalog(properties: dict[str, str]) -> Catalog:
    catalog = load_catalog("prod", **properties)
    catalog.create_namespace("db")
    table = new_table(catalog, "db.orders", appends=[ROWS, ROWS], properties={"encryption.key-id": "orders"})
    table.delete("id = 3")
    return catalog


@pytest.fixture(params=WRONG)
def wrong(request: pytest.FixtureRequest, properties: dict[str, str], catalog: Catalog, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Properties that differ by the key file, or by the key service."""
    path = tmp_path / "wrong.keys"
    if request.param == "another service":
        keyring = {"kms.memory.name": f"wrong {tmp_path}"}
        MemoryKeyManagementClient(keyring).create_key("orders")
        yield {**properties, **keyring, "encryption.kms-type": "memory"}
        return
    if request.param == "another key":
        create_key_file(path, "orders")
    else:
        path.write_text("orders: secret\n" if request.param == "not JSON" else "")
        path.chmod(0o600)
    yield {**properties, "kms.local.key-file": str(path)}


def content(folder: Path) -> dict[Path, bytes]:
    """Every file of the warehouse, but for the catalog's database."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.name.startswith("catalog.db")}


@pytest.fixture
def said(request: pytest.FixtureRequest) -> str:
    return SAID[request.node.callspec.params["wrong"]]


@pytest.mark.parametrize("line", [*READING, *CHANGING])
def test_every_command_says_it_once_and_leaves_every_file(wrong: dict[str, str], said: str, folder: Path, line: str) -> None:
    before = content(folder)

    done = Command(wrong).run(*shlex.split(line.format(folder=folder)))

    assert (done.code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
    assert "orphan" not in done.stderr
    assert content(folder) == before


def test_every_call_in_python_raises_and_leaves_every_file(wrong: dict[str, str], said: str, folder: Path) -> None:
    before = content(folder)
    table = load_catalog("prod", **wrong).load_table("db.orders")
    oldest = table.metadata.snapshots[0].snapshot_id

    for call in (
        lambda: table.scan().to_arrow(),
        lambda: table.append(ROWS),
        lambda: table.delete("id = 2"),
        lambda: expire_snapshots(table, retain_last=1, older_than=dt.datetime.now(dt.UTC)),
        lambda: m.remove_orphan_files(table, dt.datetime.now(dt.UTC), dry_run=False),
        lambda: m.shred(table, [oldest]),
        lambda: m.shred(table, [oldest], dry_run=True),
        lambda: m.rescue(table, expire_lost=True),
        lambda: table.catalog.purge_table("db.orders"),
    ):
        with pytest.raises(TablecryptError, match=said):
            call()
        assert content(folder) == before


def test_the_key_file_is_named_with_its_path(wrong: dict[str, str], request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["wrong"] == "another service":
        assert "wrong.keys" not in Command(wrong).run("verify", "db.orders").stderr
    else:
        assert wrong["kms.local.key-file"] in Command(wrong).run("verify", "db.orders").stderr


def test_of_several_tables_each_is_a_finding_unless_it_is_all_of_them(properties: dict[str, str], catalog: Catalog, tmp_path: Path) -> None:
    """Two environments were mixed up, and one table is of the second."""
    create_key_file(tmp_path / "other.keys", "orders")
    other = {**properties, "kms.local.key-file": str(tmp_path / "other.keys")}
    new_table(load_catalog("prod", **other), "db.strange", appends=[ROWS], properties={"encryption.key-id": "orders"})

    done = Command(properties).run("audit", "--json")
    found = {each["table"]: [finding["kind"] for finding in each["findings"]] for each in json.loads(done.stdout)["tables"]}
    assert (done.code, found) == (1, {"db.orders": [], "db.strange": ["master-key-mismatch"]})
    assert "2 tables: 1 done, 1 failed" in Command(properties).run("verify", "--include", "*").stdout
    assert "1 table looked at, 1 could not be opened" in Command(properties).run("audit").stdout
    with pytest.raises(MasterKeyMismatchError):
        m.audit(load_catalog("prod", **other), include=["db.orders"])


class TestEditedMetadata:
    """Who may write the catalog edits KEKs: what he damages is an error or a finding, never clean, and hides no file from its table."""

    @pytest.fixture
    def unpinned(self, properties: dict[str, str], folder: Path) -> Catalog:
        kept = {name: properties[name] for name in ("warehouse", "encryption.kms-type", "kms.local.key-file")}
        catalog = encrypted(InMemoryCatalog)("unpinned", **kept)
        catalog.create_namespace("db")
        new_table(catalog, "db.orders", appends=[ROWS], properties={"encryption.key-id": "orders"})
        return catalog

    def test_the_only_kek_is_an_error(self, unpinned: Catalog) -> None:
        table = edited(unpinned.load_table("db.orders"), lambda metadata: _damage(metadata, 0))

        for call in (m.verify, m.audit, m.inspect):
            with pytest.raises(MasterKeyMismatchError, match="or the entry of the KEK was changed"):
                call(table)
        with pytest.raises(TablecryptError):
            m.remove_orphan_files(table, dt.datetime.now(dt.UTC))

    def test_one_of_two_keks_is_a_finding_and_the_files_below_it_are_no_orphans(self, unpinned: Catalog) -> None:
        table = unpinned.load_table("db.orders")
        m.rotate_kek(table)
        first = table.metadata.snapshots[0].snapshot_id
        forged = edited(table, lambda metadata: _second_kek(metadata, first))

        verified = m.verify(forged)
        assert [each.kind.value for each in verified.bad] == ["manifest list"]
        found = m.audit(forged)
        assert {finding.kind.code for finding in found.findings} >= {"unopened"}
        assert "orphans" not in {finding.kind.code for finding in found.findings}
        with pytest.raises(TablecryptError):
            m.remove_orphan_files(forged, dt.datetime.now(dt.UTC))

    def test_a_plain_snapshot_is_found_beside_a_kek_that_does_not_open(self, unpinned: Catalog) -> None:
        def edit(metadata: dict[str, Any]) -> None:
            _damage(metadata, 0)
            metadata["snapshots"].insert(
                0, {**metadata["snapshots"][0], "snapshot-id": 7, "manifest-list": f"{metadata['location']}/plain"}
            )
            del metadata["snapshots"][0]["key-id"]

        found = m.audit(edited(unpinned.load_table("db.orders"), edit))

        assert found.has_plaintext
        assert "plaintext-snapshot" in {finding.kind.code for finding in found.findings}


class TestColumns:
    """The same mix-up for the master key of a column."""

    @pytest.fixture
    def wrong(self, properties: dict[str, str], catalog: Catalog, tmp_path: Path) -> dict[str, str]:
        right = Path(properties["kms.local.key-file"])
        add_key(right, "pii")
        declared = {"encryption.key-id": "orders", "encryption.column-keys": "pii: item"}
        table = catalog.create_table("db.people", ROWS.schema, properties=declared)
        table.append(ROWS)
        table.append(ROWS)
        create_key_file(tmp_path / "wrong.keys", "pii")
        keys, others = (json.loads(path.read_text()) for path in (right, tmp_path / "wrong.keys"))
        keys["keys"]["pii"] = others["keys"]["pii"]
        (tmp_path / "wrong.keys").write_text(json.dumps(keys))
        return {**properties, "kms.local.key-file": str(tmp_path / "wrong.keys")}

    def test_verify_names_the_column_once_and_calls_no_file_bad(self, wrong: dict[str, str]) -> None:
        done = Command(wrong).run("verify", "db.people")

        assert (done.code, done.stdout) == (2, "")
        assert "'pii' is not the master key that wrapped column KEK" in done.stderr
        assert done.stderr.count("column 'item'") == 1
        assert wrong["kms.local.key-file"] in done.stderr

    def test_rows_are_refused_and_nothing_is_written(self, wrong: dict[str, str], folder: Path) -> None:
        before = content(folder)
        table = load_catalog("prod", **wrong).load_table("db.people")

        assert Command(wrong).run("cat", "db.people").code == 2
        for call in (lambda: table.scan().to_arrow(), lambda: table.append(ROWS), lambda: m.rotate_column_keks(table)):
            with pytest.raises(MasterKeyMismatchError, match="'pii' is not the master key that wrapped column KEK"):
                call()
        assert content(folder) == before
        assert table.scan(selected_fields=("id",)).to_arrow().num_rows == 6


def _damage(metadata: dict[str, Any], at: int) -> None:
    kek = [key for key in metadata["encryption-keys"] if "KEY_TIMESTAMP" in (key.get("properties") or {})][at]
    blob = bytearray(base64.b64decode(kek["encrypted-key-metadata"]))
    blob[-1] ^= 1
    kek["encrypted-key-metadata"] = base64.b64encode(bytes(blob)).decode()


def _second_kek(metadata: dict[str, Any], snapshot_id: int) -> None:
    """Put one snapshot's key under a copy of its KEK that does not open, and another snapshot of the same rows beside it."""
    snapshot: Mapping[str, Any] = next(each for each in metadata["snapshots"] if each["snapshot-id"] == snapshot_id)
    keys = {key["key-id"]: key for key in metadata["encryption-keys"]}
    entry = keys[snapshot["key-id"]]
    kek = {**keys[entry["encrypted-by-id"]], "key-id": "Zm9yZ2Vk"}
    metadata["encryption-keys"] += [{**entry, "key-id": "Zm9yZ2VkIGxpc3Q=", "encrypted-by-id": kek["key-id"]}, kek]
    metadata["snapshots"].append({**snapshot, "snapshot-id": 7, "key-id": "Zm9yZ2VkIGxpc3Q=", "manifest-list": "file:///nowhere"})
    _damage(metadata, -1)
