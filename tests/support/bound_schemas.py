"""What a footer says of a protected column, where a test has no file."""

from __future__ import annotations

from typing import Final

from tablecrypt.keys.bound_schemas import OPTIONAL, BoundSchema, SchemaNode

OF_TEXT: Final = BoundSchema((SchemaNode(2, True, OPTIONAL, 6, 0, "STRING"),), (b"an optional string",), "s3://lake/file.parquet")
OF_BYTES: Final = BoundSchema((SchemaNode(2, True, OPTIONAL, 6, 0, ""),), (b"optional bytes",), "s3://lake/file.parquet")
