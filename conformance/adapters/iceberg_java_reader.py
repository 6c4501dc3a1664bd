"""Iceberg Java reads and writes tables, through Spark with a Hive catalog. Runs in this repository, whose tests start it: needs Java."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from conformance.adapters.kit_kms import hold, kms_of_the_kit
from conformance.adapters.protocol import Case, Unsupported, check_needs, class_by_words, columns_of, serve
from conformance.adapters.spark_sql import create_table, statement_of
from conformance.rows import read_rows, write_rows
from tests.support.java import JavaError, JavaOracle
from tests.support.java_oracle import ICEBERG_VERSION


def read(java: JavaOracle, case: Case) -> str:
    """Read one table."""
    check_needs(case, "Iceberg Java")
    hold(case.get("keys"))
    name = "db.t_" + re.sub(r"\W", "_", case["id"])
    java.sql(f"CALL h.system.register_table(table => '{name}', metadata_file => 'file://{case['metadata']}')")
    version = (
        f" VERSION AS OF '{case['ref']}'" if "ref" in case else f" VERSION AS OF {case['snapshot_id']}" if "snapshot_id" in case else ""
    )
    write_rows(java.sql(f"SELECT {columns_of(case)} FROM h.{name}{version}"), case["out"])
    return "rows"


def write(java: JavaOracle, case: Case) -> str:
    """Write one table."""
    if any(step["step"] == "rotate" for step in case["steps"]):
        raise Unsupported("Iceberg Java takes a new KEK when the last one is two years old, and has no call for it")
    hold(case.get("keys"))
    # As often as one is asked for the same case.
    name = "db.w_" + re.sub(r"\W", "_", case["out"])
    java.sql(create_table(f"h.{name}", case))
    for step in case["steps"]:
        if step["step"] == "append":
            java.append(name, read_rows(step["rows"]))
        else:
            java.sql(statement_of(f"h.{name}", step))
    return java.metadata_location(name).removeprefix("file://").removeprefix("file:")


LENGTHS = ("Reached the end of stream with", "Incorrect length provided")
"""What a length that is not that of the key metadata comes to."""


def refused(error: Exception) -> str:
    """The class of an error, by what the message says."""
    words = {
        "placeholder": ("could not read page in col",),
        "key-denied": ("is not found. (Service: Kms", "AccessDenied"),
        "missing": ("NotFoundException", "FileNotFound", "does not exist"),
        "plaintext": ("plaintext file", "Plaintext"),
        "tampered": ("GCM tag", "AEADBadTag", "Tag mismatch", "GCM stream", "Cannot open stream", "InvalidCiphertext", *LENGTHS),
    }
    return class_by_words(error, words)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, kms_of_the_kit() as aws, JavaOracle(Path(folder), aws.endpoint) as java:
        java.sql("CREATE NAMESPACE h.db")
        serve(
            "Iceberg Java",
            f"{ICEBERG_VERSION} (Spark)",
            ["table"],
            lambda case: read(java, case),
            (JavaError,),
            refused,
            lambda case: write(java, case),
            ["table"],
        )
