"""Runs make targets one after another, each to its end, and shows what became of them: what `make test-nightly` does.

    python -m tests.support.nightly TARGET…

What a target prints goes to build/nightly/TARGET.log, and its last lines to the terminal if it failed. The table at the end is kept in
build/nightly/results.txt, and written anew after each target, so that a night that is cut short leaves what it has. The exit code is that
of the target that ended worst.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LOGS: Final = Path("build", "nightly")
_SHOWN_LINES: Final = 40


@dataclass(frozen=True)
class Result:
    """How one target ended: its exit code, 0 for success, and the minutes it took."""

    target: str
    code: int
    minutes: float

    @property
    def outcome(self) -> str:
        return "passed" if self.code == 0 else f"failed with {self.code}"


def run(root: Path, targets: Sequence[str]) -> list[Result]:
    """Make each target in the folder `root`, whatever became of those before it."""
    (root / LOGS).mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for target in targets:
        _say(f"{time.strftime('%H:%M')}  {target} …")
        results.append(_made(root, target))
        (root / LOGS / "results.txt").write_text(table(results), encoding="utf-8")
    return results


def _made(root: Path, target: str) -> Result:
    log = root / LOGS / f"{target}.log"
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        ended = subprocess.run(["make", "--no-print-directory", target], cwd=root, stdout=output, stderr=subprocess.STDOUT, check=False)
    result = Result(target, _exit_code(ended.returncode), (time.monotonic() - began) / 60)
    if result.code:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN_LINES:]
        _say("\n".join([*last, f"{target} {result.outcome}; all of it is in {log.relative_to(root)}"]))
    return result


def _exit_code(returncode: int) -> int:
    """What a shell would say: 128 and the signal for a process that one ended."""
    return 128 - returncode if returncode < 0 else returncode


def table(results: Sequence[Result]) -> str:
    """One line for each target, with what became of it and its minutes."""
    width = max(len(result.target) for result in results)
    lines = [f"{result.target:<{width}}  {result.minutes:7.1f} min  {result.outcome}" for result in results]
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(targets: Sequence[str], root: Path = ROOT) -> int:
    """Run them, print the table, and return the worst exit code; 2 where no target is given."""
    if not targets:
        sys.stderr.write("which parts? make test-nightly NIGHTLY_PARTS='test-nightly-properties fuzz'\n")
        return 2
    results = run(root, targets)
    _say(f"\n{table(results)}")
    return max(result.code for result in results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
