"""Locations that no store can have are refused before a library is asked, in one line that says what to write."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.stores import check_location, check_reached, file_io_for

BUCKET = "gs://lake/metadata/v1.metadata.json"


@pytest.fixture
def no_google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that is none of Google's, and on which nobody has logged in."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUD_STORAGE_EMULATOR_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("GCE_METADATA_ROOT", f"127.0.0.1:{port}")
    return tmp_path


@pytest.mark.parametrize(
    "location",
    [
        "foo://x/metadata.json",
        "foo:bar",
        "http://host/v1.metadata.json",
        "/x/\0.json",
        "s3://b/\0",
        "s3://[b/x",
        "s3://",
        "s3:///x",
        "gs:x",
    ],
)
def test_a_location_that_no_store_can_have_is_refused_in_one_line(location: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        file_io_for({}, location)

    assert "\n" not in str(refused.value) and "\0" not in str(refused.value)


@pytest.mark.parametrize("location", ["/x/v1.json", "x/v1.json", "file:///x/v1.json", "s3://b/x", "S3A://b/x", "hdfs://host/x"])
def test_other_locations_have_their_file_io(location: str) -> None:
    assert isinstance(file_io_for({}, location), PyArrowFileIO)


def test_a_class_of_the_users_own_may_know_other_schemes() -> None:
    check_location({"py-io-impl": "package.module.Class"}, "foo://x/v1.json")


def test_arrow_is_not_asked_for_azures_storage_whose_account_nobody_names() -> None:
    location = "abfss://lake@account.dfs.core.windows.net/x"
    with pytest.raises(ConfigurationError, match=r"set adls\.account-name$"):
        check_reached(PyArrowFileIO(), location)

    check_reached(PyArrowFileIO({"adls.account-name": "account"}), location)
    check_reached(file_io_for({}, location), location)


def test_a_bucket_of_google_without_credentials_is_refused_at_once(no_google: Path) -> None:
    with pytest.raises(ConfigurationError, match="no credentials for Google Cloud Storage: set GOOGLE_APPLICATION_CREDENTIALS or gcs"):
        check_location({}, BUCKET)


@pytest.mark.parametrize("properties", [{"gcs.oauth2.token": "t"}, {"gcs.service.host": "http://localhost"}])
def test_a_bucket_of_google_with_a_token_or_another_server_is_taken(no_google: Path, properties: dict[str, str]) -> None:
    check_location(properties, BUCKET)


def test_googles_credentials_are_found_where_its_library_looks(no_google: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login = no_google / ".config" / "gcloud" / "application_default_credentials.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    check_location({}, BUCKET)

    login.unlink()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/key.json")
    check_location({}, BUCKET)

    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    with socket.create_server(("127.0.0.1", 0)) as metadata_server:
        monkeypatch.setenv("GCE_METADATA_ROOT", f"127.0.0.1:{metadata_server.getsockname()[1]}")
        check_location({}, BUCKET)
