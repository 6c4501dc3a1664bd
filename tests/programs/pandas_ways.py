"""pandas, which reads and writes by PyIceberg's load_catalog."""

from __future__ import annotations

import pandas as pd

from tests.programs.ways import NEXT_ROWS, expect_ids, main

FRAME = NEXT_ROWS.to_pandas()


def read() -> None:
    expect_ids(pd.read_iceberg("db.orders", catalog_name="prod")["id"], 1, 2, 3)


def read_some() -> None:
    found = pd.read_iceberg("db.orders", catalog_name="prod", columns=["id"], row_filter="id > 1", limit=10)
    expect_ids(found["id"], 2, 3)


def write() -> None:
    FRAME.to_iceberg("db.pandas", catalog_name="prod")
    expect_ids(pd.read_iceberg("db.pandas", catalog_name="prod")["id"], 4, 5)


def append() -> None:
    FRAME.to_iceberg("db.pandas", catalog_name="prod", append=True)
    expect_ids(pd.read_iceberg("db.pandas", catalog_name="prod")["id"], 4, 4, 5, 5)


if __name__ == "__main__":
    main(
        {
            'pd.read_iceberg("db.orders", catalog_name="prod")': read,
            'pd.read_iceberg("db.orders", catalog_name="prod", columns=…, row_filter=…, limit=…)': read_some,
            'df.to_iceberg("db.pandas", catalog_name="prod")': write,
            'df.to_iceberg("db.pandas", catalog_name="prod", append=True)': append,
        }
    )
