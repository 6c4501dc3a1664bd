"""The table of docs/spark-sql.md: `python -m tests.support.iceberg_sql.page` writes it into the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.support.iceberg_sql.ddl import DDL
from tests.support.iceberg_sql.procedures import PROCEDURES
from tests.support.iceberg_sql.queries import QUERIES
from tests.support.iceberg_sql.writes import WRITES
from tests.support.pages import MadePart

SECTIONS: Final = (*DDL, *QUERIES, *WRITES, *PROCEDURES)
PART: Final = MadePart("spark-sql.md", "statements")


def as_table() -> str:
    """The statements as Markdown, a table for each page."""
    return "\n".join(("", *_lines(), ""))


def summary() -> str:
    """How many statements there are, and how many of them work."""
    statements = [statement for section in SECTIONS for statement in section.statements]
    works = sum(statement.refused is None for statement in statements)
    return f"{works} of {len(statements)} statements work ({100 * works / len(statements):.0f} %)."


def _lines() -> Iterator[str]:
    yield from (summary(), "")
    for page in dict.fromkeys(section.page for section in SECTIONS):
        yield from (f"#### {page}", "", "| statement | | tests besides |", "|---|---|---|")
        for section in SECTIONS:
            if section.page != page:
                continue
            yield f"| **{section.title}** | | {section.also} |"
            for statement in section.statements:
                result = "works" if statement.refused is None else f"refused: {statement.refused}"
                yield f"| `{_one_line(statement.sql)}` | {result} | |"
        yield ""


def _one_line(sql: str) -> str:
    return " ".join(sql.split()).replace("|", "\\|")


if __name__ == "__main__":
    PART.write(as_table())
