"""shred killed at every step of what it does: live rows are never lost, the next run finishes, and then no file opens what was shredded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table

from tablecrypt.maintenance import shred
from tests.support.aws import AwsServer
from tests.support.kill_points import MORTAL_IN_MEMORY, Killed, dying_at, mortal_databases
from tests.support.tables import encrypted_sql_catalog, new_table, rows, state

pytestmark = pytest.mark.slow


class Scene:
    """A table with three appends of which the first two are to be shredded, in a folder that can be put back to how it was."""

    def __init__(self, folder: Path, aws: AwsServer) -> None:
        self._folder, self._aws, self._saved = folder / "live", aws, folder / "saved"
        self._folder.mkdir()
        table = self.load(create=True)
        for first in (0, 100, 200):
            table.append(rows(first))
        self.before = state(table)
        self.selected = [each.snapshot_id for each in table.snapshots()][:2]
        self.live = {each: found for each, found in self.before.items() if each not in self.selected}
        self.retired = [key.encrypted_key_metadata for key in table.metadata.encryption_keys]  # type: ignore[union-attr]
        shutil.copytree(self._folder, self._saved)

    def load(self, create: bool = False) -> Table:
        catalog = encrypted_sql_catalog(self._folder, self._aws, MORTAL_IN_MEMORY)
        if create:
            return new_table(catalog)
        return catalog.load_table("db.t")

    def restored(self) -> Table:
        """The table as it was before any shredding."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._saved, self._folder)
        return self.load()

    def texts(self) -> list[str]:
        return [path.read_text(errors="replace") for path in self._folder.rglob("*.metadata.json")]


@pytest.fixture
def scene(tmp_path: Path, aws: AwsServer) -> Iterator[Scene]:
    with mortal_databases():
        yield Scene(tmp_path, aws)


def check_finished(scene: Scene, whole: bool, writes: bool = True) -> None:
    table = scene.load()
    assert state(table) == ({} if whole else scene.live)
    assert not [key for key in scene.retired for text in scene.texts() if key in text]
    if writes:
        table.append(rows(500))
        assert table.scan("id >= 500").count() == 20


@pytest.mark.parametrize("whole", [False, True], ids=["snapshots", "whole table"])
def test_killed_at_every_step_the_next_run_finishes(scene: Scene, whole: bool) -> None:
    def run(table: Table) -> object:
        return shred(table, whole_table="db.t") if whole else shred(table, scene.selected)

    with dying_at(None) as life:
        run(scene.restored())
    check_finished(scene, whole)

    killed = 0
    # Threads that need a KEK at the same moment share one call of the KMS: a run may take a step less, and end before it is killed.
    for last in range(1, len(life.steps) + 1):
        table = scene.restored()
        try:
            with dying_at(last):
                run(table)
        except Killed:
            killed += 1

        if not whole:
            left = state(scene.load())
            assert left in (scene.before, scene.live), life.steps[last - 1]
        run(scene.load())
        check_finished(scene, whole, writes=last % 10 == 1)
    assert killed >= 20


def test_killed_again_and_again_it_still_finishes(scene: Scene) -> None:
    scene.restored()
    for last in range(1, 1000, 2):
        try:
            with dying_at(last):
                shred(scene.load(), scene.selected)
        except Killed:
            continue
        break
    assert last > 20
    check_finished(scene, whole=False)
