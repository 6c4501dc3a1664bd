"""What of a catalog's configuration depends on the folder in which a program runs: a SQLite database, and a warehouse without a scheme.

uri: sqlite:///catalog.db          /home/me/catalog.db where the program runs in /home/me, and elsewhere another, new database
warehouse: warehouse               likewise; a table that is there keeps the folder in which it was made
warehouse: ~/warehouse             /home/me/warehouse, wherever the program runs
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog import URI, WAREHOUSE_LOCATION

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.locations import below_home, is_relative

logger = logging.getLogger(__name__)

_SQLITE: Final = "sqlite"
_IN_MEMORY: Final = ("", ":memory:")
_told: Final[set[str]] = set()


def relative_places(name: str, properties: Mapping[str, Any]) -> str | None:
    """Return which files a catalog's relative settings mean here, in one sentence; None where it has none."""
    places = []
    database = _database(properties)
    if database is not None and not os.path.isabs(database):
        places.append(f"{properties[URI]} is {os.path.abspath(database)}")
    warehouse = below_home(str(properties.get(WAREHOUSE_LOCATION) or ""))
    # Only beside a local database: to a server a warehouse without a scheme may be a name.
    if database is not None and warehouse and is_relative(warehouse):
        places.append(f"warehouse {warehouse!r} is {os.path.abspath(warehouse)}")
    return f"catalog {name}: {' and '.join(places)} (relative to the current folder)" if places else None


def tell_places(name: str, properties: Mapping[str, Any]) -> None:
    """Log, once in a process, which files relative settings mean: a warning where the catalog will make a new database there."""
    places = relative_places(name, properties)
    if places is None or places in _told:
        return

    _told.add(places)
    if is_missing(properties):
        logger.warning("%s; there is no database yet, and a new one is made", places)
    else:
        logger.info("%s", places)


def is_missing(properties: Mapping[str, Any]) -> bool:
    """Whether a catalog's SQLite database is not there."""
    return _missing_database(properties) is not None


def check_database(properties: Mapping[str, Any]) -> None:
    """Refuse a SQLite database that is not there, or empty: a catalog would make its tables in it, in which nothing is found.

    Raises:
        ConfigurationError: it is not there, or has no byte.
    """
    database, reason = _missing_database(properties), ""
    if database is None:
        return
    if Path(database).exists():
        raise ConfigurationError(
            f"the catalog database {os.path.abspath(database)} is empty: restore it from a copy, or delete it if it never had a table"
        )
    if not os.path.isabs(database):
        reason = f": {properties[URI]} is relative to the current folder. Go where the database is, or write its whole path"
    raise ConfigurationError(f"there is no catalog database at {os.path.abspath(database)}{reason}")


def check_folder(properties: Mapping[str, Any]) -> None:
    """Refuse a SQLite database in a folder that is not there. SQLite makes a database and no folder, and its error names neither.

    Raises:
        ConfigurationError: the folder is not there.
    """
    database = _database(properties)
    if database is None or os.path.isdir(folder := os.path.dirname(os.path.abspath(database))):
        return
    advice = "write the whole path in place of ~, which no uri knows" if "~" in database else "make it, or correct the uri"
    raise ConfigurationError(f"unable to open database file {os.path.abspath(database)}: there is no folder {folder}: {advice}")


def _missing_database(properties: Mapping[str, Any]) -> str | None:
    """Return the path of a SQLite database that is not there or has no byte; None where it is, or where the catalog has no file."""
    database = _database(properties)
    return None if database is None or (Path(database).exists() and Path(database).stat().st_size) else database


def _database(properties: Mapping[str, Any]) -> str | None:
    """Return the path of a SQLite database as it is written; None where the catalog has no file."""
    uri = str(properties.get(URI) or "")
    if not uri.startswith(_SQLITE):
        return None

    # The import takes a tenth of a second, and other catalogs need nothing of it.
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(uri)
    except (ArgumentError, ValueError):
        return None

    database = url.database or ""

    return None if url.get_backend_name() != _SQLITE or database in _IN_MEMORY or database.startswith("file:") else database
