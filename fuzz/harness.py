"""Runs one fuzz target under atheris: only errors of tablecrypt may come out of it, soon, and in bounded memory.

Half of the inputs are changes that know what a file is made of (tests/support/mutations.py), the rest libFuzzer's own.

python fuzz/<target>.py [libFuzzer options]      -max_total_time=600 for ten minutes; a file name runs that one input again
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import atheris

ROOT = Path(__file__).parents[1]
_LIMITS = ("-timeout=20", "-rss_limit_mb=2048", "-max_len=65536", "-print_final_stats=1")


def fuzz(target: Callable[[bytes], object], seeds: Iterable[bytes]) -> None:
    """Feed `target` with changes of `seeds` until time is over or it fails. It has to be imported under atheris.instrument_imports.

    What libFuzzer finds worth keeping goes on from the seeds in a folder that is thrown away; a failing input is written to fuzz/findings.
    """

    # Imported here: what the harness imports before the target does is not instrumented.
    from tablecrypt.errors import TablecryptError

    seeds = tuple(seeds)

    def one(data: bytes) -> None:
        try:
            target(data)
        except TablecryptError as error:
            str(error)

    findings = ROOT / "fuzz" / "findings"
    findings.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tablecrypt-fuzz-") as corpus:
        for number, seed in enumerate(seeds):
            Path(corpus, f"seed-{number}").write_bytes(seed)
        given = sys.argv[1:]
        folders = [] if any(not option.startswith("-") for option in given) else [corpus]
        options = [sys.argv[0], *_LIMITS, f"-artifact_prefix={findings}/", *given, *folders]
        atheris.Setup(options, one, custom_mutator=changes_of(seeds))
        atheris.Fuzz()


def changes_of(seeds: Sequence[bytes]) -> Callable[[bytes, int, int], bytes]:
    """Return what makes the next input of one that was worth keeping, as atheris asks for it."""
    from tests.support.mutations import mutated

    def change(data: bytes, longest: int, seed: int) -> bytes:
        choices = random.Random(seed)  # noqa: S311 (libFuzzer gives the seed, so that an input can be made again)
        if choices.random() < 0.5:
            return bytes(atheris.Mutate(data, longest))
        return mutated(data, seeds, choices.randint)[:longest]

    return change
