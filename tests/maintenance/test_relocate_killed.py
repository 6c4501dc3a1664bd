"""relocate killed at every step of what it does: the next run finishes, no row is lost, and nothing but ciphertext is ever there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyiceberg.table import Table

from tablecrypt.maintenance import relocate
from tests.support.aws import AwsServer
from tests.support.kill_points import MORTAL_IN_MEMORY, Killed, dying_at, mortal_databases
from tests.support.tables import encrypted_sql_catalog, new_table, rows, state

pytestmark = pytest.mark.slow


@pytest.fixture
def table(tmp_path: Path, aws: AwsServer) -> Iterator[Table]:
    # Nothing remembered, so that every run asks the KMS.
    catalog = encrypted_sql_catalog(tmp_path, aws, MORTAL_IN_MEMORY)
    table = new_table(catalog, appends=[rows(0)], properties={"write.delete.mode": "merge-on-read"})
    table.delete("id = 3")
    with mortal_databases():
        yield table


def test_killed_at_every_step_the_next_run_finishes(table: Table, tmp_path: Path) -> None:
    before = state(table)
    with dying_at(None) as whole:
        relocate(table, f"file://{tmp_path}/warehouse/whole", register_as="db.whole", workers=1)

    killed = 0
    # Threads that need a KEK at the same moment share one call of the KMS: a run may take a step less, and end before it is killed.
    for last in range(1, len(whole.steps) + 1):
        place, name = f"file://{tmp_path}/warehouse/killed-{last}", f"db.killed_{last}"
        try:
            with dying_at(last):
                relocate(table, place, register_as=name, workers=1)
        except Killed:
            killed += 1

        relocate(table, place, register_as=name, workers=1)

        copy = table.catalog.load_table(name)
        assert state(copy) == before, whole.steps[last - 1]
        assert copy.location() == place
    assert killed >= 20
    assert state(table) == before


def test_killed_again_and_again_in_one_place_it_still_finishes(table: Table, tmp_path: Path) -> None:
    place, before = f"file://{tmp_path}/warehouse/often", state(table)
    for last in range(1, 1000, 3):
        try:
            with dying_at(last):
                relocate(table, place, register_as="db.often", workers=2)
        except Killed:
            continue
        break
    assert last > 20
    assert state(table.catalog.load_table("db.often")) == before


def test_killed_while_a_newer_state_is_copied_the_earlier_copy_stands(table: Table, tmp_path: Path) -> None:
    place, before = f"file://{tmp_path}/warehouse/newer", state(table)
    relocate(table, place, register_as="db.earlier", workers=1)
    table.append(rows(900))

    for last in range(1, 60, 5):
        with dying_at(last), suppress(Killed):
            relocate(table, place, workers=1)
        assert state(table.catalog.load_table("db.earlier")) == before

    newer = relocate(table, place, workers=1)
    assert state(table.catalog.load_table("db.earlier")) == before
    table.catalog.drop_table("db.earlier")
    assert state(table.catalog.register_table("db.newer", newer.metadata_location)) == state(table)
