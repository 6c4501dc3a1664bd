"""Commits that lose to a shredding, at each of their steps: what they wrote brings no retired key back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import OperationalError

from tablecrypt.errors import TablecryptError
from tablecrypt.maintenance import compact, rotate_kek, shred
from tablecrypt.maintenance.operation import reload
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.kill_points import MORTAL, Place, calling_at, dying_at, failing_at, mortal_databases
from tests.support.tables import encrypted_sql_catalog, ids, metadata_path, new_table, rows

pytestmark = pytest.mark.slow

ACTS: dict[str, Callable[[EncryptedTable], object]] = {
    "append": lambda table: table.append(rows(100)),
    "delete": lambda table: table.delete("id < 3"),
    "compact": compact,
    "rotate": rotate_kek,
}


def test_a_commit_that_its_database_refuses_leaves_no_metadata_file(tmp_path: Path, aws: AwsServer) -> None:
    table = new_table(encrypted_sql_catalog(tmp_path, aws, MORTAL), appends=[rows(0)])
    failed = 0
    with mortal_databases():
        for number in range(1, 20):
            with failing_at(Place("catalog query", number), "before") as life:
                try:
                    table.append(rows(100 * number))
                except OperationalError:
                    failed += 1
            current = table.refresh().metadata
            named = {table.metadata_location, *(entry.metadata_file for entry in current.metadata_log)}
            assert {path.name for path in metadata_path(table).parent.glob("*.metadata.json")} == {
                each.rpartition("/")[2] for each in named
            }
            if not life.came:
                break

    assert failed > 2


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_no_file_of_a_commit_holds_a_key_that_was_shredded_meanwhile(
    tmp_path: Path, aws: AwsServer, act: Callable[[EncryptedTable], object]
) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws, MORTAL)

    def run(name: str, step: int | None) -> tuple[list[str], set[str]]:
        table = new_table(catalog, name, appends=[rows(0), rows(20)])
        table.delete("id = 1")
        retired: set[str] = set()

        def shred_all() -> None:
            shredded = shred(reload(table), all_but_heads=True)
            assert not (shredded.left or shredded.refused)
            retired.update(shredded.retired_keks)

        with dying_at(None) if step is None else calling_at(step, shred_all) as life:
            try:
                act(table)
            except (CommitFailedException, TablecryptError):
                assert step is not None

        assert ids(table.refresh())
        folder = metadata_path(table).parent
        return life.steps, {f"{key} in {path.name}" for path in folder.glob("*.json") for key in retired if key in path.read_text()}

    steps, _ = run("db.whole", None)
    left = {step: found for step, name in enumerate(steps, 1) if (found := run(f"db.t{step}", step)[1])}

    assert left == {}, [steps[step - 1] for step in left]
