"""CREATE, DROP and RENAME TABLE.

A table that is created here is always encrypted: where neither the statement nor a default names a master key, the statement is refused
before anything is written. What Spark stores beside a table's own properties (`provider`, `location`) is no property of an Iceberg table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.catalog import WAREHOUSE_LOCATION, Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CreateTableTransaction, Table, TableProperties, Transaction
from pyiceberg.typedef import Identifier

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.shared.support import unsupported_location
from tablecrypt.spark.sql.catalogs import catalog_of
from tablecrypt.spark.sql.loading import find_table, load_named
from tablecrypt.spark.sql.messages import NamedRequest, Response, operation
from tablecrypt.spark.sql.partition_fields import SparkTransform, partition_spec
from tablecrypt.spark.sql.planner import OpenCatalog, Planner
from tablecrypt.spark.sql.spark_types import iceberg_schema
from tablecrypt.spark.sql.views import find_view
from tablecrypt.spark.sql.writes.defaults import default_value
from tablecrypt_catalog.encrypting_catalog import EncryptingCatalog

_PROVIDERS: Final = ("iceberg", "parquet", "tablecrypt")
_OF_SPARK: Final = ("external", "is_managed_location", "location", "provider", "table_type")
_SHOWN_ONLY: Final = ("current-snapshot-id", "format", "identifier-fields", "sort-order")
"""What SHOW TBLPROPERTIES and SHOW CREATE TABLE show of a table's metadata although it is no property."""
_OPTION: Final = "option."
"""Spark gives each of OPTIONS (…) twice: under its name, and under its name after this."""


class DefinitionRequest(NamedRequest):
    """What CREATE and REPLACE TABLE say of a table.

    Attributes:
        schema: Spark's JSON.
        properties: what Spark stores of a table beside it.
        partitions: [{"transform": "bucket", "parameters": [4], "columns": [["id"]]}, …]
        defaults: of columns, by name.
    """

    schema: str
    properties: Mapping[str, str]
    partitions: list[Mapping[str, Any]]
    defaults: Mapping[str, Any]


@dataclass(frozen=True)
class Definition:
    """What CREATE TABLE says of a table, checked."""

    identifier: Identifier
    schema: Schema
    spec: PartitionSpec
    location: str | None
    properties: dict[str, str]
    defaults: dict[str, Any]

    @classmethod
    def of(cls, request: DefinitionRequest) -> Definition:
        """Read the definition in a request.

        Raises:
            ConfigurationError: a part of the definition has no meaning for an encrypted table.
        """
        check_names(request.identifier)
        given = request.properties
        schema = iceberg_schema(json.loads(request.schema))
        defaults = {name: default_value(value, schema.find_type(name), name) for name, value in request.defaults.items()}
        spec = partition_spec(schema, [SparkTransform.of(each) for each in request.partitions])

        return cls(request.identifier, schema, spec, given.get("location"), table_properties(given), defaults)

    def stage_defaults(self, transaction: Transaction) -> None:
        """Stage the write-defaults of columns: PyIceberg leaves those of a new table's schema out."""
        if self.defaults:
            with transaction.update_schema() as update:
                for name, value in self.defaults.items():
                    update.set_default_value((name,), value)

    def check(self, catalog: Catalog) -> None:
        """Raise ConfigurationError unless the table will be encrypted, and lie where Spark's tasks write to it."""
        location = str(self.location or catalog.properties.get(WAREHOUSE_LOCATION) or "")
        # Executors write through Hadoop, which would put files elsewhere than the metadata says.
        if reason := unsupported_location(location):
            raise ConfigurationError(f"{location}: {reason}, by a //, ?, #, . or .. in it: name a location without them")
        self._check_key(catalog)

    def _check_key(self, catalog: Catalog) -> None:
        if self.properties.get(names.KEY_ID.name):
            return
        if isinstance(catalog, EncryptingCatalog) and catalog.default_key_id(self.identifier[:-1]):
            return

        raise ConfigurationError(
            f"{'.'.join(self.identifier)} would not be encrypted: add TBLPROPERTIES ('{names.KEY_ID.name}' = '…') with the id of a master "
            f"key, or set {names.DEFAULT_KEY_ID.name} for the catalog or the namespace"
        )


def table_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return what of a statement's properties are the table's own.

    Raises:
        ConfigurationError: USING names another format than Iceberg with Parquet files. USING parquet sets write.format.default as well.
    """
    provider = given.get("provider", "iceberg").lower()
    if provider not in _PROVIDERS:
        raise ConfigurationError(f"USING {provider}: this catalog holds encrypted Iceberg tables with Parquet files; write USING iceberg")
    # SHOW CREATE TABLE prints these, and its output has to create a table again.
    left_out = (*_OF_SPARK, *_SHOWN_ONLY)
    own = {name: value for name, value in given.items() if name not in left_out and not name.startswith(_OPTION)}
    return own | {TableProperties.WRITE_FILE_FORMAT: provider} if provider == "parquet" else own


def check_names(identifier: Identifier) -> None:
    """Raise ConfigurationError for a name that PyIceberg's catalogs would take for several."""
    for name in identifier:
        if not name.strip() or "." in name:
            raise ConfigurationError(f"{name!r} cannot be the name of a namespace or table: it is blank or has a dot in it")


def check_settable(wanted: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a name that is shown as a property but is not one."""
    for name in wanted:
        if name in _SHOWN_ONLY:
            raise ConfigurationError(f"{name} cannot be set as a property: it only shows what another part of the table's metadata says")


@operation
def create_table(planner: Planner, request: DefinitionRequest) -> Response:
    """Create an encrypted table and load it.

    Raises:
        ConfigurationError: as `Definition.of`, or nothing names a master key.
        TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg's.
    """
    catalog = catalog_of(planner, request).catalog
    definition = Definition.of(request)
    definition.check(catalog)
    create: Callable[..., Table | CreateTableTransaction] = (
        # Defaults are a second step, and between two commits others would write rows without them.
        catalog.create_table_transaction if definition.defaults else catalog.create_table
    )
    made = create(
        definition.identifier,
        definition.schema,
        location=definition.location,
        partition_spec=definition.spec,
        properties=definition.properties,
    )
    if isinstance(made, CreateTableTransaction):
        definition.stage_defaults(made)
        made.commit_transaction()
    return load_named(planner, request)


class DropTable(NamedRequest):
    """A table to drop; with `purge` its files go too, else they stay where they are."""

    purge: bool


@operation
def drop_table(planner: Planner, request: DropTable) -> Response:
    """Drop a table.

    Raises:
        ConfigurationError: the name is that of a branch, a tag, a metadata table or a view.
        PurgeIncompleteError: files could not be deleted; purging again continues.
    """
    opened = catalog_of(planner, request)
    try:
        if request.purge:
            opened.catalog.purge_table(request.identifier)
        else:
            opened.catalog.drop_table(request.identifier)
    except NoSuchTableError:
        # Asked last, since a table that has the name of a branch or metadata table comes first.
        _refuse_other(opened, request.identifier)
        return Response({"dropped": False})

    return Response({"dropped": True})


def _refuse_other(opened: OpenCatalog, identifier: Identifier) -> None:
    if find_view(opened.catalog, identifier) is not None:
        raise ConfigurationError(f"{'.'.join(identifier)} is a view, not a table: DROP VIEW drops it")
    with suppress(NoSuchTableError):
        located, part = find_table(opened, identifier)
        if part is not None:
            raise ConfigurationError(f"{part} is no table of its own but a view of {located.name}: it cannot be dropped as a table")


class RenameTable(NamedRequest):
    """A table to rename."""

    to_namespace: list[str]
    to_name: str


@operation
def rename_table(planner: Planner, request: RenameTable) -> None:
    """Rename a table. Its files and its pins stay.

    Raises:
        NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError: as PyIceberg's.
    """
    catalog = catalog_of(planner, request).catalog
    renamed = (*without_catalog(catalog, tuple(request.to_namespace)), request.to_name)
    check_names(renamed)
    catalog.rename_table(request.identifier, renamed)


def without_catalog(catalog: Catalog, namespace: Identifier) -> Identifier:
    """Return a namespace without the catalog's name before it: in RENAME TO prod.db.sales Spark takes that for a namespace."""
    is_catalog = namespace[:1] == (catalog.name,) and not catalog.namespace_exists(namespace)
    return namespace[1:] if is_catalog else namespace
