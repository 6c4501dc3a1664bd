"""The rules of the pins over whole histories: what honest writers do is accepted, and no state that lowers a head is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tablecrypt.errors import MetadataRollbackError, TablecryptError, TamperedFileError
from tablecrypt_catalog.pins.record import Head, Moves, TableVersion, TrustedTable

NAMES = st.sampled_from(["main", "audit", "wap", "v1"])
OTHERS = st.sampled_from(["audit", "wap", "v1"])
FAR = 1_000_000


def location(version: int, attempt: str = "a") -> str:
    return f"s3://bucket/db/t/metadata/{version:05d}-{attempt}.metadata.json"


class Histories(RuleBasedStateMachine):
    """One table, whose honest states are made one after the other, and one client, which sees some of them.

    Others may do what never moves a branch or tag back; this client may do anything, since it says what it moves.
    """

    @initialize()
    def create(self) -> None:
        self.state = TableVersion("uuid", "alias/t", 16, location(0), "hash-0", 0, heads={}, wrapping_keks=frozenset({"kek-0"}))
        self.state = replace(self.state, kek_hashes=frozenset({"kek-0"}))
        self.live: dict[int, int] = {}
        self.used: set[str] = set()
        self.past: list[TableVersion] = [self.state]
        self.pin = TrustedTable("db.t", None).verify_update(self.state)
        self.append("main")
        self.load()

    def publish(self, heads: dict[str, Head], last: int | None = None, mine: Moves | None = None) -> None:
        version = len(self.past)
        self.used |= set(heads)
        self.state = replace(
            self.state,
            metadata_location=location(version),
            metadata_hash=f"hash-{version}",
            last_sequence_number=self.state.last_sequence_number if last is None else last,
            heads=heads,
        )
        self.past.append(self.state)
        if mine is not None:
            verified = TrustedTable("db.t", self.pin).verify_update(self.state, moved=mine)
            assert verified is not None
            self.pin = verified

    def append(self, name: str, mine: bool = False) -> None:
        number = self.state.last_sequence_number + 1
        self.live[1000 + number] = number
        self.publish({**self.state.heads, name: Head(1000 + number, number)}, number, Moves(frozenset({name})) if mine else None)

    @rule()
    def load(self) -> None:
        verified = TrustedTable("db.t", self.pin).verify_update(self.state)
        assert verified is not None
        self.pin = verified

    @rule(name=NAMES)
    def another_commits(self, name: str) -> None:
        self.append(name)

    @rule(name=NAMES)
    def the_client_commits(self, name: str) -> None:
        self.load()
        self.append(name, mine=True)

    @rule(data=st.data(), name=OTHERS)
    def another_makes_a_new_branch_of_any_snapshot(self, data: st.DataObject, name: str) -> None:
        fresh = name if name not in self.used else f"{name}-{len(self.used)}"
        snapshot = data.draw(st.sampled_from(sorted(self.live)))
        self.publish({**self.state.heads, fresh: Head(snapshot, self.live[snapshot])})

    @rule(name=OTHERS)
    def another_removes_a_branch(self, name: str) -> None:
        self.publish({other: head for other, head in self.state.heads.items() if other != name})

    @rule(to=NAMES, name=NAMES)
    def another_fast_forwards(self, to: str, name: str) -> None:
        heads = dict(self.state.heads)
        if to in heads and name in heads and heads[to].sequence_number > heads[name].sequence_number:
            self.publish({**heads, name: heads[to]})

    @rule(keep=st.integers(1, 5))
    def another_expires(self, keep: int) -> None:
        kept = set(sorted(self.live)[-keep:]) | {head.snapshot_id for head in self.state.heads.values()}
        self.live = {snapshot: number for snapshot, number in self.live.items() if snapshot in kept}
        self.publish(dict(self.state.heads))

    @rule()
    def another_rotates_the_kek(self) -> None:
        new = f"kek-{len(self.past)}"
        retired = self.state.retired_keks | self.state.wrapping_keks
        self.state = replace(self.state, kek_hashes=self.state.kek_hashes | {new}, retired_keks=retired, wrapping_keks=frozenset({new}))
        self.publish(dict(self.state.heads))

    @rule(data=st.data(), name=NAMES)
    def the_client_moves_a_branch_anywhere(self, data: st.DataObject, name: str) -> None:
        self.load()
        snapshot = data.draw(st.sampled_from(sorted(self.live)))
        self.publish({**self.state.heads, name: Head(snapshot, self.live[snapshot])}, mine=Moves(frozenset({name})))

    @rule(name=OTHERS)
    def the_client_removes_a_branch(self, name: str) -> None:
        self.load()
        self.publish({other: head for other, head in self.state.heads.items() if other != name}, mine=Moves(frozenset({name})))

    @rule(data=st.data())
    def an_older_file_is_put_back(self, data: st.DataObject) -> None:
        older = [state for state in self.past if (state.version or 0) < (self.pinned.version or 0)]
        if older:
            self.refused(data.draw(st.sampled_from(older)))

    @rule(data=st.data(), ahead=st.integers(1, FAR), after=st.integers(0, FAR))
    def an_older_state_is_numbered_as_the_newest(self, data: st.DataObject, ahead: int, after: int) -> None:
        older = data.draw(st.sampled_from(self.past))
        forged = self.numbered(older, ahead, after)
        if any(fell(older.heads.get(name), head, name) for name, head in self.pinned.heads.items()):
            self.refused(forged)

    @rule(data=st.data(), ahead=st.integers(1, FAR), after=st.integers(0, FAR))
    def heads_of_several_states_are_mixed(self, data: st.DataObject, ahead: int, after: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.pinned.heads)))
        before = self.pinned.heads[name]
        lower = Head(data.draw(st.integers(0, 2000)), data.draw(st.integers(0, before.sequence_number)))
        if lower != before:
            self.refused(self.numbered(replace(self.state, heads={**self.state.heads, name: lower}), ahead, after))

    @rule(ahead=st.integers(1, FAR), after=st.integers(0, FAR))
    def main_is_taken_away(self, ahead: int, after: int) -> None:
        heads = {name: head for name, head in self.state.heads.items() if name != "main"}
        self.refused(self.numbered(replace(self.state, heads=heads), ahead, after))

    @precondition(lambda self: self.pinned.retired_keks)
    @rule(data=st.data(), ahead=st.integers(1, FAR))
    def a_retired_kek_is_to_wrap_again(self, data: st.DataObject, ahead: int) -> None:
        back = data.draw(st.sampled_from(sorted(self.pinned.retired_keks)))
        self.refused(self.numbered(replace(self.state, wrapping_keks=frozenset({back})), ahead, 0), TamperedFileError)

    @invariant()
    def the_pin_is_no_newer_than_the_table(self) -> None:
        assert self.pinned.last_sequence_number <= self.state.last_sequence_number
        assert self.pinned.metadata_location in {state.metadata_location for state in self.past}

    @property
    def pinned(self) -> TableVersion:
        assert self.pin is not None
        return self.pin

    def numbered(self, state: TableVersion, ahead: int, after: int) -> TableVersion:
        """Give a state the numbers of one that follows the pinned one, as whoever writes metadata.json can."""
        version = (self.pinned.version or 0) + ahead
        last = self.pinned.last_sequence_number + after
        return replace(state, metadata_location=location(version, "forged"), metadata_hash="forged", last_sequence_number=last)

    def refused(self, forged: TableVersion, error: type[TablecryptError] = MetadataRollbackError) -> None:
        with pytest.raises(error):
            TrustedTable("db.t", self.pin).verify_update(forged)
        if error is MetadataRollbackError:
            accepted = TrustedTable("db.t", self.pin).accept_rollback(forged)
            assert accepted is not None
            assert accepted.heads == forged.heads


def fell(now: Head | None, before: Head, name: str) -> bool:
    if now is None:
        return name == "main"
    return now != before and now.sequence_number <= before.sequence_number


TestHistories = pytest.mark.slow(Histories.TestCase)
TestHistories.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
