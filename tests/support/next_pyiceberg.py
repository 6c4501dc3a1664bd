"""Finds the PyIceberg that comes after the one that is locked, for `make test-pyiceberg-next`.

    python -m tests.support.next_pyiceberg      prints what pip is to install, or nothing where there is nothing newer; and to stderr, why

First comes the main branch, where its repository can be reached (PYICEBERG_MAIN names another one), and then the newest release or
pre-release in the package registry.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from typing import Final

from packaging.version import Version

REPOSITORY: Final = "https://github.com/apache/iceberg-python"
_PATIENCE_S: Final = 60


def main_branch(repository: str) -> str | None:
    """The newest commit of the main branch, as pip takes it, or None where the repository cannot be reached."""
    command = ["git", "ls-remote", "--exit-code", repository, "refs/heads/main"]
    try:
        asked = subprocess.run(
            command, env=os.environ | {"GIT_TERMINAL_PROMPT": "0"}, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return f"git+{repository}@{asked.stdout.split()[0]}" if asked.returncode == 0 else None


def newest_release(*options: str) -> Version | None:
    """The newest version in the registry, pre-releases among them, or None where pip finds none.

    Args:
        options: of pip, such as another place to look for packages.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", "pyiceberg", "--pre", *options]
    listed = re.match(r"pyiceberg \((\S+)\)", subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return Version(listed[1]) if listed else None


def next_requirement(repository: str, locked: Version, *options: str) -> str | None:
    """What pip is to install: the main branch, else a newer release than `locked`, else None."""
    if branch := main_branch(repository):
        return branch
    newest = newest_release(*options)
    return f"pyiceberg=={newest}" if newest and newest > locked else None


def main() -> int:
    """Print the requirement, and to stderr what it is."""
    repository, locked = os.environ.get("PYICEBERG_MAIN", REPOSITORY), Version(version("pyiceberg"))
    requirement = next_requirement(repository, locked)
    if requirement is None:
        sys.stderr.write(f"{repository} cannot be reached, and the registry has nothing newer than PyIceberg {locked}: nothing to test\n")
    else:
        sys.stderr.write(f"Locked is PyIceberg {locked}; next is {requirement}\n")
        sys.stdout.write(f"{requirement}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
