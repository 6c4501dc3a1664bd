"""Manifest lists: the numbers that a commit gives to its manifests, and the strict reading of the header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestContent, ManifestFile, PartitionFieldSummary

from tablecrypt.errors import ConfigurationError, FormatError, PlaintextRefusedError
from tablecrypt.manifests import EncryptedManifestFile, ManifestList, ManifestListHeader, ManifestListWriterV3, read_manifest_list
from tablecrypt.manifests.manifest_list import PROTECTED_COLUMNS, SHARE_SECRET, protected_columns_header
from tests.support.manifests import (
    SNAPSHOT_ID,
    decrypt_file,
    encrypt_file,
    entry,
    file_of,
    local_io,
    new_key,
    write_manifest,
    write_manifest_list,
)


def row(path: str = "s3://bucket/metadata/m.avro", **fields: Any) -> EncryptedManifestFile:
    defaults = {
        "manifest_path": path,
        "manifest_length": 100,
        "partition_spec_id": 0,
        "content": ManifestContent.DATA,
        "sequence_number": UNASSIGNED_SEQ,
        "min_sequence_number": UNASSIGNED_SEQ,
        "added_snapshot_id": SNAPSHOT_ID,
        "added_files_count": 1,
        "existing_files_count": 1,
        "deleted_files_count": 0,
        "added_rows_count": 10,
        "existing_rows_count": 5,
        "deleted_rows_count": 0,
        "partitions": [],
        "key_metadata": new_key().with_file_length(100).encode(),
    }
    return EncryptedManifestFile.from_args(**{**defaults, **fields})


def _written(folder: Path, rows: list[EncryptedManifestFile], **numbers: Any) -> ManifestList:
    location = folder / "snap.avro"
    key_metadata = write_manifest_list(local_io(), location, rows, **numbers)
    return read_manifest_list(local_io(), str(location), key_metadata)


def test_a_list_is_read_as_it_was_written(tmp_path: Path) -> None:
    summaries = [PartitionFieldSummary(True, False, b"a", b"z"), PartitionFieldSummary(False, None, None, None)]
    rows = [
        row("s3://b/1.avro", sequence_number=3, min_sequence_number=2, added_snapshot_id=1, first_row_id=7, partitions=summaries),
        row("s3://b/2.avro", sequence_number=4, min_sequence_number=4, content=ManifestContent.DELETES, partitions=None),
    ]
    read = _written(tmp_path, rows, sequence_number=5, first_row_id=20, parent_snapshot_id=1)
    assert [each.values() for each in read.manifests] == [each.values() for each in rows]
    assert read.header == ManifestListHeader(SNAPSHOT_ID, 1, 5, 20, 3)


def test_a_snapshot_may_have_no_manifests(tmp_path: Path) -> None:
    assert _written(tmp_path, []).manifests == []


def test_new_manifests_get_the_commits_sequence_number(tmp_path: Path) -> None:
    rows = [row("a"), row("b", min_sequence_number=2), row("c", sequence_number=3, min_sequence_number=1, added_snapshot_id=1)]
    read = _written(tmp_path, rows, sequence_number=9)
    assert [(each.sequence_number, each.min_sequence_number) for each in read.manifests] == [(9, 9), (9, 2), (3, 1)]


@pytest.mark.parametrize("field", ["sequence_number", "min_sequence_number"])
def test_a_manifest_of_another_snapshot_must_have_its_sequence_number(tmp_path: Path, field: str) -> None:
    numbers: dict[str, Any] = {"sequence_number": 1, "min_sequence_number": 1, field: UNASSIGNED_SEQ}
    with pytest.raises(ConfigurationError, match="another snapshot"):
        _written(tmp_path, [row(added_snapshot_id=1, **numbers)])


def test_data_manifests_without_row_ids_get_space_for_added_and_existing_rows(tmp_path: Path) -> None:
    rows = [row("a"), row("b", first_row_id=3), row("c", content=ManifestContent.DELETES), row("d", existing_rows_count=0), row("e")]
    assert [each.first_row_id for each in _written(tmp_path, rows, first_row_id=100).manifests] == [100, 3, None, 115, 125]


def test_the_writer_tells_the_next_row_id(tmp_path: Path) -> None:
    output = local_io().encrypting_output(str(tmp_path / "snap.avro"), new_key())
    with ManifestListWriterV3(output, SNAPSHOT_ID, None, 1, 100, "gzip") as writer:
        assert writer.next_row_id == 100
        writer.add_manifests([row("a"), row("b", first_row_id=3), row("c", content=ManifestContent.DELETES)])
        assert writer.next_row_id == 115
    assert writer.complete


def test_a_row_id_on_a_delete_manifest_is_dropped(tmp_path: Path) -> None:
    assert _written(tmp_path, [row(content=ManifestContent.DELETES, first_row_id=3)]).manifests[0].first_row_id is None


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.none() | st.integers(0, 10), st.sampled_from(ManifestContent))))
def test_assigned_row_ids_never_overlap(manifests: list[tuple[int, int, int | None, ManifestContent]]) -> None:
    output = local_io().encrypting_output("unused", new_key())
    writer = ManifestListWriterV3(output, SNAPSHOT_ID, None, 1, 50, "gzip")
    expected = 50
    for added, existing, first_row_id, content in manifests:
        given_row = row(added_rows_count=added, existing_rows_count=existing, first_row_id=first_row_id, content=content)
        prepared = writer.prepare_manifest(given_row)
        if content == ManifestContent.DATA and first_row_id is None:
            assert prepared.first_row_id == expected
            expected += added + existing
        assert given_row.first_row_id == first_row_id
    assert writer.next_row_id == expected


def test_the_given_rows_are_left_as_they_were(tmp_path: Path) -> None:
    given_row = row()
    before = given_row.values()
    _written(tmp_path, [given_row], sequence_number=4, first_row_id=9)
    assert given_row.values() == before


def test_a_manifest_without_key_metadata_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(PlaintextRefusedError, match=r"^s3://bucket/metadata/m\.avro: "):
        _written(tmp_path, [row(key_metadata=None)])


def test_a_plain_manifest_of_pyiceberg_is_refused(tmp_path: Path) -> None:
    plain = ManifestFile(*row(key_metadata=None).values()[:15])
    output = local_io().encrypting_output(str(tmp_path / "snap.avro"), new_key())
    with pytest.raises(PlaintextRefusedError), ManifestListWriterV3(output, SNAPSHOT_ID, None, 1, 0, "gzip") as writer:
        writer.add_manifests([plain])
    assert not writer.complete
    assert output.key_metadata.file_length is None


def test_a_manifest_whose_key_metadata_cannot_be_read_back_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"m\.avro"):
        _written(tmp_path, [row(key_metadata=b"\x01\x02")])


def _without(field: str) -> EncryptedManifestFile:
    fields: dict[str, Any] = {field: None}
    return row(**fields)


@pytest.mark.parametrize("field", ["added_rows_count", "existing_rows_count"])
def test_row_counts_are_needed_to_give_row_ids(tmp_path: Path, field: str) -> None:
    with pytest.raises(ConfigurationError, match="row counts"):
        _written(tmp_path, [_without(field)])


def test_manifests_survive_the_way_through_a_list(tmp_path: Path) -> None:
    io = local_io()
    first = write_manifest(io, tmp_path / "1.avro", [entry(record_count=4), entry(record_count=6)])
    (kept,) = _written(tmp_path, [first], sequence_number=1, first_row_id=0).manifests
    second = write_manifest(io, tmp_path / "2.avro", [entry(record_count=1)])
    again = write_manifest_list(io, tmp_path / "snap2.avro", [second, kept], sequence_number=2, first_row_id=10, parent_snapshot_id=1)
    rows = read_manifest_list(io, str(tmp_path / "snap2.avro"), again).manifests
    assert [each.first_row_id for each in rows] == [10, 0]
    assert [[file_of(each).first_row_id for each in manifest.fetch_manifest_entry(io)] for manifest in rows] == [[10], [0, 4]]
    assert [[each.sequence_number for each in manifest.fetch_manifest_entry(io)] for manifest in rows] == [[2], [1, 1]]


HEADER_KEYS = ["snapshot-id", "parent-snapshot-id", "sequence-number", "first-row-id", "format-version"]


def _read_with_header(folder: Path, changes: dict[str, str | None]) -> ManifestList:
    """Write a list whose header differs from a good one by `changes` (None: left out), and read it."""
    output = local_io().encrypting_output(str(folder / "good.avro"), new_key())
    writer = ManifestListWriterV3(output, 5, None, 1, 0, "gzip")
    metadata = writer.avro_file.metadata
    for key, value in changes.items():
        if value is None:
            del metadata[key]
        else:
            metadata[key] = value
    with writer:
        writer.add_manifests([row(added_snapshot_id=5)])
    return read_manifest_list(local_io(), str(folder / "good.avro"), output.key_metadata)


def test_a_good_header_is_read(tmp_path: Path) -> None:
    assert _read_with_header(tmp_path, {}).header == ManifestListHeader(5, None, 1, 0, 3)
    assert _read_with_header(tmp_path, {"parent-snapshot-id": "-4"}).header.parent_snapshot_id == -4


def test_a_list_says_which_columns_are_protected_and_nothing_where_none_is(tmp_path: Path) -> None:
    assert _written(tmp_path, [row()], protected_columns=[7, 2]).header.protected_columns == {2, 7}
    assert _written(tmp_path, [row()]).header.protected_columns == frozenset()
    assert protected_columns_header([10, 9]) == {PROTECTED_COLUMNS: "9,10"}
    assert protected_columns_header([]) == {}


@pytest.mark.parametrize("value", ["", "0", "x", "1,", ",1", "1, 2", "-1", "01", "1;2", "9" * 11])
def test_protected_columns_that_are_no_field_ids_are_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(FormatError, match=r"good\.avro: .*protected-columns"):
        _read_with_header(tmp_path, {PROTECTED_COLUMNS: value})


@pytest.mark.parametrize("value", ["", "AAAA", "A" * 44, "no base64!", "A" * 42 + "é="])
def test_what_cannot_be_the_secret_of_a_share_is_refused_without_its_text(tmp_path: Path, value: str) -> None:
    with pytest.raises(FormatError, match=r"good\.avro: .*share-secret is none$"):
        _read_with_header(tmp_path, {SHARE_SECRET: value})


@pytest.mark.parametrize("key", HEADER_KEYS)
@pytest.mark.parametrize("value", [None, "", "x", "1.0", "+1", " 1", "01", "1_0", "١", "null ", str(2**63), "9" * 40])
def test_a_header_that_is_not_exact_is_refused_naming_the_file(tmp_path: Path, key: str, value: str | None) -> None:
    with pytest.raises(FormatError, match=rf"good\.avro: .*{key}"):
        _read_with_header(tmp_path, {key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [("sequence-number", "-1"), ("first-row-id", "-1"), ("snapshot-id", "null"), ("format-version", "1"), ("format-version", "4")],
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(FormatError, match=r"good\.avro: "):
        _read_with_header(tmp_path, {key: value})


def test_bytes_after_a_good_list_are_refused(tmp_path: Path) -> None:
    key_metadata = write_manifest_list(local_io(), tmp_path / "snap.avro", [row()])
    plaintext = decrypt_file(local_io(), tmp_path / "snap.avro", key_metadata)
    longer = encrypt_file(local_io(), tmp_path / "longer.avro", plaintext + b"\x00")
    with pytest.raises(FormatError, match=r"longer\.avro"):
        read_manifest_list(local_io(), str(tmp_path / "longer.avro"), longer)
