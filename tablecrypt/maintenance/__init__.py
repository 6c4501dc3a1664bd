"""Operations on whole encrypted tables that keep them in order."""

from __future__ import annotations

from tablecrypt.maintenance.audit import Audit, audit
from tablecrypt.maintenance.catalog_tables import CatalogResult, on_tables
from tablecrypt.maintenance.compact import compact
from tablecrypt.maintenance.compaction import Compacted
from tablecrypt.maintenance.doctor import CheckUp, doctor
from tablecrypt.maintenance.migrate import Migrated, migrate
from tablecrypt.maintenance.orphan_files import OrphanFiles, remove_orphan_files
from tablecrypt.maintenance.orphan_files import remove_orphan_files as orphans
from tablecrypt.maintenance.prune_keys import PrunedKeys, prune_keys
from tablecrypt.maintenance.reencrypt import Reencrypted, reencrypt
from tablecrypt.maintenance.relocate import Relocated, relocate
from tablecrypt.maintenance.rescue import Rescued, rescue
from tablecrypt.maintenance.rewrap import Rewrapped, rewrap
from tablecrypt.maintenance.rotate_kek import RotatedKek, rotate_kek
from tablecrypt.maintenance.shred import Shredded, shred
from tablecrypt.maintenance.table_layers import inspect
from tablecrypt.maintenance.verify import Verification, verify

__all__ = [
    "Audit",
    "CatalogResult",
    "CheckUp",
    "Compacted",
    "Migrated",
    "OrphanFiles",
    "PrunedKeys",
    "Reencrypted",
    "Relocated",
    "Rescued",
    "Rewrapped",
    "RotatedKek",
    "Shredded",
    "Verification",
    "audit",
    "compact",
    "doctor",
    "inspect",
    "migrate",
    "on_tables",
    "orphans",
    "prune_keys",
    "reencrypt",
    "relocate",
    "remove_orphan_files",
    "rescue",
    "rewrap",
    "rotate_kek",
    "shred",
    "verify",
]
