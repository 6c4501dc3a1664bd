"""One table with protected columns, three clients of it, and what each of them finds of the values.

    scene = People.make(folder)
    scene.clients       the right-holder (payroll), the analyst with the table's key alone, the clerk with another column's key too
    scene.rows          id, ssn and note of each row; ssn is under `pii`, salary under `fin`, and stored masks show three characters of ssn
    scene.leaks(…)      where somebody without the column's key finds a value of it

Nothing is compressed, so that a value which lies in the clear is found where it lies.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFileContent
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from tablecrypt.errors import TablecryptError
from tablecrypt.maintenance import rotate_column_keks
from tablecrypt.manifests import EncryptedManifestFile
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet import FileKeys
from tablecrypt.parquet.chunk_modules import decrypt_chunk
from tablecrypt.parquet.layout import encrypted_layout
from tablecrypt.parquet.storage import source_of
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.security.matrix.saved import SavedFolder
from tests.support.protected_tables import SSN, Clients, clients, loaded, protected_table
from tests.support.tables import path_of

NAME: Final = "db.people"
DECLARED: Final = "pii: ssn, person.email; fin: salary"
SECRET: Final = "SSN-CANARY"
"""Every value of ssn begins with it; the masks show three characters."""
NOTE_SECRET: Final = "NOTE-CANARY"
"""A note of a row that is written while somebody declares that column."""
OWN: Final = {"right-holder": "payroll", "table's key alone": "analyst", "another column's key": "clerk"}
DROPPED: Final = "(no such column)"
Value = tuple[str | None, str | None]
"""What a row has of ssn and note."""
Rows = Mapping[int, Value]
Read = tuple[tuple[object, object, object], ...]


@dataclass(kw_only=True)
class People(SavedFolder):
    """The table, and whoever uses it."""

    clients: Clients
    rows: Rows
    earlier: Sequence[Rows]
    """The rows of the states before, and of the branch."""

    @classmethod
    def make(cls, folder: Path) -> People:
        """Write the table: files of two specs, a deletion vector, a branch, a tag, a younger column, and column keys of two ages."""
        made = clients(folder)
        properties = {
            "encryption.column-keys": DECLARED,
            "encryption.column-mask.ssn": "truncate(3)",
            "write.parquet.compression-codec": "uncompressed",
            "write.metadata.previous-versions-max": "100",
            "comment": "people",
        }
        table = protected_table(made.payroll, NAME, **properties)
        states = _with_history(table)
        table = loaded(made.payroll)
        scene = cls(folder=folder, pointer=table.metadata_location, clients=made, rows=states[-1], earlier=states[:-1])
        assert read(table) == as_read(scene.rows)
        scene.at_rest = scene.state()
        return scene

    def client(self, name: str) -> EncryptedSqlCatalog:
        """The catalog of one of OWN."""
        return cast("EncryptedSqlCatalog", getattr(self.clients, OWN[name]))

    def load(self, client: str = "right-holder") -> EncryptedTable:
        """Load the table, as the catalog has it now."""
        return loaded(self.client(client))

    def write_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Commit edited metadata as the next version, past every client, as another engine does."""
        current = self.pointed(NAME)
        number, folder = int(path_of(current).name[:5]) + 1, current.rpartition("/")[0]
        location = f"{folder}/{number:05d}-{uuid.UUID(int=7)}.metadata.json"
        self.write(location, json.dumps(metadata).encode())
        self.point(location, NAME)

    def forget(self) -> None:
        """Have the catalog forget that it has ever seen the table."""
        self.execute("DELETE FROM tablecrypt_pins")

    def leaks(
        self, hidden: Iterable[str], readers: Iterable[str] = ("table's key alone", "another column's key"), is_whole: bool = False
    ) -> frozenset[str]:
        """Say where a hidden value is found without its column's key: in a stored file, under the table's key, or in a scan.

        Args:
            hidden: texts with which the values begin.
            readers: of OWN, who may not find them.
            is_whole: whether scans are of every snapshot, and not of the newest alone.
        """
        texts = [text.encode() for text in hidden]
        found = {f"{path.name} in storage" for path in self._paths() if _has(path.read_bytes(), texts)}
        found |= {where for where, content in self._under_the_tables_key() if _has(content, texts)}
        return frozenset(found | {f"a scan with {reader}" for reader in readers if texts and _has(self._shown(reader, is_whole), texts)})

    def _shown(self, client: str, is_whole: bool) -> bytes:
        shown = b""
        for table in self._tables(client):
            snapshots = table.metadata.snapshots if is_whole else table.metadata.snapshots[-1:]
            for snapshot in snapshots:
                try:
                    shown += repr(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pydict()).encode()
                except (TablecryptError, OSError, ValueError):
                    # Who is refused sees nothing.
                    continue
        return shown

    def _tables(self, client: str) -> Iterator[EncryptedTable]:
        for name in self.client(client).list_tables("db"):
            try:
                yield loaded(self.client(client), name)
            except (TablecryptError, OSError, NoSuchTableError):
                continue

    def _under_the_tables_key(self) -> Iterator[tuple[str, bytes]]:
        for table in self._tables("table's key alone"):
            io = table.io
            seen = set[str]()
            for snapshot in table.metadata.snapshots:
                try:
                    for manifest in snapshot.manifests(io):
                        yield "a manifest list", repr(manifest).encode()
                        if manifest.manifest_path not in seen:
                            seen.add(manifest.manifest_path)
                            yield from _opened(EncryptedManifestFile.of(manifest), io)
                except (TablecryptError, OSError):
                    continue


def _has(content: bytes, texts: Iterable[bytes]) -> bool:
    return any(text in content for text in texts)


def _opened(manifest: EncryptedManifestFile, io: TableFileIO) -> Iterator[tuple[str, bytes]]:
    """What a holder of the table's key finds in a manifest and in its data files."""
    for entry in manifest.read(io).entries:
        file = entry.data_file
        yield "a manifest", repr(file).encode()
        if file.content != DataFileContent.DATA or not path_of(file.file_path).exists():
            continue
        key = key_metadata_of(file)
        layout = encrypted_layout(source_of(path_of(file.file_path).read_bytes()), FileKeys(key.encryption_key, aad_prefix=key.aad_prefix))
        yield "a footer", layout.metadata.encode()
        for chunk in layout.chunks():
            if not chunk.has_own_key:
                yield "a column under the table's key", bytes(decrypt_chunk(chunk))


def person(number: int, ssn: str, note: str) -> pa.Table:
    """A row."""
    return pa.table({"id": [number], "ssn": [ssn], "note": [note]})


def ssn(number: int) -> str:
    """The value of a row of the scene."""
    return f"{SECRET}-{number}"


def as_read(rows: Rows) -> Read:
    """Rows as `read` returns them."""
    return _sorted((number, *value) for number, value in rows.items())


def read(table: EncryptedTable, row_filter: str = "id >= 0") -> Read:
    """What a right-holder reads of the three columns, by field id: whatever their names are now."""
    found = table.scan(row_filter, masked="error").to_arrow() if table.schema().find_column_name(ID) == "id" else None
    if found is None:
        found = table.scan(masked="error").to_arrow()
    columns = []
    for field_id in (ID, SSN, NOTE):
        name = table.schema().find_column_name(field_id)
        columns.append([DROPPED] * found.num_rows if name is None else found[name].to_pylist())
    return _sorted(zip(*columns, strict=True))


def _sorted(rows: Iterable[tuple[object, ...]]) -> Read:
    return cast("Read", tuple(sorted(rows, key=repr)))


ID: Final = 1
NOTE: Final = 6
"""Its field id, as PyIceberg numbers the columns of PEOPLE_SCHEMA."""


def _with_history(table: EncryptedTable) -> list[Rows]:
    """Write the rows; return those of each state, the newest last."""
    _append(table, 1, 2, 5)
    table.delete("id = 5")
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "side").create_tag(head.snapshot_id, "closed").commit()
    _append(table, 6, branch="side")
    with table.update_spec() as spec:
        spec.add_field("id", IdentityTransform(), "id")
    with table.update_sort_order() as order:
        order.asc("id", IdentityTransform())
    rotate_column_keks(table)
    with table.refresh().update_schema() as schema:
        schema.add_column("extra", StringType(), default_value="none")
    _append(table, 3, 4)
    numbers = ((1, 2, 5), (1, 2), (1, 2, 6), (1, 2, 3, 4))
    return [{number: (ssn(number), f"note {number}") for number in state} for state in numbers]


def _append(table: EncryptedTable, *numbers: int, branch: str = "main") -> None:
    values = [{"id": number, "ssn": ssn(number), "salary": Decimal(number), "note": f"note {number}"} for number in numbers]
    table.append(pa.Table.from_pylist(values, schema=table.schema().as_arrow()), branch=branch)
