"""Loading an encrypting catalog from arguments, environment variables and .pyiceberg.yaml.

    catalog:
      prod:
        type: tablecrypt                      PyIceberg's own load_catalog does not know this type and raises ValueError
        uri: sqlite:///catalog.db             says which catalog it is: sqlite, postgresql → SQL, http → REST, thrift → Hive
        py-catalog-impl: package.module.Class where the uri does not: Glue, in-memory, a class of the user's own

The type is there to fail closed. PyIceberg takes py-catalog-impl only from the arguments of its load_catalog. From a file or the
environment it takes the other properties and makes one of its own catalogs of them, which would write encryption.key-id into a table's
properties and the rows in plaintext. It refuses a type that it does not know, so a program with the wrong load_catalog writes nothing.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, cast

from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, URI, Catalog, CatalogType, infer_catalog_type
from pyiceberg.typedef import RecursiveDict
from pyiceberg.utils.config import CATALOG, PYICEBERG_HOME, PYICEBERG_YML, Config, merge_config

from tablecrypt.errors import ConfigurationError, MissingExtraError
from tablecrypt.files.locations import scheme_of
from tablecrypt.setting_kinds import OWN_NAMES_ALIKE, did_you_mean
from tablecrypt_catalog.local_places import tell_places

logger = logging.getLogger(__name__)

TABLECRYPT: Final = "tablecrypt"
"""The value of `type` for every encrypting catalog."""

_BY_TYPE: Final[Mapping[CatalogType, str]] = {
    CatalogType.SQL: "tablecrypt_catalog.EncryptedSqlCatalog",
    CatalogType.REST: "tablecrypt_catalog.EncryptedRestCatalog",
    CatalogType.HIVE: "tablecrypt_catalog.EncryptedHiveCatalog",
}


def load_catalog(name: str | None = None, **properties: str | None) -> Catalog:
    """Load an encrypting catalog.

    Args:
        name: the catalog's name in the configuration; by default the one that `default-catalog` names.
        properties: take precedence over the environment, which takes precedence over the configuration file.

    Raises:
        ConfigurationError: no catalog of that name is configured, its type is not tablecrypt, nothing says which catalog it is, or its
            class cannot be used.
        MissingExtraError: its class, or the driver of its database, needs a package that is not installed.
    """
    return Configured.of(name, properties).load()


@dataclass(frozen=True)
class Configured:
    """What is said of one catalog, the file read once: PyIceberg parses it with each `Config()`, which takes longer than most commands.

    Attributes:
        name: the catalog's.
        configured: its properties in the environment and the file; none where neither has any.
        properties: those given, then those configured.
    """

    name: str
    configured: RecursiveDict
    properties: RecursiveDict

    @classmethod
    def of(cls, name: str | None, properties: Mapping[str, str | None]) -> Configured:
        """Read the configuration of a catalog. Arguments and errors are those of `load_catalog`."""
        config = Config()
        name = name or config.get_default_catalog_name()
        try:
            configured = config.get_catalog_config(name) or {}
        except ValueError as error:
            raise ConfigurationError(
                f"catalog {name!r} has a value in {PYICEBERG_YML} or the environment where its properties belong: write them below its "
                "name, each as name: value"
            ) from error

        return cls(name, configured, merge_config(configured, cast("RecursiveDict", properties)))

    @property
    def is_described(self) -> bool:
        """Whether the arguments name a kind of catalog, or the environment or the file says anything of it."""
        return bool({TYPE, PY_CATALOG_IMPL} & self.properties.keys() or self.configured)

    def load(self) -> Catalog:
        """Load the catalog. Raises as `load_catalog`."""
        if not self.properties:
            raise not_configured(self.name)

        class_path = _class_path(self.name, self.properties)
        if TYPE not in self.properties and PY_CATALOG_IMPL in self.configured:
            logger.warning(
                "The configuration of catalog %s has no 'type: %s': with it, PyIceberg's own load_catalog would refuse the catalog. "
                "Without it, it makes a catalog that does not encrypt",
                self.name,
                TABLECRYPT,
            )

        own: dict[str, str] = {each: cast("str", value) for each, value in self.properties.items() if each != TYPE}
        tell_places(self.name, own)

        return _catalog_class(class_path)(self.name, **own)


def not_configured(name: str) -> ConfigurationError:
    """Return the error for a catalog of which neither the file nor the environment says anything: where both were looked for."""
    known = sorted(set(Config().config.get(CATALOG) or ()))
    variables = f"the environment has no PYICEBERG_CATALOG__{name.upper().replace('-', '_')}__…"
    folders = [folder for folder in (os.environ.get(PYICEBERG_HOME), os.path.expanduser("~"), os.getcwd()) if folder]
    found = next((path for folder in folders if (path := Path(folder, PYICEBERG_YML)).is_file()), None)
    where = f"there is no {PYICEBERG_YML} in {', '.join(dict.fromkeys(folders))}" if found is None else f"{found} does not name it"
    near = did_you_mean(name, known, OWN_NAMES_ALIKE) or (f". Configured are: {', '.join(known)}" if known else "")

    return ConfigurationError(f"no catalog {name!r} is configured: {where}, and {variables}{near}")


def _class_path(name: str, merged: RecursiveDict) -> str:
    """Return the path of the catalog's class.

    Raises:
        ConfigurationError: as `load_catalog`.
    """
    kind, class_path = merged.get(TYPE), merged.get(PY_CATALOG_IMPL)
    # An explicit type of PyIceberg's means a catalog that does not encrypt: neither reading may be guessed.
    if kind is not None and str(kind).lower() != TABLECRYPT:
        raise ConfigurationError(
            f"catalog {name!r} has 'type: {kind}', which does not encrypt: write 'type: {TABLECRYPT}' and keep its other properties, "
            "or load it with pyiceberg.catalog.load_catalog"
        )
    if class_path:
        return str(class_path)

    if kind is None:
        raise ConfigurationError(
            f"catalog {name!r} has neither 'type: {TABLECRYPT}' nor {PY_CATALOG_IMPL} in its configuration or arguments, so it would not "
            "encrypt. "
            f"Write 'type: {TABLECRYPT}', or load the catalog with pyiceberg.catalog.load_catalog"
        )

    try:
        inferred = infer_catalog_type(name, merged)
    except ValueError:
        inferred = None

    if inferred is None:
        raise ConfigurationError(
            f"the {URI} of catalog {name!r} {_scheme_of(merged.get(URI))}: sqlite:// and postgresql:// are SQL catalogs, http:// and "
            f"https:// REST, thrift:// Hive. For another, name its class in {PY_CATALOG_IMPL}, for example "
            "tablecrypt_catalog.EncryptedGlueCatalog"
        )

    return _BY_TYPE[inferred]


def _scheme_of(uri: object) -> str:
    if not uri:
        return "is not set"
    scheme = scheme_of(str(uri))
    return "has no scheme" if scheme is None else f"begins with {scheme}://"


def _catalog_class(path: str) -> type[Catalog]:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except MissingExtraError:
        raise
    except (ImportError, AttributeError, ValueError) as error:
        # The name may be right, and what it is imported from not.
        near = did_you_mean(name, (each for each in getattr(sys.modules.get(module), "__all__", ()) if each != name))
        raise ConfigurationError(f"{PY_CATALOG_IMPL} {path!r} cannot be imported: {error}{near}") from error

    if not isinstance(found, type) or not issubclass(found, Catalog):
        raise ConfigurationError(f"{PY_CATALOG_IMPL} {path!r} is not a catalog class")
    # Checked on the class, before it is made: a plain catalog's __init__ may create tables in its database.
    if not hasattr(found, "as_encrypted"):
        raise ConfigurationError(
            f"{PY_CATALOG_IMPL} {path!r} does not encrypt: "
            "name one of tablecrypt_catalog's classes, or one that tablecrypt_catalog.encrypted made"
        )

    return found
