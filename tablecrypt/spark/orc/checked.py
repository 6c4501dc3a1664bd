"""Key providers for ORC in Spark that never turn a failure into masks, compiled into the session when first needed.

    orc.key.provider    the KMS refuses      the KMS fails      the KMS is not there
    hadoop              masks                masks              masks                     what ORC has
    tablecrypt          error                error              error
    tablecrypt-masks    masks                error              error

All three ask the KMS that hadoop.security.key.provider.path names. A refusal is Hadoop's AuthorizationException; a server that refuses with
something else than an IOException, as `tablecrypt hadoop-kms` does, is an error with every provider.

Executors get the classes with the application's jars, before their next task. ORC keeps one provider of each kind for the life of a JVM.
"""

from __future__ import annotations

from importlib import resources
from threading import Lock
from typing import TYPE_CHECKING, Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.jvm.java_classes import compiled, write_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY_PROVIDER: Final = "orc.key.provider"
ERRORS: Final = "tablecrypt"
MASKS_WHERE_REFUSED: Final = "tablecrypt-masks"
_CLASSES: Final = ("CheckedKeys", "CheckedKeysFactory")
_SERVICES: Final = {"org.apache.orc.impl.KeyProvider$Factory": "tablecrypt.orc.CheckedKeysFactory"}

_installed: set[str] = set()
_lock = Lock()


def install_checked_keys(spark: SparkSession) -> None:
    """Give the session's application the two providers, once.

    Raises:
        ConfigurationError: this Spark cannot compile or take them.
    """
    from py4j.protocol import Py4JError

    context = spark.sparkContext
    with _lock:
        if context.applicationId in _installed:
            return
        sources = {name: (resources.files(__package__) / "java" / f"{name}.java").read_text(encoding="utf-8") for name in _CLASSES}
        try:
            context._jsc.addJar(str(write_jar(compiled(context._jvm, sources), _SERVICES)))
        except Py4JError as error:
            raise ConfigurationError(f"Spark {spark.version} does not take tablecrypt's key provider for ORC: {error}") from error
        _installed.add(context.applicationId)
