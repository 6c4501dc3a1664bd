"""Our client of Vault against Vault itself: the contract of every key service's client, and the policy files of docs/how-to/policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tablecrypt.kms.vault import VaultKeyManagementClient
from tests.kms.test_vault_policies import MAY, is_allowed
from tests.support.named_keys import NamedKeys
from tests.support.policies import ROLES, vault_policy_text

if TYPE_CHECKING:
    from tablecrypt.kms.client import KeyManagementClient
    from tests.services.vault import Vault

pytestmark = pytest.mark.services


class TestVault(NamedKeys):
    @pytest.fixture
    def client(self, vault: Vault) -> Iterator[KeyManagementClient]:
        # With `create` beside it, Vault would make a key for an id that it does not know.
        token = vault.token_for("contract", 'path "transit/*" { capabilities = ["update"] }')
        client = VaultKeyManagementClient(vault.properties(token))
        yield client
        client.close()


@pytest.mark.parametrize("capabilities", ["update", "create", "create and update"])
def test_vault_makes_a_key_for_an_unknown_id_where_a_token_may_create_one(vault: Vault, capabilities: str) -> None:
    listed = ", ".join(f'"{each}"' for each in capabilities.split(" and "))
    name = f"mistyped-{capabilities.replace(' ', '-')}"
    client = VaultKeyManagementClient(vault.properties(vault.token_for(name, f'path "transit/*" {{ capabilities = [{listed}] }}')))
    assert is_allowed(lambda: client.wrap_key(bytes(16), name)) == ("create" in capabilities)
    client.close()


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_its_file_grants_and_no_more(vault: Vault, role: str) -> None:
    everything = VaultKeyManagementClient(vault.properties())
    wrapped = {key: everything.wrap_key(bytes(16), key) for key in ("orders", "pii", "others")}
    client = VaultKeyManagementClient(vault.properties(vault.token_for(role, vault_policy_text(role))))
    for key, blob in wrapped.items():
        for what, call in (
            ("wrap", lambda key=key: client.wrap_key(bytes(16), key)),
            ("unwrap", lambda key=key, blob=blob: client.unwrap_key(blob, key)),
            ("rewrap", lambda key=key, blob=blob: client.rewrap_key(blob, key, key)),
        ):
            assert is_allowed(call) == ((key, what) in MAY[role]), (key, what)
    client.close()
    everything.close()
