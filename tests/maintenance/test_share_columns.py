"""share of protected columns: the partner reads them with a second key of his, in the shared files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError, SharedFilesError
from tablecrypt.maintenance import (
    FindingKind,
    audit,
    reencrypt,
    relocate,
    rewrap_column_keks,
    rotate_column_keks,
    share,
    shares,
    shred_column,
    unshare,
    verify,
)
from tablecrypt.maintenance.operation import reload
from tablecrypt.maintenance.sharing.records import live_shares
from tablecrypt.table.shares import SharedColumn
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support import write_only_kms
from tests.support.aws import AwsServer
from tests.support.interrupted_catalog import INTERRUPTED, at_commits, once
from tests.support.protected_tables import COLUMN_KEY, OTHER_COLUMN_KEY, clients, declare, loaded, persons, protected_table
from tests.support.shares import LINEAGE, NORTH, Partner, in_order
from tests.support.tables import (
    MASTER_KEY,
    MERGE_ON_READ,
    encrypted_sql_catalog,
    encrypted_table,
    files_below,
    folder_of,
    ids,
    memory_kms,
    metadata_of,
    new_table,
    path_of,
    rows,
    team_table,
)


@pytest.fixture
def secret(aws: AwsServer) -> str:
    """The master key of the source's column."""
    return aws.new_key()


@pytest.fixture(params=["null", "truncate(2)", "hash"])
def mask(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(catalog: EncryptedSqlCatalog, secret: str) -> EncryptedTable:
    return protected(catalog, secret)


def protected(catalog: EncryptedSqlCatalog, secret: str, mask: str = "null") -> EncryptedTable:
    """Rows of two teams in two partitions, from two appends, whose notes are protected."""
    properties = {"encryption.column-keys": f"{secret}: note", "encryption.column-mask.note": mask, **MERGE_ON_READ}
    return team_table(catalog, 0, 100, properties=properties)


def with_column(table: EncryptedTable, partner: Partner, location: str | None = None, **options: Any) -> Any:
    return share(table, partner.key_id, location or partner.location, NORTH, columns={"note": partner.column_key_id}, **options)


def test_the_partner_reads_a_shared_column_with_his_second_key(
    catalog: EncryptedSqlCatalog, secret: str, partner: Partner, mask: str
) -> None:
    table = protected(catalog, secret, mask)
    table.delete("id = 2")

    result = with_column(table, partner)

    theirs = partner.register(result)
    assert in_order(theirs.scan(selected_fields=LINEAGE)) == in_order(table.scan(NORTH, selected_fields=LINEAGE))
    assert (result.columns, result.protected, result.withheld, result.masked) == (
        ("id", "team", "note"),
        {"note": partner.column_key_id},
        (),
        (),
    )
    assert ids(theirs, row_filter="note is not null") == ids(table, row_filter=NORTH)
    assert verify(theirs).is_good
    assert [finding for each in audit(theirs).tables for finding in each.findings] == []


def test_who_has_the_key_of_the_share_alone_reads_the_other_columns_only(table: EncryptedTable, partner: Partner) -> None:
    result = with_column(table, partner)
    partner.register(result)

    theirs = partner.user().load_table("db.share")
    shown = in_order(theirs.scan())
    assert shown.column("id").to_pylist() == ids(table, row_filter=NORTH)
    assert set(shown.column("note").to_pylist()) == {None}
    with pytest.raises(ColumnKeyDeniedError):
        theirs.scan(row_filter="note = 'x'").to_arrow()


def test_no_data_file_is_written_and_neither_key_of_the_source_is_named(table: EncryptedTable, secret: str, partner: Partner) -> None:
    result = with_column(table, partner)

    assert {path.suffix for path in files_below(path_of(partner.location))} == {".avro", ".json"}
    said = metadata_of(partner.register(result)).model_dump_json()
    assert secret not in said
    assert MASTER_KEY not in said


def test_who_may_not_read_the_column_does_not_share_it_and_nothing_is_written(
    table: EncryptedTable, partner: Partner, tmp_path: Path, aws: AwsServer
) -> None:
    partner_keys = f"{partner.key_id},{partner.column_key_id}"
    analyst = encrypted_sql_catalog(tmp_path, aws, {"encryption.allowed-key-ids": f"{MASTER_KEY},{partner_keys}"}).load_table("db.t")
    before = files_below(folder_of(table))

    choices: list[dict[str, Any]] = [{}, {"dry_run": True}, {"rewrite": True}]
    for options in choices:
        with pytest.raises(ColumnKeyDeniedError, match="note"):
            with_column(encrypted_table(analyst), partner, **options)

    assert files_below(folder_of(table)) == before
    assert not path_of(partner.location).exists()
    assert live_shares(table.refresh()) == []
    assert share(analyst, partner.key_id, partner.location, NORTH).withheld == ("note",)


@pytest.mark.parametrize(
    ("column", "key", "said"),
    [
        ("team", "second", "no protected column 'team'.*its protected columns: note"),
        ("nothing", "second", "no protected column 'nothing'"),
        ("note", "", "no master key of the partner"),
        ("note", "first", "master key of the share itself"),
        ("note", "source", "master key of the source table itself"),
        ("note", "public-key:partner.pub", "not sealed to a public key"),
    ],
)
def test_columns_and_keys_that_do_not_fit_are_refused(table: EncryptedTable, partner: Partner, column: str, key: str, said: str) -> None:
    key_id = {"second": partner.column_key_id, "first": partner.key_id, "source": MASTER_KEY}.get(key, key)

    with pytest.raises(ConfigurationError, match=said):
        share(table, partner.key_id, partner.location, NORTH, columns={column: key_id})

    assert not path_of(partner.location).exists()
    assert live_shares(table.refresh()) == []


def test_a_column_is_not_shared_and_left_out_at_once(table: EncryptedTable, partner: Partner) -> None:
    with pytest.raises(ConfigurationError, match="to be shared and to be left out"):
        with_column(table, partner, rewrite=True, without_columns=["note"])


def test_one_of_two_protected_columns_is_shared_and_the_other_is_no_column_of_the_share(
    catalog: EncryptedSqlCatalog, partner: Partner, aws: AwsServer
) -> None:
    properties = {"encryption.column-keys": f"{aws.new_key()}: note, id"}
    table = team_table(catalog, 0, properties=properties)

    result = with_column(table, partner)

    theirs = partner.register(result)
    assert result.withheld == ("id",)
    assert theirs.scan().to_arrow().sort_by("note") == table.scan(NORTH, selected_fields=("team", "note")).to_arrow().sort_by("note")
    assert verify(theirs).is_good


def test_matching_rows_that_are_written_again_have_the_column_under_the_partners_key(
    catalog: EncryptedSqlCatalog, secret: str, partner: Partner
) -> None:
    table = new_table(catalog, appends=[rows(0), rows(100)], properties={"encryption.column-keys": f"{secret}: note"})

    result = share(table, partner.key_id, partner.location, "id < 110", columns={"note": partner.column_key_id}, rewrite=True)

    theirs = partner.register(result)
    assert (result.files, result.rewritten) == (1, 1)
    assert in_order(theirs.scan()) == in_order(table.scan("id < 110"))
    assert set(partner.user().load_table("db.share").scan().to_arrow().column("note").to_pylist()) == {None}
    assert verify(theirs).is_good
    assert [finding for each in audit(theirs).tables for finding in each.findings] == []


def test_no_record_list_or_audit_shows_a_protected_value_that_a_share_is_filtered_by(
    tmp_path: Path, aws: AwsServer, secret: str, partner: Partner
) -> None:
    table = protected(encrypted_sql_catalog(tmp_path, aws), secret)
    value = table.scan("id = 4").to_arrow()["note"][0].as_py()
    by_value = f"note = '{value}' or id = 6"
    share(table, partner.key_id, partner.location, by_value, rewrite=True)

    analyst = encrypted_sql_catalog(tmp_path, aws, {"encryption.allowed-key-ids": MASTER_KEY}).load_table("db.t")

    assert [each.row_filter for each in shares(analyst).shares] == ["note = ? or id = ?"]
    assert value not in json.dumps([shares(analyst).to_json(), audit(analyst).to_json()])
    with pytest.raises(ConfigurationError, match=r"row_filter \(--where\) can say anew, cannot be parsed"):
        share(table, partner.key_id, partner.location, update=True, rewrite=True)
    assert share(table, partner.key_id, partner.location, by_value, update=True, rewrite=True).rows == 2
    assert share(table, partner.key_id, partner.location, f"note = '{value}' or id = 1000", update=True, rewrite=True).rows == 1
    assert "--where" not in unshare(table, partner.location).advice


def test_who_may_wrap_under_the_partners_keys_and_not_unwrap_shares(tmp_path: Path) -> None:
    kms = memory_kms(tmp_path, MASTER_KEY, "pii", "partner", "partner-pii")
    refusing = {**kms, "encryption.kms-impl": write_only_kms.CLASS, write_only_kms.REFUSED: "partner,partner-pii"}
    del refusing["encryption.kms-type"]
    stored = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    EncryptedSqlCatalog("prod", **stored, **kms).create_namespace("db")
    table = new_table(
        EncryptedSqlCatalog("prod", **stored, **refusing), appends=[rows(0), rows(100)], properties={"encryption.column-keys": "pii: note"}
    )

    result = share(table, "partner", f"file://{tmp_path}/share", "id < 110", columns={"note": "partner-pii"}, rewrite=True)

    theirs = EncryptedSqlCatalog("prod", **stored, **kms).register_table("db.theirs", result.metadata_location)
    assert in_order(theirs.scan()) == in_order(table.scan("id < 110"))


# ---- what the source remembers


def test_the_record_the_list_and_the_audit_name_the_column_and_its_key(table: EncryptedTable, partner: Partner) -> None:
    with_column(table, partner)

    [record] = live_shares(table.refresh())
    assert record.columns == (SharedColumn(3, "note", partner.column_key_id),)
    [listed] = shares(table).shares
    assert listed.columns == {"note": partner.column_key_id}
    [finding] = [each for each in audit(table).tables[0].findings if each.kind == FindingKind.LIVE_SHARE]
    assert f"with column note under {partner.column_key_id}" in finding.message
    assert unshare(table, partner.location).is_complete


def test_an_update_keeps_the_columns_whatever_they_are_called_by_then(table: EncryptedTable, partner: Partner) -> None:
    with_column(table, partner)
    with table.update_schema() as schema:
        schema.rename_column("note", "remark")
        schema.add_column("score", LongType())
    table.append(rows(200, schema=table.schema()))

    updated = share(table, partner.key_id, partner.location, update=True)

    assert updated.protected == {"remark": partner.column_key_id}
    assert in_order(partner.register(updated).scan()) == in_order(table.scan(NORTH))
    assert share(table, partner.key_id, partner.location, update=True).metadata_location == updated.metadata_location


def test_an_update_takes_a_column_in_and_out_although_nothing_else_has_changed(table: EncryptedTable, partner: Partner) -> None:
    share(table, partner.key_id, partner.location, NORTH)

    columns = {"note": partner.column_key_id}
    taken_in = partner.register(share(table, partner.key_id, partner.location, update=True, columns=columns), "db.in")
    assert in_order(taken_in.scan()) == in_order(table.scan(NORTH))
    taken_out = partner.register(share(table, partner.key_id, partner.location, update=True, columns={}), "db.out")
    assert taken_out.scan().to_arrow().column_names == ["id", "team"]


def test_an_update_goes_on_without_a_column_that_was_dropped(table: EncryptedTable, partner: Partner) -> None:
    with_column(table, partner)
    with table.update_schema() as schema:
        schema.delete_column("note")
    table.append(rows(200, schema=table.schema()))

    updated = share(table, partner.key_id, partner.location, update=True)

    assert updated.protected == {}
    assert partner.register(updated).scan().to_arrow().column_names == ["id", "team"]


def test_shredding_a_column_that_is_shared_stops_whatever_it_was_called(table: EncryptedTable, partner: Partner) -> None:
    with_column(table, partner)
    with table.update_schema() as schema:
        schema.rename_column("note", "remark")

    with pytest.raises(SharedFilesError, match="remark was shared"):
        shred_column(table, "remark")


# ---- the share as a table of the partner's


def test_shredding_a_shared_column_all_the_same_is_not_complete(table: EncryptedTable, partner: Partner) -> None:
    theirs = partner.register(with_column(table, partner))

    shredded = shred_column(table, "note", break_shares=True)

    assert not shredded.is_complete
    assert any(partner.key_id in each for each in shredded.incomplete_because)
    assert None not in theirs.refresh().scan().to_arrow()["note"].to_pylist()


def test_shredding_a_column_that_is_shared_meanwhile_destroys_no_key(tmp_path: Path, aws: AwsServer, secret: str, partner: Partner) -> None:
    table = protected(encrypted_sql_catalog(tmp_path, aws, INTERRUPTED), secret)

    with pytest.raises(SharedFilesError, match="while this ran"), at_commits(before=once(lambda: with_column(reload(table), partner))):
        shred_column(table, "note")

    assert None not in reload(table).scan().to_arrow()["note"].to_pylist()


def test_shredding_a_column_that_only_the_state_before_has_stops_until_that_is_gone(table: EncryptedTable, partner: Partner) -> None:
    before = partner.register(with_column(table, partner))
    share(table, partner.key_id, partner.location, update=True, columns={})
    with pytest.raises(SharedFilesError, match="update the share once more"):
        shred_column(table, "note")
    assert None not in before.refresh().scan().to_arrow()["note"].to_pylist()

    share(table, partner.key_id, partner.location, update=True)

    assert shred_column(table, "note").is_complete


def test_the_partners_own_rows_are_under_column_keys_that_the_sharer_never_saw(table: EncryptedTable, partner: Partner) -> None:
    theirs = partner.register(with_column(table, partner))
    given = {kek.key_id for kek in theirs.metadata.key_ring.column_keks}

    theirs.append(rows(500, 4, theirs.schema()))

    ring = encrypted_table(theirs.refresh()).metadata.key_ring
    assert {kek.key_id for kek in ring.column_keks} > given
    assert [entry.encrypted_by_id in given for entry in ring.column_keys if not entry.has_given_deks] == [False]
    assert in_order(theirs.scan("id >= 500"))["note"].to_pylist() == rows(500, 4, theirs.schema())["note"].to_pylist()


@pytest.mark.parametrize("change", [rotate_column_keks, rewrap_column_keks, lambda table: reencrypt(table, out_of_line=False)])
def test_the_partner_changes_keys_of_his_and_reads_on(table: EncryptedTable, partner: Partner, change: Any) -> None:
    theirs = partner.register(with_column(table, partner))
    before = in_order(theirs.scan())

    change(theirs)

    assert in_order(theirs.refresh().scan()) == before
    assert verify(theirs).is_good


def test_a_copy_of_the_share_reads_as_the_share(table: EncryptedTable, partner: Partner) -> None:
    theirs = partner.register(with_column(table, partner))

    relocate(theirs, f"{partner.location}-copy", register_as="db.copy")

    assert in_order(partner.catalog.load_table("db.copy").scan()) == in_order(theirs.scan())


def test_a_share_of_a_share_has_the_column_too(table: EncryptedTable, partner: Partner, aws: AwsServer, tmp_path: Path) -> None:
    theirs = partner.register(with_column(table, partner))
    (tmp_path / "further").mkdir()
    third = Partner.of(tmp_path / "further", aws)
    keys = f"{partner.key_id},{partner.column_key_id},{third.key_id},{third.column_key_id}"
    mine = encrypted_sql_catalog(partner.home, aws, {"encryption.allowed-key-ids": keys}).load_table("db.share")

    result = share(mine, third.key_id, third.location, "id < 100", columns={"note": third.column_key_id})

    assert in_order(third.register(result).scan()) == in_order(theirs.scan("id < 100"))


def test_an_update_forgets_the_values_of_a_filter_by_a_column_that_was_protected_since(tmp_path: Path) -> None:
    both = clients(tmp_path)
    table = protected_table(both.payroll, appends=[persons(3)], **{"encryption.column-keys": ""})
    share(table, OTHER_COLUMN_KEY, f"file://{tmp_path}/share", "ssn = 'SSN-0003'")
    declare(loaded(both.payroll), f"{COLUMN_KEY}: ssn")

    share(loaded(both.payroll), OTHER_COLUMN_KEY, f"file://{tmp_path}/share", update=True, rewrite=True)

    assert [each.row_filter for each in shares(loaded(both.analyst)).shares] == ["ssn = ?"]
    assert "SSN-0003" not in json.dumps(audit(loaded(both.analyst)).to_json())
