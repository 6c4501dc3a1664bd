"""One Trino for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.aws import AwsServer
from tests.support.postgres import PostgresServer
from tests.support.selection import need

if TYPE_CHECKING:
    from tests.support.trino import Trino


@pytest.fixture(scope="session")
def judge(aws: AwsServer, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    """A running Trino. Without Java 25 or Maven its tests are skipped, on a build machine they fail."""
    from tests.support.trino import Trino, trino_problem

    need(trino_problem())
    server = Trino(tmp_path_factory.mktemp("trino"), aws, postgres.new_database())
    yield server
    server.stop()
