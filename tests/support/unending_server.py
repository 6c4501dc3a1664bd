"""A server over HTTP that never stops: no answer, one without an end, or one that comes drop by drop."""

from __future__ import annotations

import itertools
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


def head(length: int | None = None, encoding: str = "") -> bytes:
    ends = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    packed = f"Content-Encoding: {encoding}\r\n" if encoding else ""
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{packed}{ends}\r\n\r\n".encode()


def whole(body: bytes, encoding: str = "") -> Iterator[bytes]:
    yield head(len(body), encoding)
    yield body


def silence() -> Iterator[bytes]:
    yield b""
    time.sleep(2)


def half_a_body() -> Iterator[bytes]:
    yield head(100) + b"{"
    time.sleep(2)


def drops() -> Iterator[bytes]:
    yield head(10_000)
    for _ in range(100):
        yield b" "
        time.sleep(0.02)


def without_an_end() -> Iterator[bytes]:
    yield head()
    yield from itertools.repeat(b"10000\r\n" + bytes(2**16) + b"\r\n")


class Unending(socketserver.ThreadingTCPServer):
    """Answers each request with whatever `answer` yields for its path."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, answer: Callable[[bytes], Iterable[bytes]]) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                path = self.rfile.readline().split()[1]
                while self.rfile.readline().strip():
                    pass
                try:
                    for piece in answer(path):
                        self.wfile.write(piece)
                except (BrokenPipeError, ConnectionResetError):
                    # The client has seen enough, as it should.
                    return

        super().__init__(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving(answer: Callable[[bytes], Iterable[bytes]]) -> Iterator[str]:
    with Unending(answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server.uri
        server.shutdown()
        thread.join()
