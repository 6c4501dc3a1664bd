"""Proof that a table holds no row of a filter any more: everything that is stored for it is searched, or said not to have been.

what a key of the table opens       searched as search.py says
metadata files                      read
statistics files                    of any kind, by other engines: not searched, unless they are ciphertext
journals of other operations        may name files with such rows: not searched
other files below its folders       ciphertext that no key of the table opens; all else among them was not searched
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DataFileContent
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.files.deletion import place_of
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES, operation_of_journal
from tablecrypt.files.stores import StoredFile, stored_files
from tablecrypt.keys.nested_columns import name_or_id
from tablecrypt.maintenance._audit.file_signatures import FileStart, Signature, read_file_starts
from tablecrypt.maintenance._audit.observed import Folder, are_checksums
from tablecrypt.maintenance._shred import outside
from tablecrypt.maintenance._shred_scrub import content_of
from tablecrypt.maintenance._storage import object_versions
from tablecrypt.maintenance.erasure.plan import Searching
from tablecrypt.maintenance.erasure.result import RUN_AGAIN, HiddenColumn, Searched, TableState
from tablecrypt.maintenance.erasure.search import Holds
from tablecrypt.maintenance.reachable import reachable_files
from tablecrypt.printable import counted as counted_text
from tablecrypt.table._pyiceberg.statistics import statistics_locations
from tablecrypt.table.protection.policy import policy_of
from tablecrypt.table.shares import readably_named
from tablecrypt.table.table import EncryptedTable

_OPENING: Final = b"{"
PARTITION_SUMMARY: Final = b'"partitions.'
"""Begins what a snapshot's summary says of a partition: its values stand in metadata files in the clear."""


@dataclass(frozen=True)
class Proof:
    """What a search at the end found.

    Attributes:
        searched: what was read.
        remaining: for each file in which something of such rows is, what it is.
        not_searched: for each file that could not be searched, why.
    """

    searched: Searched
    remaining: dict[str, str]
    not_searched: dict[str, str]

    @classmethod
    def of(cls, searching: Searching) -> Proof:
        """Say what a search found, and look for files that no metadata names."""
        named, findings = searching.named, searching.findings
        unnamed = _Unnamed.of(searching)
        files = {location: each.file for location, each in named.files.items() if location in findings.inspected}
        # A missing file was not decrypted, so it does not count as searched.
        stored = {location: file for location, file in files.items() if findings.inspected[location].holds != Holds.MISSING}
        deletes = [location for location, file in stored.items() if file.content != 0]
        searched = Searched(
            snapshots=len(named.manifests),
            data_files=len(stored) - len(deletes),
            delete_files=len(deletes),
            rows=sum(findings.inspected[location].rows for location in stored),
            bytes=sum(int(file.file_size_in_bytes) for file in stored.values()),
            manifests=len(named.entries),
            metadata_files=1 + len(searching.older.keks),
            other_files=unnamed.sealed,
        )
        not_searched = {**named.unread, **findings.unread, **dict(_undecided(searching)), **dict(_unread_metadata(searching))}

        return cls(searched, _remaining(searching), {**not_searched, **unnamed.not_searched})


def _remaining(searching: Searching) -> dict[str, str]:
    found: dict[str, str] = {}
    for location, inspected in searching.findings.inspected.items():
        if inspected.holds == Holds.ROWS:
            what = "rows" if searching.named.files[location].file.content == 0 else "values of a delete file"
            found[location] = f"{counted_text(inspected.matching, 'row', 'rows') if what == 'rows' else what}: {RUN_AGAIN}"
        elif inspected.holds == Holds.BOUNDS:
            found[location] = f"a manifest has bounds of it that none of its rows has: {RUN_AGAIN}"
        elif inspected.holds == Holds.DICTIONARIES:
            found[location] = f"dictionaries of its writer with values that none of its rows has: {RUN_AGAIN}"
        elif inspected.holds == Holds.BLANKED:
            found[location] = f"values of protected columns, of rows that are blanked: {RUN_AGAIN}"
        elif inspected.holds == Holds.MISSING:
            found[location] = f"is not stored any more, but a manifest holds its key and the bounds of its columns: {RUN_AGAIN}"

    for snapshot_id in searching.named.out_of_reach:
        found[searching.named.lists[snapshot_id]] = f"of an expired snapshot whose keys are still there: {RUN_AGAIN}"
    return found


def hidden_columns(searching: Searching) -> tuple[HiddenColumn, ...]:
    """Return the protected columns of which ciphertext of erased rows stays, because the caller may not read them all."""
    blanked = searching.findings.holding(Holds.HIDDEN)
    if not blanked:
        return ()

    table, rows = searching.table, dict.fromkeys(blanked, 0)

    for name in table.metadata.refs:
        for task in table.scan(options={"include_empty_files": "true"}).use_ref(name).plan_files():
            location, hidden = task.file.file_path, sum(int(file.record_count) for file in task.delete_files)
            # A file counts once, however many branches have it.
            if location in rows:
                rows[location] = max(rows[location], hidden)

    columns = policy_of(table.metadata).columns
    names = {field_id: name_or_id(table.schema(), field_id) for field_id in columns}

    return tuple(
        HiddenColumn(names[field_id], field_id, column.column_key_id, len(rows), sum(rows.values())) for field_id, column in columns.items()
    )


def _undecided(searching: Searching) -> Iterator[tuple[str, str]]:
    for location in searching.findings.holding(Holds.UNDECIDED):
        if searching.named.files[location].file.content == DataFileContent.DATA:
            yield (
                location,
                "its writer had dictionaries (categories), which may hold values of any row: the same erasure by whoever may read all of "
                "its columns ends it",
            )
            continue
        yield (
            location,
            "deletes rows by columns that the filter does not compare, so its values cannot be told apart: compact(apply_deletes=True) "
            "and shred end it",
        )


def _unread_metadata(searching: Searching) -> Iterator[tuple[str, str]]:
    """Yield metadata files that cannot be read. Half of one, of a commit that was killed, is searched for partition values."""
    io = searching.table.io
    for location, unread in searching.older.unread.items():
        # A file that no log names may be half of a commit on its way: it is reported only if it shows partition values.
        if unread.problem and (unread.is_logged or not _shows_nothing(content_of(io, location))):
            yield (
                location,
                f"a metadata file that cannot be read: {unread.problem}. If no commit is under way, remove_orphan_files deletes it",
            )


def _shows_nothing(content: bytes) -> bool:
    """Whether bytes are the first half of a metadata file, and name no partition."""
    # By its name alone any file is metadata, and rows that somebody has put there must not count as searched.
    if not content.startswith(_OPENING):
        return not content
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return PARTITION_SUMMARY not in content
    # Nothing is missing of it, and still it is no metadata.
    return False


@dataclass
class _Unnamed:
    """Files below the table's folders that no metadata names, and statistics, which nothing here reads."""

    sealed: int
    not_searched: dict[str, str]

    @classmethod
    def of(cls, searching: Searching) -> _Unnamed:
        metadata, named, io = searching.table.metadata, searching.named, searching.table.io
        known = {searching.table.metadata_location, *searching.older.keks, *searching.older.unread}
        known |= {record.location for record in readably_named(metadata).values()}
        known |= {*named.files, *named.entries, *named.lists.values()}
        listed = Folder()
        for folder in io.own_folders.folders:
            listed.files.update({place_of(file.location): file for file in stored_files(io.inner, folder.rstrip("/"))})
        statistics, found = statistics_locations(metadata), cls(0, {})
        unknown = listed.unknown({*known, *statistics})
        starts = read_file_starts(io.inner, (*statistics, *(file.location for file in unknown)), io.own_folders)
        for location in dict.fromkeys(statistics):
            found._add_statistics(location, starts[location])
        for file in unknown:
            found._add(file, starts[file.location], listed)
        return found

    def _add_statistics(self, location: str, start: FileStart) -> None:
        # Metadata names them, and whatever it names so may be anything: sketches of values, partitions, or the rows themselves.
        if start.signature.is_ciphertext:
            self.sealed += 1
        elif start.signature not in (Signature.MISSING, Signature.EMPTY):
            self.not_searched[location] = (
                f"a statistics file that another engine wrote, and that {start.shown}: expire its snapshot, or take it out of the table "
                "with that engine, and delete it"
            )

    def _add(self, file: StoredFile, start: FileStart, listed: Folder) -> None:
        location, signature = file.location, start.signature
        if operation_of_journal(location) is not None:
            # Before the signatures: entries of a journal are ciphertext that a key of the table still opens.
            self.not_searched[location] = "part of the journal of an unfinished operation: finish it by calling it again, then erase again"
        elif location.endswith(TABLE_METADATA_SUFFIXES):
            self.not_searched[location] = "a metadata file that is not this table's"
        elif signature == Signature.PLAINTEXT:
            self.not_searched[location] = "a plaintext file that no snapshot names: remove_orphan_files deletes it"
        elif signature.is_ciphertext:
            # The DEK of such a file was in a manifest alone. No manifest that opens names the file, so no key of the table opens it.
            self.sealed += 1
        elif signature in (Signature.UNKNOWN, Signature.UNREADABLE) or (
            signature == Signature.CHECKSUMS and not are_checksums(file, listed)
        ):
            # The magic of checksums proves nothing: without the name and length of a neighbour's checksums the file may hold rows.
            self.not_searched[location] = (
                f"a file that no snapshot names, and that {start.shown}: look whether it holds such rows, and delete or move it"
            )


def state_of(table: EncryptedTable) -> TableState:
    """Return the hashes of a table's metadata file and of the list of its files.

    Raises:
        TamperedFileError, FormatError, OSError, …: a manifest list or manifest does not open, so that the list would be another.
    """
    # The stored bytes and not the parsed metadata: anyone can compare the hash with that of the file.
    with table.io.inner.new_input(table.metadata_location).open() as stream:
        metadata = hashlib.sha256(stream.read()).hexdigest()
    reachable = reachable_files(table.metadata, table.io)
    # It opened when it was searched. A hash of fewer files than there are would vouch for a state that there never was.
    for each in reachable.unopened:
        raise each.error
    locations = sorted(reachable.files)
    names = hashlib.sha256("".join(f"{location}\n" for location in locations).encode()).hexdigest()
    return TableState(table.metadata_location, metadata, len(locations), names)


def unreachable(table: EncryptedTable, field_ids: Iterable[int]) -> tuple[str, ...]:
    """Say which rows and copies of erased rows an erasure does not reach, and what ends them.

    Args:
        table: as it is now.
        field_ids: the columns that the filter compares.
    """
    return (
        *_earlier_columns(table.metadata, field_ids),
        *outside(table),
        _versions(table),
        "A writer that began before the erasure and commits after it may bring such rows back: run the erasure again when it has ended.",
    )


def _earlier_columns(metadata: TableMetadata, field_ids: Iterable[int]) -> Iterator[str]:
    """Say of the columns that a filter compares which others had their names before: it means those that have them now."""
    current = metadata.schema()
    for field_id in sorted(field_ids):
        name = current.find_column_name(field_id)
        had = {each for schema in metadata.schemas for each in schema.field_ids if schema.find_column_name(each) == name}
        for other in sorted(had - {field_id}):
            now = current.find_column_name(other)
            ends = f"is {now!r} now: erase by that name too" if now else "was dropped: compact(rewrite_all=True) and shred end its values"
            yield (
                f"Rows that match by another column which had the name {name!r} before (field id {other}, not {field_id}): "
                f"that column {ends}."
            )


def _versions(table: EncryptedTable) -> str:
    folder = table.location().rstrip("/")
    try:
        found = [each for each in object_versions(table.io.inner, folder) if not each.location.endswith((*TABLE_METADATA_SUFFIXES, "/"))]
    except Exception as error:  # noqa: BLE001  every store has errors of its own; the search is done all the same
        return f"Whether the store keeps older versions of files below {folder} is not known: {type(error).__name__}"

    if found:
        return (
            f"The bucket keeps {len(found)} older versions of data files, delete files and manifests below {folder}: "
            "their keys are gone from the table; delete those versions too."
        )

    return f"No older version of a data file, delete file or manifest below {folder} is known; copies that others made are not known here."
