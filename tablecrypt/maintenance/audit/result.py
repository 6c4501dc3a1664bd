"""What an audit came to: files, keys, partitions and findings, as plain values without a key in them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tablecrypt.maintenance.audit.findings import Finding, Severity
from tablecrypt.maintenance.audit.heads import Seal


@dataclass(frozen=True)
class AuditedFile:
    """One file of the table.

    Attributes:
        location: where it is.
        kind: what it is to the table: "data", "manifest", …
        seal: how it is encrypted, by its first bytes.
        key_length: bytes of its DEK; None without one.
        keks: ids of the KEKs through which it opens.
        length: bytes in the store; None where that is not known.
        written: when it, and so its key, was made; None where that is not known.
        partition: "region=north", empty where there is none.
    """

    location: str
    kind: str
    seal: Seal
    key_length: int | None
    keks: tuple[str, ...]
    length: int | None
    written: dt.datetime | None
    partition: str


@dataclass(frozen=True)
class AuditedKek:
    """One KEK, with how much opens through it.

    Attributes:
        key_id: its id in encryption-keys.
        master_key_id: what wraps it.
        created: its KEY_TIMESTAMP; None for one that is no time.
        key_length: in bytes; None where the key service does not open it.
        wraps_new: whether the next commit uses it.
        lists, manifests, files: how many of each open through it.
    """

    key_id: str
    master_key_id: str | None
    created: dt.datetime | None
    key_length: int | None
    wraps_new: bool
    lists: int
    manifests: int
    files: int


@dataclass(frozen=True)
class Coverage:
    """How much of a partition is encrypted: data and delete files of all snapshots."""

    partition: str
    files: int
    encrypted_files: int
    bytes: int
    encrypted_bytes: int

    @property
    def share(self) -> float:
        """Encrypted bytes of all bytes, 0 to 1; of files where all are empty."""
        if self.bytes:
            return self.encrypted_bytes / self.bytes
        return self.encrypted_files / self.files if self.files else 1.0


@dataclass(frozen=True)
class TableAudit:
    """One table's audit. What is not known of a table that could not be loaded is empty."""

    table: str
    location: str
    metadata_location: str
    key_id: str | None
    data_key_length: int | None
    snapshots: int
    keks: tuple[AuditedKek, ...]
    files: tuple[AuditedFile, ...]
    partitions: tuple[Coverage, ...]
    findings: tuple[Finding, ...]

    def to_json(self, now: dt.datetime) -> dict[str, Any]:
        """Return the audit as JSON's types. Ages are days."""
        return {
            "table": self.table,
            "location": self.location,
            "metadata_location": self.metadata_location,
            "key_id": self.key_id,
            "data_key_length": self.data_key_length,
            "snapshots": self.snapshots,
            "keks": [_with_age(vars(kek), kek.created, now) for kek in self.keks],
            "partitions": [{**vars(each), "share": each.share} for each in self.partitions],
            "files": [_with_age({**vars(file), "seal": file.seal.value}, file.written, now) for file in self.files],
            "findings": [_finding(each) for each in self.findings],
        }


@dataclass(frozen=True)
class Audit:
    """The audit of a table, or of all tables of a catalog, at one moment."""

    moment: dt.datetime
    tables: tuple[TableAudit, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, gravest first."""
        return by_severity(finding for table in self.tables for finding in table.findings)

    @property
    def worst(self) -> Severity | None:
        """The gravest severity; None without findings."""
        return max((finding.severity for finding in self.findings), default=None)

    @property
    def has_plaintext(self) -> bool:
        """Whether anything is, or may be, readable without a key."""
        return self.worst == Severity.CRITICAL

    def to_json(self) -> dict[str, Any]:
        """Return the audit as JSON's types."""
        counts = {severity.label: sum(each.severity == severity for each in self.findings) for severity in reversed(Severity)}
        return {
            "moment": self.moment.isoformat(),
            "plaintext": self.has_plaintext,
            "findings": counts,
            "tables": [table.to_json(self.moment) for table in self.tables],
        }


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, gravest first, and those of one kind together."""
    return tuple(sorted(findings, key=lambda each: (-each.severity, each.kind.code, each.where)))


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind.code,
        "severity": finding.severity.label,
        "where": finding.where,
        "message": finding.message,
        "advice": finding.kind.advice,
    }


def _with_age(values: dict[str, Any], moment: dt.datetime | None, now: dt.datetime) -> dict[str, Any]:
    shown = {name: value.isoformat() if isinstance(value, dt.datetime) else value for name, value in values.items()}
    age = None if moment is None else round((now - moment) / dt.timedelta(days=1), 2)
    return {**shown, "age_days": age}
