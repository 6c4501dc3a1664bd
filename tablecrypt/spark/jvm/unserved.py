"""When the JVM path does not serve: a reason that sends the work to the portable path, or becomes the error of path="jvm"."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.kms_access import keeps_messages_private
from tablecrypt.spark.network import requires_private_messages
from tablecrypt.spark.tables import LocatedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

T = TypeVar("T")


class UnservedError(Exception):
    """The reason why this path does not serve a read or write."""


def serve_unless(reason: str | None) -> None:
    """Raise UnservedError if there is a reason."""
    if reason is not None:
        raise UnservedError(reason)


def served(work: Callable[[], T], name: str, verb: str, *, forced: bool) -> T | None:
    """Return what the work returns; None where it is not served, and so the portable path has to do it.

    Args:
        work: raises UnservedError, or ConfigurationError where this Spark does not take it, before anything was done.
        name: of the table.
        verb: "read" or "written".
        forced: raise instead of returning None.

    Raises:
        ConfigurationError: `forced`, and it is not served.
    """
    try:
        return work()
    except UnservedError as reason:
        if forced:
            raise ConfigurationError(f'{name} cannot be {verb} with path="jvm": {reason}') from reason
        logger.debug("%s is %s on the portable path: %s", name, verb, reason)
        return None
    except ConfigurationError as error:
        if forced:
            raise
        logger.warning("%s is %s on the portable path: %s", name, verb, error)
        return None


def check_messages(spark: SparkSession, located: LocatedTable, told: str, *, forced: bool) -> None:
    """Go on where Spark's messages are private; or, with a warning, where `forced` and the catalog does not require it.

    Args:
        told: what is wrong otherwise, and what to do.
    """
    if keeps_messages_private(spark.conf.get):
        return
    if not forced or requires_private_messages(located.client_properties):
        raise UnservedError(told)
    logger.warning('%s is used with path="jvm": %s', located.name, told)
