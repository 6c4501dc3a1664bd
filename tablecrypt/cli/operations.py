"""A declared operation (tablecrypt.operations) as a click command: its arguments, options and help, and one run of it.

    OPERATIONS["compact"]       Operation("compact", …, options={"sort_by": Option("…", "COLUMN", is_repeatable=True), …}, on_files=True)
    tablecrypt compact --help   [OPTIONS] TABLE, --sort-by COLUMN …, then what many have: --workers, --spark, --dry-run, --progress, --json

A command that does more than to call its operation is a function below `command_of`, in another module. What was not given is not passed
on: the function's own defaults hold.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tablecrypt.cli._framework import (
    Chosen,
    DocumentedCommand,
    FilePath,
    NumberRange,
    dry_run_option,
    end_with_found,
    json_option,
    progress_options,
    refuse_blank,
    yes_option,
)
from tablecrypt.cli._output import progress_shown, show
from tablecrypt.cli.main import FOUND, REFUSED
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.errors import MissingExtraError
from tablecrypt.operations import OPERATIONS
from tablecrypt.operations.declaration import SEVERAL, Operation, Option

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tablecrypt.maintenance import ProgressListener, Runner

T = TypeVar("T")
Decorator = Callable[[Callable[..., None]], Callable[..., None]]

_KINDS: Final[Mapping[str, click.ParamType[Any]]] = {
    "ID": click.INT,
    "N": click.IntRange(min=1),
    "N or 0": click.IntRange(min=0),
    "BYTES": click.IntRange(min=1),
    "X": NumberRange(0, 1),
    "FILE": FilePath(dir_okay=False),
    "existing file": FilePath(exists=True, dir_okay=False),
    "new file": FilePath(),
}
"""What a value may be, where it is not any text."""
_ON_FILES: Final = {
    "workers": Option("Number of files to process at once; by default one per core.", "N"),
    "use_spark": Option("Run on the executors of the Spark session that the environment configures.", flags=("--spark",)),
}


@dataclass(frozen=True)
class Run:
    """One run of a command: its operation, the settings, and what the options say that many commands have."""

    operation: Operation
    settings: Settings
    as_json: bool
    dry_run: bool = False
    workers: int | None = None
    use_spark: bool = False

    def prepared(self, name: str = "", **options: Any) -> Callable[..., Any]:
        """Return the operation, or another of that name, with these options, as a function of a table and, if it has progress, a listener.

        Raises:
            MissingExtraError: it is to run on Spark, and PySpark is not installed.
        """
        given = {option: value for option, value in options.items() if value is not None and value != ()}
        if self.operation.on_files:
            given |= {"workers": self.workers, "runner": _spark_runner(self.use_spark)}
        if not self.operation.only_reads:
            given["dry_run"] = self.dry_run

        def call(table: Table, listener: ProgressListener | None = None) -> Any:
            from tablecrypt import maintenance

            progress = {} if listener is None else {"progress": listener}
            return getattr(maintenance, name or self.operation.name)(table, **given, **progress)

        return call

    def call(self, table: Table, name: str = "", **options: Any) -> Any:
        """Call the operation, or another of that name, and return what it did."""
        prepared = self.prepared(name, **options)
        if not self.operation.has_progress:
            return prepared(table)
        with progress_shown(self.settings) as listener:
            return prepared(table, listener)

    def show(self, table: Table, **options: Any) -> None:
        """Call the operation and show what it did."""
        show(self.call(table, **options), self.as_json)

    def report(self, result: T, print_result: Callable[[T], None], is_bad: bool) -> None:
        """Print a result, as JSON or by a function for people, and end with code 1 if it is bad."""
        show(result, as_json=True) if self.as_json else print_result(result)
        if is_bad:
            end_with_found()


def command_of(name: str, *others: Decorator) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function the command of an operation. It gets a Run, and the arguments and options that are declared.

    What chooses among several tables comes as one argument, `chosen`.

    Args:
        name: the operation's.
        others: add options that are not declared, behind those that are.
    """
    operation = OPERATIONS[name]
    codes = {code: meaning for code, meaning in ((FOUND, operation.found), (REFUSED, operation.refused)) if meaning}

    def made(function: Callable[..., None]) -> click.Command:
        @pass_settings
        @wraps(function)
        def run(
            settings: Settings,
            /,
            *,
            as_json: bool,
            dry_run: bool = False,
            workers: int | None = None,
            use_spark: bool = False,
            **given: Any,
        ) -> None:
            if operation.arguments is SEVERAL:
                given["chosen"] = Chosen.of(given.pop("table"), given.pop("include"), given.pop("exclude"))

            function(Run(operation, settings, as_json, dry_run, workers, use_spark), **given)

        decorated: Callable[..., None] = run
        for parameter in reversed([*_declared(operation), *others, *_shared(operation)]):
            decorated = parameter(decorated)
        return click.command(
            operation.command,
            cls=DocumentedCommand,
            help=operation.help,
            examples=operation.examples,
            needs=operation.permissions,
            codes=codes,
        )(decorated)

    return made


def plain_command(name: str) -> click.Command:
    """Return the command of an operation that is called on a table and shown. It asks nothing: what may lose something has a function."""

    @command_of(name)
    def run_operation(run: Run, table: str, **options: Any) -> None:
        # An option that may be repeated and is not there means what the function takes it to mean.
        run.show(run.settings.table(table), **{name: value for name, value in options.items() if value != ()})

    return run_operation


def _declared(operation: Operation) -> Iterator[Decorator]:
    for name, metavar in operation.arguments.items():
        yield click.argument(name, metavar=metavar, required=not metavar.startswith("["))
    for name, option in operation.options.items():
        yield _option(name, option)


def _shared(operation: Operation) -> Iterator[Decorator]:
    """Yield the options that follow from what is declared."""
    if operation.asks:
        yield yes_option
    if operation.on_files:
        yield from (_option(name, option) for name, option in _ON_FILES.items())
    if not operation.only_reads:
        yield dry_run_option
    if operation.has_progress:
        yield progress_options
    yield json_option


def _option(name: str, option: Option) -> Decorator:
    flags = option.flags or (f"--{name.replace('_', '-')}",)
    said = {"help": option.help, "required": option.is_required, "multiple": option.is_repeatable, **_kind(option)}
    if option.default is not None:
        said |= {"default": option.default, "show_default": True}
    if option.alone is not None:
        said |= {"is_flag": False, "flag_value": option.alone}

    return click.option(*flags, name, **said)


def _kind(option: Option) -> dict[str, Any]:
    """Return what click has to know of an option's value."""
    if not option.value:
        return {"is_flag": True}
    if option.value.startswith("["):
        return {"type": click.Choice([int(each) if each.isdecimal() else each for each in option.value.strip("[]").split("|")])}

    kind = _KINDS.get(option.kind or option.value, click.STRING)
    # An option that may stand alone is empty where it does.
    is_text = kind is click.STRING and option.alone is None
    return {"type": kind, "metavar": option.value, "callback": _CALLBACKS.get(option.value, refuse_blank if is_text else None)}


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> dt.datetime | None:
    """Return the moment that an option names: ISO 8601, UTC without a zone, or how long ago it was: 30d, 12h."""
    if value is None:
        return None

    named, now = _moment_named(context, parameter, value), dt.datetime.now(dt.UTC)
    # A year that is misspelt would take files that a write under way has just written.
    if named > now:
        at = now.isoformat(timespec="minutes").removesuffix("+00:00")
        raise click.BadParameter(f"{value!r} is in the future: name a moment before {at} (UTC), or an age such as 30d", context, parameter)
    return named


def _moment_named(context: click.Context, parameter: click.Parameter, value: str) -> dt.datetime:
    units = {"d": "days", "h": "hours"}
    try:
        if value[-1:] in units and value[:-1].isdecimal():
            return dt.datetime.now(dt.UTC) - dt.timedelta(**{units[value[-1]]: int(value[:-1])})
        named = dt.datetime.fromisoformat(value)
    except (ValueError, OverflowError):
        message = f"{value!r} is neither a date such as 2024-02-29T12:00 nor an age such as 30d"
        raise click.BadParameter(message, context, parameter) from None

    return named if named.tzinfo is not None else named.replace(tzinfo=dt.UTC)


def _pairs(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, str] | None:
    """Return what NAME=VALUE, given several times, says by name."""
    pairs: dict[str, str] = {}
    for each in value:
        # A column's name may hold an equals sign, as a master key's id may: the first one ends the name.
        name, is_pair, named = each.partition("=")
        if not (name and is_pair and named):
            raise click.BadParameter(f"{each!r} is not {parameter.make_metavar(context)}", context, parameter)
        if name in pairs:
            raise click.BadParameter(f"{name} is named twice", context, parameter)
        pairs[name] = named
    return pairs or None


_CALLBACKS: Final[Mapping[str, Callable[..., object]]] = {"MOMENT": _moment, "COLUMN=KEY": _pairs}


def _spark_runner(use_spark: bool) -> Runner | None:
    """Return a runner on the Spark session that the environment describes, or None where none is wanted.

    Raises:
        MissingExtraError: PySpark is not installed.
    """
    if not use_spark:
        return None

    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError.named("--spark needs the package pyspark", "spark") from error

    from tablecrypt.spark import SparkRunner

    return SparkRunner(SparkSession.builder.getOrCreate())
