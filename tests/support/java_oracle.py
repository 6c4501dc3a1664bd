"""The process behind tests/support/java.py: one Spark session that drives Iceberg Java, asked over JSON lines.

    stdin   first line: the start-up options, then one request per line:  {"op": "...", ...arguments}
    stdout  one answer per line:  {"ok": true, "result": ...}  or  {"ok": false, "error": "..."}
    stderr  everything that Spark and the JVM print

Rows never pass through JSON: results are written as Arrow IPC files and input is read from Parquet files, whose paths are in the messages.

The session's catalog `h` is Iceberg Java on a Hive metastore, the only kind of catalog with which Java encrypts. The metastore is an
embedded Derby in memory, so each process has a catalog of its own and leaves nothing behind; with the option metastore_uri it is a server
that others use at the same time. The catalog reads and writes file:// and s3://, on such a server file:// alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

ICEBERG_VERSION = "1.12.0"
ICEBERG_ARTIFACTS = ("iceberg-spark-runtime-4.1_2.13", "iceberg-aws-bundle")
CATALOG = "h"


def start_session(
    folder: Path, endpoint: str, region: str, buckets: list[str], metastore_uri: str | None, more: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark with the catalog; the settings `more` come last."""
    builder = SparkSession.builder.master("local[2]").appName("java-oracle")
    metastore = {f"spark.sql.catalog.{CATALOG}.uri": metastore_uri} if metastore_uri else metastore_settings(folder, buckets)
    settings = _spark_settings(folder) | catalog_settings(folder, endpoint, region) | metastore | _with_jars(dict(more or {}))
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _spark_settings(folder: Path) -> dict[str, str]:
    java_options = f"-Duser.timezone=UTC -Dderby.stream.error.file={folder}/derby.log"
    return {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": java_options,
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": f"file://{folder}/spark-warehouse",
        "spark.local.dir": f"{folder}/spark-local",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }


def _with_jars(settings: dict[str, str]) -> dict[str, str]:
    """The settings, with Iceberg's jars beside those that they name."""
    own = jar_settings()
    if "spark.jars" in own and "spark.jars" in settings:
        own["spark.jars"] += f",{settings['spark.jars']}"
    return settings | own


def jar_settings() -> dict[str, str]:
    """Jars already in Spark's Ivy folder go onto the class path; the first run ever lets Spark fetch them there."""
    names = [f"org.apache.iceberg_{artifact}-{ICEBERG_VERSION}.jar" for artifact in ICEBERG_ARTIFACTS]
    for ivy in sorted(Path.home().glob(".ivy2*/jars"), reverse=True):
        jars = [ivy / name for name in names]
        if all(jar.is_file() for jar in jars):
            return {"spark.jars": ",".join(map(str, jars))}
    return {"spark.jars.packages": ",".join(f"org.apache.iceberg:{artifact}:{ICEBERG_VERSION}" for artifact in ICEBERG_ARTIFACTS)}


def catalog_settings(folder: Path, endpoint: str, region: str) -> dict[str, str]:
    catalog = f"spark.sql.catalog.{CATALOG}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hive",
        f"{catalog}.warehouse": f"file://{folder}/warehouse",
        f"{catalog}.cache-enabled": "false",
        f"{catalog}.client.region": region,
        f"{catalog}.encryption.kms-impl": "org.apache.iceberg.aws.AwsKeyManagementClient",
        f"{catalog}.kms.endpoint": endpoint,
        f"{catalog}.io-impl": "org.apache.iceberg.io.ResolvingFileIO",
        f"{catalog}.s3.endpoint": endpoint,
        f"{catalog}.s3.path-style-access": "true",
    }


def metastore_settings(folder: Path, buckets: list[str]) -> dict[str, str]:
    settings = {
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.datanucleus.connectionPoolingType": "dbcp",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.hadoop.hive.metastore.warehouse.dir": f"file://{folder}/hive-warehouse",
        "spark.hadoop.hive.metastore.disallow.incompatible.col.type.changes": "false",
        # Derby lacks Hive's lock tables, and no other process uses this metastore.
        "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
    }
    if not buckets:
        return settings
    # Hive insists on making the folder of every table it registers, through a Hadoop file system. It has none for S3, so these buckets
    # get a local folder to make them in. Iceberg's own files go to S3 all the same: its FileIO asks no Hadoop file system for s3://.
    settings["spark.hadoop.fs.s3.impl"] = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
    for bucket in buckets:
        stand_in = folder / "bucket-folders" / bucket
        stand_in.mkdir(parents=True)
        settings[f"spark.hadoop.fs.viewfs.mounttable.{bucket}.linkMergeSlash"] = f"file://{stand_in}"
    return settings


class Oracle:
    """The operations that a request can name."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def sql(self, statement: str, result: str) -> bool:
        """Run one statement; write its rows to the file `result`. False if the statement has no rows to give, as CREATE has not."""
        frame = self._session.sql(statement)
        if not frame.columns:
            return False
        _write_arrow(frame, result)
        return True

    def append(self, identifier: str, parquet: str) -> None:
        self._session.read.parquet(parquet).writeTo(f"{CATALOG}.{identifier}").append()

    def metadata_location(self, identifier: str) -> str:
        location: str = self._load(identifier).operations().current().metadataFileLocation()
        return location

    def append_equality_deletes(self, identifier: str, column: str, values: list[int]) -> None:
        """Commit one equality delete file: rows older than it whose int `column` is among `values` are gone. Unpartitioned tables only.

        Spark's SQL never writes equality deletes, so this goes through Iceberg's own Java API, as Flink's writer does.
        """
        jvm = self._jvm
        table = self._load(identifier)
        field_ids = self._int_array([table.schema().findField(column).fieldId()])
        key_schema = table.schema().select(self._java_list([column]))
        parquet = jvm.org.apache.iceberg.FileFormat.PARQUET
        output = jvm.org.apache.iceberg.io.OutputFileFactory.builderFor(table, 0, 0).format(parquet).build().newOutputFile()
        builder = jvm.org.apache.iceberg.data.GenericFileWriterFactory.Builder(table).deleteFileFormat(parquet)
        factory = builder.equalityFieldIds(field_ids).equalityDeleteRowSchema(key_schema).build()
        writer = factory.newEqualityDeleteWriter(output, table.spec(), None)
        for value in values:
            record = jvm.org.apache.iceberg.data.GenericRecord.create(key_schema)
            record.setField(column, value)
            writer.write(record)
        writer.close()
        table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()

    @property
    def _jvm(self) -> Any:
        return self._session.sparkContext._jvm

    def _load(self, identifier: str) -> Any:
        spark_util = self._jvm.org.apache.iceberg.spark.Spark3Util
        return spark_util.loadIcebergTable(self._session._jsparkSession, f"{CATALOG}.{identifier}")

    def _int_array(self, values: list[int]) -> Any:
        gateway = self._session.sparkContext._gateway
        assert gateway is not None
        array = gateway.new_array(gateway.jvm.int, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def _java_list(self, values: list[str]) -> Any:
        java_list = self._jvm.java.util.ArrayList()
        for value in values:
            java_list.add(value)
        return java_list


def _write_arrow(frame: DataFrame, path: str) -> None:
    rows = frame.toArrow()
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)


def _answer(oracle: Oracle, request: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {name: value for name, value in request.items() if name != "op"}
    try:
        return {"ok": True, "result": getattr(oracle, request["op"])(**arguments)}
    except Exception as error:  # noqa: BLE001  whatever Java threw is the answer: the test decides what it means
        return {"ok": False, "error": without_stack(f"{type(error).__name__}: {error}")}


def without_stack(message: str) -> str:
    return "\n".join(line for line in message.splitlines() if not line.startswith("\tat "))


def _own_stdout() -> TextIO:
    """Keep stdout for answers: the JVM inherits file descriptor 1, so from here on that one leads to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def main() -> None:
    answers = _own_stdout()
    options = json.loads(sys.stdin.readline())
    session = start_session(
        Path(options["folder"]), options["endpoint"], options["region"], options["buckets"], options["metastore_uri"], options["settings"]
    )
    oracle = Oracle(session)
    answers.write(json.dumps({"ok": True, "result": {"iceberg": ICEBERG_VERSION, "spark": session.version}}) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(_answer(oracle, json.loads(line))) + "\n")
    session.stop()


if __name__ == "__main__":
    main()
