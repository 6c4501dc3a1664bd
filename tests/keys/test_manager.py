"""Making, wrapping, rotating and unwrapping keys, against the real KMS of the test server, and what a table's properties say about them."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import NestedField, StringType

from tablecrypt.crypto.aes_gcm import AesGcm
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, KeyIdChangedError, KeyNotFoundError
from tablecrypt.keys.key_ring import CLOCK_SKEW_MS, KEY_TIMESTAMP, EncryptedKey, KeyRing, is_ahead
from tablecrypt.keys.manager import DEFAULT_KEK_LIFESPAN_MS, EncryptionManager, KeySettings
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.kms.resilient import ResilientKeyManagementClient
from tablecrypt.testing.strategies import key_lengths


def test_without_properties_the_defaults_hold() -> None:
    assert KeySettings.of({}) == KeySettings(16, DEFAULT_KEK_LIFESPAN_MS)


def test_what_is_allowed_is_taken_as_text_or_number() -> None:
    assert KeySettings.of({"encryption.data-key-length": "32", "encryption.kek-lifespan-ms": 1}) == KeySettings(32, 1)


@pytest.mark.parametrize("name", ["encryption.data-key-length", "encryption.kek-lifespan-ms"])
@pytest.mark.parametrize("value", ["", "x", "-1", "0", "1.5", " 16", "१६", "17000000000000", "9" * 5000, None, True])
def test_what_cannot_be_used_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=name):
        KeySettings.of({name: value})


@pytest.mark.parametrize("stored", [{"encryption.data-key-length": "17"}, {"encryption.kek-lifespan-ms": "for ever"}])
def test_what_another_client_made_unusable_keeps_nobody_from_reading_and_gives_the_longest_keys(stored: dict[str, str]) -> None:
    assert KeySettings.of_stored(stored) == KeySettings(32, DEFAULT_KEK_LIFESPAN_MS)
    assert KeySettings.of_stored({"encryption.data-key-length": "24"}) == KeySettings(24, DEFAULT_KEK_LIFESPAN_MS)


MASTER_KEY = "master"
START_MS = 1_700_000_000_000


@pytest.fixture
def kms() -> MemoryKeyManagementClient:
    return MemoryKeyManagementClient({"kms.memory.name": "keys-tests"}, keys={MASTER_KEY: b"k" * 32, "other": b"o" * 32})


def manager_at(kms: MemoryKeyManagementClient, clock: Callable[[], int] = lambda: START_MS, **options: Any) -> EncryptionManager:
    return EncryptionManager(kms, MASTER_KEY, now_ms=clock, **options)


@given(length=key_lengths(), file_length=st.none() | st.integers(0, 2**62))
def test_what_is_encrypted_is_what_is_opened(length: int, file_length: int | None) -> None:
    kms = MemoryKeyManagementClient({"kms.memory.name": "keys-roundtrip"}, keys={MASTER_KEY: b"k" * 32})
    manager = manager_at(kms, data_key_length=length)
    key_metadata = manager.new_key_metadata()
    if file_length is not None:
        key_metadata = key_metadata.with_file_length(file_length)
    encrypted = manager.encrypt_manifest_list_key_metadata(key_metadata, KeyRing())
    opened = manager.decrypt_manifest_list_key_metadata(KeyRing(encrypted.added).chain(encrypted.key_id))
    assert opened.encode() == key_metadata.encode()
    assert len(opened.encryption_key) == length


def test_no_two_files_share_a_dek_or_an_aad_prefix(kms: MemoryKeyManagementClient) -> None:
    manager = manager_at(kms)
    made = [manager.new_key_metadata() for _ in range(500)]
    assert len({metadata.encryption_key.reveal() for metadata in made}) == 500
    assert len({metadata.aad_prefix for metadata in made}) == 500
    assert {len(metadata.aad_prefix) for metadata in made} == {16}


def test_the_first_encryption_makes_a_kek_and_the_next_uses_it_again(kms: MemoryKeyManagementClient) -> None:
    manager = manager_at(kms)
    first = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing())
    kek, list_key = first.added
    assert kek.is_kek
    assert not list_key.is_kek
    assert (kek.encrypted_by_id, kek.properties) == (MASTER_KEY, {KEY_TIMESTAMP: str(START_MS)})
    assert (list_key.encrypted_by_id, list_key.properties) == (kek.key_id, None)
    assert first.key_id == list_key.key_id
    second = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing(first.added), first.key_id)
    assert [key.encrypted_by_id for key in second.added] == [kek.key_id]


@pytest.mark.parametrize(("age_ms", "is_reused"), [(0, True), (999, True), (1000, False), (10**9, False)])
def test_a_kek_wraps_nothing_new_from_its_lifespan_on(kms: MemoryKeyManagementClient, age_ms: int, is_reused: bool) -> None:
    first = manager_at(kms, kek_lifespan_ms=1000)
    parent = first.encrypt_manifest_list_key_metadata(first.new_key_metadata(), KeyRing())
    later = manager_at(kms, clock=lambda: START_MS + age_ms, kek_lifespan_ms=1000)
    encrypted = later.encrypt_manifest_list_key_metadata(later.new_key_metadata(), KeyRing(parent.added), parent.key_id)
    assert (len(encrypted.added) == 1) is is_reused


def test_an_expired_kek_still_opens_what_it_wrapped(kms: MemoryKeyManagementClient) -> None:
    first = manager_at(kms)
    key_metadata = first.new_key_metadata()
    encrypted = first.encrypt_manifest_list_key_metadata(key_metadata, KeyRing())
    much_later = manager_at(kms, clock=lambda: START_MS + 10 * DEFAULT_KEK_LIFESPAN_MS)
    assert much_later.decrypt_manifest_list_key_metadata(KeyRing(encrypted.added).chain(encrypted.key_id)).encode() == key_metadata.encode()


def test_a_kek_of_another_master_key_wraps_nothing_new(kms: MemoryKeyManagementClient) -> None:
    other = EncryptionManager(kms, "other", now_ms=lambda: START_MS)
    parent = other.encrypt_manifest_list_key_metadata(other.new_key_metadata(), KeyRing())
    manager = manager_at(kms)
    encrypted = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing(parent.added), parent.key_id)
    assert encrypted.added[0].encrypted_by_id == MASTER_KEY


def test_a_kek_that_names_another_master_key_opens_nothing(kms: MemoryKeyManagementClient) -> None:
    manager = manager_at(kms)
    encrypted = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing())
    chain = KeyRing(encrypted.added).chain(encrypted.key_id)
    with pytest.raises(KeyIdChangedError, match="other"):
        EncryptionManager(kms, "other").decrypt_manifest_list_key_metadata(chain)


def test_a_kek_of_an_attempt_that_did_not_land_serves_the_next(kms: MemoryKeyManagementClient) -> None:
    counted = ResilientKeyManagementClient(kms)
    manager = EncryptionManager(counted, MASTER_KEY, now_ms=lambda: START_MS)
    manager.check_usable(KeyRing())
    attempts = [manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing()) for _ in range(3)]
    assert len({attempt.added[0].key_id for attempt in attempts}) == 1
    assert len({attempt.key_id for attempt in attempts}) == 3
    assert counted.calls == {"wrap_key": 1, "unwrap_key": 1}


def test_a_kek_that_only_lies_in_the_metadata_wraps_nothing(kms: MemoryKeyManagementClient) -> None:
    """Whoever can write metadata.json can put a retired KEK back; being the newest of all does not help it."""
    retired, current = (manager_at(kms, clock=lambda offset=offset: START_MS + offset) for offset in (5, 0))  # type: ignore[misc]
    revived = retired.new_kek()
    head = current.encrypt_manifest_list_key_metadata(current.new_key_metadata(), KeyRing())
    writer = manager_at(kms, clock=lambda: START_MS + 10)
    encrypted = writer.encrypt_manifest_list_key_metadata(writer.new_key_metadata(), KeyRing([revived, *head.added]), head.key_id)
    assert [key.encrypted_by_id for key in encrypted.added] == [head.added[0].key_id]
    first = writer.encrypt_manifest_list_key_metadata(writer.new_key_metadata(), KeyRing([revived]))
    assert revived.key_id not in {key.encrypted_by_id for key in first.added}


def test_a_parent_whose_key_does_not_open_under_its_kek_stops_the_commit(kms: MemoryKeyManagementClient) -> None:
    manager = manager_at(kms)
    head = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing())
    revived = manager_at(kms).new_kek()
    pointed = head.added[1].model_copy(update={"encrypted_by_id": revived.key_id})
    with pytest.raises(AuthenticationError, match="does not open under KEK"):
        manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing([revived, pointed]), head.key_id)
    with pytest.raises(AuthenticationError, match="does not open under KEK"):
        manager.check_usable(KeyRing([revived, pointed]), head.key_id)


@pytest.mark.parametrize(("ahead_ms", "wraps"), [(CLOCK_SKEW_MS, True), (CLOCK_SKEW_MS + 1, False), (7_258_118_400_000 - START_MS, False)])
def test_a_kek_from_the_future_opens_and_wraps_nothing(kms: MemoryKeyManagementClient, ahead_ms: int, wraps: bool) -> None:
    ahead = manager_at(kms, clock=lambda: START_MS + ahead_ms)
    key_metadata = ahead.new_key_metadata()
    parent = ahead.encrypt_manifest_list_key_metadata(key_metadata, KeyRing())
    manager, ring = manager_at(kms), KeyRing(parent.added)
    assert manager.decrypt_manifest_list_key_metadata(ring.chain(parent.key_id)).encode() == key_metadata.encode()
    encrypted = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), ring, parent.key_id)
    assert (len(encrypted.added) == 1) is wraps
    assert is_ahead(ring.keks[0], START_MS) is not wraps


def test_a_kek_that_landed_and_was_taken_out_is_not_used_again(kms: MemoryKeyManagementClient) -> None:
    """A rotation by another process may have retired it meanwhile."""
    manager = manager_at(kms)
    committed = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing())
    encrypted = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing(committed.added))
    fresh, list_key = encrypted.added
    assert fresh.is_kek
    assert list_key.encrypted_by_id == fresh.key_id != committed.added[0].key_id


def test_a_kek_of_an_attempt_that_did_not_land_expires_as_any_other(kms: MemoryKeyManagementClient) -> None:
    now = [START_MS]
    manager = manager_at(kms, clock=lambda: now[0], kek_lifespan_ms=1000)
    first = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing())
    now[0] += 1000
    second = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing())
    assert second.added[0].key_id != first.added[0].key_id


@pytest.mark.parametrize("length", [16, 24, 32])
def test_a_kek_is_as_long_as_the_table_asks_for(kms: MemoryKeyManagementClient, length: int) -> None:
    kek = manager_at(kms, data_key_length=length).new_kek()
    assert len(kms.unwrap_key(kek.wrapped_bytes(), MASTER_KEY)) == length


@pytest.mark.parametrize("timestamp", ["9" * 5000, "9" * 19, "-1", "", " 1", "1e3", "\u0661", "0x10", "\ud800"])
def test_a_timestamp_that_is_no_number_of_milliseconds_is_a_format_error(kms: MemoryKeyManagementClient, timestamp: str) -> None:
    manager = manager_at(kms)
    encrypted = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing())
    kek = encrypted.added[0].model_copy(update={"properties": {KEY_TIMESTAMP: timestamp}})
    ring = KeyRing([kek, encrypted.added[1]])
    with pytest.raises(FormatError, match=KEY_TIMESTAMP):
        manager.decrypt_manifest_list_key_metadata(ring.chain(encrypted.key_id))
    with pytest.raises(FormatError, match=KEY_TIMESTAMP):
        manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), ring, encrypted.key_id)


def test_a_fingerprint_tells_keks_and_not_their_entries_apart(kms: MemoryKeyManagementClient) -> None:
    manager = manager_at(kms)
    encrypted = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing())
    rewrapped = manager.rewrap_kek(KeyRing(encrypted.added).chain(encrypted.key_id))
    revived = rewrapped.model_copy(update={"key_id": "another", "properties": {KEY_TIMESTAMP: "1"}})
    assert manager.fingerprint(revived) == manager.fingerprint(encrypted.added[0])
    assert manager.fingerprint(manager.new_kek()) != manager.fingerprint(revived)


def test_a_fingerprint_is_the_same_in_every_release(kms: MemoryKeyManagementClient) -> None:
    """Pins of older releases hold it: HMAC-SHA-256 under sixteen 7s, of b"tablecrypt KEK fingerprint 1", its first half."""
    manager = EncryptionManager(kms, MASTER_KEY, random=lambda length: b"7" * length, now_ms=lambda: START_MS)
    assert manager.fingerprint(manager.new_kek()) == "eb517e7f2a7df6f43849b38f8f118018"


@pytest.mark.parametrize("field", ["wrapped", "timestamp", "kek"])
def test_any_change_to_an_entry_is_refused(kms: MemoryKeyManagementClient, field: str) -> None:
    manager = manager_at(kms)
    encrypted = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing())
    kek, list_key = encrypted.added
    if field == "wrapped":
        changed = bytearray(list_key.wrapped_bytes())
        changed[20] ^= 1
        list_key = list_key.model_copy(update={"encrypted_key_metadata": base64.b64encode(changed).decode()})
    elif field == "timestamp":
        kek = kek.model_copy(update={"properties": {KEY_TIMESTAMP: str(START_MS + 1)}})
    else:
        other = manager_at(kms).encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing()).added[0]
        kek = other.model_copy(update={"key_id": kek.key_id})
    with pytest.raises(AuthenticationError, match="does not open under KEK"):
        manager.decrypt_manifest_list_key_metadata(KeyRing([kek, list_key]).chain(encrypted.key_id))


def test_a_key_that_is_not_there_is_named(kms: MemoryKeyManagementClient) -> None:
    manager = manager_at(kms)
    encrypted = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing())
    with pytest.raises(KeyNotFoundError, match="encryption-keys"):
        KeyRing().chain(encrypted.key_id)
    with pytest.raises(KeyNotFoundError, match="encryption-keys"):
        KeyRing(encrypted.added[1:]).chain(encrypted.key_id)


def test_the_encrypted_form_is_nonce_ciphertext_tag_with_the_timestamp_as_aad(kms: MemoryKeyManagementClient) -> None:
    manager = manager_at(kms)
    key_metadata = manager.new_key_metadata()
    kek, list_key = manager.encrypt_manifest_list_key_metadata(key_metadata, KeyRing()).added
    key = Secret(kms.unwrap_key(kek.wrapped_bytes(), MASTER_KEY))
    assert AesGcm(key).decrypt(list_key.wrapped_bytes(), str(START_MS).encode()) == key_metadata.encode()
    assert len(base64.b64decode(kek.key_id)) == len(base64.b64decode(list_key.key_id)) == 16


@pytest.mark.parametrize(
    "options", [{"data_key_length": 15}, {"data_key_length": 0}, {"kek_lifespan_ms": 0}, {"kek_lifespan_ms": DEFAULT_KEK_LIFESPAN_MS + 1}]
)
def test_lengths_and_lifespans_outside_the_specification_are_refused(kms: MemoryKeyManagementClient, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"encryption\."):
        manager_at(kms, **options)


def test_needed_keys_are_the_snapshots_own_and_the_keks_above_them(kms: MemoryKeyManagementClient) -> None:
    manager = manager_at(kms)
    first = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing())
    second = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing(first.added), first.key_id)
    unrelated = manager_at(kms).encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing())
    ring = KeyRing([*first.added, *second.added, *unrelated.added])
    assert ring.needed_by([second.key_id]) == {first.added[0].key_id, second.key_id}
    assert ring.needed_by(["gone", second.key_id]) == {first.added[0].key_id, second.key_id}


def test_a_wrapped_key_with_anything_but_base64_in_it_is_refused(kms: MemoryKeyManagementClient) -> None:
    """Characters that a lenient decoder skips would let two texts mean one key."""
    kek = manager_at(kms).new_kek()
    for text in (f"{kek.encrypted_key_metadata[:8]}\n{kek.encrypted_key_metadata[8:]}", f" {kek.encrypted_key_metadata}", "é"):
        with pytest.raises(FormatError, match=f"{re.escape(kek.key_id)}: encrypted-key-metadata is not base64"):
            kek.model_copy(update={"encrypted_key_metadata": text}).wrapped_bytes()


def test_chains_that_are_none_say_which_entry_is_wrong(kms: MemoryKeyManagementClient) -> None:
    manager = manager_at(kms)
    kek, list_key = manager.encrypt_manifest_list_key_metadata(manager.new_key_metadata(), KeyRing()).added
    no_kek, on_itself = (list_key.model_copy(update={"encrypted_by_id": by}) for by in (None, list_key.key_id))
    wrong = ((list_key, kek.key_id, "is a KEK"), (no_kek, list_key.key_id, "does not name"), (on_itself, list_key.key_id, "is not a KEK"))
    for entry, named, said in wrong:
        with pytest.raises(FormatError, match=f"{re.escape(named)}.*{said}"):
            KeyRing([kek, entry]).chain(named)


def test_no_key_bytes_show_in_a_manager_or_an_entry(kms: MemoryKeyManagementClient) -> None:
    manager = manager_at(kms)
    key_metadata: StandardKeyMetadata = manager.new_key_metadata()
    encrypted = manager.encrypt_manifest_list_key_metadata(key_metadata, KeyRing())
    shown = f"{manager!r} {encrypted!r} {key_metadata!r} {[key.model_dump_json() for key in encrypted.added]}"
    key = key_metadata.encryption_key.reveal()
    for form in (key.hex(), base64.b64encode(key).decode(), repr(key)[2:-1]):
        assert form not in shown


def test_an_entry_keeps_the_names_that_java_writes() -> None:
    entry = EncryptedKey(key_id="a", encrypted_key_metadata="YQ==", encrypted_by_id="b", properties={KEY_TIMESTAMP: "1"})
    assert entry.model_dump_json() == (
        '{"key-id":"a","encrypted-key-metadata":"YQ==","encrypted-by-id":"b","properties":{"KEY_TIMESTAMP":"1"}}'
    )


def test_a_kek_is_dated_in_milliseconds_since_the_epoch(kms: MemoryKeyManagementClient) -> None:
    before = time.time_ns() // 10**6
    kek = EncryptionManager(kms, MASTER_KEY).new_kek()
    assert before <= kek.created_at_ms <= time.time_ns() // 10**6


def test_a_ring_with_others_entries_says_the_same_of_columns() -> None:
    """What it says of a column's type decides whether a DEK fits."""
    fields = (NestedField(7, "ssn", StringType()),)
    ring = KeyRing([], {7: "ssn"}.get, {7: fields}.__getitem__)
    for each in (ring, ring.with_others([EncryptedKey(key_id="a", encrypted_key_metadata="")])):
        assert "ssn" in each.column(7)
        assert each.fields_of(7) == fields
