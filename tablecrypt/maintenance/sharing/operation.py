"""Sharing: another organisation gets exactly these rows of a table, by keys that are wrapped for it, and no byte of data is copied.

    1  plan       the files of which every row matches: plan.py. All that refuses comes before all that writes
    2  keys       a KEK of the share's own, wrapped under the partner's master key; for protected columns one of each: columns.py
    3  remember   the table remembers to whom, which files, under which key: records.py
    4  metadata   manifests and their list under fresh DEKs: metadata.py
    5  last       metadata.json: before it is there, there is no share

Killed at any time, there is a share or there is none, and at most a record of one that never came. The next run makes it.

The DEK of a file stands in the manifest, not under the table's KEK. So new manifests open the files that they name, and nothing else of the
table: no other file, no other snapshot, and none of its manifests.

An update writes the next state beside the one that is there, from the table's current snapshot: who shares need not be able to open what he
has shared. The state before stays until the next update, for readers who have not registered the new one, and all older ones go. While
both are there, the table remembers the files and columns of both, since keys of the partner's open them in either. An update of what did
not change writes no state, and takes the state before away.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.table import ALWAYS_TRUE, Table

from tablecrypt.arguments import checked_arguments, file_path
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.deletion import DeletionScope
from tablecrypt.files.encrypting_file_io import refuse_restricted
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.keys.manager import EncryptionManager, OpenKek
from tablecrypt.keys.nested_columns import covering
from tablecrypt.maintenance._relocate_files import copy_location
from tablecrypt.maintenance._storage import write_metadata
from tablecrypt.maintenance.erasure.row_filter import shape_of
from tablecrypt.maintenance.operation import check_own_manifests, checked_filter, reload, require_encrypted
from tablecrypt.maintenance.runner import LocalRunner
from tablecrypt.maintenance.sharing.columns import given_deks, proven_columns, unproven_columns
from tablecrypt.maintenance.sharing.metadata import Place, ShareWriter
from tablecrypt.maintenance.sharing.plan import RewriteChoice, SharePlan, plan_share
from tablecrypt.maintenance.sharing.records import ShareRecord, check_named, live_shares, remember_share
from tablecrypt.maintenance.sharing.result import Shared, storage_policy
from tablecrypt.maintenance.sharing.sealing import PublicKey, info_of
from tablecrypt.maintenance.sharing.states import States, check_place
from tablecrypt.manifests.manifest_list import SHARE_SECRET_BYTES
from tablecrypt.table.other_tables import check_no_table_around
from tablecrypt.table.shares import NamedRecord, SharedColumn, readably_named, said_of_shares
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO, deleting_on_error, name_of

PUBLIC_KEY: Final = "public-key:"
_NAMESPACE: Final = uuid.UUID("3c1f6d52-8d0b-5a7e-9a40-6f7b1e2f9d11")


@checked_arguments(but=("row_filter",))
def share(
    table: Table,
    to_key_id: str,
    location: str,
    row_filter: str | BooleanExpression | None = None,
    snapshot: int | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    no_statistics: bool = False,
    rewrite: bool = False,
    without_columns: Sequence[str] = (),
    update: bool = False,
    dry_run: bool = False,
    manifests_below: Sequence[str] = (),
) -> Shared:
    """Share rows of an encrypted table with a partner, who reads them with his own master key. No data file is copied.

    A file is shared if its partition or bounds prove that every one of its rows matches. The share is an ordinary encrypted table at its
    own location, with one snapshot and no history: the partner registers its metadata in a catalog of his. He opens these files and no
    others of the table, nor its manifests. Of protected columns those that are named are shared. What a DEK once opened it opens for
    good: `reencrypt` is what ends that. The table remembers what it shares.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        to_key_id: the partner's master key, which this user may wrap under; the right to unwrap is not needed. Or "public-key:" and the
            path of a public key's file that the partner sent: then he wraps the share's key himself, by `accept`.
        location: where the share's metadata goes: a folder of its own, in any store that the table's FileIO reaches.
        row_filter: which rows, such as "region = 'eu'"; by default all. For an update by default those of the share.
        snapshot: id of the snapshot that is shared; by default the current one.
        columns: protected columns that are shared, by name, each with a second master key of the partner's: {"salary": "alias/his-pay"}.
            This user may read the column, and wrap under that key. By default none; for an update those of the share.
        no_statistics: whether the partner gets no bounds and counts of the columns, by which his scans leave out files. Updates of the
            share give none either.
        rewrite: whether matching rows of files that cannot be shared as they are, above all since they hold other rows too, are written
            once into the share's folder, under keys of their own.
        without_columns: columns that may not leave at all, with `rewrite`: every file with matching rows is written again without them. No
            update of the share gives them.
        update: bring the share that is at the location up to date: the partner then registers the new metadata in the place of the old.
        dry_run: only say what would be shared.
        manifests_below: folders of this table and of no other in which manifests lie, where neither a pin nor the place of its metadata
            file says that the table lies there.

    Raises:
        ConfigurationError: the table is not encrypted; the filter does not fit it or no file matches; a file with matching rows holds
            other rows too, has position or equality deletes, or holds a protected column in the clear; the location is inside the table's
            or holds a table or a table's files; the partner's key is the table's own, or that of one of his columns; a column that is named
            is not protected, or the share is sealed to a public key; or a manifest lies outside the folders of which this client knows that
            they are the table's; or the record of the share does not prove that somebody with a column's key shared it.
        ColumnKeyDeniedError: this user may not read a column that is named; nothing was shared.
        KeyNotFoundError, KmsError: the KMS has no such key, or does not wrap under it; or it refused the table's key.
        CommitFailedException: others committed to the table first, several times in a row: nothing was shared.
    """
    require_encrypted(table)
    fresh = reload(table)
    refuse_restricted(fresh.io, "share")
    is_sealed = to_key_id.startswith(PUBLIC_KEY)
    public_key = PublicKey.read(file_path("to_key_id", to_key_id.removeprefix(PUBLIC_KEY))) if is_sealed else None
    key_id = to_key_id if public_key is None else public_key.key_id
    sharing = _Sharing(fresh, key_id, copy_location(location), public_key)
    if not update:
        sharing.check_place_is_free()
    record = sharing.known() if update else None
    rows = sharing.rows(row_filter, record)
    chosen = columns if columns is not None else record.columns if record is not None else ()
    # What a share has kept from the partner, an update that says nothing of it keeps from him too.
    left_out = () if record is None else record.without
    rewriting = RewriteChoice(rewrite or bool(left_out), tuple(without_columns), left_out)
    plan = plan_share(fresh, rows, snapshot, LocalRunner(), rewriting, chosen)
    plan = replace(plan, with_statistics=not no_statistics and (record is None or record.with_statistics))
    if record is not None and columns is None:
        sharing.check_proven(record, plan.columns)
    sharing.check_keys_of(plan.columns)
    check_own_manifests(fresh, (each.manifest_path for each in plan.snapshot.manifests(fresh.io)), manifests_below)
    if dry_run:
        # Made and thrown away: a key under which nothing can be wrapped shows before anything is given away.
        sharing.new_keys(plan)
        return sharing.result(plan, record, dry_run=True)

    said = record.row_filter if row_filter is None and record is not None else str(row_filter or "")
    text = shape_of(rows) if _compares_protected(plan) else said
    plan = replace(plan, columns=proven_columns(fresh, plan.columns, str(sharing.share_uuid), text, sharing.now_ms))
    return sharing.make(plan, text) if record is None else sharing.bring_up_to_date(plan, text, record)


def _compares_protected(plan: SharePlan) -> bool:
    # Whoever has the table's key opens the record, and lists and audits show it: no value of a protected column may stand there.
    schema = plan.metadata.schema()
    protected = {*plan.protected, *(column.field_id for column in plan.columns)}
    compared = extract_field_ids(bind(schema, plan.row_filter, case_sensitive=True))
    return not compared.isdisjoint(covering(dict.fromkeys(protected), schema))


@dataclass(frozen=True)
class _Keys:
    """The keys of one state of a share: its KEK, and the entries that open its protected columns."""

    kek: OpenKek
    of_columns: tuple[EncryptedKey, ...]


@dataclass(frozen=True)
class _Sharing:
    """One table on its way to one partner."""

    table: EncryptedTable
    to_key_id: str
    location: str
    public_key: PublicKey | None = None

    def __post_init__(self) -> None:
        check_place(self.table.metadata, self.location)
        if self.to_key_id == self.table.io.manager.table_key_id:
            raise ConfigurationError(
                f"{self.to_key_id!r} is the master key of {name_of(self.table)} itself: who may use it reads the whole table. Name the "
                "partner's own"
            )

    def check_keys_of(self, columns: Iterable[SharedColumn]) -> None:
        """Refuse keys under which a column of the share would be open to others than those who may use it."""
        for column in columns:
            if self.public_key is not None or column.key_id.startswith(PUBLIC_KEY):
                raise ConfigurationError(
                    f"column {column.name!r}: a protected column is shared under a master key of the partner's, and not sealed to a public "
                    "key. Share with a master key that you may wrap under, or leave the column out"
                )
            if column.key_id in (self.to_key_id, self.table.io.manager.table_key_id):
                whose = "share" if column.key_id == self.to_key_id else "source table"
                raise ConfigurationError(
                    f"column {column.name!r} is to be under {column.key_id!r}, the master key of the {whose} itself: whoever reads that "
                    "would read the column too. Name another key of the partner's"
                )

    def check_proven(self, record: ShareRecord, columns: Iterable[SharedColumn]) -> None:
        """Refuse columns that are to be shared because a record says so, which whoever has the table's key can write."""
        if unproven := self.unproven(record, columns):
            raise ConfigurationError(
                f"the record of the share at {self.location} does not prove that somebody with the key of column {unproven[0].name!r} "
                f"shared it under {unproven[0].key_id!r}: name the protected columns anew (columns=…, --column)"
            )

    def unproven(self, record: ShareRecord, columns: Iterable[SharedColumn]) -> list[SharedColumn]:
        """Return those of a share's columns of which nothing proves that somebody with their keys shares them now."""
        newest_ms = self.states.newest_ms
        # A record from before the last state proves what was shared then. Without any state, the share may have ended since.
        is_last = newest_ms is not None and newest_ms <= record.created_ms
        return unproven_columns(self.table, record, columns) if is_last else list(columns)

    @cached_property
    def now_ms(self) -> int:
        """When this state is made, in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    @cached_property
    def share_uuid(self) -> uuid.UUID:
        """The share's table-uuid, the same for all shares of one table at one place."""
        return uuid.uuid5(_NAMESPACE, f"{self.table.metadata.table_uuid} {self.location}")

    @cached_property
    def states(self) -> States:
        """What is at the location."""
        return States.at(self.io, self.location)

    @cached_property
    def io(self) -> TableFileIO:
        """The share's FileIO, which writes over and deletes in its own folder alone."""
        own = self.table.io.manager
        manager = EncryptionManager(own.kms, self.to_key_id, data_key_length=own.data_key_length, kek_lifespan_ms=own.kek_lifespan_ms)
        return TableFileIO(self.table.io.inner, manager, DeletionScope((self.location,)), DeletionScope((self.location,)))

    def check_place_is_free(self) -> None:
        """Refuse a place that holds a share, another table or files which the end of the share would take, or that lies inside a table."""
        for location, found in self.states.tables.items():
            if found == self.share_uuid:
                raise ConfigurationError(f"{self.location} holds this share already ({location}): update (--update) brings it up to date")
            raise ConfigurationError(f"{self.location} holds another table ({location}, table-uuid {found}): choose another location")
        check_no_table_around(self.table.io.inner, self.location)

        # A share that was cut short is remembered. Other files may be those of a table whose metadata lies elsewhere, and the end of the
        # share would take them.
        if str(self.share_uuid) not in said_of_shares(self.table.metadata) and (others := self.states.others()):
            raise ConfigurationError(
                f"{self.location} holds files that are no share's, such as {next(iter(others))}: choose another location"
            )

    def known(self) -> ShareRecord:
        """Return what the table remembers of the share that is to be brought up to date."""
        for location, found in self.states.tables.items():
            if found != self.share_uuid:
                raise ConfigurationError(
                    f"{self.location} holds another table (table-uuid {found} in {location}), and no share of this one"
                )
        record = next((each for each in live_shares(self.table) if each.share_uuid == str(self.share_uuid)), None)
        if record is None:
            raise ConfigurationError(f"{name_of(self.table)} has no share at {self.location}: leave update (--update) out to make one")
        if record.key_id != self.to_key_id:
            raise ConfigurationError(f"the share at {self.location} is under {record.key_id!r}, and not under {self.to_key_id!r}")
        return record

    def rows(self, row_filter: str | BooleanExpression | None, record: ShareRecord | None) -> BooleanExpression:
        """Return the filter of the shared rows."""
        if row_filter is None and record is not None and record.row_filter:
            return checked_filter(self.table, record.row_filter, "the filter of the share, which row_filter (--where) can say anew,")
        return ALWAYS_TRUE if row_filter is None else checked_filter(self.table, row_filter)

    def make(self, plan: SharePlan, row_filter: str) -> Shared:
        """Make the share."""
        place = Place(self.location, self.share_uuid, uuid.uuid4())
        # Asked first, so that a key which cannot be used leaves nothing behind.
        keys = self.new_keys(plan)
        secret = Secret(secrets.token_bytes(SHARE_SECRET_BYTES))
        named = remember_share(self.table, self._record(plan, place, row_filter, secret), self._named())
        return replace(self.result(plan, None), **self._write(plan, place, keys, secret, named))

    def bring_up_to_date(self, plan: SharePlan, row_filter: str, record: ShareRecord) -> Shared:
        """Write the share's next state, if the table has changed since."""
        named = self._named()
        asked = plan.snapshot.snapshot_id, row_filter, plan.columns, plan.without, plan.with_statistics
        known = record.snapshot_id, record.row_filter, record.columns, record.without, record.with_statistics
        # Of a filter by a protected column no values are remembered, so that another one would look like it.
        # And columns that were named anew, since nothing proved them, are proven by a new record.
        is_known = asked == known and not (_compares_protected(plan) or self.unproven(record, record.columns))
        if is_known and self.states.has(record.metadata_location):
            self._forget_former(replace(record, files=tuple(plan.locations), former_files=(), former_columns=()), record, named)
            return self.result(plan, record)

        place = Place(self.location, self.share_uuid, uuid.uuid4(), self.states.next_number)
        keys = self.new_keys(plan)
        secret = record.secret or Secret(secrets.token_bytes(SHARE_SECRET_BYTES))
        new = self._record(plan, place, row_filter, secret)
        # The states that are there name files that the new one may not.
        remembered = _after(new, record.all_files, record.all_columns)
        named = remember_share(self.table, remembered, named)
        written = self._write(plan, place, keys, secret, named)
        # A run that was killed has remembered a state that never came: then what is there is an older one.
        former = _after(new, record.files, record.columns) if self.states.has(record.metadata_location) else remembered
        self._forget_former(former, remembered, named)
        return replace(self.result(plan, record), **written)

    def new_keys(self, plan: SharePlan) -> _Keys:
        """Make the keys of one state, for the partner alone to open."""
        columns = given_deks(self.table, plan.columns, plan.tasks, plan.stored)
        maker, share = self.io.manager.columns, str(self.share_uuid)
        given = (maker.given(column.key_id, deks, share) for column, deks in columns.items() if deks)
        return _Keys(self._new_kek(), tuple(chain.from_iterable(given)))

    def _new_kek(self) -> OpenKek:
        if (public_key := self.public_key) is None:
            return self.io.manager.new_kek_for_another()
        return self.io.manager.new_sealed_kek(lambda entry, key: public_key.seal(key, info_of(str(self.share_uuid), entry)))

    def _named(self) -> NamedRecord | None:
        """Return the record of the share that this run began with."""
        return readably_named(self.table.metadata).get(str(self.share_uuid))

    def _forget_former(self, now: ShareRecord, remembered: ShareRecord, named: NamedRecord | None) -> None:
        """Take away the states before the last of those that were there, and remember what the others need."""
        # Where the partner has written to his table all states stay, and so do their files.
        if self.states.remove_all_but_the_last() and _needed_by(now) != _needed_by(remembered):
            remember_share(self.table, now, named)

    def _write(self, plan: SharePlan, place: Place, keys: _Keys, secret: Secret, named: NamedRecord) -> dict[str, Any]:
        """Write one state, which `named` remembers; return what the result says of it."""
        writer = ShareWriter(plan, place, self.io, secret, self.now_ms)
        # The metadata first, without which nothing else opens.
        with deleting_on_error(self.io, chain([place.metadata_location], writer.locations)):
            metadata = writer.write(keys.kek, keys.of_columns)
            length = write_metadata(self.io, place.metadata_location, metadata)
            # Who ended the share while it was written found none of this, and no command would ever end it.
            check_named(reload(self.table).metadata, str(self.share_uuid), named)

        return {
            "metadata_location": place.metadata_location,
            "rows": plan.rows + writer.rewritten_rows,
            "rewritten_bytes": writer.rewritten_bytes,
            "written_bytes": writer.written_bytes + length,
        }

    def _record(self, plan: SharePlan, place: Place, row_filter: str, secret: Secret) -> ShareRecord:
        return ShareRecord(
            share_uuid=str(self.share_uuid),
            key_id=self.to_key_id,
            location=self.location,
            metadata_location=place.metadata_location,
            snapshot_id=plan.snapshot.snapshot_id,
            created_ms=self.now_ms,
            row_filter=row_filter,
            columns=plan.columns,
            without=plan.without,
            with_statistics=plan.with_statistics,
            files=tuple(plan.locations),
            secret=secret,
        )

    def result(self, plan: SharePlan, record: ShareRecord | None, dry_run: bool = False) -> Shared:
        """Return what is shared; `record` is of the share before an update."""
        before, now = set(() if record is None else record.files), set(plan.locations)
        return Shared(
            table=name_of(self.table),
            dry_run=dry_run,
            location=self.location,
            metadata_location="" if record is None or dry_run else record.metadata_location,
            share_uuid=str(self.share_uuid),
            to_key_id=self.to_key_id,
            snapshot_id=plan.snapshot.snapshot_id,
            files=len(plan.tasks),
            rows=plan.rows,
            bytes=plan.size,
            came=len(now - before),
            went=len(before - now),
            rewritten=len(plan.rewritten),
            columns=tuple(each.name for each in plan.schema.fields),
            protected={each.name: each.key_id for each in plan.columns},
            withheld=plan.withheld,
            masked=plan.masked,
            dropped=plan.dropped,
            deleted_rows=plan.deleted_rows,
            policy=storage_policy(plan.locations, self.location),
        )


def _after(new: ShareRecord, files: Iterable[str], columns: Iterable[SharedColumn]) -> ShareRecord:
    """Return the record of a state, which also remembers what states before it need."""
    former = dict.fromkeys(each for each in files if each not in set(new.files))
    return replace(
        new, former_files=tuple(former), former_columns=tuple(dict.fromkeys(each for each in columns if each not in new.columns))
    )


def _needed_by(record: ShareRecord) -> tuple[frozenset[str], frozenset[str], frozenset[SharedColumn]]:
    return frozenset(record.files), frozenset(record.former_files), frozenset(record.former_columns)
