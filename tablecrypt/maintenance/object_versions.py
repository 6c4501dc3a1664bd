"""Earlier versions of objects in an S3 bucket that keeps them: what was deleted or replaced there is still stored.

    bucket versioning     Enabled or Suspended: versions exist; never set: none do
    needs                 s3:GetBucketVersioning and s3:ListBucketVersions, and boto3

Raises MissingExtraError without boto3, OSError for what S3 refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pyiceberg.io import (
    AWS_ACCESS_KEY_ID,
    AWS_PROFILE_NAME,
    AWS_REGION,
    AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN,
    S3_ACCESS_KEY_ID,
    S3_ENDPOINT,
    S3_PROFILE_NAME,
    S3_REGION,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
    FileIO,
)
from pyiceberg.utils.properties import get_first_property_value

from tablecrypt.errors import MissingExtraError

_SCHEMES: Final = ("s3", "s3a", "s3n")


@dataclass(frozen=True)
class ObjectVersion:
    """A version of an object that is not the latest one, or that a delete marker hides."""

    location: str
    version_id: str
    size: int


def object_versions(io: FileIO, location: str) -> Iterator[ObjectVersion]:
    """Yield every earlier version of objects under a location; nothing for a store that is not S3.

    Args:
        io: its properties say how S3 is reached, as PyIceberg's own FileIOs read them.
        location: a folder, without a slash at the end.

    Raises:
        MissingExtraError: boto3 is not installed.
        OSError: S3 refused or failed.
    """
    parts = urlsplit(location)
    if parts.scheme not in _SCHEMES:
        return
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        raise MissingExtraError('versions of S3 objects are listed by boto3: pip install "tablecrypt[aws]"') from error
    properties = dict(io.properties)
    session = boto3.Session(profile_name=get_first_property_value(properties, S3_PROFILE_NAME, AWS_PROFILE_NAME))
    s3 = session.client(
        "s3",
        endpoint_url=properties.get(S3_ENDPOINT),
        region_name=get_first_property_value(properties, S3_REGION, AWS_REGION),
        aws_access_key_id=get_first_property_value(properties, S3_ACCESS_KEY_ID, AWS_ACCESS_KEY_ID),
        aws_secret_access_key=get_first_property_value(properties, S3_SECRET_ACCESS_KEY, AWS_SECRET_ACCESS_KEY),
        aws_session_token=get_first_property_value(properties, S3_SESSION_TOKEN, AWS_SESSION_TOKEN),
    )
    try:
        if "Status" not in s3.get_bucket_versioning(Bucket=parts.netloc):
            return
        pages = s3.get_paginator("list_object_versions").paginate(Bucket=parts.netloc, Prefix=f"{parts.path.strip('/')}/")
        for page in pages:
            for version in page.get("Versions", ()):
                if not version["IsLatest"]:
                    yield ObjectVersion(f"{parts.scheme}://{parts.netloc}/{version['Key']}", version["VersionId"], version["Size"])
    except (BotoCoreError, ClientError) as error:
        raise OSError(f"{location}: S3 does not list versions of objects: {error}") from error
