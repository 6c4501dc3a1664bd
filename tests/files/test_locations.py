"""Paths without a scheme: where they lead, and what a new table stores in their place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.locations import for_pyiceberg, is_relative, location_of_new_table, scheme_of, with_scheme

NAMES = st.text(st.sampled_from("ab %#?é&+'\"[]*."), min_size=1, max_size=6)
ROOTS = st.sampled_from(["", "/", "./", "../"])
PATHS = st.builds(lambda root, names: root + "/".join(names), ROOTS, st.lists(NAMES, min_size=1, max_size=4))


@given(path=PATHS)
def test_what_is_stored_leads_pyiceberg_where_the_path_led(path: str) -> None:
    there = PyArrowFileIO.parse_location(path)

    assert PyArrowFileIO.parse_location(location_of_new_table(path)) == there
    assert PyArrowFileIO.parse_location(for_pyiceberg(with_scheme(path))) == there
    assert not is_relative(location_of_new_table(path))


@given(path=PATHS)
def test_hadoop_gets_the_same_path_behind_a_scheme(path: str) -> None:
    # Hadoop's Path takes all behind file:// as it is written; test_local_warehouses asks it.
    assert with_scheme(path) == "file://" + PyArrowFileIO.parse_location(path)[2]


@pytest.mark.parametrize("location", ["s3://lake/a b", "file:///data/100%", "file:/data", "hdfs://host/x", "memory://x"])
def test_a_location_with_a_scheme_stays(location: str) -> None:
    assert location_of_new_table(location) == with_scheme(location) == for_pyiceberg(location) == location


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("/data/w\th", "tabs and line breaks"),
        ("file:///data/w\nh", "tabs and line breaks"),
        ("s3://bucket/w\rh", "tabs and line breaks"),
        ("file://data/wh", "'data' would be a host"),
        ("file:data/wh", "'data' would be a host"),
        ("file:///data/a#b", "PyIceberg ends the path"),
        ("file:///data/a?b", "PyIceberg ends the path"),
    ],
)
def test_a_file_uri_that_pyiceberg_reads_as_another_path_is_refused(location: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        location_of_new_table(location)


@pytest.mark.parametrize(
    ("uri", "scheme"),
    [
        ("sqlite:///catalog.db", "sqlite"),
        ("postgresql+psycopg://user:password@host/db", "postgresql+psycopg"),
        ("https://host", "https"),
        ("user:password@host", None),
        ("file:/data", None),
        ("/data//x", None),
        ("", None),
    ],
)
def test_the_scheme_that_may_be_shown_is_one_before_two_slashes(uri: str, scheme: str | None) -> None:
    assert scheme_of(uri) == scheme
