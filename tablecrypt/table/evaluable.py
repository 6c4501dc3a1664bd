"""Filters that Arrow has no function for, found before a file is read: later the error would look like one of the file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from tablecrypt.errors import ConfigurationError


def check_evaluable(schema: Schema, expression: pc.Expression) -> None:
    """Check that Arrow can evaluate a filter on the columns of a schema.

    Raises:
        ConfigurationError: it cannot; columns of type uuid are compared with nothing but null, for one.
    """
    try:
        schema_to_pyarrow(schema).empty_table().filter(expression)
    except pa.ArrowNotImplementedError as error:
        raise ConfigurationError(
            f"Arrow cannot evaluate the filter {expression}: {error}. Filter the result of the scan instead"
        ) from error
