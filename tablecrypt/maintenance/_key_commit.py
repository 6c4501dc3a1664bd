"""Commits that change a table's keys and nothing else, while others commit too.

    load the table ─▶ plan ─▶ nothing to do? done
         ▲              │ updates
         │              ▼
         └─ refused ── commit, if branches, tags and keys are still those that the plan was made for

A writer under way wraps its snapshot's key under the KEK of the metadata that it began with. Were that KEK removed meanwhile, its snapshot
could never be read. What notices that:

    catalogs that commit in this process (SQL, Hive, Glue)   the requirement `AssertKeysUnchanged` here, and the rules of every commit there
    a REST server                                            every branch and tag is required to be as planned; a snapshot that none points
                                                             to is missed by that, and so what the plan removed is put back when the
                                                             server's answer has a snapshot that needs it

Raises CommitFailedException when others were faster as often as `commit.retry.num-retries` allows, and CommitStateUnknownException when the
catalog did not say whether the commit landed: calling the operation again shows, and does nothing twice.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Literal, Protocol, TypeVar, cast

from pydantic import Field
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertRefSnapshotId, TableRequirement, TableUpdate, ValidatableTableRequirement
from pyiceberg.utils.properties import property_as_int

from tablecrypt.errors import KeyNotFoundError
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing
from tablecrypt.maintenance.operation import reload
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.shares import said_of_shares
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of
from tablecrypt.table.updates import added_keys

logger = logging.getLogger(__name__)

_LONGEST_WAIT_MS: Final = 5_000
_RANDOM: Final = secrets.SystemRandom()


class HasUpdates(Protocol):
    """A plan: what it would commit, and whatever its operation reports of it."""

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """The updates to commit; none when there is nothing to do."""
        ...


P = TypeVar("P", bound=HasUpdates)


@dataclass(frozen=True)
class CommitOutcome(Generic[P]):
    """A plan, the table that it was made for, and whether it was committed."""

    plan: P
    base: EncryptedTable
    committed: bool


class AssertKeysUnchanged(ValidatableTableRequirement):
    """The table has the keys, snapshots and shares that a plan was made for. Only catalogs that commit in this process know it."""

    type: Literal["assert-encryption-keys"] = Field(default="assert-encryption-keys")
    keys: tuple[EncryptedKey, ...]
    snapshot_ids: frozenset[int] = Field(alias="snapshot-ids")
    shares: dict[str, str]

    @classmethod
    def of(cls, metadata: EncryptedTableMetadata) -> AssertKeysUnchanged:
        """Return the requirement that a table's keys, snapshots and shares are as in this metadata."""
        snapshot_ids = frozenset(each.snapshot_id for each in metadata.snapshots)
        # Shares too: keys of what a new one has must not be destroyed, and called out of everybody's reach.
        return cls(keys=metadata.key_ring.entries, snapshot_ids=snapshot_ids, shares=said_of_shares(metadata))

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Raise CommitFailedException where the base of the commit has other keys, snapshots or shares."""
        if not isinstance(base_metadata, EncryptedTableMetadata) or AssertKeysUnchanged.of(base_metadata) != self:
            raise CommitFailedException("Requirement failed: snapshots, encryption keys or shares have changed meanwhile")


def commit_keys(
    table: Table,
    plan: Callable[[EncryptedTable], P],
    sleep: Callable[[float], None] = time.sleep,
    jitter: Callable[[], float] = _RANDOM.random,
) -> CommitOutcome[P]:
    """Plan on the table as it is now and commit the plan, again and again until it lands or there is nothing to do.

    Args:
        table: an encrypted table; its state in memory is brought up to date.
        plan: is called with the newest state of the table.
        sleep, jitter: wait for so many seconds; a number in [0, 1).
    """
    attempts_left = max(0, _property(table, TableProperties.COMMIT_NUM_RETRIES, TableProperties.COMMIT_NUM_RETRIES_DEFAULT))
    least_ms = _property(table, TableProperties.COMMIT_MIN_RETRY_WAIT_MS, TableProperties.COMMIT_MIN_RETRY_WAIT_MS_DEFAULT)
    # Whoever may commit sets it, and could have others wait for weeks.
    wait_ms = min(max(0, least_ms), _LONGEST_WAIT_MS)
    while True:
        # Not the caller's state: a plan made on that would remove keys that others' snapshots need by now.
        base = reload(table)
        planned = plan(base)
        if not planned.updates:
            table.refresh()
            return CommitOutcome(planned, base, committed=False)

        try:
            _commit(base, planned.updates)
        except CommitFailedException as error:
            if not attempts_left:
                raise
            logger.info("%s: another writer committed first, planning again: %s", name_of(table), error)
        else:
            table.refresh()
            return CommitOutcome(planned, base, committed=True)

        attempts_left -= 1
        # With jitter, since writers that collided once would otherwise collide again.
        sleep(wait_ms * (1 + jitter()) / 1000)
        wait_ms = min(2 * wait_ms, _LONGEST_WAIT_MS)


def _commit(base: EncryptedTable, updates: tuple[TableUpdate, ...]) -> None:
    metadata = base.metadata
    # Every ref, not main alone: a commit to any branch may have wrapped its key under a KEK that goes here.
    requirements: tuple[TableRequirement, ...] = tuple(
        AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items()
    )
    is_remote = isinstance(base.catalog, RestCatalog)
    # A REST server refuses requirements that it does not know.
    if not is_remote:
        requirements += (cast("TableRequirement", AssertKeysUnchanged.of(metadata)),)

    try:
        transaction = base.transaction()
        transaction.apply(updates, requirements)
        transaction.commit_transaction()
    except KeyNotFoundError as error:
        if not is_remote:
            # In this process the requirement was checked before anything was written: the key was missing before.
            raise
        _put_back(base, metadata, error)
        # As a failed commit, so that `commit_keys` plans again on a state that has the new snapshot.
        raise CommitFailedException(f"another writer committed a snapshot that needs a key which this commit removed: {error}") from error


def _put_back(table: EncryptedTable, before: EncryptedTableMetadata, error: KeyNotFoundError) -> None:
    """Give back what snapshots need that a server added to the table while keys were removed from it."""
    fresh = reload(table)
    current = fresh.metadata
    # The new snapshot's key is in the current state, and its KEK in the one before.
    both, present = KeyRing([*before.encryption_keys, *current.encryption_keys]), current.key_ring
    needed = both.needed_by(snapshot.key_id for snapshot in current.snapshots if snapshot.key_id is not None)
    missing = [both.entry(key_id) for key_id in needed if key_id not in present]
    if not missing:
        # Nothing of the state before helps: the key is missing for another reason.
        raise error

    transaction = fresh.transaction()
    # KEKs first, so that no update names a wrapping key that is not there yet.
    transaction.apply(added_keys(sorted(missing, key=lambda entry: not entry.is_wrapped_by_kms)))
    transaction.commit_transaction()


def _property(table: Table, name: str, default: int) -> int:
    value = property_as_int(table.metadata.properties, name, default)
    return default if value is None else value
