"""A Spark standalone cluster on this machine whose two workers have hosts of their own, 127.0.0.1 and 127.0.0.2.

Spark never runs a speculative copy on the host of the first attempt, so the one host of local-cluster[n,…] shows none. Master and workers
are threads of the driver's JVM, as they are in local-cluster; each worker's executor is a process. Messages are authenticated and
encrypted, and so is what Spark writes to local disks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.class_archive import short_life_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTS: Final = ("127.0.0.1", "127.0.0.2")


def settings(folder: Path) -> dict[str, str]:
    """What the application is configured with."""
    return {
        "spark.driver.host": HOSTS[0],
        "spark.driver.bindAddress": HOSTS[0],
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": short_life_options(),
        "spark.executor.extraJavaOptions": short_life_options(),
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.master.rest.enabled": "false",
        "spark.shuffle.service.enabled": "false",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.authenticate": "true",
        "spark.authenticate.secret": os.urandom(16).hex(),
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "2",
        "spark.python.task.killTimeout": "100ms",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
        "spark.sql.shuffle.partitions": "2",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": _made(folder / "events").as_uri(),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
    }


def two_host_session(folder: Path, more: Mapping[str, str] | None = None) -> SparkSession:
    """Start the cluster and return a session on it, with more settings. The executors' output goes to folder/work."""
    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = SparkConf()
    for name, value in {**settings(folder), **(more or {})}.items():
        conf = conf.set(name, value)
    SparkContext._ensure_initialized(conf=conf)
    conf = conf.setMaster(_started(folder, conf)).setAppName("two hosts")
    return SparkSession(SparkContext(conf=conf))


def _started(folder: Path, conf: Any) -> str:
    """Start a master and the workers; return the master's address."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    deploy = gateway.jvm.org.apache.spark.deploy
    java_conf = gateway.jvm.org.apache.spark.SparkConf(False)
    for name, value in conf.getAll():
        java_conf.set(name, value)
    master = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, java_conf)._1()
    address = f"spark://{HOSTS[0]}:{master.address().port()}"
    addresses = gateway.new_array(gateway.jvm.java.lang.String, 1)
    addresses[0] = address
    none = gateway.jvm.scala.Option.empty()
    for number, host in enumerate(HOSTS):
        work = str(_made(folder / "work"))
        numbered = gateway.jvm.scala.Option.apply(number)
        deploy.worker.Worker.startRpcEnvAndEndpoint(host, 0, 0, 1, 1024, addresses, work, numbered, java_conf, none)
    return address


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
