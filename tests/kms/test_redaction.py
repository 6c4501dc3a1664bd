"""No key leaves this process in a traceback that shows local variables, nor in a line of a log."""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import TablecryptError
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.kms.aws import AwsKeyManagementClient
from tablecrypt.kms.azure import AzureKeyManagementClient
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.gcp import GcpKeyManagementClient
from tablecrypt.kms.local_file import LocalFileKeyManagementClient, create_key_file
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.kms.resilient import ResilientKeyManagementClient, RetryPolicy, rewrap_key, wrap_key
from tablecrypt.kms.vault import VaultKeyManagementClient
from tests.kms.services.cloud_kms import CloudKms
from tests.kms.services.key_vault import KeyVault, StaticCredential
from tests.kms.services.transit import Transit
from tests.support.aws import AwsServer

KEK = bytes.fromhex("a1b2c3d4e5f60718293a4b5c6d7e8f90")
SHAPES = (KEK, base64.b64encode(KEK), base64.urlsafe_b64encode(KEK).rstrip(b"="), KEK.hex().encode(), repr(KEK)[2:-1].encode())
SERVICES = ("aws", "gcp", "azure", "vault", "local", "memory")


@dataclass
class Service:
    """A client of a running service, and the id of a master key that it has not."""

    client: KeyManagementClient
    missing: str = "nobody"


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    service = MAKERS[request.param](request, tmp_path)
    yield service
    service.client.close()


def _aws(request: pytest.FixtureRequest, _: Path) -> Service:
    aws: AwsServer = request.getfixturevalue("aws")
    return Service(AwsKeyManagementClient(aws.kms_properties), "alias/nobody")


def _gcp(request: pytest.FixtureRequest, _: Path) -> Service:
    cloud_kms: CloudKms = request.getfixturevalue("cloud_kms")
    client = GcpKeyManagementClient({"gcp.kms.endpoint": cloud_kms.url, "gcs.oauth2.token": cloud_kms.token})
    return Service(client, "projects/test/locations/global/keyRings/ring/cryptoKeys/nobody")


def _azure(request: pytest.FixtureRequest, _: Path) -> Service:
    key_vault: KeyVault = request.getfixturevalue("key_vault")
    return Service(AzureKeyManagementClient({"azure.keyvault.url": key_vault.url}, StaticCredential(key_vault.token)))


def _vault(request: pytest.FixtureRequest, _: Path) -> Service:
    transit: Transit = request.getfixturevalue("transit")
    return Service(VaultKeyManagementClient({"vault.url": transit.url, "vault.token": "root-token"}))


def _local(_: pytest.FixtureRequest, folder: Path) -> Service:
    create_key_file(folder / "keys.json", "orders", 32)
    return Service(LocalFileKeyManagementClient({"kms.local.key-file": str(folder / "keys.json")}))


def _memory(_: pytest.FixtureRequest, __: Path) -> Service:
    return Service(MemoryKeyManagementClient({"kms.memory.name": "frames"}))


MAKERS: dict[str, Callable[[pytest.FixtureRequest, Path], Service]] = {
    "aws": _aws,
    "gcp": _gcp,
    "azure": _azure,
    "vault": _vault,
    "local": _local,
    "memory": _memory,
}


def frames_of(error: BaseException) -> Iterator[FrameType]:
    """The frames of an error and of those behind it, but for those of this file."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield from (frame for frame, _ in traceback.walk_tb(each.__traceback__) if frame.f_code.co_filename != __file__)
        waiting += [each.__cause__, each.__context__]


def shows_the_key(value: object, depth: int = 3) -> bool:
    """Whether a value is the key in some spelling, or a container or a repr that holds it."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return any(shape in bytes(value) for shape in SHAPES)
    if isinstance(value, str):
        return any(shape in value.encode(errors="replace") for shape in SHAPES)
    if isinstance(value, dict) and depth:
        return any(shows_the_key(each, depth - 1) for pair in value.items() for each in pair)
    if isinstance(value, (list, tuple, set, frozenset)) and depth:
        return any(shows_the_key(each, depth - 1) for each in value)
    return depth > 0 and shows_the_key(repr(value), 0)


def assert_no_frame_shows_the_key(error: BaseException) -> None:
    frames = list(frames_of(error))
    assert frames
    shown = [f"{frame.f_code.co_qualname}: {name}" for frame in frames for name, value in frame.f_locals.items() if shows_the_key(value)]
    assert shown == []


@pytest.mark.parametrize("resilient", [True, False], ids=["as load_kms makes it", "bare"])
def test_a_wrap_that_is_refused_leaves_the_key_in_no_frame(service: Service, resilient: bool) -> None:
    client = ResilientKeyManagementClient(service.client, retry=RetryPolicy(budget_seconds=0)) if resilient else service.client
    with pytest.raises(TablecryptError) as failed:
        wrap_key(client, Secret(KEK), service.missing)
    assert_no_frame_shows_the_key(failed.value)


def test_a_new_kek_that_cannot_be_wrapped_is_in_no_frame(service: Service) -> None:
    manager = EncryptionManager(service.client, service.missing, random=lambda length: KEK[:length])
    with pytest.raises(TablecryptError) as failed:
        manager.new_kek()
    assert_no_frame_shows_the_key(failed.value)


@pytest.mark.parametrize("kind", ["cloud_kms", "transit", "key_vault"])
def test_a_service_that_is_not_there_gets_no_key_into_a_frame(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    running = request.getfixturevalue(kind)
    made = MAKERS[{"cloud_kms": "gcp", "transit": "vault", "key_vault": "azure"}[kind]](request, tmp_path)
    client = ResilientKeyManagementClient(made.client, retry=RetryPolicy(budget_seconds=0))
    running.unavailable = True
    try:
        with pytest.raises(TablecryptError) as failed:
            wrap_key(client, Secret(KEK), made.missing)
    finally:
        running.unavailable = False
        client.close()
    assert_no_frame_shows_the_key(failed.value)


def test_a_rewrap_that_fails_after_the_unwrap_leaves_the_key_in_no_frame() -> None:
    client = MemoryKeyManagementClient({"kms.memory.name": "rewrap-frames"}, {"old": bytes(32)})
    blob = client.wrap_key(KEK, "old")
    for asked in (client, ResilientKeyManagementClient(client)):
        with pytest.raises(TablecryptError) as failed:
            rewrap_key(asked, blob, "nobody", "old", Secret(KEK))
        assert_no_frame_shows_the_key(failed.value)


def test_a_key_of_a_wrong_length_is_in_no_frame_either() -> None:
    client = ResilientKeyManagementClient(MemoryKeyManagementClient({"kms.memory.name": "frames"}))
    with pytest.raises(TablecryptError) as failed:
        client.wrap_key(KEK + b"x", "orders")
    assert_no_frame_shows_the_key(failed.value)


def test_the_walk_sees_a_key_that_is_there() -> None:
    for value in (KEK, {"Plaintext": KEK}, [("plaintext", base64.b64encode(KEK).decode())], f"key={KEK!r}", bytearray(b"x" + KEK)):
        assert shows_the_key(value)
    assert not shows_the_key(Secret(KEK))


KEY = bytes(range(100, 132))


def test_plain_boto3_logs_the_key_at_debug_and_our_client_does_not(aws: AwsServer, caplog: pytest.LogCaptureFixture) -> None:
    client = AwsKeyManagementClient(aws.kms_properties)
    spelling = base64.b64encode(KEY).decode()
    with caplog.at_level(logging.DEBUG):
        client.unwrap_key(client.wrap_key(KEY, "alias/orders"), "alias/orders")
        assert spelling not in caplog.text
        aws.kms.encrypt(KeyId="alias/orders", Plaintext=KEY)
        assert spelling in caplog.text
