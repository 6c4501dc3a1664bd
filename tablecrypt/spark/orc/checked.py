"""Key providers for ORC in Spark that never turn a failure into masks, brought to the session when first needed.

    orc.key.provider    the KMS refuses      the KMS fails      the KMS is unreachable
    hadoop              masks                masks              masks                     what ORC has
    tablecrypt          error                error              error
    tablecrypt-masks    masks                error              error

All three ask the KMS that hadoop.security.key.provider.path names. A refusal is Hadoop's AuthorizationException; a server that refuses with
something else than an IOException, as `tablecrypt hadoop-kms` does, is an error with every provider.

Executors get the classes with the application's jars, before their next task. Where ORC does not find a provider it reads masks, so a small
job asks executors whether they have it before anything is read. ORC keeps one provider of each kind for the life of a JVM.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.shared.install import jar_for
from tablecrypt.spark.shared.sources import KEY_PROVIDER_FACTORY, orc_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY_PROVIDER: Final = "orc.key.provider"
ERRORS: Final = "tablecrypt"
MASKS_WHERE_REFUSED: Final = "tablecrypt-masks"
_MOST_TASKS: Final = 64

_installed: set[str] = set()
_lock = Lock()


def install_checked_keys(spark: SparkSession) -> None:
    """Give the session's application the two providers, once.

    Raises:
        ConfigurationError: this Spark cannot compile or take them.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context = spark.sparkContext

    with _lock:
        if context.applicationId in _installed:
            return

        try:
            # Unlike SparkContext.addJar, this gives the classes to the driver too, where the probe is analysed.
            spark.sql(f"ADD JAR '{jar_for(spark, orc_sources())}'")
            answers = _ask_executors(spark)
        except (Py4JError, PySparkException) as error:
            raise ConfigurationError(f"Spark {spark.version} does not take tablecrypt's key provider for ORC: {error}") from error

        # ORC takes a provider that it does not find for none at all, and shows masks without an error.
        if answers != {"found"}:
            raise ConfigurationError("executors do not find tablecrypt's key provider for ORC, and would read masks in place of values")

        _installed.add(context.applicationId)


def _ask_executors(spark: SparkSession) -> set[str]:
    """Run one probe per core and return the distinct answers."""
    tasks = min(spark.sparkContext.defaultParallelism, _MOST_TASKS)
    probe = spark.range(0, tasks, 1, tasks).selectExpr(f"java_method('{KEY_PROVIDER_FACTORY}', 'find') AS found")
    return {row["found"] for row in probe.collect()}
