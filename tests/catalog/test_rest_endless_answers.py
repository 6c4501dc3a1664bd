"""A REST server that never stops: no answer, one without an end, or one that a few bytes blow up. The client goes on with one error."""

from __future__ import annotations

import gzip
import itertools
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.schema import Schema
from requests import RequestException, Session

from tablecrypt.errors import FormatError
from tablecrypt_catalog import EncryptedRestCatalog
from tablecrypt_catalog.bounded_answers import AnswerLimits, bound_answers
from tests.support.tables import new_table

FAST = AnswerLimits(connection_s=1, silence_s=0.3, body_s=1, size=2**20, decompressed=2**18)
CONFIG = json.dumps({"defaults": {}, "overrides": {}}).encode()
MIB = bytes(2**20)


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


@pytest.mark.parametrize("answer", [silence, half_a_body], ids=["nothing", "half a body"])
def test_a_server_that_says_nothing_more_holds_nobody(answer: Callable[[], Iterator[bytes]]) -> None:
    session = Session()
    bound_answers(session, FAST)

    with serving(lambda path: answer()) as uri, pytest.raises(RequestException, match="timed out"):
        session.get(uri)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (without_an_end, "has more than 1,048,576 bytes"),
        (drops, "is not complete after 1 seconds"),
        (lambda: whole(gzip.compress(MIB), "gzip"), "comes to more than 64 times the [0-9,]+ bytes of it"),
        (lambda: whole(gzip.compress(gzip.compress(MIB)), "gzip, gzip"), "is compressed by gzip, gzip, which was not asked for"),
        (lambda: whole(CONFIG, "gzip"), "is not compressed as it says"),
    ],
    ids=["without an end", "drop by drop", "a bomb", "a bomb in another", "not compressed"],
)
def test_an_answer_that_takes_more_than_any_is_one_error(answer: Callable[[], Iterator[bytes]], what: str) -> None:
    session = Session()
    bound_answers(session, FAST)

    with serving(lambda path: answer()) as uri, pytest.raises(FormatError, match=what):
        session.get(uri)


def test_an_answer_that_is_compressed_as_servers_do_is_read() -> None:
    session, said = Session(), json.dumps(list(range(20_000))).encode()
    bound_answers(session, FAST)

    with serving(lambda path: whole(gzip.compress(said), "gzip")) as uri:
        assert session.get(uri).content == said


def test_a_catalog_reads_no_bomb_and_does_not_know_what_became_of_a_commit_that_one_answered(catalog: Catalog) -> None:
    bomb = gzip.compress(bytes(64 * 2**20))
    table = new_table(catalog, "db.t", Schema())

    with serving(lambda path: whole(CONFIG) if b"/config" in path else whole(bomb, "gzip")) as uri:
        client = EncryptedRestCatalog("prod", uri=uri, token="t", **{"encryption.kms-type": "memory", "kms.memory.name": "endless"})
        with pytest.raises(FormatError, match=r"comes to more than 64 times the [0-9,]+ bytes of it: nothing of it was used"):
            client.load_table("db.t")
        with pytest.raises(CommitStateUnknownException, match="the commit may have landed"):
            client.request_commit(table, "{}")
