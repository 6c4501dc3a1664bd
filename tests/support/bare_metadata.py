"""Metadata of encrypted tables made by hand, entry for entry: for the rules that look at metadata alone. Nothing in it opens."""

from __future__ import annotations

import base64
import copy
from typing import Any

from tablecrypt.table.metadata import EncryptedTableMetadata

TABLE_UUID = "6dc393b6-7cb6-4bbc-ba31-b7ac2216d371"
MASTER = "alias/orders"
LOCATION = "s3://bucket/db/t"


def kek(key_id: str, created_at_ms: int, wrapped: bytes, by: str = MASTER) -> dict[str, Any]:
    """A KEK's entry in `encryption-keys`."""
    return {**list_key(key_id, by, wrapped), "properties": {"KEY_TIMESTAMP": str(created_at_ms)}}


def list_key(key_id: str, by: str | None, wrapped: bytes = b"wrapped") -> dict[str, Any]:
    """A manifest-list key's entry."""
    return {"key-id": key_id, "encrypted-key-metadata": base64.b64encode(wrapped).decode(), "encrypted-by-id": by}


def snapshot(number: int, key_id: str | None) -> dict[str, Any]:
    """The snapshot 10 + number, with that sequence number."""
    return {
        "snapshot-id": 10 + number,
        "sequence-number": number,
        "timestamp-ms": number,
        "key-id": key_id,
        "manifest-list": f"{LOCATION}/metadata/snap-{number}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
        "first-row-id": 0,
        "added-rows": 0,
    }


def fields(snapshots: list[dict[str, Any]], keys: list[dict[str, Any]], **properties: str) -> dict[str, Any]:
    """The metadata as JSON has it, with `main` at the last snapshot: a copy, to be edited."""
    head = snapshots[-1] if snapshots else {"snapshot-id": None, "sequence-number": 0}
    main = {"main": {"snapshot-id": head["snapshot-id"], "type": "branch"}} if snapshots else {}
    return {
        "format-version": 3,
        "table-uuid": TABLE_UUID,
        "location": LOCATION,
        "last-updated-ms": 0,
        "next-row-id": 0,
        "last-sequence-number": head["sequence-number"],
        "current-snapshot-id": head["snapshot-id"],
        "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
        "current-schema-id": 0,
        "last-column-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {"encryption.key-id": MASTER, **properties},
        "snapshots": copy.deepcopy(snapshots),
        "refs": main,
        "encryption-keys": copy.deepcopy(keys),
    }


def parsed(raw: dict[str, Any]) -> EncryptedTableMetadata:
    """The metadata of a table that `fields` describes."""
    return EncryptedTableMetadata.model_validate(raw)
