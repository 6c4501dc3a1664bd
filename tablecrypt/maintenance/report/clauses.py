"""What an auditor asks of encrypted tables, clause by clause: the requirement, what in an audit shows it, and what one audit found of it.

    requirement  ─▶  kinds of findings that contradict it     at least one: not met
                 ─▶  kinds that keep it from being checked    in some tables: met in part; in all of them: not checked

A requirement is met only in tables in which it could be checked. docs/compliance.md shows the same clauses (a test compares them).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tablecrypt.maintenance._audit.findings import Audit, FindingKind, Severity
from tablecrypt.maintenance.report.exposure import UNSEEN
from tablecrypt.printable import counted

_Kind = FindingKind
_METADATA: Final = UNSEEN
"""What keeps a table's metadata from being seen."""
_KEYS: Final = _METADATA | {_Kind.PLAIN_TABLE}
"""The same, and what has no keys."""
_FILES: Final = _METADATA | {_Kind.UNOPENED, _Kind.MISSING_KEY}
"""What keeps files from being seen: a manifest that does not open hides those that it names."""
_FOLDER: Final = _METADATA | {_Kind.NOT_LISTED, _Kind.PLAIN_TABLE}
"""What keeps other files in the table's folders from being seen; those of a table without encryption are not reported."""


@dataclass(frozen=True)
class Clause:
    """One requirement.

    Attributes:
        requirement: a sentence that is true or not.
        shown_by: what the audit inspects.
        kinds: of findings that contradict it; those of severity info do not, and are counted as notes.
        unseen: kinds of findings of tables in which it could not be checked, or not wholly.
    """

    requirement: str
    shown_by: str
    kinds: frozenset[FindingKind]
    unseen: frozenset[FindingKind]


def _clause(requirement: str, shown_by: str, unseen: frozenset[FindingKind], *kinds: FindingKind) -> Clause:
    # What contradicts a requirement is no reason for not having checked it.
    return Clause(requirement, shown_by, frozenset(kinds), unseen - set(kinds))


CLAUSES: Final = (
    _clause(
        "Each table was opened and examined.",
        "the catalog's list, the metadata of each table, and the answer of the key service",
        _METADATA,
        *_METADATA,
    ),
    _clause("Each table is encrypted.", "the master key that the table's properties name", _METADATA, _Kind.PLAIN_TABLE),
    _clause(
        "No snapshot can be read without a key.",
        "the key id of each snapshot, and the keys in the metadata",
        _METADATA,
        _Kind.PLAIN_TABLE,
        _Kind.PLAINTEXT_SNAPSHOT,
    ),
    _clause(
        "Each data file, delete file, manifest and manifest list is encrypted.",
        "how the file begins, how a Parquet file ends, and the key that the file above it names",
        _FILES,
        _Kind.PLAIN_TABLE,
        _Kind.PLAINTEXT_FILE,
        _Kind.WRONG_MAGIC,
        _Kind.WRONG_FOOTER,
    ),
    _clause("No statistics are in plaintext.", "how each statistics file begins", _KEYS, _Kind.PLAINTEXT_STATISTICS),
    _clause(
        "No plaintext file lies in a table's folders.",
        "a listing of the folders, and how each file that the table does not name begins",
        _FOLDER,
        _Kind.PLAINTEXT_ORPHAN,
        _Kind.UNKNOWN_CONTENT,
        _Kind.ORPHANS,
        _Kind.UNFINISHED_OPERATION,
    ),
    _clause(
        "No metadata from before encryption is left.",
        "up to 200 older metadata files of each table",
        # Of an older metadata file that does not open nobody knows from when it is.
        _FOLDER | {_Kind.NOT_READ, _Kind.UNOPENED},
        _Kind.STALE_PLAINTEXT_METADATA,
        _Kind.FOREIGN_METADATA,
    ),
    _clause("Metadata shows no partition values.", "the summaries of the snapshots", _KEYS, _Kind.PARTITION_VALUES),
    _clause(
        "Each file has a key of its own, as long as the table requires.",
        "a comparison of all data keys of the table, and their lengths",
        _FILES | _KEYS,
        _Kind.REUSED_KEY,
        _Kind.SHORT_KEY,
    ),
    _clause(
        "Each key is within its period (NIST SP 800-57 part 1).",
        "the age of each KEK, and of each data key by its file",
        _FILES | _KEYS,
        _Kind.KEK_PAST_LIFE,
        _Kind.KEK_AHEAD,
        _Kind.DEK_PAST_LIFE,
        _Kind.KEK_RETIRED,
        _Kind.KEK_NEAR_END,
    ),
    _clause(
        "Only the table's own master keys wrap its keys.",
        "the master key that wraps each KEK, older metadata, and the master keys that this client allows",
        _KEYS,
        _Kind.KEY_ID_DIFFERS,
        _Kind.KEY_NOT_ALLOWED,
        _Kind.COLUMN_KEY_DIFFERS,
    ),
    _clause(
        "No KEK that no snapshot needs could wrap new keys.",
        "the keys in current and older metadata",
        _KEYS,
        _Kind.KEK_UNUSED,
        _Kind.UNUSED_KEY,
        _Kind.STALE_KEYS,
    ),
    _clause(
        "Each protected column is encrypted under its own key.",
        "the table's properties, what this client has seen of them, and the ends of Parquet files",
        _FILES | _KEYS,
        _Kind.COLUMN_EXPOSED,
        _Kind.COLUMN_IN_PARTITIONS,
        _Kind.COLUMN_MASKS_AS_VALUES,
        _Kind.COLUMN_POLICY_CHANGED,
        _Kind.COLUMN_KEY_MISSING,
        _Kind.COLUMN_UNDER_FORMER_KEY,
        _Kind.COLUMN_GUARD_CHANGED,
        _Kind.COLUMN_FORMERLY_PROTECTED,
    ),
    _clause(
        "Each file that a snapshot needs is there, whole, and can be opened.",
        "the storage's listing, the lengths in the key metadata, and the manifests",
        _KEYS,
        _Kind.MISSING_FILE,
        _Kind.MISSING_KEY,
        _Kind.UNOPENED,
        _Kind.WRONG_LENGTH,
        _Kind.NO_LENGTH,
    ),
    _clause(
        "What is shared with others is known, and there.",
        "the table's records of its shares, and whether the files are stored that these name",
        _FILES | _KEYS,
        _Kind.SHARE_RECORD,
        _Kind.SHARED_FILE_MISSING,
        _Kind.SHARE_BEHIND,
        _Kind.LIVE_SHARE,
    ),
    _clause(
        "An older or edited state of a table would be noticed.",
        "what the catalog or this client recorded of each table (pins), and what its manifest lists say of it",
        _KEYS,
        _Kind.PINS_MISSING,
        _Kind.NO_CURRENT_SNAPSHOT,
        _Kind.CHANGED_SINCE_COMMIT,
    ),
)


class Outcome(StrEnum):
    """What one audit found of a clause."""

    MET = "met"
    PARTLY = "met in part"
    NOT_MET = "not met"
    NOT_CHECKED = "not checked"

    @property
    def style(self) -> str:
        """How the page shows it."""
        return {"met": "good", "met in part": "warning"}.get(self.value, "critical")


@dataclass(frozen=True)
class ClauseResult:
    """A clause, what one audit found of it, and in how many tables."""

    clause: Clause
    outcome: Outcome
    detail: str


def clause_results(audit: Audit) -> tuple[ClauseResult, ...]:
    """Return what an audit found of each clause."""
    return tuple(_result(clause, audit) for clause in CLAUSES)


def _result(clause: Clause, audit: Audit) -> ClauseResult:
    total = len(audit.tables)
    of_tables = [{finding.kind for finding in table.findings} for table in audit.tables]
    contradicting = {kind for kind in clause.kinds if kind.severity > Severity.INFO}
    found = sum(finding.kind in contradicting for finding in audit.findings)
    notes = sum(finding.kind in clause.kinds - contradicting for finding in audit.findings)
    bad, unseen = sum(bool(kinds & contradicting) for kinds in of_tables), sum(bool(kinds & clause.unseen) for kinds in of_tables)

    # First: one contradiction is enough, however many tables could not be checked.
    if found:
        outcome, detail = Outcome.NOT_MET, f"{counted(found, 'finding', 'findings')} in {bad:,} of {counted(total, 'table', 'tables')}"
    elif unseen == total:
        # Also where there is no table: a requirement that was checked nowhere is not met.
        outcome, detail = Outcome.NOT_CHECKED, "no table could be checked" if total else "there was no table"
    else:
        outcome, detail = Outcome.PARTLY if unseen else Outcome.MET, f"in {total - unseen:,} of {counted(total, 'table', 'tables')}"

    if unseen and outcome != Outcome.NOT_CHECKED:
        detail += f"; {counted(unseen, 'table', 'tables')} not fully checked"
    return ClauseResult(clause, outcome, detail + (f"; {counted(notes, 'note', 'notes')}" if notes else ""))
