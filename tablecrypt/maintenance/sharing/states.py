"""The states of a share that are stored: each a metadata.json, and the files that its generation's uuid names.

    metadata/00007-<generation>.metadata.json      data/<generation>-deletes.puffin, data/…/00000-0-<generation>.parquet
    metadata/<generation>-m0.avro                  metadata/snap-<id>-0-<generation>.avro
    metadata/_tablecrypt-shares/<uuid>.entries     the mark, which is empty: there while a share ends

A partner who writes to his table writes into the same folder. A generation is one of a share's if its metadata.json names a manifest list
of the same generation, which other writers' do not. Once nobody's metadata.json is left, nothing reads what else is named like such files.

Where a share is, its record says, and whoever has the table's key can write a record. So nothing is deleted in a folder of the table that
shares, or around it; in one that holds another table; below one that a table's metadata in it tells to be another's; and in one that has
neither metadata of the share nor its mark. The mark's name comes from the share's uuid and its place: no other file has it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.deletion import SHARE_RECORDS, is_beyond_a_link, is_link, place_of
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.files.stores import stored_files
from tablecrypt.maintenance._relocate_files import PathMap
from tablecrypt.table.metadata import EncryptedTableMetadata, read_metadata_file
from tablecrypt.table.other_tables import metadata_files_at
from tablecrypt.table.table_files import TableFileIO, folders_of

SHARED_AT: Final = "tablecrypt.shared-at-ms"
"""A property: when the state was written. The manifest list authenticates it, so that an older state is told from a newer one."""
_NAMESPACE: Final = uuid.UUID("b4f5c1b0-6f2d-5c39-8a7e-2d1f0c9e7a55")
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MOST: Final = 10**15 - 1
"""Of the numbers that names of metadata files have."""
_MOMENT: Final = re.compile("[0-9]{1,15}")
_METADATA: Final = re.compile(rf".*/metadata/(?P<number>[0-9]{{5,15}})-(?P<generation>{_UUID})\.metadata\.json")
_NAMED: Final = r"metadata/(?:snap-[0-9]+-[0-9]+-)?|data/(?:[^/=]+=[^/]*/)*(?:[0-9]+-[0-9]+-)?"
_OTHERS: Final = re.compile(rf"(?:{_NAMED})(?P<generation>{_UUID})[^/]*\.(?:avro|puffin|parquet)")


def check_place(metadata: EncryptedTableMetadata, location: str) -> None:
    """Refuse a place for a share, without a slash at the end, that is none, or lies in the folders of the table that shares or around them.

    Raises:
        ConfigurationError: it is such a place.
    """
    PathMap(metadata.location.rstrip("/"), location)
    # Files of a share in a folder to which the table writes would be orphans of the table.
    if folders_of(metadata).contains(location):
        raise ConfigurationError(f"a share cannot lie in a folder to which the table writes: {location}")


@dataclass(frozen=True, order=True)
class _State:
    """A state that sharing wrote: its number, where its metadata.json is, its generation, and when it was written."""

    number: int
    location: str
    generation: str
    written_ms: int


@dataclass(frozen=True)
class States:
    """What is stored at a share's location.

    Attributes:
        io: the share's.
        location: its folder.
        tables: the table-uuid in each metadata file there.
        unread: what is named as a metadata file there, and cannot be read.
    """

    io: TableFileIO
    location: str
    tables: Mapping[str, uuid.UUID]
    unread: frozenset[str] = frozenset()

    @classmethod
    def at(cls, io: TableFileIO, location: str) -> States:
        """Look what is there."""
        files = dict(metadata_files_at(io.inner, location))
        tables = {file: table_uuid for file, table_uuid in files.items() if table_uuid is not None}
        return cls(io, location, tables, frozenset(files.keys() - tables.keys()))

    def without_linked(self, share_uuid: str) -> States:
        """Return this without other tables that are not here: links that a partner has put here lead to their metadata."""
        here = {
            location: table_uuid
            for location, table_uuid in self.tables.items()
            if str(table_uuid) == share_uuid or not (is_link(location) or is_beyond_a_link(self.location, location))
        }
        return replace(self, tables=here)

    def mark(self, share_uuid: str) -> None:
        """Say in the folder that it is the share's, by a file that holds nothing and that nobody opens."""
        for location in self.mark_of(share_uuid):
            with suppress(FileExistsError), self.io.new_encrypted_output(location).create():
                pass

    def remove_mark(self, share_uuid: str) -> None:
        """Take away what `mark` made, once nothing of the share is left."""
        for location in self.mark_of(share_uuid):
            with suppress(FileNotFoundError):
                self.io.delete(location)

    def mark_of(self, share_uuid: str) -> tuple[str, ...]:
        """Return where the mark of a share is; nothing where a link of the partner's leads elsewhere."""
        location = f"{self.location}/metadata/{SHARE_RECORDS}/{uuid.uuid5(_NAMESPACE, f'{share_uuid} {self.location}')}.entries"
        return () if is_beyond_a_link(self.location, location) else (location,)

    def is_of(self, share_uuid: str) -> bool:
        """Whether the folder has metadata of this share, or its mark."""
        marks = (self.io.inner.new_input(location) for location in self.mark_of(share_uuid))
        return share_uuid in map(str, self.tables.values()) or any(mark.exists() for mark in marks)

    @property
    def next_number(self) -> int:
        """The number of the next metadata file. ConfigurationError where there is none."""
        # Of sharing's own files alone: who writes here could give another one a number that no name has room for.
        last = self._own[-1] if self._own else None
        if last is None:
            return 0
        if last.number == _MOST:
            raise ConfigurationError(f"{last.location} has the highest number that there is: move it away, or share at another location")
        return last.number + 1

    @property
    def newest_ms(self) -> int | None:
        """When the newest state that is here was written, as it says; None where there is none."""
        return max((state.written_ms for state in self._own), default=None)

    def has(self, metadata_location: str) -> bool:
        """Whether a metadata file is there and whole."""
        return place_of(metadata_location) in {place_of(location) for location in self.tables}

    def own_files(self, metadata_location: str) -> list[str]:
        """Return all files that sharing wrote here, each metadata.json before what it names.

        Args:
            metadata_location: of the state that is remembered, which counts as the share's even where its metadata.json is gone.
        """
        remembered = _METADATA.fullmatch(metadata_location)
        own = {state.location: state.generation for state in self._own}
        generations = {*own.values(), *((remembered["generation"],) if remembered else ())}
        others = self.others()
        is_abandoned = own.keys() == self.tables.keys() and not self._may_be_committed_to(others)
        others_of_own = (location for location, generation in others.items() if is_abandoned or generation in generations)
        return [*sorted(own), *sorted(others_of_own)]

    def others(self) -> dict[str, str]:
        """List what is named like files of states beside their metadata.json, whosever it is: by location, the generation."""
        # What lies behind a link is not in this folder: nothing of it is the share's.
        listed = (file.location for file in stored_files(self.io.inner, self.location))
        stored = [location for location in listed if not is_beyond_a_link(self.location, location)]
        of_others = self._tables_below(stored)
        found = {location: _OTHERS.fullmatch(location.removeprefix(f"{self.location}/")) for location in stored}
        return {
            location: match["generation"] for location, match in found.items() if match is not None and not location.startswith(of_others)
        }

    def _tables_below(self, stored: Iterable[str]) -> tuple[str, ...]:
        """Return the folders of tables inside the share's folder, by where metadata files lie."""
        folders = (location.rpartition("/")[0] for location in stored if location.endswith(TABLE_METADATA_SUFFIXES))
        return tuple({f"{folder.removesuffix('/metadata')}/" for folder in folders} - {f"{self.location}/"})

    def remove_all_but_the_last(self) -> bool:
        """Delete all states that were there but the last one: readers may be at it who have not registered the next.

        Nothing goes where somebody else has written: a partner's commit leads to what he found. Then it is False.
        """
        if len(self._own) < len(self.tables):
            return False

        replaced = self._own[:-1]
        # Whoever writes here can name a state as the files of another table in this folder, or behind a link, are named.
        others = self.others() if replaced else {}
        if replaced and self._may_be_committed_to(others):
            return False
        for state in replaced:
            for other in (each for each, generation in others.items() if generation == state.generation):
                self.io.delete(other)
            # Last: a run that was killed here finds by it what is left to delete.
            self.io.delete(state.location)
        return True

    def _may_be_committed_to(self, others: Mapping[str, str]) -> bool:
        """Whether a metadata file that cannot be read may be a commit of somebody else's: a store that cuts one answer ends no commit.

        Half of one of sharing's own, of a run that was killed, has its generation's manifest list beside it.
        """
        of_lists = {generation for location, generation in others.items() if "/metadata/snap-" in location}
        found = map(_METADATA.fullmatch, self.unread)
        return any(each is None or each["generation"] not in of_lists for each in found)

    @cached_property
    def _own(self) -> tuple[_State, ...]:
        """The states here that sharing wrote, the last one last."""
        return tuple(sorted(self._own_states()))

    def _own_states(self) -> Iterator[_State]:
        for location in self.tables:
            found = _METADATA.fullmatch(location)
            try:
                metadata = read_metadata_file(self.io.raw_input(location)).parse()
            except (FileNotFoundError, FormatError):
                continue
            snapshot, moment = metadata.current_snapshot(), metadata.properties.get(SHARED_AT, "")
            if found is not None and snapshot is not None and snapshot.manifest_list.endswith(f"-{found['generation']}.avro"):
                written_ms = int(moment) if _MOMENT.fullmatch(moment) else 0
                yield _State(int(found["number"]), location, found["generation"], written_ms)
