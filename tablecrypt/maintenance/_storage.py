"""What a store holds for a table beside the files that its metadata names: older metadata, and earlier versions.

Earlier versions are those of an S3 bucket that keeps them: what was deleted or replaced there is still stored.

    bucket versioning     Enabled or Suspended: versions exist; never set: none do
    needs                 s3:GetBucketVersioning and s3:ListBucketVersions, and boto3

Raises MissingExtraError without boto3, OSError for what S3 refuses.

The metadata files that a table has left behind are read newest first:

    metadata-log of the current metadata ─▶ each file's own log ─▶ …          a log names only so many files before its own
    <location>/metadata/*.metadata.json, and below write.metadata.path        files that no log names any more, or none ever did

Nothing authenticates such a file but what it says opens or does not. Files of another table-uuid are passed over, unless a log names them:
then a store gave a wrong answer, or somebody wrote over the table's own file, whose keys may be elsewhere.

An audit does not ask here: it also tells of files of other tables and versions, and of JSON that is no metadata (_audit/observed.py).
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
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
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.properties import get_first_property_value

from tablecrypt.errors import FormatError, MissingExtraError
from tablecrypt.files.deletion import ParsedLocation, place_of, refuse_link, store_of
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES, RawContent
from tablecrypt.files.stores import check_reached, stored_files
from tablecrypt.maintenance.operation import metadata_folder
from tablecrypt.table.metadata import EncryptedTableMetadata, MetadataFile, read_metadata_file, read_named_metadata_file
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO

_LOCAL: Final = "file"
_S3_SCHEMES: Final = ("s3", "s3a", "s3n")

logger = logging.getLogger(__name__)


def write_metadata(io: TableFileIO, location: str, metadata: TableMetadata, *, overwrite: bool = False) -> int:
    """Write the metadata.json of a table that is made beside its source, through no link, and return how many bytes it has."""
    content = metadata.model_dump_json().encode()
    refuse_link(location)
    with io.raw_output(location, RawContent.METADATA_JSON).create(overwrite=overwrite) as stream:
        stream.write(content)
    return len(content)


def refused_deletion(io: FileIO, location: str) -> str | None:
    """Delete a file; return what the store said where it did not. One that is gone already is as one that it deleted."""
    try:
        io.delete(location)
    except FileNotFoundError:
        logger.debug("%s is gone already", location)
    except Exception as error:  # noqa: BLE001  every store has errors of its own; all of them are reported together
        return f"{type(error).__name__}: {error}"

    return None


def delete_checksums(io: FileIO, location: str) -> None:
    """Delete the checksums that Hadoop keeps of a file on a local disk, in .<name>.crc beside it: the file is another one now, or gone.

    Java would take them for those of the new content, and they tell something about the old one.
    """
    if store_of(urlsplit(location).scheme) != _LOCAL:
        return
    folder, _, name = location.rpartition("/")
    with suppress(FileNotFoundError):
        io.delete(f"{folder}/.{name}.crc")


def remove_empty_folders(location: str, begins: Collection[str]) -> list[str]:
    """Remove empty folders of a local disk, and return their paths. Other stores have none.

    Args:
        location: the folder below which they lie; it stays itself, and links are not followed.
        begins: what their names, or that of a folder below `location` around them, begin with.
    """
    if store_of(urlsplit(location).scheme) != _LOCAL:
        return []

    root = ParsedLocation.of(location).local_path
    removed: list[str] = []

    # From the bottom up: a folder may be empty only once the folders in it are gone.
    for folder, _, _ in os.walk(root, topdown=False):
        if not any(part.startswith(tuple(begins)) for part in folder[len(root) :].split("/")):
            continue

        try:
            os.rmdir(folder)
        except OSError as error:
            # Mostly it is not empty. A file that comes meanwhile is safe too: the system call removes empty folders only.
            logger.debug("%s stays: %s", folder, error.strerror)
        else:
            removed.append(folder)

    return removed


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
    if parts.scheme not in _S3_SCHEMES:
        return

    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        raise MissingExtraError.named("versions of S3 objects are listed by boto3", "aws") from error

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
        # Without a status, versioning was never on: paging through the whole folder would find nothing.
        if "Status" not in s3.get_bucket_versioning(Bucket=parts.netloc):
            return

        # With the slash at the end: the prefix a/t would list a/t2 as well.
        pages = s3.get_paginator("list_object_versions").paginate(Bucket=parts.netloc, Prefix=f"{parts.path.strip('/')}/")
        for page in pages:
            for version in page.get("Versions", ()):
                # The latest version is the object itself, unless a delete marker hides it: then its versions are all earlier ones.
                if not version["IsLatest"]:
                    yield ObjectVersion(f"{parts.scheme}://{parts.netloc}/{version['Key']}", version["VersionId"], version["Size"])
    except (BotoCoreError, ClientError) as error:
        raise OSError(f"{location}: S3 does not list versions of objects: {error}") from error


@dataclass(frozen=True)
class OlderMetadata:
    """One metadata file of the table.

    Attributes:
        location: where it is.
        file: its bytes; None where they are not a metadata file's, as half a file that was being written.
        parsed: what they say; None where they cannot be read.
        error: why they cannot be read.
        is_logged: whether a metadata-log names it, so that it was the table's once; a file that none names may be about to become that.
        is_of_another: whether it is the metadata of another table, of which nothing else is said here.
    """

    location: str
    file: MetadataFile | None = None
    parsed: TableMetadata | None = None
    error: Exception | None = None
    is_logged: bool = False
    is_of_another: bool = False

    @property
    def metadata(self) -> EncryptedTableMetadata | None:
        """What it says; None where it cannot be read, or is of a version without keys."""
        return self.parsed if isinstance(self.parsed, EncryptedTableMetadata) else None

    @property
    def problem(self) -> str:
        """Why it cannot be read, for people: without what a parser cites of it."""
        if self.error is None or self.file is None:
            return str(self.error or "")
        return f"{type(self.error).__name__}: not readable as table metadata"


def older_metadata(table: EncryptedTable, known: Iterable[str] = ()) -> Iterator[OlderMetadata]:
    """Yield every metadata file of a table that is there, but for the current one. One at a time: a caller need not hold them all.

    What the store raises, other than that a file is not there, is passed on. ConfigurationError: its FileIO cannot list.

    Args:
        table: the table.
        known: locations of files to pass over, with their logs: the caller has read them before.
    """
    metadata = table.metadata
    seen = {place_of(location) for location in (table.metadata_location, *known)}
    logged: deque[str] = deque()

    def follow_log(of: EncryptedTableMetadata) -> None:
        for entry in reversed(of.metadata_log):
            place = place_of(entry.metadata_file)
            if place not in seen:
                seen.add(place)
                logged.append(entry.metadata_file)

    def read(location: str, is_logged: bool) -> Iterator[OlderMetadata]:
        found = read_older(table, location)
        if found is None or (found.is_of_another and not is_logged):
            return
        if found.metadata is not None:
            follow_log(found.metadata)
        yield replace(found, is_logged=is_logged)

    def read_logged() -> Iterator[OlderMetadata]:
        while logged:
            yield from read(logged.popleft(), is_logged=True)

    follow_log(metadata)
    yield from read_logged()

    for location in _listed(table):
        place = place_of(location)
        if place not in seen:
            seen.add(place)
            yield from read(location, is_logged=False)
            yield from read_logged()


def read_older(table: EncryptedTable, location: str, is_given: bool = False) -> OlderMetadata | None:
    """Read one metadata file; None where there is none.

    Args:
        table: the table.
        location: of the file.
        is_given: whether the caller names the file, in whatever folder and by whatever name, and not other metadata.
    """
    io = table.io
    if is_given:
        check_reached(io.inner, location)
    try:
        file = (
            read_metadata_file(io.inner.new_input(location)) if is_given else read_named_metadata_file(io.inner, location, io.own_folders)
        )
    except FileNotFoundError:
        logger.debug("%s is gone", location)
        return None
    except FormatError as error:
        return OlderMetadata(location, error=error)

    try:
        metadata = file.parse()
    except (FormatError, ValueError) as error:
        return OlderMetadata(location, file, error=error)

    if metadata.table_uuid != table.metadata.table_uuid:
        return OlderMetadata(location, error=FormatError("it is the metadata of another table"), is_of_another=True)

    return OlderMetadata(location, file, metadata)


def _listed(table: EncryptedTable) -> list[str]:
    folders = {metadata_folder(table.metadata)}
    if (elsewhere := table.properties.get(TableProperties.WRITE_METADATA_PATH)) is not None:
        folders.add(elsewhere.rstrip("/"))
    inner = table.io.inner
    found = {file.location for folder in folders for file in stored_files(inner, folder) if file.location.endswith(TABLE_METADATA_SUFFIXES)}
    return sorted(found, key=lambda location: location.rpartition("/")[2], reverse=True)
