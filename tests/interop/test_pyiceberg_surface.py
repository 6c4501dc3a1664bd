"""The contract with PyIceberg: what we use of it without its promise has the signatures that we know."""

from __future__ import annotations

import pytest

from tests.support.pyiceberg_surface import GONE, RECORD, differences, installed, recorded, surface


def test_pyiceberg_has_everything_that_is_used_as_it_was_recorded() -> None:
    changed = differences(recorded(), installed(recorded()))

    assert not changed, f"this release of PyIceberg differs from the one that tablecrypt knows:\n{changed}"


@pytest.mark.slow
def test_every_use_is_recorded_and_nothing_that_is_no_longer_used() -> None:
    changed = differences(recorded(), surface())

    assert not changed, f"python -m tests.support.pyiceberg_surface > {RECORD.name} records these:\n{changed}"


def test_nothing_is_recorded_that_is_gone() -> None:
    assert GONE not in recorded().values()


def test_a_release_that_changes_names_is_shown_as_a_table() -> None:
    before = {"pyiceberg.a": "(self)", "pyiceberg.b._c": "(self, x)", "pyiceberg.same": "()"}
    after = {"pyiceberg.a": "(self, more)", "pyiceberg.b._c": GONE, "pyiceberg.same": "()", "pyiceberg.new": "class ()"}

    assert differences(before, after).splitlines() == [
        "pyiceberg.a",
        "    recorded   (self)",
        "    installed  (self, more)",
        "pyiceberg.b._c",
        "    recorded   (self, x)",
        "    installed  gone",
        "pyiceberg.new",
        "    recorded   -",
        "    installed  class ()",
    ]
    assert not differences(before, before)
