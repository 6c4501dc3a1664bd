"""The AGS1 reader on changed files, with a trusted length and without; and on plaintext lengths around a block's end."""

from __future__ import annotations

import io

import atheris
from harness import fuzz

with atheris.instrument_imports(include=["tablecrypt"]):
    from tablecrypt.files.ags1_streams import Ags1InputStream
    from tests.support.ags1_files import LOCATION, ags1_file, key_metadata


def read(data: bytes) -> None:
    """The first two bytes choose the trusted length and where reading starts."""
    choice, shift, file = data[:1] or b"\0", data[1:2] or b"\0", data[2:]
    trusted = (None, len(file), len(file) + 1, len(file) - 1)[choice[0] % 4]
    if trusted is not None and trusted < 0:
        return
    with Ags1InputStream(io.BytesIO(file), key_metadata(trusted), LOCATION, len(file)) as stream:
        stream.seek(shift[0])
        while stream.read(4096):
            pass
        stream.seek(0)
        stream.read()


SEEDS = [bytes([choice, 0]) + ags1_file(bytes(length)) for choice in range(4) for length in (0, 1, 100, 5000)]

if __name__ == "__main__":
    fuzz(read, SEEDS)
