"""Auditing a table, or every table of a catalog: what is encrypted, how, under which keys, and what is not.

    catalog ─▶ table ─▶ metadata ──▶ keys: ages, gaps, leftovers
                           ├──▶ manifest lists, manifests ─▶ every file with its key ─┐
                           ├──▶ older metadata files                                  ├─▶ both ends of each: ciphertext, AES_GCM_V1?
                           └──▶ the table's folders ─▶ files that nothing names ──────┘

Of data files the first four bytes are read, and of Parquet the last 64 KiB, so an audit takes seconds where verifying takes hours. It says
what a file claims to be; `verify` says whether the file authenticates.

The rules that keys are held against:

    KEK     wraps new keys for at most encryption.kek-lifespan-ms (730 days unless shortened), and opens old ones for three years more
    DEK     encrypts one file, when it is written; opens it for at most five years

NIST SP 800-57 part 1, table 1: a symmetric data encryption key and a symmetric key-wrapping key have an originator usage period of up to
two years, and a recipient usage period of up to three years beyond.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, runtime_checkable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from tablecrypt import properties as names
from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import (
    ConfigurationError,
    FormatError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsError,
    MasterKeyMismatchError,
    MasterKeyRefusedError,
    MissingExtraError,
    TablecryptError,
)
from tablecrypt.keys.key_ring import EncryptedKey, is_ahead
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.maintenance._audit.columns import audited_column_keks, column_findings
from tablecrypt.maintenance._audit.file_signatures import Signature
from tablecrypt.maintenance._audit.findings import (
    Audit,
    AuditedFile,
    AuditedKek,
    AuditedSnapshot,
    Coverage,
    Finding,
    FindingKind,
    TableAudit,
    by_severity,
)
from tablecrypt.maintenance._audit.observed import Observed, observe, orphan_findings, wanted_signature
from tablecrypt.maintenance._audit.shares import share_findings
from tablecrypt.maintenance.catalog_tables import identifiers_of
from tablecrypt.maintenance.operation import EPOCH, Counted, ProgressListener, checked_moment, moment_of, no_progress
from tablecrypt.maintenance.reachable import FileKind, ReachableFile
from tablecrypt.maintenance.sharing.records import LiveShare
from tablecrypt.printable import counted, one_line
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.planning.missing_main import cut_off_head, described
from tablecrypt.table.table import plain_tables_opened
from tablecrypt.table.table_files import name_of

logger = logging.getLogger(__name__)

RECIPIENT_YEARS: Final = dt.timedelta(days=3 * 365)
DEK_LIFE: Final = dt.timedelta(days=5 * 365)
NEAR: Final = 0.9
"""Share of its life after which a KEK that still wraps is near its end."""


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
    progress: ProgressListener = no_progress,
) -> Audit:
    """Look through a table, or all tables of a catalog, for plaintext and for keys that need care.

    Args:
        target: a table as it was loaded, or a catalog.
        include: of a catalog, globs of the names of tables to look through, `db.*`; none: all.
        exclude: of a catalog, globs of names to leave out.
        now: the moment to tell ages at, with a time zone.
        progress: listener for reports of how many files were looked at.

    Raises:
        ConfigurationError: `now` has no time zone, a glob matches no table or stands beside one, or the key service cannot be asked as
            it is configured. Of a catalog, an error of some tables, of whatever kind, is a finding.
        KmsError, KeyNotFoundError: the key service failed, or refused every KEK of the table: without it nothing below the metadata can be
            seen. Of a catalog, a table that it refuses is a finding.
        MasterKeyMismatchError: another master key wrapped the KEKs of the table, or of all tables of the catalog. Of some, it is a finding.
    """
    moment = dt.datetime.now(dt.UTC) if now is None else checked_moment("now", now)
    if isinstance(target, Table):
        if include or exclude:
            raise ConfigurationError(f"include and exclude choose among the tables of a catalog, but {name_of(target)} is one table")
        return Audit(target.catalog.name, False, moment, (_audited(target, moment, progress),))

    everywhere: list[TablecryptError] = []
    found = [_of_catalog(target, identifier, moment, progress, everywhere) for identifier in identifiers_of(target, include, exclude)]
    tables = tuple(table for table in found if table is not None)
    if everywhere and len(everywhere) == len(tables):
        # One wrong key file or setting, said once. It hides no other finding.
        raise everywhere[0]

    return Audit(target.name, not (include or exclude), moment, tables)


def _audited(table: Table, moment: dt.datetime, progress: ProgressListener) -> TableAudit:
    return audit_table(observe(table, Counted("audit", "files", progress)), moment, _pins_findings(table))


def _of_catalog(
    catalog: Catalog, identifier: Identifier, moment: dt.datetime, progress: ProgressListener, everywhere: list[TablecryptError]
) -> TableAudit | None:
    """Return the audit of one table, None of one that was dropped; add to `everywhere` an error that may be said of all tables alike."""
    try:
        # A catalog refuses a table that names a master key and is plain: an audit has to report it.
        with plain_tables_opened():
            table = catalog.load_table(identifier)
    except NoSuchTableError:
        logger.debug("%s was dropped meanwhile", identifier)
        return None
    except KmsError:
        # A key service that does not answer says nothing about this table, and would fail for the others too.
        raise
    except MasterKeyRefusedError as error:
        return _unseen(identifier, FindingKind.KEY_NOT_ALLOWED, error)
    except Exception as error:  # whatever it is: a table that is gone, forbidden or broken is a finding, and the others are audited
        logger.debug("%s cannot be loaded", identifier, exc_info=True)
        return _unseen(identifier, FindingKind.REFUSED_TABLE, error)

    try:
        return _audited(table, moment, progress)
    except (KmsAccessDeniedError, KeyNotFoundError) as error:
        return _unseen(identifier, FindingKind.KEY_REFUSED, error)
    except KmsError:
        raise
    except MasterKeyMismatchError as error:
        everywhere.append(error)
        return _unseen(identifier, FindingKind.MASTER_KEY_MISMATCH, error)
    except (ConfigurationError, MissingExtraError) as error:
        everywhere.append(error)
        return _unseen(identifier, FindingKind.REFUSED_TABLE, error)
    except Exception as error:  # its metadata may name whatever a store answers with an error of its own
        logger.debug("%s cannot be audited", identifier, exc_info=True)
        return _unseen(identifier, FindingKind.REFUSED_TABLE, error)


def _unseen(identifier: Identifier, kind: FindingKind, error: Exception) -> TableAudit:
    """Return the audit of a table that could not be looked into."""
    name = ".".join(identifier)
    return TableAudit(name, "", "", None, None, None, (), (), (), (), (Finding(kind, name, f"{type(error).__name__}: {one_line(error)}"),))


def _pins_findings(table: Table) -> tuple[Finding, ...]:
    if names.KEY_ID.name not in table.metadata.properties:
        return ()

    catalog, message = table.catalog, None
    if isinstance(catalog, PinsEntries):
        # An entry of Hive or Glue may lack the hash of the current metadata: then no edit of that is noticed.
        message = catalog.unpinned_metadata(table.name())
    elif not (isinstance(catalog, PinsTables) and catalog.pin_places):
        message = f"neither the catalog nor a file of this client ({names.PINS.name}) records what was seen of it"

    return () if message is None else (Finding(FindingKind.PINS_MISSING, name_of(table), message),)


def audit_table(seen: Observed, now: dt.datetime, pins: tuple[Finding, ...]) -> TableAudit:
    """Audit one table by what was read of it. Pure.

    Args:
        seen: what was read.
        now: the moment to tell ages at.
        pins: what was found about its pins.
    """
    return TableAudit(
        table=seen.name,
        location=seen.metadata.location,
        metadata_location=seen.metadata_location,
        key_id=seen.metadata.properties.get(names.KEY_ID.name),
        data_key_length=None if seen.manager is None else seen.manager.data_key_length,
        kek_lifespan=None if seen.manager is None else dt.timedelta(milliseconds=seen.manager.kek_lifespan_ms),
        snapshots=tuple(_snapshots(seen.metadata)),
        keks=tuple(_keks(seen, now)),
        files=tuple(_audited_file(seen, file) for file in seen.files),
        partitions=tuple(_coverage(seen)),
        findings=by_severity([*pins, *_findings(seen, now)]),
        column_keks=audited_column_keks(seen.metadata, created_at),
        shares=tuple(LiveShare.of(record) for record in seen.shares.records),
    )


def _findings(seen: Observed, now: dt.datetime) -> Iterator[Finding]:
    if seen.manager is None:
        # All files are plaintext: findings for each of them would only repeat it.
        has_key_id = "has" if names.KEY_ID.name in seen.metadata.properties else "has no"
        message = f"{has_key_id} {names.KEY_ID.name}, and none of its files ({len(seen.reachable.files):,}) is encrypted"
        yield Finding(FindingKind.PLAIN_TABLE, seen.name, message)
        return

    if isinstance(seen.metadata, EncryptedTableMetadata):
        yield from _key_findings(seen, seen.metadata, seen.manager, now)
    if seen.metadata.current_snapshot_id is None and (head := cut_off_head(seen.metadata)) is not None:
        yield Finding(FindingKind.NO_CURRENT_SNAPSHOT, seen.name, described(head))
    yield from _unopened(seen)
    for file in seen.files:
        yield from _file_findings(seen, file)
    for location in seen.statistics:
        yield from _statistics_findings(seen, location)
    yield from (*seen.older.findings, *seen.since_commit)
    yield from _reached_from_older(seen)
    yield from share_findings(seen.shares, seen.starts, knows_all=not seen.hides_files)
    yield from orphan_findings(seen.orphans, seen.starts, seen.folder, knows_all=not seen.hides_files)
    for location, operation in seen.journals.items():
        yield Finding(FindingKind.UNFINISHED_OPERATION, location, f"{operation} is running, or was interrupted")
    if seen.folder.problem is not None:
        yield Finding(FindingKind.NOT_LISTED, seen.metadata.location, seen.folder.problem)


def _key_findings(seen: Observed, metadata: EncryptedTableMetadata, manager: EncryptionManager, now: dt.datetime) -> Iterator[Finding]:
    lifespan = dt.timedelta(milliseconds=manager.kek_lifespan_ms)
    yield from kek_findings(metadata, manager.table_key_id, lifespan, now)
    yield from entry_findings(metadata)
    yield from partition_value_findings(metadata)
    yield from column_findings(metadata, manager.table_key_id, seen.files, seen.columns, seen.undeclared)
    yield from file_key_findings(seen.files, seen.written, manager.data_key_length, now)


def _unopened(seen: Observed) -> Iterator[Finding]:
    for unopened in seen.reachable.problems:
        # Missing files are reported by how they begin, whether or not they had to be opened.
        if not isinstance(unopened.error, FileNotFoundError):
            yield Finding(FindingKind.UNOPENED, unopened.location, f"{type(unopened.error).__name__}: {unopened.error}")


def _file_findings(seen: Observed, file: ReachableFile) -> Iterator[Finding]:
    start, wanted = seen.starts[file.location], wanted_signature(file)
    # The order decides: plaintext is called so whatever key is named for it, and a missing file has no beginning to judge.
    if start.signature == Signature.MISSING:
        yield Finding(FindingKind.MISSING_FILE, file.location, f"the {file.kind.value} file is not in the store")
    elif start.signature == Signature.UNREADABLE:
        yield Finding(FindingKind.UNOPENED, file.location, f"{file.kind.value}: {start.shown}")
    elif start.signature == Signature.PLAINTEXT or (file.key is None and file.location not in seen.unopened):
        # A file whose key metadata does not decode is among the unopened: only one without any key is called plaintext.
        yield Finding(FindingKind.PLAINTEXT_FILE, file.location, f"{file.kind.value}: {start.shown}{_without_key(file.key)}")
    elif file.key is not None and start.signature != wanted:
        yield Finding(FindingKind.WRONG_MAGIC, file.location, f"{file.kind.value}: {start.shown}, where {wanted.value} should be")
    else:
        # One finding for a file: where the length is wrong, the end is too.
        yield from list(_length_findings(seen, file)) or _end_findings(seen, file)


def _length_findings(seen: Observed, file: ReachableFile) -> Iterator[Finding]:
    stored = seen.folder.at(file.location)
    # The length in the key metadata is authenticated. That of the store is what changes when a file is cut.
    trusted = None if file.key is None else file.key.file_length
    if stored is not None and trusted is not None and stored.size != trusted:
        message = f"{file.kind.value}: has {stored.size} bytes in the store, but {trusted} according to its key metadata"
        yield Finding(FindingKind.WRONG_LENGTH, file.location, message)


def _end_findings(seen: Observed, file: ReachableFile) -> Iterator[Finding]:
    if file.location in seen.wrong_ends:
        yield Finding(FindingKind.WRONG_FOOTER, file.location, f"{file.kind.value}: {seen.wrong_ends[file.location]}")


def _statistics_findings(seen: Observed, location: str) -> Iterator[Finding]:
    start = seen.starts[location]
    if not start.signature.is_ciphertext and start.signature != Signature.MISSING:
        yield Finding(FindingKind.PLAINTEXT_STATISTICS, location, start.shown)


def _reached_from_older(seen: Observed) -> Iterator[Finding]:
    for location in seen.only_older:
        start, metadata_location = seen.starts[location], seen.older.plaintext_locations[location]
        # Older metadata may name anything: what is ciphertext, or gone, is exposed by none of it.
        if start.signature in (Signature.PLAINTEXT, Signature.UNKNOWN):
            yield Finding(FindingKind.PLAINTEXT_FILE, location, f"{start.shown}; named by older metadata {metadata_location}")


def _audited_file(seen: Observed, file: ReachableFile) -> AuditedFile:
    stored = seen.folder.at(file.location)
    return AuditedFile(
        location=file.location,
        kind=file.kind.value,
        signature=seen.starts[file.location].signature,
        key_length=None if file.key is None else len(file.key.encryption_key),
        keks=tuple(sorted(file.keks)),
        length=file.length if stored is None else stored.size,
        written=seen.written.get(file.location),
        partition=file.partition,
        has_open_key=file.has_open_key,
    )


def _coverage(seen: Observed) -> Iterator[Coverage]:
    of_partition: defaultdict[str, list[ReachableFile]] = defaultdict(list)
    for file in seen.files:
        if not file.kind.is_metadata:
            of_partition[file.partition].append(file)
    for partition, files in sorted(of_partition.items()):
        encrypted = [file for file in files if seen.is_encrypted(file)]
        unread = sum(seen.starts[file.location].signature in (Signature.MISSING, Signature.UNREADABLE) for file in files)
        yield Coverage(partition, len(files), len(encrypted), _bytes(files), _bytes(encrypted), unread)


def _snapshots(metadata: TableMetadata) -> Iterator[AuditedSnapshot]:
    refs: defaultdict[int, list[str]] = defaultdict(list)
    for name, ref in metadata.refs.items():
        refs[ref.snapshot_id].append(name)
    for snapshot in sorted(metadata.snapshots, key=lambda each: (each.timestamp_ms, each.snapshot_id)):
        key_id = snapshot.key_id if isinstance(snapshot, EncryptedSnapshot) else None
        yield AuditedSnapshot(
            snapshot_id=snapshot.snapshot_id,
            made=moment_of(snapshot.timestamp_ms),
            is_encrypted=key_id is not None,
            kek=None if key_id is None else _kek_of(metadata, key_id),
            refs=tuple(sorted(refs[snapshot.snapshot_id])),
        )


def _kek_of(metadata: TableMetadata, key_id: str) -> str | None:
    try:
        return metadata.key_ring.chain(key_id).kek.key_id if isinstance(metadata, EncryptedTableMetadata) else None
    except (FormatError, KeyNotFoundError):
        # Other findings say what the snapshot's key or KEK lacks.
        return None


def _keks(seen: Observed, now: dt.datetime) -> Iterator[AuditedKek]:
    metadata, manager = seen.metadata, seen.manager
    if not isinstance(metadata, EncryptedTableMetadata) or manager is None:
        return

    counts: Counter[tuple[str, str]] = Counter()
    for file in seen.files:
        counts.update((kek, _level(file.kind)) for kek in file.keks)
    current = current_kek(metadata, manager.table_key_id, dt.timedelta(milliseconds=manager.kek_lifespan_ms), now)

    for kek in metadata.key_ring.keks:
        yield AuditedKek(
            key_id=kek.key_id,
            encrypted_by_id=kek.encrypted_by_id,
            created=created_at(kek),
            key_length=seen.kek_lengths[kek.key_id],
            wraps_new=kek == current,
            lists=counts[kek.key_id, "lists"],
            manifests=counts[kek.key_id, "manifests"],
            files=counts[kek.key_id, "files"],
        )


def _without_key(key: StandardKeyMetadata | None) -> str:
    return "; the file that names it has no key for it" if key is None else ""


def _level(kind: FileKind) -> str:
    return {FileKind.MANIFEST_LIST: "lists", FileKind.MANIFEST: "manifests"}.get(kind, "files")


def _bytes(files: Iterable[ReachableFile]) -> int:
    return sum(file.length or 0 for file in files)


def created_at(kek: EncryptedKey) -> dt.datetime | None:
    """Return when a KEK was made; None where its KEY_TIMESTAMP is no time."""
    try:
        return moment_of(kek.created_at_ms)
    except (FormatError, OverflowError):
        return None


def kek_findings(metadata: EncryptedTableMetadata, table_key_id: str, lifespan: dt.timedelta, now: dt.datetime) -> Iterator[Finding]:
    """Yield what is wrong with KEKs: age, and the master key that wraps them.

    Args:
        metadata: the table's.
        table_key_id: the table property encryption.key-id.
        lifespan: age at which a KEK wraps nothing new.
        now: the moment to tell ages at.
    """
    ring = metadata.key_ring
    current = current_kek(metadata, table_key_id, lifespan, now)
    needed = ring.needed_by(snapshot.key_id for snapshot in metadata.snapshots if snapshot.key_id is not None)

    for kek in ring.keks:
        if kek.encrypted_by_id != table_key_id:
            # Every user of that master key opens this KEK and all that it wraps.
            message = f"is wrapped by master key {kek.encrypted_by_id}, but the table's is {table_key_id}"
            yield Finding(FindingKind.KEY_ID_DIFFERS, kek.key_id, message)

        created = created_at(kek)
        if created is None:
            yield Finding(FindingKind.UNOPENED, kek.key_id, "its KEY_TIMESTAMP is not a number of milliseconds")
        elif is_ahead(kek, _milliseconds(now)):
            # A future date would make a retired KEK look young: nothing here wraps under it, but Iceberg Java would.
            message = f"is dated {created.isoformat(timespec='seconds')}, in the future: nothing wraps under it here"
            yield Finding(FindingKind.KEK_AHEAD, kek.key_id, message)
        elif kek.key_id not in needed and now - created < lifespan:
            # Put back by an edit of the metadata, a retired KEK would wrap what Java writes next.
            yield Finding(
                FindingKind.KEK_UNUSED, kek.key_id, "opens no snapshot's key, and is young enough for Iceberg Java to wrap under it"
            )
        elif kek.key_id in needed or kek == current:
            # A KEK that is neither needed nor current is one of the unused keys, whatever its age.
            yield from _age_findings(kek, now - created, lifespan, kek == current)


def current_kek(metadata: EncryptedTableMetadata, table_key_id: str, lifespan: dt.timedelta, now: dt.datetime) -> EncryptedKey | None:
    """Return the KEK that the next commit to the main branch wraps its key under; None where it makes a new one, or cannot."""
    try:
        milliseconds = lifespan // dt.timedelta(milliseconds=1)
        chain = metadata.key_ring.current_kek(metadata.head_key_id(None), table_key_id, _milliseconds(now), milliseconds)
    except (FormatError, KeyNotFoundError):
        return None
    return None if chain is None else chain.kek


def _age_findings(kek: EncryptedKey, age: dt.timedelta, lifespan: dt.timedelta, is_current: bool) -> Iterator[Finding]:
    if age >= lifespan + RECIPIENT_YEARS:
        message = f"is {age.days} days old and still needed to read: more than its life of {lifespan.days} days and three years"
        yield Finding(FindingKind.KEK_PAST_LIFE, kek.key_id, message)
    elif is_current and age >= NEAR * lifespan:
        message = f"is {age.days} days old; at {lifespan.days} days the next writer makes a new one"
        yield Finding(FindingKind.KEK_NEAR_END, kek.key_id, message)
    elif not is_current and age >= lifespan:
        message = f"is {age.days} days old, past its life of {lifespan.days} days: it wraps nothing new, and snapshots still need it"
        yield Finding(FindingKind.KEK_RETIRED, kek.key_id, message)


def entry_findings(metadata: EncryptedTableMetadata) -> Iterator[Finding]:
    """Yield snapshots without key, snapshots whose key is gone, and entries that no snapshot needs."""
    ring = metadata.key_ring
    named: list[str] = []
    for snapshot in metadata.snapshots:
        if snapshot.key_id is None:
            message = f"has no key-id: its manifest list {snapshot.manifest_list} is not encrypted"
            yield Finding(FindingKind.PLAINTEXT_SNAPSHOT, f"snapshot {snapshot.snapshot_id}", message)
            continue

        named.append(snapshot.key_id)
        missing = _missing_entry(metadata, snapshot.key_id)
        if missing is not None:
            yield Finding(FindingKind.MISSING_KEY, f"snapshot {snapshot.snapshot_id}", f"needs {missing}, which encryption-keys lacks")

    needed = ring.needed_by(named)
    unused = [key.key_id for key in metadata.encryption_keys if key.key_id not in needed]
    if unused:
        yield Finding(FindingKind.UNUSED_KEY, "encryption-keys", f"{counted(len(unused), 'entry', 'entries')} not needed: {_some(unused)}")


def _missing_entry(metadata: EncryptedTableMetadata, key_id: str) -> str | None:
    ring = metadata.key_ring
    if key_id not in ring:
        return f"manifest-list key {key_id}"
    kek = ring.entry(key_id).encrypted_by_id
    return None if kek is None or kek in ring else f"KEK {kek}"


def file_key_findings(
    files: Iterable[ReachableFile], written: dict[str, dt.datetime], wanted_length: int, now: dt.datetime
) -> Iterator[Finding]:
    """Yield what is wrong with the DEKs of files: used twice, too short, too old, without a length."""
    short: list[str] = []
    old: list[str] = []
    without_length: list[str] = []
    first_with: dict[bytes, str] = {}

    for file in files:
        if file.key is None:
            continue

        # Comparing DEKs takes their bytes. They stay in this dict, and no finding repeats them.
        other = first_with.setdefault(file.key.encryption_key.reveal(), file.location)
        if other != file.location:
            # The random nonces of AES-GCM are safe for the blocks of one file: several files under one DEK share that margin.
            yield Finding(FindingKind.REUSED_KEY, file.location, f"has the same DEK as {other}")
        if len(file.key.encryption_key) < wanted_length:
            short.append(file.location)
        if file.key.file_length is None:
            without_length.append(file.location)
        if file.location in written and now - written[file.location] > DEK_LIFE:
            old.append(file.location)

    if short:
        message = f"{counted(len(short), 'file has', 'files have')} a key of under {wanted_length} bytes: {_some(short)}"
        yield Finding(FindingKind.SHORT_KEY, "data keys", message)
    if old:
        message = f"{counted(len(old), 'file is', 'files are')} over five years old: {_some(old)}"
        yield Finding(FindingKind.DEK_PAST_LIFE, "data keys", message)
    if without_length:
        message = f"{counted(len(without_length), 'file', 'files')}: {_some(without_length)}"
        yield Finding(FindingKind.NO_LENGTH, "key metadata", message)


def partition_value_findings(metadata: EncryptedTableMetadata) -> Iterator[Finding]:
    """Yield that snapshot summaries, which are plaintext, hold partition values."""
    count: Counter[int] = Counter()
    for snapshot in metadata.snapshots:
        properties = {} if snapshot.summary is None else snapshot.summary.additional_properties
        count[snapshot.snapshot_id] += sum(name.startswith("partitions.") for name in properties)
    having = [str(snapshot_id) for snapshot_id, values in count.items() if values]
    if having:
        message = f"summaries of {counted(len(having), 'snapshot', 'snapshots')} name partitions: {_some(having)}"
        yield Finding(FindingKind.PARTITION_VALUES, "snapshots", message)


def _milliseconds(moment: dt.datetime) -> int:
    return (moment - EPOCH) // dt.timedelta(milliseconds=1)


def _some(items: list[str], shown: int = 3) -> str:
    return ", ".join(items[:shown]) + (f" and {len(items) - shown} more" if len(items) > shown else "")
