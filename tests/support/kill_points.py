"""Killing a verb at any step of what it does to storage, catalog and KMS, the same step in every run.

    with dying_at(7): verb(table)        the seventh step does not happen, or half of it, and nothing after it: raises Killed

From then on every step of the dead verb raises, cleaning up included, so that storage and catalog are as kill -9 would leave them. A write
that is killed leaves its first half. Storage is counted where a catalog has the property py-io-impl = `MORTAL_IO`; a commit of a SQL
catalog counts as two steps, one before and one after it has landed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tablecrypt.kms.aws import AwsKeyManagementClient
from tablecrypt_catalog import EncryptedSqlCatalog

MORTAL_IO: Final = "tests.support.kill_points.MortalFileIO"


class Killed(BaseException):
    """The verb was killed here."""


@dataclass
class Life:
    """The steps of one run, of which the one numbered `last` (from 1) is its end."""

    last: int | None = None
    steps: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self, name: str) -> None:
        """Take a step, or die."""
        if self.is_end(name):
            raise Killed(name)

    def is_end(self, name: str) -> bool:
        """Count a step; whether it is the last one or comes after it."""
        with self.lock:
            self.steps.append(name)
            return self.last is not None and len(self.steps) >= self.last


_immortal = Life()
_life = [_immortal]


@contextmanager
def dying_at(last: int | None) -> Iterator[Life]:
    """Count steps, and die at one of them; None counts only."""
    life = Life(last)
    _life[0] = life
    try:
        yield life
    finally:
        _life[0] = _immortal


def mortal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make calls of the KMS and commits of SQL catalogs steps, too."""
    for verb in ("wrap_key", "unwrap_key", "rewrap_key"):
        monkeypatch.setattr(AwsKeyManagementClient, verb, _counted(verb, getattr(AwsKeyManagementClient, verb), after=False))
    for verb in ("_swap", "_insert"):
        monkeypatch.setattr(EncryptedSqlCatalog, verb, _counted(f"catalog {verb}", getattr(EncryptedSqlCatalog, verb), after=True))


def _counted(name: str, call: Callable[..., Any], after: bool) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        _life[0].step(name)
        result = call(*arguments, **named)
        if after:
            _life[0].step(f"after {name}")
        return result

    return counted


class MortalFileIO(PyArrowFileIO):
    """PyArrowFileIO whose every use is a step."""

    def new_input(self, location: str) -> PyArrowFile:
        _life[0].step(f"open {location}")
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        file = super().new_output(location)
        return file if _life[0] is _immortal else _MortalFile(file)  # type: ignore[return-value]

    def delete(self, location: str | InputFile | OutputFile) -> None:
        _life[0].step(f"delete {location}")
        super().delete(location)


class _MortalFile(OutputFile):
    def __init__(self, inner: PyArrowFile) -> None:
        super().__init__(inner.location)
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        return self._inner.exists()

    def to_input_file(self) -> InputFile:
        return self._inner.to_input_file()

    def create(self, overwrite: bool = False) -> Any:
        _life[0].step(f"create {self.location}")
        return _MortalStream(self._inner.create(overwrite=overwrite), self.location)


class _MortalStream:
    def __init__(self, inner: Any, location: str) -> None:
        self._inner = inner
        self._location = location

    def write(self, data: bytes) -> int:
        if _life[0].is_end(f"write {self._location}"):
            self._inner.write(bytes(data)[: len(data) // 2])
            self._inner.close()
            raise Killed(self._location)
        return int(self._inner.write(data))

    def tell(self) -> int:
        return int(self._inner.tell())

    def flush(self) -> None:
        self._inner.flush()

    @property
    def closed(self) -> bool:
        return bool(self._inner.closed)

    def close(self) -> None:
        if not self._inner.closed:
            self._inner.close()
        _life[0].step(f"close {self._location}")

    def __enter__(self) -> _MortalStream:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()
