"""No nonce, DEK or AAD prefix is used twice: across processes that were forked, threads, and commits that were tried again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tests.security.nonces import FEW_ROWS_A_PAGE, cut, keys_of, repeated, small_files, stored_nonces
from tests.support.aws import AwsServer
from tests.support.forking import fork_to, wait_for
from tests.support.plaintext import CANARY
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog

SECONDS = 3600
PATIENT = {
    "encryption.key-id": MASTER_KEY,
    "commit.retry.num-retries": "1000",
    "commit.retry.min-wait-ms": "10",
    "commit.retry.max-wait-ms": "500",
    "commit.retry.total-timeout-ms": "86400000",
}


def rows(count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(count), pa.int64()), "text": pa.array([CANARY] * count, pa.string())})


def forked(count: int, run: Any) -> None:
    children = [fork_to(partial(run, number), SECONDS) for number in range(count)]
    assert [wait_for(each) for each in children] == [0] * count


def append_on_threads(table: Table, folder: Path, aws: AwsServer, threads: int, appends: int, length: int) -> bool:
    """Append with the table that the parent process had loaded and written with, and with new clients beside it."""

    def append(thread: int) -> None:
        mine = table if thread == 0 else encrypted_sql_catalog(folder, aws).load_table("db.t")
        for _ in range(appends):
            while True:
                try:
                    mine.append(rows(length))
                    break
                except CommitFailedException:
                    mine.refresh()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(append, range(threads)))
    return True


def check_table(warehouse: Path, aws: AwsServer, forks: int, threads: int, appends: int, length: int) -> int:
    """Write a table so, and look through all of its bytes; return how many nonces there are."""
    table = encrypted_sql_catalog(warehouse, aws).create_table("db.t", rows(0).schema, properties={**PATIENT, **FEW_ROWS_A_PAGE})
    table.append(rows(length))
    forked(forks, lambda number: append_on_threads(table, warehouse, aws, threads, appends, length))
    nonces = stored_nonces(warehouse)
    assert repeated(nonces) == []
    table = encrypted_sql_catalog(warehouse, aws).load_table("db.t")
    assert table.scan().count() == length * (1 + forks * threads * appends)
    deks, prefixes = keys_of(table)
    assert len(deks) > 2 * forks * threads * appends
    assert repeated(deks) == repeated(prefixes) == []
    return len(nonces)


def check_small_files(folder: Path, forks: int, threads: int, count: int) -> int:
    """Write so many files in each process; return how many there are."""
    manager = EncryptionManager(MemoryKeyManagementClient({}, keys={"master": b"n" * 32}), "master")

    def write(name: str) -> bool:
        for kind, joined in zip(("deks", "prefixes", "nonces"), small_files(manager, count, threads), strict=True):
            (folder / f"{kind}-{name}").write_bytes(joined)
        return True

    # The processes begin with a manager and a generator that have been used.
    write("parent")
    forked(forks, lambda number: write(f"child-{number}"))
    lengths = {"deks": 16, "prefixes": 16, "nonces": 12}
    for kind, length in lengths.items():
        values = [value for path in folder.glob(f"{kind}-*") for value in cut(path.read_bytes(), length)]
        assert len(values) == count * (1 + forks)
        assert repeated(values) == []
    return count * (1 + forks)


def test_no_nonce_is_twice_in_what_processes_threads_and_retries_wrote(warehouse: Path, aws: AwsServer) -> None:
    assert check_table(warehouse, aws, forks=2, threads=2, appends=1, length=2200) > 10_000


def test_no_dek_prefix_or_nonce_is_twice_in_files_of_several_processes(tmp_path: Path) -> None:
    assert check_small_files(tmp_path, forks=4, threads=2, count=2000) == 10_000


@pytest.mark.campaign
@pytest.mark.timeout(2 * SECONDS)
def test_no_nonce_is_twice_in_a_million(warehouse: Path, aws: AwsServer, record_property: Any) -> None:
    count = check_table(warehouse, aws, forks=4, threads=4, appends=7, length=9000)
    record_property("nonces", count)
    assert count > 1_000_000


@pytest.mark.campaign
@pytest.mark.timeout(2 * SECONDS)
def test_no_dek_prefix_or_nonce_is_twice_in_a_million_files(tmp_path: Path, record_property: Any) -> None:
    count = check_small_files(tmp_path, forks=4, threads=4, count=200_000)
    record_property("files", count)
    assert count == 1_000_000
