"""The boto3 session that a catalog's properties describe: static credentials, a profile, boto3's own chain, and over any of them a role.

Both spellings of a role are read, Java's `client.assume-role.*` and PyIceberg's `client.role-*`; two different values are a
ConfigurationError. Reading the properties sends nothing: the role is assumed when the first request needs its credentials.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import CredentialProvider, CredentialResolver, DeferredRefreshableCredentials

from tablecrypt.errors import ConfigurationError
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
    STS_ENDPOINT,
    Property,
)

if TYPE_CHECKING:
    from mypy_boto3_sts.type_defs import AssumeRoleRequestTypeDef, TagTypeDef


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
            profile_name=self.profile_name,
        )
        if self.role is None:
            return own
        # Registering a resolver is botocore's public way to give a session credentials that refresh.
        core = botocore.session.get_session()
        core.register_component("credential_provider", CredentialResolver([_RoleProvider(own, self.role, self.sts_endpoint, config)]))
        return boto3.Session(botocore_session=core, region_name=own.region_name)


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
        "DurationSeconds": _seconds(properties),
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
    if len(values) > 1:
        raise ConfigurationError(f"{java.name} and {pyiceberg.name} are two names of one property and have different values")
    return next(iter(values), None)


def _seconds(properties: Mapping[str, str]) -> int:
    text = CLIENT_ASSUME_ROLE_TIMEOUT_SEC.read(properties)
    if not text.isdecimal():
        raise ConfigurationError(f"{CLIENT_ASSUME_ROLE_TIMEOUT_SEC.name} must be a whole number of seconds, not {text!r}")
    return int(text)
