"""Copying an encrypted table to another location, where Iceberg Java reads it too, under the same master key or another one.

    1  find       every file that the kept snapshots lead to; all of it must be encrypted
    2  files      data files byte for byte, delete files that name data files are rewritten; on threads or executors
    3  manifests  manifests and manifest lists rewritten under fresh DEKs, whose keys a KEK of the copy's own wraps
    4  metadata   metadata.json last: before it is there, there is no copy
    5  register   the copy in the table's catalog, where asked for

A run that was killed is continued by calling again. Names of data files and of metadata.json follow from the table's state, the new
location and the arguments, so the next run finds what is done: files that are there with the right content stay, and a metadata.json that
is there whole ends it. What is written under fresh DEKs has names of its own in every run, so that two runs at once do not write over
each other's. Nothing of the table itself is changed at any time.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.arguments import check_text, checked_arguments
from tablecrypt.errors import ConfigurationError, PlaintextRefusedError, TamperedFileError
from tablecrypt.files.deletion import DeletionScope, place_of
from tablecrypt.files.encrypting_file_io import refuse_restricted
from tablecrypt.files.stores import stored_files
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.maintenance._file_rewrite import opened
from tablecrypt.maintenance._relocate_files import CopyWork, PathMap, RewriteWork, copy_file, copy_location, rewrite_deletes
from tablecrypt.maintenance._relocate_metadata import (
    CopyIdentity,
    ManifestCopier,
    NewDeletes,
    copied_header,
    copied_metadata,
    kept_snapshots,
    only_snapshots,
)
from tablecrypt.maintenance._storage import write_metadata
from tablecrypt.maintenance.operation import (
    OperationResult,
    ProgressListener,
    check_manifests_below_count,
    check_new_name,
    check_own_manifests,
    no_progress,
    reload,
)
from tablecrypt.maintenance.reachable import FileKind, ReachableFile, reachable_files
from tablecrypt.maintenance.runner import FileWork, Runner, run_counted, runner_or_threads
from tablecrypt.manifests.manifest_list import read_manifest_list
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.printable import bytes_shown, counted, shown
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.other_tables import check_no_table_around, metadata_at, tables_at
from tablecrypt.table.protection.declaring import copied_keys
from tablecrypt.table.shares import readably_named
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import ReportedFiles, RunNames, TableFileIO, name_of

_COPIED: Final = (FileKind.DATA, FileKind.EQUALITY_DELETES)
_REWRITTEN: Final = (FileKind.POSITION_DELETES, FileKind.DELETION_VECTOR)


@dataclass(frozen=True)
class Relocated(OperationResult):
    """What `relocate` did.

    Attributes:
        location: of the copy.
        metadata_location: of the copy's metadata.json; where it will be, in a dry run.
        registered_as: the copy's name in the catalog; None where it was not registered.
        table_key_id: the copy's encryption.key-id.
        snapshots: how many snapshots the copy has.
        files: how many data and delete files.
        bytes: their length.
        found: how many of these files an earlier run had copied.
        manifests: how many manifests were written.
        statistics_left: statistics files that were not copied, because they are plaintext.
        shares_left: uuids of live shares, which name files of the original and stay with it. They need these files.
    """

    location: str
    metadata_location: str = field(metadata=shown("metadata"))
    registered_as: str | None = field(metadata=shown("registered as"))
    table_key_id: str = field(metadata=shown("master key"))
    snapshots: int = field(metadata=shown("snapshots", "count"))
    files: int
    bytes: int
    found: int = field(default=0, metadata=shown("files that an earlier run had copied", "count"))
    manifests: int = 0
    statistics_left: tuple[str, ...] = field(default=(), metadata=shown("statistics files that were not copied: they are plaintext"))
    shares_left: tuple[str, ...] = field(default=(), metadata=shown("shares that stay with the original", is_whole=True))

    def summary(self) -> str:
        """Return what was done in one sentence."""
        files = f"{counted(self.files, 'data or delete file', 'data and delete files')}, {bytes_shown(self.bytes)}"
        return f"{self._did('Copied', 'Would copy')} {self.table} to {self.location} ({files})."


@checked_arguments()
def relocate(
    table: Table,
    location: str,
    key_id: str | None = None,
    register_as: str | None = None,
    *,
    current_only: bool = False,
    trust_lengths: bool = False,
    dry_run: bool = False,
    progress: ProgressListener = no_progress,
    runner: Runner | None = None,
    workers: int | None = None,
    manifests_below: Sequence[str] = (),
) -> Relocated:
    """Copy an encrypted table to another location, optionally under another master key.

    The copy is a table of its own, with another table-uuid. It does NOT remove the original, nor follow what is committed to it later:
    calling again copies the newer state, and then the files that are there are not copied again. Data files keep their DEKs, so somebody
    who has opened a manifest of the original can read the same files of the copy (`reencrypt` the copy to end that). Older metadata files
    and statistics files stay behind. What the copy's FileIO needs to reach the new place has to be in the catalog's properties.

    Args:
        table: an encrypted table; its newest state is copied.
        location: where the copy goes, a location in any store that the table's FileIO reaches; not inside the table's own.
        key_id: the copy's master key; by default the table's.
        register_as: the copy's name in the table's catalog, "namespace.name"; by default it is not registered.
        current_only: whether the current snapshot alone is copied, or all snapshots, branches and tags.
        trust_lengths: whether the length of a file that an earlier run copied is enough; otherwise it is read and compared.
        dry_run: only report what would be copied.
        progress: called as bytes are copied.
        runner: runs the work on files, such as `tablecrypt.spark.SparkRunner(spark)`; by default threads here do.
        workers: how many files at once, without `runner`.
        manifests_below: with `key_id`, folders of this table and of no other in which manifests lie, where neither a pin nor the place of
            its metadata file says that the table lies there.

    Raises:
        ConfigurationError: the table is not encrypted, the new location is inside the table's, holds another table or is in no store that
            the table's FileIO knows, or no table can be registered under the name; there is `manifests_below` and no `key_id`; or, under
            another key, a manifest lies outside the folders that this client knows as the table's, so that the copy's readers might get
            another table's rows.
        PlaintextRefusedError: a file of the table is plaintext: nothing is copied.
        TamperedFileError: a manifest or delete file does not authenticate, or a data file has not the length that its manifest says.
        KmsError: the KMS refused the table's master key or the copy's.
        TableAlreadyExistsError: another table is registered under the name, and nothing was copied; or a copy of another state or under
            another master key, or another table since, and the copy is complete nevertheless.
    """
    source = reload(table)
    # A copy would hold every row and value, past what the server restricts.
    refuse_restricted(source.io, "relocate")
    # Before anything is copied: metadata that says it could not be written, and comes last.
    check_text("key_id", key_id)
    # As an unset variable leaves it: the copy would be under the table's key, which it may have been made to get away from.
    if key_id is not None and not key_id.strip():
        raise ConfigurationError("key_id is blank: name the copy's master key, or leave it out for the table's own")
    check_manifests_below_count(manifests_below, "key_id", key_id)
    runner = runner_or_threads(runner, workers)
    if register_as is not None:
        check_new_name(table.catalog, register_as)
    copying = _Copying(source, copy_location(location), key_id, not current_only)
    # Before anything is written: in the folder of another table, each would take the other's files for orphans.
    copying.check_place_is_free()
    if register_as is not None:
        copying.check_name_is_free(register_as)
    files = copying.find(manifests_below)
    # metadata.json is written last: if it is there, so is everything below it.
    is_complete = copying.is_complete()
    if not is_complete:
        # Asked now, so that a refusal comes before the copying and not after it, and a dry run shows it.
        copying.target.manager.check_usable(KeyRing())
    if dry_run:
        return copying.result(files, register_as=None, dry_run=True)
    if is_complete:
        return copying.result(files, copying.register(register_as), found=len(files))

    found = copying.copy_files(files, runner, not trust_lengths, progress)
    new_deletes = copying.rewrite_deletes(files, runner, progress)
    manifests = copying.write_metadata(new_deletes)

    return copying.result(files, copying.register(register_as), found, manifests)


class _Copying:
    """One table on its way to one place."""

    def __init__(self, table: EncryptedTable, new_location: str, key_id: str | None, all_snapshots: bool) -> None:
        metadata, source = table.metadata, table.io
        self.table = table
        self.key_id = key_id or source.manager.table_key_id
        # A column's master key must not be the copy's own: every reader of the copy could use it.
        ColumnPolicy.from_properties(metadata.properties).check(metadata.schema(), self.key_id)
        self.paths = PathMap(metadata.location.rstrip("/"), new_location)
        self.whole = metadata
        self.metadata = only_snapshots(metadata, kept_snapshots(metadata, all_snapshots))
        self.source = source
        manager = EncryptionManager(
            source.manager.kms, self.key_id, data_key_length=source.manager.data_key_length, kek_lifespan_ms=source.manager.kek_lifespan_ms
        )
        # The copy's FileIO may write over and delete in the new place alone, never the table's own files.
        self.target = TableFileIO(source.inner, manager, DeletionScope((new_location,)))
        self.identity = CopyIdentity.of(metadata, table.metadata_location, new_location, self.key_id, all_snapshots)
        self.metadata_location = f"{new_location}/metadata/00000-{self.identity.copy_id}.metadata.json"

    def find(self, manifests_below: Sequence[str]) -> list[ReachableFile]:
        """Return every data and delete file that the copy needs."""
        found = reachable_files(self.metadata, self.source)
        # A copy without what this manifest names would look complete.
        if found.problems:
            raise found.problems[0].error

        # Under the same master key, the copy gives nothing to readers who did not have it.
        if self.key_id != self.source.manager.table_key_id:
            manifests = (file.location for file in found.files.values() if file.kind == FileKind.MANIFEST)
            check_own_manifests(self.table, manifests, manifests_below)
        for file in found.files.values():
            if file.key is None:
                raise PlaintextRefusedError(file.location, "is plaintext, and a copy of it would be plaintext too")
        return [file for file in found.files.values() if file.kind in (*_COPIED, *_REWRITTEN)]

    def is_complete(self) -> bool:
        """Whether an earlier run wrote the metadata.json, which it does last. ConfigurationError where somebody else wrote one there."""
        found = metadata_at(self.source.inner, self.metadata_location)
        if found is None or found.table_uuid != self.identity.table_uuid:
            return False

        # Its place can be foretold. Whoever writes there could have another table pass for the copy, under a key that they know, or this
        # one without its rows.
        if not self._is_copied_in(found):
            raise ConfigurationError(f"{self.metadata_location} is not what relocate writes there: delete it, or choose another location")
        return True

    def _is_copied_in(self, found: TableMetadata) -> bool:
        """Whether metadata says what a copy's does. Its manifest lists, and their keys, are those that another run has made."""
        if not isinstance(found, EncryptedTableMetadata):
            return False
        lists = {snapshot.snapshot_id: (snapshot.manifest_list, snapshot.key_id or "") for snapshot in found.snapshots}
        if lists.keys() != {snapshot.snapshot_id for snapshot in self.metadata.snapshots}:
            return False
        return found == copied_metadata(self.metadata, self.paths, self.identity, self.key_id, lists, list(found.encryption_keys))

    def check_place_is_free(self) -> None:
        """Refuse a place where another table is, or around which one is."""
        for location, found in tables_at(self.source.inner, self.paths.new):
            if found != self.identity.table_uuid:
                raise ConfigurationError(f"{self.paths.new} holds another table already (table-uuid {found} in {location})")
        check_no_table_around(self.source.inner, self.paths.new)

    def check_name_is_free(self, name: str) -> None:
        """Refuse the name of another table, before anything is copied that could not be registered. Earlier copies may have it."""
        catalog = self.table.catalog
        if catalog.table_exists(name) and catalog.load_table(name).metadata.table_uuid != self.identity.table_uuid:
            raise TableAlreadyExistsError(f"{name} is another table: choose another name for the copy (register_as, --as), or drop {name}")

    def copy_files(self, files: list[ReachableFile], runner: Runner, compare_content: bool, progress: ProgressListener) -> int:
        """Copy what is copied byte for byte; return how many files were there."""
        lengths = self._lengths_at_target()
        plain = [file for file in files if file.kind in _COPIED]
        # A length proves little: unless the caller trusts it, `copy_file` compares the content.
        there = {file.location for file in plain if lengths.get(place_of(self.paths(file.location))) == _length(file)}
        works = [
            FileWork(
                CopyWork(file.location, self.paths(file.location), file.file_format, _length(file), is_there=file.location in there),
                size=_length(file),
            )
            for file in plain
            if compare_content or file.location not in there
        ]
        skipped = len(plain) - len(works)
        done = sum(_length(file) for file in plain) - sum(work.size for work in works)
        for _, copied in run_counted(runner, self.table, copy_file, works, "relocate: files", progress, done):
            skipped += copied.result == 0
        self._check_copied(plain)

        return skipped

    def rewrite_deletes(self, files: list[ReachableFile], runner: Runner, progress: ProgressListener) -> dict[str, NewDeletes]:
        """Rewrite the delete files that name data files; return them by old location."""
        old = [file for file in files if file.kind in _REWRITTEN]
        length = self.target.manager.data_key_length
        names = RunNames()
        reported = ReportedFiles(names, self.target.own_folders)
        works = [
            FileWork(
                RewriteWork(file.location, file.file_format, self.paths, length, names),
                keys=() if file.key is None else (file.key,),
                size=_length(file),
            )
            for file in old
        ]

        def written() -> Generator[tuple[tuple[str, NewDeletes], list[EncryptedDataFile]], None, None]:
            for index, each in run_counted(runner, self.table, rewrite_deletes, works, "relocate: delete files", progress):
                reported.check(each.result.location, f"the worker that rewrites {old[index].location}")
                new = NewDeletes(each.result, each.key)
                yield (old[index].location, new), [_as_reported(new, old[index])]

        # The copy is complete once its metadata.json is there: nothing would look at these files again.
        return dict(new for new, _ in opened(runner, self.source, written()))

    def write_metadata(self, new_deletes: dict[str, NewDeletes]) -> int:
        """Write manifests, manifest lists and metadata.json; return how many manifests."""
        folder, run = f"{self.paths.new}/metadata", uuid.uuid4()
        copier = ManifestCopier(self.source, self.target, self.paths, new_deletes, f"{folder}/{run}-m", self.metadata.properties)
        ring, layout = self.metadata.key_ring, self.metadata.stated_layout
        # Data files keep their keys, so those of their protected columns go with them.
        keys = [*ring.column_keks, *copied_keys(self.metadata, str(self.identity.table_uuid), self.source.manager.columns)]
        last_key_id: str | None = None
        lists: dict[int, tuple[str, str]] = {}

        for snapshot in self.metadata.snapshots:
            key = self.source.manager.decrypt_manifest_list_key_metadata(ring.chain(snapshot.key_id or ""))
            old = read_manifest_list(self.source, snapshot.manifest_list, key)
            location = f"{folder}/snap-{snapshot.snapshot_id}-0-{run}.avro"
            header = copied_header(old.header, self.whole, self.metadata, self.paths, self.identity, self.key_id)
            own_layout = layout.read_with(snapshot.schema_id)
            new_key = copier.write_list(location, header, [copier.row(manifest.stated_by(own_layout)) for manifest in old.manifests])
            # The lists of the copy share a KEK, as those of a chain of commits do.
            wrapped = self.target.manager.encrypt_manifest_list_key_metadata(new_key, KeyRing(keys), last_key_id)
            keys += wrapped.added
            last_key_id = wrapped.key_id
            lists[snapshot.snapshot_id] = (location, wrapped.key_id)

        copied = copied_metadata(self.metadata, self.paths, self.identity, self.key_id, lists, keys)
        # Where another run was faster, its metadata stays: the copy may be in use by now.
        if not self.is_complete():
            write_metadata(self.target, self.metadata_location, copied, overwrite=True)
        return copier.count

    def register(self, name: str | None) -> str | None:
        """Give the copy a name in the table's catalog, if it has not that name already."""
        if name is None:
            return None

        try:
            self.table.catalog.register_table(name, self.metadata_location)
        except TableAlreadyExistsError:
            # An earlier run may have registered the copy. Another table under that name is refused.
            registered = self.table.catalog.load_table(name)
            if registered.metadata.table_uuid != self.identity.table_uuid:
                raise
            # What was copied now is not what the name leads to, and who believes that it is may drop the original.
            before = (entry.metadata_file for entry in registered.metadata.metadata_log)
            if self.metadata_location not in (registered.metadata_location, *before):
                raise TableAlreadyExistsError(
                    f"{name} is an earlier copy there, and stays as it is. This one is complete: drop {name}, and register "
                    f"{self.metadata_location} in its place, or under another name"
                ) from None

        return name

    def result(
        self, files: list[ReachableFile], register_as: str | None, found: int = 0, manifests: int = 0, dry_run: bool = False
    ) -> Relocated:
        """Return what was done."""
        statistics = (*self.metadata.statistics, *self.metadata.partition_statistics)
        return Relocated(
            table=name_of(self.table),
            dry_run=dry_run,
            location=self.paths.new,
            metadata_location=self.metadata_location,
            registered_as=register_as,
            table_key_id=self.key_id,
            snapshots=len(self.metadata.snapshots),
            files=len(files),
            bytes=sum(_length(file) for file in files),
            found=found,
            manifests=manifests,
            statistics_left=tuple(each.statistics_path for each in statistics),
            shares_left=tuple(readably_named(self.whole)),
        )

    def _lengths_at_target(self) -> dict[tuple[str, str, str], int]:
        return {place_of(file.location): file.size for file in stored_files(self.source.inner, self.paths.new)}

    def _check_copied(self, files: Iterable[ReachableFile]) -> None:
        """Look at what is there: a task of a cluster that was given up may have written over what another one finished."""
        lengths = self._lengths_at_target()
        for file in files:
            target = self.paths(file.location)
            if lengths.get(place_of(target)) != _length(file):
                raise TamperedFileError(target, f"is not there with {_length(file)} bytes after it was copied: call relocate again")


def _as_reported(new: NewDeletes, old: ReachableFile) -> EncryptedDataFile:
    """Return the entry of a delete file that was rewritten, as far as it says how the file opens: its rows are as many as before."""
    return EncryptedDataFile.from_args(
        file_path=new.file.location,
        file_format=FileFormat(old.file_format),
        key_metadata=new.key_metadata.encode(),
        record_count=max(entry.records for entry in old.entries),
        file_size_in_bytes=new.key_metadata.file_length,
    )


def _length(file: ReachableFile) -> int:
    return file.length or 0
