"""What the planner holds between requests: open catalogs, tables as they were loaded, plans of scans, writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.messages import Handles
from tablecrypt.spark.tables import LocatedTable

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyarrow import RecordBatch

    from tablecrypt.spark.sql.scans.plan import Plan
    from tablecrypt.spark.sql.staging import StagedTable
    from tablecrypt.spark.sql.writes.commits import OpenWrite

_WAP_ENABLED: Final = "write.wap.enabled"
_CATALOGS: Final = 10_000
_TABLES: Final = 1_000
_PLANS: Final = 1_000
_READERS: Final = 1_000
_WRITES: Final = 1_000
_STAGED: Final = 1_000


@dataclass(frozen=True)
class OpenCatalog:
    """A catalog of PyIceberg, and its name in Spark."""

    name: str
    catalog: Catalog


@dataclass(frozen=True)
class LoadedTable:
    """A table as one request loaded it.

    Attributes:
        located: the table.
        catalog_name: its catalog's name in Spark.
        branch: where writes go.
        snapshot_id: what is read; None for a table without snapshots.
        is_writable: False where a snapshot or tag was asked for.
        staged: of a table that a statement is creating or replacing.
    """

    located: LocatedTable
    catalog_name: str
    branch: str
    snapshot_id: int | None
    is_writable: bool
    staged: StagedTable | None = None

    @property
    def schema(self) -> Schema:
        """The table's schema; that of the snapshot where a snapshot or tag was asked for."""
        metadata = self.located.table.metadata
        snapshot = metadata.snapshot_by_id(self.snapshot_id) if self.snapshot_id is not None and not self.is_writable else None
        if snapshot is None or snapshot.schema_id is None:
            return metadata.schema()
        return next((schema for schema in metadata.schemas if schema.schema_id == snapshot.schema_id), metadata.schema())

    def check_writable(self, staged_as: str | None) -> None:
        """Raise ConfigurationError for a snapshot, a tag, a branch that the table does not have, or rows that are to be audited first.

        Args:
            staged_as: what the session says in spark.wap.branch and spark.wap.id. Writers of a table with write.wap.enabled=true put rows
                there, out of readers' sight.
        """
        if not self.is_writable:
            raise ConfigurationError(
                f"{self.located.name} is read at a snapshot or tag, which cannot change: write to the table or a branch"
            )
        self.located.check_branch(self.branch)
        if staged_as and str(self.located.table.metadata.properties.get(_WAP_ENABLED)).lower() == "true":
            name = f"{self.catalog_name}.{self.located.name}"
            raise ConfigurationError(
                f"{name} has {_WAP_ENABLED}=true, and spark.wap.branch and spark.wap.id are not served: unset them, write to a branch "
                f"({name}.branch_…), and publish it with CALL {self.catalog_name}.system.fast_forward"
            )


@dataclass
class Planner:
    """The state of the process."""

    catalogs: Handles[OpenCatalog] = field(default_factory=lambda: Handles(_CATALOGS))
    tables: Handles[LoadedTable] = field(default_factory=lambda: Handles(_TABLES))
    plans: Handles[Plan] = field(default_factory=lambda: Handles(_PLANS))
    readers: Handles[Generator[RecordBatch]] = field(default_factory=lambda: Handles(_READERS))
    writes: Handles[OpenWrite] = field(default_factory=lambda: Handles(_WRITES))
    staged: Handles[StagedTable] = field(default_factory=lambda: Handles(_STAGED))
