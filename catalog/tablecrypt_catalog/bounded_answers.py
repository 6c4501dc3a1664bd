"""How long a client of a REST catalog waits for an answer, and how much of one it reads: neither is decided by whoever answers.

    the connection        10 seconds
    silence               5 minutes without a byte
    the body              15 minutes, 512 MiB
    what is compressed    32 MiB, or 64 × the bytes that came, as of metadata.json.gz; by gzip alone, which is what is asked for

Without these a server that says nothing holds its client for ever, and a few bytes of it fill the client's memory.

Raises EndlessAnswerError, or what requests raises where no answer comes. Both are RequestExceptions: to a commit it is as if no answer
came, so that nothing of it is deleted.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from requests import ConnectionError as NoConnectionError
from requests import PreparedRequest, RequestException, Response, Session
from urllib3.exceptions import HTTPError

from tablecrypt.errors import FormatError
from tablecrypt.printable import printable
from tablecrypt.table.metadata import DECOMPRESSED_RATIO, SMALL_DECOMPRESSED

_PIECE: Final = 64 * 1024
"""Bytes that are read, or decompressed, at once."""
_PLAIN: Final = ("", "identity")
_GZIP: Final = ("gzip", "x-gzip")
_OF_GZIP: Final = zlib.MAX_WBITS + 16


class EndlessAnswerError(FormatError, RequestException):
    """An answer that takes more time or memory than any that a client asks for."""


@dataclass(frozen=True)
class AnswerLimits:
    """What an answer may take: seconds until there is a connection, between two bytes, and for its whole body; and bytes."""

    connection_s: float = 10
    silence_s: float = 300
    body_s: float = 900
    size: int = 512 * 2**20
    decompressed: int = SMALL_DECOMPRESSED
    ratio: int = DECOMPRESSED_RATIO


def bound_answers(session: Session, limits: AnswerLimits = AnswerLimits()) -> None:
    """Hold all answers that a session gets to these limits, redirects and those of a token's server too."""
    session.headers["Accept-Encoding"] = "gzip"
    session.send = partial(_sent, session.send, limits)  # type: ignore[method-assign]
    # The first hook: others look at the body, which would be read as a whole by then.
    session.hooks["response"].insert(0, partial(_read, limits))


def _sent(send: Callable[..., Response], limits: AnswerLimits, request: PreparedRequest, **options: Any) -> Response:
    if options.get("timeout") is None:
        options["timeout"] = (limits.connection_s, limits.silence_s)
    return send(request, **options)


def _read(limits: AnswerLimits, response: Response, **_: Any) -> None:
    """Read a body within the limits."""
    content, until = bytearray(), time.monotonic() + limits.body_s
    try:
        for piece, received in _pieces(response):
            content += piece
            if len(content) > limits.size:
                raise _endless(response, f"has more than {limits.size:,} bytes")
            if len(content) > max(limits.decompressed, limits.ratio * received):
                raise _endless(response, f"comes to more than {limits.ratio} times the {received:,} bytes of it")
            if time.monotonic() > until:
                raise _endless(response, f"is not complete after {limits.body_s:g} seconds")
    except HTTPError as error:
        raise NoConnectionError(error, request=response.request) from error
    except zlib.error:
        raise _endless(response, "is not compressed as it says") from None

    response._content = bytes(content)  # what `content` and `text` give once a body was read


def _pieces(response: Response) -> Iterator[tuple[bytes, int]]:
    """Yield a body piece by piece, decompressed, each with how many bytes came so far."""
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    # Of another encoding, or of one in another, a step could come to any number of bytes.
    if encoding not in (*_PLAIN, *_GZIP):
        raise _endless(response, f"is compressed by {printable(encoding)}, which was not asked for")

    decompressor = zlib.decompressobj(_OF_GZIP) if encoding in _GZIP else None
    received = 0
    # What is there, and not as much as is asked for: that could take for ever.
    while piece := response.raw.read1(_PIECE, decode_content=False):
        received += len(piece)
        if decompressor is None:
            yield piece, received
        while decompressor is not None and piece:
            yield decompressor.decompress(piece, _PIECE), received
            piece = decompressor.unconsumed_tail


def _endless(response: Response, what: str) -> EndlessAnswerError:
    response.close()
    return EndlessAnswerError(f"the answer of {printable(urlsplit(response.url).netloc.rpartition('@')[2])} {what}: nothing of it was used")
