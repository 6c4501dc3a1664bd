"""Procedures on keys: what tablecrypt.maintenance does with the keys of a table, and what an audit and a verification find.

Nearly all are an operation as it is (statements/operations.py). No row holds a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyiceberg.typedef import Identifier

from tablecrypt import maintenance
from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.operations import OPERATIONS
from tablecrypt.spark.sql.calls import Call, Row, columns
from tablecrypt.spark.sql.parameters import Parameter, parameters_of
from tablecrypt.spark.sql.statements.operations import procedure, procedure_of
from tablecrypt.spark.sql.statements.spark_tables import (
    OF_SPARK,
    PARAMETERS,
    check_of_iceberg,
    migrate_spark_table,
    snapshot_spark_table,
    target_of,
)
from tablecrypt_catalog.encrypting_catalog import EncryptingCatalog


def _migrate(call: Call) -> Iterator[Row]:
    if call.given(OF_SPARK):
        target = target_of(call)
        migrate_spark_table(call, target, _all_properties(call, target))
        return

    check_of_iceberg(call)
    options = call.options(maintenance.migrate, but=("table", "key_id", "properties"))
    target = call.identifier("into" if "into" in options else "table")
    key_id, properties = _key_and_properties(call, target)
    yield maintenance.migrate(call.table(), key_id, properties=properties, **options).to_json()


@procedure(columns(imported_files_count=pa.int64()), runs_jobs=True, copies="source_table", copies_tables=True)
def snapshot(
    call: Call,
    source_table: str,
    table: str,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
    parallelism: int | None = None,
    ignore_missing_files: bool = False,
    key_id: str | None = None,
    workers: int | None = None,
) -> Iterator[Row]:
    """Copy a plain table into a new encrypted one. The plain table stays as it is."""
    target = call.identifier("table")
    if call.given(OF_SPARK):
        snapshot_spark_table(call, target, _all_properties(call, target))
        return

    check_of_iceberg(call)
    own_key_id, others = _key_and_properties(call, target)
    into = ".".join(target)
    migrated = maintenance.migrate(
        call.table("source_table"), own_key_id, into=into, location=location, properties=others, runner=call.runner, workers=workers
    )
    yield {"imported_files_count": migrated.files}


def _key_and_properties(call: Call, target: Identifier) -> tuple[str, dict[str, str]]:
    """Return the master key that a call names, or the default of the new table's namespace, and the table's other properties."""
    properties = call.mapping("properties")
    named = properties.pop(names.KEY_ID.name, None)
    key_id = call.optional_text("key_id") or named
    if not key_id and isinstance(call.catalog, EncryptingCatalog):
        key_id = call.catalog.default_key_id(target[:-1])
    if not key_id:
        raise ConfigurationError(f"no master key is named: give key_id, or set {names.DEFAULT_KEY_ID.name} for catalog or namespace")

    return key_id, properties


def _all_properties(call: Call, target: Identifier) -> dict[str, str]:
    key_id, properties = _key_and_properties(call, target)
    return {**properties, names.KEY_ID.name: key_id}


@procedure(
    columns(table=pa.string(), severity=pa.string(), kind=pa.string(), where=pa.string(), message=pa.string()),
    only_reads=True,
)
def audit(call: Call, table: str = "", include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Iterator[Row]:
    """Find plaintext and neglected keys in a table or in all tables of the catalog."""
    audited = maintenance.audit(call.table() if table else call.catalog, include=include, exclude=exclude)
    for each in audited.tables:
        for finding in each.findings:
            yield {"table": each.table, **finding.to_json()}
    if not audited.findings:
        audited.refuse_empty()  # no row would say that nothing was found


@procedure(columns(area=pa.string(), name=pa.string(), state=pa.string(), found=pa.string(), advice=pa.string()), only_reads=True)
def doctor(call: Call, table: str = "", key_ids: Sequence[str] = (), read_only: bool = False) -> Iterator[Row]:
    """Check whether the planner can use the catalog, the key service and the store."""
    name = ".".join(call.identifier()) if table else None
    checkup = maintenance.doctor(call.catalog, name, key_ids=key_ids, read_only=read_only)
    for check in checkup.checks:
        yield {"area": check.area, "name": check.name, "state": check.state.value, "found": check.found, "advice": check.advice}


PROCEDURES: Final = (
    *(
        procedure_of(getattr(maintenance, name), only_reads=declared.only_reads)
        for name, declared in OPERATIONS.items()
        if declared.procedure
    ),
    # An interrupted verification leaves its state in a file of whoever ran it.
    procedure_of(maintenance.verify, but=("resume_from", "resumed"), only_reads=True),
    replace(
        procedure_of(maintenance.migrate, _migrate),
        description="Encrypt a plain table, in place or as a new table. A table of Spark's session catalog is copied and renamed.",
        parameters=(
            Parameter("table", "STRING", is_required=True),
            Parameter("properties", "MAP<STRING, STRING>"),
            *PARAMETERS,
            Parameter("key_id", "STRING"),
            *parameters_of(maintenance.migrate, but=("table", "properties", "key_id")),
        ),
        copies="table",
        copies_tables=True,
    ),
    snapshot,
    audit,
    doctor,
)
