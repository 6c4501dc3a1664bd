"""A pytest plugin: after the last test, every file of every encrypted table that the run wrote must be ciphertext.

Inspected at are
- every folder and bucket prefix given to `watch`, such as each `warehouse`;
- every table with the property encryption.key-id, wherever below pytest's temporary folder or in a watched S3 service its metadata lies;
except what was given to `unwatch`: tests that tamper with tables, or write plaintext on purpose, use `unwatched_warehouse`.

The scan runs in the teardown of the last test, while every server is still up, and is an error there. Under pytest-xdist each worker
scans what it wrote. A run that stops early has failed already and is not scanned.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tests.support.plaintext import FolderStore, PlaintextFinding, S3Store, Store, encrypted_table_root, findings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

SHOWN: Final = 20
_WORKER_KEY: Final = "plaintext_scan"


class PlaintextFoundError(AssertionError):
    """Some file under an encrypted table is not ciphertext."""


@dataclass
class ScanResult:
    """What one process looked at."""

    files: int = 0
    tables: int = 0
    found: list[PlaintextFinding] = field(default_factory=list)

    def message(self) -> str:
        """The findings, one a line, the first few of them."""
        more = len(self.found) - SHOWN
        lines = [f"{len(self.found)} times plaintext under encrypted tables:", *(f"  {finding}" for finding in self.found[:SHOWN])]
        return "\n".join([*lines, f"  and {more} more"] if more > 0 else lines)


class Registry:
    """What is watched, and what is not. Prefixes are absolute paths or s3://bucket/path, without a trailing slash."""

    def __init__(self) -> None:
        self._folders: set[Path] = set()
        self._watched: set[str] = set()
        self._unwatched: set[str] = set()
        self._s3: list[S3Client] = []

    def search_tables_in(self, place: Path | S3Client) -> None:
        """Look for encrypted tables below this folder, or in every bucket of this service."""
        if isinstance(place, Path):
            self._folders.add(place)
        else:
            self._s3.append(place)

    def watch(self, location: Path | str) -> None:
        """Scan every file below, whether it is of a table or not."""
        if isinstance(location, Path):
            self._folders.add(location)
        self._watched.add(_prefix(location))

    def unwatch(self, location: Path | str) -> None:
        """Scan nothing below."""
        self._unwatched.add(_prefix(location))

    def leave(self) -> None:
        """Search none of the folders and services any more: a process that runs tests once more has others then."""
        self._folders.clear()
        self._s3.clear()

    def scan(self) -> ScanResult:
        """Read everything that is watched."""
        result = ScanResult()
        stores: list[Store] = [FolderStore(*self._folders), *(S3Store(client) for client in self._s3)]
        for store in stores:
            self._scan_store(store, result)
        return result

    def _scan_store(self, store: Store, result: ScanResult) -> None:
        locations = [location for location in sorted(set(store.locations())) if not _is_below(location, self._unwatched)]
        tables = set(_encrypted_tables(store, locations))
        result.tables += len(tables)
        for location in locations:
            if not _is_below(location, tables | self._watched):
                continue
            result.files += 1
            result.found.extend(findings(location, store.read(location)))


def _encrypted_tables(store: Store, locations: list[str]) -> Iterator[str]:
    for location in locations:
        if not location.endswith(TABLE_METADATA_SUFFIXES):
            continue
        root = encrypted_table_root(location, store.read(location))
        if root is not None:
            yield root


def _prefix(location: Path | str) -> str:
    return str(location).removeprefix("file://").rstrip("/")


def _is_below(location: str, prefixes: set[str]) -> bool:
    """Whether one of the folders above the location is among the prefixes."""
    return any(location[:end] in prefixes for end, character in enumerate(location) if character == "/")


_registry: Final = Registry()
watch = _registry.watch
unwatch = _registry.unwatch


@pytest.fixture(scope="session", autouse=True)
def plaintext_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """What this process watches. A fixture that starts an S3 service tells it to search there."""
    _registry.search_tables_in(tmp_path_factory.getbasetemp())
    yield _registry
    _registry.leave()


@pytest.fixture
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh folder in which every file, of a table or not, must be ciphertext when the run ends."""
    folder = tmp_path_factory.mktemp("warehouse")
    watch(folder)
    return folder


@pytest.fixture
def unwatched_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh folder that the scan leaves out: for tests that tamper, and for tables that are meant to be plaintext."""
    folder = tmp_path_factory.mktemp("unwatched")
    unwatch(folder)
    return folder


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    # Before the yield, since the session's fixtures, and with them the servers, end in it.
    result = _registry.scan() if nextitem is None else None
    yield
    if result is None:
        return
    _results(item.config).append((result.files, result.tables))
    if result.found:
        raise PlaintextFoundError(result.message())


def _results(config: pytest.Config) -> list[tuple[int, int]]:
    """Files and tables looked at: by the workers where there are some, else by this process. A worker sends its list when it ends."""
    output: dict[str, list[tuple[int, int]]] | None = getattr(config, "workeroutput", None)
    if output is None:
        return config.stash.setdefault(_RESULTS, [])
    return output.setdefault(_WORKER_KEY, [])


_RESULTS: Final = pytest.StashKey[list[tuple[int, int]]]()


# An optional hook of pytest-xdist: the worker's node is its own type, known only where xdist is installed.
@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    config: pytest.Config = getattr(node, "config")  # noqa: B009
    output: dict[str, list[tuple[int, int]]] = getattr(node, "workeroutput", None) or {}
    _results(config).extend(output.get(_WORKER_KEY, []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    results = _results(config)
    if results:
        files, tables = (sum(column) for column in zip(*results, strict=True))
        terminalreporter.write_line(f"plaintext scan: {files} files looked at, {tables} encrypted tables among them")
