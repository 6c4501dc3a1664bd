"""Branches and tags. PyIceberg removes what has a name, be it a branch or a tag, and the main branch too.

UpdateTableMetadata: _transaction        what the table's branches and tags are
"""

from __future__ import annotations

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update.snapshot import ManageSnapshots

from tablecrypt.errors import ConfigurationError


class ManageEncryptedSnapshots(ManageSnapshots):
    """PyIceberg's ManageSnapshots, which refuses what Iceberg Java refuses too."""

    def remove_tag(self, tag_name: str) -> ManageSnapshots:
        """Remove a tag. ConfigurationError: it is a branch."""
        self._check_kind(tag_name, SnapshotRefType.TAG)
        return super().remove_tag(tag_name)

    def remove_branch(self, branch_name: str) -> ManageSnapshots:
        """Remove a branch. ConfigurationError: it is the main one, or a tag."""
        self._check_kind(branch_name, SnapshotRefType.BRANCH)
        # A table with snapshots and no main reads as an empty one, and the next expiry takes its rows.
        if branch_name == MAIN_BRANCH:
            raise ConfigurationError("the main branch cannot be dropped")
        return super().remove_branch(branch_name)

    def _check_kind(self, name: str, asked: SnapshotRefType) -> None:
        known = self._transaction.table_metadata.refs.get(name)
        if known is not None and known.snapshot_ref_type != asked:
            kind = known.snapshot_ref_type
            raise ConfigurationError(f"{name} is a {kind} and no {asked}: remove_{kind} removes it")
