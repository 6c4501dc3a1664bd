"""What must hold of an encrypted table's metadata as a document, before anything that it says is compared or believed.

    keys        each is one that Iceberg Java hashes, in its spelling, and stands once in its object. PyIceberg's models also read Python's
                spelling (initial_default) and skip what they do not know; readers differ in which of two equal keys counts. So without
                this, what is parsed and what a hash was made of could be two things. What version 3 requires is there: PyIceberg's
                models make up what is missing, such as another table-uuid at each load, or schema 0 as the current one.
    entries     no two snapshots, schemas, specs, sort orders or encryption keys have one id, no two statistics files one snapshot
    snapshots   current-snapshot-id names one that is there, and it is where `main` and the last entry of the snapshot log point

A table that is not encrypted is PyIceberg's to read: none of this is asked of it.
Pure: a document or metadata in, an error or nothing out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from tablecrypt import properties
from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.table.canonical_metadata import unknown_keys
from tablecrypt.table.metadata import EncryptedTableMetadata, has_encryption_traces

_SHOWN: Final = 80
REQUIRED_KEYS: Final = (
    *("format-version", "table-uuid", "location", "last-sequence-number", "last-updated-ms", "last-column-id", "schemas"),
    *("current-schema-id", "partition-specs", "default-spec-id", "last-partition-id", "sort-orders", "default-sort-order-id"),
)
"""Iceberg table spec, "Table Metadata Fields", version 3."""


class ParsedJson:
    """JSON, parsed once.

    Attributes:
        document: what it says.
        repeated: keys that stand twice in an object, of which the last one counted.
    """

    def __init__(self, content: bytes | str) -> None:
        """Parse UTF-8.

        Raises:
            ValueError: it is none, or not JSON, or nested too deeply.
        """
        self.repeated: list[str] = []
        text = content if isinstance(content, str) else content.decode("utf-8")
        try:
            self.document: Any = json.loads(text, object_pairs_hook=self._object, parse_constant=_no_number)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            self.repeated += sorted(name for name in found if names.count(name) > 1)
        return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def is_encrypted_tables(metadata: TableMetadata) -> bool:
    """Whether metadata is that of an encrypted table, or shows that it was."""
    return isinstance(metadata, EncryptedTableMetadata) and (
        properties.KEY_ID.name in metadata.properties or has_encryption_traces(metadata)
    )


def check_keys(where: str, parsed: ParsedJson, document: Any) -> None:
    """Refuse keys that a reader of an encrypted table's metadata would skip, or that another reader takes for something else.

    Args:
        where: names the document.
        parsed: of what it is a part.
        document: the metadata.

    Raises:
        FormatError: a key is not Iceberg's, is spelled in Python's way, stands twice, or is missing.
    """
    for key in REQUIRED_KEYS:
        if document.get(key) is None:
            raise FormatError(f"{where}: the key {key!r} is missing, which table metadata of version 3 requires. Restore it from a copy")
    for key in parsed.repeated:
        raise FormatError(
            f"{where}: the key {key[:_SHOWN]!r} stands twice in one object, and readers differ in which of the two counts. "
            "No writer of Iceberg does that: somebody edited it. Restore it from a copy"
        )
    for path in unknown_keys(document):
        name = path.rpartition(".")[2]
        spelled = f" (Iceberg spells it {name.replace('_', '-')!r})" if "_" in name else ""
        raise FormatError(
            f"{where}: the key {path[-_SHOWN:]!r} is none of Iceberg's table metadata as this version knows it{spelled}. Somebody edited "
            "it, or a newer Iceberg wrote it: an encrypted table of which a part is not understood is not opened. "
            "Restore it, or upgrade tablecrypt"
        )


def check_whole(location: str, metadata: EncryptedTableMetadata) -> None:
    """Check that the parts of an encrypted table's metadata fit together, so that no reader takes a full table for an empty one.

    Raises:
        TamperedFileError: two entries have one id, or the current snapshot is not there, or is not that of `main` or of the log.
    """
    _check_ids(location, metadata)
    _check_current_snapshot(location, metadata)


def _check_ids(location: str, metadata: EncryptedTableMetadata) -> None:
    ids: dict[str, Iterable[int | str]] = {
        "snapshots have the id": (each.snapshot_id for each in metadata.snapshots),
        "schemas have the id": (each.schema_id for each in metadata.schemas),
        "partition specs have the id": (each.spec_id for each in metadata.partition_specs),
        "sort orders have the id": (each.order_id for each in metadata.sort_orders),
        "encryption keys have the key-id": (each.key_id for each in metadata.encryption_keys),
        "statistics files are of snapshot": (each.snapshot_id for each in metadata.statistics),
        "partition statistics files are of snapshot": (each.snapshot_id for each in metadata.partition_statistics),
    }
    for what, found in ids.items():
        seen: set[int | str] = set()
        for each in found:
            if each in seen:
                raise TamperedFileError(location, f"two {what} {str(each)[:_SHOWN]}: no writer of Iceberg does that")
            seen.add(each)


def _check_current_snapshot(location: str, metadata: EncryptedTableMetadata) -> None:
    current, main = metadata.current_snapshot_id, metadata.refs.get(MAIN_BRANCH)
    if current is not None and metadata.snapshot_by_id(current) is None:
        raise TamperedFileError(location, f"current-snapshot-id is {current}, and that snapshot is not there: the table would look empty")
    if (None if main is None else main.snapshot_id) != current:
        raise TamperedFileError(
            location, f"current-snapshot-id is {current}, but main points to snapshot {None if main is None else main.snapshot_id}"
        )
    log = metadata.snapshot_log
    if current is not None and log and log[-1].snapshot_id != current:
        raise TamperedFileError(location, f"current-snapshot-id is {current}, but the snapshot log ends with {log[-1].snapshot_id}")
