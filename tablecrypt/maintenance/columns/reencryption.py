"""Protected columns in a re-encryption: which files are not as the properties declare, and what becomes of their hidden columns.

    look    the footer of each Parquet data file says which hidden columns it has, and which kind of placeholders: no column key is needed
    plan    here, where the key service is: old hidden columns are opened, new column DEKs are made
    file    on threads or executors: one new file (parquet/protected/hidden_column_rewriting.py, or carried_over_columns.py)

    the file has                                   the properties say     the new file has                            needs the column's key
    a hidden column                                protected              a hidden column under a fresh DEK           yes
                                                                          without it the same one, byte for byte      no
    the column under the file's own key            protected              a placeholder, and a hidden column          to wrap under
    a hidden column                                not protected          the column                                  yes
    a hidden column of a column that was dropped   nothing or anything    a hidden column under a fresh DEK           yes
    a placeholder of another kind than the mask's  protected              the placeholder that the mask asks for      yes
    the format Avro                                protected              Parquet: see shown_files.py                 yes

A file of the second kind is from before the column was protected, or another engine wrote it since: reading refuses those until they are
made to conform. Where a file has to change, the keys of all of its hidden columns are needed, because none can stay where it was.

A column that was dropped stays protected, and its masks go: whoever may commit may drop it, and old snapshots have its values still. Only
whoever may use its key ends its protection, and that while the table has it.

A shredded column has no key, and its hidden column is kept as it is: its values are gone whatever the properties say.

A run that finds only files that conform forgets what the table remembers of former protection and no file of any snapshot needs:

    encryption.column.<id>.since            files up to this sequence number lack the hidden column
        forgotten when every data file of every snapshot has one: from then on a file without a hidden column is refused
    encryption.column.<id>.former-key-id    files hold the column under this master key, which is not the column's now
        forgotten, with former-until, when no data file of any snapshot does; the column keys under that master key go in the same
        commit, with their KEKs

Of every file the footer is read. If one cannot be, or is no encrypted Parquet file, everything stays remembered. A manifest list that says
that a column was protected keeps its former master key too: a snapshot that follows it is refused without.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table.update import RemovePropertiesUpdate, TableUpdate

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError, KeyNotFoundError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.raw_output import RawContent
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import COLUMN_PREFIX, ColumnKeys, ColumnMask, ColumnPolicy, ProtectedColumn, key_id_in
from tablecrypt.keys.column_lookup import is_under_another_key
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing
from tablecrypt.maintenance._file_rewrite import (
    CarriedOverColumns,
    FilesToReencrypt,
    FreshHiddenColumns,
    NewFile,
    NewFileWork,
    ReencryptWork,
)
from tablecrypt.maintenance._key_commit import commit_keys
from tablecrypt.maintenance.columns.footers import (
    footer_works,
    inspect_footers,
    inspect_hidden_columns,
    may_have_hidden_columns,
    name_mapping_of,
)
from tablecrypt.maintenance.columns.masks import refuse_masks
from tablecrypt.maintenance.columns.shown_files import ShownFiles
from tablecrypt.maintenance.operation import ProgressListener
from tablecrypt.maintenance.reachable import FileKind, reachable_files
from tablecrypt.maintenance.runner import FileDone, FileWork, Runner
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile, key_metadata_of
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.protected.carried_over_columns import reencrypt_beside_hidden_columns
from tablecrypt.parquet.protected.hidden_column_rewriting import RewrittenFile, rewrite_protected
from tablecrypt.parquet.protected.hidden_columns import hidden_name
from tablecrypt.parquet.protected.protected_layout import StoredHiddenColumns
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.protection.authenticated import check_declared
from tablecrypt.table.protection.policy import column_keys, policy_of
from tablecrypt.table.protection.stored_masks import replacement_of
from tablecrypt.table.protection.writing import fields_left_out
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import FreshKeys, deleting_on_error
from tablecrypt.table.updates import removed_keys

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Opened:
    """The DEKs of a file's hidden columns, as they are in `StoredHiddenColumns.keys`; None where they are kept as they are."""

    deks: tuple[Secret, ...] | None


def protected_files(table: EncryptedTable, branch: str, files: Mapping[str, DataFile], runner: Runner) -> ProtectedFiles:
    """Look at the footers of files of a branch of a table that has or had protected columns.

    Raises:
        TamperedFileError, FormatError: a footer is not what was written.
    """
    protected = policy_of(table.metadata).columns.keys()
    footers = inspect_footers(table, (file for file in files.values() if may_have_hidden_columns(file)), runner, protected)
    return ProtectedFiles(table, runner, footers, ShownFiles.among(table, branch, files))


class ProtectedFiles(FilesToReencrypt):
    """The data files of a table with protected columns.

    Args:
        table: the table.
        runner: reads files.
        footers: what the footers of its planned files say, by location.
        shown: those of its planned files whose partitions show a protected column.

    Attributes:
        policy: what the table's properties declare.
    """

    def __init__(self, table: EncryptedTable, runner: Runner, footers: Mapping[str, StoredHiddenColumns], shown: ShownFiles) -> None:
        self._table = table
        self._runner = runner
        self._metadata: EncryptedTableMetadata = table.metadata
        self._mapping = name_mapping_of(table.metadata)
        self._keys: ColumnKeys = column_keys(self._metadata, table.io)
        self._maker: ColumnKeyMaker = table.io.manager.columns
        self.policy: ColumnPolicy = policy_of(self._metadata)
        self._written = {**self.policy.columns, **_dropped_columns(self._metadata)}
        self._footers = footers
        self._shown = shown
        self._opened: dict[str, _Opened] = {}

    @property
    def shown(self) -> Collection[str]:
        return self._shown.locations

    def rewrite_shown(self, data_key_length: int | None, progress: ProgressListener) -> int | None:
        return self._shown.rewrite(data_key_length, self._runner, progress)

    def conforms(self, location: str) -> bool:
        found = self._footers.get(location)
        return location not in self.shown and (found is None or (self._conforms(found) and not self._has_former_key(found)))

    def refuse_masks(self, files: Mapping[str, DataFile], sequence_numbers: Mapping[str, int | None]) -> None:
        footers = {location: found for location, found in self._footers.items() if location in files}
        refuse_masks(self._table, self.policy, files, footers, sequence_numbers, self._runner)

    def check_readable(self, locations: Iterable[str]) -> None:
        locations = tuple(locations)
        if not locations:
            return

        chosen = [location for location in locations if location in self._footers]
        schema, known = self._metadata.schema(), {entry.key_id for entry in self._metadata.key_ring.column_keys}

        for location in chosen:
            for field_id, stored in self._footers[location].keys:
                # Its partitions show values of a column that nobody can read any more: they go with the column.
                if stored and key_id_in(stored) not in known and (name := schema.find_column_name(field_id)) is not None:
                    raise KeyNotFoundError(
                        f"{location}: the keys of column {name!r} were shredded, and the file's rows have to be written again, since its "
                        "partition shows a protected column. Drop the column, then reencrypt"
                    )

        hidden_columns = frozenset[int]().union(*(self._footers[location].protected for location in chosen))
        wanted = hidden_columns | self.policy.columns.keys()
        self._keys.check_readable(field_id for field_id in sorted(wanted) if schema.find_column_name(field_id) is not None)

    def open_all(self, files: Mapping[str, DataFile], sequence_numbers: Mapping[str, int | None]) -> None:
        wanted: set[int] = set()
        for location, file in files.items():
            found = self._footers.get(location)
            if found is None:
                continue

            prefix = key_metadata_of(file).aad_prefix
            self._opened[location] = opened = self._open(found, prefix, sequence_numbers.get(location))
            if opened.deks is not None:
                wanted |= self._wanted(found)
            else:
                self._maker.pending.bring_nothing_with(prefix)

        # Those too that were dropped, which no write of rows looks at: whoever may commit could have put them under another key.
        check_declared(self._metadata, self._table.io, wanted, writing=False)
        self._keys.generate(sorted(wanted), secrets.token_bytes(16))
        for field_id in sorted(wanted):
            if self._written[field_id].mask.needs_key:
                self._keys.mask_key(field_id)

    @property
    def kept(self) -> int:
        return sum(opened.deks is None for opened in self._opened.values())

    def usable(self, swaps: Mapping[str, EncryptedDataFile]) -> Collection[str]:
        if not swaps:
            return ()
        footers = inspect_footers(self._table, (new for new in swaps.values() if may_have_hidden_columns(new)), self._runner)
        return {old for old, new in swaps.items() if new.file_path not in footers or self._is_usable(footers[new.file_path])}

    def work(self, plain: FileWork[NewFileWork]) -> FileWork[ReencryptWork]:
        location = plain.work.location
        found = self._footers.get(location)
        if found is None:
            return super().work(plain)
        if location not in self._opened:
            raise RuntimeError(f"{location}: its protected columns have to be opened before it is written again")

        opened = self._opened[location]
        if opened.deks is None:
            return FileWork(ReencryptWork(plain.work, CarriedOverColumns()), plain.keys, plain.size)

        prefix = FreshKeys(plain.work.data_key_length).new_key_metadata().aad_prefix
        made = self._keys.generate(sorted(self._wanted(found)), prefix)
        hashed = tuple(each for each in made if self._written[each].mask.needs_key)
        stored = [key for key in found.keys if key[1]]
        work = FreshHiddenColumns(
            prefix,
            tuple(stored),
            tuple((field_id, key.key_metadata(found.schemas[field_id])) for field_id, key in made.items()),
            tuple(self._written[field_id] for field_id in made),
            hashed,
            self._metadata.schema(),
            self._mapping,
        )
        column_deks = (*opened.deks, *(Secret(key.secret) for key in made.values()), *(self._keys.mask_key(each) for each in hashed))
        keys = (*plain.keys, *(StandardKeyMetadata(key, prefix) for key in column_deks))

        return FileWork(ReencryptWork(plain.work, work), keys, plain.size)

    def entry(self, file: DataFile, done: FileDone[NewFile]) -> EncryptedDataFile:
        new = super().entry(file, done).without_statistics_of(fields_left_out(self.policy, self._metadata.schema()))
        if done.result.group_starts is not None:
            new[DATA_FILE_POSITIONS["split_offsets"]] = list(done.result.group_starts) or None
        return new

    def forget_former_protection(self) -> None:
        forget_former_protection(self._table, self._runner)

    def _wanted(self, found: StoredHiddenColumns) -> set[int]:
        return (self.policy.columns.keys() & found.columns) | self._dropped(found)

    def _dropped(self, found: StoredHiddenColumns) -> set[int]:
        """The field ids of a file's hidden columns whose columns the table has no more."""
        return {each for each in found.protected if self._metadata.schema().find_column_name(each) is None}

    def _is_usable(self, found: StoredHiddenColumns) -> bool:
        """Whether a file that an earlier run has written conforms, under column keys that the metadata has."""
        known = {entry.key_id for entry in self._metadata.key_ring.column_keys}
        return self._conforms(found) and all(key_id_in(stored) in known for _, stored in found.keys if stored)

    def _has_former_key(self, found: StoredHiddenColumns) -> bool:
        """Whether a column of a file is under another master key than the properties say now."""
        ring, columns = self._metadata.key_ring, self.policy.columns
        named = ((columns[field_id], key_id_in(stored)) for field_id, stored in found.keys if stored and field_id in columns)
        return any(is_under_another_key(ring, key_id, column) for column, key_id in named)

    def _conforms(self, found: StoredHiddenColumns) -> bool:
        return conforms(found, self.policy, self._dropped(found))

    def _open(self, found: StoredHiddenColumns, aad_prefix: bytes, sequence_number: int | None) -> _Opened:
        if unknown := sorted(self._dropped(found) - self._written.keys()):
            if self._conforms(found):
                return _Opened(None)
            raise ConfigurationError(
                f"a file has the protected column with field id {unknown[0]}, which was dropped and which no property names any more, and "
                "other columns of it are to be protected otherwise: compact the table, which leaves dropped columns out"
            )

        try:
            opened = (
                self._keys.unwrap(field_id, stored, aad_prefix, found.schemas[field_id], sequence_number)
                for field_id, stored in found.keys
                if stored
            )
            return _Opened(tuple(map(Secret, opened)))
        except ColumnKeyDeniedError:
            if self._conforms(found):
                return _Opened(None)
            raise
        except KeyNotFoundError:
            return _Opened(None)


def conforms(found: StoredHiddenColumns, policy: ColumnPolicy, dropped: Collection[int]) -> bool:
    """Whether a file's protected columns are those of a policy, and its placeholders of the kind that their masks ask for.

    Args:
        found: what the file says.
        policy: of the table's current schema.
        dropped: field ids of the file's hidden columns whose columns that schema does not have: they may stay.
    """
    protected = found.protected - set(dropped)
    if protected != policy.columns.keys() & found.columns:
        return False
    has_rows = any(stored for _, stored in found.keys)
    return not has_rows or all(policy.columns[each].mask.is_stored == (each in found.masked) for each in protected)


def _dropped_columns(metadata: EncryptedTableMetadata) -> dict[int, ProtectedColumn]:
    """The columns that properties protect and the schema does not have, without their masks, which nobody reads."""
    declared = ColumnPolicy.from_properties(metadata.properties).columns
    gone = {field_id: each for field_id, each in declared.items() if metadata.schema().find_column_name(field_id) is None}
    return {field_id: replace(each, mask=ColumnMask.parse("null")) for field_id, each in gone.items()}


def write_protected(
    io: EncryptingFileIO, work: NewFileWork, hidden_columns: CarriedOverColumns | FreshHiddenColumns, keys: tuple[StandardKeyMetadata, ...]
) -> FileDone[NewFile]:
    """Write the new file and return where it is, and its key metadata, which knows the file's length."""
    old, *column_keys = keys
    dek = FreshKeys(work.data_key_length).new_key_metadata().encryption_key
    location = work.new_location()

    with deleting_on_error(io, [location]), io.raw_input(work.location).open() as stored:
        with io.raw_output(location, RawContent.SELF_ENCRYPTED).create() as sink:
            if isinstance(hidden_columns, CarriedOverColumns):
                new = StandardKeyMetadata(dek, old.aad_prefix)
                length, starts = reencrypt_beside_hidden_columns(stored, sink, old, new, work.location), None
            else:
                new = StandardKeyMetadata(dek, hidden_columns.aad_prefix)
                deks = [each.encryption_key for each in column_keys]
                rewritten = _write_fresh(stored, sink, old, new, hidden_columns, deks, work.location)
                length, starts = rewritten.length, rewritten.group_starts

        return FileDone(NewFile(location, starts), (new.with_file_length(length),))


def _write_fresh(
    stored: object,
    sink: object,
    old: StandardKeyMetadata,
    new: StandardKeyMetadata,
    hidden_columns: FreshHiddenColumns,
    deks: list[Secret],
    location: str,
) -> RewrittenFile:
    opened = dict(zip(hidden_columns.old, deks, strict=False))
    made, hash_keys = (
        deks[len(hidden_columns.old) : len(hidden_columns.old) + len(hidden_columns.new)],
        deks[len(hidden_columns.old) + len(hidden_columns.new) :],
    )
    of_hashes = dict(zip(hidden_columns.hashed, hash_keys, strict=True))
    keys = FileKeys(
        new.encryption_key,
        {hidden_name(field_id): dek for (field_id, _), dek in zip(hidden_columns.new, made, strict=True)},
        new.aad_prefix,
        column_key_metadata={hidden_name(field_id): key_metadata for field_id, key_metadata in hidden_columns.new},
    )
    replacements = {
        column.field_id: replacement_of(column, hidden_columns.schema, of_hashes.__getitem__) for column in hidden_columns.columns
    }

    def hidden_key(field_id: int, held: bytes) -> Secret:
        return opened[field_id, held]

    return rewrite_protected(stored, sink, old, keys, replacements, hidden_key, location, hidden_columns.mapping.root)


@dataclass(frozen=True)
class _Forgotten:
    """Properties and entries of encryption-keys that nothing needs any more."""

    properties: tuple[str, ...] = ()
    key_ids: tuple[str, ...] = ()

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """The updates; none when nothing is forgotten."""
        removals = (RemovePropertiesUpdate(removals=list(self.properties)),) if self.properties else ()
        return (*removals, *removed_keys(self.key_ids))


def forget_former_protection(table: EncryptedTable, runner: Runner) -> None:
    """Remove what a table remembers of earlier protection and no file of any snapshot needs.

    Args:
        table: the table. Its state in memory is brought up to date.
        runner: reads footers.

    Raises:
        TamperedFileError, FormatError: a footer is not what was written.
        CommitFailedException: others committed first, several times in a row.
    """
    policy = ColumnPolicy.from_properties(table.metadata.properties)
    if not policy.former and not any(column.since is not None for column in policy.columns.values()):
        return
    # Planned on the newest state each time: a commit that was faster may have brought a file that needs what would go.
    done = commit_keys(table, lambda base: _forgotten(base, runner)).plan
    if done.updates:
        logger.info("%s: no file needs %s any more", table.metadata.location, ", ".join(done.properties))


def _forgotten(table: EncryptedTable, runner: Runner) -> _Forgotten:
    metadata = table.metadata
    footers = _footers_of_all(table, runner)
    if footers is None:
        return _Forgotten()

    current = policy_of(metadata)
    since = {field_id for field_id, column in current.columns.items() if column.since is not None}
    since = since.intersection(*(found.protected for found in footers))
    former = dict(_unused_keys(table, metadata, footers))
    names = (
        *(f"{each}.since" for each in sorted(since)),
        *(f"{each}.{name}" for each in former for name in ("former-key-id", "former-until")),
    )
    properties = tuple(name for name in (f"{COLUMN_PREFIX}{each}" for each in names) if name in metadata.properties)
    column_keys = [entry for entries in former.values() for entry in entries]

    return _Forgotten(properties, _with_keks(metadata.key_ring, column_keys))


def _footers_of_all(table: EncryptedTable, runner: Runner) -> list[StoredHiddenColumns] | None:
    """What the footers of all data files say; None where one of the files may hold more than can be told."""
    found = reachable_files(table.metadata, table.io)
    files = [file for file in found.files.values() if file.kind == FileKind.DATA]
    if found.problems or any(file.key is None or file.file_format != FileFormat.PARQUET.value for file in files):
        return None
    works = footer_works(table.metadata, {file.location: file.key for file in files if file.key is not None})
    return [done.result for _, done in runner.run(table, inspect_hidden_columns, works)]


def _unused_keys(
    table: EncryptedTable, metadata: EncryptedTableMetadata, footers: Iterable[StoredHiddenColumns]
) -> Iterator[tuple[int, list[EncryptedKey]]]:
    """Yield the columns whose former master key no file needs, each with its column keys under that."""
    policy, ring = ColumnPolicy.from_properties(metadata.properties), metadata.key_ring
    used = {key_id_in(stored) for found in footers for _, stored in found.keys if stored}
    with_hidden_columns = frozenset[int]().union(*(found.protected for found in footers)) | _named_by_lists(table, metadata)

    for field_id, former in sorted(policy.former.items()):
        entries = ring.keys_of_column(field_id, former.key_id)
        is_needed = any(entry.key_id in used for entry in entries) or (field_id not in policy.columns and field_id in with_hidden_columns)
        if not is_needed:
            yield field_id, entries


def _named_by_lists(table: EncryptedTable, metadata: EncryptedTableMetadata) -> frozenset[int]:
    encrypted = (each for each in metadata.snapshots if isinstance(each, EncryptedSnapshot) and each.key_id is not None)
    return frozenset[int]().union(*(each.known_header(table.io).protected_columns for each in encrypted))


def _with_keks(ring: KeyRing, column_keys: list[EncryptedKey]) -> tuple[str, ...]:
    """The ids of these column keys, and of the KEKs above them under which no other column key is."""
    gone = [entry.key_id for entry in column_keys]
    kept = {entry.encrypted_by_id for entry in ring.column_keys if entry.key_id not in gone}
    keks = dict.fromkeys(entry.encrypted_by_id for entry in column_keys if entry.encrypted_by_id is not None)
    return (*gone, *(kek for kek in keks if kek not in kept))
