"""How severe a finding is."""

from __future__ import annotations

from enum import IntEnum


class Severity(IntEnum):
    """How severe a finding is; a greater value is more severe."""

    INFO = 1
    """Good to know."""
    WARNING = 2
    """Act in the coming weeks."""
    ERROR = 3
    """Something cannot be read, or is not what it should be."""
    CRITICAL = 4
    """Rows can be read, or may be readable, by users from whom they should be hidden."""

    @property
    def label(self) -> str:
        """The name in lower case."""
        return self.name.lower()
