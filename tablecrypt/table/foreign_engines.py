"""What engines that open a table's files by themselves ask a table for first, and that an encrypted table refuses it.

    the engine          asks                                                         before it
    Polars, Daft        table.metadata.properties.get("write.data.path")            writes a Parquet file into the table's folder
    Daft                table.io.properties.get("s3.endpoint")                      reads or writes a file
    Polars              scan.plan_files(), after putting a cache of its own         reads the data files of the tasks, or has the scan
                        in the place of scan.io                                     read them where they are of a format it does not know

Such an engine gets PyIceberg's Table and takes the rest into its own hands: it would write plaintext and ask for a commit only then, or
cannot open what it reads. Its question is the last moment at which nothing has been written. The properties say the same as before to
everybody else, who reads them by name, lists or copies them; `table.properties` is a plain dictionary. This package finds the places of
files by `location_provider`.

Nothing here keeps out code that means to write plaintext: it is for those who do not know that they would.

To Polars a scan answers that its files are of another format, so that `polars.scan_iceberg` has the scan decrypt them.

Raises PlaintextRefusedError for the place to write to, FormatError for the way to storage.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from pyiceberg.io import FileIO
from pyiceberg.table import FileScanTask, TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import FormatError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO

_STORAGE: Final = "s3.endpoint"
_INSTEAD: Final = (
    "this engine opens the table's files by itself: it cannot decrypt them, and would write plaintext. Give it the rows of "
    "table.scan().to_arrow() (or to_polars, to_duckdb, to_pandas), and write with table.append(rows), overwrite, upsert or delete"
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
        """As dict's, but for what only an engine asks that is about to open files by itself."""
        if name == TableProperties.WRITE_DATA_PATH:
            raise PlaintextRefusedError(self.location, f"the table is encrypted, and {_INSTEAD}")
        if name == _STORAGE:
            raise FormatError(f"{self.location}: the table is encrypted, and {_INSTEAD}")
        return super().get(name, default)


def for_others(metadata: TableMetadata) -> TableMetadata:
    """Return an encrypted table's metadata as others get it."""
    if isinstance(metadata.properties, PropertiesForOthers):
        return metadata
    return metadata.model_copy(update={"properties": PropertiesForOthers.of(metadata.properties, metadata.location)})


def for_ourselves(metadata: TableMetadata) -> TableMetadata:
    """Return the same metadata with properties that answer everything."""
    return metadata.model_copy(update={"properties": dict(metadata.properties)})


def location_provider(metadata: TableMetadata) -> LocationProvider:
    """Return what names the places of a table's new files, as its properties say."""
    return load_location_provider(metadata.location, dict(metadata.properties))


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
        if isinstance(io, EncryptingFileIO) or not hasattr(self, "_io"):
            self._io = io
        else:
            self.is_for_an_engine = True

    def update(self, **overrides: Any) -> Self:
        """Return the scan with other arguments, for the same reader."""
        updated: Self = super().update(**overrides)  # type: ignore[misc]
        updated.is_for_an_engine = self.is_for_an_engine
        return updated

    def plan_files(self) -> Iterable[FileScanTask]:
        """Return a task for each data file that the scan reads."""
        tasks = self.tasks()
        if not self.is_for_an_engine:
            return tasks
        return cast("list[FileScanTask]", [_Ciphertext() for _ in tasks])

    @abstractmethod
    def tasks(self) -> Iterable[FileScanTask]:
        """Return the tasks, for this package to read."""
