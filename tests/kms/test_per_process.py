"""A value that belongs to one process: made once for all threads, and again after a fork."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from tablecrypt._per_process import PerProcess
from tablecrypt.table.metadata import MetadataFile
from tests.support.forking import holds_in_forked_child


def test_threads_that_ask_at_once_get_one_value() -> None:
    together = threading.Barrier(8)
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    value = PerProcess(make)

    def ask(_: int) -> int:
        together.wait()
        return id(value.get())

    with ThreadPoolExecutor(max_workers=8) as pool:
        assert len(set(pool.map(ask, range(8)))) == 1
    assert len(made) == 1


def test_a_value_that_could_not_be_made_is_tried_again() -> None:
    attempts = iter([RuntimeError("first"), None])

    def make() -> str:
        failure = next(attempts)
        if failure is not None:
            raise failure
        return "made"

    value = PerProcess(make)
    with pytest.raises(RuntimeError):
        value.get()
    assert value.get() == "made"


def test_a_dropped_value_is_given_back_and_made_anew() -> None:
    value = PerProcess(object)
    first = value.get()
    assert value.drop() is first
    assert value.drop() is None
    assert value.get() is not first


def test_a_forked_child_makes_its_own_even_while_another_thread_is_making_one() -> None:
    making, leave = threading.Event(), threading.Event()
    parent = os.getpid()

    def make() -> int:
        if os.getpid() == parent:
            making.set()
            leave.wait(timeout=60)
        return os.getpid()

    value = PerProcess(make)
    maker = threading.Thread(target=value.get)
    maker.start()
    making.wait(timeout=60)
    held = holds_in_forked_child(lambda: value.get() == os.getpid())
    leave.set()
    maker.join()
    assert held
    assert value.get() == parent


def test_a_forked_child_computes_what_a_thread_of_its_parent_was_computing_for_another_object() -> None:
    """Before Python 3.12, functools.cached_property holds one lock for all objects of a class."""
    holding, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with getattr(vars(MetadataFile)["digest"], "lock", nullcontext()):
            holding.set()
            leave.wait(timeout=60)

    holder = threading.Thread(target=hold)
    holder.start()
    holding.wait(timeout=60)
    held = holds_in_forked_child(lambda: len(MetadataFile("m.json", b"{}").digest) == 64)
    leave.set()
    holder.join()
    assert held
