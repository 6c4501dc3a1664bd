"""What PyIceberg's load_catalog asks to find a catalog's class, changed so that it knows encrypting catalogs.

The function itself stays: programs hold it, under names that they chose. On its way it asks three public things of its module:

infer_catalog_type      what a configuration without a type is: `tablecrypt` where py-catalog-impl names an encrypting class
CatalogType             what a type is: `tablecrypt` is a member that is found by its value and not listed
AVAILABLE_CATALOGS      who makes a catalog of a type. Beside a type of PyIceberg's own, an encrypting class is refused: the type would
                        make a catalog that does not encrypt, and PyIceberg refuses the two in its arguments as well

A program may make a catalog without that function: dlt makes a SqlCatalog in memory where it finds no .pyiceberg.yaml in the places that it
knows. So the constructor of all catalogs refuses one that does not encrypt, by a name whose configuration does.

An encrypting class is one of tablecrypt_catalog, or one that `tablecrypt_catalog.encrypted` made.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, Catalog
from pyiceberg.utils.config import Config

logger = logging.getLogger(__name__)

_OURS: Final = "tablecrypt"
_OWN_PACKAGE: Final = "tablecrypt_catalog"
_OWN_SETTINGS: Final = "encryption."
_teaching: Final = threading.Lock()


def teach(catalogs: ModuleType) -> None:
    """Change the module `pyiceberg.catalog`, or another that was executed from its source. A second time changes nothing."""
    with _teaching:
        loaders = catalogs.AVAILABLE_CATALOGS
        # Taught before: a second change would wrap each loader once more.
        if any(kind.value == _OURS for kind in loaders):
            return

        ours = _new_member(catalogs.CatalogType)
        loaders.update({kind: _refusing_encrypting_classes(kind.value, load) for kind, load in loaders.items()})
        # After the others are wrapped, for ours is to take encrypting classes.
        loaders[ours] = _load
        _refuse_plain(catalogs.Catalog)
        vars(catalogs)["infer_catalog_type"] = _inferring(ours, catalogs.infer_catalog_type)
        _find_by_value(catalogs.CatalogType, ours)


def names_encrypting_class(configured: Mapping[str, Any]) -> bool:
    """Whether the py-catalog-impl of a catalog's properties encrypts.

    A module that is not ours is imported to see; PyIceberg would not. If that fails, it is not known: the entry counts if the configuration
    says anything of encryption, so that loading it raises an error. Otherwise it is ignored, as PyIceberg ignores it.
    """
    class_path = configured.get(PY_CATALOG_IMPL)
    if not class_path:
        return False

    module, _, name = str(class_path).rpartition(".")
    if module.partition(".")[0] == _OWN_PACKAGE:
        return True

    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # noqa: BLE001  what a module of anybody's raises when it is imported
        logger.debug("%s %s cannot be imported: %s", PY_CATALOG_IMPL, class_path, error)
        return any(name.startswith(_OWN_SETTINGS) for name in configured)

    return encrypts(found)


def encrypts(catalog: object) -> bool:
    """Whether a catalog, or a class of catalogs, is an encrypting one."""
    return hasattr(catalog, "as_encrypted")


def warn_of_plain_catalogs() -> None:
    """Log a warning for each catalog of this process that does not encrypt while the configuration by its name would."""
    made = [each for each in gc.get_objects() if Catalog in type(each).__mro__ and not encrypts(type(each))]
    if not made:
        return

    config = Config()

    for name, kind in dict.fromkeys((each.name, type(each).__name__) for each in made if isinstance(getattr(each, "name", None), str)):
        if _is_to_encrypt(config.get_catalog_config(name) or {}):
            logger.warning(
                "Catalog %s was loaded as a %s before tablecrypt.register(), and does not encrypt: call register() first, "
                "and load it again",
                name,
                kind,
            )


def _is_to_encrypt(configured: Mapping[str, Any]) -> bool:
    return str(configured.get(TYPE)).lower() == _OURS or names_encrypting_class(configured)


def _refuse_plain(catalog_class: Any) -> None:
    """Let no catalog be made that does not encrypt, by the name of one that is configured to."""
    init = catalog_class.__init__

    @wraps(init)
    def init_unless_plain(self: Catalog, name: str, **properties: str) -> None:
        # Whoever overrides the configuration in the arguments is refused too: a program that did not find it looks the same.
        if not encrypts(type(self)) and isinstance(name, str) and _is_to_encrypt(Config().get_catalog_config(name) or {}):
            from tablecrypt.errors import ConfigurationError

            raise ConfigurationError(
                f"catalog {name!r} is configured to encrypt, and the program makes a {type(self).__name__} of that name, which does not: "
                "set PYICEBERG_HOME to the folder of .pyiceberg.yaml, where programs look for it, or name the plain catalog otherwise"
            )

        init(self, name, **properties)

    catalog_class.__init__ = init_unless_plain


def _new_member(kinds: Any) -> Any:
    member = object.__new__(kinds)
    member._name_, member._value_ = _OURS.upper(), _OURS
    return member


def _find_by_value(kinds: Any, member: Any) -> None:
    """Let an enumeration find a member that it does not list. Others are looked for as before."""
    otherwise = kinds._missing_

    def missing(_: object, value: object) -> Any:
        return member if value == _OURS else otherwise(value)

    kinds._missing_ = classmethod(missing)


def _load(name: str, configured: Mapping[str, Any]) -> Catalog:
    from tablecrypt_catalog.configuration import Configured

    return Configured(name, dict(configured), dict(configured)).load()


def _inferring(ours: Any, infer: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(infer)
    def infer_catalog_type(name: str, catalog_properties: Mapping[str, Any]) -> Any:
        return ours if names_encrypting_class(catalog_properties) else infer(name, catalog_properties)

    return infer_catalog_type


def _refusing_encrypting_classes(kind: str, load: Callable[..., Catalog]) -> Callable[..., Catalog]:
    @wraps(load)
    def load_unless_contradicted(name: str, conf: Mapping[str, Any]) -> Catalog:
        # The type says plaintext and the class says ciphertext: to follow either would ignore the other.
        if names_encrypting_class(conf):
            from tablecrypt.errors import ConfigurationError

            raise ConfigurationError(
                f"catalog {name!r} has 'type: {kind}', which does not encrypt, and {PY_CATALOG_IMPL} {conf[PY_CATALOG_IMPL]!r}, which "
                f"does: write 'type: {_OURS}', or remove {PY_CATALOG_IMPL}"
            )

        return load(name, conf)

    return load_unless_contradicted
