"""What goes wrong in a worker, in few lines: Ray prints the calls that led to an error for each process that it passes through.

worker    TablecryptError ──▶ WorkerFailure of the same kind, without the calls before it
Ray       hides its own calls before errors of users' code, of which this is one, and retries none
driver    RayTaskError that is an error of the same kind
"""

from __future__ import annotations

from typing import Final, NoReturn, cast

import ray
from ray.exceptions import RayTaskError, UserCodeException

from tablecrypt.engines.jobs import GIVE_THE_RIGHT
from tablecrypt.errors import KmsAccessDeniedError, TablecryptError

ENGINE: Final = "Ray"
"""As messages name it."""


class WorkerFailure(UserCodeException):  # type: ignore[misc]
    """An error of this package in a worker. It is also an error of the same class as there.

    Attributes:
        own_arguments: those of the error. Ray adds advice to the `args` of an error in a task.
    """

    own_arguments: tuple[object, ...] = ()


def failure(error: TablecryptError) -> TablecryptError:
    """Return the error that a task ends with."""
    if isinstance(error, KmsAccessDeniedError):
        error = _at_this_node(error)
    return _remade(type(error), error.args)


def raise_from_worker(error: BaseException) -> None:
    """Raise, on the driver, the error of this package that made a task fail; return where another error did."""
    seen: BaseException | None = error
    while seen is not None:
        # Ray wraps a task's error, sometimes more than once.
        cause = seen.cause if isinstance(seen, RayTaskError) else seen
        if isinstance(cause, TablecryptError):
            _raise_plain(cause)
        seen = seen.__cause__


def _at_this_node(denied: KmsAccessDeniedError) -> KmsAccessDeniedError:
    address, node = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
    return KmsAccessDeniedError(
        f"a worker on node {address} ({node}) may not use a key that the driver may use: {denied}; {GIVE_THE_RIGHT}"
    )


def _class_of(kind: type[TablecryptError]) -> type[TablecryptError]:
    def reduce(self: TablecryptError) -> tuple[object, ...]:
        return _remade, (kind, cast("WorkerFailure", self).own_arguments)

    return type(kind.__name__, (WorkerFailure, kind), {"__reduce__": reduce, "__module__": kind.__module__, "__doc__": kind.__doc__})


def _remade(kind: type[TablecryptError], arguments: tuple[object, ...]) -> TablecryptError:
    error = _class_of(kind)(*arguments)
    cast("WorkerFailure", error).own_arguments = arguments
    return error


def _raise_plain(error: TablecryptError) -> NoReturn:
    kind = next(each for each in type(error).__mro__ if issubclass(each, TablecryptError) and not issubclass(each, WorkerFailure))
    # Not chained: the calls of Ray's processes would hide the one sentence.
    raise kind(*(error.own_arguments if isinstance(error, WorkerFailure) else error.args)) from None
