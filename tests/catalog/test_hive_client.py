"""The swap by comparison: nothing that another writer committed is overwritten, and what came of a commit is told truly.

Faults are put between our client and a real metastore: an answer lost on the way back, a server that knows no comparison.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    Database,
    EnvironmentContext,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    MetaException,
    SerDeInfo,
    StorageDescriptor,
    UnlockRequest,
)
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, WaitingForLockException
from thrift.transport.TTransport import TTransportException

from tablecrypt_catalog.hive import ServerTraits, SwappingClient, wait_for_lock
from tests.support.hive import HiveMetastore

pytestmark = pytest.mark.java


@pytest.fixture
def client(hive_metastore: HiveMetastore) -> Iterator[Client]:
    with hive_metastore.client() as client:
        yield client


@pytest.fixture
def database(client: Client, hive_metastore: HiveMetastore) -> str:
    """A database with the table `t` at the metadata location v1."""
    name = f"client_{uuid.uuid4().hex[:8]}"
    client.create_database(Database(name=name, locationUri=f"file://{hive_metastore.folder}/{name}"))
    storage = StorageDescriptor(
        cols=[],
        location=f"file://{hive_metastore.folder}/{name}/t",
        serdeInfo=SerDeInfo(serializationLib="org.apache.hadoop.hive.serde2.x"),
    )
    parameters = {"EXTERNAL": "TRUE", "table_type": "ICEBERG", "metadata_location": "v1"}
    client.create_table(HiveTable(dbName=name, tableName="t", sd=storage, tableType="EXTERNAL_TABLE", parameters=parameters))
    return name


class Fault:
    """A connection on which one thing goes wrong whenever a table is altered to the location `v2`."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def alter_table_with_environment_context(self, dbname: str, tbl_name: str, new_tbl: HiveTable, context: EnvironmentContext) -> None:
        if new_tbl.parameters["metadata_location"] == "v2":
            self.alter(dbname, tbl_name, new_tbl, context)
        else:
            self.client.alter_table_with_environment_context(dbname, tbl_name, new_tbl, context)

    def alter(self, dbname: str, tbl_name: str, new_tbl: HiveTable, context: EnvironmentContext) -> None:
        raise NotImplementedError


class AnswerIsLost(Fault):
    def alter(self, dbname: str, tbl_name: str, new_tbl: HiveTable, context: EnvironmentContext) -> None:
        self.client.alter_table_with_environment_context(dbname, tbl_name, new_tbl, context)
        raise TTransportException(TTransportException.END_OF_FILE, "TSocket read 0 bytes")


class FailureIsReportedAfterTheSwap(Fault):
    def alter(self, dbname: str, tbl_name: str, new_tbl: HiveTable, context: EnvironmentContext) -> None:
        self.client.alter_table_with_environment_context(dbname, tbl_name, new_tbl, context)
        raise MetaException("a listener failed")


class SwapIsRepeated(Fault):
    """As a metastore does after a fault of its database."""

    def alter(self, dbname: str, tbl_name: str, new_tbl: HiveTable, context: EnvironmentContext) -> None:
        for _ in range(2):
            self.client.alter_table_with_environment_context(dbname, tbl_name, new_tbl, context)


class FailureIsReportedBeforeTheSwap(Fault):
    def alter(self, dbname: str, tbl_name: str, new_tbl: HiveTable, context: EnvironmentContext) -> None:
        raise MetaException("the database is in a deadlock")


class NothingIsKnownAfterwards(Fault):
    def alter(self, dbname: str, tbl_name: str, new_tbl: HiveTable, context: EnvironmentContext) -> None:
        new_tbl.parameters["metadata_location"] = "v3"
        self.client.alter_table_with_environment_context(dbname, tbl_name, new_tbl, context)
        new_tbl.parameters["metadata_location"] = "v2"
        raise MetaException("something failed")


class OldServer:
    """A metastore before HIVE-26882, as far as a client can tell: it ignores what the environment context expects."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def alter_table_with_environment_context(self, dbname: str, tbl_name: str, new_tbl: HiveTable, context: EnvironmentContext) -> None:
        kept = {key: value for key, value in context.properties.items() if not key.startswith("expected_parameter_")}
        self.client.alter_table_with_environment_context(dbname, tbl_name, new_tbl, EnvironmentContext(properties=kept))


def swap(client: SwappingClient, database: str, location: str = "v2") -> None:
    entry = client.get_table(dbname=database, tbl_name="t")
    entry.parameters["metadata_location"] = location
    client.alter_table_with_environment_context(
        dbname=database, tbl_name="t", new_tbl=entry, environment_context=EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
    )


def location_of(metastore: HiveMetastore, database: str) -> str:
    return metastore.parameters(f"{database}.t")["metadata_location"]


def test_an_entry_is_replaced_where_it_is_what_was_read(client: Client, database: str, hive_metastore: HiveMetastore) -> None:
    traits = ServerTraits()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        swap(SwappingClient(client, traits), database)
    assert traits.compares is True
    assert location_of(hive_metastore, database) == "v2"
    assert not [name for name in hive_metastore.parameters(f"{database}.t") if name.startswith("expected")]


def test_an_entry_that_changed_since_it_was_read_is_not_replaced(client: Client, database: str, hive_metastore: HiveMetastore) -> None:
    swapping = SwappingClient(client, ServerTraits())
    entry = swapping.get_table(dbname=database, tbl_name="t")
    hive_metastore.change_parameters(f"{database}.t", {"metadata_location": "v1-of-another"})
    entry.parameters["metadata_location"] = "v2"
    with pytest.raises(CommitFailedException, match="another writer replaced v1"):
        swapping.alter_table_with_environment_context(database, "t", entry, EnvironmentContext(properties={}))
    assert location_of(hive_metastore, database) == "v1-of-another"


def test_a_rename_does_not_undo_a_commit(client: Client, database: str, hive_metastore: HiveMetastore) -> None:
    swapping = SwappingClient(client, ServerTraits())
    entry = swapping.get_table(dbname=database, tbl_name="t")
    hive_metastore.change_parameters(f"{database}.t", {"metadata_location": "v1-of-another"})
    entry.tableName = "renamed"
    with pytest.raises(CommitFailedException):
        swapping.alter_table_with_environment_context(database, "t", entry, EnvironmentContext(properties={}))
    assert location_of(hive_metastore, database) == "v1-of-another"


def test_a_server_that_does_not_compare_is_found_out_once_and_without_harm(
    client: Client, database: str, hive_metastore: HiveMetastore
) -> None:
    traits = ServerTraits()
    before = hive_metastore.parameters(f"{database}.t")
    with pytest.warns(UserWarning, match="only Hive locks protect commits"):
        swap(SwappingClient(OldServer(client), traits), database, location="v1")
    assert traits.compares is False
    assert hive_metastore.parameters(f"{database}.t") == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        swap(SwappingClient(OldServer(client), traits), database)
    assert location_of(hive_metastore, database) == "v2"


def test_a_lost_answer_leaves_the_commit_unknown(client: Client, database: str) -> None:
    with pytest.raises(CommitStateUnknownException, match=r"v2.*before it answered"):
        swap(SwappingClient(AnswerIsLost(client), ServerTraits()), database)


@pytest.mark.parametrize("fault", [FailureIsReportedAfterTheSwap, SwapIsRepeated])
def test_a_swap_that_is_in_force_is_a_success_whatever_the_server_reported(
    client: Client, database: str, hive_metastore: HiveMetastore, fault: type[Fault]
) -> None:
    swap(SwappingClient(fault(client), ServerTraits()), database)
    assert location_of(hive_metastore, database) == "v2"


def test_a_swap_that_is_not_in_force_failed(client: Client, database: str) -> None:
    with pytest.raises(CommitFailedException, match="deadlock"):
        swap(SwappingClient(FailureIsReportedBeforeTheSwap(client), ServerTraits()), database)


def test_a_swap_that_others_may_have_followed_is_unknown(client: Client, database: str) -> None:
    with pytest.raises(CommitStateUnknownException, match="something failed"):
        swap(SwappingClient(NothingIsKnownAfterwards(client), ServerTraits()), database)


def test_a_table_that_is_not_icebergs_is_altered_as_ever(client: Client, database: str, hive_metastore: HiveMetastore) -> None:
    hive_metastore.change_parameters(f"{database}.t", {"metadata_location": None, "table_type": None})
    swapping = SwappingClient(client, ServerTraits())
    entry = swapping.get_table(dbname=database, tbl_name="t")
    entry.parameters["a"] = "b"
    swapping.alter_table_with_environment_context(database, "t", entry, EnvironmentContext(properties={}))
    assert hive_metastore.parameters(f"{database}.t")["a"] == "b"


def test_a_lock_that_cannot_be_given_back_hides_nothing(client: Client) -> None:
    SwappingClient(client, ServerTraits()).unlock(UnlockRequest(lockid=987654321))


def lock(client: Client, database: str) -> Any:
    component = LockComponent(type=LockType.EXCLUSIVE, level=LockLevel.TABLE, dbname=database, tablename="t", isTransactional=True)
    return client.lock(LockRequest(component=[component], user="tests", hostname="localhost"))


def test_a_lock_is_waited_for_and_then_had(client: Client, database: str, hive_metastore: HiveMetastore) -> None:
    first = lock(client, database)
    assert first.state == LockState.ACQUIRED
    with hive_metastore.client() as other:
        second = lock(other, database)
        assert second.state == LockState.WAITING
        with pytest.raises(WaitingForLockException):
            wait_for_lock(other, second.lockid, "t", iter([0.0, 0.0]))
        client.unlock(UnlockRequest(lockid=first.lockid))
        assert wait_for_lock(other, second.lockid, "t", iter([0.0])).state == LockState.ACQUIRED
        other.unlock(UnlockRequest(lockid=second.lockid))
