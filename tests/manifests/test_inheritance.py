"""What entries inherit from their manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus

from tablecrypt.errors import PlaintextRefusedError
from tablecrypt.manifests import EncryptedManifestFile
from tablecrypt.manifests.manifest_file import inherit
from tests.support.manifests import SNAPSHOT_ID, data_file, entry, local_io, write_manifest

ADDED, EXISTING, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED


def _manifest(**fields: Any) -> EncryptedManifestFile:
    defaults = {
        "manifest_path": "s3://bucket/metadata/m.avro",
        "partition_spec_id": 3,
        "content": ManifestContent.DATA,
        "sequence_number": 9,
        "added_snapshot_id": SNAPSHOT_ID,
        "first_row_id": 100,
    }
    return EncryptedManifestFile.from_args(**{**defaults, **fields})


def _inherit(entries: list[ManifestEntry], **fields: Any) -> list[ManifestEntry]:
    manifest = _manifest(**fields)
    inherit(entries, manifest, manifest.first_row_id)
    return entries


def _row_ids(entries: list[ManifestEntry]) -> list[int | None]:
    return [each.data_file[16] for each in entries]


def test_files_without_row_ids_follow_one_another_from_the_manifests_first() -> None:
    entries = [entry(record_count=10), entry(record_count=7), entry(record_count=1)]
    assert _row_ids(_inherit(entries)) == [100, 110, 117]


def test_a_file_that_has_a_row_id_keeps_it_and_takes_no_space() -> None:
    entries = [entry(record_count=10), entry(EXISTING, record_count=50, first_row_id=5), entry(record_count=1)]
    assert _row_ids(_inherit(entries)) == [100, 5, 110]


def test_an_existing_file_without_a_row_id_gets_one() -> None:
    entries = [entry(EXISTING, 1, 1, 1, record_count=10), entry(record_count=1)]
    assert _row_ids(_inherit(entries)) == [100, 110]


def test_a_deleted_file_neither_gets_a_row_id_nor_takes_space() -> None:
    entries = [entry(DELETED, 1, 1, 1, record_count=10), entry(DELETED, 1, 1, 1, first_row_id=4), entry(record_count=1)]
    assert _row_ids(_inherit(entries)) == [None, 4, 100]


def test_a_committed_manifest_without_a_first_row_id_has_files_without_row_ids() -> None:
    entries = [entry(first_row_id=7), entry(EXISTING, 1, 1, 1)]
    assert _row_ids(_inherit(entries, first_row_id=None)) == [None, None]


def test_a_manifest_not_yet_committed_keeps_the_row_ids_it_holds() -> None:
    entries = [entry(), entry(EXISTING, 1, 1, 1, first_row_id=7)]
    assert _row_ids(_inherit(entries, first_row_id=None, sequence_number=-1)) == [None, 7]


@given(st.lists(st.tuples(st.sampled_from(ManifestEntryStatus), st.integers(0, 1000), st.none() | st.integers(0, 50)), max_size=20))
def test_assigned_row_ids_are_disjoint_and_within_the_manifests_space(files: list[tuple[ManifestEntryStatus, int, int | None]]) -> None:
    entries = [entry(status, 1, 1, 1, record_count=count, first_row_id=first) for status, count, first in files]
    _inherit(entries)
    assigned = [
        (each.data_file[16], each.data_file.record_count)
        for each, (status, _, first) in zip(entries, files, strict=True)
        if status != DELETED and first is None
    ]
    expected = 100
    for first_row_id, count in assigned:
        assert first_row_id == expected
        expected += count
    assert expected - 100 <= sum(count for status, count, _ in files if status != DELETED)


def test_an_added_entry_inherits_the_sequence_numbers_and_the_snapshot() -> None:
    (added,) = _inherit([entry(ADDED, None, None, None)])
    assert (added.snapshot_id, added.sequence_number, added.file_sequence_number) == (SNAPSHOT_ID, 9, 9)


def test_an_added_entry_keeps_a_data_sequence_number_of_its_own() -> None:
    (added,) = _inherit([entry(ADDED, None, 4, None)])
    assert (added.sequence_number, added.file_sequence_number) == (4, 9)


@pytest.mark.parametrize("status", [EXISTING, DELETED])
def test_other_entries_inherit_no_sequence_number(status: ManifestEntryStatus) -> None:
    (other,) = _inherit([entry(status, 1, 2, None)])
    assert (other.snapshot_id, other.sequence_number, other.file_sequence_number) == (1, 2, None)


def test_sequence_number_zero_is_inherited_by_every_entry() -> None:
    (existing,) = _inherit([entry(EXISTING, 1, None, None)], sequence_number=0)
    assert (existing.sequence_number, existing.file_sequence_number) == (0, 0)


def test_the_spec_id_is_the_manifests() -> None:
    (added,) = _inherit([entry()])
    assert added.data_file.spec_id == 3


@pytest.mark.parametrize("status", [ADDED, EXISTING])
@pytest.mark.parametrize("key_metadata", [None, b""])
def test_a_live_file_without_key_metadata_is_refused_by_name(status: ManifestEntryStatus, key_metadata: bytes | None) -> None:
    plain = ManifestEntry(status, 1, 1, 1, data_file("s3://bucket/data/plain.parquet", key_metadata=key_metadata))
    with pytest.raises(PlaintextRefusedError, match=r"^s3://bucket/data/plain\.parquet: "):
        _inherit([plain])


def test_a_deleted_file_may_have_been_plaintext() -> None:
    (gone,) = _inherit([entry(DELETED, 1, 1, 1, key_metadata=None)])
    assert gone.data_file.key_metadata is None


def test_reading_applies_all_of_it(tmp_path: Path) -> None:
    row = write_manifest(
        local_io(),
        tmp_path / "m.avro",
        [entry(record_count=5), entry(DELETED, 1, 1, 1), entry(EXISTING, 1, 2, 2, record_count=6), entry(record_count=1)],
    )
    row.sequence_number, row.first_row_id = 9, 100
    read = row.fetch_manifest_entry(local_io())
    assert [each.status for each in read] == [ADDED, EXISTING, ADDED]
    assert [each.sequence_number for each in read] == [9, 2, 9]
    assert _row_ids(read) == [100, 105, 111]
    assert len(row.fetch_manifest_entry(local_io(), discard_deleted=False)) == 4


def test_delete_files_get_no_row_ids(tmp_path: Path) -> None:
    deletes = [entry(content=DataFileContent.POSITION_DELETES)]
    row = write_manifest(local_io(), tmp_path / "m.avro", deletes, content=ManifestContent.DELETES)
    row.sequence_number = 9
    assert _row_ids(row.fetch_manifest_entry(local_io())) == [None]
