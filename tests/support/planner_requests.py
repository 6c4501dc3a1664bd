"""Asking the planner's operations in a test's own process, as the driver's JVM asks them."""

from __future__ import annotations

from typing import Any, Final

from tablecrypt.spark.sql import procedures, process  # noqa: F401  for their operations
from tablecrypt.spark.sql.messages import OPERATIONS, PlannerOperation, Response, SentRequest
from tablecrypt.spark.sql.planner import Planner

EVERY: Final = tuple(OPERATIONS.values())


def respond(planner: Planner, operation: PlannerOperation[Any] | str, content: bytes = b"", /, **fields: Any) -> Response:
    """Return the response to a request with these fields."""
    asked = OPERATIONS[operation] if isinstance(operation, str) else operation
    return asked.respond(planner, SentRequest(asked.name, fields, content))
