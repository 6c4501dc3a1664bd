"""Where the files of a table go: below the new place, each to a place of its own, whatever the spelling of the old one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance._relocate_files import PathMap

SEGMENTS = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=8)
BELOW = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize(
    ("old", "location"),
    [
        ("s3://b/t", "s3://b/t/data/a%2Fb=1/x.parquet"),
        ("s3://b/t", "s3a://b/t/data/a%2Fb=1/x.parquet"),
        ("s3n://b/t/", "s3://b/t/data/a%2Fb=1/x.parquet"),
        ("file:///t", "file:/t/data/a%2Fb=1/x.parquet"),
        ("/t", "file:///t/data/a%2Fb=1/x.parquet"),
        ("file:/t", "/t/data/a%2Fb=1/x.parquet"),
    ],
)
def test_spellings_of_the_old_place_are_one_place(old: str, location: str) -> None:
    assert PathMap(old, "s3://c/n")(location) == "s3://c/n/data/a%2Fb=1/x.parquet"


@given(BELOW)
def test_what_is_below_the_table_is_as_far_below_the_copy(below: str) -> None:
    below = below.lstrip("/")
    assert PathMap("s3://b/t", "s3://c/n")(f"s3://b/t/{below}") == f"s3://c/n/{below}"


@given(st.lists(BELOW, min_size=2, max_size=6, unique=True))
def test_no_two_files_from_elsewhere_meet(below: list[str]) -> None:
    paths = PathMap("s3://b/t", "s3://c/n")
    targets = {paths(f"s3://elsewhere/{each}") for each in below}
    assert len(targets) == len(below)
    assert all(target.startswith("s3://c/n/data/elsewhere-") for target in targets)


@pytest.mark.parametrize("location", ["s3://b/table2/x", "s3://bb/t/x", "gs://b/t/x", "s3://b/x"])
def test_a_name_that_only_begins_alike_is_elsewhere(location: str) -> None:
    assert PathMap("s3://b/t", "s3://c/n")(location).startswith("s3://c/n/data/elsewhere-")


@pytest.mark.parametrize("new", ["s3://b/t", "s3a://b/t/x", "s3://b", "s3:", "", "file:"])
def test_a_copy_inside_the_table_around_it_or_nowhere_is_refused(new: str) -> None:
    with pytest.raises(ConfigurationError):
        PathMap("s3://b/t", new)


@pytest.mark.parametrize("new", ["file://host/x", "file:x", "FILE://host/x"])
def test_a_local_place_with_a_host_is_refused(new: str) -> None:
    with pytest.raises(ConfigurationError, match="a local file has none"):
        PathMap("s3://b/t", new)
    assert PathMap("s3://b/t", "file:///x")("s3://b/t/data/a") == "file:///x/data/a"


def test_folders_of_properties_go_along_or_are_told_to_be_elsewhere() -> None:
    paths = PathMap("s3://b/t", "s3://c/n")
    assert paths.folder("s3://b/t/files/") == "s3://c/n/files"
    assert paths.folder("s3://b/t") == "s3://c/n"
    assert paths.folder("s3://b/other") is None
