"""CREATE TABLE AS SELECT, REPLACE TABLE and CREATE OR REPLACE TABLE: a table and its rows in one commit.

    stage_create | stage_replace | stage_create_or_replace ─▶ a table that only this statement sees, and whose writes are kept back
    begin_write … commit_write                             ─▶ files, checked, none of them in any snapshot yet
    commit_staged ─▶ one commit: table, keys and rows;  abort_staged ─▶ no file is left

A table that is replaced keeps its history, branches and tags, properties that the statement does not name, and its master key. Until the
commit everybody reads it as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import cast

from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.manifest import DataFile
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from tablecrypt.engines.changes import check_replacing
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, refuse_restricted
from tablecrypt.spark.sql.alterations import check_properties
from tablecrypt.spark.sql.catalogs import catalog_of, described
from tablecrypt.spark.sql.definitions import Definition, DefinitionRequest
from tablecrypt.spark.sql.loading import find_table
from tablecrypt.spark.sql.messages import Request, Response, operation
from tablecrypt.spark.sql.planner import LoadedTable, OpenCatalog, Planner
from tablecrypt.spark.sql.writes.write_audit_publish import AuditFirst
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.replacement import stage_replacement
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import NOT_COMMITTED, delete_files, removing_on_error
from tablecrypt.table.transaction import EncryptedTransaction


@dataclass
class StagedTable:
    """A table that is being created or replaced.

    Attributes:
        transaction: what is staged so far.
        replaces: whether there is a table whose rows are replaced.
        files: what writes have left to be committed.
        snapshot_properties: for the summary of the snapshot.
        copied_files: fingerprints of the files that the rows are copied from.
        has_ended: whether it was aborted.
    """

    transaction: EncryptedTransaction
    replaces: bool
    files: list[DataFile] = field(default_factory=list)
    snapshot_properties: dict[str, str] = field(default_factory=dict)
    copied_files: frozenset[bytes] = frozenset()
    has_ended: bool = False

    def keep(self, files: Sequence[DataFile], snapshot_properties: Mapping[str, str], copied_files: frozenset[bytes] = frozenset()) -> None:
        """Take the files of a write, which `commit` commits and `abort` deletes. After `abort` they are deleted: ConfigurationError."""
        self.files += files
        self.copied_files |= copied_files
        self.snapshot_properties |= snapshot_properties
        # Looked at last: an abort in another thread either deletes these files, or is seen here.
        if self.has_ended:
            self.abort()
            raise ConfigurationError("the table that these rows are for was given up, and they are deleted: run the statement again")

    def commit(self) -> None:
        """Commit the table and its rows.

        Raises:
            TableAlreadyExistsError, CommitFailedException: another client has created or changed the table meanwhile; no file is left.
            AuthenticationError: rows are replaced, and a file is not what its task says of it; no file is left.
        """
        # Apart from the commit, whose error may be a lost answer: then the files may be the table's.
        with removing_on_error(self._io, self.files):
            if self.replaces:
                check_replacing(self._io, self.files)
            self._stage_rows()
        try:
            self.transaction.commit_transaction()
        except (*NOT_COMMITTED, TableAlreadyExistsError):
            self.abort()
            raise

    def abort(self) -> None:
        """Delete the files."""
        # Before the files go, so that `keep` in another thread either sees this, or its files are in the list.
        self.has_ended = True
        delete_files(self._io, self.files)

    def _stage_rows(self) -> None:
        update = self.transaction.update_snapshot(self.snapshot_properties)
        # A branch that pins remember must not end with its table's replacement, so there is a snapshot even without rows.
        if not self.replaces and not self.files:
            return

        replaced_by = Operation.OVERWRITE if self.files else Operation.DELETE
        producer = update.replacement(replaced_by) if self.replaces else update.fast_append()
        with producer:
            producer.copied_files = self.copied_files
            for file in self.files:
                producer.append_data_file(file)

    @property
    def _io(self) -> EncryptingFileIO:
        return cast("EncryptingFileIO", self.transaction.table_io)


@operation
def stage_create(planner: Planner, request: DefinitionRequest) -> Response:
    """Begin a table that is not there yet.

    Raises:
        TableAlreadyExistsError: it is.
        NoSuchNamespaceError, ConfigurationError: as CREATE TABLE.
    """
    opened = catalog_of(planner, request)
    if opened.catalog.table_exists(request.identifier):
        raise TableAlreadyExistsError(f"Table {'.'.join(request.identifier)} already exists")
    return _created(planner, opened, request)


@operation
def stage_replace(planner: Planner, request: DefinitionRequest) -> Response:
    """Begin to replace a table.

    Raises:
        NoSuchTableError: it does not exist.
        ConfigurationError: it is not encrypted, or a property or the location cannot be changed.
        KeyIdChangedError: the statement names another master key than the table has.
        ReadRestrictionError: the catalog's server does not let the user see all rows that would go.
    """
    return _replaced(planner, catalog_of(planner, request), request)


@operation
def stage_create_or_replace(planner: Planner, request: DefinitionRequest) -> Response:
    """Begin a table, or begin to replace the one that is there. Raises as both."""
    opened = catalog_of(planner, request)
    try:
        return _replaced(planner, opened, request)
    except NoSuchTableError:
        return _created(planner, opened, request)


def _created(planner: Planner, opened: OpenCatalog, request: DefinitionRequest) -> Response:
    definition = Definition.of(request)
    definition.check(opened.catalog)
    transaction = opened.catalog.create_table_transaction(
        definition.identifier,
        definition.schema,
        location=definition.location,
        partition_spec=definition.spec,
        properties=definition.properties,
    )
    # Else the rows of the query would go into a plain table, although its definition names a master key.
    if not isinstance(transaction, EncryptedTransaction):
        raise ConfigurationError(f"catalog {opened.name} does not create encrypted tables: use one of tablecrypt_catalog")

    definition.stage_defaults(transaction)
    name = ".".join(definition.identifier)
    located = LocatedTable(opened.catalog, name, cast("EncryptedTable", transaction.table))

    return _staged(planner, opened, request, located, StagedTable(transaction, replaces=False))


def _replaced(planner: Planner, opened: OpenCatalog, request: DefinitionRequest) -> Response:
    located, part = find_table(opened, request.identifier)
    if part is not None:
        raise ConfigurationError(f"{part} is no table of its own but a view of {located.name}: it cannot be replaced")

    definition = Definition.of(request)
    properties = dict(definition.properties)
    location = {} if definition.location is None else {"location": definition.location}
    check_properties(located.table.metadata, properties | location)
    properties.pop("format-version", None)
    # A user would make rows go that the server does not let that user see.
    refuse_restricted(located.table.io, "REPLACE TABLE")
    # All in one transaction on the table that is there, so that its history, keys and pins go on.
    transaction = located.table.transaction()
    stage_replacement(transaction, definition.schema, definition.spec, properties)
    definition.stage_defaults(transaction)
    staged = copy(located.table)
    staged.metadata = transaction.table_metadata
    replaced = LocatedTable(opened.catalog, located.name, staged)

    return _staged(planner, opened, request, replaced, StagedTable(transaction, replaces=True))


def _staged(planner: Planner, opened: OpenCatalog, request: DefinitionRequest, located: LocatedTable, staged: StagedTable) -> Response:
    audit_first = AuditFirst.of(request, located.table.metadata)
    loaded = LoadedTable(located, opened.name, MAIN_BRANCH, None, is_writable=True, staged=staged, audit_first=audit_first)
    return Response({**described(planner, loaded), "staged": planner.staged.add(staged)})


class StagedRequest(Request):
    """About a table that is being created or replaced, by its handle."""

    staged: str


@operation
def commit_staged(planner: Planner, request: StagedRequest) -> None:
    """Commit a table and its rows. Raises as `StagedTable.commit`."""
    planner.staged.pop(request.staged).commit()


@operation
def abort_staged(planner: Planner, request: StagedRequest) -> None:
    """Give a table up, and delete what was written for it."""
    planner.staged.pop(request.staged).abort()
