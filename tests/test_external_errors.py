"""Errors of stores are one line that says what to do, however long the text of a store's library is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.core.exceptions import AzureError, ClientAuthenticationError
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DatabaseError

from tablecrypt.external_errors import is_external, said_of


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ClientAuthenticationError("No token.\nAttempted credentials:\n\tEnvironmentCredential: unavailable."),
            "Azure's storage refused (No token): log in with az login, or set adls.* properties",
        ),
        (
            RuntimeError("can't start new thread"),
            "the process may start no more threads: raise its limits (ulimit -v, ulimit -u), or give --workers 1 where a command has it",
        ),
        (
            MemoryError(),
            "the process has no memory left: raise its limits (ulimit -v, ulimit -u), or give --workers 1 where a command has it",
        ),
        (AzureError("The container is not there.\nRequestId: 1"), "Azure's storage refused (The container is not there)"),
    ],
)
def test_an_error_of_a_store_or_of_the_machine_is_one_line(error: Exception, said: str) -> None:
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


def locked(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("BEGIN EXCLUSIVE")
    try:
        write(path)
    finally:
        other.close()


def full(path: Path) -> None:
    write(path, "PRAGMA max_page_count = 1")


def read_only(path: Path) -> None:
    write(path, "PRAGMA query_only = on")


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 4000)
    write(path)


def foreign(path: Path) -> None:
    path.write_bytes(b"no database" * 100)
    write(path)


def write(path: Path, before: str = "PRAGMA user_version") -> None:
    with create_engine(f"sqlite:///{path}", connect_args={"timeout": 0}).begin() as connection:
        connection.execute(text(before))
        connection.execute(text("CREATE TABLE more (value text)"))


@pytest.mark.parametrize(
    ("trouble", "advice"),
    [
        (locked, "another process writes to it: try again"),
        (full, "free some space, and try again"),
        (read_only, "it cannot be written to: check the rights of its file and folder"),
        (damaged, "its file is damaged: restore it from a copy"),
        (foreign, "its file is damaged or another: check the catalog's uri, or restore it from a copy"),
    ],
)
def test_what_a_database_refuses_comes_with_what_helps(tmp_path: Path, trouble: Callable[[Path], None], advice: str) -> None:
    path = tmp_path / "catalog.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE first (value text)")
    connection.close()

    with pytest.raises(DatabaseError) as refused:
        trouble(path)

    assert is_external(refused.value)
    said = said_of(refused.value)
    assert said.startswith("the catalog's database refused (") and said.endswith(f"): {advice}")
    assert "\n" not in said and "sqlalche.me" not in said
