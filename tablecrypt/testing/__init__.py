"""Tests that others run on their own parts. Install the extra `testing`: they need pytest and Hypothesis.

    KeyManagementClientContract   what every key management client must do, as a pytest class
    EncryptedCatalogContract      what every catalog of encrypted tables must do, as a pytest class
    TableStateMachine             any sequence of operations on a table, against a model of its rows in memory
    strategies                    Hypothesis strategies: schemas, rows, partition specs, filters, keys, key metadata, properties
    plaintext                     what plaintext looks like in storage, and the string to write into rows so that it is found there

A test that fails says in its name, or in one line, which property does not hold.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tablecrypt.errors import MissingExtraError

try:
    import hypothesis  # noqa: F401
    import pytest
except ImportError as error:
    raise MissingExtraError.named(f"tablecrypt.testing needs the package {error.name}", "testing") from error

if TYPE_CHECKING:
    from tablecrypt.testing.catalog_contract import EncryptedCatalogContract as EncryptedCatalogContract
    from tablecrypt.testing.kms_contract import KeyManagementClientContract as KeyManagementClientContract
    from tablecrypt.testing.table_machine import TableStateMachine as TableStateMachine

__all__ = ["EncryptedCatalogContract", "KeyManagementClientContract", "TableStateMachine"]

_MODULES: Final = {
    "EncryptedCatalogContract": "catalog_contract",
    "KeyManagementClientContract": "kms_contract",
    "TableStateMachine": "table_machine",
}

# Before they are imported: an assertion that fails then shows its values, as in a test file.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _MODULES.values()))


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
