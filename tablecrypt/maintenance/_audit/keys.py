"""The rules that an audit holds keys against. Pure: no I/O, and the moment comes in as an argument.

    KEK     wraps new keys for at most encryption.kek-lifespan-ms (730 days unless shortened), and opens old ones for three years more
    DEK     encrypts one file, when it is written; opens it for at most five years

NIST SP 800-57 part 1, table 1: a symmetric data encryption key and a symmetric key-wrapping key have an originator usage period of up to
two years, and a recipient usage period of up to three years beyond.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from tablecrypt.errors import FormatError, KeyNotFoundError
from tablecrypt.keys.key_ring import EncryptedKey, is_ahead
from tablecrypt.maintenance._audit.findings import Finding, FindingKind
from tablecrypt.maintenance.reachable import ReachableFile
from tablecrypt.table.metadata import EncryptedTableMetadata

RECIPIENT_YEARS: Final = dt.timedelta(days=3 * 365)
DEK_LIFE: Final = dt.timedelta(days=5 * 365)
NEAR: Final = 0.9
"""Share of its life after which a KEK that still wraps is near its end."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def created_at(kek: EncryptedKey) -> dt.datetime | None:
    """Return when a KEK was made; None where its KEY_TIMESTAMP is no time."""
    try:
        return _EPOCH + dt.timedelta(milliseconds=kek.created_at_ms)
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
            message = f"is wrapped by master key {kek.encrypted_by_id}, but the table's is {table_key_id}"
            yield Finding(FindingKind.KEY_ID_DIFFERS, kek.key_id, message)
        created = created_at(kek)
        if created is None:
            yield Finding(FindingKind.UNOPENED, kek.key_id, "its KEY_TIMESTAMP is not a number of milliseconds")
        elif is_ahead(kek, _milliseconds(now)):
            message = f"says that it was made at {created.isoformat(timespec='seconds')}, which is to come: nothing wraps under it here"
            yield Finding(FindingKind.KEK_AHEAD, kek.key_id, message)
        elif kek.key_id not in needed and now - created < lifespan:
            yield Finding(
                FindingKind.KEK_UNUSED, kek.key_id, "opens no snapshot's key, and is young enough for Iceberg Java to wrap under it"
            )
        elif kek.key_id in needed or kek == current:
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
        yield Finding(FindingKind.UNUSED_KEY, "encryption-keys", f"{_count(unused, 'entry', 'entries')} for nothing: {_some(unused)}")


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
        other = first_with.setdefault(file.key.encryption_key.reveal(), file.location)
        if other != file.location:
            yield Finding(FindingKind.REUSED_KEY, file.location, f"has the same DEK as {other}")
        if len(file.key.encryption_key) < wanted_length:
            short.append(file.location)
        if file.key.file_length is None:
            without_length.append(file.location)
        if file.location in written and now - written[file.location] > DEK_LIFE:
            old.append(file.location)
    if short:
        message = f"{_count(short, 'file has', 'files have')} a key of under {wanted_length} bytes: {_some(short)}"
        yield Finding(FindingKind.SHORT_KEY, "data keys", message)
    if old:
        yield Finding(FindingKind.DEK_PAST_LIFE, "data keys", f"{_count(old, 'file is', 'files are')} over five years old: {_some(old)}")
    if without_length:
        message = f"{_count(without_length, 'file', 'files')}: {_some(without_length)}"
        yield Finding(FindingKind.NO_LENGTH, "key metadata", message)


def partition_value_findings(metadata: EncryptedTableMetadata) -> Iterator[Finding]:
    """Yield that snapshot summaries, which are plaintext, hold partition values."""
    count: Counter[int] = Counter()
    for snapshot in metadata.snapshots:
        properties = {} if snapshot.summary is None else snapshot.summary.additional_properties
        count[snapshot.snapshot_id] += sum(name.startswith("partitions.") for name in properties)
    having = [str(snapshot_id) for snapshot_id, values in count.items() if values]
    if having:
        message = f"summaries of {_count(having, 'snapshot', 'snapshots')} name partitions: {_some(having)}"
        yield Finding(FindingKind.PARTITION_VALUES, "snapshots", message)


def _milliseconds(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(milliseconds=1)


def _count(items: list[str], one: str, many: str) -> str:
    return f"{len(items)} {one if len(items) == 1 else many}"


def _some(items: list[str], shown: int = 3) -> str:
    return ", ".join(items[:shown]) + (f" and {len(items) - shown} more" if len(items) > shown else "")
