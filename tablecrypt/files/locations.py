"""Paths without a scheme, which PyIceberg takes from the working directory of the process, and what is stored in their place.

    warehouse/db/orders          PyIceberg: /home/me/warehouse/db/orders, in a process that runs in /home/me     Hadoop: by its fs.defaultFS
    /data/warehouse/db/orders    PyIceberg: the same folder in every process                                  Hadoop: by its fs.defaultFS
    file:///data/warehouse/…     the same folder in every process of both

Table spec, "Manifests": the path of a file is a full URI. So a new encrypted table gets one. Tables that have a path keep it.
"""

from __future__ import annotations

import os
import re
from typing import Final

from tablecrypt.arguments import file_path
from tablecrypt.errors import ConfigurationError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LOCAL: Final = "file:"


def scheme_of(uri: str) -> str | None:
    """Return the scheme of a URI with two slashes, which may be shown: what follows it may hold a password."""
    found = _SCHEME.match(uri)
    return found[1] if found and uri.startswith("//", found.end()) else None


def is_path(location: str) -> bool:
    """Whether a location has no scheme."""
    return not _SCHEME.match(location)


def is_relative(location: str) -> bool:
    """Whether a location leads elsewhere from another working directory."""
    return is_path(location) and not os.path.isabs(location)


def below_home(location: str) -> str:
    """Return a location whose `~` at the beginning is the home folder, as for key files; another one as it is.

    Raises:
        ConfigurationError: there is no such home folder.
    """
    return str(file_path("a location", location)) if location.startswith("~") else location


def with_scheme(location: str) -> str:
    """Return a location that leads everywhere where PyIceberg finds it from here: file:// before a path that has no scheme."""
    return f"file://{os.path.abspath(location)}" if is_path(location) else location


def for_pyiceberg(location: str) -> str:
    """Return what `with_scheme` made as PyIceberg reads it: it would end the path of a URI at a ? or #."""
    return location.removeprefix("file://") if location.startswith("file:///") and re.search("[?#]", location) else location


def location_of_new_table(location: str) -> str:
    """Return what to store as the location of a new encrypted table.

    A path with a ? or # stays without a scheme: PyIceberg would cut it off there behind one.

    Raises:
        ConfigurationError: PyIceberg would put the files elsewhere.
    """
    if re.search("[\t\r\n]", location):
        raise ConfigurationError(f"{location!r}: PyIceberg passes over tabs and line breaks in a location: choose one without them")
    if is_path(location):
        path = os.path.abspath(location)
        return path if re.search("[?#]", path) else f"file://{path}"
    if not location.startswith(_LOCAL):
        return location

    path = location.removeprefix(_LOCAL)
    host = path.removeprefix("//") if path.startswith("//") else path
    # PyIceberg would take the first folder for a host and write the files below another path.
    if not host.startswith("/"):
        raise ConfigurationError(f"{location}: {host.partition('/')[0]!r} would be a host, and a local file has none: write file:///…")
    if re.search("[?#]", path):
        raise ConfigurationError(f"{location}: PyIceberg ends the path at the first ? or #: write it without file://")

    return location
