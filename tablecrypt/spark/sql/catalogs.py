"""Opening catalogs, listing what is in them, and describing tables to Java."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyiceberg
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform

import tablecrypt
from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.iceberg_properties import ACCEPT_ANY_SCHEMA
from tablecrypt.keys.key_ring import is_kept_by_commits
from tablecrypt.keys.nested_columns import path_through_structs
from tablecrypt.properties import SHARE
from tablecrypt.spark.network import keeps_messages_private
from tablecrypt.spark.shared.schema import schema_json
from tablecrypt.spark.shared.written_columns import stored_fields
from tablecrypt.spark.sql.messages import CatalogRequest, NamespaceRequest, Request, Response, operation
from tablecrypt.spark.sql.planner import LoadedTable, OpenCatalog, Planner
from tablecrypt.spark.sql.scans.conditions import protected_paths
from tablecrypt.spark.sql.scans.partition_values import PartitionStruct
from tablecrypt.spark.sql.writes.defaults import default_metadata
from tablecrypt_catalog import load_catalog

_SPARK_TRANSFORMS: Final = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
"""Iceberg's transforms that Spark names otherwise."""


class OpenCatalogRequest(Request):
    """A catalog to open.

    Attributes:
        name: it has in Spark.
        properties: of the catalog.
        in_spark: names of those of them that stand in Spark's configuration.
        of_session: names of those that a user of a session has set.
        spark: the application's settings that say whether its messages are private.
    """

    name: str
    properties: Mapping[str, str]
    in_spark: list[str]
    of_session: list[str]
    spark: Mapping[str, str]


@operation
def open_catalog(planner: Planner, request: OpenCatalogRequest) -> Response:
    """Open a catalog.

    Raises:
        ConfigurationError: Spark's messages are not private; a property may not come from Spark's configuration; or the catalog cannot be
            opened with these properties.
    """
    # Checked at the opening: a catalog that is open gives keys of files to every query.
    if not keeps_messages_private(lambda name, default: request.spark.get(name) or default):
        raise ConfigurationError(
            "keys of data files would travel to the executors in the clear: start the application with spark.authenticate and "
            "spark.network.crypto.enabled (or spark.ssl.rpc.enabled) set to true"
        )

    name, properties = request.name, request.properties
    check_spark_settings(name, {each: properties[each] for each in request.in_spark}, request.of_session)
    catalog = load_catalog(name, **properties)

    return Response({"catalog": planner.catalogs.add(OpenCatalog(name, catalog))})


def check_spark_settings(catalog: str, in_spark: Mapping[str, Any], of_session: Sequence[str]) -> None:
    """Refuse properties that must not be in Spark's configuration.

    Args:
        catalog: its name.
        in_spark: the properties that stand there, as spark.sql.catalog.<catalog>.<name>.
        of_session: names of those that a user of a session has set, not the configuration that the application was started with.

    Raises:
        ConfigurationError: a property is a secret, which event logs, the UI and command lines would show; or a session has set one that
            names code, which would run beside the driver.
    """
    for name, value in in_spark.items():
        setting = f"spark.sql.catalog.{catalog}.{name}"
        # By value too: a uri may have a password in it.
        if names.is_sensitive(name, str(value)):
            variable = "__".join(("PYICEBERG_CATALOG", catalog, name.replace(".", "__").replace("-", "_"))).upper()
            raise ConfigurationError(
                f"{setting} is a secret, and Spark's configuration is in event logs and the UI: set it in .pyiceberg.yaml, or as {variable}"
            )
        if names.names_code(name) and name in of_session:
            raise ConfigurationError(
                f"{setting} names code to import beside the driver: it is taken from the configuration that the application was started "
                "with, or from PyIceberg's, not from a session"
            )


def catalog_of(planner: Planner, request: CatalogRequest) -> OpenCatalog:
    """Return the catalog that a request is about."""
    return planner.catalogs[request.catalog]


@operation
def list_namespaces(planner: Planner, request: NamespaceRequest) -> Response:
    """List the namespaces directly in one; in none, those at the top."""
    found = catalog_of(planner, request).catalog.list_namespaces(tuple(request.namespace))
    return Response({"namespaces": [list(name) for name in found]})


@operation
def load_namespace(planner: Planner, request: NamespaceRequest) -> Response:
    """Return a namespace's properties. Raises NoSuchNamespaceError, also for a name that no namespace can have."""
    # PyIceberg has a ValueError for a blank name, of which Spark asks before it has a namespace created.
    if not all(map(str.strip, request.namespace)):
        raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(request.namespace)}")
    properties = catalog_of(planner, request).catalog.load_namespace_properties(tuple(request.namespace))
    return Response({"properties": {name: str(value) for name, value in properties.items()}})


@operation
def list_tables(planner: Planner, request: NamespaceRequest) -> Response:
    """List the tables of a namespace."""
    found = catalog_of(planner, request).catalog.list_tables(tuple(request.namespace))
    return Response({"tables": [name[-1] for name in found]})


def described(planner: Planner, loaded: LoadedTable) -> dict[str, Any]:
    """Return what Java's SqlTable knows of a table, and keep the table for later requests."""
    metadata = loaded.located.table.metadata
    return {
        "table": planner.tables.add(loaded),
        "name": f"{loaded.catalog_name}.{loaded.located.name}{'' if loaded.changes is None else '.changes'}",
        "uuid": str(metadata.table_uuid),
        "snapshot": str(loaded.snapshot_id if loaded.changes is None else [snapshot.snapshot_id for _, snapshot in loaded.changes]),
        "schema": spark_json(loaded.schema),
        "partition_type": schema_json(PartitionStruct(metadata).fields),
        "protected": protected_paths(loaded),
        "runtime_filters": _columns_that_prune(loaded),
        "partitioning": described_partitioning(metadata.spec(), metadata.schema()) if loaded.changes is None else [],
        "properties": _described_properties(loaded),
        "accepts_any_schema": loaded.staged is None and ACCEPT_ANY_SCHEMA.is_true(metadata.properties),
    }


def _columns_that_prune(loaded: LoadedTable) -> list[str]:
    """Return the columns by which rows are spread over files: a filter on one of them rules files out while a query runs."""
    # Of all specs, since files stay in the one that they were written under.
    sources = {field.source_id for spec in loaded.located.table.metadata.partition_specs for field in spec.fields}
    return [field.name for field in loaded.schema.fields if field.field_id in sources]


def described_partitioning(spec: PartitionSpec, schema: Schema) -> list[dict[str, Any]]:
    """Return the spec's fields that have values, each as `described_transform`: those of a manifest entry's partition, in their order."""
    return [described_transform(field.transform, schema, field.source_id) for field in stored_fields(spec)]


def described_transform(transform: Transform[Any, Any], schema: Schema, source_id: int) -> dict[str, Any]:
    """Return what Java makes Spark's transform of: the path of names to the column, Spark's name of the transform, and its number or 0."""
    name = str(transform).partition("[")[0]
    return {
        # A column that was dropped has no name.
        "column": [field.name for field in path_through_structs(schema, source_id) or ()] or [""],
        "name": _SPARK_TRANSFORMS.get(name, name),
        "parameter": getattr(transform, "num_buckets", None) or getattr(transform, "width", None) or 0,
    }


def _described_properties(loaded: LoadedTable) -> Mapping[str, str]:
    metadata = loaded.located.table.metadata
    return {
        # Copies of keys are nobody's to read or set, and CREATE TABLE refuses them.
        **{name: value for name, value in metadata.properties.items() if not (is_kept_by_commits(name) or name.startswith(SHARE.name))},
        "provider": "iceberg",
        "format": "iceberg/parquet",
        "location": metadata.location,
        "format-version": str(metadata.format_version),
        "current-snapshot-id": "none" if metadata.current_snapshot_id is None else str(metadata.current_snapshot_id),
    }


def spark_json(schema: Schema) -> str:
    """Return Spark's JSON of a schema: comments and defaults of columns, and no field ids, which are not Spark's business."""
    told = json.loads(bare_json(schema))
    for field, column in zip(schema.fields, told["fields"], strict=True):
        column["metadata"] = ({"comment": field.doc} if field.doc else {}) | default_metadata(field)
    return json.dumps(told)


def bare_json(schema: Schema) -> str:
    """Return Spark's JSON of a schema, without metadata of its columns."""
    told = json.loads(schema_json(schema.fields))
    _remove_metadata(told)
    return json.dumps(told)


def _remove_metadata(kind: Any) -> None:
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        field["metadata"] = {}
        _remove_metadata(field["type"])
    for inner in ("elementType", "keyType", "valueType"):
        _remove_metadata(kind.get(inner))


@operation
def version(planner: Planner, request: Request) -> Response:
    """Return what `iceberg_version()` says."""
    return Response({"version": f"tablecrypt {tablecrypt.__version__} (PyIceberg {pyiceberg.__version__})"})
