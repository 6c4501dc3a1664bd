"""Upsert: which rows of a DataFrame update rows of the table, and which are new.

Matching is PyIceberg's own (`pyiceberg.table.upsert_util`). An updated row keeps the `_row_id` of the row it replaces, and its
`_last_updated_sequence_number` is left null, so that it becomes the sequence number of the commit. Iceberg table spec, "Row Lineage".
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, BooleanExpression, Or
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import upsert_util

from tablecrypt.table.lineage import LAST_UPDATED, ROW_ID
from tablecrypt.table.scan import EncryptedDataScan

_POSITION = "__tablecrypt_position"


@dataclass(frozen=True)
class UpsertPlan:
    """What an upsert does: rows to write in place of others (with lineage columns), the filter of those others, rows to insert."""

    updated: pa.Table
    updated_predicate: BooleanExpression
    inserted: pa.Table


def key_columns(df: pa.Table, schema: Schema, join_cols: list[str] | None) -> list[str]:
    """Return the columns that say which row is which.

    Args:
        df: the rows, at most one for each key.
        schema: the table's.
        join_cols: the key columns; None for the schema's identifier fields.

    Raises:
        ValueError: there are no key columns, or a key occurs twice.
        KeyError: a key column is not in `df`.
    """
    keys = join_cols if join_cols is not None else _identifier_columns(schema)
    if not keys:
        raise ValueError("Join columns could not be found, please set identifier-field-ids or pass in explicitly.")
    if upsert_util.has_duplicate_rows(df, keys):
        raise ValueError("Duplicate rows found in source dataset based on the key columns. No upsert executed")
    return keys


def plan_upsert(df: pa.Table, scan: EncryptedDataScan, keys: list[str], update_matched: bool, insert_unmatched: bool) -> UpsertPlan:
    """Compare a DataFrame with the rows of the table that have its keys.

    Args:
        df: the rows, at most one for each key.
        scan: the table without a filter; it is read with the filter of the keys, a batch at a time.
        keys: the key columns.
        update_matched: whether rows that differ from their match are updated.
        insert_unmatched: whether rows without a match are inserted.
    """
    schema = scan.table_metadata.schema()
    updated: list[pa.Table] = []
    predicates: list[BooleanExpression] = []
    inserted = df
    matches = scan.filter(upsert_util.create_match_filter(df, keys))
    for batch in matches.batches_with_lineage():
        found = pa.Table.from_batches([batch])
        existing = found.drop_columns([ROW_ID.name, LAST_UPDATED.name])
        if update_matched:
            changed = upsert_util.get_rows_to_update(df, existing, keys)
            if changed.num_rows:
                updated.append(_with_row_ids(changed, found, keys))
                predicates.append(upsert_util.create_match_filter(changed, keys))
        if insert_unmatched:
            present = bind(schema, upsert_util.create_match_filter(existing, keys), scan.case_sensitive)
            inserted = inserted.filter(~expression_to_pyarrow(present))
    return UpsertPlan(
        updated=pa.concat_tables(updated) if updated else df.slice(0, 0),
        updated_predicate=Or(*predicates) if len(predicates) > 1 else next(iter(predicates), AlwaysFalse()),
        inserted=inserted if insert_unmatched else df.slice(0, 0),
    )


def _identifier_columns(schema: Schema) -> list[str]:
    columns = []
    for field_id in schema.identifier_field_ids:
        name = schema.find_column_name(field_id)
        if name is None:
            raise ValueError(f"Field-ID could not be found: {field_id}")
        columns.append(name)
    return columns


def _with_row_ids(changed: pa.Table, found: pa.Table, keys: list[str]) -> pa.Table:
    key_types = pa.schema([found.schema.field(key) for key in keys])
    positions = changed.select(keys).cast(key_types).append_column(_POSITION, pa.array(range(changed.num_rows), pa.int64()))
    joined = positions.join(found.select([*keys, ROW_ID.name]), keys=keys, join_type="inner").sort_by(_POSITION)
    unknown = pa.nulls(changed.num_rows, pa.int64())
    return changed.append_column(ROW_ID.name, joined.column(ROW_ID.name)).append_column(LAST_UPDATED.name, unknown)
