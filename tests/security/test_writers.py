"""Processes that write to one table at once lose no committed row, bring no foreign one, and leave no plaintext, however it is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tablecrypt_catalog import EncryptedSqlCatalog
from tests.security.writers import SCHEMA, Journal, Known, Writer, check_seen, keep_until_writers_end, keys_in, read_until_writers_end
from tests.support.aws import AwsServer
from tests.support.forking import fork_to, wait_for
from tests.support.plaintext import FolderStore, findings
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog

PATIENT = {
    "encryption.key-id": MASTER_KEY,
    "commit.retry.num-retries": "1000",
    "commit.retry.min-wait-ms": "20",
    "commit.retry.max-wait-ms": "1000",
    "commit.retry.total-timeout-ms": "86400000",
    "write.metadata.previous-versions-max": "20",
}
PROCESS_SECONDS = 3600
MODES = pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])


class Crowd:
    """A new table, its writers' journals, and the processes that were started."""

    def __init__(self, uri: str, warehouse: Path, journals: Path, aws: AwsServer, mode: str, **properties: str) -> None:
        self._uri, self._warehouse, self._aws, self._folder = uri, warehouse, aws, journals
        self.client().create_table("db.t", SCHEMA, properties={**PATIENT, "write.delete.mode": mode, **properties})
        self.journals: list[tuple[int, Journal]] = []
        self._processes: list[int] = []

    def client(self) -> EncryptedSqlCatalog:
        return encrypted_sql_catalog(self._warehouse, self._aws, {"uri": self._uri})

    def writers(self, count: int, operations: int) -> None:
        for number in range(count):
            journal = self.journal(f"writer-{number}")
            self.journals.append((number, journal))
            self.start(partial(self._write, number, journal, operations))

    def _write(self, number: int, journal: Journal, operations: int) -> bool:
        return Writer(number, self.client(), journal).run(operations)

    def journal(self, name: str) -> Journal:
        return Journal(self._folder / name)

    def start(self, run: Callable[[], bool]) -> None:
        self._processes.append(fork_to(run, PROCESS_SECONDS))

    def read(self, reader: Journal) -> bool:
        return read_until_writers_end(self.client(), self.journals, reader)

    def wait(self) -> None:
        assert [wait_for(each) for each in self._processes] == [0] * len(self._processes)

    def check(self) -> Known:
        """Nothing is lost, foreign, back or in plaintext."""
        known = Known.of(self.journals)
        assert known.ended == len(self.journals)
        table = self.client().load_table("db.t")
        read = table.scan().to_arrow()
        check_seen(keys_in(read), known, known)
        assert set(keys_in(read)) == known.certain - known.gone
        ids = table.scan(selected_fields=("_row_id",)).to_arrow().column("_row_id").to_pylist()
        assert len(set(ids)) == read.num_rows
        store = FolderStore(self._warehouse)
        assert [found for each in store.locations() for found in findings(each, store.read(each))] == []
        return known


@pytest.mark.slow
@MODES
def test_two_writing_processes_lose_nothing(uri: str, warehouse: Path, tmp_path: Path, aws: AwsServer, mode: str) -> None:
    crowd = Crowd(uri, warehouse, tmp_path, aws, mode)
    crowd.writers(2, 6)
    crowd.wait()
    crowd.check()


@pytest.mark.campaign
@pytest.mark.timeout(2 * PROCESS_SECONDS)
@pytest.mark.parametrize(("writers", "operations"), [(4, 40), (8, 20), (16, 12)])
@MODES
def test_many_writing_processes_lose_nothing(
    uri: str, warehouse: Path, tmp_path: Path, aws: AwsServer, mode: str, writers: int, operations: int, record_property: Any
) -> None:
    crowd = Crowd(uri, warehouse, tmp_path, aws, mode)
    crowd.writers(writers, operations)
    crowd.wait()
    known = crowd.check()
    record_property("writers", f"{writers} × {operations}: {len(known.certain)} rows, {len(known.gone)} deleted, {known.again} tried again")


@pytest.mark.campaign
@pytest.mark.timeout(2 * PROCESS_SECONDS)
@MODES
def test_a_table_in_use_stays_whole_while_it_is_kept_in_order(
    uri: str, warehouse: Path, tmp_path: Path, aws: AwsServer, mode: str, record_property: Any
) -> None:
    crowd = Crowd(uri, warehouse, tmp_path, aws, mode)
    crowd.writers(3, 60)
    readers = [crowd.journal(f"reader-{number}") for number in range(2)]
    keeper = crowd.journal("keeper")
    for reader in readers:
        crowd.start(partial(crowd.read, reader))
    crowd.start(lambda: keep_until_writers_end(crowd.client(), crowd.journals, keeper, rounds=4))
    crowd.wait()
    known = crowd.check()
    kept = [event for event, _ in keeper.read()]
    reads = sum(len(each.read()) for each in readers)
    record_property(
        "soak",
        f"{len(known.certain)} rows, {len(known.gone)} deleted, {known.again} tried again; {reads} reads; "
        f"{kept.count('again')} operations done, {kept.count('deleting')} given up",
    )
    assert kept.count("again") >= 10
