"""Spark reads what we write and we read what Spark writes: rows, filters, statistics, with the keys and without."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tablecrypt import orc
from tablecrypt.errors import KeyNotFoundError
from tests.support.java import JavaError
from tests.support.orc_files import CODECS, EVERY_COLUMN, MASTER_KEYS, local_keys, same_rows, sample_rows
from tests.support.orc_spark import OrcSpark
from tests.support.plaintext import CANARY

pytestmark = [pytest.mark.java, pytest.mark.slow]

# Spark is given every key but this one.
UNKNOWN_TO_SPARK: Final = "withheld"
KEYS: Final = orc.LocalKeys({**MASTER_KEYS, UNKNOWN_TO_SPARK: [b"w" * 16]})
ROWS: Final = sample_rows(300)
MASKS: Final = {
    "text": "sha256",
    "amount": "redact",
    "born": "redact",
    "seen": "redact",
    "ratio": "redact",
    "flag": "redact",
    "home": "redact",
}
SPARK_CODECS: Final = ("none", "zlib", "snappy", "lz4", "lzo", "zstd")


@pytest.fixture(scope="module")
def spark(java_runtime: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrcSpark]:
    spark = OrcSpark(tmp_path_factory.mktemp("orc-spark"))
    spark.add_keys(MASTER_KEYS)
    yield spark
    spark.stop()


def written(path: Path, key: str, columns: list[str], rows: pa.Table = ROWS, **options: Any) -> Path:
    orc.write_table(rows, path, encrypt={key: columns}, keys=KEYS, **options)
    return path


def as_spark_has_it(rows: pa.Table, like: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.cast(like.schema).to_pylist()
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("vectorized", [True, False])
def test_spark_reads_every_type_with_the_key(spark: OrcSpark, tmp_path: Path, codec: str, vectorized: bool) -> None:
    path = written(tmp_path / "a.orc", "pii", list(EVERY_COLUMN), compression=codec, stripe_size=20_000)
    read = spark.read(path, vectorized=vectorized)
    assert read.to_pylist() == as_spark_has_it(ROWS, read)


@pytest.mark.parametrize("vectorized", [True, False])
def test_spark_reads_masks_without_the_key(spark: OrcSpark, tmp_path: Path, vectorized: bool) -> None:
    path = written(tmp_path / "a.orc", UNKNOWN_TO_SPARK, list(EVERY_COLUMN), mask=MASKS)
    read = spark.read(path, vectorized=vectorized)
    assert read.to_pylist() == as_spark_has_it(orc.read_table(path, masked=True), read)
    assert read["raw"].null_count == len(ROWS)


@pytest.mark.parametrize("key", ["pii256", UNKNOWN_TO_SPARK])
def test_spark_reads_encrypted_sub_columns(spark: OrcSpark, tmp_path: Path, key: str) -> None:
    path = written(tmp_path / "a.orc", key, ["home.zip", "tags._elem", "attrs._value"], mask={"home.zip": "redact"})
    read = spark.read(path)
    ours = ROWS if key == "pii256" else orc.read_table(path, masked=True)
    assert read.to_pylist() == as_spark_has_it(ours, read)


@pytest.mark.parametrize("vectorized", [True, False])
def test_spark_filters_by_encrypted_statistics_and_bloom_filters(spark: OrcSpark, tmp_path: Path, vectorized: bool) -> None:
    rows = pa.table({"id": pa.array(range(30_000), pa.int64()), "text": [f"text {number}" for number in range(30_000)]})
    open_path = written(tmp_path / "a.orc", "pii", ["id", "text"], rows, stripe_size=200_000, bloom_filter_columns=["id", "text"])
    denied = written(tmp_path / "b.orc", UNKNOWN_TO_SPARK, ["text"], rows, mask={"text": "redact"}, bloom_filter_columns=["text"])
    for where, count in (("id = 29999", 1), ("id > 29990", 9), ("text = 'text 12345'", 1), ("text = 'none'", 0), ("text is null", 0)):
        assert len(spark.read(open_path, where, vectorized=vectorized)) == count, where
    for where, count in (("id = 29999", 1), ("text = 'text 12345'", 0), ("text = 'xxxx 99999'", 20_000)):
        assert len(spark.read(denied, where, vectorized=vectorized)) == count, where


@pytest.mark.parametrize("key", ["pii", UNKNOWN_TO_SPARK])
def test_spark_answers_aggregates_from_statistics(spark: OrcSpark, tmp_path: Path, key: str) -> None:
    path = written(tmp_path / "a.orc", key, ["number"], mask={"number": "redact"}, stripe_size=5_000)
    seen = ROWS if key == "pii" else orc.read_table(path, masked=True)
    numbers = [number for number in seen["number"].to_pylist() if number is not None]
    (answer,) = spark.read(path, expressions=["min(number) a", "max(number) b", "count(number) c", "max(id) d"]).to_pylist()
    assert answer == {"a": min(numbers), "b": max(numbers), "c": len(numbers), "d": 299}


def test_java_reads_the_statistics_of_encrypted_columns(spark: OrcSpark, tmp_path: Path) -> None:
    path = written(tmp_path / "a.orc", "pii", ["number", "text"], stripe_size=10_000)
    numbers = [number for number in ROWS["number"].to_pylist() if number is not None]
    wanted = f"count: {len(numbers)} hasNull: true min: 0 max: {max(numbers)} sum: {sum(numbers)}"
    assert wanted in spark.statistics(path)
    number, text = spark.encrypted_statistics(path)
    assert "min: 0 max: " in number
    assert CANARY in text


def test_java_without_the_key_reads_no_statistics_of_true_values(spark: OrcSpark, tmp_path: Path) -> None:
    path = written(tmp_path / "a.orc", UNKNOWN_TO_SPARK, ["number", "text"])
    denied = spark.statistics(path)
    assert denied[ROWS.column_names.index("number") + 1] == "count: 0 hasNull: true sum: 0"
    with pytest.raises(JavaError, match="Can't get file footer key"):
        spark.encrypted_statistics(path)


def test_spark_reads_files_of_every_key_version(spark: OrcSpark, tmp_path: Path) -> None:
    for number, versions in enumerate((MASTER_KEYS["pii"][:1], MASTER_KEYS["pii"])):
        path = tmp_path / f"{number}.orc"
        orc.write_table(ROWS, path, encrypt={"pii": ["text"]}, keys=orc.LocalKeys({"pii": versions}))
        assert spark.read(path)["text"].to_pylist() == ROWS["text"].to_pylist()


@pytest.mark.parametrize("rows", [0, 1])
def test_spark_reads_files_of_few_rows(spark: OrcSpark, tmp_path: Path, rows: int) -> None:
    path = written(tmp_path / "a.orc", "pii", ["text", "home"], sample_rows(rows))
    assert len(spark.read(path)) == rows


@pytest.mark.parametrize("codec", SPARK_CODECS)
def test_what_spark_writes_is_read(spark: OrcSpark, codec: str) -> None:
    path = spark.write(
        ROWS,
        orc_encrypt="pii:flag,small,big,real,ratio,amount,born,seen,text,raw;pii256:home,tags._elem,attrs._value,number",
        orc_mask="sha256:text;redact:born,seen,ratio,flag",
        compression=codec,
    )
    read = orc.read_table(path, local_keys())
    assert same_rows(read, ROWS)
    assert orc.verify(path, local_keys()).rows == len(ROWS)
    with pytest.raises(KeyNotFoundError):
        orc.read_table(path, local_keys("pii"))


def test_masks_that_spark_wrote_are_those_that_we_write(spark: OrcSpark, tmp_path: Path) -> None:
    """Left out: text and short decimals under redact, where Java's writer fails, and bytes under sha256, where it hashes more than them."""
    redacted = ["born", "seen", "ratio", "real", "flag", "small", "number", "big"]
    path = spark.write(ROWS, orc_encrypt=f"pii:text,{','.join(redacted)}", orc_mask=f"sha256:text;redact:{','.join(redacted)}")
    theirs = orc.read_table(path, masked=True)
    masks = {"text": "sha256", **dict.fromkeys(redacted, "redact")}
    ours = orc.read_table(written(tmp_path / "a.orc", "pii", ["text", *redacted], mask=masks), masked=True)
    for column in ["text", *redacted]:
        assert ours[column].to_pylist() == theirs[column].to_pylist(), column


@pytest.mark.parametrize("scale", [0, 10])
@pytest.mark.parametrize("mask", ["redact", "redact,Xx1"])
def test_long_decimals_are_redacted_as_spark_redacts_them(spark: OrcSpark, tmp_path: Path, scale: int, mask: str) -> None:
    numbers = [Decimal(number).scaleb(-scale) for number in (12345678901234567890, -1, 10, 0, 12345678901234567890123456789012345678)]
    rows = pa.table({"amount": pa.array([*numbers, None], pa.decimal128(38, scale))})

    theirs = orc.read_table(spark.write(rows, orc_encrypt="pii:amount", orc_mask=f"{mask}:amount"), masked=True)
    ours = orc.read_table(written(tmp_path / "a.orc", "pii", ["amount"], rows, mask={"amount": mask}), masked=True)
    assert ours["amount"].to_pylist() == theirs["amount"].to_pylist()


def test_stripes_that_spark_wrote_have_ids_of_their_own(spark: OrcSpark) -> None:
    rows = pa.table({"id": pa.array(range(40_000), pa.int64()), "text": [f"{number * 7919 % 1_000_003}" for number in range(40_000)]})
    path = spark.write(rows, orc_encrypt="pii:text", orc_stripe_size="100000", compression="none")
    assert orc.verify(path, local_keys()).stripes > 2
    assert orc.read_table(path, local_keys()).to_pydict() == rows.to_pydict()


@pytest.mark.parametrize("writer", ["spark", "tablecrypt"])
def test_files_that_java_merged_are_read(spark: OrcSpark, tmp_path: Path, writer: str) -> None:
    parts = [sample_rows(60, first).select(["id", "text", "number"]) for first in (0, 60, 120)]
    if writer == "spark":
        sources = [spark.write(part, orc_encrypt="pii:text,number") for part in parts]
    else:
        sources = [written(tmp_path / f"{number}.orc", "pii", ["text", "number"], part) for number, part in enumerate(parts)]
    target = tmp_path / "merged.orc"
    assert spark.merge(sources, target) == 3
    merged = orc.read_table(target, local_keys())
    assert sorted(merged["id"].to_pylist()) == list(range(180))
    by_id = {row["id"]: row for part in parts for row in part.to_pylist()}
    assert all(row == by_id[row["id"]] for row in merged.to_pylist())
    assert orc.verify(target, local_keys()).stripes == 3


def test_a_bloom_filter_that_spark_left_in_the_clear_is_reported(spark: OrcSpark, tmp_path: Path) -> None:
    columns = "id,text"
    theirs = spark.write(ROWS, orc_encrypt="pii:text", orc_bloom_filter_columns=columns)
    ours = written(tmp_path / "a.orc", "pii", ["text"], bloom_filter_columns=columns.split(","))
    assert orc.verify(theirs, local_keys()).exposed == ("text",)
    assert orc.verify(ours, local_keys()).exposed == ()
