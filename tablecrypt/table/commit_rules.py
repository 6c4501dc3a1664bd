"""What must hold for every commit to an encrypted table, whoever staged it. Pure: old and new metadata in, an error or nothing out.

Rules:
    1. encryption.key-id never changes and never goes.
    2. The format version stays 3.
    3. Every snapshot names a manifest-list key, and that key and its KEK are in the metadata being committed.
    4. No statistics file is added, also not in place of another: those that exist are plaintext.
    5. The properties that say which keys to make, and the name mapping, can be used: with others the table would not load again.

A commit that makes a plain table an encrypted one leaves nothing of the plain one behind: rules 3 to 5 hold for all that it has then.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import parse_mapping_from_json

from tablecrypt import properties
from tablecrypt.errors import ConfigurationError, KeyIdChangedError, KeyNotFoundError, PlaintextRefusedError
from tablecrypt.keys.key_settings import KeySettings
from tablecrypt.table.metadata import EncryptedTableMetadata


def check_properties_keep_key_id(before: Mapping[str, str], after: Mapping[str, object]) -> None:
    """Rule 1 on table properties.

    Raises:
        KeyIdChangedError: the value differs or is gone.
    """
    old, new = before.get(properties.KEY_ID.name), after.get(properties.KEY_ID.name)
    if old == new:
        return
    if new is None:
        raise KeyIdChangedError(f"{properties.KEY_ID.name} ({old}) cannot be removed: the table would be written in plaintext from then on")
    raise KeyIdChangedError(
        f"{properties.KEY_ID.name} cannot be changed from {old} to {new}: it names the master key for the table's whole life"
    )


def check_table_properties(before: Mapping[str, str], after: Mapping[str, object]) -> None:
    """Rules 1 and 5 on table properties.

    Raises:
        KeyIdChangedError: encryption.key-id differs or is gone.
        ConfigurationError: another property of encryption, or the name mapping, cannot be used.
    """
    check_properties_keep_key_id(before, after)
    KeySettings.of(after)
    check_name_mapping(after)


def check_name_mapping(table_properties: Mapping[str, object]) -> None:
    """Check the property by which columns of files without field ids get theirs.

    Raises:
        ConfigurationError: it is there and cannot be read.
    """
    name = TableProperties.DEFAULT_NAME_MAPPING
    try:
        if mapping := table_properties.get(name):
            parse_mapping_from_json(str(mapping))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"the property {name} is no name mapping ({type(error).__name__}): {str(mapping)[:80]!r}. Set it anew, or remove it"
        ) from None


def check_commit(before: TableMetadata, after: TableMetadata) -> None:
    """Check the metadata that a commit would write against the metadata that it is based on.

    Raises:
        KeyIdChangedError, ConfigurationError, KeyNotFoundError, PlaintextRefusedError: a rule does not hold.
    """
    check_table_properties(before.properties, after.properties)
    if not isinstance(after, EncryptedTableMetadata):
        raise ConfigurationError(f"an encrypted table has format version 3, the commit would make it {after.format_version}")
    check_snapshots_have_keys(after)
    added = [each for each in after.statistics if each not in before.statistics]
    if added or any(each not in before.partition_statistics for each in after.partition_statistics):
        raise PlaintextRefusedError(after.location, "statistics files would hold plaintext facts about the data beside an encrypted table")


def check_migration(after: TableMetadata) -> None:
    """Check the metadata with which a plain table becomes an encrypted one.

    Raises:
        ConfigurationError: it is not that of an encrypted table.
        KeyNotFoundError, PlaintextRefusedError: a snapshot cannot be read under its keys, or something in plaintext is still named.
    """
    if not isinstance(after, EncryptedTableMetadata) or not after.properties.get(properties.KEY_ID.name):
        raise ConfigurationError(f"a table becomes an encrypted one in format version 3 and with {properties.KEY_ID.name}, or not at all")
    KeySettings.of(after.properties)
    check_name_mapping(after.properties)
    check_snapshots_have_keys(after)
    if after.statistics or after.partition_statistics:
        raise PlaintextRefusedError(after.location, "statistics files of the time before it was encrypted would stay beside the table")


def check_snapshots_have_keys(metadata: EncryptedTableMetadata) -> None:
    """Rule 3: no metadata is written from which a snapshot could not be read again.

    Raises:
        PlaintextRefusedError: a snapshot has no key-id.
        KeyNotFoundError: its key or the KEK above is missing.
    """
    ring = metadata.key_ring
    for snapshot in metadata.snapshots:
        if snapshot.key_id is None:
            raise PlaintextRefusedError(
                snapshot.manifest_list, f"snapshot {snapshot.snapshot_id} has no key-id: its manifest list is not encrypted"
            )
        if snapshot.key_id not in ring:
            raise KeyNotFoundError(
                f"snapshot {snapshot.snapshot_id} needs encryption key {snapshot.key_id}, which the commit would not hold"
            )
        ring.chain(snapshot.key_id)
