"""Remembering, updating and ending a share, killed at every step: it is there or gone, and the next run finishes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import share, unshare
from tablecrypt.maintenance.sharing.records import forget_share, live_shares, remember_share
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.kill_points import MORTAL, Killed, When, dying_at, failing_at, mortal_databases
from tests.support.shares import Partner, record_of
from tests.support.tables import encrypted_sql_catalog, files_below, ids, new_table, path_of, rows

pytestmark = pytest.mark.slow


@pytest.fixture
def table(tmp_path: Path, aws: AwsServer) -> Iterator[EncryptedTable]:
    table = new_table(encrypted_sql_catalog(tmp_path, aws, MORTAL), appends=[rows(0)])
    with mortal_databases():
        yield table


def test_a_record_is_there_or_not_whenever_remembering_is_killed(table: EncryptedTable) -> None:
    record = record_of(table)
    with dying_at(None) as whole:
        remember_share(table, record)
    forget_share(table, record.share_uuid)

    for last in range(1, len(whole.steps) + 1):
        with pytest.raises(Killed), dying_at(last):
            remember_share(table, record)
        assert live_shares(table.refresh()) in ([], [record])
        remember_share(table, record)
        assert live_shares(table) == [record]
        forget_share(table, record.share_uuid)


def test_the_old_record_or_the_new_is_there_whenever_an_update_is_killed(table: EncryptedTable) -> None:
    record = record_of(table)
    remember_share(table, record)
    with dying_at(None) as whole:
        remember_share(table, record)

    for last in range(1, len(whole.steps) + 1):
        new = replace(record, created_ms=record.created_ms + last)
        with pytest.raises(Killed), dying_at(last):
            remember_share(table, new)
        assert live_shares(table.refresh()) in ([record], [new])
        remember_share(table, record)


def test_a_share_is_whole_or_gone_whenever_its_end_is_killed(table: EncryptedTable, tmp_path: Path, aws: AwsServer) -> None:
    partner = Partner.of(tmp_path, aws)
    first = share(table, partner.key_id, f"{partner.location}/whole")
    with dying_at(None) as whole:
        unshare(table, first.share_uuid)

    for last in range(1, len(whole.steps) + 1):
        made = share(table, partner.key_id, f"{partner.location}/{last}")
        theirs = partner.register(made, f"db.share_{last}")
        with pytest.raises(Killed), dying_at(last):
            unshare(table, made.share_uuid)

        if path_of(made.metadata_location).exists():
            assert ids(theirs) == ids(table)
        if live_shares(table.refresh()):
            assert unshare(table, made.share_uuid).is_complete
        assert live_shares(table.refresh()) == []
        assert files_below(path_of(made.location)) == set()
        assert len(ids(table)) == 20


def test_a_share_whose_beginning_is_killed_ends_once_it_is_shared_again(table: EncryptedTable, tmp_path: Path, aws: AwsServer) -> None:
    partner = Partner.of(tmp_path, aws)
    with dying_at(None) as whole:
        share(table, partner.key_id, f"{partner.location}/whole", "id < 11", rewrite=True)

    killed = refused = 0
    for last in range(1, len(whole.steps) + 1):
        place = f"{partner.location}/{last}"
        try:
            with dying_at(last):
                share(table, partner.key_id, place, "id < 11", rewrite=True)
        except Killed:
            killed += 1

        for record in [each for each in live_shares(table.refresh()) if each.location == place]:
            try:
                unshare(table, record.share_uuid)
            except ConfigurationError as error:
                assert "share again" in str(error)
                refused += 1
                share(table, partner.key_id, place, "id < 11", rewrite=True)
                unshare(table, record.share_uuid)
        # Metadata that was written in part says nothing of whose it is.
        assert all(path.name.endswith(".metadata.json") for path in files_below(path_of(place))), whole.steps[last - 1]
    # The keys of rows that are written again are asked for when that is known, so that a run takes a step more or less.
    assert killed >= len(whole.steps) - 5
    assert refused


@pytest.mark.parametrize("fault", ["before", "after"])
def test_what_an_update_has_begun_that_fails_at_any_step_goes_with_the_share(
    table: EncryptedTable, tmp_path: Path, aws: AwsServer, fault: When
) -> None:
    partner = Partner.of(tmp_path, aws)
    share(table, partner.key_id, f"{partner.location}/whole")
    table.append(rows(100))
    with dying_at(None) as whole:
        share(table, partner.key_id, f"{partner.location}/whole", update=True)

    failed = 0
    for step in range(1, len(whole.steps) + 1):
        place = f"{partner.location}/{step}"
        share(table, partner.key_id, place)
        table.append(rows(1000 * step))
        with failing_at(step, fault), suppress(Exception):
            failed += 1
            share(table, partner.key_id, place, update=True)
            failed -= 1

        ended = unshare(table.refresh(), place)
        assert (ended.is_complete, ended.left) == (True, ()), whole.steps[step - 1]
        assert files_below(path_of(place)) == set(), whole.steps[step - 1]
    assert failed > 5
