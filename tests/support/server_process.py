"""A server in a process of its own, or another thing that runs, for as long as tests need it."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

START_PATIENCE: Final = 120
"""Seconds until it must answer: a loaded machine starts a JVM slowly."""
_PORTS: Final = range(20_000, 32_000)
"""Below those that systems give to outgoing connections."""
_RANDOM: Final = secrets.SystemRandom()


class StoppedAtTheEnd:
    """What runs until `stop`, or until the end of its block."""

    def stop(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class ServerProcess:
    """One running server, whose output goes to a file.

    Args:
        name: what messages call it.
        command: the program and its arguments.
        log: the file for what it prints; the folder of the log is where it runs.
        answers: whether it can be used. Asked until it says so.
        environment: all of it; None: as this process's.
    """

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, answers: Callable[[], bool], environment: Mapping[str, str] | None = None
    ) -> None:
        self._name = name
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=log.parent, env=environment or os.environ
            )
        try:
            self._wait_until(answers)
        except BaseException:
            self.stop()
            raise

    def end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_until(self, answers: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_PATIENCE
        while not answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the {self._name} did not start. The end of its log:\n{self.end_of_log()}")
            time.sleep(0.1)


class RunningServer(StoppedAtTheEnd):
    """A server that is a process: subclasses start it."""

    _server: ServerProcess

    def stop(self) -> None:
        """End the process."""
        self._server.stop()


def end_of_input(process: subprocess.Popen[str]) -> None:
    """Close the input of a program that ends with it, and see that it does."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def listens(port: int) -> bool:
    """Whether somebody takes connections to this port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """A port that nothing listens on now, and that no outgoing connection is given until the server has started."""
    for port in _RANDOM.sample(_PORTS, k=100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"a hundred ports of {_PORTS} are all taken")
