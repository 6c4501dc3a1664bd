"""Operations on whole encrypted tables: keys, audits, compaction, copies.

This module exports the functions and their results. Modules whose names begin with an underscore are private to this package; the others
are what tablecrypt.spark and the command line build on.
"""

from __future__ import annotations

from tablecrypt.maintenance._audit import (
    Audit,
    AuditChanges,
    Finding,
    FindingKind,
    Severity,
    TableAudit,
    TableChanges,
    audit,
    changes_since,
)
from tablecrypt.maintenance._describe import ListedTable, Listing, TableDescription, describe, list_tables
from tablecrypt.maintenance._doctor import Check, CheckState, CheckUp, doctor, doctor_without_catalog
from tablecrypt.maintenance._key_rotation import PrunedKeys, Rewrapped, RotatedKek, prune_keys, rewrap, rotate_kek
from tablecrypt.maintenance._migrate import Migrated, migrate
from tablecrypt.maintenance._orphan_files import OrphanFiles, remove_orphan_files
from tablecrypt.maintenance._reencrypt import Reencrypted, reencrypt
from tablecrypt.maintenance._relocate import Relocated, relocate
from tablecrypt.maintenance._rescue import Rescued, rescue
from tablecrypt.maintenance._shred import Shredded, shred
from tablecrypt.maintenance._verify import BadFile, Verified, verify
from tablecrypt.maintenance.catalog_tables import CatalogResult, on_tables
from tablecrypt.maintenance.columns.key_changes import (
    RewrappedColumnKeks,
    RotatedColumnKeks,
    ShreddedColumn,
    rewrap_column_keks,
    rotate_column_keks,
    shred_column,
)
from tablecrypt.maintenance.compaction import Compacted, compact
from tablecrypt.maintenance.erasure.operation import erase
from tablecrypt.maintenance.erasure.result import Erased, ErasedRef, HiddenColumn, Searched, TableState
from tablecrypt.maintenance.operation import Progress, ProgressListener
from tablecrypt.maintenance.reachable import inspect
from tablecrypt.maintenance.report.bundle import Evidence, write_evidence
from tablecrypt.maintenance.runner import Runner
from tablecrypt.maintenance.sharing.moving import MovedShare, accept_update
from tablecrypt.maintenance.sharing.operation import share
from tablecrypt.maintenance.sharing.records import LiveShare, Shares, shares
from tablecrypt.maintenance.sharing.result import Shared
from tablecrypt.maintenance.sharing.unshare import Unshared, unshare
from tablecrypt.maintenance.sorting import SortColumn, ZOrder

__all__ = [
    "Audit",
    "AuditChanges",
    "BadFile",
    "CatalogResult",
    "Check",
    "CheckState",
    "CheckUp",
    "Compacted",
    "Erased",
    "ErasedRef",
    "Evidence",
    "Finding",
    "FindingKind",
    "HiddenColumn",
    "ListedTable",
    "Listing",
    "LiveShare",
    "Migrated",
    "MovedShare",
    "OrphanFiles",
    "Progress",
    "ProgressListener",
    "PrunedKeys",
    "Reencrypted",
    "Relocated",
    "Rescued",
    "Rewrapped",
    "RewrappedColumnKeks",
    "RotatedColumnKeks",
    "RotatedKek",
    "Runner",
    "Searched",
    "Severity",
    "Shared",
    "Shares",
    "Shredded",
    "ShreddedColumn",
    "SortColumn",
    "TableAudit",
    "TableChanges",
    "TableDescription",
    "TableState",
    "Unshared",
    "Verified",
    "ZOrder",
    "accept_update",
    "audit",
    "changes_since",
    "compact",
    "describe",
    "doctor",
    "doctor_without_catalog",
    "erase",
    "inspect",
    "list_tables",
    "migrate",
    "on_tables",
    "prune_keys",
    "reencrypt",
    "relocate",
    "remove_orphan_files",
    "rescue",
    "rewrap",
    "rewrap_column_keks",
    "rotate_column_keks",
    "rotate_kek",
    "share",
    "shares",
    "shred",
    "shred_column",
    "unshare",
    "verify",
    "write_evidence",
]
