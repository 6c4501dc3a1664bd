"""A writer that is killed while it writes into a store that others wrote: nothing between two commits is ever seen.

Each writer is a process of its own, which ends by SIGKILL at a random step of what it does to the store and the KMS. The seeds are fixed.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import signal
import subprocess
import sys

import pytest

from tablecrypt.maintenance import remove_orphan_files, verify
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.services.killed_writer import MORTAL_IOS, ROUNDS, ids_after
from tests.services.stores import ObjectStore
from tests.support.kill_points import MORTAL
from tests.support.plaintext import findings
from tests.support.tables import MERGE_ON_READ, ids, new_table, rows

pytestmark = pytest.mark.services

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
WRITERS = 6
STEPS = 160
"""A few more than a writer takes for its rounds."""


def test_a_killed_writer_leaves_the_table_as_before_or_as_after(catalog: EncryptedSqlCatalog, store: ObjectStore) -> None:
    new_table(catalog, appends=[rows(0)], properties=MERGE_ON_READ)
    properties = {**catalog.properties, **MORTAL, "py-io-impl": MORTAL_IOS[store.file_io]}
    steps, killed, rounds = random.Random(32), 0, 0

    for _ in range(WRITERS):
        code, done = run_writer(properties, rounds, steps.randint(1, STEPS))
        killed += code == -signal.SIGKILL
        found = ids(catalog.load_table("db.t"))
        # The last commit may have landed before the writer could say so. A rotation shows in no row: to leave it out does no harm.
        rounds = max(each for each in (rounds + done, rounds + done + 1) if ids_after(each) == found)
        assert [str(each) for location, content in store.contents().items() for each in findings(location, content)] == []

    assert killed >= WRITERS // 2
    assert rounds > 0
    table = catalog.load_table("db.t")
    left = {file.location for file in remove_orphan_files(table, LATER, dry_run=False).found}
    assert left, "no writer was killed within a write"
    assert left.isdisjoint(store.contents())
    assert not remove_orphan_files(table, LATER).found
    assert verify(table).is_complete
    table.append(rows(90_000))
    assert ids(catalog.load_table("db.t")) == [*ids_after(rounds), *range(90_000, 90_020)]


def run_writer(properties: dict[str, str], first_round: int, last_step: int) -> tuple[int, int]:
    """The exit code of a writer, and how many rounds it said that it finished."""
    command = [sys.executable, "-m", "tests.services.killed_writer", str(first_round), str(last_step)]
    ended = subprocess.run(command, input=json.dumps(properties), capture_output=True, text=True, check=False)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr[-4000:]
    done = ended.stdout.splitlines()
    assert ended.returncode or len(done) == ROUNDS
    return ended.returncode, len(done)
