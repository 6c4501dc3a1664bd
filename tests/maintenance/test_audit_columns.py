"""What an audit finds about protected columns, and that it needs no right to their keys."""

from __future__ import annotations

import errno
import html
import os
from typing import cast

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from tablecrypt import maintenance as m
from tablecrypt.errors import KmsUnavailableError
from tablecrypt.maintenance import Finding, FindingKind
from tablecrypt.maintenance._audit.columns import column_findings, read_columns
from tablecrypt.maintenance.reachable import reachable_files
from tablecrypt.maintenance.report import html_page
from tablecrypt.maintenance.report.key_tables import key_tree
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support import denying_kms
from tests.support.handwritten_manifests import HandwrittenManifest, commit_by_hand, named_otherwise
from tests.support.protected_tables import (
    COLUMN_KEY,
    OTHER_COLUMN_KEY,
    PEOPLE_SCHEMA,
    SALARY,
    SSN,
    TABLE_KEY,
    Clients,
    commit_column_keys,
    declare,
    loaded,
    persons,
    protected_table,
)
from tests.support.tables import data_files, metadata_of
from tests.support.weakened_protection import without_any_protection

OF_COLUMNS = {kind for kind in FindingKind if kind.name.startswith("COLUMN_")}


def found(both: Clients, table: EncryptedTable) -> dict[FindingKind, list[Finding]]:
    """The findings about columns of an audit by somebody who may not use the columns' keys."""
    (audited,) = m.audit(both.analyst.load_table(table.name())).tables
    by_kind: dict[FindingKind, list[Finding]] = {}
    for finding in audited.findings:
        if finding.kind in OF_COLUMNS:
            by_kind.setdefault(finding.kind, []).append(finding)
    return by_kind


def pure(table: EncryptedTable, **changes: object) -> set[FindingKind]:
    """The kinds of finding about metadata that somebody has edited."""
    metadata = metadata_of(table).model_copy(update=changes)
    return {finding.kind for finding in column_findings(metadata, TABLE_KEY, (), {}, {})}


def test_a_table_as_it_should_be_has_no_finding(both: Clients) -> None:
    table = protected_table(both.payroll)
    commit_column_keys(table, SSN)
    assert found(both, table) == {}


def test_a_key_service_that_fails_ends_the_audit_instead_of_leaving_columns_unchecked(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[persons(1)])
    kept = {name: value for name, value in both.payroll.properties.items() if name != "encryption.kms-type"}
    anew = EncryptedSqlCatalog("prod", **{**kept, "encryption.kms-impl": denying_kms.CLASS})
    column_keks = [kek.wrapped_bytes() for kek in metadata_of(table).key_ring.column_keks]
    denying_kms.deny(kept["kms.memory.name"], column_keks, KmsUnavailableError("throttled", retryable=False))

    with pytest.raises(KmsUnavailableError):
        m.audit(anew.load_table(table.name()))


def test_the_key_tree_and_the_json_have_the_column_keks_with_their_columns(both: Clients) -> None:
    table = protected_table(both.payroll, **{"encryption.column-keys": "pii: ssn, person.email; fin: salary"})
    commit_column_keys(table, SSN, SALARY)
    audited = m.audit(both.analyst.load_table(table.name()))
    (kept,) = audited.to_json()["tables"]
    assert sorted((kek["encrypted_by_id"], kek["columns"]) for kek in kept["column_keks"]) == [
        ("fin", ["salary"]),
        ("pii", ["ssn", "person.email"]),
    ]
    assert all(kek["created"] and kek["age_days"] is not None for kek in kept["column_keks"])
    tree = {master.name: master for master in key_tree(audited.tables)}
    assert set(tree) == {TABLE_KEY, "pii", "fin"}
    assert [(branch.note, branch.style) for branch in tree["pii"].tables] == [("protected columns: person.email, ssn", "soft")]
    assert "can read 1 table" in tree[TABLE_KEY].summary
    assert "sees the protected columns of 1 table" in tree["fin"].summary
    page = html_page(audited)
    assert "protected columns: salary" in page
    assert all(kek["key_id"] in html.unescape(page) for kek in kept["column_keks"])


def test_files_from_before_a_column_was_protected_are_named(both: Clients) -> None:
    table = cast("EncryptedTable", both.payroll.create_table("db.people", PEOPLE_SCHEMA, properties={"encryption.key-id": TABLE_KEY}))
    for number in range(2):
        table.append(pa.table({"id": [number], "ssn": [f"{number}"], "person": [{"email": "e", "age": 1}]}))
    assert found(both, table) == {}
    declare(table, f"{COLUMN_KEY}: ssn; {OTHER_COLUMN_KEY}: person")
    exposed = found(both, table)[FindingKind.COLUMN_EXPOSED]
    assert sorted(finding.where for finding in exposed) == ["person", "ssn"]
    locations = [task.file.file_path for task in table.scan().plan_files()]
    assert not m.audit(table).has_plaintext
    for finding in exposed:
        assert "2 files hold it under the table's key" in finding.message
        assert all(location in finding.message for location in locations)


def test_a_column_that_files_do_not_have_is_not_exposed_by_them(both: Clients) -> None:
    table = cast("EncryptedTable", both.payroll.create_table("db.people", PEOPLE_SCHEMA, properties={"encryption.key-id": TABLE_KEY}))
    table.append(pa.table({"id": [1]}))
    with table.transaction() as transaction:
        with transaction.update_schema() as change:
            change.add_column("iban", PEOPLE_SCHEMA.find_type("note"))
        transaction.set_properties({"encryption.column-keys": f"{COLUMN_KEY}: iban"})
    assert found(both, table) == {}


def test_a_changed_engine_write_barrier_is_named_property_by_property(both: Clients) -> None:
    table = protected_table(both.payroll)
    update: tuple[TableUpdate, ...] = (
        SetPropertiesUpdate(updates={"write.format.default": "parquet"}),
        RemovePropertiesUpdate(removals=["write.metadata.metrics.column.ssn"]),
    )
    transaction = table.transaction()
    transaction.apply(update)
    transaction.commit_transaction()
    findings = {finding.where: finding.message for finding in found(both, table)[FindingKind.COLUMN_GUARD_CHANGED]}
    assert findings.keys() == {"write.format.default", "write.metadata.metrics.column.ssn"}
    assert "'parquet'" in findings["write.format.default"]
    assert "missing" in findings["write.metadata.metrics.column.ssn"]


def test_a_renamed_column_needs_the_metrics_property_of_its_new_name(both: Clients) -> None:
    table = protected_table(both.payroll)
    with table.update_schema() as change:
        change.rename_column("ssn", "social")
    assert FindingKind.COLUMN_GUARD_CHANGED not in found(both, table)
    with table.transaction() as transaction:
        transaction.remove_properties("write.metadata.metrics.column.social")
    (finding,) = found(both, table)[FindingKind.COLUMN_GUARD_CHANGED]
    assert finding.where == "write.metadata.metrics.column.social"


def test_edited_metadata_is_found(both: Clients) -> None:
    table = protected_table(both.payroll)
    commit_column_keys(table, SSN)
    metadata = metadata_of(table)
    kek = metadata.key_ring.column_keks[0]
    others = [key for key in metadata.encryption_keys if key.key_id != kek.key_id]
    by_id = {name: value for name, value in metadata.properties.items() if not name.startswith(f"encryption.column.{SSN}.")}

    assert pure(table) == set()
    assert pure(table, properties=by_id) == {FindingKind.COLUMN_POLICY_CHANGED}
    for master_key in (TABLE_KEY, "somebody's"):
        edited = [*others, kek.model_copy(update={"encrypted_by_id": master_key})]
        assert pure(table, encryption_keys=edited) == {FindingKind.COLUMN_KEY_DIFFERS}
    assert pure(table, encryption_keys=others) == {FindingKind.COLUMN_KEY_DIFFERS}


def test_a_protection_of_which_edited_metadata_says_nothing_is_found_by_the_manifest_lists(both: Clients) -> None:
    protected_table(both.payroll, appends=[persons(1, 2)])
    [audited] = m.audit(without_any_protection(both.payroll)).tables
    changed = [finding for finding in audited.findings if finding.kind == FindingKind.COLUMN_POLICY_CHANGED]

    assert {finding.where for finding in changed} == {"ssn", "person.email"}
    assert all("was protected when" in finding.message for finding in changed)


def test_column_entries_are_not_unused_and_no_master_key_of_theirs_is_taken_for_the_tables(both: Clients) -> None:
    table = protected_table(both.payroll)
    commit_column_keys(table, SSN)
    (audited,) = m.audit(table).tables
    assert not {finding.kind for finding in audited.findings} & {FindingKind.KEY_ID_DIFFERS, FindingKind.UNUSED_KEY, FindingKind.KEK_UNUSED}


def test_a_file_that_was_cut_to_a_few_bytes_is_a_finding_and_stops_no_audit(both: Clients) -> None:
    table = protected_table(both.payroll)
    table.append(pa.table({"id": [1]}))
    location = next(iter(table.scan().plan_files())).file.file_path
    os.truncate(location.removeprefix("file://"), 5)
    (audited,) = m.audit(table).tables
    assert [(f.kind, f.where) for f in audited.findings] == [(FindingKind.WRONG_LENGTH, location)]


@pytest.mark.parametrize("location", ["foo://x/y.parquet", "http://localhost:1/y.parquet", "/data/a\0b.parquet"])
def test_a_made_up_name_is_a_finding_and_stops_no_audit(both: Clients, location: str) -> None:
    table = protected_table(both.payroll, appends=[persons(1, 2)])
    [file] = data_files(table)
    commit_by_hand(loaded(both.analyst), HandwrittenManifest([named_otherwise(file, file_path=location)]))

    (audited,) = m.audit(table.refresh()).tables

    assert location in {finding.where for finding in audited.findings if finding.kind == FindingKind.UNOPENED}
    assert file.file_path in {file.location for file in audited.files}


def test_a_store_that_fails_ends_the_audit_instead_of_leaving_columns_unchecked(both: Clients) -> None:
    class Failing(PyArrowFileIO):
        def new_input(self, location: str) -> PyArrowFile:
            raise OSError(errno.EIO, "the store fails", location)

    table = protected_table(both.payroll, appends=[persons(1, 2)])
    files = reachable_files(table.metadata, table.io).files.values()

    assert len(read_columns(PyArrowFileIO(), files, table.metadata)) == 1
    with pytest.raises(OSError, match="the store fails"):
        read_columns(Failing(), files, table.metadata)
