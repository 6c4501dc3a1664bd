"""parquet-java reads Parquet files whose keys are given. Runs in this repository, whose tests have the Java program: needs a JDK."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyspark

from conformance.adapters.protocol import Case, Unsupported, serve
from conformance.rows import write_rows
from tablecrypt.parquet import FileKeys
from tests.support.parquet_java import ParquetJava, PeerError

_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ratio", pa.float64())])


def read(java: ParquetJava, case: Case) -> str:
    """Read one file."""
    if case["columns"] != _SCHEMA.names:
        raise Unsupported("the program in Java reads id, name and ratio")
    columns = {name: bytes.fromhex(key) for name, key in case["column_keys"].items()}
    keys = FileKeys(bytes.fromhex(case["footer_key"]), columns, bytes.fromhex(case["aad_prefix"]))
    write_rows(pa.Table.from_pylist(java.open(Path(case["file"]), keys, {}), schema=_SCHEMA), case["out"])
    return "rows"


def refused(error: Exception) -> str:
    """The class of an error, by what the message says."""
    words = ("GCM tag", "AEADBadTag", "Tag mismatch", "Signature mismatch", "AAD", "Applying decryptor on plaintext")
    if "is not a Parquet file" in str(error):
        return "format"
    return "tampered" if any(word in str(error) for word in words) else "other"


def _version() -> str:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("parquet-hadoop-[0-9]*.jar")
    return jar.stem.removeprefix("parquet-hadoop-")


if __name__ == "__main__":
    with ParquetJava() as java:
        serve("parquet-java", _version(), ["parquet"], lambda case: read(java, case), (PeerError,), refused)
