"""What every encrypting catalog does with a table that may be there already, or that another writer made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from tablecrypt.table.table import plain_tables_opened
from tablecrypt_catalog.table_encryption import checked_existing

if TYPE_CHECKING:
    import pyarrow as pa


class ExistingTables(Catalog):
    """Finding a table before one is created, and opening one for audit or migration."""

    def create_table_if_not_exists(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Return the table that is there, or create it.

        Raises:
            ConfigurationError: a table is there, and is not encrypted with the key that `properties` name; or as `create_table`.
        """
        try:
            return checked_existing(self.load_table(identifier), properties)
        except NoSuchTableError:
            try:
                return self.create_table(identifier, schema, location, partition_spec, sort_order, properties)
            except TableAlreadyExistsError:
                return checked_existing(self.load_table(identifier), properties)

    def load_unencrypted(self, identifier: str | Identifier) -> Table:
        """Load a table for audit or migration: as `load_table`, but also one that has encryption.key-id and is not encrypted."""
        with plain_tables_opened():
            return self.load_table(identifier)
