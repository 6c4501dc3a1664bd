"""What the connector asks a program about the program's own relations and writes, and the program's responses.

    relation or write ──▶ java/ProgramPlanner, whose name is in each of its requests
    one thread takes requests, through Py4J ──▶ a thread of the write, or one of all relations, responds ──▶ an encrypted response

There is one thread that takes requests for each SparkContext. Relations last: Spark plans a DataFrame when it is used, maybe from another
thread. The JVM says when nothing in it holds a relation any more. Everything ends with the SparkContext.

Responses hold keys of files, and Py4J's commands may be in debug logs. So they are encrypted under a key that is made for one SparkContext
and given to its JVM under the public key of its endpoint (shared/keys.py). All numbers are big endian:

    response = nonce (12) | ciphertext | tag (16), AES-256-GCM under that key, AAD = the request's id
    content  = length of the JSON (4) | JSON | bytes, as from the planner's process
"""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.shared.task_keys import encrypt_for_driver
from tablecrypt.spark.sql.messages import Response, SentRequest, framed_response

if TYPE_CHECKING:
    from tablecrypt.spark.shared.install import JvmSide

Respond: TypeAlias = Callable[[SentRequest], Response]
_Work: TypeAlias = Callable[[], None]

_KEY_LENGTH: Final = 32
_THREADS: Final = 16
logger = logging.getLogger(__name__)


def this_python() -> dict[str, Any]:
    """Return how the driver's JVM starts the Python of this program."""
    return {"python": sys.executable, "path": [folder for folder in sys.path if folder]}


def new_planner(side: JvmSide, respond: Respond) -> Any:
    """Return a ProgramPlanner of the JVM. `respond` is called, from any thread, for as long as the JVM holds it."""
    return _program(side).planner(respond)


def known_planners(side: JvmSide) -> frozenset[str]:
    """Return the names of the relations and writes that the JVM may still ask about, but for writes that have ended."""
    return frozenset(_program(side).responders)


@contextmanager
def responding(side: JvmSide, respond: Respond) -> Iterator[Any]:
    """Give the block a ProgramPlanner. When the block ends, no more requests are responded to, and none is being responded to."""
    from pyspark import InheritableThread

    program, works = _program(side), SimpleQueue[_Work | None]()
    thread = InheritableThread(target=_do_all, args=(works,), daemon=True)
    thread.start()
    planner = program.planner(respond, works.put)

    try:
        yield planner
    finally:
        # First the JVM stops asking, then the name goes, then the thread ends: nothing is asked that gets no response.
        planner.close()
        program.forget(planner.name())
        works.put(None)
        thread.join()


def _do_all(works: SimpleQueue[_Work | None]) -> None:
    while (work := works.get()) is not None:
        work()


@dataclass(frozen=True)
class _Responder:
    respond: Respond
    hand_on: Callable[[_Work], object]


class _Program:
    """This program as the JVM of one SparkContext asks it."""

    def __init__(self, side: JvmSide) -> None:
        key = secrets.token_bytes(_KEY_LENGTH)
        self._cipher = AesGcm(Secret(key))
        self._requests = side.endpoint.openProgram(encrypt_for_driver(key, side.name, side.public_key))
        self.responders: dict[str, _Responder] = {}
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(_THREADS, "tablecrypt-program")
        Thread(target=self._take_all, name="tablecrypt-program", daemon=True).start()

    def planner(self, respond: Respond, hand_on: Callable[[_Work], object] | None = None) -> Any:
        planner = self._requests.newPlanner()
        self.responders[planner.name()] = _Responder(respond, hand_on or self._threads.submit)
        return planner

    def forget(self, name: str) -> None:
        with self._lock:
            self.responders.pop(name, None)

    def _take_all(self) -> None:
        from py4j.protocol import Py4JError

        try:
            while (request := self._requests.next()) is not None:
                self._take(request)
        except Py4JError as error:
            logger.debug("the driver's JVM asks nothing more: %s", error)

        self.responders.clear()
        self._threads.shutdown(wait=False)

    def _take(self, request: Any) -> None:
        name, asked = request.planner(), request.json()
        with self._lock:
            if asked is None:
                self.responders.pop(name, None)
                return
            # Every request gets a response: the JVM's thread waits for one, of an ended statement too.
            responder = self.responders.get(name) or _Responder(_refuse, self._threads.submit)
            responder.hand_on(partial(self._work, request, bytes(asked), responder.respond))

    def _work(self, request: Any, asked: bytes, respond: Respond) -> None:
        response = framed_response(lambda: respond(SentRequest.decode(asked, bytes(request.bytes()))))
        # The id is the AAD: a response to one request cannot be given for another.
        encrypted = self._cipher.encrypt(secrets.token_bytes(NONCE_LENGTH), response, request.id().encode())
        request.respond(encrypted)


def _refuse(sent: SentRequest) -> Response:
    raise ConfigurationError("the program has ended this statement: run it again")


_programs: Final[dict[str, _Program]] = {}
_programs_lock: Final = Lock()


def _program(side: JvmSide) -> _Program:
    with _programs_lock:
        if side.name not in _programs:
            _programs[side.name] = _Program(side)
        return _programs[side.name]
