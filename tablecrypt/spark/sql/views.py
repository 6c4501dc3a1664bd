"""Views of a catalog that keeps them, as REST ones do: finding, showing and describing them.

Java checks a view's SQL and lets Spark resolve it: here it is text. Iceberg's Spark catalog keeps its views in the same form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchViewError
from pyiceberg.typedef import Identifier
from pyiceberg.view import View

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.printable import sql_string
from tablecrypt.spark.shared.schema import spark_type
from tablecrypt.spark.shared.written_columns import quoted
from tablecrypt.spark.sql.catalogs import catalog_of, spark_json
from tablecrypt.spark.sql.local_rows import local_rows
from tablecrypt.spark.sql.messages import CatalogRequest, NamedRequest, NamespaceRequest, Response, operation
from tablecrypt.spark.sql.planner import OpenCatalog, Planner
from tablecrypt.spark.sql.statements.variables import MEANING, find_variable
from tablecrypt_catalog.rest_views import RestViews

DIALECT: Final = "spark"
QUERY_COLUMNS: Final = "spark.query-column-names"
"""Iceberg's Spark catalog keeps here what the query calls its columns, separated by commas."""
COMMENT: Final = "comment"


def find_view(catalog: Catalog, identifier: Identifier) -> View | None:
    """Return a view; None if no view has that name, or the catalog does not support views."""
    if not isinstance(catalog, RestViews) or not catalog.has_views or len(identifier) == 1:
        return None
    with suppress(NoSuchViewError):
        return catalog.load_view(identifier)
    return None


def list_views(catalog: Catalog, namespace: Identifier) -> list[Identifier]:
    """Return the names of a namespace's views; none where the catalog keeps no views."""
    return list(catalog.list_views(namespace)) if isinstance(catalog, RestViews) and catalog.has_views else []


def described_view(opened: OpenCatalog, view: View) -> dict[str, Any]:
    """Return what Java's SqlView knows of a view.

    Raises:
        FormatError: it has no SQL for Spark, SQL with a variable of Spark's, or columns that do not fit each other.
    """
    version, schema = view.current_version(), view.schema()
    names = _query_columns(view)
    # Names and columns are matched by position: a column too few would show values under another name.
    if len(names) != len(schema.fields):
        raise FormatError(f"{shown(opened, view)} has {len(schema.fields)} columns, and its query {len(names)}: create it again")

    return {
        "schema": spark_json(schema),
        "sql": _without_variables(opened, view, _sql(opened, view)),
        "query_columns": names,
        "default": [version.default_catalog or opened.name, *version.default_namespace],
        "comment": view.properties.get(COMMENT),
        "properties": dict(view.properties),
    }


@operation
def look_for_view(planner: Planner, request: NamedRequest) -> Response:
    """Say whether a name is that of a view."""
    return Response({"found": find_view(catalog_of(planner, request).catalog, request.identifier) is not None})


class ShowViews(NamespaceRequest):
    """A namespace's views: `*` in the pattern stands for anything, `|` for or."""

    pattern: str | None


@operation
def show_views(planner: Planner, request: ShowViews) -> Response:
    """List views."""
    opened = catalog_of(planner, request)
    namespace = tuple(request.namespace)
    patterns = [re.escape(each.strip()).replace(r"\*", ".*") for each in (request.pattern or "*").split("|")]
    wanted = re.compile("|".join(patterns), re.IGNORECASE)
    names = sorted(name[-1] for name in list_views(opened.catalog, namespace) if wanted.fullmatch(name[-1]))
    schema = pa.schema([("namespace", pa.string()), ("viewName", pa.string()), ("isTemporary", pa.bool_())])
    rows = [{"namespace": ".".join(namespace), "viewName": name, "isTemporary": False} for name in names]

    return local_rows("SHOW VIEWS", pa.Table.from_pylist(rows, schema))


@operation
def show_create_view(planner: Planner, request: NamedRequest) -> Response:
    """Return the statement that creates a view as it is."""
    opened, catalog = views_of(planner, request)
    view = catalog.load_view(request.identifier)
    comment = view.properties.get(COMMENT)
    properties = [f"{_literal(name)} = {_literal(value)}" for name, value in _shown_properties(view)]
    lines = [
        f"CREATE VIEW {'.'.join(map(quoted, (opened.name, *request.identifier)))} (",
        *_indented(quoted(field.name) + (f" COMMENT {_literal(field.doc)}" if field.doc else "") for field in view.schema().fields),
        *([] if comment is None else [f"COMMENT {_literal(comment)}"]),
        *(["TBLPROPERTIES (", *_indented(properties)] if properties else []),
        "AS",
        _sql(opened, view),
    ]
    statement = _without_variables(opened, view, "\n".join(lines))

    return local_rows("SHOW CREATE TABLE", pa.table({"createtab_stmt": [statement]}))


class DescribeView(NamedRequest):
    """A view to describe; with `extended`, by all that is known of it and not its columns alone."""

    extended: bool


@operation
def describe_view(planner: Planner, request: DescribeView) -> Response:
    """Return a view's description."""
    opened, catalog = views_of(planner, request)
    view = catalog.load_view(request.identifier)
    rows = [(field.name, spark_type(field.field_type).simpleString(), field.doc) for field in view.schema().fields]
    if request.extended:
        rows += [("", "", ""), ("# Detailed View Information", "", ""), *((name, text, "") for name, text in _details(opened, view))]
    columns = zip(*rows, strict=True)

    return local_rows("DESCRIBE", pa.table([pa.array(each, pa.string()) for each in columns], ["col_name", "data_type", "comment"]))


def _details(opened: OpenCatalog, view: View) -> list[tuple[str, str]]:
    version = view.current_version()
    return [
        ("Catalog", opened.name),
        ("Namespace", ".".join(view.name()[:-1])),
        ("View", view.name()[-1]),
        ("Comment", view.properties.get(COMMENT, "")),
        ("View Text", _sql(opened, view)),
        ("View Catalog and Namespace", ".".join((version.default_catalog or opened.name, *version.default_namespace))),
        ("View Query Output Columns", f"[{', '.join(_query_columns(view))}]"),
        ("Location", view.location()),
        ("View Properties", f"[{', '.join(map('='.join, _shown_properties(view)))}]"),
    ]


def _shown_properties(view: View) -> list[tuple[str, str]]:
    return sorted((name, value) for name, value in view.properties.items() if name not in (COMMENT, QUERY_COLUMNS))


def views_of(planner: Planner, request: CatalogRequest) -> tuple[OpenCatalog, RestViews]:
    """Return the catalog that a request is about. ConfigurationError where it keeps no views."""
    opened = catalog_of(planner, request)
    if not isinstance(opened.catalog, RestViews):
        raise ConfigurationError(
            f"the catalog {opened.name} ({type(opened.catalog).__name__}) keeps no views: CREATE TEMPORARY VIEW makes one for a session, "
            "and a REST catalog keeps them"
        )
    if not opened.catalog.has_views:
        raise ConfigurationError(
            f"the server of the catalog {opened.name} does not say that it keeps views: CREATE TEMPORARY VIEW makes one for a session; "
            "if it is an older server that does, set the catalog property view-endpoints-supported=true"
        )

    return opened, opened.catalog


def _sql(opened: OpenCatalog, view: View) -> str:
    found = view.sql_for(DIALECT)
    if found is None:
        others = sorted({each.root.dialect for each in view.current_version().representations})
        raise FormatError(f"{shown(opened, view)} has no SQL for Spark, only for {', '.join(others) or 'nobody'}: CREATE OR REPLACE VIEW")
    return found.sql


def _without_variables(opened: OpenCatalog, view: View, sql: str) -> str:
    # Whoever wrote the view would choose what of the reader's environment becomes a name, and names go to the catalog's server.
    if (found := find_variable(sql)) is not None:
        raise FormatError(
            f"{shown(opened, view)} has {found} in its SQL, {MEANING}: DESCRIBE EXTENDED shows it, CREATE OR REPLACE VIEW mends it"
        )
    return sql


def _query_columns(view: View) -> list[str]:
    """What the query calls the view's columns; a view of another engine has no other names than its own."""
    names = view.properties.get(QUERY_COLUMNS)
    if not names:
        return [field.name for field in view.schema().fields]
    columns = names.split(",")
    return columns if len(columns) == len(view.schema().fields) else _outside_brackets(columns)


def _outside_brackets(parts: Iterable[str]) -> list[str]:
    """Join what a comma between brackets parts: Iceberg's catalog stores the columns id and concat(a, b) as `id,concat(a, b)`."""
    names: list[str] = []
    depth = 0
    for part in parts:
        if depth > 0:
            names[-1] += f",{part}"
        else:
            names.append(part)
        depth += part.count("(") - part.count(")")

    return names


def shown(opened: OpenCatalog, view: View) -> str:
    """Return what a message calls a view."""
    return f"the view {'.'.join((opened.name, *view.name()))}"


def _indented(items: Iterable[str]) -> list[str]:
    each = list(items)
    return [f"  {item}{',' if index < len(each) else ')'}" for index, item in enumerate(each, 1)]


def _literal(text: str) -> str:
    # Spark replaces variables before it knows what a literal is.
    return sql_string(text).replace("${", "$\\u007B")
