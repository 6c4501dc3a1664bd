"""What Hadoop's file systems, with the session's configuration and credentials, know of a file."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


def length_in_hadoop(spark: SparkSession, location: str) -> int | None:
    """Return the length in bytes of the file that Hadoop has at a location; None where it finds none."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context: Any = spark.sparkContext
    try:
        path = context._jvm.org.apache.hadoop.fs.Path(location)
        return int(path.getFileSystem(context._jsc.hadoopConfiguration()).getFileStatus(path).getLen())
    except (Py4JError, PySparkException) as error:
        logger.debug("Hadoop does not find %s: %s", location, error)
        return None
