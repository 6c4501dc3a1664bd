"""Any sequence of operations leaves in every branch, tag and snapshot what a model in memory says, by every reader."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.security.table_machine import TableMachine
from tests.security.table_model import shown
from tests.support.aws import AwsServer
from tests.support.catalogs import encrypted_sql_catalog
from tests.support.java import JavaOracle

SMALL = settings(max_examples=4, stateful_step_count=18, suppress_health_check=list(HealthCheck))
LARGE = settings(SMALL, max_examples=60, stateful_step_count=50)
BESIDE_JAVA = settings(SMALL, max_examples=6, stateful_step_count=40)


def machine(kind: type[TableMachine], warehouse: Path, aws: AwsServer) -> type[TableMachine]:
    """The state machine, on a catalog in a folder."""
    return type("Machine", (kind,), {"new_catalog": staticmethod(lambda: encrypted_sql_catalog(warehouse, aws))})


def run(kind: type[TableMachine], budget: settings, warehouse: Path, aws: AwsServer, record_property: Any) -> None:
    made = machine(kind, warehouse, aws)
    made.counts.clear()
    run_state_machine_as_test(made, settings=budget)
    record_property("operations", dict(sorted(made.counts.items())))
    assert made.counts.total() > budget.max_examples * budget.stateful_step_count // 3


def test_any_sequence_of_operations_ends_as_the_model_says(warehouse: Path, aws: AwsServer, record_property: Any) -> None:
    run(TableMachine, SMALL, warehouse, aws, record_property)


@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_any_long_sequence_of_operations_ends_as_the_model_says(warehouse: Path, aws: AwsServer, record_property: Any) -> None:
    run(TableMachine, LARGE, warehouse, aws, record_property)


class BesideJava(TableMachine):
    """The same table, read by Iceberg Java in between."""

    java: ClassVar[JavaOracle]
    names: ClassVar[Iterator[int]] = itertools.count()

    @rule()
    def java_reads(self) -> None:
        self._step("read by Java")
        name = f"machine.t{next(self.names)}"
        self.java.register(name, self.table.refresh().metadata_location)
        columns = self.model.columns
        assert self._read(self.java.rows(name), columns) == shown(self.model.rows("main"), columns)
        for snapshot_id, snapshot in self.model.snapshots.items():
            assert self._read(self.java.rows(name, snapshot_id), snapshot.columns) == shown(snapshot.rows, snapshot.columns)
        self.java.unregister(name)


@pytest.mark.java
@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_iceberg_java_reads_the_same_after_any_sequence(
    java_runtime: None, warehouse: Path, tmp_path: Path, aws: AwsServer, record_property: Any
) -> None:
    with JavaOracle(tmp_path / "java", aws.endpoint) as java:
        BesideJava.java = java
        run(BesideJava, BESIDE_JAVA, warehouse, aws, record_property)
