"""The transit engine of HashiCorp Vault and OpenBao, through hvac.

    wrapped key = transit's ciphertext as ASCII: "vault:v<key version>:<base64>"; no associated data

Iceberg Java has no client for Vault. The blob names the key version, so a key that Vault rotated still unwraps what it wrapped.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import requests

from tablecrypt._per_process import PerProcess
from tablecrypt.bounded_answers import OF_KEY_SERVICES, bound_answers
from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    FormatError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsCredentialsError,
    KmsError,
    KmsUnavailableError,
    MissingExtraError,
    TablecryptError,
)
from tablecrypt.kms.client import GeneratedKey, check_key_length, generate_by_wrapping, rewrap_by_unwrapping
from tablecrypt.properties import (
    VAULT_CA_CERT,
    VAULT_NAMESPACE,
    VAULT_ROLE_ID,
    VAULT_SECRET_ID,
    VAULT_TOKEN,
    VAULT_TRANSIT_MOUNT,
    VAULT_URL,
    check_header_value,
)

try:
    import hvac
    import hvac.exceptions
except ModuleNotFoundError as error:
    raise MissingExtraError.named(f"encryption.kms-type 'vault' needs the package {error.name}", "vault") from error

# One path segment and nothing that climbs: a key id from metadata must not reach another path of Vault.
_KEY_NAME: Final = re.compile(r"(?!\.)[0-9A-Za-z._-]{1,255}")
_BLOB: Final = re.compile(rb"vault:v[1-9][0-9]{0,9}:[0-9A-Za-z+/]+={0,2}")
_GENERATED_BITS: Final = {16: 128, 32: 256}
_UNAVAILABLE: Final = (
    requests.RequestException,
    hvac.exceptions.RateLimitExceeded,
    hvac.exceptions.InternalServerError,
    hvac.exceptions.BadGateway,
    hvac.exceptions.VaultDown,
)
_LOGIN_REFUSED: Final = (
    hvac.exceptions.Forbidden,
    hvac.exceptions.InvalidPath,
    hvac.exceptions.InvalidRequest,
    hvac.exceptions.Unauthorized,
)


class VaultKeyManagementClient:
    """Wraps keys with a key of the transit engine. The wrapping key id is the key's name; its type is aes256-gcm96 or another AEAD.

    Policy, for a key named orders:
        path "transit/decrypt/orders"             { capabilities = ["update"] }    to read
        path "transit/encrypt/orders"             { capabilities = ["update"] }    to write
        path "transit/datakey/plaintext/orders"   { capabilities = ["update"] }    to generate a key in Vault (`generate_key`)
        path "transit/rewrap/orders"              { capabilities = ["update"] }    to rewrap under the newest version (`rewrap_key`)
        path "auth/token/lookup-self"             { capabilities = ["read"] }      Vault's policy default has it: tells an expired token
    Leave "create" out of the second: with it, Vault answers a misspelt key id by making a key of that name.

    Credentials, first found: `vault.token`; AppRole with `vault.role-id` and `vault.secret-id`, logged in again when Vault no longer
    takes the token; VAULT_TOKEN; ~/.vault-token. The server is `vault.url` or VAULT_ADDR; see tablecrypt/properties.py for the rest.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._url = properties.get(VAULT_URL.name)
        self._mount = VAULT_TRANSIT_MOUNT.read(properties)
        self._token = properties.get(VAULT_TOKEN.name)
        self._namespace = properties.get(VAULT_NAMESPACE.name)
        self._ca_cert = properties.get(VAULT_CA_CERT.name)
        self._role = _app_role(properties)
        self._client = PerProcess(self._connect)

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        check_key_length(len(key))
        data = self._ask("encrypt", wrapping_key_id, plaintext=base64.b64encode(key).decode())
        return _text(data, "ciphertext").encode()

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        data = self._ask("decrypt", wrapping_key_id, ciphertext=_ciphertext(wrapped_key))
        return _decode(_text(data, "plaintext"))

    def rewrap_key(self, wrapped_key: bytes, wrapping_key_id: str, from_key_id: str) -> bytes:
        # transit/rewrap moves a blob to a newer version of one key and never to another key.
        if from_key_id != wrapping_key_id:
            return rewrap_by_unwrapping(self, wrapped_key, wrapping_key_id, from_key_id)
        return _text(self._ask("rewrap", wrapping_key_id, ciphertext=_ciphertext(wrapped_key)), "ciphertext").encode()

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        check_key_length(length)
        bits = _GENERATED_BITS.get(length)
        if bits is None:
            return generate_by_wrapping(self, wrapping_key_id, length)
        data = self._ask("datakey/plaintext", wrapping_key_id, bits=bits)
        return GeneratedKey(key=_decode(_text(data, "plaintext")), wrapped_key=_text(data, "ciphertext").encode())

    def close(self) -> None:
        client = self._client.drop()
        if client is not None:
            client.adapter.close()

    def _ask(self, action: str, key_id: str, **request: str | int) -> Mapping[str, Any]:
        # The id comes from table metadata and becomes part of a path: "../" would reach other engines with the caller's token.
        if not _KEY_NAME.fullmatch(key_id):
            raise ConfigurationError(
                f"{key_id!r} is not the name of a transit key: letters, digits, '.', '_' and '-', not beginning with '.'"
            )

        try:
            return self._post(f"/v1/{self._mount}/{action}/{key_id}", request)
        except hvac.exceptions.Forbidden as error:
            raise self._refusal(error, action, key_id) from error
        except (hvac.exceptions.VaultError, requests.RequestException) as error:
            raise _translate(error, action, key_id, self._mount) from error

    def _refusal(self, refused: hvac.exceptions.Forbidden, action: str, key_id: str) -> TablecryptError:
        """Return what a status 403 means.

        OpenBao and older versions of Vault say no more than "permission denied" of a token that has expired. Taken for a missing
        permission, it would show masks in the place of values.
        """
        known = _translate(refused, action, key_id, self._mount)
        if not isinstance(known, KmsAccessDeniedError):
            return known

        try:
            self._client.get().auth.token.lookup_self()
        except hvac.exceptions.Forbidden:
            return KmsCredentialsError(
                f"Vault {self._mount}/{action} with key {key_id!r} was refused, and so was auth/token/lookup-self: the token is not valid "
                f"or has expired: renew {VAULT_TOKEN.name} or log in; a valid one needs read on auth/token/lookup-self, as by Vault's "
                "policy default"
            )
        # Whether the token is valid is not known then: the call is to be tried again, and counts as no refusal.
        except _UNAVAILABLE as error:
            return _translate(error, action, key_id, self._mount)
        except hvac.exceptions.VaultError:
            return known

        return known

    def _post(self, path: str, request: Mapping[str, str | int]) -> Mapping[str, Any]:
        try:
            answer = self._client.get().adapter.post(url=path, json=request)
        except hvac.exceptions.Forbidden:
            if self._role is None:
                raise
            # The token of the login may have expired: a new login tells that from a missing permission.
            self.close()
            answer = self._client.get().adapter.post(url=path, json=request)

        data = answer.get("data") if isinstance(answer, Mapping) else None
        return data if isinstance(data, Mapping) else {}

    def _connect(self) -> Any:
        # Not the SDK's own timeout, which counts anew with each byte.
        client = hvac.Client(url=self._url, token=self._token, namespace=self._namespace, verify=self._ca_cert or None, timeout=None)
        bound_answers(client.session, OF_KEY_SERVICES)
        if client.token is not None:
            # From VAULT_TOKEN or a file, perhaps with the end of its line: an error of the HTTP library would show it.
            check_header_value("the token of Vault", client.token)
        # A token that the configuration gives stands before the login.
        if self._role is not None and self._token is None:
            role_id, secret_id = self._role
            try:
                client.auth.approle.login(role_id=role_id, secret_id=secret_id)
            except _LOGIN_REFUSED as error:
                # Not as an answer of the transit engine: its status 400 says that the wrapped key was changed.
                raise KmsCredentialsError(
                    f"Vault refused the login with {VAULT_ROLE_ID.name} ({type(error).__name__}): check it, and {VAULT_SECRET_ID.name}, "
                    "which may have expired"
                ) from error
        return client

    def __repr__(self) -> str:
        return f"VaultKeyManagementClient(url={self._url!r}, mount={self._mount!r})"


def _app_role(properties: Mapping[str, str]) -> tuple[str, str] | None:
    role_id, secret_id = properties.get(VAULT_ROLE_ID.name), properties.get(VAULT_SECRET_ID.name)
    if (role_id is None) != (secret_id is None):
        raise ConfigurationError(f"{VAULT_ROLE_ID.name} and {VAULT_SECRET_ID.name} go together: one of them is missing")
    return (role_id, cast("str", secret_id)) if role_id is not None else None


def _ciphertext(wrapped_key: bytes) -> str:
    # The blob comes from table metadata: only Vault's own form goes into the request.
    if not _BLOB.fullmatch(wrapped_key):
        raise FormatError("a wrapped key that is not of Vault's form vault:v<version>:<base64>")
    return wrapped_key.decode()


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise KmsError(f"Vault answered without {name}")
    return value


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        # Not chained: what was decoded is a key.
        raise KmsError("Vault answered with a plaintext that is not base64") from None


def _translate(error: Exception, action: str, key_id: str, mount: str) -> TablecryptError:
    what = f"Vault {mount}/{action} with key {key_id!r}"
    if isinstance(error, _UNAVAILABLE):
        return KmsUnavailableError(f"{what}: Vault is sealed, throttles or was not reached ({type(error).__name__}); check vault.url")
    # Not all servers say it: see `_refusal`.
    if isinstance(error, hvac.exceptions.Unauthorized) or (isinstance(error, hvac.exceptions.Forbidden) and "invalid token" in str(error)):
        return KmsCredentialsError(f"{what} was refused: the token is not valid, or has expired: renew {VAULT_TOKEN.name} or log in")
    if isinstance(error, hvac.exceptions.Forbidden):
        return KmsAccessDeniedError(f"{what} was refused: the token's policy lacks update on {mount}/{action}/{key_id}")
    if isinstance(error, hvac.exceptions.InvalidPath):
        return ConfigurationError(
            f"{what}: no transit engine is mounted there; check {VAULT_TRANSIT_MOUNT.name} and {VAULT_NAMESPACE.name}"
        )
    if not isinstance(error, hvac.exceptions.InvalidRequest):
        return KmsError(f"{what} failed ({type(error).__name__})")
    # Vault has one status for both, so its words decide: a missing key is not tampering.
    if "key not found" in str(error):
        return KeyNotFoundError(f"{what}: no such key; check encryption.key-id")
    if action in ("decrypt", "rewrap"):
        return AuthenticationError(f"{what} was refused: the wrapped key was changed, or another master key wrapped it")

    return KmsError(f"{what} was refused as an invalid request")
