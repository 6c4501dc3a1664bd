"""The tables of a catalog: which ones a call means, and an operation on each, of which none stops the others.

    include     globs of whole names, `db.*`; none: all
    exclude     globs of names that are left out, before include is asked

A glob that matches no table is refused, and so are globs that leave none: it is a slip more often than a wish, and "nothing failed" would
be true of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from glob import escape
from typing import Any, Generic, Protocol, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from tablecrypt.arguments import checked_arguments, names_of
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance.operation import Progress, ProgressListener
from tablecrypt.printable import counted, json_form
from tablecrypt.setting_kinds import OWN_NAMES_ALIKE, did_you_mean, names_near, question
from tablecrypt.table.table import is_encrypted

logger = logging.getLogger(__name__)


class Result(Protocol):
    """What an operation returns."""

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON's types."""
        ...


R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class TableOutcome(Generic[R]):
    """What came of one table.

    Attributes:
        table: its name.
        result: what the operation returned; None where it failed or the table is not encrypted.
        error: what was raised; None where nothing was.
    """

    table: str
    result: R | None = None
    error: Exception | None = None

    @property
    def is_skipped(self) -> bool:
        """Whether the table is not encrypted, so that nothing was done."""
        return self.result is None and self.error is None

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON's types."""
        error = None if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return {"table": self.table, "result": json_form(self.result), "error": error}


@dataclass(frozen=True)
class CatalogResult(Generic[R]):
    """The result for each table, in the order of their names."""

    outcomes: tuple[TableOutcome[R], ...]

    @property
    def results(self) -> tuple[R, ...]:
        """What the operation returned, table by table, where it did not fail."""
        return tuple(each.result for each in self.outcomes if each.result is not None)

    @property
    def failed(self) -> tuple[TableOutcome[R], ...]:
        """The tables whose operation raised."""
        return tuple(each for each in self.outcomes if each.error is not None)

    @property
    def skipped(self) -> tuple[TableOutcome[R], ...]:
        """The tables that are not encrypted."""
        return tuple(each for each in self.outcomes if each.is_skipped)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON's types."""
        counts = {"done": len(self.results), "failed": len(self.failed), "not_encrypted": len(self.skipped)}
        return {**counts, "tables": [each.to_json() for each in self.outcomes]}


@checked_arguments()
def on_tables(
    catalog: Catalog, operation: Callable[[Table], R], *, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> CatalogResult[R]:
    """Run an operation on every encrypted table of a catalog, one after the other: `on_tables(catalog, rotate_kek, include=["eu.*"])`.

    Args:
        catalog: where the tables are.
        operation: called with each loaded table. An error that it raises is kept in the result, and the next table follows.
        include: globs of names; none: all tables.
        exclude: globs of names to leave out.

    Raises:
        ConfigurationError: a glob matches no table.
    """
    return CatalogResult(tuple(_outcome(catalog, each, operation) for each in identifiers_of(catalog, include, exclude)))


def identifiers_of(catalog: Catalog, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[Identifier]:
    """Return the tables of a catalog that the globs leave.

    Raises:
        ConfigurationError: a glob matches no table, or is no text; or the globs leave none.
    """
    included, excluded = names_of("include", include), names_of("exclude", exclude)
    tables = list(_identifiers(catalog))
    names = [".".join(each) for each in tables]
    for argument, glob in (*(("include", each) for each in included), *(("exclude", each) for each in excluded)):
        if not any(fnmatchcase(name, glob) for name in names):
            number = counted(len(tables), "table", "tables")
            raise ConfigurationError(f"{argument} {glob!r} matches none of the {number} of catalog {catalog.name}{_near(glob, names)}")

    # Two tables may have one name, as ("a.b", "t") and ("a", "b", "t") on a server that allows dots.
    pairs = zip(tables, names, strict=True)
    chosen = [each for each, name in pairs if _matches(name, included or ("*",)) and not _matches(name, excluded)]
    if excluded and not chosen:
        raise ConfigurationError(f"exclude leaves out every table of catalog {catalog.name} that was meant")

    return chosen


def named(progress: ProgressListener, table: str) -> ProgressListener:
    """Return a listener that passes each step on, with the name of the table that it is about."""

    def hear(step: Progress) -> None:
        progress(replace(step, operation=f"{step.operation} {table}"))

    return hear


def _outcome(catalog: Catalog, identifier: Identifier, operation: Callable[[Table], R]) -> TableOutcome[R]:
    name = ".".join(identifier)
    try:
        table = catalog.load_table(identifier)
        return TableOutcome(name, operation(table) if is_encrypted(table) else None)
    except Exception as error:
        # Whatever it is: one broken table must not keep the keys of the others from being rotated.
        logger.debug("%s failed", name, exc_info=True)
        return TableOutcome(name, error=error)


def first_table(catalog: Catalog) -> Identifier | None:
    """Return one of a catalog's tables; None where it has none."""
    return next(_identifiers(catalog), None)


def tables_near(catalog: Catalog, name: str) -> str:
    """Return the question whether tables were meant whose names come near, in the namespace that a name has or comes nearest to."""
    namespace, _, own = name.removeprefix(f"{catalog.name}.").rpartition(".")
    try:
        namespaces = {".".join(each): each for each in catalog.list_namespaces()}
        inside = names_near(namespace, namespaces, 1)
        tables = {each[-1]: each for place in inside for each in catalog.list_tables(namespaces[place])}
        return question([".".join(tables[each]) for each in names_near(own, tables)])
    except Exception as error:  # noqa: BLE001  without permission to list, the error says only that there is no such table
        logger.debug("no names near %s: %s", name, error)
        return ""


def _near(glob: str, names: Iterable[str]) -> str:
    """Return the glob or the name that may have been meant, as a question; nothing where none comes near."""
    known = list(names)
    if not known:
        return ": is it the catalog that you mean?"
    if glob in known:
        # A name with [ in it is a glob that does not match itself.
        return f": to name this one table, write {escape(glob)}"

    namespaces = {f"{name.rpartition('.')[0]}.*" for name in known}

    return did_you_mean(glob, [*sorted(namespaces), *known], OWN_NAMES_ALIKE) or ": write a glob such as db.*"


def _matches(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _identifiers(catalog: Catalog, namespace: Identifier = ()) -> Iterator[Identifier]:
    if namespace:
        yield from sorted(catalog.list_tables(namespace))
    for below in sorted(catalog.list_namespaces(namespace)):
        # A catalog may list a namespace among those below it: without this check the walk would not end.
        if below != namespace:
            yield from _identifiers(catalog, below)
