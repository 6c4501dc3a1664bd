"""A Spark Connect server from PySpark's own jars on a free port, and clients of it in processes of their own.

A client cannot live in the test process: PySpark decides once per process whether its functions are those of Connect.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.class_archive import short_life_options
from tests.support.server_process import RunningServer, ServerProcess, free_port, listens

ROOT: Final = Path(__file__).parents[2]
CLIENT: Final = Path(__file__).with_name("spark_connect_client.py")
CRASHES: Final = Path(__file__).with_name("spark_connect_crashes.py")
_SERVER_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer(RunningServer):
    """One running server on two cores. `folder` takes its log and local files.

    Args:
        folder: its own.
        further: settings beside those that tests need.
        jars: what --jars lists.
    """

    def __init__(self, folder: Path, further: Mapping[str, str] | None = None, jars: Sequence[Path] = ()) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        self._port = free_port()
        self._folder = folder
        settings = {
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.python.daemon.module": "tests.support.preloaded_daemon",
            "spark.sql.warehouse.dir": f"{folder}/spark-warehouse",
            "spark.local.dir": f"{folder}/spark-local",
            **(further or {}),
        }
        if jars:
            settings["spark.jars"] = ",".join(map(str, jars))
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command: list[str | Path] = [
            home / "bin" / "spark-submit",
            "--master",
            "local[2]",
            "--class",
            _SERVER_CLASS,
            *options,
            "spark-internal",
        ]
        environment = spark_environment() | {"SPARK_HOME": str(home)}
        self._server = ServerProcess("Spark Connect server", command, folder / "connect-server.log", self._listens, environment)

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
            env=spark_environment(),
        )

    def answers(self, script: Path, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run a client that must end well, and return the JSON of its last line."""
        run = self.run(script, job)
        if run.returncode:
            raise RuntimeError(
                f"the Connect client failed:\n{run.stderr[-4000:]}\nThe end of the server's log:\n{self._server.end_of_log()}"
            )
        answers: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
        return answers

    def _listens(self) -> bool:
        return listens(self._port)


def spark_environment() -> dict[str, str]:
    """Return what Spark's servers, shells and clients start with: packages of this folder, short lives, nobody else's Spark."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    search_path = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    options = short_life_options()
    return kept | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": search_path,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": options,
        "SPARK_BEELINE_OPTS": options,
    }
