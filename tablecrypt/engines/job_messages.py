"""The bytes inside the encrypted messages of a job: positions of rows, and a runner's works with their results.

Rows of data files, by file and position:

    positions = count, 4 bytes LE | entry | entry | …
    entry     = task, 8 bytes LE | file, 4 bytes LE | length of the bitmap, 8 bytes LE | bitmap

A file is named by the scan task list that it is in and its index there; the bitmap is a portable 64-bit Roaring bitmap of positions from 0.

Work items of a runner, and their results:

    message = number of items, 4 bytes LE | item | item | …
    item    = index of the work, 8 bytes LE | kind, 1 byte: 0 a value, 1 an error | pickle | number of keys, 4 bytes LE | key | key | …
    pickle  = length, 8 bytes LE | a value without keys, or an error of tablecrypt.errors
    key     = length, 4 bytes LE | StandardKeyMetadata

The bytes hold DEKs in the clear. A driver that opens what an executor sent takes plain values, and of classes only those that hold values:
dataclasses, enums and errors of this package and of the function's own, which the driver has imported, and dates, decimals and uuids. So
nothing in a result is called that could do anything on the driver, nothing is imported, and nothing that the driver had before is changed:
neither a class nor a member of an enum. A pickle that asks for more memory than it has bytes is refused before it is opened, and so is one
that hashes far more than it has bytes: of 60 tuples, each of which has the next one twice, the hash would take years.

Raises FormatError for bytes that are not such a message, and for a class that is not taken.
"""

from __future__ import annotations

import datetime as dt
import io
import pickle
import pickletools
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from typing import Any, ClassVar, Final, TypeAlias, get_args, get_type_hints
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pyroaring import BitMap64

from tablecrypt._bytes import ByteReader, frame
from tablecrypt._parsed_json import problem_of
from tablecrypt.arguments import described
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, TablecryptError

FileNumber: TypeAlias = tuple[int, int]
"""The scan task list, and the index in it."""
FilePositions: TypeAlias = Mapping[FileNumber, BitMap64]

_COUNT: Final = struct.Struct("<I")
_FILE_NUMBER: Final = struct.Struct("<QI")
_ITEM: Final = struct.Struct("<QB")
_KEY_LENGTH_SIZE: Final = 4
_VALUE: Final = 0
_ERROR: Final = 1
_REMEMBERING: Final = ("PUT", "BINPUT", "LONG_BINPUT")
_VALUE_CLASSES: Final = {
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "uuid": {"UUID", "SafeUUID"},
}


def bitmap_of(positions: Iterable[pa.Array]) -> BitMap64:
    """Return the positions of int64 arrays without nulls."""
    bitmap = BitMap64()
    for each in positions:
        bitmap |= BitMap64(each.to_pylist())
    return bitmap


def positions_by_file(task: pa.Array, index: pa.Array, position: pa.Array) -> dict[FileNumber, BitMap64]:
    """Group positions by the file that they are in; rows where `task` is null are in none."""
    rows = pa.table({"task": task, "index": index, "position": position}).filter(pc.is_valid(task))
    grouped = rows.group_by(["task", "index"]).aggregate([("position", "list")]).to_pylist()
    return {(row["task"], row["index"]): BitMap64(row["position_list"]) for row in grouped}


def merge_positions(into: dict[FileNumber, BitMap64], others: FilePositions) -> bool:
    """Add positions, and return whether all of them were new."""
    disjoint = True
    for number, bitmap in others.items():
        known = into.get(number)
        if known is None:
            into[number] = bitmap
            continue
        disjoint = disjoint and not known.intersect(bitmap)
        into[number] = known | bitmap

    return disjoint


def encode_positions(positions: FilePositions) -> bytes:
    """Encode positions."""
    content = bytearray(_COUNT.pack(len(positions)))
    for (task, index), bitmap in positions.items():
        content += _FILE_NUMBER.pack(task, index) + frame(bitmap.serialize())
    return bytes(content)


def decode_positions(content: bytes) -> dict[FileNumber, BitMap64]:
    """Decode positions."""
    reader = ByteReader(content, "a list of row positions")
    positions: dict[FileNumber, BitMap64] = {}
    (count,) = reader.unpack(_COUNT)

    for _ in range(count):
        task, index = reader.unpack(_FILE_NUMBER)
        try:
            positions[task, index] = BitMap64.deserialize(reader.frame())
        except (ValueError, IndexError, OverflowError) as error:
            raise FormatError(f"row positions cannot be decoded: {type(error).__name__}") from error

    reader.check_exhausted()

    return positions


@dataclass(frozen=True)
class WorkItem:
    """A work item, or its outcome: a value, or the error that the function raised."""

    index: int
    value: Any
    keys: tuple[StandardKeyMetadata, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the value is an error."""
        return isinstance(self.value, TablecryptError)


def encode_items(items: Iterable[WorkItem]) -> bytes:
    """Encode works or results."""
    listed = list(items)
    content = bytearray(_COUNT.pack(len(listed)))
    for item in listed:
        content += _ITEM.pack(item.index, _ERROR if item.failed else _VALUE) + frame(pickle.dumps(item.value)) + _COUNT.pack(len(item.keys))
        for key in item.keys:
            content += frame(key.encode(), _KEY_LENGTH_SIZE)

    return bytes(content)


def decode_items(content: bytes, packages: frozenset[str] | None) -> list[WorkItem]:
    """Decode works or results.

    Args:
        content: the bytes.
        packages: names of packages whose value classes are taken; None for bytes that the driver made, of which every class is taken.
    """
    try:
        return _decode(content, packages)
    # Bytes that an executor forged can make the unpickler raise any of these.
    except (
        pickle.UnpicklingError,
        ArithmeticError,
        AttributeError,
        EOFError,
        ImportError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise FormatError(f"{len(content)} bytes of work items cannot be decoded: {error}") from error


def value_type_of(function: Callable[..., Any]) -> Any:
    """Return what a runner's function says that it returns as the value of an item: X of `-> FileDone[X]`; Any where it does not say."""
    while isinstance(function, partial):
        function = function.func
    try:
        declared = get_type_hints(function).get("return")
    # Somebody else's function, whose types are known to a type checker alone.
    except (AttributeError, NameError, TypeError):
        return Any
    return next(iter(get_args(declared)), Any)


def check_items(items: Sequence[WorkItem], asked: Collection[int], value_type: Any) -> None:
    """Check that the results of a task are those of its works, each once; behind the error of one, others may be missing.

    Args:
        items: the results, in their order.
        asked: the indexes of the task's works.
        value_type: what the values are, down to the fields of dataclasses.

    Raises:
        FormatError: results of other works, several of one, too few, or of other types. A caller would take them for what became of other
            files, or fail somewhere on the way.
    """
    found = [item.index for item in items]
    is_cut_short = bool(items) and items[-1].failed
    if len(set(found)) != len(found) or not set(found) <= set(asked) or (len(found) < len(asked) and not is_cut_short):
        raise FormatError(f"a task was asked for {len(asked)} results and sent {len(found)}, which are not one of each of its works")

    adapter = _adapter_of(value_type)
    for item in items:
        try:
            _ = item.failed or adapter.validate_python((item.value,))
        # Unpickling calls no constructor, so a dataclass may lack fields.
        except (ValidationError, AttributeError, RecursionError) as error:
            raise FormatError(f"a task sent a result that is not what its work returns: {problem_of(error)}") from None


@cache
def _adapter_of(value_type: Any) -> TypeAdapter[Any]:
    # In a tuple: alone, a dataclass takes no configuration.
    return TypeAdapter(tuple[value_type], config=ConfigDict(strict=True, revalidate_instances="always", arbitrary_types_allowed=True))


def _decode(content: bytes, packages: frozenset[str] | None) -> list[WorkItem]:
    reader = ByteReader(content, "a list of work items")
    (count,) = reader.unpack(_COUNT)
    items: list[WorkItem] = []

    for _ in range(count):
        index, kind = reader.unpack(_ITEM)
        pickled = reader.frame()
        value = pickle.loads(pickled) if packages is None else _value_of(pickled, packages)
        if (kind == _ERROR) != isinstance(value, TablecryptError):
            raise FormatError(f"work item {index} says kind {kind} of a {type(value).__name__}")

        (key_count,) = reader.unpack(_COUNT)
        keys = tuple(StandardKeyMetadata.decode(reader.frame(_KEY_LENGTH_SIZE)) for _ in range(key_count))
        items.append(WorkItem(index, value, keys))

    reader.check_exhausted()

    return items


def _value_of(pickled: bytes, packages: frozenset[str]) -> Any:
    _refuse_claims(pickled)
    return _ValueUnpickler(pickled, packages).load()


def _refuse_claims(pickled: bytes) -> None:
    """Refuse a pickle that names a length or a number beyond its own bytes: the unpickler makes room for either before it looks further.

    Raises:
        FormatError: it remembers a value under a number that it cannot have counted up to.
        ValueError: a length goes beyond its end, or it is no pickle.
    """
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name in _REMEMBERING and argument is not None and argument > len(pickled):
            raise FormatError(f"an executor's result of {len(pickled)} bytes remembers a value under number {argument}")


def _holds_values(found: type) -> bool:
    return is_dataclass(found) or issubclass(found, (Enum, TablecryptError))


def _below_top(unpickler: Any) -> Any:
    return unpickler.stack[-2]


def _below_top_two(unpickler: Any) -> Any:
    return unpickler.stack[-3]


def _below_mark(unpickler: Any) -> Any:
    return unpickler.metastack[-1][-1]


def _is_own(changed: object) -> bool:
    """Whether the pickle made it. A class or a member of an enum was there before, and its attributes are what this program does."""
    return not isinstance(changed, (type, Enum))


def _is_a(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


_GUARDS: Final[Mapping[bytes, tuple[str, Callable[[Any], Any], Callable[[object], bool]]]] = {
    pickle.BUILD: ("changes", _below_top, _is_own),
    # Other classes may have methods of these names, which do more than to hold a value.
    pickle.APPEND: ("changes", _below_top, _is_a(list)),
    pickle.APPENDS: ("changes", _below_mark, _is_a(list)),
    pickle.ADDITEMS: ("changes", _below_mark, _is_a(set)),
    pickle.SETITEM: ("changes", _below_top_two, _is_a(dict)),
    pickle.SETITEMS: ("changes", _below_mark, _is_a(dict)),
    pickle.REDUCE: ("calls", _below_top, _is_a(type)),
}
"""What a step of a pickle does, to which value on the stack, and whether it may."""
_HASHED: Final[Mapping[bytes, Callable[[Any], Iterable[object]]]] = {
    pickle.SETITEM: lambda unpickler: unpickler.stack[-2:-1],
    pickle.SETITEMS: lambda unpickler: unpickler.stack[::2],
    pickle.ADDITEMS: lambda unpickler: unpickler.stack,
    pickle.FROZENSET: lambda unpickler: unpickler.stack,
    # Members of enums are found by their values.
    pickle.REDUCE: lambda unpickler: _values_of_members(*unpickler.stack[-2:]),
    pickle.NEWOBJ: lambda unpickler: _values_of_members(*unpickler.stack[-2:]),
    pickle.NEWOBJ_EX: lambda unpickler: _values_of_members(*unpickler.stack[-3:-1]),
}
"""The values that a step of a pickle hashes."""
_HASHES_A_BYTE: Final = 16
_HASHED_AT_ONCE: Final = (str, bytes, int, float, Enum, dt.date, dt.time, dt.timedelta, Decimal, UUID, type(None))
_NEVER_WRITTEN: Final = frozenset({pickle.INST[0], pickle.OBJ[0]})
"""Steps of the first protocols that call something, too."""


def _values_of_members(kind: object, arguments: Iterable[object]) -> Iterable[object]:
    return arguments if isinstance(kind, type) and issubclass(kind, Enum) else ()


def _guarded(step: bytes) -> Callable[[Any], None]:
    does, on, may = _GUARDS.get(step, ("", lambda _: None, lambda _: True))
    hashed = _HASHED.get(step, lambda _: ())
    take: Callable[[Any], None] = pickle._Unpickler.dispatch[step[0]]

    def checked(unpickler: Any) -> None:
        if not may(on(unpickler)):
            raise FormatError(f"an executor's result {does} {described(on(unpickler))}, which is not for it to do")
        unpickler.check_hashed(hashed(unpickler))
        take(unpickler)

    return checked


class _ValueUnpickler(pickle._Unpickler):
    """Accepts classes that hold values, and no functions, and changes nothing that it has not made.

    It is the unpickler that is written in Python: the one in C lets nobody look at its steps.
    """

    dispatch: ClassVar = {
        **{step: take for step, take in pickle._Unpickler.dispatch.items() if step not in _NEVER_WRITTEN},
        **{step[0]: _guarded(step) for step in (*_GUARDS, *_HASHED)},
    }

    def __init__(self, content: bytes, packages: frozenset[str]) -> None:
        super().__init__(io.BytesIO(content))
        self._packages = packages
        self._hashes_left = _HASHES_A_BYTE * len(content)

    def check_hashed(self, values: Iterable[object]) -> None:
        """Refuse values that a step would hash for too long: the same tuple may be in one many times, and is hashed each time."""
        waiting = list(values)
        while waiting:
            each = waiting.pop()
            self._hashes_left -= 1
            if self._hashes_left < 0 or not isinstance(each, (tuple, *_HASHED_AT_ONCE)):
                raise FormatError(
                    "an executor's result has keys, or items of a set, that are no plain values or more than it has bytes for"
                )
            if isinstance(each, tuple):
                waiting.extend(each)

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that holds values."""
        if name in _VALUE_CLASSES.get(module, ()):
            return super().find_class(module, name)

        # A module that is imported runs, and `tablecrypt.__main__` is the command, with the arguments of the driver.
        if module.partition(".")[0] in self._packages and module in sys.modules:
            found = super().find_class(module, name)
            # A pickle calls what it names, with arguments of its sender's choice: a function of the package could delete files here, and
            # what a module imports may be of any package.
            if isinstance(found, type) and found.__module__ == module and _holds_values(found):
                return found

        raise FormatError(f"an executor's result holds {module}.{name}, which is not a class that may hold values")
