"""The process behind tests/support/orc_spark.py: a Spark session with ORC's in-memory key provider, asked over JSON lines.

    stdin   one request per line:  {"op": "...", ...arguments}
    stdout  first {"ok": true}, then one answer per line:  {"ok": true, "result": ...}  or  {"ok": false, "error": "..."}
    stderr  everything that Spark and the JVM print

Rows pass through Arrow and Parquet files, whose paths are in the messages. ORC keeps one key provider per JVM: a key that was never added
is what a denied reader lacks.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.hadoop.orc.key.provider": "memory",
    "spark.sql.orc.aggregatePushdown": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}


class Worker:
    """The operations that a request can name."""

    def __init__(self, folder: Path) -> None:
        builder = SparkSession.builder.master("local[1]").appName("orc")
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        self._session = builder.config("spark.local.dir", str(folder)).getOrCreate()
        self._session.sparkContext.setLogLevel("OFF")
        self._jvm: Any = self._session.sparkContext._jvm
        self._configuration: Any = self._session.sparkContext._jsc.hadoopConfiguration()

    def add_key(self, name: str, version: int, key: str) -> None:
        raw = base64.b64decode(key)
        algorithms = self._jvm.org.apache.orc.EncryptionAlgorithm
        algorithm = algorithms.AES_CTR_128 if len(raw) == 16 else algorithms.AES_CTR_256
        self._provider().addKey(name, version, algorithm, bytearray(raw))

    def read(self, path: str, result: str, where: str | None, expressions: list[str], vectorized: bool) -> None:
        """Write the rows of ORC files, or expressions over them, to the Arrow file `result`."""
        for setting in ("spark.sql.orc.enableVectorizedReader", "spark.sql.orc.enableNestedColumnVectorizedReader"):
            self._session.conf.set(setting, str(vectorized).lower())
        frame = self._session.read.orc(path)
        if where is not None:
            frame = frame.where(where)
        rows = frame.selectExpr(*expressions).toArrow()
        with pa.OSFile(result, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)

    def write(self, parquet: str, folder: str, options: dict[str, str]) -> None:
        self._session.read.parquet(parquet).coalesce(1).write.options(**options).orc(folder)

    def merge(self, sources: list[str], target: str) -> int:
        """Merge ORC files as Java does; how many of them it took."""
        options = self._jvm.org.apache.orc.OrcFile.writerOptions(self._configuration).setKeyProvider(self._provider())
        paths = self._jvm.java.util.ArrayList()
        for source in sources:
            paths.add(self._path(source))
        return len(self._jvm.org.apache.orc.OrcFile.mergeFiles(self._path(target), options, paths))

    def statistics(self, path: str) -> list[str]:
        """What Java reads as the statistics of each column, as far as its keys go."""
        return [one.toString() for one in self._reader(path).getStatistics()]

    def encrypted_statistics(self, path: str) -> list[str]:
        """What Java reads as the encrypted columns' statistics of the first stripe."""
        reader = self._reader(path)
        variants = [reader.getVariantStripeStatistics(variant) for variant in reader.getEncryptionVariants()]
        return [one.toString() for stripes in variants for one in stripes[0].getColumnStatistics()]

    def _reader(self, path: str) -> Any:
        orc_file = self._jvm.org.apache.orc.OrcFile
        return orc_file.createReader(self._path(path), orc_file.readerOptions(self._configuration).setKeyProvider(self._provider()))

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _provider(self) -> Any:
        return self._jvm.org.apache.orc.impl.CryptoUtils.getKeyProvider(self._configuration, self._jvm.java.security.SecureRandom())

    def stop(self) -> None:
        self._session.stop()


def _answer(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"ok": True, "result": getattr(worker, request.pop("op"))(**request)}
    except Exception as error:  # noqa: BLE001  whatever Java threw is the answer: the test decides what it means
        return {"ok": False, "error": f"{type(error).__name__}: {str(error)[:2000]}"}


def _own_stdout() -> TextIO:
    """Keep stdout for answers: the JVM inherits file descriptor 1, so from here on that one leads to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def main() -> None:
    answers = _own_stdout()
    worker = Worker(Path(sys.argv[1]))
    answers.write(json.dumps({"ok": True}) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(_answer(worker, json.loads(line))) + "\n")
    worker.stop()


if __name__ == "__main__":
    main()
