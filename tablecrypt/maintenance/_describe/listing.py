"""The namespaces, tables and views of a catalog, and which tables are encrypted.

A catalog knows names. Whether a table is encrypted stands in its metadata, which is loaded for each table, on threads: that waits for the
store and computes little. No key is asked for. What cannot be loaded is listed with the reason, and the others follow.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.typedef import Identifier

from tablecrypt import properties as names
from tablecrypt.arguments import checked_arguments
from tablecrypt.maintenance.reachable import THREADS
from tablecrypt.printable import AsJson, one_line
from tablecrypt.table.table import is_encrypted, plain_tables_opened

logger = logging.getLogger(__name__)

_IN_MEMORY: Final = re.compile(r"sqlite[^:]*:(/*|.*:memory:.*)")


@runtime_checkable
class HasViews(Protocol):
    """A catalog that may have views."""

    @property
    def has_views(self) -> bool:
        """Whether its server has them."""

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the views of a namespace."""


@dataclass(frozen=True)
class ListedTable:
    """A table or a view.

    Attributes:
        name: with its namespace.
        kind: "table" or "view".
        encrypted: whether it is encrypted; None where nothing says so: views, tables that cannot be loaded, and with `quick` all.
        table_key_id: the master key that its encryption.key-id names; None where it names none.
        problem: why it could not be loaded; None where it could.
    """

    name: str
    kind: str = "table"
    encrypted: bool | None = None
    table_key_id: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Listing(AsJson):
    """What a catalog, or a namespace of it, has.

    Attributes:
        catalog: the catalog's name.
        namespaces: the names of the namespaces that were looked into, nested ones too.
        tables: tables and views, in the order of their namespaces.
        unlisted: for each namespace that could not be listed, why.
    """

    catalog: str
    namespaces: tuple[str, ...]
    tables: tuple[ListedTable, ...]
    unlisted: dict[str, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether every namespace was listed and every table loaded."""
        return not self.unlisted and all(each.problem is None for each in self.tables)


@checked_arguments()
def list_tables(catalog: Catalog, namespace: str | None = None, *, quick: bool = False) -> Listing:
    """List the tables and views of a catalog, and say which tables are encrypted.

    Args:
        catalog: where the tables are.
        namespace: only what is in this namespace and in those nested in it; None: all.
        quick: load no table, so that names alone are known.

    Raises:
        NoSuchNamespaceError: there is no such namespace.
    """
    start: Identifier = () if namespace is None else catalog.identifier_to_tuple(namespace)
    if namespace is not None and not catalog.namespace_exists(start):
        raise NoSuchNamespaceError(f"there is no namespace {namespace} in catalog {catalog.name}")

    found = _Found(catalog)
    found.look_into(start)
    tables = [ListedTable(".".join(each)) for each in found.tables] if quick else _loaded(catalog, found.tables)
    views = [ListedTable(".".join(each), kind="view") for each in found.views]
    in_order = sorted((*tables, *views), key=lambda each: (each.name.rpartition(".")[0], each.name))

    return Listing(catalog.name, tuple(sorted(found.namespaces)), tuple(in_order), found.unlisted)


class _Found:
    """What a walk through namespaces has found."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.namespaces: list[str] = []
        self.tables: list[Identifier] = []
        self.views: list[Identifier] = []
        self.unlisted: dict[str, str] = {}

    def look_into(self, namespace: Identifier) -> None:
        """Add what a namespace has, and what nested ones have. The catalog itself is the empty name, whose errors are raised."""
        if not namespace:
            for below in self._catalog.list_namespaces():
                self.look_into(below)
            return

        name = ".".join(namespace)
        self.namespaces.append(name)

        try:
            self.tables += self._catalog.list_tables(namespace)
            self.views += _views(self._catalog, namespace)
            nested = [each for each in self._catalog.list_namespaces(namespace) if each != namespace]
        except Exception as error:  # one namespace that this user may not list hides no other
            logger.debug("%s cannot be listed", name, exc_info=True)
            self.unlisted[name] = _problem(error)
            return

        for below in nested:
            self.look_into(below)


def _views(catalog: Catalog, namespace: Identifier) -> Iterator[Identifier]:
    if isinstance(catalog, HasViews) and catalog.has_views:
        yield from catalog.list_views(namespace)


def _listed(catalog: Catalog, identifier: Identifier) -> ListedTable:
    name = ".".join(identifier)
    try:
        # Listed as not encrypted and not as an error: which tables are plain is what the caller asks.
        with plain_tables_opened():
            table = catalog.load_table(identifier)
    except Exception as error:  # a broken table does not end the listing
        logger.debug("%s cannot be loaded", name, exc_info=True)
        return ListedTable(name, problem=_problem(error))

    return ListedTable(name, encrypted=is_encrypted(table), table_key_id=table.metadata.properties.get(names.KEY_ID.name))


def _loaded(catalog: Catalog, identifiers: Iterable[Identifier]) -> list[ListedTable]:
    if _IN_MEMORY.fullmatch(str(catalog.properties.get("uri", ""))):
        # Such a database belongs to the thread that opened it.
        return [_listed(catalog, each) for each in identifiers]
    with ThreadPoolExecutor(THREADS, thread_name_prefix="tablecrypt-list") as pool:
        return list(pool.map(lambda each: _listed(catalog, each), identifiers))


def _problem(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}"
