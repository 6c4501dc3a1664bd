"""What a footer says of the versions of data pages is found by stepping over all the rest of it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError

from tablecrypt.spark.shared.install import jvm_side
from tablecrypt.spark.shared.sources import PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java

_DATA_PAGES: Final = b"\x15\x00\x15\x10\x15"
"""How statistics begin that say of data pages of version 1 that they are encoded with a dictionary."""
_DATA_PAGES_V2: Final = b"\x15\x06\x15\x10\x15"

ROWS: Final = pa.table(
    {
        "id": pa.array(range(100)),
        "share": pa.array([None if i % 3 else i / 7 for i in range(100)]),
        "flag": pa.array([i % 2 == 0 for i in range(100)]),
        "deep": pa.array([[{"name": f"text {i}", "many": [i, None]}] for i in range(100)]),
        **{f"column_{i}": pa.array(["x"] * 100) for i in range(30)},
    }
).replace_schema_metadata({"looks like it": _DATA_PAGES_V2.decode()})


def footer() -> bytes:
    """Of a plaintext file of pages of version 1 with several row groups, statistics and page indexes."""
    stored = io.BytesIO()
    pq.write_table(ROWS, stored, row_group_size=40, write_page_index=True, sorting_columns=[pq.SortingColumn(0)])
    content = stored.getvalue()
    return content[-8 - int.from_bytes(content[-8:-4], "little") : -8]


def has_version_2(spark: SparkSession, content: bytes) -> bool:
    """What the check of an opened file is told."""
    jvm_side(spark)
    gateway: Any = spark.sparkContext._gateway
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kinds = gateway.new_array(gateway.jvm.java.lang.Class, 1)
    kinds[0] = gateway.jvm.java.lang.Class.forName("[B")
    kind = loader.loadClass(f"{PACKAGE}.FooterPages")
    read, asked = (
        kind.getDeclaredMethod("of", kinds),
        kind.getDeclaredMethod("hasVersion2", gateway.new_array(gateway.jvm.java.lang.Class, 0)),
    )
    arguments = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    arguments[0] = content
    for method in (read, asked):
        method.setAccessible(True)
    return bool(asked.invoke(read.invoke(None, arguments), gateway.new_array(gateway.jvm.java.lang.Object, 0)))


def test_pages_of_version_2_in_one_column_of_one_row_group_are_found(spark: SparkSession) -> None:
    content = footer()
    places = [at for at in range(len(content)) if content.startswith(_DATA_PAGES, at)]
    assert len(places) > 3 * 30
    assert not has_version_2(spark, content)

    for at in (places[0], places[len(places) // 2], places[-1]):
        assert has_version_2(spark, content[:at] + _DATA_PAGES_V2 + content[at + len(_DATA_PAGES_V2) :])


def test_a_footer_that_is_cut_says_nothing(spark: SparkSession) -> None:
    content = footer()
    for length in (0, 1, *range(2, len(content), len(content) // 40), len(content) - 1):
        with pytest.raises(Py4JJavaError):
            has_version_2(spark, content[:length])
