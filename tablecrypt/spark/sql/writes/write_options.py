"""What a Spark write says beside its rows: df.writeTo("prod.db.t").option("target-file-size-bytes", "…"), with Iceberg's names.

    target-file-size-bytes, compression-codec, compression-level     in place of the table's properties
    distribution-mode, advisory-partition-size                       likewise (layout.py); before the properties of commands, too
    compression-strategy                                             is of ORC files, and these are Parquet's
    use-table-distribution-and-ordering=false                        rows stay in the tasks they are in
    snapshot-property.NAME                                           goes into the summary of the new snapshot
    overwrite-mode=dynamic                                           replaces partitions where all rows would be replaced
    isolation-level, validate-from-snapshot-id                       of an overwrite (conflicts.py)
    output-spec-id                                                   which of the table's partition specs appended rows are written in
    mergeSchema, check-ordering, check-nullability                   of rows whose columns are not the table's (source_columns.py)
    tablecrypt-copy                                                  which call of add_files it is (copies.py)

Most are settings of the session too (iceberg_settings.py), which count where a write has no such option. Names are compared without case
and dashes, so camel case will do. Options that would change what is written, or what is checked, and that are not served here
are refused. Others are passed over: Spark hands on those of its own too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import IsolationLevel
from pyiceberg.table.update import SetDefaultSpecUpdate, update_table_metadata
from pyiceberg.typedef import Properties

from tablecrypt import __version__
from tablecrypt.errors import ConfigurationError
from tablecrypt.iceberg_properties import ADVISORY_BYTES, DISTRIBUTION, FANOUT
from tablecrypt.setting_kinds import check_option_names, one_of, truth
from tablecrypt.spark.sql.messages import OptionsRequest, SessionRequest
from tablecrypt.spark.sql.scans.filters import FilterRequest
from tablecrypt.spark.sql.statements.iceberg_settings import SNAPSHOT_PROPERTY, IcebergSettings, folded, option_names
from tablecrypt.table.protection.policy import policy_of
from tablecrypt.table.row_changes import isolation_level

COPY: Final = "tablecrypt-copy"
USE_LAYOUT: Final = "use-table-distribution-and-ordering"
MERGE_SCHEMA: Final = "merge-schema"
CHECK_ORDERING: Final = "check-ordering"
CHECK_NULLABILITY: Final = "check-nullability"
_STRATEGY: Final = "compression-strategy"
_OVERWRITE_MODE: Final = "overwrite-mode"
_STATIC, _DYNAMIC = "static", "dynamic"
_ISOLATION_LEVEL: Final = "isolation-level"
VALIDATE_FROM: Final = "validate-from-snapshot-id"
_SPEC: Final = "output-spec-id"
_FORMATS: Final = ("write-format", "file-format")
_PROPERTIES: Final[Mapping[str, str]] = {
    "target-file-size-bytes": TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
    "compression-codec": TableProperties.PARQUET_COMPRESSION,
    "compression-level": TableProperties.PARQUET_COMPRESSION_LEVEL,
    "distribution-mode": DISTRIBUTION.name,
    "advisory-partition-size": ADVISORY_BYTES.name,
    "fanout-enabled": FANOUT.name,
}
_REFUSED: Final[Mapping[str, str]] = {
    "branch": "write to db.table.branch_NAME",
}
_APPLICATION: Final[Mapping[str, str]] = {"version": "engine-version", "id": "app-id", "name": "app-name"}
_KNOWN: Final = frozenset(
    {
        *_PROPERTIES,
        *_REFUSED,
        *_FORMATS,
        MERGE_SCHEMA,
        CHECK_ORDERING,
        CHECK_NULLABILITY,
        COPY,
        USE_LAYOUT,
        _STRATEGY,
        _OVERWRITE_MODE,
        _ISOLATION_LEVEL,
        VALIDATE_FROM,
        _SPEC,
    }
)
_BY_FOLDED: Final = {folded(name): name for name in _KNOWN}


class WriteRequest(OptionsRequest, FilterRequest):
    """About a write that begins; the predicates are those of an overwrite.

    Attributes:
        mode: as drawn in commits.py.
        case_sensitive: whether Spark takes names that differ in case for different ones.
        command: delete, update or merge; None for the rows of a query.
        row_schema: Spark's JSON of the columns of the rows, where Spark has not brought them to the table's.
    """

    mode: str
    case_sensitive: bool
    command: str | None = None
    row_schema: str | None = None


@dataclass(frozen=True)
class SqlWriteOptions:
    """The options of one write.

    Attributes:
        properties: table properties that hold for this write alone.
        snapshot_properties: for the snapshot's summary.
        isolation: what others may have done to what an overwrite replaces; None where nothing is asked.
        validated_from: the snapshot since which they may not have done it, as the option has it; None for the table's oldest.
        uses_layout: whether rows are distributed and sorted as the table says.
        copy: the handle of the copy that the rows are of.
        spec_id: of the partition spec that rows are written in; None for the table's current one.
        replaces_partitions: whether a write that would replace all rows replaces those of the partitions that its rows fall into.
    """

    properties: Mapping[str, str]
    snapshot_properties: Mapping[str, str]
    isolation: IsolationLevel | None = None
    validated_from: str | None = None
    uses_layout: bool = True
    copy: str | None = None
    spec_id: str | None = None
    replaces_partitions: bool = False

    @classmethod
    def of(cls, request: WriteRequest) -> SqlWriteOptions:
        """Take a request's options of a DataFrameWriterV2, and settings of its session. ConfigurationError for one that is not served."""
        session = IcebergSettings.of(request)
        # The write's own options last: they come before the session's.
        options = {**{name: value for name, value in session.values.items() if name in _PROPERTIES}, **write_options(request)}
        check_option_names(options, _KNOWN, "the write option")
        one_of(_STRATEGY, options.get(_STRATEGY, "speed"), ("speed", "compression"))
        for name in _FORMATS:
            if options.get(name, "parquet").lower() != "parquet":
                raise ConfigurationError(f"{name}={options[name]}: encrypted tables are written as Parquet")
        for name, reason in _REFUSED.items():
            if name in options:
                raise ConfigurationError(f"the write option {name} is not supported: {reason}")
        # They are looked at where columns differ (source_columns.py), and a value that they cannot have is refused everywhere.
        for name in (MERGE_SCHEMA, CHECK_ORDERING, CHECK_NULLABILITY):
            truth(name, options.get(name, "true"))
        level, validated_from = options.get(_ISOLATION_LEVEL), options.get(VALIDATE_FROM)
        if validated_from is not None and level is None:
            raise ConfigurationError(f"the write option {VALIDATE_FROM} says nothing without {_ISOLATION_LEVEL}: give both")

        return cls(
            {own: options[name] for name, own in _PROPERTIES.items() if name in options},
            {**written_by(request), **session.snapshot_properties, **_snapshot_properties(request.options)},
            None if level is None else isolation_level(level, _ISOLATION_LEVEL),
            validated_from,
            truth(USE_LAYOUT, options.get(USE_LAYOUT, "true")),
            options.get(COPY),
            options.get(_SPEC),
            one_of(_OVERWRITE_MODE, options.get(_OVERWRITE_MODE, _STATIC), (_STATIC, _DYNAMIC)) == _DYNAMIC,
        )

    def over(self, properties: Properties) -> dict[str, str]:
        """Return a table's properties as they hold for this write."""
        return {**properties, **self.properties}


def write_options(request: WriteRequest) -> dict[str, str]:
    """Return the options of a write by the names above."""
    return option_names(request.options, _BY_FOLDED)


def written_by(request: SessionRequest) -> dict[str, str]:
    """Return what the summary of a snapshot says of its writer, under the names that Iceberg Java gives it from Spark."""
    told = {_APPLICATION[name]: value for name, value in request.application.items() if name in _APPLICATION}
    if "app-id" in told:
        told["spark.app.id"] = told["app-id"]
    return {"engine-name": "spark", "iceberg-version": f"tablecrypt {__version__}", **told}


def in_asked_spec(metadata: TableMetadata, options: SqlWriteOptions, mode: str) -> TableMetadata:
    """Return a table's metadata with the partition spec that a write asks for as its default one.

    Raises:
        ConfigurationError: the table has no such spec, or lacks a column of it; the write does more than append; or columns are protected.
    """
    if options.spec_id is None:
        return metadata

    spec = metadata.specs().get(int(options.spec_id)) if options.spec_id.isdecimal() else None
    if spec is None or any(metadata.schema().find_column_name(field.source_id) is None for field in spec.fields):
        raise ConfigurationError(f"{_SPEC}={options.spec_id}: the table has no such partition spec, or not all of its columns any more")
    if spec.spec_id == metadata.default_spec_id:
        return metadata
    if mode != "append":
        raise ConfigurationError(f"{_SPEC}={options.spec_id}: rows that replace others are written with the table's current partitioning")
    if policy_of(metadata):
        # An earlier spec may show in file paths and manifests what a column that is protected since then holds.
        raise ConfigurationError(f"{_SPEC}={options.spec_id}: tables with protected columns are written with their current partitioning")

    return update_table_metadata(metadata, (SetDefaultSpecUpdate(spec_id=spec.spec_id),))


def _snapshot_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties by the names that they were given with: those of a summary are compared with case."""
    return {name[len(SNAPSHOT_PROPERTY) :]: value for name, value in given.items() if name.lower().startswith(SNAPSHOT_PROPERTY)}


def checked_since(metadata: TableMetadata, text: str | None, option: str) -> int | None:
    """Return the snapshot that an option names. ConfigurationError where the table has none of that id."""
    if text is None:
        return None
    if not text.removeprefix("-").isdecimal() or metadata.snapshot_by_id(int(text)) is None:
        raise ConfigurationError(f"the write option {option} is {text!r}: the table has no such snapshot")
    return int(text)
