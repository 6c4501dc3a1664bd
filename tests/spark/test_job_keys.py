"""Messages between driver and executors: they open in their place and nowhere else, and show no key."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.crypto.secret import Secret
from tablecrypt.engines.job_keys import JOB_KEY_LENGTH, JobKey, JobTicket, Role, issue_job
from tablecrypt.errors import AuthenticationError, ConfigurationError
from tablecrypt.kms.factory import shared_kms
from tablecrypt.kms.memory import MemoryKeyManagementClient

KMS = {"encryption.kms-type": "memory", "kms.memory.name": "encrypted-tasks"}
JOB_ID = bytes(range(16))
KEY = Secret(bytes(range(100, 132)))


@pytest.fixture
def key_id() -> str:
    return MemoryKeyManagementClient(KMS).create_key("master", bytes(32))


@given(plaintext=st.binary(max_size=300), role=st.sampled_from(Role), number=st.integers(0, 2**64 - 1))
def test_a_message_opens_in_its_place(plaintext: bytes, role: Role, number: int) -> None:
    key = JobKey(JOB_ID, KEY)

    assert key.decrypt(role, number, key.encrypt(role, number, plaintext)) == plaintext


def test_the_layout_is_nonce_ciphertext_tag_under_job_role_and_number() -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    encrypted = JobKey(JOB_ID, KEY, random=bytes).encrypt(Role.TASK, 258, b"task")

    aad = JOB_ID + b"\x02" + b"\x02\x01\x00\x00\x00\x00\x00\x00"
    assert encrypted == bytes(12) + AESGCM(KEY.reveal()).encrypt(bytes(12), b"task", aad)


@given(data=st.data())
def test_a_changed_bit_is_refused(data: st.DataObject) -> None:
    key = JobKey(JOB_ID, KEY)
    encrypted = bytearray(key.encrypt(Role.TASK, 3, b"a data file and its key"))
    position = data.draw(st.integers(0, len(encrypted) - 1))
    encrypted[position] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(AuthenticationError, match="TASK message of task 3 does not authenticate"):
        key.decrypt(Role.TASK, 3, bytes(encrypted))


@given(length=st.integers(0, 50))
def test_a_cut_message_is_refused(length: int) -> None:
    key = JobKey(JOB_ID, KEY)
    encrypted = key.encrypt(Role.TASK, 3, b"a data file and its key")

    with pytest.raises(AuthenticationError):
        key.decrypt(Role.TASK, 3, encrypted[:length])


def test_swapped_tasks_are_refused() -> None:
    key = JobKey(JOB_ID, KEY)
    first, second = key.encrypt(Role.TASK, 0, b"first"), key.encrypt(Role.TASK, 1, b"second")

    for number, encrypted in ((0, second), (1, first)):
        with pytest.raises(AuthenticationError):
            key.decrypt(Role.TASK, number, encrypted)


@pytest.mark.parametrize("role", [Role.SHARED, Role.TASK])
def test_a_message_does_not_pass_in_another_direction(role: Role) -> None:
    key = JobKey(JOB_ID, KEY)

    with pytest.raises(AuthenticationError):
        key.decrypt(Role.RESULT, 0, key.encrypt(role, 0, b"from the driver"))


def test_a_message_of_another_job_is_refused_even_under_the_same_key() -> None:
    encrypted = JobKey(bytes(16), KEY).encrypt(Role.TASK, 0, b"task")

    with pytest.raises(AuthenticationError):
        JobKey(JOB_ID, KEY).decrypt(Role.TASK, 0, encrypted)


@pytest.mark.parametrize("number", [-1, 2**64])
def test_a_number_without_a_place_in_the_aad_is_refused(number: int) -> None:
    with pytest.raises(ConfigurationError):
        JobKey(JOB_ID, KEY).encrypt(Role.TASK, number, b"")


def test_a_ticket_gives_the_job_key_to_whoever_may_use_the_master_key(key_id: str) -> None:
    ticket, key = issue_job(shared_kms(KMS), key_id, KMS)

    redeemed = pickle.loads(pickle.dumps(ticket)).redeem()

    assert redeemed.decrypt(Role.TASK, 7, key.encrypt(Role.TASK, 7, b"task")) == b"task"


def test_a_job_costs_one_wrap_and_a_process_one_unwrap(key_id: str) -> None:
    kms = shared_kms(KMS)
    kms.close()
    ticket, _ = issue_job(kms, key_id, KMS)
    assert kms.calls == {"wrap_key": 1}

    kms.close()
    for _ in range(10):
        ticket.redeem()
    assert kms.calls == {"unwrap_key": 1}


def test_a_ticket_holds_and_shows_no_key(key_id: str) -> None:
    keys: list[bytes] = []

    def random(length: int) -> bytes:
        keys.append(bytes(range(200, 200 + length)))
        return keys[-1]

    ticket, key = issue_job(shared_kms(KMS), key_id, KMS | {"kms.note": "not-to-be-shown"}, random)

    job_key = next(each for each in keys if len(each) == JOB_KEY_LENGTH)
    assert job_key not in pickle.dumps(ticket)
    assert "not-to-be-shown" not in repr(ticket)
    assert job_key.hex() not in repr(ticket) + repr(key)


def test_a_job_key_is_never_pickled() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(JobKey(JOB_ID, KEY))


def test_a_ticket_with_another_wrapped_key_opens_nothing(key_id: str) -> None:
    _, key = issue_job(shared_kms(KMS), key_id, KMS)
    other, _ = issue_job(shared_kms(KMS), key_id, KMS)
    encrypted = key.encrypt(Role.TASK, 0, b"task")

    with pytest.raises(AuthenticationError):
        JobTicket(JOB_ID, key_id, other.wrapped_key, KMS).redeem().decrypt(Role.TASK, 0, encrypted)
