"""Catalogs of PyIceberg that commit by MetastoreCatalog's staging: their compare-and-swap stays theirs, what is swapped in is ours.

MetastoreCatalog: _update_and_stage_table, _write_metadata, _empty_table_metadata, _load_file_io, _create_staged_table,
    _resolve_table_location
Catalog: _convert_schema_if_needed
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.locations import below_home
from tablecrypt.table.metadata import is_encrypted_tables, write_metadata_file
from tablecrypt.table.table_files import NOT_COMMITTED

if TYPE_CHECKING:
    import pyarrow as pa

_NO_FOLDERS: Final = ("", ".", "..")
_STAGED: Final[ContextVar[StagedTable | None]] = ContextVar("what the commit in progress has staged", default=None)

logger = logging.getLogger(__name__)


def iceberg_schema(schema: Schema | pa.Schema) -> Schema:
    """Return the schema that PyIceberg's catalogs make of one, in version 3; a schema of Arrow's has no field ids yet."""
    return Catalog._convert_schema_if_needed(schema, 3)


class Commit(NamedTuple):
    """What is asked of a catalog that is to commit to a table."""

    identifier: Identifier
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


def delete_refused(staged: StagedTable) -> None:
    """Delete the metadata file of an encrypted table's commit that was refused: it would keep keys that others have just destroyed."""
    if not is_encrypted_tables(staged.metadata):
        return

    try:
        staged.io.delete(staged.metadata_location)
    except FileNotFoundError:
        return
    except Exception as error:  # noqa: BLE001  why the commit was refused is what the caller needs to know
        logger.warning("could not delete %s of a refused commit: %s", staged.metadata_location, type(error).__name__)


class MetastoreCatalogAdapter(MetastoreCatalog):
    """A catalog that keeps its own compare-and-swap while the metadata that it swaps in is ours."""

    @abstractmethod
    def stage_commit(self, current: Table | None, commit: Commit) -> StagedTable:
        """Return the table as the commit will leave it."""

    @staticmethod
    @abstractmethod
    def metadata_to_write(metadata: TableMetadata) -> TableMetadata:
        """Return the metadata in the class that is written to metadata.json."""

    @abstractmethod
    def load_file_io(self, properties: Properties, location: str) -> FileIO:
        """Return the FileIO for a location, made of the client's properties alone."""

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit as PyIceberg's own catalog does. A commit that lost to another one leaves no metadata file."""
        token = _STAGED.set(None)
        try:
            return super().commit_table(table, requirements, updates)  # type: ignore[safe-super]
        except NOT_COMMITTED:
            if (staged := _STAGED.get()) is not None and self._has_lost(staged):
                delete_refused(staged)
            raise
        finally:
            _STAGED.reset(token)

    def _has_lost(self, staged: StagedTable) -> bool:
        """Whether the table is known to have gone another way from the state that a commit was based on.

        An error alone does not say so: a client's library may have sent the commit twice, the first time with success.
        """
        base = next((entry.metadata_file for entry in reversed(staged.metadata.metadata_log)), None)
        try:
            current = self.load_table(staged.name())
        except Exception as error:  # noqa: BLE001  why the commit was refused is what the caller needs to know
            logger.info("%s is not deleted, since the table cannot be loaded: %s", staged.metadata_location, type(error).__name__)
            return False

        logged = {entry.metadata_file for entry in current.metadata.metadata_log}
        return base in logged and staged.metadata_location not in {current.metadata_location, *logged}

    def stage_as_pyiceberg(self, current: Table | None, commit: Commit) -> StagedTable:
        """Stage a commit the way PyIceberg's own catalog does."""
        return super()._update_and_stage_table(current, *commit)

    def stage_new_table(self, *args: Any, **kwargs: Any) -> StagedTable:
        """Return a new table as PyIceberg makes it, not committed, without a look at its namespace."""
        return super()._create_staged_table(*args, **kwargs)

    def check_namespace(self, identifier: str | Identifier) -> None:
        """Raise NoSuchNamespaceError where the namespace of this table's name is not there."""
        namespace = Catalog.namespace_from(identifier)
        if not self.namespace_exists(namespace):
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(namespace)}")

    def _create_staged_table(self, identifier: str | Identifier, *args: Any, **kwargs: Any) -> StagedTable:
        # For its transactions PyIceberg does not ask, nor does a database that takes the row: the table would be in no namespace.
        self.check_namespace(identifier)
        return super()._create_staged_table(identifier, *args, **kwargs)

    def empty_metadata_fields(self) -> dict[str, Any]:
        """Return the fields of metadata from which a table is built by updates alone."""
        return dict(self._empty_table_metadata())

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return self.load_file_io(properties, location or "")

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        # A class may try again by itself: what it staged before may have landed.
        _STAGED.set(None)
        staged = self.stage_commit(current_table, Commit(table_identifier, requirements, updates))
        _STAGED.set(staged)
        return staged

    def _resolve_table_location(self, location: str | None, database_name: str, table_name: str) -> str:
        # PyIceberg would put it into the folder of all tables of its namespace, or of another table, or where no file can be named.
        if not location and (table_name in _NO_FOLDERS or "/" in table_name or not table_name.isprintable()):
            raise ConfigurationError(f"{table_name!r} names no folder for a new table: choose another name, or give the table a location")
        resolved = super()._resolve_table_location(location, database_name, table_name)
        # As of a variable that holds a blank: a folder of that name would be made.
        if resolved[:1].isspace():
            raise ConfigurationError(f"the location {resolved!r} of a new table begins with white space: correct it, or the warehouse")
        return below_home(resolved)

    @classmethod
    def _write_metadata(cls, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        written = cls.metadata_to_write(metadata)
        if is_encrypted_tables(written):
            # Where that fails, half of a file would keep keys.
            write_metadata_file(written, io, metadata_path)
        else:
            MetastoreCatalog._write_metadata(written, io, metadata_path)
