"""What a footer says of a protected column, where a test has no file."""

from __future__ import annotations

from typing import Final

from tablecrypt.keys.twin_schemas import OPTIONAL, TwinNode, TwinSchema

OF_TEXT: Final = TwinSchema((TwinNode(2, True, OPTIONAL, 6, 0, "STRING"),), (b"an optional string",), "s3://lake/file.parquet")
OF_BYTES: Final = TwinSchema((TwinNode(2, True, OPTIONAL, 6, 0, ""),), (b"optional bytes",), "s3://lake/file.parquet")
