"""Ending a share: its metadata goes, and the table forgets it. No file of the table is touched.

    1  mark               the folder as the share's: a run that was killed, or refused something by the store, is finished by the next one
    2  metadata.json      of the share goes first: from then on there is no share
    3  the rest           manifests, lists and vectors that sharing wrote, and the mark
    4  forget             once all of it is gone, and where no update has come between
    5  look again          for what an update that began before has written since

Which files are the share's, states.py says. What the partner committed to his table stays, and leads nowhere.

A DEK that was given is given: the partner, or whoever had his key, may hold it, and reads the file wherever he finds it. What ends that is
`reencrypt`, and that the old files go.
"""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from pyiceberg.table import Table

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError, with_sentence
from tablecrypt.files.deletion import DeletionScope, is_beyond_a_link
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.files.stores import stored_files
from tablecrypt.maintenance.operation import OperationResult, reload
from tablecrypt.maintenance.sharing.records import ShareRecord, forget_share
from tablecrypt.maintenance.sharing.states import States, check_place
from tablecrypt.printable import counted, shell_word, shown
from tablecrypt.table.shares import named_records, read_record, readable_shares, readably_named, said_of_shares
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO, name_of

_ONLY_FORGET: Final = "Nothing was deleted. To forget the share and leave all files, set only_forget (--only-forget)"


@dataclass(frozen=True)
class Unshared(OperationResult):
    """What `unshare` ended.

    Attributes:
        share_uuid: of the share.
        key_id: the partner's master key; empty where the record is lost.
        location: the share's folder; empty where the record is lost.
        deleted: locations of the share's metadata files that are gone.
        failed: those that could not be deleted, with what the store said: the share is remembered until they can.
        left: what else is in the share's folder, and stays: others wrote it.
        files: data and delete files of the table whose DEKs the partner had.
        advice: what ends that.
    """

    also_says: ClassVar = {"complete": "is_complete"}
    share_uuid: str
    key_id: str
    location: str
    deleted: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict, metadata=shown("could not be deleted", is_whole=True))
    left: tuple[str, ...] = field(default=(), metadata=shown("files of others in its folder, which stay"))
    files: tuple[str, ...] = field(default=(), metadata=shown("files of the table whose keys the partner had"))
    advice: str = field(default="", metadata=shown("to end that"))

    @property
    def is_complete(self) -> bool:
        """Whether the share is gone and forgotten; not after a dry run."""
        return not (self.failed or self.dry_run)

    def summary(self) -> str:
        """Return what was done in one sentence."""
        if self.failed:
            return f"Share {self.share_uuid} of {self.table} has not ended: not all of its metadata could be deleted."
        ended = f"{self._did('Ended', 'Would end')} share {self.share_uuid} of {self.table}"
        if not self.location:
            return f"{ended}, whose record is lost: its metadata is wherever it was put, and still opens."
        if not self.files:
            return f"{ended}, by which {self.key_id} opened no file of the table."
        given = f"the keys of {counted(len(self.files), 'file', 'files')} that {self.key_id} opened are known to whoever kept them"
        return f"{ended}; {given}."


@checked_arguments()
def unshare(table: Table, share: str, only_forget: bool = False, dry_run: bool = False) -> Unshared:
    """End a share of an encrypted table: delete its metadata, and forget it.

    The partner opens nothing by the share any more. A DEK that he, or anybody with his key, kept opens its file for good; the result says
    which files these are. Files that stayed for the share alone are orphans of the table from now on.

    Killed at any moment, the next call finishes it.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        share: the share's uuid, or its location.
        only_forget: forget it and delete nothing: for a record that is lost, or a folder that this client cannot reach. Then `share` is a
            uuid.
        dry_run: only say what would go.

    Raises:
        ConfigurationError: the table is not encrypted, or has no such share; or its folder is the table's own, or holds another table.
        ShareRecordError: what the table remembers of it cannot be read, and it is not only to be forgotten.
        KmsError: the KMS does not unwrap under the table's master key.
        CommitFailedException: others committed too often in the meantime, or brought the share up to date; its metadata as it was is gone,
            and the next call ends the share.
    """
    fresh = reload(table)
    record = _found(fresh, share, only_forget)
    if record is None:
        if not dry_run:
            forget_share(table, share)
        return Unshared(name_of(fresh), dry_run, share, "", "")

    result = Unshared(
        *(name_of(fresh), dry_run, record.share_uuid, record.key_id, record.location),
        files=record.all_files,
        advice=_advice(fresh, record, dry_run) if record.all_files else "",
    )
    if not only_forget:
        states = _states(fresh, record)
        own = _own_files(states, record)
        result = replace(result, deleted=tuple(own)) if dry_run else _deleted(result, states, own)
    if not (dry_run or result.failed):
        forget_share(table, record.share_uuid, readably_named(fresh.metadata).get(record.share_uuid, "any"))
        if not only_forget:
            result = _deleted_since(result, fresh, record)

    return result


def _deleted_since(result: Unshared, table: EncryptedTable, record: ShareRecord) -> Unshared:
    """Delete what an update wrote after the folder was looked through, and before the share was forgotten."""
    states = _states(table, record)
    if record.share_uuid not in map(str, states.tables.values()):
        return result
    since = _deleted(result, states, _own_files(states, record))
    return replace(since, deleted=(*result.deleted, *since.deleted))


def _states(table: EncryptedTable, record: ShareRecord) -> States:
    location = record.location.rstrip("/")
    # The record is authenticated, but whoever has the table's key can write one: it must not lead to files that are no share's.
    try:
        check_place(table.metadata, location)
    except ConfigurationError as error:
        raise with_sentence(error, _ONLY_FORGET) from error

    scope = DeletionScope((location,))
    # The metadata would stay, and open the share, while nothing of it is found here.
    if is_beyond_a_link(location, record.metadata_location):
        raise ConfigurationError(
            f"{record.metadata_location}: a link leads from the share's folder to another one: put the folder itself in the link's place, "
            f"or delete the metadata there, and unshare again. {_ONLY_FORGET}"
        )

    states = States.at(TableFileIO(table.io.inner, table.io.manager, scope, scope), location).without_linked(record.share_uuid)
    for found, table_uuid in states.tables.items():
        if str(table_uuid) != record.share_uuid:
            raise ConfigurationError(f"{location} holds another table ({found}, table-uuid {table_uuid}). {_ONLY_FORGET}")
    return states


def _own_files(states: States, record: ShareRecord) -> list[str]:
    own = states.own_files(record.metadata_location)
    # The record may have been made up: then files of another table, whose metadata is elsewhere, are named as those of a share are.
    if own and not states.is_of(record.share_uuid):
        raise ConfigurationError(
            f"nothing at {states.location} says that the share is there, and files are: {own[0]}. Where sharing was cut short, share "
            f"again, and unshare then. {_ONLY_FORGET}"
        )
    return own


def _found(table: EncryptedTable, share: str, only_forget: bool) -> ShareRecord | None:
    """Return the record of a share; None for one that is lost and is only to be forgotten."""
    if only_forget and share in said_of_shares(table.metadata):
        return next((each for each in readable_shares(table) if each.share_uuid == share), None)

    for named in named_records(table.metadata):
        if named.share_uuid == share:
            return read_record(table, named)
    records = readable_shares(table)
    for record in records:
        if record.location.rstrip("/") == share.rstrip("/"):
            return record

    raise ConfigurationError(f"{name_of(table)} has no live share {share!r}; it has {_listed(table, records)}")


def _listed(table: EncryptedTable, records: Collection[ShareRecord]) -> str:
    """Return which shares a table has, for a message: those whose records are lost by their uuids, since nothing says where they are."""
    places = {each.share_uuid: f"at {each.location}" for each in records}
    lost = "whose record cannot be read: its uuid with only_forget (--only-forget) forgets it"
    return ", ".join(f"{each} {places.get(each, lost)}" for each in said_of_shares(table.metadata)) or "none"


def _advice(table: EncryptedTable, record: ShareRecord, dry_run: bool) -> str:
    command = f"tablecrypt --catalog {shlex.quote(table.catalog.name)} reencrypt {shlex.quote(name_of(table))}"
    if dry_run:
        chosen = f"--shared-with {record.share_uuid} now, before it ends"
    else:
        # Of a filter by a protected column the values are not remembered: then the files are all that tells.
        # Whoever has the table's key can write a record, and people copy the command.
        where = f"--where {shell_word(record.row_filter)} " if record.row_filter and "?" not in record.row_filter else ""
        moment = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        chosen = f"{where}--older-than {moment} (in Python, exactly these files: reencrypt(table, files=unshared.files))"
    return f"{command} {chosen}; then expire the snapshots that name the old files, and remove orphans"


def _deleted(result: Unshared, states: States, own: Collection[str]) -> Unshared:
    """Delete what sharing wrote, and return the result with what became of it."""
    deleted: list[str] = []
    failed: dict[str, str] = {}
    if own:
        states.mark(result.share_uuid)
    for location in own:
        # Without its metadata.json there is no share: while that stays, so do the files that it names.
        if any(each.endswith(TABLE_METADATA_SUFFIXES) for each in failed):
            break

        try:
            states.io.delete(location)
        except FileNotFoundError:
            continue
        except Exception as error:  # noqa: BLE001  every store has errors of its own; all of them are reported together
            failed[location] = f"{type(error).__name__}: {error}"
        else:
            deleted.append(location)

    # While a file of the share is left, a run after this one knows by the mark whose it is.
    if not failed:
        states.remove_mark(result.share_uuid)
    known = {*own, *states.mark_of(result.share_uuid)}
    left = (file.location for file in stored_files(states.io.inner, states.location) if file.location not in known)
    return replace(result, deleted=tuple(deleted), failed=failed, left=tuple(left))
