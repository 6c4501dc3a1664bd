"""AWS KMS: what Java wrapped opens here, who asks, and what each refusal becomes."""

from __future__ import annotations

import base64
import json
import pickle
import secrets
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pytest
from botocore.stub import Stubber
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tablecrypt.errors import (
    AuthenticationError,
    ColumnKeyDeniedError,
    ConfigurationError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsCredentialsError,
    KmsError,
    KmsUnavailableError,
    TablecryptError,
)
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import ColumnPolicy, ProtectedColumn
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.keys.table_column_keys import TableColumnKeys
from tablecrypt.kms.aws import AwsKeyManagementClient
from tests.kms.services.http_service import Answer, HttpService, Request
from tests.support.aws import AwsServer
from tests.support.bound_schemas import OF_TEXT
from tests.support.policies import check_permissions_after

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "vectors" / "golden"
ROLE = "arn:aws:iam::123456789012:role/tablecrypt"


@pytest.fixture
def client(aws: AwsServer) -> Iterator[AwsKeyManagementClient]:
    client = AwsKeyManagementClient(aws.kms_properties)
    yield client
    client.close()


@pytest.mark.parametrize("table", ["orders", "people"])
def test_keks_that_java_wrapped_open_the_manifest_list_keys_they_encrypted(client: AwsKeyManagementClient, table: str) -> None:
    newest = max((GOLDEN / "s3" / "golden-shared" / "db" / table / "metadata").glob("*.metadata.json"))
    entries = {entry["key-id"]: entry for entry in json.loads(newest.read_text())["encryption-keys"]}
    opened = 0
    for entry in entries.values():
        wrapper = entries.get(entry["encrypted-by-id"])
        if wrapper is None:
            continue
        kek = client.unwrap_key(base64.b64decode(wrapper["encrypted-key-metadata"]), wrapper["encrypted-by-id"])
        encrypted = base64.b64decode(entry["encrypted-key-metadata"])
        timestamp = wrapper["properties"]["KEY_TIMESTAMP"].encode()
        assert AESGCM(kek).decrypt(encrypted[:12], encrypted[12:], timestamp)[0] == 1
        opened += 1
    assert opened == 3


def test_a_blob_is_what_plain_boto3_decrypts_without_a_context(aws: AwsServer, client: AwsKeyManagementClient) -> None:
    wrapped = client.wrap_key(b"sixteen byte key", "alias/orders")
    assert aws.kms.decrypt(CiphertextBlob=wrapped)["Plaintext"] == b"sixteen byte key"


def test_an_unknown_key_is_named_in_the_error(client: AwsKeyManagementClient) -> None:
    with pytest.raises(KeyNotFoundError, match=r"'alias/nobody'.*encryption\.key-id"):
        client.generate_key("alias/nobody")


@pytest.fixture
def access_keys(aws: AwsServer) -> Iterator[dict[str, str]]:
    """Credentials of a user who may decrypt and nothing else, while the server checks permissions."""
    with _user_who_may(aws, "kms:Decrypt") as keys:
        yield keys


@contextmanager
def _user_who_may(aws: AwsServer, action: str) -> Iterator[dict[str, str]]:
    iam = boto3.client("iam", endpoint_url=aws.endpoint, region_name=aws.region)
    iam.create_user(UserName="limited")
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, "Resource": "*"}]}
    iam.put_user_policy(UserName="limited", PolicyName="one", PolicyDocument=json.dumps(policy))
    made = iam.create_access_key(UserName="limited")["AccessKey"]
    check_permissions_after(aws, b"0")
    try:
        yield {"client.access-key-id": made["AccessKeyId"], "client.secret-access-key": made["SecretAccessKey"]}
    finally:
        check_permissions_after(aws, b"inf")
        iam.delete_access_key(UserName="limited", AccessKeyId=made["AccessKeyId"])
        iam.delete_user_policy(UserName="limited", PolicyName="one")
        iam.delete_user(UserName="limited")


def test_a_caller_without_the_permission_is_told_which_one(
    aws: AwsServer, client: AwsKeyManagementClient, request: pytest.FixtureRequest
) -> None:
    wrapped = client.wrap_key(bytes(16), "alias/orders")
    access_keys = request.getfixturevalue("access_keys")
    reader = AwsKeyManagementClient({**aws.kms_properties, **access_keys})
    assert reader.unwrap_key(wrapped, "alias/orders") == bytes(16)
    with pytest.raises(KmsAccessDeniedError, match="allow kms:Encrypt") as refusal:
        reader.wrap_key(bytes(16), "alias/orders")
    assert not refusal.value.retryable
    stranger = AwsKeyManagementClient({**aws.kms_properties, **access_keys, "client.access-key-id": "AKIAIOSFODNN7EXAMPLE"})
    with pytest.raises(KmsAccessDeniedError):
        stranger.unwrap_key(wrapped, "alias/orders")


def test_who_may_encrypt_alone_writes_a_protected_column_that_others_read(aws: AwsServer, client: AwsKeyManagementClient) -> None:
    def maker(kms: AwsKeyManagementClient) -> ColumnKeyMaker:
        return ColumnKeyMaker(kms, "alias/people", 16, 1000, lambda: 0, secrets.token_bytes)

    policy = ColumnPolicy.of([ProtectedColumn(2, "alias/orders")])
    with _user_who_may(aws, "kms:Encrypt") as access_keys:
        writer = maker(AwsKeyManagementClient({**aws.kms_properties, **access_keys}))
        made = TableColumnKeys(writer, policy, KeyRing()).generate([2], b"file 1")[2]
        ring = KeyRing(writer.pending.new_entries(KeyRing(), [b"file 1"]))
        with pytest.raises(ColumnKeyDeniedError):
            TableColumnKeys(writer, policy, ring).unwrap(2, made.key_metadata(OF_TEXT), b"file 1", OF_TEXT, 1)
    assert TableColumnKeys(maker(client), policy, ring).unwrap(2, made.key_metadata(OF_TEXT), b"file 1", OF_TEXT, 1) == made.secret


# What moto does not produce: the service's own error codes, through boto3's parser and this client's mapping.
@pytest.mark.parametrize(
    ("code", "status", "expected", "retryable"),
    [
        ("DisabledException", 400, KmsAccessDeniedError, False),
        ("KMSInvalidStateException", 400, KmsAccessDeniedError, False),
        ("AccessDeniedException", 400, KmsAccessDeniedError, False),
        ("OptInRequired", 403, KmsAccessDeniedError, False),
        ("ExpiredTokenException", 400, KmsCredentialsError, False),
        ("UnrecognizedClientException", 400, KmsCredentialsError, False),
        ("InvalidSignatureException", 400, KmsCredentialsError, False),
        ("InvalidCiphertextException", 400, AuthenticationError, False),
        ("IncorrectKeyException", 400, AuthenticationError, False),
        ("NotFoundException", 400, KeyNotFoundError, False),
        ("InvalidKeyUsageException", 400, KmsError, False),
        ("ThrottlingException", 400, KmsUnavailableError, True),
        ("KMSInternalException", 500, KmsUnavailableError, True),
        ("KeyUnavailableException", 500, KmsUnavailableError, True),
        ("DependencyTimeoutException", 503, KmsUnavailableError, True),
        ("SomethingNew", 503, KmsUnavailableError, True),
    ],
)
def test_each_error_code_becomes_what_the_caller_can_do(
    client: AwsKeyManagementClient, code: str, status: int, expected: type[TablecryptError], retryable: bool
) -> None:
    with Stubber(client._client.get()) as stubber:
        stubber.add_client_error("decrypt", code, "the service's own words", http_status_code=status)
        with pytest.raises(expected) as refusal:
            client.unwrap_key(b"a blob", "alias/orders")
    assert type(refusal.value) is expected
    assert getattr(refusal.value, "retryable", False) is retryable
    for said in ("kms:Decrypt", "alias/orders", code):
        assert said in str(refusal.value)
    assert "blob" not in str(refusal.value)
    assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)


def test_an_endpoint_that_is_not_there_is_unavailable(aws: AwsServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        client = AwsKeyManagementClient({**aws.kms_properties, "kms.endpoint": f"http://127.0.0.1:{port}"})
        with pytest.raises(KmsUnavailableError) as failure:
            client.generate_key("alias/orders")
    assert failure.value.retryable


class _Failing(HttpService):
    def answer(self, request: Request) -> Answer:
        return Answer(500, {"__type": "KMSInternalException"})


def test_a_second_client_of_a_process_parses_no_description_of_a_service_again(aws: AwsServer, caplog: pytest.LogCaptureFixture) -> None:
    first, second = AwsKeyManagementClient(aws.kms_properties), AwsKeyManagementClient(aws.kms_properties)
    first.wrap_key(b"sixteen byte key", "alias/orders")

    with caplog.at_level("DEBUG", logger="botocore.loaders"):
        second.wrap_key(b"sixteen byte key", "alias/orders")
        boto3.Session().client("kms", region_name=aws.region)

    parsed_by_boto3 = [record.getMessage() for record in caplog.records if "Loading JSON file" in record.getMessage()]
    assert len(parsed_by_boto3) == len(set(parsed_by_boto3)) > 0


def test_boto3_does_not_retry_by_itself(aws: AwsServer) -> None:
    service = _Failing()
    try:
        with pytest.raises(KmsUnavailableError):
            AwsKeyManagementClient({**aws.kms_properties, "kms.endpoint": service.url}).generate_key("alias/orders")
        assert len(service.requests) == 1
    finally:
        service.stop()


def test_missing_credentials_are_said_to_be_missing(aws: AwsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with pytest.raises(KmsCredentialsError, match="no usable AWS credentials"):
        AwsKeyManagementClient(aws.kms_properties).generate_key("alias/orders")


def test_a_missing_region_and_a_missing_profile_are_configuration(aws: AwsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(ConfigurationError, match=r"client\.region"):
        AwsKeyManagementClient({"encryption.kms-type": "aws"}).generate_key("alias/orders")
    with pytest.raises(ConfigurationError, match=r"client\.profile-name"):
        AwsKeyManagementClient({**aws.kms_properties, "client.profile-name": "nobody"}).generate_key("alias/orders")


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_comes_from_either_variable_when_no_property_says_it(
    aws: AwsServer, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv(variable, aws.region)
    client = AwsKeyManagementClient({"kms.endpoint": aws.endpoint})
    assert len(client.generate_key("alias/orders").key) == 16


@pytest.mark.parametrize("spelling", ["client.assume-role.arn", "client.role-arn"])
def test_an_assumed_role_keeps_the_kms_endpoint(aws: AwsServer, client: AwsKeyManagementClient, spelling: str) -> None:
    wrapped = client.wrap_key(bytes(16), "alias/orders")
    assumed = AwsKeyManagementClient({**aws.kms_properties, spelling: ROLE, "sts.endpoint": aws.endpoint})
    assert assumed.unwrap_key(wrapped, "alias/orders") == bytes(16)
    connection = assumed._client.get()
    assert connection.meta.endpoint_url == aws.endpoint
    credentials = connection._request_signer._credentials  # type: ignore[attr-defined]
    assert credentials.method == "assume-role"
    assert credentials.access_key.startswith("ASIA")


def test_an_assumed_roles_credentials_refresh_before_they_expire(aws: AwsServer) -> None:
    assumed = AwsKeyManagementClient({**aws.kms_properties, "client.assume-role.arn": ROLE, "sts.endpoint": aws.endpoint})
    assumed.generate_key("alias/orders")
    credentials = assumed._client.get()._request_signer._credentials  # type: ignore[attr-defined]
    before = credentials.access_key
    credentials._expiry_time = datetime.now(UTC)
    assumed.generate_key("alias/orders")
    assert credentials.access_key != before


def test_a_role_is_asked_for_in_javas_words(aws: AwsServer) -> None:
    client = AwsKeyManagementClient(
        {
            **aws.kms_properties,
            "client.assume-role.arn": ROLE,
            "client.assume-role.region": "eu-central-1",
            "client.assume-role.session-name": "nightly",
            "client.assume-role.external-id": "partner",
            "client.assume-role.timeout-sec": "900",
            "client.assume-role.tags.team": "data",
        }
    )
    assert client._identity.region == "eu-central-1"
    assert client._identity.role == {
        "RoleArn": ROLE,
        "RoleSessionName": "nightly",
        "DurationSeconds": 900,
        "ExternalId": "partner",
        "Tags": [{"Key": "team", "Value": "data"}],
    }


@pytest.mark.parametrize(
    "properties",
    [
        {"client.access-key-id": "a"},
        {"client.secret-access-key": "a"},
        {"client.session-token": "a"},
        {"client.assume-role.arn": ROLE, "client.role-arn": ROLE + "2"},
        {"client.assume-role.arn": ROLE, "client.assume-role.timeout-sec": "an hour"},
        {"kms.encryption-algorithm-spec": "ROT13"},
        {"kms.data-key-spec": "AES_512"},
    ],
)
def test_a_contradiction_shows_before_the_first_call(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        AwsKeyManagementClient(properties)


def test_making_a_client_sends_nothing_and_its_repr_holds_no_credentials() -> None:
    client = AwsKeyManagementClient(
        {"client.access-key-id": "AKIDEXAMPLE", "client.secret-access-key": "wJalr", "client.session-token": "FQoG"}
    )
    shown = repr(client) + repr(client._identity)
    assert not [secret for secret in ("AKIDEXAMPLE", "wJalr", "FQoG") if secret in shown]


@pytest.mark.parametrize("field", ["KeyId", "SourceKeyId"])
def test_an_answer_about_another_key_than_was_asked_for_is_refused(aws: AwsServer, field: str) -> None:
    """The answers are moto's own, but for the name of the key."""
    client, key_id, other = AwsKeyManagementClient(aws.kms_properties), aws.new_key(), aws.new_key()
    arn = aws.kms.describe_key(KeyId=key_id)["KeyMetadata"]["Arn"]
    blob = client.wrap_key(bytes(16), key_id)
    assert client.unwrap_key(blob, arn) == client.unwrap_key(client.rewrap_key(blob, arn, key_id), key_id) == bytes(16)

    def rename(parsed: dict[str, object], **_: object) -> None:
        if field in parsed:
            parsed[field] = arn.replace(key_id, other)

    client._client.get().meta.events.register("after-call.kms", rename)
    calls: list[Callable[[], object]] = [lambda: client.rewrap_key(blob, key_id, key_id)]
    if field == "KeyId":
        calls += [
            lambda: client.wrap_key(bytes(16), key_id),
            lambda: client.unwrap_key(blob, arn),
            lambda: client.generate_key(key_id).wrapped_key,
        ]
    for call in calls:
        with pytest.raises(KmsError, match=other):
            call()


@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"])
def test_a_credential_of_the_environment_with_the_end_of_its_line_is_refused_and_not_shown(
    aws: AwsServer, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "a-secret\n")
    client = AwsKeyManagementClient(aws.kms_properties)

    with pytest.raises(ConfigurationError, match="no HTTP header can hold") as refused:
        client.wrap_key(secrets.token_bytes(16), "alias/orders")

    assert "a-secret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("endpoint", ["x", "http://", "file:///etc/passwd", "user:password@kms"])
def test_an_endpoint_that_is_no_url_is_configuration_and_not_shown(endpoint: str) -> None:
    client = AwsKeyManagementClient({"client.region": "us-east-1", "kms.endpoint": endpoint})

    with pytest.raises(ConfigurationError, match=r"kms\.endpoint is no URL") as refused:
        client.wrap_key(secrets.token_bytes(16), "alias/orders")

    assert "password" not in "".join(traceback.format_exception(refused.value))
