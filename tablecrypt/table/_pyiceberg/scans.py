"""Scans of PyIceberg whose range of snapshots is worked out by PyIceberg and whose files are planned and read here.

IncrementalAppendScan: _validate_and_resolve_snapshots     which appends lie between two snapshots
"""

from __future__ import annotations

from pyiceberg.table import IncrementalAppendScan

__all__ = ["IncrementalAppendScanSeam"]


class IncrementalAppendScanSeam(IncrementalAppendScan):
    """An incremental scan whose resolved range has a public name."""

    def snapshot_range(self) -> tuple[int | None, int]:
        """Return the snapshot before the first (None: from the oldest on) and the last one.

        Raises:
            ValueError: a bound is not a snapshot of the table, or not an ancestor of the other.
        """
        return self._validate_and_resolve_snapshots()
