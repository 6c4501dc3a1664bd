"""A Ray cluster of this machine's own, and encrypted tables whose keys its workers get from the same KMS.

Ray gets an environment of its own, which `make ray` sets up and runs these tests in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import ray

from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.tables import encrypted_sql_catalog

T = TypeVar("T")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # nobody else reaches the cluster, and Ray would leave a token in the home folder
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its makers


def started(start: Callable[[], T]) -> T:
    """Return what starts a node, tried again where Ray gave up: it waits 30 seconds, which a busy machine may take."""
    for _ in range(4):
        try:
            return start()
        except Exception as error:  # Ray raises no class of its own
            if "timed out during startup" not in str(error):
                raise
            ray.shutdown()
    return start()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """One node, for what needs no more. A process is connected to one cluster at a time."""
    yield started(lambda: ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False))
    ray.shutdown()


@pytest.fixture
def encrypted(tmp_path: Path, aws: AwsServer, cluster: Any) -> EncryptedSqlCatalog:
    """A catalog with moto's KMS, beside a cluster."""
    return encrypted_sql_catalog(tmp_path, aws)
