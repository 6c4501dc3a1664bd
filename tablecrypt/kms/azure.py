"""Azure Key Vault and Managed HSM, through azure-keyvault-keys.

    wrapped key = wrapKey's result, as it is: RSA-OAEP-256 of the key, or AES-KW (RFC 3394) with a key of a Managed HSM

The algorithm is `azure.keyvault.key-wrap-algorithm`, and the blob does not tell which key version wrapped it: what Iceberg Java's client
does. RSA-OAEP does not authenticate who wrapped: anyone who has the public key can make a blob that unwraps. A table's KEK is protected
against that by what it unwraps: key metadata that was not encrypted under the true KEK does not authenticate.

Requests go through KeyClient.send_request, not the SDK's CryptographyClient: that one wraps in this process with the key material it
was given, and for a key of a Managed HSM, whose material is never given, with a random key that cannot be unwrapped again.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tablecrypt._per_process import PerProcess
from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsCredentialsError,
    KmsError,
    KmsUnavailableError,
    MissingExtraError,
    TablecryptError,
)
from tablecrypt.kms.client import WrappingClient, check_key_length
from tablecrypt.properties import ADLS_CLIENT_ID, ADLS_CLIENT_SECRET, ADLS_TENANT_ID, AZURE_KEY_WRAP_ALGORITHM, AZURE_KEYVAULT_URL

try:
    from azure.core import exceptions as azure
    from azure.core.credentials import TokenCredential
    from azure.core.rest import HttpRequest
    from azure.identity import ClientSecretCredential, DefaultAzureCredential
    from azure.keyvault.keys import KeyClient
except ModuleNotFoundError as error:
    raise MissingExtraError.named(f"encryption.kms-type 'azure' needs the package {error.name}", "azure") from error

# A name, or a name and a version: never a URL, so that metadata cannot send a caller's token to another host.
_KEY_ID: Final = re.compile(r"(?P<name>[0-9A-Za-z-]{1,127})(/(?P<version>[0-9a-f]{32}))?")


class AzureKeyManagementClient(WrappingClient):
    """Wraps keys with a key of the vault `azure.keyvault.url`. The wrapping key id is the key's name ("orders"), or name/version.

    A name alone means the key's current version. After a rotation in the vault the old version is no longer asked, so older KEKs
    stop unwrapping: leave automatic rotation off, or name the version in encryption.key-id.

    Permissions (role "Key Vault Crypto User", or an access policy):
        keys/unwrapKey    to read
        keys/wrapKey      to write

    Credentials: `adls.tenant-id`, `adls.client-id` and `adls.client-secret` (PyIceberg's names) for a service principal; else
    DefaultAzureCredential (environment, workload and managed identity, Azure CLI). A caller may pass any TokenCredential.

    Key Vault generates no data keys: `generate_key` draws the key in this process and wraps it.
    """

    def __init__(self, properties: Mapping[str, str], credential: TokenCredential | None = None) -> None:
        self._url = properties.get(AZURE_KEYVAULT_URL.name, "")
        # Keys and the caller's token cross the network in each request.
        if not self._url.startswith("https://"):
            raise ConfigurationError(f"set {AZURE_KEYVAULT_URL.name} to the vault's URL, https://<name>.vault.azure.net")

        algorithm = AZURE_KEY_WRAP_ALGORITHM.chosen(properties)
        self._algorithm = algorithm
        self._principal = _service_principal(properties)
        self._credential = credential
        self._client = PerProcess(self._connect)

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        check_key_length(len(key))
        return self._ask("wrapKey", wrapping_key_id, key)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        return self._ask("unwrapKey", wrapping_key_id, wrapped_key)

    def close(self) -> None:
        client = self._client.drop()
        if client is not None:
            client.close()

    def _ask(self, action: str, key_id: str, value: bytes) -> bytes:
        match = _KEY_ID.fullmatch(key_id)
        # Key Vault's own ids are URLs: taken from metadata, one would send the caller's token to its host.
        if match is None:
            raise ConfigurationError(f"{key_id!r} is not the name of a Key Vault key: write its name, or name/version")

        # An empty version is the current one.
        path = f"/keys/{match['name']}/{match['version'] or ''}/{action.lower()}"
        request = HttpRequest("POST", path, json={"alg": self._algorithm, "value": _encode(value)})
        with _errors(action, key_id):
            response = self._client.get().send_request(request)
            response.raise_for_status()
            return _decode(response.json()["value"])

    def _connect(self) -> KeyClient:
        # No retries of the SDK's own: tablecrypt/kms/resilient.py does the retrying, and two layers would multiply.
        return KeyClient(self._url, self._credential or self._own_credential(), retry_total=0, connection_timeout=5, read_timeout=10)

    def _own_credential(self) -> TokenCredential:
        if self._principal is None:
            return DefaultAzureCredential()
        return ClientSecretCredential(*self._principal)

    def __repr__(self) -> str:
        return f"AzureKeyManagementClient(url={self._url!r}, algorithm={self._algorithm!r})"


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _service_principal(properties: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Tenant, client id and secret when all three are there, None when none is needed."""
    tenant, client_id, secret = (properties.get(each.name) for each in (ADLS_TENANT_ID, ADLS_CLIENT_ID, ADLS_CLIENT_SECRET))
    if tenant and client_id and secret:
        return tenant, client_id, secret
    if secret:
        raise ConfigurationError(f"{ADLS_CLIENT_SECRET.name} needs {ADLS_TENANT_ID.name} and {ADLS_CLIENT_ID.name}")
    return None


@contextmanager
def _errors(action: str, key_id: str) -> Iterator[None]:
    try:
        yield
    except (azure.AzureError, ValueError, KeyError, TypeError) as error:
        raise _translate(error, action, key_id) from error


def _translate(error: azure.AzureError | ValueError | KeyError | TypeError, action: str, key_id: str) -> TablecryptError:
    what = f"Key Vault {action} with key {key_id!r}"
    if isinstance(error, (ValueError, KeyError, TypeError)):
        # ValueError is also what the SDK raises for a server that is not the vault it says it is.
        return KmsError(f"{what}: the answer does not come from a key vault ({type(error).__name__}); check {AZURE_KEYVAULT_URL.name}")
    if isinstance(error, (azure.ServiceRequestError, azure.ServiceResponseError)):
        return KmsUnavailableError(
            f"{what}: the vault was not reached ({type(error).__name__}); check {AZURE_KEYVAULT_URL.name} and the network"
        )

    status = error.status_code if isinstance(error, azure.HttpResponseError) else None
    # Before the other codes: the SDK raises this one without a status when it finds no credential.
    if isinstance(error, azure.ClientAuthenticationError) or status == 401:
        return KmsCredentialsError(f"{what} was refused: no valid Azure credentials were found ({type(error).__name__})")
    if status == 403:
        return KmsAccessDeniedError(f"{what} was refused: grant the caller keys/{action} on the key, and check that the key is enabled")
    if status == 404:
        return KeyNotFoundError(f"{what}: no such key or version in this vault; check encryption.key-id and {AZURE_KEYVAULT_URL.name}")
    if status == 400 and action == "unwrapKey":
        return AuthenticationError(f"{what} was refused: the wrapped key was changed, or another master key or version wrapped it")
    if status is not None and (status in (408, 429) or status >= 500):
        return KmsUnavailableError(f"{what}: the vault is unavailable or throttles (HTTP {status})")

    return KmsError(f"{what} failed (HTTP {status}, {type(error).__name__})")
