"""Shares as their source remembers them, for tests: over a real table's files."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from tablecrypt.maintenance.sharing.records import ShareRecord, remember_share
from tablecrypt.table.table import EncryptedTable

PARTNER_KEY = "alias/partner"


def record_of(table: EncryptedTable, row_filter: str = "", **changed: Any) -> ShareRecord:
    """The record of a share of the files that a scan of the current snapshot reads."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    tasks = list((table.scan(row_filter=row_filter) if row_filter else table.scan()).plan_files())
    files = {file.file_path for task in tasks for file in (task.file, *task.delete_files)}
    share_uuid = str(uuid.uuid4())
    location = f"{table.location()}-shared-{share_uuid}"
    record = ShareRecord(
        share_uuid=share_uuid,
        key_id=PARTNER_KEY,
        location=location,
        metadata_location=f"{location}/metadata/00000-{share_uuid}.metadata.json",
        snapshot_id=snapshot.snapshot_id,
        created_ms=1_700_000_000_000,
        row_filter=row_filter,
        columns=(),
        files=tuple(sorted(files)),
    )
    return replace(record, **changed)


def shared(table: EncryptedTable, row_filter: str = "", **changed: Any) -> ShareRecord:
    """A share of these files that the table remembers."""
    record = record_of(table, row_filter, **changed)
    remember_share(table, record)
    return record
