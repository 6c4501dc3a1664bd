"""What one read sees of protected columns: values where the reader may use the column key, else masks, or a refusal.

    the column key can be used                     values
    it cannot      masked="error"                  ColumnKeyDeniedError, before any file is opened
                   the column's mask is error      the same
                   the read filters by it          the same: a filter is never evaluated on masks
                   an engine takes the column,     the same: it evaluates conditions, joins and groups of its own on what it gets
                   and nobody asked for masks
                   masks that files hold           the masks
                   null                            nulls, or empty values where the column is required

The key service is asked once for each column that a read needs, and its answer is remembered (column_key_ring.py).

A file from before the column was protected holds its values under the table's key. It is known by its data sequence number, which is at
most the `since` of the property that protects the column. Readers without the right see nulls of it, whatever the mask. Any other file
without a hidden column is refused: its writer knew nothing of protected columns, or somebody with the table's key has made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError, FormatError, TamperedFileError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.column_keys import ColumnKeys, ColumnPolicy, is_from_before
from tablecrypt.keys.nested_columns import all_ancestors, ancestors, positions_through_structs
from tablecrypt.parquet.protected.hidden_arrays import replaced_array
from tablecrypt.parquet.protected.hidden_column_reader import ColumnAccess
from tablecrypt.parquet.protected.placeholders import blanks
from tablecrypt.parquet.uniform import PositionedBatch, ReadRequest
from tablecrypt.table._pyiceberg.arrow import stored_schema
from tablecrypt.table.metadata import EncryptedTableMetadata, has_column_keys
from tablecrypt.table.protection.authenticated import check_declared
from tablecrypt.table.protection.policy import column_keys, policy_of, unreadable
from tablecrypt.table.table_files import OpensColumnKeys

if TYPE_CHECKING:
    from tablecrypt.table.data_file_reader import OpenedFile

MASK: Final = "mask"
ERROR: Final = "error"


@dataclass(frozen=True)
class VisibleColumns:
    """What a read sees of the protected columns that it needs.

    Attributes:
        protected: field ids of all that are or were protected.
        opened: of those whose values are wanted, and may be had.
        with_placeholders: of those whose placeholders are read.
        keys: opens hidden columns.
        masked: field ids of those that are masked.
        nulled: of these the ones whose mask no file holds.
        since: for each that is needed, the data sequence number up to which files hold it under the table's key; None: no file does.
        name_mapping: the table's, by which files without field ids are read.
    """

    protected: frozenset[int]
    opened: frozenset[int]
    with_placeholders: frozenset[int]
    keys: ColumnKeys
    masked: frozenset[int]
    nulled: frozenset[int]
    since: dict[int, int | None]
    name_mapping: str | None

    def access_to(self, sequence_number: int | None) -> ColumnAccess:
        """Return the access to the hidden columns of a file with this data sequence number."""
        unwrap = partial(self.keys.unwrap, sequence_number=sequence_number)
        return ColumnAccess(self.protected, self.opened, self.with_placeholders, unwrap)

    def still_to_mask(
        self, location: str, hidden_columns: frozenset[int], masks: frozenset[int], sequence_number: int | None
    ) -> frozenset[int]:
        """Return which of the masked columns a file gives as something else than their masks: as values, or as an earlier mask.

        Args:
            location: of the file.
            hidden_columns: field ids of the columns that it hides.
            masks: of the masked columns those of which it gives stored masks.
            sequence_number: its data sequence number.

        Raises:
            TamperedFileError: a hidden column is missing that it has to have.
        """
        for field_id, since in self.since.items():
            if field_id not in hidden_columns and not is_from_before(since, sequence_number):
                raise TamperedFileError(
                    location,
                    f"holds the protected column with field id {field_id} under the table's key, though it was written when the column "
                    "was protected "
                    "already: by another engine, or by somebody who has the table's key. An audit lists such files",
                )

        # A column that is protected no more is in the clear where it has no hidden column.
        return (self.masked & self.since.keys()) - hidden_columns | (self.nulled & masks)

    def check_compared(self, location: str, field_ids: set[int], schema: Schema) -> None:
        """Refuse equality deletes by protected columns, which hold values under the table's key.

        Whoever may commit could try values out by them: a row that is gone had the value.

        Raises:
            FormatError: there are such deletes of rows of a file.
        """
        for field_id in field_ids:
            if not self.protected.isdisjoint((field_id, *ancestors(schema, field_id))):
                name = schema.find_column_name(field_id)
                raise FormatError(
                    f"{location}: another engine has deleted rows of it by the values of the protected column {name!r}: such "
                    "deletes are not read. Roll the branch back to the snapshot before, and delete the rows through tablecrypt"
                )


def opened_columns(metadata: TableMetadata, io: EncryptingFileIO, projected: Schema, filtered: set[int], masked: str) -> frozenset[int]:
    """Return the field ids of the protected columns whose values a read opens: none in a table that has and had none.

    Arguments and errors are those of `visible_columns`.
    """
    return visible_columns(metadata, io, projected, filtered, masked).opened if has_column_keys(metadata) else frozenset()


def visible_columns(metadata: TableMetadata, io: EncryptingFileIO, projected: Schema, filtered: set[int], masked: str) -> VisibleColumns:
    """Return what a read sees of the protected columns of a table that has or had some (`has_column_keys`).

    Args:
        metadata: the table's.
        io: the table's.
        projected: the columns of the result.
        filtered: field ids that filters look at, in the table's current schema.
        masked: `mask`, or `error` for a read that needs values.

    Raises:
        ColumnKeyDeniedError: values are needed that the reader may not see.
        ConfigurationError: the name of a protected column leads to another one, and the read needs one of the two.
        KeyNotFoundError: the key of a column was shredded.
        KeyIdChangedError: the properties protect a column less than somebody with its key has declared.
    """
    schema = metadata.schema()
    around = {**all_ancestors(projected), **all_ancestors(schema)}
    # A filter on a struct compares all that lies in it.
    within = {each for each in schema.field_ids if filtered.intersection(around[each])} if filtered else set()
    policy_of(metadata, {*projected.field_ids, *filtered, *within})
    # Not by the current schema alone: a snapshot has columns that were dropped since, and files have their hidden columns.
    policy = ColumnPolicy.from_properties(metadata.properties)
    keys = _keys(metadata, io)
    looked_at = {each for field_id in filtered for each in (field_id, *around.get(field_id, ()))}
    looked_at |= {each for each in policy.columns if filtered.intersection(around.get(each, ()))}
    needed = {each for each in _every(policy) if each in projected.field_ids or each in looked_at}
    # Before the mask and `since` of the properties decide what is shown: whoever may commit can change them.
    check_declared(metadata, io, needed, writing=False)
    # Arrow reads a struct whole: what lies beside the fields that are asked for is masked, whoever asks.
    denied = {field_id for field_id in needed if not _may_read(keys, policy, field_id, masked, looked_at)}
    everything = frozenset(_every(policy))
    touched = {*projected.field_ids, *looked_at}
    beside = {each for each in _every(policy) - needed if not touched.isdisjoint(around.get(each, ()))}
    if any(around.get(each) for each in touched):
        # Of what was dropped the schema does not say in which struct it lay, and files from before have it there.
        beside |= everything - around.keys()
    nulled = frozenset(each for each in denied if each not in policy.columns or not policy.columns[each].mask.is_stored)
    since = {each: policy.columns[each].since for each in needed if each in policy.columns}

    return VisibleColumns(
        everything,
        frozenset(needed - denied),
        frozenset(denied | beside),
        keys,
        frozenset(denied),
        nulled,
        since,
        metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING),
    )


def protected_in(metadata: TableMetadata, columns: Schema) -> frozenset[int]:
    """Return the field ids of those of the columns, and of fields in them, that are or were protected."""
    return frozenset(columns.field_ids & _every(ColumnPolicy.from_properties(metadata.properties)))


def refuse_masks_to_engine(metadata: TableMetadata, io: EncryptingFileIO, columns: Schema) -> None:
    """Refuse to give an engine columns that this reader would see masks of, and that nobody has asked to mask.

    Raises:
        ColumnKeyDeniedError: one of the columns would be masked. The message names them all.
    """
    if not (protected := protected_in(metadata, columns)):
        return
    if not (denied := unreadable(_keys(metadata, io), sorted(protected))):
        return

    first = next(iter(denied.values()))
    listed = ", ".join(repr(columns.find_column_name(field_id)) for field_id in denied)
    raise ColumnKeyDeniedError(
        first.field_id,
        first.column_key_id,
        first.message,
        first.column_name,
        f"An engine would evaluate conditions, joins and groups on the masks of {listed}. Leave these columns out of the query, or of "
        'the scan with table.scan(selected_fields=…), or ask for their masks with table.scan(masked="mask")',
    ) from first


class MaskedFile:
    """A file that gives masked columns as something else than their masks: they are null, or empty where they are required.

    Args:
        opened: the file.
        masked: field ids of these columns.
        name_mapping: the table's, by which a file without field ids is read.
        location: names the file in errors.
    """

    def __init__(self, opened: OpenedFile, masked: frozenset[int], name_mapping: str | None, location: str) -> None:
        self._opened = opened
        self.schema = opened.schema
        stored = stored_schema(opened.schema.serialize().to_pybytes(), name_mapping, location)
        self._paths = [path for field_id in sorted(masked) if (path := positions_through_structs(stored, field_id))]

    def batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """Yield rows, masked; the filter looks at no masked column."""
        for batch in self._opened.batches(request):
            yield self._masked(batch)

    def positioned_batches(self, request: ReadRequest) -> Iterator[PositionedBatch]:
        """Yield rows with their positions, masked."""
        for each in self._opened.positioned_batches(request):
            yield PositionedBatch(each.parts, self._masked(each.batch))

    def _masked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for path in self._paths:
            field = self.schema.field(path[0])
            at = batch.schema.get_field_index(field.name)
            if at >= 0:
                array = replaced_array(field, batch.column(at), path[1:], blanks)
                batch = batch.set_column(at, batch.schema.field(at), array)
        return batch


def _keys(metadata: TableMetadata, io: EncryptingFileIO) -> ColumnKeys:
    if not isinstance(metadata, EncryptedTableMetadata) or not isinstance(io, OpensColumnKeys):
        raise ConfigurationError(
            f"{metadata.location} has protected columns, and is read through the table's own FileIO and metadata alone"
        )
    return column_keys(metadata, io)


def _every(policy: ColumnPolicy) -> set[int]:
    return {*policy.columns, *policy.former}


def _may_read(keys: ColumnKeys, policy: ColumnPolicy, field_id: int, masked: str, looked_at: set[int]) -> bool:
    try:
        keys.check_readable((field_id,))
    except ColumnKeyDeniedError as denied:
        column = policy.columns.get(field_id)
        # A filter is never evaluated on masks, since the rows that it keeps would be the wrong ones.
        if masked == ERROR or field_id in looked_at or (column is not None and column.mask.kind == ERROR):
            raise denied
        return False

    return True
