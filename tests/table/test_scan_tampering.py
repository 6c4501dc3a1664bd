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
from tablecrypt.maintenance import FindingKind, audit, compact, reencrypt, verify
from tablecrypt.manifests import EncryptedDataFile
from tablecrypt.table.reader import TaskReader
from tablecrypt.table.table import EncryptedTable
from tests.support.mutations import flipped
from tests.support.plaintext import CANARY
from tests.support.tables import data_paths, memory_catalog, new_table, path_of
from tests.support.uniform_files import downgraded

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
    rows = pa.table({"id": pa.array(range(20), pa.int64()), "text": pa.array([CANARY] * 20, pa.string())})
    catalog, properties = memory_catalog(unwatched_warehouse), {"write.parquet.row-group-limit": "7"}
    return new_table(catalog, appends=[rows, rows], properties=properties)


def overwritten(content: bytes, at: int, replacement: bytes) -> bytes:
    return content[:at] + replacement + content[at + len(replacement) :]


ATTACKS: dict[str, tuple[Callable[[bytes], bytes], type[TablecryptError]]] = {
    "a byte of the first page": (lambda data: flipped(data, 60), TamperedFileError),
    "a byte of the footer": (lambda data: flipped(data, -60), TamperedFileError),
    "cut": (lambda data: data[:-100], TamperedFileError),
    "emptied": (lambda data: b"", TamperedFileError),
    "said to be AES_GCM_CTR_V1": (downgraded, TamperedFileError),
    "lengthened": (lambda data: data + b"\0", TamperedFileError),
    "a plaintext head": (lambda data: overwritten(data, 0, b"PAR1"), TamperedFileError),
    "a plaintext tail": (lambda data: overwritten(data, len(data) - 4, b"PAR1"), TamperedFileError),
}


@pytest.mark.parametrize("way", [*WAYS, lambda table: compact(table, min_input_files=2), reencrypt])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_changed_data_file_fails_every_read(table: EncryptedTable, attack: str, way: Callable[[EncryptedTable], Any]) -> None:
    change, error = ATTACKS[attack]
    target = data_paths(table)[0]
    target.write_bytes(change(target.read_bytes()))
    snapshots = len(table.snapshots())
    with pytest.raises(error) as refused:
        way(table)
    assert cast("TamperedFileError", refused.value).location.endswith(target.name)
    assert len(table.refresh().snapshots()) == snapshots


@pytest.mark.parametrize("quick", [False, True])
def test_a_file_that_says_another_algorithm_is_named_by_those_who_look_at_storage(table: EncryptedTable, quick: bool) -> None:
    target = data_paths(table)[0]
    assert verify(table, quick=quick).is_good
    target.write_bytes(downgraded(target.read_bytes()))
    (bad,) = verify(table, quick=quick).bad
    (finding,) = [each for each in audit(table).findings if each.kind == FindingKind.WRONG_FOOTER]
    assert path_of(bad.location) == path_of(finding.where) == target
    assert "AES_GCM_CTR_V1" in bad.problems[0].message
    assert "AES_GCM_CTR_V1" in finding.message


@pytest.mark.parametrize("way", WAYS)
def test_two_files_swapped_fail_every_read(table: EncryptedTable, way: Callable[[EncryptedTable], Any]) -> None:
    one, two = data_paths(table)
    shutil.move(one, one.with_suffix(".kept"))
    shutil.move(two, one)
    shutil.move(one.with_suffix(".kept"), two)
    with pytest.raises(TamperedFileError):
        way(table)


@pytest.mark.parametrize("way", WAYS)
def test_a_plaintext_file_of_the_same_length_fails_every_read(table: EncryptedTable, way: Callable[[EncryptedTable], Any]) -> None:
    target = data_paths(table)[0]
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


def test_the_batch_reader_fails_before_rows_of_a_changed_first_file(table: EncryptedTable) -> None:
    target = data_paths(table)[0]
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
