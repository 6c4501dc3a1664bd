"""Processes of this machine, as /proc tells of them."""

from __future__ import annotations

from pathlib import Path


def parent_of(process: int) -> int | None:
    """The process that started it; None for one that is gone."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def command_line(process: int) -> bytes:
    """Its command and arguments, a NUL after each; empty for one that is gone: Spark's workers come and go."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def every_process() -> list[int]:
    """All there are."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def with_descendants(process: int) -> list[int]:
    """The process and all that come from it."""
    parents = {each: parent_of(each) for each in every_process()}
    found = {process}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)
