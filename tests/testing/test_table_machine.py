"""A failure that the state machine finds can be repeated: what it does depends on nothing but what Hypothesis drew."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tablecrypt.testing import TableStateMachine
from tablecrypt.testing.table_model import ID, NOTE, TEAM, VALUE
from tests.support.aws import AwsServer
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog

ROWS = [{ID: 1, TEAM: "north", NOTE: None, VALUE: 1}]


def test_a_number_means_a_snapshot_by_its_age_and_not_by_its_random_id(tmp_path: Path, aws: AwsServer) -> None:
    machine = TableStateMachine(lambda: encrypted_sql_catalog(tmp_path, aws), MASTER_KEY, "db", Counter())
    machine.create(fields=frozenset(), merge=False, on_read=False, small_files=False, values=ROWS)
    for _ in range(4):
        machine.append(values=ROWS, branch="main", client=0, as_stream=False)
    by_age = [each.snapshot_id for each in sorted(machine.table.snapshots(), key=lambda each: each.sequence_number or 0)]

    named = []
    for number in range(len(by_age)):
        machine.point(number=number, name="label")
        named.append(machine.model.tags["label"])
        machine.point(number=number, name="label")
    machine.expire(numbers=[2, 0, 2])

    assert named == by_age
    assert [each.snapshot_id for each in machine.table.refresh().snapshots()] == [by_age[1], *by_age[3:]]
    machine.teardown()
