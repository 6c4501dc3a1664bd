"""The rules of every commit to an encrypted table, each broken by itself, and by nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AddSchemaUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from tablecrypt.errors import ConfigurationError, FormatError, KeyIdChangedError, KeyNotFoundError, PlaintextRefusedError
from tablecrypt.keys.key_ring import is_copy
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.updates import (
    AssertHead,
    RemoveEncryptionKeyUpdate,
    check_commit,
    check_migration,
    check_table_properties,
    may_change_declarations,
)
from tablecrypt_catalog.sql import EncryptedInMemoryCatalog
from tests.support.protected_tables import EMAIL, SSN, clients, commit_column_keys, protected_table
from tests.support.tables import ids, memory_catalog, metadata_of, new_table

KEY_ID = "encryption.key-id"
NAME_MAPPING = "schema.name-mapping.default"


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> EncryptedTableMetadata:
    """That of an encrypted table with two snapshots under one KEK."""
    catalog = memory_catalog(tmp_path_factory.mktemp("rules"))
    return metadata_of(new_table(catalog, appends=[pa.table({"id": [number]}) for number in range(2)]))


def statistics(metadata: TableMetadata, name: str) -> StatisticsFile:
    snapshot_id = metadata.snapshots[0].snapshot_id
    path = f"{metadata.location}/metadata/{name}.stats"
    return StatisticsFile(
        snapshot_id=snapshot_id, statistics_path=path, file_size_in_bytes=1, file_footer_size_in_bytes=1, blob_metadata=[]
    )


def partition_statistics(metadata: TableMetadata, name: str) -> PartitionStatisticsFile:
    path = f"{metadata.location}/metadata/{name}.partitions"
    return PartitionStatisticsFile(snapshot_id=metadata.snapshots[0].snapshot_id, statistics_path=path, file_size_in_bytes=1)


def changed(metadata: EncryptedTableMetadata, **fields: Any) -> EncryptedTableMetadata:
    return metadata.model_copy(update=fields)


def with_properties(metadata: EncryptedTableMetadata, **properties: str | None) -> EncryptedTableMetadata:
    merged = {**metadata.properties, **{name.replace("__", "-").replace("_", "."): value for name, value in properties.items()}}
    return changed(metadata, properties={name: value for name, value in merged.items() if value is not None})


def without_keys(metadata: EncryptedTableMetadata, keep: Callable[[Any], bool]) -> EncryptedTableMetadata:
    return changed(metadata, encryption_keys=[key for key in metadata.encryption_keys if keep(key)])


def test_what_keeps_the_rules_is_committed(metadata: EncryptedTableMetadata) -> None:
    check_commit(metadata, metadata)
    check_commit(metadata, with_properties(metadata, encryption_data__key__length="32", a="b"))
    check_commit(metadata, changed(metadata, snapshots=[]))
    check_migration(metadata)


def test_the_key_id_neither_changes_nor_goes(metadata: EncryptedTableMetadata) -> None:
    with pytest.raises(KeyIdChangedError, match=r"\(alias/orders\) cannot be removed"):
        check_commit(metadata, with_properties(metadata, encryption_key__id=None))
    with pytest.raises(KeyIdChangedError, match="from alias/orders to others"):
        check_commit(metadata, with_properties(metadata, encryption_key__id="others"))


@pytest.mark.parametrize("name", ["encryption.data-key-length", "encryption.kek-lifespan-ms", NAME_MAPPING])
def test_properties_with_which_the_table_would_not_load_are_refused(metadata: EncryptedTableMetadata, name: str) -> None:
    broken = changed(metadata, properties={**metadata.properties, name: "nonsense"})
    checks: tuple[Callable[[], object], ...] = (lambda: check_commit(metadata, broken), lambda: check_migration(broken))
    for check in checks:
        with pytest.raises(ConfigurationError, match=name):
            check()


def test_a_name_mapping_that_can_be_read_is_committed(metadata: EncryptedTableMetadata) -> None:
    mapped = changed(metadata, properties={**metadata.properties, NAME_MAPPING: '[{"field-id": 1, "names": ["id"]}]'})
    check_commit(metadata, mapped)
    check_migration(mapped)
    check_commit(metadata, changed(metadata, properties={**metadata.properties, NAME_MAPPING: ""}))
    with pytest.raises(ConfigurationError, match=r"is not a name mapping \(.*\): '\[\[\["):
        check_commit(metadata, changed(metadata, properties={**metadata.properties, NAME_MAPPING: "[" * 100_000}))


def test_metadata_of_another_class_or_version_is_refused(metadata: EncryptedTableMetadata) -> None:
    from pyiceberg.table.metadata import new_table_metadata
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

    properties = {**metadata.properties, "format-version": "2"}
    older = new_table_metadata(metadata.schema(), metadata.spec(), UNSORTED_SORT_ORDER, metadata.location, properties)
    checks: tuple[Callable[[], object], ...] = (lambda: check_commit(metadata, older), lambda: check_migration(older))
    for check in checks:
        with pytest.raises(ConfigurationError, match="format version"):
            check()
    with pytest.raises(ConfigurationError, match=KEY_ID):
        check_migration(with_properties(metadata, encryption_key__id=None))
    with pytest.raises(ConfigurationError, match=KEY_ID):
        check_migration(with_properties(metadata, encryption_key__id=""))


@pytest.mark.parametrize("which", [0, 1])
def test_every_snapshot_has_its_key_and_the_kek_above_it(metadata: EncryptedTableMetadata, which: int) -> None:
    snapshots = list(metadata.snapshots)
    key_id = snapshots[which].key_id
    snapshots[which] = snapshots[which].model_copy(update={"key_id": None})
    without_id = changed(metadata, snapshots=snapshots)
    without_entry = without_keys(metadata, lambda key: key.key_id != key_id)
    without_kek = without_keys(metadata, lambda key: not key.is_kek)
    (kek,) = metadata.key_ring.keks
    keys = [key.model_copy(update={"encrypted_by_id": key.key_id}) if key.key_id == key_id else key for key in metadata.encryption_keys]
    for check in (lambda after: check_commit(metadata, after), check_migration):
        with pytest.raises(PlaintextRefusedError, match="has no key-id") as refused:
            check(without_id)
        assert refused.value.location == snapshots[which].manifest_list
        with pytest.raises(KeyNotFoundError, match=f"snapshot {snapshots[which].snapshot_id} needs encryption key"):
            check(without_entry)
        with pytest.raises(KeyNotFoundError):
            check(without_kek)
        with pytest.raises(FormatError, match="is not a KEK"):
            check(changed(metadata, encryption_keys=keys))
    check_commit(metadata, changed(metadata, encryption_keys=[*metadata.encryption_keys, kek.model_copy(update={"key_id": "more"})]))


def test_no_column_key_is_left_without_its_kek(tmp_path: Path) -> None:
    table = protected_table(clients(tmp_path).payroll)
    commit_column_keys(table, SSN, EMAIL)
    metadata = metadata_of(table.refresh())
    # As after a removal on purpose: else the copies in the properties stand for what is gone.
    metadata = changed(metadata, properties={name: value for name, value in metadata.properties.items() if not is_copy(name)})
    (kek,) = metadata.key_ring.column_keks
    without_kek = without_keys(metadata, lambda key: key != kek)
    with pytest.raises(KeyNotFoundError, match=f"needs KEK {re.escape(kek.key_id)}"):
        check_commit(metadata, without_kek)
    # Where it was lost before, the table takes other commits.
    check_commit(without_kek, without_kek)
    check_commit(metadata, without_keys(metadata, lambda key: not key.is_of_columns))


@pytest.mark.parametrize(("field", "make"), [("statistics", statistics), ("partition_statistics", partition_statistics)])
def test_no_statistics_file_is_added_or_exchanged(
    metadata: EncryptedTableMetadata, field: str, make: Callable[[TableMetadata, str], Any]
) -> None:
    old, new = make(metadata, "old"), make(metadata, "new")
    before = changed(metadata, **{field: [old]})
    check_commit(before, before)
    check_commit(before, metadata)
    for after in ([new], [old, new], [new, old]):
        with pytest.raises(PlaintextRefusedError, match="statistics") as refused:
            check_commit(before, changed(metadata, **{field: after}))
        assert refused.value.location == metadata.location
    with pytest.raises(PlaintextRefusedError, match="statistics"):
        check_commit(metadata, before)
    with pytest.raises(PlaintextRefusedError, match="before the table was encrypted") as refused:
        check_migration(before)
    assert refused.value.location == metadata.location


@pytest.mark.parametrize("retries", ["0", "1"])
def test_a_commit_that_others_were_faster_than_says_which_property_allows_more_attempts(catalog: Catalog, retries: str) -> None:
    rows, properties = pa.table({"id": [1]}), {"commit.retry.num-retries": retries, "commit.retry.min-wait-ms": "1"}
    table = new_table(catalog, schema=rows.schema, properties=properties)
    catalog.load_table("db.t").append(rows)

    if retries == "1":
        table.append(rows)
        assert len(catalog.load_table("db.t").scan().to_arrow()) == 2
        return
    with pytest.raises(CommitFailedException, match=r"write again, or set its property commit\.retry\.num-retries above 0$"):
        table.append(rows)
    assert len(catalog.load_table("db.t").scan().to_arrow()) == 1


class _SentTwice(EncryptedInMemoryCatalog):
    """Each commit comes twice, as through a gateway that sends a request again: the second is refused, and its answer is what is seen."""

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        super().commit_table(table, requirements, updates)
        return super().commit_table(table, requirements, updates)


@pytest.mark.parametrize("retries", ["0", "1"])
def test_a_commit_that_landed_before_it_was_refused_is_done_and_done_once(tmp_path: Path, retries: str) -> None:
    rows, properties = pa.table({"id": [1, 2]}), {"commit.retry.num-retries": retries, "commit.retry.min-wait-ms": "1"}
    catalog = _SentTwice("memory", **memory_catalog(tmp_path).properties)
    catalog.create_namespace("db")
    table = new_table(catalog, schema=rows.schema, properties=properties)

    table.append(rows)
    table.delete("id = 1")
    table.overwrite(rows.slice(0, 1), overwrite_filter="id = 7")

    assert ids(table) == ids(catalog.load_table("db.t")) == [1, 2]
    assert len(table.snapshots()) == 3


def test_a_commit_sets_only_properties_that_can_be_read_and_keeps_what_is_there(metadata: EncryptedTableMetadata) -> None:
    before = {**metadata.properties, "gc.enabled": "perhaps"}
    check_table_properties(before, {**before, "owner": "a"})
    with pytest.raises(ConfigurationError, match=r"gc\.enabled"):
        check_table_properties(metadata.properties, before)


@pytest.mark.parametrize(
    ("branch", "expected", "has_snapshots", "holds"),
    [
        ("main", "its head", True, True),
        ("main", "another", True, False),
        ("side", None, True, True),
        ("main", None, True, False),
        ("side", None, False, True),
        ("main", "another", False, False),
    ],
)
def test_a_branch_has_the_head_that_a_snapshot_was_made_on_and_the_first_may_be_of_any(
    metadata: EncryptedTableMetadata, branch: str, expected: str | None, has_snapshots: bool, holds: bool
) -> None:
    """PyIceberg lets a table's first snapshot be one of the main branch alone."""
    heads = {None: None, "its head": metadata.current_snapshot_id, "another": 1}
    base = metadata if has_snapshots else changed(metadata, snapshots=[], refs={}, current_snapshot_id=None)
    required = AssertHead(**{"ref": branch, "snapshot-id": heads[expected]})

    with nullcontext() if holds else pytest.raises(CommitFailedException):
        required.validate(base)


def test_a_table_that_is_not_there_has_no_head() -> None:
    with pytest.raises(CommitFailedException):
        AssertHead(ref="main", **{"snapshot-id": None}).validate(None)


@pytest.mark.parametrize(
    ("update", "changes", "changes_unprotected"),
    [
        (SetPropertiesUpdate(updates={"encryption.column.2.key-id": "pii"}), True, True),
        (RemovePropertiesUpdate(removals=["encryption.column.2.mask"]), True, False),
        (AddSchemaUpdate(schema_=Schema()), True, False),
        (SetCurrentSchemaUpdate(schema_id=1), True, False),
        (RemoveEncryptionKeyUpdate(key_id="a"), True, False),
        (SetPropertiesUpdate(updates={"owner": "me"}), False, False),
        (RemovePropertiesUpdate(removals=["owner"]), False, False),
    ],
)
def test_what_may_change_the_protection_of_columns_is_told_from_what_cannot(
    metadata: EncryptedTableMetadata, update: TableUpdate, changes: bool, changes_unprotected: bool
) -> None:
    updates = [SetPropertiesUpdate(updates={"comment": "none"}), update, SetPropertiesUpdate(updates={"comment": "none"})]
    protected = changed(metadata, properties=metadata.properties | {"encryption.column.1.key-id": "pii"})
    assert may_change_declarations(protected, updates) is changes
    assert may_change_declarations(metadata, updates) is changes_unprotected


@pytest.mark.parametrize("repaired", ["3", None])
def test_a_number_of_retries_that_cannot_be_read_is_said_and_a_commit_may_repair_it(catalog: Catalog, repaired: str | None) -> None:
    """Another engine stored it, or an older release. Not even a commit that removed it came through."""
    name = "commit.retry.num-retries"
    table = new_table(catalog, properties={name: "5"})
    table.metadata.properties[name] = "many"
    with pytest.raises(ConfigurationError, match=f"{name} is 'many'; it must be a whole number"), table.transaction() as transaction:
        transaction.set_properties({"owner": "somebody"})

    with table.transaction() as transaction:
        if repaired is None:
            transaction.remove_properties(name)
        else:
            transaction.set_properties({name: repaired})
    assert catalog.load_table(table.name()).properties.get(name) == repaired
