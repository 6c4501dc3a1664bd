"""The readers, as data: how each asks a table, and what it answers where the table has certain rows.

An operation that reports instead of raising is a reader too: what it reports is raised here as `ReportedError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import duckdb
from pyiceberg.table import Table

from tablecrypt.errors import TablecryptError
from tablecrypt.maintenance import audit, compact, verify
from tablecrypt.maintenance.reachable import FileKind
from tests.security.matrix.scene import Rows, rows_of

FILTER: Final = "id >= 100 and team = 'north'"
Answer = Any


class ReportedError(TablecryptError):
    """An operation reports that something is wrong."""


@dataclass(frozen=True)
class Reader:
    """One way to read.

    Attributes:
        name: of it.
        ask: returns what it answers.
        expected: what it answers for a table of these rows; None for an operation, whose answer is compared with that for the
            untouched table.
        commits: whether it changes the table, so that everything is put back after it.
    """

    name: str
    ask: Callable[[Table], Answer]
    expected: Callable[[Rows], Answer] | None = None
    commits: bool = False

    def must_notice(self, kind: str, how: str) -> bool:
        """Whether silence about a file that was changed like this is a wrong answer. Who returns rows may not have needed the file."""
        if self.name == "audit":
            is_metadata = kind in {FileKind.MANIFEST, FileKind.MANIFEST_LIST}
            return is_metadata or how.startswith(("cut", "grown", "emptied", "deleted", "replaced by plaintext"))
        return self.name == "verify"

    def reports(self, answer: Answer, honest: Answer) -> bool:
        """Whether an answer warns of more than that to the untouched table."""
        return isinstance(answer, Audited) and bool(answer.findings - honest.findings)


@dataclass(frozen=True)
class Audited:
    """An audit without errors: what it counted, and the codes of its findings."""

    snapshots: int
    files: int
    findings: frozenset[str]


def _same(rows: Rows) -> Rows:
    return rows


def _filtered(rows: Rows) -> Rows:
    return tuple(row for row in rows if dict(row)["id"] >= 100 and dict(row)["team"] == "north")


def _compacted(table: Table) -> Rows:
    compact(table, rewrite_all=True, workers=1)
    return rows_of(table.catalog.load_table(table.name()).scan().to_arrow())


def _verified(table: Table) -> Answer:
    found = verify(table, workers=1)
    if found.bad:
        raise ReportedError("; ".join(str(problem) for file in found.bad for problem in file.problems))
    return found.snapshots, found.files


def _audited(table: Table) -> Answer:
    (found,) = audit(table).tables
    grave = [finding for finding in found.findings if finding.kind.severity.name in {"ERROR", "CRITICAL"}]
    if grave:
        raise ReportedError("; ".join(f"{finding.kind.code}: {finding.message}" for finding in grave))
    return Audited(len(found.snapshots), len(found.files), frozenset(finding.kind.code for finding in found.findings))


def _duckdb(table: Table) -> Rows:
    connection = table.scan().to_duckdb("orders")
    try:
        return rows_of(connection.execute("SELECT * FROM orders").to_arrow_table())
    except duckdb.Error as error:
        # DuckDB puts what a source raises into an error of its own, as text.
        if "tablecrypt.errors." not in str(error) and "FileNotFoundError" not in str(error):
            raise
        raise ReportedError(str(error)) from error
    finally:
        connection.close()


READERS: Final = (
    Reader("to_arrow", lambda table: rows_of(table.scan().to_arrow()), _same),
    Reader("stream", lambda table: rows_of(table.scan().to_arrow_batch_reader().read_all()), _same),
    Reader("count", lambda table: table.scan().count(), len),
    Reader("row filter", lambda table: rows_of(table.scan(row_filter=FILTER).to_arrow()), _filtered),
    Reader("Polars", lambda table: rows_of(table.to_polars().collect().to_arrow()), _same),
    Reader("DuckDB", _duckdb, _same),
    Reader("verify", _verified),
    Reader("audit", _audited),
    Reader("compact", _compacted, _same, commits=True),
)
