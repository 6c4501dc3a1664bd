"""What is written of a share: manifests, their list and metadata.json. Each names files of the source as they are, under the partner's key.

    metadata.json   table-uuid, location           the share's
                    schema, partition specs, ids   the source's; without protected columns that are not shared, and without history
                    properties                     what readers need; encryption.key-id = the partner's master key; gc.enabled = false
                    snapshots, encryption-keys     one; a KEK under the partner's master key, the key of one list, what opens shared columns
    list, manifests                                new, under DEKs of their own
    entry           file, key metadata, partition  as the source has them
                    sequence numbers, row ids      filled in, as readers of the source see them
                    statistics                     of the columns that the share has; none where they are not wanted
    delete file     the vectors of shared files    in one new Puffin file: those of the source hold positions of other files too
    data file       where rows were written again  in the share's folder, under a DEK of its own, in the share's default partition spec

gc.enabled=false keeps a purge, an expiry and a removal of orphans at the partner from deleting the source's files; Iceberg Java heeds it.

The names of all files of one state begin with one uuid, the generation, so that those of an earlier one are known for what they are.

Iceberg table spec, "Snapshots", "Manifests", "Sequence Numbers", "Row Lineage".
"""

from __future__ import annotations

import itertools
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import Operation, SnapshotLogEntry, Summary, update_snapshot_summaries
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyroaring import BitMap64

from tablecrypt import properties as names
from tablecrypt.crypto.secret import Secret
from tablecrypt.files.encrypting_file_io import EncryptingOutputFile
from tablecrypt.iceberg_properties import GC_ENABLED
from tablecrypt.keys.column_keys import COLUMN_PREFIX, ColumnPolicy, ProtectedColumn
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing, copy_of
from tablecrypt.keys.manager import OpenKek
from tablecrypt.maintenance.sharing.plan import SharePlan
from tablecrypt.maintenance.sharing.states import SHARED_AT
from tablecrypt.manifests.manifest_file import ManifestWriterV3
from tablecrypt.manifests.manifest_list import ManifestListWriterV3, further_fields
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, STATISTICS, EncryptedDataFile, key_metadata_of
from tablecrypt.manifests.table_state import ListedTableState
from tablecrypt.table.deletes import DeleteReader, DeletionVector, write_deletion_vectors
from tablecrypt.table.lineage import with_lineage
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata, changed_metadata
from tablecrypt.table.protection.write_barrier import barrier_properties
from tablecrypt.table.scan import EncryptedDataScan
from tablecrypt.table.snapshots import schema_of_spec, summary_counts
from tablecrypt.table.table_files import TableFileIO
from tablecrypt.table.write import write_data_files

_ENTRIES: Final = 5000
"""Of one manifest, which is about 1 MB."""
_KEPT: Final = (TableProperties.DEFAULT_NAME_MAPPING, names.DATA_KEY_LENGTH.name, names.KEK_LIFESPAN_MS.name)
_KEPT_PREFIX: Final = "read."
_WITHHELD: Final = "withheld"
"""In the place of the master keys of the source's protected columns, which are none of the partner's business."""
SHARE_OF: Final = "tablecrypt.share-of"


@dataclass(frozen=True)
class Place:
    """Where one state of a share is written.

    Attributes:
        location: the share's folder, without a slash at the end.
        share_uuid: its table-uuid.
        generation: which state it is.
        number: counts the states up.
    """

    location: str
    share_uuid: uuid.UUID
    generation: uuid.UUID
    number: int = 0

    @property
    def metadata_location(self) -> str:
        """Where its metadata.json goes."""
        return f"{self.location}/metadata/{self.number:05d}-{self.generation}.metadata.json"

    def manifest(self, number: int) -> str:
        """Return where a manifest goes."""
        return f"{self.location}/metadata/{self.generation}-m{number}.avro"

    def manifest_list(self, snapshot_id: int) -> str:
        """Return where the manifest list goes."""
        return f"{self.location}/metadata/snap-{snapshot_id}-0-{self.generation}.avro"

    @property
    def vectors(self) -> str:
        """Where the deletion vectors go."""
        return f"{self.location}/data/{self.generation}-deletes.puffin"


class ShareWriter:
    """Writes one state of a share.

    Args:
        plan: what is shared.
        place: where.
        io: the share's FileIO, whose manager makes its DEKs and knows the partner's master key.
        secret: what the manifest lists of all states of the share say.
        now_ms: when it is written, in milliseconds since the epoch.

    Attributes:
        locations: of the files that were begun.
        written_bytes: stored bytes of metadata that were written.
        rewritten_rows, rewritten_bytes: how many rows were written again, and their stored bytes.
    """

    def __init__(self, plan: SharePlan, place: Place, io: TableFileIO, secret: Secret, now_ms: int) -> None:
        self._plan = plan
        self._place = place
        self._io = io
        self._secret = secret
        self._now_ms = now_ms
        self._manifests = 0
        self.written_bytes = 0
        self.rewritten_rows = self.rewritten_bytes = 0
        self.locations: list[str] = []

    @cached_property
    def empty(self) -> EncryptedTableMetadata:
        """The share's metadata without its snapshot."""
        source, plan = self._plan.metadata, self._plan
        specs = self._specs()
        orders = [each for each in source.sort_orders if _fits((field.source_id for field in each.fields), plan.schema)]
        default_order = source.default_sort_order_id if any(each.order_id == source.default_sort_order_id for each in orders) else 0
        fits = [each.spec_id for each in specs if _fits((field.source_id for field in each.fields), plan.schema)]
        changed: dict[str, Any] = {
            "table_uuid": self._place.share_uuid,
            "location": self._place.location,
            "last_updated_ms": self._now_ms,
            "last_sequence_number": plan.snapshot.sequence_number or 0,
            "schemas": [plan.schema],
            "partition_specs": specs,
            "default_spec_id": source.default_spec_id if source.default_spec_id in fits else fits[-1],
            "sort_orders": orders if any(each.order_id == default_order for each in orders) else [*orders, UNSORTED_SORT_ORDER],
            "default_sort_order_id": default_order,
            "properties": self._properties(),
            **{name: [] for name in ("snapshots", "snapshot_log", "metadata_log", "statistics", "partition_statistics", "encryption_keys")},
            "refs": {},
            "current_snapshot_id": None,
        }
        return changed_metadata(source, changed)

    def write(self, kek: OpenKek, given: Sequence[EncryptedKey] = ()) -> EncryptedTableMetadata:
        """Write all but metadata.json, and return what that is to say.

        Args:
            kek: the share's, whose entry the partner's master key opens.
            given: entries that open the shared columns in shared files.
        """
        metadata = self.empty
        snapshot_id, sequence_number = metadata.new_snapshot_id(), metadata.last_sequence_number
        data = [self._entry(entry, snapshot_id) for entry in self._plan.entries]
        rewritten = list(self._rewritten())
        data += [ManifestEntry(ManifestEntryStatus.ADDED, snapshot_id, None, None, file) for file in rewritten]
        of_columns = [*given, *self._entries_for(rewritten)]
        metadata = changed_metadata(metadata, {"properties": {**metadata.properties, **dict(map(copy_of, of_columns))}})
        deletes = [
            ManifestEntry(ManifestEntryStatus.ADDED, snapshot_id, sequence_number, sequence_number, vector) for vector in self._vectors()
        ]
        manifests = [
            *self._written_manifests(data, snapshot_id, ManifestContent.DATA),
            *self._written_manifests(deletes, snapshot_id, ManifestContent.DELETES),
        ]

        location, first_row_id = self._place.manifest_list(snapshot_id), metadata.next_row_id or 0
        main = SnapshotRef.model_validate({"snapshot-id": snapshot_id, "type": "branch"})
        output = self._begun(location)
        state = ListedTableState.of(metadata, {MAIN_BRANCH: main})
        column_keys = [(entry.field_id, entry.key_id) for entry in of_columns if entry.is_column_key]
        stated = further_fields((each.field_id for each in self._plan.columns), column_keys, state, self._secret)
        with ManifestListWriterV3(output, snapshot_id, None, sequence_number, first_row_id, self._codec, stated) as writer:
            writer.add_manifests(manifests)
        self.written_bytes += len(output)

        list_key = self._io.manager.encrypt_under(kek, output.key_metadata)
        snapshot = EncryptedSnapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=None,
            sequence_number=sequence_number,
            timestamp_ms=self._now_ms,
            manifest_list=location,
            summary=self._summary(metadata, [*data, *deletes]),
            schema_id=metadata.current_schema_id,
            first_row_id=first_row_id,
            added_rows=writer.next_row_id - first_row_id,
            key_id=list_key.key_id,
        )
        changed = {
            "snapshots": [snapshot],
            "current_snapshot_id": snapshot_id,
            "refs": {MAIN_BRANCH: main},
            "snapshot_log": [SnapshotLogEntry(snapshot_id=snapshot_id, timestamp_ms=self._now_ms)],
            "encryption_keys": [kek.entry, *of_columns, list_key],
            "next_row_id": writer.next_row_id,
        }
        return changed_metadata(metadata, changed)

    @property
    def _codec(self) -> str:
        return str(
            self._plan.metadata.properties.get(TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT)
        )

    def _properties(self) -> dict[str, str]:
        source = self._plan.metadata.properties
        kept = {name: value for name, value in source.items() if name in _KEPT or name.startswith(_KEPT_PREFIX)}
        # Readers take a hidden column for what it is only where the properties protect it: as one that the table has dropped.
        withheld = {f"{COLUMN_PREFIX}{field_id}.key-id": _WITHHELD for field_id in sorted(self._plan.protected)}
        own = {names.KEY_ID.name: self._io.manager.table_key_id, GC_ENABLED.name: "false", SHARED_AT: str(self._now_ms)}
        return {**kept, **withheld, **self._protection(), **own}

    def _protection(self) -> dict[str, str]:
        """The properties by which the shared columns are protected: their masks show nothing, whatever files hold."""
        plan, source = self._plan, self._plan.metadata.properties
        policy = ColumnPolicy.of(ProtectedColumn(each.field_id, each.key_id) for each in plan.columns)
        if not policy:
            return {}
        is_guarded = names.COLUMN_GUARD.is_true(source)
        barrier = barrier_properties(policy, plan.schema) if is_guarded else {names.COLUMN_GUARD.name: "false"}
        return {**policy.to_properties(), **barrier}

    def _specs(self) -> list[PartitionSpec]:
        """The partition specs that shared files are of, and the table's own where its columns are shared."""
        source = self._plan.metadata
        used = {task.file.spec_id for task in self._plan.tasks} | {source.default_spec_id}
        specs = [spec for spec in source.partition_specs if spec.spec_id in used]
        if any(_fits((field.source_id for field in spec.fields), self._plan.schema) for spec in specs):
            return specs
        # New rows of the partner, who may write to his table, need a spec that can be written.
        return [*specs, PartitionSpec(spec_id=1 + max(each.spec_id for each in source.partition_specs))]

    def _entry(self, entry: ManifestEntry, snapshot_id: int) -> ManifestEntry:
        file = copy(EncryptedDataFile.of(entry.data_file))
        file.spec_id = entry.data_file.spec_id
        for name in STATISTICS:
            file[DATA_FILE_POSITIONS[name]] = self._shown(getattr(file, name))
        # As added: a stream that reads the share begins with all of its files.
        return ManifestEntry(ManifestEntryStatus.ADDED, snapshot_id, entry.sequence_number, entry.file_sequence_number, file)

    def _shown(self, statistics: Mapping[int, Any] | None) -> dict[int, Any] | None:
        """Return statistics of the columns that the share has: others would show values of columns that are withheld or were dropped."""
        if statistics is None or not self._plan.with_statistics:
            return None
        return {field_id: value for field_id, value in statistics.items() if field_id in self._plan.schema.field_ids}

    def _rewritten(self) -> Iterator[DataFile]:
        """Write the matching rows of files that cannot be shared as they are, one file at a time, and yield the new files.

        A row keeps its id and its sequence number, which new files store.
        """
        plan, source = self._plan, self._plan.table.io
        scan = EncryptedDataScan(plan.metadata, source, plan.row_filter, snapshot_id=plan.snapshot.snapshot_id, as_now=True)
        columns, counter = with_lineage(plan.schema), itertools.count()
        for task in plan.rewritten:
            # Bounds only say that rows may match: of a file without one, nothing is written.
            rows = scan.rows_matching(task, columns)
            for file in write_data_files(self.empty, rows, self._io, self._io.manager, self._place.generation, counter):
                self.locations.append(file.file_path)
                self.rewritten_rows += file.record_count
                self.rewritten_bytes += file.file_size_in_bytes
                yield file if plan.with_statistics else EncryptedDataFile.of(file).without_statistics_of(plan.schema.field_ids)

    def _entries_for(self, files: Iterable[DataFile]) -> tuple[EncryptedKey, ...]:
        """Return the entries that the protected columns of files which were written again need."""
        prefixes = (key_metadata_of(file).aad_prefix for file in files)
        return self._io.manager.pending_columns.new_entries(KeyRing(), prefixes)

    def _vectors(self) -> list[EncryptedDataFile]:
        """Write the deletion vectors of the shared files, and return their entries' files."""
        reader = DeleteReader(self._plan.table.io, self._plan.metadata)
        with_vectors = self._plan.with_vectors
        vectors = [DeletionVector(task.file, BitMap64(reader.positions_of(task) or ())) for task in with_vectors]
        if not vectors:
            return []

        self.locations.append(self._place.vectors)
        written = write_deletion_vectors(self._io, self._place.vectors, vectors)
        self.written_bytes += written[0].file_size_in_bytes
        for task, file in zip(with_vectors, written, strict=True):
            file.spec_id = task.file.spec_id
        return written

    def _written_manifests(self, entries: Iterable[ManifestEntry], snapshot_id: int, content: ManifestContent) -> Iterable[ManifestFile]:
        by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
        for entry in entries:
            by_spec[entry.data_file.spec_id].append(entry)
        for spec_id, of_spec in by_spec.items():
            for start in range(0, len(of_spec), _ENTRIES):
                yield self._manifest(spec_id, of_spec[start : start + _ENTRIES], snapshot_id, content)

    def _manifest(self, spec_id: int, entries: list[ManifestEntry], snapshot_id: int, content: ManifestContent) -> ManifestFile:
        spec = self.empty.specs()[spec_id]
        schema = schema_of_spec(spec, self._plan.schema, self._plan.metadata.schemas)
        output = self._begun(self._place.manifest(self._manifests))
        self._manifests += 1
        with ManifestWriterV3(spec, schema, output, snapshot_id, self._codec, content) as writer:
            for entry in entries:
                writer.add_entry(entry)
        self.written_bytes += len(output)
        return writer.to_manifest_file()

    def _begun(self, location: str) -> EncryptingOutputFile:
        self.locations.append(location)
        return self._io.new_encrypted_output(location)

    def _summary(self, metadata: EncryptedTableMetadata, entries: list[ManifestEntry]) -> Summary:
        share_of = f"{self._plan.table.metadata.table_uuid}@{self._plan.snapshot.snapshot_id}"
        counts = summary_counts(metadata, [entry.data_file for entry in entries])
        return update_snapshot_summaries(Summary(Operation.APPEND, **counts, **{SHARE_OF: share_of}), None)


def _fits(sources: Iterable[int], schema: Schema) -> bool:
    return all(schema.find_column_name(source) is not None for source in sources)
