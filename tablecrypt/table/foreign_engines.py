"""What engines that open a table's files by themselves ask a table for first, and that an encrypted table refuses it.

    the engine          asks                                                         before it
    Polars, Daft        table.metadata.properties.get("write.data.path")            writes a Parquet file into the table's folder
    Daft                table.io.properties.get("s3.endpoint")                      reads or writes a file
    Ray                 catalog.load_table(name), in its driver                      plans the files that its workers read or write
    Polars              scan.plan_files(), after putting a cache of its own         reads the data files of the tasks, or has the scan
                        in the place of scan.io                                     read them where they are of a format it does not know

Such an engine gets PyIceberg's Table and takes the rest into its own hands: it would write plaintext and ask for a commit only then, or
cannot open what it reads. It never uses the table's FileIO, which refuses plaintext by itself, and its question is the last moment at which
nothing has been written. A person asks the same question in the same words, and gets the answer. So the answer depends on whose code asks:

    code in site-packages or dist-packages, or of an engine above    refused, also where it asks through PyIceberg's functions
    PyIceberg for itself, this package                                answered: both go on to the table's FileIO
    a program, a notebook, a shell                                    answered

An engine whose own code is nowhere on the stack, or that reads the properties in another way, is not noticed. What it writes is refused
when it is committed. Properties that are listed, copied or read as `properties[name]` are answered to everybody, and `table.properties` is
a plain dictionary. Nothing here keeps out code that means to write plaintext: it is for those who do not know that they would.

To Polars a scan answers that its files are of another format, so that `polars.scan_iceberg` has the scan decrypt them.

Raises PlaintextRefusedError for the place to write to, FormatError for the way to storage.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self, cast

from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import FormatError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO

if TYPE_CHECKING:
    from tablecrypt.table.planning import EncryptedFileScanTask

_STORAGE: Final = "s3.endpoint"
_ENGINES: Final = {"daft", "polars"}
"""Wherever they are installed: in an image or archive there may be no site-packages."""

_RAYS_OWN: Final = "ray.data._internal.datasource.iceberg"
_INSTALLED: Final = {"site-packages", "dist-packages"}
_ON_BEHALF_OF_ITS_CALLER: Final = ("pyiceberg.io", "pyiceberg.table", "pyiceberg.utils")
_USES_THE_FILE_IO: Final = {"pyiceberg", "tablecrypt", "tablecrypt_catalog"}
_INSTEAD: Final = (
    "this engine opens the table's files by itself: it cannot decrypt them, and would write plaintext. Give it the rows of "
    "table.scan().to_arrow() (or to_polars, to_duckdb, to_pandas), and write with table.append(rows), overwrite, upsert or delete. Daft "
    "reads and writes through tablecrypt.daft"
)


class PropertiesForOthers(dict[str, str]):
    """The properties of an encrypted table or of its FileIO.

    Attributes:
        location: of the table, for messages.
    """

    location: str = ""

    @classmethod
    def of(cls, properties: dict[str, Any], location: str) -> PropertiesForOthers:
        """Return the same properties."""
        guarded = cls(properties)
        guarded.location = location
        return guarded

    def get(self, name: str, default: Any = None) -> Any:
        """As dict's, but for what an engine asks that is about to open files by itself."""
        if name not in {TableProperties.WRITE_DATA_PATH, _STORAGE} or not _is_for_an_engine(inspect.currentframe()):
            return super().get(name, default)
        if name == TableProperties.WRITE_DATA_PATH:
            raise PlaintextRefusedError(self.location, f"the table is encrypted, and {_INSTEAD}")
        raise FormatError(f"{self.location}: the table is encrypted, and {_INSTEAD}")


def _is_for_an_engine(called: FrameType | None) -> bool:
    """Whether code that opens files by itself called a function, or had PyIceberg call it."""
    caller = called and called.f_back
    while caller is not None and _module(caller).startswith(_ON_BEHALF_OF_ITS_CALLER):
        caller = caller.f_back
    if caller is None:
        return False

    package = _module(caller).partition(".")[0]
    # These go on to the table's FileIO, which refuses plaintext by itself.
    if package in _USES_THE_FILE_IO:
        return False

    # A library that is not known here is taken for an engine: what it would write cannot be taken back, and a person asks again.
    return package in _ENGINES or not _INSTALLED.isdisjoint(Path(caller.f_code.co_filename).parts)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def refuse_to_ray(name: str) -> None:
    """Refuse an encrypted table to what Ray has for Iceberg: it would hand keys to workers in the clear, or have them write plaintext.

    Args:
        name: of the table.

    Raises:
        FormatError: `ray.data.read_iceberg` or `Dataset.write_iceberg` loads it.
    """
    caller = inspect.currentframe()
    while caller is not None and _module(caller).partition(".")[0] in {*_USES_THE_FILE_IO, "contextlib", "functools"}:
        caller = caller.f_back
    if caller is not None and _module(caller).startswith(_RAYS_OWN):
        raise FormatError(
            f"{name}: the table is encrypted, and Ray's read_iceberg and write_iceberg open files by themselves. Use "
            "tablecrypt.ray.read_table(table) and Dataset.write_datasink(tablecrypt.ray.datasink(table))"
        )


def for_others(metadata: TableMetadata) -> TableMetadata:
    """Return an encrypted table's metadata as others get it."""
    if isinstance(metadata.properties, PropertiesForOthers):
        return metadata
    return metadata.model_copy(update={"properties": PropertiesForOthers.of(metadata.properties, metadata.location)})


def location_provider(metadata: TableMetadata) -> LocationProvider:
    """Return what names the places of a table's new files, as its properties say. No partition value is in a name.

    Names are plaintext, and whoever edits metadata.json may give a table a partition spec of any column. A class that the table's
    properties name, which this client's own configuration names too, is handed the values, and does with them what it does.
    """
    chosen = load_location_provider(metadata.location, metadata.properties)
    return chosen if TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL in metadata.properties else _WithoutValues(chosen)


class _WithoutValues(LocationProvider):
    def __init__(self, own: LocationProvider) -> None:
        super().__init__(own.table_location, own.table_properties)
        self._own = own

    def new_data_location(self, data_file_name: str, partition_key: PartitionKey | None = None) -> str:
        return self._own.new_data_location(data_file_name)


@dataclass(frozen=True)
class _Ciphertext:
    """A data file, or the task of one, of which an engine needs to know only that it cannot read it."""

    file_format: str = "encrypted Parquet"

    @property
    def file(self) -> _Ciphertext:
        return self


class ScanForOthers:
    """A scan that keeps its table's FileIO, and reads for an engine that put another one in its place.

    Attributes:
        is_for_an_engine: whether one did.
    """

    _io: FileIO
    is_for_an_engine: bool = False

    @property
    def io(self) -> FileIO:
        """The table's FileIO."""
        return self._io

    @io.setter
    def io(self, io: FileIO) -> None:
        # Polars puts a cache of its own in the place of the FileIO: the scan keeps the one that can decrypt.
        if isinstance(io, EncryptingFileIO) or not hasattr(self, "_io"):
            self._io = io
        else:
            self.is_for_an_engine = True

    def update(self, **overrides: Any) -> Self:
        """Return the scan with other arguments, for the same reader."""
        updated: Self = super().update(**overrides)  # type: ignore[misc]
        updated.is_for_an_engine = self.is_for_an_engine
        return updated

    def plan_files(self) -> list[EncryptedFileScanTask]:
        """Return a task for each data file that the scan reads."""
        tasks = self.tasks()
        if not self.is_for_an_engine:
            return tasks
        return cast("list[EncryptedFileScanTask]", [_Ciphertext() for _ in tasks])

    def tasks(self) -> list[EncryptedFileScanTask]:
        """Return the tasks, for this package to read."""
        return [task for tasks in self.task_batches() for task in tasks]

    @abstractmethod
    def task_batches(self) -> Iterator[list[EncryptedFileScanTask]]:
        """Yield the tasks as manifests are read: in memory are those of a few manifests, however many files the table has."""
