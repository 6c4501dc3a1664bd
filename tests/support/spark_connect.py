"""A Spark Connect server from PySpark's own jars on a free port, and clients of it in processes of their own.

A client cannot live in the test process: PySpark decides once per process whether its functions are those of Connect.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
CLIENT: Final = Path(__file__).with_name("spark_connect_client.py")
CRASHES: Final = Path(__file__).with_name("spark_connect_crashes.py")
_SERVER_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """One running server on two cores. `folder` takes its log and local files."""

    def __init__(self, folder: Path, patience: float = 120) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        self._port = _free_port()
        self._folder = folder
        self._log = folder / "connect-server.log"
        settings = {
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.driver.host": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{folder}/spark-warehouse",
            "spark.local.dir": f"{folder}/spark-local",
        }
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [home / "bin" / "spark-submit", "--master", "local[2]", "--class", _SERVER_CLASS, *options, "spark-internal"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=_environment() | {"SPARK_HOME": str(home)}
            )
        try:
            self._wait_until_it_listens(patience)
        except BaseException:
            self.stop()
            raise

    def run(self, script: Path, job: Mapping[str, Any], patience: float = 600) -> subprocess.CompletedProcess[str]:
        """Run a client to its end: a script that takes a job as JSON on standard input."""
        return subprocess.run(
            [sys.executable, str(script)],
            input=json.dumps({"remote": f"sc://127.0.0.1:{self._port}", **job}),
            capture_output=True,
            text=True,
            check=False,
            timeout=patience,
            cwd=self._folder,
            env=_environment(),
        )

    def answers(self, script: Path, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run a client that must end well, and return the JSON of its last line."""
        run = self.run(script, job)
        if run.returncode:
            raise RuntimeError(f"the Connect client failed:\n{run.stderr[-4000:]}\nThe end of the server's log:\n{self._end_of_log()}")
        answers: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
        return answers

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> ConnectServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _wait_until_it_listens(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the Spark Connect server did not start. The end of its log:\n{self._end_of_log()}")
            time.sleep(0.2)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    search_path = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    return kept | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": search_path, "SPARK_LOCAL_IP": "127.0.0.1"}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
