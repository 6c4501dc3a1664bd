"""Options of format("tablecrypt"). Spark keeps them in plans and in its own catalog, so no credential may be among them.

    table                       "catalog.namespace.table"; or the path of load(...) and save(...)
    catalog.<property>          a property for load_catalog, in small letters
    columns                     read: the columns, comma separated; Spark does not tell a Python source which columns a query needs
    filter                      read: PyIceberg's filter as text
    masked                      read: "mask" for masks of protected columns whose keys may not be used, "error" to refuse to read them
    snapshot-id, tag, branch    read: which snapshot; branch is also where rows are written
    partition-overwrite-mode    write in mode overwrite: static (all rows, the default) or dynamic (the partitions that occur)
    snapshot-property.<name>    write: for the summary of the new snapshot
    starting                    readStream: earliest (the default), latest, or the id of the snapshot after which to begin
    max-snapshots-per-batch     readStream: the most snapshots of a micro-batch
    max-files-per-batch         readStream: the most files of a micro-batch
    skip-overwrite-snapshots    readStream: true to pass over snapshots that replaced rows, instead of failing
    skip-delete-snapshots       readStream: true to pass over snapshots that deleted rows, instead of failing

Names are the same in any case, as Spark treats them. Raises ConfigurationError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.setting_kinds import did_you_mean, one_of, truth, whole_number
from tablecrypt.spark.sql.streams.history import StreamRules
from tablecrypt.table.protection.visible_columns import ERROR, MASK

_CATALOG: Final = "catalog."
_SNAPSHOT_PROPERTY: Final = "snapshot-property."
_KNOWN: Final = frozenset(
    {
        *("table", "columns", "filter", "snapshot-id", "tag", "branch", "partition-overwrite-mode", "starting", "masked"),
        *("max-snapshots-per-batch", "max-files-per-batch", "skip-overwrite-snapshots", "skip-delete-snapshots"),
    }
)
# What Spark adds by itself; it repeats the options of CREATE TABLE as option.<name>.
_OF_CREATE_TABLE: Final = "option."
_OF_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname", "serialization.format", "owner", "location", "provider"})
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


@dataclass(frozen=True)
class SourceOptions:
    """The options, checked and typed."""

    table: str
    catalog_properties: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    row_filter: str | None = None
    masked: str | None = None
    snapshot_id: int | None = None
    tag: str | None = None
    branch: str | None = None
    dynamic_overwrite: bool = False
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    starting: str = EARLIEST
    max_snapshots: int | None = None
    max_files: int | None = None
    skip_overwrites: bool = False
    skip_deletes: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Check options as Spark hands them over."""
        given = {name.lower().removeprefix(_OF_CREATE_TABLE): value for name, value in options.items()}
        # Before any other check, whose message might show the option's value.
        _refuse_credentials(given)
        _refuse_code(given)
        unknown = [name for name in given if name not in _KNOWN | _OF_SPARK and not name.startswith((_CATALOG, _SNAPSHOT_PROPERTY))]
        if unknown:
            raise ConfigurationError(
                f"option {unknown[0]!r} of format('tablecrypt') is not known; it has {', '.join(sorted(_KNOWN))}"
                f"{did_you_mean(unknown[0], (*_KNOWN, _CATALOG, _SNAPSHOT_PROPERTY))}"
            )

        at = [name for name in ("snapshot-id", "tag", "branch") if name in given]
        if len(at) > 1:
            raise ConfigurationError(f"the options {' and '.join(at)} exclude each other")

        columns = [name.strip() for name in given.get("columns", "").split(",") if name.strip()]

        return cls(
            table=_table(given),
            catalog_properties=_prefixed(given, _CATALOG),
            columns=tuple(columns) or None,
            row_filter=given.get("filter"),
            masked=_masked(given),
            snapshot_id=_number(given, "snapshot-id"),
            tag=given.get("tag"),
            branch=given.get("branch"),
            dynamic_overwrite=one_of(
                "option partition-overwrite-mode", given.get("partition-overwrite-mode", "static"), ("static", "dynamic")
            )
            == "dynamic",
            snapshot_properties=_prefixed(given, _SNAPSHOT_PROPERTY),
            starting=_starting(given.get("starting", EARLIEST)),
            max_snapshots=_positive(given, "max-snapshots-per-batch"),
            max_files=_positive(given, "max-files-per-batch"),
            skip_overwrites=_switch(given, "skip-overwrite-snapshots"),
            skip_deletes=_switch(given, "skip-delete-snapshots"),
        )

    @property
    def rules(self) -> StreamRules:
        """What a stream passes over, and the limits of its micro-batches."""
        return StreamRules(self.skip_deletes, self.skip_overwrites, self.max_snapshots, self.max_files)


def _table(given: Mapping[str, str]) -> str:
    table = given.get("table") or given.get("path")
    if not table:
        raise ConfigurationError("format('tablecrypt') needs the option table: catalog.namespace.table")
    return table


def _refuse_credentials(given: Mapping[str, str]) -> None:
    for name, value in given.items():
        of_catalog = name.startswith(_CATALOG)
        # Values of other options are not looked at: a filter may hold text that looks like a password in a URL.
        if names.is_sensitive(name.removeprefix(_CATALOG), value if of_catalog else ""):
            raise ConfigurationError(
                f"option {name!r} looks like a credential, and Spark shows options in plans and keeps them in its catalog: give it to "
                "tablecrypt.spark.register(spark, catalogs={...}), or to PyIceberg's own configuration"
            )


def _refuse_code(given: Mapping[str, str]) -> None:
    for name in given:
        # Any user of a session sets options, and the planner runs beside the driver.
        if name.startswith(_CATALOG) and names.names_code(name.removeprefix(_CATALOG)):
            raise ConfigurationError(
                f"option {name!r} names code to import beside the driver: give it to tablecrypt.spark.register(spark, catalogs={{...}}), "
                "or to PyIceberg's own configuration"
            )


def _prefixed(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}


def _switch(given: Mapping[str, str], name: str) -> bool:
    return truth(f"option {name}", given.get(name, "false"))


def _masked(given: Mapping[str, str]) -> str | None:
    return one_of("option masked", given["masked"], (MASK, ERROR)) if "masked" in given else None


def _number(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    try:
        return int(given[name])
    except ValueError as error:
        raise ConfigurationError(f"option {name} is {given[name]!r}, which is not a number") from error


def _positive(given: Mapping[str, str], name: str) -> int | None:
    return whole_number(f"option {name}", given[name], least=1) if name in given else None


def _starting(value: str) -> str:
    if value in (EARLIEST, LATEST) or value.isdigit():
        return value
    raise ConfigurationError(f"option starting is {value!r}; it is {EARLIEST}, {LATEST} or the id of a snapshot")
