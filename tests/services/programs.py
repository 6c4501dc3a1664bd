"""Programs of services, from the registries of npm and Go: fetched the first time, and kept in the user's cache folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.kept_folders import kept_folder


def npm_package(name: str, version: str) -> Path:
    """The folder node_modules with a package and all that it needs. No script of a package runs."""

    def fetching(folder: Path) -> list[str]:
        return ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), f"{name}@{version}"]

    return kept_folder(f"{name}-{version}", fetching) / "node_modules"


def go_program(package: str, version: str) -> Path:
    """A program that Go builds. Its checksum database knows the version."""
    name = package.rpartition("/")[2]
    # Without GOFLAGS of this machine, which might build something else.
    fetching = lambda folder: ["env", "GOFLAGS=", f"GOBIN={folder}", "go", "install", "-trimpath", f"{package}@{version}"]  # noqa: E731
    return kept_folder(f"{name}-{version}", fetching) / name


def problem_without(service: str, *tools: str) -> str | None:
    """None where all tools are on the PATH, else a sentence that says which are missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return f"{service} needs {' and '.join(missing)} on the PATH." if missing else None
