"""What programs that are written for PyIceberg make of a catalog's configuration. PyIceberg is asked for the type; nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, CatalogType, infer_catalog_type
from pyiceberg.utils.config import Config

from tablecrypt.maintenance._doctor.checks import Check, CheckState

_OURS: Final = "tablecrypt"
_ADVICE: Final = "write 'type: tablecrypt' into the catalog's configuration, which PyIceberg's own loader refuses"


def plain_program_checks(area: str, name: str) -> Iterator[Check]:
    """Say whether a program that calls PyIceberg's load_catalog by a catalog's name would write plaintext. Nothing if none is configured.

    Args:
        area: of the check.
        name: the catalog's.
    """
    configured = Config().get_catalog_config(name) or {}
    if not configured:
        # Nothing by that name is in PyIceberg's own configuration, so such a program does not find the catalog at all.
        return

    kind = str(configured.get(TYPE) or "").lower()
    if kind == _OURS:
        yield Check(area, "programs written for PyIceberg", CheckState.WORKS, f"'type: {_OURS}': PyIceberg's own loader {_what_it_does()}")
        return

    said = f"'type: {kind}'" if kind else f"{PY_CATALOG_IMPL} alone" if configured.get(PY_CATALOG_IMPL) else f"no 'type: {_OURS}'"
    ignores = "ignores it and " if not kind and configured.get(PY_CATALOG_IMPL) else ""
    plain = kind or _inferred(name, configured)

    if plain:
        # This is the silent case: the program opens the tables' catalog, and writes plaintext there.
        found, state = f"{said}: PyIceberg's loader {ignores}opens a plain catalog ({plain})", CheckState.FAILS
    else:
        found, state = f"{said}: PyIceberg's loader {ignores}finds no catalog without it", CheckState.NOTED

    yield Check(area, "programs written for PyIceberg", state, found, _ADVICE)


def _what_it_does() -> str:
    try:
        CatalogType(_OURS)
    except ValueError:
        return "refuses it; tablecrypt run, tablecrypt activate and tablecrypt.register() let it open the encrypting catalog"
    return "opens the encrypting catalog in this environment, where it is registered, and refuses it elsewhere"


def _inferred(name: str, configured: Mapping[str, Any]) -> str | None:
    """Return the type that PyIceberg infers without the class, which it does not look at; None where it infers none."""
    try:
        found = infer_catalog_type(name, {each: value for each, value in configured.items() if each != PY_CATALOG_IMPL})
    except ValueError:
        return None
    return None if found is None else str(found.value)
