"""What a process keeps of the keys that it made and cannot open again, and what it takes for a wrapped key."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import KmsError
from tablecrypt.keys.key_ring import COLUMN_KEY, WRITE_ONLY, EncryptedKey
from tablecrypt.keys.write_only_keys import KEPT_KEYS, OwnKeys
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.kms.new_blobs import wrap_unopened


class AnsweringClient(MemoryKeyManagementClient):
    """A key service that wraps as it is told."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        super().__init__({"kms.memory.name": "write only"}, {"pii": bytes(32)})
        self._answer = answer

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        return self._answer(key)


def entry(key_id: str, blob: str = "AAAA", **properties: str) -> EncryptedKey:
    return EncryptedKey(key_id=key_id, encrypted_key_metadata=blob, encrypted_by_id="kek", properties={COLUMN_KEY: "2", **properties})


def test_a_key_is_found_by_the_very_entry_that_holds_it_and_by_no_other() -> None:
    own, secret = OwnKeys(), Secret(bytes(16))
    made = entry("a", **{WRITE_ONLY: "1"})
    own.keep(made, secret)
    assert own.key(made) is secret
    found = own.among([entry("b", **{WRITE_ONLY: "1"}), made])
    assert found is not None
    assert found[0] is made
    assert found[1] is secret
    for other in (entry("a"), entry("a", "BBBB", **{WRITE_ONLY: "1"}), entry("b", **{WRITE_ONLY: "1"})):
        assert own.key(other) is None


def test_a_process_keeps_no_more_keys_than_it_says_and_drops_those_that_it_used_longest_ago() -> None:
    own = OwnKeys()
    made = [entry(str(number), **{WRITE_ONLY: "1"}) for number in range(KEPT_KEYS + 1)]
    for each in made[:KEPT_KEYS]:
        own.keep(each, Secret(bytes(16)))
    own.key(made[0])
    own.keep(made[KEPT_KEYS], Secret(bytes(16)))
    assert len(own) == KEPT_KEYS
    assert own.key(made[0]) is not None
    assert own.key(made[1]) is None


@pytest.mark.parametrize("wrap", [lambda key: key, lambda key: b"", lambda key: b"header" + key + b"tag", lambda key: bytes(8)])
def test_an_answer_that_is_no_wrapped_key_is_refused(wrap: Callable[[bytes], bytes]) -> None:
    client = MemoryKeyManagementClient({"kms.memory.name": "write only"}, {"pii": bytes(32)})
    key = Secret(secrets.token_bytes(16))
    assert len(wrap_unopened(client, key, "pii")) > 16
    with pytest.raises(KmsError, match="in the clear, or too short") as refused:
        wrap_unopened(AnsweringClient(wrap), key, "pii")
    assert key.reveal().hex() not in str(refused.value)
