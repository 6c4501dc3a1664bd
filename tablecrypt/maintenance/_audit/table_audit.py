"""Auditing a table, or every table of a catalog: what is encrypted, how, under which keys, and what is not.

    catalog ─▶ table ─▶ metadata ──▶ keys: ages, gaps, leftovers
                           ├──▶ manifest lists, manifests ─▶ every file with its key ─┐
                           ├──▶ older metadata files                                  ├─▶ both ends of each: ciphertext, AES_GCM_V1?
                           └──▶ the table's folders ─▶ files that nothing names ──────┘

Of data files the first four bytes are read, and of Parquet the last 64 KiB, so an audit takes seconds where verifying takes hours. It says
what a file claims to be; whether it authenticates is for verifying to say.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, runtime_checkable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from tablecrypt import properties as names
from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import (
    ConfigurationError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsError,
    MasterKeyRefusedError,
    TablecryptError,
)
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.maintenance._audit import keys
from tablecrypt.maintenance._audit.file_signatures import Head, Seal, read_heads, wrong_ends
from tablecrypt.maintenance._audit.findings import Audit, AuditedFile, AuditedKek, Coverage, Finding, FindingKind, TableAudit, by_severity
from tablecrypt.maintenance._audit.folder import Folder, is_metadata_file, list_folders, look_at_older, orphan_findings, unfinished_verb
from tablecrypt.maintenance._storage import canonical
from tablecrypt.maintenance._tables import checked_moment, name_of
from tablecrypt.maintenance.catalog_tables import identifiers_of
from tablecrypt.maintenance.progress import Counted, ProgressListener, unheard
from tablecrypt.maintenance.reachable import FileKind, Reachable, ReachableFile, reachable_files
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table import plain_tables_opened
from tablecrypt.table.table_files import TableFileIO

_METADATA_KINDS: Final = (FileKind.MANIFEST_LIST, FileKind.MANIFEST)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def audit_table(table: Table, now: dt.datetime, pins: tuple[Finding, ...], counted: Counted) -> TableAudit:
    """Audit one table.

    Args:
        table: encrypted or plain.
        now: the moment to tell ages at.
        pins: what was found about its pins.
        counted: tells of the files that were looked at.

    Raises:
        KmsError: the key service refused or failed.
    """
    return _TableAudit(table, now, counted).result(pins)


class _TableAudit:
    def __init__(self, table: Table, now: dt.datetime, counted: Counted) -> None:
        self._table = table
        self._metadata = table.metadata
        self._now = now
        self._store = table.io.inner if isinstance(table.io, EncryptingFileIO) else table.io
        self._manager = table.io.manager if isinstance(table.io, TableFileIO) else None
        self._found: Reachable = reachable_files(table.metadata, table.io)
        self._unopened_locations = frozenset(unopened.location for unopened in self._found.unopened)
        self._folder: Folder = list_folders(table.metadata, self._store)
        self._statistics = [each.statistics_path for each in (*table.metadata.statistics, *table.metadata.partition_statistics)]
        log = {entry.metadata_file for entry in table.metadata.metadata_log}
        known = {*self._found.files, *self._statistics, *log, table.metadata_location}
        unknown = self._folder.unknown(known)
        verbs = {file.location: unfinished_verb(file, self._store) for file in unknown}
        self._journals = {location: verb for location, verb in verbs.items() if verb is not None}
        self._orphans = [file for file in unknown if not is_metadata_file(file) and file.location not in self._journals]
        older = (log | {file.location for file in unknown if is_metadata_file(file)}) - {table.metadata_location}
        self._older = look_at_older(table.metadata, older, self._store)
        wanted = [*self._found.files, *self._statistics, *(file.location for file in self._orphans), *self._from_older()]
        self._heads: dict[str, Head] = read_heads(self._store, wanted, counted)
        self._wrong_ends = wrong_ends(self._store, self._encrypted_parquet())
        self._written = dict(self._times())

    def result(self, pins: tuple[Finding, ...]) -> TableAudit:
        metadata = self._metadata
        return TableAudit(
            table=".".join(self._table.name()),
            location=metadata.location,
            metadata_location=self._table.metadata_location,
            key_id=metadata.properties.get(names.KEY_ID.name),
            data_key_length=None if self._manager is None else self._manager.data_key_length,
            snapshots=len(metadata.snapshots),
            keks=tuple(self._keks()),
            files=tuple(self._audited(file) for file in self._found.files.values()),
            partitions=tuple(self._coverage()),
            findings=by_severity([*pins, *self._findings()]),
        )

    def _findings(self) -> Iterator[Finding]:
        if self._manager is None:
            has_key_id = "has" if names.KEY_ID.name in self._metadata.properties else "has no"
            message = f"{has_key_id} {names.KEY_ID.name}, and none of its {len(self._found.files)} files is encrypted"
            yield Finding(FindingKind.PLAIN_TABLE, ".".join(self._table.name()), message)
            return
        if isinstance(self._metadata, EncryptedTableMetadata):
            yield from self._key_findings(self._metadata, self._manager)
        yield from self._unopened()
        for file in self._found.files.values():
            yield from self._file_findings(file)
        for location in self._statistics:
            yield from self._statistics_findings(location)
        yield from self._older.findings
        yield from self._reached_from_older()
        yield from orphan_findings(self._orphans, self._heads, self._folder)
        for location, verb in self._journals.items():
            yield Finding(FindingKind.UNFINISHED_VERB, location, f"{verb} is under way, or was interrupted")
        if self._folder.problem is not None:
            yield Finding(FindingKind.NOT_LISTED, self._metadata.location, self._folder.problem)

    def _key_findings(self, metadata: EncryptedTableMetadata, manager: EncryptionManager) -> Iterator[Finding]:
        lifespan = dt.timedelta(milliseconds=manager.kek_lifespan_ms)
        yield from keys.kek_findings(metadata, manager.table_key_id, lifespan, self._now)
        yield from keys.entry_findings(metadata)
        yield from keys.partition_value_findings(metadata)
        yield from keys.file_key_findings(self._found.files.values(), self._written, manager.data_key_length, self._now)

    def _unopened(self) -> Iterator[Finding]:
        for unopened in self._found.unopened:
            if not isinstance(unopened.error, FileNotFoundError):
                yield Finding(FindingKind.UNOPENED, unopened.location, f"{type(unopened.error).__name__}: {unopened.error}")

    def _file_findings(self, file: ReachableFile) -> Iterator[Finding]:
        head, wanted = self._heads[file.location], _wanted_seal(file)
        if head.seal == Seal.MISSING:
            yield Finding(FindingKind.MISSING_FILE, file.location, f"the {file.kind.value} file is not in the store")
        elif head.seal == Seal.UNREADABLE:
            yield Finding(FindingKind.UNOPENED, file.location, f"{file.kind.value}: {head.shown}")
        elif head.seal == Seal.PLAINTEXT or (file.key is None and file.location not in self._unopened_locations):
            yield Finding(FindingKind.PLAINTEXT_FILE, file.location, f"{file.kind.value}: {head.shown}{_without_key(file.key)}")
        elif file.key is not None and head.seal != wanted:
            yield Finding(FindingKind.WRONG_MAGIC, file.location, f"{file.kind.value}: {head.shown}, where {wanted.value} should be")
        else:
            yield from list(self._length_findings(file)) or self._end_findings(file)

    def _end_findings(self, file: ReachableFile) -> Iterator[Finding]:
        if file.location in self._wrong_ends:
            yield Finding(FindingKind.WRONG_FOOTER, file.location, f"{file.kind.value}: {self._wrong_ends[file.location]}")

    def _encrypted_parquet(self) -> Iterator[tuple[str, StandardKeyMetadata]]:
        for file in self._found.files.values():
            if file.key is not None and self._heads[file.location].seal == _wanted_seal(file) == Seal.PARQUET:
                yield file.location, file.key

    def _length_findings(self, file: ReachableFile) -> Iterator[Finding]:
        stored = self._folder.at(file.location)
        trusted = None if file.key is None else file.key.file_length
        if stored is not None and trusted is not None and stored.size != trusted:
            message = f"{file.kind.value}: has {stored.size} bytes in the store, but {trusted} according to its key metadata"
            yield Finding(FindingKind.WRONG_LENGTH, file.location, message)

    def _statistics_findings(self, location: str) -> Iterator[Finding]:
        head = self._heads[location]
        if not head.seal.is_ciphertext and head.seal != Seal.MISSING:
            yield Finding(FindingKind.PLAINTEXT_STATISTICS, location, head.shown)

    def _from_older(self) -> Iterator[str]:
        """Plaintext files that only older metadata leads to. Other stores are left alone: anyone may have named them."""
        store = canonical(self._metadata.location)[:2]
        for location in self._older.plaintext_locations:
            known = location in self._found.files or location in self._statistics or self._folder.at(location) is not None
            if not known and canonical(location)[:2] == store:
                yield location

    def _reached_from_older(self) -> Iterator[Finding]:
        for location in self._from_older():
            head, metadata_location = self._heads[location], self._older.plaintext_locations[location]
            if head.seal in (Seal.PLAINTEXT, Seal.UNKNOWN):
                yield Finding(FindingKind.PLAINTEXT_FILE, location, f"{head.shown}; named by older metadata {metadata_location}")

    def _audited(self, file: ReachableFile) -> AuditedFile:
        stored = self._folder.at(file.location)
        return AuditedFile(
            location=file.location,
            kind=file.kind.value,
            seal=self._heads[file.location].seal,
            key_length=None if file.key is None else len(file.key.encryption_key),
            keks=tuple(sorted(file.keks)),
            length=file.length if stored is None else stored.size,
            written=self._written.get(file.location),
            partition=file.partition,
        )

    def _times(self) -> Iterator[tuple[str, dt.datetime]]:
        """When each file was written: as the store says, else when the snapshot that added it was made."""
        snapshots = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in self._metadata.snapshots}
        for file in self._found.files.values():
            stored = self._folder.at(file.location)
            if stored is not None and stored.modified is not None:
                yield file.location, stored.modified
            elif file.added_by in snapshots:
                yield file.location, _EPOCH + dt.timedelta(milliseconds=snapshots[file.added_by])

    def _coverage(self) -> Iterator[Coverage]:
        of_partition: defaultdict[str, list[ReachableFile]] = defaultdict(list)
        for file in self._found.files.values():
            if file.kind not in _METADATA_KINDS:
                of_partition[file.partition].append(file)
        for partition, files in sorted(of_partition.items()):
            encrypted = [file for file in files if file.key is not None and self._heads[file.location].seal == _wanted_seal(file)]
            yield Coverage(partition, len(files), len(encrypted), _bytes(files), _bytes(encrypted))

    def _keks(self) -> Iterator[AuditedKek]:
        metadata, manager = self._metadata, self._manager
        if not isinstance(metadata, EncryptedTableMetadata) or manager is None:
            return
        counts: Counter[tuple[str, str]] = Counter()
        for file in self._found.files.values():
            counts.update((kek, _level(file.kind)) for kek in file.keks)
        lifespan = dt.timedelta(milliseconds=manager.kek_lifespan_ms)
        current = keys.current_kek(metadata, manager.table_key_id, lifespan, self._now)
        for kek in metadata.key_ring.keks:
            yield AuditedKek(
                key_id=kek.key_id,
                encrypted_by_id=kek.encrypted_by_id,
                created=keys.created_at(kek),
                key_length=_key_length(manager, kek),
                wraps_new=kek == current,
                lists=counts[kek.key_id, "lists"],
                manifests=counts[kek.key_id, "manifests"],
                files=counts[kek.key_id, "files"],
            )


def _wanted_seal(file: ReachableFile) -> Seal:
    is_parquet = file.kind not in _METADATA_KINDS and file.file_format == FileFormat.PARQUET.value
    return Seal.PARQUET if is_parquet else Seal.AGS1


def _without_key(key: StandardKeyMetadata | None) -> str:
    return "; the layer above names no key for it" if key is None else ""


def _level(kind: FileKind) -> str:
    return {FileKind.MANIFEST_LIST: "lists", FileKind.MANIFEST: "manifests"}.get(kind, "files")


def _bytes(files: Iterable[ReachableFile]) -> int:
    return sum(file.length or 0 for file in files)


def _key_length(manager: EncryptionManager, kek: EncryptedKey) -> int | None:
    """Length of a KEK, which only opening it tells."""
    try:
        return len(manager.kms.unwrap_key(kek.wrapped_bytes(), manager.table_key_id))
    except TablecryptError as error:
        if isinstance(error, KmsError) and not isinstance(error, KmsAccessDeniedError):
            raise
        return None


logger = logging.getLogger(__name__)


@runtime_checkable
class PinsTables(Protocol):
    """A catalog that can say where it remembers what it has seen of its encrypted tables."""

    @property
    def pin_places(self) -> tuple[str, ...]:
        """Where pins are kept, for people to read; none at all when nothing is pinned."""


@runtime_checkable
class PinsEntries(PinsTables, Protocol):
    """A catalog whose entries may lack a pin of the current metadata."""

    def unpinned_metadata(self, identifier: str | Identifier) -> str | None:
        """Return why a table's current metadata has no pin, for people to read; None where it has one."""


@checked_arguments(but=("now",))
def audit(
    target: Table | Catalog,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    now: dt.datetime | None = None,
    progress: ProgressListener = unheard,
) -> Audit:
    """Look through a table, or all tables of a catalog, for plaintext and for keys that need care.

    Args:
        target: a table as it was loaded, or a catalog.
        include: of a catalog, globs of the names of tables to look through, `db.*`; none: all.
        exclude: of a catalog, globs of names to leave out.
        now: the moment to tell ages at, with a time zone.
        progress: told how many files were looked at.

    Raises:
        ConfigurationError: `now` has no time zone, a glob matches no table or stands beside one, or the key service cannot be asked as
            it is configured.
        KmsError, KeyNotFoundError: the key service failed, or refused every KEK of the table: without it nothing below the metadata can be
            seen. Of a catalog, a table that it refuses is a finding.
    """
    moment = dt.datetime.now(dt.UTC) if now is None else checked_moment("now", now)
    if isinstance(target, Table):
        if include or exclude:
            raise ConfigurationError(f"include and exclude choose among the tables of a catalog, but {name_of(target)} is one table")
        return Audit(moment, (_audited(target, moment, progress),))
    tables = [_of_catalog(target, identifier, moment, progress) for identifier in identifiers_of(target, include, exclude)]
    return Audit(moment, tuple(table for table in tables if table is not None))


def _audited(table: Table, moment: dt.datetime, progress: ProgressListener) -> TableAudit:
    return audit_table(table, moment, _pins_findings(table), Counted("audit", "files", progress))


def _of_catalog(catalog: Catalog, identifier: Identifier, moment: dt.datetime, progress: ProgressListener) -> TableAudit | None:
    try:
        with plain_tables_opened():
            table = catalog.load_table(identifier)
    except NoSuchTableError:
        logger.debug("%s was dropped meanwhile", identifier)
        return None
    except KmsError:
        raise
    except MasterKeyRefusedError as error:
        return _unseen(identifier, FindingKind.KEY_NOT_ALLOWED, error)
    except (TablecryptError, FileNotFoundError) as error:
        return _unseen(identifier, FindingKind.REFUSED_TABLE, error)
    try:
        return _audited(table, moment, progress)
    except (KmsAccessDeniedError, KeyNotFoundError) as error:
        return _unseen(identifier, FindingKind.KEY_REFUSED, error)


def _unseen(identifier: Identifier, kind: FindingKind, error: Exception) -> TableAudit:
    """Return the audit of a table that could not be looked into."""
    name = ".".join(identifier)
    return TableAudit(name, "", "", None, None, 0, (), (), (), (Finding(kind, name, f"{type(error).__name__}: {error}"),))


def _pins_findings(table: Table) -> tuple[Finding, ...]:
    if names.KEY_ID.name not in table.metadata.properties:
        return ()
    catalog, message = table.catalog, None
    if isinstance(catalog, PinsEntries):
        message = catalog.unpinned_metadata(table.name())
    elif not (isinstance(catalog, PinsTables) and catalog.pin_places):
        message = f"neither the catalog nor a file of this client ({names.PINS.name}) remembers what was seen of it"
    return () if message is None else (Finding(FindingKind.PINS_MISSING, ".".join(table.name()), message),)
