"""Nessie makes tables of version 2 alone: an encrypted table is refused with words that fit, and nothing of it is left anywhere."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from tablecrypt.errors import PlaintextRefusedError
from tests.support.aws import AwsServer
from tests.support.rest_server import encrypted_rest_catalog
from tests.support.tables import ENCRYPTED, SCHEMA, rows

if TYPE_CHECKING:
    from tablecrypt_catalog import EncryptedRestCatalog
    from tests.services.nessie import Nessie

pytestmark = pytest.mark.services


def client(nessie: Nessie, aws: AwsServer, address: str | None = None) -> EncryptedRestCatalog:
    return encrypted_rest_catalog(address or nessie.address, aws, nessie.store.properties)


def in_one_commit(catalog: EncryptedRestCatalog, name: str) -> None:
    with catalog.create_table_transaction(name, SCHEMA, properties=ENCRYPTED) as transaction:
        transaction.append(rows(0))


WAYS: dict[str, Callable[[EncryptedRestCatalog, str], object]] = {
    "create_table": lambda catalog, name: catalog.create_table(name, SCHEMA, properties=ENCRYPTED),
    "if not exists": lambda catalog, name: catalog.create_table_if_not_exists(name, SCHEMA, properties=ENCRYPTED),
    "transaction": in_one_commit,
}


@pytest.mark.parametrize("end", ["", "/"])
def test_it_connects_however_the_address_ends(nessie: Nessie, aws: AwsServer, end: str) -> None:
    catalog = client(nessie, aws, nessie.address + end)
    namespace = f"db{secrets.token_hex(4)}"
    catalog.create_namespace(namespace)
    assert (namespace,) in RestCatalog("other", uri=nessie.address).list_namespaces()


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_an_encrypted_table_is_refused_and_nothing_is_left(
    nessie: Nessie, aws: AwsServer, way: Callable[[EncryptedRestCatalog, str], object]
) -> None:
    catalog, before = client(nessie, aws), nessie.store.contents()
    namespace = f"db{secrets.token_hex(4)}"
    catalog.create_namespace(namespace)

    with pytest.raises(PlaintextRefusedError, match=r"version 2.*use a server that makes version 3") as refused:
        way(catalog, f"{namespace}.t")

    assert "\n" not in str(refused.value)
    assert catalog.list_tables(namespace) == []
    with pytest.raises(NoSuchTableError):
        RestCatalog("other", uri=nessie.address).load_table(f"{namespace}.t")
    assert nessie.store.contents() == before
