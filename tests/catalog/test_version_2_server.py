"""A server that makes tables of version 2: nothing is left that another client would write plaintext into, and the error says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tablecrypt.errors import ConfigurationError, PlaintextRefusedError, ReadRestrictionError
from tablecrypt_catalog import EncryptedRestCatalog, EncryptedSqlCatalog, encrypted
from tests.support.tables import ENCRYPTED, MASTER_KEY, memory_kms
from tests.support.version_2_server import Version2Server

KMS = memory_kms(__name__)
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def behind(unwatched_warehouse: Path) -> SqlCatalog:
    """The server's own catalog, which other clients use."""
    catalog = SqlCatalog("behind", uri=f"sqlite:///{unwatched_warehouse}/catalog.db", warehouse=f"file://{unwatched_warehouse}/warehouse")
    catalog.create_namespace("db")
    return catalog


@pytest.fixture
def server(behind: SqlCatalog) -> Iterator[Version2Server]:
    with Version2Server(behind) as server:
        yield server


@pytest.fixture
def catalog(server: Version2Server) -> EncryptedRestCatalog:
    return server.client(**KMS)


def append_in_one_commit(catalog: EncryptedRestCatalog) -> None:
    with catalog.create_table_transaction("db.t", ROWS.schema, properties=ENCRYPTED) as transaction:
        transaction.append(ROWS)


WAYS: dict[str, Callable[[EncryptedRestCatalog], object]] = {
    "create_table": lambda catalog: catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED),
    "if not exists": lambda catalog: catalog.create_table_if_not_exists("db.t", ROWS.schema, properties=ENCRYPTED),
    "transaction": append_in_one_commit,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_nothing_is_left(catalog: EncryptedRestCatalog, behind: SqlCatalog, way: Callable[[EncryptedRestCatalog], object]) -> None:
    with pytest.raises(PlaintextRefusedError, match=r"the catalog's server .* version 2, .*: use a server that makes version 3") as refused:
        way(catalog)

    assert "\n" not in str(refused.value)
    assert behind.list_tables("db") == []


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_a_server_that_says_so_before_is_asked_for_no_table(
    server: Version2Server, catalog: EncryptedRestCatalog, behind: SqlCatalog, way: Callable[[EncryptedRestCatalog], object]
) -> None:
    made: list[Table] = []
    server.stages_version_3, server.meanwhile = False, made.append
    with pytest.raises(PlaintextRefusedError, match=r"version 2, .*: use a server that makes version 3"):
        way(catalog)
    assert made == []
    assert behind.list_tables("db") == []


def test_nothing_is_left_where_the_server_makes_a_table_that_it_was_to_stage(
    server: Version2Server, catalog: EncryptedRestCatalog, behind: SqlCatalog
) -> None:
    server.stages = False
    with pytest.raises(PlaintextRefusedError, match=r"version 2, .*db\.t was dropped again"):
        catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    assert behind.list_tables("db") == []


def test_a_default_key_of_the_catalog_is_no_way_around(server: Version2Server, behind: SqlCatalog) -> None:
    catalog = server.client(**KMS, **{"encryption.default-key-id": MASTER_KEY})
    with pytest.raises(PlaintextRefusedError, match=r"db\.t was dropped again"):
        catalog.create_table("db.t", ROWS.schema)
    assert behind.list_tables("db") == []


def test_a_table_that_is_version_2_only_once_it_is_committed_is_dropped_again(
    server: Version2Server, catalog: EncryptedRestCatalog, behind: SqlCatalog
) -> None:
    with pytest.raises(PlaintextRefusedError, match=r"makes tables of version 2.*db\.t was dropped again"):
        append_in_one_commit(catalog)
    assert behind.list_tables("db") == []


def test_what_cannot_be_dropped_is_named_with_the_call_that_drops_it(
    server: Version2Server, catalog: EncryptedRestCatalog, behind: SqlCatalog
) -> None:
    server.may_drop = False
    with pytest.raises(PlaintextRefusedError, match=r"version 2.*could not be dropped again.*drop it by catalog\.drop_table\('db\.t'\)$"):
        catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)

    server.may_drop = True
    catalog.drop_table("db.t")
    assert behind.list_tables("db") == []


def replace(table: Table) -> None:
    table.catalog.drop_table(table.name())
    table.catalog.create_table(table.name(), table.schema())


@pytest.mark.parametrize("meanwhile", [replace, lambda table: table.append(ROWS)], ids=["another table", "rows of somebody else"])
def test_only_the_table_that_the_call_made_is_dropped(
    server: Version2Server, catalog: EncryptedRestCatalog, behind: SqlCatalog, meanwhile: Callable[[Table], object]
) -> None:
    server.meanwhile = meanwhile
    with pytest.raises(PlaintextRefusedError, match=r"version 2.*was left as it is"):
        catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    assert behind.list_tables("db") == [("db", "t")]


def test_somebody_who_dropped_it_first_is_no_error_of_its_own(
    server: Version2Server, catalog: EncryptedRestCatalog, behind: SqlCatalog
) -> None:
    server.meanwhile = lambda table: table.catalog.drop_table(table.name())
    with pytest.raises(PlaintextRefusedError, match=r"version 2.*has no table db\.t"):
        catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)


def test_a_creation_that_is_refused_for_another_reason_leaves_nothing_either(
    server: Version2Server, catalog: EncryptedRestCatalog, behind: SqlCatalog
) -> None:
    made = server._loaded
    server._loaded = lambda table: made(table) | {"config": {"s3.endpoint": "http://stranger"}}  # type: ignore[method-assign]
    for properties in (ENCRYPTED, {}):
        with pytest.raises(ConfigurationError, match=r"s3\.endpoint.*db\.t was dropped again"):
            catalog.create_table("db.t", ROWS.schema, properties=properties)
    assert behind.list_tables("db") == []


@pytest.mark.parametrize("restrictions", [{"required-row-filter": False}, {"of-the-future": 1}, "all"])
@pytest.mark.parametrize("properties", [ENCRYPTED, {}], ids=["encrypted", "plain"])
def test_a_table_whose_creation_is_answered_with_restrictions_is_dropped_again(
    server: Version2Server, catalog: EncryptedRestCatalog, behind: SqlCatalog, restrictions: object, properties: dict[str, str]
) -> None:
    made = server._loaded
    server._loaded = lambda table: made(table) | {"read-restrictions": restrictions}  # type: ignore[method-assign]
    with pytest.raises(ReadRestrictionError, match=r"restrict.*\. db\.t was dropped again$"):
        catalog.create_table("db.t", ROWS.schema, properties=properties)
    assert behind.list_tables("db") == []


def test_tables_that_are_not_encrypted_are_made_as_before(catalog: EncryptedRestCatalog, behind: SqlCatalog) -> None:
    table = catalog.create_table("db.plain", ROWS.schema)
    assert (table.format_version, table.metadata) == (2, behind.load_table("db.plain").metadata)


def version_2_under_a_key_id(behind: SqlCatalog, rows: pa.Table | None = ROWS) -> str:
    table = behind.create_table("db.promised", ROWS.schema, properties=ENCRYPTED)
    if rows is not None:
        table.append(rows)
    behind.drop_table("db.promised")
    return table.metadata_location


@pytest.mark.parametrize("rows", [ROWS, None], ids=["rows", "empty"])
def test_a_registration_is_undone(catalog: EncryptedRestCatalog, behind: SqlCatalog, rows: pa.Table | None) -> None:
    location = version_2_under_a_key_id(behind, rows)
    with pytest.raises(PlaintextRefusedError, match=r"not encrypted \(format version 2\).*db\.t was dropped again"):
        catalog.register_table("db.t", location)
    assert behind.list_tables("db") == []


@pytest.mark.parametrize("kind", [EncryptedSqlCatalog, encrypted(InMemoryCatalog)], ids=["SQL", "by PyIceberg's own steps"])
def test_other_catalogs_register_no_such_table(behind: SqlCatalog, kind: type[SqlCatalog], unwatched_warehouse: Path) -> None:
    location = version_2_under_a_key_id(behind)
    catalog = kind("other", uri=f"sqlite:///{unwatched_warehouse}/other.db", warehouse=f"file://{unwatched_warehouse}", **KMS)
    catalog.create_namespace("db")
    with pytest.raises(PlaintextRefusedError, match=r"not encrypted \(format version 2\)"):
        catalog.register_table("db.t", location)
    assert catalog.list_tables("db") == []
