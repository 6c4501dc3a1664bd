"""The states of a share that are stored: each a metadata.json, and the files that its generation's uuid names.

    metadata/00007-<generation>.metadata.json      data/<generation>-deletes.puffin, data/…/00000-0-<generation>.parquet
    metadata/<generation>-m0.avro                  metadata/snap-<id>-0-<generation>.avro

A partner who writes to his table writes into the same folder. A generation is one of a share's if its metadata.json names a manifest list
of the same generation, which other writers' do not. Once nobody's metadata.json is left, nothing reads what else is named like such files.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tablecrypt.errors import FormatError
from tablecrypt.maintenance._storage import canonical, stored_files, tables_at
from tablecrypt.table.metadata import read_metadata_file
from tablecrypt.table.table_files import TableFileIO

_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_METADATA: Final = re.compile(rf".*/metadata/(?P<number>[0-9]{{5,}})-(?P<generation>{_UUID})\.metadata\.json")
_NAMED: Final = r"metadata/(?:snap-[0-9]+-[0-9]+-)?|data/(?:.+/)?(?:[0-9]+-[0-9]+-)?"
_OTHERS: Final = re.compile(rf"(?:{_NAMED})(?P<generation>{_UUID})[^/]*\.(?:avro|puffin|parquet)")


@dataclass(frozen=True)
class States:
    """What is stored at a share's location.

    Attributes:
        io: the share's.
        location: its folder.
        tables: the table-uuid in each metadata file there.
    """

    io: TableFileIO
    location: str
    tables: Mapping[str, uuid.UUID]

    @classmethod
    def at(cls, io: TableFileIO, location: str) -> States:
        """Look what is there."""
        return cls(io, location, dict(tables_at(io.inner, location)))

    @property
    def next_number(self) -> int:
        """The number of the next metadata file."""
        return 1 + max((int(found["number"]) for found in map(_METADATA.fullmatch, self.tables) if found), default=-1)

    def has(self, metadata_location: str) -> bool:
        """Whether a metadata file is there and whole."""
        return canonical(metadata_location) in {canonical(location) for location in self.tables}

    def own_files(self, metadata_location: str) -> list[str]:
        """Return all files that sharing wrote here, each metadata.json before what it names.

        Args:
            metadata_location: of the state that is remembered, which counts as the share's even where its metadata.json is gone.
        """
        remembered = _METADATA.fullmatch(metadata_location)
        own = {location: found["generation"] for location in self.tables if (found := self._own(location))}
        generations = {*own.values(), *((remembered["generation"],) if remembered else ())}
        is_abandoned = own.keys() == self.tables.keys()

        others = []
        for file in stored_files(self.io.inner, self.location):
            found = _OTHERS.fullmatch(file.location.removeprefix(f"{self.location}/"))
            if found is not None and (is_abandoned or found["generation"] in generations):
                others.append(file.location)

        return [*sorted(own), *sorted(others)]

    def remove_all_but_the_last(self) -> None:
        """Delete all states that were there but the last one: readers may be at it who have not registered the next.

        Nothing goes where somebody else has written: a partner's commit leads to what he found.
        """
        own = sorted((int(found["number"]), location, found["generation"]) for location in self.tables if (found := self._own(location)))
        if len(own) < len(self.tables):
            return

        for _, location, generation in own[:-1]:
            for file in [*stored_files(self.io.inner, self.location)]:
                if generation in file.location.rpartition("/")[2] and canonical(file.location) != canonical(location):
                    self.io.delete(file.location)
            # Last: a run that was killed here finds by it what is left to delete.
            self.io.delete(location)

    def _own(self, location: str) -> re.Match[str] | None:
        found = _METADATA.fullmatch(location)
        try:
            snapshot = read_metadata_file(self.io.raw_input(location)).parse().current_snapshot()
        except (FileNotFoundError, FormatError):
            return None
        is_own = found is not None and snapshot is not None and snapshot.manifest_list.endswith(f"-{found['generation']}.avro")
        return found if is_own else None
