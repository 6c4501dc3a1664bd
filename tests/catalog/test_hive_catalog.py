"""The Hive catalog: what it keeps in the metastore, what it refuses, and that no commit is lost. On a real metastore."""

from __future__ import annotations

import hashlib
import json
import pickle
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import LockComponent, LockLevel, LockRequest, LockType, ShowLocksRequest, UnlockRequest
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.exceptions import CommitStateUnknownException, TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate
from thrift.transport.TTransport import TTransportException

from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError, KeyIdChangedError, MetadataRollbackError, TamperedFileError
from tablecrypt.table.canonical_metadata import metadata_hash
from tablecrypt.table.protection.writing import StaleWriteError
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedHiveCatalog, EncryptedSqlCatalog
from tablecrypt_catalog.hive import ServerTraits, SwappingClient
from tests.security.test_stale_writers import PREVENTED, Change, person
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.edited_metadata import edit_json
from tests.support.hive import HiveMetastore, encrypted_hive_catalog
from tests.support.interruptions import interrupted_in
from tests.support.plaintext import CANARY
from tests.support.protected_tables import Clients, clients, declare, loaded, opened_by_table_key, protected_table
from tests.support.tables import ENCRYPTED, MASTER_KEY, ROWS, ids, metadata_of, metadata_path, new_table

pytestmark = pytest.mark.java


@pytest.fixture
def catalog(hive_metastore: HiveMetastore, warehouse: Path, aws: AwsServer) -> EncryptedHiveCatalog:
    return encrypted_hive_catalog(hive_metastore, warehouse, aws)


@pytest.fixture
def database(catalog: EncryptedHiveCatalog, warehouse: Path) -> str:
    """A namespace of its own for each test, since all share the metastore."""
    name = f"db_{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(name, {"location": f"file://{warehouse}/{name}"})
    return name


@pytest.fixture
def table(catalog: EncryptedHiveCatalog, database: str) -> Table:
    return new_table(catalog, f"{database}.t", appends=[ROWS])


def name_of(table: Table) -> str:
    return ".".join(table.name())


def pins_of(metastore: HiveMetastore, table: Table) -> dict[str, str]:
    return {
        name: value
        for name, value in metastore.parameters(name_of(table)).items()
        if name.startswith(("encryption.", "metadata_hash", "tablecrypt."))
    }


def document_hash(table: Table) -> str:
    return f"{hashlib.sha256(metadata_path(table).read_bytes()).hexdigest()} {table.metadata_location}"


def test_an_encrypted_table_is_pinned_from_its_creation(
    catalog: EncryptedHiveCatalog, database: str, hive_metastore: HiveMetastore
) -> None:
    table = catalog.create_table(f"{database}.t", ROWS.schema, properties=ENCRYPTED)
    assert isinstance(table, EncryptedTable)
    assert table.format_version == 3
    parameters = hive_metastore.parameters(f"{database}.t")
    assert (parameters["EXTERNAL"], parameters["table_type"]) == ("TRUE", "ICEBERG")
    assert parameters["metadata_location"] == table.metadata_location
    assert pins_of(hive_metastore, table) == {
        "encryption.key-id": MASTER_KEY,
        "metadata_hash": metadata_hash(metadata_path(table).read_bytes()),
        "tablecrypt.metadata-sha256": document_hash(table),
        "tablecrypt.protected-columns": "[]",
        "tablecrypt.folders": json.dumps([table.location()]),
    }
    with hive_metastore.client() as client:
        assert client.get_table(database, "t").tableType == "EXTERNAL_TABLE"


def test_every_commit_renews_the_pins(table: Table, hive_metastore: HiveMetastore) -> None:
    seen = set()
    for change in (
        lambda: table.append(ROWS),
        lambda: table.delete("id = 1"),
        lambda: table.transaction().set_properties(a="b").commit_transaction(),
    ):
        before = table.metadata_location
        change()
        parameters = hive_metastore.parameters(name_of(table))
        assert parameters["metadata_location"] == table.metadata_location
        assert parameters["previous_metadata_location"] == before
        assert parameters["metadata_hash"] == metadata_hash(metadata_path(table).read_bytes())
        assert parameters["tablecrypt.metadata-sha256"] == document_hash(table)
        seen.add(parameters["metadata_hash"])
    assert len(seen) == 3


def test_the_key_length_is_pinned_exactly_where_the_table_has_one(
    catalog: EncryptedHiveCatalog, database: str, hive_metastore: HiveMetastore
) -> None:
    table = catalog.create_table(f"{database}.t", ROWS.schema, properties=ENCRYPTED)
    assert "encryption.data-key-length" not in pins_of(hive_metastore, table)
    table.transaction().set_properties({"encryption.data-key-length": "32"}).commit_transaction()
    assert pins_of(hive_metastore, table)["encryption.data-key-length"] == "32"
    table.append(ROWS)
    assert_same_rows(catalog.load_table(f"{database}.t").scan().to_arrow(), ROWS)


def test_a_table_created_with_its_first_data_is_pinned(catalog: EncryptedHiveCatalog, database: str, hive_metastore: HiveMetastore) -> None:
    with catalog.create_table_transaction(f"{database}.t", ROWS.schema, properties=ENCRYPTED) as transaction:
        transaction.append(ROWS)
    table = catalog.load_table(f"{database}.t")
    assert_same_rows(table.scan().to_arrow(), ROWS)
    assert pins_of(hive_metastore, table)["metadata_hash"] == metadata_hash(metadata_path(table).read_bytes())


def test_a_table_whose_entry_lost_the_key_id_is_neither_read_nor_written(
    catalog: EncryptedHiveCatalog, table: Table, hive_metastore: HiveMetastore
) -> None:
    hive_metastore.change_parameters(name_of(table), {"encryption.key-id": None})
    for forbidden in (lambda: catalog.load_table(table.name()), lambda: table.append(ROWS), table.refresh):
        with pytest.raises(KeyIdChangedError, match=r"has no parameter encryption\.key-id"):
            forbidden()
    assert hive_metastore.parameters(name_of(table))["metadata_location"] == table.metadata_location
    hive_metastore.change_parameters(name_of(table), {"encryption.key-id": MASTER_KEY})
    assert_same_rows(catalog.load_table(table.name()).scan().to_arrow(), ROWS)


def test_keys_without_any_key_id_are_refused(
    catalog: EncryptedHiveCatalog, table: Table, hive_metastore: HiveMetastore, unwatched_warehouse: Path
) -> None:
    metadata = json.loads(metadata_path(table).read_bytes())
    del metadata["properties"]["encryption.key-id"]
    stripped = unwatched_warehouse / "00009-stripped.metadata.json"
    stripped.write_text(json.dumps(metadata))
    lost: dict[str, str | None] = {"encryption.key-id": None, "metadata_hash": None, "metadata_location": f"file://{stripped}"}
    hive_metastore.change_parameters(name_of(table), lost)
    with pytest.raises(KeyIdChangedError):
        catalog.load_table(table.name())


def test_metadata_edited_in_place_is_refused_and_named(catalog: EncryptedHiveCatalog, table: Table) -> None:
    edit_json(metadata_path(table), lambda metadata: metadata["properties"].update({"write.parquet.compression-codec": "gzip"}))
    for forbidden in (lambda: catalog.load_table(table.name()), lambda: table.append(ROWS)):
        with pytest.raises(TamperedFileError, match="metadata-sha256") as caught:
            forbidden()
        assert caught.value.location == table.metadata_location


def test_an_entry_that_was_read_half_way_through_a_commit_is_read_again(
    catalog: EncryptedHiveCatalog, database: str, table: Table, hive_metastore: HiveMetastore
) -> None:
    before = hive_metastore.parameters(name_of(table))
    table.append(ROWS)
    for half in ("metadata_hash", "metadata_location"):
        with hive_metastore.client() as client:
            entry = client.get_table(database, "t")
        entry.parameters[half] = before[half]
        assert catalog.table_of_entry(entry).metadata_location == table.metadata_location


def test_an_edit_cannot_hide_behind_a_form_that_is_not_known(
    catalog: EncryptedHiveCatalog, table: Table, hive_metastore: HiveMetastore
) -> None:
    as_java_leaves_it(table, hive_metastore)
    metadata = json.loads(metadata_path(table).read_bytes())
    field = {"id": 3, "name": "d", "required": False, "type": "double", "initial-default": 1.5, "write-default": 1.5}
    metadata["schemas"][0]["fields"].append(field)
    metadata["last-column-id"] = 3
    metadata_path(table).write_text(json.dumps(metadata))
    with pytest.raises(TamperedFileError, match="metadata_hash"):
        catalog.load_table(table.name())


def as_java_leaves_it(table: Table, metastore: HiveMetastore) -> None:
    """Iceberg Java puts its own hash into the entry, and does not touch the SHA-256 that stands there for an older file."""
    digest = metastore.parameters(name_of(table))["tablecrypt.metadata-sha256"].partition(" ")[0]
    older = table.metadata.metadata_log[-1].metadata_file
    metastore.change_parameters(name_of(table), {"tablecrypt.metadata-sha256": f"{digest} {older}"})


def test_other_spacing_of_the_same_metadata_is_the_same_metadata_to_javas_hash_alone(
    catalog: EncryptedHiveCatalog, table: Table, hive_metastore: HiveMetastore
) -> None:
    metadata_path(table).write_text(json.dumps(json.loads(metadata_path(table).read_bytes()), indent=4))
    with pytest.raises(TamperedFileError, match="metadata-sha256"):
        catalog.load_table(table.name())
    as_java_leaves_it(table, hive_metastore)
    assert_same_rows(catalog.load_table(table.name()).scan().to_arrow(), ROWS)


def test_parameters_of_others_stay(table: Table, hive_metastore: HiveMetastore) -> None:
    foreign: dict[str, str | None] = {"owned-by": "the catalog team", "numRows": "7", "a.b": ""}
    hive_metastore.change_parameters(name_of(table), foreign)
    table.append(ROWS)
    table.transaction().set_properties(mine="1").commit_transaction()
    table.transaction().remove_properties("mine").commit_transaction()
    parameters = hive_metastore.parameters(name_of(table))
    assert {name: parameters.get(name) for name in foreign} == foreign
    assert "mine" not in parameters


def test_a_property_of_the_table_cannot_pose_as_a_pin(table: Table, hive_metastore: HiveMetastore) -> None:
    posing = {"metadata_hash": "forged", "metadata_location": "file:///elsewhere", "table_type": "view"}
    table.transaction().set_properties(posing).commit_transaction()
    parameters = hive_metastore.parameters(name_of(table))
    assert parameters["metadata_location"] == table.metadata_location
    assert parameters["table_type"] == "ICEBERG"
    assert parameters["metadata_hash"] == metadata_hash(metadata_path(table).read_bytes())


def test_a_registered_table_is_pinned(catalog: EncryptedHiveCatalog, database: str, table: Table, hive_metastore: HiveMetastore) -> None:
    registered = catalog.register_table(f"{database}.again", table.metadata_location)
    assert isinstance(registered, EncryptedTable)
    assert pins_of(hive_metastore, registered) == pins_of(hive_metastore, table)
    registered.append(ROWS)
    assert_same_rows(registered.scan().to_arrow(), pa.concat_tables([ROWS, ROWS]))
    with pytest.raises(TableAlreadyExistsError):
        catalog.register_table(f"{database}.again", table.metadata_location)


def test_a_renamed_table_keeps_its_pins(catalog: EncryptedHiveCatalog, database: str, table: Table, hive_metastore: HiveMetastore) -> None:
    pins = pins_of(hive_metastore, table)
    assert pins_of(hive_metastore, catalog.rename_table(table.name(), f"{database}.renamed")) == pins


def test_a_namespace_is_described_changed_and_dropped(catalog: EncryptedHiveCatalog, database: str) -> None:
    assert (database,) in catalog.list_namespaces()
    catalog.update_namespace_properties(database, updates={"team": "data"})
    assert catalog.load_namespace_properties(database)["team"] == "data"
    catalog.drop_namespace(database)
    assert (database,) not in catalog.list_namespaces()


def test_a_table_without_key_id_is_plain_pyicebergs(
    catalog: EncryptedHiveCatalog, database: str, hive_metastore: HiveMetastore, unwatched_warehouse: Path
) -> None:
    table = catalog.create_table(f"{database}.plain", ROWS.schema, location=f"file://{unwatched_warehouse}/plain")
    table.append(ROWS)
    assert type(table) is Table
    assert table.format_version == 2
    assert pins_of(hive_metastore, table) == {}
    assert_same_rows(catalog.load_table(table.name()).scan().to_arrow(), ROWS)
    hive = HiveCatalog("plain", uri=hive_metastore.uri)
    hive.load_table(table.name()).append(ROWS)
    assert table.refresh().scan().count() == 2 * ROWS.num_rows


def test_a_pickled_table_reads_in_another_process_and_holds_no_connection(table: Table) -> None:
    copy = pickle.loads(pickle.dumps(table))
    assert_same_rows(copy.scan().to_arrow(), ROWS)
    copy.append(ROWS)
    assert table.refresh().scan().count() == 2 * ROWS.num_rows


class AnswerIsLost:
    """A connection that breaks after an entry was altered and before the client hears of it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def alter_table_with_environment_context(self, *arguments: Any) -> None:
        self._client.alter_table_with_environment_context(*arguments)
        raise TTransportException(TTransportException.END_OF_FILE, "TSocket read 0 bytes")


class UnreliableHiveCatalog(EncryptedHiveCatalog):
    """One whose metastore compares locations, and whose connections break."""

    def guarded(self, client: Client) -> SwappingClient:
        traits = ServerTraits()
        traits.compares = True
        return SwappingClient(AnswerIsLost(client), traits)


def test_a_commit_whose_answer_was_lost_keeps_its_files(catalog: EncryptedHiveCatalog, table: Table) -> None:
    unreliable = UnreliableHiveCatalog(catalog.name, **catalog.properties)
    with pytest.raises(CommitStateUnknownException):
        unreliable.load_table(table.name()).append(ROWS)
    assert_same_rows(catalog.load_table(table.name()).scan().to_arrow(), pa.concat_tables([ROWS, ROWS]))


def test_a_pin_file_of_the_client_goes_along_with_the_metastores_pins(
    hive_metastore: HiveMetastore, table: Table, warehouse: Path, aws: AwsServer, tmp_path: Path
) -> None:
    catalog = encrypted_hive_catalog(hive_metastore, warehouse, aws, {"encryption.pins": str(tmp_path / "pins.json")})
    pinned = catalog.load_table(table.name())
    older = hive_metastore.parameters(name_of(table))
    pinned.append(ROWS)
    hive_metastore.change_parameters(name_of(table), {name: older[name] for name in ("metadata_location", "metadata_hash")})
    assert table.refresh().scan().count() == ROWS.num_rows
    with pytest.raises(MetadataRollbackError):
        catalog.load_table(table.name())


def test_threads_that_share_a_catalog_lose_no_commit(catalog: EncryptedHiveCatalog, database: str) -> None:
    patient = {"commit.retry.num-retries": "50", "commit.retry.min-wait-ms": "10", "commit.retry.max-wait-ms": "200"}
    catalog.create_table(f"{database}.t", ROWS.schema, properties={**ENCRYPTED, **patient})

    def write(writer: int) -> None:
        table = catalog.load_table(f"{database}.t")
        for number in range(4):
            table.append(pa.table({"id": pa.array([100 * writer + number], pa.int64()), "text": [CANARY]}))

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(write, range(4)))
    table = catalog.load_table(f"{database}.t")
    assert ids(table) == [100 * writer + number for writer in range(4) for number in range(4)]
    assert len(table.snapshots()) == 16
    keys = metadata_of(table).encryption_keys
    assert len(keys) == 16 + sum(key.is_kek for key in keys)


@pytest.mark.parametrize("change", PREVENTED.values(), ids=PREVENTED)
def test_rows_from_before_a_change_of_protected_columns_are_not_committed(
    hive_metastore: HiveMetastore, tmp_path: Path, change: Change
) -> None:
    both, name = hive_clients(hive_metastore, tmp_path)
    people = protected_table(both.payroll, name, appends=[person(1, CANARY, "n")], **{"encryption.column-mask.ssn": "truncate(3)"})
    transaction = loaded(both.payroll, name).transaction()
    transaction.append(person(2, f"{CANARY}-SSN", f"{CANARY}-NOTE"))
    change.make(people)
    before = hive_metastore.parameters(name)

    with pytest.raises(StaleWriteError, match="since the rows were written; nothing was committed"):
        transaction.commit_transaction()

    assert hive_metastore.parameters(name) == before
    assert ids(loaded(both.payroll, name), selected_fields=("id",)) == [1]
    assert not any(CANARY.encode() in each for each in opened_by_table_key(loaded(both.analyst, name)))


def test_whoever_may_commit_weakens_no_protected_column_and_takes_no_name(hive_metastore: HiveMetastore, tmp_path: Path) -> None:
    both, name = hive_clients(hive_metastore, tmp_path)
    protected_table(both.payroll, name).append(person(1, CANARY, "n"))
    analyst = loaded(both.analyst, name)
    with pytest.raises(ColumnKeyDeniedError):
        declare(analyst, ssn="truncate(64)")
    with pytest.raises(ConfigurationError, match="takes the name of the protected column"), analyst.transaction() as transaction:
        for before, after in (("ssn", "third"), ("note", "ssn")):
            with transaction.update_schema() as update:
                update.rename_column(before, after)

    # Past this package, and with what the metastore says in order: as a client does that commits unchecked.
    both.analyst.commit_table(analyst, (), (SetPropertiesUpdate(updates={"encryption.column.2.mask": "truncate(64)"}),))
    with pytest.raises(KeyIdChangedError, match="masked by null"):
        loaded(both.payroll, name).append(person(2, CANARY, "n"))
    with pytest.raises(KeyIdChangedError, match="masked by null"):
        loaded(both.payroll, name).scan(selected_fields=("ssn",)).to_arrow()
    assert not any(CANARY.encode() in each for each in opened_by_table_key(loaded(both.analyst, name)))


@pytest.mark.parametrize(
    ("function", "event"),
    [("Client.recv_lock", "call"), ("Client.recv_lock", "return"), ("Client.unlock", "call"), ("Client.recv_unlock", "call")],
)
def test_an_interrupted_commit_leaves_no_lock(hive_metastore: HiveMetastore, table: EncryptedTable, function: str, event: str) -> None:
    """Other writers would wait for it until it times out, five minutes by default."""
    database, name = table.name()
    with pytest.raises(KeyboardInterrupt), interrupted_in(function, 1, event):
        table.append(ROWS)

    with hive_metastore.client() as client:
        assert client.show_locks(ShowLocksRequest(dbname=database, tablename=name)).locks == []
    before = table.refresh().scan().count()
    table.append(ROWS)
    assert table.scan().count() == before + ROWS.num_rows


@pytest.mark.parametrize("event", ["call", "return"])
def test_a_commit_that_is_interrupted_in_the_middle_of_an_answer_ends(
    hive_metastore: HiveMetastore, table: EncryptedTable, event: str
) -> None:
    """The rest of that answer would be read as the one to the next request, for as long as bytes are missing: for ever."""
    database, name = table.name()
    with pytest.raises(KeyboardInterrupt), interrupted_in("alter_table_with_environment_context_result.read", 1, event):
        table.append(ROWS)

    with hive_metastore.client() as client:
        assert client.show_locks(ShowLocksRequest(dbname=database, tablename=name)).locks == []
    assert table.refresh().scan().count() == 2 * ROWS.num_rows


def test_the_locks_of_others_stay_where_a_commit_is_interrupted(hive_metastore: HiveMetastore, table: EncryptedTable) -> None:
    database, name = table.name()
    component = LockComponent(type=LockType.SHARED_READ, level=LockLevel.TABLE, dbname=database, tablename=name, isTransactional=True)
    with hive_metastore.client() as client:
        theirs = client.lock(LockRequest(component=[component], user="others", hostname="localhost", agentInfo="others"))
        with pytest.raises(KeyboardInterrupt), interrupted_in("Client.recv_lock", 1, "return"):
            table.append(ROWS)

        left = client.show_locks(ShowLocksRequest(dbname=database, tablename=name)).locks
        assert [each.lockid for each in left] == [theirs.lockid]
        client.unlock(UnlockRequest(lockid=theirs.lockid))


def hive_clients(metastore: HiveMetastore, folder: Path) -> tuple[Clients, str]:
    """Clients of the metastore, and the name of a table in a database of its own."""
    properties = {"uri": metastore.uri, "hive.hive2-compatible": "true"}
    both = clients(folder, properties, cast("type[EncryptedSqlCatalog]", EncryptedHiveCatalog))
    database = f"db_{uuid.uuid4().hex[:8]}"
    both.payroll.create_namespace(database, {"location": f"file://{folder}/{database}"})
    return both, f"{database}.people"
