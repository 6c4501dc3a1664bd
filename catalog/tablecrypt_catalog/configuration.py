"""Loading an encrypting catalog that .pyiceberg.yaml or environment variables describe.

PyIceberg looks for py-catalog-impl only among the arguments of its load_catalog. From a configuration file it takes the other properties
and makes one of its own catalogs of them: it would write encryption.key-id into a table's properties, and the rows in plaintext.
"""

from __future__ import annotations

from typing import cast

import pyiceberg.catalog
from pyiceberg.catalog import PY_CATALOG_IMPL, Catalog
from pyiceberg.typedef import RecursiveDict
from pyiceberg.utils.config import Config, merge_config

from tablecrypt.errors import ConfigurationError


def load_catalog(name: str | None = None, **properties: str | None) -> Catalog:
    """Load a catalog as PyIceberg's load_catalog does, with py-catalog-impl from wherever it is configured.

    Args:
        name: the catalog's name in the configuration; by default that of default-catalog.
        properties: used before those of the environment, and these before those of the file.

    Raises:
        ConfigurationError: no py-catalog-impl is configured for it.
    """
    config = Config()
    name = name or config.get_default_catalog_name()
    merged = merge_config(config.get_catalog_config(name) or {}, cast(RecursiveDict, properties))
    if not merged.get(PY_CATALOG_IMPL):
        raise ConfigurationError(
            f"catalog {name!r} has no {PY_CATALOG_IMPL} in its configuration, so it would not encrypt. "
            f"Set it to one of tablecrypt_catalog's classes, or load the catalog with pyiceberg.catalog.load_catalog"
        )
    return pyiceberg.catalog.load_catalog(name, **cast("dict[str, str | None]", merged))
