"""Texts of partitions: rows of one partition, and only they, share one."""

from __future__ import annotations

import itertools

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import BinaryType, NestedField, StringType

from tablecrypt.spark.distribution import partition_texts

SCHEMA = Schema(NestedField(1, "a", StringType()), NestedField(2, "b", StringType()))
SPEC = PartitionSpec(*(PartitionField(each, 999 + each, IdentityTransform(), f"p{each}") for each in (1, 2)))
AWKWARD = (None, "", "null", "\x00null", "\x1f", "=", "\x1f=", "x\x1fy", "%", "%1f", "%25", "x", "y")


def texts_of(pairs: list[tuple[str | None, str | None]]) -> list[str]:
    rows = pa.record_batch([pa.array(column, pa.large_string()) for column in zip(*pairs, strict=True)], ["a", "b"])
    return list(partition_texts(rows, SCHEMA, SPEC).to_pylist())


def test_values_with_separators_and_the_words_for_null_keep_their_own_partitions() -> None:
    pairs = list(itertools.product(AWKWARD, AWKWARD))
    assert len(set(texts_of(pairs))) == len(pairs)
    assert texts_of(pairs) == texts_of(pairs)


@given(st.lists(st.tuples(*[st.none() | st.text(alphabet="\x00\x1f%=1f25x", max_size=4)] * 2), min_size=1, max_size=20))
def test_rows_have_the_same_text_exactly_if_their_partitions_are_the_same(pairs: list[tuple[str | None, str | None]]) -> None:
    texts = texts_of(pairs)
    for (one, text), (other, others) in itertools.combinations(zip(pairs, texts, strict=True), 2):
        assert (text == others) == (one == other)


def test_bytes_that_are_cut_have_the_text_of_their_partition() -> None:
    schema = Schema(NestedField(1, "a", BinaryType()))
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(2), "a_trunc"))
    rows = pa.record_batch([pa.array([b"\xffab", b"\xffa", b"\xffb", None], pa.large_binary())], ["a"])
    one, same, other, null = partition_texts(rows, schema, spec).to_pylist()
    assert one == same
    assert len({one, other, null}) == 3
