"""Every catalog keeps the contract that ships in tablecrypt.testing, and its tables are as the model says after any operations."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from tablecrypt.testing import EncryptedCatalogContract, TableStateMachine
from tablecrypt_catalog import encrypted
from tests.support.aws import AwsServer
from tests.support.glue import encrypted_glue_catalog
from tests.support.hive import HiveMetastore, encrypted_hive_catalog
from tests.support.rest_server import RestServer, encrypted_rest_catalog
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog

NewCatalog = Callable[[], Catalog]


class _KeysInAws(EncryptedCatalogContract):
    """Catalogs whose keys are in moto's KMS."""

    @pytest.fixture
    def key_id(self) -> str:
        return MASTER_KEY

    @pytest.fixture
    def other_key_id(self, aws: AwsServer) -> str:
        return aws.new_key()

    @pytest.mark.slow
    def test_any_sequence_of_operations_ends_as_the_model_says(self, new_catalog: NewCatalog, namespace: str, key_id: str) -> None:
        counts = TableStateMachine.check(new_catalog, key_id, namespace=namespace, max_examples=2, steps=12)
        assert counts.total() > 8


class TestSql(_KeysInAws):
    @pytest.fixture
    def new_catalog(self, warehouse: Path, aws: AwsServer) -> NewCatalog:
        return lambda: encrypted_sql_catalog(warehouse, aws)


class TestAnyMetastoreCatalogMadeToEncrypt(_KeysInAws):
    """A class that knows nothing of encryption, by `encrypted`."""

    @pytest.fixture
    def new_catalog(self, warehouse: Path, aws: AwsServer) -> NewCatalog:
        class Plain(SqlCatalog):
            """A catalog of somebody else's."""

        place = {"uri": f"sqlite:///{warehouse}/catalog.db", "warehouse": f"file://{warehouse}/warehouse"}
        pins = {"encryption.pins": str(warehouse / "pins.json")}
        return lambda: encrypted(Plain)("mine", **place, **pins, **aws.kms_properties)


@pytest.mark.slow
class TestGlue(_KeysInAws):
    @pytest.fixture
    def new_catalog(self, aws: AwsServer) -> NewCatalog:
        bucket = aws.bucket(f"contract-{uuid.uuid4().hex[:12]}")
        return lambda: encrypted_glue_catalog(aws, bucket)


@pytest.mark.java
class TestRest(_KeysInAws):
    @pytest.fixture
    def new_catalog(self, rest_server: RestServer, aws: AwsServer, tmp_path: Path) -> NewCatalog:
        return lambda: encrypted_rest_catalog(rest_server.uri, aws, {"encryption.pins": str(tmp_path / "pins.json")})


@pytest.mark.java
class TestHive(_KeysInAws):
    @pytest.fixture
    def new_catalog(self, hive_metastore: HiveMetastore, warehouse: Path, aws: AwsServer) -> NewCatalog:
        return lambda: encrypted_hive_catalog(hive_metastore, warehouse, aws)

    @pytest.fixture
    def namespace(self, catalog: Any, warehouse: Path) -> str:
        name = f"db_{uuid.uuid4().hex[:8]}"
        catalog.create_namespace(name, {"location": f"file://{warehouse}/{name}"})
        return name
