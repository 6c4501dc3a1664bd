"""Full reads of an encrypted table through Ray against Ray's own `read_iceberg` on a plain table, and against the table's own scan.

Each side yields all rows to the driver, batch by batch. Ray works in other processes: the processor time is that of all processes of the
session, from before the read to after it. Rounds are interleaved, as in _paired.py, and the first is not counted.

Run in the environment that `make ray` makes: .venv-ray/bin/python benchmarks/ray_scans.py [--files 8] [--rows 250000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from _paired import OURS, Case, Took, keep, report
from _tables import KEY_ID, catalogs_in, tables_in

import tablecrypt.ray as tcr
from tablecrypt.kms.local_file import create_key_file

AIM = 1.15
RAYS_OWN = "read_iceberg, plaintext"
LOCAL = "scan without Ray"
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Make the tables, run the rounds, print the figures."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.json"
        create_key_file(keys, KEY_ID)
        catalogs = catalogs_in(Path(folder), {"encryption.kms-type": "local", "kms.local.key-file": str(keys)})
        tables_in(catalogs, "t", options.files, options.rows)
        ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        plain = {name: catalogs[1].properties[name] for name in ("type", "uri", "warehouse")}
        sides: dict[str, Callable[[], int]] = {
            OURS: lambda: _rows_of(tcr.read_table(catalogs[0].load_table("db.t"))),
            RAYS_OWN: lambda: _rows_of(ray.data.read_iceberg(table_identifier="db.t", catalog_kwargs={"name": "plain", **plain})),
            LOCAL: lambda: sum(len(batch) for batch in catalogs[0].load_table("db.t").scan().to_arrow_batch_reader()),
        }
        case = Case("full scan", dict(sides), AIM, RAYS_OWN)
        for number in range(options.rounds + 1):
            _round(case, number, options.files * options.rows)
        keep("cases", [{"name": case.name, "aim": case.aim, "against": case.against, "took": case.took}])
        for line in report([case]):
            print(line)
        ray.shutdown()


def _rows_of(dataset: Any) -> int:
    return sum(len(batch) for batch in dataset.iter_batches(batch_format="pyarrow", batch_size=None))


def _round(case: Case, number: int, expected: int) -> None:
    for side in list(case.sides) if number % 2 else list(reversed(case.sides)):
        gc.collect()
        clock, processor = time.perf_counter(), _processor_seconds()
        read = case.sides[side]()
        took = Took(time.perf_counter() - clock, _processor_seconds() - processor)
        assert read == expected, (side, read)
        if number:
            case.took.setdefault(side, []).append(took)


def _processor_seconds() -> float:
    """The processor time of this process and all below it, those that have ended among them."""
    times: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        times[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15])) / _TICKS
    below = {os.getpid()}
    while grown := {process for process, (parent, _) in times.items() if parent in below} - below:
        below |= grown
    return sum(times[process][1] for process in below)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rows", type=int, default=250_000, help="of each file")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
