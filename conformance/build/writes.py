"""What a writer is asked to write, at each level. Of these cases the kit has rows and keys alone, no encrypted file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from conformance.build.described import expected, expected_once
from conformance.build.files import AGS1, KEY_LENGTHS, KEY_METADATA, LAYOUTS, PARQUET, file_rows, text_key
from conformance.build.fixed import FIXED
from conformance.build.tables import EVOLUTION, HIERARCHY, KEY_ID, PARTITIONS, TYPES, rows
from conformance.rows import digest, write_rows
from conformance.streams import BLOCK, KeyMetadata
from tests.support.plaintext import CANARY
from tests.support.tables import BY_TEAM, TEAM_SCHEMA

_LINE: Final = f"{CANARY} "
_MARKED: Final = {"markers": [CANARY]}
_SIZES: Final = (0, 1, BLOCK - 1, BLOCK, BLOCK + 1)
_WRITTEN_LAYOUTS: Final = {
    "footer-key", "no-aad-prefix", "stored-aad-prefix", "plaintext-footer", "column-keys", "plaintext-footer-column-keys", "ctr",
}  # fmt: skip
_MANY_ROWS: Final = 1_000_000
"""More than the file has."""
_NESTED: Final = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "list", ListType(5, StringType(), element_required=False)),
    NestedField(3, "map", MapType(6, StringType(), 7, LongType(), value_required=False)),
    NestedField(4, "person", StructType(NestedField(8, "email", StringType()), NestedField(9, "age", LongType()))),
)


@dataclass(frozen=True)
class TableWrite:
    """A table, and what is done to it after two appends."""

    name: str
    clause: str
    rows: pa.Table
    """Those that it has then."""
    schema: Schema = TEAM_SCHEMA
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    properties: dict[str, str] = field(default_factory=dict)
    steps: tuple[dict[str, Any], ...] = ()
    key_lengths: tuple[int, ...] = (16,)


def _two_appends(schema: Schema = TEAM_SCHEMA) -> pa.Table:
    return pa.concat_tables([rows(0, 6, schema), rows(100, 6, schema)])


def _without(table: pa.Table, *ids: int) -> pa.Table:
    return table.filter(pa.array([each not in ids for each in table["id"].to_pylist()]))


def _changed(number: int) -> pa.Table:
    """Rows with ids from a number on, whose notes are others."""
    given = rows(number, 2)
    return given.set_column(2, "note", pa.array([f"{CANARY} again {number}"] * 2, given["note"].type))


_BY_BUCKET: Final = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
_BY_DAY: Final = PartitionSpec(PartitionField(7, 1000, DayTransform(), "moment_day"))
_DELETE: Final[dict[str, Any]] = {"step": "delete", "column": "id", "values": [3, 101]}
_UPSERT: Final[dict[str, Any]] = {"step": "upsert", "column": "id", "rows": pa.concat_tables([_changed(2), _changed(700)])}
_MERGE_ON_READ: Final = {f"write.{each}.mode": "merge-on-read" for each in ("delete", "update", "merge")}
_UPSERTED: Final = pa.concat_tables([_without(_two_appends(), 2, 3), _UPSERT["rows"]])
_EVOLVED: Final = pa.concat_tables(
    [
        _two_appends().append_column("extra", pa.nulls(12, pa.string())).rename_columns(["id", "team", "remark", "extra"]),
        rows(300, 3).append_column("extra", pa.array([CANARY] * 3)).rename_columns(["id", "team", "remark", "extra"]),
    ],
    promote_options="permissive",
).drop_columns(["team"])

_TABLES: Final = [
    TableWrite("appends", HIERARCHY, _two_appends(), key_lengths=KEY_LENGTHS),
    TableWrite("types", HIERARCHY, _two_appends(TYPES), TYPES),
    TableWrite("nested", HIERARCHY, _two_appends(_NESTED), _NESTED),
    TableWrite("identity-partitions", PARTITIONS, _two_appends(), spec=BY_TEAM, key_lengths=KEY_LENGTHS),
    TableWrite("bucket-partitions", PARTITIONS, _two_appends(), spec=_BY_BUCKET),
    TableWrite("day-partitions", PARTITIONS, _two_appends(TYPES), TYPES, _BY_DAY),
    TableWrite("copy-on-write-delete", HIERARCHY, _without(_two_appends(), 3, 101), steps=(_DELETE,)),
    TableWrite(
        "merge-on-read-delete",
        "Iceberg table spec, Delete formats; deletion vectors",
        _without(_two_appends(), 3, 101),
        properties=_MERGE_ON_READ,
        steps=(_DELETE,),
        key_lengths=KEY_LENGTHS,
    ),
    TableWrite("copy-on-write-upsert", HIERARCHY, _UPSERTED, steps=(_UPSERT,)),
    TableWrite(
        "merge-on-read-upsert",
        "Iceberg table spec, Delete formats; deletion vectors beside new rows",
        _UPSERTED,
        properties=_MERGE_ON_READ,
        steps=(_UPSERT,),
    ),
    TableWrite(
        "evolved-schema",
        EVOLUTION,
        _EVOLVED,
        steps=(
            {"step": "add-column", "column": "extra", "type": "string"},
            {"step": "rename-column", "column": "note", "name": "remark"},
            {"step": "drop-column", "column": "team"},
            {"step": "append", "rows": _EVOLVED.slice(12)},
        ),
    ),
    TableWrite(
        "rotated",
        HIERARCHY,
        pa.concat_tables([_two_appends(), rows(400, 3)]),
        steps=({"step": "rotate"}, {"step": "append", "rows": rows(400, 3)}),
        key_lengths=KEY_LENGTHS,
    ),
]


def every_write(kit: Path) -> Iterator[dict[str, Any]]:
    """The cases, as the manifest has them. Writes their rows below `kit`."""
    yield from _key_metadata()
    yield from _streams()
    yield from _parquet(kit)
    for table in _TABLES:
        for length in table.key_lengths:
            yield _table(kit, table, length)


def _case(name: str, level: str, clause: str) -> dict[str, Any]:
    FIXED.begin(f"write-{name}")
    return {"id": f"write-{name}", "level": level, "kind": "write", "clause": clause}


def _key_metadata() -> Iterator[dict[str, Any]]:
    parts = {"whole": (b"conformance-aad!", 12345), "without-length": (b"conformance-aad!", None), "key-alone": (b"", None)}
    # Two, three and nine bytes of a number.
    lengths = {"one-megabyte": (b"conformance-aad!", BLOCK), "longest": (b"conformance-aad!", 2**63 - 1)}
    for length, (what, (prefix, file_length)) in product(KEY_LENGTHS, (parts | lengths).items()):
        case = _case(f"key-metadata-{what}-{length}", "key-metadata", KEY_METADATA)
        key = KeyMetadata(FIXED.randbytes(length), prefix or None, file_length)
        said = f"{key.key.hex()}|{prefix.hex()}|{file_length}".encode()
        given = {"key": key.key.hex(), "aad_prefix": prefix.hex(), "file_length": file_length}
        yield case | given | {"bytes": key.encode().hex(), "plaintext": digest(said)}


def _streams() -> Iterator[dict[str, Any]]:
    for length, size in product(KEY_LENGTHS, _SIZES):
        case = _case(f"ags1-{size}-{length}", "ags1", AGS1)
        given = {"key": FIXED.randbytes(length).hex(), "aad_prefix": FIXED.randbytes(16).hex()}
        source = {"source": f"cases/plaintext-{size}/plaintext", "made_of": {"repeated": _LINE, "first": size}}
        plaintext = (_LINE.encode() * (size // len(_LINE) + 1))[:size]
        yield case | given | source | {"plaintext": digest(plaintext)} | _MARKED


def _parquet(kit: Path) -> Iterator[dict[str, Any]]:
    layouts = [each for each in LAYOUTS if each.name in _WRITTEN_LAYOUTS]
    shapes = [(layout, layout.name, _MANY_ROWS, _MANY_ROWS) for layout in layouts]
    shapes += [(layouts[0], "many-pages", _MANY_ROWS, 7), (layouts[0], "many-row-groups", 15, _MANY_ROWS)]
    for length, (layout, name, group, page) in product(KEY_LENGTHS, shapes):
        case = _case(f"parquet-{name}-{length}", "parquet", f"{PARQUET}, {layout.clause}")
        given = {
            "footer_key": text_key(length).hex(),
            "column_keys": {column: text_key(length).hex() for column in layout.columns},
            "aad_prefix": layout.aad_prefix.hex(),
            "aad_prefix_is_stored": layout.store_aad_prefix,
            "algorithm": layout.algorithm,
            "plaintext_footer": layout.plaintext_footer,
            "row_group_rows": group,
            "page_rows": page,
            "columns": file_rows().column_names,
        }
        yield case | given | expected_once(kit, file_rows()) | _MARKED


def _table(kit: Path, table: TableWrite, length: int) -> dict[str, Any]:
    case = _case(f"{table.name}-{length}", "table", table.clause)
    first = [{"step": "append", "rows": rows(number, 6, table.schema)} for number in (0, 100)]
    steps = [_step(kit, table, number, step) for number, step in enumerate([*first, *table.steps])]
    given = {
        "schema": table.schema.model_dump(mode="json", by_alias=True),
        "partition_spec": table.spec.model_dump(mode="json", by_alias=True),
        "properties": {
            "encryption.key-id": KEY_ID,
            "encryption.data-key-length": str(length),
            # So that plaintext would be seen in a file that is not encrypted.
            "write.parquet.compression-codec": "uncompressed",
            **table.properties,
        },
        "key_file": "keys.json",
        "steps": steps,
    }
    return case | given | expected(kit, f"write-{table.name}", table.rows) | _MARKED


def _step(kit: Path, table: TableWrite, number: int, step: dict[str, Any]) -> dict[str, Any]:
    if "rows" not in step:
        return step
    path = kit / "cases" / f"write-{table.name}" / f"step-{number}.arrow"
    path.parent.mkdir(exist_ok=True)
    write_rows(step["rows"], path)
    return step | {"rows": str(path.relative_to(kit))}
