"""`tcs.catalog(spark, "prod")`: the SQL catalog in a session that runs."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.session import check_session
from tablecrypt.spark.shared.install import JvmSide, jvm_side
from tablecrypt.spark.shared.sources import PACKAGE
from tablecrypt.spark.shared.task_keys import encrypt_for_driver
from tablecrypt.spark.sql.programs.responses import this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG_CLASS: Final = f"{PACKAGE}.SqlCatalog"

_GIVEN: Final[dict[tuple[str, str], tuple[str, str]]] = {}
"""By session and catalog, SHA-256 of the properties that the catalog was given, and the handle that names them."""

_HANDLE: Final = "given"
"""The option of a catalog that says which of the settings that programs gave are its own. Sessions that Spark copies, as for a stream's
batches, copy it."""


def catalog(spark: SparkSession, name: str, catalog_properties: Mapping[str, str] | None = None) -> None:
    """Make a PyIceberg catalog of encrypted tables known to a session: `spark.sql("SELECT * FROM prod.db.orders")`.

    Args:
        spark: a classic session. Connect servers are started with the jar that `tablecrypt spark-jar` writes.
        name: the catalog's name, in SQL and in PyIceberg's configuration.
        catalog_properties: added to those of PyIceberg's configuration. They reach the planner alone: no configuration of Spark, event log
            or query plan shows them.

    Raises:
        ConfigurationError: the session is a client of Connect, its Spark is too old or does not take the Java classes, or it has another
            catalog of this name, or has used this one with other properties.
    """
    check_session(spark)
    if not hasattr(spark, "_jsparkSession"):
        raise ConfigurationError(
            "tablecrypt.spark.catalog needs a classic session; start the Connect server with --jars and the file that "
            f"`tablecrypt spark-jar` writes, and with spark.sql.catalog.{name}={CATALOG_CLASS}"
        )

    setting = f"spark.sql.catalog.{name}"
    if spark.conf.get(setting, CATALOG_CLASS) != CATALOG_CLASS:
        raise ConfigurationError(f"the session has another catalog {name}: {setting}={spark.conf.get(setting)}")

    side = jvm_side(spark)
    properties = dict(catalog_properties or {})
    handle = _handle(spark, name, properties)
    give_catalog(side, handle, properties)
    # The handle before the class: a query of another thread opens the catalog as soon as the class is set.
    spark.conf.set(f"{setting}.{_HANDLE}", handle)
    spark.conf.set(setting, CATALOG_CLASS)
    side.endpoint.extend(spark._jsparkSession)


def give_catalog(side: JvmSide, handle: str, properties: Mapping[str, str]) -> None:
    """Have the driver's JVM open catalogs that are asked for by a handle with these properties, and plan for them in this Python."""
    settings = this_python() | {"properties": dict(properties)}
    # Encrypted although the socket is local: the properties may hold secrets, and Py4J logs its commands.
    side.endpoint.giveCatalog(handle, encrypt_for_driver(json.dumps(settings).encode(), handle, side.public_key))


def _handle(spark: SparkSession, name: str, properties: Mapping[str, str]) -> str:
    """Return the handle of these properties in the session, which cannot be guessed.

    Raises:
        ConfigurationError: the session has used this catalog with other properties. Spark keeps it, so these would have no effect.
    """
    # A digest, so that this process keeps no second copy of the secrets among the properties.
    digest = hashlib.sha256(json.dumps(properties, sort_keys=True).encode()).hexdigest()
    place = spark._jsparkSession.sessionUUID(), name
    earlier, handle = _GIVEN.get(place, (digest, secrets.token_hex(16)))
    if earlier != digest and name in {each.name for each in spark.catalog.listCatalogs()}:
        raise ConfigurationError(
            f"the session has used a catalog {name} with other properties, and keeps it. Choose another name, or call spark.newSession()"
        )

    _GIVEN[place] = digest, handle

    return handle
