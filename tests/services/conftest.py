"""The services, each started once, and their stores: `store` is a new bucket of each of them, for each of PyIceberg's FileIOs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.services.stores import FILE_IOS, ObjectStore
from tests.support.aws import AwsServer
from tests.support.plaintext_scan import unwatch
from tests.support.selection import need
from tests.support.tables import encrypted_sql_catalog

if TYPE_CHECKING:
    from tablecrypt_catalog import EncryptedSqlCatalog
    from tests.services.azurite import Azurite
    from tests.services.fake_gcs import FakeGcs
    from tests.services.nessie import Nessie
    from tests.services.vault import Vault
    from tests.services.versitygw import Versitygw

STORES = [(service, file_io) for service in ("azurite", "versitygw", "fake_gcs") for file_io in FILE_IOS]


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Microsoft's emulator of Azure's storage. Without node and npm its tests are skipped, on a build machine they fail."""
    from tests.services.azurite import Azurite, azurite_problem

    need(azurite_problem())
    server = Azurite(tmp_path_factory.mktemp("azurite"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versitygw]:
    """An S3 server that is not moto. Without Go its tests are skipped, on a build machine they fail."""
    from tests.services.versitygw import Versitygw, versitygw_problem

    need(versitygw_problem())
    folder = tmp_path_factory.mktemp("versitygw")
    unwatch(folder)  # versions of what was migrated stay in its files, as they should; tests search what the server shows
    server = Versitygw(folder)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcs]:
    """An emulator of Google Cloud Storage. Without Go its tests are skipped, on a build machine they fail."""
    from tests.services.fake_gcs import FakeGcs, fake_gcs_problem

    need(fake_gcs_problem())
    server = FakeGcs(tmp_path_factory.mktemp("fake-gcs"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def nessie(versitygw: Versitygw, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    """A REST catalog that runs in production. Without Java 21 or Maven its tests are skipped, on a build machine they fail."""
    from tests.services.nessie import Nessie, nessie_problem

    need(nessie_problem())
    server = Nessie(tmp_path_factory.mktemp("nessie"), versitygw)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    """HashiCorp Vault. Without Go its tests are skipped, on a build machine they fail."""
    from tests.services.vault import Vault, vault_problem

    need(vault_problem())
    server = Vault(tmp_path_factory.mktemp("vault"))
    yield server
    server.stop()


@pytest.fixture(params=STORES, ids=" through ".join)
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """A new bucket of a service, which catalogs reach through one of PyIceberg's FileIOs."""
    service, file_io = request.param
    store: ObjectStore = request.getfixturevalue(service).store(file_io)
    return store


@pytest.fixture
def catalog(store: ObjectStore, tmp_path: Path, aws: AwsServer) -> EncryptedSqlCatalog:
    """A catalog whose tables are in the store, with keys in moto's KMS and the namespace `db`."""
    return encrypted_sql_catalog(tmp_path, aws, store.catalog_properties)
