"""Looking through tables for plaintext, and for keys that need care."""

from __future__ import annotations

from tablecrypt.maintenance.audit.findings import Finding, FindingKind, Severity
from tablecrypt.maintenance.audit.result import Audit, AuditedFile, AuditedKek, Coverage, TableAudit
from tablecrypt.maintenance.audit.run import audit

__all__ = ["Audit", "AuditedFile", "AuditedKek", "Coverage", "Finding", "FindingKind", "Severity", "TableAudit", "audit"]
