"""Processes that write, read and keep in order one table at the same time, and what each of them is certain of.

A writer notes in a journal of its own what it begins and what was confirmed to it:

    rows it began to append   may be in the table          rows whose append was confirmed      must be
    rows it began to delete   may be gone                  rows whose delete was confirmed      must be

so that at any moment a reader knows which rows it must see, and which it may. A row that no journal names is foreign.

A commit that was refused is made again by the writer. Of one that was not confirmed, the writer looks at the table first.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ValidationException
from pyiceberg.expressions import And, EqualTo, In
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

from tablecrypt.maintenance import compact, prune_keys, reencrypt, rewrap, rotate_kek, shred
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.plaintext import CANARY

Key = tuple[int, int]
"""A row: its writer, and its number among those of this writer."""

SCHEMA: Final = pa.schema([("writer", pa.int64()), ("number", pa.int64()), ("version", pa.int64()), ("text", pa.string())])
REFUSED: Final = (CommitFailedException, ValidationException)
UNCONFIRMED: Final = (CommitStateUnknownException, OperationalError)
"""A busy SQLite answers with an OperationalError, at whichever statement it is."""
TRIES: Final = 2000
KEPT: Final = 4
"""So many snapshots the keeper leaves."""


def rows(writer: int, numbers: Iterable[int], version: int = 0) -> pa.Table:
    """Rows of one writer, with the canary."""
    made = [{"writer": writer, "number": each, "version": version, "text": f"{CANARY} {writer} {each}"} for each in numbers]
    return pa.Table.from_pylist(made, schema=SCHEMA)


Event = Literal["appending", "appended", "deleting", "deleted", "again", "end"]


class Journal:
    """What one process noted, a line each. Another process reads whole lines only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def note(self, event: Event, numbers: Iterable[int] = ()) -> None:
        """Add a line."""
        with self._path.open("a") as file:
            file.write(json.dumps([event, sorted(numbers)]) + "\n")

    def read(self) -> list[tuple[Event, list[int]]]:
        """All whole lines."""
        whole = self._path.read_text().rpartition("\n")[0]
        return [tuple(json.loads(line)) for line in whole.splitlines()]


@dataclass
class Known:
    """What all journals say at one moment."""

    begun: set[Key] = field(default_factory=set)
    certain: set[Key] = field(default_factory=set)
    may_go: set[Key] = field(default_factory=set)
    gone: set[Key] = field(default_factory=set)
    ended: int = 0
    again: int = 0

    @classmethod
    def of(cls, journals: Iterable[tuple[int, Journal]]) -> Known:
        """Read the journals."""
        known = cls()
        by_event = {"appending": known.begun, "appended": known.certain, "deleting": known.may_go, "deleted": known.gone}
        for writer, journal in journals:
            for event, numbers in journal.read():
                if event in by_event:
                    by_event[event].update((writer, each) for each in numbers)
                known.ended += event == "end"
                known.again += event == "again"
        return known


def check_seen(seen: Counter[Key], before: Known, after: Known) -> None:
    """What a read found that began after one look at the journals and ended before another."""
    assert max(seen.values(), default=1) == 1, f"rows that are there twice: {[key for key, count in seen.items() if count > 1][:5]}"
    lost = before.certain - after.may_go - seen.keys()
    assert not lost, f"{len(lost)} committed rows are lost: {sorted(lost)[:5]}"
    foreign = seen.keys() - after.begun
    assert not foreign, f"{len(foreign)} foreign rows: {sorted(foreign)[:5]}"
    back = seen.keys() & before.gone
    assert not back, f"{len(back)} deleted rows are back: {sorted(back)[:5]}"


def keys_in(read: pa.Table) -> Counter[Key]:
    """The rows that were read, of which each must hold what its writer wrote."""
    for row in read.to_pylist():
        assert row["text"] == f"{CANARY} {row['writer']} {row['number']}", row
    return Counter(zip(read.column("writer").to_pylist(), read.column("number").to_pylist(), strict=True))


class Writer:
    """One writing process: appends, and now and then deletes or upserts rows of its own."""

    def __init__(self, number: int, catalog: EncryptedSqlCatalog, journal: Journal) -> None:
        self._number, self._journal = number, journal
        self._table = catalog.load_table("db.t")
        self._random = Random(number)
        self._mine: list[int] = []
        self._next = itertools.count()

    def run(self, operations: int) -> bool:
        """Do so many operations."""
        for _ in range(operations):
            choice = self._random.random()
            if choice < 0.25 and len(self._mine) > 3:
                self._delete(self._random.sample(self._mine, 2))
            elif choice < 0.4 and len(self._mine) > 3:
                self._upsert(self._random.sample(self._mine, 2))
            else:
                self._append([next(self._next) for _ in range(3)])
        self._journal.note("end")
        return True

    def _append(self, numbers: list[int]) -> None:
        self._journal.note("appending", numbers)
        self._until_done(lambda: self._table.append(rows(self._number, numbers)), lambda: self._present(numbers) == len(numbers))
        self._journal.note("appended", numbers)
        self._mine.extend(numbers)

    def _delete(self, numbers: list[int]) -> None:
        self._journal.note("deleting", numbers)
        self._until_done(lambda: self._table.delete(self._these(numbers)), lambda: self._present(numbers) == 0)
        self._journal.note("deleted", numbers)
        self._mine = [each for each in self._mine if each not in numbers]

    def _upsert(self, numbers: list[int]) -> None:
        version = self._random.randrange(1, 1 << 30)
        source = rows(self._number, numbers, version)
        done = And(self._these(numbers), EqualTo(term="version", value=version))
        self._until_done(
            lambda: self._table.upsert(source, ["writer", "number"]), lambda: self._table.scan(row_filter=done).count() == len(numbers)
        )

    def _until_done(self, change: Callable[[], object], is_done: Callable[[], bool]) -> None:
        for _ in range(TRIES):
            try:
                change()
                return
            except REFUSED:
                self._refreshed()
            except UNCONFIRMED:
                self._refreshed()
                if is_done():
                    return
            self._journal.note("again")
        raise AssertionError(f"writer {self._number} was refused {TRIES} times")

    def _refreshed(self) -> None:
        for _ in range(TRIES):
            try:
                self._table.refresh()
                return
            except OperationalError:
                continue
        raise AssertionError(f"writer {self._number} could not load the table in {TRIES} tries")

    def _present(self, numbers: list[int]) -> int:
        return self._table.scan(row_filter=self._these(numbers)).count()

    def _these(self, numbers: list[int]) -> Any:
        return And(EqualTo(term="writer", value=self._number), In(term="number", literals=numbers))


def read_until_writers_end(catalog: EncryptedSqlCatalog, journals: list[tuple[int, Journal]], own: Journal) -> bool:
    """Read the table again and again while others change it, as a table, a stream, a count and a filter, by an old client and new ones."""
    table = catalog.load_table("db.t")
    for turn in itertools.count():
        before = Known.of(journals)
        table = _again_if_busy(lambda: catalog.load_table("db.t")) if turn % 2 else _again_if_busy(table.refresh)
        scan = table.scan(row_filter=EqualTo(term="writer", value=turn % len(journals))) if turn % 5 == 4 else table.scan()
        read = scan.to_arrow_batch_reader().read_all() if turn % 3 == 0 else scan.to_arrow()
        assert scan.count() == read.num_rows
        after = Known.of(journals)
        if turn % 5 == 4:
            before.certain = {key for key in before.certain if key[0] == turn % len(journals)}
        check_seen(keys_in(read), before, after)
        own.note("again")
        if before.ended == len(journals):
            return True
    return False


def keep_until_writers_end(catalog: EncryptedSqlCatalog, journals: list[tuple[int, Journal]], own: Journal, rounds: int) -> bool:
    """Rotate, rewrap, reencrypt, compact, expire and shred, at least so many rounds. What others were faster than is left for the next."""
    table = catalog.load_table("db.t")
    operations: list[Callable[[Table], object]] = [
        rotate_kek,
        lambda table: compact(table, min_input_files=2),
        _expire,
        reencrypt,
        rewrap,
        _shred_old,
        prune_keys,
    ]
    for turn in itertools.count():
        for operation in operations:
            try:
                operation(_again_if_busy(table.refresh))
                own.note("again", [operations.index(operation)])
            except (*REFUSED, *UNCONFIRMED):
                own.note("deleting", [operations.index(operation)])
        if turn + 1 >= rounds and Known.of(journals).ended == len(journals):
            return True
    return False


def _again_if_busy(load: Callable[[], Table]) -> Table:
    for _ in range(TRIES):
        try:
            return load()
        except OperationalError:
            continue
    raise AssertionError(f"the table could not be loaded in {TRIES} tries")


def _old(table: Table) -> list[int]:
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    return [each.snapshot_id for each in table.snapshots()[:-KEPT] if each.snapshot_id not in heads]


def _expire(table: Table) -> None:
    old = _old(table)
    if old:
        table.maintenance.expire_snapshots().by_ids(old[: len(old) // 2 + 1]).commit()


def _shred_old(table: Table) -> None:
    old = _old(table)
    if old:
        shred(table, old[:1])
