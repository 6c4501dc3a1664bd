"""What the installed release of Spark does not do."""

from __future__ import annotations

from typing import Final

import pyspark
import pytest

FILLS_COLUMNS: Final = not pyspark.__version__.startswith("4.0.")
"""Spark 4.0 refuses an INSERT that leaves out columns of a table in a catalog; later releases write their defaults or nulls."""

fills_columns: Final = pytest.mark.skipif(not FILLS_COLUMNS, reason="Spark 4.0 refuses an INSERT that leaves out columns")
