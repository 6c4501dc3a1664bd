"""Who could read what without the key service: each way in which rows, or facts about them, are readable, and how often
it was found. Ways that were not found are on the page too, so that an auditor sees what was searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tablecrypt.maintenance._audit.file_signatures import Signature
from tablecrypt.maintenance._audit.findings import AuditedFile, FindingKind, TableAudit
from tablecrypt.printable import bytes_shown, counted

SHOWN_TABLES: Final = 8
UNSEEN: Final = frozenset(
    {FindingKind.REFUSED_TABLE, FindingKind.KEY_REFUSED, FindingKind.MASTER_KEY_MISMATCH, FindingKind.KEY_NOT_ALLOWED}
)
"""Kinds of findings of tables that nothing more is known of."""


@dataclass(frozen=True)
class Exposure:
    """One way in which something is readable.

    Attributes:
        title: what is readable.
        what: what whoever can read the storage learns from it.
        style: how grave it is; "good" where nothing was found.
        amount: how much there is of it.
        tables: number and name of those that have it.
        more: how many tables have it beyond these.
    """

    title: str
    what: str
    style: str
    amount: str
    tables: tuple[tuple[int, str], ...]
    more: int


def is_readable(file: AuditedFile) -> bool:
    """Whether a file of a table can be read without the key service: it is plaintext, or its key is in the clear."""
    # Neither a magic nor a key says that it is ciphertext.
    unknown = file.signature == Signature.UNKNOWN and file.key_length is None
    return file.signature == Signature.PLAINTEXT or unknown or has_open_key(file)


def has_open_key(file: AuditedFile) -> bool:
    """Whether a file is ciphertext whose key is in the clear."""
    return file.signature.is_ciphertext and file.has_open_key


_BY_FINDING: Final = (
    ("Snapshots without a key", "rows as they were then", "critical", "snapshot", FindingKind.PLAINTEXT_SNAPSHOT),
    ("Plaintext statistics", "numbers of distinct values, and sketches of them", "critical", "file", FindingKind.PLAINTEXT_STATISTICS),
    (
        "Plaintext files that no table knows",
        "what was left there: exports, failed writes",
        "critical",
        "file",
        FindingKind.PLAINTEXT_ORPHAN,
    ),
    ("Files in no known format", "perhaps rows", "critical", "file", FindingKind.UNKNOWN_CONTENT),
    (
        "Protected columns under the table’s key",
        "their values, to everyone who may read the table’s other columns",
        "critical",
        "column",
        FindingKind.COLUMN_EXPOSED,
    ),
    (
        "Values of protected columns in file names and manifests",
        "their values, or what a transform leaves of them; in names of files, to everyone who may list the storage",
        "critical",
        "column",
        FindingKind.COLUMN_IN_PARTITIONS,
    ),
    (
        "Metadata from before encryption",
        "the old snapshots, and where their files were",
        "warning",
        "file",
        FindingKind.STALE_PLAINTEXT_METADATA,
    ),
    (
        "Partition values in snapshot summaries",
        "values of partition columns, with row counts",
        "warning",
        "table",
        FindingKind.PARTITION_VALUES,
    ),
)
"""Ways that one kind of finding counts: title, what they tell, style, what is counted."""


def exposures(tables: Sequence[TableAudit]) -> tuple[Exposure, ...]:
    """Return every way, the gravest first."""
    clear, plain = "Plaintext files of encrypted tables", FindingKind.PLAIN_TABLE
    by_finding = (_way(tables, title, what, style, partial(_of, kind), noun) for title, what, style, noun, kind in _BY_FINDING)
    unseen = "not known: the audit could not open or list these"
    return (
        _way(tables, "Tables without encryption", "all rows", "critical", partial(_of, plain), "table", _all_bytes),
        _way(tables, clear, "their rows, or names and bounds of other files", "critical", _plain_files, "file", _readable_bytes),
        _way(tables, "Data keys in the clear", "rows whose key a plaintext manifest names", "critical", _open_keys, "file", _open_bytes),
        *by_finding,
        _way(tables, "Tables not looked into", unseen, "error", _unseen, "table"),
    )


def by_design(tables: Sequence[TableAudit]) -> tuple[tuple[str, str], ...]:
    """Return what the Iceberg format leaves readable, and how many tables it concerns."""
    loaded = [table for table in tables if table.location]
    in_paths = [table for table in loaded if any(_names_partition(file) for file in table.files)]
    of = f"of {counted(len(tables), 'table', 'tables')}"
    return (
        ("Column names and types, table properties, row counts and times of snapshots", f"metadata.json {of}"),
        ("Values of partition columns", f"file names of {counted(len(in_paths), 'table', 'tables')}" if in_paths else "in no file name"),
        ("Number, size and time of files", f"listings {of}"),
    )


def _way(
    tables: Sequence[TableAudit],
    title: str,
    what: str,
    style: str,
    number_in: Callable[[TableAudit], int],
    noun: str,
    bytes_in: Callable[[TableAudit], int] | None = None,
) -> Exposure:
    having = [(number, table) for number, table in enumerate(tables) if number_in(table)]
    total = sum(number_in(table) for _, table in having)
    amount = counted(total, noun, f"{noun}s") if total else "none"
    if total and bytes_in is not None:
        amount += f", {bytes_shown(sum(bytes_in(table) for _, table in having))}"
    shown = tuple((number, table.table) for number, table in having[:SHOWN_TABLES])
    return Exposure(title, what, style if total else "good", amount, shown, len(having) - len(shown))


def _of(kind: FindingKind, table: TableAudit) -> int:
    # One place counts once, however many findings it has.
    return len({finding.where for finding in table.findings if finding.kind == kind})


def _plain_files(table: TableAudit) -> int:
    return _of(FindingKind.PLAINTEXT_FILE, table)


def _open_keys(table: TableAudit) -> int:
    return sum(map(has_open_key, table.files))


def _unseen(table: TableAudit) -> int:
    # What lies in a folder that was not listed is not known either.
    return int(any(finding.kind in UNSEEN or finding.kind == FindingKind.NOT_LISTED for finding in table.findings))


def _all_bytes(table: TableAudit) -> int:
    return _bytes(iter(table.files))


def _readable_bytes(table: TableAudit) -> int:
    # Files whose key is in the clear count in another line.
    return _bytes(file for file in table.files if is_readable(file) and not has_open_key(file))


def _open_bytes(table: TableAudit) -> int:
    return _bytes(file for file in table.files if has_open_key(file))


def _bytes(files: Iterator[AuditedFile]) -> int:
    return sum(file.length or 0 for file in files)


def _names_partition(file: AuditedFile) -> bool:
    """Whether a file's name tells a partition value, as `region=north` in its path does."""
    names = (part.partition("=")[0] for part in file.partition.split("/") if "=" in part)
    return any(f"/{name}=" in file.location for name in names)
