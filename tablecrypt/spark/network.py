"""What may be sent between Spark's processes, and what is refused or warned of if they do not encrypt their messages.

Only what a KMS client reads is sent to executors; the rest of the catalog's properties stays on the driver or goes encrypted. Credentials
among them (a secret access key, a token) would open every key of the table to anyone who reads the closure. So they are sent only where the
closure does not leave the machine (local mode) or where Spark authenticates and encrypts its own traffic; elsewhere executors have to find
their own credentials: an instance role, environment variables, a profile.

No key of ours travels in the clear on the Python path, but rows do: those that Spark shuffles, collects or hands to Python. And without
spark.authenticate anyone who reaches the driver may play an executor. So outside local mode, where `keeps_messages_private` does not hold,
a job is started with a warning, once per process, or refused where the catalog has tablecrypt.spark.require-encrypted-rpc=true.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError

logger = logging.getLogger(__name__)
_REMEDY: Final = "set spark.authenticate and spark.network.crypto.enabled (or spark.ssl.rpc.enabled) to true"


def kms_properties(catalog_properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that the KMS client reads. A class named by encryption.kms-impl may read any, so it gets all.

    Raises:
        ConfigurationError: encryption.kms-type is memory, which no other process can reach.
    """
    if names.KMS_TYPE.chosen(catalog_properties) == "memory":
        raise ConfigurationError(f"{names.KMS_TYPE.name}=memory lives in the driver's process alone: Spark's executors cannot reach it")
    return names.for_executors(catalog_properties)


def check_credentials_stay_private(properties: Mapping[str, str], spark_setting: Callable[[str, str], str | None]) -> None:
    """Raise ConfigurationError where `properties` hold credentials that Spark would carry in the clear over a network.

    Args:
        properties: those that executors get.
        spark_setting: returns a Spark setting by name, or the default that is given with it.
    """
    credentials = [name for name, value in properties.items() if names.is_sensitive(name, value)]
    # A foreign KMS class may read a credential from a property whose name does not look like one.
    if not credentials and not names.is_foreign_kms(properties):
        return
    if keeps_messages_private(spark_setting):
        return

    raise ConfigurationError(
        f"the catalog properties {', '.join(credentials) or names.KMS_IMPL.name} would travel to the executors in the clear: "
        "leave credentials out and give the executors their own, or set spark.authenticate and spark.network.crypto.enabled"
    )


def keeps_messages_private(spark_setting: Callable[[str, str], str | None]) -> bool:
    """Whether messages of driver and executors stay on the machine (local mode), or are authenticated and encrypted."""
    master = str(spark_setting("spark.master", ""))
    # Not local-cluster, whose executors are separate processes that talk over the network.
    if master == "local" or master.startswith("local["):
        return True
    encrypts = _is_on(spark_setting, "spark.network.crypto.enabled") or _is_on(spark_setting, "spark.ssl.rpc.enabled")
    # Encryption without authentication lets anyone who reaches the driver join as an executor, and get keys.
    return encrypts and _is_on(spark_setting, "spark.authenticate")


def _is_on(spark_setting: Callable[[str, str], str | None], name: str) -> bool:
    return str(spark_setting(name, "false")).lower() == "true"


def check_network(catalog_properties: Mapping[str, str], spark_setting: Callable[[str, str], str | None]) -> None:
    """Raise ConfigurationError where the catalog requires private messages and this session's are not.

    Args:
        catalog_properties: of the table's catalog.
        spark_setting: returns a Spark setting by name, or the default that is given with it.
    """
    if names.SPARK_REQUIRE_ENCRYPTED_RPC.is_true(catalog_properties) and not keeps_messages_private(spark_setting):
        raise ConfigurationError(
            f"{names.SPARK_REQUIRE_ENCRYPTED_RPC.name} is true, and this session (spark.master={spark_setting('spark.master', '')}) "
            f"sends rows and tasks over the network in the clear: {_REMEDY}"
        )


def warn_of_open_network(spark_setting: Callable[[str, str], str | None]) -> None:
    """Warn once per process if this session's messages are not private."""
    if not keeps_messages_private(spark_setting):
        _warn_once(str(spark_setting("spark.master", "")))


@cache
def _warn_once(master: str) -> None:
    logger.warning(
        "Spark's driver and executors (spark.master=%s) talk in the clear: rows that are shuffled, collected or written can be read on the "
        "network, and anyone who reaches the driver can play an executor; %s, or %s=true in the catalog to refuse such sessions",
        master,
        _REMEDY,
        names.SPARK_REQUIRE_ENCRYPTED_RPC.name,
    )
