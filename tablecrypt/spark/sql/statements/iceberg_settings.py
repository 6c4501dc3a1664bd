"""Iceberg's settings of a session, `SET spark.sql.iceberg.distribution-mode = none`: which there are, and which values are refused.

An option of a read or write comes before the session's setting, and that before the table's property, as in Iceberg. Java sends the
settings with every request about a table; each is checked when a table is loaded and when rows are read or written. Names are taken with
dashes or in camel case. Values that ask for something that does not happen here are refused.

    snapshot-property.NAME     goes into the summary of each new snapshot
    executor-cache.*           no executor reads deletes from files that it could keep: it gets them with the file's key
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.setting_kinds import check_option_names, one_of, truth, whole_number
from tablecrypt.spark.sql.messages import SessionRequest

PREFIX: Final = "spark.sql.iceberg."
SNAPSHOT_PROPERTY: Final = "snapshot-property."
VECTORIZED: Final = "vectorization.enabled"
GROUPED: Final = "planning.preserve-data-grouping"
PUSHED_AGGREGATES: Final = "aggregate-push-down.enabled"
COLUMN_STATISTICS: Final = "report-column-stats"
SPLIT_SIZE: Final = "read.split-size"
ADAPTIVE_SPLITS: Final = "read.adaptive-split-size.enabled"
SPLIT_PARALLELISM: Final = "read.adaptive-split-size.parallelism"
VIEW_BINDING: Final = "view.schema-binding-mode"
_DURATION: Final = re.compile("[0-9]{1,18} *[a-z]*")

Check = Callable[[str, str], object]


def _words(*choices: str) -> Check:
    return lambda name, value: one_of(name, value, choices)


def _above_zero(name: str, value: str) -> int:
    return whole_number(name, value, 1)


def _duration(name: str, value: str) -> str:
    if not _DURATION.fullmatch(value.lower()):
        raise ConfigurationError(f"{name} is {value!r}; it must be a time, as 10m")
    return value


def _text(name: str, value: str) -> str:
    return value


_PLANNING: Final = _words("auto", "local", "distributed")
_CHECKS: Final[Mapping[str, Check]] = {
    VECTORIZED: truth,
    GROUPED: truth,
    PUSHED_AGGREGATES: truth,
    COLUMN_STATISTICS: truth,
    SPLIT_SIZE: _above_zero,
    ADAPTIVE_SPLITS: truth,
    SPLIT_PARALLELISM: _above_zero,
    VIEW_BINDING: _words("BINDING", "COMPENSATION"),
    "check-nullability": truth,
    "check-ordering": truth,
    "merge-schema": truth,
    "distribution-mode": _words("none", "hash", "range"),
    "advisory-partition-size": whole_number,
    "compression-codec": _text,
    "compression-level": _text,
    "compression-strategy": _words("speed", "compression"),
    "data-planning-mode": _PLANNING,
    "delete-planning-mode": _PLANNING,
    "locality.enabled": truth,
    "executor-cache.enabled": truth,
    "executor-cache.delete-files.enabled": truth,
    "executor-cache.locality.enabled": truth,
    "executor-cache.timeout": _duration,
    "executor-cache.max-entry-size": whole_number,
    "executor-cache.max-total-size": whole_number,
    "identifier-fields-rely": truth,
    "async-micro-batch-planning-enabled": truth,
    "shred-variants": truth,
    "variant-inference-buffer-size": _above_zero,
    "handle-timestamp-without-timezone": truth,
    "use-timestamp-without-timezone-in-new-tables": truth,
}
_NO_CACHE: Final = "executors keep no delete files: they get the positions of deleted rows with each file's key"
_IN_DRIVER: Final = "manifests are read beside the driver, and no executor gets their keys"
_TIMES: Final = "Iceberg gave this setting up: the type timestamp_ntz says so of a column"
_REFUSED: Final[Mapping[str, tuple[object, str]]] = {
    "data-planning-mode": ("distributed", _IN_DRIVER),
    "delete-planning-mode": ("distributed", _IN_DRIVER),
    "locality.enabled": (True, "tasks are not placed by where blocks of their files are"),
    "executor-cache.enabled": (True, _NO_CACHE),
    "executor-cache.delete-files.enabled": (True, _NO_CACHE),
    "executor-cache.locality.enabled": (True, _NO_CACHE),
    "identifier-fields-rely": (True, "nothing checks that identifier fields are unique, so queries are not optimized by it"),
    "async-micro-batch-planning-enabled": (True, "a micro-batch is planned when it begins"),
    "handle-timestamp-without-timezone": (True, _TIMES),
    "use-timestamp-without-timezone-in-new-tables": (True, _TIMES),
}


def folded(name: str) -> str:
    """Return a name in small letters and without dashes, in which `check-ordering` is `checkOrdering`."""
    return name.lower().replace("-", "")


_BY_FOLDED: Final = {folded(name): name for name in _CHECKS}


@dataclass(frozen=True)
class IcebergSettings:
    """What a session has set.

    Attributes:
        values: by name, without what all names begin with.
        snapshot_properties: for the summary of new snapshots.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, request: SessionRequest) -> IcebergSettings:
        """Take and check what a request says of its session; a program's own write says nothing.

        Raises:
            ConfigurationError: a name is misspelt, or a value is one that its setting cannot have, or is not supported here.
        """
        given = request.settings
        summary = {name.removeprefix(SNAPSHOT_PROPERTY): given[name] for name in given if name.startswith(SNAPSHOT_PROPERTY)}
        others = {name: value for name, value in given.items() if not name.startswith(SNAPSHOT_PROPERTY)}
        # A misspelt setting would be passed over, and the session would not do what its user asked for.
        check_option_names([name for name in others if folded(name) not in _BY_FOLDED], _CHECKS, f"the session's setting {PREFIX}…")
        # With dashes comes before camel case, as in Iceberg.
        known = {_BY_FOLDED[folded(name)]: others[name] for name in sorted(others, key=_CHECKS.__contains__) if folded(name) in _BY_FOLDED}

        for name, value in known.items():
            refused, reason = _REFUSED.get(name, (None, ""))
            # Compared with what the check returns, since one value can be written in several ways.
            if _CHECKS[name](PREFIX + name, value) == refused:
                raise ConfigurationError(f"{PREFIX}{name}={value} is not supported: {reason}; RESET {PREFIX}{name}")

        return cls(known, summary)

    def switch(self, name: str, default: bool) -> bool:
        """Return what a switch is set to; the default where it is not."""
        return truth(PREFIX + name, self.values.get(name, default))


def option_names(given: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, str]:
    """Return options by the names that are known, without case. A name with dashes comes before one in camel case.

    Args:
        given: by name, as the read or write has them.
        known: by folded name, how it is spelt.

    Raises:
        ConfigurationError: one is how to encrypt.
    """
    refuse_encryption(given)
    lower = {name.lower(): str(value) for name, value in given.items()}
    return {known.get(folded(name), name): value for name, value in sorted(lower.items(), key=lambda each: each[0] in known.values())}


def refuse_encryption(given: Iterable[str]) -> None:
    """Refuse options that say how to encrypt: properties of tables and catalogs do, and Spark hands an option on to neither.

    Args:
        given: the names of options, as the read or write has them.

    Raises:
        ConfigurationError: there is one.
    """
    for name in given:
        # Passed over, the option `encryption.column-keys` of a new table would leave its columns under the table's key.
        if name.lower().startswith("encryption."):
            raise ConfigurationError(
                f"{name} is no option of a read or write: as a property of a new table it is set by tableProperty() or TBLPROPERTIES, of a "
                "table that exists by ALTER TABLE … SET TBLPROPERTIES, and of a catalog where that is configured"
            )
