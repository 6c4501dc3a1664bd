"""The column KEKs and column keys of a table: made once, opened once, refused once, and never under the table's own master key."""

from __future__ import annotations

import base64
import os
import pickle
import secrets
import threading
from collections.abc import Callable

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.errors import (
    AuthenticationError,
    ColumnKeyDeniedError,
    ConfigurationError,
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    KmsUnavailableError,
    TamperedFileError,
)
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import ColumnPolicy, ProtectedColumn
from tablecrypt.keys.former_keys import FormerKey
from tablecrypt.keys.key_ring import COLUMN_KEK, COLUMN_KEY, KEY_TIMESTAMP, EncryptedKey, KeyRing
from tablecrypt.keys.manager import DEFAULT_KEK_LIFESPAN_MS, EncryptionManager
from tablecrypt.keys.refusals import REFUSAL_SECONDS, refusals
from tablecrypt.keys.table_column_keys import TableColumnKeys
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.kms.resilient import ResilientKeyManagementClient
from tablecrypt.table.protection.policy import check_protected
from tests.support.bound_schemas import OF_BYTES, OF_TEXT, unbound_key_metadata
from tests.support.forking import holds_in_forked_child

START_MS = 1_700_000_000_000
SSN, SALARY = 2, 3
POLICY = ColumnPolicy.of([ProtectedColumn(SSN, "pii"), ProtectedColumn(SALARY, "pii")])
PREFIX = b"p" * 16
KEYS = {"orders": b"o" * 32, "pii": b"p" * 32, "fin": b"f" * 32}


class UnreachableOnce(MemoryKeyManagementClient):
    """A key service that does not answer the first request to unwrap."""

    asked = 0

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        self.asked += 1
        if self.asked == 1:
            raise KmsUnavailableError("no answer")
        return super().unwrap_key(wrapped_key, wrapping_key_id)


def client(name: str = "column-keys", keys: dict[str, bytes] | None = None) -> ResilientKeyManagementClient:
    return ResilientKeyManagementClient(MemoryKeyManagementClient({"kms.memory.name": name}, keys or KEYS))


def maker(
    kms: ResilientKeyManagementClient | None = None,
    now_ms: int = START_MS,
    clock: Callable[[], float] = lambda: 0.0,
    length: int = 16,
) -> ColumnKeyMaker:
    return ColumnKeyMaker(kms or client(), "orders", length, DEFAULT_KEK_LIFESPAN_MS, lambda: now_ms, secrets.token_bytes, clock)


def committed(made: ColumnKeyMaker, ring: KeyRing | None = None, prefix: bytes = PREFIX) -> KeyRing:
    """The ring after a commit of the file with this AAD prefix."""
    base = ring or KeyRing()
    return base.with_others(made.pending.new_entries(base, [prefix]))


def edited(ring: KeyRing, key_id: str, **changes: object) -> KeyRing:
    return KeyRing([entry.model_copy(update=changes) if entry.key_id == key_id else entry for entry in entries(ring)])


def entries(ring: KeyRing) -> list[EncryptedKey]:
    return [*ring.column_keks, *ring.column_keys]


@pytest.fixture
def written() -> tuple[KeyRing, bytes]:
    """A ring, and the key metadata of ssn in a file whose commit brought the ring's entries."""
    made = maker()
    key = TableColumnKeys(made, POLICY, KeyRing()).generate([SSN], PREFIX)[SSN]
    return committed(made), key.key_metadata(OF_TEXT)


def test_what_one_process_wraps_another_opens() -> None:
    made = maker()
    keys = TableColumnKeys(made, POLICY, KeyRing()).generate([SSN, SALARY], PREFIX)
    ring = committed(made)
    reader = TableColumnKeys(maker(client()), POLICY, ring)
    assert {field_id: reader.unwrap(field_id, key.key_metadata(OF_TEXT), PREFIX, OF_TEXT, 1) for field_id, key in keys.items()} == {
        field_id: key.secret for field_id, key in keys.items()
    }
    assert len({key.secret for key in keys.values()}) == 2


def test_one_kek_serves_all_columns_of_a_master_key_and_each_column_has_a_key_of_its_own() -> None:
    made = maker()
    TableColumnKeys(made, POLICY, KeyRing()).generate([SSN, SALARY], PREFIX)
    ring = committed(made)
    (kek,) = ring.column_keks
    assert (kek.encrypted_by_id, kek.properties) == ("pii", {KEY_TIMESTAMP: str(START_MS), COLUMN_KEK: "1"})
    assert {(key.encrypted_by_id, key.field_id) for key in ring.column_keys} == {(kek.key_id, SSN), (kek.key_id, SALARY)}
    assert not ring.keks
    assert {key.kind for key in entries(ring)} == {"column KEK", "column key"}


@pytest.mark.parametrize("length", [16, 24, 32])
def test_every_key_is_as_long_as_the_table_asks_for(length: int) -> None:
    made = maker(length=length)
    dek = TableColumnKeys(made, POLICY, KeyRing()).generate([SSN], PREFIX)[SSN].secret
    ring, rotated = committed(made), made.new_kek("pii")
    (kek,), (key,) = ring.column_keks, ring.column_keys
    keks = [made.open_kek(ring, kek, SSN), made.open_kek(KeyRing([rotated]), rotated, SSN)]

    assert {len(dek), len(made.open(ring, key)), *map(len, keks)} == {length}


def test_a_file_that_does_not_bind_its_schema_is_read_by_what_the_ring_says_of_the_column(written: tuple[KeyRing, bytes]) -> None:
    ring, _ = written
    (key,) = ring.column_keys
    secret = maker().open(ring, key)
    stored = unbound_key_metadata(key.key_id, secret, SSN, PREFIX, b"d" * 16)
    told = KeyRing(entries(ring), fields_of=lambda field_id: [NestedField(SSN, "ssn", StringType())] if field_id == SSN else [])

    assert TableColumnKeys(maker(), POLICY, told).unwrap(SSN, stored, PREFIX, OF_TEXT, 1) == b"d" * 16
    for known, schema in ((ring, OF_TEXT), (told, OF_BYTES)):
        with pytest.raises(TamperedFileError, match="another type"):
            TableColumnKeys(maker(), POLICY, known).unwrap(SSN, stored, PREFIX, schema, 1)


def test_a_thousand_files_cost_one_call_of_the_kms_and_share_no_key(written: tuple[KeyRing, bytes]) -> None:
    ring, _ = written
    kms = client()
    made = maker(kms)
    keys = TableColumnKeys(made, POLICY, ring)
    secret = {keys.generate([SSN], number.to_bytes(2, "big"))[SSN].secret for number in range(1000)}
    assert len(secret) == 1000
    assert kms.calls == {"unwrap_key": 1}
    assert made.pending.new_entries(ring, [number.to_bytes(2, "big") for number in range(1000)]) == ()


def test_the_key_service_is_asked_once_an_hour_for_each_master_key(written: tuple[KeyRing, bytes]) -> None:
    ring, key_metadata = written
    now = [0.0]
    keyring = MemoryKeyManagementClient({"kms.memory.name": "column-keys"}, KEYS)
    kms = ResilientKeyManagementClient(keyring, clock=lambda: now[0])
    for minute in range(180):
        now[0] = minute * 60.0
        keys = TableColumnKeys(maker(kms), POLICY, ring)
        keys.check_readable([SSN, SALARY])
        assert keys.unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)
    assert kms.calls == {"unwrap_key": 3}


def test_a_refusal_is_asked_once_a_minute_and_counted(written: tuple[KeyRing, bytes]) -> None:
    ring, key_metadata = written
    kms, now = client("column-keys-analyst", {"orders": KEYS["orders"]}), [100.0]
    keys = TableColumnKeys(maker(kms, clock=lambda: now[0]), POLICY, ring)
    before = refusals().asked["pii"], refusals().remembered["pii"]
    for _ in range(50):
        with pytest.raises(ColumnKeyDeniedError, match="column with field id 2 is protected by master key 'pii'") as error:
            keys.unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)
        assert (error.value.field_id, error.value.column_key_id) == (SSN, "pii")
    assert kms.calls == {"unwrap_key": 1}
    assert (refusals().asked["pii"] - before[0], refusals().remembered["pii"] - before[1]) == (1, 49)
    now[0] += REFUSAL_SECONDS
    with pytest.raises(ColumnKeyDeniedError):
        keys.unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)
    assert kms.calls == {"unwrap_key": 2}


def test_whether_columns_are_readable_is_known_without_a_file(written: tuple[KeyRing, bytes]) -> None:
    ring, _ = written
    TableColumnKeys(maker(), POLICY, ring).check_readable([SSN, SALARY])
    kms = client("column-keys-unreadable", {"orders": KEYS["orders"]})
    keys = TableColumnKeys(maker(kms), POLICY, ring)
    # No file has values of SALARY under a key yet; its master key decides all the same.
    for column in (SSN, SALARY, SSN):
        with pytest.raises(ColumnKeyDeniedError):
            keys.check_readable([column])
    assert kms.calls == {"unwrap_key": 1}


def test_a_refusal_of_one_client_is_none_of_another(written: tuple[KeyRing, bytes]) -> None:
    ring, key_metadata = written
    with pytest.raises(ColumnKeyDeniedError):
        TableColumnKeys(maker(client("column-keys-denied", {"orders": KEYS["orders"]})), POLICY, ring).unwrap(
            SSN, key_metadata, PREFIX, OF_TEXT, 1
        )
    assert TableColumnKeys(maker(), POLICY, ring).unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)


def test_a_kms_that_fails_is_no_refusal(written: tuple[KeyRing, bytes]) -> None:
    ring, key_metadata = written
    kms = UnreachableOnce({"kms.memory.name": "column-keys"}, KEYS)
    keys = TableColumnKeys(ColumnKeyMaker(kms, "orders", 16, 1, lambda: 0, secrets.token_bytes), POLICY, ring)
    with pytest.raises(KmsUnavailableError):
        keys.unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)
    assert keys.unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)


@pytest.mark.parametrize("field_id", [SALARY, 99])
def test_a_columns_key_opens_no_other_column(written: tuple[KeyRing, bytes], field_id: int) -> None:
    ring, key_metadata = written
    policy = ColumnPolicy.of([*POLICY.columns.values(), ProtectedColumn(99, "pii")])
    with pytest.raises(AuthenticationError, match="that of the column with field id 2"):
        TableColumnKeys(maker(), policy, ring).unwrap(field_id, key_metadata, PREFIX, OF_TEXT, 1)


def test_an_entry_that_is_relabelled_for_another_column_does_not_open(written: tuple[KeyRing, bytes]) -> None:
    ring, key_metadata = written
    (entry,) = ring.column_keys
    relabelled = edited(ring, entry.key_id, properties={COLUMN_KEY: str(SALARY)})
    with pytest.raises(AuthenticationError, match="does not open under column KEK"):
        TableColumnKeys(maker(), POLICY, relabelled).unwrap(SALARY, key_metadata, PREFIX, OF_TEXT, 1)


def test_an_entry_of_another_table_does_not_open_this_tables_files(written: tuple[KeyRing, bytes]) -> None:
    ring, key_metadata = written
    other = maker()
    TableColumnKeys(other, POLICY, KeyRing()).generate([SSN], PREFIX)
    (entry,), (foreign,) = ring.column_keys, committed(other).column_keys
    exchanged = edited(ring, entry.key_id, encrypted_key_metadata=foreign.encrypted_key_metadata)
    with pytest.raises(AuthenticationError, match="was changed"):
        TableColumnKeys(maker(), POLICY, exchanged).unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)
    swapped = KeyRing([*committed(other).column_keks, foreign.model_copy(update={"key_id": entry.key_id})])
    with pytest.raises(AuthenticationError):
        TableColumnKeys(maker(), POLICY, swapped).unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)


def test_a_rotation_says_of_keys_of_early_builds_which_table_they_are_of(written: tuple[KeyRing, bytes]) -> None:
    ring, key_metadata = written
    made = maker()
    early = KeyRing(entries(ring), table_uuid="this table")
    [entry], kek = early.column_keys, made.new_kek("pii")
    assert (entry.made_for, early.is_foreign(entry)) == (None, False)

    rotated = KeyRing([kek, made.under(early, entry, kek)], table_uuid="this table")

    [bound] = rotated.column_keys
    assert (bound.key_id, bound.made_for) == (entry.key_id, "this table")
    assert KeyRing(entries(rotated), table_uuid="another table").is_foreign(bound)
    assert TableColumnKeys(maker(), POLICY, rotated).unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)


def made_for(table_uuid: str, prefix: bytes) -> tuple[EncryptedKey, ...]:
    """The entries for a file of a table."""
    made = maker()
    TableColumnKeys(made, POLICY, KeyRing(table_uuid=table_uuid)).generate([SSN], prefix)
    return made.pending.new_entries(KeyRing(), [prefix])


@pytest.mark.parametrize("entries_of", [("this table", "another table"), ("another table", "this table")])
def test_new_values_go_under_a_key_of_this_table_and_not_of_another(entries_of: tuple[str, str]) -> None:
    ring = KeyRing([entry for each in entries_of for entry in made_for(each, each.encode())], table_uuid="this table")
    made = maker()

    key = TableColumnKeys(made, POLICY, ring).generate([SSN], b"new")[SSN]

    assert ring.entry(key.column_key_id).made_for == "this table"
    assert [ring.is_strange(entry) for entry in ring.column_keys] == [each == "another table" for each in entries_of]


def test_a_copy_with_keys_of_the_other_table_alone_goes_on_with_them() -> None:
    ring, made = KeyRing(made_for("the other", b"there"), table_uuid="the copy"), maker(now_ms=START_MS + DEFAULT_KEK_LIFESPAN_MS)
    assert not any(map(ring.is_strange, ring.column_keys))

    TableColumnKeys(made, POLICY, ring).generate([SSN], b"here")

    assert {entry.made_for for entry in made.pending.new_entries(ring, [b"here"]) if entry.is_column_key} == {"the other"}


def test_an_entry_that_is_gone_is_said_to_be_shredded_or_removed(written: tuple[KeyRing, bytes]) -> None:
    ring, key_metadata = written
    with pytest.raises(KeyNotFoundError, match="shredded, or somebody removed"):
        TableColumnKeys(maker(), POLICY, KeyRing(ring.column_keks)).unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)
    with pytest.raises(KeyNotFoundError):
        TableColumnKeys(maker(), POLICY, KeyRing(ring.column_keys)).unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)


def test_no_column_key_is_accepted_under_the_tables_own_master_key(written: tuple[KeyRing, bytes]) -> None:
    ring, key_metadata = written
    (kek,) = ring.column_keks
    downgraded = edited(ring, kek.key_id, encrypted_by_id="orders")
    policy = ColumnPolicy.of([ProtectedColumn(SSN, "orders")])
    with pytest.raises(KeyIdChangedError, match="table's own master key"):
        TableColumnKeys(maker(), policy, downgraded).unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)
    with pytest.raises((ConfigurationError, ColumnKeyDeniedError), match="own master key"):
        TableColumnKeys(maker(), policy, KeyRing()).generate([SSN], PREFIX)


def test_a_key_that_the_properties_do_not_name_for_the_column_is_not_used(written: tuple[KeyRing, bytes]) -> None:
    ring, key_metadata = written
    for policy in (ColumnPolicy(), ColumnPolicy.of([ProtectedColumn(SSN, "fin")])):
        with pytest.raises(KeyIdChangedError, match="do not name that key"):
            TableColumnKeys(maker(), policy, ring).unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)
    former = ColumnPolicy.of([ProtectedColumn(SSN, "fin")], {SSN: FormerKey("pii", 1)})
    assert TableColumnKeys(maker(), former, ring).unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)


@pytest.mark.parametrize("sequence_number", [0, 4, 5, 6, 2**40, None])
@pytest.mark.parametrize("until", [5, None])
def test_a_former_key_opens_no_file_that_is_younger_than_its_end(
    written: tuple[KeyRing, bytes], sequence_number: int | None, until: int | None
) -> None:
    ring, key_metadata = written
    former = {SSN: FormerKey("pii", until)}
    changed = TableColumnKeys(maker(), ColumnPolicy.of([ProtectedColumn(SSN, "fin")], former), ring)
    if until is not None and sequence_number is not None and sequence_number <= until:
        assert changed.unwrap(SSN, key_metadata, PREFIX, OF_TEXT, sequence_number)
    else:
        with pytest.raises((TamperedFileError, KeyIdChangedError), match="former master key 'pii'"):
            changed.unwrap(SSN, key_metadata, PREFIX, OF_TEXT, sequence_number)
    # The column's own key has no end, and neither has that of a column which is protected no more.
    for policy in (ColumnPolicy.of([ProtectedColumn(SSN, "pii")], former), ColumnPolicy.of([], former)):
        assert TableColumnKeys(maker(), policy, ring).unwrap(SSN, key_metadata, PREFIX, OF_TEXT, sequence_number)


@pytest.mark.parametrize("version", ["2", "", "x"])
def test_a_kek_of_another_version_is_refused(written: tuple[KeyRing, bytes], version: str) -> None:
    ring, key_metadata = written
    (kek,) = ring.column_keks
    with pytest.raises(FormatError, match="no column KEK"):
        other = edited(ring, kek.key_id, properties={KEY_TIMESTAMP: str(START_MS), COLUMN_KEK: version})
        TableColumnKeys(maker(), POLICY, other).unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)


def test_a_kek_that_is_too_old_opens_and_wraps_no_more(written: tuple[KeyRing, bytes]) -> None:
    ring, key_metadata = written
    later = maker(now_ms=START_MS + DEFAULT_KEK_LIFESPAN_MS)
    keys = TableColumnKeys(later, POLICY, ring)
    assert keys.unwrap(SSN, key_metadata, PREFIX, OF_TEXT, 1)
    keys.generate([SSN], b"later")
    after = committed(later, ring, b"later")
    assert (len(after.column_keks), len(after.column_keys)) == (2, 2)


def test_a_failed_commit_offers_the_same_entries_again_and_other_files_get_other_keys() -> None:
    made = maker()
    TableColumnKeys(made, POLICY, KeyRing()).generate([SSN], b"first")
    assert made.pending.new_entries(KeyRing(), [b"first"]) == made.pending.new_entries(KeyRing(), [b"first"]) != ()
    TableColumnKeys(made, POLICY, KeyRing()).generate([SSN], b"second")
    first, second = ({key.key_id for key in made.pending.new_entries(KeyRing(), [prefix])} for prefix in (b"first", b"second"))
    assert first.isdisjoint(second)


def test_what_was_made_before_a_refresh_is_brought_after_it_unless_it_was_committed_and_shredded(written: tuple[KeyRing, bytes]) -> None:
    before, after = (EncryptionManager(client(), "orders", now_ms=lambda: START_MS) for _ in range(2))
    TableColumnKeys(before.columns, POLICY, KeyRing()).generate([SSN], b"first")
    after.take_over(before, KeyRing())
    assert after.columns.pending.new_entries(KeyRing(), [b"first"]) == before.columns.pending.new_entries(KeyRing(), [b"first"]) != ()

    ring, _ = written
    used, later = (EncryptionManager(client(), "orders", now_ms=lambda: START_MS) for _ in range(2))
    TableColumnKeys(used.columns, POLICY, ring).generate([SSN], b"second")
    later.take_over(used, ring)
    assert later.columns.pending.new_entries(ring, [b"second"]) == ()
    with pytest.raises(KeyNotFoundError, match="write them again"):
        later.columns.pending.new_entries(KeyRing(), [b"second"])


def test_a_column_that_was_shredded_meanwhile_gets_no_file_under_its_old_key(written: tuple[KeyRing, bytes]) -> None:
    ring, _ = written
    made = maker()
    TableColumnKeys(made, POLICY, ring).generate([SSN], b"late")
    shredded = KeyRing(ring.column_keks)
    with pytest.raises(KeyNotFoundError, match="write them again"):
        made.pending.new_entries(shredded, [b"late"])


def test_what_this_process_committed_and_somebody_shredded_never_comes_back() -> None:
    made = maker()
    keys = TableColumnKeys(made, POLICY, KeyRing())
    keys.generate([SSN], b"a")
    ring = committed(made, prefix=b"a")
    TableColumnKeys(made, POLICY, ring).generate([SSN], b"b")
    TableColumnKeys(made, POLICY, KeyRing()).generate([SSN], b"c")
    brought = {key.key_id for key in made.pending.new_entries(KeyRing(), [b"c"])}
    assert brought.isdisjoint(key.key_id for key in entries(ring))
    with pytest.raises(KeyNotFoundError):
        made.pending.new_entries(KeyRing(), [b"b"])


def test_a_kek_that_was_rotated_away_during_the_write_makes_the_commit_fail() -> None:
    made = maker()
    TableColumnKeys(made, POLICY, KeyRing()).generate([SSN], b"a")
    ring = committed(made, prefix=b"a")
    TableColumnKeys(made, POLICY, ring).generate([SALARY], b"b")
    with pytest.raises((CommitFailedException, KeyNotFoundError)):
        made.pending.new_entries(KeyRing(), [b"b"])


def test_a_rewrapped_kek_opens_what_it_opened(written: tuple[KeyRing, bytes]) -> None:
    ring, key_metadata = written
    made = maker()
    (kek,) = ring.column_keks
    again = made.rewrapped(ring, kek)
    assert again.encrypted_key_metadata != kek.encrypted_key_metadata
    assert TableColumnKeys(maker(), POLICY, edited(ring, kek.key_id, encrypted_key_metadata=again.encrypted_key_metadata)).unwrap(
        SSN, key_metadata, PREFIX, OF_TEXT, 1
    )


def test_a_kek_that_opens_no_column_key_of_the_table_is_not_rewrapped(written: tuple[KeyRing, bytes]) -> None:
    ring, _ = written
    made = maker()
    (kek,) = ring.column_keks
    foreign = made.new_kek("pii").model_copy(update={"key_id": kek.key_id})
    with pytest.raises(AuthenticationError):
        made.rewrapped(KeyRing([foreign, *ring.column_keys]), foreign)


def test_column_entries_are_never_candidates_for_manifest_lists(written: tuple[KeyRing, bytes]) -> None:
    ring, _ = written
    manager = EncryptionManager(MemoryKeyManagementClient({"kms.memory.name": "column-keys"}, KEYS), "orders", now_ms=lambda: START_MS)
    made = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), ring)
    assert made.added[0].is_kek
    assert made.added[0].encrypted_by_id == "orders"
    for entry in entries(ring):
        with pytest.raises(FormatError, match=entry.kind):
            ring.chain(entry.key_id)
    (kek,) = ring.column_keks
    wrapped = base64.b64encode(b"x" * 40).decode()
    listed = EncryptedKey(key_id="list", encrypted_key_metadata=wrapped, encrypted_by_id=kek.key_id)
    with pytest.raises(FormatError, match="not a KEK"):
        KeyRing([*entries(ring), listed]).chain("list")


def test_every_column_key_and_its_kek_is_needed_whatever_snapshots_there_are(written: tuple[KeyRing, bytes]) -> None:
    ring, _ = written
    assert ring.needed_by([]) == {entry.key_id for entry in entries(ring)}
    assert KeyRing(ring.column_keks).needed_by([]) == set()


def test_a_policy_that_lost_a_column_is_noticed_by_its_key(written: tuple[KeyRing, bytes]) -> None:
    ring, _ = written
    schema = Schema(NestedField(SSN, "ssn", LongType()))
    with pytest.raises(KeyIdChangedError, match="'ssn' has a key of its own"):
        check_protected(ring, ColumnPolicy(), schema)
    check_protected(ring, ColumnPolicy.of([], {SSN: FormerKey("pii", 1)}), schema)
    check_protected(ring, ColumnPolicy(), Schema(NestedField(9, "ssn", LongType())))


def test_a_pickled_maker_brings_no_entry_and_no_key() -> None:
    kms = MemoryKeyManagementClient({"kms.memory.name": "column-keys"}, KEYS)
    made = ColumnKeyMaker(kms, "orders", 16, 1, lambda: START_MS, secrets.token_bytes)
    TableColumnKeys(made, POLICY, KeyRing()).generate([SSN], b"first")
    assert made.pending.made
    copy = pickle.loads(pickle.dumps(made.pending))
    assert (copy.made, copy.offered, copy.used) == ({}, set(), {})
    with pytest.raises(TypeError):
        pickle.dumps(TableColumnKeys(made, POLICY, KeyRing()))


class SlowInItsProcess(MemoryKeyManagementClient):
    """A key service that lets the process which made this client wait for an answer, and none that was forked from it."""

    def __init__(self) -> None:
        super().__init__({"kms.memory.name": "slow"}, KEYS)
        self.process, self.asked, self.answering = os.getpid(), threading.Event(), threading.Event()

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        if os.getpid() == self.process:
            self.asked.set()
            self.answering.wait(60)
        return super().unwrap_key(wrapped_key, wrapping_key_id)


def test_a_child_that_is_forked_while_a_thread_waits_for_a_column_key_gets_its_own() -> None:
    service = SlowInItsProcess()
    made = maker(ResilientKeyManagementClient(service))

    def write() -> bool:
        return SSN in TableColumnKeys(made, POLICY, KeyRing()).generate([SSN], PREFIX)

    thread = threading.Thread(target=write)
    thread.start()
    assert service.asked.wait(60)
    held = holds_in_forked_child(write)
    service.answering.set()
    thread.join()

    assert held
