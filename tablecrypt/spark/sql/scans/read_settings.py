"""How a scan's files are read: what the read's options, the session's settings and the table's properties say, in this order.

    split-size, file-open-cost           bytes that a task reads, and as how many bytes opening a file counts
    vectorization-enabled                whether Spark's vectorised Parquet reader is used
    aggregate-push-down-enabled          whether count, min and max may come from manifests

Without a size of the options or the session, tasks get less where that keeps more of them busy, unless adaptive splits are off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.iceberg_properties import ADAPTIVE_READS, OPEN_FILE_BYTES, SPLIT_BYTES, VECTORIZED_READS
from tablecrypt.setting_kinds import Switch, WholeNumber, check_option_names, truth, whole_number
from tablecrypt.spark.sql.loading import VERSION_OPTIONS
from tablecrypt.spark.sql.messages import OptionsRequest
from tablecrypt.spark.sql.statements.iceberg_settings import (
    ADAPTIVE_SPLITS,
    COLUMN_STATISTICS,
    GROUPED,
    PREFIX,
    PUSHED_AGGREGATES,
    SPLIT_PARALLELISM,
    SPLIT_SIZE,
    VECTORIZED,
    IcebergSettings,
    folded,
    option_names,
)

_VECTORIZED: Final = "vectorization-enabled"
_AGGREGATES: Final = "aggregate-push-down-enabled"
_SIZE: Final = "split-size"
_OPEN_COST: Final = "file-open-cost"
_UNSERVED_SWITCHES: Final = ("locality", "async-micro-batch-planning-enabled")
_UNSERVED: Final = ("lookback", "batch-size", *_UNSERVED_SWITCHES)
_OPTIONS: Final = {folded(name): name for name in (_VECTORIZED, _AGGREGATES, _SIZE, _OPEN_COST, *_UNSERVED)}
_OF_TABLE: Final[Mapping[str, Switch]] = {_VECTORIZED: VECTORIZED_READS, ADAPTIVE_SPLITS: ADAPTIVE_READS}


@dataclass(frozen=True)
class ReadSettings:
    """What holds for one scan."""

    options: Mapping[str, str]
    session: IcebergSettings
    properties: Mapping[str, str]

    @classmethod
    def of(cls, request: OptionsRequest, properties: Mapping[str, str]) -> ReadSettings:
        """Take what a request says. ConfigurationError for a value that its setting cannot have, or that is not supported here.

        Args:
            properties: of the table.
        """
        options = option_names(request.options, _OPTIONS)
        # Passed over, one that is misspelt would give the rows of now in place of those of a snapshot.
        check_option_names(options, (*VERSION_OPTIONS, *_OPTIONS.values()), "the read option")
        for name in _UNSERVED:
            # Of a switch only true is refused: "false" asks for what happens here anyway.
            if name in options and (name not in _UNSERVED_SWITCHES or truth(name, options[name])):
                raise ConfigurationError(f"the read option {name}={options[name]} is not supported: leave it out")
        return cls(options, IcebergSettings.of(request), properties)

    @property
    def is_vectorized(self) -> bool:
        """Whether Spark's vectorised reader reads what it can."""
        return self._switch(_VECTORIZED, VECTORIZED)

    @property
    def asks_manifests(self) -> bool:
        """Whether aggregates may come from manifests."""
        return self._switch(_AGGREGATES, PUSHED_AGGREGATES)

    @property
    def groups(self) -> bool:
        """Whether each task reads files of one partition."""
        return self.session.switch(GROUPED, default=False)

    @property
    def reports_statistics(self) -> bool:
        """Whether Spark gets the statistics of columns."""
        return self.session.switch(COLUMN_STATISTICS, default=True)

    @property
    def split(self) -> dict[str, Any]:
        """Into how large tasks files go; null where Spark's own settings say so."""
        asked = self._number(_SIZE, least=1, setting=SPLIT_SIZE)
        open_bytes = self._number(_OPEN_COST)
        parallelism = self.session.values.get(SPLIT_PARALLELISM)

        return {
            "bytes": asked if asked is not None else self._of_table(SPLIT_BYTES),
            "open_bytes": open_bytes if open_bytes is not None else self._of_table(OPEN_FILE_BYTES),
            # A size that the read or the session asks for is meant as it is; that of the table is only its usual one.
            "adaptive": asked is None and self._switch(ADAPTIVE_SPLITS, ADAPTIVE_SPLITS),
            "parallelism": None if parallelism is None else int(parallelism),
        }

    def _switch(self, option: str, setting: str) -> bool:
        if option in self.options:
            return truth(option, self.options[option])
        own = _OF_TABLE.get(option)
        return self.session.switch(setting, default=own is None or own.is_true(self.properties))

    def _of_table(self, declared: WholeNumber) -> int | None:
        return declared.whole_number(self.properties) if declared.name in self.properties else None

    def _number(self, name: str, least: int = 0, setting: str = "") -> int | None:
        if name in self.options:
            return whole_number(name, self.options[name], least)
        value = self.session.values.get(setting)
        return None if value is None else whole_number(PREFIX + setting, value, least)
