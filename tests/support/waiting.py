"""Waiting for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], otherwise: str = "it did not happen", patience_s: float = 120) -> None:
    """Look again and again whether it holds; raise TimeoutError with the text `otherwise` when patience ends."""
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} in {patience_s:.0f} s")
        time.sleep(0.02)
