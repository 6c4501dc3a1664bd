"""Any sequence of operations leaves in every branch, tag and snapshot what a model in memory says, by every reader."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis.stateful import rule

from tablecrypt.testing import TableStateMachine
from tests.support.aws import AwsServer
from tests.support.java import JavaOracle
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog


def run(kind: type[TableStateMachine], warehouse: Path, aws: AwsServer, record_property: Any, max_examples: int, steps: int) -> None:
    counts = kind.check(lambda: encrypted_sql_catalog(warehouse, aws), MASTER_KEY, max_examples=max_examples, steps=steps)
    record_property("operations", dict(sorted(counts.items())))
    assert counts.total() > max_examples * steps // 3


def test_any_sequence_of_operations_ends_as_the_model_says(warehouse: Path, aws: AwsServer, record_property: Any) -> None:
    run(TableStateMachine, warehouse, aws, record_property, max_examples=4, steps=18)


@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_any_long_sequence_of_operations_ends_as_the_model_says(warehouse: Path, aws: AwsServer, record_property: Any) -> None:
    run(TableStateMachine, warehouse, aws, record_property, max_examples=60, steps=50)


class BesideJava(TableStateMachine):
    """The same table, read by Iceberg Java in between."""

    java: ClassVar[JavaOracle]
    names: ClassVar[Iterator[int]] = itertools.count()

    @rule()
    def java_reads(self) -> None:
        self._step("read by Java")
        name = f"machine.t{next(self.names)}"
        self.java.register(name, self.table.refresh().metadata_location)
        self._same_rows(self.java.rows(name), self.model.columns, self.model.rows("main"), "main in Java")
        for snapshot_id, snapshot in self.model.snapshots.items():
            self._same_rows(self.java.rows(name, snapshot_id), snapshot.columns, snapshot.rows, f"snapshot {snapshot_id} in Java")
        self.java.unregister(name)


@pytest.mark.java
@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_iceberg_java_reads_the_same_after_any_sequence(
    java_runtime: None, warehouse: Path, tmp_path: Path, aws: AwsServer, record_property: Any
) -> None:
    with JavaOracle(tmp_path / "java", aws.endpoint) as java:
        BesideJava.java = java
        run(BesideJava, warehouse, aws, record_property, max_examples=6, steps=40)
