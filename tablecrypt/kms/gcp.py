"""Google Cloud KMS, through google-cloud-kms.

    wrapped key = Encrypt's ciphertext, as it is; no additional authenticated data: what Iceberg Java's client does

Requests go over the SDK's REST transport. gRPC carries the same calls but does not survive a fork, and Python programs fork.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import requests

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
from tablecrypt.kms.redaction import key_call, silence_in_key_calls
from tablecrypt.properties import GCP_KMS_ENDPOINT, GCS_OAUTH2_TOKEN

try:
    from google.api_core import exceptions as api
    from google.api_core.client_options import ClientOptions
    from google.auth import exceptions as auth
    from google.cloud.kms_v1 import KeyManagementServiceClient
    from google.oauth2.credentials import Credentials
except ModuleNotFoundError as error:
    raise MissingExtraError.named(f"encryption.kms-type 'gcp' needs the package {error.name}", "gcp") from error

_SDK: Final = "google.cloud.kms_v1.services.key_management_service"
silence_in_key_calls(f"{_SDK}.client", f"{_SDK}.transports.rest", "google.auth.transport.requests", "google.auth._helpers")
_TIMEOUT_SECONDS: Final = 10.0
_KEY_NAME: Final = re.compile(r"projects/[\w.:-]+/locations/[\w-]+/keyRings/[\w-]+/cryptoKeys/[\w-]+", re.ASCII)


class GcpKeyManagementClient(WrappingClient):
    """Wraps keys with Cloud KMS. The wrapping key id is the resource name projects/…/locations/…/keyRings/…/cryptoKeys/…, without a
    version: Cloud KMS wraps with the primary version and finds the right one to unwrap, so its rotation needs nothing here.

    Permissions, on the key (purpose ENCRYPT_DECRYPT):
        cloudkms.cryptoKeyVersions.useToDecrypt    to read     role roles/cloudkms.cryptoKeyDecrypter
        cloudkms.cryptoKeyVersions.useToEncrypt    to write    role roles/cloudkms.cryptoKeyEncrypter

    Credentials: `gcs.oauth2.token`, an access token, used as long as it is valid; else Application Default Credentials
    (GOOGLE_APPLICATION_CREDENTIALS, gcloud's login, the metadata server). `gcp.kms.endpoint` replaces https://cloudkms.googleapis.com.

    Cloud KMS generates no data keys: `generate_key` draws the key in this process and wraps it.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._endpoint = properties.get(GCP_KMS_ENDPOINT.name)
        self._token = properties.get(GCS_OAUTH2_TOKEN.name)
        self._client = PerProcess(self._connect)

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        check_key_length(len(key))
        _check_key_name(wrapping_key_id)
        with _errors("encrypt", wrapping_key_id):
            # retry=None, because tablecrypt/kms/resilient.py does the retrying and two layers would multiply.
            answer = self._client.get().encrypt(request={"name": wrapping_key_id, "plaintext": key}, retry=None, timeout=_TIMEOUT_SECONDS)
            return bytes(answer.ciphertext)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        _check_key_name(wrapping_key_id)
        with _errors("decrypt", wrapping_key_id):
            answer = self._client.get().decrypt(
                request={"name": wrapping_key_id, "ciphertext": wrapped_key}, retry=None, timeout=_TIMEOUT_SECONDS
            )
            return bytes(answer.plaintext)

    def close(self) -> None:
        client = self._client.drop()
        if client is not None:
            client.transport.close()  # type: ignore[no-untyped-call]

    def _connect(self) -> KeyManagementServiceClient:
        return KeyManagementServiceClient(
            transport="rest",
            credentials=Credentials(self._token) if self._token else None,  # type: ignore[no-untyped-call]
            client_options=ClientOptions(api_endpoint=self._endpoint) if self._endpoint else None,
        )

    def __repr__(self) -> str:
        return f"GcpKeyManagementClient(endpoint={self._endpoint!r})"


def _check_key_name(name: str) -> None:
    # Checked here because the SDK's own complaint about a name quotes the whole request, the key included.
    if not _KEY_NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is not the name of a Cloud KMS key: write projects/…/locations/…/keyRings/…/cryptoKeys/…, without a version"
        )


@contextmanager
def _errors(action: str, key_id: str) -> Iterator[None]:
    try:
        with key_call():
            yield
    except (api.GoogleAPIError, auth.GoogleAuthError, requests.RequestException) as error:
        raise _translate(error, action, key_id) from error


def _translate(error: Exception, action: str, key_id: str) -> TablecryptError:
    what = f"Cloud KMS {action} with key {key_id!r}"
    permission = f"cloudkms.cryptoKeyVersions.useTo{action.capitalize()}"
    if isinstance(error, (api.NotFound, api.MethodNotImplemented)):
        return KeyNotFoundError(f"{what}: no such key; check encryption.key-id")
    if isinstance(error, api.Forbidden):
        return KmsAccessDeniedError(f"{what} was refused: grant the caller {permission} on the key")
    if isinstance(error, (api.Unauthorized, auth.DefaultCredentialsError, auth.RefreshError)):
        return KmsCredentialsError(
            f"{what} was refused ({type(error).__name__}): no valid Google credentials; renew {GCS_OAUTH2_TOKEN.name} or log in"
        )
    if isinstance(error, api.BadRequest):
        return _from_bad_request(error, action, what)
    if isinstance(error, (api.TooManyRequests, api.ServerError, api.RetryError, auth.TransportError, requests.RequestException)):
        return KmsUnavailableError(f"{what}: the service is unavailable, throttles or was not reached ({type(error).__name__})")

    return KmsError(f"{what} failed ({type(error).__name__})")


def _from_bad_request(error: api.BadRequest, action: str, what: str) -> TablecryptError:
    """HTTP 400 has two meanings, told apart by the status in its body."""
    if _status(error) == "FAILED_PRECONDITION":
        return KmsAccessDeniedError(f"{what} was refused: the key version is disabled, destroyed or not yet ready")
    if action == "decrypt":
        return AuthenticationError(f"{what} was refused: the wrapped key was changed, or another master key wrapped it")
    return KmsError(f"{what} was refused as an invalid request: check that the key's purpose is ENCRYPT_DECRYPT")


def _status(error: api.BadRequest) -> str:
    # Errors that the SDK makes by itself have no response.
    if not isinstance(error.response, requests.Response):
        return ""
    try:
        return str(error.response.json()["error"]["status"])
    except (ValueError, KeyError, TypeError):
        return ""
