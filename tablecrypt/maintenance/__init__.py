"""Operations on whole encrypted tables that keep them in order."""

from __future__ import annotations

from tablecrypt.maintenance.orphan_files import OrphanFiles, remove_orphan_files

__all__ = ["OrphanFiles", "remove_orphan_files"]
