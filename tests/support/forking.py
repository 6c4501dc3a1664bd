"""Runs a check in a forked child, so that what must survive a fork can be tested. A child that hangs is ended, and counts as failed."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

CHILD_SECONDS = 20


def holds_in_forked_child(check: Callable[[], bool]) -> bool:
    """Fork now; True when `check()` returned True in the child."""
    return wait_for(fork_to(check)) == 0


def fork_to(check: Callable[[], bool], seconds: int = CHILD_SECONDS) -> int:
    """Fork now; return the child's process id. The child ends with 0 when `check()` returned True, else with 1."""
    child = os.fork()
    if child == 0:
        # The alarm's default action ends the process even where a lock is waited for.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        code = 1
        try:
            code = 0 if check() else 1
        except BaseException:  # noqa: BLE001 - a child of pytest must not run pytest's own teardown
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def wait_for(child: int) -> int:
    """Wait until a child has ended; its exit code, or minus the signal that ended it."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
