"""The policy files for Vault: what each role may do with the keys, held against an engine that grants what the file says and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tablecrypt.errors import KmsAccessDeniedError
from tablecrypt.kms.vault import VaultKeyManagementClient
from tests.kms.services.transit import Transit
from tests.support.policies import ROLES, vault_policy

OPERATIONS: Final = ("encrypt", "decrypt", "rewrap", "datakey/plaintext")
MAY: Final = {
    "reader": {("orders", "unwrap"), ("pii", "unwrap")},
    "masked-analyst": {("orders", "unwrap")},
    "writer": {(key, what) for key in ("orders", "pii") for what in ("wrap", "unwrap")},
    "operator": {(key, what) for key in ("orders", "pii") for what in ("wrap", "unwrap", "rewrap")},
    "auditor": {("orders", "unwrap")},
}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_its_file_grants_and_no_more(transit: Transit, role: str) -> None:
    client = VaultKeyManagementClient({"vault.url": transit.url, "vault.token": "root-token"})
    for key in ("orders", "pii", "others"):
        transit.rotate(key)
    wrapped = {key: client.wrap_key(bytes(16), key) for key in ("orders", "pii", "others")}
    granted = vault_policy(role)
    transit.forbidden = {(key, each) for key in wrapped for each in OPERATIONS if f"transit/{each}/{key}" not in granted}

    for key, blob in wrapped.items():
        for what, call in (
            ("wrap", lambda key=key: client.wrap_key(bytes(16), key)),
            ("unwrap", lambda key=key, blob=blob: client.unwrap_key(blob, key)),
            ("rewrap", lambda key=key, blob=blob: client.rewrap_key(blob, key, key)),
        ):
            assert is_allowed(call) == ((key, what) in MAY[role]), (key, what)
    transit.forbidden = set()
    client.close()


def is_allowed(call: Callable[[], object]) -> bool:
    try:
        call()
    except KmsAccessDeniedError:
        return False
    return True
