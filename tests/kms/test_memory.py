"""The in-memory service: keys are made where asked for, and nowhere else."""

from __future__ import annotations

import pytest

from tablecrypt.errors import ConfigurationError, KeyNotFoundError
from tablecrypt.kms.memory import MemoryKeyManagementClient


def test_a_key_is_never_invented() -> None:
    client = MemoryKeyManagementClient({"kms.memory.name": "never-invented"})
    with pytest.raises(KeyNotFoundError, match="create_key"):
        client.wrap_key(bytes(16), "orders")


def test_keyrings_of_different_names_hold_different_keys() -> None:
    wrapped = MemoryKeyManagementClient({"kms.memory.name": "left"}, {"orders": bytes(16)}).wrap_key(bytes(16), "orders")
    with pytest.raises(KeyNotFoundError):
        MemoryKeyManagementClient({"kms.memory.name": "right"}).unwrap_key(wrapped, "orders")


def test_the_same_key_may_be_given_again_and_another_may_not() -> None:
    properties = {"kms.memory.name": "given-again"}
    MemoryKeyManagementClient(properties, {"orders": bytes(16)})
    MemoryKeyManagementClient(properties, {"orders": bytes(16)})
    with pytest.raises(ConfigurationError, match="another key"):
        MemoryKeyManagementClient(properties, {"orders": bytes(32)})


def test_a_made_key_is_not_replaced_by_making_it_again() -> None:
    client = MemoryKeyManagementClient({"kms.memory.name": "made-again"})
    wrapped = client.wrap_key(bytes(16), client.create_key("orders"))
    with pytest.raises(ConfigurationError):
        client.create_key("orders")
    assert client.unwrap_key(wrapped, "orders") == bytes(16)


def test_a_master_key_is_an_aes_key() -> None:
    with pytest.raises(ConfigurationError):
        MemoryKeyManagementClient({"kms.memory.name": "lengths"}).create_key("orders", bytes(5))
