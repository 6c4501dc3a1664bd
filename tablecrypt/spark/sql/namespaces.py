"""CREATE, ALTER and DROP NAMESPACE."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError
from pyiceberg.typedef import Identifier

from tablecrypt.spark.sql.catalogs import catalog_of
from tablecrypt.spark.sql.definitions import check_names
from tablecrypt.spark.sql.messages import NamespaceRequest, Response, operation
from tablecrypt.spark.sql.planner import Planner
from tablecrypt.spark.sql.views import list_views

logger = logging.getLogger(__name__)


class CreateNamespace(NamespaceRequest):
    """A namespace to create, with properties."""

    properties: Mapping[str, str]


@operation
def create_namespace(planner: Planner, request: CreateNamespace) -> None:
    """Create a namespace. Raises NamespaceAlreadyExistsError; ConfigurationError for a property that namespaces do not have."""
    catalog = catalog_of(planner, request).catalog
    namespace = tuple(request.namespace)
    check_names(namespace)
    catalog.create_namespace(namespace, dict(request.properties))


class AlterNamespace(NamespaceRequest):
    """Properties of a namespace to set, and names of those to remove."""

    updates: Mapping[str, str]
    removals: list[str]


@operation
def alter_namespace(planner: Planner, request: AlterNamespace) -> None:
    """Set and remove properties. Raises NoSuchNamespaceError; ConfigurationError for a property that namespaces do not have."""
    catalog = catalog_of(planner, request).catalog
    namespace = tuple(request.namespace)
    known = catalog.load_namespace_properties(namespace)
    catalog.update_namespace_properties(namespace, set(request.removals) & known.keys(), dict(request.updates))


class DropNamespace(NamespaceRequest):
    """A namespace to drop; with `cascade`, also what is in it."""

    cascade: bool


@operation
def drop_namespace(planner: Planner, request: DropNamespace) -> Response:
    """Drop a namespace; with `cascade` also what is in it, whose files stay where they are.

    Raises:
        NamespaceNotEmptyError: without `cascade`, there is something in it.
    """
    catalog = catalog_of(planner, request).catalog
    try:
        _drop(catalog, tuple(request.namespace), cascade=request.cascade)
    except NoSuchNamespaceError:
        return Response({"dropped": False})

    return Response({"dropped": True})


def _drop(catalog: Catalog, namespace: Identifier, *, cascade: bool) -> None:
    nested = catalog.list_namespaces(namespace)
    if nested and not cascade:
        raise NamespaceNotEmptyError(f"Namespace {'.'.join(namespace)} has namespaces in it: {'.'.join(nested[0])}")

    # From the inside out: catalogs refuse to drop a namespace that has something in it.
    for each in nested:
        _drop(catalog, each, cascade=True)

    if cascade:
        for table in catalog.list_tables(namespace):
            logger.info("DROP NAMESPACE … CASCADE drops %s", ".".join(table))
            catalog.drop_table(table)
        for view in list_views(catalog, namespace):
            logger.info("DROP NAMESPACE … CASCADE drops the view %s", ".".join(view))
            catalog.drop_view(view)

    catalog.drop_namespace(namespace)
