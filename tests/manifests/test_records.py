"""The records that carry keys: equality, copies, and that no key is shown or pickled."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile

from tablecrypt.manifests import EncryptedDataFile, EncryptedManifestFile
from tests.support.manifests import data_file, entry, local_io, new_key, write_manifest

Bearing = EncryptedDataFile | EncryptedManifestFile


@pytest.fixture(params=["data file", "manifest"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Bearing:
    return data_file() if request.param == "data file" else write_manifest(local_io(), tmp_path / "m.avro", [entry()])


def test_no_key_is_shown(record: Bearing) -> None:
    key_metadata = record.key_metadata
    assert key_metadata is not None
    for shown in (repr(record), str(record), f"{record}", repr([record])):
        assert repr(key_metadata)[2:-1] not in shown
        assert key_metadata.hex() not in shown


def test_an_entry_does_not_show_its_files_key() -> None:
    shown = repr(entry(key_metadata=b"secret key bytes"))
    assert "secret" not in shown
    assert "s3://bucket/data/a.parquet" in shown


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_key_is_pickled(record: Bearing, protocol: int) -> None:
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(record, protocol)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_equal_and_independent(record: Bearing, copied: object) -> None:
    assert callable(copied)
    clone = copied(record)
    assert type(clone) is type(record)
    assert clone.values() == record.values()
    clone[1] = "changed"
    assert record[1] != "changed"


def test_a_copied_data_file_keeps_its_spec_id() -> None:
    file = data_file()
    file.spec_id = 4
    assert copy.copy(file).spec_id == copy.deepcopy(file).spec_id == 4


def test_manifests_are_equal_by_path_also_to_pyicebergs(tmp_path: Path) -> None:
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry()])
    same_path = EncryptedManifestFile.from_args(manifest_path=row.manifest_path)
    plain = ManifestFile(row.manifest_path)
    assert row == same_path == plain
    assert plain == row
    assert len({row, same_path, plain}) == 1
    assert row != EncryptedManifestFile.from_args(manifest_path="other")
    assert row != row.manifest_path


def test_data_files_are_equal_by_path_also_to_pyicebergs() -> None:
    plain = DataFile(*data_file().values()[:16])
    assert data_file() == plain
    assert plain == data_file()
    assert len({data_file(), plain}) == 1
    assert data_file() != data_file("s3://bucket/other")


def test_two_deletion_vectors_in_one_file_are_two_files() -> None:
    vectors = [data_file("s3://b/v.puffin", content=DataFileContent.POSITION_DELETES, content_offset=offset) for offset in (4, 50)]
    assert len(set(vectors)) == 2
    assert len({ManifestEntry(ManifestEntryStatus.ADDED, 1, 1, 1, vector) for vector in vectors}) == 2


def test_a_data_file_of_version_2_gets_the_new_fields() -> None:
    plain = DataFile(*data_file().values()[:16])
    widened = EncryptedDataFile.of(plain)
    assert widened.values() == [*data_file(key_metadata=plain.key_metadata).values()]
    assert EncryptedDataFile.of(widened) is widened


def test_fields_of_version_3_have_names() -> None:
    file = data_file(first_row_id=1, referenced_data_file="a", content_offset=2, content_size_in_bytes=3)
    assert (file.first_row_id, file.referenced_data_file, file.content_offset, file.content_size_in_bytes) == (1, "a", 2, 3)


def test_key_metadata_without_a_length_is_not_put_into_a_row(tmp_path: Path) -> None:
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry()])
    with pytest.raises(ValueError, match="file_length"):
        row.with_key_metadata(new_key())
