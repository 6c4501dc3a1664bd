"""The coordinator of a write: tasks ask where each new file goes while the Spark job runs, and Python responds.

    executor  ──location──▶ RPC endpoint in the driver's JVM ─────────▶ the table's own location provider ──▶ location, in UTF-8
              ──finish────▶ RPC endpoint, before the task returns

A location without a scheme goes to the task with one, since an executor has another working directory; the table keeps its own form.
A task can put a file nowhere else, and cannot finish once the endpoint is closed. So when the Spark job has ended, the locations that were
given are those of all files, of failed, killed and superseded attempts too: what is not committed is deleted.

The requests of executors to the driver's JVM, those of reads too, are JSON objects with exactly the fields of `REQUESTS`. Their field
`request` says which of them it is:

    {"request": "key", "read": "5f…", "path": "s3://…"}        ─▶ the key of a file of this read (task_keys.py)
    {"request": "deletes", "read": "5f…", "file": 3}           ─▶ the positions that are deleted from the file of this number
    {"request": "portable", "read": "5f…", "file": 3}          ─▶ what Python reads the file of this number with (sql/scans/portable.py)
    {"request": "location", "task": 3, "attempt": 17,          ─▶ the location of this attempt's file of this number
     "unique": a UUID of the attempt, "number": 0,
     "partition": Base64 of partition values (written_files.py)}
    {"request": "writing", "task": 3, "attempt": 17}           ─▶ what Python writes files of this write with (sql/writes/portable.py)
    {"request": "finish", "task": 3, "attempt": 17}            ─▶ nothing; an error once the write has ended

java/Requests.java makes and reads them. It refuses any other text, and so does `LocationRequest.decode`, which trusts neither the executor
nor the JVM. The name of a file is made here, of what the request says: no two attempts ever write the same file.

    {task}-{attempt}-{unique}-{number}.parquet                   as on the Python path

Iceberg table spec, "File System Operations": data files are written in place and never renamed.
"""

from __future__ import annotations

import base64
import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, NamedTuple

from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.locations import with_scheme
from tablecrypt.spark.shared.support import unsupported_location
from tablecrypt.spark.shared.written_files import partition_key
from tablecrypt.table.foreign_engines import location_provider

logger = logging.getLogger(__name__)

KIND: Final = "request"
REQUESTS: Final[Mapping[str, Mapping[str, type]]] = {
    "key": {"read": str, "path": str},
    "deletes": {"read": str, "file": int},
    "portable": {"read": str, "file": int},
    "location": {"task": int, "attempt": int, "unique": str, "number": int, "partition": str},
    "writing": {"task": int, "attempt": int},
    "finish": {"task": int, "attempt": int},
}
_MOST: Final = {"task": 2**31 - 1, "attempt": 2**63 - 1, "number": 2**31 - 1}


@dataclass(frozen=True)
class LocationRequest:
    """A writing task's request for the location of its next file."""

    task: int
    attempt: int
    unique: str
    number: int
    partition: bytes

    @classmethod
    def decode(cls, text: str) -> LocationRequest:
        """Decode a request. FormatError for any other text; it does not show the text, which anybody on the network may have sent."""
        try:
            # Exact fields and types alone: the text becomes part of a file's name and of its partition.
            return cls._of(json.loads(text, object_pairs_hook=_object))
        except (ValueError, RecursionError) as error:
            raise FormatError(
                "a request for a file's location is malformed: it does not come from a writing task of this package"
            ) from error

    @classmethod
    def _of(cls, fields: Any) -> LocationRequest:
        expected = {KIND: str, **REQUESTS["location"]}
        if not isinstance(fields, dict) or {name: type(value) for name, value in fields.items()} != expected:
            raise ValueError("other fields, or fields of other types")
        if fields[KIND] != "location" or any(not 0 <= fields[name] <= most for name, most in _MOST.items()):
            raise ValueError("a value out of its range")

        unique = fields["unique"]
        # uuid.UUID takes braces and other spellings, and the text becomes part of a path.
        if str(uuid.UUID(unique)) != unique:
            raise ValueError("no UUID in the usual form")

        partition = base64.b64decode(fields["partition"], validate=True)

        return cls(fields["task"], fields["attempt"], unique, fields["number"], partition)

    @property
    def file_name(self) -> str:
        """The name of the file, which no other attempt's file has."""
        return f"{self.task:05d}-{self.attempt}-{self.unique}-{self.number:05d}.parquet"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. ValueError if a name occurs twice, because two readers could take different values."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field occurs twice")
    return fields


class _Given(NamedTuple):
    task: int
    attempt: int
    location: str


class FileLocations:
    """Gives each new file its location, and remembers which attempt got it."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._provider = location_provider(metadata)
        self._given: dict[str, _Given] = {}
        self._has_ended = False
        self._lock = Lock()

    def respond(self, text: str) -> str:
        """Return the location that a request asks for, as Hadoop takes it.

        Raises:
            FormatError: this is no such request, or its partition values are not of the table's partitioning.
            ConfigurationError: the table's location provider names a location that Hadoop cannot keep, or that another file has; or the
                write has ended.
        """
        request = LocationRequest.decode(text)
        name = request.file_name
        location = self._provider.new_data_location(name, partition_key(request.partition, self._metadata))
        if reason := unsupported_location(location):
            raise ConfigurationError(f"{location}: {reason}")

        with self._lock:
            # Nobody would delete what is put there after `remove_except`.
            if self._has_ended:
                raise ConfigurationError("the write has ended, and its tasks get no more files")
            # The name makes the location one that no other file has, so that what is deleted is never another's.
            path = with_scheme(location)
            if path in self._given or not location.endswith(name):
                raise ConfigurationError(f"{location}: the table's location provider gave it to {name}: it has to end with that name, once")
            self._given[path] = _Given(request.task, request.attempt, location)

        return path

    def as_table_has_it(self, path: str, task: int, attempt: int) -> str:
        """Return the location that this attempt was given, as the table writes it. AuthenticationError where it was not given it."""
        given = self._given.get(path)
        # A task that was taken over must not have a file of another task, or of the table, committed as its own.
        if given is None or (given.task, given.attempt) != (task, attempt):
            raise AuthenticationError(f"{path}: writing task {task} reports a file at a location that it was not given")
        return given.location

    def remove_except(self, io: EncryptingFileIO, kept: Iterable[str]) -> None:
        """Delete the files at all other locations that were given. No more are given then."""
        with self._lock:
            # Set first: a task that asks from now on is refused, so the set of locations is final.
            self._has_ended = True
        for location in {given.location for given in self._given.values()} - set(kept):
            try:
                io.delete_new(location)
            except FileNotFoundError:
                logger.debug("%s was removed by its task, or never written", location)
            except Exception as error:  # noqa: BLE001  what made the write fail is the error to raise, and ciphertext may stay
                logger.warning("could not delete %s of an attempt that was not committed: %s", location, type(error).__name__)
