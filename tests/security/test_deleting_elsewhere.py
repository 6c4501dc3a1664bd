"""Whoever writes the storage cannot have a file deleted or written over that is not the table's, by any operation and any spelling.

The attacker edits metadata.json, current and older: logs, snapshots and statistics that name a private key or another table's files, by
themselves, through "..", percent-encoding, a link, another scheme; or a location that is another table's folder. Catalog, pins and KMS are
real, and not the attacker's.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from sqlalchemy import text

from tablecrypt.errors import ConfigurationError, DeletionRefusedError, TablecryptError, TamperedFileError
from tablecrypt.maintenance import erase, migrate, reencrypt, remove_orphan_files, rotate_kek, shred
from tablecrypt.maintenance.reachable import reachable_files
from tablecrypt_catalog import encrypted
from tests.support.aws import AwsServer
from tests.support.tables import MASTER_KEY, SCHEMA, encrypted_sql_catalog, encrypted_table, folder_of, path_of

pytestmark = pytest.mark.slow

ROWS = pa.table({"id": [1, 2, 3], "note": ["a", "b", None]}, schema=SCHEMA.as_arrow())
LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----"


class Store:
    """A folder or a bucket, with what lies in it."""

    def __init__(self, root: str, aws: AwsServer) -> None:
        self.root = root
        self._s3 = aws.s3
        self._bucket = root.removeprefix("s3://") if root.startswith("s3://") else None

    def _key(self, location: str) -> str:
        return location.removeprefix(f"s3://{self._bucket}/")

    def write(self, location: str, content: bytes) -> str:
        if self._bucket is not None:
            self._s3.put_object(Bucket=self._bucket, Key=self._key(location), Body=content)
        else:
            path = path_of(location)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return location

    def read(self, location: str) -> bytes:
        if self._bucket is not None:
            return bytes(self._s3.get_object(Bucket=self._bucket, Key=self._key(location))["Body"].read())
        return path_of(location).read_bytes()

    def list(self, folder: str) -> list[str]:
        if self._bucket is not None:
            answer = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=f"{self._key(folder)}/")
            return [f"s3://{self._bucket}/{each['Key']}" for each in answer.get("Contents", ()) if not each["Key"].endswith("/")]
        return [f"file://{path}" for path in path_of(folder).rglob("*") if path.is_file()]


@dataclass
class Scene:
    """A table under attack, and files that must survive."""

    store: Store
    catalog: Any
    table: Table
    other: Table
    victims: dict[str, bytes]

    def assert_unharmed(self) -> None:
        for location, content in self.victims.items():
            assert self.store.read(location) == content, location

    def spelled(self) -> list[str]:
        """Every victim in every spelling."""
        location = self.table.location().rstrip("/")
        scheme, _, path = location.partition("://")
        found = []
        for victim in self.victims:
            below_warehouse = victim.partition("/warehouse/")[2]
            if below_warehouse:
                up = "/".join(".." for _ in range(2))
                found += [f"{location}/{up}/{below_warehouse}", f"{location}/data/%2e%2e/%2e%2e/%2E%2e/{below_warehouse}"]
            found += [victim, victim.replace("s3://", "s3a://").replace("file://", "file:"), victim.replace("://", ":///", 1)]
            found.append(f"{location}/data/link/{victim.rpartition('/')[2]}")
        return [*found, f"{scheme}://{path}/id_rsa", f"{location}/id_rsa?x.parquet", f"{location}/*"]

    def edit(self, change: Callable[[dict[str, Any]], None], include_current: bool = True) -> None:
        """Change metadata files, as whoever writes the storage can."""
        current = self.table.metadata_location
        for location in self.store.list(f"{self.table.location()}/metadata"):
            if location.endswith(".metadata.json") and (include_current or location != current):
                content = json.loads(self.store.read(location))
                change(content)
                self.store.write(location, json.dumps(content).encode())
        with self.catalog.engine.begin() as connection:
            if connection.execute(text("SELECT name FROM sqlite_master WHERE name = 'tablecrypt_pins'")).first():
                connection.execute(text("DELETE FROM tablecrypt_pins"))


def named_everywhere(scene: Scene) -> Callable[[dict[str, Any]], None]:
    """Metadata that names every victim in its log and its statistics, and in a snapshot's manifest list where it is an older one."""
    locations = scene.spelled()

    def change(content: dict[str, Any]) -> None:
        log = [{"timestamp-ms": 1, "metadata-file": location} for location in locations]
        content["metadata-log"] = [*log, *content.get("metadata-log", [])]
        named = [{"snapshot-id": 7 + at, "statistics-path": each, "file-size-in-bytes": 1} for at, each in enumerate(locations)]
        content["statistics"] = [{**each, "file-footer-size-in-bytes": 1, "blob-metadata": []} for each in named]
        content["partition-statistics"] = named

    return change


@pytest.fixture(params=["disk", "bucket"])
def store(request: pytest.FixtureRequest, unwatched_warehouse: Path, aws: AwsServer) -> Store:
    if request.param == "disk":
        return Store(f"file://{unwatched_warehouse}", aws)
    return Store(f"s3://{aws.bucket('deleting-elsewhere-' + str(abs(hash(str(unwatched_warehouse))) % 10**9))}", aws)


def scene_of(store: Store, catalog: Any) -> Scene:
    properties = {"encryption.key-id": MASTER_KEY}
    other = catalog.create_table("db.other", SCHEMA, properties=properties)
    other.append(ROWS)
    table = catalog.create_table("db.t", SCHEMA, properties={**properties, "write.metadata.delete-after-commit.enabled": "true"})
    table.append(ROWS)
    table.append(ROWS)
    key = store.write(f"{store.root}/home/.ssh/id_rsa", KEY)
    inside = store.write(f"{table.location()}/id_rsa", KEY)
    decoy = store.write(f"{store.root}/warehouse/db/backup/data/x.parquet", b"PAR1 somebody else's")
    victims = [key, inside, decoy, *store.list(other.location())]
    if store.root.startswith("file://"):
        link = path_of(f"{table.location()}/data/link")
        link.symlink_to(folder_of(other) / "data")
    return Scene(store, catalog, table, other, {location: store.read(location) for location in victims})


@pytest.fixture
def scene(store: Store, unwatched_warehouse: Path, aws: AwsServer) -> Scene:
    return scene_of(store, encrypted_sql_catalog(unwatched_warehouse, aws, {"warehouse": f"{store.root}/warehouse"}))


@pytest.fixture
def unpinned(store: Store, unwatched_warehouse: Path, aws: AwsServer) -> Scene:
    """The same in a catalog that keeps no pins."""
    properties = {"uri": f"sqlite:///{unwatched_warehouse}/unpinned.db", "warehouse": f"{store.root}/warehouse"}
    catalog = encrypted(SqlCatalog)("unpinned", **properties, **aws.kms_properties, **aws.s3_properties)
    catalog.create_namespace("db")
    return scene_of(store, catalog)


def shred_all(catalog: Catalog, **options: Any) -> Any:
    return shred(catalog.load_table("db.t"), whole_table="db.t", **options)


def shred_old(catalog: Catalog, **options: Any) -> Any:
    return shred(catalog.load_table("db.t"), [catalog.load_table("db.t").snapshots()[0].snapshot_id], **options)


def orphans(catalog: Catalog, **options: Any) -> Any:
    return remove_orphan_files(catalog.load_table("db.t"), LATER, dry_run=False, **options)


def purged(catalog: Catalog, **options: Any) -> Any:
    return catalog.purge_files("db.t", skip_unreadable=True, **options)  # type: ignore[attr-defined]


def migrated_again(catalog: Catalog, **options: Any) -> Any:
    return migrate(catalog.load_table("db.t"), MASTER_KEY, **options)


def expired(catalog: Catalog) -> None:
    table = catalog.load_table("db.t")
    table.maintenance.expire_snapshots().by_ids([table.snapshots()[0].snapshot_id]).commit()


def committed(catalog: Catalog) -> None:
    """PyIceberg deletes what left the metadata log, as write.metadata.delete-after-commit.enabled asks for."""
    catalog.load_table("db.t").transaction().set_properties({"write.metadata.previous-versions-max": "1"}).commit_transaction()


def appended(catalog: Catalog) -> None:
    catalog.load_table("db.t").append(ROWS)


def kek_rotated(catalog: Catalog) -> None:
    rotate_kek(catalog.load_table("db.t"))


def reencrypted(catalog: Catalog) -> None:
    reencrypt(catalog.load_table("db.t"))


DELETING = [shred_all, shred_old, orphans, purged, migrated_again]
OTHERS = [expired, committed, reencrypted]


@pytest.mark.parametrize("operation", [*DELETING, *OTHERS], ids=lambda each: each.__name__)
def test_metadata_that_names_what_is_not_the_tables_deletes_nothing_of_it(scene: Scene, operation: Callable[..., Any]) -> None:
    scene.edit(named_everywhere(scene))
    # A log that names metadata files elsewhere has it ask first where the table lies.
    named = {"delete_below": [scene.table.location()]} if operation is migrated_again else {}

    result = operation(scene.catalog, **named)

    scene.assert_unharmed()
    if operation in (shred_all, purged):
        assert len(result.refused) > 10


@pytest.mark.parametrize("operation", [committed, appended, kek_rotated], ids=lambda each: each.__name__)
def test_a_log_of_metadata_files_that_names_live_files_has_no_commit_delete_them(scene: Scene, operation: Callable[..., Any]) -> None:
    table = encrypted_table(scene.table)
    live = list(reachable_files(table.metadata, table.io).files)

    def name_live_files(content: dict[str, Any]) -> None:
        content["properties"]["write.metadata.previous-versions-max"] = "1"
        content["metadata-log"] = [{"metadata-file": each, "timestamp-ms": 1} for each in live]

    scene.edit(name_live_files)

    operation(scene.catalog)

    assert {*live} <= {*scene.store.list(table.location())}
    assert scene.catalog.load_table("db.t").scan().to_arrow().num_rows >= 2 * len(ROWS)


@pytest.mark.parametrize("operation", DELETING, ids=lambda each: each.__name__)
def test_a_location_that_is_another_tables_needs_naming_without_a_pin(unpinned: Scene, operation: Callable[..., Any]) -> None:
    genuine, others = unpinned.table.location(), unpinned.other.location()
    unpinned.edit(lambda content: content.update(location=others))

    with pytest.raises(ConfigurationError, match="delete_below"):
        operation(unpinned.catalog)
    unpinned.assert_unharmed()

    with pytest.raises(ConfigurationError, match="delete_below"):
        operation(unpinned.catalog, delete_below=[genuine])
    unpinned.assert_unharmed()


@pytest.mark.campaign
@pytest.mark.parametrize("operation", DELETING, ids=lambda each: each.__name__)
def test_a_caller_who_names_the_folder_is_served_without_a_pin(unpinned: Scene, operation: Callable[..., Any]) -> None:
    unpinned.edit(named_everywhere(unpinned))

    operation(unpinned.catalog, delete_below=[unpinned.table.location()])

    unpinned.assert_unharmed()


def test_a_commit_deletes_no_metadata_where_nothing_pins_the_folder(unpinned: Scene) -> None:
    others = [each for each in unpinned.victims if each.endswith(".metadata.json")]
    log = [{"timestamp-ms": 1, "metadata-file": each} for each in others]
    unpinned.edit(lambda content: content.update({"location": unpinned.other.location(), "metadata-log": log}))

    committed(unpinned.catalog)

    unpinned.assert_unharmed()


def erased(catalog: Catalog, **options: Any) -> Any:
    return erase(catalog.load_table("db.t"), "id = 1", **options)


def committed_below(catalog: Catalog, delete_below: list[str]) -> None:
    assert delete_below
    committed(catalog)


@pytest.mark.parametrize("operation", [shred_old, erased, orphans, committed_below], ids=lambda each: each.__name__)
def test_metadata_that_calls_live_files_of_the_table_older_metadata_deletes_none_of_them(
    unpinned: Scene, operation: Callable[..., Any]
) -> None:
    """Within the table's folder the name alone tells that a file is no metadata."""
    table = unpinned.table
    table.append(ROWS.set_column(0, SCHEMA.as_arrow().field("id"), pa.array([7, 8, 9], SCHEMA.as_arrow().field("id").type)))
    live = [task.file.file_path for task in table.scan("id >= 7").plan_files()]
    live += [table.refresh().snapshots()[-1].manifest_list]
    log = [{"timestamp-ms": 1, "metadata-file": each} for each in live]
    unpinned.edit(lambda content: content.update({"metadata-log": [*log, *content.get("metadata-log", [])]}))

    with suppress(TamperedFileError):
        operation(unpinned.catalog, delete_below=[table.location()])

    assert sorted(unpinned.catalog.load_table("db.t").scan("id >= 7").to_arrow()["id"].to_pylist()) == [7, 8, 9]


def test_the_folder_above_the_table_is_not_swept_without_its_name(unpinned: Scene) -> None:
    unpinned.edit(lambda content: content.update(location=f"{unpinned.store.root}/warehouse"))

    found = remove_orphan_files(unpinned.catalog.load_table("db.t"), LATER)

    assert not found.found
    assert set(found.refused.values()) and all("name its folder" in reason for reason in found.refused.values())


def test_a_file_that_is_no_tables_is_no_orphan_either(scene: Scene) -> None:
    removed = orphans(scene.catalog)

    assert removed.refused[f"{scene.table.location()}/id_rsa"] == "does not have the name of a table's file"
    scene.assert_unharmed()


def test_other_tables_below_the_tables_folder_are_not_swept(scene: Scene) -> None:
    below = scene.catalog.create_table(
        "db.below", SCHEMA, location=f"{scene.table.location()}/below", properties={"encryption.key-id": MASTER_KEY}
    )
    below.append(ROWS)
    below.append(ROWS)

    removed = orphans(scene.catalog)

    assert below.refresh().scan().to_arrow().num_rows == 6
    assert {each for each in removed.refused if "/below/" in each} == set(scene.store.list(below.location()))


def test_the_fileio_itself_refuses_whoever_asks(scene: Scene) -> None:
    for location in scene.spelled():
        with pytest.raises((DeletionRefusedError, FileNotFoundError)):
            scene.table.io.delete(location)
    scene.assert_unharmed()


def test_one_edited_older_file_does_not_stop_a_purge_for_ever(scene: Scene) -> None:
    [older, *_] = [each.metadata_file for each in scene.table.metadata.metadata_log]
    scene.store.write(older, b"{}")

    with pytest.raises(TablecryptError, match="skip_unreadable"):
        scene.catalog.purge_table("db.t")
    assert scene.catalog.table_exists("db.t")
    result = scene.catalog.purge_files("db.t", skip_unreadable=True)

    assert older in result.skipped
    assert not scene.catalog.table_exists("db.t")
    left = [each for each in scene.store.list(scene.table.location()) if "/link/" not in each]
    assert set(left) == {older, f"{scene.table.location()}/id_rsa"}
    scene.assert_unharmed()


def test_an_older_file_with_snapshots_that_nothing_opens_is_skipped_too(scene: Scene) -> None:
    def unreadable(content: dict[str, Any]) -> None:
        for snapshot in content.get("snapshots", []):
            snapshot["manifest-list"] = next(each for each in scene.victims if each.endswith(".avro"))

    scene.edit(unreadable, include_current=False)

    with pytest.raises(TablecryptError):
        scene.catalog.purge_table("db.t")
    result = scene.catalog.purge_files("db.t", skip_unreadable=True)

    assert result.skipped
    scene.assert_unharmed()
