"""Every file that a table's metadata leads to, with the key that opens it, found from the top down as a reader finds it.

    snapshot ── KEK, manifest-list key ──▶ manifest list ── row's key ──▶ manifest ── entry's key ──▶ data or delete file

Files that cannot be opened are reported, not raised, so that the rest is still found. A snapshot from before the table was encrypted has
no key; its plaintext files are found too, and have none either.

Raises KmsError where the key service fails, ConfigurationError or MissingExtraError where it cannot be asked, KmsAccessDeniedError,
KeyNotFoundError or MasterKeyMismatchError where no KEK opens: then nothing can be said about the files. If some KEKs open, those that do
not, such as those of a disabled key version or with a forged entry, are reported like anything else that cannot be opened.

`inspect` sums it up: keys, snapshots and files, layer by layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import (
    ConfigurationError,
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsError,
    MasterKeyMismatchError,
    MissingExtraError,
    TablecryptError,
)
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, refusing_made_up, store_io
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.nested_columns import name_or_id
from tablecrypt.maintenance.operation import require_encrypted
from tablecrypt.manifests import EncryptedManifestFile
from tablecrypt.manifests.records import STATISTICS, EncryptedDataFile, is_deletion_vector, stored_key_metadata
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.partitions import partition_path
from tablecrypt.table.table_files import TableFileIO, heads_of, name_of

A = TypeVar("A")
B = TypeVar("B")

THREADS: Final = 16
"""Reading manifests waits for the store more than it computes."""


class FileKind(StrEnum):
    """What a file is to the table."""

    MANIFEST_LIST = "manifest list"
    MANIFEST = "manifest"
    DATA = "data"
    POSITION_DELETES = "position deletes"
    EQUALITY_DELETES = "equality deletes"
    DELETION_VECTOR = "deletion vector"
    STATISTICS = "statistics"
    """Of a table or its partitions, which another engine may have written. Nothing of the table needs them."""

    @property
    def is_metadata(self) -> bool:
        """Whether it names other files, and holds no rows or deletes itself."""
        return self in (FileKind.MANIFEST_LIST, FileKind.MANIFEST)


@dataclass(frozen=True, slots=True)
class EntryCounts:
    """What a manifest entry says of a file.

    Attributes:
        records: rows of the file, or positions of the deletion vector.
        length: bytes of the stored file.
        target: location of the data file that a deletion vector is about; None in other entries.
        offset, size: where the deletion vector lies in the plaintext, in bytes; None in other entries.
    """

    records: int
    length: int
    target: str | None = None
    offset: int | None = None
    size: int | None = None

    def as_vector(self, location: str, key_metadata: StandardKeyMetadata) -> EncryptedDataFile:
        """Return the entry of a deletion vector in the file at a location, with what is needed to read it."""
        return EncryptedDataFile.from_args(
            file_path=location,
            key_metadata=key_metadata.encode(),
            record_count=self.records,
            file_size_in_bytes=key_metadata.file_length,
            content_offset=self.offset,
            content_size_in_bytes=self.size,
        )


@dataclass(frozen=True)
class ReachableFile:
    """One file.

    Attributes:
        location: where it is.
        kind: what it is to the table.
        file_format: of its plaintext: AVRO, PARQUET, PUFFIN, ORC.
        key: its DEK, AAD prefix and length; None where the layer above names no key, so that it is plaintext.
        length: bytes of the stored file, as the layer above says; None where that does not say.
        keks: ids of the KEKs through which it can be opened.
        partition: "region=north/day=2024-02-29", empty for an unpartitioned table and for metadata.
        added_by: id of the snapshot that added it.
        metrics: field ids of the columns that its manifest entry has sizes, counts or bounds of.
        sequence_number: its data sequence number; None for metadata.
        spec_id: of the partition spec that it, or what a manifest names, was written under; None for a manifest list.
        snapshots: of a manifest, the ids of those whose lists name it.
        equality_ids: of an equality delete file, the field ids of the columns whose values it holds.
        entries: what the entries of manifests say of it: one, unless some differ or it holds several deletion vectors.
        has_open_key: whether its key is in the clear: in a manifest list or manifest that is plaintext or whose own key is in the clear,
            if only in an entry that says that the file was deleted.
    """

    location: str
    kind: FileKind
    file_format: str
    key: StandardKeyMetadata | None
    length: int | None
    keks: frozenset[str]
    partition: str = ""
    added_by: int | None = None
    metrics: frozenset[int] = frozenset()
    sequence_number: int | None = None
    spec_id: int | None = None
    snapshots: frozenset[int] = frozenset()
    equality_ids: frozenset[int] = frozenset()
    entries: frozenset[EntryCounts] = frozenset()
    has_open_key: bool = False


@dataclass(frozen=True)
class Unopened:
    """A manifest list or manifest that could not be read, and so hides what is below it."""

    location: str
    kind: FileKind
    error: Exception


@dataclass
class Reachable:
    """All that was found.

    Attributes:
        files: by location.
        unopened: what could not be read.
        contradictory: by location, files that are named as two kinds of file or with two keys, of which `files` has what was named
            first; and those with a second deletion vector of one data file.
        keks_of_snapshots: for each snapshot whose manifest list was opened, the id of its KEK; None for one in plaintext.
    """

    files: dict[str, ReachableFile] = field(default_factory=dict)
    unopened: list[Unopened] = field(default_factory=list)
    contradictory: dict[str, Unopened] = field(default_factory=dict)
    keks_of_snapshots: dict[int, str | None] = field(default_factory=dict)

    @property
    def problems(self) -> list[Unopened]:
        """What could not be read, and what cannot be told from the first of the names that a file has."""
        return [*self.unopened, *self.contradictory.values()]


@dataclass(frozen=True)
class _OpenedList:
    file: ReachableFile
    manifests: tuple[ManifestFile, ...] = ()
    error: Exception | None = None
    is_refused: bool = False
    """Whether the KEK did not open: the key service refused it, does not know its master key, or has another one under that id."""


def reachable_files(metadata: TableMetadata, io: FileIO) -> Reachable:
    """Find every file that the snapshots of a table's metadata lead to.

    Args:
        metadata: of an encrypted or a plain table.
        io: the table's own.

    Raises:
        KmsError, KeyNotFoundError: the key service failed, or refused every KEK.
        MasterKeyMismatchError: another master key wrapped the KEKs.
        ConfigurationError, MissingExtraError: the key service cannot be asked as it is configured.
    """
    found = Reachable()
    with ThreadPoolExecutor(THREADS, thread_name_prefix="tablecrypt-walk") as pool:
        lists = list(pool.map(lambda each: _open_list(metadata, io, each), metadata.snapshots))
        # After all lists: one KEK that is refused may be an old one, and is then reported with the rest.
        _raise_if_no_kek_opens(metadata.snapshots, lists)
        for snapshot, opened in zip(metadata.snapshots, lists, strict=True):
            _add(found, opened.file)
            if opened.error is not None:
                found.unopened.append(Unopened(opened.file.location, FileKind.MANIFEST_LIST, opened.error))
            else:
                found.keks_of_snapshots[snapshot.snapshot_id] = next(iter(opened.file.keks), None)

        _compare_manifests(found, lists)
        manifests = _manifests_with_keks(lists)
        entries = _Entries(metadata, io)
        naming = _snapshots_naming(lists)
        open_lists = (opened for opened in lists if not opened.file.keks)
        in_the_clear = {manifest.manifest_path for opened in open_lists for manifest in opened.manifests}
        vectors: dict[str, list[EncryptedDataFile]] = {}
        deleted_in_the_clear: set[str] = set()
        for (manifest, keks), result in zip(manifests, pool.map(lambda each: _attempt(entries.of, each[0]), manifests), strict=True):
            vectors[manifest.manifest_path] = _live_vectors(result)
            is_open = not manifest.key_metadata or manifest.manifest_path in in_the_clear
            if is_open:
                deleted_in_the_clear.update(_deleted_with_keys(result))
            _add_manifest(found, entries, manifest, keks, naming[manifest.manifest_path], result, is_open)

    heads = heads_of(metadata)
    for opened in (each for each in lists if each.file.added_by in heads):
        _compare_vectors(found, [vector for manifest in opened.manifests for vector in vectors[manifest.manifest_path]])
    for location in deleted_in_the_clear & found.files.keys():
        found.files[location] = replace(found.files[location], has_open_key=True)

    return found


def files_of_snapshot(metadata: TableMetadata, io: FileIO, snapshot: Snapshot) -> tuple[list[DataFile], list[Unopened]]:
    """Return the data and delete files of one snapshot, and what could not be opened on the way. Raises as `reachable_files`."""
    opened = _open_list(metadata, io, snapshot)
    if opened.error is not None:
        return [], [Unopened(opened.file.location, FileKind.MANIFEST_LIST, opened.error)]

    files: list[DataFile] = []
    unopened: list[Unopened] = []
    entries = _Entries(metadata, io)

    with ThreadPoolExecutor(THREADS, thread_name_prefix="tablecrypt-walk") as pool:
        for manifest, result in zip(opened.manifests, pool.map(lambda each: _attempt(entries.of, each), opened.manifests), strict=True):
            if isinstance(result, Exception):
                unopened.append(Unopened(manifest.manifest_path, FileKind.MANIFEST, result))
            else:
                files += [entry.data_file for entry in result if entry.status != ManifestEntryStatus.DELETED]

    return files, unopened


def _open_list(metadata: TableMetadata, io: FileIO, snapshot: Snapshot) -> _OpenedList:
    kek, key = None, None
    try:
        if isinstance(metadata, EncryptedTableMetadata) and isinstance(snapshot, EncryptedSnapshot) and snapshot.key_id is not None:
            chain = metadata.key_ring.chain(snapshot.key_id)
            kek = chain.kek.key_id
            try:
                key = _manager_io(io).manager.decrypt_manifest_list_key_metadata(chain)
            except (KmsAccessDeniedError, KeyNotFoundError, MasterKeyMismatchError) as refused:
                # Not raised yet: only the last list shows whether the service refuses every KEK or this one.
                return _OpenedList(_list_file(snapshot, None, kek), error=refused, is_refused=True)

            manifests = snapshot.manifests(io)
        else:
            # By the store's own FileIO: the table's refuses plaintext, which has to be found here.
            manifests = _read_plainly(snapshot.manifest_list, lambda: Snapshot.manifests(snapshot, store_io(io)))
    except (KmsError, ConfigurationError, MissingExtraError):
        # Failures of the service or of its configuration say nothing about the file.
        raise
    except (TablecryptError, OSError) as error:
        # What lies elsewhere and was not readable is not read again for its blocks: the name may be made up.
        return _OpenedList(_list_file(snapshot, None if _is_made_up(io, snapshot, error) else key, kek), error=error)

    return _OpenedList(_list_file(snapshot, key, kek), tuple(manifests))


def _is_made_up(io: FileIO, snapshot: Snapshot, error: Exception) -> bool:
    if not isinstance(error, FormatError) or not isinstance(io, EncryptingFileIO):
        return False
    return io.own_folders.reason_against(snapshot.manifest_list) is not None


def _raise_if_no_kek_opens(snapshots: Sequence[Snapshot], lists: list[_OpenedList]) -> None:
    """Raise what was said of the first KEK where none opens. A snapshot in plaintext, which is a finding, is never hidden that way."""
    asked = [opened for snapshot, opened in zip(snapshots, lists, strict=True) if opened.file.keks or not getattr(snapshot, "key_id", None)]
    first = asked[0].error if asked and all(each.is_refused for each in asked) else None
    if first is not None:
        raise first


def _list_file(snapshot: Snapshot, key: StandardKeyMetadata | None, kek: str | None) -> ReachableFile:
    keks = frozenset() if kek is None else frozenset([kek])
    length = None if key is None else key.file_length
    return ReachableFile(
        snapshot.manifest_list, FileKind.MANIFEST_LIST, FileFormat.AVRO.value, key, length, keks, added_by=snapshot.snapshot_id
    )


def _manifests_with_keks(lists: Iterable[_OpenedList]) -> list[tuple[ManifestFile, frozenset[str]]]:
    """Every manifest once, with the KEKs of all the lists that name it."""
    # Snapshots share manifests, and a shared one opens through the KEK of each.
    manifests: dict[str, ManifestFile] = {}
    keks: dict[str, frozenset[str]] = {}
    for opened in lists:
        for manifest in opened.manifests:
            manifests.setdefault(manifest.manifest_path, manifest)
            keks[manifest.manifest_path] = keks.get(manifest.manifest_path, frozenset()) | opened.file.keks

    return [(manifest, keks[path]) for path, manifest in manifests.items()]


def _compare_manifests(found: Reachable, lists: Iterable[_OpenedList]) -> None:
    """Note manifests of which two lists say different things: each is read once, as the first says."""
    known: dict[str, ManifestFile] = {}
    for manifest in (each for opened in lists for each in opened.manifests):
        first = known.setdefault(manifest.manifest_path, manifest)
        if first.content != manifest.content:
            _add_contradiction(found, manifest.manifest_path, FileKind.MANIFEST, "as a manifest of data and as one of deletes")
        # Each later list repeats the bytes, so that in a long history hardly any has to be decoded.
        elif first.key_metadata != manifest.key_metadata and not _is_same_key(_attempt_key(first)[0], _attempt_key(manifest)[0]):
            _add_contradiction(found, manifest.manifest_path, FileKind.MANIFEST, "with two keys")


def _live_vectors(result: list[ManifestEntry] | Exception) -> list[EncryptedDataFile]:
    if isinstance(result, Exception):
        return []
    live = (entry.data_file for entry in result if entry.status != ManifestEntryStatus.DELETED)
    return [EncryptedDataFile.of(file) for file in live if is_deletion_vector(file)]


def _deleted_with_keys(result: list[ManifestEntry] | Exception) -> Iterator[str]:
    """Yield the files that entries say were deleted, and whose keys they hold: another snapshot may have such a file still."""
    if isinstance(result, Exception):
        return
    for entry in result:
        if entry.status == ManifestEntryStatus.DELETED and entry.data_file.key_metadata:
            yield entry.data_file.file_path


def _compare_vectors(found: Reachable, vectors: Iterable[EncryptedDataFile]) -> None:
    """Note a second deletion vector that a snapshot has of one data file: whichever counted, the rows of the other would come back."""
    seen: set[str] = set()
    for vector in vectors:
        target = vector.referenced_data_file
        if target is not None and target in seen:
            _add_contradiction(found, vector.file_path, FileKind.DELETION_VECTOR, f"as a second deletion vector of {target}")
        seen.add(target or "")


def _snapshots_naming(lists: Iterable[_OpenedList]) -> dict[str, frozenset[int]]:
    """The ids of the snapshots whose lists name each manifest."""
    naming: dict[str, frozenset[int]] = {}
    for opened in lists:
        for manifest in opened.manifests:
            by = naming.get(manifest.manifest_path, frozenset())
            naming[manifest.manifest_path] = by if opened.file.added_by is None else by | {opened.file.added_by}
    return naming


class _Entries:
    """Reads the entries of manifests, encrypted or not."""

    def __init__(self, metadata: TableMetadata, io: FileIO) -> None:
        self._io = io
        self._specs = metadata.specs()
        self._schema = metadata.schema()

    def of(self, manifest: ManifestFile) -> list[ManifestEntry]:
        if not manifest.key_metadata:
            return _read_plainly(manifest.manifest_path, lambda: manifest.fetch_manifest_entry(store_io(self._io), discard_deleted=False))
        io = _manager_io(self._io)
        with refusing_made_up(manifest.manifest_path, io.own_folders):
            return list(EncryptedManifestFile.of(manifest).read(io).entries)

    def partition_of(self, file: DataFile, spec_id: int) -> str:
        spec = self._specs.get(spec_id)
        if spec is None or not spec.fields:
            return ""

        try:
            return partition_path(spec, file.partition, self._schema)
        except (ValueError, KeyError, IndexError, TypeError):
            # The column that the spec names was dropped since: its values are all that is left to say.
            return ", ".join(str(file.partition[at]) for at in range(len(file.partition)))


def _attempt(read: Callable[[A], B], argument: A) -> B | Exception:
    try:
        return read(argument)
    except (TablecryptError, OSError) as error:
        return error


def _read_plainly(location: str, read: Callable[[], B]) -> B:
    """Read a plaintext manifest or list by PyIceberg, whose Avro reader meets bad bytes with errors of many kinds."""
    try:
        return read()
    except OSError:
        raise
    except Exception as error:
        raise FormatError(f"{location}: not readable as a plaintext Avro file either: {type(error).__name__}: {error}") from error


def _add_manifest(
    found: Reachable,
    entries: _Entries,
    manifest: ManifestFile,
    keks: frozenset[str],
    snapshots: frozenset[int],
    result: list[ManifestEntry] | Exception,
    is_open: bool,
) -> None:
    key, problem = _attempt_key(manifest)
    avro = FileFormat.AVRO.value
    length, added_by = manifest.manifest_length, manifest.added_snapshot_id
    stored = ReachableFile(manifest.manifest_path, FileKind.MANIFEST, avro, key, length, keks, added_by=added_by)
    # Also where it does not open: it is known to the table, and must not be taken for an orphan.
    _add(found, replace(stored, spec_id=manifest.partition_spec_id, snapshots=snapshots, has_open_key=is_open and key is not None))
    error = problem or (result if isinstance(result, Exception) else None)
    if error is not None:
        found.unopened.append(Unopened(manifest.manifest_path, FileKind.MANIFEST, error))
    if isinstance(result, Exception):
        return

    for entry in result:
        file = entry.data_file
        if entry.status == ManifestEntryStatus.DELETED:
            continue

        # Entries that inherit hold no value of their manifest's row.
        added_by = manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id
        partition = entries.partition_of(file, manifest.partition_spec_id)
        sequence_number = manifest.sequence_number if entry.sequence_number is None else entry.sequence_number
        _add_content(found, file, keks, partition, added_by, sequence_number, manifest.partition_spec_id, is_open)


def _attempt_key(manifest: ManifestFile) -> tuple[StandardKeyMetadata | None, Exception | None]:
    if not manifest.key_metadata:
        return None, None
    try:
        return EncryptedManifestFile.of(manifest).open_key_metadata(), None
    except TablecryptError as error:
        return None, error


def _add_content(
    found: Reachable,
    file: DataFile,
    keks: frozenset[str],
    partition: str,
    added_by: int | None,
    sequence_number: int | None,
    spec_id: int,
    is_open: bool,
) -> None:
    kind, key = kind_of(file), None
    if file.key_metadata:
        try:
            key = stored_key_metadata(file)
        except TablecryptError as error:
            # The file stays in the result, without a key: it is the table's, and must not be taken for an orphan.
            found.unopened.append(Unopened(file.file_path, kind, error))

    length = file.file_size_in_bytes
    metrics = frozenset().union(*(getattr(file, name) or () for name in STATISTICS))
    stored = ReachableFile(
        *(file.file_path, kind, file.file_format.value, key, length, keks, partition, added_by, metrics, sequence_number),
        spec_id=spec_id,
        equality_ids=frozenset(file.equality_ids or ()) if kind == FileKind.EQUALITY_DELETES else frozenset(),
        entries=frozenset([_counts_in(file)]),
        has_open_key=is_open and key is not None,
    )
    _add(found, stored)


def _counts_in(file: DataFile) -> EntryCounts:
    if not is_deletion_vector(file):
        return EntryCounts(file.record_count, file.file_size_in_bytes)
    vector = EncryptedDataFile.of(file)
    place = vector.referenced_data_file, vector.content_offset, vector.content_size_in_bytes
    return EntryCounts(file.record_count, file.file_size_in_bytes, *place)


def kind_of(file: DataFile) -> FileKind:
    """Return what a data or delete file is to its table."""
    # By their content deletion vectors are position deletes, so their format decides first.
    if is_deletion_vector(file):
        return FileKind.DELETION_VECTOR
    if file.content == DataFileContent.EQUALITY_DELETES:
        return FileKind.EQUALITY_DELETES
    return FileKind.POSITION_DELETES if file.content == DataFileContent.POSITION_DELETES else FileKind.DATA


def _add(found: Reachable, file: ReachableFile) -> None:
    """Add a file, or what this way to it adds to one that was found already: several vectors share a Puffin file, snapshots share files."""
    known = found.files.get(file.location)
    if known is None:
        found.files[file.location] = file
        return

    # Who writes manifests by hand may name a file twice, so that whoever looks at it by its first name sees nothing of the other.
    if file.kind != known.kind:
        _add_contradiction(found, file.location, known.kind, f"as {known.kind.value} and as {file.kind.value}")
    elif file.file_format != known.file_format:
        _add_contradiction(found, file.location, known.kind, f"as {known.file_format} and as {file.file_format}")
    elif not _is_same_key(known.key, file.key):
        _add_contradiction(found, file.location, known.kind, "with two keys")

    is_open = known.has_open_key or file.has_open_key
    if not (file.keks <= known.keks and file.entries <= known.entries and is_open == known.has_open_key):
        keks, counts = known.keks | file.keks, known.entries | file.entries
        found.files[file.location] = replace(known, keks=keks, entries=counts, has_open_key=is_open)


def _add_contradiction(found: Reachable, location: str, kind: FileKind, what: str) -> None:
    error = FormatError(f"{location}: the table names it {what}: drop the branches and snapshots that do, if you do not know their writer")
    found.contradictory.setdefault(location, Unopened(location, kind, error))


def _is_same_key(one: StandardKeyMetadata | None, other: StandardKeyMetadata | None) -> bool:
    if one is None or other is None:
        return one is other
    # Other writers leave the length out in some places, and have it in others.
    has_lengths = one.file_length is not None and other.file_length is not None
    same_length = one.file_length == other.file_length or not has_lengths
    return (one.encryption_key, one.aad_prefix) == (other.encryption_key, other.aad_prefix) and same_length


def _manager_io(io: FileIO) -> TableFileIO:
    if not isinstance(io, TableFileIO):
        # Metadata that does not mention encryption, over manifests that hold keys: the metadata was edited, and the manifests were not.
        raise KeyIdChangedError("a key is named for a file of a table whose metadata says that it is not encrypted")
    return io


@checked_arguments()
def inspect(table: Table) -> dict[str, Any]:
    """Return the layers of an encrypted table, as JSON's types.

    Raises:
        ConfigurationError: the table is not encrypted.
    """
    metadata = require_encrypted(table).metadata
    found = reachable_files(metadata, table.io)
    snapshots_under = Counter(kek for kek in found.keks_of_snapshots.values() if kek is not None)
    kinds = Counter(file.kind for file in found.files.values())
    sizes: Counter[FileKind] = Counter()
    for file in found.files.values():
        sizes[file.kind] += file.length or 0
    return {
        "table": name_of(table),
        "metadata": table.metadata_location,
        "format_version": metadata.format_version,
        "table_key_id": metadata.properties.get("encryption.key-id"),
        "keks": [
            {
                "key_id": kek.key_id,
                "wrapped_by": kek.encrypted_by_id,
                "timestamp_ms": kek.timestamp,
                "snapshots": snapshots_under[kek.key_id],
            }
            for kek in metadata.key_ring.keks
        ],
        **_protected_columns(metadata),
        "snapshots": [
            {
                "snapshot_id": snapshot.snapshot_id,
                "timestamp_ms": snapshot.timestamp_ms,
                "key_id": snapshot.key_id,
                "kek": found.keks_of_snapshots.get(snapshot.snapshot_id),
                "manifest_list": snapshot.manifest_list,
            }
            for snapshot in metadata.snapshots
        ],
        "files": [{"kind": kind.value, "files": kinds[kind], "bytes": sizes[kind]} for kind in FileKind if kinds[kind]],
        "unopened": [{"location": each.location, "error": str(each.error)} for each in found.unopened],
    }


def _protected_columns(metadata: EncryptedTableMetadata) -> dict[str, Any]:
    """Return the protected columns and the column KEKs of a table, for one that has any."""
    policy, ring = ColumnPolicy.from_properties(metadata.properties), metadata.key_ring
    if not policy and not ring.column_keks:
        return {}

    names = {field_id: name_or_id(metadata.schema(), field_id) for field_id in policy.columns}
    return {
        "protected_columns": [
            {"column": names[field_id], "field_id": field_id, "master_key_id": column.column_key_id, "mask": str(column.mask)}
            for field_id, column in policy.columns.items()
        ],
        "column_keks": [
            {
                "key_id": kek.key_id,
                "wrapped_by": kek.encrypted_by_id,
                "timestamp_ms": kek.timestamp,
                "columns": list(
                    dict.fromkeys(
                        names.get(entry.field_id, str(entry.field_id)) for entry in ring.column_keys if entry.encrypted_by_id == kek.key_id
                    )
                ),
            }
            for kek in ring.column_keks
        ],
    }
