"""How rows leave their data files: copy-on-write or merge-on-read, as the table's properties say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import TableProperties

UPDATE_MODE: Final = "write.update.mode"
MERGE_MODE: Final = "write.merge.mode"


@dataclass(frozen=True)
class RowDelete:
    """Rows to delete: those that match the predicate on a branch (None: the main branch), in one of the two modes."""

    predicate: BooleanExpression
    case_sensitive: bool
    branch: str | None
    mode: str


def upsert_mode(properties: Mapping[str, str]) -> str:
    """Return the mode of an upsert's updates: write.merge.mode, else write.update.mode, else copy-on-write."""
    return properties.get(MERGE_MODE) or properties.get(UPDATE_MODE) or TableProperties.DELETE_MODE_COPY_ON_WRITE
