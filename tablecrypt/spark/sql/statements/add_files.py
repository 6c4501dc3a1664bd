"""add_files: the rows of files that Spark reads, in an encrypted table.

Iceberg's procedure lets a table name files that are there. An encrypted table names none that is plaintext, so here Spark reads the source
and writes its rows as it writes any others, in one commit. The source stays as it is, in plaintext where it is that.

    Java    the source's columns ─▶ add_files ─▶ expressions for the table's columns, and a condition
    Java    the rows' files ─▶ list_source_files ─▶ appends the rows ─▶ copied_rows ─▶ what Iceberg's procedure returns

The names of partition directories are texts, of which Spark guesses types: `dept=01` would be 1, and 1 as a text is '1'. So those of a path
are read as texts here, and a text has to say a value of its column's type exactly. Tables and views that Spark knows have their own types.

The table remembers the source's files (manifests/copied_files.py). None is copied twice, unless check_duplicate_files is false.

A column that the source lacks has its initial default, or null, as in files that were written before the column was added. Columns that the
table lacks are left out, as Iceberg does not read them. A path without files adds nothing. ORC files with encrypted columns for which Spark
gets no key are refused by Java (OrcMasks): their masks would pass for the values.

Raises:
    AlreadyAddedError: the table has rows of some of the source's files.
    ConfigurationError: the source lacks a column that must not be null; or the filter names a column by which it is not partitioned; or its
        rows come from no files. Types that do not fit Spark itself refuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.manifests.copied_files import CopiedFiles
from tablecrypt.spark.shared.written_columns import quoted
from tablecrypt.spark.sql.calls import Call, Row, RowCopy, columns, name_parts, table_of
from tablecrypt.spark.sql.catalogs import catalog_of, spark_json
from tablecrypt.spark.sql.local_rows import arrow_stream
from tablecrypt.spark.sql.messages import CatalogRequest, Response, operation
from tablecrypt.spark.sql.planner import Planner
from tablecrypt.spark.sql.statements.operations import procedure
from tablecrypt.spark.sql.statements.spark_tables import check_parallelism
from tablecrypt.spark.sql.writes.copies import Copy
from tablecrypt.spark.sql.writes.defaults import default_metadata
from tablecrypt.table.table import EncryptedTable

_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_DIGITS: Final = 38
"""Of the longest decimal."""
_NAME: Final = "add_files"
_COUNTS: Final = ("added_files_count", "imported_files_count", "migrated_files_count")
_RESULTS: Final = {
    _NAME: columns(added_files_count=pa.int64(), changed_partition_count=pa.int64()),
    "snapshot": columns(imported_files_count=pa.int64()),
    "migrate": columns(migrated_files_count=pa.int64()),
}
"""What Iceberg's procedures return."""


@procedure(_RESULTS[_NAME], copies="source_table")
def add_files(
    call: Call,
    table: EncryptedTable,
    source_table: str,
    partition_filter: Mapping[str, str] | None = None,
    check_duplicate_files: bool = True,
    parallelism: int | None = None,
) -> Iterator[Row]:
    """Copy the rows of a table, or of files under a path, encrypted. The source stays as it is."""
    check_parallelism(parallelism)
    source = ".".join(map(quoted, name_parts(source_table)))
    given = _SourceColumns.of(source, call.text("source_schema"), call.items("directory_columns"), call.items("source_partitions"))
    # A path without files has no schema that could be compared with the table's.
    if not given.names:
        yield dict.fromkeys(_RESULTS[_NAME].names, 0)
        return

    kinds = _kinds(table.schema())
    copy = Copy(source, check_duplicate_files, CopiedFiles.of(()), _NAME)
    selected = [given.selected(field, kinds[field.name.lower()]) for field in table.schema().fields]
    call.copies.append(RowCopy(copy, call.identifier(), selected, given.condition(partition_filter or {}, kinds)))


class CopyRequest(CatalogRequest):
    """About a call that copies rows, by its handle."""

    copy: str


class ListSourceFiles(CopyRequest):
    """The locations of the files that the rows of a call are of."""

    files: list[str]


@operation
def list_source_files(planner: Planner, request: ListSourceFiles) -> None:
    """Take the locations of the files that the rows of a call are of. ConfigurationError as `Copy.take`."""
    planner.copies[request.copy].take(request.files)


@operation
def copied_rows(planner: Planner, request: CopyRequest) -> Response:
    """Return the rows of a call whose rows have been appended: how many files and partitions were made."""
    copy = planner.copies.pop(request.copy)
    counts = {**dict.fromkeys(_COUNTS, copy.added_files), "changed_partition_count": copy.changed_partitions}
    name = f"{catalog_of(planner, request).name}.system.{copy.procedure}"
    return Response({"name": name}, arrow_stream(table_of([counts], _RESULTS[copy.procedure])))


@dataclass(frozen=True)
class _SourceColumns:
    """The columns of a source.

    Attributes:
        source: what is copied, in SQL.
        names: theirs, by themselves in small letters.
        directories: names in small letters of those that are texts of partition directories.
        partitions: names in small letters of those by which the source is partitioned.
    """

    source: str
    names: Mapping[str, str]
    directories: frozenset[str]
    partitions: Sequence[str]

    @classmethod
    def of(cls, source: str, schema: str, directories: Iterable[str], partitions: Iterable[str]) -> _SourceColumns:
        """Take the columns from Spark's JSON of them."""
        try:
            names = [str(field["name"]) for field in json.loads(schema)["fields"]]
        except (ValueError, LookupError, TypeError) as error:
            raise FormatError("the columns of the source are not a Spark schema") from error
        by_name = {name.lower(): name for name in names}
        return cls(source, by_name, frozenset(name.lower() for name in directories), [name.lower() for name in partitions])

    def selected(self, field: NestedField, kind: str) -> str:
        """Return the expression of a column of the table.

        Args:
            field: the column.
            kind: its type as Spark calls it.
        """
        name = self.names.get(field.name.lower())
        if name is not None:
            value = _read_text(quoted(name), name, kind) if name.lower() in self.directories else quoted(name)
            return f"{value} AS {quoted(field.name)}"
        if field.initial_default is not None:
            default = default_metadata(field.model_copy(update={"write_default": field.initial_default})).get("CURRENT_DEFAULT")
            if default is None:
                raise ConfigurationError(f"the source has no column {field.name}, whose default Spark cannot write")
            return f"{default} AS {quoted(field.name)}"
        if field.required:
            raise ConfigurationError(f"the source has no column {field.name}, which must not be null")

        return f"NULL AS {quoted(field.name)}"

    def condition(self, partition_filter: Mapping[str, str], kinds: Mapping[str, str]) -> str:
        """Return the condition of a partition filter.

        Args:
            partition_filter: values by names of columns.
            kinds: types of the table's columns, by names in small letters.
        """
        conditions = ["true"]
        for name, value in partition_filter.items():
            key = name.lower()
            if key not in self.partitions:
                has = ", ".join(self.names[each] for each in self.partitions) or "nothing"
                raise ConfigurationError(f"partition_filter names {name}, and {self.source} is partitioned by {has}")

            column, text = quoted(self.names[key]), _literal(value)
            # The text itself counts too: a directory may have a name that is no value of the column's type.
            same = f"CAST({column} AS STRING) = {text}"
            # Directories' names that differ may be one value: amount=007 and amount=7.
            is_text = key in self.directories
            conditions.append(f"({same} OR try_cast({column} AS {kinds[key]}) = try_cast({text} AS {kinds[key]}))" if is_text else same)

        return " AND ".join(conditions)


def _kinds(schema: Schema) -> dict[str, str]:
    """Return the types of a table's columns as Spark calls them, by names in small letters; empty for structs, lists and maps."""
    fields = json.loads(spark_json(schema))["fields"]
    return {field["name"].lower(): field["type"] if isinstance(field["type"], str) else "" for field in fields}


def _read_text(column: str, name: str, kind: str) -> str:
    """Return the value of a type that the name of a directory says; an error of the query where it says none exactly."""
    if not kind:
        raise ConfigurationError(f"the source has directories {name}=…, and the table's column {name} is a struct, list or map")
    if kind == "string":
        return column

    value = f"try_cast({column} AS {kind})"
    fits = f"{value} IS NOT NULL"
    if decimal := _DECIMAL.fullmatch(kind):
        # A cast rounds: with all the digits that there is room for behind the point, the number has to be the same.
        whole = int(decimal[1]) - int(decimal[2])
        fits += f" AND {value} = try_cast({column} AS decimal({_DIGITS}, {_DIGITS - whole}))"

    if kind == "date":
        # A cast takes a timestamp, and drops its time.
        fits += f" AND {column} NOT LIKE '% %' AND {column} NOT LIKE '%T%'"
    before, after = _literal(f"a directory of the source says {name}="), _literal(f", which is not of the type {kind}")

    return f"CASE WHEN {column} IS NULL THEN NULL WHEN {fits} THEN {value} ELSE raise_error(concat({before}, {column}, {after})) END"


def _literal(text: str) -> str:
    # Whatever a literal's escapes mean in this session, a text from hexadecimal digits is this one.
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


PROCEDURES: Final = (add_files,)
