"""The options for ORC's writer: what is refused before anything is written, and how names are spelled."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import ArrayType, BinaryType, DateType, IntegerType, MapType, StringType, StructField, StructType

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.orc.options import orc_options, split_column

HOME = StructType([StructField("zip", StringType()), StructField("built", DateType())])
SCHEMA = StructType(
    [
        StructField("id", IntegerType()),
        StructField("ssn", StringType()),
        StructField("Photo", BinaryType()),
        StructField("born", DateType()),
        StructField("home", HOME),
        StructField("tags", ArrayType(StringType())),
        StructField("attrs", MapType(StringType(), IntegerType())),
        StructField("odd.name", StringType()),
        StructField("back`quote", StringType()),
        StructField("12", StringType()),
    ]
)


def test_keys_and_masks_are_spelled_as_orc_reads_them() -> None:
    options = orc_options(
        SCHEMA,
        {"pii": ["ssn", "home.zip"], "my-key": ["tags._elem", "attrs._value", "`odd.name`", "`back``quote`"], "d": ["born"]},
        {"ssn": "sha256", "born": "redact,Xx9,2000 1 1"},
    )
    assert options == {
        "orc.encrypt": "pii:ssn,home.zip;`my-key`:tags._elem,attrs._value,`odd.name`,`back``quote`;d:born",
        "orc.mask": "sha256:ssn;redact,Xx9,2000 1 1:born",
    }


def test_without_masks_there_is_no_mask_option() -> None:
    assert orc_options(SCHEMA, {"pii": ["home"]}) == {"orc.encrypt": "pii:home"}


@pytest.mark.parametrize(
    ("encrypt", "more", "said"),
    [
        ({}, {}, "no column is to be encrypted"),
        ({"pii": []}, {}, "no column is to be encrypted"),
        ({"pii": ["missing"]}, {}, "no column missing"),
        ({"pii": ["SSN"]}, {}, "names are case-sensitive"),
        ({"pii": ["home.street"]}, {}, r"no column home\.street"),
        ({"pii": ["tags.element"]}, {}, "write _elem below a list"),
        ({"pii": ["ssn.x"]}, {}, r"no column ssn\.x"),
        ({"pii": ["12"]}, {}, "a column's id"),
        ({"pii": [""]}, {}, "not the name of a column"),
        ({"pii": ["home."]}, {}, "not the name of a column"),
        ({"pii": ["`ssn"]}, {}, "not the name of a column"),
        ({"pii": ["`home`zip"]}, {}, "not the name of a column"),
        ({"pii": ["ssn", "ssn"]}, {}, "twice"),
        ({"pii": ["ssn"], "other": ["ssn"]}, {}, "twice"),
        ({"pii": ["home", "home.zip"]}, {}, r"home\.zip is encrypted with home already"),
        ({"pii": ["home.zip"], "other": ["home"]}, {}, "name one of the two"),
        ({"pii": ["ssn"]}, {"mask": {"id": "nullify"}}, "would write its values as they are"),
        ({"pii": ["home"]}, {"mask": {"home.zip": "nullify"}}, "is not encrypted"),
        ({"pii": ["ssn"]}, {"mask": {"ssn": "hash"}}, "not a mask of ORC in Spark"),
        ({"pii": ["ssn"]}, {"mask": {"ssn": "nullify:id;redact"}}, "not a mask of ORC in Spark"),
        ({"pii": ["id"]}, {"mask": {"id": "sha256"}}, "sha256 makes null of int"),
        ({"pii": ["home"]}, {"mask": {"home": "sha256"}}, "sha256 makes null of date"),
        ({"pii": ["ssn"]}, {"mask": {"ssn": "redact"}}, "redact fails on text"),
        ({"pii": ["attrs"]}, {"mask": {"attrs": "redact"}}, "redact fails on text"),
        ({"pii": ["ssn"]}, {"partition_by": ["SSN"]}, "paths of a partitioned write"),
        ({"pii": ["ssn"]}, {"bloom_filter_columns": "id, ssn"}, "unencrypted bloom filter"),
        ({"pii": ["home"]}, {"bloom_filter_columns": "home.zip"}, "unencrypted bloom filter"),
        ({"pii": ["home.zip"]}, {"bloom_filter_columns": "HOME"}, "unencrypted bloom filter"),
    ],
)
def test_what_orc_would_do_in_silence_is_refused(encrypt: dict[str, list[str]], more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        orc_options(SCHEMA, encrypt, **more)


def test_bloom_filters_and_partitions_of_other_columns_are_fine() -> None:
    assert orc_options(SCHEMA, {"pii": ["ssn"]}, partition_by=["born"], bloom_filter_columns="id,home.zip")


@pytest.mark.parametrize(
    ("column", "parts"),
    [("a", ("a",)), ("a.b.c", ("a", "b", "c")), ("`a.b`.c", ("a.b", "c")), ("`a``b`", ("a`b",)), ("a.12", ("a", "12")), ("é", ("é",))],
)
def test_names_are_split_at_dots_outside_backquotes(column: str, parts: tuple[str, ...]) -> None:
    assert split_column(column) == parts
