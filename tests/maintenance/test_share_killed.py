"""share killed at every step of what it does: there is a share or there is none, the source reads as before, and the next run makes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tablecrypt.maintenance import share
from tablecrypt.maintenance.sharing.records import live_shares
from tablecrypt.table.other_tables import tables_at
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.kill_points import MORTAL, Killed, dying_at, mortal_databases
from tests.support.shares import NORTH, Partner
from tests.support.tables import MERGE_ON_READ, encrypted_sql_catalog, ids, state, team_table

pytestmark = pytest.mark.slow


@pytest.fixture
def table(tmp_path: Path, aws: AwsServer) -> Iterator[EncryptedTable]:
    # Nothing remembered, so that every run asks the KMS.
    catalog = encrypted_sql_catalog(tmp_path, aws, {**MORTAL, "encryption.kms.cache-ttl-ms": "0"})
    table = team_table(catalog, 0, properties=MERGE_ON_READ)
    table.delete("id = 2")
    with mortal_databases():
        yield table


def test_killed_at_every_step_there_is_a_share_or_none_and_the_next_run_makes_it(table: EncryptedTable, partner: Partner) -> None:
    before, wanted = state(table), ids(table, row_filter=NORTH)
    with dying_at(None) as whole:
        share(table, partner.key_id, f"{partner.location}/whole", NORTH)

    killed = 0
    for last in range(1, len(whole.steps) + 1):
        place = f"{partner.location}/{last}"
        try:
            with dying_at(last):
                result = share(table, partner.key_id, place, NORTH)
        except Killed:
            killed += 1
            there = [location for location, _ in tables_at(table.io.inner, place)]
            assert len(there) <= 1
            remembered = [record for record in live_shares(table.refresh()) if record.location == place]
            assert remembered or not there, f"a share that nobody remembers: {whole.steps[last - 1]}"
            result = share(table, partner.key_id, place, NORTH) if not there else remembered[0]  # type: ignore[assignment]

        assert ids(partner.register(result, f"db.share_{last}")) == wanted, whole.steps[last - 1]
    assert killed >= 15
    assert state(table) == before
