"""Faults at any step of what an operation does to storage, catalog and KMS, the same step in every run.

    with dying_at(7): operation(table)            the seventh step does not happen, or half of it, and nothing after it: raises Killed
    with failing_at(7, "before"): ...             the seventh step does not happen and raises; all others happen
    with failing_at(7, "after"): ...              the seventh step happens, and raises all the same
    with calling_at(7, act): ...                  before the seventh step somebody else acts, whose steps are not counted
    with dying_at(7, for_good=True): ...          the process itself ends at the seventh step, by SIGKILL: for a forked child
    with dying_at(Place("catalog commit", 2)): ...   the second step of a kind, whatever is before it: threads that ask the key service at
                                                  once take one step more or less

From the step of `dying_at` on every step raises, cleaning up included, so that storage and catalog are as kill -9 would leave them. A write
that is killed leaves its first half. Storage and key service are counted where a catalog has the properties `MORTAL`, and the databases of
SQL catalogs within `mortal_databases`. A commit of such a database counts as two steps for a death, one before and one after it has landed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar, cast

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.fsspec import FsspecFileIO, FsspecInputFile, FsspecOutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from sqlalchemy import Result, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import ORMExecuteState, Session

from tablecrypt.errors import KmsError
from tablecrypt.kms.aws import AwsKeyManagementClient
from tablecrypt.kms.client import GeneratedKey
from tablecrypt.kms.memory import MemoryKeyManagementClient

MORTAL_IO: Final = "tests.support.kill_points.MortalFileIO"
MORTAL: Final = {"py-io-impl": MORTAL_IO, "encryption.kms-type": "", "encryption.kms-impl": "tests.support.kill_points.MortalKms"}
MORTAL_IN_MEMORY: Final = {**MORTAL, "encryption.kms-impl": "tests.support.kill_points.MortalMemoryKms", "encryption.kms.cache-ttl-ms": "0"}
"""With a key service that no request goes to: for tests of one master key. Nothing is remembered, so that every run asks for keys."""
_COMMIT: Final = "whether the commit's step is the one that goes wrong"
_LOST: Final = OperationalError("the connection was lost on purpose", None, RuntimeError())

When = Literal["before", "after"]
T = TypeVar("T")
_OF_A_FILE: Final = frozenset({"open", "create", "write", "close", "delete"})


def kind_of(step: str) -> str:
    """Return what kind of step one of this name is: the name, without the file that it is about."""
    kind = step.partition(" ")[0]
    return kind if kind in _OF_A_FILE else step


@dataclass(frozen=True)
class Place:
    """The step of a kind that has a number, counted from 1 among those of its kind."""

    kind: str
    number: int


class Killed(BaseException):
    """The operation was killed here."""


@dataclass
class Life:
    """The steps of one run, of which `last` (numbered from 1, or at a place) goes wrong, or is its end. `came`: whether it was reached."""

    last: int | Place | None = None
    fails: When | None = None
    calls: Callable[[], object] | None = None
    for_good: bool = False
    steps: list[str] = field(default_factory=list)
    came: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self, name: str) -> None:
        """Take a step that has no effect of its own, or die, or fail."""
        self.take(name, lambda: None, OSError(f"{name}: failed on purpose"))

    def take(self, name: str, call: Callable[[], T], failure: Exception, half: Callable[[], object] = lambda: None) -> T:
        """Do what a step does, or what the fault leaves of it.

        Args:
            name: what the step is called in a list of steps.
            call: does it.
            failure: what a step that fails raises.
            half: does what a step that is killed may still have done.
        """
        is_last = self.begin(name, failure, half)
        result = call()
        self.end(is_last, failure)
        return result

    def begin(self, name: str, failure: Exception, half: Callable[[], object] = lambda: None) -> bool:
        """Count a step, or die, or fail, before it has taken effect. Returns whether it is the one that goes wrong."""
        is_last, is_over = self._count(name)
        if self.calls is not None:
            if is_last:
                with _living(_immortal):
                    self.calls()
            return False
        if self.fails is None and is_over:
            half()
            self._die(name)
        if is_last and self.fails == "before":
            raise failure
        return is_last

    def end(self, is_last: bool, failure: Exception) -> None:
        """Fail, if this step is to fail after it has taken effect."""
        if is_last and self.fails == "after":
            raise failure

    def _count(self, name: str) -> tuple[bool, bool]:
        """Count a step; whether it is the last one, and whether that one has come."""
        with self.lock:
            self.steps.append(name)
            is_last = self._number(name) == (self.last.number if isinstance(self.last, Place) else self.last)
            self.came = self.came or is_last
            return is_last, self.came

    def _number(self, name: str) -> int:
        """The number of the step that was counted last; 0 where it is not of the kind that numbers are about."""
        if not isinstance(self.last, Place):
            return len(self.steps)
        kind = self.last.kind
        return sum(kind_of(step) == kind for step in self.steps) if kind_of(name) == kind else 0

    def _die(self, name: str) -> None:
        if self.for_good:
            os.kill(os.getpid(), signal.SIGKILL)
        raise Killed(name)


_immortal = Life()
_life = [_immortal]


@contextmanager
def _living(life: Life) -> Iterator[Life]:
    before, _life[0] = _life[0], life
    try:
        yield life
    finally:
        _life[0] = before


@contextmanager
def dying_at(last: int | Place | None, for_good: bool = False) -> Iterator[Life]:
    """Count steps, and die at one of them; None counts only. `for_good` ends the process."""
    with _living(Life(last, for_good=for_good)) as life:
        yield life


@contextmanager
def failing_at(last: int | Place, when: When) -> Iterator[Life]:
    """Let one step raise an error: before it has taken effect, or after."""
    with _living(Life(last, fails=when)) as life:
        yield life


@contextmanager
def calling_at(last: int | Place, act: Callable[[], object]) -> Iterator[Life]:
    """Let somebody else act before one step. Not within `mortal_databases`: a step may be in the midst of a transaction."""
    with _living(Life(last, calls=act)) as life:
        yield life


@contextmanager
def mortal_databases() -> Iterator[None]:
    """Make each query and commit of SQLAlchemy's sessions in this block a step."""
    listeners = (("do_orm_execute", _on_query), ("before_commit", _before_commit), ("after_commit", _after_commit))
    for name, listener in listeners:
        event.listen(Session, name, listener)
    try:
        yield
    finally:
        for name, listener in listeners:
            event.remove(Session, name, listener)


def _on_query(state: ORMExecuteState) -> Result[Any]:
    def answer() -> Result[Any]:
        result = state.invoke_statement()
        # Read at once: an answer that is lost unread locks SQLite's database for as long as somebody keeps the error.
        return result.freeze()() if state.is_select else result

    return _life[0].take("catalog query", answer, _LOST)


def _before_commit(session: Session) -> None:
    session.info[_COMMIT] = _life[0].begin("catalog commit", _LOST)


def _after_commit(session: Session) -> None:
    life = _life[0]
    life.end(session.info.pop(_COMMIT), _LOST)
    if life.fails is None:
        life.step("after catalog commit")


class MortalKms(AwsKeyManagementClient):
    """AWS KMS each of whose calls is a step."""

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        return _of_kms("wrap_key", lambda: AwsKeyManagementClient.wrap_key(self, key, wrapping_key_id))

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        return _of_kms("unwrap_key", lambda: AwsKeyManagementClient.unwrap_key(self, wrapped_key, wrapping_key_id))

    def rewrap_key(self, wrapped_key: bytes, wrapping_key_id: str, from_key_id: str) -> bytes:
        return _of_kms("rewrap_key", lambda: AwsKeyManagementClient.rewrap_key(self, wrapped_key, wrapping_key_id, from_key_id))

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        return _of_kms("generate_key", lambda: AwsKeyManagementClient.generate_key(self, wrapping_key_id, length))


class MortalMemoryKms(MemoryKeyManagementClient):
    """A keyring of this process with one key, each of whose calls is a step."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__({"kms.memory.name": "mortal"}, {"alias/orders": bytes(range(32))})

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        return _of_kms("wrap_key", lambda: MemoryKeyManagementClient.wrap_key(self, key, wrapping_key_id))

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        return _of_kms("unwrap_key", lambda: MemoryKeyManagementClient.unwrap_key(self, wrapped_key, wrapping_key_id))


def _of_kms(name: str, call: Callable[[], T]) -> T:
    return _life[0].take(f"kms {name}", call, KmsError(f"{name}: failed on purpose"))


class MortalFileIO(PyArrowFileIO):
    """PyArrowFileIO whose every use is a step."""

    def new_input(self, location: str) -> PyArrowFile:
        _life[0].step(f"open {location}")
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        return _mortal(super().new_output(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        _deleted(location, lambda: PyArrowFileIO.delete(self, location))


class MortalFsspecFileIO(FsspecFileIO):
    """FsspecFileIO whose every use is a step."""

    def new_input(self, location: str) -> FsspecInputFile:
        _life[0].step(f"open {location}")
        return super().new_input(location)

    def new_output(self, location: str) -> FsspecOutputFile:
        return _mortal(super().new_output(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        _deleted(location, lambda: FsspecFileIO.delete(self, location))


def _deleted(location: str | InputFile | OutputFile, delete: Callable[[], None]) -> None:
    name = f"delete {location}"
    _life[0].take(name, delete, OSError(f"{name}: failed on purpose"))


def _mortal(file: T) -> T:
    return file if _life[0] is _immortal else cast("T", _MortalFile(cast("OutputFile", file)))


class _MortalFile(OutputFile):
    def __init__(self, inner: OutputFile) -> None:
        super().__init__(inner.location)
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        return self._inner.exists()

    def to_input_file(self) -> InputFile:
        return self._inner.to_input_file()

    def create(self, overwrite: bool = False) -> Any:
        name = f"create {self.location}"
        stream = _life[0].take(name, lambda: self._inner.create(overwrite=overwrite), OSError(f"{name}: failed on purpose"))
        return _MortalStream(stream, self.location)


class _MortalStream:
    def __init__(self, inner: Any, location: str) -> None:
        self._inner = inner
        self._location = location

    def write(self, data: bytes) -> int:
        name = f"write {self._location}"
        return _life[0].take(name, lambda: int(self._inner.write(data)), OSError(f"{name}: failed on purpose"), lambda: self._half(data))

    def _half(self, data: bytes) -> None:
        if not self._inner.closed:
            self._inner.write(bytes(data)[: len(data) // 2])
            self._inner.close()

    def tell(self) -> int:
        return int(self._inner.tell())

    def flush(self) -> None:
        self._inner.flush()

    @property
    def closed(self) -> bool:
        return bool(self._inner.closed)

    def close(self) -> None:
        if not self._inner.closed:
            name = f"close {self._location}"
            _life[0].take(name, self._inner.close, OSError(f"{name}: failed on purpose"), self._inner.close)

    def __enter__(self) -> _MortalStream:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()
