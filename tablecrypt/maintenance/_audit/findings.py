"""What an audit finds, how severe each kind of finding is and what to do about it; and the result of an audit: files, keys, partitions and
findings, as plain values without a key in them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance._audit.file_signatures import Signature
from tablecrypt.maintenance.sharing.records import LiveShare
from tablecrypt.printable import json_form


class Severity(IntEnum):
    """How severe a finding is; a greater value is more severe."""

    INFO = 1
    """Good to know."""
    WARNING = 2
    """Act in the coming weeks."""
    ERROR = 3
    """Something cannot be read, or is not what it should be."""
    CRITICAL = 4
    """Rows can be read, or may be readable, by users from whom they should be hidden."""

    @property
    def label(self) -> str:
        """The name in lower case."""
        return self.name.lower()


class FindingKind(Enum):
    """A kind of finding: its name for programs, which is stable; how severe it is; what it is, in a few words; what to do about it."""

    PLAIN_TABLE = (Severity.CRITICAL, "Table is not encrypted", "Migrate it into an encrypted table.")
    PLAINTEXT_FILE = (Severity.CRITICAL, "Plaintext file of the table", "Rewrite or expire what refers to it, then delete it.")
    PLAINTEXT_SNAPSHOT = (Severity.CRITICAL, "Snapshot without a key", "Expire it, then remove the files that only it refers to.")
    PLAINTEXT_STATISTICS = (Severity.CRITICAL, "Plaintext statistics file", "Remove it from the table's metadata and delete it.")
    PLAINTEXT_ORPHAN = (Severity.CRITICAL, "Plaintext file that does not belong to the table", "Find out who put it there, and delete it.")
    UNKNOWN_CONTENT = (Severity.CRITICAL, "File in no encrypted format", "It may be plaintext: find out who put it there, and delete it.")
    REUSED_KEY = (Severity.CRITICAL, "One key for several files", "Re-encrypt these files, and find out which program wrote them.")
    REFUSED_TABLE = (
        Severity.ERROR,
        "Table cannot be loaded or looked into",
        "Read the message: it says what contradicts what this client has seen, or what cannot be read.",
    )
    KEY_REFUSED = (
        Severity.ERROR,
        "The key service refuses the table's key",
        "Grant the permission or enable the key; if the key is gone for good, so is the table.",
    )
    MASTER_KEY_MISMATCH = (
        Severity.ERROR,
        "Another master key wrapped the table's KEKs",
        "Use the key service or the key file with which the table was written. If you did, somebody changed encryption-keys: restore it.",
    )
    KEY_NOT_ALLOWED = (
        Severity.ERROR,
        "Table names a master key that is not allowed",
        "Find out who made or edited its metadata. If the key is right, add it to encryption.allowed-key-ids.",
    )
    UNOPENED = (Severity.ERROR, "Metadata cannot be opened", "Verify the table; restore the file or rescue the key.")
    MISSING_KEY = (Severity.ERROR, "Snapshot whose key is gone", "Rescue the key from an older metadata file, or expire the snapshot.")
    MISSING_FILE = (Severity.ERROR, "File is missing", "Restore it from a backup or an object version.")
    WRONG_MAGIC = (Severity.ERROR, "File does not begin like its format", "It was overwritten: verify the table, restore the file.")
    WRONG_FOOTER = (
        Severity.ERROR,
        "File does not end like a file of the table",
        "Its plaintext file crypto metadata was changed: verify the table, restore the file.",
    )
    WRONG_LENGTH = (Severity.ERROR, "File length differs from its key metadata", "It was cut or overwritten: restore it.")
    NOT_LISTED = (
        Severity.ERROR,
        "The table's folder was not searched",
        "Grant the permission to list it, or audit through a FileIO that can.",
    )
    KEY_ID_DIFFERS = (
        Severity.ERROR,
        "Master key other than the table's",
        "Find out who edited the metadata, and do not write to the table until then.",
    )
    COLUMN_EXPOSED = (
        Severity.CRITICAL,
        "Protected column under the table's key",
        "Reencrypt the table, then shred the snapshots that have the old files, with replace_heads.",
    )
    COLUMN_IN_PARTITIONS = (
        Severity.CRITICAL,
        "Values of a protected column in file names or manifests",
        "Reencrypt each branch that has such files, then shred all snapshots but the heads, and delete the old files.",
    )
    COLUMN_MASKS_AS_VALUES = (
        Severity.ERROR,
        "Masks stored as values of a protected column",
        "An engine that may not see the column has copied its masks: restore the rows from a snapshot before, or delete them.",
    )
    COLUMN_POLICY_CHANGED = (
        Severity.CRITICAL,
        "Somebody removed the protection of a column, or gave its name to another",
        "Find out who edited the properties or the schema, and restore them: values would be written under the table's key.",
    )
    COLUMN_KEY_DIFFERS = (
        Severity.CRITICAL,
        "Column key under another master key, or of another table",
        "Find out who edited encryption-keys, and do not write to the table until then.",
    )
    COLUMN_KEY_MISSING = (
        Severity.WARNING,
        "Protected column whose key is gone",
        "If it was shredded, drop the column. Otherwise restore the entry from an older metadata file.",
    )
    COLUMN_UNDER_FORMER_KEY = (
        Severity.WARNING,
        "Protected column under a former master key in some files",
        "Reencrypt the table, then shred the snapshots that have the old files, with replace_heads: until then its users open them.",
    )
    COLUMN_GUARD_CHANGED = (
        Severity.WARNING,
        "Nothing keeps Iceberg Java from writing a protected column",
        "Restore the property, or set encryption.column-guard=false if Java is to write.",
    )
    COLUMN_FORMERLY_PROTECTED = (
        Severity.INFO,
        "Column that is no longer protected, except in some files",
        "Reencrypt the table, so that its readers can read the column.",
    )
    KEK_AHEAD = (
        Severity.ERROR,
        "KEK dated in the future",
        "If no writer's clock was wrong, somebody edited the metadata: prune the keys, rotate the KEK, and find out who.",
    )
    KEK_UNUSED = (
        Severity.WARNING,
        "KEK that no snapshot needs",
        "It may be a retired one that was put back: prune the keys before Iceberg Java writes to the table.",
    )
    NO_CURRENT_SNAPSHOT = (
        Severity.WARNING,
        "Table with snapshots reads as empty",
        "If nobody has replaced the table, restore its metadata file, and find out who edited it.",
    )
    PINS_MISSING = (
        Severity.WARNING,
        "Nothing pins the table",
        "Set the catalog property encryption.pins, so that a rolled back or edited table is refused.",
    )
    STALE_PLAINTEXT_METADATA = (
        Severity.WARNING,
        "Metadata from before the table was encrypted",
        "Delete it once no plaintext snapshot is needed.",
    )
    FOREIGN_METADATA = (
        Severity.WARNING,
        "Metadata of another table in this one's folder",
        "Delete it if that table is gone; give tables folders of their own.",
    )
    PARTITION_VALUES = (
        Severity.WARNING,
        "Partition values in plaintext metadata",
        "Remove write.summary.partition-limit, and expire the snapshots that have them.",
    )
    KEK_PAST_LIFE = (Severity.WARNING, "KEK is past its life", "Rotate the KEK.")
    DEK_PAST_LIFE = (Severity.WARNING, "Data keys are past their life", "Re-encrypt these files.")
    SHORT_KEY = (Severity.WARNING, "Keys are shorter than the table requires", "Re-encrypt these files.")
    NOT_READ = (
        Severity.WARNING,
        "Not all metadata files were read",
        "Delete old metadata files that nothing needs: write.metadata.delete-after-commit.enabled does.",
    )
    KEK_RETIRED = (Severity.INFO, "KEK that only unwraps", "Rotate the KEK before its remaining three years end.")
    KEK_NEAR_END = (Severity.INFO, "KEK is near the end of its life", "Rotate the KEK, or let the next writer do it.")
    UNUSED_KEY = (Severity.INFO, "Keys that no snapshot needs", "Prune the keys.")
    STALE_KEYS = (
        Severity.INFO,
        "Older metadata holds keys that the table no longer has",
        "Anybody with the master key can open what they open: delete those metadata files, or shred.",
    )
    UNFINISHED_OPERATION = (Severity.INFO, "Journal of an unfinished operation", "If it is not running, run it again: it continues.")
    ORPHANS = (Severity.INFO, "Encrypted files that do not belong to the table", "Remove orphan files, except those of writes in progress.")
    CHANGED_SINCE_COMMIT = (Severity.INFO, "Metadata that no manifest list bears out", "If it was nobody of yours, find out who it was.")
    SHARE_RECORD = (
        Severity.ERROR,
        "Record of a share cannot be read",
        "Restore the file from a backup or an object version, and find out who removed it; a lost one is forgotten by unshare.",
    )
    SHARED_FILE_MISSING = (
        Severity.ERROR,
        "Shared file is missing",
        "Restore it, or update or end the share: whom it is for can read none of it that needs the file.",
    )
    SHARE_BEHIND = (
        Severity.INFO,
        "Share of files that the table has replaced or removed",
        "Update the share, or end it: until then old rows are read there, and these files are kept.",
    )
    LIVE_SHARE = (Severity.INFO, "Rows are shared with somebody else", "If it is no longer wanted, end it by unshare.")
    NO_LENGTH = (Severity.INFO, "Key metadata without a length", "A file cut between two blocks would go unnoticed: re-encrypt.")

    def __init__(self, severity: Severity, title: str, advice: str) -> None:
        self.severity, self.title, self.advice = severity, title, advice

    @property
    def code(self) -> str:
        """The name for programs."""
        return self.name.lower().replace("_", "-")

    @property
    def is_plaintext(self) -> bool:
        """Whether it is about rows or statistics that are, or may be, readable without a key."""
        # These are critical, and yet readers of the storage alone learn nothing from them.
        return self.severity == Severity.CRITICAL and self not in _ENCRYPTED_BUT_CRITICAL


_ENCRYPTED_BUT_CRITICAL: Final = frozenset(
    {FindingKind.REUSED_KEY, FindingKind.COLUMN_EXPOSED, FindingKind.COLUMN_POLICY_CHANGED, FindingKind.COLUMN_KEY_DIFFERS}
)


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes:
        kind: what it is.
        where: the file, key or snapshot that it is about.
        message: what exactly, in one sentence.
    """

    kind: FindingKind
    where: str
    message: str

    @property
    def severity(self) -> Severity:
        """How severe it is."""
        return self.kind.severity

    def to_json(self) -> dict[str, Any]:
        """Return the finding, with what its kind means, as JSON's types."""
        kind = self.kind
        return {"kind": kind.code, "severity": kind.severity.label, "where": self.where, "message": self.message, "advice": kind.advice}


@dataclass(frozen=True)
class AuditedFile:
    """One file of the table.

    Attributes:
        location: where it is.
        kind: what it is to the table: "data", "manifest", …
        signature: how it is encrypted, by its first bytes.
        key_length: bytes of its DEK; None without one.
        keks: ids of the KEKs through which it opens.
        length: bytes in the store; None where that is not known.
        written: when it, and so its key, was made; None where that is not known.
        partition: "region=north", empty where there is none.
        has_open_key: whether a manifest or manifest list holds its key that everybody who reads the storage can read.
    """

    location: str
    kind: str
    signature: Signature
    key_length: int | None
    keks: tuple[str, ...]
    length: int | None
    written: dt.datetime | None
    partition: str
    has_open_key: bool = False


@dataclass(frozen=True)
class AuditedKek:
    """One KEK, with how much opens through it.

    Attributes:
        key_id: its id in encryption-keys.
        encrypted_by_id: what wraps it.
        created: its KEY_TIMESTAMP; None for one that is no time.
        key_length: in bytes; None where the key service does not open it.
        wraps_new: whether the next commit uses it.
        lists, manifests, files: how many of each open through it.
    """

    key_id: str
    encrypted_by_id: str | None
    created: dt.datetime | None
    key_length: int | None
    wraps_new: bool
    lists: int
    manifests: int
    files: int


@dataclass(frozen=True)
class AuditedColumnKek:
    """One column KEK.

    Attributes:
        key_id: its id in encryption-keys.
        encrypted_by_id: the columns' master key.
        created: its KEY_TIMESTAMP; None for one that is no time.
        columns: whose column keys it encrypts, by their names now; by field id where the schema lacks them.
    """

    key_id: str
    encrypted_by_id: str | None
    created: dt.datetime | None
    columns: tuple[str, ...]


@dataclass(frozen=True)
class AuditedSnapshot:
    """One snapshot, with the KEK that it opens through.

    Attributes:
        snapshot_id: its id.
        made: when it was committed.
        is_encrypted: whether it has a key; without one its manifest list is plaintext.
        kek: id of the KEK that wraps its manifest list's key; None without a key, or where the metadata lacks it.
        refs: the branches and tags that point to it.
    """

    snapshot_id: int
    made: dt.datetime
    is_encrypted: bool
    kek: str | None
    refs: tuple[str, ...]


@dataclass(frozen=True)
class Coverage:
    """How much of a partition is encrypted: data and delete files of all snapshots. Those not read are not known to be."""

    partition: str
    files: int
    encrypted_files: int
    bytes: int
    encrypted_bytes: int
    unread_files: int = 0

    @property
    def share(self) -> float:
        """Encrypted bytes of all bytes, 0 to 1; of files where all are empty."""
        if self.bytes:
            return self.encrypted_bytes / self.bytes
        # Files without bytes still count one by one, and a partition without files leaves nothing in plaintext.
        return self.encrypted_files / self.files if self.files else 1.0


@dataclass(frozen=True)
class TableAudit:
    """One table's audit. What is unknown about a table that could not be loaded is empty.

    Attributes:
        table: its name.
        location, metadata_location: of the table and of its current metadata; empty where it could not be loaded.
        key_id: its master key; None without one.
        data_key_length: bytes that a new DEK has; None for a plain table.
        kek_lifespan: how long a KEK wraps new keys; None for a plain table.
        snapshots: oldest first.
        keks, files, partitions, findings: what was found.
        column_keks: of protected columns.
        shares: live shares, of which the table has a record that opens.
    """

    table: str
    location: str
    metadata_location: str
    key_id: str | None
    data_key_length: int | None
    kek_lifespan: dt.timedelta | None
    snapshots: tuple[AuditedSnapshot, ...]
    keks: tuple[AuditedKek, ...]
    files: tuple[AuditedFile, ...]
    partitions: tuple[Coverage, ...]
    findings: tuple[Finding, ...]
    column_keks: tuple[AuditedColumnKek, ...] = ()
    shares: tuple[LiveShare, ...] = ()

    def to_json(self, now: dt.datetime) -> dict[str, Any]:
        """Return the audit as JSON's types. Ages are days."""
        return {
            "table": self.table,
            "location": self.location,
            "metadata_location": self.metadata_location,
            "key_id": self.key_id,
            "data_key_length": self.data_key_length,
            "kek_lifespan_days": None if self.kek_lifespan is None else _days(self.kek_lifespan),
            "snapshots": json_form(self.snapshots),
            "keks": [{**json_form(kek), "age_days": _age(kek.created, now)} for kek in self.keks],
            "column_keks": [{**json_form(kek), "age_days": _age(kek.created, now)} for kek in self.column_keks],
            "shares": json_form(self.shares),
            "partitions": [{**json_form(each), "share": each.share} for each in self.partitions],
            "files": [{**json_form(file), "age_days": _age(file.written, now)} for file in self.files],
            "findings": json_form(self.findings),
        }


@dataclass(frozen=True)
class Audit:
    """The audit of a table, or of all tables of a catalog, at one moment.

    Attributes:
        catalog: its name.
        is_whole: whether all tables of the catalog were to be audited.
        moment: the time of the audit, from which ages are counted.
        tables: in the order of the catalog.
    """

    catalog: str
    is_whole: bool
    moment: dt.datetime
    tables: tuple[TableAudit, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, most severe first."""
        return by_severity(finding for table in self.tables for finding in table.findings)

    @property
    def worst(self) -> Severity | None:
        """The highest severity; None without findings."""
        return max((finding.severity for finding in self.findings), default=None)

    @property
    def has_plaintext(self) -> bool:
        """Whether rows or statistics are, or may be, readable without a key."""
        return any(finding.kind.is_plaintext for finding in self.findings)

    @property
    def is_empty(self) -> bool:
        """Whether no table was looked into: there is none, or none could be opened. Then nothing is known to be encrypted."""
        return not any(table.location for table in self.tables)

    def refuse_empty(self) -> None:
        """Refuse to say that all is well where no table was looked into.

        Raises:
            ConfigurationError: none was.
        """
        # An audit that opened no table has no finding of plaintext either: a script would take that for a clean result.
        if self.is_empty:
            why = f"none of the {len(self.tables):,} could be opened" if self.tables else "there is none: is it the catalog that you mean?"
            raise ConfigurationError(f"0 tables of catalog {self.catalog} were looked at: {why}")

    def to_json(self) -> dict[str, Any]:
        """Return the audit as JSON's types."""
        counts = {severity.label: sum(each.severity == severity for each in self.findings) for severity in reversed(Severity)}
        return {
            "catalog": self.catalog,
            "whole_catalog": self.is_whole,
            "moment": self.moment.isoformat(),
            "empty": self.is_empty,
            "plaintext": self.has_plaintext,
            "findings": counts,
            "tables": [table.to_json(self.moment) for table in self.tables],
        }


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, most severe first, and those of one kind together."""
    return tuple(sorted(findings, key=lambda each: (-each.severity, each.kind.code, each.where)))


def _age(moment: dt.datetime | None, now: dt.datetime) -> float | None:
    return None if moment is None else _days(now - moment)


def _days(span: dt.timedelta) -> float:
    return round(span / dt.timedelta(days=1), 2)
