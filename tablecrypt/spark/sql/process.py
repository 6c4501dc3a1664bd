"""The planner's process: it takes requests from stdin and gives responses to stdout, many at a time.

    frame    = length of the rest (4) | number of the request (4) | length of the JSON (4) | JSON | bytes       numbers are big endian
    request  = {"operation": "load_table", …} and the fields that the operation declares (messages.py), and bytes where it takes some
    response = an object, and bytes where the operation has some; or {"error": {"kinds": [names of classes], "message": "…"}}

Both ends are one JVM and the process that it started. No other process can read or write the two pipes, so keys travel in the clear.
What libraries print goes to stderr, which is the driver's. The process ends when its stdin does, with the JVM, and deletes the files of
writes that are open then.
"""

from __future__ import annotations

import os
import struct
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import BinaryIO, Final

from tablecrypt.errors import FormatError
from tablecrypt.spark.source import loading as sources  # noqa: F401
from tablecrypt.spark.sql import alterations, catalogs, definitions, loading, namespaces, staging, view_definitions, views  # noqa: F401
from tablecrypt.spark.sql.messages import OPERATIONS, OTHER_VERSION, Response, SentRequest, framed_response
from tablecrypt.spark.sql.planner import Planner
from tablecrypt.spark.sql.scans import aggregates, conditions, plan, python_reads, whole_partitions  # noqa: F401
from tablecrypt.spark.sql.streams import requests as streams  # noqa: F401
from tablecrypt.spark.sql.writes import commits, distribution, python_writes, row_level, source_columns  # noqa: F401

_AT_START: Final = frozenset(OPERATIONS)
"""Those of the modules that are imported above for them."""
_HEAD: Final = struct.Struct(">II")
_LENGTH: Final = struct.Struct(">I")
_THREADS: Final = 16


def main() -> None:
    """Serve the process that started this one until it ends."""
    # A library that prints, or a child that reads its input, must not get between the frames.
    requests, responses = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    serve(requests, responses)
    # Threads that still work for a driver that is gone must not hold the process.
    os._exit(0)


def serve(requests: BinaryIO, responses: BinaryIO) -> None:
    """Respond to each request from one stream on the other, until the first ends."""
    planner, lock = Planner(), Lock()

    def work(number: int, content: bytes) -> None:
        response = framed_response(partial(_response, planner, content))
        # Frames of several threads must not mix.
        with lock:
            responses.write(_HEAD.pack(_LENGTH.size + len(response), number) + response)
            responses.flush()

    with ThreadPoolExecutor(_THREADS) as threads:
        while len(head := requests.read(_HEAD.size)) == _HEAD.size:
            length, number = _HEAD.unpack(head)
            threads.submit(work, number, requests.read(length - _LENGTH.size))

    # A driver that is killed in a write neither commits nor aborts it.
    planner.abandon_writes()


def _response(planner: Planner, content: bytes) -> Response:
    """Return the response to one request, which comes from the length of its JSON on."""
    (length,) = _LENGTH.unpack_from(content)
    start = _LENGTH.size
    sent = SentRequest.decode(content[start : start + length], content[start + length :])
    # Not "in OPERATIONS": another thread may have imported half of what an operation needs.
    if sent.operation not in _AT_START:
        # When they are first asked for: with what they run, the procedures are a third of all modules.
        from tablecrypt.spark.sql import procedures  # noqa: F401  for its operations

    if sent.operation not in OPERATIONS:
        raise FormatError(f"the planner has no operation {sent.operation!r}: {OTHER_VERSION}")
    return OPERATIONS[sent.operation].respond(planner, sent)
