"""The policy files of docs/how-to/policies/, and services that hold a caller to them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import boto3
from moto.kms.responses import KmsResponse

from tests.support.aws import ACCOUNT, AwsServer

POLICIES: Final = Path(__file__).parents[2] / "docs" / "how-to" / "policies"
ROLES: Final = ("reader", "masked-analyst", "writer", "operator", "auditor")
_TABLE_KEY: Final = "1234abcd-12ab-34cd-56ef-1234567890ab"
_COLUMN_KEY: Final = "0987dcba-09fe-87dc-65ba-ab0987654321"
_PATH: Final = re.compile(r'path "([^"]+)" \{\s*capabilities = \[([^\]]*)\]\s*\}')


def aws_policy(role: str, bucket: str, table_key: str, column_key: str) -> str:
    """The file of a role, with the names of a test in place of its own."""
    text = (POLICIES / "aws" / f"{role}.json").read_text(encoding="utf-8")
    names = {_TABLE_KEY: table_key, _COLUMN_KEY: column_key, "111122223333": ACCOUNT, "s3:::lake": f"s3:::{bucket}"}
    for name, stands_for in names.items():
        text = text.replace(name, stands_for)
    return text


def vault_policy_text(role: str) -> str:
    """The file of a role, as Vault takes it."""
    return (POLICIES / "vault" / f"{role}.hcl").read_text(encoding="utf-8")


def vault_policy(role: str) -> dict[str, list[str]]:
    """Which capabilities the file of a role grants on which path."""
    text = vault_policy_text(role)
    rest = _PATH.sub("", text)
    assert all(line.startswith("#") or not line for line in map(str.strip, rest.splitlines())), rest
    return {path: json.loads(f"[{capabilities}]") for path, capabilities in _PATH.findall(text)}


@contextmanager
def aws_user(aws: AwsServer, name: str, policy: str) -> Iterator[Mapping[str, str]]:
    """Yield the access keys, as properties of a catalog, of a user who may do what the policy says, while the server checks each call."""
    iam = boto3.client("iam", endpoint_url=aws.endpoint, region_name=aws.region)
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="role", PolicyDocument=policy)
    made = iam.create_access_key(UserName=name)["AccessKey"]
    try:
        with _checked(aws):
            pair = (made["AccessKeyId"], made["SecretAccessKey"])
            yield {f"{service}.{key}": value for service in ("s3", "client") for key, value in zip(_NAMES, pair, strict=True)}
    finally:
        iam.delete_access_key(UserName=name, AccessKeyId=made["AccessKeyId"])
        iam.delete_user_policy(UserName=name, PolicyName="role")
        iam.delete_user(UserName=name)


_NAMES: Final = ("access-key-id", "secret-access-key")


@contextmanager
def _checked(aws: AwsServer) -> Iterator[None]:
    # moto asks its responses which resource a request is about; KMS's does not say, so every policy that names a key would refuse.
    KmsResponse._determine_resource = _key_of_request  # type: ignore[attr-defined]
    check_permissions_after(aws, b"0")
    try:
        yield
    finally:
        check_permissions_after(aws, b"inf")
        del KmsResponse._determine_resource  # type: ignore[attr-defined]


def _key_of_request(response: Any) -> str:
    """The ARN of the key that a request names, or that its ciphertext was made with: moto puts the id before it."""
    asked = json.loads(response.body or "{}")
    named = asked.get("KeyId") or base64.b64decode(asked.get("CiphertextBlob", ""))[:36].decode()
    key_id = response.kms_backend.get_key_id_from_alias(named) if named.startswith("alias/") else named.rpartition("/")[2]
    return f"arn:aws:kms:{response.region}:{ACCOUNT}:key/{key_id.rpartition('/')[2]}"


def check_permissions_after(aws: AwsServer, requests: bytes) -> None:
    """Let moto answer so many more requests before it checks permissions; b"inf" for all."""
    headers = {"Content-Type": "text/plain"}
    with urlopen(Request(f"{aws.endpoint}/moto-api/reset-auth", data=requests, headers=headers, method="POST"), timeout=10) as answer:
        assert answer.status == 200
