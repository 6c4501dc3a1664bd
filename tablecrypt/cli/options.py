"""Arguments and options that several verbs share, spelled once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tablecrypt.cli.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

table_argument = click.argument("table", metavar="TABLE")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask. Needed where nobody can be asked.")
workers_option = click.option(
    "--workers", type=click.IntRange(min=1), help="How many files at once; by default one for each core.", metavar="N"
)
delete_below_option = click.option(
    "--delete-below",
    "delete_below",
    metavar="LOCATION",
    multiple=True,
    help="A folder in which files of the table may be deleted or written over, where no pin says so; repeatable.",
)
spark_option = click.option(
    "--spark", "use_spark", is_flag=True, help="Run on the executors of the Spark session that the environment describes."
)


def _set_loudness(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and parameter.name is not None:
        settings = context.ensure_object(Settings)
        setattr(settings, parameter.name, True)
        settings.check_loudness()


def progress_options(verb: F) -> F:
    """Add --quiet and --progress, which may stand before the verb too: what `progress_shown` shows."""
    for flags, help_text in (
        (("--progress",), "Show progress where stderr is no terminal too."),
        (("--quiet", "-q"), "Show neither progress nor retries: results and errors alone."),
    ):
        verb = click.option(*flags, is_flag=True, expose_value=False, callback=_set_loudness, help=help_text)(verb)
    return verb


def moment(context: click.Context, parameter: click.Parameter, value: str | None) -> dt.datetime | None:
    """Return the moment that an option names: ISO 8601, UTC without a zone, or how long ago it was: 30d, 12h."""
    if value is None:
        return None
    units = {"d": "days", "h": "hours"}
    try:
        if value[-1:] in units and value[:-1].isdecimal():
            return dt.datetime.now(dt.UTC) - dt.timedelta(**{units[value[-1]]: int(value[:-1])})
        named = dt.datetime.fromisoformat(value)
    except (ValueError, OverflowError):
        message = f"{value!r} is neither a date such as 2024-02-29T12:00 nor an age such as 30d"
        raise click.BadParameter(message, context, parameter) from None
    return named if named.tzinfo is not None else named.replace(tzinfo=dt.UTC)


def spark_session(use_spark: bool) -> Any:
    """Return the Spark session that the environment describes, or None where none is wanted.

    Raises:
        MissingExtraError: PySpark is not installed.
    """
    if not use_spark:
        return None
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        from tablecrypt.errors import MissingExtraError

        raise MissingExtraError('--spark needs the package pyspark: pip install "tablecrypt[spark]"') from error
    return SparkSession.builder.getOrCreate()
