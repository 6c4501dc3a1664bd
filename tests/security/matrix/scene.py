"""One encrypted table with a history, its catalog and its clients: made once, attacked in place, and put back after each attack.

    Scene.make(folder, aws)      the table db.orders, and db.other under the same master key, which stands for any neighbour
    scene.now, scene.earlier     the rows of the table, and of each state that it has been in or that a snapshot of it still holds
    scene.write, remove          files by location, as who can write storage does
    scene.point, execute         the catalog's database, as who can write the catalog does
    scene.restore()              files, database and pin file as they were

Everything that the table can have in metadata.json is there: two schemas, two partition specs, a default value, a sort order, a name
mapping, a branch, a tag, a deletion vector and a replaced KEK.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance import rotate_kek
from tablecrypt.maintenance.reachable import FileKind, ReachableFile, reachable_files
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile
from tests.security.matrix.saved import SavedFolder
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog, maintained_table, metadata_of, path_of, team_rows

NAME: Final = "db.orders"
OTHER: Final = "db.other"
DEFAULT: Final = "none"
"""Of the younger column."""
FORGED_IDS: Final = (9001, 9002)
FORGED: Final = f"{CANARY} nobody with the key wrote this"
Row = tuple[tuple[str, Any], ...]
Rows = tuple[Row, ...]


@dataclass(kw_only=True)
class Scene(SavedFolder):
    """The table, and all that an attack can reach."""

    aws: AwsServer
    catalog: SqlCatalog
    other_pointer: str
    now: Rows
    earlier: tuple[Rows, ...]
    foreign: Rows
    files: tuple[ReachableFile, ...]
    other_files: tuple[ReachableFile, ...]
    plaintext: Mapping[str, bytes]
    plain_rows: Rows
    """The rows of the plain table that somebody may put in the place of this one."""
    retired_kek: bytes

    @classmethod
    def make(cls, folder: Path, aws: AwsServer, default: str | None = DEFAULT) -> Scene:
        """Write the tables; without a default value and a name mapping for Spark's own reader, which takes neither."""
        catalog = encrypted_sql_catalog(folder, aws)
        table, retired_kek = _with_history(maintained_table(catalog, NAME, {"write.metadata.previous-versions-max": "100"}), default)
        other = maintained_table(catalog, OTHER)
        sides = _history_of_rows(default)
        scene = cls(
            folder=folder,
            aws=aws,
            catalog=catalog,
            pointer=table.metadata_location,
            other_pointer=other.metadata_location,
            now=sides[-1],
            earlier=((), *sides[:-1]),
            foreign=rows_of(other.scan().to_arrow()),
            files=_files(table),
            other_files=_files(other),
            plaintext={each.location: _opened(table, each) for each in _files(table)},
            plain_rows=_redacted(sides[-1]),
            retired_kek=retired_kek,
        )
        assert rows_of(table.scan().to_arrow()) == scene.now
        scene.at_rest = scene.state()
        return scene

    @property
    def forged_rows(self) -> Rows:
        """What a former key holder adds."""
        return ordered({"id": number, "team": "north", "note": FORGED, "extra": DEFAULT} for number in FORGED_IDS)

    def earlier_metadata(self) -> list[str]:
        """Where the metadata files of before lie, oldest first."""
        return [each["metadata-file"] for each in self.metadata["metadata-log"]]

    def remove(self, location: str) -> None:
        """Delete a file."""
        path_of(location).unlink()


def rows_of(table: pa.Table) -> Rows:
    """The rows of an Arrow table, in an order that depends on them alone."""
    return ordered(table.to_pylist())


def ordered(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """Rows in an order that depends on them alone."""
    return tuple(sorted((tuple(row.items()) for row in rows), key=repr))


def _redacted(rows: Rows) -> Rows:
    return ordered({**dict(row), "note": FORGED} for row in rows)


def forged(parquet: bytes) -> bytes:
    """A plain Parquet file with the forger's own text in it."""
    rows = pq.read_table(pa.BufferReader(parquet))
    note = rows.schema.get_field_index("note")
    sink = pa.BufferOutputStream()
    pq.write_table(rows.set_column(note, rows.schema.field(note), pa.array([FORGED] * rows.num_rows, rows.schema.field(note).type)), sink)
    return bytes(sink.getvalue().to_pybytes())


def _with_history(table: Table, default: str | None) -> tuple[Table, bytes]:
    """Go on with a table of two appends and a delete: a branch, a tag, a new KEK, a new schema, a new spec, and rows in them."""
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "side").create_tag(head.snapshot_id, "closed").commit()
    table.append(team_rows(200), branch="side")
    with table.update_schema() as schema:
        schema.add_column("extra", StringType(), default_value=default)
    with table.update_spec() as spec:
        spec.add_field("extra", IdentityTransform(), "extra")
    with table.update_sort_order() as order:
        order.asc("id", IdentityTransform())
    mapping = {"schema.name-mapping.default": create_mapping_from_schema(table.schema()).model_dump_json()} if default else {}
    table.transaction().set_properties({"comment": "orders", **mapping}).commit_transaction()
    (kek,) = [key for key in metadata_of(table).encryption_keys if key.is_kek]
    retired = table.io.manager.kms.unwrap_key(kek.wrapped_bytes(), MASTER_KEY)  # type: ignore[attr-defined]
    rotate_kek(table)
    table = table.refresh()
    table.append(team_rows(300).append_column("extra", pa.array(["new"] * 20)))
    return table.refresh(), retired


def _history_of_rows(default: str | None) -> list[Rows]:
    """The rows of every state: two appends, the delete, the branch, and what is now. A column that is younger has its default."""
    first, second, side, last = (team_rows(each).to_pylist() for each in (0, 100, 200, 300))
    left = [row for row in [*first, *second] if row["id"] != 3]
    states = [first, [*first, *second], left, [*left, *side]]
    defaulted = [ordered({**row, "extra": default} for row in state) for state in states]
    now = ordered([*({**row, "extra": default} for row in left), *({**row, "extra": "new"} for row in last)])
    return [*(ordered(state) for state in states), *defaulted, now]


def _files(table: Table) -> tuple[ReachableFile, ...]:
    return tuple(reachable_files(table.metadata, table.io).files.values())


def _opened(table: Table, file: ReachableFile) -> bytes:
    """A file's plaintext: what lies in it, or, for Parquet, the same rows in a plain file."""
    io = cast("EncryptingFileIO", table.io)
    assert file.key is not None
    if file.kind != FileKind.DATA:
        with io.decrypting_input(file.location, file.key).open() as stream:
            return bytes(stream.read())
    with io.raw_input(file.location).open() as source:
        opened = UniformParquetFile(source, file.key, file.location)
        rows = pa.Table.from_batches(list(opened.batches(ReadRequest(opened.schema.names))), schema=opened.schema)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue().to_pybytes())
