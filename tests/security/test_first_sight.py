"""What a client believes of metadata that it sees for the first time, and does not: where the table lies, its heads, whose keys it holds.

Whoever writes the storage has edited metadata.json before a client without a pin sees it, or a REST server answers with it. The KMS, the
catalogs and the stores are real.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from sqlalchemy import text

from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    DeletionRefusedError,
    KeyIdChangedError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    MetadataRollbackError,
    TablecryptError,
    TamperedFileError,
)
from tablecrypt.maintenance import audit, prune_keys, relocate, remove_orphan_files, rescue, rewrap, rotate_kek
from tablecrypt.table.table_files import TableFileIO
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.command import Command
from tests.support.edited_metadata import edit_json, edited, put_as_next_version, read_metadata
from tests.support.lying_rest_server import LyingRestServer
from tests.support.noting_io import NOTING_IO, opened_files
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import (
    MASTER_KEY,
    current_snapshot,
    encrypted_sql_catalog,
    folder_of,
    keks,
    metadata_path,
    path_of,
    rows,
    state,
    table_with_history,
    unpinned_catalog,
)

pytestmark = pytest.mark.slow
LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
Edit = Callable[[dict[str, Any]], object]


def forget(catalog: EncryptedSqlCatalog) -> None:
    """Make every client of the database one that sees its tables for the first time."""
    with catalog.engine.begin() as connection:
        connection.execute(text("DELETE FROM tablecrypt_pins"))


def point(catalog: EncryptedSqlCatalog, metadata: Path) -> None:
    """Have the catalog say that the metadata of db.t is there."""
    with catalog.engine.begin() as connection:
        statement = "UPDATE iceberg_tables SET metadata_location = :there WHERE table_name = 't'"
        connection.execute(text(statement), {"there": metadata.as_uri()})


@pytest.fixture
def catalog(unwatched_warehouse: Path, aws: AwsServer) -> EncryptedSqlCatalog:
    return encrypted_sql_catalog(unwatched_warehouse, aws)


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> Table:
    return table_with_history(catalog, "db.t")


@pytest.fixture
def payroll(unwatched_warehouse: Path) -> Path:
    """A file of somebody else, in a folder with nothing of a table's beside it."""
    folder = unwatched_warehouse / "other-data"
    folder.mkdir()
    (folder / "payroll.parquet").write_bytes(b"PAR1 somebody else's")
    return folder / "payroll.parquet"


def first_seen(catalog: EncryptedSqlCatalog, table: Table, edit: Edit) -> Table:
    edit_json(metadata_path(table), edit)
    forget(catalog)
    return catalog.load_table("db.t")


# --- where the table lies


def test_orphans_of_a_folder_that_only_the_metadata_names_stay(catalog: EncryptedSqlCatalog, table: Table, payroll: Path) -> None:
    elsewhere = f"file://{payroll.parent}"
    seen = first_seen(catalog, table, lambda metadata: metadata.update(location=elsewhere))
    for _ in range(2):
        with pytest.raises(ConfigurationError) as refused:
            remove_orphan_files(seen, LATER, dry_run=False)
    assert f"delete_below=['{elsewhere}'], --delete-below '{elsewhere}', or in SQL delete_below => array('{elsewhere}')" in str(
        refused.value
    )
    assert remove_orphan_files(seen, LATER).refused
    assert payroll.exists()


@pytest.mark.parametrize("named", ["delete_below", "folder"])
def test_orphans_go_where_the_caller_names_the_folder(catalog: EncryptedSqlCatalog, table: Table, payroll: Path, named: str) -> None:
    """The honest user of a table whose metadata files lie elsewhere has to say it once."""
    elsewhere = f"file://{payroll.parent}"
    seen = first_seen(catalog, table, lambda metadata: metadata.update(location=elsewhere))
    given = {"delete_below": [elsewhere]} if named == "delete_below" else {"folder": elsewhere}
    assert remove_orphan_files(seen, LATER, dry_run=False, **given).deleted == (f"{elsewhere}/payroll.parquet",)


def test_a_path_that_first_seen_metadata_adds_is_not_swept(catalog: EncryptedSqlCatalog, table: Table, payroll: Path) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["properties"]["write.data.path"] = f"file://{payroll.parent}"
        metadata["statistics"] = [
            {
                "snapshot-id": metadata["current-snapshot-id"],
                "statistics-path": f"file://{payroll}",
                "file-size-in-bytes": 1,
                "file-footer-size-in-bytes": 1,
                "blob-metadata": [],
            }
        ]

    seen = first_seen(catalog, table, edit)
    with pytest.raises(DeletionRefusedError, match="outside the table's folders"):
        seen.io.delete(f"file://{payroll}")
    assert list(catalog.purge_files("db.t").refused) == [f"file://{payroll}"]
    assert payroll.exists()


def test_a_path_that_first_seen_metadata_adds_is_not_swept_after_this_client_sets_another(
    catalog: EncryptedSqlCatalog, table: Table, payroll: Path
) -> None:
    objects = f"{table.location()}/objects"
    seen = first_seen(catalog, table, lambda metadata: metadata["properties"].update({"write.data.path": f"file://{payroll.parent}"}))

    seen.transaction().set_properties({"write.object-storage.path": objects}).commit_transaction()

    io = catalog.load_table("db.t").io
    assert isinstance(io, TableFileIO)
    assert io.deletable.folders == (table.location(), objects)
    with pytest.raises(DeletionRefusedError, match="outside the table's folders"):
        io.delete(f"file://{payroll}")


def test_an_honest_table_is_swept_and_purged_on_first_sight(catalog: EncryptedSqlCatalog, table: Table) -> None:
    left = folder_of(table) / "data" / "left.parquet"
    left.write_bytes(b"left over")
    forget(catalog)
    assert remove_orphan_files(catalog.load_table("db.t"), LATER, dry_run=False).deleted == (f"{table.location()}/data/left.parquet",)
    forget(catalog)
    assert not catalog.purge_files("db.t").refused


def test_the_command_says_how_to_name_the_folder(catalog: EncryptedSqlCatalog, table: Table, payroll: Path) -> None:
    elsewhere = f"file://{payroll.parent}"
    first_seen(catalog, table, lambda metadata: metadata.update(location=elsewhere))
    command = Command.of(catalog)
    orphans = ("orphans", "db.t", "--older-than", "0d", "--yes")
    refused = command.run(*orphans)
    assert refused.code != 0
    assert f"--delete-below '{elsewhere}'" in refused.stderr
    assert payroll.exists()
    assert command.run(*orphans, "--delete-below", elsewhere).code == 0
    assert not payroll.exists()


# --- heads


def forged_head(metadata: dict[str, Any]) -> None:
    """A head with a great sequence number."""
    head = metadata["current-snapshot-id"]
    (snapshot,) = [each for each in metadata["snapshots"] if each["snapshot-id"] == head]
    snapshot["sequence-number"] = metadata["last-sequence-number"] = 1000


def forged_branch(metadata: dict[str, Any]) -> None:
    """A branch that nobody made, to a snapshot whose number is raised."""
    snapshot = metadata["snapshots"][0]
    snapshot["sequence-number"] = metadata["last-sequence-number"] = 1000
    metadata["refs"]["made-up"] = {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}


def raised_number(metadata: dict[str, Any]) -> None:
    """The table's last sequence number alone."""
    metadata["last-sequence-number"] = 1000


FORGERIES = (forged_head, forged_branch, raised_number)


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    return tmp_path / "pins.json"


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("kind", ["catalog", "file"])
def test_metadata_that_was_forged_before_the_first_sight_locks_nobody_out(
    catalog: EncryptedSqlCatalog, table: Table, aws: AwsServer, pins: Path, unwatched_warehouse: Path, forgery: Edit, kind: str
) -> None:
    given = {"encryption.pins": str(pins)} if kind == "file" else {}
    client = encrypted_sql_catalog(unwatched_warehouse, aws, given)
    right = metadata_path(table).read_bytes()
    first_seen(client, table, forgery)
    metadata_path(table).write_bytes(right)
    if forgery is raised_number:
        # Nothing but the file's hash tells: the pin of a file that was edited in place.
        with pytest.raises(TamperedFileError, match="edited"):
            client.load_table("db.t")
        return
    assert client.load_table("db.t").scan().count() == 39


EDITS: dict[str, Edit] = {
    "a property": lambda metadata: metadata["properties"].update({"comment": "edited"}),
    "key length": lambda metadata: metadata["properties"].update({"encryption.data-key-length": "32"}),
    "location": lambda metadata: metadata.update(location="file:///elsewhere"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_what_else_is_pinned_of_edited_metadata_is_forgotten_as_the_error_says(
    catalog: EncryptedSqlCatalog, table: Table, edit: Edit
) -> None:
    right, before = metadata_path(table).read_bytes(), table.scan().to_arrow()
    first_seen(catalog, table, edit)
    metadata_path(table).write_bytes(right)

    for _ in range(2):
        with pytest.raises((TamperedFileError, KeyIdChangedError), match=r"catalog\.forget_pin\(identifier\)"):
            catalog.load_table("db.t")

    catalog.forget_pin("db.t")
    assert catalog.load_table("db.t").scan().to_arrow() == before


def test_a_table_uuid_that_no_manifest_list_bears_out_is_not_pinned(catalog: EncryptedSqlCatalog, table: Table) -> None:
    right, before = metadata_path(table).read_bytes(), table.scan().to_arrow()
    first_seen(catalog, table, lambda metadata: metadata.update({"table-uuid": "11111111-1111-1111-1111-111111111111"}))
    metadata_path(table).write_bytes(right)
    assert catalog.load_table("db.t").scan().to_arrow() == before


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda each: each.__name__)
def test_a_server_that_answers_with_a_forged_head_does_not_move_the_pin(
    catalog: EncryptedSqlCatalog, table: Table, aws: AwsServer, pins: Path, forgery: Edit
) -> None:
    right = metadata_path(table)
    metadata = read_metadata(table)
    forgery(metadata)
    forged = put_as_next_version(table, metadata)
    answered = [right]
    with LyingRestServer(catalog, lambda: answered[0]) as server:
        client = server.client(**aws.kms_properties, **{"encryption.pins": str(pins)})
        client.load_table("db.t")
        (before,) = json.loads(pins.read_text())["pins"]
        answered[0] = forged
        seen = client.load_table("db.t")
        (after,) = json.loads(pins.read_text())["pins"]
        assert after["last-sequence-number"] == before["last-sequence-number"]
        assert after["heads"] == before["heads"]
        if forgery is raised_number:
            return
        newest = max(seen.metadata.snapshots, key=lambda each: each.sequence_number or 0)
        with pytest.raises(TamperedFileError, match="sequence-number is"):
            seen.scan(snapshot_id=newest.snapshot_id).to_arrow()
        assert after == before
        answered[0] = right
        assert client.load_table("db.t").scan().count() == 39


def test_a_client_that_only_loads_is_protected_against_a_rollback(
    catalog: EncryptedSqlCatalog, table: Table, aws: AwsServer, pins: Path
) -> None:
    older = metadata_path(table)
    answered = [older]
    with LyingRestServer(catalog, lambda: answered[0]) as server:
        client = server.client(**aws.kms_properties, **{"encryption.pins": str(pins)})
        client.load_table("db.t")
        catalog.load_table("db.t").append(rows(300))
        answered[0] = path_of(catalog.load_table("db.t").metadata_location)
        client.load_table("db.t")
        answered[0] = older
        with pytest.raises(MetadataRollbackError):
            client.load_table("db.t")


class OnePlaceServer(RestrictingServer):
    """Says of each commit that its metadata is where the table's was before: a pin that stays there does not miss the commit later."""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        before = {} if method == "GET" else {"metadata-location": self.catalog.load_table("db.t").metadata_location}
        status, content = super().answer(method, path, body)
        return status, content | before


def test_a_server_that_answers_a_commit_with_the_place_that_is_pinned_is_found_out(
    catalog: EncryptedSqlCatalog, table: Table, aws: AwsServer, pins: Path
) -> None:
    with OnePlaceServer(catalog) as server:
        client = server.client(**aws.kms_properties, **{"encryption.pins": str(pins)})
        seen = client.load_table("db.t")
        with pytest.raises(TamperedFileError, match="The commit that was answered so stands"):
            seen.append(rows(300))


def test_a_head_is_opened_once_and_the_scan_after_it_reads_it_no_more(
    catalog: EncryptedSqlCatalog, table: Table, aws: AwsServer, pins: Path
) -> None:
    client = unpinned_catalog(pins.parent, aws, **{"encryption.pins": str(pins), "py-io-impl": NOTING_IO})
    with opened_files() as opened:
        seen = client.register_table("db.t", table.metadata_location)
        head = seen.current_snapshot()
        assert head is not None
        seen.scan().to_arrow()
    assert opened.count(head.manifest_list) == 1
    with opened_files() as opened:
        client.load_table("db.t")
    assert opened
    assert not [each for each in opened if each.endswith(".avro")]


def test_a_head_whose_list_is_not_there_is_not_pinned_and_the_table_loads(catalog: EncryptedSqlCatalog, table: Table) -> None:
    head = current_snapshot(table)
    path_of(head.manifest_list).rename(path_of(head.manifest_list).with_suffix(".away"))
    forget(catalog)
    assert catalog.load_table("db.t").current_snapshot() == head
    with catalog.engine.begin() as connection:
        assert not connection.execute(text("SELECT * FROM tablecrypt_pins")).all()
    path_of(head.manifest_list).with_suffix(".away").rename(path_of(head.manifest_list))
    catalog.load_table("db.t")
    with catalog.engine.begin() as connection:
        assert len(connection.execute(text("SELECT * FROM tablecrypt_pins")).all()) == 1


# --- tables that read as empty


def replaced_by_java(metadata: dict[str, Any]) -> None:
    """What TableMetadata.buildReplacement of Iceberg Java leaves where rows do not come with it."""
    metadata["current-snapshot-id"] = None
    del metadata["refs"]["main"]


def cut_off(metadata: dict[str, Any]) -> None:
    replaced_by_java(metadata)
    metadata["refs"] = {}


def cut_off_with_its_log(metadata: dict[str, Any]) -> None:
    cut_off(metadata)
    metadata["snapshot-log"] = []
    metadata["current-snapshot-id"] = -1


CUT = (replaced_by_java, cut_off, cut_off_with_its_log)


def findings(table: Table) -> set[str]:
    (result,) = audit(table).tables
    return {finding.kind.code for finding in result.findings}


@pytest.mark.parametrize("edit", CUT, ids=lambda each: each.__name__)
def test_a_table_that_lost_its_main_branch_opens_with_a_warning_and_an_audit_names_it(
    catalog: EncryptedSqlCatalog, table: Table, edit: Edit, caplog: pytest.LogCaptureFixture
) -> None:
    """Iceberg Java leaves a replaced table like that, which has to be read and written."""
    head = table.metadata.current_snapshot_id
    with caplog.at_level(logging.WARNING):
        seen = first_seen(catalog, table, edit)
    assert f"no snapshot is current, though the metadata has snapshot {head}" in caplog.text or edit is cut_off_with_its_log
    assert "so the table reads as empty" in caplog.text
    assert "no-current-snapshot" in findings(seen)
    seen.append(rows(500))
    assert catalog.load_table("db.t").scan().count() == 20
    assert "no-current-snapshot" not in findings(seen.refresh())


@pytest.mark.parametrize("edit", CUT, ids=lambda each: each.__name__)
def test_a_pinned_client_refuses_a_table_that_lost_its_main_branch(catalog: EncryptedSqlCatalog, table: Table, edit: Edit) -> None:
    metadata = read_metadata(table)
    edit(metadata)
    point(catalog, put_as_next_version(table, metadata))
    with pytest.raises(MetadataRollbackError, match="main points to nothing"):
        catalog.load_table("db.t")
    assert catalog.accept_rollback("db.t").scan().count() == 0


def of_a_branch_alone(metadata: dict[str, Any]) -> None:
    """What Iceberg Java leaves where the first commits went to a branch: nothing in it points to main."""
    metadata["refs"] = {"side": metadata["refs"]["side"]}
    metadata.update({"snapshot-log": [], "current-snapshot-id": None})


def staged_alone(metadata: dict[str, Any]) -> None:
    """What write, audit, publish leaves where the first commit was staged."""
    (staged,) = metadata["snapshots"] = metadata["snapshots"][:1]
    staged["summary"]["wap.id"] = "7"
    metadata.update({"refs": {}, "snapshot-log": [], "current-snapshot-id": None})


@pytest.mark.parametrize("edit", [of_a_branch_alone, staged_alone], ids=lambda each: each.__name__)
def test_tables_of_branches_and_of_staged_snapshots_alone_are_as_they_should_be(
    catalog: EncryptedSqlCatalog, table: Table, edit: Edit, caplog: pytest.LogCaptureFixture
) -> None:
    seen = first_seen(catalog, table, edit)
    assert seen.metadata.snapshots
    assert "no-current-snapshot" not in findings(seen)
    assert "reads as empty" not in caplog.text
    seen.append(rows(500))
    assert seen.scan().count() == 20


# --- whose keys they are


@pytest.fixture
def people(unwatched_warehouse: Path, aws: AwsServer) -> dict[str, str]:
    """The master keys of two tables, that of the first behind the alias."""
    return {"hr": aws.new_key(), "orders": aws.new_key()}


def substituted(metadata: dict[str, Any], theirs: dict[str, Any], master_key: str) -> None:
    """Put another table's snapshots and keys in the place of the table's own."""
    for name in ("snapshots", "refs", "current-snapshot-id", "snapshot-log", "last-sequence-number", "next-row-id"):
        metadata[name] = theirs[name]
    metadata["encryption-keys"] = [
        {**key, "encrypted-by-id": master_key} if "properties" in key else key for key in theirs["encryption-keys"]
    ]


@pytest.fixture(params=["location kept", "location of the other", "all of the other but its name"])
def substituting(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def deputy(catalog: EncryptedSqlCatalog, people: dict[str, str], substituting: str) -> Table:
    """The table of many readers, first seen with everything in it that belongs to the table of few."""
    hr, orders = table_with_history(catalog, "db.hr", people["hr"]), table_with_history(catalog, "db.t", people["orders"])
    theirs = read_metadata(hr)

    def edit(metadata: dict[str, Any]) -> None:
        substituted(metadata, theirs, people["orders"])
        if substituting != "location kept":
            metadata["location"] = theirs["location"]
        if substituting == "all of the other but its name":
            metadata["table-uuid"] = theirs["table-uuid"]

    return first_seen(catalog, orders, edit)


def test_rewrap_wraps_no_kek_of_another_tables_snapshots(deputy: Table, people: dict[str, str], substituting: str) -> None:
    location, before = deputy.metadata_location, keks(deputy)
    with pytest.raises((ConfigurationError, TamperedFileError)) as refused:
        rewrap(deputy, from_key_id=people["hr"])
    if substituting == "all of the other but its name":
        assert "may be another table's" in str(refused.value)
        assert "manifests_below=['file://" in str(refused.value)
    else:
        assert "another table was put in this one's place" in str(refused.value)
    assert deputy.refresh().metadata_location == location
    assert keks(deputy) == before


OTHERS: dict[str, Callable[[Table], object]] = {
    "rewrap": rewrap,
    "rotate_kek": rotate_kek,
    "relocate": lambda table: relocate(table, f"{table.location()}-copy", key_id=MASTER_KEY),
    "rescue": rescue,
}


@pytest.mark.parametrize("operation", OTHERS)
@pytest.mark.parametrize("substituting", ["location kept"], indirect=True)
def test_no_other_operation_opens_another_tables_keys_under_this_ones_master_key(
    deputy: Table, people: dict[str, str], operation: str
) -> None:
    location, before = deputy.metadata_location, keks(deputy)
    with pytest.raises((AuthenticationError, KmsAccessDeniedError, KeyNotFoundError)):
        OTHERS[operation](deputy)
    prune_keys(deputy)
    assert keks(deputy) == before, "pruning wraps nothing"
    assert deputy.refresh().metadata_location == location


def test_relocate_gives_the_readers_of_another_key_no_rows_of_another_table(
    catalog: EncryptedSqlCatalog, people: dict[str, str], unwatched_warehouse: Path
) -> None:
    """The metadata names the other table's master key too, which the admin may use."""
    hr, orders = table_with_history(catalog, "db.hr", people["hr"]), table_with_history(catalog, "db.t", people["orders"])
    own, theirs, copy = read_metadata(orders), read_metadata(hr), unwatched_warehouse / "copy"

    def edit(metadata: dict[str, Any]) -> None:
        substituted(metadata, theirs, people["hr"])
        metadata["properties"]["encryption.key-id"] = people["hr"]
        metadata["table-uuid"] = theirs["table-uuid"]

    seen = first_seen(catalog, orders, edit)
    with pytest.raises(ConfigurationError, match="may be another table's"):
        relocate(seen, f"file://{copy}", key_id=MASTER_KEY)
    assert not copy.exists()
    forget(catalog)
    assert relocate(catalog.load_table("db.hr"), f"file://{copy}", key_id=MASTER_KEY).files
    assert relocate(seen, f"file://{copy}-2", key_id=MASTER_KEY, manifests_below=[theirs["location"]]).files

    seen = first_seen(catalog, seen, lambda metadata: metadata.update({"table-uuid": own["table-uuid"]}))
    with pytest.raises(TamperedFileError, match="another table was put in this one's place"):
        relocate(seen, f"file://{copy}-3", key_id=MASTER_KEY, manifests_below=[theirs["location"]])


@pytest.mark.parametrize("substituting", ["location kept"], indirect=True)
def test_a_client_with_a_pin_file_wraps_none_of_them_either(
    catalog: EncryptedSqlCatalog, people: dict[str, str], aws: AwsServer, pins: Path, unwatched_warehouse: Path, substituting: str
) -> None:
    """The attacker writes the catalog too, under the next version, and the other table has more commits."""
    hr, orders = table_with_history(catalog, "db.hr", people["hr"]), table_with_history(catalog, "db.t", people["orders"])
    for first in range(3):
        hr.append(rows(1000 * first))
    client = encrypted_sql_catalog(unwatched_warehouse, aws, {"encryption.pins": str(pins)})
    client.load_table("db.t")
    metadata = read_metadata(orders)
    substituted(metadata, read_metadata(hr), people["orders"])
    metadata["refs"].pop("side")  # its head has no greater number than the pinned one
    point(catalog, put_as_next_version(orders, metadata))
    forget(catalog)
    with pytest.raises(TamperedFileError, match="another table was put in this one's place"):
        rewrap(client.load_table("db.t"), from_key_id=people["hr"])


def test_an_honest_table_is_rewrapped_on_first_sight(catalog: EncryptedSqlCatalog, aws: AwsServer) -> None:
    old, new = aws.new_key(), aws.new_key()
    table = table_with_history(catalog, "db.t", old)
    before = state(table)
    # What moving an alias does: the metadata names the same id, and another key is behind it.
    metadata = read_metadata(table)
    metadata["properties"]["encryption.key-id"] = new
    metadata["encryption-keys"] = [{**key, "encrypted-by-id": new} if "properties" in key else key for key in metadata["encryption-keys"]]
    seen = first_seen(catalog, table, lambda current: current.update(metadata))
    rewrap(seen, from_key_id=old)
    assert state(seen) == before


def test_a_catalog_that_keeps_no_pins_has_the_folder_named(tmp_path: Path, aws: AwsServer) -> None:
    old, new = aws.new_key(), aws.new_key()
    table = table_with_history(unpinned_catalog(tmp_path, aws), "db.t", old)

    def move(metadata: dict[str, Any]) -> None:
        metadata["properties"]["encryption.key-id"] = new
        for key in metadata["encryption-keys"]:
            key.update({"encrypted-by-id": new} if "properties" in key else {})

    before, moved = state(table), edited(table, move)
    with pytest.raises(ConfigurationError, match="manifests_below="):
        rewrap(moved, from_key_id=old)
    rewrap(moved, from_key_id=old, manifests_below=[moved.location()])
    assert state(moved) == before


# --- the way out of a purge


def other_uuid(metadata: dict[str, Any]) -> None:
    metadata["table-uuid"] = "00000000-0000-0000-0000-000000000000"


def forged_number(metadata: dict[str, Any]) -> None:
    metadata["snapshots"][0].update(
        {"sequence-number": 77, "manifest-list": metadata["snapshots"][0]["manifest-list"].replace("/metadata/", "/metadata//")}
    )


def no_keys(metadata: dict[str, Any]) -> None:
    del metadata["encryption-keys"]
    metadata["snapshots"][0]["manifest-list"] = metadata["snapshots"][0]["manifest-list"].replace("/metadata/", "/metadata//")


def other_kek(metadata: dict[str, Any]) -> None:
    for key in metadata["encryption-keys"]:
        if "properties" in key:
            key["encrypted-key-metadata"] = "AAAA"
    metadata["snapshots"][0]["manifest-list"] += ".avro"


@pytest.mark.parametrize("edit", [other_uuid, forged_number, no_keys, other_kek], ids=lambda each: each.__name__)
def test_a_purge_that_an_edited_older_file_stops_names_the_way_around(catalog: EncryptedSqlCatalog, table: Table, edit: Edit) -> None:
    older = path_of(table.metadata.metadata_log[-1].metadata_file)
    edit_json(older, edit)
    with pytest.raises(TablecryptError, match=r"catalog\.purge_files\('db\.t', skip_unreadable=True\)"):
        catalog.purge_table("db.t")
    assert catalog.load_table("db.t").scan().count() == 39
    assert catalog.purge_files("db.t", skip_unreadable=True).skipped
    assert not catalog.table_exists("db.t")
