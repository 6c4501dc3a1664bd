"""What an error of boto3 means to the caller.

Each message names the action, the key id, AWS's error code and what to do. The service's own words stay in the chained exception; no
request or answer is quoted, so neither a key nor a blob can be.
"""

from __future__ import annotations

from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as NotConnectedError

from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsError,
    KmsUnavailableError,
    TablecryptError,
)

_BLOB_REFUSED: Final = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})
_DENIED: Final = {
    "AccessDeniedException": "allow {action} on this key to the caller, in IAM or in the key's policy",
    "AccessDenied": "allow {action} to the caller",
    "KMSAccessDeniedException": "allow {action} on this key to the caller, in IAM or in the key's policy",
    "DisabledException": "the key is disabled: enable it",
    "KMSInvalidStateException": "the key's state forbids it (pending deletion or import): cancel the deletion or import its material",
    "UnrecognizedClientException": "the credentials are not valid here: check them and the region",
    "InvalidClientTokenId": "the credentials are not valid here: check them and the region",
    "InvalidSignatureException": "the signature does not match: check the secret access key and this machine's clock",
    "SignatureDoesNotMatch": "the signature does not match: check the secret access key and this machine's clock",
    "ExpiredTokenException": "the temporary credentials have expired: get new ones",
    "ExpiredToken": "the temporary credentials have expired: get new ones",
    "MissingAuthenticationTokenException": "the request carried no credentials: give some",
    "IncompleteSignature": "the credentials are incomplete: give both the access key id and the secret",
    "OptInRequired": "the account is not subscribed to KMS in this region",
}
_UNAVAILABLE: Final = frozenset(
    {
        "ThrottlingException",
        "Throttling",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "LimitExceededException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "InternalFailure",
        "InternalError",
        "KMSInternalException",
        "KeyUnavailableException",
        "DependencyTimeoutException",
    }
)
_NO_CREDENTIALS: Final = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, TokenRetrievalError)
_NOT_CONFIGURED: Final = (NoRegionError, ProfileNotFound)


def translate(error: BotoCoreError | ClientError, action: str, key_id: str) -> TablecryptError:
    """The error to raise for `error`, which `action` ("kms:Decrypt") on master key `key_id` met."""
    if isinstance(error, ClientError):
        return _from_answer(error, action, key_id)
    what = f"AWS {action} with key {key_id!r}"
    if isinstance(error, _NO_CREDENTIALS):
        return KmsAccessDeniedError(f"{what}: no usable AWS credentials were found ({type(error).__name__})")
    if isinstance(error, _NOT_CONFIGURED):
        return ConfigurationError(f"{what}: {error}; set client.region or client.profile-name")
    if isinstance(error, (HTTPClientError, NotConnectedError)):
        return KmsUnavailableError(f"{what}: the endpoint was not reached ({type(error).__name__}); check kms.endpoint and the network")
    return KmsError(f"{what} failed before it was sent: {type(error).__name__}")


def _from_answer(error: ClientError, action: str, key_id: str) -> TablecryptError:
    code = str(error.response.get("Error", {}).get("Code", "unknown"))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if error.operation_name == "AssumeRole":
        action = "sts:AssumeRole"
    what = f"AWS {action} with key {key_id!r} was refused ({code})"
    if code in _BLOB_REFUSED:
        return AuthenticationError(f"{what}: the wrapped key was changed, or another master key wrapped it")
    if code == "NotFoundException":
        return KeyNotFoundError(f"{what}: no such key or alias in this account and region; check encryption.key-id and client.region")
    if code in _DENIED:
        return KmsAccessDeniedError(f"{what}: {_DENIED[code].format(action=action)}")
    if status in (401, 403):
        # A proxy or a VPC endpoint on the way may refuse without one of KMS's own codes.
        return KmsAccessDeniedError(f"{what}: allow {action} to the caller")
    if code in _UNAVAILABLE or status in (429, 500, 502, 503, 504):
        return KmsUnavailableError(f"AWS {action} with key {key_id!r}: the service is unavailable or throttles ({code})")
    return KmsError(what)
