"""Apache Hive 4.1 asked from a test: its engine, its metastore and MapReduce's local runner, in one process of its own."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.java import JavaError
from tests.support.java_version import java_executable
from tests.support.maven_jars import fetched_jars, pyspark_jars
from tests.support.server_process import end_of_input

_SOURCE: Final = Path(__file__).with_name("java_src") / "HiveEngine.java"
_IVY_FILE: Final = Path(__file__).with_name("hive_engine_ivy.xml")
_JARS: Final = "hive-engine-4.1.0"
_TIMEOUT: Final = 300.0
_FROM_PYSPARK: Final = (
    *("ST4", "antlr-runtime", "audience-annotations", "commons-cli", "commons-codec", "commons-collections4", "commons-compiler"),
    *("commons-compress", "commons-io", "commons-lang3", "commons-math3", "commons-text", "curator-client", "curator-framework"),
    *("curator-recipes", "derby", "derbyshared", "derbytools", "gson", "hadoop-client-api", "hadoop-client-runtime", "janino"),
    *("javassist", "javax.servlet-api", "jcl-over-slf4j", "log4j-1.2-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl"),
    *("slf4j-api", "snappy-java", "transaction-api", "zookeeper", "zookeeper-jute"),
)
# What Hive writes plans with looks into the JDK's own classes.
_OPENED: Final = (
    "io",
    "lang",
    "lang.reflect",
    "net",
    "nio",
    "text",
    "time",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
    "util.regex",
)


class HiveEngine:
    """A running Hive with a metastore of its own, which begins empty. Every failure in Java is a JavaError.

    Tables lie under `folder`/tables. `jars` are classes of ours, `settings` Hive's settings besides those needed here.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], jars: Sequence[Path] = ()) -> None:
        self.tables = folder / "tables"
        self._log = folder / "hive.log"
        # Short life: the first JIT tier alone and the serial collector start faster and hold less memory.
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g", f"-Dderby.stream.error.file={folder}/derby.log"]
        options += [f"-Djava.io.tmpdir={folder}", *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED)]
        own = [f"{name}={value}" for name, value in (_settings(folder) | dict(settings)).items()]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [java_executable() or "java", *options, "-cp", hive_class_path(jars), str(_SOURCE), *own],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
            )
        self._exchange(None)

    def sql(self, statement: str) -> list[tuple[str, ...]]:
        """Run one statement; its rows, every value as text."""
        return [tuple(row.split("\t")) for row in self._exchange(" ".join(statement.split()))]

    def set(self, name: str, value: str) -> None:
        self._exchange(f"set {name}={value}")

    def files(self, table: str) -> list[Path]:
        """The data files of a table that Hive keeps."""
        return sorted(path for path in (self.tables / table).rglob("*") if path.is_file() and not path.name.startswith("."))

    def log(self) -> str:
        """All that Hive said: of a failed task the statement's error says only that it failed."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        end_of_input(self._process)

    def _exchange(self, line: str | None) -> list[str]:
        assert self._process.stdin is not None
        # Killing the process ends the reads below, which could not be given up otherwise.
        deadline = threading.Timer(_TIMEOUT, self._process.kill)
        deadline.start()
        try:
            if line is not None:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
            return self._answer()
        finally:
            deadline.cancel()

    def _answer(self) -> list[str]:
        assert self._process.stdout is not None
        kind, _, rest = self._process.stdout.readline().strip().partition(" ")
        if kind == "error":
            raise JavaError(_decoded(rest))
        if kind not in {"ready", "ok"}:
            raise JavaError(f"Hive's process ended. The end of its log:\n{self.log()[-4000:]}")
        return [_decoded(self._process.stdout.readline()) for _ in range(int(rest or 0))]


def hive_class_path(jars: Sequence[Path] = ()) -> str:
    """What Hive runs with, and what is compiled against it."""
    return os.pathsep.join([*map(str, jars), *map(str, _pyspark_jars()), f"{fetched_jars(_IVY_FILE, _JARS)}/*"])


def _pyspark_jars() -> Iterator[Path]:
    for name in _FROM_PYSPARK:
        yield next(pyspark_jars().glob(f"{name}-[0-9]*.jar"))


def _settings(folder: Path) -> dict[str, str]:
    return {
        "datanucleus.schema.autoCreateAll": "true",
        "fs.defaultFS": "file:///",
        "hadoop.tmp.dir": f"{folder}/hadoop",
        "hive.downloaded.resources.dir": f"{folder}/resources",
        "hive.exec.local.scratchdir": f"{folder}/local-scratch",
        "hive.exec.scratchdir": f"file:{folder}/scratch",
        "hive.execution.engine": "mr",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"file:{folder}/managed",
        "hive.metastore.warehouse.external.dir": f"file:{folder}/tables",
        "hive.notification.event.poll.interval": "0s",
        # Otherwise a thread reads statistics of earlier queries from the metastore, while its database is still being made.
        "hive.query.reexecution.enabled": "false",
        "hive.query.reexecution.stats.persist.scope": "query",
        "hive.querylog.location": f"{folder}/queries",
        "hive.support.concurrency": "false",
        "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:hive;create=true",
        "mapreduce.framework.name": "local",
    }


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
