"""Every parser of tests/support/parsers.py, each from valid files of its own. PARSER=<name> in the environment tries one alone."""

from __future__ import annotations

import os

import atheris
from harness import fuzz

with atheris.instrument_imports(include=["tablecrypt"]):
    from tests.support.parsers import PARSERS, seeds_of

CHOSEN = [parser for parser in PARSERS if os.environ.get("PARSER", parser.name) == parser.name]


def parse(data: bytes) -> None:
    """The first byte says which parser gets the rest."""
    parser = CHOSEN[(data[0] if data else 0) % len(CHOSEN)]
    parser.parse(data[1:])


SEEDS = [bytes([number]) + seed for number, parser in enumerate(CHOSEN) for seed in seeds_of(parser.name)]

if __name__ == "__main__":
    fuzz(parse, SEEDS)
