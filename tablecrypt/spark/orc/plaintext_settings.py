"""Settings of a session or table with which ORC would silently write plaintext, and whether the KMS grants the keys.

    spark.sql.orc.impl = hive                     Hive's ORC 1.2 classes do not support encryption
    a table that is not of the provider orc       written through Hive's serde, or as another format
    orc.encrypt in TBLPROPERTIES, not in OPTIONS  Spark passes only OPTIONS to ORC
    no hadoop.security.key.provider.path          ORC has no keys: an endless loop on write, masks on read
    another provider than a Hadoop KMS            ORC does not support it
    plain HTTP to another machine                 local keys would cross the network

Raises ConfigurationError for these; KmsUnavailableError, KmsAccessDeniedError and KeyNotFoundError for keys that the KMS does not give.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from tablecrypt.errors import ConfigurationError, KeyNotFoundError, KmsAccessDeniedError, KmsUnavailableError
from tablecrypt.spark.session import check_session
from tablecrypt.spark.shared.support import unsupported_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROVIDER_PATH: Final = "hadoop.security.key.provider.path"
_KMS: Final = re.compile(r"kms://(?P<scheme>https?)@(?P<hosts>[^/:]+)(:[0-9]+)?(/.*)?")
_REFUSALS: Final = ("SecurityException", "AuthorizationException", "AccessControlException", "AuthenticationException")


def check_orc_session(spark: SparkSession, keys: Iterable[str] = ()) -> None:
    """Check that the session writes encrypted ORC where options ask for it, and that the KMS gives the caller the named keys.

    Args:
        spark: the session.
        keys: names of keys that are going to be used. The driver asks for their metadata; a right to those is a right to the key.
    """
    check_session(spark)
    if reason := unsupported_session(spark):
        raise ConfigurationError(f"encrypted ORC is not available in this session: {reason}")
    if str(spark.conf.get("spark.sql.orc.impl", "native")).lower() != "native":
        raise ConfigurationError("spark.sql.orc.impl=hive writes plaintext whatever orc.encrypt says: set it to native")

    # Before any key is asked for: without a provider ORC's writer loops without end.
    _check_provider(_hadoop_setting(spark, PROVIDER_PATH))
    for key in keys:
        _ask_for(spark, key)


def check_orc_table(spark: SparkSession, table: str) -> None:
    """Check that inserts into a table encrypt the columns that its properties promise to.

    The table was made with CREATE TABLE ... USING orc OPTIONS ('orc.encrypt' = '...'), or by df.write.format("orc").saveAsTable with the
    options of orc_options.
    """
    check_orc_session(spark)
    session: Any = spark._jsparkSession
    state = session.sessionState()
    identifier = state.sqlParser().parseTableIdentifier(table)
    described = state.catalog().getTableMetadata(identifier)
    provider = described.provider().get() if described.provider().isDefined() else "none"
    if provider.lower() != "orc":
        raise ConfigurationError(f"the table {table} is of the provider {provider}: only USING orc encrypts")
    # Storage properties are what OPTIONS sets, and all that Spark hands to ORC.
    if described.storage().properties().contains("orc.encrypt"):
        return
    if described.properties().contains("orc.encrypt"):
        raise ConfigurationError(
            f"the table {table} has orc.encrypt in its TBLPROPERTIES, which Spark does not pass to ORC, so inserts are plaintext: "
            "create it with OPTIONS ('orc.encrypt' = '...')"
        )

    raise ConfigurationError(f"the table {table} has no option orc.encrypt, so inserts are plaintext")


def session_setting(spark: SparkSession, name: str) -> str:
    """Return what ORC finds under a name in this session, where a write has no option of that name; "" for nothing."""
    return str(spark.conf.get(name, None) or _hadoop_setting(spark, name))


def _hadoop_setting(spark: SparkSession, name: str) -> str:
    context: Any = spark.sparkContext
    return str(context._jsc.hadoopConfiguration().get(name) or "")


def _check_provider(path: str) -> None:
    if not path:
        raise ConfigurationError(f"no KMS is named: set spark.hadoop.{PROVIDER_PATH} to kms://https@host:9600/kms when the session is made")

    match = _KMS.fullmatch(path)
    if match is None:
        # It may contain a token.
        raise ConfigurationError(f"{PROVIDER_PATH} is not of the form kms://https@host:port/kms, the one kind that ORC supports")
    # All hosts, since the client takes any of them.
    if match["scheme"] == "http" and not all(map(_is_loopback, match["hosts"].split(";"))):
        raise ConfigurationError(f"{PROVIDER_PATH} names plain HTTP on {match['hosts']}: keys would cross the network, use kms://https@")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _ask_for(spark: SparkSession, key: str) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    context: Any = spark.sparkContext
    factory = context._jvm.org.apache.hadoop.crypto.key.KeyProviderFactory

    try:
        metadata = factory.getProviders(context._jsc.hadoopConfiguration()).get(0).getMetadata(key)
    except (Py4JJavaError, PySparkException) as error:
        # Not chained: messages of Hadoop's client may quote the URL, which may contain a token.
        raise _refusal(str(error), key) from None

    if metadata is None:
        raise KeyNotFoundError(f"the KMS has no key {key!r}")


def _refusal(said: str, key: str) -> KmsAccessDeniedError | KmsUnavailableError | KeyNotFoundError:
    # The words differ between a Py4J error and PySpark's own; both name the Java class.
    first = said[:2000]
    if any(name in first for name in _REFUSALS) or "is not allowed to use key" in first:
        return KmsAccessDeniedError(f"the KMS refuses the key {key!r} to this user")
    if "IllegalArgumentException" in first or "there is no such key" in first:
        return KeyNotFoundError(f"the KMS has no key {key!r}")
    return KmsUnavailableError(f"the KMS did not answer for the key {key!r}")
