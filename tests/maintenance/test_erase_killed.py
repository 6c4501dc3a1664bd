"""erase killed at steps of what it does: other rows are never lost, the next run finishes, and then nothing readable holds the person."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tablecrypt.maintenance import erase
from tests.maintenance.test_erase import FILTER, PERSON, check_nothing_is_left, people
from tests.support.aws import AwsServer
from tests.support.kill_points import MORTAL_IN_MEMORY, Killed, dying_at, mortal_databases
from tests.support.tables import encrypted_sql_catalog

pytestmark = pytest.mark.slow


class Scene:
    """A table whose person is in a file, behind a deletion vector on a branch, and under a tag; in a folder that can be put back."""

    def __init__(self, folder: Path, aws: AwsServer) -> None:
        self._folder, self._aws, self._saved = folder / "live", aws, folder / "saved"
        self._folder.mkdir()
        table = people(self._catalog(), {"write.delete.mode": "merge-on-read"})
        second = table.snapshots()[1].snapshot_id
        table.manage_snapshots().create_branch(second, "side").create_tag(second, "old").commit()
        table.delete(FILTER, branch="side")
        self.others = self.rows(table)
        shutil.copytree(self._folder, self._saved)

    def _catalog(self) -> Catalog:
        return encrypted_sql_catalog(self._folder, self._aws, MORTAL_IN_MEMORY)

    def load(self) -> Table:
        return self._catalog().load_table("db.people")

    def restored(self) -> Table:
        shutil.rmtree(self._folder)
        shutil.copytree(self._saved, self._folder)
        return self.load()

    def rows(self, table: Table) -> dict[str, list[int]]:
        """The other rows of each branch and tag."""
        ids = {name: table.scan().use_ref(name).to_arrow()["customer_id"].to_pylist() for name in ("main", "side", "old")}
        return {name: sorted(each for each in found if each != PERSON) for name, found in ids.items()}


@pytest.fixture
def scene(tmp_path: Path, aws: AwsServer) -> Iterator[Scene]:
    with mortal_databases():
        yield Scene(tmp_path, aws)


def check_finished(scene: Scene) -> None:
    table = scene.load()
    assert scene.rows(table) == scene.others
    assert PERSON not in table.scan().to_arrow()["customer_id"].to_pylist()
    assert set(table.metadata.refs) == {"main", "side", "old"}
    check_nothing_is_left(table)


EVERY: Final = int(os.environ.get("TABLECRYPT_KILL_EVERY", "12"))
"""Which part of the steps that change something a run is killed at: 1 for all of them, which takes a quarter of an hour."""


def changes_something(step: str) -> bool:
    """Whether a step leaves storage or catalog otherwise; Hadoop's checksums are deleted, and are not there."""
    return step.startswith(("create", "write", "close", "delete", "catalog commit", "after")) and not step.endswith(".crc")


def test_killed_where_it_changes_something_the_next_run_finishes(scene: Scene) -> None:
    with dying_at(None) as life:
        assert erase(scene.restored(), FILTER).is_complete
    check_finished(scene)

    killed = 0
    changing = [number for number, step in enumerate(life.steps, start=1) if changes_something(step)]
    for last in changing[::EVERY]:
        table = scene.restored()
        try:
            with dying_at(last):
                erase(table, FILTER)
        except Killed:
            killed += 1
        assert scene.rows(scene.load()) == scene.others, life.steps[last - 1]

        erased = erase(scene.load(), FILTER)

        assert erased.is_complete, (life.steps[last - 1], erased)
        check_finished(scene)
    assert killed >= 100 // EVERY


def test_killed_again_and_again_it_still_finishes(scene: Scene) -> None:
    scene.restored()
    for last in range(1, 3000, 21):
        with suppress(Killed), dying_at(last):
            erase(scene.load(), FILTER)
            break
    assert last > 100
    check_finished(scene)
