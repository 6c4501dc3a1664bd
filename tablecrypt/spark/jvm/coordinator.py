"""Where the files of one write lie: tasks ask for the place of each new file while the Spark job runs, and Python answers.

    executor  "place TASK ATTEMPT NAME PARTITION" ──RPC──▶ desk in the driver's JVM ──Py4J──▶ the table's own location provider
              "done ATTEMPT", before it answers   ──RPC──▶ desk

    NAME = {partition}-{attempt}-{uuid}-{number}.parquet        as on the portable path: no two attempts ever write the same file

A task can put a file nowhere else, and cannot end well once the desk is closed. So when the Spark job has ended, the places that were given
are all files that there can be, those of failed, killed and outrun attempts too: what is not committed is deleted.

Iceberg table spec, "File System Operations": data files are written in place and never renamed.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from tablecrypt.errors import AuthenticationError, ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.spark.jvm.support import reason_against_location
from tablecrypt.spark.jvm.written_files import partition_record
from tablecrypt.table.foreign_engines import location_provider

logger = logging.getLogger(__name__)

_QUESTION: Final = re.compile(r"place (\d+) (\d+) (\d{5,}-\d+-[0-9a-f-]{36}-\d{5,}\.parquet) ([A-Za-z0-9+/=]*)")


class KnownPartition(PartitionKey):
    """A partition by its values; PyIceberg's own works them out from those of rows."""

    def __init__(self, values: Record, spec: PartitionSpec, schema: Schema) -> None:
        super().__init__([], spec, schema)
        object.__setattr__(self, "values", values)

    @property
    def partition(self) -> Record:
        """The values, as a manifest entry holds them."""
        return self.values  # type: ignore[attr-defined, no-any-return]


class Places:
    """Gives each new file its place, and remembers which attempt got it."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._provider = location_provider(metadata)
        self._given: dict[str, tuple[int, int]] = {}

    def place(self, question: str) -> str:
        """Answer a question; ConfigurationError for one that no task of ours asks, or a location that Hadoop cannot keep."""
        match = _QUESTION.fullmatch(question)
        if match is None:
            raise ConfigurationError("this is no question of a writing task")
        task, attempt, name, partition = match.groups()
        location = self._provider.new_data_location(name, self._partition_key(base64.b64decode(partition)))
        if reason := reason_against_location(location):
            raise ConfigurationError(f"{location}: {reason}")
        # The name makes the place one that no other file has, so that what is deleted is never another's.
        if location in self._given or not location.endswith(name):
            raise ConfigurationError(f"{location}: the table's location provider gave it to {name}: it has to end with that name, once")
        self._given[location] = (int(task), int(attempt))
        return location

    def check_was_given(self, location: str, task: int, attempt: int) -> None:
        """Raise AuthenticationError unless this attempt was given this place."""
        if self._given.get(location) != (task, attempt):
            raise AuthenticationError(f"{location}: writing task {task} tells of a file that it was not given a place for")

    def remove_except(self, io: EncryptingFileIO, kept: Iterable[str]) -> None:
        """Delete what lies at the other places that were given. Only after the desk is closed."""
        for location in self._given.keys() - set(kept):
            try:
                io.delete_new(location)
            except FileNotFoundError:
                logger.debug("%s was removed by its task, or never written", location)
            except Exception as error:  # noqa: BLE001  what made the write fail is the error to raise, and ciphertext may stay
                logger.warning("could not delete %s of an attempt that was not committed: %s", location, type(error).__name__)

    def _partition_key(self, partition: bytes) -> PartitionKey | None:
        spec, schema = self._metadata.spec(), self._metadata.schema()
        if spec.is_unpartitioned():
            return None
        return KnownPartition(partition_record(partition, spec, schema), spec, schema)


@contextmanager
def open_desk(desk: Any, places: Places) -> Iterator[None]:
    """Answer questions for as long as the block runs; then close the desk, and let the last answer be given.

    Args:
        desk: a WriteDesk, through Py4J.
        places: answers.
    """
    from pyspark import InheritableThread

    thread = InheritableThread(target=_answer_all, args=(desk, places.place), daemon=True)
    thread.start()
    try:
        yield
    finally:
        desk.close()
        thread.join()


def _answer_all(desk: Any, place: Callable[[str], str]) -> None:
    while (question := desk.next()) is not None:
        try:
            question.answer(place(question.text()).encode())
        except Exception as error:  # noqa: BLE001  of a location provider that may be anybody's; the task that asked fails with it
            question.refuse(f"{type(error).__name__}: {error}")
