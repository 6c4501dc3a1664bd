"""PyIceberg's Glue catalog: its commit with Glue's version id stays; what an entry means, and what pins it, is ours.

GlueCatalog: _convert_glue_to_iceberg               the one place where an entry becomes a table, in load and in commit alike
GlueCatalog: _create_glue_table, _get_glue_table, _update_glue_table    what is sent to Glue
GlueCatalog: _is_s3tables_database                  S3 Tables cannot maintain tables that it cannot read
_construct_table_input, _construct_rename_table_input    an entry as other Glue clients expect it
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.catalog import METADATA_LOCATION
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import StagedTable, Table
from pyiceberg.typedef import Identifier

from tablecrypt._per_process import PerProcess
from tablecrypt.errors import MissingExtraError, TablecryptError

try:
    from pyiceberg.catalog.glue import GlueCatalog
    from pyiceberg.catalog.glue import _construct_rename_table_input as renamed_input_of
    from pyiceberg.catalog.glue import _construct_table_input as table_input_of
except ModuleNotFoundError as error:
    raise MissingExtraError.named(f"EncryptedGlueCatalog needs the package {error.name}", "glue") from error

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.type_defs import TableInputTypeDef, TableTypeDef


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
        """Make an entry of the new name and remove the old one. Glue renames no entry.

        PyIceberg's would forget the pin with the old entry, and remove the new one too where the answer to the removal is lost.

        Raises:
            NoSuchTableError, TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg's.
            CommitFailedException: somebody committed to the table meanwhile; nothing was renamed.
            TablecryptError: the old entry could not be removed, nor the new one taken back.
        """
        old = self.identifier_to_database_and_table(from_identifier, NoSuchTableError)
        new = self.identifier_to_database_and_table(to_identifier)
        entry = self._get_glue_table(*old)
        self._convert_glue_to_iceberg(entry)
        self._create_glue_table(*new, renamed_input_of(new[1], entry))

        try:
            # The new entry has the table as it was read: without this look, a commit since would go with the old one.
            if self._get_glue_table(*old).get("VersionId") != entry.get("VersionId"):
                raise CommitFailedException(f"{'.'.join(old)}: somebody committed to the table, and it was not renamed: rename it again")
            self._remove_entry(old)
        except Exception as error:  # noqa: BLE001  whatever failed, no table may be left with two names
            self._take_back(old, new, error)

        return self._convert_glue_to_iceberg(self._get_glue_table(*new))

    def _take_back(self, old: tuple[str, str], new: tuple[str, str], error: Exception) -> None:
        """Remove the new entry of a table that was not renamed, and raise the error; do nothing where the old entry is gone."""
        try:
            # Only the answer to its removal was lost: the new entry is the last that leads to the table.
            if not self._has_entry(old):
                return
            self._remove_entry(new)
        except Exception as failure:  # noqa: BLE001  of two errors, the one to raise says what both left
            raise TablecryptError(
                f"{'.'.join(old)} was not renamed ({error}), and its new name {'.'.join(new)} could not be taken back ({failure}): drop "
                "one of the two, and purge neither, since commits by one name do not reach the other"
            ) from error

        raise error

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
        return self.table_of_entry(glue_table)

    def _update_glue_table(self, database_name: str, table_name: str, table_input: TableInputTypeDef, version_id: str) -> None:
        # Just before it is sent: PyIceberg has merged the entry's parameters with those of the commit by now.
        sent: TableInputTypeDef = {**table_input, "Parameters": self.parameters_to_send(table_input.get("Parameters", {}))}
        try:
            super()._update_glue_table(database_name, table_name, sent, version_id)
        except CommitFailedException as refused:
            if not self._has_landed(refused, (database_name, table_name), sent):
                raise

    def _create_glue_table(self, database_name: str, table_name: str, table_input: TableInputTypeDef) -> None:
        try:
            super()._create_glue_table(database_name, table_name, table_input)
        except TableAlreadyExistsError as refused:
            if not self._has_landed(refused, (database_name, table_name), table_input):
                raise

    def _has_landed(self, refused: Exception, identifier: Identifier, sent: TableInputTypeDef) -> bool:
        """Whether an entry was refused because it is there: the client of AWS sends a request again whose answer is lost.

        Raises:
            CommitStateUnknownException: the request was sent again, and the table cannot be loaded.
        """
        location = sent.get("Parameters", {}).get(METADATA_LOCATION)
        if not _was_sent_again(refused) or location is None:
            return False

        try:
            current = self.load_table(identifier)
        except Exception as error:
            # Files of a commit that failed are deleted: of one that has landed, the table would name them.
            raise CommitStateUnknownException(
                f"{'.'.join(identifier)}: Glue's answer was lost and the table cannot be loaded, so the commit may have landed: {error}"
            ) from error
        # Others may have committed on top of it by now.
        return location in (current.metadata_location, *(each.metadata_file for each in current.metadata.metadata_log))


def _was_sent_again(refused: Exception) -> bool:
    """Whether the request that was refused is one that the client of AWS had sent before, without an answer."""
    answer = getattr(refused.__cause__, "response", {})
    return bool(answer.get("ResponseMetadata", {}).get("RetryAttempts"))
