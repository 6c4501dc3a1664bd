"""Errors of stores are one line that says what to do, however long the text of a store's library is."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.core.exceptions import AzureError, ClientAuthenticationError

from tablecrypt.external_errors import is_external, said_of


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ClientAuthenticationError("No token.\nAttempted credentials:\n\tEnvironmentCredential: unavailable."),
            "Azure's storage refused (No token): log in with az login, or set adls.* properties",
        ),
        (AzureError("The container is not there.\nRequestId: 1"), "Azure's storage refused (The container is not there)"),
    ],
)
def test_an_error_of_azures_storage_is_its_first_line(error: Exception, said: str) -> None:
    assert is_external(error)
    assert said_of(error) == said


def test_a_working_directory_that_was_deleted_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg looks for its configuration there, and its error names no file."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError) as refused:
        Path.cwd()
    assert said_of(refused.value) == "the working directory was deleted: change to another one (cd)"
    assert "config.json" in said_of(FileNotFoundError(2, "No such file or directory", "config.json"))
