"""A command on one table, or on those of a catalog that --include and --exclude leave: one table's failure does not stop the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tablecrypt.cli import exit_codes
from tablecrypt.cli.output import say
from tablecrypt.cli.progress_shown import progress_shown
from tablecrypt.cli.show import show
from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tablecrypt.cli.settings import Settings
    from tablecrypt.maintenance import CatalogResult, ProgressListener

F = TypeVar("F", bound=Callable[..., Any])

FAILED: Final = "with --include or --exclude, a table failed; the report names it and why"


@dataclass(frozen=True)
class Chosen:
    """Which tables a command is for: one by its name, or those that globs leave."""

    table: str | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]

    @property
    def is_several(self) -> bool:
        """Whether globs choose.

        Raises:
            ConfigurationError: neither a table nor a glob is given, or both are.
        """
        globs = bool(self.include or self.exclude)
        if globs and self.table is not None:
            raise ConfigurationError(f"{self.table} is one table: --include and --exclude choose among all of the catalog")
        if not globs and self.table is None:
            raise ConfigurationError("name a table, or choose several: --include 'db.*', or --include '*' for all of the catalog")
        return globs


def glob_options(verb: F) -> F:
    """Add --include and --exclude."""
    for flag, what in (("--exclude", "Leave out tables of such names; repeatable."), ("--include", "Tables of such names; repeatable.")):
        verb = click.option(flag, flag[2:], metavar="GLOB", multiple=True, help=f"Of the whole catalog: {what[0].lower()}{what[1:]}")(verb)
    return verb


optional_table_argument = click.argument("table", metavar="[TABLE]", required=False)


def run_on(
    context: click.Context,
    settings: Settings,
    chosen: Chosen,
    operation: Callable[[Table, ProgressListener], Any],
    show_one: Callable[[Any], None],
    as_json: bool,
    is_bad: Callable[[Any], bool] = lambda result: False,
) -> None:
    """Run an operation and print what it came to; end with code 1 if a table of several failed, or is bad.

    Args:
        context, settings: the command's.
        chosen: which tables.
        operation: is given a table and who listens to its progress.
        show_one: prints one result for people.
        as_json: whether to print JSON instead.
        is_bad: whether a result says that something was found.
    """
    if not chosen.is_several:
        with progress_shown(settings) as heard:
            result = operation(settings.table(chosen.table or ""), heard)
        show(result, as_json) if as_json else show_one(result)
        if is_bad(result):
            context.exit(exit_codes.FOUND)
        return
    with progress_shown(settings) as heard:
        done = _on_each(settings, chosen, operation, heard)
    bad = sum(map(is_bad, done.results))
    show(done, as_json) if as_json else _print(done, show_one, bad)
    if done.failed or bad:
        context.exit(exit_codes.FOUND)


def _on_each(
    settings: Settings, chosen: Chosen, operation: Callable[[Table, ProgressListener], Any], heard: ProgressListener
) -> CatalogResult[Any]:
    from tablecrypt.maintenance import on_tables
    from tablecrypt.maintenance.catalog_tables import named

    def one(table: Table) -> Any:
        return operation(table, named(heard, ".".join(table.name())))

    return on_tables(settings.catalog(), one, include=chosen.include, exclude=chosen.exclude)


def _print(done: CatalogResult[Any], show_one: Callable[[Any], None], bad: int) -> None:
    for each in done.outcomes:
        if each.result is not None:
            show_one(each.result)
        elif each.error is not None:
            say(f"{each.table}: FAILED: {type(each.error).__name__}: {' '.join(str(each.error).split())}")
        else:
            say(f"{each.table}: not encrypted, left as it is")
    say(_summary(done, bad))


def _summary(done: CatalogResult[Any], bad: int) -> str:
    """Return the line that sums up."""
    numbers = {"done": len(done.results) - bad, "bad": bad, "failed": len(done.failed), "not encrypted": len(done.skipped)}
    counts = [f"{number:,} {what}" for what, number in numbers.items() if number or what in {"done", "failed"}]
    return f"{len(done.outcomes):,} {'table' if len(done.outcomes) == 1 else 'tables'}: {', '.join(counts)}"
