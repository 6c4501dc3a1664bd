"""What verifying a table came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tablecrypt.maintenance.reachable import FileKind
from tablecrypt.maintenance.verify.problems import Problem


@dataclass(frozen=True)
class BadFile:
    """A file that is not what its writer left, with every part of it that failed."""

    location: str
    kind: FileKind
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Verification:
    """What was verified.

    Attributes:
        table: the table's name.
        full: whether every byte was, or heads, lengths and footers alone.
        snapshots: how many snapshots the metadata has.
        files: how many files they lead to.
        resumed: how many of these the interrupted run had verified.
        bytes: length of all files that were looked at now.
        parts: blocks and modules that authenticated, those of the interrupted run included.
        bad: every file that failed.
    """

    table: str
    full: bool
    snapshots: int
    files: int
    resumed: int
    bytes: int
    parts: int
    bad: tuple[BadFile, ...]

    @property
    def is_good(self) -> bool:
        """Whether everything authenticated. Of a table without files nothing did: see `is_empty`."""
        return not self.bad

    @property
    def is_empty(self) -> bool:
        """Whether there was no file to verify."""
        return self.files == 0

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON's types."""
        bad = [
            {"location": file.location, "kind": file.kind.value, "problems": [vars(problem) for problem in file.problems]}
            for file in self.bad
        ]
        counts = {name: value for name, value in vars(self).items() if name != "bad"}
        return {**counts, "good": self.is_good, "empty": self.is_empty, "bad": bad}
