"""What the files of a snapshot were written under, held against the metadata that the snapshot is committed on.

Files are written before the commit, and a change of properties or keys in between moves no branch: no requirement of Iceberg's notices it.

    write     files, by the policy, names and column keys of the metadata that the writer had ──▶ WrittenUnder, beside the snapshot
    commit    metadata that the catalog has then ──▶ `check`, as the update that adds the snapshot is applied to it

    since the files were written                     the commit
    a column was declared                            refused: they hold it under the table's key
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
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.keys.column_keys import ColumnPolicy, ProtectedColumn, is_from_before
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.table.metadata import EncryptedTableMetadata


class StaleWriteError(CommitFailedException):
    """Columns are protected otherwise now than when the files of a commit were written: nothing is committed, write the rows again."""


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
        for column in ColumnPolicy.from_properties(metadata.properties, schema).columns.values():
            name = str(schema.find_column_name(column.field_id))
            if (what := self._difference(column, name, sequence_number)) is not None:
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
