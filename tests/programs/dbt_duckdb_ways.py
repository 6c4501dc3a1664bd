"""dbt-duckdb's plugin `iceberg`, in a project whose source is an Iceberg table and whose database is in memory."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from dbt.cli.main import dbtRunner

from tests.programs.ways import main

PROJECT = {
    "dbt_project.yml": """
        name: shop
        profile: shop
        """,
    "profiles.yml": """
        shop:
          target: dev
          outputs:
            dev:
              type: duckdb
              path: ":memory:"
              plugins:
                - module: iceberg
                  config: {catalog: prod}
        """,
    "models/sources.yml": """
        version: 2
        sources:
          - name: db
            config: {plugin: iceberg}
            meta: {plugin: iceberg}
            tables: [{name: orders}]
        """,
    "models/some.sql": "SELECT count(*) AS rows_read FROM {{ source('db', 'orders') }} WHERE id > 1",
    "tests/two.sql": "SELECT * FROM {{ ref('some') }} WHERE rows_read <> 2",
}


def build() -> None:
    for name, text in PROJECT.items():
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    done = dbtRunner().invoke(["build", "--profiles-dir", ".", "--no-send-anonymous-usage-stats"])
    if not done.success:
        raise RuntimeError(done.exception or [(each.node.name, each.status, each.message) for each in done.result])
    assert sorted((each.node.name, str(each.status)) for each in done.result) == [("some", "success"), ("two", "pass")]


if __name__ == "__main__":
    main({"{{ source('db', 'orders') }}": build})
