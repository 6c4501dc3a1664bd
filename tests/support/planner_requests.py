"""Asking the planner's operations in a test's own process, as the driver's JVM asks them."""

from __future__ import annotations

from typing import Any

from tablecrypt.spark.sql.messages import PlannerOperation, Response, SentRequest
from tablecrypt.spark.sql.planner import Planner
from tablecrypt.spark.sql.process import all_operations


def respond(planner: Planner, operation: PlannerOperation[Any] | str, content: bytes = b"", /, **fields: Any) -> Response:
    """Return the response to a request with these fields."""
    asked = all_operations()[operation] if isinstance(operation, str) else operation
    return asked.respond(planner, SentRequest(asked.name, fields, content))
