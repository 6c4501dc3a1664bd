"""Migration: a plain table becomes an encrypted one with the same rows, and what was plain is gone."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.orc
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import FixedType, ListType, LongType, NestedField, StructType, TimestampType, TimestamptzType, UUIDType

from tablecrypt import orc
from tablecrypt.errors import ConfigurationError, FormatError, KeyNotFoundError
from tablecrypt.maintenance import FindingKind, Migrated, Progress, audit, migrate
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.interrupted_catalog import INTERRUPTED, at_commits
from tests.support.kill_points import MORTAL_IN_MEMORY, Killed, dying_at, mortal_databases
from tests.support.listeners import has_begun, once, stopping
from tests.support.orc_files import local_keys
from tests.support.plaintext import CANARY, findings
from tests.support.table_files import plain_table_of_others
from tests.support.tables import (
    BY_TEAM,
    MASTER_KEY,
    SCHEMA,
    TEAM_SCHEMA,
    data_paths,
    encrypted_sql_catalog,
    folder_of,
    path_of,
    rows,
    team_rows,
)

pytestmark = pytest.mark.slow


def plain_table(catalog: Catalog, format_version: str = "2") -> Table:
    """A table with a history: two appends, rows deleted, a column renamed and one added."""
    table = catalog.create_table(
        "db.rows", TEAM_SCHEMA, partition_spec=BY_TEAM, properties={"format-version": format_version, "owner": "us"}
    )
    table.append(team_rows(0))
    table.append(team_rows(100))
    table.delete("id in (3, 4)")
    with table.update_schema() as update:
        update.rename_column("note", "remark")
        update.add_column("added", LongType())
    return table


def contents(table: Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: int(row["id"]))


def stored(table: Table) -> dict[str, bytes]:
    root = folder_of(table)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def assert_nothing_plain(table: Table) -> None:
    for name, content in stored(table).items():
        assert CANARY.encode() not in content, name
        assert not content.startswith((b"PAR1", b"Obj\x01", b"PFA1")), name


@pytest.fixture
def catalog(warehouse: Path, aws: AwsServer) -> Catalog:
    return encrypted_sql_catalog(warehouse, aws)


@pytest.fixture
def catalog_of_both(unwatched_warehouse: Path, aws: AwsServer) -> Catalog:
    """A catalog in which plaintext is left on purpose."""
    return encrypted_sql_catalog(unwatched_warehouse, aws)


def die() -> None:
    raise Killed


@pytest.mark.parametrize("format_version", ["1", "2"])
def test_rows_stay_and_nothing_plain_is_left(catalog: Catalog, format_version: str) -> None:
    plain = plain_table(catalog, format_version)
    before, uuid = contents(plain), plain.metadata.table_uuid
    result = migrate(plain, MASTER_KEY)
    table = catalog.load_table("db.rows")
    assert isinstance(table, EncryptedTable)
    assert contents(table) == before
    assert (table.metadata.table_uuid, table.metadata.format_version, table.properties["owner"]) == (uuid, 3, "us")
    assert len(table.snapshots()) == 1 and table.snapshots()[0].snapshot_id == result.snapshot_id
    assert_nothing_plain(table)
    assert {each.what for each in result.left} == {"metadata from before it was encrypted"}
    assert result.deleted > result.files > 0


def test_the_table_lives_on(catalog: Catalog) -> None:
    migrate(plain_table(catalog), MASTER_KEY)
    table = catalog.load_table("db.rows")
    more = team_rows(300).rename_columns(["id", "team", "remark"])
    table.append(more)
    table.delete("id = 301")
    assert len(contents(table)) == 38 + 19
    ids = table.scan(selected_fields=("_row_id",)).to_arrow()["_row_id"].to_pylist()
    assert len(set(ids)) == len(ids)


def test_properties_come_with_it(catalog: Catalog) -> None:
    migrate(plain_table(catalog), MASTER_KEY, properties={"encryption.data-key-length": "32"})
    table = catalog.load_table("db.rows")
    assert {len(key_metadata_of(task.file).encryption_key) for task in table.scan().plan_files()} == {32}


@pytest.mark.parametrize("into", [None, "db.new"])
def test_properties_that_a_table_which_is_there_has_not_are_refused(catalog_of_both: Catalog, into: str | None) -> None:
    plain = plain_table(catalog_of_both)
    migrate(plain, MASTER_KEY, into=into)

    with pytest.raises(ConfigurationError, match=r"already, without encryption\.data-key-length = 32"):
        migrate(plain, MASTER_KEY, into=into, properties={"encryption.data-key-length": "32"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"location": "file:///elsewhere"}, "says where a new table goes, which into"),
        ({"properties": {"encryption.key-id": "alias/other"}}, "name another encryption.key-id than"),
        ({"into": "db.new", "drop_refs": True}, r"^drop_refs \(--drop-refs\) is for a migration in place: with into \(--into\) the plain"),
        ({"into": "db.new", "delete_below": ["file:///elsewhere"]}, r"^delete_below \(--delete-below\) is for a migration in place"),
        ({"into": "db.new", "drop_refs": True, "dry_run": True}, r"^drop_refs \(--drop-refs\) is for a migration in place"),
    ],
)
def test_what_would_be_ignored_is_refused_before_anything_changes(catalog_of_both: Catalog, options: dict[str, Any], said: str) -> None:
    plain = plain_table(catalog_of_both)
    before = stored(plain)

    with pytest.raises(ConfigurationError, match=said):
        migrate(plain, MASTER_KEY, **options)

    assert stored(plain) == before


def test_a_dry_run_changes_nothing(catalog: Catalog) -> None:
    plain = plain_table(catalog)
    before = stored(plain)
    result = migrate(plain, MASTER_KEY, dry_run=True)
    assert result.files == 4 and result.size > 0
    assert stored(plain) == before
    assert not isinstance(catalog.load_table("db.rows"), EncryptedTable)
    migrate(plain, MASTER_KEY)


def test_an_empty_table_and_one_migrated_already(catalog: Catalog) -> None:
    plain = catalog.create_table("db.rows", TEAM_SCHEMA)
    assert migrate(plain, MASTER_KEY).snapshot_id is None
    table = catalog.load_table("db.rows")
    assert isinstance(table, EncryptedTable)
    assert migrate(table, MASTER_KEY).files == 0
    with pytest.raises(ConfigurationError, match="encrypted already"):
        migrate(table, "alias/another")


def test_what_others_append_meanwhile_is_encrypted_too(catalog: Catalog) -> None:
    plain = plain_table(catalog)
    other = catalog.load_table("db.rows")
    result = migrate(plain, MASTER_KEY, progress=once(lambda: other.append(team_rows(300).rename_columns(["id", "team", "remark"]))))
    table = catalog.load_table("db.rows")
    assert len(contents(table)) == 58
    assert result.resumed == 4
    assert_nothing_plain(table)


def test_a_writer_that_loaded_the_plain_table_cannot_commit_to_the_encrypted_one(catalog: Catalog) -> None:
    plain = plain_table(catalog)
    stale = catalog.load_table("db.rows")
    migrate(plain, MASTER_KEY)
    with pytest.raises((CommitFailedException, Exception)):
        stale.append(team_rows(300).rename_columns(["id", "team", "remark"]))
    table = catalog.load_table("db.rows")
    assert len(contents(table)) == 38
    for location in migrate(table, MASTER_KEY).left:
        if location.what == "a file that the table does not name":
            path_of(location.location).unlink()
    assert_nothing_plain(table)


def test_branches_and_tags_have_to_be_given_up(catalog: Catalog) -> None:
    plain = plain_table(catalog)
    snapshot = plain.snapshots()[0].snapshot_id
    with plain.manage_snapshots() as manage:
        manage.create_tag(snapshot, "first").create_branch(snapshot, "side")
    with pytest.raises(ConfigurationError, match="first, side"):
        migrate(plain, MASTER_KEY)
    migrate(plain, MASTER_KEY, drop_refs=True)
    table = catalog.load_table("db.rows")
    assert set(table.metadata.refs) == {"main"}
    assert_nothing_plain(table)


def test_a_key_that_the_kms_refuses_stops_it_before_anything_is_written(catalog: Catalog) -> None:
    plain = plain_table(catalog)
    before = stored(plain)
    options: tuple[dict[str, Any], ...] = ({}, {"dry_run": True}, {"dry_run": True, "into": "db.new"})
    for each in options:
        with pytest.raises(KeyNotFoundError):
            migrate(plain, "alias/nobody-has-this", **each)
    assert stored(plain) == before
    migrate(plain, MASTER_KEY)


def test_orphans_of_the_plain_table_are_listed(catalog: Catalog) -> None:
    plain = plain_table(catalog)
    orphan = folder_of(plain) / "data" / "orphan.parquet"
    orphan.write_bytes(b"PAR1 left by a failed write")
    orphan.with_name("sealed.parquet").write_bytes(b"PARE left by a migration that was killed")
    orphan.with_name("begun.parquet").touch()
    result = migrate(plain, MASTER_KEY)
    assert [(each.location, each.size) for each in result.left if "does not name" in each.what] == [(f"file://{orphan}", 27)]
    orphan.unlink()


PLANTED = {
    "the column is another's": {"encryption.column.3.key-id": MASTER_KEY},
    "a mask that shows values": {"encryption.column.3.key-id": MASTER_KEY, "encryption.column.3.mask": "truncate(64)"},
    "a former key": {"encryption.column.3.former-key-id": MASTER_KEY},
    "a declaration by name": {"encryption.column-keys": f"{MASTER_KEY}: note"},
    "an entry": {"encryption.column-entry.00": "{}"},
    "a share": {"encryption.share.0c9f3a52-9a4f-4a86-8f61-0d2c7f4be8a1": "{}"},
}


@pytest.mark.parametrize(("planted", "into"), [*((each, None) for each in PLANTED), ("an entry", "db.new")])
def test_properties_of_encrypted_tables_that_somebody_put_into_a_plain_one_stop_it(
    catalog_of_both: Catalog, planted: str, into: str | None
) -> None:
    """Nothing authenticates a plain table. They made what was migrated unreadable, once the plain files were gone."""
    table = plain_table(catalog_of_both)
    rows, metadata = contents(table), path_of(table.metadata_location)
    document = json.loads(metadata.read_text(encoding="utf-8"))
    metadata.write_text(json.dumps({**document, "properties": {**document["properties"], **PLANTED[planted]}}), encoding="utf-8")
    before = stored(table)

    with pytest.raises(ConfigurationError, match=r"plain table has the property encryption\."):
        migrate(catalog_of_both.load_table(table.name()), MASTER_KEY, into=into)

    assert stored(table) == before
    with catalog_of_both.load_table(table.name()).transaction() as transaction:
        transaction.remove_properties(*PLANTED[planted])
    migrate(catalog_of_both.load_table(table.name()), MASTER_KEY, into=into)
    assert contents(catalog_of_both.load_table(into or table.name())) == rows


def _plain_orc_table(catalog: Catalog, schema: Schema, stored: pa.Table) -> Table:
    content = io.BytesIO()
    pyarrow.orc.write_table(stored, content)
    return plain_table_of_others(catalog, "db.rows", schema, "rows.orc", content.getvalue(), len(stored))


def test_masks_of_encrypted_orc_columns_do_not_take_the_place_of_their_values(catalog_of_both: Catalog) -> None:
    """Whoever reads such a file without its keys gets masks and no error. They were migrated, and the file with the values was deleted."""
    content = io.BytesIO()
    orc.write_table(rows(0), content, encrypt={"pii": ["note"]}, mask={"note": "redact"}, keys=local_keys())
    plain = plain_table_of_others(catalog_of_both, "db.rows", SCHEMA, "rows.orc", content.getvalue(), 20)
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match=r"rows\.orc: an ORC file with encrypted columns"):
            migrate(plain, MASTER_KEY, dry_run=dry_run)

    assert not isinstance(catalog_of_both.load_table("db.rows"), EncryptedTable)
    assert orc.read_table(path_of(plain.location()) / "data" / "rows.orc", local_keys()).num_rows == 20


MOMENTS: Final = Schema(NestedField(1, "at", TimestampType()), NestedField(2, "all", ListType(3, TimestamptzType())))


def test_timestamps_in_orc_which_arrow_reads_in_nanoseconds_become_the_tables(catalog_of_both: Catalog) -> None:
    moment = dt.datetime(2020, 5, 1, 12, 0, 0, 5)
    stored = pa.table({"at": [moment, None], "all": [None, [moment.replace(tzinfo=dt.UTC)]]}, schema=MOMENTS.as_arrow())
    migrate(_plain_orc_table(catalog_of_both, MOMENTS, stored), MASTER_KEY)

    assert catalog_of_both.load_table("db.rows").scan().to_arrow().to_pylist() == stored.to_pylist()


PAIR: Final = StructType(NestedField(2, "a", LongType()))
UNREADABLE: Final = {
    "a uuid, which ORC knows as bytes": (UUIDType(), pa.array([bytes(16)]), "column 'c' is binary there, and uuid in the table"),
    "fixed, which ORC knows as bytes": (FixedType(4), pa.array([b"abcd"]), r"column 'c' is binary there, and fixed\[4\] in the table"),
    "dates": (TimestampType(), pa.array([dt.date(2020, 5, 1)]), "column 'c' is date there, and timestamp in the table"),
    "dates for instants": (TimestamptzType(), pa.array([dt.date(2020, 5, 1)]), "column 'c' is date there, and timestamptz in the table"),
    "text": (LongType(), pa.array(["x"]), "column 'c' is string there, and long in the table"),
    "a field without a name in the mapping": (PAIR, pa.array([{"a": 1, "b": 2}]), r"schema\.name-mapping\.default has none .*c\.b"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_columns_of_orc_that_do_not_become_the_tables_are_refused_by_a_dry_run_too(catalog_of_both: Catalog, case: str) -> None:
    kind, values, message = UNREADABLE[case]
    plain = _plain_orc_table(catalog_of_both, Schema(NestedField(1, "c", kind)), pa.table({"c": values}))
    before = stored(plain)
    for options in ({"dry_run": True}, {"dry_run": True, "into": "db.new"}, {}):
        with pytest.raises(FormatError, match=rf"rows\.orc: .*{message}"):
            migrate(plain, MASTER_KEY, **options)

    assert stored(plain) == before


def test_a_dry_run_counts_the_rows_of_orc_as_the_real_run_does(catalog_of_both: Catalog) -> None:
    content = io.BytesIO()
    pyarrow.orc.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), content)
    plain = plain_table_of_others(catalog_of_both, "db.rows", Schema(NestedField(1, "id", LongType())), "rows.orc", content.getvalue(), 3)
    for dry_run in (True, False):
        with pytest.raises(FormatError, match="holds 2 rows, its manifest says 3"):
            migrate(plain, MASTER_KEY, dry_run=dry_run)


def test_moments_in_orc_that_arrow_does_not_read_are_refused(catalog_of_both: Catalog) -> None:
    stored = pa.table({"at": [dt.datetime(9999, 12, 31)], "all": [None]}, schema=MOMENTS.as_arrow())
    plain = _plain_orc_table(catalog_of_both, MOMENTS, stored)
    with pytest.raises(
        FormatError, match=r"rows\.orc: pyarrow does not read this ORC file, .* write its rows again as Parquet, by the engine"
    ):
        migrate(plain, MASTER_KEY)

    assert not isinstance(catalog_of_both.load_table("db.rows"), EncryptedTable)


def test_a_location_that_somebody_edited_is_not_the_tables_after_a_commit_to_it(catalog_of_both: Catalog) -> None:
    """Each commit writes its metadata file to where the one before says. Files of other tables that it named were deleted."""
    other, table = (catalog_of_both.create_table(f"db.{name}", TEAM_SCHEMA) for name in ("other", "edited"))
    other.append(team_rows(0))
    metadata = path_of(table.metadata_location)
    document = json.loads(metadata.read_text(encoding="utf-8"))
    metadata.write_text(json.dumps({**document, "location": f"{other.location()}/data"}), encoding="utf-8")
    edited = catalog_of_both.load_table("db.edited")
    # What a writer of the storage lists in a plain manifest as well.
    edited.add_files([task.file.file_path for task in other.scan().plan_files()])
    before = stored(other)

    with pytest.raises(ConfigurationError, match="only its metadata says"):
        migrate(catalog_of_both.load_table("db.edited"), MASTER_KEY)

    assert before.items() <= stored(other).items()
    assert contents(other) == contents(catalog_of_both.load_table("db.edited"))


def test_checksums_that_hadoop_kept_of_plaintext_go_with_it(catalog: Catalog) -> None:
    plain = plain_table(catalog)
    files = data_paths(plain)
    checksums = [path.with_name(f".{path.name}.crc") for path in files]
    for path in checksums:
        path.write_bytes(b"crc\0 of the rows")
    result = migrate(plain, MASTER_KEY)
    assert checksums and not any(path.exists() for path in checksums)
    assert not any("does not name" in each.what for each in result.left)


def test_plaintext_can_be_kept_for_a_while_and_deleted_later(catalog_of_both: Catalog) -> None:
    catalog, plain = catalog_of_both, plain_table(catalog_of_both)
    first = migrate(plain, MASTER_KEY, keep_plaintext=True)
    assert first.deleted == 0 and len(first.left) > 10
    table = catalog.load_table("db.rows")
    second = migrate(table, MASTER_KEY)
    assert second.deleted > 10
    assert_nothing_plain(table)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def looped(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize("unreadable", [cut, looped])
@pytest.mark.parametrize("kind", ["manifest list", "manifest"])
def test_nothing_plain_is_deleted_while_what_names_it_cannot_be_read(
    unwatched_warehouse: Path, aws: AwsServer, kind: str, unreadable: Callable[[Path], None]
) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    plain = plain_table(catalog)
    oldest = plain.snapshots()[0]
    plain_files = {task.file.file_path for task in plain.scan().plan_files()}
    location = oldest.manifest_list if kind == "manifest list" else oldest.manifests(plain.io)[0].manifest_path
    migrate(plain, MASTER_KEY, keep_plaintext=True)
    table = catalog.load_table("db.rows")
    before, path = stored(table), path_of(location)
    content = path.read_bytes()
    unreadable(path)
    with pytest.raises((FormatError, OSError), match=f"{path.name}: the plain table's {kind} cannot be read"):
        migrate(table, MASTER_KEY)
    path.unlink()
    assert {finding.where for finding in audit(table).findings if finding.kind == FindingKind.PLAINTEXT_ORPHAN} >= plain_files
    path.write_bytes(content)
    assert stored(table) == before
    assert migrate(table, MASTER_KEY).deleted > 10
    assert_nothing_plain(table)


@pytest.mark.parametrize("format_version", ["1", "2"])
def test_into_a_new_table_beside_the_plain_one(catalog_of_both: Catalog, format_version: str) -> None:
    catalog, plain = catalog_of_both, plain_table(catalog_of_both, format_version)
    before, files = contents(plain), stored(plain)
    result = migrate(plain, MASTER_KEY, into="db.sealed")
    assert stored(plain) == files and contents(catalog.load_table("db.rows")) == before
    [left] = result.left
    assert (left.location, left.what[:14]) == (plain.location(), "all of db.rows")
    assert left.size == result.size > 0
    table = catalog.load_table("db.sealed")
    assert isinstance(table, EncryptedTable)
    assert contents(table) == before
    assert table.location().endswith("/sealed") and table.metadata.table_uuid != plain.metadata.table_uuid
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [result.snapshot_id]
    assert_nothing_plain(table)
    table.append(team_rows(300).rename_columns(["id", "team", "remark"]))
    assert len(contents(table)) == 58


def test_a_finished_migration_into_a_new_table_is_known_again_until_the_plain_one_changes(catalog_of_both: Catalog) -> None:
    plain = plain_table(catalog_of_both)
    migrate(plain, MASTER_KEY, into="db.sealed")
    location = catalog_of_both.load_table("db.sealed").metadata_location
    again = migrate(plain, MASTER_KEY, into="db.sealed")
    assert (again.files, catalog_of_both.load_table("db.sealed").metadata_location) == (0, location)
    assert [left.location for left in again.left] == [plain.location()]
    with pytest.raises(TableAlreadyExistsError):
        migrate(plain, "alias/people", into="db.sealed")
    plain.append(team_rows(300).rename_columns(["id", "team", "remark"]))
    with pytest.raises(TableAlreadyExistsError):
        migrate(plain, MASTER_KEY, into="db.sealed")
    with pytest.raises(TableAlreadyExistsError):
        migrate(plain, MASTER_KEY, into="db.rows")


def test_a_run_killed_after_it_registered_the_new_table_is_finished_by_the_next(unwatched_warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws, INTERRUPTED)
    plain = plain_table(catalog)
    with at_commits(after=die), pytest.raises(Killed):
        migrate(plain, MASTER_KEY, into="db.sealed")
    table = catalog.load_table("db.sealed")
    assert any("tablecrypt-migrate" in name for name in stored(table))
    migrate(plain, MASTER_KEY, into="db.sealed")
    assert not any("tablecrypt-migrate" in name for name in stored(table))
    assert contents(table) == contents(plain)


@pytest.mark.parametrize("name", ["sealed", "nowhere.sealed"])
def test_a_name_that_no_table_can_get_is_refused_before_a_file_is_encrypted(catalog_of_both: Catalog, name: str) -> None:
    plain = plain_table(catalog_of_both)
    heard: list[Progress] = []
    with pytest.raises(ConfigurationError, match="sealed"):
        migrate(plain, MASTER_KEY, into=name, progress=heard.append)
    assert not heard


def test_a_migration_into_a_new_table_is_continued(catalog_of_both: Catalog) -> None:
    catalog, plain = catalog_of_both, plain_table(catalog_of_both)
    with pytest.raises(Killed):
        migrate(plain, MASTER_KEY, into="db.sealed", progress=stopping(has_begun, Killed))
    assert migrate(plain, MASTER_KEY, into="db.sealed").resumed == 1
    assert contents(catalog.load_table("db.sealed")) == contents(plain)


def test_a_catalog_that_cannot_encrypt_is_refused(tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("plain", uri=f"sqlite:///{tmp_path}/plain.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    with pytest.raises(ConfigurationError, match="tablecrypt_catalog"):
        migrate(catalog.create_table("db.rows", TEAM_SCHEMA), MASTER_KEY)


@pytest.mark.slow
@mortal_databases()
def test_a_run_killed_at_any_step_is_finished_by_the_next(warehouse: Path, aws: AwsServer) -> None:
    """Every few steps of store, KMS and catalog: while files are encrypted, at the commit, and while plaintext is deleted."""
    catalog = encrypted_sql_catalog(warehouse, aws, MORTAL_IN_MEMORY)

    def migrated(died_at: int | None) -> tuple[Migrated | None, int]:
        plain = plain_table(catalog)
        before = contents(plain)
        with dying_at(died_at) as life:
            try:
                result = migrate(catalog.load_table("db.rows"), MASTER_KEY)
            except Killed:
                result = None
        steps = len(life.steps)
        assert contents(catalog.load_table("db.rows")) == before
        final = migrate(catalog.load_table("db.rows"), MASTER_KEY)
        table = catalog.load_table("db.rows")
        assert isinstance(table, EncryptedTable)
        assert contents(table) == before
        for each in final.left:
            if each.what == "a file that the table does not name":
                path = path_of(each.location)
                assert not list(findings(each.location, path.read_bytes())), "an interrupted attempt writes ciphertext and metadata"
                path.unlink()
        assert_nothing_plain(table)
        catalog.purge_table("db.rows")
        return result, steps

    result, steps = migrated(None)
    assert result is not None
    died = [migrated(died_at)[0] is None for died_at in range(1, steps + 1, max(1, steps // 20))]
    assert all(died) and len(died) >= 20


@pytest.mark.parametrize("content", [b"", b"no Avro at all", b"Obj\x01\x00" + bytes(40)])
@pytest.mark.parametrize("of_list", [True, False])
def test_a_damaged_manifest_of_a_plain_table_is_named_and_nothing_changes(
    unwatched_warehouse: Path, aws: AwsServer, content: bytes, of_list: bool
) -> None:
    table = plain_table(encrypted_sql_catalog(unwatched_warehouse, aws))
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    damaged = path_of(snapshot.manifest_list if of_list else snapshot.manifests(table.io)[0].manifest_path)
    damaged.write_bytes(content)
    before = stored(table)

    with pytest.raises(FormatError, match=rf"{damaged.name}: cannot be read as a manifest list or manifest") as refused:
        migrate(table, MASTER_KEY)

    assert "\n" not in str(refused.value)
    assert stored(table) == before


class TwoAnswersIO(PyArrowFileIO):
    """A store that answers with the manifest list of another snapshot, so often."""

    instead: ClassVar[dict[str, str]] = {}
    left: ClassVar[int] = 0

    def new_input(self, location: str) -> PyArrowFile:
        if location in self.instead and TwoAnswersIO.left:
            TwoAnswersIO.left -= 1
            location = self.instead[location]
        return super().new_input(location)


def test_nothing_is_deleted_that_a_second_reading_of_the_manifests_alone_names(unwatched_warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws, {"py-io-impl": f"{__name__}.TwoAnswersIO"})
    table = plain_table(catalog)
    first, *_, last = table.snapshots()
    before = stored(table)
    TwoAnswersIO.instead, TwoAnswersIO.left = {last.manifest_list: first.manifest_list}, 1

    with pytest.raises(FormatError, match=r"\.parquet: is among the files of the plain snapshot by one reading"):
        migrate(table, MASTER_KEY)

    assert before.items() <= stored(table).items()
    whole = contents(catalog.load_table("db.rows"))
    assert migrate(table, MASTER_KEY).deleted
    assert contents(catalog.load_table("db.rows")) == whole


def test_a_snapshot_that_others_expire_meanwhile_is_migrated_as_the_next_one(unwatched_warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    table = plain_table(catalog)
    before = table.metadata.current_snapshot()
    assert before is not None

    def others() -> None:
        catalog.load_table("db.rows").append(team_rows(500).rename_columns(["id", "team", "remark"]))
        path_of(before.manifest_list).unlink()

    migrate(table, MASTER_KEY, progress=once(others))

    assert len(contents(catalog.load_table("db.rows"))) == 58
