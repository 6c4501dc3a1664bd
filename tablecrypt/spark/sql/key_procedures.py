"""Procedures on keys: what tablecrypt.maintenance does with the keys of a table, and what an audit and a verification find.

Their arguments are those of the Python functions of the same names, and so are the columns of their rows. No row holds a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyiceberg.typedef import Identifier

from tablecrypt import maintenance
from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.calls import DELETE_BELOW, DRY_RUN, TABLE, WORKERS, Call, Parameter, Procedure, Row, columns
from tablecrypt_catalog.encrypting_catalog import EncryptingCatalog

_TEXTS: Final = pa.list_(pa.string())
_IDS: Final = pa.list_(pa.int64())
_BY_LOCATION: Final = pa.map_(pa.string(), pa.string())
_RESULT: Final[Mapping[str, pa.DataType]] = {"table": pa.string(), "dry_run": pa.bool_()}
_BAD: Final = pa.list_(pa.struct([("location", pa.string()), ("kind", pa.string()), ("part", pa.string()), ("message", pa.string())]))
_PROPERTIES: Final = Parameter("properties", "MAP<STRING, STRING>")


def _rotate_kek(call: Call) -> Iterator[Row]:
    yield maintenance.rotate_kek(call.encrypted_table(), dry_run=call.flag("dry_run")).to_json()


def _rewrap(call: Call) -> Iterator[Row]:
    yield maintenance.rewrap(call.encrypted_table(), call.optional_text("from_key_id"), dry_run=call.flag("dry_run")).to_json()


def _prune_keys(call: Call) -> Iterator[Row]:
    yield maintenance.prune_keys(call.encrypted_table(), dry_run=call.flag("dry_run")).to_json()


def _reencrypt(call: Call) -> Iterator[Row]:
    options = call.given("data_key_length", "branch", "dry_run", "workers")
    if (row_filter := call.row_filter()) is not None:
        options["where"] = row_filter
    yield maintenance.reencrypt(call.encrypted_table(), older_than=call.moment("older_than"), runner=call.runner, **options).to_json()


def _migrate(call: Call) -> Iterator[Row]:
    options = call.given("into", "location", "drop_refs", "keep_plaintext", "dry_run", "workers")
    target = call.identifier("into" if "into" in options else "table")
    key_id, properties = _key_and_properties(call, target)
    migrated = maintenance.migrate(
        call.table(),
        key_id,
        properties=properties,
        delete_below=call.items("delete_below"),
        runner=call.runner,
        **options,
    )
    yield {
        **migrated.to_json(),
        "refused": list(migrated.refused.items()),
        "left": [f"{each.location}: {each.what}" for each in migrated.left],
    }


def _snapshot(call: Call) -> Iterator[Row]:
    target = call.identifier("table")
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


def _audit(call: Call) -> Iterator[Row]:
    target = call.table() if call.optional_text("table") else call.catalog
    audited = maintenance.audit(target, include=call.items("include"), exclude=call.items("exclude"))
    for table in audited.tables:
        for finding in table.findings:
            yield {"table": table.table, **finding.to_json()}


def _verify(call: Call) -> Iterator[Row]:
    options = call.given("quick", "workers")
    verified = maintenance.verify(call.encrypted_table(), runner=call.runner, **options)
    bad = [
        {"location": file.location, "kind": file.kind.value, "part": problem.part, "message": problem.message}
        for file in verified.bad
        for problem in file.problems
    ]
    yield {**verified.to_json(), "bad": bad}


def _shred(call: Call) -> Iterator[Row]:
    options = call.given("replace_heads", "dry_run", "whole_table")
    shredded = maintenance.shred(
        call.encrypted_table(),
        call.items("snapshots") if call.given("snapshots") else None,
        delete_below=call.items("delete_below"),
        **options,
    )
    by_location = {name: list(getattr(shredded, name).items()) for name in ("left", "refused")}
    yield {**shredded.to_json(), **by_location, "still_opened": list(shredded.still_opened)}


def _rescue(call: Call) -> Iterator[Row]:
    metadata = call.items("metadata") if call.given("metadata") else None
    rescued = maintenance.rescue(call.encrypted_table(), metadata, **call.given("expire_lost", "dry_run"))
    yield {**rescued.to_json(), "unreadable": list(rescued.unreadable.items())}


def _relocate(call: Call) -> Iterator[Row]:
    options = call.given("key_id", "register_as", "current_only", "trust_lengths", "dry_run", "workers")
    yield maintenance.relocate(call.encrypted_table(), call.text("location"), runner=call.runner, **options).to_json()


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
        _rotate_kek,
    ),
    "rewrap": Procedure(
        "Rewrap a table's KEKs under the newest version of its master key.",
        (TABLE, *_texts("from_key_id"), DRY_RUN),
        _result(table_key_id=pa.string(), keks=_TEXTS, unneeded=_TEXTS),
        _rewrap,
    ),
    "prune_keys": Procedure(
        "Remove keys that no snapshot needs.",
        (TABLE, DRY_RUN),
        _result(keks=_TEXTS, manifest_list_keys=_TEXTS, kept=pa.int64()),
        _prune_keys,
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
        ),
        _result(
            data_files=pa.int64(),
            delete_files=pa.int64(),
            size=pa.int64(),
            resumed=pa.int64(),
            gone=pa.int64(),
            snapshot_id=pa.int64(),
            unused=_TEXTS,
        ),
        _reencrypt,
        runs_jobs=True,
    ),
    "migrate": Procedure(
        "Encrypt a plain table, in place or as a new table.",
        (
            TABLE,
            _PROPERTIES,
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
            refused=_BY_LOCATION,
            left=_TEXTS,
        ),
        _migrate,
        runs_jobs=True,
    ),
    "snapshot": Procedure(
        "Copy a plain table into a new encrypted one. The plain table stays as it is.",
        (
            Parameter("source_table", "STRING", is_required=True),
            TABLE,
            *_texts("location"),
            _PROPERTIES,
            *_texts("key_id"),
            WORKERS,
        ),
        columns(imported_files_count=pa.int64()),
        _snapshot,
        runs_jobs=True,
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
        ),
        _verify,
        runs_jobs=True,
        only_looks=True,
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
        ),
        _result(
            effective=pa.bool_(),
            complete=pa.bool_(),
            snapshots=_IDS,
            expired_before=_IDS,
            retired_keks=_TEXTS,
            rewritten=_TEXTS,
            deleted=_TEXTS,
            left=_BY_LOCATION,
            refused=_BY_LOCATION,
            not_found=_IDS,
            shredded_files=_TEXTS,
            live_files=_TEXTS,
            still_opened=_TEXTS,
            unknown=_IDS,
            outside=_TEXTS,
        ),
        _shred,
    ),
    "rescue": Procedure(
        "Recover lost keys from older metadata.",
        (TABLE, *_arrays("metadata"), *_flags("expire_lost"), DRY_RUN),
        _result(snapshots=_IDS, keys=_TEXTS, found_in=_TEXTS, expired=_IDS, damaged=_IDS, unreadable=_BY_LOCATION),
        _rescue,
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
        _relocate,
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
