"""Manifest lists and manifests that a process keeps decoded: who finds one, how many there are, and what is checked before it is used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import PartitionFieldSummary

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    FormatError,
    PlaintextRefusedError,
    TablecryptError,
    TamperedFileError,
)
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests import EncryptedManifestFile, ManifestList
from tablecrypt.manifests.entries import BATCH_BYTES, CACHE, ManifestColumns, known_manifest_list, read_in_columns
from tablecrypt.manifests.manifest_file import PARTITIONS
from tablecrypt.manifests.table_state import StatedLayout
from tests.support.forking import holds_in_forked_child
from tests.support.manifests import SCHEMA, UNPARTITIONED, entry, local_io, new_key, write_manifest, write_manifest_list
from tests.support.tables import flip

LIMIT = "io.manifest.cache.max-total-bytes"


@pytest.fixture(autouse=True)
def _empty() -> None:
    CACHE.clear()


def _manifest(folder: Path, name: str = "m.avro", files: int = 3) -> EncryptedManifestFile:
    row = write_manifest(local_io(), folder / name, [entry(path=f"s3://b/{number}") for number in range(files)])
    row.sequence_number = 1
    return row


def _paths(io: EncryptingFileIO, *manifests: EncryptedManifestFile, batch_bytes: int = BATCH_BYTES) -> list[str]:
    return [entries.file(row).file_path for entries in read_in_columns(io, manifests, batch_bytes) for row in range(len(entries))]


def test_a_manifest_that_is_kept_is_not_read_again(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path)
    first = _paths(local_io(), manifest)
    Path(manifest.manifest_path).unlink()
    assert _paths(local_io(), manifest) == first == ["s3://b/0", "s3://b/1", "s3://b/2"]


def test_a_change_of_a_files_object_does_not_reach_the_next_reader(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path)
    (entries,) = read_in_columns(local_io(), [manifest])
    entries.file(0)[1] = "s3://b/elsewhere"
    assert _paths(local_io(), manifest)[0] == "s3://b/0"


def test_what_a_manifest_inherits_is_that_of_the_list_that_names_it_now(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path)
    for number, first in ((4, 100), (7, 500)):
        manifest.sequence_number, manifest.first_row_id = number, first
        (entries,) = read_in_columns(local_io(), [manifest])
        assert (entries.entry(0).sequence_number, entries.file(1).first_row_id) == (number, first + 10)


def test_nobody_finds_a_manifest_without_its_own_key(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path)
    _paths(local_io(), manifest)
    length = manifest.open_key_metadata().file_length
    assert length is not None
    with pytest.raises(AuthenticationError):
        _paths(local_io(), manifest.with_key_metadata(new_key().with_file_length(length)))
    without = EncryptedManifestFile.of(manifest)
    without[14] = None
    with pytest.raises(PlaintextRefusedError):
        _paths(local_io(), without)


def test_a_manifest_that_is_kept_is_held_against_each_new_metadata(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path)
    _paths(local_io(), manifest.stated_by(StatedLayout([SCHEMA], SCHEMA.schema_id, [UNPARTITIONED])))
    with pytest.raises(TamperedFileError, match="partition spec 0"):
        _paths(local_io(), manifest.stated_by(StatedLayout([SCHEMA], SCHEMA.schema_id, [])))


def test_a_manifest_that_is_refused_is_not_kept(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path)
    stored = Path(manifest.manifest_path)
    flip(stored, -1)
    for _ in range(2):
        with pytest.raises(TablecryptError, match=f"^{stored}"):
            _paths(local_io(), manifest)
    assert CACHE.size == 0


def test_no_more_is_kept_than_the_property_allows(tmp_path: Path) -> None:
    manifests = [_manifest(tmp_path, f"{number}.avro", 20) for number in range(6)]
    _paths(local_io(), manifests[0])
    limit = 3 * CACHE.size + 10
    io = EncryptingFileIO(PyArrowFileIO({LIMIT: str(limit)}))
    for manifest in manifests:
        _paths(io, manifest)
        assert 0 < CACHE.size <= limit
    Path(manifests[0].manifest_path).unlink()
    with pytest.raises(FileNotFoundError):
        _paths(io, manifests[0])
    for manifest in manifests[4:]:
        Path(manifest.manifest_path).unlink()
        _paths(io, manifest)


def test_zero_keeps_nothing_and_uses_nothing_that_is_kept(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path)
    nothing = EncryptingFileIO(PyArrowFileIO({LIMIT: "0"}))
    _paths(nothing, manifest)
    assert CACHE.size == 0
    _paths(local_io(), manifest)
    Path(manifest.manifest_path).unlink()
    with pytest.raises(FileNotFoundError):
        _paths(nothing, manifest)


def test_a_size_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=LIMIT):
        _paths(EncryptingFileIO(PyArrowFileIO({LIMIT: "much"})), _manifest(tmp_path))


def test_manifests_beyond_what_is_read_together_come_in_their_order(tmp_path: Path) -> None:
    manifests = [_manifest(tmp_path, f"{number}.avro", number) for number in range(1, 5)]
    assert _paths(local_io(), *manifests, batch_bytes=1) == [f"s3://b/{at}" for number in range(1, 5) for at in range(number)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked on POSIX")
def test_a_forked_child_starts_with_none(tmp_path: Path) -> None:
    _paths(local_io(), _manifest(tmp_path))
    assert CACHE.size > 0
    assert holds_in_forked_child(lambda: CACHE.size == 0)
    assert CACHE.size > 0


def test_a_manifest_that_is_too_large_to_keep_pushes_no_other_out(tmp_path: Path) -> None:
    small, large = _manifest(tmp_path), _manifest(tmp_path, "large.avro", 200)
    _paths(local_io(), small)
    kept = CACHE.size
    _paths(EncryptingFileIO(PyArrowFileIO({LIMIT: str(kept + 1)})), large)
    assert CACHE.size == kept
    Path(small.manifest_path).unlink()
    _paths(local_io(), small)


def _list(folder: Path, *names: str) -> tuple[str, StandardKeyMetadata]:
    """Write a list of manifests of these names, each with a summary of a partition; return where, and its key."""
    location = folder / "snap.avro"
    manifests = [_manifest(folder, name) for name in names or ("m.avro",)]
    for row in manifests:
        row[PARTITIONS] = [PartitionFieldSummary(False, False, b"a", b"z")]
    return str(location), write_manifest_list(local_io(), location, manifests)


def _names(listed: ManifestList) -> list[str]:
    return [Path(row.manifest_path).name for row in listed.manifests]


def test_a_list_that_is_kept_is_not_read_again(tmp_path: Path) -> None:
    location, key = _list(tmp_path, "1.avro", "2.avro")
    first = known_manifest_list(local_io(), location, key)
    Path(location).unlink()
    again = known_manifest_list(local_io(), location, key)
    assert _names(first) == ["1.avro", "2.avro"]
    assert (again.header, [row.values() for row in again.manifests]) == (first.header, [row.values() for row in first.manifests])


def test_nobody_finds_a_list_without_its_own_key(tmp_path: Path) -> None:
    location, key = _list(tmp_path)
    known_manifest_list(local_io(), location, key)
    other = StandardKeyMetadata(new_key().encryption_key, key.aad_prefix, key.file_length)
    with pytest.raises(AuthenticationError):
        known_manifest_list(local_io(), location, other)
    elsewhere = StandardKeyMetadata(key.encryption_key, new_key().aad_prefix, key.file_length)
    with pytest.raises(AuthenticationError):
        known_manifest_list(local_io(), location, elsewhere)


def test_a_list_under_another_key_in_the_place_of_one_that_is_kept_is_read(tmp_path: Path) -> None:
    location, key = _list(tmp_path, "old.avro")
    known_manifest_list(local_io(), location, key)
    Path(location).unlink()
    _, rewritten = _list(tmp_path, "new.avro")
    assert _names(known_manifest_list(local_io(), location, rewritten)) == ["new.avro"]
    assert _names(known_manifest_list(local_io(), location, key)) == ["old.avro"]


def test_a_change_of_a_row_does_not_reach_the_next_reader(tmp_path: Path) -> None:
    location, key = _list(tmp_path)
    for _ in range(2):
        (row,) = known_manifest_list(local_io(), location, key).manifests
        assert (row.sequence_number, row.partitions) == (1, [PartitionFieldSummary(False, False, b"a", b"z")])
        row.sequence_number = 9
        row[PARTITIONS][0][0] = True
        row[PARTITIONS].append(PartitionFieldSummary(True, True, None, None))
        row.stated_by(StatedLayout([SCHEMA], SCHEMA.schema_id, []))
    (row,) = known_manifest_list(local_io(), location, key).manifests
    # It was not given what another reader's table states, which has no such partition spec.
    assert _paths(local_io(), row)


def test_a_list_that_is_refused_is_not_kept(tmp_path: Path) -> None:
    location, key = _list(tmp_path)
    flip(Path(location), -1)
    for _ in range(2):
        with pytest.raises(TamperedFileError, match=f"^{location}"):
            known_manifest_list(local_io(), location, key)
    assert CACHE.size == 0


def test_lists_and_manifests_share_one_bound(tmp_path: Path) -> None:
    location, key = _list(tmp_path)
    (row,) = known_manifest_list(local_io(), location, key).manifests
    of_list = CACHE.size
    _paths(local_io(), row)
    of_manifest = CACHE.size - of_list
    assert of_list > 0
    assert of_manifest > 0
    CACHE.clear()
    io = EncryptingFileIO(PyArrowFileIO({LIMIT: str(max(of_list, of_manifest))}))
    known_manifest_list(io, location, key)
    _paths(io, row)
    assert CACHE.size == of_manifest
    Path(location).unlink()
    with pytest.raises(FileNotFoundError):
        known_manifest_list(io, location, key)


def test_with_zero_no_list_is_kept_or_used(tmp_path: Path) -> None:
    location, key = _list(tmp_path)
    nothing = EncryptingFileIO(PyArrowFileIO({LIMIT: "0"}))
    known_manifest_list(nothing, location, key)
    assert CACHE.size == 0
    known_manifest_list(local_io(), location, key)
    Path(location).unlink()
    with pytest.raises(FileNotFoundError):
        known_manifest_list(nothing, location, key)


def test_a_manifest_is_never_found_as_a_list(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path)
    _paths(local_io(), manifest)
    key = bytes(manifest.key_metadata or b"")
    assert CACHE.get(ManifestColumns, manifest.manifest_path, key) is not None
    assert CACHE.get(ManifestList, manifest.manifest_path, key) is None
    with pytest.raises(FormatError, match=r"m\.avro"):
        known_manifest_list(local_io(), manifest.manifest_path, manifest.open_key_metadata())
