"""What the installed release of Spark does not do."""

from __future__ import annotations

from typing import Final

import pyspark
import pytest

from tests.support.selection import of_another_spark

_IS_4_0: Final = pyspark.__version__.startswith("4.0.")
FILLS_COLUMNS: Final = not _IS_4_0
"""Spark 4.0 refuses an INSERT that leaves out columns of a table in a catalog; later releases write their defaults or nulls."""

fills_columns: Final = pytest.mark.skipif(_IS_4_0, reason=of_another_spark("4.0 refuses an INSERT that leaves out columns"))
lists_procedures: Final = pytest.mark.skipif(_IS_4_0, reason=of_another_spark("4.0 has no SHOW PROCEDURES"))
