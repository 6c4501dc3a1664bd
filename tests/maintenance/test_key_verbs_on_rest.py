"""The verbs that change keys on Iceberg's REST server, which writes the metadata itself and knows no requirement about keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.table import Table

from tablecrypt.maintenance import prune_keys, rewrap, rotate_kek
from tablecrypt_catalog import EncryptedRestCatalog
from tests.support.aws import AwsServer
from tests.support.key_tables import keks, manifest_list_keys, metadata_of, rows, state, table_with_history
from tests.support.rest_proxy import Answer, Forward, Request, RestProxy
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace

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
    """The server takes its commit as it comes, so the commit brings the KEK that its key is sealed under."""
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
