"""A key service that is faulty or lies about a new blob: nothing that it answered is committed, stored or returned."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moto.kms.models import kms_backends
from pyiceberg.table import Table

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, KmsAccessDeniedError, KmsError, TablecryptError
from tablecrypt.hadoop_kms.master_keys import create_key
from tablecrypt.kms.aws import AwsKeyManagementClient
from tablecrypt.kms.factory import load_kms, shared_kms
from tablecrypt.kms.new_blobs import generate_key, wrap_key
from tablecrypt.kms.resilient import ResilientKeyManagementClient
from tablecrypt.maintenance import migrate, relocate, rewrap, rotate_kek
from tablecrypt.orc.keys import KmsKeys, MasterKeyVersion, WrappedMasterKey
from tablecrypt.parquet.key_material import KeyWrapper
from tests.support.aws import ACCOUNT, REGION, AwsServer
from tests.support.catalogs import MASTER_KEY, encrypted_sql_catalog
from tests.support.key_tables import SCHEMA, rows, state
from tests.support.lying_kms import CLASS, LIES, LyingKeyManagementClient


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
    return catalog.create_table("db.t", SCHEMA, properties={"encryption.key-id": MASTER_KEY})


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


def _values_in_frames(error: BaseException | None) -> list[object]:
    values: list[object] = []
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if "/tests/" not in frame.f_code.co_filename and "/_pytest/" not in frame.f_code.co_filename:
                values += frame.f_locals.values()
        error = error.__cause__ or error.__context__
    return values


def test_no_frame_of_a_failed_wrap_holds_the_key(table: Table, aws: AwsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pytest and error trackers show of an error is the local variables of its frames, botocore's and urllib3's too."""
    monkeypatch.setattr(LyingKeyManagementClient, "last_key", b"")
    master_key = aws.new_key()
    table = table.catalog.create_table("db.failing", SCHEMA, properties={"encryption.key-id": master_key})
    del kms_backends[ACCOUNT][REGION].keys[master_key]
    with pytest.raises(TablecryptError) as failed:
        table.append(rows(0))
    key = LyingKeyManagementClient.last_key
    assert len(key) == 16
    values = _values_in_frames(failed.value)
    assert values
    raw = [type(value).__name__ for value in values if isinstance(value, (bytes, bytearray, str, dict, tuple, list)) and _holds(value, key)]
    assert raw == []


def _holds(value: object, key: bytes) -> bool:
    if isinstance(value, (bytes, bytearray)):
        return key in bytes(value)
    if isinstance(value, dict):
        return any(_holds(each, key) for each in value.values())
    return isinstance(value, (list, tuple)) and any(_holds(each, key) for each in value)


def test_wrapping_takes_no_key_of_a_length_that_aes_has_not(client: ResilientKeyManagementClient) -> None:
    with pytest.raises(ConfigurationError, match="16, 24 or 32"):
        wrap_key(client, Secret(bytes(15)), MASTER_KEY)
