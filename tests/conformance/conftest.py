"""The installed kit and running adapters, which the tests of the kit share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from conformance.run import ADAPTERS, READERS, Reader, install, load_cases
from tests.support.plaintext_scan import unwatch


@pytest.fixture(scope="session")
def all_cases(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Those of the manifest, in a copy that readers of files and tablecrypt find wherever it is."""
    # The rows that are expected, and those that are to be written, are plaintext.
    folder = tmp_path_factory.mktemp("kit")
    unwatch(folder)
    return load_cases(install(folder / "kit"))


class Adapters:
    """Adapters by their names in READERS, each started when a test first asks for it, and stopped after the last test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[str, Reader] = {}

    def __getitem__(self, name: str) -> Reader:
        if name not in self._running:
            reader = Reader(ADAPTERS / READERS[name])
            self._stack.callback(reader.stop)
            self._running[name] = reader
        return self._running[name]

    def those(self, *names: str) -> list[Reader]:
        """Several."""
        return [self[name] for name in names]


@pytest.fixture(scope="session")
def adapters() -> Iterator[Adapters]:
    """Shared by all tests of this process: Iceberg Java and Trino take a quarter of a minute to start."""
    with ExitStack() as stack:
        yield Adapters(stack)
