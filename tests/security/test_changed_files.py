"""Every parser, on files that somebody has changed with the format in mind: it reads them or refuses them, in bounded memory."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from tablecrypt.errors import TablecryptError
from tests.support.mutations import CHANGES, arbitrary, mutated, mutations
from tests.support.parsers import PARSERS, Parser, seeds_of

every_parser = pytest.mark.parametrize("parser", PARSERS, ids=[parser.name for parser in PARSERS])
_SAMPLE = 40
_CAMPAIGN = 5_000
_MOST_BYTES = 64 * 1024 * 1024


@every_parser
def test_the_files_that_changes_start_from_are_read(parser: Parser) -> None:
    for seed in seeds_of(parser.name):
        parser.parse(seed)


@every_parser
def test_a_changed_file_is_read_or_refused(parser: Parser) -> None:
    @settings(max_examples=_SAMPLE, suppress_health_check=list(HealthCheck))
    @given(arbitrary(seeds_of(parser.name)))
    def refuses_or_reads(data: bytes) -> None:
        parser.refuses_or_reads(data)

    refuses_or_reads()


@pytest.mark.campaign
@every_parser
def test_many_changed_files_are_read_or_refused_in_bounded_memory(parser: Parser) -> None:
    seeds = seeds_of(parser.name)
    choices = random.Random(parser.name)
    tracemalloc.start()
    try:
        for number in range(_CAMPAIGN):
            data = mutated(choices.choice(seeds), seeds, choices.randint)
            parser.refuses_or_reads(data)
            if number % 100 == 0:
                assert tracemalloc.get_traced_memory()[1] < _MOST_BYTES
                tracemalloc.reset_peak()
    finally:
        tracemalloc.stop()


@every_parser
def test_changes_get_beyond_the_first_field(parser: Parser) -> None:
    """Else the parser would not be tried: of a few hundred changed files some are read, or refused for several reasons."""
    seeds, choices, reasons = seeds_of(parser.name), random.Random(1), set()
    for _ in range(150):
        try:
            parser.parse(mutated(choices.choice(seeds), seeds, choices.randint))
            reasons.add("read")
        except TablecryptError as error:
            reasons.add(f"{type(error).__name__}: {error}"[:200])
    assert len(reasons) > 2


SEEDS = (b"0123456789" * 20, b"\x15\x04\x00" * 40, b"")


def test_each_kind_of_change_happens_and_keeps_to_the_given_choices() -> None:
    for change in CHANGES:
        results = set()
        for number in range(60):
            choices = random.Random(number)
            again = random.Random(number)
            changed = change(SEEDS[0], SEEDS, choices.randint)
            assert changed == change(SEEDS[0], SEEDS, again.randint)
            results.add(changed)
        assert len(results) > 10, change.__name__


@given(st.sampled_from(SEEDS), st.randoms(use_true_random=False))
def test_a_changed_file_is_not_much_longer_than_it_was(seed: bytes, choices: random.Random) -> None:
    longest = max(len(each) for each in SEEDS)
    assert len(mutated(seed, SEEDS, choices.randint)) <= 4 * (longest + 64 * 8 + 10)


def test_a_failing_change_shrinks() -> None:
    smallest = find(mutations(SEEDS), lambda data: data not in SEEDS, settings=settings(max_examples=100, derandomize=True))
    assert len(smallest) < len(SEEDS[0]) + 8


def work_items(pickled: bytes) -> bytes:
    """One result of an executor, whose value is this pickle."""
    return struct.pack("<IQBQ", 1, 0, 0, len(pickled)) + pickled + struct.pack("<I", 0)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("Parquet key material", seeds_of("Parquet key material")[0].replace(b"AAECAw", "ÄÖÜ".encode())),
        ("row positions", b"\x01\0\0\0" + bytes(12) + bytes(8)),
        ("row positions", b"\x02\0\0\0" + bytes(12) + b"\x08" + bytes(7) + bytes(8) + bytes(12) + b"\xff" * 8),
        ("work items", work_items(b"\x80\x04\x96" + b"\xff" * 7 + b"\x7f.")),
        ("work items", work_items(b"\x80\x04K\x01r\xff\xff\xff\x7f.")),
    ],
    ids=[
        "key material that is not ASCII",
        "an empty bitmap",
        "a bitmap longer than any memory",
        "a value longer than any memory",
        "room for 2^31 values",
    ],
)
def test_what_fuzzing_found_is_refused(name: str, data: bytes) -> None:
    parser = next(parser for parser in PARSERS if parser.name == name)
    assert not parser.refuses_or_reads(data)
