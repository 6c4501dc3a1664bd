"""What the planner knows of one call that copies rows, from its arguments to its result (statements/add_files.py, spark_tables.py).

the call           ─▶ a copy, whose handle the write has as its option
list_source_files  the files that the rows are of
begin_write        ─▶ refuses files that the table remembers, before a row is written
commit_write       ─▶ counts, then commits rows and files; refuses files that others have copied meanwhile
copied_rows        ─▶ the counts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile

from tablecrypt.errors import ConfigurationError
from tablecrypt.manifests.copied_files import CopiedFiles
from tablecrypt.manifests.records import partition_values


@dataclass
class Copy:
    """One call of a procedure that copies rows.

    Attributes:
        source: what is copied, as the call names it.
        is_checked: whether files that the table has rows of are refused.
        files: the known ones of the source's files.
        procedure: add_files, snapshot or migrate.
        has_other_rows: whether some rows are of no file.
        added_files: how many files the rows come from; where none is known, how many they were written to.
        changed_partitions: how many of the table's partitions the rows fall into.
    """

    source: str
    is_checked: bool
    files: CopiedFiles
    procedure: str
    has_other_rows: bool = False
    added_files: int = 0
    changed_partitions: int = 0

    def take(self, locations: Sequence[str]) -> None:
        """Take the locations of the files that the rows are of; an empty one where some are of none.

        Raises:
            ConfigurationError: some are of no file, so a second call could not recognize them, and the call asks for that check.
        """
        self.has_other_rows = "" in locations
        if self.has_other_rows and self.is_checked:
            raise ConfigurationError(
                f"{self.source} has rows that come from no files, so a second call could not be refused: "
                "check_duplicate_files => false adds them without a check"
            )

        self.files = CopiedFiles.of([each for each in locations if each], self.is_checked)

    def count(self, written: Sequence[DataFile]) -> None:
        """Count what a commit of these files will have done: before it, so that no error can come after it."""
        self.added_files = len(written) if self.has_other_rows else len(self.files.locations)
        self.changed_partitions = len({(file.spec_id, *partition_values(file.partition)) for file in written})
