"""How many requests a scan makes to an object store, which takes its time for each: as many for a file as these tests name, and no more.

The server's own log is counted: what Arrow's client of S3 really sends.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tablecrypt import load_catalog
from tests.support.s3_server import S3Server
from tests.support.tables import memory_kms, new_table

pytestmark = pytest.mark.slow

SMALL_FILES = 12
REQUEST = re.compile(r"(HEAD|GET) /\S+/(data|metadata)/(\S+) HTTP")

OPENS_AND_READS = Counter({"HEAD": 1, "GET": 1})
"""A file of at most 1 MiB: how long it is, and all of it."""
READS_THE_PARTS = Counter({"HEAD": 1, "GET": 3})
"""A longer file: how long it is, its footer, its first bytes, and the columns of its row group, which lie side by side."""

Scan = Callable[[Table], int]
SCANS: dict[str, Scan] = {
    "to_arrow": lambda table: int(table.scan().to_arrow().num_rows),
    "a stream": lambda table: sum(len(batch) for batch in table.scan().to_arrow_batch_reader()),
    "some columns with a filter": lambda table: int(table.scan("id >= 0", selected_fields=("id",)).to_arrow().num_rows),
    "an Arrow dataset": lambda table: int(table.scan().to_arrow_dataset().to_table().num_rows),  # type: ignore[attr-defined]
}
every_scan = pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[S3Server, Path]]:
    folder = tmp_path_factory.mktemp("s3")
    server = S3Server(folder)
    yield server, folder / "s3.log"
    server.stop()


@pytest.fixture(scope="module")
def catalog(server: tuple[S3Server, Path], tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    properties: dict[str, Any] = {**memory_kms("requests"), **server[0].s3_properties, "warehouse": f"s3://{server[0].bucket('requests')}"}
    catalog = load_catalog("requests", type="tablecrypt", uri=f"sqlite:///{tmp_path_factory.mktemp('catalog')}/catalog.db", **properties)
    catalog.create_namespace("db")
    # A file ends at this size, of Arrow memory.
    properties = {"write.target-file-size-bytes": str(rows_of(100).nbytes)}
    small = pa.Table.from_batches(rows_of(100 * SMALL_FILES).to_batches(max_chunksize=100))
    new_table(catalog, "db.small", appends=[small], properties=properties)
    new_table(catalog, "db.large", appends=[rows_of(100_000)])
    return catalog


def rows_of(count: int) -> pa.Table:
    generator = np.random.default_rng(3)
    return pa.table({"id": pa.array(range(count), pa.int64()), **{name: generator.random(count) for name in ("v", "w", "x")}})


def requests_of(log: Path, scan: Callable[[], int]) -> tuple[int, dict[str, Counter[str]], int]:
    """Return how many rows a scan gave, which requests it made for each data file, and how many for metadata."""
    before = log.stat().st_size
    rows = scan()
    data: dict[str, Counter[str]] = {}
    metadata = 0
    for method, folder, name in REQUEST.findall(log.read_bytes()[before:].decode()):
        if folder == "data":
            data.setdefault(name, Counter())[method] += 1
        else:
            metadata += 1
    return rows, data, metadata


@every_scan
def test_a_small_file_is_opened_and_read_whole_in_two_requests(server: tuple[S3Server, Path], catalog: Catalog, scan: Scan) -> None:
    table = catalog.load_table("db.small")
    rows, data, _ = requests_of(server[1], lambda: scan(table))
    assert rows == 100 * SMALL_FILES
    assert len(data) == SMALL_FILES
    assert {name: requests for name, requests in data.items() if requests != OPENS_AND_READS} == {}


@every_scan
def test_of_a_larger_file_its_ends_and_its_columns_are_asked_for_once(server: tuple[S3Server, Path], catalog: Catalog, scan: Scan) -> None:
    table = catalog.load_table("db.large")
    rows, data, _ = requests_of(server[1], lambda: scan(table))
    assert rows == 100_000
    assert list(data.values()) == [READS_THE_PARTS]


def test_files_that_the_filter_rules_out_and_metadata_that_was_read_before_are_not_asked_for(
    server: tuple[S3Server, Path], catalog: Catalog
) -> None:
    table = catalog.load_table("db.small")
    table.scan().to_arrow()
    rows, data, metadata = requests_of(server[1], lambda: int(table.scan("id < 100").to_arrow().num_rows))
    assert (rows, list(data.values()), metadata) == (100, [OPENS_AND_READS], 0)
