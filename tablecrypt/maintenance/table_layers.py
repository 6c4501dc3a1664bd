"""What `inspect` says about a table: keys, snapshots and files, layer by layer."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyiceberg.table import Table

from tablecrypt.arguments import checked_arguments
from tablecrypt.maintenance.encrypted import encrypted, encrypted_metadata_of
from tablecrypt.maintenance.reachable import FileKind, reachable_files


@checked_arguments()
def inspect(table: Table) -> dict[str, Any]:
    """Return the layers of an encrypted table, as JSON's types.

    Raises:
        ConfigurationError: the table is not encrypted.
    """
    metadata = encrypted_metadata_of(encrypted(table))
    found = reachable_files(metadata, table.io)
    sealed_under = Counter(kek for kek in found.keks_of_snapshots.values() if kek is not None)
    kinds = Counter(file.kind for file in found.files.values())
    sizes: Counter[FileKind] = Counter()
    for file in found.files.values():
        sizes[file.kind] += file.length or 0
    return {
        "table": ".".join(table.name()),
        "metadata": table.metadata_location,
        "format_version": metadata.format_version,
        "master_key": metadata.properties.get("encryption.key-id"),
        "keks": [
            {
                "key_id": kek.key_id,
                "wrapped_by": kek.encrypted_by_id,
                "timestamp_ms": kek.timestamp,
                "snapshots": sealed_under[kek.key_id],
            }
            for kek in metadata.key_ring.keks
        ],
        "snapshots": [
            {
                "snapshot_id": snapshot.snapshot_id,
                "timestamp_ms": snapshot.timestamp_ms,
                "key_id": snapshot.key_id,
                "kek": found.keks_of_snapshots.get(snapshot.snapshot_id),
                "manifest_list": snapshot.manifest_list,
            }
            for snapshot in metadata.snapshots
        ],
        "files": [{"kind": kind.value, "files": kinds[kind], "bytes": sizes[kind]} for kind in FileKind if kinds[kind]],
        "unopened": [{"location": each.location, "error": str(each.error)} for each in found.unopened],
    }
