"""AWS KMS, through boto3.

    wrapped key = Encrypt's (or GenerateDataKey's) CiphertextBlob, as it is; its inside is AWS's own affair
    algorithm SYMMETRIC_DEFAULT, no EncryptionContext: what Iceberg Java does, so either side unwraps the other's keys

Decrypt names the wrapping key, so that a blob of another key of the account is refused rather than opened. Every answer says which key was
used; one that says another than was asked for is refused.
What goes wrong is named by tablecrypt/kms/aws_errors.py; the session is made by tablecrypt/kms/aws_session.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tablecrypt.errors import ConfigurationError, KmsError
from tablecrypt.kms.aws_errors import translate
from tablecrypt.kms.aws_session import AwsIdentity
from tablecrypt.kms.client import GeneratedKey, check_key_length
from tablecrypt.kms.per_process import PerProcess
from tablecrypt.kms.wire_logs import key_call, silence_in_key_calls
from tablecrypt.properties import KMS_ALGORITHM_SPEC, KMS_DATA_KEY_SPEC, KMS_ENDPOINT, Property

if TYPE_CHECKING:
    from mypy_boto3_kms import KMSClient
    from mypy_boto3_kms.literals import EncryptionAlgorithmSpecType

# One attempt each: tablecrypt/kms/resilient.py does the retrying, and two layers would multiply.
_CONFIG: Final = Config(
    retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=5, read_timeout=10, user_agent_extra="tablecrypt"
)
silence_in_key_calls("botocore.endpoint", "botocore.parsers")
_SYMMETRIC: Final = "SYMMETRIC_DEFAULT"
_ALGORITHMS: Final = (_SYMMETRIC, "RSAES_OAEP_SHA_1", "RSAES_OAEP_SHA_256")
_DATA_KEY_SPECS: Final = ("AES_128", "AES_256")


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
        self._algorithm = cast("EncryptionAlgorithmSpecType", _one_of(properties, KMS_ALGORITHM_SPEC, _ALGORITHMS))
        _one_of(properties, KMS_DATA_KEY_SPEC, _DATA_KEY_SPECS)
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
            _check_key(wrapping_key_id, answer.get("KeyId"), "kms:Decrypt")
            return answer["Plaintext"]

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        check_key_length(length)
        if self._algorithm != _SYMMETRIC:
            key = secrets.token_bytes(length)
            return GeneratedKey(key=key, wrapped_key=self.wrap_key(key, wrapping_key_id))
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
        return self._identity.session(_CONFIG).client("kms", endpoint_url=self._endpoint, config=_CONFIG)

    def __repr__(self) -> str:
        return f"AwsKeyManagementClient(region={self._identity.region!r}, endpoint={self._endpoint!r})"


def _one_of(properties: Mapping[str, str], read: Property, known: tuple[str, ...]) -> str:
    value = read.read(properties)
    if value not in known:
        raise ConfigurationError(f"{read.name} must be one of {', '.join(known)}, not {value!r}")
    return value


def _check_key(asked: str, answered: str | None, action: str) -> None:
    """Compare the key that KMS says it used with the one that it was asked to use. What an alias means is known to KMS alone."""
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
        raise translate(error, action, key_id) from error
