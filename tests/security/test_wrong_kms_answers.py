"""A key service that is faulty or lies about a new blob: nothing that it answered is committed, stored or returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from pyiceberg.table import Table

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, KmsAccessDeniedError, KmsError
from tablecrypt.hadoop_kms.master_keys import create_key
from tablecrypt.kms.aws import AwsKeyManagementClient
from tablecrypt.kms.client import GeneratedKey
from tablecrypt.kms.factory import load_kms, shared_kms
from tablecrypt.kms.resilient import ResilientKeyManagementClient, generate_key, wrap_key
from tablecrypt.maintenance import migrate, relocate, rewrap, rotate_kek
from tablecrypt.orc.key_providers import KmsKeys, MasterKeyVersion, WrappedMasterKey
from tablecrypt.parquet.key_material import KeyWrapper
from tests.support.aws import AwsServer
from tests.support.tables import MASTER_KEY, SCHEMA, encrypted_sql_catalog, new_table, rows, state

CLASS = f"{__name__}.LyingKeyManagementClient"

Lie = Callable[[AwsKeyManagementClient, bytes, str], bytes]


def flipped(_: AwsKeyManagementClient, blob: bytes, __: str) -> bytes:
    """A bit fell over on the way."""
    return blob[:-1] + bytes([blob[-1] ^ 1])


def of_another_key(service: AwsKeyManagementClient, _: bytes, master_key: str) -> bytes:
    """A blob that opens, to a key that somebody else knows."""
    return service.wrap_key(b"attacker knows!!", master_key)


def cut(_: AwsKeyManagementClient, blob: bytes, __: str) -> bytes:
    """Half an answer."""
    return blob[: len(blob) // 2]


def empty(_: AwsKeyManagementClient, __: bytes, ___: str) -> bytes:
    """No answer at all."""
    return b""


LIES: Mapping[str, Lie] = {"flipped": flipped, "of another key": of_another_key, "cut": cut, "empty": empty}


class LyingKeyManagementClient(AwsKeyManagementClient):
    """Changes blobs, or refuses to unwrap, for all its clients in this process, as long as it is told to."""

    lie: ClassVar[Lie | None] = None
    denies_unwrapping: ClassVar[bool] = False

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        return self._changed(super().wrap_key(key, wrapping_key_id), wrapping_key_id)

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        generated = super().generate_key(wrapping_key_id, length)
        return GeneratedKey(generated.key, self._changed(generated.wrapped_key, wrapping_key_id))

    def rewrap_key(self, wrapped_key: bytes, wrapping_key_id: str, from_key_id: str) -> bytes:
        return self._changed(super().rewrap_key(wrapped_key, wrapping_key_id, from_key_id), wrapping_key_id)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        if self.denies_unwrapping:
            raise KmsAccessDeniedError(f"kms:Decrypt is missing on {wrapping_key_id}")
        return super().unwrap_key(wrapped_key, wrapping_key_id)

    def _changed(self, blob: bytes, master_key: str) -> bytes:
        lie = type(self).lie
        if lie is None:
            return blob
        type(self).lie = None
        try:
            return lie(self, blob, master_key)
        finally:
            type(self).lie = lie


@pytest.fixture(autouse=True)
def honest() -> Iterator[None]:
    yield
    LyingKeyManagementClient.lie = None
    LyingKeyManagementClient.denies_unwrapping = False


@pytest.fixture(params=LIES)
def lie(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Called, it has the service lie from then on."""

    def begin() -> None:
        LyingKeyManagementClient.lie = staticmethod(LIES[request.param])

    return begin


@pytest.fixture
def table(tmp_path: Path, aws: AwsServer) -> Table:
    properties = {"encryption.kms-type": "", "encryption.kms-impl": CLASS}
    catalog = encrypted_sql_catalog(tmp_path, aws, properties)
    return new_table(catalog)


@pytest.fixture
def client(aws: AwsServer) -> ResilientKeyManagementClient:
    return load_kms({**aws.kms_properties, "encryption.kms-type": "", "encryption.kms-impl": CLASS})


def test_a_first_append_commits_nothing_under_a_wrong_answer(table: Table, lie: Callable[[], None]) -> None:
    location = table.metadata_location
    lie()
    with pytest.raises(KmsError, match="answered wrongly"):
        table.append(rows(0))
    assert table.refresh().metadata_location == location


@pytest.mark.parametrize("operation", [rotate_kek, rewrap])
def test_key_commands_commit_nothing_under_a_wrong_answer(
    table: Table, lie: Callable[[], None], operation: Callable[[Table], object]
) -> None:
    table.append(rows(0))
    location, before = table.metadata_location, state(table)
    lie()
    with pytest.raises(KmsError, match="answered wrongly"):
        operation(table)
    shared_kms(table.catalog.properties).close()
    assert table.refresh().metadata_location == location
    assert state(table) == before


def test_a_copy_under_another_location_is_not_made_under_a_wrong_answer(table: Table, tmp_path: Path, lie: Callable[[], None]) -> None:
    table.append(rows(0))
    lie()
    with pytest.raises(KmsError, match="answered wrongly"):
        relocate(table, f"file://{tmp_path}/elsewhere")
    assert not list(tmp_path.glob("elsewhere/**/*.metadata.json"))


def test_a_plain_table_stays_plain_under_a_wrong_answer(table: Table, lie: Callable[[], None]) -> None:
    plain = table.catalog.create_table("db.plain", SCHEMA)
    plain.append(rows(0))
    location = plain.metadata_location
    lie()
    with pytest.raises(KmsError, match="answered wrongly"):
        migrate(plain, MASTER_KEY)
    assert plain.refresh().metadata_location == location
    assert plain.scan().to_arrow().num_rows == 20


def test_keys_of_orc_and_parquet_files_are_checked(client: ResilientKeyManagementClient, tmp_path: Path, lie: Callable[[], None]) -> None:
    lie()
    provider, wrapper = KmsKeys(client, {"pii": MASTER_KEY}), KeyWrapper(client, lambda length: b"r" * length)
    uses: list[Callable[[], object]] = [
        lambda: provider.create_local_key(MasterKeyVersion("pii", 0, 16)),
        lambda: WrappedMasterKey.generate(client, MASTER_KEY),
        lambda: create_key(tmp_path / "orc.json", client, "pii", MASTER_KEY, 0),
        lambda: wrapper.wrap(Secret(bytes(16)), MASTER_KEY, is_footer_key=True, kek_length=None),
        lambda: wrapper.wrap(Secret(bytes(16)), MASTER_KEY, is_footer_key=True, kek_length=16),
    ]
    for use in uses:
        with pytest.raises(KmsError, match="answered wrongly"):
            use()
    assert not (tmp_path / "orc.json").exists()


def test_the_first_append_asks_for_one_wrap_and_one_unwrap_and_the_next_for_nothing(table: Table) -> None:
    kms = shared_kms(table.catalog.properties)
    kms.close()
    table.append(rows(0))
    assert kms.calls == {"wrap_key": 1, "unwrap_key": 1}
    table.append(rows(100))
    assert kms.calls == {"wrap_key": 1, "unwrap_key": 1}


def test_who_may_wrap_and_not_unwrap_is_told_what_is_missing(table: Table) -> None:
    location = table.metadata_location
    LyingKeyManagementClient.denies_unwrapping = True
    with pytest.raises(KmsAccessDeniedError, match="permission to unwrap") as refused:
        table.append(rows(0))
    assert "kms:Decrypt" in str(refused.value)
    assert table.refresh().metadata_location == location


@pytest.mark.parametrize("length", [16, 24])
def test_a_generated_key_of_another_length_than_asked_for_is_refused(client: ResilientKeyManagementClient, length: int) -> None:
    inner = client._inner
    assert isinstance(inner, AwsKeyManagementClient)

    class Longer(AwsKeyManagementClient):
        def __init__(self) -> None:
            pass

        def generate_key(self, wrapping_key_id: str, length: int = 16):  # type: ignore[no-untyped-def]
            return inner.generate_key(wrapping_key_id, 32)

    with pytest.raises(KmsError, match="32 bytes"):
        generate_key(Longer(), MASTER_KEY, length)


def test_wrapping_takes_no_key_of_a_length_that_aes_has_not(client: ResilientKeyManagementClient) -> None:
    with pytest.raises(ConfigurationError, match="16, 24 or 32"):
        wrap_key(client, Secret(bytes(15)), MASTER_KEY)
