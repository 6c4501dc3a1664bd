"""What Iceberg Java 1.12 wrote, read field by field, and written again by this library."""

from __future__ import annotations

import io as python_io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.manifests import EncryptedManifestFile, ManifestList, ManifestListWriterV3, ManifestWriterV3, read_manifest_list
from tests.support.golden import TABLES, GoldenTable
from tests.support.manifest_bytes import entries_of, values_of
from tests.support.manifests import decrypt_file, file_of, local_io, new_key


def _lists(table: GoldenTable) -> list[tuple[dict[str, Any], ManifestList]]:
    return [
        (snapshot, read_manifest_list(table.io, snapshot["manifest-list"], table.manifest_list_key(snapshot)))
        for snapshot in table.snapshots
    ]


def _manifests(table: GoldenTable) -> list[EncryptedManifestFile]:
    found = {manifest.manifest_path: manifest for _, manifest_list in _lists(table) for manifest in manifest_list.manifests}
    return list(found.values())


def _plaintext(table: GoldenTable, manifest: EncryptedManifestFile) -> bytes:
    return decrypt_file(table.io, manifest.manifest_path, manifest.open_key_metadata())


def _avro(plaintext: bytes) -> tuple[dict[str, str], list[dict[str, Any]]]:
    reader = fastavro.reader(python_io.BytesIO(plaintext))
    return reader.metadata, [record for record in reader if isinstance(record, dict)]


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest) -> GoldenTable:
    return GoldenTable(request.param)


def test_the_header_of_every_list_agrees_with_the_table_metadata(table: GoldenTable) -> None:
    for snapshot, manifest_list in _lists(table):
        header = manifest_list.header
        assert header.snapshot_id == snapshot["snapshot-id"]
        assert header.parent_snapshot_id == snapshot.get("parent-snapshot-id")
        assert header.sequence_number == snapshot["sequence-number"]
        assert header.first_row_id == snapshot["first-row-id"]
        assert header.format_version == 3


def test_every_key_metadata_knows_the_length_of_its_file(table: GoldenTable) -> None:
    io = table.file_io
    for manifest in _manifests(table):
        stored = len(io.new_input(manifest.manifest_path))
        assert manifest.open_key_metadata().file_length == stored == manifest.manifest_length
        for entry in manifest.fetch_manifest_entry(table.io):
            assert entry.data_file.key_metadata is not None
            data_length = StandardKeyMetadata.decode(entry.data_file.key_metadata).file_length
            assert data_length == len(io.new_input(entry.data_file.file_path)) == entry.data_file.file_size_in_bytes


def test_live_rows_add_up_to_what_java_read(table: GoldenTable) -> None:
    for index, (_, manifest_list) in enumerate(_lists(table)):
        files = [entry.data_file for manifest in manifest_list.manifests for entry in manifest.fetch_manifest_entry(table.io)]
        added = sum(file.record_count for file in files if file.content == DataFileContent.DATA)
        deleted = sum(file.record_count for file in files if file.content == DataFileContent.POSITION_DELETES)
        assert added - deleted == pq.read_metadata(table.expected(index)).num_rows


def test_row_ids_of_a_snapshot_are_disjoint_and_below_the_tables_next_row_id(table: GoldenTable) -> None:
    for _, manifest_list in _lists(table):
        ranges = sorted(
            (file_of(entry).first_row_id or 0, (file_of(entry).first_row_id or 0) + entry.data_file.record_count)
            for manifest in manifest_list.manifests
            if manifest.content == ManifestContent.DATA
            for entry in manifest.fetch_manifest_entry(table.io)
        )
        assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
        assert ranges[-1][1] <= table.metadata["next-row-id"]


def test_javas_entries_in_columns_are_those_of_the_strict_reader(table: GoldenTable) -> None:
    for _, manifest_list in _lists(table):
        manifests = manifest_list.manifests
        strict = [values_of(entry) for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
        in_columns = entries_of(*((manifest, _plaintext(table, manifest)) for manifest in manifests))
        assert [values_of(in_columns.entry(row)) for row in range(len(in_columns))] == strict
        assert strict


def test_row_ids_are_those_that_the_manifest_leads_to() -> None:
    orders = GoldenTable("orders")
    by_snapshot = [
        [file_of(entry).first_row_id for manifest in manifest_list.manifests for entry in manifest.fetch_manifest_entry(orders.io)]
        for _, manifest_list in _lists(orders)
    ]
    assert by_snapshot == [[0, 238, 467, 729], [1000, 1208, 1397, 1621], [1857, 1000, 1208, 1397, 1621]]


def test_removed_files_are_listed_as_deleted_with_the_numbers_of_their_own_snapshot() -> None:
    orders = GoldenTable("orders")
    (snapshot, manifest_list) = _lists(orders)[1]
    removed = [
        entry
        for manifest in manifest_list.manifests
        for entry in manifest.fetch_manifest_entry(orders.io, discard_deleted=False)
        if entry.status == ManifestEntryStatus.DELETED
    ]
    assert [(entry.snapshot_id, entry.sequence_number, entry.file_sequence_number) for entry in removed] == [
        (snapshot["snapshot-id"], 1, 1)
    ] * 4
    assert [file_of(entry).first_row_id for entry in removed] == [0, 238, 467, 729]


def test_deletion_vectors_name_their_data_file_and_their_place() -> None:
    people = GoldenTable("people")
    manifests = _lists(people)[-1][1].manifests
    (vector,) = (
        file_of(entry)
        for manifest in manifests
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(people.io)
    )
    live = {
        entry.data_file.file_path
        for manifest in manifests
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(people.io)
    }
    assert vector.file_format == FileFormat.PUFFIN
    assert vector.referenced_data_file in live
    assert (vector.content_offset, vector.content_size_in_bytes, vector.first_row_id) == (4, 43, None)


def test_entries_inherit_what_the_manifest_says(table: GoldenTable) -> None:
    for manifest in _manifests(table):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            assert entry.snapshot_id is not None
            assert entry.sequence_number is not None
            assert entry.file_sequence_number is not None
            assert entry.data_file.spec_id == manifest.partition_spec_id
            if entry.status == ManifestEntryStatus.ADDED:
                assert (entry.sequence_number, entry.file_sequence_number) == (manifest.sequence_number, manifest.sequence_number)


def test_every_field_is_read_as_an_independent_avro_reader_reads_it(table: GoldenTable) -> None:
    inherited = {"first_row_id"}
    for manifest in _manifests(table):
        _, records = _avro(_plaintext(table, manifest))
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        assert len(records) == len(entries)
        for record, entry in zip(records, entries, strict=True):
            expected, found = record["data_file"], _named_fields(entry)
            assert {name: found[name] for name in expected if name not in inherited} == _plain_maps(expected, inherited)


def test_manifests_written_here_have_javas_avro_schema(table: GoldenTable, tmp_path: Path) -> None:
    for manifest in _manifests(table):
        java_metadata, _ = _avro(_plaintext(table, manifest))
        our_metadata, _ = _avro(_rewritten(table, manifest, tmp_path)[0])
        assert _without_docs(json.loads(our_metadata["avro.schema"])) == _without_docs(json.loads(java_metadata["avro.schema"]))
        for key in ("avro.codec", "content", "format-version", "partition-spec-id"):
            assert our_metadata[key] == java_metadata[key]
        assert json.loads(our_metadata["partition-spec"]) == json.loads(java_metadata["partition-spec"])
        assert Schema.model_validate_json(our_metadata["schema"]) == Schema.model_validate_json(java_metadata["schema"])


def test_manifest_lists_written_here_have_javas_avro_schema_and_header(table: GoldenTable, tmp_path: Path) -> None:
    for snapshot, manifest_list in _lists(table):
        java_metadata, _ = _avro(decrypt_file(table.io, snapshot["manifest-list"], table.manifest_list_key(snapshot)))
        our_metadata, _ = _avro(_rewritten_list(manifest_list, tmp_path / "list.avro"))
        assert _without_docs(json.loads(our_metadata.pop("avro.schema"))) == _without_docs(json.loads(java_metadata.pop("avro.schema")))
        assert our_metadata == {key: value for key, value in java_metadata.items() if key != "iceberg.schema"}


def test_writing_a_manifest_again_keeps_every_field(table: GoldenTable, tmp_path: Path) -> None:
    for manifest in _manifests(table):
        _, written = _rewritten(table, manifest, tmp_path)
        original = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        again = written.fetch_manifest_entry(local_io(), discard_deleted=False)
        assert [_all_fields(entry) for entry in again] == [_all_fields(entry) for entry in original]
        assert written.partitions == manifest.partitions
        assert _counts(written) == _counts(manifest)


def test_writing_a_manifest_list_again_keeps_every_row(table: GoldenTable, tmp_path: Path) -> None:
    for _, manifest_list in _lists(table):
        _, records = _avro(_rewritten_list(manifest_list, tmp_path / "list.avro"))
        assert [record["manifest_path"] for record in records] == [row.manifest_path for row in manifest_list.manifests]
        assert [record["first_row_id"] for record in records] == [row.first_row_id for row in manifest_list.manifests]
        assert [record["key_metadata"] for record in records] == [row.key_metadata for row in manifest_list.manifests]


def _rewritten(table: GoldenTable, manifest: EncryptedManifestFile, folder: Path) -> tuple[bytes, EncryptedManifestFile]:
    """Write the manifest's entries again; return the plaintext of the new manifest and its row."""
    metadata = table.metadata
    schema = Schema.model_validate(metadata["schemas"][metadata["current-schema-id"]])
    (spec,) = (PartitionSpec.model_validate(spec) for spec in metadata["partition-specs"] if spec["spec-id"] == manifest.partition_spec_id)
    io = local_io()
    output = io.encrypting_output(str(folder / Path(manifest.manifest_path).name), new_key())
    assert manifest.added_snapshot_id is not None
    with ManifestWriterV3(spec, schema, output, manifest.added_snapshot_id, "gzip", manifest.content) as writer:
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            writer.add_entry(entry)
    row = writer.to_manifest_file()
    row.sequence_number = manifest.sequence_number
    row.first_row_id = manifest.first_row_id
    return decrypt_file(io, output.location, output.key_metadata), row


def _rewritten_list(manifest_list: ManifestList, location: Path) -> bytes:
    header = manifest_list.header
    assert header.first_row_id is not None
    io = local_io()
    output = io.encrypting_output(str(location), new_key())
    with ManifestListWriterV3(
        output, header.snapshot_id, header.parent_snapshot_id, header.sequence_number, header.first_row_id, "gzip"
    ) as writer:
        writer.add_manifests(list(manifest_list.manifests))
    return decrypt_file(io, location, output.key_metadata)


def _counts(manifest: EncryptedManifestFile) -> list[int | None]:
    return [
        manifest.added_files_count,
        manifest.existing_files_count,
        manifest.deleted_files_count,
        manifest.added_rows_count,
        manifest.existing_rows_count,
        manifest.deleted_rows_count,
    ]


def _all_fields(entry: ManifestEntry) -> list[Any]:
    fields = [entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number]
    return [*fields, *_named_fields(entry).values(), entry.data_file.spec_id]


def _named_fields(entry: ManifestEntry) -> dict[str, Any]:
    names = [
        "content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes", "column_sizes", "value_counts",
        "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds", "key_metadata", "split_offsets", "equality_ids",
        "sort_order_id", "first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes",
    ]  # fmt: skip
    values = {name: getattr(entry.data_file, name) for name in names}
    partition = values["partition"]
    values["partition"] = [partition[position] for position in range(len(partition))]
    return {name: dict(value) if hasattr(value, "items") else value for name, value in values.items()}


def _plain_maps(record: dict[str, Any], left_out: set[str]) -> dict[str, Any]:
    """Turn Avro's lists of key and value into dicts, and the partition into its values."""
    plain: dict[str, Any] = {}
    for name, value in record.items():
        if name in left_out:
            continue
        if name == "partition":
            plain[name] = list(value.values())
        elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
            plain[name] = {item["key"]: item["value"] for item in value}
        else:
            plain[name] = value
    return plain


def _without_docs(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_docs(value) for key, value in node.items() if key != "doc"}
    if isinstance(node, list):
        return [_without_docs(item) for item in node]
    return node
