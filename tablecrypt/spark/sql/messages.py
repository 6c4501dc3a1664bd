"""Requests of Spark's driver to the planner, the operations that take them, and their responses.

    SentRequest    a request as it came: JSON and bytes ─▶ PlannerOperation.respond ─▶ its Request, decoded ─▶ the operation ─▶ Response

An operation declares the fields of its requests once, as a class. The types say what JSON a field may hold; one with a default may be left
out. What is missing, of another kind, or declared by nobody is refused: a jar of another version would mean something else by it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints, is_typeddict

from tablecrypt.errors import FormatError
from tablecrypt.external_errors import is_external, said_of

if TYPE_CHECKING:
    from tablecrypt.spark.sql.planner import Planner

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_CONTENT: Final = "content"
OTHER_VERSION: Final = "the jar belongs to another version of tablecrypt"

R = TypeVar("R", bound="Request")
logger = logging.getLogger(__name__)


@dataclass_transform(eq_default=False, frozen_default=True, kw_only_default=True)
class Request:
    """The fields of an operation's requests, each with its type; `content: bytes` takes the bytes behind the JSON.

    A dataclass to type checkers, and none at run time: to make dozens of them takes 1 ms each of the planner's start.
    """

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)


class SessionRequest(Request):
    """What requests say of their session; those of a program say nothing.

    Attributes:
        settings: Iceberg's (statements/iceberg_settings.py), without what all names begin with.
        application: of Spark: its version, id and name.
    """

    settings: Mapping[str, str] = NOTHING
    application: Mapping[str, str] = NOTHING


class TableRequest(SessionRequest):
    """About a table, by the handle of how it was loaded."""

    table: str


class OptionsRequest(TableRequest):
    """About a table that is read or written with options."""

    options: Mapping[str, Any]


class CatalogRequest(Request):
    """About a catalog, by its handle."""

    catalog: str


class NamespaceRequest(CatalogRequest):
    """About a namespace."""

    namespace: list[str]


class NamedRequest(NamespaceRequest, SessionRequest):
    """About a table, view or procedure, by its name.

    Attributes:
        wap_branch, wap_id: where the session writes (writes/write_audit_publish.py).
    """

    name: str
    wap_branch: str | None = None
    wap_id: str | None = None

    @property
    def identifier(self) -> tuple[str, ...]:
        """The namespace and the name."""
        return (*self.namespace, self.name)


@dataclass(frozen=True, repr=False)
class SentRequest:
    """One request as it came: the operation, the other fields of the JSON object, and the bytes that follow."""

    operation: str
    fields: Mapping[str, Any]
    content: bytes = b""

    @classmethod
    def decode(cls, encoded: bytes, content: bytes) -> SentRequest:
        """Take the JSON apart. FormatError where it is no object that names an operation."""
        try:
            told = json.loads(encoded)
        except (ValueError, RecursionError) as error:
            raise FormatError("a request to the planner is no JSON") from error
        if type(told) is not dict or type(told.get("operation")) is not str:
            raise FormatError("a request to the planner names no operation")
        return cls(told.pop("operation"), told, content)


@dataclass(frozen=True)
class PlannerOperation(Generic[R]):
    """What the planner does for one kind of request.

    Attributes:
        name: by which requests ask for it.
        run: a function of the planner and the request; None responds that it is done.
    """

    name: str
    run: Callable[[Planner, R], Response | None]

    def respond(self, planner: Planner, sent: SentRequest) -> Response:
        """Return the response to a request that came. FormatError as `decoded`; other errors are the operation's."""
        return self.run(planner, self.decoded(sent)) or Response({})

    def decoded(self, sent: SentRequest) -> R:
        """Return the request. FormatError for a field that is missing, of another kind or declared by nobody."""
        kinds = self._kinds
        # Bytes alone are of the kind bytes: JSON cannot take their place.
        given = {_CONTENT: sent.content, **sent.fields} if sent.content or _CONTENT in kinds else sent.fields
        missing = {name for name in kinds.keys() - given.keys() if not hasattr(self.request, name)}
        # A field that is passed over would be a setting that is ignored.
        others = {name for name, value in given.items() if name not in kinds or not _is_of(value, kinds[name])}
        if wrong := ", ".join(sorted(missing | others)):
            raise FormatError(f"a request {self.name} has fields that are missing, of another kind or unknown: {wrong}; {OTHER_VERSION}")

        return self.request(**given)

    @cached_property
    def request(self) -> type[R]:
        """The class that declares the fields."""
        # Of modules that the planner's own imports, it is known to type checkers alone.
        kind: type[R] = get_type_hints(self.run, localns={"Planner": object})["request"]
        return kind

    @cached_property
    def _kinds(self) -> Mapping[str, Any]:
        return get_type_hints(self.request)


OPERATIONS: Final[dict[str, PlannerOperation[Any]]] = {}
"""Those of all modules that are imported, by name."""


def operation(run: Callable[[Planner, R], Response | None]) -> PlannerOperation[R]:
    """Make a function the operation of its name. The type of its argument `request` declares the fields.

    Raises:
        ValueError: there is one of that name: the one would get the other's requests.
    """
    made = PlannerOperation(run.__name__, run)
    if OPERATIONS.setdefault(made.name, made) is not made:
        raise ValueError(f"two operations of the planner have the name {made.name}")
    return made


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of the kind that a field has."""
    # Not isinstance, for which JSON's true is an int.
    if kind is Any or type(value) is kind:
        return True
    if is_typeddict(kind):
        kinds = get_type_hints(kind)
        return type(value) is dict and value.keys() == kinds.keys() and all(_is_of(value[name], kinds[name]) for name in kinds)

    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return any(_is_of(value, each) for each in inner)
    if origin is list:
        return type(value) is list and all(_is_of(each, *inner) for each in value)
    return origin is Mapping and type(value) is dict and all(_is_of(each, inner[1]) for each in value.values())


@dataclass(frozen=True)
class Response:
    """The fields of a response's JSON object, and the bytes that follow."""

    fields: Mapping[str, Any]
    content: bytes = b""

    def framed(self) -> bytes:
        """Return the length of the JSON (4, big endian), the JSON, and the bytes."""
        encoded = json.dumps(self.fields).encode()
        return len(encoded).to_bytes(4, "big") + encoded + self.content


def framed_response(respond: Callable[[], Response]) -> bytes:
    """Return a framed response, or that of the error in which it ended: a thread of the JVM waits for one, whatever happens."""
    try:
        return respond().framed()
    except BaseException as error:  # also one that is no Exception, such as a panic in a library's Rust
        logger.debug("a request failed", exc_info=True)
        return Response({"error": described_error(error)}).framed()


def described_error(error: BaseException) -> dict[str, object]:
    """Return what Java gets of an error: its message, and the names of its class and of those above."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if issubclass(kind, Exception)]
    name = type(error).__name__
    # Texts of other libraries may show a line of a configuration, with the password in it.
    said = said_of(error) if isinstance(error, Exception) and is_external(error) else str(error)
    return {"kinds": kinds, "message": f"{name}: {said.removeprefix(f'{name}: ')}"}
