"""The table that options of format("tablecrypt") name, as the planner loads it.

    load_source ─▶ as of a table that SQL loads, and {write_options: those that a write gets, dynamic_overwrite: whether a write in mode
                   overwrite replaces the partitions that occur}

The option `filter` is evaluated by Python, row by row, and Spark's own filters are not.

Raises ConfigurationError: an option that cannot be used, or a tag or branch that the table does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.refs import MAIN_BRANCH

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.source.source_options import SourceOptions
from tablecrypt.spark.sql.catalogs import catalog_of, described
from tablecrypt.spark.sql.messages import CatalogRequest, Response, operation
from tablecrypt.spark.sql.planner import LoadedTable, OpenCatalog, Planner, Selection
from tablecrypt.spark.sql.statements.iceberg_settings import SNAPSHOT_PROPERTY
from tablecrypt.spark.sql.writes.write_options import USE_LAYOUT
from tablecrypt.spark.tables import LocatedTable, load_encrypted_table, ordered_projection
from tablecrypt_catalog import load_catalog


class LoadSource(CatalogRequest):
    """The table that options name, as Spark has them (source_options.py)."""

    options: Mapping[str, Any]


@operation
def load_source(planner: Planner, request: LoadSource) -> Response:
    """Load the table that options name."""
    options, opened = SourceOptions.of(request.options), catalog_of(planner, request)
    catalog = _catalog(opened, options)
    name = options.table.partition(".")[2]
    if "." not in name:
        raise ConfigurationError(f"{options.table!r} does not name a table: write catalog.namespace.table")

    table = load_encrypted_table(catalog, name)
    loaded = _loaded(LocatedTable(catalog, name, table), opened, options)
    told = described(planner, loaded)
    # Spark finds the functions of a distribution by buckets in the catalog of a table, and this one is in none.
    told["write_options"] = {USE_LAYOUT: "false"} | {SNAPSHOT_PROPERTY + each: value for each, value in options.snapshot_properties.items()}
    told["dynamic_overwrite"] = options.dynamic_overwrite

    return Response(told)


def _catalog(opened: OpenCatalog, options: SourceOptions) -> Catalog:
    if not options.catalog_properties:
        return opened.catalog
    # Only what this client configured: what a REST server added to the opened catalog must not become the client's own word.
    return load_catalog(opened.name, **{**names.client_properties(opened.catalog), **options.catalog_properties})


def _loaded(located: LocatedTable, opened: OpenCatalog, options: SourceOptions) -> LoadedTable:
    table = located.table
    row_filter, columns = options.row_filter or ALWAYS_TRUE, options.columns or ("*",)
    scan = table.scan(row_filter, columns, snapshot_id=options.snapshot_id, masked=options.masked)
    ref = options.tag or options.branch

    if ref is not None:
        # A table without snapshots has no main branch yet, and can be written to all the same.
        if ref not in table.metadata.refs and options.branch != MAIN_BRANCH:
            raise ConfigurationError(f"{located.name} has no tag or branch {ref!r}")
        scan = scan.use_ref(ref) if ref in table.metadata.refs else scan

    snapshot = scan.snapshot()
    is_writable = options.snapshot_id is None and options.tag is None
    selects = options.columns is not None or not isinstance(scan.row_filter, AlwaysTrue) or options.masked is not None
    schema = ordered_projection(scan, options.columns) if selects else None

    snapshot_id = None if snapshot is None else snapshot.snapshot_id

    return LoadedTable(
        located.at(snapshot_id, is_writable=is_writable),
        opened.name,
        options.branch or MAIN_BRANCH,
        snapshot_id,
        is_writable,
        selection=Selection(schema, None, scan.row_filter, options.masked),
        source=options,
    )
