"""A compressed metadata file is read up to a bound: 32 MiB, or 64 times what is stored."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from tablecrypt.errors import FormatError
from tablecrypt.table.metadata import decompressed

NAME = "s3://b/t/metadata/1-x.gz.metadata.json"


def test_a_bomb_is_refused_within_the_bound() -> None:
    bomb = gzip.compress(b" " * (200 * 1024 * 1024), 9)
    tracemalloc.start()
    with pytest.raises(FormatError, match="which no metadata file does"):
        decompressed(NAME, bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * 32 * 1024 * 1024


def test_many_small_streams_do_not_add_up() -> None:
    with pytest.raises(FormatError, match="which no metadata file does"):
        decompressed(NAME, gzip.compress(b" " * (16 * 1024 * 1024), 9) * 3)


@pytest.mark.parametrize("name", [NAME, "s3://b/t/metadata/v1.metadata.json.gz"])
def test_what_metadata_is_comes_whole(name: str) -> None:
    content = b'{"a": 1}' * 100_000
    assert decompressed(name, gzip.compress(content[:9]) + gzip.compress(content[9:])) == content


@pytest.mark.parametrize("stored", [b"", b"{}", gzip.compress(b"{}", mtime=0)[:-3], gzip.compress(b"{}", mtime=0) + b"x"])
def test_what_is_no_gzip_is_refused_or_empty(stored: bytes) -> None:
    if not stored:
        assert decompressed(NAME, stored) == b""
        return
    with pytest.raises(FormatError, match="not readable as gzip"):
        decompressed(NAME, stored)
