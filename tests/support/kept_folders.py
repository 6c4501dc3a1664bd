"""What tests fetch from a package registry the first time, kept in the user's cache folder under a name with its version."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

_CACHE: Final = Path.home() / ".cache" / "tablecrypt-tests"
_ATTEMPTS: Final = 3
"""A connection that breaks is no failed test. What has come stays, in the cache of Ivy, npm or Go."""


def kept_folder(name: str, fetching: Callable[[Path], list[str]]) -> Path:
    """Return the cache's folder `name`. The first time a command fetches what is in it, into a folder that it is given."""
    folder = _CACHE / name
    if not folder.is_dir():
        _fetch(folder, fetching)
    return folder


def shared_cache(name: str) -> Path:
    """The cache's folder `name`, for a tool that keeps there what it may use again, and that copes with others in it."""
    return _CACHE / name


def _fetch(folder: Path, fetching: Callable[[Path], list[str]]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fetched = Path(scratch) / "fetched"
        for _ in range(_ATTEMPTS):
            run = subprocess.run(fetching(fetched), capture_output=True, text=True, check=False)
            if run.returncode == 0:
                break
        else:
            raise RuntimeError(f"{folder.name} could not be fetched:\n{(run.stdout + run.stderr)[-4000:]}")
        try:
            fetched.rename(folder)
        except OSError:
            # Another process was faster: its folder is complete, since it came here by a rename too.
            if not folder.is_dir():
                raise
