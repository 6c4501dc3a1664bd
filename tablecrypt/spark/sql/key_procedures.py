"""Procedures on keys: what tablecrypt.maintenance does with the keys of a table, and what an audit and a verification find.

Nearly all are an operation as it is (statements/operations.py). No row holds a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyiceberg.typedef import Identifier

from tablecrypt import maintenance
from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.operations import OPERATIONS
from tablecrypt.spark.sql.calls import TABLE, WORKERS, Call, Parameter, Procedure, Row, columns, optional
from tablecrypt.spark.sql.statements.operations import parameters_of, procedure_of
from tablecrypt.spark.sql.statements.spark_tables import (
    BACKUP_PARAMETERS,
    OF_SPARK,
    PARAMETERS,
    check_of_iceberg,
    migrate_spark_table,
    snapshot_spark_table,
    target_of,
)
from tablecrypt_catalog.encrypting_catalog import EncryptingCatalog

_PROPERTIES: Final = Parameter("properties", "MAP<STRING, STRING>")


def _migrate(call: Call) -> Iterator[Row]:
    if call.given(OF_SPARK):
        target = target_of(call)
        migrate_spark_table(call, target, _all_properties(call, target))
        return

    check_of_iceberg(call)
    options = call.options(maintenance.migrate)
    target = call.identifier("into" if "into" in options else "table")
    options["key_id"], options["properties"] = _key_and_properties(call, target)
    yield maintenance.migrate(call.table(), **options).to_json()


def _snapshot(call: Call) -> Iterator[Row]:
    target = call.identifier("table")
    if call.given(OF_SPARK):
        snapshot_spark_table(call, target, _all_properties(call, target))
        return

    check_of_iceberg(call)
    key_id, properties = _key_and_properties(call, target)
    options = call.given("location", "workers")
    into = ".".join(target)
    migrated = maintenance.migrate(call.table("source_table"), key_id, into=into, properties=properties, runner=call.runner, **options)
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


def _audit(call: Call) -> Iterator[Row]:
    target = call.table() if call.optional_text("table") else call.catalog
    audited = maintenance.audit(target, include=call.items("include"), exclude=call.items("exclude"))
    for table in audited.tables:
        for finding in table.findings:
            yield {"table": table.table, **finding.to_json()}
    if not audited.findings:
        audited.refuse_empty()  # no row would say that nothing was found


def _doctor(call: Call) -> Iterator[Row]:
    table = ".".join(call.identifier()) if call.optional_text("table") else None
    checkup = maintenance.doctor(call.catalog, table, key_ids=call.items("key_ids"), read_only=call.flag("read_only"))
    for check in checkup.checks:
        yield {"area": check.area, "name": check.name, "state": check.state.value, "found": check.found, "advice": check.advice}


_OF_ICEBERG: Final = (TABLE, _PROPERTIES, *BACKUP_PARAMETERS, *PARAMETERS)
PROCEDURES: Final[Mapping[str, Procedure]] = {
    **{
        name: procedure_of(getattr(maintenance, name), only_reads=declared.only_reads)
        for name, declared in OPERATIONS.items()
        if declared.procedure
    },
    # An interrupted verification leaves its state in a file of whoever ran it.
    "verify": procedure_of(maintenance.verify, but=("resume_from", "resumed"), only_reads=True),
    "migrate": replace(
        procedure_of(maintenance.migrate, _migrate),
        description="Encrypt a plain table, in place or as a new table. A table of Spark's session catalog is copied and renamed.",
        parameters=(
            *_OF_ICEBERG,
            *optional("STRING", "key_id"),
            *parameters_of(maintenance.migrate, but=("table", "properties", "key_id")),
        ),
        copies="table",
        copies_tables=True,
    ),
    "snapshot": Procedure(
        "Copy a plain table into a new encrypted one. The plain table stays as it is.",
        (
            Parameter("source_table", "STRING", is_required=True),
            TABLE,
            *optional("STRING", "location"),
            _PROPERTIES,
            *PARAMETERS,
            *optional("STRING", "key_id"),
            WORKERS,
        ),
        columns(imported_files_count=pa.int64()),
        _snapshot,
        runs_jobs=True,
        copies="source_table",
        copies_tables=True,
    ),
    "audit": Procedure(
        "Find plaintext and neglected keys in a table or in all tables of the catalog.",
        (*optional("STRING", "table"), *optional("ARRAY<STRING>", "include", "exclude")),
        columns(table=pa.string(), severity=pa.string(), kind=pa.string(), where=pa.string(), message=pa.string()),
        _audit,
        only_reads=True,
    ),
    "doctor": Procedure(
        "Check whether the planner can use the catalog, the key service and the store.",
        (*optional("STRING", "table"), *optional("ARRAY<STRING>", "key_ids"), *optional("BOOLEAN", "read_only")),
        columns(area=pa.string(), name=pa.string(), state=pa.string(), found=pa.string(), advice=pa.string()),
        _doctor,
        only_reads=True,
    ),
}
