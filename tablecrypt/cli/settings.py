"""What stands before the verb, --catalog and --property, and how a verb gets its catalog, table or key service from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import click

from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


@dataclass
class Settings:
    """The catalog's name and the properties that were given beside its configuration."""

    catalog_name: str | None = None
    properties: dict[str, str] = field(default_factory=dict)

    def catalog(self) -> Catalog:
        """Return the catalog as .pyiceberg.yaml, environment variables and --property describe it.

        Raises:
            ConfigurationError: no encrypting catalog is configured under that name.
        """
        from tablecrypt_catalog.configuration import load_catalog

        return load_catalog(self.catalog_name, **cast("dict[str, str | None]", self.properties))

    def table(self, name: str) -> Table:
        """Return a table of the catalog."""
        return self.catalog().load_table(name)

    def kms_properties(self) -> Mapping[str, str]:
        """Return the properties of the key service: those given, before those configured for the catalog where one is named."""
        if self.catalog_name is None:
            return self.properties
        from pyiceberg.utils.config import Config

        configured = Config().get_catalog_config(self.catalog_name) or {}
        return {**{name: str(value) for name, value in configured.items()}, **self.properties}


def parse_properties(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return name=value pairs as a mapping.

    Raises:
        ConfigurationError: one of them has no =.
    """
    properties: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise ConfigurationError(f"--property {name}: write name=value")
        properties[name] = value
    return properties


pass_settings = click.make_pass_decorator(Settings, ensure=True)
