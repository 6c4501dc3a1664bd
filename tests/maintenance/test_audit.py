"""An audit finds each kind of plaintext and of neglected key, provoked here for real, and nothing in a table that is in order."""

from __future__ import annotations

import datetime as dt
import json
import secrets
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest, write_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from pyiceberg.types import LongType, NestedField

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, KeyNotFoundError, KmsAccessDeniedError, TablecryptError
from tablecrypt.kms.local_file import create_key_file
from tablecrypt.maintenance import Audit, Finding, FindingKind, Severity, audit, migrate, reencrypt, rotate_kek, verify
from tablecrypt.maintenance._audit.observed import inspect_older, list_folders, observe
from tablecrypt.maintenance._audit.table_audit import audit_table, file_key_findings
from tablecrypt.maintenance.operation import Counted, no_progress
from tablecrypt.maintenance.reachable import FileKind, ReachableFile, reachable_files
from tablecrypt_catalog import EncryptedGlueCatalog, EncryptedHiveCatalog, EncryptedInMemoryCatalog, EncryptedSqlCatalog
from tablecrypt_catalog.encrypting_catalog import EncryptionMixin
from tests.support import denying_kms, unlistable_io
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edit_json
from tests.support.listeners import stopping
from tests.support.tables import (
    MASTER_KEY,
    SCHEMA,
    SHOWN_PARTITIONS,
    TEAM_SCHEMA,
    data_files,
    encrypted_sql_catalog,
    flip,
    folder_of,
    maintained_table,
    memory_catalog,
    memory_kms,
    metadata_path,
    new_table,
    path_of,
    put_back,
    rows,
    team_rows,
    unpinned_catalog,
)
from tests.support.tables import keks as keks_of

pytestmark = pytest.mark.slow

YEAR = dt.timedelta(days=365)


@pytest.fixture
def table(module_table: Table) -> Iterator[Table]:
    """A table that tests may damage, and must not commit to."""
    with put_back(folder_of(module_table)):
        yield module_table.catalog.load_table("db.rows")


def of_kind(found: Audit, kind: FindingKind) -> list[Finding]:
    return [finding for finding in found.findings if finding.kind == kind]


def kinds(found: Audit) -> set[FindingKind]:
    return {finding.kind for finding in found.findings}


def path_to(table: Table, kind: FileKind) -> Path:
    files = reachable_files(table.metadata, table.io).files.values()
    return path_of(sorted(file.location for file in files if file.kind == kind)[0])


def edited(table: Table, change: Callable[[dict[str, Any]], None]) -> Table:
    """The table as it would be after somebody edited its metadata."""
    content = json.loads(table.metadata.model_dump_json())
    change(content)
    table.metadata = type(table.metadata).model_validate(content)
    return table


def test_a_table_in_order_has_no_finding(table: Table) -> None:
    found = audit(table)

    assert found.findings == ()
    assert not found.has_plaintext
    assert found.worst is None


def test_each_file_is_described(table: Table) -> None:
    (audited,) = audit(table).tables

    assert audited.key_id == MASTER_KEY
    assert {file.signature.value for file in audited.files if file.kind == "data"} == {"PARE"}
    assert {file.signature.value for file in audited.files if file.kind != "data"} == {"AGS1"}
    assert {file.key_length for file in audited.files} == {16}
    (kek,) = audited.keks
    assert {file.keks for file in audited.files} == {(kek.key_id,)}
    assert (kek.encrypted_by_id, kek.key_length, kek.wraps_new, kek.lists) == (MASTER_KEY, 16, True, 3)
    assert kek.manifests == sum(file.kind == "manifest" for file in audited.files)
    assert [(each.partition, each.share) for each in audited.partitions] == [("team=north", 1.0), ("team=south", 1.0)]
    assert all(file.length == path_of(file.location).stat().st_size for file in audited.files)


def test_the_rules_read_nothing_beyond_what_was_observed(table: Table) -> None:
    flip(path_to(table, FileKind.DATA), 0)
    now = dt.datetime.now(dt.UTC)
    (expected,) = audit(table, now=now).tables
    seen = observe(table, Counted("audit", "files", no_progress))
    for path in folder_of(table).rglob("*"):
        if path.is_file():
            path.unlink()

    found = audit_table(seen, now, ())

    assert found == replace(expected, findings=tuple(each for each in expected.findings if each.kind != FindingKind.PINS_MISSING))
    assert found.findings


def test_ages_are_told_at_the_given_moment(table: Table) -> None:
    now = dt.datetime.now(dt.UTC) + dt.timedelta(days=10)
    (shown,) = audit(table, now=now).to_json()["tables"]

    assert {round(file["age_days"]) for file in shown["files"]} == {10}
    assert {round(kek["age_days"]) for kek in shown["keks"]} == {10}


@pytest.mark.parametrize("kind", [FileKind.DATA, FileKind.MANIFEST, FileKind.MANIFEST_LIST, FileKind.DELETION_VECTOR])
def test_plaintext_in_place_of_a_file_is_critical(table: Table, kind: FileKind) -> None:
    path = path_to(table, kind)
    pq.write_table(team_rows(0), path)

    found = audit(table)

    assert found.has_plaintext
    assert [path_of(finding.where) for finding in of_kind(found, FindingKind.PLAINTEXT_FILE)] == [path]


def test_coverage_counts_what_is_not_encrypted(table: Table) -> None:
    pq.write_table(team_rows(0), path_to(table, FileKind.DATA))

    north, south = audit(table).tables[0].partitions

    assert north.encrypted_files == north.files - 1
    assert 0 < north.share < 1
    assert south.share == 1


def test_a_plaintext_file_in_the_folder_is_critical_and_an_encrypted_one_is_not(table: Table) -> None:
    folder = folder_of(table)
    pq.write_table(team_rows(0), folder / "data" / "export.parquet")
    (folder / "data" / "left.parquet").write_bytes(path_to(table, FileKind.DATA).read_bytes())

    found = audit(table)

    assert [path_of(finding.where).name for finding in of_kind(found, FindingKind.PLAINTEXT_ORPHAN)] == ["export.parquet"]
    assert ["left.parquet" in finding.message for finding in of_kind(found, FindingKind.ORPHANS)] == [True]
    assert kinds(found) == {FindingKind.PLAINTEXT_ORPHAN, FindingKind.ORPHANS}


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"])
def test_a_plaintext_file_in_a_folder_that_a_property_names_is_critical(table: Table, tmp_path: Path, name: str) -> None:
    pq.write_table(team_rows(0), tmp_path / "export.parquet")

    found = audit(edited(table, lambda content: content["properties"].update({name: f"file://{tmp_path}"})))

    assert [each.where for each in of_kind(found, FindingKind.PLAINTEXT_ORPHAN)] == [f"file://{tmp_path}/export.parquet"]


def test_a_blank_property_names_no_folder(table: Table) -> None:
    blank = edited(table, lambda content: content["properties"].update({"write.data.path": ""}))
    folder = list_folders(blank.metadata, PyArrowFileIO())

    # It would be the working directory.
    assert {each.location.startswith(table.location()) for each in folder.files.values()} == {True}


def test_a_file_of_no_encrypted_format_counts_as_plaintext_and_an_empty_one_does_not(table: Table) -> None:
    (folder_of(table) / "data" / "rows.csv").write_text("1,north\n")
    (folder_of(table) / "data" / "_SUCCESS").write_bytes(b"")

    found = audit(table)

    assert [path_of(finding.where).name for finding in of_kind(found, FindingKind.UNKNOWN_CONTENT)] == ["rows.csv"]
    assert found.has_plaintext


def test_checksums_that_hadoop_keeps_beside_a_file_are_none_of_the_audits_business(table: Table) -> None:
    data = path_to(table, FileKind.DATA)
    checksums = data.with_name(f".{data.name}.crc")
    checksums.write_bytes(b"crc\x00" + bytes(4) + bytes(4) * -(-data.stat().st_size // 512))

    assert audit(table).findings == ()
    checksums.write_bytes(checksums.read_bytes() + b"more than checksums")
    assert kinds(audit(table)) == {FindingKind.UNKNOWN_CONTENT}
    data.with_name(".nothing.crc").write_bytes(b"crc\x00 of nothing")
    assert len(of_kind(audit(table), FindingKind.UNKNOWN_CONTENT)) == 2


def test_the_journal_of_an_interrupted_operation_is_no_plaintext(aws: AwsServer, warehouse: Path) -> None:
    table = maintained_table(encrypted_sql_catalog(warehouse, aws))

    with pytest.raises(KeyboardInterrupt):
        reencrypt(table, progress=stopping())
    found = audit(table.catalog.load_table("db.rows"))

    assert kinds(found) == {FindingKind.UNFINISHED_OPERATION, FindingKind.ORPHANS}
    assert "reencrypt" in of_kind(found, FindingKind.UNFINISHED_OPERATION)[0].message


@pytest.mark.parametrize(
    "content",
    [
        '{"encryption-keys": [], "key-id": "a", "row": "secret"}',
        '{"encryption-keys": ["secret"], "key-id": "a"}',
        "{",
        '["secret"]',
        "[" * 50_000,
    ],
)
def test_what_only_has_the_name_of_a_journal_is_none(table: Table, content: str) -> None:
    path = folder_of(table) / "metadata" / "tablecrypt-reencrypt" / f"{uuid.UUID(int=1)}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)

    assert kinds(audit(table)) == {FindingKind.UNKNOWN_CONTENT}


@pytest.mark.parametrize("name", ["statistics", "partition-statistics"])
def test_plaintext_statistics_are_critical(table: Table, name: str) -> None:
    path = folder_of(table) / "metadata" / "statistics.puffin"
    path.write_bytes(b"PFA1 and the rest")
    size = path.stat().st_size
    entry = {"snapshot-id": table.metadata.snapshots[0].snapshot_id, "statistics-path": f"file://{path}", "file-size-in-bytes": size}
    if name == "statistics":
        blob = {"type": "of-another-engine", "snapshot-id": entry["snapshot-id"], "sequence-number": 1, "fields": [1]}
        entry |= {"file-footer-size-in-bytes": 4, "blob-metadata": [blob]}

    found = audit(edited(table, lambda content: content.update({name: [entry]})))

    assert [path_of(finding.where) for finding in of_kind(found, FindingKind.PLAINTEXT_STATISTICS)] == [path]


def test_a_snapshot_without_a_key_is_critical_and_the_others_are_walked(table: Table) -> None:
    first = table.metadata.snapshots[0].snapshot_id
    found = audit(edited(table, lambda content: content["snapshots"][0].pop("key-id")))

    assert [finding.where for finding in of_kind(found, FindingKind.PLAINTEXT_SNAPSHOT)] == [f"snapshot {first}"]
    assert len(found.tables[0].files) > 8


@pytest.mark.parametrize("status", [ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED])
def test_a_plaintext_manifest_opens_files_that_encrypted_ones_name_too(
    aws: AwsServer, unwatched_warehouse: Path, status: ManifestEntryStatus
) -> None:
    """As an engine leaves it that knows nothing of encryption: it copies entries with their keys, of files that it deletes as well."""
    table = new_table(encrypted_sql_catalog(unwatched_warehouse, aws), "db.t", SCHEMA, appends=[rows(0), rows(20)])
    [copied, other] = data_files(table)
    folder, io = f"{table.location()}/metadata", PyArrowFileIO()
    with write_manifest(2, table.spec(), table.schema(), io.new_output(f"{folder}/plain-m0.avro"), 7, "null") as manifest:
        manifest.add_entry(
            ManifestEntry.from_args(status=status, snapshot_id=6, sequence_number=1, file_sequence_number=1, data_file=copied)
        )
    with write_manifest_list(2, io.new_output(f"{folder}/plain.avro"), 7, None, 3, "null") as listed:
        listed.add_manifests([manifest.to_manifest_file()])

    def add_snapshot(content: dict[str, Any]) -> None:
        plain = {name: value for name, value in content["snapshots"][-1].items() if name != "key-id"}
        content["snapshots"].append({**plain, "snapshot-id": 7, "sequence-number": 3, "manifest-list": f"{folder}/plain.avro"})
        content["last-sequence-number"] = 3

    found = audit(edited(table, add_snapshot)).tables[0]

    opened = {file.location: file.has_open_key for file in found.files if file.kind == FileKind.DATA}
    assert opened == {copied.file_path: True, other.file_path: False}


@pytest.mark.parametrize("what", ["the manifest-list key", "its KEK"])
def test_a_removed_key_is_an_error(table: Table, what: str) -> None:
    key_id = table.metadata.snapshots[1].key_id  # type: ignore[attr-defined]

    def remove(content: dict[str, Any]) -> None:
        keys = content["encryption-keys"]
        gone = key_id if what == "the manifest-list key" else next(key["encrypted-by-id"] for key in keys if key["key-id"] == key_id)
        content["encryption-keys"] = [key for key in keys if key["key-id"] != gone]

    found = audit(edited(table, remove))

    missing = [finding.where for finding in of_kind(found, FindingKind.MISSING_KEY)]
    assert f"snapshot {table.metadata.snapshots[1].snapshot_id}" in missing
    assert len(missing) == (1 if what == "the manifest-list key" else 3)


def test_keys_without_a_snapshot_are_told(table: Table) -> None:
    spare = {"key-id": "c3BhcmU=", "encrypted-key-metadata": "AAAA", "encrypted-by-id": "nobody"}
    found = audit(edited(table, lambda content: content["encryption-keys"].append(spare)))

    assert ["c3BhcmU=" in finding.message for finding in of_kind(found, FindingKind.UNUSED_KEY)] == [True]
    assert found.worst == Severity.INFO


@pytest.mark.parametrize(
    ("age", "kind"),
    [
        (1.7 * YEAR, None),
        (1.9 * YEAR, FindingKind.KEK_NEAR_END),
        (2.1 * YEAR, FindingKind.KEK_RETIRED),
        (5.1 * YEAR, FindingKind.KEK_PAST_LIFE),
    ],
)
def test_a_kek_is_told_by_its_age(table: Table, age: dt.timedelta, kind: FindingKind | None) -> None:
    found = audit(table, now=dt.datetime.now(dt.UTC) + age)

    told = kinds(found) & {FindingKind.KEK_NEAR_END, FindingKind.KEK_RETIRED, FindingKind.KEK_PAST_LIFE}
    assert told == ({kind} if kind else set())


def test_a_shorter_life_in_the_properties_counts(aws: AwsServer, warehouse: Path) -> None:
    day = 24 * 60 * 60 * 1000
    table = maintained_table(encrypted_sql_catalog(warehouse, aws), properties={"encryption.kek-lifespan-ms": str(10 * day)})
    now = dt.datetime.now(dt.UTC)

    assert audit(table, now=now).findings == ()
    assert kinds(audit(table, now=now + dt.timedelta(days=9, hours=12))) == {FindingKind.KEK_NEAR_END}
    assert kinds(audit(table, now=now + dt.timedelta(days=11))) == {FindingKind.KEK_RETIRED}


def test_data_keys_over_five_years_old_are_told(table: Table) -> None:
    assert FindingKind.DEK_PAST_LIFE not in kinds(audit(table, now=dt.datetime.now(dt.UTC) + 4.9 * YEAR))
    assert FindingKind.DEK_PAST_LIFE in kinds(audit(table, now=dt.datetime.now(dt.UTC) + 5.1 * YEAR))


def test_keys_shorter_than_the_table_asks_for_are_told(aws: AwsServer, warehouse: Path) -> None:
    table = maintained_table(encrypted_sql_catalog(warehouse, aws))
    table.transaction().set_properties({"encryption.data-key-length": "32"}).commit_transaction()

    found = audit(table.catalog.load_table("db.rows"))

    assert kinds(found) == {FindingKind.SHORT_KEY, FindingKind.CHANGED_SINCE_COMMIT}


def test_one_key_for_two_files_is_critical() -> None:
    key, other = (StandardKeyMetadata(Secret(secrets.token_bytes(16)), secrets.token_bytes(16), 100) for _ in range(2))
    files = [ReachableFile(name, FileKind.DATA, "PARQUET", each, 100, frozenset()) for name, each in (("a", key), ("b", other), ("c", key))]

    (finding,) = file_key_findings(files, {}, 16, dt.datetime.now(dt.UTC))

    assert (finding.kind, finding.where, finding.severity) == (FindingKind.REUSED_KEY, "c", Severity.CRITICAL)
    assert "a" in finding.message


def test_critical_findings_about_encrypted_files_are_no_plaintext(table: Table) -> None:
    found = audit(table)

    def of(*kinds: FindingKind) -> Audit:
        return replace(found, tables=(replace(found.tables[0], findings=tuple(Finding(kind, "here", "so") for kind in kinds)),))

    encrypted = {FindingKind.REUSED_KEY, FindingKind.COLUMN_EXPOSED, FindingKind.COLUMN_POLICY_CHANGED, FindingKind.COLUMN_KEY_DIFFERS}
    for kind in FindingKind:
        expected = kind.severity == Severity.CRITICAL and kind not in encrypted
        assert of(kind).has_plaintext == of(kind).to_json()["plaintext"] == expected
    assert of(FindingKind.REUSED_KEY).worst == Severity.CRITICAL
    assert of(FindingKind.REUSED_KEY, FindingKind.PLAINTEXT_ORPHAN).has_plaintext


def test_key_metadata_without_a_length_is_told() -> None:
    key = StandardKeyMetadata(Secret(secrets.token_bytes(16)), secrets.token_bytes(16))
    files = [ReachableFile("a", FileKind.MANIFEST, "AVRO", key, 100, frozenset())]

    assert [finding.kind for finding in file_key_findings(files, {}, 16, dt.datetime.now(dt.UTC))] == [FindingKind.NO_LENGTH]


@pytest.mark.parametrize("kind", [FileKind.DATA, FileKind.DELETION_VECTOR])
def test_a_missing_a_cut_and_an_overwritten_file_are_errors(table: Table, kind: FileKind) -> None:
    path = path_to(table, kind)
    content = path.read_bytes()
    for change, expected in (
        (content[:-1], FindingKind.WRONG_LENGTH),
        (b"XXXX" + content[4:], FindingKind.WRONG_MAGIC),
        (b"", FindingKind.WRONG_MAGIC),
        (None, FindingKind.MISSING_FILE),
    ):
        path.unlink() if change is None else path.write_bytes(change)

        found = audit(table)

        assert [(finding.kind, path_of(finding.where)) for finding in found.findings] == [(expected, path)]
        assert found.worst == Severity.ERROR


def test_an_ags1_file_in_place_of_a_parquet_file_is_an_error(table: Table) -> None:
    path_to(table, FileKind.DATA).write_bytes(path_to(table, FileKind.DELETION_VECTOR).read_bytes())

    assert kinds(audit(table)) == {FindingKind.WRONG_MAGIC}


@pytest.mark.parametrize("kind", [FileKind.MANIFEST, FileKind.MANIFEST_LIST])
def test_metadata_that_does_not_open_is_an_error_and_the_rest_is_walked(table: Table, kind: FileKind) -> None:
    path = path_to(table, kind)
    flip(path, -30)

    found = audit(table)

    assert [path_of(finding.where) for finding in of_kind(found, FindingKind.UNOPENED)] == [path]
    assert len(found.tables[0].files) > 5


def test_a_kek_of_another_master_key_is_an_error(table: Table) -> None:
    def exchange(content: dict[str, Any]) -> None:
        for key in content["encryption-keys"]:
            if "properties" in key:
                key["encrypted-by-id"] = "alias/people"

    assert FindingKind.KEY_ID_DIFFERS in kinds(audit(edited(table, exchange)))


def older(table: Table, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """Put an edited copy of the metadata into the folder, as an older version that the log does not name any more."""
    content = json.loads(metadata_path(table).read_bytes())
    change(content)
    path = folder_of(table) / "metadata" / name
    path.write_text(json.dumps(content))
    return path


def test_metadata_of_another_master_key_is_an_error(table: Table) -> None:
    path = older(table, "00000-x.metadata.json", lambda content: content["properties"].update({"encryption.key-id": "alias/people"}))

    assert [path_of(finding.where) for finding in of_kind(audit(table), FindingKind.KEY_ID_DIFFERS)] == [path]


def test_metadata_from_before_encryption_is_told_with_the_plaintext_that_it_leads_to(table: Table, unwatched_warehouse: Path) -> None:
    elsewhere = unwatched_warehouse / "snap-1.avro"
    elsewhere.write_bytes(b"Obj\x01 and the rest")

    def as_plain(content: dict[str, Any]) -> None:
        content["format-version"] = 2
        del content["properties"]["encryption.key-id"], content["encryption-keys"]
        content["snapshots"] = [{"snapshot-id": 1, "manifest-list": f"file://{elsewhere}"}]

    path = older(table, "00000-x.metadata.json", as_plain)

    found = audit(table)

    assert [path_of(finding.where) for finding in of_kind(found, FindingKind.STALE_PLAINTEXT_METADATA)] == [path]
    assert [path_of(finding.where) for finding in of_kind(found, FindingKind.PLAINTEXT_FILE)] == [elsewhere]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        *((content, FindingKind.UNOPENED) for content in (b"", b"{", b"[]", b"\xff\xfe")),
        (b'{"table-uuid": 3, "snapshots": 7, "encryption-keys": [1]}', FindingKind.FOREIGN_METADATA),
    ],
)
def test_older_metadata_may_hold_anything(table: Table, content: bytes, kind: FindingKind) -> None:
    path = folder_of(table) / "metadata" / "00000-x.metadata.json"
    path.write_bytes(content)

    assert [(finding.kind, path_of(finding.where)) for finding in audit(table).findings if finding.severity > Severity.INFO] == [
        (kind, path)
    ]


def test_of_very_many_metadata_files_the_oldest_and_the_newest_are_read(table: Table) -> None:
    names = [f"0010{number}-x.metadata.json" for number in range(6)]
    for name in names:
        (folder_of(table) / "metadata" / name).write_text("{")
    locations = [f"{table.location()}/metadata/{name}" for name in names]

    found = inspect_older(table.metadata, locations, table.io, limit=4).findings

    read = [path_of(finding.where).name for finding in found if finding.kind == FindingKind.UNOPENED]
    assert read == [*names[:2], *names[-2:]]
    assert [finding.kind for finding in found if finding.kind != FindingKind.UNOPENED] == [FindingKind.NOT_READ]


def test_keys_in_older_metadata_that_the_table_has_no_more_are_told(aws: AwsServer, warehouse: Path) -> None:
    table = maintained_table(encrypted_sql_catalog(warehouse, aws))
    rotate_kek(table)

    (finding,) = audit(table.catalog.load_table("db.rows")).findings

    assert finding.kind == FindingKind.STALE_KEYS


def test_what_was_committed_after_the_table_was_loaded_is_no_older_metadata(aws: AwsServer, warehouse: Path) -> None:
    table = maintained_table(encrypted_sql_catalog(warehouse, aws))
    before = table.catalog.load_table("db.rows")
    table.append(team_rows(500))

    assert kinds(audit(before)) == {FindingKind.ORPHANS}


def test_partition_values_in_summaries_are_told(aws: AwsServer, warehouse: Path) -> None:
    table = maintained_table(encrypted_sql_catalog(warehouse, aws, SHOWN_PARTITIONS), properties={"write.summary.partition-limit": "10"})

    assert kinds(audit(table)) == {FindingKind.PARTITION_VALUES}


def test_a_table_that_nothing_pins_is_told(aws: AwsServer, tmp_path: Path) -> None:
    def table_of(properties: dict[str, str]) -> Table:
        catalog = unpinned_catalog(tmp_path / str(len(properties)), aws, **properties)
        return new_table(catalog, "db.empty", TEAM_SCHEMA)

    assert kinds(audit(table_of({}))) == {FindingKind.PINS_MISSING}
    assert kinds(audit(table_of({"encryption.pins": str(tmp_path / "pins.json")}))) == set()


def test_a_folder_that_cannot_be_listed_is_an_error_and_the_files_are_looked_at(aws: AwsServer, warehouse: Path) -> None:
    table = maintained_table(encrypted_sql_catalog(warehouse, aws, {"py-io-impl": unlistable_io.CLASS}))

    found = audit(table)

    assert kinds(found) == {FindingKind.NOT_LISTED}
    assert found.worst == Severity.ERROR
    assert {file.signature.is_ciphertext for file in found.tables[0].files} == {True}


@pytest.mark.parametrize("catalog_class", [EncryptedSqlCatalog, EncryptedHiveCatalog, EncryptedGlueCatalog])
def test_catalogs_that_pin_by_themselves_say_so(catalog_class: type[EncryptionMixin]) -> None:
    assert catalog_class.OWN_PINS


def table_of_three_keks(folder: Path) -> tuple[Table, list[bytes]]:
    """A table under a key service that can refuse a KEK, and its KEKs as that wrapped them."""
    properties = {"encryption.kms-impl": denying_kms.CLASS, "encryption.kms.cache-ttl-ms": "0", "kms.memory.name": folder.name}
    denying_kms.DenyingKeyManagementClient(properties).create_key(MASTER_KEY)
    catalog = EncryptedSqlCatalog("prod", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse", **properties)
    catalog.create_namespace("db")
    table = maintained_table(catalog, properties={"encryption.kek-lifespan-ms": "1"})
    return table, [kek.wrapped_bytes() for kek in keks_of(table)]


def test_a_kek_that_the_key_service_refuses_is_told_and_the_rest_is_walked(warehouse: Path) -> None:
    table, keks = table_of_three_keks(warehouse)
    denying_kms.deny(warehouse.name, {keks[0]})

    (refused,) = of_kind(audit(table), FindingKind.UNOPENED)

    assert "KmsAccessDeniedError" in refused.message
    assert [kek.key_length for kek in audit(table).tables[0].keks] == [None, 16, 16]
    assert {file.kind for file in verify(table).bad} == {FileKind.MANIFEST_LIST}


def test_a_key_service_that_refuses_every_kek_is_no_finding(warehouse: Path) -> None:
    table, keks = table_of_three_keks(warehouse)
    denying_kms.deny(warehouse.name, keks)

    with pytest.raises(KmsAccessDeniedError):
        audit(table)
    with pytest.raises(KmsAccessDeniedError):
        verify(table)


@pytest.mark.parametrize(("key_file", "kind"), [("nowhere.keys", ConfigurationError), ("others.keys", KeyNotFoundError)])
def test_a_key_service_without_the_key_is_not_taken_for_bad_files(warehouse: Path, key_file: str, kind: type[TablecryptError]) -> None:
    create_key_file(warehouse / "orders.keys", "orders")
    create_key_file(warehouse / "others.keys", "people")
    properties = {"uri": f"sqlite:///{warehouse}/catalog.db", "warehouse": f"file://{warehouse}", "encryption.kms-type": "local"}
    catalog = EncryptedSqlCatalog("prod", **properties, **{"kms.local.key-file": f"{warehouse}/orders.keys"})
    catalog.create_namespace("db")
    maintained_table(catalog, properties={"encryption.key-id": "orders"})

    without_key = EncryptedSqlCatalog("prod", **properties, **{"kms.local.key-file": f"{warehouse}/{key_file}"})

    for look in (audit, verify):
        with pytest.raises(kind):
            look(without_key.load_table("db.rows"))


def test_of_a_catalog_a_table_whose_key_is_refused_is_told_and_the_others_are_audited(warehouse: Path) -> None:
    table, keks = table_of_three_keks(warehouse)
    table.catalog.create_table("db.empty", TEAM_SCHEMA, properties={"encryption.key-id": MASTER_KEY})
    denying_kms.deny(warehouse.name, keks)

    found = audit(table.catalog)

    assert [(each.kind, each.where) for each in found.findings if each.severity >= Severity.ERROR] == [
        (FindingKind.KEY_REFUSED, ".".join(table.name()))
    ]
    assert {each.table for each in found.tables} == {"db.empty", ".".join(table.name())}


def test_a_catalog_is_audited_whole(aws: AwsServer, unwatched_warehouse: Path) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    catalog.create_namespace("db.inner")
    catalog.create_table("db.inner.sealed", TEAM_SCHEMA, properties={"encryption.key-id": MASTER_KEY})
    plain = catalog.create_table("db.plain", Schema(NestedField(1, "id", LongType())))
    plain.append(team_rows(0).select(["id"]))
    broken = new_table(catalog, "db.broken", TEAM_SCHEMA)
    path = metadata_path(broken)
    path.write_text(path.read_text().replace('"team"', '"maet"'))

    found = audit(catalog)

    assert [table.table for table in found.tables] == ["db.broken", "db.plain", "db.inner.sealed"]
    assert {finding.kind: finding.where for finding in found.findings} == {
        FindingKind.PLAIN_TABLE: "db.plain",
        FindingKind.REFUSED_TABLE: "db.broken",
    }
    assert found.tables[1].partitions[0].share == 0


@pytest.mark.parametrize(
    "edit",
    [
        lambda metadata: metadata["snapshots"][0].update({"timestamp-ms": 10**17}),
        lambda metadata: metadata["snapshots"][0].update({"manifest-list": f"{metadata['location']}/metadata/{'a' * 300}.avro"}),
        lambda metadata: metadata["properties"].update({"write.data.path": "/a\0b"}),
    ],
    ids=["a time that is no date", "a name that is too long", "a folder that is none"],
)
def test_of_a_catalog_a_table_that_cannot_be_looked_into_is_told_and_the_others_are_audited(
    unwatched_warehouse: Path, edit: Callable[[dict[str, Any]], object]
) -> None:
    catalog = memory_catalog(unwatched_warehouse)
    broken = catalog.create_table("db.broken", SCHEMA)
    broken.append(rows(0))
    catalog.create_table("db.plain", SCHEMA)
    edit_json(metadata_path(broken), edit)

    found = audit(catalog)

    assert [(each.kind, each.where) for each in found.findings] == [
        (FindingKind.PLAIN_TABLE, "db.plain"),
        (FindingKind.REFUSED_TABLE, "db.broken"),
    ]


def test_of_a_catalog_a_table_that_the_server_forbids_is_told_and_the_others_are_audited(unwatched_warehouse: Path) -> None:
    forbidden: list[Identifier] = []

    class Forbidding(EncryptedInMemoryCatalog):
        def load_table(self, identifier: str | Identifier) -> Table:
            if identifier in forbidden:
                raise ForbiddenError("ForbiddenError: principal may not\nread this table")
            return super().load_table(identifier)

    catalog = Forbidding("memory", warehouse=f"file://{unwatched_warehouse}", **memory_kms(unwatched_warehouse))
    catalog.create_namespace("db")
    for name in ("db.open", "db.secret"):
        catalog.create_table(name, SCHEMA)
    forbidden.append(("db", "secret"))

    found = audit(catalog)

    assert {each.kind: each.where for each in found.findings} == {
        FindingKind.PLAIN_TABLE: "db.open",
        FindingKind.REFUSED_TABLE: "db.secret",
    }
    assert "\n" not in found.findings[1].message


def test_a_table_in_a_bucket_is_audited(aws: AwsServer, tmp_path: Path) -> None:
    bucket = aws.bucket("audited")
    table = maintained_table(encrypted_sql_catalog(tmp_path, aws, {"warehouse": f"s3://{bucket}/warehouse"}))

    assert audit(table).findings == ()


def test_every_kind_of_finding_says_what_to_do() -> None:
    assert len({kind.code for kind in FindingKind}) == len(FindingKind)
    assert all(kind.title and kind.advice.endswith(".") for kind in FindingKind)


@pytest.mark.parametrize("deleted", [True, False])
def test_a_migrated_table_is_clean_only_when_its_plaintext_is_gone(aws: AwsServer, unwatched_warehouse: Path, deleted: bool) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    plain = catalog.create_table("db.plain", TEAM_SCHEMA)
    plain.append(team_rows(0))
    plain.append(team_rows(100))
    assert kinds(audit(catalog.load_table("db.plain"))) == {FindingKind.PLAIN_TABLE}

    migrate(catalog.load_table("db.plain"), MASTER_KEY, keep_plaintext=not deleted)
    found = audit(catalog.load_table("db.plain"))

    assert found.has_plaintext == (not deleted)
    assert (FindingKind.PLAINTEXT_ORPHAN in kinds(found)) == (not deleted)
