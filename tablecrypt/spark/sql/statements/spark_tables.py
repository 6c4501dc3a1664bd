"""snapshot and migrate of Spark's own tables, which its session catalog keeps: a new encrypted table with their rows.

Iceberg's procedures let the new table name the files that are there. An encrypted table names no plaintext file, so Spark copies the rows,
as for add_files, in the commit that creates the table.

    snapshot  the source stays as it is
    migrate   the source is renamed before its rows are copied, so that no client writes to it by name; it gets its name back if that fails

Raises:
    ConfigurationError: the source is no table of files that Iceberg could take, is bucketed, or lacks directories that its catalog lists;
        or an argument has no meaning for it.
    TableAlreadyExistsError: there is a table of the new one's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.typedef import Identifier

from tablecrypt.errors import ConfigurationError
from tablecrypt.manifests.copied_files import CopiedFiles
from tablecrypt.setting_kinds import whole_number
from tablecrypt.spark.shared.written_columns import quoted
from tablecrypt.spark.sql.calls import Call, CopyTarget, RenamedTable, RowCopy, name_parts
from tablecrypt.spark.sql.parameters import Parameter
from tablecrypt.spark.sql.writes.copies import Copy

OF_SPARK: Final = "source_format"
"""The argument that a call has where its source is a table of Spark's own: parquet, orc, avro, or another or empty text."""
PARAMETERS: Final = (
    Parameter("drop_backup", "BOOLEAN"),
    Parameter("backup_table_name", "STRING"),
    Parameter("parallelism", "BIGINT"),
    Parameter("ignore_missing_files", "BOOLEAN"),
)
"""Of migrate, for a table of Spark's own."""
_FORMATS: Final = ("parquet", "orc", "avro")
_NOT_OF_SPARK: Final = ("keep_plaintext", "drop_refs", "delete_below", "dry_run", "workers")
_SPARK_ONLY: Final = ("drop_backup", "backup_table_name", "ignore_missing_files")
_SNAPSHOT: Final = "snapshot"


def snapshot_spark_table(call: Call, target: Identifier, properties: Mapping[str, str]) -> None:
    """Have the session create a table with the rows of one of Spark's own."""
    _copy(call, "source_table", target, {**properties, _SNAPSHOT: "true"}, _SNAPSHOT)


def migrate_spark_table(call: Call, target: Identifier, properties: Mapping[str, str]) -> None:
    """Have the session create a table with the rows of one of Spark's own, which it renames."""
    _, *namespace, name = name_parts(call.text("table"))
    backup = (*namespace, call.optional_text("backup_table_name") or f"{name}_BACKUP_")
    renamed = RenamedTable(_in_sql((*namespace, name)), _in_sql(backup), is_dropped=call.flag("drop_backup"))
    _copy(call, "table", target, {**properties, "migrated": "true"}, "migrate", renamed)


def target_of(call: Call) -> Identifier:
    """Return the table that migrate makes of one of Spark's: of its namespace and name, unless the call has others."""
    return call.identifier("into") if call.optional_text("into") else name_parts(call.text("table"))[1:]


def check_parallelism(number: int | None) -> None:
    """Raise ConfigurationError for a parallelism below 1. Beyond that Spark decides how many tasks copy rows."""
    if number is not None:
        whole_number("parallelism", number, least=1)


def check_of_iceberg(call: Call) -> None:
    """Raise ConfigurationError for arguments that say nothing of an Iceberg table."""
    check_parallelism(call.arguments.get("parallelism"))
    if found := call.given(*_SPARK_ONLY):
        raise ConfigurationError(f"{', '.join(found)}: these are for tables of Spark's session catalog, named as spark_catalog.db.t")


def _copy(
    call: Call, argument: str, target: Identifier, properties: Mapping[str, str], procedure: str, renamed: RenamedTable | None = None
) -> None:
    source = call.text(argument)
    check_parallelism(call.arguments.get("parallelism"))
    # Each would be passed over: `dry_run => true` must not copy and rename a table.
    if found := call.given(*_NOT_OF_SPARK):
        raise ConfigurationError(
            f"{', '.join(found)}: these are for Iceberg tables of {call.catalog_name}, and Spark copies the rows of {source}"
        )

    _check_source(call, source)
    # Asked before the source is renamed, which happens before the new table is made.
    if call.catalog.table_exists(target):
        raise TableAlreadyExistsError(f"Table {'.'.join(target)} already exists")

    location = call.optional_text("location")
    made = CopyTarget(
        {**properties, **({"location": location} if location else {})}, [str(each) for each in call.items("source_partitions")]
    )
    columns = [quoted(str(field["name"])) for field in json.loads(call.text("source_schema"))["fields"]]
    copy = Copy(source, is_checked=True, files=CopiedFiles.of(()), procedure=procedure)
    call.copies.append(RowCopy(copy, target, columns, "true", made, renamed))


def _check_source(call: Call, source: str) -> None:
    if (kind := call.text(OF_SPARK)) not in _FORMATS:
        raise ConfigurationError(
            f"{source} is not a table of {', '.join(_FORMATS)} files{f' but of {kind}' if kind else ''}: "
            "CREATE TABLE … AS SELECT copies the rows of any table or view"
        )
    if call.flag("source_is_bucketed"):
        raise ConfigurationError(f"{source} is bucketed by Spark, whose buckets Iceberg does not have: CREATE TABLE … AS SELECT copies it")

    missing = call.items("missing_directories")
    # Spark reads a missing directory as one without rows, which nothing in the new table would show.
    if missing and not call.flag("ignore_missing_files"):
        raise ConfigurationError(
            f"{source}: {len(missing)} directories that its catalog lists do not exist, such as {missing[0]}: "
            "ignore_missing_files => true copies the rows of the others"
        )


def _in_sql(name: Identifier) -> str:
    return ".".join(map(quoted, name))
