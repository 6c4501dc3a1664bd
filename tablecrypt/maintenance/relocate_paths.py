"""Where each file of a table goes when the table is copied to another location. Pure.

    <old location>/data/day=1/a.parquet     →  <new location>/data/day=1/a.parquet
    anywhere else:  <folder>/b.parquet      →  <new location>/data/elsewhere-<hash of the folder>/b.parquet

Spellings of one place count as the same: s3a: and s3:, file:/a and file:///a and /a.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.deletion import store_of

_LOCATION: Final = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?/*(?P<rest>.*)", re.DOTALL)
_HASH_LENGTH: Final = 12
_LOCAL: Final = "file"


@dataclass(frozen=True)
class PathMap:
    """From locations of one table to those of its copy.

    Args:
        old: the table's location.
        new: the copy's, without a slash at the end.

    Raises:
        ConfigurationError: the new one is no location that can be used, or one of them lies inside the other: each would count the other's
            files among its own.
    """

    old: str
    new: str

    def __post_init__(self) -> None:
        scheme, rest = _parts(self.new)
        if not rest or (scheme == _LOCAL and not self.new.lower().startswith((f"{_LOCAL}:", "/"))):
            raise ConfigurationError(
                f"{self.new!r} is not a location for a table: write a whole one, such as s3://bucket/folder or /folder"
            )
        if "#" in self.new or "?" in self.new:
            raise ConfigurationError(f"{self.new!r}: PyIceberg leaves out what follows # or ? in a location: choose another")
        if _below(self.old, self.new) is not None or _below(self.new, self.old) is not None:
            raise ConfigurationError(f"a copy cannot lie inside the table, nor the table inside its copy: {self.old} and {self.new}")

    def __call__(self, location: str) -> str:
        """Return where a file goes."""
        below = _below(location, self.old)
        if below:
            return f"{self.new}/{below}"
        folder, _, name = location.rpartition("/")
        return f"{self.new}/data/elsewhere-{hashlib.sha256(folder.encode()).hexdigest()[:_HASH_LENGTH]}/{name}"

    def folder(self, location: str) -> str | None:
        """Return where a folder goes that a property names; None for one outside the table, which stays the old table's."""
        below = _below(location, self.old)
        return None if below is None else f"{self.new}/{below}".rstrip("/")


def _below(location: str, root: str) -> str | None:
    """Return what follows the root in a location inside it, "" for the root itself, None for one that is not inside."""
    (scheme, path), (root_scheme, root_path) = _parts(location), _parts(root)
    if scheme != root_scheme or not f"{path}/".startswith(f"{root_path}/"):
        return None
    return path[len(root_path) :].lstrip("/")


def _parts(location: str) -> tuple[str, str]:
    match = _LOCATION.fullmatch(location)
    scheme = (match["scheme"] or "").lower() if match else ""
    return store_of(scheme), (match["rest"] if match else location).rstrip("/")
