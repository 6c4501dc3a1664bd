"""CREATE, ALTER and DROP NAMESPACE.

{"operation": "create_namespace", "catalog": …, "namespace": ["db"], "properties": {…}}
{"operation": "alter_namespace", …, "updates": {…}, "removals": […]}
{"operation": "drop_namespace", …, "cascade": false}
"""

from __future__ import annotations

import logging
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError
from pyiceberg.typedef import Identifier

from tablecrypt.spark.sql.catalogs import catalog_of
from tablecrypt.spark.sql.definitions import check_names
from tablecrypt.spark.sql.messages import Request, Response
from tablecrypt.spark.sql.planner import Planner
from tablecrypt.spark.sql.views import list_views

logger = logging.getLogger(__name__)


def create_namespace(planner: Planner, request: Request) -> Response:
    """Create a namespace. Raises NamespaceAlreadyExistsError; ConfigurationError for a property that namespaces do not have."""
    catalog = catalog_of(planner, request).catalog
    namespace = tuple(request.texts("namespace"))
    properties = request.mapping("properties")
    check_names(namespace)
    catalog.create_namespace(namespace, properties)
    return Response({})


def alter_namespace(planner: Planner, request: Request) -> Response:
    """Set and remove properties. Raises NoSuchNamespaceError; ConfigurationError for a property that namespaces do not have."""
    catalog = catalog_of(planner, request).catalog
    namespace = tuple(request.texts("namespace"))
    known = catalog.load_namespace_properties(namespace)
    removals = set(request.texts("removals")) & known.keys()
    updates = request.mapping("updates")
    catalog.update_namespace_properties(namespace, removals, updates)

    return Response({})


def drop_namespace(planner: Planner, request: Request) -> Response:
    """Drop a namespace; with `cascade` also what is in it, whose files stay where they are.

    Raises:
        NamespaceNotEmptyError: without `cascade`, there is something in it.
    """
    catalog = catalog_of(planner, request).catalog
    namespace = tuple(request.texts("namespace"))
    try:
        _drop(catalog, namespace, cascade=request.flag("cascade"))
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


OPERATIONS: Final = {"create_namespace": create_namespace, "alter_namespace": alter_namespace, "drop_namespace": drop_namespace}
