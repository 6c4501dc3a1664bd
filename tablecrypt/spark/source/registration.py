"""tcs.register(spark): the catalogs that format("tablecrypt") opens for a session."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.session import check_session
from tablecrypt.spark.shared.install import jvm_side
from tablecrypt.spark.sql.added_catalog import give_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GIVEN: Final = "spark.sql.tablecrypt.given"


def register(spark: SparkSession, catalogs: Mapping[str, Mapping[str, str]] | None = None) -> None:
    """Make format("tablecrypt") known to a session; call it again when the catalogs change.

        tcs.register(spark, catalogs={"prod": {...}})
        spark.read.format("tablecrypt").load("prod.db.orders").where("id > 3").select("note")
        df.write.format("tablecrypt").mode("append").save("prod.db.orders")
        spark.sql("CREATE TEMPORARY VIEW orders USING tablecrypt OPTIONS (table 'prod.db.orders')")

    Args:
        spark: a session of Spark 4.0 or newer. Connect servers are started with the jar that `tablecrypt spark-jar` writes, which knows the
            format by itself: there this only checks that no catalogs are given.
        catalogs: for each catalog's name, properties for load_catalog beside those that PyIceberg's configuration has. They reach the
            planner alone: no configuration of Spark, event log or query plan shows them.

    All options are in source/source_options.py.

    Raises:
        ConfigurationError: Spark is older than 4.0, or does not take Java classes; or catalogs are given to a client of Connect.
    """
    check_session(spark)
    if not hasattr(spark, "_jsparkSession"):
        if catalogs:
            raise ConfigurationError(
                "a client of Spark Connect has no JVM that takes properties of catalogs: configure them where the server runs, in "
                "PyIceberg's configuration or as spark.sql.catalog.NAME.*"
            )
        return

    side = jvm_side(spark)
    # The empty name stands for all other catalogs, which this Python plans for too.
    for name, properties in {"": {}, **(catalogs or {})}.items():
        handle = secrets.token_hex(16)
        give_catalog(side, handle, properties)
        spark.conf.set(f"{_GIVEN}.{name}" if name else _GIVEN, handle)

    side.endpoint.extend(spark._jsparkSession)
