"""The oracle: Iceberg Java, the reference implementation, which a test asks what a table holds.

JavaOracle runs tests/support/java_oracle.py in a process of its own, so that no JVM lives in the test process: tests of our Spark code can
have their own session beside it, and the AWS environment that Java sees is exactly the one given here.

Identifiers are "namespace.table". In SQL the catalog is called `h`:  oracle.sql("SELECT count(*) FROM h.db.orders").

How types come back, since Spark knows fewer of them than Iceberg: uuid as string, fixed as binary; timestamps in microseconds, those with
a zone in UTC. A table with a column of type time, or of nanosecond timestamps, cannot be opened by Spark at all.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.aws import CREDENTIALS, REGION
from tests.support.class_archive import short_life_options
from tests.support.selection import of_another_spark
from tests.support.server_process import StoppedAtTheEnd, end_of_input

BUCKETS: Final = ("golden-shared", "java-vectors", "java-oracle")
LINEAGE_COLUMNS: Final = ("_row_id", "_last_updated_sequence_number")
RUNS_HERE: Final = version("pyspark").startswith("4.1.")
"""Whether this is the Spark for which Iceberg Java 1.12 is made."""
_WORKER: Final = Path(__file__).with_name("java_oracle.py")


def skip_without_its_spark() -> None:
    """Skip the test on a Spark that Iceberg Java does not know."""
    if not RUNS_HERE:
        pytest.skip(of_another_spark(f"Iceberg Java 1.12 runs on 4.1, and this is {version('pyspark')}"))


class JavaError(Exception):
    """Java refused or failed. `str()` begins with what it said; `java_class` is the exception it threw, if it named one."""

    @property
    def java_class(self) -> str | None:
        named = re.search(r"\b((?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error))\b", str(self))
        return named.group(1) if named else None


class JavaOracle(StoppedAtTheEnd):
    """One running Iceberg Java with a catalog of its own, which begins empty; or on the metastore at `metastore_uri`, which others use too.

    `folder` takes its warehouse and scratch files; `endpoint` is where S3 and KMS answer. Tables may lie under file:// anywhere, and under
    s3:// in one of `buckets`. Every failure in Java is a JavaError. A call that lasts longer than `timeout` seconds ends the process.
    `settings` are Spark's, beside the session's own.
    """

    def __init__(
        self,
        folder: Path,
        endpoint: str,
        *,
        buckets: Sequence[str] = BUCKETS,
        metastore_uri: str | None = None,
        timeout: float = 300,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        skip_without_its_spark()
        self._use_folder(folder)
        self._timeout = timeout
        self._turn = threading.Lock()
        self._log = folder / "oracle.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=_environment(),
            )
        options = {
            "folder": str(folder),
            "endpoint": endpoint,
            "region": REGION,
            "buckets": list(buckets),
            "metastore_uri": metastore_uri,
            "settings": dict(settings or {}),
        }
        try:
            self.versions: dict[str, str] = self._exchange_lines(options)
        except JavaError:
            self.stop()
            raise

    def sql(self, statement: str) -> pa.Table | None:
        """Run one statement of Spark SQL; its rows, or None for a statement that gives none."""
        path = self._next_file("arrow")
        if not self._ask("sql", statement=statement, result=str(path)):
            return None
        with pa.OSFile(str(path)) as source:
            rows = pa.ipc.open_file(source).read_all()
        path.unlink()
        return rows

    def rows(
        self,
        identifier: str,
        snapshot_id: int | str | None = None,
        columns: str | Sequence[str] = "*",
        where: str | None = None,
        lineage: bool = False,
    ) -> pa.Table:
        """A table's rows: of the newest state, or of a snapshot by its id, or of a branch or tag by its name.

        `columns` and `where` are SQL. With `lineage`, the row's _row_id and _last_updated_sequence_number follow the columns.
        """
        wanted = [columns] if isinstance(columns, str) else list(columns)
        if lineage:
            wanted.extend(LINEAGE_COLUMNS)
        statement = f"SELECT {', '.join(wanted)} FROM h.{identifier}"
        if snapshot_id is not None:
            statement += f" VERSION AS OF {_sql_literal(snapshot_id)}"
        if where is not None:
            statement += f" WHERE {where}"
        rows = self.sql(statement)
        assert rows is not None
        return rows

    def append(self, identifier: str, rows: pa.Table) -> None:
        """Append rows, matched to the table's columns by name."""
        path = self._next_file("parquet")
        pq.write_table(rows, path)
        self._ask("append", identifier=identifier, parquet=str(path))
        path.unlink()

    def register(self, identifier: str, metadata_location: str) -> None:
        """Give a table that lies in storage already a name in Java's catalog. Its files stay where they are and as they are."""
        namespace = identifier.rpartition(".")[0]
        self.sql(f"CREATE NAMESPACE IF NOT EXISTS h.{namespace}")
        self.sql(f"CALL h.system.register_table(table => {_sql_literal(identifier)}, metadata_file => {_sql_literal(metadata_location)})")

    def unregister(self, identifier: str) -> None:
        """Forget the name; every file of the table stays."""
        self.sql(f"DROP TABLE h.{identifier}")

    def metadata_location(self, identifier: str) -> str:
        """The table's newest metadata file, as the catalog has it now."""
        location: str = self._ask("metadata_location", identifier=identifier)
        return location

    def snapshots(self, identifier: str) -> list[dict[str, Any]]:
        """snapshot_id, parent_id, operation and committed_at of every snapshot, oldest first."""
        found = self.sql(f"SELECT snapshot_id, parent_id, operation, committed_at FROM h.{identifier}.snapshots ORDER BY committed_at")
        assert found is not None
        snapshots: list[dict[str, Any]] = found.to_pylist()
        return snapshots

    def append_equality_deletes(self, identifier: str, column: str, values: Sequence[int]) -> None:
        """Delete the rows whose int `column` is among `values` by an equality delete file. Unpartitioned tables only."""
        self._ask("append_equality_deletes", identifier=identifier, column=column, values=list(values))

    def stop(self) -> None:
        """End the process and its JVM."""
        end_of_input(self._process)

    def _use_folder(self, folder: Path) -> None:
        self.folder = folder
        self.warehouse = f"file://{folder}/warehouse"
        self._file_numbers = itertools.count()
        self._exchange = folder / "exchange"
        self._exchange.mkdir(parents=True)

    def _next_file(self, suffix: str) -> Path:
        return self._exchange / f"{next(self._file_numbers)}.{suffix}"

    def _ask(self, operation: str, **arguments: Any) -> Any:
        return self._exchange_lines({"op": operation, **arguments})

    def _exchange_lines(self, message: dict[str, Any]) -> Any:
        with self._turn:
            line = self._send_and_wait(json.dumps(message) + "\n")
        if not line:
            raise JavaError(f"the oracle's process ended. The end of its log:\n{self._end_of_log()}")
        answer = json.loads(line)
        if not answer["ok"]:
            raise JavaError(answer["error"])
        return answer["result"]

    def _send_and_wait(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Killing the process ends the read below, which could not be given up otherwise.
        deadline = threading.Timer(self._timeout, self._process.kill)
        deadline.start()
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
            return self._process.stdout.readline()
        except BrokenPipeError:
            return ""
        finally:
            deadline.cancel()

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


def _environment() -> dict[str, str]:
    """This process's environment with the test credentials, and without what could turn Java or Spark to anything else."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPARK_", "PYSPARK_", "HADOOP_"))}
    own = {
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": short_life_options(),
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }
    return kept | own | dict(CREDENTIALS)


def _sql_literal(value: int | str) -> str:
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
