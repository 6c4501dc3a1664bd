"""Write-audit-publish: readers of a table see what is written to it only after an audit.

    write.wap.enabled=true    a property of the table: writes to it go where the session says
    spark.wap.branch=NAME     reads and writes go to this branch; the first write makes it, where the main branch is then
    spark.wap.id=ID           each write is a snapshot of no branch with wap.id in its summary, which CALL publish_changes publishes

A table with a branch, tag or snapshot in its name is read and written there and nowhere else.

Raises:
    ConfigurationError: both are set; a statement names a branch, and the session an id; the name is that of a tag; a stream's rows would go
        into snapshots of no branch; or a statement that makes or replaces a table would put its rows where everybody reads.
    CommitFailedException: another writer has made the branch meanwhile, and written to it; or has written a table's first rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from tablecrypt.engines.changes import check_unchanged
from tablecrypt.errors import ConfigurationError
from tablecrypt.iceberg_properties import WAP_ENABLED
from tablecrypt.spark.sql.branches_and_tags import begin, point

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from tablecrypt.spark.sql.messages import NamedRequest
    from tablecrypt.spark.sql.planner import LoadedTable

STAGED_ID: Final = "wap.id"
"""In the summary of a snapshot that was written under an id."""
BRANCH_SETTING: Final = "spark.wap.branch"
ID_SETTING: Final = "spark.wap.id"


@dataclass(frozen=True)
class AuditFirst:
    """Where a session puts what it writes to one table; nowhere in particular for a table that has not write.wap.enabled.

    Attributes:
        branch: None where the session names none.
        wap_id: None where the session names none.
    """

    branch: str | None = None
    wap_id: str | None = None

    @classmethod
    def of(cls, request: NamedRequest, metadata: TableMetadata) -> AuditFirst:
        """Take what a request says of its session, for a table."""
        asked = cls(request.wap_branch, request.wap_id)
        # A session that asks for nothing reads and writes as always, whatever a table has in that property.
        return asked if asked != cls() and WAP_ENABLED.is_true(metadata.properties) else cls()

    def branch_in(self, metadata: TableMetadata) -> str:
        """Return the branch to read: the session's once it is there, until then the main one."""
        ref = metadata.refs.get(self.branch) if self.branch is not None else None
        if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            raise ConfigurationError(f"{BRANCH_SETTING}={self.branch}: that is a tag, which never moves")
        return MAIN_BRANCH if ref is None else str(self.branch)

    @property
    def for_named_version(self) -> AuditFirst:
        """The same for a statement that names a branch, tag or snapshot: that comes before the session's branch."""
        return replace(self, branch=None)

    @property
    def summary(self) -> Mapping[str, str]:
        """What the summary of a snapshot says of it."""
        return {} if self.wap_id is None else {STAGED_ID: self.wap_id}

    def check(self, branch: str, *, is_stream: bool, makes_table: bool) -> None:
        """Check a write on a branch before its tasks run."""
        if self.branch is not None and self.wap_id is not None:
            raise ConfigurationError(f"{BRANCH_SETTING} and {ID_SETTING} are both set: unset one of them")
        if self.wap_id is not None and branch != MAIN_BRANCH:
            raise ConfigurationError(f"the statement writes to the branch {branch}, and {ID_SETTING} keeps rows out of any: unset that")
        # A batch is recognized in the history of a branch, in which these snapshots are not.
        if self.wap_id is not None and is_stream:
            raise ConfigurationError(f"{ID_SETTING} is for statements, and a stream needs a branch: unset it, or set {BRANCH_SETTING}")
        if makes_table and (self.branch is not None or self.wap_id is not None):
            raise ConfigurationError(
                f"CREATE and REPLACE TABLE … AS SELECT put rows into the main branch: unset {BRANCH_SETTING} and {ID_SETTING}, or create "
                "the table without rows and INSERT them"
            )


def with_branch(loaded: LoadedTable) -> LoadedTable:
    """Return the table with the branch that the session writes to, which is made if it is not there yet.

    The branch begins with the snapshot that the table was loaded at, so a change finds in it the rows that it was planned on. In a table
    without one it begins with an empty snapshot.
    """
    name = loaded.audit_first.branch
    metadata = loaded.located.table.metadata
    if name is None or name == loaded.branch:
        return loaded

    table = loaded.located.reloaded()
    check_unchanged(loaded.located.name, metadata, table.metadata)
    there = table.metadata.refs.get(name)

    if there is None and metadata.current_snapshot_id is not None:
        point(table, SnapshotRefType.BRANCH, name, metadata.current_snapshot_id, {})
    elif there is None and table.metadata.current_snapshot_id is None:
        begin(table, name, {})
    elif there is None:
        raise CommitFailedException(
            f"{loaded.located.name}: another writer wrote the table's first rows meanwhile: run the statement again"
        )
    # The change was planned on the main branch's rows, and this branch has others.
    elif there.snapshot_id != metadata.current_snapshot_id:
        raise CommitFailedException(f"{loaded.located.name}: another writer created the branch {name} meanwhile: run the statement again")

    return replace(loaded, located=replace(loaded.located, table=table), branch=name)
