"""A server that never stops: no answer, one without an end, or one that a few bytes blow up. The client goes on with one error."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator

import pytest
from requests import RequestException, Session

from tablecrypt.bounded_answers import AnswerLimits, bound_answers
from tablecrypt.errors import FormatError
from tests.support.unending_server import drops, half_a_body, serving, silence, whole, without_an_end

FAST = AnswerLimits(connection_s=1, silence_s=0.3, body_s=1, size=2**20, decompressed=2**18)
MIB = bytes(2**20)


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
        (lambda: whole(b"{}", "gzip"), "is not compressed as it says"),
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
