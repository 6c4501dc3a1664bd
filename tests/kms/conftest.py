"""The key services that run in this process, each with real cryptography behind the wire protocol of the real one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.kms.services.cloud_kms import CloudKms
from tests.kms.services.key_vault import KeyVault
from tests.kms.services.transit import Transit
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def cloud_kms() -> Iterator[CloudKms]:
    service = CloudKms()
    yield service
    service.stop()


@pytest.fixture(scope="module")
def transit() -> Iterator[Transit]:
    service = Transit()
    yield service
    service.stop()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def _shared_key_vault(authority: Authority) -> Iterator[KeyVault]:
    # RSA keys take long to make: one vault for the whole session.
    service = KeyVault(authority.issue("vault"))
    for name in ("orders", "people"):
        service.create_key(name)
        service.create_key(f"{name}-hsm", secrets.token_bytes(32))
    yield service
    service.stop()


@pytest.fixture
def key_vault(_shared_key_vault: KeyVault, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyVault]:
    """A vault with the RSA keys orders and people, and the AES keys orders-hsm and people-hsm."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.path))
    yield _shared_key_vault
    _shared_key_vault.forbidden.clear()
    _shared_key_vault.unavailable = False
