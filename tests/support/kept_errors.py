"""Every kind of tampering and of failing store, one after the other, by a caller who keeps each error: what such an error holds on to.

    python -m tests.support.kept_errors FOLDER      one JSON object for each error: what was done, its class, `views`, `keys`, and
                                                    whether it is an error of tablecrypt or of the store

An error keeps the frames of its traceback, and they their locals. `views` are memoryviews that are still open on a buffer that Python may
clear, as BytesIO's or io.BufferedReader's: some releases of CPython crash when the garbage collector meets one. `keys` are the frames that
have key bytes in a local, as they are or in the text that a tool for error reports makes of it.

The error is stored in the function that caught it, so that nothing but the garbage collector gets rid of the two. It runs after each.
"""

from __future__ import annotations

import base64
import gc
import io
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final

import pyarrow as pa
from pyiceberg.table import Table

from tablecrypt import orc, parquet
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import TablecryptError
from tablecrypt.files.ags1_streams import Ags1InputStream, Ags1OutputStream
from tablecrypt.hadoop_kms.server import BoundedReader
from tablecrypt.maintenance import audit, reencrypt, rewrap, verify
from tablecrypt.maintenance.reachable import reachable_files
from tablecrypt.manifests.entries import CACHE
from tablecrypt.parquet.storage import Sink
from tests.support.ags1_files import KEY, LOCATION, MIB, ags1_file, key_metadata, opened, pattern
from tests.support.misleading_kms import ANSWERS, MEMORY_CLASS, MisleadingKeyring
from tests.support.modular_files import CTR_MODES, GCM_MODES, encrypted, every_module, plain_file, sample_table
from tests.support.orc_files import encrypted as encrypted_orc
from tests.support.orc_files import local_keys, sample_rows
from tests.support.protected_tables import TABLE_KEY, clients, protected_table
from tests.support.tables import maintained_table, metadata_path, path_of, put_back

Act = Callable[[], object]
Reading = tuple[str, tuple[Path, bytes], tuple[str, ...]]
"""What was done, to which file, what is in it then, and the names of READERS."""
_HARMLESS: Final = (bytes, bytearray, pa.Buffer)
"""What the garbage collector does not clear."""
_THREADS_END: Final = 3.0
_SHORTEST_KEY: Final = 16

READERS: Final[dict[str, Callable[[Table], object]]] = {
    "to_arrow": lambda table: table.scan().to_arrow(),
    "stream": lambda table: table.scan().to_arrow_batch_reader().read_all(),
    "count": lambda table: table.scan("id > 1").count(),
    "inspect": lambda table: table.inspect.files(),
    "verify": lambda table: verify(table, workers=1),
    "audit": audit,
    "delete": lambda table: table.delete("id = 5"),
    "append": lambda table: table.append(table.schema().as_arrow().empty_table()),
    "rewrap": rewrap,
    "reencrypt": lambda table: reencrypt(table, workers=1),
}


def damaged(content: bytes, more: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """A file as somebody may leave it behind."""
    flips = [at for at in (0, 5, 9, 40, len(content) // 2, len(content) - 30, len(content) - 6, len(content) - 1) if 0 <= at < len(content)]
    return {
        **{f"a bit of byte {at} changed": content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in flips},
        "cut by a byte": content[:-1],
        "cut in half": content[: len(content) // 2],
        "grown by a byte": content + b"\0",
        "emptied": b"",
        **(more or {}),
    }


def on_tables(folder: Path) -> Iterator[tuple[str, Act]]:
    """Each file of two tables, and each of their keys."""
    both = clients(folder)
    plain = maintained_table(both.payroll, properties={"encryption.key-id": TABLE_KEY})
    protected = protected_table(both.payroll, appends=[pa.table({"id": range(40), "ssn": ["078-05-1120"] * 40, "note": ["n"] * 40})])
    for table in (plain, protected.refresh()):
        for name, replacement, readers in (*_damaged_files(table), *_changed_keys(table)):
            for reader in readers:
                yield f"{table.name()[-1]}: {name}: {reader}", partial(_read, folder, table, replacement, READERS[reader])


def _damaged_files(table: Table) -> Iterator[Reading]:
    """A file of each kind in every way; the first way is the one that every reader meets."""
    files = reachable_files(table.metadata, table.io).files.values()
    of_each_kind = {file.kind: file for file in files}
    for kind, file in of_each_kind.items():
        path = path_of(file.location)
        neighbours = [path_of(each.location).read_bytes() for each in files if each.kind == kind and each is not file]
        more = {"replaced by a neighbour": neighbours[0]} if neighbours else {}
        for number, (how, content) in enumerate(damaged(path.read_bytes(), more).items()):
            yield f"{kind}, {how}", (path, content), ("to_arrow",) if number else tuple(READERS)


def _changed_keys(table: Table) -> Iterator[Reading]:
    """A byte of each wrapped key changed in metadata.json."""
    path = metadata_path(table)
    document = json.loads(path.read_bytes())
    for number, key in enumerate(document["encryption-keys"]):
        stored = base64.b64decode(key["encrypted-key-metadata"])
        changed = base64.b64encode(stored[:-1] + bytes([stored[-1] ^ 1])).decode()
        keys = [{**each, "encrypted-key-metadata": changed} if each is key else each for each in document["encryption-keys"]]
        content = json.dumps({**document, "encryption-keys": keys}).encode()
        yield f"wrapped key {number}, changed", (path, content), tuple(READERS)


def _read(folder: Path, table: Table, replacement: tuple[Path, bytes], reader: Callable[[Table], object]) -> object:
    path, content = replacement
    with put_back(folder):
        path.write_bytes(content)
        # What an earlier reading left there would be returned, and the file not read.
        CACHE.start_empty()
        return reader(table.catalog.load_table(table.name()))


def on_key_services(folder: Path) -> Iterator[tuple[str, Act]]:
    """Each wrong answer to a request to unwrap."""
    lying = {"encryption.kms-type": "", "encryption.kms-impl": MEMORY_CLASS, "encryption.kms.cache-ttl-ms": "0"}
    catalog = clients(folder, lying).payroll
    table = protected_table(catalog, appends=[pa.table({"id": range(40), "ssn": ["078-05-1120"] * 40, "note": ["n"] * 40})])

    def answered(how: str) -> object:
        MisleadingKeyring.answer = ANSWERS[how]
        try:
            CACHE.start_empty()
            return catalog.load_table(table.name()).scan().to_arrow()
        finally:
            MisleadingKeyring.answer = None

    for how in ANSWERS:
        yield f"key service, {how}: to_arrow", partial(answered, how)


def on_parquet(folder: Path) -> Iterator[tuple[str, Act]]:
    """A file with and without tags on its pages, from a path, from bytes and from a file of Python's."""
    plain = plain_file(sample_table(), **every_module())
    path = folder / "file.parquet"
    for mode in (GCM_MODES[-1], CTR_MODES[1]):
        for how, content in damaged(encrypted(plain, mode.keys)).items():
            path.write_bytes(content)
            ways: dict[str, Act] = {
                "path": partial(parquet.read_table, path, mode.keys),
                "view": partial(parquet.read_table, memoryview(content), mode.keys),
                "file": partial(parquet.read_table, io.BytesIO(content), mode.keys),
                "buffered": partial(parquet.read_table, path.open("rb"), mode.keys),
                "decrypt": partial(parquet.decrypt, path, io.BytesIO(), mode.keys),
                "inspect": partial(parquet.inspect, path, mode.keys),
                "verify": partial(parquet.verify, path, mode.keys),
            }
            for way, act in ways.items():
                yield f"Parquet, {mode}, {how}: {way}", act


def on_orc(folder: Path) -> Iterator[tuple[str, Act]]:
    """An ORC file, in the same ways."""
    path = folder / "file.orc"
    for how, content in damaged(encrypted_orc(sample_rows(), {"pii": ["text", "home"]})).items():
        path.write_bytes(content)
        ways: dict[str, Act] = {
            "path": partial(orc.read_table, path, keys=local_keys()),
            "view": partial(orc.read_table, memoryview(content), keys=local_keys()),
            "file": partial(orc.read_table, io.BytesIO(content), keys=local_keys()),
            "no key": partial(orc.read_table, path, keys=local_keys("other")),
        }
        for way, act in ways.items():
            yield f"ORC, {how}: {way}", act


def on_ags1(_: Path) -> Iterator[tuple[str, Act]]:
    """An AGS1 file of three blocks, read as a stream in every way that Python has."""
    whole = ags1_file(pattern(2 * MIB + 100))

    def stream(content: bytes) -> Ags1InputStream:
        return Ags1InputStream(io.BytesIO(content), key_metadata(), LOCATION, len(content))

    def whole_of(content: bytes) -> object:
        return stream(content).read()

    def lent_to(content: bytes) -> object:
        return lend(stream(content).readinto)

    def through_arrow(content: bytes) -> object:
        return pa.PythonFile(stream(content), "r").read()

    def through_python(content: bytes) -> object:
        raw: Any = stream(content)
        return io.BufferedReader(raw, 3 * MIB).read(10)

    def opened_as(content: bytes, length: int) -> object:
        return opened(content, key_metadata(length)).read()

    def part_of(content: bytes) -> object:
        read = stream(content)
        read.seek(MIB - 10)
        return read.read(100)

    for how, content in damaged(whole).items():
        ways: dict[str, Act] = {
            "read": partial(whole_of, content),
            "part": partial(part_of, content),
            "readinto": partial(lent_to, content),
            "BufferedReader": partial(through_python, content),
            "pyarrow": partial(through_arrow, content),
            "length known": partial(opened_as, content, len(whole)),
        }
        for way, act in ways.items():
            yield f"AGS1, {how}: {way}", act


def lend(take: Callable[[memoryview], object]) -> object:
    """Give a view of a BytesIO that is closed at once: that fails as long as another view is open."""
    with io.BytesIO(pattern(3 * MIB)) as content, content.getbuffer() as view:
        return take(view)


class FullStore(io.RawIOBase):
    """Takes so many bytes and fails then."""

    def __init__(self, room: int, most: int) -> None:
        super().__init__()
        self._left = room
        self._most = most

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._left <= 0:
            raise OSError("no space left on the device")
        taken = min(len(data), self._most)
        self._left -= taken
        return taken


def on_writers(_: Path) -> Iterator[tuple[str, Act]]:
    """Writers whose store is full, given a view of a BytesIO that the caller closes at once, or Python's own buffer."""

    def through_python(raw: Any) -> None:
        with io.BufferedWriter(raw, 3 * MIB) as buffered:
            buffered.write(pattern(2 * MIB))

    wide = pa.table({"text": ["x" * 1000 + str(each) for each in range(3000)]})
    for room, most in product((0, MIB, 2 * MIB), (1000, MIB)):
        store: Callable[..., Any] = partial(FullStore, room, most)
        ways: dict[str, Act] = {
            "AGS1": partial(lend, Ags1OutputStream(store(), key_metadata()).write),
            "AGS1, buffered": partial(through_python, Ags1OutputStream(store(), key_metadata())),
            "sink": partial(lend, Sink(store()).write),
            "Parquet": partial(parquet.write_table, wide, store(), GCM_MODES[0].keys, compression="none", use_dictionary=False),
            "ORC": partial(orc.write_table, wide, store(), encrypt={"pii": ["text"]}, keys=local_keys(), compression="uncompressed"),
        }
        for way, act in ways.items():
            yield f"written, full after {room}, at most {most} at once: {way}", act


def on_sockets(_: Path) -> Iterator[tuple[str, Act]]:
    """A client of the key server that sends too much, or nothing in time."""

    def served(sent: bytes, max_bytes: int) -> object:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(sent)
            return io.BufferedReader(BoundedReader(ours, time.monotonic() + 0.1, max_bytes)).read(1000)

    yield "key server: too much", lambda: served(bytes(100), 50)
    yield "key server: too late", lambda: served(bytes(100), 500)


GROUPS: Final = (on_tables, on_key_services, on_parquet, on_orc, on_ags1, on_writers, on_sockets)


class Observer:
    """Looks at errors, with every key that was seen so far."""

    def __init__(self) -> None:
        self._keys: set[bytes] = {KEY}
        self._texts: set[str] = set()
        # What is there before is none of ours, and would have to be looked through each time.
        gc.freeze()

    def of(self, name: str, act: Act) -> dict[str, Any] | None:
        """Return what an error holds on to, None where nothing was raised. The error is kept, until the garbage collector comes."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - whatever is raised is kept
            failed = error
        else:
            return None
        self._learn()
        return {
            "name": name,
            "error": type(failed).__name__,
            "named": isinstance(failed, TablecryptError | OSError),
            "views": _kept_views(),
            "keys": sorted(self._frames_with_keys(failed)),
        }

    def _learn(self) -> None:
        """Every key that this process has in its memory: readers and writers have them in a Secret."""
        found = {each.reveal() for each in gc.get_objects() if type(each) is Secret}
        # Zeros, which a key service may answer, are in many places.
        self._keys |= {key for key in found if len(key) >= _SHORTEST_KEY and len(set(key)) > 1}
        self._texts = {spelling for key in self._keys for spelling in _spellings(key)}

    def _frames_with_keys(self, error: BaseException) -> set[str]:
        found = set()
        for each in _chain(error):
            for frame, line in walk_tb(each.__traceback__):
                if frame.f_code.co_filename == __file__:
                    continue
                found |= {
                    f"{Path(frame.f_code.co_filename).name}:{line} {frame.f_code.co_name}: {name}"
                    for name, value in list(frame.f_locals.items())
                    if self._is_in(value)
                }
        return found

    def _is_in(self, value: object) -> bool:
        raw = _raw(value)
        text = repr(value)
        return any(key in raw for key in self._keys) or any(spelling in text for spelling in self._texts)


def _spellings(key: bytes) -> tuple[str, ...]:
    return key.hex(), base64.b64encode(key).decode().rstrip("=")[:-1], repr(key)[2:-1]


def _raw(value: object) -> bytes:
    """The bytes of what is bytes, and those in a list, tuple or dict of such."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, memoryview):
        return value.tobytes() if _is_open(value) else b""
    if isinstance(value, list | tuple | set | frozenset):
        return b"|".join(_raw(each) for each in value)
    if isinstance(value, dict):
        return b"|".join(_raw(each) for each in value.values())
    return b""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and all that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__, *(each.exceptions if isinstance(each, BaseExceptionGroup) else ())]


def _kept_views() -> list[str]:
    """The open views that stay: those of a thread that still reads on go by themselves."""
    end = time.monotonic() + _THREADS_END
    while (views := _open_views()) and time.monotonic() < end:
        time.sleep(0.05)
    return views


def _open_views() -> list[str]:
    views = (each for each in gc.get_objects() if type(each) is memoryview and _is_open(each))
    return sorted({type(view.obj).__name__ for view in views if not isinstance(view.obj, _HARMLESS)})


def _is_open(view: memoryview) -> bool:
    try:
        view.nbytes  # noqa: B018 - raises once it is released
    except ValueError:
        return False
    return True


def main(folder: Path) -> None:
    """Run all, and print a line for each error."""
    observer = Observer()
    for group in GROUPS:
        own = folder / group.__name__
        own.mkdir()
        for name, act in group(own):
            seen = observer.of(name, act)
            gc.collect()
            if seen is not None:
                sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
