"""Hadoop's own S3 file system in a running local session, reading and writing moto's buckets under s3a://."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.aws import REGION, AwsServer
from tests.support.maven_jars import fetched_jars, hadoop_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IVY_FILE: Final = Path(__file__).with_name("hadoop_s3_ivy.xml")


@contextmanager
def s3a(spark: SparkSession, aws: AwsServer) -> Iterator[None]:
    """Give the session's Hadoop the file system s3a."""
    gateway: Any = spark.sparkContext._gateway
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    before = configuration.getClassLoader()
    configuration.setClassLoader(_loader(gateway, before))
    settings = {
        "fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint": aws.endpoint,
        "fs.s3a.endpoint.region": REGION,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
        "fs.s3a.access.key": "testing",
        "fs.s3a.secret.key": "testing",
        "fs.s3a.session.token": "testing",
    }
    for name, value in settings.items():
        configuration.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            configuration.unset(name)
        configuration.setClassLoader(before)
        gateway.jvm.org.apache.hadoop.fs.FileSystem.closeAll()


def s3a_jars() -> list[Path]:
    """Return the jars of Hadoop's S3A, as an application lists them in --jars."""
    version = hadoop_version()
    return sorted(fetched_jars(_IVY_FILE, f"hadoop-s3-{version}", {"hadoop.version": version}).glob("*.jar"))


def _loader(gateway: Any, parent: Any) -> Any:
    jars = s3a_jars()
    urls = gateway.new_array(gateway.jvm.java.net.URL, len(jars))
    for index, jar in enumerate(jars):
        urls[index] = gateway.jvm.java.io.File(str(jar)).toURI().toURL()
    return gateway.jvm.java.net.URLClassLoader(urls, parent)
