"""Where rows of a filter lie in a table: every file that a key of the table opens is decrypted and its rows compared, deleted ones too.

    snapshots of the metadata, and expired ones     their keys are in older metadata files until they are shredded
      └ manifest lists, manifests                   entries of deleted files too: they hold DEKs and bounds
          └ data files                              all rows, whatever deletes say of them
          └ equality deletes                        their values; where they lack the filter's columns, nothing can be said of them
          └ position deletes                        the rows that they copy, where they do
          └ deletion vectors                        hold no values, if they are what their entries say

Nothing is ruled out by statistics, but for a file that is no longer stored: then its bounds are all that is left of it. Bounds are searched
too: those that no row of their file accounts for are values of rows that it held before it was written again. A file's smallest and
greatest values are those of rows that it holds, unless they were taken over when it was written again. Such a bound is found only where it
is of a column that the filter compares, and the filter may be true of it.

    bound 7 of customer_id, filter customer_id = 7, no row of the file has it     a value of an erased row
    bound "abcdefghijklmnop", and a row has "abcdefghijklmnopq"                   cut after 16 characters, and of that row

So are the dictionaries of whoever wrote a file, as far as it says that it had some: a value in them that no row of the file has may be of
any row, whichever columns the filter compares.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.types import PrimitiveType, StructType

from tablecrypt.errors import (
    ColumnKeyDeniedError,
    ConfigurationError,
    FormatError,
    KeyNotFoundError,
    KmsError,
    MissingExtraError,
    TablecryptError,
)
from tablecrypt.maintenance._shred_find import OlderFiles
from tablecrypt.maintenance.columns.blanking import BLANKED
from tablecrypt.maintenance.erasure.row_filter import ErasureFilter
from tablecrypt.maintenance.operation import Counted
from tablecrypt.manifests.records import EncryptedDataFile, is_deletion_vector, key_metadata_of, partition_values
from tablecrypt.parquet.dictionaries import keeps_unused_values
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.layout import encrypted_layout
from tablecrypt.parquet.storage import open_source
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile
from tablecrypt.table._pyiceberg.arrow import InclusiveMetricsEvaluator
from tablecrypt.table.arrow_filter import comparable
from tablecrypt.table.data_file_reader import FIELD_ID_KEY, opened_file
from tablecrypt.table.deletes import DeletionVectorReader, equality_rows
from tablecrypt.table.metadata import EncryptedSnapshot, has_column_keys
from tablecrypt.table.planning import EncryptedFileScanTask, sequence_number_of
from tablecrypt.table.reader import TaskReader
from tablecrypt.table.table import EncryptedTable

_THREADS: Final = 8
_DELETED_ROW: Final = b"2147483544"
"""Field id of the column in which a position delete file may copy the rows that it deletes."""
_NOT_OF_A_FILE: Final = (ColumnKeyDeniedError, ConfigurationError, KmsError, MissingExtraError)
"""What is raised rather than noted of the one file: the key service does not answer, or refuses a column."""


class Holds(Enum):
    """What a file holds of the rows that a filter matches. Of a file that is read in several ways, the later of these counts."""

    NOTHING = auto()
    MISSING = auto()
    """The file is not stored, and the bounds in its entry do not rule such rows out."""
    UNDECIDED = auto()
    """Values that the filter cannot decide: equality deletes by other columns; dictionaries, where the caller may not read all columns."""
    HIDDEN = auto()
    """As the next one, and the caller may not read these columns."""
    BLANKED = auto()
    """None of its rows matches, but ciphertext of protected columns is left in blanked rows, and the caller may read these columns."""
    DICTIONARIES = auto()
    """None of its rows matches, but the dictionaries of its writer hold values that no row of it has: of whatever rows they are."""
    BOUNDS = auto()
    """None of its rows matches, but bounds in its entry that no row of it has may be of such rows."""
    ROWS = auto()


ENDED_BY_REWRITING: Final = (Holds.ROWS, Holds.BOUNDS, Holds.DICTIONARIES, Holds.BLANKED)


@dataclass(frozen=True)
class NamedFile:
    """A data or delete file as an entry of a manifest names it.

    Attributes:
        is_live: whether a snapshot of the current metadata has it; not where entries say only that it was deleted.
    """

    file: DataFile
    sequence_number: int | None
    is_live: bool

    @property
    def reading(self) -> tuple[object, ...]:
        """What decides how the file is read: two entries of one file that agree in it have the same rows."""
        file = self.file
        place = getattr(file, "spec_id", None), partition_values(file.partition)
        return file.content, file.file_format, bytes(file.key_metadata or b""), tuple(file.equality_ids or ()), *place


@dataclass(frozen=True)
class NamedLocation:
    """A location as all entries name it: once, unless somebody has named a file in another way, to have its rows passed over.

    Attributes:
        files: no two of them are read alike; a live one first, where there is one.
    """

    files: tuple[NamedFile, ...]

    @property
    def file(self) -> DataFile:
        """The first of them."""
        return self.files[0].file

    def also_named(self, named: NamedFile) -> NamedLocation:
        """Return the location with another entry of it."""
        known = next((each for each in self.files if each.reading == named.reading), None)
        # A live entry beats a deleted one: a live file that is missing was not searched, whatever its bounds say.
        if known is not None and (known.is_live or not named.is_live):
            return self

        files = [*(each for each in self.files if each is not known), named]
        # An entry without a key tells nothing beside one that opens the file.
        keyed = [each for each in files if each.is_live or each.file.key_metadata] or files[:1]
        return NamedLocation(tuple(sorted(keyed, key=lambda each: not each.is_live)))


@dataclass
class NamedFiles:
    """What snapshots name, each manifest read once.

    Attributes:
        lists: the manifest list of each snapshot, by its id.
        manifests: locations of the manifests of each snapshot whose list could be read.
        entries: locations of the files that each manifest names, deleted ones too.
        files: the data and delete files, by location.
        out_of_reach: ids of expired snapshots of which not all is stored any more.
        unread: for each manifest list or manifest that cannot be read, why.
        stored_lengths: bytes of manifests.
    """

    lists: dict[int, str] = field(default_factory=dict)
    manifests: dict[int, tuple[str, ...]] = field(default_factory=dict)
    entries: dict[str, frozenset[str]] = field(default_factory=dict)
    files: dict[str, NamedLocation] = field(default_factory=dict)
    out_of_reach: set[int] = field(default_factory=set)
    unread: dict[str, str] = field(default_factory=dict)
    stored_lengths: dict[str, int] = field(default_factory=dict)

    def naming(self, locations: Collection[str]) -> set[int]:
        """Return the ids of the snapshots whose manifests name one of these files, as deleted or not."""
        wanted = set(locations)
        manifests = {manifest for manifest, files in self.entries.items() if not wanted.isdisjoint(files)}
        return {snapshot_id for snapshot_id, named in self.manifests.items() if not manifests.isdisjoint(named)}

    def locations_of(self, snapshot_ids: Iterable[int]) -> set[str]:
        """Return the locations of all that snapshots name: lists, manifests, data and delete files."""
        found: set[str] = set()
        for snapshot_id in snapshot_ids:
            found.add(self.lists[snapshot_id])
            for manifest in self.manifests.get(snapshot_id, ()):
                found.add(manifest)
                found |= self.entries.get(manifest, frozenset())

        return found

    def length_of(self, location: str) -> int:
        """Return the stored bytes of a data file, delete file or manifest, as the layer above says; 0 where none says it."""
        named = self.files.get(location)
        return self.stored_lengths.get(location, 0) if named is None else int(named.file.file_size_in_bytes)


def named_files(table: EncryptedTable, older: OlderFiles) -> NamedFiles:
    """Return what the snapshots of a table name, and those that were expired and whose keys are still there.

    Raises:
        TablecryptError: a list or manifest of the current metadata's snapshots cannot be read.
        KmsError: the key service failed.
    """
    found = NamedFiles()
    current = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    expired = {snapshot_id: snapshot for snapshot_id, snapshot in older.snapshots.items() if snapshot_id not in current}

    # Current ones first: a manifest that expired snapshots share with them is read once, and its entries count as live.
    for snapshot in [*current.values(), *expired.values()]:
        is_current = snapshot.snapshot_id in current
        try:
            _add_snapshot(found, table, snapshot, is_current)
        except KeyNotFoundError:
            if is_current:
                # What a current snapshot hides may be such rows: nothing is erased on half of the knowledge.
                raise
            # Shredded: no key that is left opens it.
            found.lists.pop(snapshot.snapshot_id, None)
        except FileNotFoundError:
            if is_current:
                raise
            # Its keys are still in older metadata, so a copy of the missing file would open: the snapshot goes with the suspects.
            found.out_of_reach.add(snapshot.snapshot_id)
        except TablecryptError as error:
            if is_current or (isinstance(error, KmsError) and error.retryable):
                # A key service that does not answer for the moment is no reason to pass a snapshot over.
                raise
            found.out_of_reach.add(snapshot.snapshot_id)
            found.unread[snapshot.manifest_list] = f"of an expired snapshot: {error}"

    return found


def names_any(table: EncryptedTable, snapshot_id: int, locations: Collection[str]) -> bool:
    """Whether the manifests of a snapshot name one of these files, as deleted or not. Raises as `named_files`."""
    found, snapshot = NamedFiles(), table.metadata.snapshot_by_id(snapshot_id)
    _add_snapshot(found, table, cast("EncryptedSnapshot", snapshot), is_current=True)
    return bool(found.naming(locations))


def _add_snapshot(found: NamedFiles, table: EncryptedTable, snapshot: EncryptedSnapshot, is_current: bool) -> None:
    io = table.io
    found.lists[snapshot.snapshot_id] = snapshot.manifest_list
    manifests = snapshot.manifests(io)
    found.manifests[snapshot.snapshot_id] = tuple(manifest.manifest_path for manifest in manifests)
    # Deleted entries too: each keeps its file's DEK, partition and bounds.
    missing = [manifest for manifest in manifests if manifest.manifest_path not in found.entries]

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="tablecrypt-erase") as pool:
        for manifest, entries in zip(
            missing, pool.map(lambda each: each.fetch_manifest_entry(io, discard_deleted=False), missing), strict=True
        ):
            _add_manifest(found, manifest, entries, is_current)


def _add_manifest(found: NamedFiles, manifest: ManifestFile, entries: Sequence[ManifestEntry], is_current: bool) -> None:
    named = []
    for entry in entries:
        location = entry.data_file.file_path
        named.append(location)
        is_live = is_current and entry.status != ManifestEntryStatus.DELETED
        file = NamedFile(entry.data_file, sequence_number_of(entry), is_live)
        known = found.files.get(location)
        found.files[location] = NamedLocation((file,)) if known is None else known.also_named(file)

    found.entries[manifest.manifest_path] = frozenset(named)
    found.stored_lengths[manifest.manifest_path] = manifest.manifest_length


@dataclass(frozen=True)
class Inspected:
    """What reading one file found.

    Attributes:
        holds: whether it holds such rows.
        rows: how many rows or values it holds.
        matching: how many of them match; of equality deletes, may match.
    """

    holds: Holds
    rows: int = 0
    matching: int = 0


@dataclass
class Findings:
    """What a search found, by location.

    Attributes:
        inspected: for each file that was read, or is missing.
        unread: for each file that could not be read, why; of a file with several names, as one of them.
    """

    inspected: dict[str, Inspected] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    def holding(self, *kinds: Holds) -> frozenset[str]:
        """Return the locations of the files that hold one of these."""
        return frozenset(location for location, each in self.inspected.items() if each.holds in kinds)


class FileSearch:
    """Reads data and delete files and compares their rows with a filter; used by many threads.

    Args:
        table: as it was loaded: gives the schema and the keys of columns.
        row_filter: the filter.
        is_blind: whether the table has protected columns that the caller may not read.

    Raises:
        ColumnKeyDeniedError: the filter compares a protected column that the caller may not read.
    """

    def __init__(self, table: EncryptedTable, row_filter: ErasureFilter, is_blind: bool) -> None:
        self._is_blind = is_blind
        self._metadata = table.metadata
        self._schema = self._metadata.schema()
        self._io = table.io
        self._filter = row_filter
        # Bounds decide only about files that are gone: rows of the others are read, whatever the bounds claim.
        self._may_hold = InclusiveMetricsEvaluator(self._schema, row_filter.expression, True)
        self._vectors = DeletionVectorReader(self._io)
        # Without a row filter: it would let the reader skip row groups by statistics, which may be wrong.
        self._reader = TaskReader(self._metadata, self._io, row_filter.on_rows.columns, ALWAYS_TRUE)

    def look(self, files: Collection[NamedLocation], counted: Counted) -> Findings:
        """Read files, and say what each holds.

        Raises:
            ColumnKeyDeniedError, KmsError, ConfigurationError, MissingExtraError: as reading raises them.
        """
        found = Findings()
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="tablecrypt-erase") as pool:
            results = pool.map(self._attempt_each, files)
            for named, attempts in zip(counted.track(list(files)), results, strict=True):
                location = named.file.file_path
                inspected = [each for each in attempts if isinstance(each, Inspected)]
                if inspected:
                    # Read as something that it is not, a file shows no such rows: what it holds as anything counts.
                    found.inspected[location] = max(inspected, key=lambda each: each.holds.value)
                for error in (each for each in attempts if isinstance(each, Exception)):
                    found.unread.setdefault(location, f"{type(error).__name__}: {error}")

        return found

    def _attempt_each(self, named: NamedLocation) -> list[Inspected | Exception]:
        return [self._attempt(each) for each in named.files]

    def _attempt(self, named: NamedFile) -> Inspected | Exception:
        if not (named.is_live or named.file.key_metadata):
            # Nothing is left that opens it; its bounds are.
            return self._by_bounds(named.file)

        try:
            return self._inspect(named)
        except _NOT_OF_A_FILE:
            # These concern every file. Noted for each of them, they would look like damage.
            raise
        except FileNotFoundError as error:
            if named.is_live:
                # A live file that is missing was not searched. One that only deleted entries name may be gone by right.
                return error
            return self._by_bounds(named.file)
        except (TablecryptError, OSError) as error:
            return error

    def _by_bounds(self, file: DataFile) -> Inspected:
        # A deletion vector never held values. Of another delete file that is gone, nothing rules such values out.
        may_hold = bool(self._may_hold.eval(file)) if file.content == DataFileContent.DATA else not is_deletion_vector(file)
        return Inspected(Holds.MISSING if may_hold else Holds.NOTHING)

    def _inspect(self, named: NamedFile) -> Inspected:
        file = named.file
        if file.content == DataFileContent.DATA:
            return self._inspect_rows(named)
        if is_deletion_vector(file):
            # A file is no vector because an entry calls it one: whoever may commit could have one with such rows passed over.
            self._vectors.check(EncryptedDataFile.of(file), None)
            return Inspected(Holds.NOTHING)
        if file.content == DataFileContent.EQUALITY_DELETES:
            batches = equality_rows(self._io, self._metadata, file)
            return self._decided(pa.Table.from_batches(batches) if batches else pa.table({}))

        return self._decided(self._copied_rows(file))

    def _inspect_rows(self, named: NamedFile) -> Inspected:
        rows = matching = 0
        if not self._filter.field_ids:
            return Inspected(Holds.NOTHING, int(named.file.record_count))

        bounds = UnaccountedBounds(self._schema, self._filter, named.file)
        # Without its deletes: a row that they hide is still stored.
        for batch in self._reader.batches(EncryptedFileScanTask(named.file, set(), data_sequence_number=named.sequence_number)):
            rows += batch.num_rows
            bounds.account(batch)
            matching += self._filter.matching(pa.Table.from_batches([batch]))

        holds = Holds.ROWS if matching else Holds.BOUNDS if bounds else Holds.NOTHING
        # By its name, which the manifest entry authenticates: renaming a stored file does not turn it into a blanked one.
        if not matching and named.file.file_path.endswith(BLANKED):
            holds = Holds.HIDDEN if self._is_blind else Holds.BLANKED
        if holds == Holds.NOTHING and self._keeps_unused_values(named.file):
            holds = Holds.UNDECIDED if self._is_blind else Holds.DICTIONARIES
        return Inspected(holds, rows, matching)

    def _keeps_unused_values(self, file: DataFile) -> bool:
        """Whether a file has, or may have, values that none of its rows has."""
        if file.file_format != FileFormat.PARQUET:
            return False
        location, key = file.file_path, key_metadata_of(file)
        with self._io.raw_input(location).open() as stored, open_source(stored, location) as source:
            if not encrypted_layout(source, FileKeys.of_table_file(key)).notes_dictionaries:
                return False
            # Of a file with columns under other keys, what its footer says counts: it has to be written again as a whole.
            return has_column_keys(self._metadata) or keeps_unused_values(
                UniformParquetFile(stored, key, location, dictionary_columns=None)
            )

    def _decided(self, values: pa.Table) -> Inspected:
        """Say what values of some columns of the table hold."""
        if not values.num_rows:
            return Inspected(Holds.NOTHING)

        partial = self._filter.on(values.column_names)
        if partial is None:
            return Inspected(Holds.UNDECIDED, values.num_rows)

        matching = partial.may_match(values)

        return Inspected(Holds.ROWS if matching else Holds.NOTHING, values.num_rows, matching)

    def _copied_rows(self, file: DataFile) -> pa.Table:
        """Return the rows that a position delete file copies, in those of their columns that are the table's."""
        with opened_file(self._io, file) as opened:
            copied = next((each for each in opened.schema if (each.metadata or {}).get(FIELD_ID_KEY) == _DELETED_ROW), None)
            if copied is None:
                return pa.table({})
            names = {int((each.metadata or {})[FIELD_ID_KEY]): each.name for each in copied.type if FIELD_ID_KEY in (each.metadata or {})}
            batches = list(opened.batches(ReadRequest([copied.name])))

        rows = pa.Table.from_batches(batches).column(0).combine_chunks().drop_null() if batches else None
        if rows is None or not len(rows):
            return pa.table({})

        present = {field.name: rows.field(names[field.field_id]) for field in self._schema.fields if field.field_id in names}

        # None of its columns is the table's any more: the rows are not decided by that, and must not count as absent.
        return pa.table(present) if present else pa.table({"": rows})


class UnaccountedBounds:
    """The bounds of one file of which the filter may be true, until a row accounts for them.

    Args:
        schema: the table's.
        row_filter: the filter.
        file: the file's entry.

    Raises:
        FormatError: a bound is not what its type is stored as.
    """

    def __init__(self, schema: Schema, row_filter: ErasureFilter, file: DataFile) -> None:
        self._values: list[tuple[tuple[str, ...], pa.Scalar]] = []
        for field_id in sorted(row_filter.field_ids):
            # Of structs, lists and maps a filter asks for nulls alone, and no entry has bounds.
            if not schema.find_type(field_id).is_primitive:
                continue
            column = _Column(prune_columns(schema, {field_id}, select_full_types=False))
            partial = row_filter.on_part(column.schema)

            for bounds in (file.lower_bounds, file.upper_bounds):
                stored = (bounds or {}).get(field_id)
                if partial is not None and stored is not None:
                    row = column.row(stored, file.file_path)
                    # A bound of which the filter is false shows nothing of the rows that are erased.
                    if partial.may_match(row):
                        self._values.append((column.path, comparable(_values(row.column(0).combine_chunks(), column.path))[0]))

    def __bool__(self) -> bool:
        return bool(self._values)

    def account(self, rows: pa.RecordBatch) -> None:
        """Take in rows of the file."""
        # One row is enough: a bound that some row of the file has is no trace of an erased one.
        self._values = [(path, value) for path, value in self._values if not _has(_values(rows.column(path[0]), path), value)]


class _Column:
    """A column, which may be in structs.

    Args:
        schema: with this column alone.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        [self.field] = schema.fields
        self.path: tuple[str, ...] = (self.field.name,)
        while isinstance(self.field.field_type, StructType):
            [self.field] = self.field.field_type.fields
            self.path = (*self.path, self.field.name)

    def row(self, stored: bytes, location: str) -> pa.Table:
        """Return one row that has a bound as its value. FormatError where it is none."""
        assert isinstance(self.field.field_type, PrimitiveType)
        try:
            value: Any = from_bytes(self.field.field_type, stored)
            for name in reversed(self.path):
                value = {name: value}
            return pa.Table.from_pylist([value], schema=schema_to_pyarrow(self.schema, include_field_ids=False))
        except (ValueError, TypeError, struct.error, pa.ArrowException) as error:
            # Another engine may have written the bound, in bytes that its type does not have: that is an error of the entry, not of Arrow.
            column = ".".join(self.path)
            raise FormatError(f"{location}: a bound of column {column} is no {self.field.field_type}: {type(error).__name__}") from error


def _values(column: pa.Array, path: Sequence[str]) -> pa.Array:
    """Return the values at a path of names, of which the first is the column's own."""
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def _has(column: pa.Array, value: Any) -> bool:
    column = comparable(column)
    kind = column.type
    # Writers cut bounds of text: then the row that the bound is of begins with it.
    found = pc.starts_with(column, value.as_py()) if _is_text(kind) else pc.equal(column, value.cast(kind))
    return bool(pc.any(found).as_py())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))
