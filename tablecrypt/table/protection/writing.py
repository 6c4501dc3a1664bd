"""The protection of columns under which data files are written, and whether it still is the table's when they are committed.

    write     `WriteProtection`: the keys and masks of each file, and what its manifest entry leaves out
    commit    `WrittenUnder`: the policy, names and column keys of the metadata that the writer had, held beside the snapshot against the
              metadata that the catalog has then

Of a protected column, and of all that lies in it, a manifest entry has no size, no count and no bound. Sizes and counts would tell how
long values are and which are null; a file that has them was not written here.

A change of properties or keys between the two moves no branch: no requirement of Iceberg's notices it.

    since the files were written                     the commit
    a column was declared, also if it was dropped    refused: they hold it under the table's key
    a column has another master key                  refused: who may use the former one could read them
    a column has another mask, and they store one    refused: they show more, or something else, than they are to
    a column key is gone                             refused: nobody could read the column in them
    a protected column's name led to a column        refused: they hold its values in that column
    that was not protected
    KEKs were rotated or rewrapped, a column was     goes on: they hold hidden columns that the metadata still opens
    renamed, its protection removed, or its mask
    is another and they store none

The files of a column that was declared may be from before: a transaction that appends and then declares writes up to which sequence number
files lack the protection.

A change of the protection itself is refused where that was changed after its writer had loaded the table: see `AssertProtectionUnchanged`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import ValidatableTableRequirement

from tablecrypt import properties as names
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.column_keys import ColumnKeys, ColumnPolicy, ProtectedColumn, is_from_before
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.keys.nested_columns import covering
from tablecrypt.parquet.protected.hidden_arrays import Replacement
from tablecrypt.parquet.protected.hidden_column_writer import ProtectedField
from tablecrypt.table.metadata import EncryptedTableMetadata, has_column_keys
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
        # A tag protects nothing before it has a master key.
        if names.COLUMN_TAGS.name in metadata.properties:
            check_tagged(metadata.schema(), metadata.properties, policy.columns)
        # Before the way out for tables without protected columns: the properties that protect them may have been removed.
        if has_column_keys(metadata):
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


class StaleWriteError(CommitFailedException):
    """Columns are protected otherwise now than when a commit was prepared: nothing is committed. Load the table and do it again."""


class AssertProtectionUnchanged(ValidatableTableRequirement):
    """Columns are protected as they were when a change of that was made ready. No server knows it: clients of one look for themselves.

    `policy` is the ColumnPolicy of then.
    """

    type: Literal["assert-column-protection"] = Field(default="assert-column-protection")
    # Any, because pydantic 2.5 looks into the annotations of a dataclass, and finds names that are not here.
    policy: Any = Field(repr=False)
    declarations: frozenset[str] = Field(repr=False)

    @classmethod
    def of(cls, metadata: TableMetadata) -> Self:
        """Return the requirement that columns are protected as in this metadata, and by the same declarations."""
        ring = metadata.key_ring if isinstance(metadata, EncryptedTableMetadata) else KeyRing()
        declarations = frozenset(each.key_id for each in ring.column_declarations)
        return cls(policy=ColumnPolicy.from_properties(metadata.properties), declarations=declarations)

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Raise StaleWriteError where the base of the commit protects columns otherwise."""
        if base_metadata is not None and AssertProtectionUnchanged.of(base_metadata) != self:
            raise StaleWriteError(
                f"{base_metadata.location}: columns are protected otherwise now than when this change was prepared; nothing was committed. "
                "Load the table and make the change again"
            )


@dataclass(frozen=True)
class WrittenUnder:
    """The protection under which files were written.

    Attributes:
        policy: the protected columns of the schema then.
        schema: that schema.
        column_keys: ids of the column keys and mask keys that the table had then.
    """

    policy: ColumnPolicy
    schema: Schema
    column_keys: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def of(cls, metadata: TableMetadata) -> Self:
        """Return the protection of files that are written by this metadata. Raises ConfigurationError where it cannot be read."""
        ring = metadata.key_ring if isinstance(metadata, EncryptedTableMetadata) else KeyRing()
        schema = metadata.schema()
        return cls(ColumnPolicy.from_properties(metadata.properties, schema), schema, frozenset(entry.key_id for entry in ring.column_keys))

    @classmethod
    def with_hidden_columns(cls, field_ids: Iterable[int], metadata: TableMetadata, sequence_number: int | None) -> Self:
        """Return the protection of files of which only the hidden columns are known, as a manifest list's header names them.

        Args:
            field_ids: of those columns.
            metadata: the table's, whose readers open hidden columns under a former master key in files from before.
            sequence_number: of the snapshot that added the files.
        """
        now, columns = ColumnPolicy.from_properties(metadata.properties, metadata.schema()), list[ProtectedColumn]()
        for field_id in now.columns.keys() & frozenset(field_ids):
            column, former = now.columns[field_id], now.former.get(field_id)
            # Appended once more, files under a former key would be younger than any that it opens.
            if former is not None and former.opens(sequence_number):
                column = replace(column, column_key_id=former.key_id)
            columns.append(column)

        return cls(ColumnPolicy.of(columns), metadata.schema())

    def check(self, metadata: TableMetadata, sequence_number: int | None) -> None:
        """Check that files written so can be committed on this metadata.

        Args:
            metadata: what the catalog has, with what the transaction itself changes before the snapshot.
            sequence_number: of the snapshot that adds the files.

        Raises:
            StaleWriteError: the protection of a column has changed since.
            ConfigurationError: the metadata's properties cannot be used.
        """
        if (what := self.differs_from(metadata, sequence_number)) is not None:
            raise StaleWriteError(
                f"{metadata.location}: {what} since the rows were written; nothing was committed. Load the table and write them again"
            )

    def differs_from(self, metadata: TableMetadata, sequence_number: int | None) -> str | None:
        """Return what has changed so that files written so must not be in a table; None where nothing has. As `check`."""
        # First, as it matters whatever the properties say: no one could ever read the column in these files.
        if gone := self._gone_from(metadata):
            return f"column key {gone[0]} was destroyed"

        schema = metadata.schema()
        for column in ColumnPolicy.from_properties(metadata.properties).columns.values():
            # One that somebody has dropped since is in the files all the same, readable as they were written.
            name = schema.find_column_name(column.field_id) or self.schema.find_column_name(column.field_id)
            if name is not None and (what := self._difference(column, name, sequence_number)) is not None:
                return f"column {name!r} {what}"

        return None

    def _gone_from(self, metadata: TableMetadata) -> list[str]:
        if not self.column_keys or not isinstance(metadata, EncryptedTableMetadata):
            return []
        ring = metadata.key_ring
        return sorted(key_id for key_id in self.column_keys if key_id not in ring)

    def _difference(self, now: ProtectedColumn, name: str, sequence_number: int | None) -> str | None:
        then = self.policy.columns.get(now.field_id)
        if then is None:
            return None if is_from_before(now.since, sequence_number) else "was declared protected"
        if then.column_key_id != now.column_key_id:
            return "has come under another master key"
        # The mask `null` and `error` put no value into a file, whatever the table shows now.
        if then.mask.is_stored and then.mask != now.mask:
            return "has got another mask"
        # Who wrote rows by their names put the values of this one into the column that had the name.
        if (named := _id_of(self.schema, name)) not in (None, now.field_id) and named not in self.policy.columns:
            return "has taken the name of another column"

        return None


def _id_of(schema: Schema, name: str) -> int | None:
    try:
        # Spark compares names without case, and writes by them.
        return int(schema.find_field(name, case_sensitive=False).field_id)
    except ValueError:
        return None
