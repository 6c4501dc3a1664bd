"""The store of a location that a user or a catalog names: what cannot be one is refused before a library is asked.

    s3://bucket/x, gs://…, file:///x, /x      a FileIO of PyIceberg's, or the class that py-io-impl names
    foo://x                                   no FileIO knows it: ConfigurationError
    s3://, s3:///x                            no bucket: ConfigurationError
    gs://… without credentials                Google's library would ask for them for minutes: ConfigurationError
    abfss://… without adls.account-name       Arrow's FileIO needs it, where a table has that already: ConfigurationError

What a file of that location holds, and whether it is there, its reader finds out.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyiceberg.io import ADLS_ACCOUNT_NAME, PY_IO_IMPL, SCHEMA_TO_FILE_IO, FileIO, load_file_io

from tablecrypt.arguments import check_text
from tablecrypt.errors import ConfigurationError
from tablecrypt.properties import GCS_OAUTH2_TOKEN

_GOOGLE: Final = ("gs", "gcs")
_AZURE: Final = ("abfs", "abfss", "wasb", "wasbs")
_SCHEMES: Final = frozenset({*SCHEMA_TO_FILE_IO, *_GOOGLE})
_WITHOUT_BUCKETS: Final = frozenset({"file", "hdfs", "viewfs"})
_GCS_HOST: Final = "gcs.service.host"
_LOGIN: Final = Path("gcloud", "application_default_credentials.json")
_METADATA_SERVER: Final = "metadata.google.internal"
_ANSWERS_WITHIN_SECONDS: Final = 3


def file_io_for(properties: Mapping[str, Any], location: str) -> FileIO:
    """Return the FileIO of a location.

    Args:
        properties: the client's own.
        location: of a file.

    Raises:
        ConfigurationError: as `check_location`.
    """
    check_location(properties, location)
    return load_file_io(dict(properties), location)


def check_location(properties: Mapping[str, Any], location: str) -> None:
    """Refuse a location of which no file can be read.

    Args:
        properties: of its FileIO.
        location: of a file.

    Raises:
        ConfigurationError: it holds a NUL or what UTF-8 cannot, has a scheme that no FileIO knows or no bucket, or is Google's and there
            are no credentials.
    """
    check_text("a location", location)
    if "\0" in location:
        raise ConfigurationError(f"{location!r} holds a NUL, which no location can have")
    try:
        scheme, authority = urlsplit(location)[:2]
    except ValueError:
        raise ConfigurationError(f"{location!r} cannot be read as a location: write a path, or a URI without brackets") from None
    # A class of the user's own may know other schemes, and finds credentials elsewhere.
    if not scheme or properties.get(PY_IO_IMPL):
        return

    if scheme not in _SCHEMES:
        known = ", ".join(sorted(_SCHEMES))
        raise ConfigurationError(f"{location}: no FileIO knows the scheme {scheme!r}: write a path, or one of {known}")
    if scheme not in _WITHOUT_BUCKETS and not authority:
        raise ConfigurationError(f"{location} names no bucket: write {scheme}://bucket/path")

    is_configured = bool(properties.get(GCS_OAUTH2_TOKEN.name) or properties.get(_GCS_HOST))
    if scheme in _GOOGLE and not (is_configured or _has_google_credentials()):
        raise ConfigurationError(
            f"{location}: there are no credentials for Google Cloud Storage: set GOOGLE_APPLICATION_CREDENTIALS or "
            f"{GCS_OAUTH2_TOKEN.name}, or run gcloud auth application-default login"
        )


def check_reached(io: FileIO, location: str) -> None:
    """Refuse a location that a FileIO, which was made for others, does not reach.

    Args:
        io: the store's own.
        location: of a file.

    Raises:
        ConfigurationError: as `check_location`; or Arrow has to open Azure's storage, and does not know the account.
    """
    check_location(io.properties, location)
    # Arrow takes the account from the properties alone, and not from the location.
    if urlsplit(location).scheme in _AZURE and _is_arrows(io) and not io.properties.get(ADLS_ACCOUNT_NAME):
        raise ConfigurationError(f"{location}: the account of Azure's storage is not known: set {ADLS_ACCOUNT_NAME}")


def _is_arrows(io: FileIO) -> bool:
    # By its name: the import of Arrow's FileIO takes longer than all that most commands do.
    return any(each.__name__ == "PyArrowFileIO" for each in type(io).__mro__)


def _has_google_credentials() -> bool:
    """Whether Application Default Credentials may be found, where Google's library looks for them."""
    if any(os.environ.get(name) for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUD_STORAGE_EMULATOR_ENDPOINT")):
        return True
    home = Path(os.environ.get("HOME") or "/")
    return (home / ".config" / _LOGIN).is_file() or _answers(os.environ.get("GCE_METADATA_ROOT") or _METADATA_SERVER)


@cache
def _answers(host: str) -> bool:
    """Whether the server that gives a machine of Google's its credentials is there; asked once in a process."""
    name, _, port = host.partition(":")
    try:
        with socket.create_connection((name, int(port or 80)), _ANSWERS_WITHIN_SECONDS):
            return True
    except (OSError, ValueError):
        return False
