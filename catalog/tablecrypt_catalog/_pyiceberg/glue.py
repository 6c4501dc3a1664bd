"""PyIceberg's Glue catalog: its commit with Glue's version id stays; what an entry means, and what pins it, is ours.

GlueCatalog: _convert_glue_to_iceberg               the one place where an entry becomes a table, in load and in commit alike
GlueCatalog: _create_glue_table, _get_glue_table, _update_glue_table    what is sent to Glue
GlueCatalog: _is_s3tables_database                  S3 Tables cannot maintain tables that it cannot read
_construct_table_input, _construct_rename_table_input    an entry as other Glue clients expect it
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from pyiceberg.catalog import METADATA_LOCATION
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import StagedTable, Table
from pyiceberg.typedef import Identifier

from tablecrypt._per_process import PerProcess
from tablecrypt.errors import MissingExtraError, TablecryptError
from tablecrypt_catalog._pyiceberg.metastore import versions_after

try:
    from pyiceberg.catalog.glue import GlueCatalog
    from pyiceberg.catalog.glue import _construct_rename_table_input as renamed_input_of
    from pyiceberg.catalog.glue import _construct_table_input as table_input_of
except ModuleNotFoundError as error:
    raise MissingExtraError.named(f"EncryptedGlueCatalog needs the package {error.name}", "glue") from error

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.type_defs import TableInputTypeDef, TableTypeDef


RENAMED_FROM: Final = "tablecrypt.renamed-from"
"""The parameter of a new entry that says which name the table has until the rename has happened."""
RENAMED_TO: Final = "tablecrypt.renamed-to"
"""The parameter of an old entry that says which name the table has since then."""


class GlueCatalogAdapter(GlueCatalog):
    """A Glue catalog whose private hooks have public names: the abstract ones are ours to fill in.

    It pickles, as PyIceberg's own does not: a copy has the properties and makes another client. So does a forked child, which else would
    get answers to its parent's requests, unless the client is the caller's.
    """

    def __init__(self, name: str, client: GlueClient | None = None, **properties: Any) -> None:
        self._clients = PerProcess(self._another_client if client is None else lambda: client)
        super().__init__(name, client, **properties)

    @property
    def glue(self) -> GlueClient:
        """What asks Glue."""
        return self._clients.get()

    @glue.setter
    def glue(self, client: GlueClient) -> None:
        self._clients.hold(client)

    def _another_client(self) -> GlueClient:
        return type(self)(self.name, **self.properties).glue

    def __reduce__(self) -> tuple[partial[GlueCatalogAdapter], tuple[()]]:
        return partial(type(self), self.name, **self.properties), ()

    @abstractmethod
    def table_of_entry(self, entry: Mapping[str, Any]) -> Table:
        """Return the table that an entry points to, after checking the one against the other."""

    @abstractmethod
    def parameters_to_send(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """Return the parameters that an entry is to have, of those that a commit has put together."""

    def entry_as_pyiceberg_opens_it(self, entry: Mapping[str, Any]) -> Table:
        """Return the table that PyIceberg makes of an entry, or raise what it raises."""
        return super()._convert_glue_to_iceberg(cast("TableTypeDef", entry))

    def create_entry(self, staged: StagedTable, parameters: Mapping[str, str]) -> None:
        """Make an entry for a table whose metadata file is there already.

        Raises:
            TableAlreadyExistsError: there is one of that name.
            NoSuchNamespaceError: Glue has no such database.
        """
        database, name = self.identifier_to_database_and_table(staged.name())
        entry = table_input_of(name, staged.metadata_location, dict(parameters), staged.metadata)
        self._create_glue_table(database, name, entry)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Give a table another name, as its only one at any time, whoever commits meanwhile and wherever this ends.

        Glue renames no entry, and removes an entry whatever was committed to it. So the new entry is none of a table until the old one
        says that it was renamed, in an update that fails if somebody committed; from then on the old entry is none of a table. PyIceberg's
        would lose such a commit, forget the pin, and remove the new entry too where the answer to the removal is lost.

        Raises:
            NoSuchTableError, TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg's.
            CommitFailedException: somebody committed to the table meanwhile; nothing was renamed.
            TablecryptError: the table was renamed and its old entry is still there, which another call removes; or it was not renamed, and
                the new entry could not be taken back; or another rename of it did not finish.
        """
        old = self.identifier_to_database_and_table(from_identifier, NoSuchTableError)
        new = self.identifier_to_database_and_table(to_identifier)
        entry = self._get_glue_table(*old)
        table = self.table_of_entry(entry)
        begun = _named_by(entry, RENAMED_TO)
        if begun not in {None, new}:
            raise TablecryptError(f"{_renamed(old, entry)}, which did not finish: rename it to that again")

        if begun is None or not self._has_entry(new):
            self._check_is_its_name(entry, table)
            self._begin_rename(old, new, entry)
        elif not self._is_entry_of(table, new):
            raise TableAlreadyExistsError(f"Table {'.'.join(new)} already exists")
        self._end_rename(old, new)

        return self._convert_glue_to_iceberg(self._get_glue_table(*new))

    def is_marked_as_renamed(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> bool:
        """Whether the old entry says that the table was renamed so. NoSuchTableError where there is none."""
        old = self.identifier_to_database_and_table(from_identifier, NoSuchTableError)
        new = self.identifier_to_database_and_table(to_identifier)
        return _named_by(self._get_glue_table(*old), RENAMED_TO) == new

    def _begin_rename(self, old: tuple[str, str], new: tuple[str, str], entry: TableTypeDef) -> None:
        try:
            self._create_glue_table(*new, _marked_input(new[1], entry, {RENAMED_FROM: ".".join(old)}))
        except TableAlreadyExistsError as taken:
            raise TableAlreadyExistsError(self._why_taken(new) or str(taken)) from taken
        try:
            marked = _marked_input(old[1], entry, {RENAMED_TO: ".".join(new)})
            super()._update_glue_table(*old, marked, entry.get("VersionId", ""))
        except Exception as error:  # noqa: BLE001  whatever failed, the name may not stay taken
            self._take_back(old, new, error)

    def _why_taken(self, name: tuple[str, str]) -> str:
        """Why what has the name is no table that can be opened, as where a rename did not finish; nothing where it is one."""
        try:
            self._convert_glue_to_iceberg(self._get_glue_table(*name))
        except TablecryptError as unfinished:
            return f"the name {'.'.join(name)} is taken: {unfinished}"
        return ""

    def _take_back(self, old: tuple[str, str], new: tuple[str, str], error: Exception) -> None:
        """Remove the new entry of a table that was not renamed, and raise the error; do nothing where only the answer was lost."""
        try:
            if self._has_entry(old) and _named_by(self._get_glue_table(*old), RENAMED_TO) == new:
                return
            # Another client may have ended this very rename: the new entry is the last that leads to the table then.
            if not _was_refused(error) and not self._has_entry(old):
                raise NoSuchTableError(f"{'.'.join(old)} is gone meanwhile")
            self._remove_entry(new)
        except Exception as failure:  # noqa: BLE001  of two errors, the one to raise says what both left
            raise TablecryptError(
                f"{'.'.join(old)} was not renamed ({error}), and its new name {'.'.join(new)} could not be taken back "
                f"({failure}): if both are there, drop {'.'.join(new)} without purge"
            ) from error

        if isinstance(error, CommitFailedException):
            raise CommitFailedException(
                f"{'.'.join(old)}: somebody committed to the table, and it was not renamed: rename it again"
            ) from error
        raise error

    def _end_rename(self, old: tuple[str, str], new: tuple[str, str]) -> None:
        try:
            # A commit since has done so too.
            with suppress(CommitFailedException):
                entry = self._get_glue_table(*new)
                super()._update_glue_table(*new, _marked_input(new[1], entry, {}), entry.get("VersionId", ""))
            # Another client may finish what was interrupted at the same time.
            with suppress(NoSuchTableError):
                self._remove_entry(old)
        except Exception as error:
            raise TablecryptError(
                f"{'.'.join(old)} was renamed to {'.'.join(new)}, but its old entry is still there ({error}): rename it again"
            ) from error

    def _check_is_its_name(self, entry: TableTypeDef, table: Table) -> None:
        """Raise TablecryptError for the new entry of a rename that has not happened: the table has its old name."""
        old = _named_by(entry, RENAMED_FROM)
        if old is None or not self._has_entry(old):
            return

        name = (entry.get("DatabaseName", ""), entry["Name"])
        # Somebody may have made another table under the old name since.
        if _named_by(self._get_glue_table(*old), RENAMED_TO) == name or not self._is_entry_of(table, old):
            return
        raise TablecryptError(
            f"{'.'.join(name)} is no table yet: {'.'.join(old)} was to be renamed to it, which did not finish. If nobody is at it: "
            f"drop {'.'.join(name)} without purge, and rename {'.'.join(old)} again"
        )

    def _is_entry_of(self, table: Table, name: tuple[str, str]) -> bool:
        return self.table_of_entry(self._get_glue_table(*name)).metadata.table_uuid == table.metadata.table_uuid

    def _has_entry(self, name: tuple[str, str]) -> bool:
        try:
            self._get_glue_table(*name)
        except NoSuchTableError:
            return False
        return True

    def _remove_entry(self, identifier: str | Identifier) -> None:
        try:
            super().drop_table(identifier)
        except NoSuchTableError as gone:
            if not _was_sent_again(gone):
                raise

    def drop_table(self, identifier: str | Identifier) -> None:
        """Remove a table's entry. NoSuchTableError where there is none."""
        self._remove_entry(identifier)

    def is_managed_by_s3_tables(self, database: str) -> bool:
        """Whether a database is that of an S3 table bucket."""
        return self._is_s3tables_database(database)

    def _convert_glue_to_iceberg(self, glue_table: TableTypeDef) -> Table:
        name = (glue_table.get("DatabaseName", ""), glue_table["Name"])
        # Rows that were committed here would be lost with the entry, and rows that are read here are those of before the rename. It is not
        # said to be no table at all: an audit would pass by whatever somebody marks so.
        if _named_by(glue_table, RENAMED_TO) is not None:
            raise TablecryptError(f"{_renamed(name, glue_table)}: to remove the old entry, rename it again")

        table = self.table_of_entry(glue_table)
        self._check_is_its_name(glue_table, table)

        return table

    def _update_glue_table(self, database_name: str, table_name: str, table_input: TableInputTypeDef, version_id: str) -> None:
        # Just before it is sent: PyIceberg has merged the entry's parameters with those of the commit by now.
        parameters = {name: value for name, value in table_input.get("Parameters", {}).items() if name != RENAMED_FROM}
        sent: TableInputTypeDef = {**table_input, "Parameters": self.parameters_to_send(parameters)}
        super()._update_glue_table(database_name, table_name, sent, version_id)

    def _create_glue_table(self, database_name: str, table_name: str, table_input: TableInputTypeDef) -> None:
        try:
            super()._create_glue_table(database_name, table_name, table_input)
        except TableAlreadyExistsError as refused:
            # The client of AWS sends a request again whose answer is lost, and finds then what it has made.
            location = table_input.get("Parameters", {}).get(METADATA_LOCATION)
            if not _was_sent_again(refused) or location not in versions_after(refused, self, (database_name, table_name)):
                raise


def _named_by(entry: TableTypeDef, mark: str) -> tuple[str, str] | None:
    """The name in a mark of an entry; None where it has no such mark."""
    text = entry.get("Parameters", {}).get(mark)
    if text is None:
        return None

    # A database's name has no dot in Glue's metastore, where a table's may.
    database, _, name = text.partition(".")
    return database, name


def _marked_input(name: str, entry: TableTypeDef, mark: Mapping[str, str]) -> TableInputTypeDef:
    """An entry under a name, with this mark of a rename alone."""
    given = renamed_input_of(name, entry)
    kept = {name: value for name, value in given.get("Parameters", {}).items() if name not in {RENAMED_FROM, RENAMED_TO}}
    return {**given, "Parameters": {**kept, **mark}}


def _renamed(name: tuple[str, str], entry: TableTypeDef) -> str:
    return f"{'.'.join(name)} was renamed to {'.'.join(_named_by(entry, RENAMED_TO) or ())}"


def _was_refused(error: Exception) -> bool:
    """Whether Glue did not do what it was asked for. An error without its answer does not say so, nor a refusal after a lost one."""
    return isinstance(error, (CommitFailedException, NoSuchTableError)) and not _was_sent_again(error)


def _was_sent_again(refused: Exception) -> bool:
    """Whether the request that was refused is one that the client of AWS had sent before, without an answer."""
    answer = getattr(refused.__cause__, "response", {})
    return bool(answer.get("ResponseMetadata", {}).get("RetryAttempts"))
