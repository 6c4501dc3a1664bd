"""The operations that change keys on Iceberg's REST server, which writes the metadata itself and knows no requirement about keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table

from tablecrypt.errors import KeyNotFoundError
from tablecrypt.maintenance import prune_keys, relocate, rescue, rewrap, rotate_kek, shred
from tablecrypt.table.updates import removed_keys
from tablecrypt_catalog import EncryptedRestCatalog
from tests.support.aws import AwsServer
from tests.support.rest_proxy import Answer, Forward, Request, RestProxy
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace
from tests.support.tables import folder_of, keks, manifest_list_keys, metadata_of, rows, state, table_with_history

pytestmark = pytest.mark.java


@pytest.fixture
def catalog(rest_server: RestServer, aws: AwsServer) -> EncryptedRestCatalog:
    return encrypted_rest_catalog(rest_server.uri, aws)


@pytest.fixture
def table(catalog: EncryptedRestCatalog, rest_server: RestServer) -> Table:
    return table_with_history(catalog, f"{new_namespace(rest_server)}.t")


@pytest.fixture
def proxy(rest_server: RestServer) -> Iterator[RestProxy]:
    with RestProxy(rest_server.uri) as proxy:
        yield proxy


def assert_no_stray_key(table: Table) -> None:
    metadata = metadata_of(table.refresh())
    needed = metadata.key_ring.needed_by(str(snapshot.key_id) for snapshot in metadata.snapshots)
    assert {key.key_id for key in metadata.encryption_keys} == needed


def test_rotate_rewrap_and_prune(table: Table) -> None:
    before, (old,) = state(table), keks(table)

    rotated = rotate_kek(table)
    (rotated_kek,) = keks(table)
    rewrap(table)
    (rewrapped_kek,) = keks(table)
    pruned = prune_keys(table)

    assert rotated.old_keks == (old.key_id,)
    assert rotated_kek.key_id == rewrapped_kek.key_id != old.key_id
    assert rotated_kek.encrypted_key_metadata != rewrapped_kek.encrypted_key_metadata
    assert (pruned.keks, pruned.manifest_list_keys, pruned.kept) == ((), (), 5)
    assert state(table) == before
    assert_no_stray_key(table)


@pytest.mark.parametrize("branch", ["main", "side", "new"])
def test_a_writer_that_began_before_a_rotation_does_not_lose_its_snapshot(table: Table, branch: str) -> None:
    """The server takes its commit as it comes, so the commit brings the KEK that its key is encrypted under."""
    writer = table.catalog.load_table(table.name())

    rotate_kek(table)
    writer.append(rows(300), branch=branch)

    assert len(state(table)) == 5
    rotate_kek(table)
    assert len(keks(table)) == 1
    assert len(state(table)) == 5


@pytest.mark.parametrize("branch", ["main", "side", "new"])
def test_a_snapshot_that_comes_in_while_a_rotation_is_on_its_way_keeps_its_key(
    table: Table, proxy: RestProxy, aws: AwsServer, branch: str
) -> None:
    overtaking = table.catalog.load_table(table.name())
    left = [1]

    def overtaken(request: Request, forward: Forward) -> Answer:
        if request.is_commit and left:
            left.pop()
            overtaking.append(rows(500), branch=branch)
        return forward(request)

    proxy.behave(overtaken)
    rotated = encrypted_rest_catalog(proxy.uri, aws).load_table(table.name())

    rotate_kek(rotated)

    assert not left
    assert len(keks(rotated)) == 1
    assert len(state(table)) == 5
    assert len(manifest_list_keys(rotated)) == 5
    assert_no_stray_key(rotated)


def test_no_commit_that_would_leave_a_snapshot_without_its_key_is_sent(table: Table, proxy: RestProxy, aws: AwsServer) -> None:
    loaded = encrypted_rest_catalog(proxy.uri, aws).load_table(table.name())
    before = len([request for request in proxy.seen if request.is_commit])
    for entry in metadata_of(loaded).encryption_keys:
        transaction = loaded.transaction()
        transaction.apply(removed_keys([entry.key_id]))  # type: ignore[attr-defined]
        with pytest.raises(KeyNotFoundError):
            transaction.commit_transaction()
    assert len([request for request in proxy.seen if request.is_commit]) == before


def test_rescue_brings_back_what_a_server_lost(table: Table, catalog: EncryptedRestCatalog) -> None:
    before, keys = state(table), metadata_of(table).encryption_keys
    request = {
        "requirements": [],
        "updates": [{"action": "remove-encryption-key", "key-id": key.key_id} for key in keys[:3]],
    }
    catalog.request_commit(table, json.dumps(request))
    with pytest.raises(KeyNotFoundError):
        state(table)

    result = rescue(table)

    assert set(result.keys) == {key.key_id for key in keys[:3]}
    assert state(table) == before


def test_relocate_registers_a_copy_that_lives_beside_the_table(table: Table, catalog: EncryptedRestCatalog, tmp_path: Path) -> None:
    namespace = table.name()[0]

    result = relocate(table, f"{tmp_path.as_uri()}/copy", register_as=f"{namespace}.copy")

    copy = catalog.load_table(f"{namespace}.copy")
    assert result.registered_as == f"{namespace}.copy"
    assert state(copy) == state(table)
    copy.append(rows(600))
    assert relocate(table, f"{tmp_path.as_uri()}/copy", register_as=f"{namespace}.copy").found == result.files


def test_shred_takes_the_keys_out_of_what_the_server_wrote(table: Table) -> None:
    before = state(table)
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    dead = [key.encrypted_key_metadata for key in metadata_of(table).encryption_keys]

    result = shred(table, [each for each in before if each not in heads], delete_below=[table.location()])

    assert state(table) == {each: found for each, found in before.items() if each in heads}
    assert len(result.rewritten) >= 4
    assert not [text for text in metadata_texts(table) for key in dead if key in text]
    whole = shred(table, whole_table=".".join(table.name()), delete_below=[table.location()])
    assert len(whole.snapshots) == 4
    assert not [text for text in metadata_texts(table) if "encryption-keys" in text and "encrypted-key-metadata" in text]
    table.append(rows(0))
    assert len(state(table)) == 1


def metadata_texts(table: Table) -> list[str]:
    folder = folder_of(table) / "metadata"
    return [path.read_text() for path in folder.glob("*.metadata.json")]
