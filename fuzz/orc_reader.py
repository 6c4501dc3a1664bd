"""Encrypted ORC, whose bytes nothing authenticates: changed files, up to the plain view that Arrow's decoder is given."""

from __future__ import annotations

import atheris
from harness import fuzz

with atheris.instrument_imports(include=["tablecrypt"]):
    from tablecrypt.orc.reader import open_view
    from tablecrypt.orc.source import FileSource
    from tablecrypt.orc.tail import read_tail
    from tests.support.orc_files import CODECS, encrypted, local_keys, sample_rows, vector

ROWS = sample_rows(12).select(["id", "text", "home", "tags"])


def read(data: bytes) -> None:
    """Read every byte of the plain view."""
    source = FileSource(data)
    view = open_view(read_tail(source), source, local_keys(), None, masked=True)
    while view.read(1 << 16):
        pass


SEEDS = [encrypted(ROWS, {"pii": ["text", "home.zip"], "pii256": ["tags"]}, compression=codec) for codec in CODECS]
SEEDS.append(vector("mixed_lzo").read_bytes())

if __name__ == "__main__":
    fuzz(read, SEEDS)
