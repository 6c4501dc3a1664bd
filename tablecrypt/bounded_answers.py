"""How long a client waits for an answer over HTTP, and how much of one it reads: neither is decided by whoever answers.

                          REST catalog                      Vault, Hadoop KMS
    the connection        10 seconds                        10 seconds
    silence               5 minutes without a byte          30 seconds
    the body              15 minutes, 512 MiB               1 minute, 1 MiB
    what is compressed    32 MiB, or 64 × the bytes that    the same
                          came, as of metadata.json.gz

Compressed is by gzip alone, which is what is asked for. Without these limits a server that says nothing holds its client for ever, and a
few bytes of it fill the client's memory.

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

from tablecrypt._bytes import DECOMPRESSED_RATIO, SMALL_DECOMPRESSED
from tablecrypt.errors import FormatError
from tablecrypt.printable import printable

_PIECE: Final = 64 * 1024
"""Bytes that are read, or decompressed, at once."""
_PLAIN: Final = ("", "identity")
_GZIP: Final = ("gzip", "x-gzip")
_OF_GZIP: Final = zlib.MAX_WBITS + 16


class EndlessAnswerError(FormatError, RequestException):
    """An answer that takes more time or memory than any that a client asks for."""


@dataclass(frozen=True)
class AnswerLimits:
    """What an answer may take: seconds between two bytes, for its whole body, and until there is a connection; and bytes."""

    silence_s: float
    body_s: float
    size: int
    connection_s: float = 10
    decompressed: int = SMALL_DECOMPRESSED
    ratio: int = DECOMPRESSED_RATIO


OF_CATALOGS: Final = AnswerLimits(silence_s=300, body_s=900, size=512 * 2**20)
OF_KEY_SERVICES: Final = AnswerLimits(silence_s=30, body_s=60, size=2**20)


def bound_answers(session: Session, limits: AnswerLimits) -> None:
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
