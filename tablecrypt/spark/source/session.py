"""What a session knows when the data source is registered, in a form that Spark may carry anywhere: settings, sizes, and a path.

The properties of catalogs, which may hold credentials, stay in a file of the driver's machine that only its user may read (a folder of mode
0700, the file 0600), removed when the program ends. What Spark carries is its path, which means nothing on other machines.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.masked_columns import refuses_conditions
from tablecrypt.spark.session import Sizing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SWITCHES: Final = ("spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


@dataclass(frozen=True)
class SessionFacts:
    """Settings of the session that matter here, where the catalogs' properties are, and whether it refuses conditions on masks."""

    settings: Mapping[str, str]
    sizing: Sizing
    catalogs_file: str | None
    refuses_conditions: bool

    @classmethod
    def of(cls, spark: SparkSession, catalogs: Mapping[str, Mapping[str, str]] | None) -> SessionFacts:
        """Take what is needed of a session, and put the catalogs' properties away."""
        settings = {name: str(spark.conf.get(name, "false")) for name in _SWITCHES}
        settings["spark.master"] = str(spark.conf.get("spark.master", ""))
        return cls(settings, Sizing.of(spark), _private_file(catalogs) if catalogs else None, refuses_conditions(spark))

    def setting(self, name: str, default: str) -> str:
        """Return a Spark setting."""
        return self.settings.get(name) or default

    def catalog_properties(self, catalog: str) -> dict[str, str]:
        """Return what `register` was told about a catalog. Works on the driver's machine.

        Raises:
            ConfigurationError: the file is not here, because the program that registered has ended or this is an executor.
        """
        if self.catalogs_file is None:
            return {}
        try:
            content: dict[str, dict[str, str]] = json.loads(Path(self.catalogs_file).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"the catalogs passed to tablecrypt.spark.register are no longer on this machine ({self.catalogs_file})"
            ) from error
        return content.get(catalog, {})


def _private_file(catalogs: Mapping[str, Mapping[str, str]]) -> str:
    folder = tempfile.mkdtemp(prefix="tablecrypt-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = str(Path(folder) / "catalogs.json")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        json.dump({name: dict(properties) for name, properties in catalogs.items()}, stream)
    return path
