"""Looking through tables for plaintext, and for keys that need care."""

from __future__ import annotations

from tablecrypt.maintenance._audit.changes import AuditChanges, TableChanges, changes_since
from tablecrypt.maintenance._audit.findings import (
    Audit,
    AuditedFile,
    AuditedKek,
    AuditedSnapshot,
    Coverage,
    Finding,
    FindingKind,
    Severity,
    TableAudit,
)
from tablecrypt.maintenance._audit.table_audit import audit

__all__ = [
    "Audit",
    "AuditChanges",
    "AuditedFile",
    "AuditedKek",
    "AuditedSnapshot",
    "Coverage",
    "Finding",
    "FindingKind",
    "Severity",
    "TableAudit",
    "TableChanges",
    "audit",
    "changes_since",
]
