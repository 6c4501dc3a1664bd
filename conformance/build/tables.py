"""Tables to be read: every kind of change, under keys of every length."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from conformance.adapters.tablecrypt_parts import properties
from conformance.build.fixed import FIXED
from conformance.verdicts import ROOT
from tablecrypt import maintenance
from tablecrypt.table.deletes import RowDelta
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedInMemoryCatalog
from tests.support.table_files import TableFiles
from tests.support.tables import BY_TEAM, MERGE_ON_READ, TEAM_SCHEMA, encrypted_table
from tests.support.tables import rows as rows_of

KEY_LENGTHS: Final = (16, 24, 32)
KEY_ID: Final = "alias/conformance"
TYPES: Final = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "whole", IntegerType()),
    NestedField(3, "single", FloatType()),
    NestedField(4, "double", DoubleType()),
    NestedField(5, "money", DecimalType(9, 2)),
    NestedField(6, "day", DateType()),
    NestedField(7, "moment", TimestampType()),
    NestedField(8, "instant", TimestamptzType()),
    NestedField(9, "flag", BooleanType()),
    NestedField(10, "raw", BinaryType()),
)
REQUIRED: Final = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "ratio", DoubleType(), required=True))
"""Uncompressed, their pages have no structure that a decoder could stumble over."""
NESTED: Final = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "list", ListType(3, StringType())),
    NestedField(4, "map", MapType(5, StringType(), 6, LongType())),
    NestedField(7, "person", StructType(NestedField(8, "email", StringType()), NestedField(9, "age", LongType()))),
)
AVRO_ROWS: Final = {
    "type": "record",
    "name": "table",
    "fields": [
        {"name": "id", "type": ["null", "long"], "default": None, "field-id": 1},
        {"name": "team", "type": ["null", "string"], "default": None, "field-id": 2},
        {"name": "note", "type": ["null", "string"], "default": None, "field-id": 3},
    ],
}


@dataclass(frozen=True)
class Recipe:
    """How the table of a case is made.

    Attributes:
        name: of the case, without its key length.
        clause: what it is about, in the specification.
        change: made after two appends.
        read: which state is read, where it is not the newest of main: returns fields of the case.
    """

    name: str
    clause: str
    change: Callable[[EncryptedTable], object] = lambda table: None
    schema: Schema = TEAM_SCHEMA
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    properties: dict[str, str] = field(default_factory=dict)
    appends: int = 2
    read: Callable[[EncryptedTable], dict[str, Any]] = lambda table: {}
    key_lengths: tuple[int, ...] = KEY_LENGTHS


def rows(first: int, count: int = 12, schema: Schema = TEAM_SCHEMA) -> pa.Table:
    return rows_of(first, count, schema)


class _KitFiles(TableFiles):
    """Writes single files of a table of the kit, under the names by which its metadata calls them."""

    def __init__(self, table: EncryptedTable) -> None:
        super().__init__(Path("."), table.schema(), inner=table.io.inner)
        self._location = table.location()

    def _path(self, extension: str) -> str:
        return f"{self._location}/data/other-{next(self._numbers)}.{extension}"


def kit_files(table: EncryptedTable) -> TableFiles:
    from tablecrypt.crypto.key_metadata import StandardKeyMetadata
    from tests.support import table_files

    length = int(table.properties["encryption.data-key-length"])
    table_files.new_key = lambda: StandardKeyMetadata.generate(length, FIXED.randbytes)  # type: ignore[attr-defined, misc, assignment]
    return _KitFiles(table)


def _commit(table: EncryptedTable, delta: RowDelta) -> None:
    with table.transaction() as transaction:
        transaction.update_snapshot().row_delta(delta).commit()  # type: ignore[attr-defined]


def _first_paths(table: EncryptedTable) -> list[str]:
    return sorted(task.file.file_path for task in table.scan().plan_files())


def _position_deletes(table: EncryptedTable) -> None:
    targets = [(path, position) for path in _first_paths(table) for position in (1, 3)]
    _commit(table, RowDelta(added=[kit_files(table).position_deletes(targets)]))


def _equality_deletes(table: EncryptedTable) -> None:
    _commit(table, RowDelta(added=[kit_files(table).equality_deletes(pa.table({"id": pa.array([3, 25, 101], pa.int64())}), [1])]))


def _avro_data(table: EncryptedTable) -> None:
    file = kit_files(table).avro_data(AVRO_ROWS, rows(500, 7).to_pylist())
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)


def _evolve(table: EncryptedTable) -> None:
    with table.update_schema() as update:
        update.add_column("extra", StringType())
        update.rename_column("note", "remark")
        update.move_first("team")
    table.append(rows(300, 5).rename_columns(["id", "team", "remark"]))


def _drop(table: EncryptedTable) -> None:
    with table.update_schema() as update:
        update.delete_column("note")
    table.append(rows(300, 5).drop_columns(["note"]))


def _evolve_spec(table: EncryptedTable) -> None:
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(2), "id_bucket")
    table.append(rows(300, 5))


def _head(table: EncryptedTable) -> int:
    head = table.current_snapshot()
    assert head is not None
    return head.snapshot_id


def _branch(table: EncryptedTable) -> None:
    table.manage_snapshots().create_branch(_head(table), "side").commit()
    table.append(rows(400, 3), branch="side")


def _tag(table: EncryptedTable) -> None:
    table.manage_snapshots().create_tag(_head(table), "before").commit()
    table.append(rows(400, 3))


def _expire(table: EncryptedTable) -> None:
    head = _head(table)
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots() if each.snapshot_id != head]).commit()


def _rotate(table: EncryptedTable) -> None:
    maintenance.rotate_kek(table)
    table.append(rows(400, 3))


def _overwrite(table: EncryptedTable) -> None:
    table.overwrite(rows(50, 3), overwrite_filter="id < 6")


def _upsert(table: EncryptedTable) -> None:
    table.upsert(pa.concat_tables([rows(3, 4), rows(700, 2)]), join_cols=["id"])


class _OneByOne:
    """In one thread, so that files take the same bytes of randomness each time."""

    def run(self, table: EncryptedTable, function: Any, works: Sequence[Any]) -> Iterator[Any]:
        for number, each in enumerate(works):
            yield number, function(table.io, each.work, each.keys)


HIERARCHY: Final = "Iceberg table spec, Encryption; key hierarchy, KEK and manifest list keys"
SNAPSHOTS: Final = "Iceberg table spec, Snapshots: key-id"
AGS1: Final = "Iceberg AES GCM Stream file format"
DELETES: Final = "Iceberg table spec, Delete formats; data_file.key_metadata of delete files"
PARTITIONS: Final = "Iceberg table spec, Partitioning; manifests in AGS1"
EVOLUTION: Final = "Iceberg table spec, Schema evolution; Parquet columns by field id in encrypted files"
RECIPES: Final = [
    Recipe("appends", HIERARCHY),
    Recipe("no-snapshot", HIERARCHY, appends=0, key_lengths=(16,)),
    Recipe("all-rows-deleted", HIERARCHY, lambda table: table.delete("id >= 0"), key_lengths=(16,)),
    Recipe("copy-on-write-delete", HIERARCHY, lambda table: table.delete("id = 3")),
    Recipe("overwrite", HIERARCHY, _overwrite, key_lengths=(16,)),
    Recipe("upsert", HIERARCHY, _upsert, key_lengths=(16,)),
    Recipe("types", HIERARCHY, schema=TYPES),
    Recipe("nested", HIERARCHY, schema=NESTED),
    Recipe(
        "row-groups",
        "Parquet Modular Encryption, 4.4 AAD: row group ordinals",
        properties={"write.parquet.row-group-limit": "4"},
        key_lengths=(16,),
    ),
    Recipe("pages", "Parquet Modular Encryption, 4.4 AAD: page ordinals", properties={"write.parquet.page-row-limit": "3"}),
    Recipe("uncompressed", "Parquet Modular Encryption", properties={"write.parquet.compression-codec": "uncompressed"}, key_lengths=(16,)),
    Recipe(
        "uncompressed-required-columns",
        "Parquet Modular Encryption",
        schema=REQUIRED,
        properties={"write.parquet.compression-codec": "uncompressed"},
        key_lengths=(16,),
    ),
    Recipe("identity-partitions", PARTITIONS, spec=BY_TEAM),
    Recipe("bucket-partitions", PARTITIONS, spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))),
    Recipe(
        "truncate-partitions",
        PARTITIONS,
        spec=PartitionSpec(PartitionField(1, 1000, TruncateTransform(100), "id_hundred")),
        key_lengths=(16,),
    ),
    Recipe("day-partitions", PARTITIONS, schema=TYPES, spec=PartitionSpec(PartitionField(7, 1000, DayTransform(), "moment_day"))),
    Recipe("evolved-partitions", PARTITIONS, _evolve_spec, spec=BY_TEAM, key_lengths=(16,)),
    Recipe("evolved-schema", EVOLUTION, _evolve),
    Recipe("dropped-column", EVOLUTION, _drop, key_lengths=(16,)),
    Recipe("branch", SNAPSHOTS, _branch, read=lambda table: {"ref": "side"}),
    Recipe("main-beside-a-branch", SNAPSHOTS, _branch, key_lengths=(16,)),
    Recipe("tag", SNAPSHOTS, _tag, read=lambda table: {"ref": "before"}),
    Recipe("older-snapshot", SNAPSHOTS, read=lambda table: {"snapshot_id": table.snapshots()[0].snapshot_id}, key_lengths=(16,)),
    Recipe("expired", SNAPSHOTS, _expire),
    Recipe("rotated", HIERARCHY, _rotate),
    Recipe("rewrapped", HIERARCHY, maintenance.rewrap),
    Recipe("reencrypted", HIERARCHY, lambda table: maintenance.reencrypt(table, runner=_OneByOne())),
    Recipe("deletion-vectors", DELETES, lambda table: table.delete("id = 3 or id = 101"), properties=MERGE_ON_READ),
    Recipe("position-deletes", DELETES, _position_deletes),
    Recipe("equality-deletes", DELETES, _equality_deletes),
    Recipe("avro-data", AGS1, _avro_data),
]


def kit_catalog(kit: Path) -> Catalog:
    catalog = EncryptedInMemoryCatalog("kit", **properties(kit))
    catalog.create_namespace_if_not_exists("db")
    return catalog


def build_table(kit: Path, catalog: Catalog, case: str, recipe: Recipe, key_length: int) -> EncryptedTable:
    """Write the table of a case into the folder of that name."""
    FIXED.begin(case)
    creation = {"encryption.key-id": KEY_ID, "encryption.data-key-length": str(key_length), **recipe.properties}
    location = f"file://{ROOT}/cases/{case}"
    table = encrypted_table(
        catalog.create_table(f"db.{case}", recipe.schema, location=location, partition_spec=recipe.spec, properties=creation)
    )
    for number in range(recipe.appends):
        table.append(rows(100 * number, schema=table.schema()))
    recipe.change(table)
    for journal in (kit / "cases" / case / "metadata").glob("tablecrypt-*"):
        shutil.rmtree(journal)
    return encrypted_table(table.refresh())


def read_state(table: EncryptedTable, state: dict[str, Any]) -> pa.Table:
    """The rows of what a case reads."""
    scan = table.scan(snapshot_id=state.get("snapshot_id"))
    return (scan.use_ref(state["ref"]) if "ref" in state else scan).to_arrow()


def listed_files(table: EncryptedTable, state: dict[str, Any]) -> dict[str, int]:
    """How many files the manifests of what a case reads list, and how many records in its data files, deleted ones among them."""
    snapshot = table.snapshot_by_name(state["ref"]) if "ref" in state else table.current_snapshot()
    snapshot_id = state.get("snapshot_id", snapshot and snapshot.snapshot_id)
    if snapshot_id is None:
        return {"files": 0, "records": 0}

    files = table.inspect.files(snapshot_id).select(["content", "record_count"]).to_pylist()
    return {"files": len(files), "records": sum(each["record_count"] for each in files if each["content"] == 0)}
