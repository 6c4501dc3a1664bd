"""rewrap: after it, the old master key, or its old version, can be destroyed and everything reads; the KEKs stay what they are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.kms.models import kms_backends
from pyiceberg.table import Table

from tablecrypt.errors import AuthenticationError, KmsAccessDeniedError
from tablecrypt.kms.factory import shared_kms
from tablecrypt.kms.local_file import add_key_version, create_key_file
from tablecrypt.maintenance import rewrap, rotate_kek
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import ACCOUNT, REGION, AwsServer
from tests.support.tables import encrypted_sql_catalog, keks, manifest_list_keys, metadata_of, rows, state, table_with_history


@pytest.fixture
def alias(aws: AwsServer) -> Iterator[str]:
    """An alias of the test's own, on a key of its own."""
    name = f"alias/rewrap-{uuid.uuid4()}"
    aws.kms.create_alias(AliasName=name, TargetKeyId=aws.new_key())
    yield name
    aws.kms.delete_alias(AliasName=name)


@pytest.fixture
def table(tmp_path: Path, aws: AwsServer, alias: str) -> Table:
    # Nothing remembered: each read asks the KMS.
    return table_with_history(encrypted_sql_catalog(tmp_path, aws, {"encryption.kms.cache-ttl-ms": "0"}), "db.t", alias)


def key_behind(aws: AwsServer, alias: str) -> str:
    return next(each["TargetKeyId"] for each in aws.kms.list_aliases()["Aliases"] if each["AliasName"] == alias)


def move(aws: AwsServer, alias: str) -> str:
    """Point the alias to a new key; return the old one."""
    old = key_behind(aws, alias)
    aws.kms.update_alias(AliasName=alias, TargetKeyId=aws.new_key())
    return old


def destroy(key_id: str) -> None:
    """What the end of a scheduled deletion does; moto never gets there, and lets a key that waits for it decrypt."""
    del kms_backends[ACCOUNT][REGION].keys[key_id]


def test_after_an_alias_has_moved_nothing_reads_until_the_keks_are_rewrapped(table: Table, aws: AwsServer, alias: str) -> None:
    before, list_keys, old_keks = state(table), manifest_list_keys(table), keks(table)
    old = move(aws, alias)
    with pytest.raises((KmsAccessDeniedError, AuthenticationError)):
        state(table)

    result = rewrap(table, from_key_id=old)
    destroy(old)

    assert state(table) == before
    assert manifest_list_keys(table) == list_keys
    (kek,) = keks(table)
    assert (kek.key_id, kek.properties, kek.encrypted_by_id) == (old_keks[0].key_id, old_keks[0].properties, alias)
    assert kek.encrypted_key_metadata != old_keks[0].encrypted_key_metadata
    assert (result.table_key_id, result.keks) == (alias, (kek.key_id,))
    table.append(rows(700))
    assert len(state(table)) == 5


def test_the_service_rewraps_and_is_asked_what_came_of_it(table: Table, aws: AwsServer, alias: str) -> None:
    old, kms = move(aws, alias), table.io.manager.kms  # type: ignore[attr-defined]
    before = kms.calls

    rewrap(table, from_key_id=old)

    calls = kms.calls - before
    assert calls["rewrap_key"] == 1
    assert calls["wrap_key"] == 0
    assert calls["unwrap_key"] >= 2


def test_a_rewrap_within_the_master_key_needs_no_other_key_named(table: Table) -> None:
    before, (old,) = state(table), keks(table)

    rewrap(table)

    assert keks(table)[0].encrypted_key_metadata != old.encrypted_key_metadata
    assert state(table) == before


def test_keks_from_before_and_after_the_move_are_all_rewrapped(
    table: Table, aws: AwsServer, alias: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A writer may have made a KEK under the new key already, and the operation may run twice; a misspelt key is told by the warning."""
    old = move(aws, alias)
    rewrap(table, from_key_id=old)
    assert "was wrapped by" not in caplog.text
    rotate_kek(table)
    destroy(old)

    rewrap(table, from_key_id=old)

    assert f"no KEK of db.t was wrapped by {old!r}" in caplog.text
    assert len(state(table)) == 4


def test_a_dry_run_asks_the_kms_nothing(table: Table) -> None:
    kms, location = table.io.manager.kms, table.metadata_location  # type: ignore[attr-defined]
    before = kms.calls

    result = rewrap(table, dry_run=True)

    assert (result.dry_run, result.keks) == (True, (keks(table)[0].key_id,))
    assert kms.calls == before
    assert table.refresh().metadata_location == location


def test_a_kek_that_the_kms_refuses_changes_nothing(table: Table, aws: AwsServer, alias: str) -> None:
    location, old = table.metadata_location, move(aws, alias)
    destroy(old)
    with pytest.raises((KmsAccessDeniedError, AuthenticationError)):
        rewrap(table, from_key_id=old)
    assert table.refresh().metadata_location == location


def test_an_old_version_of_a_key_file_can_be_destroyed(tmp_path: Path, aws: AwsServer) -> None:
    path = tmp_path / "keys.json"
    create_key_file(path, "orders")
    properties = {"encryption.kms-type": "local", "kms.local.key-file": str(path), "encryption.kms.cache-ttl-ms": "0"}
    table = table_with_history(encrypted_sql_catalog(tmp_path, aws, properties), "db.t", "orders")
    before = state(table)
    add_key_version(path, "orders")

    rewrap(table)
    content = path.read_text().splitlines()
    # The file holds one key of two versions, a line each.
    first = next(index for index, line in enumerate(content) if '"1":' in line)
    path.write_text("\n".join(content[:first] + content[first + 1 :]))

    assert state(table) == before


def test_the_process_reads_on_with_what_it_remembers(catalog: EncryptedSqlCatalog, alias: str) -> None:
    table = table_with_history(catalog, "db.cached", alias)
    rewrap(table)
    shared_kms(table.catalog.properties).close()
    assert len(state(table)) == 4
    assert metadata_of(table).key_ring.keks
