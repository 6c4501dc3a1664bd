"""An audit says what a table shares and with whom, and what is wrong with it."""

from __future__ import annotations

import pytest

from tablecrypt.maintenance import Finding, FindingKind, audit, reencrypt
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt.maintenance.sharing.records import ShareRecord
from tablecrypt.table.shares import named_records
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.maintenance.test_share_guards import NOW
from tests.support.shares import PARTNER_KEY, shared
from tests.support.tables import new_table, path_of, rows


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> EncryptedTable:
    return new_table(catalog, appends=[rows(0), rows(20)])


@pytest.fixture
def share(table: EncryptedTable) -> ShareRecord:
    return shared(table, "id < 20")


def found(table: EncryptedTable) -> dict[FindingKind, Finding]:
    """What is found that is no property of the moment."""
    changed = FindingKind.CHANGED_SINCE_COMMIT
    return {finding.kind: finding for finding in audit(table.refresh()).findings if finding.kind != changed}


def test_a_live_share_is_said_with_whom_it_is_for(table: EncryptedTable, share: ShareRecord) -> None:
    seen = found(table)
    assert seen.keys() == {FindingKind.LIVE_SHARE}
    message = seen[FindingKind.LIVE_SHARE].message
    for part in (share.share_uuid, PARTNER_KEY, "1 file", "id < 20", "2023-11-14", share.location):
        assert part in message
    (listed,) = audit(table).to_json()["tables"][0]["shares"]
    assert (listed["share_uuid"], listed["key_id"], listed["files"]) == (share.share_uuid, PARTNER_KEY, 1)


def test_a_table_that_shares_nothing_has_no_such_finding(table: EncryptedTable) -> None:
    assert found(table) == {}


def test_a_shared_file_that_is_gone_is_found(table: EncryptedTable, share: ShareRecord) -> None:
    reencrypt(table)
    expire_snapshots(table, **NOW, break_shares=True)
    seen = found(table)
    assert share.files[0] in seen[FindingKind.SHARED_FILE_MISSING].message
    assert FindingKind.SHARE_BEHIND not in seen


def test_a_shared_file_that_the_table_replaced_is_found_and_no_orphan(table: EncryptedTable, share: ShareRecord) -> None:
    reencrypt(table)
    assert found(table).keys() == {FindingKind.LIVE_SHARE, FindingKind.SHARE_BEHIND}
    expire_snapshots(table, **NOW)
    seen = found(table)
    assert share.files[0] in seen[FindingKind.SHARE_BEHIND].message
    assert FindingKind.ORPHANS not in seen


@pytest.mark.parametrize("harm", ["gone", "another's"])
def test_a_record_that_does_not_open_is_found(table: EncryptedTable, share: ShareRecord, harm: str) -> None:
    shared(table)
    first, second = (path_of(named.location) for named in named_records(table.metadata))
    first.unlink() if harm == "gone" else first.write_bytes(second.read_bytes())
    seen = found(table)
    assert seen[FindingKind.SHARE_RECORD].where == share.share_uuid
    assert FindingKind.LIVE_SHARE in seen


def test_a_property_that_somebody_took_out_of_the_metadata_is_found(table: EncryptedTable, share: ShareRecord) -> None:
    """By what manifest lists say of the table: metadata.json itself says nothing of it any more."""
    table.append(rows(40))
    (named,) = named_records(table.refresh().metadata)
    properties = {name: value for name, value in table.properties.items() if name != named.name}
    table.metadata = table.metadata.model_copy(update={"properties": properties})

    changed = [each.message for each in audit(table).findings if each.kind == FindingKind.CHANGED_SINCE_COMMIT]

    assert len(changed) == 1
    assert named.name in changed[0]
