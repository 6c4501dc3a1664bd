"""parquet-java reads and writes Parquet files under given keys. Runs in this repository, whose tests have the Java program: needs a JDK."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyspark

from conformance.adapters.protocol import Case, Unsupported, class_by_words, serve
from conformance.adapters.tablecrypt_parts import file_keys
from conformance.rows import read_rows, write_rows
from tests.support.parquet_java import ParquetJava, PeerError

_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ratio", pa.float64())])


def read(java: ParquetJava, case: Case) -> str:
    """Read one file."""
    if case["columns"] != _SCHEMA.names:
        raise Unsupported("the program in Java reads id, name and ratio")
    write_rows(pa.Table.from_pylist(java.open(Path(case["file"]), file_keys(case), {}), schema=_SCHEMA), case["out"])
    return "rows"


def write(java: ParquetJava, case: Case) -> None:
    """Write one file."""
    rows = read_rows(case["rows"])
    if rows.column_names != _SCHEMA.names:
        raise Unsupported("the program in Java writes id, name and ratio")
    if case["row_group_rows"] < rows.num_rows:
        raise Unsupported("parquet-java ends a row group by its bytes, and not by its rows")
    java.save(Path(case["out"]), file_keys(case), rows.to_pylist(), case["page_rows"])


def refused(error: Exception) -> str:
    """The class of an error, by what the message says."""
    words = {
        "format": ("is not a Parquet file", "Wrong row group ordinal"),
        "tampered": ("GCM tag", "AEADBadTag", "Tag mismatch", "Signature mismatch", "AAD", "Applying decryptor on plaintext"),
    }
    return class_by_words(error, words)


def _version() -> str:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("parquet-hadoop-[0-9]*.jar")
    return jar.stem.removeprefix("parquet-hadoop-")


if __name__ == "__main__":
    with ParquetJava() as java:
        serve(
            "parquet-java",
            _version(),
            ["parquet"],
            lambda case: read(java, case),
            (PeerError,),
            refused,
            lambda case: write(java, case),
            ["parquet"],
        )
