"""Scan planning: from a snapshot's manifests to one task per data file, with the delete files that apply to it.

    manifests ──partition summaries──▶ entries ──partition, statistics──▶ data files ──delete index──▶ tasks

Data manifests and their entries are pruned by the filter, with PyIceberg's evaluators. Of delete manifests only those are left out whose
partition summaries cannot match or which are older than all data: a delete file's own statistics say nothing about the rows that it
deletes, and its data file is looked up in an index, not through the partition alone. Planning is always done here, never by a catalog
server, whose answer would hold no key metadata.

Iceberg table spec, "Scan Planning".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection, manifest_evaluator, residual_evaluator_of
from pyiceberg.io import FileIO
from pyiceberg.manifest import INITIAL_SEQUENCE_NUMBER, DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import EMPTY_DICT, KeyDefaultDict, Properties
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.properties import property_as_bool

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.manifests import EncryptedManifestFile
from tablecrypt.table._pyiceberg.arrow import InclusiveMetricsEvaluator
from tablecrypt.table.content_files import refuse_plaintext
from tablecrypt.table.delete_index import DeleteIndex, partition_values, sequence_number_of
from tablecrypt.table.file_parts import FilePart, parts_of
from tablecrypt.table.read_restrictions import plannable


@dataclass(init=False)
class EncryptedFileScanTask(FileScanTask):
    """PyIceberg's task for one data file, with the file's data sequence number: rows that were never rewritten inherit it.

    `part` says which part of the file is read, None for all of it.
    """

    data_sequence_number: int | None
    part: FilePart | None

    def __init__(
        self,
        data_file: DataFile,
        delete_files: set[DataFile] | None = None,
        residual: BooleanExpression = ALWAYS_TRUE,
        data_sequence_number: int | None = None,
        part: FilePart | None = None,
    ) -> None:
        super().__init__(data_file, delete_files, residual)
        self.data_sequence_number = data_sequence_number
        self.part = part

    @property
    def size(self) -> int:
        """Stored bytes of the data file, or of the part of it, that are read."""
        return int(self.file.file_size_in_bytes) if self.part is None else self.part.size

    def split(self, size: int) -> list[EncryptedFileScanTask]:
        """Return tasks for parts of the file, of about `size` bytes; this task alone where the file is not longer or cannot be cut."""
        parts = parts_of(self.file, size)
        if len(parts) == 1:
            return [self]
        return [EncryptedFileScanTask(self.file, self.delete_files, self.residual, self.data_sequence_number, part) for part in parts]


class ScanPlanner:
    """Plans scans of one table with one filter.

    Args:
        table_metadata: the schema and partition specs to evaluate the filter with.
        io: the table's EncryptingFileIO; manifests open with the keys that their manifest list gave them.
        row_filter: rows to look for. Where the catalog's server has a column masked that it looks at, it rules out no file.
        options: PyIceberg's scan options; `include_empty_files` is known.
    """

    def __init__(
        self,
        table_metadata: TableMetadata,
        io: FileIO,
        row_filter: BooleanExpression = ALWAYS_TRUE,
        case_sensitive: bool = True,
        options: Properties = EMPTY_DICT,
    ) -> None:
        self.table_metadata = table_metadata
        self.io = io
        self.row_filter = plannable(io, row_filter, table_metadata.schema(), case_sensitive)
        self.case_sensitive = case_sensitive
        self._schema = table_metadata.schema()
        self._specs = table_metadata.specs()
        self._include_empty_files = property_as_bool(options, "include_empty_files", False)
        self._partition_filters: dict[int, BooleanExpression] = KeyDefaultDict(self._partition_filter)

    def plan_files(
        self, manifests: Iterable[ManifestFile], entry_filter: Callable[[ManifestEntry], bool] = lambda _: True
    ) -> list[EncryptedFileScanTask]:
        """Return the tasks of all data files that may hold matching rows.

        Args:
            manifests: data and delete manifests of one snapshot.
            entry_filter: a further condition on data files.

        Raises:
            PlaintextRefusedError: a file that is to be read has no key metadata.
            FormatError: delete files that contradict each other.
            TablecryptError: whatever reading a manifest raises.
            ValueError, TypeError: the filter does not fit the schema.
        """
        listed = list(manifests)
        try:
            return self._planned(listed, entry_filter)
        except (ValueError, TypeError):
            # Maybe the filter is wrong, and maybe somebody edited the schema that it is to fit.
            self._check_newest_headers(listed, set())
            raise

    def _planned(self, manifests: list[ManifestFile], entry_filter: Callable[[ManifestEntry], bool]) -> list[EncryptedFileScanTask]:
        matching = self._matching_manifests(manifests)
        data = [manifest for manifest in matching if manifest.content == ManifestContent.DATA]
        entries = [entry for entry in self._data_entries(data) if entry_filter(entry)]
        index = self._delete_index(_not_older_than(data, matching))
        residuals = _Residuals(self.row_filter, self._residual)
        return [self._task(entry, index, residuals) for entry in entries]

    def _task(self, entry: ManifestEntry, index: DeleteIndex, residuals: _Residuals) -> EncryptedFileScanTask:
        number = sequence_number_of(entry)
        deletes = index.deletes_of(entry.data_file, number)
        for file in (entry.data_file, *deletes):
            refuse_plaintext(file)
        return EncryptedFileScanTask(entry.data_file, deletes, residuals.of(entry.data_file), entry.sequence_number)

    def _matching_manifests(self, listed: list[ManifestFile]) -> list[ManifestFile]:
        evaluators: Mapping[int, Callable[[ManifestFile], bool]] = KeyDefaultDict(self._manifest_evaluator)
        self._check_specs_exist(listed)
        matching = [manifest for manifest in listed if self._may_match(manifest, evaluators)]
        if len(matching) < len(listed):
            self._check_newest_headers(listed, {manifest.manifest_path for manifest in matching})
        return matching

    def _may_match(self, manifest: ManifestFile, evaluators: Mapping[int, Callable[[ManifestFile], bool]]) -> bool:
        may_match = evaluators[manifest.partition_spec_id]
        try:
            return may_match(manifest)
        except (struct.error, ValueError, TypeError, LookupError, OverflowError) as error:
            # A spec that is not the one of the manifest gives its bounds other types. Its authenticated header says which one is.
            if isinstance(manifest, EncryptedManifestFile):
                manifest.check_header(self.io)
            what = f"its bounds of partition values cannot be read by partition spec {manifest.partition_spec_id}: {error}"
            raise FormatError(f"{manifest.manifest_path}: {what}") from error

    def _check_specs_exist(self, manifests: list[ManifestFile]) -> None:
        for manifest in manifests:
            if manifest.partition_spec_id not in self._specs:
                what = f"was written with partition spec {manifest.partition_spec_id}, which the table metadata does not have"
                raise TamperedFileError(manifest.manifest_path, what)

    def _check_newest_headers(self, manifests: list[ManifestFile], read_anyway: set[str]) -> None:
        """Compare the newest manifest of each spec with the metadata, by which others have just been left out without being read."""
        newest: dict[int, ManifestFile] = {}
        for manifest in manifests:
            known = newest.get(manifest.partition_spec_id)
            if known is None or (manifest.sequence_number or 0) > (known.sequence_number or 0):
                newest[manifest.partition_spec_id] = manifest
        for manifest in newest.values():
            if isinstance(manifest, EncryptedManifestFile) and manifest.manifest_path not in read_anyway:
                manifest.check_header(self.io)

    def _data_entries(self, manifests: list[ManifestFile]) -> Iterator[ManifestEntry]:
        in_partition: dict[int, Callable[[DataFile], bool]] = KeyDefaultDict(self._partition_evaluator)
        by_statistics = InclusiveMetricsEvaluator(self._schema, self.row_filter, self.case_sensitive, self._include_empty_files).eval
        unfiltered = isinstance(self.row_filter, AlwaysTrue)

        def read(manifest: ManifestFile) -> list[ManifestEntry]:
            entries = manifest.fetch_manifest_entry(self.io, discard_deleted=True)
            if unfiltered:
                return [entry for entry in entries if self._include_empty_files or entry.data_file.record_count]
            may_match = in_partition[manifest.partition_spec_id]
            return [entry for entry in entries if may_match(entry.data_file) and by_statistics(entry.data_file)]

        for manifest in manifests:
            in_partition[manifest.partition_spec_id]  # built here, so that the threads below only look it up
        for entries in ExecutorFactory.get_or_create().map(read, manifests):
            yield from entries

    def _delete_index(self, manifests: list[ManifestFile]) -> DeleteIndex:
        index = DeleteIndex(spec_id for spec_id, spec in self._specs.items() if spec.is_unpartitioned())
        read = ExecutorFactory.get_or_create().map(lambda manifest: manifest.fetch_manifest_entry(self.io), manifests)
        for entries in read:
            for entry in entries:
                index.add(entry)
        return index

    def _partition_filter(self, spec_id: int) -> BooleanExpression:
        return inclusive_projection(self._schema, self._specs[spec_id], self.case_sensitive)(self.row_filter)

    def _manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        return manifest_evaluator(self._specs[spec_id], self._schema, self._partition_filters[spec_id], self.case_sensitive)

    def _partition_evaluator(self, spec_id: int) -> Callable[[DataFile], bool]:
        partition_schema = Schema(*self._specs[spec_id].partition_type(self._schema).fields)
        evaluate = expression_evaluator(partition_schema, self._partition_filters[spec_id], self.case_sensitive)
        return lambda data_file: evaluate(data_file.partition)

    def _residual(self, data_file: DataFile) -> BooleanExpression:
        evaluator = residual_evaluator_of(
            spec=self._specs[data_file.spec_id], expr=self.row_filter, case_sensitive=self.case_sensitive, schema=self._schema
        )
        try:
            return evaluator.residual_for(data_file.partition)
        except TypeError:
            # PyIceberg compares a partition's null by < and >, which Python cannot: so all of the filter is left to look at.
            if None in partition_values(data_file.partition):
                return self.row_filter
            raise


class _Residuals:
    """What is left of the filter in each partition, worked out once per partition."""

    def __init__(self, row_filter: BooleanExpression, residual: Callable[[DataFile], BooleanExpression]) -> None:
        self._matches_all = isinstance(row_filter, AlwaysTrue)
        self._residual = residual
        self._known: dict[Hashable, BooleanExpression] = {}

    def of(self, data_file: DataFile) -> BooleanExpression:
        if self._matches_all:
            return ALWAYS_TRUE
        key = data_file.spec_id, partition_values(data_file.partition)
        if key not in self._known:
            self._known[key] = self._residual(data_file)
        return self._known[key]


def _not_older_than(data: list[ManifestFile], manifests: list[ManifestFile]) -> list[ManifestFile]:
    """Return the delete manifests that are not older than all of the data."""
    oldest = min((manifest.min_sequence_number or INITIAL_SEQUENCE_NUMBER for manifest in data), default=INITIAL_SEQUENCE_NUMBER)
    return [
        manifest
        for manifest in manifests
        if manifest.content == ManifestContent.DELETES and (manifest.sequence_number or INITIAL_SEQUENCE_NUMBER) >= oldest
    ]
