"""Who reads a table with protected columns, and writes it, after somebody else has committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tablecrypt.maintenance import audit, compact, reencrypt, verify
from tablecrypt.table.table import EncryptedTable
from tests.security.matrix.people import ID, NOTE, SECRET, People, Read, Value, read
from tests.security.matrix.readers import ReportedError
from tests.support.protected_tables import SSN

RIGHT: Final = "right-holder"
TABLES_KEY: Final = "table's key alone"
OTHER_KEY: Final = "another column's key"
LATER: Final = 99
LATER_VALUE: Final[Value] = (f"{SECRET}-later", "later")
"""What a right-holder writes after an attack."""


@dataclass(frozen=True)
class Found:
    """What a reader found.

    Attributes:
        rows: with the right values or others; None where it returns none.
        shown: where a hidden value was found by somebody who has not the column's key.
        findings: of an audit.
    """

    rows: Read | None = None
    shown: frozenset[str] = frozenset()
    findings: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Hidden:
    """What nobody may find, and who may not find it."""

    texts: tuple[str, ...] = (SECRET,)
    readers: tuple[str, ...] = (TABLES_KEY, OTHER_KEY)


HIDDEN: Final = Hidden()


@dataclass(frozen=True)
class ColumnReader:
    """One way to use the table.

    Attributes:
        client: who does.
        name: of the way.
        ask: returns what is found. Told what is to be hidden.
        commits: whether it changes the table.
        adds: whether it adds a row.
    """

    client: str
    name: str
    ask: Callable[[People, Hidden], Found]
    commits: bool = False
    adds: bool = False


def _scanned(scene: People, _: Hidden) -> Found:
    return Found(read(scene.load()))


def _newest(scene: People, _: Hidden) -> Found:
    """The rows that an operation or a right-holder has added: those of before may be gone with their keys."""
    table = scene.load()
    name = table.schema().find_column_name(ID)
    return Found(read(table, f"{name} >= 10") if name is not None else ())


def _filtered(scene: People, _: Hidden) -> Found:
    table = scene.load()
    name = table.schema().find_column_name(SSN)
    return Found(read(table, f"{name} = '{SECRET}-1'") if name is not None else None)


def _appended(scene: People, hidden: Hidden) -> Found:
    table = scene.load()
    table.append(_later(table))
    return Found(_newest(scene, hidden).rows, scene.leaks(hidden.texts, hidden.readers))


def _later(table: EncryptedTable) -> pa.Table:
    """A row as somebody writes it who knows the columns by their names, and by new ones where they have some."""
    values: dict[int, object] = {ID: LATER, SSN: LATER_VALUE[0], NOTE: LATER_VALUE[1]}
    names = {ID: "id", SSN: "ssn", NOTE: "note"}
    schema = table.schema()
    known = {field_id: name if name in schema.column_names else schema.find_column_name(field_id) for field_id, name in names.items()}
    row = {name: values[field_id] for field_id, name in known.items() if name is not None}
    try:
        return pa.Table.from_pylist([row], schema=schema.as_arrow())
    except pa.ArrowTypeError:
        # Somebody gave a name to a column of another type: who writes text there is told so by the table.
        return pa.table({name: [value] for name, value in row.items()})


def _verified(scene: People, _: Hidden) -> Found:
    found = verify(scene.load(), workers=1)
    if found.bad:
        raise ReportedError("; ".join(str(problem) for file in found.bad for problem in file.problems))
    return Found()


def _audited(scene: People, _: Hidden) -> Found:
    (found,) = audit(scene.load()).tables
    grave = [finding for finding in found.findings if finding.kind.severity.name in {"ERROR", "CRITICAL"}]
    return Found(findings=frozenset(finding.kind.code for finding in grave))


def _compacted(scene: People, hidden: Hidden) -> Found:
    compact(scene.load(), rewrite_all=True, workers=1)
    return Found(read(scene.load()), scene.leaks(hidden.texts, hidden.readers))


def _reencrypted(scene: People, hidden: Hidden) -> Found:
    reencrypt(scene.load(), workers=1)
    return Found(read(scene.load()), scene.leaks(hidden.texts, hidden.readers))


def _looked(client: str) -> Callable[[People, Hidden], Found]:
    return lambda scene, hidden: Found(shown=scene.leaks(hidden.texts, (client,) if client in hidden.readers else (), True))


READERS: Final = (
    ColumnReader(RIGHT, "scan", _scanned),
    ColumnReader(RIGHT, "new rows", _newest),
    ColumnReader(RIGHT, "filter by the column", _filtered),
    ColumnReader(RIGHT, "append", _appended, commits=True, adds=True),
    ColumnReader(RIGHT, "verify", _verified),
    ColumnReader(RIGHT, "audit", _audited),
    ColumnReader(RIGHT, "compact", _compacted, commits=True),
    ColumnReader(RIGHT, "reencrypt", _reencrypted, commits=True),
    ColumnReader(TABLES_KEY, "scans and files", _looked(TABLES_KEY)),
    ColumnReader(OTHER_KEY, "scans and files", _looked(OTHER_KEY)),
)
