"""Manifests and manifest lists that someone with access to the storage, and not to the keys, has changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent

from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, PlaintextRefusedError, TablecryptError
from tablecrypt.manifests import EncryptedManifestFile, read_manifest_list
from tests.support.golden import GOLDEN, GoldenTable
from tests.support.manifests import decrypt_file, encrypt_file, entry, local_io, write_manifest, write_manifest_list
from tests.support.mutations import flipped


@pytest.fixture
def golden(tmp_path: Path) -> GoldenTable:
    """A copy of a golden table that may be tampered with."""
    shutil.copytree(GOLDEN / "s3", tmp_path / "s3", copy_function=shutil.copyfile)
    for folder in (tmp_path / "s3").rglob("*"):
        folder.chmod(0o755 if folder.is_dir() else 0o644)
    return GoldenTable("orders", tmp_path / "s3")


def _newest_manifests(table: GoldenTable) -> list[EncryptedManifestFile]:
    snapshot = table.snapshots[-1]
    return read_manifest_list(table.io, snapshot["manifest-list"], table.manifest_list_key(snapshot)).manifests


def _refused(manifest: EncryptedManifestFile, io: FileIO, error: type[TablecryptError] = AuthenticationError) -> None:
    with pytest.raises(error) as caught:
        manifest.fetch_manifest_entry(io)
    assert manifest.manifest_path in str(caught.value)


def test_two_manifests_of_one_table_cannot_be_swapped(golden: GoldenTable) -> None:
    first, second = _newest_manifests(golden)
    paths = [golden.file_io.path(manifest.manifest_path) for manifest in (first, second)]
    contents = [path.read_bytes() for path in paths]
    paths[0].write_bytes(contents[1])
    paths[1].write_bytes(contents[0])
    _refused(first, golden.io)
    _refused(second, golden.io)


def test_manifests_of_equal_length_cannot_be_swapped(tmp_path: Path) -> None:
    rows = [write_manifest(local_io(), tmp_path / f"{n}.avro", [entry(path=f"s3://bucket/{n}")], compression="null") for n in (1, 2)]
    assert rows[0].manifest_length == rows[1].manifest_length
    shutil.copyfile(tmp_path / "2.avro", tmp_path / "1.avro")
    _refused(rows[0], local_io())


def test_an_older_manifest_list_does_not_pass_for_the_newest(golden: GoldenTable) -> None:
    older, newest = golden.snapshots[0], golden.snapshots[-1]
    shutil.copyfile(golden.file_io.path(older["manifest-list"]), golden.file_io.path(newest["manifest-list"]))
    with pytest.raises(AuthenticationError, match=newest["manifest-list"]):
        read_manifest_list(golden.io, newest["manifest-list"], golden.manifest_list_key(newest))


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_golden_manifest_cut_anywhere_is_refused(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    manifest, stored, location = _local_copy(tmp_path_factory)
    location.write_bytes(stored[: data.draw(st.integers(0, len(stored) - 1))])
    _refused(manifest, local_io())


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_golden_manifest_with_any_bit_flipped_is_refused(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    manifest, stored, location = _local_copy(tmp_path_factory)
    changed = flipped(stored, data.draw(st.integers(0, len(stored) - 1)), data.draw(st.integers(0, 7)))
    location.write_bytes(changed)
    _refused(manifest, local_io(), TablecryptError)


def test_bytes_added_to_a_manifest_are_refused(tmp_path: Path) -> None:
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry()])
    with (tmp_path / "m.avro").open("ab") as file:
        file.write(b"\x00")
    _refused(row, local_io())


def test_a_plaintext_manifest_in_the_place_of_an_encrypted_one_is_refused(tmp_path: Path) -> None:
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry()])
    (tmp_path / "m.avro").write_bytes(decrypt_file(local_io(), row.manifest_path, row.open_key_metadata()))
    with pytest.raises((PlaintextRefusedError, AuthenticationError), match=r"m\.avro"):
        row.fetch_manifest_entry(local_io())


@pytest.mark.parametrize("key_metadata", [None, b""])
def test_a_manifest_without_key_metadata_is_refused_whatever_the_file_holds(tmp_path: Path, key_metadata: bytes | None) -> None:
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry()])
    row[14] = key_metadata
    _refused(row, local_io(), PlaintextRefusedError)


def test_a_manifest_with_unknown_key_metadata_is_refused(tmp_path: Path) -> None:
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry()])
    row[14] = b"\x02" + (row.key_metadata or b"")[1:]
    _refused(row, local_io(), FormatError)


def test_an_encrypted_manifest_is_not_read_through_a_plain_file_io(tmp_path: Path) -> None:
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry()])
    _refused(row, PyArrowFileIO(), ConfigurationError)


def test_a_manifest_of_deletes_is_not_read_as_one_of_data(tmp_path: Path) -> None:
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry()])
    row[3] = ManifestContent.DELETES
    _refused(row, local_io(), FormatError)


def test_a_manifest_list_under_another_key_is_refused(tmp_path: Path) -> None:
    row = write_manifest(local_io(), tmp_path / "m.avro", [entry()])
    write_manifest_list(local_io(), tmp_path / "a.avro", [row])
    other = write_manifest_list(local_io(), tmp_path / "b.avro", [row])
    with pytest.raises(AuthenticationError, match=r"a\.avro"):
        read_manifest_list(local_io(), str(tmp_path / "a.avro"), other)


def test_authentic_bytes_that_are_no_avro_file_are_a_format_error(tmp_path: Path) -> None:
    key_metadata = encrypt_file(local_io(), tmp_path / "m.avro", b"PAR1 is not Avro")
    with pytest.raises(FormatError, match=r"m\.avro"):
        read_manifest_list(local_io(), str(tmp_path / "m.avro"), key_metadata)


def _local_copy(factory: pytest.TempPathFactory) -> tuple[EncryptedManifestFile, bytes, Path]:
    """A golden manifest whose path is a local file, that file's proper bytes, and the file."""
    golden = GoldenTable("orders")
    manifest = _newest_manifests(golden)[0]
    location = factory.getbasetemp() / "copied-manifest.avro"
    stored = golden.file_io.path(manifest.manifest_path).read_bytes()
    manifest[0] = str(location)
    return manifest, stored, location
