"""Every operation, interrupted at each step of what it does to storage, database and KMS: no committed row is lost and none comes twice.

A dry pass counts the steps. Then the same operation runs from the same state once for each step and each kind of fault:

    kill -9    the process ends there
    before     the step raises and has not taken effect
    after      the step has taken effect, and raises all the same

Threads that ask the key service at once take one step more or less, so that a step's number may be another one's in the next run: where few
steps are tried, they are named by their kind (`Place`), of which no operation has more or fewer.

Afterwards a client that remembers nothing reads every snapshot: the tables are as before or as after the operation, nothing between. A run
again ends as one that nothing stopped, rows can be appended, and no file holds plaintext. Most of it runs in the campaign; the steps around
each commit and a few others run always.
"""

from __future__ import annotations

import gc
import signal
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from tests.support.fault_operations import OPERATIONS, Operation
from tests.support.fault_scene import BucketStorage, FolderStorage, Scene
from tests.support.forking import fork_to, wait_for
from tests.support.kill_points import Place, dying_at, failing_at, kind_of, mortal_databases
from tests.support.postgres import PostgresServer
from tests.support.s3_server import S3Server
from tests.support.tables import rows

Fault = Literal["kill -9", "before", "after"]
FAULTS: tuple[Fault, ...] = ("kill -9", "before", "after")
COMMIT: Final = "catalog commit"
HAS_AN_EFFECT = ("create", "write", "close", "delete", "kms", COMMIT)

# What fails once it has taken effect, as a delete or a commit of which the catalog is asked then, stops some operations at no step at all.
LEAST: Final[dict[Fault, int]] = {"kill -9": 1, "before": 1, "after": 0}
each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
each_fault = pytest.mark.parametrize("fault", FAULTS)

pytestmark = pytest.mark.slow


class Trial:
    """One operation in one scene: what is there before it and after it, and how many steps it takes."""

    def __init__(self, scene: Scene, operation: Operation) -> None:
        self.scene, self.operation = scene, operation
        operation.prepare(scene)
        scene.save()
        self.before = scene.view() if operation.readable or operation.name == "purge" else None
        scene.restore()
        with dying_at(None) as life:
            operation.run(scene)
        self.steps = life.steps
        self.after = scene.view()
        # What is there before the faults is none of theirs: looking through it after each of them takes more time than they do.
        gc.freeze()

    def strike(self, step: int | Place, fault: Fault) -> bool:
        """Run the operation with a fault at a step, and check what it leaves; whether the fault struck."""
        self.scene.restore()
        finished = self._killed(step) if fault == "kill -9" else self._failed(step, fault)
        where = f"{self.operation.name}, {fault} at step {step} of {len(self.steps)}: {self.name_of(step)}"
        self._check_left(finished, where)
        if self.operation.again:
            self.operation.run(self.scene)
            assert self.scene.view() == self.after, where
        if not self.operation.plaintext or self.operation.again:
            assert self.scene.plaintext() == [], where
        if self.operation.name != "purge" and (step % 4 == 1 if isinstance(step, int) else fault == "kill -9" and step.kind == COMMIT):
            self._check_append(where)
        return not finished

    def name_of(self, step: int | Place) -> str:
        """Return the name that a step had where nothing failed."""
        return self.steps[step - 1] if isinstance(step, int) else step.kind

    def _killed(self, step: int | Place) -> bool:
        def run() -> bool:
            with dying_at(step, for_good=True):
                self.operation.run(self.scene)
            return True

        code = wait_for(fork_to(run, seconds=120))
        assert code in (0, -signal.SIGKILL)
        return code == 0

    def _failed(self, step: int | Place, when: Literal["before", "after"]) -> bool:
        finished = False
        with failing_at(step, when) as life:
            try:
                self.operation.run(self.scene)
                finished = True
            except Exception:  # noqa: BLE001, S110  which error a caller sees is not what is asked here
                pass
        assert life.came or isinstance(step, int), f"{self.operation.name} did not come to {step}"
        gc.collect()  # Arrow completes an abandoned upload when its stream is destroyed: now, and not while the next step is counted
        return finished

    def _check_left(self, finished: bool, where: str) -> None:
        if self.operation.readable:
            left = self.scene.view()
            assert left == self.after if finished else left in (self.before, self.after), where

    def _check_append(self, where: str) -> None:
        table = self.scene.table()
        table.append(rows(9000))
        assert table.scan("id >= 9000").count() == 20, where
        present = dict(rows_by_table(self.scene.view()))
        assert len([each for each in present["db.t"] if each[0] < 9000]) in self._lengths(), where

    def _lengths(self) -> set[int]:
        views = [view for view in (self.before, self.after) if view is not None]
        return {len(view["db.t"]["refs"]["main"]) for view in views}


def rows_by_table(view: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """The rows of each table's main branch."""
    return ((name, table["refs"].get("main", ())) for name, table in view.items())


def around_commits(steps: list[str], fault: Fault) -> list[Place]:
    """The last commit, the moment after it, where a process can only die, and a step long before, of a kind that every run has as often."""
    commits = steps.count(COMMIT)
    early = next(number for number, step in enumerate(steps, 1) if number > len(steps) // 3 and not step.startswith("kms"))
    kind = kind_of(steps[early - 1])
    long_before = Place(kind, sum(kind_of(step) == kind for step in steps[:early]))
    after = [Place(f"after {COMMIT}", commits)] if fault == "kill -9" else []
    return [Place(COMMIT, commits), *after, long_before]


def always_tried(steps: list[str]) -> dict[Fault, list[Place]]:
    """For each kind of fault, the steps at which it strikes in every run of the tests."""
    commit, after, long_before = around_commits(steps, "kill -9")
    return {"kill -9": [commit, after], "before": [commit, long_before], "after": [commit]}


def struck(trial: Trial, fault: Fault, steps: Iterable[int | Place]) -> int:
    """Try the steps; how many of the faults struck. A fault after a step without an effect is that before it."""
    return sum(trial.strike(step, fault) for step in steps if fault != "after" or trial.name_of(step).startswith(HAS_AN_EFFECT))


@pytest.fixture
def local(unwatched_warehouse: Path) -> Iterator[Scene]:
    with mortal_databases():
        yield Scene(FolderStorage(unwatched_warehouse), f"sqlite:///{unwatched_warehouse}/catalog.db")


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@each_operation
def test_a_fault_near_a_commit_leaves_the_table_as_before_or_as_after(local: Scene, operation: Operation) -> None:
    trial = Trial(local, operation)
    count = {fault: struck(trial, fault, steps) for fault, steps in always_tried(trial.steps).items()}
    # Every fault came, and some operations go on after an error: they ask the catalog whether their commit has landed.
    assert count["kill -9"] == 2, count


@pytest.mark.campaign
@pytest.mark.timeout(7200)
@each_fault
@each_operation
def test_a_fault_at_any_step_leaves_the_table_as_before_or_as_after(
    local: Scene, operation: Operation, fault: Fault, record_property: Any
) -> None:
    trial = Trial(local, operation)
    count = struck(trial, fault, range(1, len(trial.steps) + 1))
    record_property("faults", count)
    assert count >= 2


@pytest.mark.campaign
@pytest.mark.timeout(7200)
@each_fault
@each_operation
@mortal_databases()
def test_so_it_is_on_postgresql(unwatched_warehouse: Path, postgres: PostgresServer, operation: Operation, fault: Fault) -> None:
    trial = Trial(Scene(FolderStorage(unwatched_warehouse), postgres.new_database()), operation)
    assert struck(trial, fault, around_commits(trial.steps, fault)) >= LEAST[fault]


@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", ["before", "after"])
@each_operation
@mortal_databases()
def test_so_it_is_on_s3(unwatched_warehouse: Path, s3_server: S3Server, operation: Operation, fault: Fault) -> None:
    """Only within this process: Arrow's client of S3 does not live through a fork."""
    bucket = BucketStorage(s3_server, f"faults-{uuid.uuid4().hex[:12]}")
    trial = Trial(Scene(bucket, f"sqlite:///{unwatched_warehouse}/catalog.db"), operation)
    assert struck(trial, fault, range(1, len(trial.steps) + 1, 3)) >= LEAST[fault]
