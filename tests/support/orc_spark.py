"""ORC as Spark has it, asked from a test: its own jars, in a process of its own, with keys in ORC's in-memory provider."""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.class_archive import short_life_options
from tests.support.java import JavaError
from tests.support.server_process import end_of_input

_WORKER: Final = Path(__file__).with_name("orc_spark_worker.py")
_TIMEOUT: Final = 300.0


class OrcSpark:
    """A running Spark. Every failure in Java is a JavaError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "HADOOP_"))}
        self._log = folder / "spark.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_WORKER), str(folder / "local")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=kept | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": short_life_options(), "PYSPARK_PYTHON": sys.executable},
            )
        self._exchange(None)

    def add_keys(self, keys: dict[str, list[bytes]]) -> None:
        for name, versions in keys.items():
            for version, key in enumerate(versions):
                self._ask("add_key", name=name, version=version, key=base64.b64encode(key).decode())

    def read(self, path: Path, where: str | None = None, expressions: Sequence[str] = ("*",), vectorized: bool = True) -> pa.Table:
        result = self._folder / f"{next(self._numbers)}.arrow"
        self._ask("read", path=str(path), result=str(result), where=where, expressions=list(expressions), vectorized=vectorized)
        with pa.OSFile(str(result)) as source:
            return pa.ipc.open_file(source).read_all()

    def write(self, rows: pa.Table, **options: str) -> Path:
        """Write one ORC file. Underscores in the names of options are dots. Timestamps become Spark's, which are instants, as of UTC."""
        number = next(self._numbers)
        parquet, folder = self._folder / f"{number}.parquet", self._folder / f"written-{number}"
        pq.write_table(_with_instants(rows), parquet)
        dotted = {name.replace("_", "."): text for name, text in options.items()}
        self._ask("write", parquet=str(parquet), folder=str(folder), options=dotted)
        (path,) = folder.glob("*.orc")
        return path

    def merge(self, sources: Sequence[Path], target: Path) -> int:
        taken: int = self._ask("merge", sources=[str(source) for source in sources], target=str(target))
        return taken

    def statistics(self, path: Path) -> list[str]:
        """Of each column of the file, of the masks where Java lacks the key."""
        found: list[str] = self._ask("statistics", path=str(path))
        return found

    def encrypted_statistics(self, path: Path) -> list[str]:
        """Of each encrypted column in the first stripe."""
        found: list[str] = self._ask("encrypted_statistics", path=str(path))
        return found

    def stop(self) -> None:
        end_of_input(self._process)

    def _ask(self, operation: str, **arguments: Any) -> Any:
        return self._exchange({"op": operation, **arguments})

    def _exchange(self, message: dict[str, Any] | None) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Killing the process ends the read below, which could not be given up otherwise.
        deadline = threading.Timer(_TIMEOUT, self._process.kill)
        deadline.start()
        try:
            if message is not None:
                self._process.stdin.write(json.dumps(message) + "\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            deadline.cancel()
        if not line:
            raise JavaError(f"Spark's process ended. The end of its log:\n{self._log.read_text(errors='replace')[-4000:]}")
        answer = json.loads(line)
        if not answer["ok"]:
            raise JavaError(answer["error"])
        return answer.get("result")


def _with_instants(rows: pa.Table) -> pa.Table:
    fields = [field.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(field.type) else field for field in rows.schema]
    return rows.cast(pa.schema(fields))
