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
from pyiceberg.exceptions import CommitStateUnknownException, NoSuchNamespaceError
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


def versions_after(refused: Exception, catalog: Catalog, identifier: Identifier) -> set[str]:
    """Return the metadata files that a table is known to have had, once its catalog has refused to change it.

    Raises:
        CommitStateUnknownException: the table cannot be loaded.
    """
    try:
        current = catalog.load_table(identifier)
    except Exception as error:
        # Files of a commit that failed are deleted: of one that has landed, the table would name them.
        raise CommitStateUnknownException(
            f"{'.'.join(identifier)}: the commit was refused ({refused}) and may have landed: the table cannot be loaded: {error}"
        ) from error
    # Others may have committed on top by now.
    return {current.metadata_location, *(entry.metadata_file for entry in current.metadata.metadata_log)}


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
        """Commit as PyIceberg's own catalog does. A commit that lost to another one leaves no metadata file.

        A refusal alone does not say that it lost: what sends it may have sent it twice, the first time with success. Then it is no failure.

        Raises:
            CommitStateUnknownException: the commit was refused, and the table cannot be loaded to see whether it landed.
        """
        token = _STAGED.set(None)
        try:
            return super().commit_table(table, requirements, updates)  # type: ignore[safe-super]
        except NOT_COMMITTED as refused:
            staged = _STAGED.get()
            if staged is None or not self._has_landed(staged, refused):
                raise
            return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)
        finally:
            _STAGED.reset(token)

    def _has_landed(self, staged: StagedTable, refused: Exception) -> bool:
        """Whether a commit that was refused is in the table. Where the table has gone another way, its metadata file is deleted."""
        versions = versions_after(refused, self, staged.name())
        if staged.metadata_location in versions:
            return True

        # The log of versions is cut: only where it reaches back to the base is the commit known to have lost.
        if any(entry.metadata_file in versions for entry in staged.metadata.metadata_log[-1:]):
            delete_refused(staged)
        return False

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
