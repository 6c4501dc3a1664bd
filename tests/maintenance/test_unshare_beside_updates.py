"""Ending a share beside an update of it, at every step of each: no share is left that the table does not know, and no command ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import share, unshare
from tablecrypt.maintenance.operation import reload
from tablecrypt.maintenance.sharing.records import live_shares
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.kill_points import MORTAL, calling_at, dying_at
from tests.support.shares import Partner
from tests.support.tables import encrypted_sql_catalog, files_below, ids, new_table, path_of, rows

pytestmark = pytest.mark.slow


@pytest.fixture
def table(tmp_path: Path, aws: AwsServer) -> EncryptedTable:
    return new_table(encrypted_sql_catalog(tmp_path, aws, MORTAL), appends=[rows(0)])


@pytest.fixture
def partner(tmp_path: Path, aws: AwsServer) -> Partner:
    return Partner.of(tmp_path, aws)


@pytest.mark.parametrize("is_end_first", [True, False])
def test_a_share_that_is_updated_while_it_ends_has_ended_or_is_known(table: EncryptedTable, partner: Partner, is_end_first: bool) -> None:
    ended, refused = 0, 0

    def attempt(act: Callable[[], object]) -> None:
        nonlocal ended, refused
        try:
            act()
        except (CommitFailedException, ConfigurationError) as error:
            # The other one came first, and said so.
            assert isinstance(error, CommitFailedException) or "no live share" in str(error) or "has no share at" in str(error)
            refused += 1
        else:
            ended += 1

    def run(place: str, *, step: int | None = None) -> list[str]:
        def update() -> object:
            return share(reload(table), partner.key_id, place, update=True)

        def end() -> object:
            return unshare(reload(table), place)

        first, second = (end, update) if is_end_first else (update, end)
        share(table, partner.key_id, place)
        table.append(rows(100))
        with dying_at(None) if step is None else calling_at(step, lambda: attempt(second)) as life:
            attempt(first)
        return life.steps

    steps = run(f"{partner.location}/whole")
    if not is_end_first:
        unshare(table, f"{partner.location}/whole")
    for step, _ in enumerate(steps, 1):
        place = f"{partner.location}/{step}"
        run(place, step=step)

        where = f"step {step}, {steps[step - 1].partition(' ')[0]}"
        if live_shares(table.refresh()):
            assert unshare(table, place).is_complete, where
        assert live_shares(table.refresh()) == [], where
        assert files_below(path_of(place)) == set(), where
    assert ended > 2
    assert refused > 2
    assert len(ids(table)) == 20 * (len(steps) + 2)
