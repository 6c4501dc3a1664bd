"""Arguments and options that several verbs share, spelled once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

table_argument = click.argument("table", metavar="TABLE")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask. Needed where nobody can be asked.")
workers_option = click.option(
    "--workers", type=click.IntRange(min=1), help="How many files at once; by default one for each core.", metavar="N"
)
spark_option = click.option(
    "--spark", "use_spark", is_flag=True, help="Run on the executors of the Spark session that the environment describes."
)


class Moment(click.ParamType):
    """A moment as ISO 8601 writes it, or how long ago: 30d, 12h. Without a zone it is UTC."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dt.datetime:
        """Return the moment."""
        if isinstance(value, dt.datetime):
            return value
        text = str(value)
        units = {"d": "days", "h": "hours"}
        if text[-1:] in units and text[:-1].isdigit():
            return dt.datetime.now(dt.UTC) - dt.timedelta(**{units[text[-1]]: int(text[:-1])})
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is neither a date such as 2024-02-29T12:00 nor an age such as 30d", param, ctx)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)


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
