"""What the planner takes of a request: the fields that its operation declares, each of its kind, and nothing else. Java knows the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy

import tablecrypt.spark.sql
from tablecrypt.errors import FormatError
from tablecrypt.spark.sql.messages import OPERATIONS, PlannerOperation, Request, Response, SentRequest, framed_response, operation
from tablecrypt.spark.sql.planner import Planner
from tests.support.planner_requests import EVERY

CONTENT: Final = "content"
JAVA: Final = "\n".join(path.read_text() for path in sorted((Path(tablecrypt.spark.sql.__file__).parent / "java").glob("*.java")))
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
OF_KIND: Final[Mapping[Any, SearchStrategy[Any]]] = {
    str: st.text(),
    int: st.integers(),
    bool: st.booleans(),
    type(None): st.none(),
    Any: VALUES,
}
"""Any JSON value of a kind that has no parts."""
UNLIKE: Final = 0.5
"""No field takes fractions, but those that take anything."""


@dataclass(frozen=True)
class Declared:
    """What an operation declares.

    Attributes:
        kinds: of the fields of the JSON object.
        needed: names of those that must be there.
        takes_bytes: whether bytes may follow.
    """

    kinds: Mapping[str, Any]
    needed: frozenset[str]
    takes_bytes: bool

    @classmethod
    def by(cls, taking: PlannerOperation[Any]) -> Declared:
        kinds = get_type_hints(taking.request)
        needed = {name for name in kinds if not hasattr(taking.request, name)}
        return cls({name: kind for name, kind in kinds.items() if name != CONTENT}, frozenset(needed - {CONTENT}), CONTENT in kinds)


def values_of(kind: Any) -> SearchStrategy[Any]:
    """Values of JSON that a field of a kind takes."""
    if kind in OF_KIND:
        return OF_KIND[kind]
    if is_typeddict(kind):
        return st.fixed_dictionaries({name: values_of(each) for name, each in get_type_hints(kind).items()})

    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return st.one_of(*map(values_of, inner))
    if origin is list:
        return st.lists(values_of(inner[0]), max_size=3)
    assert origin is Mapping, kind
    return st.dictionaries(st.text(), values_of(inner[1]), max_size=3)


@st.composite
def requests(draw: st.DrawFn) -> tuple[PlannerOperation[Any], Declared, SentRequest]:
    """A request with all that its operation needs, and some of what it takes besides."""
    taking = draw(st.sampled_from(EVERY))
    declared = Declared.by(taking)
    named = declared.needed | draw(st.sets(st.sampled_from(sorted(declared.kinds)))) if declared.kinds else set()
    sent = {name: draw(values_of(declared.kinds[name])) for name in sorted(named)}
    return taking, declared, SentRequest(taking.name, sent, draw(st.binary(max_size=8)) if declared.takes_bytes else b"")


@given(requests())
def test_a_request_with_the_declared_fields_is_taken_as_it_was_sent(
    asked: tuple[PlannerOperation[Any], Declared, SentRequest],
) -> None:
    taking, declared, sent = asked
    came = SentRequest.decode(json.dumps({"operation": taking.name, **sent.fields}).encode(), sent.content)

    request = taking.decoded(came)

    assert came.operation == taking.name
    assert {name: getattr(request, name) for name in sent.fields} == sent.fields
    assert not declared.takes_bytes or request.content == sent.content


@given(asked=requests(), data=st.data())
def test_a_field_that_is_missing_of_another_kind_or_unknown_is_refused_by_name(
    asked: tuple[PlannerOperation[Any], Declared, SentRequest], data: DataObject
) -> None:
    taking, declared, sent = asked
    typed = [name for name, kind in declared.kinds.items() if kind is not Any]
    changes = [{**sent.fields, "unheard_of": None}, *({**sent.fields, name: UNLIKE} for name in typed)]
    changes += [{other: value for other, value in sent.fields.items() if other != name} for name in declared.needed]

    changed = data.draw(st.sampled_from(changes))

    differing = {name for name in {*changed, *sent.fields} if changed.get(name, MISSING) is not sent.fields.get(name, MISSING)}
    with pytest.raises(FormatError, match=rf"a request {taking.name} .*\b{'|'.join(differing)}\b"):
        taking.decoded(replace(sent, fields=changed))


@given(taking=st.sampled_from(EVERY), content=st.binary(max_size=8), data=st.data())
def test_any_object_is_taken_or_refused_and_nothing_else_happens(taking: PlannerOperation[Any], content: bytes, data: DataObject) -> None:
    names = st.sampled_from([*Declared.by(taking).kinds, CONTENT]) | st.text()
    sent = SentRequest(taking.name, data.draw(st.dictionaries(names, VALUES, max_size=8)), content)

    try:
        request = taking.decoded(sent)
    except FormatError:
        return

    assert isinstance(request, taking.request)


def test_true_is_no_number_and_text_no_bytes() -> None:
    write = {"write": "w", "batch_id": True}
    for fields_, named in ((write, "batch_id"), ({"write": "w", CONTENT: "text"}, CONTENT)):
        with pytest.raises(FormatError, match=f"unknown: {named};"):
            OPERATIONS["commit_write"].decoded(SentRequest("commit_write", fields_))
    with pytest.raises(FormatError, match="unknown: content;"):
        OPERATIONS["abort_write"].decoded(SentRequest("abort_write", {"write": "w"}, b"bytes"))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"operation": 1}', "[" * 100_000, "\udcff"], ids=lambda text: repr(text[:8])
)
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="a request to the planner"):
        SentRequest.decode(text.encode(errors="surrogateescape"), b"")


def test_a_name_that_two_operations_have_is_refused() -> None:
    def load_table(planner: Planner, request: Request) -> None:
        """Takes what another one is asked."""

    with pytest.raises(ValueError, match="two operations of the planner have the name load_table"):
        operation(load_table)

    assert OPERATIONS["load_table"].run is not load_table


def test_nothing_that_is_asked_shows_in_a_repr() -> None:
    sent = SentRequest("load_source", {"catalog": "s3cret", "options": {"password": "s3cret"}}, b"")
    assert "s3cret" not in repr(sent) + repr(OPERATIONS["load_source"].decoded(sent))


def test_java_asks_for_operations_that_there_are_and_knows_all_of_them() -> None:
    asked_for = set(re.findall(r'\brequest\("(\w+)"', JAVA))

    assert len(asked_for) > 40, "the calls in Java have another form"
    assert asked_for <= OPERATIONS.keys()
    assert [name for name in OPERATIONS if f'"{name}"' not in JAVA] == []


def test_java_knows_each_field_that_is_declared() -> None:
    declared = {name for each in EVERY for name in Declared.by(each).kinds}
    assert [name for name in sorted(declared) if f'"{name}"' not in JAVA] == []


class Panic(BaseException):
    """As a library in Rust raises it."""


def raising(error: BaseException) -> Response:
    raise error


@pytest.mark.parametrize(
    ("respond", "told"),
    [
        (lambda: raising(Panic("index out of bounds")), "Panic: index out of bounds"),
        (lambda: raising(SystemExit(1)), "SystemExit: 1"),
        (lambda: Response({"rows": object()}), "TypeError: Object of type object is not JSON serializable"),
    ],
    ids=["a panic", "an end of the process", "a response that is no JSON"],
)
def test_every_request_gets_a_response_whatever_happens(respond: Callable[[], Response], told: str) -> None:
    framed = framed_response(respond)
    length = int.from_bytes(framed[:4], "big")
    assert json.loads(framed[4 : 4 + length])["error"]["message"] == told
