"""CREATE, ALTER, DROP and RENAME of views."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchViewError, ViewAlreadyExistsError
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from tablecrypt.errors import ConfigurationError
from tablecrypt.properties import check_own_properties
from tablecrypt.spark.sql.definitions import check_names, without_catalog
from tablecrypt.spark.sql.messages import NamedRequest, operation
from tablecrypt.spark.sql.planner import Planner
from tablecrypt.spark.sql.spark_types import iceberg_schema
from tablecrypt.spark.sql.statements.variables import MEANING, find_variable
from tablecrypt.spark.sql.views import COMMENT, DIALECT, QUERY_COLUMNS, find_view, shown, views_of

_LOCATION: Final = "location"
_OF_SPARK: Final = ("owner", "provider")
_IF_NOT_EXISTS: Final = "if-not-exists"
_OR_REPLACE: Final = "or-replace"


class CreateView(NamedRequest):
    """A view to create, or to give another query.

    Attributes:
        sql: the query.
        schema: Spark's JSON of the view's columns.
        query_columns: what the query calls them.
        default_catalog, default_namespace: where the query's names are looked for; no catalog is the view's own.
        mode: if-not-exists, or-replace, or None, for which there must be none.
    """

    sql: str
    schema: str
    query_columns: list[str]
    default_catalog: str | None
    default_namespace: list[str]
    properties: Mapping[str, str]
    comment: str | None
    mode: str | None


@operation
def create_view(planner: Planner, request: CreateView) -> None:
    """Create a view, or give it another query.

    Raises:
        ConfigurationError: the catalog keeps no views, or one could not be kept as it is asked for.
        ViewAlreadyExistsError: there is a view or table of that name.
        NoSuchNamespaceError: as PyIceberg's.
    """
    opened, catalog = views_of(planner, request)
    check_names(request.identifier)
    properties, location = _properties(request)
    schema = iceberg_schema(json.loads(request.schema))
    version = _version(request)
    existing = find_view(catalog, request.identifier)

    if existing is None:
        # Some servers would make a view in a namespace that is not there.
        if not catalog.namespace_exists(request.identifier[:-1]):
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(request.identifier[:-1])}")
        catalog.create_view(request.identifier, schema, version, location, properties)
    elif request.mode == _OR_REPLACE:
        catalog.replace_view(existing, schema, version, properties)
    elif request.mode != _IF_NOT_EXISTS:
        raise ViewAlreadyExistsError(f"{shown(opened, existing)} exists")


def _properties(request: CreateView) -> tuple[dict[str, str], str | None]:
    """Return the properties that a new view gets, and its location."""
    given = {name: value for name, value in request.properties.items() if name not in _OF_SPARK}
    # A view holds no rows, and its SQL is not encrypted.
    check_own_properties(given, "view")
    # The names are in one property, between commas, as Iceberg's Spark catalog keeps them.
    if any("," in name for name in request.query_columns):
        raise ConfigurationError("a column of the query has a comma in its name: give it another one with AS")

    location = given.pop(_LOCATION, None)
    comment = {} if request.comment is None else {COMMENT: request.comment}

    return {**given, QUERY_COLUMNS: ",".join(request.query_columns), **comment}, location


def _version(request: CreateView) -> ViewVersion:
    # The session that made this statement replaces none, and others would.
    if (found := find_variable(request.sql)) is not None:
        raise ConfigurationError(f"the query of a view has {found}, {MEANING}: write the value")

    representation = SQLViewRepresentation(type="sql", sql=request.sql, dialect=DIALECT)
    return ViewVersion(
        schema_id=0,
        summary={"engine-name": "tablecrypt"},
        representations=[ViewRepresentation(root=representation)],
        default_catalog=request.default_catalog,
        default_namespace=tuple(request.default_namespace),
    )


class AlterView(NamedRequest):
    """Properties of a view to set, and names of those to remove; with `if_exists`, of those of them that are there."""

    updates: Mapping[str, str]
    removals: list[str]
    if_exists: bool


@operation
def alter_view(planner: Planner, request: AlterView) -> None:
    """Set and remove properties. ConfigurationError where a removed one is not there; NoSuchViewError; others as `create_view`."""
    opened, catalog = views_of(planner, request)
    view = catalog.load_view(request.identifier)
    updates, removals = dict(request.updates), request.removals
    if wrong := [name for name in (*updates, *removals) if name in (QUERY_COLUMNS, _LOCATION)]:
        raise ConfigurationError(f"{wrong[0]} of a view is set when it is created: CREATE OR REPLACE VIEW")

    missing = set(removals) - view.properties.keys()
    if missing and not request.if_exists:
        raise ConfigurationError(f"{shown(opened, view)} has no property {', '.join(sorted(missing))}: UNSET TBLPROPERTIES IF EXISTS (…)")

    if updates or set(removals) - missing:
        catalog.alter_view(view, updates, set(removals) - missing)


class DropView(NamedRequest):
    """A view to drop; with `if_exists`, it may be missing."""

    if_exists: bool


@operation
def drop_view(planner: Planner, request: DropView) -> None:
    """Drop a view. NoSuchViewError if it does not exist, unless `if_exists`."""
    _, catalog = views_of(planner, request)
    try:
        catalog.drop_view(request.identifier)
    except NoSuchViewError:
        if not request.if_exists:
            raise


class RenameView(NamedRequest):
    """A view to rename."""

    to: list[str]


@operation
def rename_view(planner: Planner, request: RenameView) -> None:
    """Rename a view. NoSuchViewError, ViewAlreadyExistsError: no view has the old name, or one has the new name."""
    _, catalog = views_of(planner, request)
    new = without_catalog(catalog, tuple(request.to))
    # ALTER VIEW prod.db.v RENAME TO w means db.w.
    renamed = new if len(new) > 1 else (*request.namespace, *new)
    check_names(renamed)
    catalog.rename_view(request.identifier, renamed)
