"""What an erasure did, and what it can prove: facts for a certificate. No value of an erased row is in it, nor of the filter."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import quote_plus

from pyiceberg.partitioning import PartitionSpec

from tablecrypt.maintenance.operation import OperationResult

RUN_AGAIN = "run the same erasure again"


@dataclass(frozen=True)
class ErasedRef:
    """What an erasure did on one branch or tag; in a dry run, what it would do.

    Attributes:
        name: of the branch or tag.
        kind: "branch" or "tag".
        rows: rows that matched the filter and could be read there.
        hidden_rows: rows that matched it and that deletes hid already, in files that were still stored.
        rewritten_files: data files that held such rows, or that delete files with such values applied to, and that were replaced.
        rewritten_bytes: their stored bytes.
        snapshot_before: id of the snapshot that it pointed to.
        snapshot_after: id of the snapshot that it points to now; the same one where nothing had to change. A tag moves to a snapshot of
            the same rows without the erased ones.
    """

    name: str
    kind: str
    rows: int
    hidden_rows: int
    rewritten_files: int
    rewritten_bytes: int
    snapshot_before: int
    snapshot_after: int


@dataclass(frozen=True)
class TableState:
    """A table at one moment.

    Attributes:
        metadata_location: of its current metadata file.
        metadata_sha256: SHA-256 of that file's bytes, in hexadecimal digits.
        files: how many manifest lists, manifests, data and delete files its snapshots lead to.
        files_sha256: SHA-256 of their locations, sorted, each followed by a line feed, in UTF-8.
    """

    metadata_location: str
    metadata_sha256: str
    files: int
    files_sha256: str


class PartitionValues:
    """Takes the values of partitions out of locations and messages: ".../customer_id=7/00000-….parquet" is ".../customer_id=?/…".

    Args:
        specs: how the table is and was partitioned.
    """

    def __init__(self, specs: Iterable[PartitionSpec]) -> None:
        # PyIceberg quotes the names of partition fields in paths.
        names = {name for spec in specs for each in spec.fields for name in (each.name, quote_plus(each.name))}
        self._folder = re.compile(rf"/({'|'.join(map(re.escape, sorted(names)))})=[^/]*(?=/)") if names else None

    def of(self, text: str) -> str:
        """Return a location or message without them."""
        return text if self._folder is None else self._folder.sub(r"/\1=?", text)

    def of_all(self, reasons: Mapping[str, str]) -> dict[str, str]:
        """Return reasons by location without them."""
        return {self.of(location): self.of(reason) for location, reason in reasons.items()}


@dataclass(frozen=True)
class Searched:
    """What was read at the end, to prove that nothing holds the rows any more.

    Attributes:
        snapshots: how many snapshots, expired ones that older metadata files still lead to among them.
        data_files, delete_files: how many were decrypted, and every row or value in them compared with the filter, deleted rows too.
        rows: how many rows these were.
        bytes: stored bytes of these files.
        manifests: how many manifests, entries of deleted files among theirs.
        metadata_files: how many metadata files.
        other_files: files below the table's folders that no metadata leads to and no key of the table opens.
    """

    snapshots: int = 0
    data_files: int = 0
    delete_files: int = 0
    rows: int = 0
    bytes: int = 0
    manifests: int = 0
    metadata_files: int = 0
    other_files: int = 0


@dataclass(frozen=True)
class HiddenColumn:
    """A protected column whose values of the erased rows stay as ciphertext, because the caller may not use its key.

    Attributes:
        column: its name.
        field_id: its field id.
        master_key_id: the master key above the values.
        files, rows: how many data files hold such values, and of how many rows.
    """

    column: str
    field_id: int
    master_key_id: str
    files: int
    rows: int


@dataclass(frozen=True)
class Erased(OperationResult):
    """What `erase` did, what it found afterwards, and what it cannot reach.

    Attributes:
        table_uuid: of the table.
        time: when it ended, in UTC.
        shape: the filter without its values: columns and operators, "customer_id = ?".
        columns: names of the columns that the filter compares.
        refs: branches and tags that held such rows.
        snapshots: ids of the snapshots that went because something in them, or in their manifests, was of such rows.
        retired_keks: key-ids of the KEKs that are gone with them.
        deleted: files that were deleted, or in a dry run would be: data and delete files, manifests, lists, metadata files. Here and below,
            folders that are named for the value of a partition are shown as "customer_id=?".
        deleted_bytes: stored bytes of those whose length is known.
        metadata_rewritten: older metadata files that were written over without keys.
        before, after: the table before and after; the same in a dry run.
        searched: what was read at the end.
        remaining: for each file in which something of such rows was found at the end, what it is.
        not_searched: for each file that could not be searched, why.
        refused: files that were to be deleted or written over and were not, because they need not be the table's; with the reason.
        failed: files that could not be deleted or written over, with what the store said.
        hidden_columns: protected columns of which ciphertext of erased rows stays, under a key that the caller may not use.
        outside: copies that it cannot reach, and what ends them.
    """

    also_says: ClassVar = {"complete": "is_complete"}
    table_uuid: str
    time: dt.datetime
    shape: str
    columns: tuple[str, ...]
    before: TableState
    after: TableState
    refs: tuple[ErasedRef, ...] = ()
    snapshots: tuple[int, ...] = ()
    retired_keks: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    deleted_bytes: int = 0
    metadata_rewritten: tuple[str, ...] = ()
    searched: Searched = field(default_factory=Searched)
    remaining: dict[str, str] = field(default_factory=dict)
    not_searched: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    hidden_columns: tuple[HiddenColumn, ...] = ()
    outside: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether everything was searched and nothing of such rows was found. A dry run is not complete where there is something to do."""
        # Refused and failed files count too: their bytes are stored, whether or not a branch leads to them.
        return not (self.remaining or self.not_searched or self.refused or self.failed or self.hidden_columns)

    @property
    def found_nothing(self) -> bool:
        """Whether no file held such rows before, so that nothing was changed."""
        return not (self.refs or self.snapshots or self.remaining or self.hidden_columns)

    @property
    def rows(self) -> int:
        """Rows of all branches and tags that could be read; one that several share counts on each."""
        return sum(ref.rows for ref in self.refs)
