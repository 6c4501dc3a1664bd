"""How long it takes to read every entry of a table's manifests: encrypted version 3 against PyIceberg's plain version 2.

Both sides hold the same entries (10,000 in 100 manifests by default, 10 columns with sizes, counts and bounds), on local disk. One pair of
rounds reads both in turn, so that a slow moment of the machine hits both; the figure is the median over the pairs, with the ratio
ours / plain. Reading is what scan planning does before any filter: manifest list, then `fetch_manifest_entry` of each manifest.

Run: python benchmarks/manifest_planning.py [--manifests 100] [--entries 100] [--pairs 7]
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyiceberg import manifest as pyiceberg_manifest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests import EncryptedManifestFile, ManifestListWriterV3, ManifestWriterV3, read_manifest_list

COLUMNS = 10
SNAPSHOT_ID = 1
SPEC = PartitionSpec()
SCHEMA = Schema(*(NestedField(i, f"column_{i}", LongType()) for i in range(1, COLUMNS + 1)))


def main() -> None:
    """Build both tables, time both, print the figures."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        entries = options.manifests * options.entries
        plain_io, ours_io = PyArrowFileIO(), EncryptingFileIO(PyArrowFileIO())
        plain_list = _build_plain(plain_io, folder, options.manifests, options.entries)
        ours_list, ours_key = _build_ours(ours_io, folder, options.manifests, options.entries)

        def plain() -> int:
            with_rows = list(pyiceberg_manifest.read_manifest_list(plain_io.new_input(plain_list)))
            return sum(len(manifest.fetch_manifest_entry(plain_io)) for manifest in with_rows)

        def ours() -> int:
            with_rows = read_manifest_list(ours_io, ours_list, ours_key).manifests
            return sum(len(manifest.fetch_manifest_entry(ours_io)) for manifest in with_rows)

        pairs = [(_timed(plain, entries), _timed(ours, entries)) for _ in range(options.pairs)]
        sizes = {kind: sum(path.stat().st_size for path in Path(folder).glob(f"{kind}-*.avro")) for kind in ("plain", "ours")}
    _report(entries, options.manifests, pairs, sizes)


def _report(entries: int, manifests: int, pairs: list[tuple[float, float]], sizes: dict[str, int]) -> None:
    plain, ours = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(our_time / plain_time for plain_time, our_time in pairs)
    print(f"{entries} entries in {manifests} manifests, {len(pairs)} pairs of rounds, medians")
    print(f"  PyIceberg, plain v2:      {plain:.3f} s, {sizes['plain'] / 1e6:.2f} MB")
    print(f"  tablecrypt, encrypted v3: {ours:.3f} s, {sizes['ours'] / 1e6:.2f} MB")
    print(f"  ours / plain: {ratio:.2f} in time, {sizes['ours'] / sizes['plain']:.2f} in bytes")


def _timed(read: Callable[[], int], expected: int) -> float:
    start = time.perf_counter()
    count = read()
    elapsed = time.perf_counter() - start
    assert count == expected, f"read {count} entries of {expected}"
    return elapsed


def _build_plain(io: PyArrowFileIO, folder: str, manifests: int, entries: int) -> str:
    rows = []
    for number in range(manifests):
        output = io.new_output(f"{folder}/plain-{number}.avro")
        with write_manifest(2, SPEC, SCHEMA, output, SNAPSHOT_ID, "deflate") as writer:
            for entry in _entries(number, entries):
                writer.add_entry(entry)
        rows.append(writer.to_manifest_file())
    location = f"{folder}/plain-list.avro"
    with write_manifest_list(2, io.new_output(location), SNAPSHOT_ID, None, 1, "deflate") as list_writer:
        list_writer.add_manifests(rows)
    return location


def _build_ours(io: EncryptingFileIO, folder: str, manifests: int, entries: int) -> tuple[str, StandardKeyMetadata]:
    rows: list[ManifestFile] = []
    for number in range(manifests):
        rows.append(_encrypted_manifest(io, f"{folder}/ours-{number}.avro", _entries(number, entries)))
    output = io.encrypting_output(f"{folder}/ours-list.avro", _key())
    with ManifestListWriterV3(output, SNAPSHOT_ID, None, 1, 0, "deflate") as list_writer:
        list_writer.add_manifests(rows)
    return output.location, output.key_metadata


def _encrypted_manifest(io: EncryptingFileIO, location: str, entries: Iterator[ManifestEntry]) -> EncryptedManifestFile:
    with ManifestWriterV3(SPEC, SCHEMA, io.encrypting_output(location, _key()), SNAPSHOT_ID, "deflate") as writer:
        for entry in entries:
            writer.add_entry(entry)
    return writer.to_manifest_file()


def _entries(manifest: int, count: int) -> Iterator[ManifestEntry]:
    for number in range(count):
        first = (manifest * count + number) * 1000
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"s3://bucket/db/table/data/00000-{number}-{manifest:032x}-00001.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=1000,
            file_size_in_bytes=65_536 + number,
            column_sizes={column: 4000 + number + column for column in range(1, COLUMNS + 1)},
            value_counts=dict.fromkeys(range(1, COLUMNS + 1), 1000),
            null_value_counts=dict.fromkeys(range(1, COLUMNS + 1), 0),
            nan_value_counts={},
            lower_bounds={column: struct.pack("<q", first + column) for column in range(1, COLUMNS + 1)},
            upper_bounds={column: struct.pack("<q", first + 999 + column) for column in range(1, COLUMNS + 1)},
            key_metadata=_key().with_file_length(65_536 + number).encode(),
            split_offsets=[4],
        )
        yield ManifestEntry(ManifestEntryStatus.ADDED, SNAPSHOT_ID, None, None, data_file)


def _key() -> StandardKeyMetadata:
    return StandardKeyMetadata.generate(16, secrets.token_bytes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifests", type=int, default=100)
    parser.add_argument("--entries", type=int, default=100, help="entries per manifest")
    parser.add_argument("--pairs", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
