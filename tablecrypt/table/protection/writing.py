"""What the writer of data files does about protected columns: the keys and masks of each file, and what its manifest entry leaves out.

Of a protected column, and of all that lies in it, a manifest entry has no size, no count and no bound. Sizes and counts would tell how
long values are and which are null; a file that has them was not written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.column_keys import ColumnKeys, ColumnPolicy
from tablecrypt.keys.nested_columns import covering
from tablecrypt.parquet.protected.hidden_arrays import Replacement
from tablecrypt.parquet.protected.hidden_column_writer import ProtectedField
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.protection.authenticated import check_declared
from tablecrypt.table.protection.policy import check_layout, column_keys, policy_of
from tablecrypt.table.protection.stored_masks import replacement_of
from tablecrypt.table.protection.tags import check_tagged
from tablecrypt.table.table_files import OpensColumnKeys


@dataclass(frozen=True)
class WriteProtection:
    """The protected columns of a table, for the files of one write. Used by many threads.

    Attributes:
        keys: make a key for each file and column.
        replacements: by field id, what makes the masked values; None for an error placeholder.
        left_out: field ids that manifest entries say nothing of.
    """

    keys: ColumnKeys
    replacements: Mapping[int, Replacement | None]
    left_out: frozenset[int]

    @classmethod
    def of(cls, metadata: TableMetadata, io: EncryptingFileIO) -> Self | None:
        """Return the protection of a table's new files; None for a table without protected columns.

        Raises:
            ConfigurationError: the properties or the layout cannot be used with protected columns, or a column has a tag alone.
            ColumnKeyDeniedError: the KMS refuses a key that a mask needs.
            KeyIdChangedError: the properties protect a column less than somebody with its key has declared.
        """
        policy = policy_of(metadata)
        check_tagged(metadata.schema(), metadata.properties, policy.columns)
        # Before the way out for tables without protected columns: the properties that protect them may have been removed.
        check_declared(metadata, io, writing=True)
        if not policy:
            return None
        if not isinstance(metadata, EncryptedTableMetadata) or not isinstance(io, OpensColumnKeys):
            raise ConfigurationError(f"{metadata.location} has protected columns, and is written through the table's own FileIO alone")

        # Commits check this as well, but another engine may have committed a partition spec or sort order of a protected column.
        check_layout(policy, metadata)
        keys, schema = column_keys(metadata, io), metadata.schema()
        # Asks for the keys of hash masks, so that a refusal comes before any file is begun.
        replacements = {field_id: replacement_of(column, schema, keys.mask_key) for field_id, column in policy.columns.items()}

        return cls(keys, replacements, fields_left_out(policy, schema))

    def fields(self, key_metadata: StandardKeyMetadata) -> list[ProtectedField]:
        """Return what is protected in a new file, each column under a fresh key.

        Raises:
            ColumnKeyDeniedError, KmsError: a key cannot be had; nothing was written.
        """
        made = self.keys.generate(self.replacements, key_metadata.aad_prefix)
        return [
            ProtectedField(field_id, Secret(made[field_id].secret), made[field_id].key_metadata, replacement)
            for field_id, replacement in self.replacements.items()
        ]

    def without_protected(self, statistics: Mapping[str, Any]) -> dict[str, Any]:
        """Return the statistics of a manifest entry without what they say of protected columns."""
        return {name: self._without(value) if isinstance(value, dict) else value for name, value in statistics.items()}

    def _without(self, by_field: dict[int, Any]) -> dict[int, Any]:
        return {field_id: value for field_id, value in by_field.items() if field_id not in self.left_out}


def fields_left_out(policy: ColumnPolicy, schema: Schema) -> frozenset[int]:
    """Return the field ids that manifest entries say nothing of: those of protected columns and of all that lies in them."""
    return frozenset(covering(policy.columns, schema))
