"""shred: what nothing live needs is out of reach through every file that the table has, and the result says what is not."""

from __future__ import annotations

import gzip
import json
import shutil
import tracemalloc
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from moto.kms.models import kms_backends
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import Table

from tablecrypt.errors import ConfigurationError, KeyNotFoundError, TablecryptError
from tablecrypt.maintenance import Progress, remove_orphan_files, rescue, rewrap, rotate_kek, shred
from tablecrypt.maintenance._shred_find import inspect_older
from tablecrypt.maintenance._storage import older_metadata
from tablecrypt.manifests.entries import CACHE
from tablecrypt.table.metadata import PARSED
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.maintenance.test_rescue import rewritten
from tests.support.aws import ACCOUNT, REGION, AwsServer
from tests.support.full_disk import no_file_beyond
from tests.support.interrupted_catalog import INTERRUPTED, at_commits
from tests.support.listeners import end_of, once
from tests.support.noting_io import NOTING_IO, opened_files
from tests.support.tables import (
    MASTER_KEY,
    SCHEMA,
    current_snapshot,
    encrypted_sql_catalog,
    encrypted_table,
    folder_of,
    keks,
    manifest_list_keys,
    metadata_of,
    metadata_path,
    new_table,
    path_of,
    rows,
    state,
    table_with_history,
)

pytestmark = pytest.mark.slow


def metadata_folder(table: Table) -> Path:
    return folder_of(table) / "metadata"


def metadata_texts(table: Table) -> Iterator[tuple[Path, str]]:
    for path in metadata_folder(table).glob("*.metadata.json"):
        content = path.read_bytes()
        yield path, (gzip.decompress(content) if ".gz." in path.name else content).decode()


def old_snapshots(table: Table) -> list[int]:
    """The snapshots that no branch points to."""
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    return [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in heads]


def register(table: Table, location: str) -> Table:
    table.catalog.drop_table("db.t")
    return table.catalog.register_table("db.t", location)


def test_live_snapshots_read_on_and_shredded_ones_are_gone(table: Table) -> None:
    before, selected = state(table), old_snapshots(table)
    assert len(selected) == 2

    result = shred(table, selected)

    assert state(table) == {each: found for each, found in before.items() if each not in selected}
    assert result.snapshots == tuple(sorted(selected))
    assert len(keks(table)) == 1
    assert len(manifest_list_keys(table)) == 2
    assert not (result.left or result.refused or result.still_opened or result.not_found)
    assert json.loads(json.dumps(result.to_json()))["dry_run"] is False
    table.append(rows(900))


def test_the_process_that_shreds_keeps_no_decoded_manifest_and_no_parsed_metadata(table: Table) -> None:
    assert table.scan().to_arrow().num_rows and CACHE.size > 0 and PARSED.size > 0
    shred(table, old_snapshots(table), delete_below=[table.location()])
    assert CACHE.size == PARSED.size == 0


def test_no_file_of_the_table_holds_a_retired_key(table: Table) -> None:
    retired = [*keks(table), *manifest_list_keys(table).values()]
    before = dict(metadata_texts(table))

    result = shred(table, old_snapshots(table))

    after = dict(metadata_texts(table))
    assert before.keys() < after.keys()
    for key in retired:
        assert not [path.name for path, text in after.items() if key.encrypted_key_metadata in text]
    assert result.retired_keks == (retired[0].key_id,)
    assert len(result.rewritten) == len([text for text in before.values() if "encryption-keys" in text])


def test_yesterdays_metadata_opens_the_live_snapshots_and_no_other(table: Table) -> None:
    yesterday, selected, before = table.metadata_location, old_snapshots(table), state(table)

    shred(table, selected)

    old = register(table, yesterday)
    for snapshot in old.snapshots():
        scan = old.scan(snapshot_id=snapshot.snapshot_id)
        if snapshot.snapshot_id in selected:
            with pytest.raises(KeyNotFoundError):
                scan.to_arrow()
        else:
            assert sorted(scan.to_arrow()["id"].to_pylist()) == [row[0] for row in before[snapshot.snapshot_id]]
    with pytest.raises(KeyNotFoundError, match="in no metadata file"):
        rescue(old)


def test_what_a_file_says_beside_its_keys_stays(table: Table) -> None:
    before = {path: json.loads(text) for path, text in metadata_texts(table)}

    shred(table, old_snapshots(table))

    for path, text in metadata_texts(table):
        after = json.loads(text)
        if path in before:
            after.pop("encryption-keys", None)
            before[path].pop("encryption-keys", None)
            assert after == before[path]


def test_a_copy_kept_elsewhere_still_opens_and_the_result_says_so(table: Table, tmp_path: Path) -> None:
    selected, before = old_snapshots(table), state(table)
    copy = tmp_path / "backup.metadata.json"
    shutil.copy(metadata_path(table), copy)

    result = shred(table, selected)

    assert any("copy of an older metadata file" in sentence and MASTER_KEY in sentence for sentence in result.outside)
    assert state(register(table, copy.as_uri())) == before


def test_the_result_tells_shredded_files_from_those_that_live_snapshots_share(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, appends=[rows(0), rows(100)])
    first, second = ({task.file.file_path for task in table.scan(f"id {each}").plan_files()} for each in ("< 50", ">= 50"))
    selected = [each.snapshot_id for each in table.snapshots()]
    table.delete("id < 50")
    # The delete names the first file as deleted, with its DEK; a further commit's manifests do not.
    table.append(rows(200))
    told = shred(table, selected, dry_run=True)
    assert told.still_opened == {next(iter(first)): (table.snapshots()[2].snapshot_id,)}
    assert not told.is_complete

    result = shred(table, [each.snapshot_id for each in table.snapshots()[:3]])

    assert set(result.shredded_files) == first
    assert set(result.live_files) == second
    assert (result.still_opened, result.unknown) == ({}, ())
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [*range(100, 120), *range(200, 220)]


def test_snapshots_that_were_expired_before_can_be_shredded_and_go_along(table: Table) -> None:
    """Expiry takes their keys out of the current metadata, and leaves them in every older file."""
    selected = old_snapshots(table)
    yesterday = table.metadata_location
    table.maintenance.expire_snapshots().by_ids(selected).commit()
    assert [snapshot for snapshot in register_and_read(table, yesterday) if snapshot in selected] == selected

    result = shred(table, selected[:1])

    assert result.snapshots == (selected[0],)
    assert result.expired_before == (selected[1],)
    assert not result.unknown
    old = register(table, yesterday)
    for snapshot_id in selected:
        with pytest.raises(KeyNotFoundError):
            old.scan(snapshot_id=snapshot_id).to_arrow()


def register_and_read(table: Table, location: str) -> list[int]:
    current = table.metadata_location
    readable = list(state(register(table, location)))
    register(table, current)
    table.refresh()
    return readable


def test_the_whole_table_goes_and_can_be_written_anew(table: Table) -> None:
    yesterday = table.metadata_location
    with pytest.raises(ConfigurationError, match=r"whole_table='db\.t'"):
        shred(table)
    assert len(state(table)) == 4

    result = shred(table, whole_table="db.t")

    assert len(result.snapshots) == 4
    assert len(result.shredded_files) == 4
    assert not metadata_of(table).encryption_keys
    assert not metadata_of(table).snapshots
    assert not [path for path, text in metadata_texts(table) if "encryption-keys" in text]
    assert table.scan().to_arrow().num_rows == 0
    table.append(rows(0))
    assert table.scan().count() == 20
    old = register(table, yesterday)
    with pytest.raises(KeyNotFoundError):
        old.scan().to_arrow()


def test_what_comes_into_a_table_that_was_shredded_whole_stays(table: Table) -> None:
    other = table.catalog.load_table("db.t")

    def begins_to_write(step: Progress) -> bool:
        return step.operation == "shred: metadata files" and step.done == 0

    shred(table, whole_table="db.t", progress=once(lambda: other.refresh().append(rows(300)), begins_to_write))

    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(300, 320))
    assert len(table.snapshots()) == 1


def test_snapshots_whose_old_keks_the_kms_refuses_are_shredded_unseen(tmp_path: Path, aws: AwsServer) -> None:
    alias, old = f"alias/shred-{uuid.uuid4()}", aws.new_key()
    aws.kms.create_alias(AliasName=alias, TargetKeyId=old)
    table = table_with_history(encrypted_sql_catalog(tmp_path, aws, {"encryption.kms.cache-ttl-ms": "0"}), "db.t", alias)
    selected = old_snapshots(table)
    table.maintenance.expire_snapshots().by_ids(selected).commit()
    aws.kms.update_alias(AliasName=alias, TargetKeyId=aws.new_key())
    rewrap(table, from_key_id=old)
    del kms_backends[ACCOUNT][REGION].keys[old]

    result = shred(table, selected)

    assert set(result.unknown) == set(selected)
    assert result.is_complete
    assert len(state(table)) == 2


def test_the_result_says_for_how_long_others_may_keep_keks_in_memory(tmp_path: Path, aws: AwsServer) -> None:
    table = table_with_history(encrypted_sql_catalog(tmp_path, aws, {"encryption.kms.cache-ttl-ms": "90000"}), "db.t")

    assert "at most its encryption.kms.cache-ttl-ms (90 s in this one)" in " ".join(shred(table, old_snapshots(table)).outside)


def test_a_selected_snapshot_whose_key_is_lost_already_does_not_stand_in_the_way(table: Table) -> None:
    selected = old_snapshots(table)
    lost = next(each.key_id for each in metadata_of(table).snapshots if each.snapshot_id == selected[0])
    broken = rewritten(table, lambda entries: [key for key in entries if key.key_id != lost])

    shred(broken, selected)

    assert len(state(broken)) == 2


def test_shredded_files_are_orphans_afterwards(table: Table) -> None:
    import datetime as dt

    result = shred(table, whole_table="db.t")
    found = remove_orphan_files(table, dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
    assert set(result.shredded_files) <= {file.location for file in found.found}


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_deleted_rows_are_out_of_reach_once_the_head_that_deleted_them_is_replaced(catalog: EncryptedSqlCatalog, mode: str) -> None:
    """The snapshot that deletes a file names it as deleted, and keeps its DEK."""
    properties = {"encryption.key-id": MASTER_KEY, "write.delete.mode": mode}
    table = catalog.create_table("db.t", SCHEMA, properties=properties)
    for first in (0, 100):
        table.append(rows(first))
    before = {task.file.file_path for task in table.scan("id < 50").plan_files()}
    table.delete("id < 50" if mode == "merge-on-read" else "id = 7")
    left = table.scan(selected_fields=("id", "note", "_row_id")).to_arrow().sort_by("id")
    selected = [each.snapshot_id for each in table.snapshots()][:-1]
    head = table.snapshots()[-1].snapshot_id
    assert shred(table, selected, dry_run=True).still_opened == dict.fromkeys(before, (head,))

    result = shred(table, selected, replace_heads=True)

    assert result.is_complete
    assert set(result.shredded_files) == before
    assert set(result.snapshots) == {*selected, head}
    (successor,) = table.snapshots()
    assert successor.summary is not None
    assert successor.summary.operation.value == "replace"
    assert table.scan(selected_fields=("id", "note", "_row_id")).to_arrow().sort_by("id") == left
    assert shred(table, selected, replace_heads=True).retired_keks == ()
    table.append(rows(300))
    assert table.scan().count() == left.num_rows + 20


def die() -> None:
    raise KeyboardInterrupt


def test_a_run_killed_after_a_head_was_replaced_takes_that_head_along(tmp_path: Path, aws: AwsServer) -> None:
    table = new_table(encrypted_sql_catalog(tmp_path, aws, INTERRUPTED), appends=[rows(0), rows(100)])
    table.delete("id >= 100")
    selected, head = old_snapshots(table), current_snapshot(table)
    with at_commits(after=die), pytest.raises(KeyboardInterrupt):
        shred(table, selected, replace_heads=True)
    successor = current_snapshot(table.refresh())
    assert successor.parent_snapshot_id == head.snapshot_id
    assert head.snapshot_id in state(table)

    result = shred(table, selected, replace_heads=True)

    assert head.snapshot_id in result.snapshots
    assert head.snapshot_id not in state(table)
    assert result.is_complete


def test_a_second_run_finds_nothing_and_writes_nothing(table: Table) -> None:
    selected = old_snapshots(table)
    first = shred(table, selected)
    before = {path: path.stat().st_mtime_ns for path in metadata_folder(table).iterdir()}

    again = shred(table, selected)

    assert {path: path.stat().st_mtime_ns for path in metadata_folder(table).iterdir()} == before
    assert (again.rewritten, again.deleted, again.retired_keks) == ((), (), ())
    assert set(again.unknown) == set(first.snapshots)


def test_a_dry_run_says_what_would_go_and_changes_nothing(table: Table) -> None:
    before = {path: path.read_bytes() for path in metadata_folder(table).iterdir()}

    told = shred(table, old_snapshots(table), dry_run=True)
    whole = shred(table, whole_table="db.t", dry_run=True)

    assert {path: path.read_bytes() for path in metadata_folder(table).iterdir()} == before
    done = shred(table, old_snapshots(table))
    assert set(told.rewritten) == set(done.rewritten)
    assert (told.retired_keks, told.shredded_files, told.live_files) == (done.retired_keks, done.shredded_files, done.live_files)
    assert len(whole.snapshots) == 4


def test_a_snapshot_that_a_branch_or_tag_points_to_is_refused(table: Table) -> None:
    (first, *_), location = old_snapshots(table), table.metadata_location
    for name, ref in table.metadata.refs.items():
        with pytest.raises(ConfigurationError, match=f"{name} points to snapshot"):
            shred(table, [first, ref.snapshot_id])
    assert table.refresh().metadata_location == location


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "name what to shred"),
        ({"dry_run": True}, "name what to shred"),
        ({"all_but_heads": True, "whole_table": "db.t"}, "name what to shred"),
        ({"snapshots": [1], "all_but_heads": True}, "name what to shred"),
        ({"whole_table": "db.other", "dry_run": True}, "whole_table is 'db.other'"),
        ({"whole_table": "db.t", "replace_heads": True}, "leave one of them out"),
    ],
)
def test_what_to_shred_is_said_in_one_way(table: Table, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        shred(table, **arguments)
    assert len(state(table)) == 4


def test_all_but_heads_shreds_what_no_branch_or_tag_points_to(table: Table) -> None:
    first, *_ = selected = old_snapshots(table)
    table.manage_snapshots().create_tag(first, "kept").commit()
    before = state(table)

    told = shred(table, all_but_heads=True, dry_run=True)
    result = shred(table, all_but_heads=True)

    assert told.snapshots == result.snapshots == tuple(selected[1:])
    assert state(table) == {each: found for each, found in before.items() if each not in result.snapshots}
    assert result.incomplete_because == ("nothing became unreadable: live snapshots share every file of the shredded ones",)


def test_a_table_of_heads_alone_has_nothing_to_shred(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog)
    for found in (shred(table, all_but_heads=True), shred(table, all_but_heads=True, replace_heads=True)):
        assert (found.is_complete, found.retired_keks) == (True, ())
    table.append(rows(0))
    before = {path: path.stat().st_mtime_ns for path in metadata_folder(table).iterdir()}

    result = shred(table, all_but_heads=True, replace_heads=True)

    assert (result.is_complete, result.snapshots, result.retired_keks) == (True, (), ())
    assert {path: path.stat().st_mtime_ns for path in metadata_folder(table).iterdir()} == before


def test_a_head_that_holds_deks_of_deleted_files_is_told_and_replaced_in_a_later_run_too(catalog: EncryptedSqlCatalog) -> None:
    """The first run destroys the keys of the snapshots that had the files. What the head still opens does not depend on them."""
    table = new_table(catalog, appends=[rows(0), rows(100)])
    selected = [each.snapshot_id for each in table.snapshots()]
    deleted = {task.file.file_path for task in table.scan("id >= 100").plan_files()}
    table.delete("id >= 100")
    shred(table, selected)

    for again in (shred(table, selected), shred(table, all_but_heads=True)):
        assert (set(again.still_opened), again.is_complete) == (deleted, False)
    told = shred(table, all_but_heads=True, replace_heads=True, dry_run=True)
    done = shred(table, all_but_heads=True, replace_heads=True)

    assert (set(told.shredded_files), told.still_opened) == (deleted, {})
    assert (set(done.shredded_files), done.is_complete, done.incomplete_because) == (deleted, True, ())
    assert told.snapshots == done.snapshots
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(20))


def test_an_id_that_is_nowhere_is_told_as_not_found(table: Table) -> None:
    result = shred(table, [12345])
    assert (result.not_found, result.unknown, result.is_complete) == ((12345,), (), False)
    assert len(state(table)) == 4


def test_compressed_metadata_files_are_written_over_as_such(tmp_path: Path, aws: AwsServer) -> None:
    table = table_with_history(encrypted_sql_catalog(tmp_path, aws), "db.t", **{"write.metadata.compression-codec": "gzip"})
    if not list(metadata_folder(table).glob("*.gz.metadata.json")):
        # The catalog names its files by itself: one is compressed here as Iceberg Java would.
        path = metadata_path(table)
        compressed = path.with_name("00098-x.gz.metadata.json")
        compressed.write_bytes(gzip.compress(path.read_bytes()))
    (kek,) = keks(table)

    shred(table, old_snapshots(table))

    texts = dict(metadata_texts(table))
    assert any(".gz." in path.name for path in texts)
    assert not [path for path, text in texts.items() if kek.encrypted_key_metadata in text]


def test_a_link_in_the_place_of_an_older_file_is_not_written_through(table: Table, tmp_path: Path) -> None:
    victim, backup = metadata_of(table).metadata_log[-1].metadata_file, tmp_path / "backup.metadata.json"
    path_of(victim).rename(backup)
    path_of(victim).symlink_to(backup)
    content = backup.read_bytes()

    foretold = shred(table, old_snapshots(table), dry_run=True)
    result = shred(table, old_snapshots(table))

    assert backup.read_bytes() == content
    assert path_of(victim).is_symlink()
    reason = f"is a link, which leads to {backup.resolve()}"
    assert foretold.refused == result.refused == {victim: reason}
    assert result.rewritten
    assert not result.is_complete


def test_checksums_that_hadoop_kept_of_a_file_go_when_it_is_written_over(table: Table) -> None:
    """Java would compare the new content with them."""
    older = [path_of(entry.metadata_file) for entry in table.metadata.metadata_log]
    checksums = [path.with_name(f".{path.name}.crc") for path in older]
    for path in checksums:
        path.write_bytes(b"crc\0 of the old content")

    result = shred(table, old_snapshots(table))

    written = {path_of(location) for location in result.rewritten}
    assert written
    assert {path for path, kept in zip(older, checksums, strict=True) if not kept.exists()} == written & set(older)


def test_half_written_files_and_journals_with_a_retired_key_are_deleted_and_others_stay(table: Table) -> None:
    folder, text = metadata_folder(table), metadata_path(table).read_text()
    journal, foreign = (
        folder / "tablecrypt-reencrypt" / f"{uuid.UUID(int=1)}.json",
        folder / "tablecrypt-reencrypt" / f"{uuid.UUID(int=2)}.json",
    )
    journal.parent.mkdir()
    (kek,) = keks(table)
    journal.write_text(json.dumps({"encryption-keys": [kek.model_dump(by_alias=True)]}))
    foreign.write_text(json.dumps({"encryption-keys": []}))
    half, harmless = folder / "00097-half.metadata.json", folder / "00096-new.metadata.json"
    half.write_text(text[: text.index(kek.encrypted_key_metadata) + len(kek.encrypted_key_metadata)])
    harmless.write_text(text[:20])
    cut = folder / "00095-cut.gz.metadata.json"
    cut.write_bytes(gzip.compress(text.encode())[:-200])

    result = shred(table, old_snapshots(table))

    assert not journal.exists()
    assert not half.exists()
    assert not cut.exists()
    assert foreign.exists()
    assert harmless.exists()
    assert {Path(each).name for each in result.deleted} == {journal.name, half.name, cut.name}


class ProtectedFileIO(PyArrowFileIO):
    """A store that lets some files not be written over, and, once asked to, none be deleted."""

    protected: ClassVar[set[str]] = set()
    keeps_all: ClassVar[bool] = False

    def new_output(self, location: str) -> PyArrowFile:
        if location in self.protected:
            raise PermissionError("read only")
        return super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        if self.keeps_all:
            raise PermissionError("read only")
        super().delete(location)


@pytest.fixture
def protected_table(tmp_path: Path, aws: AwsServer) -> Iterator[Table]:
    yield table_with_history(encrypted_sql_catalog(tmp_path, aws, {"py-io-impl": f"{__name__}.ProtectedFileIO"}), "db.t")
    ProtectedFileIO.protected, ProtectedFileIO.keeps_all = set(), False


def test_what_cannot_be_written_over_is_deleted_and_leaves_the_log(protected_table: Table) -> None:
    table = protected_table
    victim = metadata_of(table).metadata_log[-1].metadata_file
    ProtectedFileIO.protected = {victim}

    result = shred(table, old_snapshots(table))

    assert result.deleted == (victim,)
    assert not path_of(victim).exists()
    assert victim not in {entry.metadata_file for entry in table.metadata.metadata_log}
    assert not (result.left or result.refused)


def test_a_full_disk_after_the_keys_are_gone_loses_no_result(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    retired, location = {key.key_id for key in keks(table)}, table.metadata_location
    with ExitStack() as disk:
        fill = once(lambda: disk.enter_context(no_file_beyond(64)), lambda step: step.operation == "shred: metadata files")
        done = shred(table, old_snapshots(table), progress=fill)

    assert (set(done.retired_keks), done.left, done.refused) == (retired, {}, {})
    assert path_of(location).as_uri() in done.deleted
    assert not any(key_id in text for _, text in metadata_texts(table) for key_id in retired)
    assert "still names files that are gone" in caplog.text
    assert table.refresh().scan().count() > 0
    again = shred(table, list(done.snapshots))
    assert not (again.left or again.refused or again.retired_keks)


def test_what_can_be_neither_written_nor_deleted_is_told(protected_table: Table) -> None:
    table = protected_table
    ProtectedFileIO.protected, ProtectedFileIO.keeps_all = {f"file://{path}" for path, _ in metadata_texts(table)}, True
    result = shred(table, old_snapshots(table))
    ProtectedFileIO.protected, ProtectedFileIO.keeps_all = set(), False
    assert result.left
    assert not result.is_complete
    assert set(result.left.values()) == {"PermissionError: read only"}

    again = shred(table, list(result.snapshots))

    assert set(again.rewritten) == set(result.left)
    assert not (again.left or again.refused)


def test_a_live_snapshot_that_cannot_be_read_stops_it_before_anything_changes(table: Table) -> None:
    location, head = table.metadata_location, current_snapshot(table)
    path_of(head.manifest_list).write_bytes(b"AGS1 but no more")
    with pytest.raises(TablecryptError):
        shred(table, old_snapshots(table))
    assert table.refresh().metadata_location == location


def test_a_commit_that_lands_meanwhile_is_kept_and_its_keys_are_rotated_too(table: Table) -> None:
    selected, other = old_snapshots(table), table.catalog.load_table("db.t")

    shred(table, selected, progress=once(lambda: other.append(rows(950)), end_of("shred: snapshots")))

    assert table.scan("id >= 950").count() == 20
    assert len(keks(table)) == 1
    known = {key.encrypted_key_metadata for key in metadata_of(table).encryption_keys}
    older = [file.metadata for file in older_metadata(encrypted_table(table)) if file.metadata]
    held = {key.encrypted_key_metadata for metadata in older for key in metadata.encryption_keys}
    assert held <= known


@pytest.mark.parametrize("is_versioned", [False, True])
def test_in_a_bucket_older_versions_are_told(tmp_path: Path, aws: AwsServer, is_versioned: bool) -> None:
    bucket = aws.bucket(f"shred-{is_versioned}".lower())
    if is_versioned:
        aws.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    table = table_with_history(encrypted_sql_catalog(tmp_path, aws, {"warehouse": f"s3://{bucket}/warehouse"}), "db.t")
    before, selected, yesterday = state(table), old_snapshots(table), table.metadata_location

    result = shred(table, selected)

    assert state(table) == {each: found for each, found in before.items() if each not in selected}
    (versions,) = [sentence for sentence in result.outside if "older version" in sentence]
    assert (f"keeps {len(result.rewritten)} older versions" in versions) == is_versioned
    old = register(table, yesterday)
    with pytest.raises(KeyNotFoundError):
        old.scan(snapshot_id=selected[0]).to_arrow()


def test_each_older_metadata_file_is_read_once_to_look_and_once_to_write_it_over(tmp_path: Path, aws: AwsServer) -> None:
    table = table_with_history(encrypted_sql_catalog(tmp_path, aws, {"py-io-impl": NOTING_IO}), "db.t")
    older = {f"file://{path}" for path, _ in metadata_texts(table)} - {table.metadata_location}

    with opened_files() as looked_at:
        told = shred(table, old_snapshots(table), dry_run=True)
    with opened_files() as opened:
        done = shred(table, old_snapshots(table))

    assert {looked_at.count(each) for each in older} == {1}
    assert set(told.rewritten) == set(done.rewritten)
    assert {opened.count(each) for each in older & set(done.rewritten)} == {2}
    assert {opened.count(each) for each in older - set(done.rewritten)} == {1}


def test_memory_does_not_grow_with_the_older_metadata_files(table: Table) -> None:
    """Each is held while it is read, and let go."""
    table.transaction().set_properties(padding="x" * 1_000_000).commit_transaction()
    location, text = metadata_folder(table), metadata_path(table).read_text()
    for number in range(60):
        (location / f"00050-{uuid.UUID(int=number)}.metadata.json").write_text(text)
    fresh = table.catalog.load_table("db.t")
    inspect_older(fresh)  # type: ignore[arg-type]  # what is made once and stays
    tracemalloc.start()
    try:
        older = inspect_older(fresh)  # type: ignore[arg-type]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(older.keks) > 60
    assert peak < 20_000_000


def test_a_kek_that_others_made_and_retired_meanwhile_is_in_no_file_afterwards(table: Table) -> None:
    selected, other = old_snapshots(table), table.catalog.load_table("db.t")
    made: list[str] = []

    def rotate_twice() -> None:
        made.extend(str(rotate_kek(other).new_kek) for _ in range(2))

    result = shred(table, selected, progress=once(rotate_twice, end_of("shred: snapshots")))

    assert set(made) <= set(result.retired_keks)
    assert not [path.name for path, text in metadata_texts(table) for kek in made if kek in text]


def test_a_file_that_was_half_written_when_it_was_looked_at_is_scrubbed_once_it_is_whole(table: Table) -> None:
    text, half = metadata_path(table).read_text(), metadata_folder(table) / "00097-half.metadata.json"
    half.write_text(text[:20])

    result = shred(table, old_snapshots(table), progress=once(lambda: half.write_text(text), end_of("shred: snapshots")))

    assert half.as_uri() in result.rewritten
    assert not [kek for kek in result.retired_keks if kek in half.read_text()]


def test_a_file_that_came_after_the_commit_may_be_current_by_now_and_waits_for_the_next_look(tmp_path: Path, aws: AwsServer) -> None:
    """A REST server that accepts a commit under a retired KEK writes such a file, and then makes it the table's."""
    table = table_with_history(encrypted_sql_catalog(tmp_path, aws, INTERRUPTED), "db.t")
    text, late = metadata_path(table).read_text(), metadata_folder(table) / "00097-late.metadata.json"
    untouched: list[bool] = []

    note = once(lambda: untouched.append(late.read_text() == text), end_of("shred: metadata files"))
    with at_commits(after=lambda: late.exists() or late.write_text(text)):
        result = shred(table, old_snapshots(table), progress=note)

    assert untouched == [True]
    assert late.as_uri() in result.rewritten
    assert result.left == {}


def test_half_of_a_commit_that_failed_keeps_no_key_of_a_shredded_snapshot(table: Table) -> None:
    """Under a KEK that never came into the table, as a rotation leaves it whose disk was full."""
    text = metadata_path(table).read_text()
    [kek] = keks(table)
    cut = metadata_folder(table) / f"00099-{uuid.uuid4()}.metadata.json"
    whole = text.replace(kek.key_id, "never-committed")
    cut.write_text(whole[:-20])
    assert all(snapshot.key_id and snapshot.key_id in cut.read_text() for snapshot in metadata_of(table).snapshots)

    done = shred(table, all_but_heads=True, delete_below=[table.location()])

    assert not (done.left or done.refused or done.still_opened or done.not_found)
    assert not cut.exists()


def test_a_logged_file_that_is_answered_as_another_tables_keeps_a_shredding_from_being_complete(table: Table) -> None:
    """As a store may that gives two answers: the keys come back with the first one."""
    other = new_table(table.catalog, "db.other", appends=[rows(0)])
    logged = path_of(table.metadata.metadata_log[-1].metadata_file)
    own, foreign = logged.read_bytes(), metadata_path(other).read_bytes()
    retired = {key.key_id for key in keks(table)}
    logged.write_bytes(foreign)

    done = shred(table, all_but_heads=True)
    assert done.refused == {logged.as_uri(): "is in the metadata-log, and says that it is another table's"}
    assert done.incomplete_because[0] == (
        "1 file of the metadata-log says to be another table's: put the table's own back, which may hold destroyed keys, or delete what is "
        "there"
    )
    assert logged.read_bytes() == foreign

    # A file that no log names is another table's alone.
    logged.write_bytes(own)
    beside = metadata_folder(table) / "00099-other.metadata.json"
    beside.write_bytes(foreign)
    assert shred(table, all_but_heads=True).refused == {}
    assert not any(key_id in text for path, text in metadata_texts(table) if path != beside for key_id in retired)
    assert (beside.read_bytes(), other.refresh().scan().count()) == (foreign, len(rows(0)))
