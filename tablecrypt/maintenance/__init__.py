"""Operations on whole encrypted tables that keep them in order."""

from __future__ import annotations

from tablecrypt.maintenance.migrate import Migrated, migrate
from tablecrypt.maintenance.orphan_files import OrphanFiles, remove_orphan_files
from tablecrypt.maintenance.prune_keys import PrunedKeys, prune_keys
from tablecrypt.maintenance.reencrypt import Reencrypted, reencrypt
from tablecrypt.maintenance.rewrap import Rewrapped, rewrap
from tablecrypt.maintenance.rotate_kek import RotatedKek, rotate_kek

__all__ = [
    "Migrated",
    "OrphanFiles",
    "PrunedKeys",
    "Reencrypted",
    "Rewrapped",
    "RotatedKek",
    "migrate",
    "prune_keys",
    "reencrypt",
    "remove_orphan_files",
    "rewrap",
    "rotate_kek",
]
