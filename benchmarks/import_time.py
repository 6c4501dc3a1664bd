"""What importing tablecrypt costs, against importing PyIceberg's table module. The last module is what `tablecrypt activate` starts with.

    python benchmarks/import_time.py [--rounds 9]

Each import has a process of its own, in turn. Printed are medians of processor time without the interpreter's own start, and ratios.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
from typing import Final

PEER: Final = "pyiceberg.table"
OURS: Final = ("tablecrypt", "tablecrypt_catalog", "tablecrypt_catalog.registration")
AIM: Final = 1.2


def processor_seconds(statement: str) -> float:
    """The processor time of a Python process that executes one statement."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    taken: dict[str, list[float]] = {name: [] for name in ("", PEER, *OURS)}
    for _ in range(rounds):
        for name, seconds in taken.items():
            seconds.append(processor_seconds(f"import {name}" if name else "pass"))
    start = statistics.median(taken[""])
    peer = statistics.median(taken[PEER]) - start
    print(f"import {PEER:32} {peer:.3f} s")
    ratios = {name: (statistics.median(taken[name]) - start) / peer for name in OURS}
    for name, ratio in ratios.items():
        print(f"import {name:32} {ratio * peer:.3f} s, {ratio:.2f} of it (aim {AIM})")
    return int(ratios["tablecrypt"] > AIM)


if __name__ == "__main__":
    sys.exit(main())
