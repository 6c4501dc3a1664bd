"""How much memory a call takes at its peak, whoever allocates it: measured by the kernel, in a forked child.

The child resets its own high-water mark (/proc/self/clear_refs), so that what the parent has in memory does not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tablecrypt.errors import TablecryptError
from tests.support.forking import fork_to, wait_for

_RESET_PEAK: Final = "5"
_STATUS: Final = Path("/proc/self/status")


@dataclass(frozen=True)
class Outcome:
    """What a call came to: what it raised, or None, and whether that is an error of tablecrypt's; and the bytes it took at its peak."""

    error: str | None
    is_ours: bool
    peak: int


def measured(call: Callable[[], Any], scratch: Path, seconds: int = 120) -> Outcome:
    """Make a call in a child process. It must have been imported already."""

    def run() -> bool:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
        before, error, is_ours = _memory("VmRSS"), None, False
        try:
            call()
        except Exception as raised:  # noqa: BLE001  which it was is what is told
            error, is_ours = f"{type(raised).__name__}: {str(raised)[:500]}", isinstance(raised, TablecryptError)
        scratch.write_text(json.dumps([error, is_ours, _memory("VmHWM") - before]))
        return True

    code = wait_for(fork_to(run, seconds))
    assert code == 0, f"the child ended with {code}"
    return Outcome(*json.loads(scratch.read_text()))


def _memory(name: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    line = next(each for each in _STATUS.read_text().splitlines() if each.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
