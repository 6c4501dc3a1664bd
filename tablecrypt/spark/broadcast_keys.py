"""Job keys that Spark brings to executors, in an encrypted broadcast, where executors have no access to the KMS.

The closure holds the broadcast's number alone:

    driver      job key ─▶ SparkContext.broadcast ─▶ encrypted on disk (spark.io.encryption.enabled) and on the wire (RPC encryption)
    executor    the broadcast's value, fetched once per process ─▶ the job key

The catalog property tablecrypt.spark.executor-keys=spark chooses this; the default, kms, needs no trust in Spark's own encryption. All
code that runs in the Spark application can read a job key that was broadcast.

Raises ConfigurationError for a broadcast where Spark does not encrypt what it sends and stores, and on Spark Connect, which has no
broadcasts.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tablecrypt import properties as names
from tablecrypt.crypto.secret import Secret
from tablecrypt.engines.job_keys import JOB_ID_LENGTH, JOB_KEY_LENGTH, JobKey, JobTicket
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.network import keeps_messages_private

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class BroadcastTicket(JobTicket):
    """A ticket that needs no KMS."""

    broadcast: Broadcast[bytes] = field(repr=False)

    def redeem(self) -> JobKey:
        """Take the job key from Spark, which fetches it once per process."""
        return JobKey(self.job_id, Secret(self.broadcast.value))


def brings_keys_by_spark(catalog_properties: Mapping[str, str]) -> bool:
    """Whether tablecrypt.spark.executor-keys is spark. ConfigurationError for a value that is neither kms nor spark."""
    return names.SPARK_EXECUTOR_KEYS.chosen(catalog_properties) == "spark"


def issue_by_broadcast(spark: SparkSession, key_id: str) -> tuple[JobTicket, JobKey]:
    """Make a job's key and id, and the ticket for its executors.

    Args:
        spark: a classic session that encrypts its messages and its files.
        key_id: the table's encryption.key-id.
    """
    reason = _unsupported_broadcast(spark)
    if reason is not None:
        raise ConfigurationError(f"{names.SPARK_EXECUTOR_KEYS.name}=spark: {reason}")
    job_id, key = secrets.token_bytes(JOB_ID_LENGTH), secrets.token_bytes(JOB_KEY_LENGTH)
    # A pickled broadcast is its number alone: Spark brings the value to executors of this application only.
    ticket = BroadcastTicket(job_id, key_id, b"", {}, spark.sparkContext.broadcast(key))
    return ticket, JobKey(job_id, Secret(key))


def _unsupported_broadcast(spark: SparkSession) -> str | None:
    context: Any = getattr(spark, "sparkContext", None)
    if context is None:
        return "a session of Spark Connect has no broadcasts, so its executors need the KMS"
    if not keeps_messages_private(spark.conf.get):
        return "job keys would travel in the clear: set spark.authenticate and spark.network.crypto.enabled"
    # Blocks of a broadcast go to disk on the driver, and on executors where memory is short.
    if str(context.getConf().get("spark.io.encryption.enabled", "false")).lower() != "true":
        return "job keys would lie on disk in the clear: set spark.io.encryption.enabled"

    return None
