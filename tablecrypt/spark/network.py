"""What is said, and what is refused, where Spark's processes talk to each other over a network in the clear.

No key of ours travels in the clear on the portable path, but rows do: those that Spark shuffles, collects or hands to Python. And without
spark.authenticate whoever reaches the driver may play an executor. So outside local mode, where `keeps_messages_private` does not hold,
a job is started with a warning, once per process, or refused where the catalog has tablecrypt.spark.require-encrypted-rpc=true.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.kms_access import keeps_messages_private

logger = logging.getLogger(__name__)

_REMEDY: Final = "set spark.authenticate and spark.network.crypto.enabled (or spark.ssl.rpc.enabled) to true"


def requires_private_messages(catalog_properties: Mapping[str, str]) -> bool:
    """Whether the catalog says tablecrypt.spark.require-encrypted-rpc=true."""
    return names.SPARK_REQUIRE_ENCRYPTED_RPC.is_true(catalog_properties)


def check_network(catalog_properties: Mapping[str, str], spark_setting: Callable[[str, str], str | None]) -> None:
    """Raise ConfigurationError where the catalog requires private messages and this session's are not.

    Args:
        catalog_properties: of the table's catalog.
        spark_setting: returns a Spark setting by name, or the default that is given with it.
    """
    if requires_private_messages(catalog_properties) and not keeps_messages_private(spark_setting):
        raise ConfigurationError(
            f"{names.SPARK_REQUIRE_ENCRYPTED_RPC.name} is true, and this session (spark.master={spark_setting('spark.master', '')}) "
            f"sends rows and tasks over the network in the clear: {_REMEDY}"
        )


def warn_of_open_network(spark_setting: Callable[[str, str], str | None]) -> None:
    """Say once per process that this session's messages are not private, where that is so."""
    if not keeps_messages_private(spark_setting):
        _warn_once(str(spark_setting("spark.master", "")))


@cache
def _warn_once(master: str) -> None:
    logger.warning(
        "Spark's driver and executors (spark.master=%s) talk in the clear: rows that are shuffled, collected or written can be read on the "
        "network, and whoever reaches the driver can play an executor; %s, or %s=true in the catalog to refuse such sessions",
        master,
        _REMEDY,
        names.SPARK_REQUIRE_ENCRYPTED_RPC.name,
    )
