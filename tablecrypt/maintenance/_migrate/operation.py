"""A plaintext table of any format version becomes an encrypted one: under the same name in one commit, or as a new table beside it.

    plan      the live files of the main branch
    files     each encrypted into a file of its own under a DEK of its own, without decoding a value; ORC, which encrypted tables do not
              hold, is rewritten as Parquet; the journal says which are done
    commit    version 3, encryption.key-id, the keys, one snapshot of the encrypted files, and no snapshot from before: all or nothing
    cleanup   every file that the plain table named is deleted (see plaintext.py)
    report    what may still be there in plaintext

A run that was killed is continued by calling again, before the commit and after it. What others commit to the plain table meanwhile is
encrypted too: the commit is refused and tried again.

Copies outside the table's location, backups and readers' caches cannot be seen from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, runtime_checkable

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.typedef import Properties

from tablecrypt import properties as names
from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.deletion import DeletionScope, names_location
from tablecrypt.files.encrypting_file_io import store_io
from tablecrypt.files.locations import location_of_new_table
from tablecrypt.maintenance._migrate.attempt import Migration, migration_journal
from tablecrypt.maintenance._migrate.plaintext import PlaintextLeft, PlaintextOf, plaintext_before, plaintext_left, plaintext_of
from tablecrypt.maintenance.operation import OperationResult, ProgressListener, check_new_name, no_progress, require_encrypted
from tablecrypt.maintenance.runner import Runner, runner_or_threads
from tablecrypt.printable import bytes_shown, counted, shown
from tablecrypt.table.other_tables import OtherTables
from tablecrypt.table.table import EncryptedTable, plain_tables_opened
from tablecrypt.table.table_files import TableFileIO, check_garbage_is_collected, name_of

_ATTEMPTS: Final = 5
_KEEP: Final = "keep them: keep_plaintext=True (--keep-plaintext)"


@runtime_checkable
class MigratingCatalog(Protocol):
    """What a migration asks of a table's catalog, beside PyIceberg's own methods."""

    def as_encrypted(self, table: Table, properties: Properties) -> EncryptedTable:
        """Return a plain table with the metadata and the FileIO that it will have."""
        ...


@dataclass(frozen=True)
class Migrated(OperationResult):
    """What `migrate` did. The table is the plain one, even if a new one was made from it.

    Attributes:
        files: how many data and delete files.
        size: plaintext bytes of all of them.
        resumed: how many of them an earlier run had done.
        snapshot_id: the table's one snapshot; None where it has no rows, and for a dry run.
        deleted: how many plaintext files were deleted; for a dry run, how many would be.
        refused: files that the plain table names and that stay, because they lie outside its folders, such as those that `add_files` took
            in, or are not named as its files are; with the reason. `delete_below` names further folders.
        left: plaintext that may still exist, as far as this client can tell. For a migration into a new table that is the plain one.
    """

    files: int
    size: int
    resumed: int = field(default=0, metadata=shown("files of an earlier run that was interrupted", "count"))
    snapshot_id: int | None = field(default=None, metadata=shown("snapshot"))
    deleted: int = 0
    refused: dict[str, str] = field(default_factory=dict, metadata=shown("plaintext files that were not deleted", is_whole=True))
    left: tuple[PlaintextLeft, ...] = field(default=(), metadata=shown("plaintext that may still exist", is_whole=True))

    def summary(self) -> str:
        """Return what was done in one sentence."""
        deleted = f"{self._did('deleted', 'delete')} {counted(self.deleted, 'plaintext file', 'plaintext files')}"
        if self.files:
            files = f"{counted(self.files, 'file', 'files')} of {self.table} ({bytes_shown(self.size)})"
            return f"{self._did('Encrypted', 'Would encrypt')} {files}{f', and {deleted}' if self.deleted else ''}."
        if self.deleted:
            return f"No file of {self.table} {self._did('had', 'has')} to be encrypted; {self._did('', 'would ')}{deleted}."

        return f"No file of {self.table} {self._did('had', 'has')} to be encrypted."


@checked_arguments()
def migrate(
    table: Table,
    key_id: str,
    *,
    into: str | None = None,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
    drop_refs: bool = False,
    keep_plaintext: bool = False,
    delete_below: Sequence[str] = (),
    dry_run: bool = False,
    progress: ProgressListener = no_progress,
    runner: Runner | None = None,
    workers: int | None = None,
) -> Migrated:
    """Encrypt a plain table, in place or into a new one.

    Args:
        table: a table of a catalog of tablecrypt_catalog. Load it again after a migration in place: it is an encrypted one then.
        key_id: the master key in the KMS, the table's encryption.key-id from now on.
        into: name of a new table of the same catalog; None to encrypt in place. The plain table stays as it is then.
        location: of the new table; by default a folder of its name beside the plain table's.
        properties: further table properties to set, such as encryption.data-key-length.
        drop_refs: in place, whether branches other than main, and tags, may go: they would keep plaintext snapshots.
        keep_plaintext: in place, whether to leave the plain table's files after the commit. Until then they are plaintext beside it.
        delete_below: in place, folders in which files of the plain table are deleted too, and encrypted beside themselves: folders outside
            its location, or the location itself where neither pins nor the place of its metadata file say that it is the table's.
        dry_run: whether to say only what would be done. What ORC files say of their columns is read, and no row.
        progress: called with the plaintext bytes that are done.
        runner: runs the work on files, such as `tablecrypt.spark.SparkRunner(spark)`; by default threads here do.
        workers: how many files at once, without `runner`.

    Raises:
        ConfigurationError: the catalog cannot hold encrypted tables, the table is encrypted under another key, or without one of
            `properties`, or has branches or tags; `properties` name another key; `into` or `location` cannot be a table's, or
            there is a `location` and no `into`, or `into` and what is for a migration in place; an ORC file has encrypted columns; or
            plaintext is to be deleted, and the table has gc.enabled=false or nothing says that the location is the table's.
        TableAlreadyExistsError: there is a table of the new name, and it is not what an earlier run made of this state of the plain one.
        FormatError: a data file is not what its manifest says, or holds equality deletes in ORC, or columns of other types than the
            table; or a manifest or manifest list of the plain table cannot be read, so that no plaintext was deleted.
        KmsError: the KMS refused the key; nothing was written.
        CommitFailedException: other writers committed first, several times in a row; the next run continues.
    """
    catalog = table.catalog
    if not isinstance(catalog, MigratingCatalog):
        raise ConfigurationError(f"{name_of(table)}: open it with a catalog of tablecrypt_catalog: no other can hold an encrypted table")

    if location is not None and into is None:
        raise ConfigurationError(
            "location (--location) says where a new table goes, which into (--into) names: without a name the table is encrypted in place"
        )
    runner, encrypting = runner_or_threads(runner, workers), _encrypting(key_id, properties or {})
    if into is not None:
        _refuse_options_in_place(drop_refs, delete_below)
        # A plain table's location is the warehouse's, which may be relative. No encrypted table's is.
        beside = location or location_of_new_table(f"{table.location().rstrip('/').rpartition('/')[0]}/{into.rpartition('.')[2]}")
        return _Beside(catalog, encrypting, dry_run, progress, runner, into, beside).run(table)

    with plain_tables_opened():
        return _InPlace(catalog, encrypting, dry_run, progress, runner, drop_refs, not keep_plaintext, delete_below).run(table)


def _refuse_options_in_place(drop_refs: bool, delete_below: Sequence[str]) -> None:
    """Refuse what would be ignored beside a new table, where the plain one stays.

    Raises:
        ConfigurationError: one of them is given.
    """
    given = {"drop_refs (--drop-refs)": drop_refs, "delete_below (--delete-below)": delete_below}
    for name, value in given.items():
        if value:
            raise ConfigurationError(
                f"{name} is for a migration in place: with into (--into) the plain table stays as it is, with its branches, tags and "
                "files. Leave one of the two out"
            )


def _encrypting(key_id: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that the encrypted table gets.

    Raises:
        ConfigurationError: they name another master key.
    """
    if properties.get(names.KEY_ID.name, key_id) != key_id:
        raise ConfigurationError(f"properties (--set) name another {names.KEY_ID.name} than {key_id}: leave it out")
    return {**properties, names.KEY_ID.name: key_id}


@dataclass(frozen=True)
class _Run:
    catalog: MigratingCatalog
    properties: dict[str, str]
    dry_run: bool
    progress: ProgressListener
    runner: Runner

    def _as_encrypted(self, plain: Table) -> EncryptedTable:
        writes_orc = plain.properties.get(TableProperties.WRITE_FILE_FORMAT, "").lower() == "orc"
        as_parquet = {TableProperties.WRITE_FILE_FORMAT: "parquet"} if writes_orc else {}
        return self.catalog.as_encrypted(plain, {**as_parquet, **self.properties})

    def _nothing(self, table: Table) -> Migrated:
        return Migrated(name_of(table), self.dry_run, files=0, size=0)

    def _planned(self, table: Table, migration: Migration) -> Migrated:
        size = sum(file.file_size_in_bytes for file in migration.files.values())
        return Migrated(name_of(table), self.dry_run, len(migration.files), size)


@dataclass(frozen=True)
class _InPlace(_Run):
    """A migration under the same name: encrypt, commit, and delete what was plain, or do what an earlier run left to do."""

    drop_refs: bool
    delete_plaintext: bool
    delete_below: Sequence[str]

    def run(self, table: Table) -> Migrated:
        current = _load(table)
        if isinstance(current, EncryptedTable):
            return self._clean_up(current, self._nothing(table))
        if self.dry_run:
            return self._foretell(current)
        migrated = self._commit(current)
        return self._clean_up(require_encrypted(_load(table)), migrated)

    def _commit(self, plain: Table) -> Migrated:
        """Encrypt what the table is now and commit that; where others commit first, once more."""
        for attempts_left in reversed(range(_ATTEMPTS)):
            migration = self._migration(plain)
            resumed, encrypted = migration.encrypt(self.runner, self.progress)
            try:
                snapshot_id = migration.commit_in_place(encrypted)
            except CommitFailedException:
                if not attempts_left:
                    raise
            else:
                return replace(self._planned(plain, migration), resumed=resumed, snapshot_id=snapshot_id)

            plain = _load(plain)
            if isinstance(plain, EncryptedTable):
                break

        return self._nothing(plain)

    def _migration(self, plain: Table) -> Migration:
        _refuse_refs(plain, self.drop_refs)
        own = DeletionScope((plain.location(),), self._scope(plain).named)
        return Migration(plain, self._as_encrypted(plain), None, own)

    def _foretell(self, plain: Table) -> Migrated:
        migration = self._migration(plain)
        migration.check()
        planned, before = self._planned(plain, migration), plaintext_of(plain.metadata, plain.io, self._scope(plain))
        if not self.delete_plaintext:
            return planned
        return replace(planned, deleted=before.stored(plain.io), refused=before.refused)

    def _clean_up(self, table: EncryptedTable, migrated: Migrated) -> Migrated:
        """Delete what was plain, and say what may be left of it."""
        io, scope = table.io, self._scope(table)
        before = plaintext_before(table, scope) if self.delete_plaintext else PlaintextOf()
        if self.dry_run:
            return replace(migrated, deleted=before.stored(io.inner), refused=before.refused)

        migration_journal(table).remove()
        deleted = before.delete(TableFileIO(io.inner, io.manager, io.own_folders, scope))

        return replace(migrated, deleted=deleted, refused=before.refused, left=tuple(plaintext_left(table, before.refused)))

    def _scope(self, table: Table) -> DeletionScope:
        """Return where files may be deleted, once the table is known to be none of another key's."""
        _refuse_another_key(table, self.properties[names.KEY_ID.name])
        _refuse_other_properties(table, self.properties)
        if self.delete_plaintext and not self.dry_run:
            check_garbage_is_collected(table, _KEEP)
        return _deletable(table, self.delete_below, self.delete_plaintext)


@dataclass(frozen=True)
class _Beside(_Run):
    """A migration into a new table, registered under another name; the plain one stays."""

    identifier: str
    location: str

    def run(self, table: Table) -> Migrated:
        check_new_name(table.catalog, self.identifier)
        current = _load(table)
        if table.catalog.table_exists(self.identifier):
            return self._finish(current, table.catalog.load_table(self.identifier))

        migration = Migration(current, self._as_encrypted(current), self.location)
        if self.dry_run:
            migration.check()
            return self._planned(table, migration)

        resumed, encrypted = migration.encrypt(self.runner, self.progress)
        snapshot_id = migration.register_as(self.identifier, encrypted)
        migration_journal(migration.table).remove()

        return replace(self._planned(table, migration), resumed=resumed, snapshot_id=snapshot_id, left=_whole(current))

    def _finish(self, plain: Table, made: Table) -> Migrated:
        """Finish a run that was killed after it had registered the new table."""
        is_of_this = made.metadata.table_uuid == Migration.uuid_beside(plain, self.location)
        has_key = made.properties.get(names.KEY_ID.name) == self.properties[names.KEY_ID.name]
        if not (isinstance(made, EncryptedTable) and is_of_this and has_key):
            raise TableAlreadyExistsError(f"{name_of(made)} exists already: a migration makes a new table")
        _refuse_other_properties(made, self.properties)

        if not self.dry_run:
            migration_journal(made).remove()
        return replace(self._nothing(plain), left=_whole(plain))


def _whole(plain: Table) -> tuple[PlaintextLeft, ...]:
    """What a migration into a new table leaves: everything of the plain one. Its length is that of the current snapshot's files."""
    snapshot = plain.current_snapshot()
    size = str(snapshot.summary["total-files-size"] or "") if snapshot is not None and snapshot.summary is not None else ""
    what = f"all of {name_of(plain)}, which stays as it was: drop it with its files (purge_table) once nobody needs it"
    return (PlaintextLeft(plain.location(), int(size) if size.isdecimal() else 0, what),)


def _load(table: Table) -> Table:
    return table.catalog.load_table(table.name())


def _deletable(table: Table, delete_below: Sequence[str], must_delete: bool) -> DeletionScope:
    """Return below which folders a plain table's files are deleted: its location, where that is the table's own; and what the caller names.

    A plain table has no pin. That its location is its own, the catalog says, which names the metadata file: it lies in the folder metadata
    of the location, and so do those before it. A commit to metadata in which somebody has edited the location writes its file to where that
    says, and logs where the edited one was. A catalog that keeps no pins at all is not asked.

    Raises:
        ConfigurationError: files are to be deleted, and neither the catalog nor the caller says that the location is the table's.
    """
    keeps_pins = bool(getattr(table.catalog, "pin_places", ()))
    written = (table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log))
    is_own = keeps_pins and all(names_location(each, table.location()) for each in written)
    owners = OtherTables(store_io(table.io), table.metadata.table_uuid)
    scope = DeletionScope((table.location(),) if is_own else (), owners=owners).and_below(delete_below)
    if must_delete and not scope.contains(table.location()):
        raise ConfigurationError(
            f"{name_of(table)}: only its metadata says that its plaintext files are in {table.location()}. If they are, name the folder: "
            f"delete_below=[{table.location()!r}] (--delete-below); or {_KEEP}"
        )

    return scope


def _refuse_another_key(table: Table, key_id: str) -> None:
    found = table.metadata.properties.get(names.KEY_ID.name)
    if found is not None and found != key_id:
        is_encrypted = "is encrypted already" if isinstance(table, EncryptedTable) else f"has {names.KEY_ID.name} already"
        raise ConfigurationError(f"{name_of(table)} {is_encrypted}, under {found}")


def _refuse_other_properties(table: Table, properties: Mapping[str, str]) -> None:
    """Refuse what an encrypted table has not: it stays as somebody else, or an earlier run, has made it."""
    missing = {name: value for name, value in properties.items() if table.properties.get(name) != value}
    if missing and isinstance(table, EncryptedTable):
        lacks = ", ".join(f"{name} = {value}" for name, value in missing.items())
        raise ConfigurationError(f"{name_of(table)} is encrypted already, without {lacks}: set that with table.transaction()")


def _refuse_refs(table: Table, drop_refs: bool) -> None:
    others = sorted(name for name in table.metadata.refs if name != MAIN_BRANCH)
    if others and not drop_refs:
        raise ConfigurationError(
            f"{name_of(table)} has branches or tags that would keep plaintext snapshots: {', '.join(others)}; "
            "remove them, or give drop_refs=True"
        )
