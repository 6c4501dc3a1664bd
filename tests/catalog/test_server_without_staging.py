"""A REST server that knows nothing of staging makes an encrypted table when asked to stage one: that table is the one that was wanted."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.exceptions import TableAlreadyExistsError

from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import ENCRYPTED, memory_kms

KMS = memory_kms(__name__)
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def server(catalog: EncryptedSqlCatalog) -> Iterator[RestrictingServer]:
    with RestrictingServer(catalog) as server:
        server.stages = False
        yield server


def test_its_table_is_the_one_that_was_asked_for(server: RestrictingServer) -> None:
    client = server.client(**KMS)
    client.create_table("db.t", ROWS.schema, properties=ENCRYPTED).append(ROWS)

    assert client.load_table("db.t").scan().to_arrow().equals(ROWS)


def test_a_table_that_somebody_made_before_stays_and_is_not_taken_for_it(server: RestrictingServer) -> None:
    server.client(**KMS).create_table("db.t", ROWS.schema, properties=ENCRYPTED).append(ROWS)

    with pytest.raises(TableAlreadyExistsError):
        server.client(**KMS).create_table("db.t", ROWS.schema, properties=ENCRYPTED)

    assert server.client(**KMS).load_table("db.t").scan().to_arrow().equals(ROWS)
