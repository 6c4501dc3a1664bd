"""Trino reads tables, and is asked to write them. Runs in this repository, whose tests start it: needs Java 25, Maven and PostgreSQL."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from sqlalchemy import create_engine, text

from conformance.adapters.iceberg_java_reader import LENGTHS
from conformance.adapters.kit_kms import hold, kms_of_the_kit
from conformance.adapters.protocol import Case, Unsupported, check_needs, class_by_words, columns_of, serve
from conformance.rows import read_rows, write_rows
from tests.support.postgres import PostgresServer
from tests.support.trino import VERSION, Trino, TrinoError, trino_problem

_NOT_PARQUET = "Reading encrypted non-Parquet file is not supported"
_INSERT = text("INSERT INTO iceberg_tables VALUES ('prod', 'db', :name, :location, NULL)")


class TrinoReader:
    """A running Trino, and the database of its catalog."""

    def __init__(self, trino: Trino, database: str) -> None:
        self._trino = trino
        self._engine = create_engine(database)

    def read(self, case: Case) -> str:
        """Read one table."""
        check_needs(case, "Trino")
        hold(case.get("keys"))
        # In SQL, Trino takes every name as if it were written in small letters.
        name = "t_" + re.sub(r"\W", "_", case["id"]).lower()
        # Not through tablecrypt's catalog, which looks at what it registers.
        with self._engine.begin() as connection:
            connection.execute(_INSERT, {"name": name, "location": f"file://{case['metadata']}"})
        version = f" FOR VERSION AS OF '{case['ref']}'" if "ref" in case else ""
        version = f" FOR VERSION AS OF {case['snapshot_id']}" if "snapshot_id" in case else version
        try:
            rows = self._trino.rows(f"SELECT {columns_of(case)} FROM {name}{version}", read_rows(case["rows"]).schema)
        except TrinoError as error:
            if case["kind"] == "refuse" and _NOT_PARQUET in str(error):
                raise Unsupported(f"Trino looks at no such file: {_NOT_PARQUET}") from error
            raise
        # The types are those that are expected, the names are Trino's own.
        names = case.get("columns") or [str(name) for name, *_ in self._trino.values(f"SHOW COLUMNS FROM {name}")]
        write_rows(rows.rename_columns(names), case["out"])
        return "rows"

    def write(self, case: Case) -> str:
        """Write one table, which is made empty for it: Trino takes no `encryption.key-id` for a table that it makes."""
        if not all(each["type"] in ("long", "string") for each in case["schema"]["fields"]):
            raise Unsupported("this adapter inserts whole numbers and texts")
        hold(case.get("keys"))
        name = "w_" + re.sub(r"\W", "_", case["out"])
        schema, spec = Schema.model_validate(case["schema"]), PartitionSpec.model_validate(case["partition_spec"])
        location, properties = f"file://{case['out']}", case["properties"]
        table = self._trino.catalog.create_table(f"db.{name}", schema, location=location, partition_spec=spec, properties=properties)
        for step in case["steps"]:
            if step["step"] != "append":
                raise Unsupported(f"this adapter has no statement for a step of {step['step']}")
            self._trino.values(_insert(name, step["rows"]))
        return table.refresh().metadata_location.removeprefix("file://")


def _insert(name: str, path: str) -> str:
    rows = read_rows(path).to_pylist()
    return f"INSERT INTO {name} VALUES {', '.join('(' + ', '.join(map(_literal, row.values())) + ')' for row in rows)}"


def _literal(value: int | str) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def refused(error: Exception) -> str:
    """The class of an error, by what the message and its causes say."""
    words = {
        "placeholder": ("Dictionary is missing",),
        "key-denied": ("is not found. (Service: Kms", "AccessDenied"),
        "tampered": ("GCM tag", "Tag mismatch", "tag check failed", "AEADBadTag", "GCM stream", "InvalidCiphertext", *LENGTHS),
        "format": ("Malformed Parquet file",),
        "plaintext": ("plaintext file",),
        "missing": ("NotFound", "does not exist", "not found"),
    }
    return class_by_words(error, words)


def main() -> None:
    """Start what it needs, and serve."""
    problem = trino_problem()
    if problem:
        raise SystemExit(problem)
    postgres = PostgresServer()
    try:
        with tempfile.TemporaryDirectory() as folder, kms_of_the_kit() as aws:
            database = postgres.new_database()
            trino = Trino(Path(folder), aws, database, {"fs.local.enabled": "true", "local.location": "/"})
            try:
                reader = TrinoReader(trino, database)
                serve("Trino", VERSION, ["table"], reader.read, (TrinoError,), refused, reader.write, ["table"])
            finally:
                trino.stop()
    finally:
        postgres.stop()


if __name__ == "__main__":
    main()
