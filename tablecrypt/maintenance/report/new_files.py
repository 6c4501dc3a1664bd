"""Files that people keep, such as evidence: checked before the work that fills them begins, and there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from tablecrypt._atomic_file import check_folder_of, named_file
from tablecrypt.errors import ConfigurationError


def check_new_file(path: Path, suffixes: Collection[str], replace: bool = False, instead: str = "") -> None:
    """Refuse a path to which no file could be written.

    Args:
        path: the file's name.
        suffixes: in one of which it ends.
        replace: whether there may be a file of that name already.
        instead: what the caller may do instead of naming another file.

    Raises:
        ConfigurationError: it ends otherwise, is a folder or an existing file, or its folder is missing or cannot be written to.
    """
    if path.suffix.lower() not in suffixes:
        raise ConfigurationError(f"{path}: the name must end in {' or '.join(sorted(suffixes))}")
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder: name a file")
    # A link that leads nowhere is in the way too: it would be found once there is nothing left to do but to write the file.
    if os.path.lexists(path) and not replace:
        raise _exists(path, instead)
    check_folder_of(path)


def write_new_file(path: Path, content: bytes, replace: bool = False, instead: str = "") -> None:
    """Write a file that its owner alone can read, in one step.

    Raises:
        ConfigurationError: there is one of that name, and `replace` is not set.
        OSError: the file system failed.
    """
    try:
        with named_file(path, replace=replace, durable=True) as file:
            file.write(content)
    except FileExistsError as error:
        # Another program made it since the check: it is not replaced.
        raise _exists(path, instead) from error


def _exists(path: Path, instead: str) -> ConfigurationError:
    return ConfigurationError(f"{path} exists already: name another file{instead}")
