"""The SQL of Iceberg's own Spark pages (DDL, queries, writes, procedures), as statements that run one after another.

docs/spark-sql.md shows them as a table, which page.py beside this makes, and tests/spark/sql/test_documented_statements.py runs them.

Names are those of Iceberg's pages. Where these leave something out (`...`), or name a snapshot or a moment of their own, a statement has:

    $first  $last        ids of the table's first and last snapshot
    $then                the moment of the first snapshot, in quotes; $seconds: the same as seconds since 1970
    $metadata            the location of the table's newest metadata file
    $table               the table's location
    $plain               the folder of a plaintext table's files
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Statement:
    """One statement, and what can be seen after it.

    Attributes:
        sql: as the page has it.
        before: statements that it needs and that no page counts.
        check: a query of one column and one row, which is true after the statement.
        columns: the columns of a query, or those of the table after any other statement, as Spark spells a struct.
        table: the table that `columns` and the names with a dollar are about.
        refused: why it is refused; None: it works.
    """

    sql: str
    before: tuple[str, ...] = ()
    check: str | None = None
    columns: str | None = None
    table: str = "prod.db.sample"
    refused: str | None = None


@dataclass(frozen=True)
class Section:
    """A section of a page. Its statements share the tables that `setup` makes."""

    page: str
    title: str
    statements: tuple[Statement, ...]
    setup: tuple[str, ...] = ()
    also: str = ""


def count(rows: int, table: str = "prod.db.sample") -> str:
    """A check: how many rows the table has."""
    return f"SELECT count(*) = {rows} FROM {table}"
