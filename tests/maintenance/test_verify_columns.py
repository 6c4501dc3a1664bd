"""Verification of protected columns: what is authenticated with the right to their keys, and what is counted without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile

from tablecrypt import maintenance as m
from tablecrypt.crypto.secret import Secret
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet import FileKeys, thrift
from tablecrypt.parquet.layout import encrypted_layout
from tablecrypt.parquet.protected.hidden_columns import hidden_field_id
from tablecrypt.parquet.protected.protected_layout import ProtectedLayout
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.structs import ColumnChunk, ColumnCryptoMetaData, EncryptionWithColumnKey
from tablecrypt.parquet.thrift import Struct
from tablecrypt.table.protection.policy import column_keys
from tablecrypt.table.table import EncryptedTable
from tests.support.hidden_column_files import ProtectedFile
from tests.support.listeners import stopping
from tests.support.protected_tables import EMAIL, SSN, Clients, loaded, protected_table, write_only
from tests.support.tables import data_files, metadata_of, path_of
from tests.support.weakened_protection import without_any_protection

ROWS: Final = pa.table({"id": [1, 2, 3], "ssn": ["SSN-1", "SSN-2", "SSN-3"], "note": ["a", "b", "c"]})


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    return protected_table(both.payroll, appends=[ROWS, ROWS])


def _path(file: DataFile) -> Path:
    return path_of(file.file_path)


def _flip_a_byte_of_the_hidden_column(table: EncryptedTable, file: DataFile, field_id: int) -> None:
    key_metadata, path = key_metadata_of(file), _path(file)
    keys = column_keys(metadata_of(table), table.io)

    def hidden_key(path: tuple[str, ...], stored: bytes | None) -> Secret:
        field_id = cast("int", hidden_field_id(path[0]))
        return Secret(keys.unwrap(field_id, stored or b"", key_metadata.aad_prefix, schemas[field_id], 1))

    schemas = ProtectedLayout(source_of(path.read_bytes()), key_metadata).schemas
    layout = encrypted_layout(source_of(path.read_bytes()), FileKeys.of_table_file(key_metadata, hidden_key))
    (chunk,) = (chunk for chunk in layout.chunks() if hidden_field_id(chunk.path[0]) == field_id)
    stored = bytearray(path.read_bytes())
    stored[chunk.pages.start + chunk.pages.length // 2] ^= 1
    path.write_bytes(stored)


def test_with_the_right_hidden_columns_are_authenticated_and_without_it_they_are_counted(both: Clients, people: EncryptedTable) -> None:
    done, seen = m.verify(people), m.verify(loaded(both.analyst))
    assert done.is_good
    assert done.unchecked_columns == {}
    assert seen.is_good
    assert seen.unchecked_columns == {"ssn": 2, "person.email": 2}
    assert done.parts > seen.parts
    assert seen.to_json()["unchecked_columns"] == {"ssn": 2, "person.email": 2}


def test_hidden_columns_that_the_metadata_does_not_know_count_as_not_checked(both: Clients, people: EncryptedTable, tmp_path: Path) -> None:
    first, _ = data_files(people)
    _flip_a_byte_of_the_hidden_column(people, first, SSN)
    edited = without_any_protection(both.payroll)

    with pytest.raises(KeyboardInterrupt):
        m.verify(edited, resume_from=tmp_path / "state", workers=1, progress=stopping())
    seen = m.verify(edited, resume_from=tmp_path / "state")

    assert seen.is_good
    assert seen.unchecked_columns == {"ssn": 2, "person.email": 2}
    assert not seen.is_complete
    assert seen.verdict == "2 columns in 2 files were not authenticated; all else is intact"


def test_a_changed_byte_of_a_hidden_column_is_found_and_the_column_named(both: Clients, people: EncryptedTable) -> None:
    first, _ = data_files(people)
    _flip_a_byte_of_the_hidden_column(people, first, SSN)
    (bad,) = m.verify(people).bad
    assert bad.location == first.file_path
    assert f"__protected__.{SSN}" in bad.problems[0].message
    assert m.verify(loaded(both.analyst)).is_good, "the table's key says nothing about the column's bytes"


def test_key_metadata_of_another_file_is_found_though_the_footer_authenticates(people: EncryptedTable) -> None:
    """As somebody puts it there who has the table's key."""
    first, second = data_files(people)
    other = ProtectedFile.__new__(ProtectedFile)
    taken: dict[int, Any] = {}

    def take(_: Struct, chunks: list[list[Struct]]) -> None:
        taken.update(dict(enumerate(chunks[0])))

    def put(_: Struct, chunks: list[list[Struct]]) -> None:
        for at, chunk in enumerate(chunks[0]):
            crypto = chunk.struct(ColumnChunk.CRYPTO_METADATA)
            if ColumnCryptoMetaData.WITH_COLUMN_KEY in crypto:
                stored = taken[at].struct(ColumnChunk.CRYPTO_METADATA).struct(ColumnCryptoMetaData.WITH_COLUMN_KEY)
                own = crypto.struct(ColumnCryptoMetaData.WITH_COLUMN_KEY)
                own.set(EncryptionWithColumnKey.KEY_METADATA, thrift.BINARY, stored.binary(EncryptionWithColumnKey.KEY_METADATA))

    for file, change in ((second, take), (first, put)):
        other.stored, other.key_metadata = _path(file).read_bytes(), key_metadata_of(file)
        changed = other.changed(change)
    assert len(changed) == first.file_size_in_bytes, "its length does not tell"
    _path(first).write_bytes(changed)
    (bad,) = m.verify(people).bad
    assert bad.location == first.file_path
    assert {problem.part for problem in bad.problems} == {"protected columns"}


def test_a_shredded_column_is_counted_and_the_others_are_authenticated(people: EncryptedTable) -> None:
    m.shred_column(people, "ssn")
    done = m.verify(people.refresh())
    assert done.is_good
    assert done.unchecked_columns == {"ssn": 2}
    _flip_a_byte_of_the_hidden_column(people, data_files(people)[0], EMAIL)
    assert len(m.verify(people).bad) == 1


def test_a_quick_look_says_nothing_of_hidden_columns(both: Clients, people: EncryptedTable) -> None:
    assert m.verify(loaded(both.analyst), quick=True).unchecked_columns == {}


def test_a_file_that_is_gone_or_cut_off_is_a_finding_as_in_any_table(people: EncryptedTable) -> None:
    first, second = data_files(people)
    _path(first).unlink()
    _path(second).write_bytes(_path(second).read_bytes()[:-9])
    assert {bad.location for bad in m.verify(people).bad} == {first.file_path, second.file_path}


def test_whoever_continues_a_run_looks_at_hidden_columns_that_the_one_before_could_not(
    both: Clients, people: EncryptedTable, tmp_path: Path
) -> None:
    state, analyst = tmp_path / "state", loaded(both.analyst)

    with pytest.raises(KeyboardInterrupt):
        m.verify(analyst, resume_from=state, progress=stopping())
    done = m.verify(people, resume_from=state)
    assert done.resumed == done.files - 2
    assert done.unchecked_columns == {}


def test_the_verdict_counts_columns_and_files(both: Clients, people: EncryptedTable) -> None:
    assert m.verify(people).verdict == "every file is intact"
    seen = m.verify(loaded(both.analyst))
    assert (seen.unchecked_files, seen.to_json()["verdict"]) == (2, "2 columns in 2 files were not authenticated; all else is intact")
    assert m.verify(loaded(both.analyst), quick=True).verdict == "every head, length and footer is intact"
    path = _path(data_files(people)[0])
    path.write_bytes(path.read_bytes()[:-9])
    assert m.verify(loaded(both.analyst)).verdict == "1 file is bad; 2 columns in 1 file were not authenticated"


def test_one_of_two_column_keks_that_does_not_open_makes_a_bad_file(both: Clients, people: EncryptedTable) -> None:
    """Somebody changed one entry; that the other opens shows that it is not the master key."""
    write_only(both).load_table("db.people").append(ROWS)
    table = loaded(both.payroll)
    metadata = metadata_of(table)
    first, last = metadata.key_ring.column_keks
    forged = last.model_copy(update={"encrypted_key_metadata": first.encrypted_key_metadata[:-8] + "AAAAAAA="})
    kept = [entry for entry in metadata.encryption_keys if entry.key_id != last.key_id]
    table.metadata = metadata.model_copy(update={"encryption_keys": [*kept, forged]})

    (bad,) = m.verify(table).bad

    assert {problem.part for problem in bad.problems} == {"protected columns"}
    assert "'pii' is not the master key that wrapped column KEK" in bad.problems[0].message
