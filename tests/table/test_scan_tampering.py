"""Attacks on the files of a table: every way to read it fails, naming the file, and gives no row that was not written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import FileFormat
from pyiceberg.table import ALWAYS_TRUE, FileScanTask

from tablecrypt.errors import FormatError, PlaintextRefusedError, TablecryptError, TamperedFileError
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.manifests import EncryptedDataFile
from tablecrypt.table.reader import TaskReader
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedInMemoryCatalog
from tests.support.plaintext import CANARY

KEYRING = {"encryption.kms-type": "memory", "kms.memory.name": "scans"}
WAYS: list[Callable[[EncryptedTable], Any]] = [
    lambda table: table.scan().to_arrow(),
    lambda table: table.scan("id >= 0").to_arrow(),
    lambda table: table.scan().to_arrow_batch_reader().read_all(),
    lambda table: table.scan(selected_fields=("id", "_row_id")).to_arrow(),
    lambda table: table.scan("id > 5").count(),
    lambda table: table.scan(limit=1000).to_arrow(),
    lambda table: table.delete("id = 15"),
]


@pytest.fixture
def table(unwatched_warehouse: Path) -> EncryptedTable:
    """Two files of twenty rows each."""
    MemoryKeyManagementClient(KEYRING).create_key("master", bytes(range(32)))
    catalog = EncryptedInMemoryCatalog("encrypted", warehouse=f"file://{unwatched_warehouse}", **KEYRING)
    catalog.create_namespace("db")
    rows = pa.table({"id": pa.array(range(20), pa.int64()), "text": pa.array([CANARY] * 20, pa.string())})
    table = catalog.create_table("db.t", rows.schema, properties={"encryption.key-id": "master", "write.parquet.row-group-limit": "7"})
    table.append(rows)
    table.append(rows)
    return cast("EncryptedTable", table)


def files_of(table: EncryptedTable) -> list[Path]:
    return [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]


def overwritten(content: bytes, at: int, replacement: bytes) -> bytes:
    return content[:at] + replacement + content[at + len(replacement) :]


ATTACKS: dict[str, tuple[Callable[[bytes], bytes], type[TablecryptError]]] = {
    "a byte of the first page": (lambda data: overwritten(data, 60, bytes([data[60] ^ 1])), TamperedFileError),
    "a byte of the footer": (lambda data: overwritten(data, len(data) - 60, bytes([data[-60] ^ 1])), TamperedFileError),
    "cut": (lambda data: data[:-100], TamperedFileError),
    "emptied": (lambda data: b"", TamperedFileError),
    "lengthened": (lambda data: data + b"\0", TamperedFileError),
    "a plaintext head": (lambda data: overwritten(data, 0, b"PAR1"), TamperedFileError),
    "a plaintext tail": (lambda data: overwritten(data, len(data) - 4, b"PAR1"), TamperedFileError),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_changed_data_file_fails_every_read(table: EncryptedTable, attack: str, way: Callable[[EncryptedTable], Any]) -> None:
    change, error = ATTACKS[attack]
    target = files_of(table)[0]
    target.write_bytes(change(target.read_bytes()))
    snapshots = len(table.snapshots())
    with pytest.raises(error) as refused:
        way(table)
    assert cast("TamperedFileError", refused.value).location.endswith(target.name)
    assert len(table.refresh().snapshots()) == snapshots


@pytest.mark.parametrize("way", WAYS)
def test_two_files_swapped_fail_every_read(table: EncryptedTable, way: Callable[[EncryptedTable], Any]) -> None:
    one, two = files_of(table)
    shutil.move(one, one.with_suffix(".kept"))
    shutil.move(two, one)
    shutil.move(one.with_suffix(".kept"), two)
    with pytest.raises(TamperedFileError):
        way(table)


@pytest.mark.parametrize("way", WAYS)
def test_a_plaintext_file_of_the_same_length_fails_every_read(table: EncryptedTable, way: Callable[[EncryptedTable], Any]) -> None:
    target = files_of(table)[0]
    length = target.stat().st_size
    for padding in range(length):
        sink = pa.BufferOutputStream()
        forged = pa.table({"id": pa.array(range(20), pa.int64()), "text": pa.array(["forged"] * 20, pa.string())})
        pq.write_table(forged.replace_schema_metadata({"padding": "x" * padding}), sink)
        if sink.tell() == length:
            break
    else:
        pytest.skip("no padding gives the length")
    target.write_bytes(sink.getvalue())
    with pytest.raises(PlaintextRefusedError) as refused:
        way(table)
    assert refused.value.location.endswith(target.name)


def test_a_missing_file_is_the_stores_error(table: EncryptedTable) -> None:
    files_of(table)[0].unlink()
    with pytest.raises(FileNotFoundError):
        table.scan().to_arrow()


def test_the_batch_reader_fails_before_rows_of_a_changed_first_file(table: EncryptedTable) -> None:
    target = files_of(table)[0]
    target.write_bytes(overwritten(target.read_bytes(), 0, b"PAR1"))
    reader = table.scan().to_arrow_batch_reader()
    with pytest.raises(TamperedFileError):
        reader.read_next_batch()


def read(table: EncryptedTable, file: EncryptedDataFile) -> None:
    list(TaskReader(table.metadata, cast("Any", table.io), table.schema(), ALWAYS_TRUE).batches(FileScanTask(file)))


def first_file(table: EncryptedTable) -> EncryptedDataFile:
    return EncryptedDataFile.of(next(iter(table.scan().plan_files())).file)


def test_a_file_without_key_metadata_is_refused(table: EncryptedTable) -> None:
    file = first_file(table)
    file[12] = None
    with pytest.raises(PlaintextRefusedError, match="key metadata"):
        read(table, file)


@pytest.mark.parametrize("key_metadata", [b"\x02", b"\x01", b"\x01\x20" + bytes(5), b"\xff" * 40])
def test_malformed_key_metadata_is_a_format_error_that_names_the_file(table: EncryptedTable, key_metadata: bytes) -> None:
    file = first_file(table)
    file[12] = key_metadata
    with pytest.raises(FormatError, match=file.file_path):
        read(table, file)


def test_an_orc_file_is_refused_and_named(table: EncryptedTable) -> None:
    file = first_file(table)
    file[2] = FileFormat.ORC
    with pytest.raises(FormatError, match=f"{file.file_path}: ORC"):
        read(table, file)
