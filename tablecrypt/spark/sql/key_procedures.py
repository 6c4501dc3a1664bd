"""Procedures on keys: what tablecrypt.maintenance does with the keys of a table, and what an audit and a verification find.

Their arguments are those of the Python functions of the same names, and so are the columns of their rows. No row holds a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyiceberg.typedef import Identifier

from tablecrypt import maintenance
from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance.progress import OperationResult
from tablecrypt.spark.sql.calls import DELETE_BELOW, DRY_RUN, MANIFESTS_BELOW, TABLE, WORKERS, Call, Parameter, Procedure, Row, columns
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

_TEXTS: Final = pa.list_(pa.string())
_IDS: Final = pa.list_(pa.int64())
_TEXT_BY_NAME: Final = pa.map_(pa.string(), pa.string())
_IDS_BY_NAME: Final = pa.map_(pa.string(), _IDS)
_TEXTS_BY_NAME: Final = pa.map_(pa.string(), _TEXTS)
_COUNT_BY_NAME: Final = pa.map_(pa.string(), pa.int64())
_RESULT: Final[Mapping[str, pa.DataType]] = {"table": pa.string(), "dry_run": pa.bool_()}
_BAD: Final = pa.list_(pa.struct([("location", pa.string()), ("kind", pa.string()), ("part", pa.string()), ("message", pa.string())]))
_STATE: Final = pa.struct(
    [("metadata_location", pa.string()), ("metadata_sha256", pa.string()), ("files", pa.int64()), ("files_sha256", pa.string())]
)
_COUNTS_SEARCHED: Final = ("snapshots", "data_files", "delete_files", "rows", "bytes", "manifests", "metadata_files", "other_files")
_COUNTS_ERASED: Final = ("rows", "hidden_rows", "rewritten_files", "rewritten_bytes", "snapshot_before", "snapshot_after")
_ERASED_REF: Final = pa.struct([("name", pa.string()), ("kind", pa.string()), *((each, pa.int64()) for each in _COUNTS_ERASED)])
_HIDDEN_COLUMN: Final = pa.struct(
    [("column", pa.string()), ("field_id", pa.int64()), ("master_key_id", pa.string()), ("files", pa.int64()), ("rows", pa.int64())]
)
_PROPERTIES: Final = Parameter("properties", "MAP<STRING, STRING>")


def _result_of(operation: Callable[..., OperationResult]) -> Callable[[Call], Iterator[Row]]:
    """Return what runs a function of tablecrypt.maintenance on a call's table, with the arguments that it takes. Its result is the row."""

    def run(call: Call) -> Iterator[Row]:
        yield operation(call.encrypted_table(), **call.options(operation)).to_json()

    return run


def _migrate(call: Call) -> Iterator[Row]:
    if call.given(OF_SPARK):
        target = target_of(call)
        migrate_spark_table(call, target, _all_properties(call, target))
        return
    check_of_iceberg(call)
    options = call.options(maintenance.migrate)
    target = call.identifier("into" if "into" in options else "table")
    options["key_id"], options["properties"] = _key_and_properties(call, target)
    migrated = maintenance.migrate(call.table(), **options)
    yield {**migrated.to_json(), "left": [f"{each.location}: {each.what}" for each in migrated.left]}


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


def _verify(call: Call) -> Iterator[Row]:
    verified = maintenance.verify(call.encrypted_table(), **call.options(maintenance.verify))
    bad = [
        {"location": file.location, "kind": file.kind.value, "part": problem.part, "message": problem.message}
        for file in verified.bad
        for problem in file.problems
    ]
    yield {**verified.to_json(), "bad": bad}


def _doctor(call: Call) -> Iterator[Row]:
    table = ".".join(call.identifier()) if call.optional_text("table") else None
    checkup = maintenance.doctor(call.catalog, table, key_ids=call.items("key_ids"), read_only=call.flag("read_only"))
    for check in checkup.checks:
        yield {"area": check.area, "name": check.name, "state": check.state.value, "found": check.found, "advice": check.advice}


def _texts(*names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, "STRING") for name in names)


def _flags(*names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, "BOOLEAN") for name in names)


def _arrays(*names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, "ARRAY<STRING>") for name in names)


def _result(**types: Any) -> pa.Schema:
    return columns(**_RESULT, **types)


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "rotate_kek": Procedure(
        "Replace the KEK of a table.",
        (TABLE, DRY_RUN),
        _result(new_kek=pa.string(), old_keks=_TEXTS, manifest_list_keys=pa.int64(), pruned=pa.int64()),
        _result_of(maintenance.rotate_kek),
    ),
    "rewrap": Procedure(
        "Rewrap a table's KEKs under the newest version of its master key.",
        (TABLE, *_texts("from_key_id"), DRY_RUN, MANIFESTS_BELOW),
        _result(table_key_id=pa.string(), keks=_TEXTS, unneeded=_TEXTS),
        _result_of(maintenance.rewrap),
    ),
    "rotate_column_keks": Procedure(
        "Replace the KEKs of a table's protected columns.",
        (TABLE, DRY_RUN),
        _result(new_keks=_TEXT_BY_NAME, old_keks=_TEXTS, column_keys=pa.int64()),
        _result_of(maintenance.rotate_column_keks),
    ),
    "rewrap_column_keks": Procedure(
        "Rewrap the KEKs of a table's protected columns under the newest versions of their master keys.",
        (TABLE, DRY_RUN),
        _result(keks=_TEXTS_BY_NAME),
        _result_of(maintenance.rewrap_column_keks),
    ),
    "prune_keys": Procedure(
        "Remove keys that no snapshot needs.",
        (TABLE, DRY_RUN),
        _result(keks=_TEXTS, manifest_list_keys=_TEXTS, kept=pa.int64()),
        _result_of(maintenance.prune_keys),
    ),
    "reencrypt": Procedure(
        "Re-encrypt data files under fresh keys.",
        (
            TABLE,
            *_texts("where"),
            Parameter("older_than", "TIMESTAMP"),
            Parameter("data_key_length", "INT"),
            *_texts("branch"),
            DRY_RUN,
            WORKERS,
            *_flags("out_of_line", "accept_masks"),
        ),
        _result(
            data_files=pa.int64(),
            delete_files=pa.int64(),
            size=pa.int64(),
            resumed=pa.int64(),
            gone=pa.int64(),
            snapshot_id=pa.int64(),
            unused=_TEXTS,
            in_line=pa.int64(),
            twins_kept=pa.int64(),
        ),
        _result_of(maintenance.reencrypt),
        runs_jobs=True,
    ),
    "migrate": Procedure(
        "Encrypt a plain table, in place or as a new table. A table of Spark's session catalog is copied and renamed.",
        (
            TABLE,
            _PROPERTIES,
            *BACKUP_PARAMETERS,
            *PARAMETERS,
            *_texts("key_id", "into", "location"),
            *_flags("drop_refs", "keep_plaintext"),
            DELETE_BELOW,
            DRY_RUN,
            WORKERS,
        ),
        _result(
            files=pa.int64(),
            size=pa.int64(),
            resumed=pa.int64(),
            snapshot_id=pa.int64(),
            deleted=pa.int64(),
            refused=_TEXT_BY_NAME,
            left=_TEXTS,
        ),
        _migrate,
        runs_jobs=True,
        copies="table",
        copies_tables=True,
    ),
    "snapshot": Procedure(
        "Copy a plain table into a new encrypted one. The plain table stays as it is.",
        (
            Parameter("source_table", "STRING", is_required=True),
            TABLE,
            *_texts("location"),
            _PROPERTIES,
            *PARAMETERS,
            *_texts("key_id"),
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
        (*_texts("table"), *_arrays("include", "exclude")),
        columns(table=pa.string(), severity=pa.string(), kind=pa.string(), where=pa.string(), message=pa.string()),
        _audit,
        only_looks=True,
    ),
    "verify": Procedure(
        "Authenticate every byte of a table.",
        (TABLE, *_flags("quick"), WORKERS),
        columns(
            table=pa.string(),
            good=pa.bool_(),
            empty=pa.bool_(),
            full=pa.bool_(),
            snapshots=pa.int64(),
            files=pa.int64(),
            bytes=pa.int64(),
            parts=pa.int64(),
            bad=_BAD,
            complete=pa.bool_(),
            unchecked_columns=_COUNT_BY_NAME,
            unchecked_files=pa.int64(),
            verdict=pa.string(),
        ),
        _verify,
        runs_jobs=True,
        only_looks=True,
    ),
    "erase": Procedure(
        "Erase rows from a table and its history, and search all that is left for them.",
        (TABLE, Parameter("row_filter", "STRING", is_required=True), DRY_RUN, DELETE_BELOW, WORKERS),
        _result(
            complete=pa.bool_(),
            table_uuid=pa.string(),
            time=pa.string(),
            shape=pa.string(),
            columns=_TEXTS,
            before=_STATE,
            after=_STATE,
            refs=pa.list_(_ERASED_REF),
            snapshots=_IDS,
            retired_keks=_TEXTS,
            deleted=_TEXTS,
            deleted_bytes=pa.int64(),
            metadata_rewritten=_TEXTS,
            searched=pa.struct([(each, pa.int64()) for each in _COUNTS_SEARCHED]),
            remaining=_TEXT_BY_NAME,
            not_searched=_TEXT_BY_NAME,
            refused=_TEXT_BY_NAME,
            failed=_TEXT_BY_NAME,
            hidden_columns=pa.list_(_HIDDEN_COLUMN),
            outside=_TEXTS,
        ),
        _result_of(maintenance.erase),
        runs_jobs=True,
    ),
    "shred": Procedure(
        "Destroy the keys of snapshots, or of a whole table.",
        (
            TABLE,
            Parameter("snapshots", "ARRAY<BIGINT>"),
            *_texts("whole_table"),
            *_flags("replace_heads"),
            DRY_RUN,
            DELETE_BELOW,
            *_flags("all_but_heads"),
        ),
        _result(
            effective=pa.bool_(),
            complete=pa.bool_(),
            incomplete_because=_TEXTS,
            snapshots=_IDS,
            expired_before=_IDS,
            retired_keks=_TEXTS,
            rewritten=_TEXTS,
            deleted=_TEXTS,
            left=_TEXT_BY_NAME,
            refused=_TEXT_BY_NAME,
            not_found=_IDS,
            shredded_files=_TEXTS,
            live_files=_TEXTS,
            still_opened=_IDS_BY_NAME,
            unknown=_IDS,
            outside=_TEXTS,
        ),
        _result_of(maintenance.shred),
    ),
    "shred_column": Procedure(
        "Destroy the keys of one protected column, in every file of every snapshot.",
        (TABLE, Parameter("column", "STRING", is_required=True), DRY_RUN, DELETE_BELOW),
        _result(
            column=pa.string(),
            field_id=pa.int64(),
            complete=pa.bool_(),
            incomplete_because=_TEXTS,
            column_keys=_TEXTS,
            retired_keks=_TEXTS,
            rewritten=_TEXTS,
            deleted=_TEXTS,
            left=_TEXT_BY_NAME,
            refused=_TEXT_BY_NAME,
            outside=_TEXTS,
        ),
        _result_of(maintenance.shred_column),
    ),
    "rescue": Procedure(
        "Recover lost keys from older metadata.",
        (TABLE, *_arrays("metadata"), *_flags("expire_lost"), DRY_RUN),
        _result(
            snapshots=_IDS,
            keys=_TEXTS,
            found_in=_TEXTS,
            expired=_IDS,
            damaged=_IDS,
            unreadable=_TEXT_BY_NAME,
            column_keys_left=_TEXT_BY_NAME,
        ),
        _result_of(maintenance.rescue),
    ),
    "relocate": Procedure(
        "Copy a table to another location or master key.",
        (
            TABLE,
            Parameter("location", "STRING", is_required=True),
            *_texts("key_id", "register_as"),
            *_flags("current_only", "trust_lengths"),
            DRY_RUN,
            WORKERS,
            MANIFESTS_BELOW,
        ),
        _result(
            location=pa.string(),
            metadata_location=pa.string(),
            registered_as=pa.string(),
            table_key_id=pa.string(),
            snapshots=pa.int64(),
            files=pa.int64(),
            bytes=pa.int64(),
            found=pa.int64(),
            manifests=pa.int64(),
            statistics_left=_TEXTS,
        ),
        _result_of(maintenance.relocate),
        runs_jobs=True,
    ),
    "doctor": Procedure(
        "Check whether the planner can use the catalog, the key service and the store.",
        (*_texts("table"), *_arrays("key_ids"), *_flags("read_only")),
        columns(area=pa.string(), name=pa.string(), state=pa.string(), found=pa.string(), advice=pa.string()),
        _doctor,
        only_looks=True,
    ),
}
