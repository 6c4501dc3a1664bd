"""Row positions, works and results as bytes: what went in comes out, and other bytes are refused, above all code."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import pickle
import sys
import uuid
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tablecrypt._bytes import frame
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.engines.job_messages import (
    WorkItem,
    check_items,
    decode_items,
    decode_positions,
    encode_items,
    encode_positions,
    merge_positions,
    positions_by_file,
    value_type_of,
)
from tablecrypt.errors import FormatError, KmsAccessDeniedError, TamperedFileError
from tablecrypt.kms.resilient import AllowedKeys
from tablecrypt.maintenance import Progress
from tablecrypt.maintenance._audit.findings import Severity
from tablecrypt.maintenance._relocate_files import PathMap
from tablecrypt.maintenance._verify.files import FileFindings, Problem
from tablecrypt.maintenance.compaction import Compaction
from tablecrypt.maintenance.runner import FileDone
from tests.support.mutations import arbitrary, mutations
from tests.support.parsers import seeds_of

pytestmark = pytest.mark.java

numbers = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
bitmaps = st.sets(st.integers(0, 2**40), max_size=20).map(BitMap64)


@given(positions=st.dictionaries(numbers, bitmaps, max_size=5))
def test_positions_come_back(positions: dict[tuple[int, int], BitMap64]) -> None:
    assert decode_positions(encode_positions(positions)) == positions


@given(content=arbitrary(seeds_of("row positions"), max_size=60))
def test_other_bytes_are_a_format_error_or_positions(content: bytes) -> None:
    try:
        decode_positions(content)
    except FormatError as error:
        assert str(error)


def test_bytes_after_the_last_bitmap_are_refused() -> None:
    with pytest.raises(FormatError):
        decode_positions(encode_positions({(0, 1): BitMap64([1])}) + b"\x00")


def test_rows_are_grouped_by_file_and_those_of_no_file_left_out() -> None:
    task, index, position = (pa.array(values, pa.int64()) for values in ([0, 0, None, 1], [2, 2, None, 0], [5, 7, None, 9]))

    found = positions_by_file(task, index, position)

    assert found == {(0, 2): BitMap64([5, 7]), (1, 0): BitMap64([9])}
    assert merge_positions(found, {(0, 2): BitMap64([6])})
    assert not merge_positions(found, {(0, 2): BitMap64([6, 8])})
    assert found[0, 2] == BitMap64([5, 6, 7, 8])


OWN = frozenset({"tablecrypt"})
VALUES = st.recursive(
    st.none() | st.integers() | st.text() | st.binary() | st.dates() | st.uuids() | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
KEYS = st.builds(
    lambda key, prefix, length: StandardKeyMetadata(Secret(key), prefix, length),
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=16, max_size=16),
    st.none() | st.integers(0, 2**40),
)
ITEMS = st.lists(st.builds(WorkItem, st.integers(0, 2**40), VALUES, st.lists(KEYS, max_size=3).map(tuple)), max_size=5)


def comparable(items: list[WorkItem]) -> list[Any]:
    return [(item.index, item.value, [key.encode() for key in item.keys]) for item in items]


@given(items=ITEMS)
def test_items_come_back_as_they_went(items: list[WorkItem]) -> None:
    assert comparable(decode_items(encode_items(items), OWN)) == comparable(items)


@given(items=ITEMS, cut=st.integers(1, 100))
def test_cut_items_are_refused(items: list[WorkItem], cut: int) -> None:
    content = encode_items(items)

    with pytest.raises(FormatError):
        decode_items(content[: max(0, len(content) - cut)], OWN)


ERROR = TamperedFileError("a", "b")


@pytest.mark.parametrize(
    "results",
    [[(3, 0), (5, 0), (7, 0)], [(5, 0), (3, 0), (7, 0)], [(3, 0), (5, ERROR)], [(7, ERROR)]],
    ids=["all", "in another order", "up to an error", "an error at once"],
)
def test_one_result_of_each_work_is_taken_up_to_the_first_error(results: list[tuple[int, Any]]) -> None:
    check_items([WorkItem(index, value) for index, value in results], range(3, 9, 2), Any)


@pytest.mark.parametrize(
    "results",
    [
        [],
        [(3, 0), (5, 0)],
        [(3, 0), (5, 0), (4, 0)],
        [(3, 0), (5, 0), (7, 0), (9, 0)],
        [(3, 0), (3, 0), (7, 0)],
        [(4, ERROR)],
        [(3, ERROR), (5, 0)],
    ],
    ids=["none", "too few", "another's", "one more", "one twice", "another's error", "too few behind an error"],
)
def test_results_that_are_not_those_of_the_tasks_works_are_refused(results: list[tuple[int, Any]]) -> None:
    with pytest.raises(FormatError, match="not one of each of its works"):
        check_items([WorkItem(index, value) for index, value in results], range(3, 9, 2), Any)


def worked(io: object, work: object, keys: object) -> FileDone[FileFindings]:
    raise NotImplementedError


FINDINGS = FileFindings(5, 1, (Problem("block 3", "was changed"),), None)


def forged(**fields: Any) -> FileFindings:
    """A dataclass as unpickling makes one: its constructor is not called."""
    made = object.__new__(FileFindings)
    vars(made).update(fields)
    return made


@pytest.mark.parametrize(
    "value",
    [None, 5, {"length": 5, "parts": 1}, Problem("a", "b"), forged(), forged(**{**vars(FINDINGS), "length": "5"}),
     forged(**{**vars(FINDINGS), "problems": (3,)})],
    ids=["None", "a number", "a dictionary", "another class", "no fields", "text for a number", "a field of another class"],
)  # fmt: skip
def test_a_result_is_what_its_function_returns_down_to_its_fields(value: Any) -> None:
    value_type = value_type_of(partial(worked, None))
    check_items([WorkItem(0, FINDINGS), WorkItem(1, ERROR)], [0, 1], value_type)

    with pytest.raises(FormatError, match="a task sent a result that is not what its work returns: "):
        check_items([WorkItem(0, value)], [0], value_type)


@given(content=mutations(seeds_of("work items")))
def test_changed_items_are_refused_or_read(content: bytes) -> None:
    try:
        decode_items(content, OWN)
    except FormatError as error:
        assert str(error)


@given(content=st.binary(max_size=200))
@example(content=encode_items([]))
def test_other_bytes_are_refused_or_empty(content: bytes) -> None:
    try:
        items = decode_items(content, OWN)
    except FormatError:
        return
    assert encode_items(items)[:4] == content[:4]


@pytest.mark.parametrize(
    "value",
    [
        Progress("verify", 1, 2, "files"),
        [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.time(1), dt.timedelta(1)],
        Decimal("1.50"),
        uuid.UUID(int=7),
    ],
)
def test_values_of_this_package_and_of_the_standard_library_are_taken(value: Any) -> None:
    assert decode_items(encode_items([WorkItem(3, value)]), OWN) == [WorkItem(3, value)]


@pytest.mark.parametrize("error", [TamperedFileError("s3://a/b", "its footer"), KmsAccessDeniedError("no", retryable=False)])
def test_errors_come_back_as_themselves(error: Exception) -> None:
    [item] = decode_items(encode_items([WorkItem(3, error)]), OWN)

    assert item.failed
    assert type(item.value) is type(error)
    assert (str(item.value), item.value.args) == (str(error), error.args)


class Runs:
    """A pickle that calls something when it is opened."""

    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> Any:
        return self._call[0], self._call[1:]


@pytest.mark.parametrize(
    "value",
    [
        Runs(os.getcwd),
        Runs(eval, "1"),
        Runs(pickle.loads, b"N."),
        Runs(getattr, "a", "upper"),
        Runs(dataclasses.make_dataclass, "A", []),
        os.getcwd,
        StandardKeyMetadata.decode,
    ],
)
def test_code_in_a_result_is_refused(value: Any) -> None:
    with pytest.raises(FormatError, match=r"which is not a class that may hold values|cannot be decoded"):
        decode_items(encode_items([WorkItem(0, value)]), OWN)


def test_a_class_of_another_package_is_refused() -> None:
    content = encode_items([WorkItem(0, WorkItem(0, 1))])

    assert decode_items(content, OWN)
    with pytest.raises(FormatError, match=r"tablecrypt\.engines\.job_messages\.WorkItem, which is not a class"):
        decode_items(content, frozenset({"tests"}))


def named(module: str, name: str) -> bytes:
    """The part of a pickle that names a class."""
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def sent(pickled: bytes) -> bytes:
    """A result of an executor that made the pickle by hand."""
    content = encode_items([WorkItem(0, 1)])
    honest = frame(pickle.dumps(1))
    assert content.count(honest) == 1
    return content.replace(honest, frame(pickled))


ALLOWED = named(AllowedKeys.__module__, "AllowedKeys")
COMPACTION = named(Compaction.__module__, "Compaction")
SEVERITY = named(Severity.__module__, "Severity")
ATTRIBUTES = pickle.MARK + pickle.NONE + pickle.EMPTY_DICT + pickle.dumps("allows", 0)[:-1] + ALLOWED + pickle.SETITEM + pickle.TUPLE


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(ALLOWED + ATTRIBUTES + pickle.BUILD, id="a class"),
        pytest.param(
            SEVERITY + pickle.dumps((Severity.ERROR.value,), 0)[:-1] + pickle.REDUCE + pickle.dumps({"name": "low"}, 0)[:-1] + pickle.BUILD,
            id="a member of an enum",
        ),
        pytest.param(COMPACTION + pickle.NONE + pickle.APPEND, id="what is no list"),
        pytest.param(COMPACTION + pickle.MARK + pickle.NONE + pickle.APPENDS, id="what is no list, twice"),
        pytest.param(COMPACTION + pickle.MARK + pickle.NONE + pickle.ADDITEMS, id="what is no set"),
        pytest.param(COMPACTION + pickle.NONE * 2 + pickle.SETITEM, id="what is no mapping"),
        pytest.param(COMPACTION + pickle.MARK + pickle.NONE * 2 + pickle.SETITEMS, id="what is no mapping, twice"),
    ],
)
def test_a_result_changes_nothing_of_the_driver(changes: bytes) -> None:
    before = dict(vars(AllowedKeys)), dict(vars(Severity.ERROR))

    with pytest.raises(FormatError, match="changes"):
        decode_items(sent(changes + pickle.POP + pickle.dumps(1, 0)), OWN)

    assert (dict(vars(AllowedKeys)), dict(vars(Severity.ERROR))) == before


NESTED = pickle.EMPTY_TUPLE + (pickle.DUP + pickle.TUPLE2) * 60
WIDE = pickle.NONE + (pickle.BINPUT + b"\0" + pickle.POP + pickle.MARK + (pickle.BINGET + b"\0") * 2_000 + pickle.TUPLE) * 4


@pytest.mark.parametrize(
    "hashes",
    [
        pytest.param(pickle.EMPTY_DICT + NESTED + pickle.NONE + pickle.SETITEM, id="a key"),
        pytest.param(pickle.EMPTY_DICT + pickle.MARK + pickle.NONE * 2 + NESTED + pickle.NONE + pickle.SETITEMS, id="one of several keys"),
        pytest.param(pickle.EMPTY_SET + pickle.MARK + NESTED + pickle.ADDITEMS, id="an item"),
        pytest.param(pickle.MARK + NESTED + pickle.FROZENSET, id="an item of a frozen set"),
        pytest.param(pickle.EMPTY_DICT + WIDE + pickle.NONE + pickle.SETITEM, id="a wide key"),
        pytest.param(SEVERITY + NESTED + pickle.TUPLE1 + pickle.REDUCE, id="the value of a member"),
        pytest.param(SEVERITY + NESTED + pickle.TUPLE1 + pickle.NEWOBJ, id="the value of a new member"),
        pytest.param(SEVERITY + NESTED + pickle.TUPLE1 + pickle.EMPTY_DICT + pickle.NEWOBJ_EX, id="the value of a new member by name"),
    ],
)
@pytest.mark.timeout(20)
def test_a_few_bytes_do_not_keep_the_driver_hashing_for_years(hashes: bytes) -> None:
    with pytest.raises(FormatError, match="no plain values or more than it has bytes for"):
        decode_items(sent(hashes + pickle.STOP), OWN)


def test_plain_keys_and_tuples_of_them_come_back() -> None:
    value = {"a": 1, (1, ("b", None)): {Severity.ERROR, dt.date(2020, 1, 2), uuid.UUID(int=7)}, Decimal("1.5"): frozenset({(b"x", 2.5)})}

    assert decode_items(encode_items([WorkItem(0, value)]), OWN) == [WorkItem(0, value)]


def test_only_classes_are_called() -> None:
    """An instance may be of a class whose instances can be called."""
    path_map = named(PathMap.__module__, "PathMap") + pickle.EMPTY_TUPLE + pickle.NEWOBJ

    with pytest.raises(FormatError, match="calls a PathMap, which is not for it to do"):
        decode_items(sent(path_map + pickle.EMPTY_TUPLE + pickle.REDUCE + pickle.STOP), OWN)


@pytest.mark.parametrize("module", ["tablecrypt.__main__", "tablecrypt.cli.__main__"])
def test_a_result_has_nothing_imported(module: str) -> None:
    """A module runs when it is imported, and these two are the command."""
    assert module not in sys.modules

    with pytest.raises(FormatError, match=f"holds {module}.main, which is not a class"):
        decode_items(sent(named(module, "main") + pickle.STOP), OWN)

    assert module not in sys.modules


@pytest.mark.parametrize(("module", "name"), [(decode_items.__module__, "Enum"), ("tablecrypt.table.partitions", "PartitionFieldValue")])
def test_a_class_that_a_module_only_imports_is_refused(module: str, name: str) -> None:
    with pytest.raises(FormatError, match=f"holds {module}.{name}, which is not a class"):
        decode_items(sent(named(module, name) + pickle.STOP), OWN)


def test_a_value_is_not_taken_for_an_error() -> None:
    content = bytearray(encode_items([WorkItem(0, 1)]))
    content[4 + 8] = 1

    with pytest.raises(FormatError, match="says kind 1 of a int"):
        decode_items(bytes(content), OWN)
