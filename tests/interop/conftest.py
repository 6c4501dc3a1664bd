"""Fixtures of the tests that ask another implementation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.aws import AwsServer
from tests.support.hive import HiveMetastore
from tests.support.java import JavaOracle


@pytest.fixture(scope="session")
def java_on_hive(hive_metastore: HiveMetastore, aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaOracle]:
    """Another Iceberg Java, whose catalog is on the metastore that our Hive catalogs use."""
    with JavaOracle(tmp_path_factory.mktemp("java-on-hive"), aws.endpoint, metastore_uri=hive_metastore.uri) as oracle:
        yield oracle
