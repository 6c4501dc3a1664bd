"""What sharing a partition of a large table takes, and how little of it is written.

    python benchmarks/share.py [--files 10000] [--partitions 10] [--size 16777216] [--rounds 7]

The table names as many files as said, in a partition for each manifest, with sizes, counts and bounds of ten columns, on local disk; the
files themselves are not written, since sharing reads none. Each round shares one partition with another key at another place, and nothing
is kept from an earlier plan. The figures are medians of the rounds, with the least and the greatest. Processor time counts all threads, and
other work on the machine not; time on the clock is printed beside it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Final

from _tables import ENCRYPTED, KMS, catalogs_in
from planning import SCHEMA, fill
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.maintenance import Shared, share
from tablecrypt.manifests.entries import CACHE

BY_COLUMN: Final = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "column_2"))
MOST_SECONDS: Final = 5.0
MOST_BYTES: Final = 0.001
"""Of a partition of 1,000 files."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--size", type=int, default=16 * 1024 * 1024, help="bytes of a data file")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as place:
        catalog, _ = catalogs_in(Path(place))
        MemoryKeyManagementClient(KMS).create_key("partner", bytes(range(1, 33)))
        table = catalog.create_table("db.files", SCHEMA, partition_spec=BY_COLUMN, properties=ENCRYPTED)
        fill(table, options.files, options.partitions, options.size)

        clock: list[float] = []
        processor: list[float] = []
        for each in range(options.rounds):
            CACHE.clear()
            begin, on_processor = time.perf_counter(), time.process_time()
            shared: Shared = share(table, "partner", f"file://{place}/shares/{each}", "column_2 = 0")
            clock.append(time.perf_counter() - begin)
            processor.append(time.process_time() - on_processor)

        written = [path for path in (Path(place) / "shares").rglob("*") if path.is_file()]
        assert {path.suffix for path in written} == {".avro", ".json"}, "a data object was written"
        part = shared.written_bytes / shared.bytes
        print(
            f"{shared.files} files of {options.files}: {_spread(processor)} s of processors, {_spread(clock)} s on the clock; "
            f"{shared.written_bytes:,} bytes written for {shared.bytes:,} ({part:.5%}), in {len(written) // options.rounds} files"
        )
        return int(statistics.median(clock) > MOST_SECONDS or part > MOST_BYTES)


def _spread(taken: list[float]) -> str:
    return f"{statistics.median(taken):.2f} ({min(taken):.2f} to {max(taken):.2f})"


if __name__ == "__main__":
    sys.exit(main())
