"""Reading from and writing to a socket within bounds of time and size.

Beyond a bound an OSError is raised: TimeoutError, or ConnectionAbortedError for a client that sends too much.
"""

from __future__ import annotations

import io
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


class BoundedReader(io.RawIOBase):
    """Reads from a socket until a deadline and for so many bytes; what is beyond either is an OSError."""

    def __init__(self, connection: socket.socket, deadline: float, most_bytes: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._left = most_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)[: self._left]
        if not view:
            raise ConnectionAbortedError("the client sent too much")
        self._connection.settimeout(remaining(self._deadline))
        received = self._connection.recv_into(view)
        self._left -= received
        return received


class TimedWriter(io.BufferedIOBase):
    """Writes to a socket, each time within so many seconds."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds

    def writable(self) -> bool:
        return True

    def write(self, content: Buffer) -> int:
        self._connection.settimeout(self._seconds)
        self._connection.sendall(content)
        return memoryview(content).nbytes


def remaining(deadline: float) -> float:
    """Return the seconds until `deadline`, a moment of time.monotonic. Raises TimeoutError when it has come."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the connection's time is over")
    return left
