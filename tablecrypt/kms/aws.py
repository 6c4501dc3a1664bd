"""AWS KMS, through boto3.

    wrapped key = Encrypt's (or GenerateDataKey's) CiphertextBlob, as it is; its inside is AWS's own affair
    algorithm SYMMETRIC_DEFAULT, no EncryptionContext: what Iceberg Java does, so either side unwraps the other's keys

Decrypt names the wrapping key, so that a blob of another key of the account is refused rather than opened. Every answer says which key was
used; one that says another than was asked for is refused.

The session is the one that the properties describe: static credentials, a profile, boto3's own chain, and over any of them a role.
Both spellings of a role are read, Java's `client.assume-role.*` and PyIceberg's `client.role-*`; two different values are a
ConfigurationError. Reading the properties sends nothing: the role is assumed when the first request needs its credentials.

Errors of boto3 are named for what they mean to the caller. Each message names the action, the key id, AWS's error code and what to do. The
service's own words stay in the chained exception; no request or answer is quoted, so neither a key nor a blob can be.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

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
from tablecrypt.kms.client import GeneratedKey, check_key_length, generate_by_wrapping
from tablecrypt.kms.redaction import key_call, silence_in_key_calls
from tablecrypt.properties import (
    CLIENT_ACCESS_KEY_ID,
    CLIENT_ASSUME_ROLE_ARN,
    CLIENT_ASSUME_ROLE_EXTERNAL_ID,
    CLIENT_ASSUME_ROLE_REGION,
    CLIENT_ASSUME_ROLE_SESSION_NAME,
    CLIENT_ASSUME_ROLE_TAGS,
    CLIENT_ASSUME_ROLE_TIMEOUT_SEC,
    CLIENT_PROFILE_NAME,
    CLIENT_REGION,
    CLIENT_ROLE_ARN,
    CLIENT_ROLE_SESSION_NAME,
    CLIENT_SECRET_ACCESS_KEY,
    CLIENT_SESSION_TOKEN,
    KMS_ALGORITHM_SPEC,
    KMS_DATA_KEY_SPEC,
    KMS_ENDPOINT,
    STS_ENDPOINT,
)
from tablecrypt.setting_kinds import Property

try:
    import boto3
    import botocore.session
    from botocore.config import Config
    from botocore.credentials import CredentialProvider, CredentialResolver, DeferredRefreshableCredentials
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
    from botocore.loaders import JSONFileLoader
except ModuleNotFoundError as error:
    raise MissingExtraError.named(f"encryption.kms-type 'aws' needs the package {error.name}", "aws") from error

if TYPE_CHECKING:
    from mypy_boto3_kms import KMSClient
    from mypy_boto3_kms.literals import EncryptionAlgorithmSpecType
    from mypy_boto3_sts.type_defs import AssumeRoleRequestTypeDef, TagTypeDef

_BLOB_REFUSED: Final = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})
_DENIED: Final = {
    "AccessDeniedException": "allow {action} on this key to the caller, in IAM or in the key's policy",
    "AccessDenied": "allow {action} to the caller",
    "KMSAccessDeniedException": "allow {action} on this key to the caller, in IAM or in the key's policy",
    "DisabledException": "the key is disabled: enable it",
    "KMSInvalidStateException": "the key's state forbids it (pending deletion or import): cancel the deletion or import its material",
    "OptInRequired": "the account is not subscribed to KMS in this region",
}
_NOT_RECOGNIZED: Final = {
    "UnrecognizedClientException": "the credentials are not valid here: check them and the region",
    "InvalidClientTokenId": "the credentials are not valid here: check them and the region",
    "InvalidSignatureException": "the signature does not match: check the secret access key and this machine's clock",
    "SignatureDoesNotMatch": "the signature does not match: check the secret access key and this machine's clock",
    "ExpiredTokenException": "the temporary credentials have expired: get new ones",
    "ExpiredToken": "the temporary credentials have expired: get new ones",
    "MissingAuthenticationTokenException": "the request carried no credentials: give some",
    "IncompleteSignature": "the credentials are incomplete: give both the access key id and the secret",
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
# One attempt each: tablecrypt/kms/resilient.py does the retrying, and two layers would multiply.
_CONFIG: Final = Config(
    retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=5, read_timeout=10, user_agent_extra="tablecrypt"
)
_SYMMETRIC: Final = "SYMMETRIC_DEFAULT"


@dataclass(frozen=True)
class AwsIdentity:
    """Who asks AWS, and where: read and checked from the properties at once, so that a contradiction shows before the first call."""

    region: str | None
    sts_endpoint: str | None
    role: AssumeRoleRequestTypeDef | None
    profile_name: str | None
    access_key_id: str | None = field(repr=False)
    secret_access_key: str | None = field(repr=False)
    session_token: str | None = field(repr=False)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> AwsIdentity:
        key_id, secret, token = (
            properties.get(each.name) for each in (CLIENT_ACCESS_KEY_ID, CLIENT_SECRET_ACCESS_KEY, CLIENT_SESSION_TOKEN)
        )
        # Half a pair is a mistake in the configuration: it shows here, and not at the first request.
        if (key_id is None) != (secret is None) or (token is not None and key_id is None):
            raise ConfigurationError(
                f"{CLIENT_ACCESS_KEY_ID.name} and {CLIENT_SECRET_ACCESS_KEY.name} go together, and {CLIENT_SESSION_TOKEN.name} needs both"
            )

        role = _role_request(properties)
        region = properties.get(CLIENT_REGION.name)

        return cls(
            region=properties.get(CLIENT_ASSUME_ROLE_REGION.name, region) if role is not None else region,
            sts_endpoint=properties.get(STS_ENDPOINT.name),
            role=role,
            profile_name=properties.get(CLIENT_PROFILE_NAME.name),
            access_key_id=key_id,
            secret_access_key=secret,
            session_token=token,
        )

    def session(self, config: Config) -> boto3.Session:
        """A session with the role's credentials when a role is named, else with the caller's own. `config` is for the STS client."""
        own = boto3.Session(
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            aws_session_token=self.session_token,
            # boto3 reads AWS_DEFAULT_REGION alone; Java's SDK and the AWS CLI take AWS_REGION, and before it.
            region_name=self.region or os.environ.get("AWS_REGION"),
            botocore_session=_core_session(self.profile_name),
        )
        if self.role is None:
            return own

        # Registering a resolver is botocore's public way to give a session credentials that refresh.
        core = _core_session()
        core.register_component("credential_provider", CredentialResolver([_RoleProvider(own, self.role, self.sts_endpoint, config)]))

        return boto3.Session(botocore_session=core, region_name=own.region_name)


class _DescriptionsOfServices(JSONFileLoader):
    """The files in which botocore describes the services of AWS, each parsed once in a process.

    A session parses them for itself: 40 ms of processor time for those of KMS, and each catalog has a session.
    """

    def __init__(self) -> None:
        self._parsed: dict[str, Any] = {}

    def load_file(self, file_path: str) -> Any:
        parsed = self._parsed.get(file_path)
        if parsed is None:
            parsed = self._parsed[file_path] = super().load_file(file_path)
        return parsed


_DESCRIPTIONS: Final = _DescriptionsOfServices()


def _core_session(profile_name: str | None = None) -> botocore.session.Session:
    core = botocore.session.Session(profile=profile_name)
    core.get_component("data_loader").file_loader = _DESCRIPTIONS
    return core


class _RoleProvider(CredentialProvider):
    """Gives botocore credentials that assume the role when they are first needed and again before they expire."""

    METHOD = "assume-role"

    def __init__(self, own: boto3.Session, request: AssumeRoleRequestTypeDef, endpoint: str | None, config: Config) -> None:
        super().__init__()
        self._own = own
        self._request = request
        self._endpoint = endpoint
        self._config = config

    def load(self) -> Any:
        return DeferredRefreshableCredentials(refresh_using=self._assume, method=self.METHOD)

    def _assume(self) -> dict[str, str]:
        sts = self._own.client("sts", endpoint_url=self._endpoint, config=self._config)
        try:
            given = sts.assume_role(**self._request)["Credentials"]
        finally:
            sts.close()

        return {
            "access_key": given["AccessKeyId"],
            "secret_key": given["SecretAccessKey"],
            "token": given["SessionToken"],
            "expiry_time": given["Expiration"].isoformat(),
        }


def _role_request(properties: Mapping[str, str]) -> AssumeRoleRequestTypeDef | None:
    """What to ask STS for, or None when no role is named."""
    arn = _either(properties, CLIENT_ASSUME_ROLE_ARN, CLIENT_ROLE_ARN)
    if arn is None:
        return None

    name = _either(properties, CLIENT_ASSUME_ROLE_SESSION_NAME, CLIENT_ROLE_SESSION_NAME)
    request: AssumeRoleRequestTypeDef = {
        "RoleArn": arn,
        "RoleSessionName": name or str(CLIENT_ASSUME_ROLE_SESSION_NAME.default),
        "DurationSeconds": CLIENT_ASSUME_ROLE_TIMEOUT_SEC.whole_number(properties),
    }
    if CLIENT_ASSUME_ROLE_EXTERNAL_ID.name in properties:
        request["ExternalId"] = properties[CLIENT_ASSUME_ROLE_EXTERNAL_ID.name]
    prefix = CLIENT_ASSUME_ROLE_TAGS.name
    tags: list[TagTypeDef] = [
        {"Key": each.removeprefix(prefix), "Value": value} for each, value in sorted(properties.items()) if each.startswith(prefix)
    ]
    if tags:
        request["Tags"] = tags
    return request


def _either(properties: Mapping[str, str], java: Property, pyiceberg: Property) -> str | None:
    """The value of a property that has two names."""
    values = {properties[each.name] for each in (java, pyiceberg) if properties.get(each.name)}
    # Taking one of two roles could give the program rights that the other one was to keep from it.
    if len(values) > 1:
        raise ConfigurationError(f"{java.name} and {pyiceberg.name} are two names of one property and have different values")
    return next(iter(values), None)


def translate(error: BotoCoreError | ClientError, action: str, key_id: str) -> TablecryptError:
    """The error to raise for `error`, which `action` ("kms:Decrypt") on master key `key_id` met."""
    if isinstance(error, ClientError):
        return _from_answer(error, action, key_id)

    what = f"AWS {action} with key {key_id!r}"
    if _is_unsendable(error):
        return ConfigurationError(
            f"{what}: the access key id or the session token holds the end of a line, or another character that no HTTP header can hold"
        )
    if isinstance(error, _NO_CREDENTIALS):
        return KmsCredentialsError(f"{what}: no usable AWS credentials were found ({type(error).__name__})")
    if isinstance(error, _NOT_CONFIGURED):
        return ConfigurationError(f"{what}: {error}; set client.region or client.profile-name")
    if isinstance(error, (HTTPClientError, NotConnectedError)):
        return KmsUnavailableError(f"{what}: the endpoint was not reached ({type(error).__name__}); check kms.endpoint and the network")

    return KmsError(f"{what} failed before it was sent: {type(error).__name__}")


def _from_answer(error: ClientError, action: str, key_id: str) -> TablecryptError:
    code = str(error.response.get("Error", {}).get("Code", "unknown"))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    # The session assumes its role inside the first call, so the refusal may be about the role and not about the key.
    if error.operation_name == "AssumeRole":
        action = "sts:AssumeRole"
    what = f"AWS {action} with key {key_id!r} was refused ({code})"
    # These say that the blob is wrong, not the rights: the caller must not ask for more permissions.
    if code in _BLOB_REFUSED:
        return AuthenticationError(f"{what}: the wrapped key was changed, or another master key wrapped it")
    if code == "NotFoundException":
        return KeyNotFoundError(f"{what}: no such key or alias in this account and region; check encryption.key-id and client.region")
    # Nobody was recognized whose permissions could be missing: a column's values must not turn into masks.
    if code in _NOT_RECOGNIZED:
        return KmsCredentialsError(f"{what}: {_NOT_RECOGNIZED[code]}")
    if error.operation_name == "AssumeRole" and code in _DENIED:
        return KmsCredentialsError(f"{what}: {_DENIED[code].format(action=action)}")
    if code in _DENIED:
        return KmsAccessDeniedError(f"{what}: {_DENIED[code].format(action=action)}")
    if status in (401, 403):
        # A proxy or a VPC endpoint on the way may refuse without one of KMS's own codes.
        return KmsAccessDeniedError(f"{what}: allow {action} to the caller")
    if code in _UNAVAILABLE or status in (429, 500, 502, 503, 504):
        return KmsUnavailableError(f"AWS {action} with key {key_id!r}: the service is unavailable or throttles ({code})")

    return KmsError(what)


silence_in_key_calls("botocore.endpoint", "botocore.parsers")


class AwsKeyManagementClient:
    """Wraps keys with AWS KMS. The wrapping key id is a key id, a key ARN, an alias ("alias/orders") or an alias ARN.

    Permissions, on the key (an alias needs them on the key behind it; in IAM, or in the key's policy):
        kms:Decrypt            to read
        kms:Encrypt            to write, with kms:Decrypt: what was wrapped is unwrapped once before it is stored
        kms:GenerateDataKey    to generate a key in the KMS (`generate_key`; SYMMETRIC_DEFAULT only)
        kms:ReEncryptFrom      on the old key, to rewrap (`rewrap_key`), with kms:Decrypt on both
        kms:ReEncryptTo        on the new key, which may be the same
    and with an assumed role, for the first identity:
        sts:AssumeRole         on the role; sts:TagSession too where client.assume-role.tags.* are given

    Credentials, first found: `client.access-key-id` with `client.secret-access-key` (and `client.session-token`); the profile
    `client.profile-name`; boto3's own chain (environment variables, shared files, container and instance roles). With
    `client.assume-role.arn` these open a session of that role, whose credentials refresh by themselves.

    Region: `client.region`, else AWS_REGION, AWS_DEFAULT_REGION, or the profile's. `kms.endpoint` replaces the region's endpoint,
    under an assumed role as well. Every property is listed in tablecrypt/properties.py.

    The boto3 client is made at the first call, once in each process, and serves all threads.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._identity = AwsIdentity.from_properties(properties)
        self._endpoint = properties.get(KMS_ENDPOINT.name)
        self._algorithm = cast("EncryptionAlgorithmSpecType", KMS_ALGORITHM_SPEC.chosen(properties))
        KMS_DATA_KEY_SPEC.chosen(properties)
        self._client: PerProcess[KMSClient] = PerProcess(self._connect)

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        check_key_length(len(key))
        with _errors("kms:Encrypt", wrapping_key_id):
            answer = self._client.get().encrypt(KeyId=wrapping_key_id, Plaintext=key, EncryptionAlgorithm=self._algorithm)
            _check_key(wrapping_key_id, answer.get("KeyId"), "kms:Encrypt")
            return answer["CiphertextBlob"]

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        with _errors("kms:Decrypt", wrapping_key_id):
            answer = self._client.get().decrypt(KeyId=wrapping_key_id, CiphertextBlob=wrapped_key, EncryptionAlgorithm=self._algorithm)
            # The answer names the key that was used: another one means that the blob is not of this table's master key.
            _check_key(wrapping_key_id, answer.get("KeyId"), "kms:Decrypt")
            return answer["Plaintext"]

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        check_key_length(length)
        # GenerateDataKey works with symmetric keys alone, so the key is drawn here and wrapped.
        if self._algorithm != _SYMMETRIC:
            return generate_by_wrapping(self, wrapping_key_id, length)

        with _errors("kms:GenerateDataKey", wrapping_key_id):
            answer = self._client.get().generate_data_key(KeyId=wrapping_key_id, NumberOfBytes=length)
            _check_key(wrapping_key_id, answer.get("KeyId"), "kms:GenerateDataKey")
            return GeneratedKey(key=answer["Plaintext"], wrapped_key=answer["CiphertextBlob"])

    def rewrap_key(self, wrapped_key: bytes, wrapping_key_id: str, from_key_id: str) -> bytes:
        # Without SourceKeyId, KMS would open a blob of any key that the caller may use, and wrap it for those who may use this one.
        with _errors("kms:ReEncrypt*", wrapping_key_id if from_key_id == wrapping_key_id else f"{from_key_id} to {wrapping_key_id}"):
            answer = self._client.get().re_encrypt(
                CiphertextBlob=wrapped_key,
                SourceKeyId=from_key_id,
                DestinationKeyId=wrapping_key_id,
                SourceEncryptionAlgorithm=self._algorithm,
                DestinationEncryptionAlgorithm=self._algorithm,
            )
            _check_key(from_key_id, answer.get("SourceKeyId"), "kms:ReEncrypt*")
            _check_key(wrapping_key_id, answer.get("KeyId"), "kms:ReEncrypt*")
            return answer["CiphertextBlob"]

    def close(self) -> None:
        client = self._client.drop()
        if client is not None:
            client.close()

    def _connect(self) -> KMSClient:
        session = self._identity.session(_CONFIG)
        try:
            return session.client("kms", endpoint_url=self._endpoint, config=_CONFIG)
        except BotoCoreError:
            raise
        except ValueError:
            # Not chained, nor shown: an address may hold a password.
            raise ConfigurationError(f"{KMS_ENDPOINT.name} is no URL: write it with its scheme, https://…") from None

    def __repr__(self) -> str:
        return f"AwsKeyManagementClient(region={self._identity.region!r}, endpoint={self._endpoint!r})"


def _check_key(asked: str, answered: str | None, action: str) -> None:
    """Compare the key that KMS says it used with the one that it was asked to use. What an alias means is known to KMS alone."""
    # The answer names the key behind an alias, which this client cannot look up.
    if asked.startswith("alias/") or ":alias/" in asked:
        return
    # An ARN is arn:aws:kms:<region>:<account>:key/<id>
    used = answered or ""
    if used != asked and used.rpartition(":key/")[2] != asked:
        raise KmsError(f"AWS KMS answered {action} with key {used[:256]!r}, where {asked!r} was asked for: the answer is not used")


@contextmanager
def _errors(action: str, key_id: str) -> Iterator[None]:
    try:
        with key_call():
            yield
    except (BotoCoreError, ClientError) as error:
        # Not chained: the HTTP library's message shows the credential.
        raise translate(error, action, key_id) from None if _is_unsendable(error) else error


def _is_unsendable(error: BotoCoreError | ClientError) -> bool:
    return isinstance(error, HTTPClientError) and isinstance(error.kwargs.get("error"), ValueError)
