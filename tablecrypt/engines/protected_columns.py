"""Protected columns in Spark jobs: which of them executors may see, and the keys that they read and write them under.

    driver     asks the KMS which column keys the program may use; commits column keys that the table lacks before tasks write
               JobColumns, inside the SHARED message ─▶
    executor   JobFileIO: opens and makes the DEKs of columns in files, of the columns that the driver may read and of no others

How an executor opens a column KEK:

    by the KMS      with its own rights, once per process; the message holds wrapped keys alone. So who may use the table's key, and got
                    hold of a job's closure, does not get the column's with it
    brought         the message holds opened KEKs: where executors have no KMS (tablecrypt.spark.executor-keys=spark), and in Spark SQL,
                    whose tasks get all keys in Spark's private messages

The driver decides what is masked. An executor with more rights shows the same, and one with fewer fails: the rows of one query are
never masked in some files and not in others. No executor makes a column key, since no commit would bring its entry.

A user who may wrap but not unwrap under a column's master key can write rows without masks: the driver brings the column keys that its own
process made (keys/write_only_keys.py), with which tasks write the column and read nothing.

Raises:
    ColumnKeyDeniedError: the program that started the job may not use a column's key.
    KmsAccessDeniedError: it may, and an executor may not.
    KeyNotFoundError: a column key is not in the metadata that the job was planned on.
"""

from __future__ import annotations

import pickle
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn, Self, cast

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ColumnKeyDeniedError, KeyNotFoundError, KmsAccessDeniedError, column_shown
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, ReadRestrictions
from tablecrypt.keys.bound_schemas import BoundSchema
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import ColumnKey, ColumnKeys, ColumnPolicy
from tablecrypt.keys.column_lookup import KeyedColumn
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.keys.nested_columns import ancestors
from tablecrypt.keys.table_column_keys import TableColumnKeys
from tablecrypt.keys.write_only_keys import own_keys
from tablecrypt.kms.client import GeneratedKey, KeyManagementClient
from tablecrypt.kms.factory import shared_kms
from tablecrypt.table.metadata import EncryptedTableMetadata, has_column_keys
from tablecrypt.table.protection.policy import column_keys, policy_of, unreadable

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from tablecrypt.table.table import EncryptedTable
    from tablecrypt.table.table_files import TableFileIO

GIVE_THE_RIGHT: Final = "give executors the same right"


@dataclass(frozen=True)
class JobColumns:
    """What the tasks of a job may do with protected columns. May hold keys: only ever sent encrypted.

    Attributes:
        readable: field ids of the columns that the driver may read, of those that the job needs.
        table_key_id: the table's own master key.
        data_key_length: bytes of new keys.
        kek_lifespan_ms: age at which a KEK wraps nothing new.
        planned_ms: when the job was planned, in milliseconds since 1970: which column keys are in use does not change under way.
        kms_properties: the way to the KMS; empty where KEKs are brought.
        opened_keks: column KEKs by what the KMS wrapped; None where executors ask the KMS.
        own_keys: by the ids of their entries, the column keys of columns that the job writes and may not read.
        remedy: what can be done about an executor that may do less than the driver, for messages.
    """

    readable: frozenset[int]
    table_key_id: str
    data_key_length: int
    kek_lifespan_ms: int
    planned_ms: int
    kms_properties: Mapping[str, str] = field(repr=False)
    opened_keks: Mapping[bytes, bytes] | None = field(default=None, repr=False)
    own_keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    remedy: str = GIVE_THE_RIGHT

    @classmethod
    def of(
        cls,
        metadata: EncryptedTableMetadata,
        io: TableFileIO,
        readable: frozenset[int] | None,
        kms_properties: Mapping[str, str] | None,
        write_only: frozenset[int] = frozenset(),
        remedy: str = GIVE_THE_RIGHT,
    ) -> Self | None:
        """Return what the tasks of a job on a table may do; None for a table that has and had no protected column.

        Args:
            metadata: the table's, as the job is planned on it.
            io: the table's.
            readable: see `JobColumns`; None for all protected columns that the driver may read.
            kms_properties: the executors' way to the KMS; None to bring the KEKs.
            write_only: field ids of the columns that the job writes and may not read, as `ensure_column_keys` returned them.
            remedy: see `JobColumns`.
        """
        if not has_column_keys(metadata):
            return None

        if readable is None:
            readable = _readable(column_keys(metadata, io), ColumnPolicy.from_properties(metadata.properties))
        maker = io.manager.columns
        return cls(
            readable,
            maker.table_key_id,
            maker.data_key_length,
            maker.kek_lifespan_ms,
            time.time_ns() // 1_000_000,
            kms_properties or {},
            _opened_keks(maker, metadata.key_ring, readable) if kms_properties is None else None,
            _own_keys(maker, metadata, write_only),
            remedy,
        )

    def maker(self) -> ColumnKeyMaker:
        """Return what opens and makes keys in this process."""
        kms: KeyManagementClient = shared_kms(self.kms_properties) if self.opened_keks is None else _BroughtKeks(self.opened_keks)
        # By its own clock a task could find the column's KEK too old for new values, and it cannot commit another.
        planned_ms = self.planned_ms
        return ColumnKeyMaker(kms, self.table_key_id, self.data_key_length, self.kek_lifespan_ms, lambda: planned_ms, secrets.token_bytes)


class JobFileIO(EncryptingFileIO):
    """EncryptingFileIO of one task, which opens protected columns as the job's driver may. Not for other processes.

    Args:
        inner: does the storing.
        read_restrictions: what readers of the table's rows have to apply.
        columns: what the task may do with protected columns.
    """

    def __init__(self, inner: FileIO, read_restrictions: ReadRestrictions | None, columns: JobColumns) -> None:
        super().__init__(inner, read_restrictions)
        self._columns = columns
        self._maker = columns.maker()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a task's FileIO may hold column keys, and is not pickled")

    def column_keys(self, policy: ColumnPolicy, ring: KeyRing) -> ColumnKeys:
        """Return what makes and opens the keys of protected columns."""
        # Only keys whose entries the metadata has: a file under any other key could never be read.
        brought = [entry for entry in ring.column_keys if entry.key_id in self._columns.own_keys]
        for entry in brought:
            own_keys(self._maker.kms).keep(entry, Secret(self._columns.own_keys[entry.key_id]))
        write_only = frozenset(entry.field_id for entry in brought)
        return _TaskColumnKeys(
            TableColumnKeys(self._maker, policy, ring), policy, ring, self._columns.readable, write_only, self._columns.remedy
        )


def file_io_of_task(inner: bytes, read_restrictions: ReadRestrictions | None, columns: JobColumns | None) -> EncryptingFileIO:
    """Return a task's FileIO, which reads and writes ciphertext only.

    Args:
        inner: does the storing, pickled.
        read_restrictions: what readers of the table's rows have to apply.
        columns: what the task may do with protected columns; None for a table that has and had none.
    """
    storage = cast("FileIO", pickle.loads(inner))
    return EncryptingFileIO(storage, read_restrictions) if columns is None else JobFileIO(storage, read_restrictions, columns)


class _TaskColumnKeys:
    """The column keys of a table as one task has them: see `column_keys.ColumnKeys`."""

    def __init__(
        self, keys: TableColumnKeys, policy: ColumnPolicy, ring: KeyRing, readable: frozenset[int], write_only: frozenset[int], remedy: str
    ) -> None:
        self._keys = keys
        self._policy = policy
        self._ring = ring
        self._readable = readable
        self._write_only = write_only
        self._remedy = remedy
        self._with_keys = {entry.field_id for entry in ring.column_keys}

    def generate(self, field_ids: Iterable[int], aad_prefix: bytes) -> dict[int, ColumnKey]:
        """Return a fresh key for each of these columns, under column keys that the table has."""
        wanted = list(field_ids)
        # A program that may not read a column has masks for values, and would write those in their place.
        self.check_readable(each for each in wanted if each not in self._write_only)
        for field_id in wanted:
            self._check_mask(field_id)
        made = self._keys.generate(wanted, aad_prefix)
        for key in made.values():
            # The maker made this key just now, in a process that commits nothing: values under it would be lost.
            if key.column_key_id not in self._ring:
                raise _nothing_to_commit(self._ring.column(key.field_id), "column key that new values may go under")

        return made

    def unwrap(self, field_id: int, key_metadata: bytes, aad_prefix: bytes, schema: BoundSchema, sequence_number: int | None) -> bytes:
        """Return the DEK of a column in the file with this AAD prefix, this schema of the column and this data sequence number."""
        self._check([field_id])
        try:
            return self._keys.unwrap(field_id, key_metadata, aad_prefix, schema, sequence_number)
        except ColumnKeyDeniedError as denied:
            raise _executor_denied(denied, self._remedy) from denied

    def check_readable(self, field_ids: Iterable[int]) -> None:
        """Return if the driver may open these columns, and so may this executor."""
        wanted = list(field_ids)
        self._check(wanted)
        try:
            # For a column without entries the check would make a key, which takes a right to wrap that readers need not have.
            self._keys.check_readable(each for each in wanted if each in self._with_keys)
        except ColumnKeyDeniedError as denied:
            raise _executor_denied(denied, self._remedy) from denied

    def mask_key(self, field_id: int) -> Secret:
        """Return the key of a column's `hash` mask."""
        self._check([field_id])
        self._check_mask(field_id)
        return self._keys.mask_key(field_id)

    def _check_mask(self, field_id: int) -> None:
        column = self._policy.columns.get(field_id)
        if column is None or not column.mask.needs_key:
            return
        if KeyedColumn.of(column, self._ring).mask_key() is None:
            raise _nothing_to_commit(self._ring.column(field_id), "key of its hash mask")

    def _check(self, field_ids: Iterable[int]) -> None:
        for field_id in field_ids:
            if field_id not in self._readable:
                master_key_id = next(iter(self._policy.master_keys(field_id)), "")
                raise ColumnKeyDeniedError(
                    field_id, master_key_id, "the program that started the job may not use it", column_name=self._ring.name_of(field_id)
                )


class _BroughtKeks:
    """Opens the column KEKs that a job brings, in place of a KMS, and nothing else."""

    def __init__(self, opened: Mapping[bytes, bytes]) -> None:
        self._opened = {blob: Secret(key) for blob, key in opened.items()}

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Return the KEK that was wrapped so."""
        opened = self._opened.get(wrapped_key)
        # The job brings only KEKs of columns that the driver may read, so the right answer is a refusal and not a missing key.
        if opened is None:
            raise KmsAccessDeniedError(f"the job brings no key that {wrapping_key_id!r} wraps so")
        return opened.reveal()

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Refuse: tasks make no KEK."""
        self._refuse(wrapping_key_id)

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        """Refuse: tasks make no KEK."""
        self._refuse(wrapping_key_id)

    def close(self) -> None:
        """Forget the KEKs."""
        self._opened.clear()

    def _refuse(self, wrapping_key_id: str) -> NoReturn:
        raise KmsAccessDeniedError(f"a task wraps no key under {wrapping_key_id!r}")


def ensure_column_keys(table: EncryptedTable, *, write_only: bool = False) -> frozenset[int]:
    """Commit the column keys that new files of a job need and the table lacks, before any task writes.

    Args:
        table: its state in memory is brought up to date where something is committed.
        write_only: whether permission to wrap under a column's master key is enough, since no row of the job can hold a mask.

    Returns:
        The field ids of the protected columns that this user may write and not read.

    Raises:
        ColumnKeyDeniedError: the KMS refuses the key of a protected column. A user who may not read a column may not write it either,
            unless `write_only` says so: masks would become values. Nothing was committed.
        CommitFailedException: others committed first, several times in a row.
    """
    metadata, io = table.metadata, table.io
    policy = policy_of(metadata)
    if not policy:
        return frozenset()

    # Asked before any task writes: a refusal in the middle of a job would leave its files behind.
    unread = unreadable(column_keys(metadata, io), policy.columns)
    if unread and not write_only:
        raise next(iter(unread.values()))

    if _lacks_keys(io.manager.columns, metadata.key_ring, policy, unread):
        # Imported here: executors use this module too, and commit nothing.
        from tablecrypt.maintenance.columns.key_changes import add_column_keys

        add_column_keys(table, write_only=bool(unread))

    return frozenset(unread)


def _lacks_keys(maker: ColumnKeyMaker, ring: KeyRing, policy: ColumnPolicy, unread: Iterable[int]) -> bool:
    own = [column for column in policy.columns.values() if column.field_id in unread]
    # A user who may not unwrap cannot open the key of a hash mask: the attempt to get one says so.
    if any(column.mask.needs_key or maker.own_key(KeyedColumn.of(column, ring)) is None for column in own):
        return True
    return maker.lacks(ring, (column for column in policy.columns.values() if column.field_id not in unread))


def _readable(keys: ColumnKeys, policy: ColumnPolicy) -> frozenset[int]:
    known = {*policy.columns, *policy.former}
    return frozenset(known - unreadable(keys, known).keys())


def _opened_keks(maker: ColumnKeyMaker, ring: KeyRing, readable: frozenset[int]) -> dict[bytes, bytes]:
    opened: dict[bytes, bytes] = {}
    for entry in ring.column_keys:
        # An executor that leaks the message must not show columns that the program itself may not read.
        if entry.field_id in readable:
            kek = ring.entry(entry.encrypted_by_id or "")
            opened[kek.wrapped_bytes()] = maker.open_kek(ring, kek, entry.field_id).reveal()
    return opened


def _own_keys(maker: ColumnKeyMaker, metadata: EncryptedTableMetadata, write_only: frozenset[int]) -> dict[str, bytes]:
    policy = ColumnPolicy.from_properties(metadata.properties)
    columns, ring = [column for column in policy.columns.values() if column.field_id in write_only], metadata.key_ring
    found = (maker.own_key(KeyedColumn.of(column, ring)) for column in columns)
    return {key_id: key.reveal() for key_id, key in (each for each in found if each is not None)}


def _nothing_to_commit(column: str, what: str) -> KeyNotFoundError:
    return KeyNotFoundError(
        f"{column} has no {what} yet, and a task cannot commit one: write to the table once through tablecrypt.spark.write_table "
        "or table.append, and try again"
    )


def _executor_denied(denied: ColumnKeyDeniedError, remedy: str) -> KmsAccessDeniedError:
    return KmsAccessDeniedError(
        f"this executor may not use {denied.column_key_id!r}, the master key of {column_shown(denied.field_id, denied.column_name)}, "
        f"which the driver may: {remedy}"
    )


def protected_among(metadata: TableMetadata, wanted: Schema) -> str | None:
    """Return why Spark's own Parquet reader does not read these columns: one is, has or had a column key. None if none does."""
    schema, policy = metadata.schema(), ColumnPolicy.from_properties(metadata.properties)
    for field_id in sorted({*policy.columns, *policy.former}):
        # A struct that is read as a whole brings its protected fields along, so the columns around one count too.
        if not wanted.field_ids.isdisjoint((field_id, *ancestors(schema, field_id))):
            name = wanted.find_column_name(field_id) or schema.find_column_name(field_id)
            return f"{name} is protected by a key of its own, which Python uses"

    return None
